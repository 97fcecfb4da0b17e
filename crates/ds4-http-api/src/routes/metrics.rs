//! `GET /metrics`: the engine's counters, and those of HTTP, in Prometheus' text format.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use ds4_engine_api::EngineStatus;

use crate::state::ApiState;

pub(super) async fn metrics(State(state): State<ApiState>) -> Response {
    let text = prometheus(&state.engine().status(), state.responses().counts());
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

fn prometheus(status: &EngineStatus, responses: BTreeMap<u16, u64>) -> String {
    let mut page = Page::default();
    page.gauge("engine_up", "Whether the engine answers requests.", u64::from(status.stopped.is_none()));
    page.gauge("requests_running", "Requests that run now.", status.running);
    page.gauge("requests_waiting", "Requests that wait.", status.waiting);
    page.counter("requests_completed_total", "Requests that ended, by any cause.", status.completed);
    page.counter("requests_cancelled_total", "Requests that were cancelled.", status.cancelled);
    page.counter("requests_failed_total", "Requests that failed.", status.failed);

    page.counters(
        "http_responses_total",
        "Responses by HTTP status, those that refuse included.",
        "status",
        responses,
    );

    page.counter("prefill_tokens_total", "Prompt tokens that were read.", status.prefill_tokens);
    page.counter("cached_tokens_total", "Prompt tokens that needed no reading.", status.cached_tokens);
    page.counter("decode_tokens_total", "Tokens generated.", status.decode_tokens);
    page.gauge("cache_bytes", "Bytes that the caches of running requests hold.", status.cache_bytes);
    page.gauge("snapshots", "States of conversations that are kept in memory.", status.snapshots);
    page.gauge("snapshot_bytes", "Bytes of the states that are kept in memory.", status.snapshot_bytes);

    let drafts = &status.speculation;
    page.counter("draft_cycles_total", "Cycles that checked drafts of the head.", drafts.cycles);
    page.counter("drafted_tokens_total", "Tokens that the head drafted.", drafts.drafted);
    page.counter("accepted_tokens_total", "Tokens of the head that were accepted.", drafts.accepted);
    page.counters(
        "accepted_tokens_by_position_total",
        "Tokens of the head that were accepted, by position in the window.",
        "position",
        (1..).zip(&drafts.accepted_by_position),
    );
    page.counter("bonus_tokens_total", "Tokens that came free after a fully accepted window.", drafts.bonus);
    page.counter(
        "correction_tokens_total",
        "Tokens that took the place of a rejected one.",
        drafts.corrections,
    );
    page.counter(
        "copy_rounds_total",
        "Cycles that checked a block copied from a prompt.",
        drafts.copy_rounds,
    );
    page.counter("copy_drafted_tokens_total", "Tokens of blocks copied from a prompt.", drafts.copy_drafted);
    page.counter("copied_tokens_total", "Accepted tokens of blocks copied from a prompt.", drafts.copied);
    page.counter(
        "verify_passes_total",
        "Passes of the model while decoding, for each answer that shares one.",
        drafts.verify_passes,
    );
    page.counter("draft_seconds_total", "Time spent drafting.", drafts.draft_seconds);
    page.counter(
        "verify_seconds_total",
        "Time spent in passes while decoding, for each answer that shares one.",
        drafts.verify_seconds,
    );
    page.counter("repair_seconds_total", "Time spent taking back rejected rows.", drafts.repair_seconds);
    page.0
}

/// The text so far. Writing to a string cannot fail.
#[derive(Default)]
struct Page(String);

impl Page {
    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, "gauge", help);
        self.value(&name, value);
    }

    fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, "counter", help);
        self.value(&name, value);
    }

    /// A counter for each value of a label.
    fn counters(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        counts: impl IntoIterator<Item = (impl Display, impl Display)>,
    ) {
        self.head(name, "counter", help);
        for (value, count) in counts {
            self.value(&format_args!("{name}{{{label}=\"{value}\"}}"), count);
        }
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.0, "# HELP ds4_{name} {help}\n# TYPE ds4_{name} {kind}\n");
    }

    fn value(&mut self, name: &dyn Display, value: impl Display) {
        let _ = writeln!(self.0, "ds4_{name} {value}");
    }
}
