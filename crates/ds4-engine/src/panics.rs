//! A panic is a defect of this program. Inside of one request's work it ends that request with an error; what the next
//! request uses of the loop is whole, because the state that was being changed is dropped with the request.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ds4_engine_api::EngineError;

/// Does some work; a panic becomes an error.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, EngineError> {
    catch_unwind(AssertUnwindSafe(work))
        .map_err(|panic| EngineError::Panicked { message: message(panic.as_ref()) })
}

/// What `panic!` was given; payloads of other types have no text.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_is_kept() {
        assert_eq!(caught(|| 3), Ok(3));
        let panicked = |message: &str| Err(EngineError::Panicked { message: message.to_owned() });
        assert_eq!(caught(|| -> u8 { panic!("plain") }), panicked("plain"));
        assert_eq!(caught(|| -> u8 { panic!("number {}", 7) }), panicked("number 7"));
        assert_eq!(caught(|| -> u8 { std::panic::panic_any(7) }), panicked("no message"));
    }
}
