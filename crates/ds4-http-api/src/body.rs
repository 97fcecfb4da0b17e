//! Reading a request's body: a limit on its size, and JSON whatever the `Content-Type` says.

use std::future::poll_fn;
use std::pin::Pin;

use axum::body::{Body, BodyDataStream, Bytes};
use futures_core::Stream;
use serde_json::{Map, Value};

use crate::error::{ApiError, ParameterError};
use crate::fields::kind;

/// Reads a body of at most `limit` bytes. Of one that is too large, as much again is read and dropped, see [`discard`].
pub(crate) async fn read(body: Body, limit: usize) -> Result<Vec<u8>, ApiError> {
    let mut frames = body.into_data_stream();
    let mut bytes = Vec::new();
    while let Some(frame) = next(&mut frames).await? {
        if bytes.len() + frame.len() > limit {
            drop(bytes);
            discard(frames, limit).await;
            return Err(ApiError::BodyTooLarge { limit });
        }
        bytes.extend_from_slice(&frame);
    }
    Ok(bytes)
}

/// Reads at most `limit` bytes and drops them.
///
/// Many clients read the response only after they have sent everything, and an early refusal reaches them as a
/// broken connection.
pub(crate) async fn discard(mut frames: BodyDataStream, limit: usize) {
    let mut dropped = 0;
    while dropped < limit {
        match next(&mut frames).await {
            Ok(Some(frame)) => dropped += frame.len(),
            // The end, or nobody is there to be told of the refusal.
            Ok(None) | Err(_) => return,
        }
    }
}

async fn next(frames: &mut BodyDataStream) -> Result<Option<Bytes>, ApiError> {
    poll_fn(|context| Pin::new(&mut *frames).poll_next(context))
        .await
        .transpose()
        .map_err(|_| ApiError::BodyUnreadable)
}

/// Parses a body that has to be a JSON object.
pub(crate) fn parse(bytes: &[u8]) -> Result<Map<String, Value>, ApiError> {
    let value = serde_json::from_slice(bytes).map_err(|error| {
        let text = error.to_string();
        // The position has fields of its own.
        let reason = text.rsplit_once(" at line ").map_or(text.as_str(), |(reason, _)| reason).to_owned();
        ApiError::InvalidJson { line: error.line(), column: error.column(), reason }
    })?;
    match value {
        Value::Object(object) => Ok(object),
        other => Err(ParameterError::NotAnObject { found: kind(&other) }.into()),
    }
}
