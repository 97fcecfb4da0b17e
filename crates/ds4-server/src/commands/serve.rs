//! `serve`: OpenAI's API over HTTP until Ctrl-C or SIGTERM.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use ds4_engine::RequestLimits;
use ds4_engine_api::Engine as _;
use ds4_http_api::{ApiOptions, ApiState};
use ds4_session_store::{SessionRecord, Store};
use tokio::net::TcpListener;

use crate::flags::ServeFlags;
use crate::log;
use crate::model_loader;
use crate::output;

/// Threads for connections. The model has its own, and connections do little.
const HTTP_THREADS: usize = 2;
/// Sessions of earlier runs whose tokens are read at the start.
const REMEMBERED_SESSIONS: usize = 64;

pub(super) fn run(flags: ServeFlags) -> anyhow::Result<()> {
    log::start(&flags.log)?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(HTTP_THREADS).enable_all().build()?;
    // Before the model is loaded, which may take minutes: a port in use should be known at once.
    let listener = runtime.block_on(listen(SocketAddr::new(flags.host, flags.port)))?;
    let address = listener.local_addr()?;

    let mut running = model_loader::start(
        &flags.model.settings(),
        &flags.sessions.settings(),
        RequestLimits { parallel: flags.parallel, waiting: flags.max_waiting },
        flags.quiet,
    )?;
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
    runtime.block_on(async { ds4_http_api::serve(listener, state, shutdown()?).await })?;
    if let Some(reason) = running.engine.status().stopped {
        bail!("the engine had stopped ({reason}): requests were refused since then");
    }
    if !flags.quiet {
        output::stderr("stopped\n");
    }
    Ok(())
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

/// Resolves on Ctrl-C and SIGTERM. The handlers are in place when this returns.
fn shutdown() -> io::Result<impl Future<Output = ()> + Send + 'static> {
    #[cfg(unix)]
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    Ok(async move {
        #[cfg(unix)]
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        }
        #[cfg(not(unix))]
        let _ = tokio::signal::ctrl_c().await;
    })
}
