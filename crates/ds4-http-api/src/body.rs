//! Reading a request's body: a limit on its size, and JSON whatever the `Content-Type` says.

use std::future::poll_fn;
use std::pin::pin;

use axum::body::{Body, Bytes};
use futures_core::Stream;
use serde_json::{Map, Value};

use crate::error::{ApiError, ParameterError};
use crate::fields::kind;

/// Reads a body of at most `limit` bytes.
///
/// Many clients read the response only after they have sent everything, and an early refusal reaches them as a
/// broken connection. So of a body that is too large as much again is read and dropped, then refused.
pub(crate) async fn read(body: Body, limit: usize) -> Result<Vec<u8>, ApiError> {
    let mut frames = pin!(body.into_data_stream());
    let mut bytes = Vec::new();
    let mut dropped = 0_usize;
    while let Some(frame) = poll_fn(|context| frames.as_mut().poll_next(context)).await {
        let frame: Bytes = frame.map_err(|_| ApiError::BodyUnreadable)?;
        if dropped > 0 || bytes.len() + frame.len() > limit {
            dropped += frame.len();
            bytes = Vec::new();
            if dropped > limit {
                break;
            }
        } else {
            bytes.extend_from_slice(&frame);
        }
    }
    if dropped > 0 { Err(ApiError::BodyTooLarge { limit }) } else { Ok(bytes) }
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
