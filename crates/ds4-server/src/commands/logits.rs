//! `logits`: runs given tokens through a model and writes what it expects after each. A tool to compare implementations.

use anyhow::Context as _;
use ds4_array::{DType, Device};
use ds4_engine_api::CancelToken;
use ds4_models::{BatchSegment, CausalLm, LogitRows};
use ds4_weights::{SafetensorsWriter, TensorSpec};

use crate::exit_code::{Interrupted, Usage};
use crate::flags::LogitsFlags;
use crate::interrupt::{Interrupts, WhenIdle};
use crate::model_loader;

/// Name of the tensor in the file.
const TENSOR: &str = "logits";

pub(super) fn run(flags: LogitsFlags) -> anyhow::Result<()> {
    let tokens = read_tokens(&flags.tokens)?;
    let settings = flags.model.settings();
    let device = if flags.reference { Device::reference() } else { settings.exact_device() };
    let files = model_loader::open(&settings.model)?;
    let model = model_loader::load(&files, &device, &settings, false)?.model;
    check(&tokens, &*model, settings.context)?;

    let spec = TensorSpec::new(TENSOR, DType::F32, [tokens.len(), model.vocabulary()]);
    let mut file = SafetensorsWriter::create(&flags.out, &[spec])?;
    // Ctrl-C gets here between passes, so that no unfinished file is left behind.
    let (interrupts, stop) = (Interrupts::watch(WhenIdle::Exit)?, CancelToken::new());
    let _stopping = interrupts.stops(&stop);
    let mut cache = model.new_cache();
    let mut rows = Vec::new();
    for tokens in tokens.chunks(flags.chunk) {
        let mut batch = [BatchSegment { tokens, cache: &mut cache, logits: LogitRows::All }];
        let logits = model
            .forward(&mut batch)?
            .logits
            .context("the model gave no logits although all were asked for")?;
        logits.read_f32(&mut rows)?;
        file.write_f32(TENSOR, &rows)?;
        if stop.is_cancelled() {
            return Err(Interrupted.into());
        }
    }
    file.finish()?;
    Ok(())
}

fn read_tokens(argument: &str) -> anyhow::Result<Vec<u32>> {
    let list = match argument.strip_prefix('@') {
        Some(path) => {
            std::fs::read_to_string(path).with_context(|| format!("cannot read the tokens from {path}"))?
        }
        None => argument.to_owned(),
    };
    let words = list.split(|c: char| c == ',' || c.is_whitespace()).filter(|word| !word.is_empty());
    let id =
        |word: &str| word.parse().map_err(|_| Usage(format!("--tokens: {word:?} is no token id")).into());
    let tokens: Vec<u32> = words.map(id).collect::<anyhow::Result<_>>()?;
    if tokens.is_empty() {
        return Err(Usage("--tokens: the list is empty".into()).into());
    }
    Ok(tokens)
}

fn check(tokens: &[u32], model: &dyn CausalLm, context: Option<usize>) -> anyhow::Result<()> {
    let (vocabulary, context) = (model.vocabulary(), context.unwrap_or(model.max_context()));
    if let Some(id) = tokens.iter().find(|&&id| id as usize >= vocabulary) {
        return Err(
            Usage(format!("--tokens: {id} is outside of the vocabulary of {vocabulary} tokens")).into()
        );
    }
    if tokens.len() > context {
        let count = tokens.len();
        return Err(Usage(format!("--tokens: {count} are more than the context of {context} tokens")).into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_commas_or_blanks() {
        assert_eq!(read_tokens("1,2, 3\n4").unwrap(), [1, 2, 3, 4]);
        assert!(read_tokens(" ").unwrap_err().is::<Usage>());
        let error = read_tokens("1,-2").unwrap_err();
        assert_eq!(error.to_string(), "--tokens: \"-2\" is no token id");
    }
}
