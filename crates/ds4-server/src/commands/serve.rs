//! `serve`: OpenAI's API over HTTP until Ctrl-C or SIGTERM.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use ds4_engine::{CacheLimit, RequestLimits};
use ds4_engine_api::Engine as _;
use ds4_http_api::{ApiOptions, ApiState};
use ds4_models::Description;
use ds4_session_store::{SessionRecord, Store};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::flags::{ServeFlags, SessionSettings};
use crate::log;
use crate::machine::machine_memory;
use crate::model_loader;
use crate::output;

/// Threads for connections. The model has its own, and connections do little.
const HTTP_THREADS: usize = 2;
/// Bytes of caches with which requests may run side by side on any machine.
const LEAST_CACHE_MEMORY: u64 = 1 << 30;
/// Sessions of earlier runs whose tokens are read at the start.
const REMEMBERED_SESSIONS: usize = 64;

pub(super) fn run(flags: ServeFlags) -> anyhow::Result<()> {
    log::start(&flags.log)?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(HTTP_THREADS).enable_all().build()?;
    // Before the model is loaded, which may take minutes: a port in use should be known at once.
    let listener = runtime.block_on(listen(SocketAddr::new(flags.host, flags.port)))?;
    let address = listener.local_addr()?;

    let (model, sessions) = (flags.model.settings(), flags.sessions.settings());
    // What is wrong with a model is said when it is loaded.
    let description = ds4_models::describe(&model_loader::open(&model.model)?).ok();
    let caches = description.map(|description| CacheLimit {
        size: description.cache_size.with_key_values(model.key_value_dtype),
        bytes: flags.cache_memory.unwrap_or_else(|| left_for_caches(&description, &sessions)),
    });
    let limits = RequestLimits { parallel: flags.parallel, waiting: flags.max_waiting, caches };
    let mut running = model_loader::start(&model, &sessions, limits, flags.quiet)?;
    let defaults = flags.sampling.over(running.text.defaults());
    running.text.set_defaults(defaults);
    if !flags.quiet {
        greet(address, &running.engine.model().id, flags.api_key.is_some());
    }
    let options = ApiOptions {
        api_key: flags.api_key,
        max_body_bytes: usize::try_from(flags.max_body).unwrap_or(usize::MAX),
        default_seed: flags.sampling.seed(),
        default_thinking: flags.sampling.thinking(),
        default_speculation: flags.sampling.speculation(),
        ..ApiOptions::default()
    };
    let state = ApiState::new(running.engine.clone(), Arc::new(running.text), options);
    for session in running.store.iter().flat_map(|store| recent(store)) {
        state.remember(session.timeline);
    }
    runtime.block_on(async {
        let [shutdown, hurry] = signals()?;
        ds4_http_api::serve(listener, state, shutdown, hurry).await
    })?;
    if let Some(reason) = running.engine.status().stopped {
        bail!("the engine had stopped ({reason}): requests were refused since then");
    }
    if !flags.quiet {
        output::stderr("stopped\n");
    }
    Ok(())
}

/// What is left for caches when everything else has its memory, and the rest of the computer an eighth.
fn left_for_caches(model: &Description, sessions: &SessionSettings) -> u64 {
    let taken = model.resident_bytes().saturating_add(sessions.memory_bytes);
    let left = |memory: u64| (memory - memory / 8).saturating_sub(taken);
    machine_memory().map_or(0, left).max(LEAST_CACHE_MEMORY)
}

/// Sessions of earlier runs, the last used last: their clients may come back.
fn recent(store: &Store) -> Vec<SessionRecord> {
    let sessions = store.sessions().into_iter().take(REMEMBERED_SESSIONS);
    let mut records: Vec<_> = sessions.filter_map(|session| store.session(&session.id)).collect();
    records.reverse();
    records
}

async fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| match address.port() {
        0 => format!("cannot listen on {}", address.ip()),
        port => format!("cannot listen on port {port} of {}", address.ip()),
    })
}

fn greet(address: SocketAddr, model: &str, has_key: bool) {
    let key = if has_key { " -H \"authorization: Bearer $DS4_API_KEY\"" } else { "" };
    output::stderr(&format!(
        "serving {model} on http://{address}/v1 (Ctrl-C stops)\n\
         try: curl http://{address}/v1/chat/completions -H 'content-type: application/json'{key} \
         -d '{{\"messages\": [{{\"role\": \"user\", \"content\": \"ping\"}}]}}'\n"
    ));
    if !has_key && !address.ip().is_loopback() {
        output::stderr("warning: other machines can use this server without a key; `--api-key` sets one\n");
    }
}

/// Resolve on the first and on the second Ctrl-C or SIGTERM. The handlers are in place when this returns.
fn signals() -> io::Result<[impl Future<Output = ()> + Send + 'static; 2]> {
    #[cfg(unix)]
    let [mut interrupt, mut terminate] = {
        use tokio::signal::unix::{SignalKind, signal};
        [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?]
    };
    let (first, first_seen) = oneshot::channel();
    let (second, second_seen) = oneshot::channel();
    tokio::spawn(async move {
        for seen in [first, second] {
            #[cfg(unix)]
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            #[cfg(not(unix))]
            let _ = tokio::signal::ctrl_c().await;
            // The server may have ended meanwhile.
            let _ = seen.send(());
        }
    });
    Ok([first_seen, second_seen].map(|seen| async move {
        if seen.await.is_err() {
            std::future::pending().await
        }
    }))
}
