//! Bearer keys. `/health` stays open, so that a supervisor needs no key; everything else asks for it.

use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::body;
use crate::error::ApiError;
use crate::state::ApiState;

/// Lets a request pass if no key is configured or if it carries the right one.
pub(crate) async fn require_key(State(state): State<ApiState>, request: Request, next: Next) -> Response {
    let options = state.options();
    let Some(key) = &options.api_key else { return next.run(request).await };
    let header = request.headers().get(AUTHORIZATION).map(|value| bearer(value.as_bytes()));
    let refusal = match header {
        Some(Some(given)) if equal(given, key.as_bytes()) => return next.run(request).await,
        Some(_) => ApiError::WrongApiKey,
        None => ApiError::MissingApiKey,
    };
    body::discard(request.into_body().into_data_stream(), options.max_body_bytes).await;
    refusal.into_response()
}

/// The key in a header of the form `Bearer KEY`; the scheme's case does not matter.
fn bearer(header: &[u8]) -> Option<&[u8]> {
    let (scheme, key) = header.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| key.trim_ascii())
}

/// Compares in a time that depends on the length of `given` alone: where the first difference is does not show.
fn equal(given: &[u8], key: &[u8]) -> bool {
    let mut difference = given.len() ^ key.len();
    for (index, byte) in given.iter().enumerate() {
        // A wrong length is an inequality already; the stand-in only keeps the loop's work the same.
        let expected = key.get(index).copied().unwrap_or(0);
        difference |= usize::from(std::hint::black_box(byte ^ expected));
    }
    std::hint::black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_key_is_equal() {
        assert!(equal(b"secret", b"secret"));
        for wrong in ["", "secre", "secrets", "Secret", "secret\0", "terces"] {
            assert!(!equal(wrong.as_bytes(), b"secret"), "{wrong:?}");
        }
        assert!(!equal(b"\0", b""));
    }

    #[test]
    fn bearer_headers() {
        assert_eq!(bearer(b"Bearer abc"), Some(&b"abc"[..]));
        assert_eq!(bearer(b"bearer  abc "), Some(&b"abc"[..]));
        assert_eq!(bearer(b"Basic abcdef"), None);
        assert_eq!(bearer(b"abc"), None);
    }
}
