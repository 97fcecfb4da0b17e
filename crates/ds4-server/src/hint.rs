//! What to do about an error, where its message alone does not say it.

use std::error::Error;
use std::io;

use ds4_engine_api::EngineError;
use ds4_models::ModelError;
use ds4_text::TextError;
use ds4_weights::WeightsError;

const LARGER_CONTEXT: &str = "a larger `--context` helps if the model allows it";
const DEMO: &str = "`--model demo` uses the model that comes with the program";

/// A hint for the first cause that has one.
pub(crate) fn of(error: &anyhow::Error) -> Option<&'static str> {
    error.chain().find_map(of_cause)
}

fn of_cause(cause: &(dyn Error + 'static)) -> Option<&'static str> {
    if let Some(WeightsError::NotAFolder { .. }) = cause.downcast_ref() {
        return Some(DEMO);
    }
    if let Some(ModelError::NoConfig { .. }) = cause.downcast_ref() {
        return Some(DEMO);
    }
    match cause.downcast_ref() {
        Some(EngineError::ContextLengthExceeded { .. }) => return Some(LARGER_CONTEXT),
        Some(EngineError::NonFiniteLogits { .. }) => {
            return Some("the weights may be damaged: compare their checksums with the original");
        }
        _ => {}
    }
    match cause.downcast_ref() {
        Some(TextError::NoChatTemplate { .. }) => return Some("`run --raw` needs no template"),
        Some(TextError::PromptTooLarge { .. } | TextError::TooManyParts { .. }) => {
            return Some(LARGER_CONTEXT);
        }
        _ => {}
    }
    match cause.downcast_ref::<io::Error>()?.kind() {
        io::ErrorKind::AddrInUse => Some(
            "another program uses this port: `--port N` chooses another one, `--port 0` any that is free",
        ),
        io::ErrorKind::AddrNotAvailable => Some("this machine does not have that address: see `--host`"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context as _;

    #[test]
    fn hints_are_found_below_context() {
        let error = Err::<(), _>(WeightsError::NotAFolder { path: "x".into() }).context("cannot load");
        assert!(of(&error.unwrap_err()).unwrap().contains("--model demo"));
        assert_eq!(of(&anyhow::anyhow!("something else")), None);
    }
}
