//! Server-sent events: frames, and the task that writes an answer as it comes.
//!
//! The task ends, and with it the answer, as soon as the client is gone. A client that reads slowly makes the task
//! wait, never the engine. An error in the middle of an answer is sent as an event `error`, and the `[DONE]` of a
//! normal end is missing.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use futures_core::Stream;
use serde::Serialize;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::error::{ApiError, ErrorBody};
use crate::generation::{Generation, Step};

/// Frames that may wait for a slow client before the task waits too.
const WAITING_FRAMES: usize = 64;

/// How a dialect writes an answer.
pub(crate) trait Writer: Send + 'static {
    /// Appends the frames of one step, which may be none.
    fn write(&mut self, step: Step, frames: &mut Frames);
}

/// Frames to be sent together.
#[derive(Debug, Default)]
pub(crate) struct Frames(String);

impl Frames {
    /// An event with JSON as its data.
    pub(crate) fn json(&mut self, data: &impl Serialize) {
        match serde_json::to_string(data) {
            // JSON has no line breaks outside of strings, and escapes them inside: one line of data.
            Ok(json) => self.data(&json),
            Err(error) => tracing::error!(%error, "an event could not be written"),
        }
    }

    /// The mark of a normal end.
    pub(crate) fn done(&mut self) {
        self.data("[DONE]");
    }

    fn error(&mut self, error: &ApiError) {
        self.0.push_str("event: error\n");
        self.json(&ErrorBody { error: error.report() });
    }

    fn comment(&mut self, text: &str) {
        self.0.push_str(&format!(": {text}\n\n"));
    }

    fn data(&mut self, data: &str) {
        self.0.push_str(&format!("data: {data}\n\n"));
    }
}

/// A response that streams an answer.
pub(crate) fn stream(generation: Generation, writer: impl Writer, keep_alive: Duration) -> Response {
    let (sender, receiver) = channel(WAITING_FRAMES);
    tokio::spawn(run(generation, writer, keep_alive, sender));
    let headers = [(CONTENT_TYPE, "text/event-stream; charset=utf-8"), (CACHE_CONTROL, "no-cache")];
    // The last one is for nginx, which would collect the events.
    (headers, [("x-accel-buffering", "no")], Body::from_stream(FrameStream(receiver))).into_response()
}

async fn run(mut generation: Generation, mut writer: impl Writer, pause: Duration, sender: Sender<Bytes>) {
    loop {
        let mut frames = Frames::default();
        let last = tokio::select! {
            () = sender.closed() => return,
            () = tokio::time::sleep(pause) => {
                frames.comment("keep-alive");
                false
            }
            step = generation.next() => match step {
                Ok(step) => {
                    let last = matches!(step, Step::End { .. });
                    writer.write(step, &mut frames);
                    last
                }
                Err(error) => {
                    match error {
                        ApiError::ShuttingDown => tracing::info!("an answer was ended by the shutdown"),
                        _ => tracing::error!(%error, "an answer failed"),
                    }
                    frames.error(&error);
                    true
                }
            },
        };
        if !frames.0.is_empty() && sender.send(frames.0.into()).await.is_err() {
            return;
        }
        if last {
            return;
        }
    }
}

struct FrameStream(Receiver<Bytes>);

impl Stream for FrameStream {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context).map(|frame| frame.map(Ok))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_line_break_in_the_text_stays_inside_of_one_data_line() {
        let mut frames = Frames::default();
        frames.json(&json!({"content": "a\nb\r\n"}));
        frames.done();
        assert_eq!(frames.0, "data: {\"content\":\"a\\nb\\r\\n\"}\n\ndata: [DONE]\n\n");
    }
}
