//! The listening side: connections in, a bounded time to end after a shutdown was asked for.

use std::future::Future;
use std::io;
use std::time::Duration;

use axum::serve::ListenerExt;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::ApiState;
use crate::ending::Stage;
use crate::routes::router;

/// Answers that were told that their time is over have this long to tell their clients.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Serves until `shutdown` resolves. Then no connection is accepted any more, requests that wait are refused, and answers that
/// run have [`ApiOptions::shutdown_grace`](crate::ApiOptions) to end before they end with an error; none, as soon as `hurry`
/// resolves.
///
/// # Errors
/// Those of the listener.
pub async fn serve(
    listener: TcpListener,
    state: ApiState,
    shutdown: impl Future<Output = ()> + Send + 'static,
    hurry: impl Future<Output = ()>,
) -> io::Result<()> {
    let grace = state.options().shutdown_grace;
    let ending = state.clone();
    let (asked, asked_seen) = oneshot::channel();
    // Events are small and each one is awaited: without this the kernel would hold them back.
    let listener = listener.tap_io(|stream| {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "no TCP_NODELAY on a connection");
        }
    });
    let signal = async move {
        shutdown.await;
        // The receiver is gone only if serving has ended.
        let _ = asked.send(());
    };
    let serving = axum::serve(listener, router(state)).with_graceful_shutdown(signal);
    let out_of_time = async move {
        match asked_seen.await {
            Ok(()) => {
                ending.ending().announce(Stage::Ending);
                tokio::select! {
                    () = tokio::time::sleep(grace) => {}
                    () = hurry => {}
                }
                ending.ending().announce(Stage::Over);
                tokio::time::sleep(LAST_WORDS).await;
            }
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        ended = async { serving.await } => ended,
        () = out_of_time => {
            tracing::info!("answers still ran when the time to end was over");
            Ok(())
        }
    }
}
