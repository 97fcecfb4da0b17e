//! From the name of a model to a loaded model and its text side.

use std::sync::Arc;

use anyhow::Context as _;
use ds4_array::{Device, Stream};
use ds4_engine::{EngineOptions, LocalEngine, RequestLimits};
use ds4_models::{LoadOptions, LoadedModel};
use ds4_session_store::Store;
use ds4_text::{ChatFamily, TextModel, TextSources};
use ds4_weights::{Checkpoint, ModelFiles};
use serde_json::Value;

use crate::exit_code::Usage;
use crate::flags::{ModelName, ModelSettings, SessionSettings};
use crate::output;
use crate::progress::Progress;
use crate::session_store;
use crate::tokenizer_fit;

/// From this many bytes of weights on, they are read ahead under a progress bar. Less is read faster than anybody looks.
const PREFETCH_FROM: u64 = 256 << 20;

/// The files of a model.
pub(crate) fn open(name: &ModelName) -> anyhow::Result<ModelFiles> {
    match name {
        ModelName::Demo(demo) => Ok(demo.files()),
        ModelName::Folder(dir) => Ok(ModelFiles::open(dir)?),
    }
}

/// Loads a model onto `device`. Unless `quiet`, shows progress and says what was left out.
pub(crate) fn load(
    files: &ModelFiles,
    device: &Device,
    settings: &ModelSettings,
    quiet: bool,
) -> anyhow::Result<LoadedModel> {
    let options = LoadOptions { stream: Stream::new(device), key_value_dtype: settings.key_value_dtype };
    let loaded =
        ds4_models::load(files, &options).with_context(|| format!("cannot load {}", files.name()))?;
    check_context(settings.context, loaded.model.max_context())?;
    for part in loaded.skipped.iter().filter(|_| !quiet) {
        output::stderr(&format!("note: {part}\n"));
    }
    if loaded.weight_bytes >= PREFETCH_FROM {
        prefetch(files, quiet)?;
    }
    Ok(loaded)
}

fn check_context(wanted: Option<usize>, limit: usize) -> anyhow::Result<()> {
    match wanted {
        Some(wanted) if wanted > limit => {
            Err(Usage(format!("--context {wanted} is more than this model's {limit} tokens")).into())
        }
        _ => Ok(()),
    }
}

/// Brings the weights into memory, so that the first answer does not wait for the disk bit by bit. Loading has mapped the
/// files already and reads the same pages.
fn prefetch(files: &ModelFiles, quiet: bool) -> anyhow::Result<()> {
    let checkpoint = Checkpoint::load(files)?;
    let tables = checkpoint.tensors().filter(|tensor| ds4_models::is_row_table(&tensor.name));
    tables.for_each(|tensor| tensor.advise_random());
    let bar = Progress::new("loading", quiet);
    checkpoint.prefetch(&|done, total| bar.set(done, total));
    Ok(())
}

/// Loads tokenizer, template and text settings of a model of this type and vocabulary, which runs with this context. Also
/// returns what is worth a remark.
pub(crate) fn load_text(
    files: &ModelFiles,
    model_type: &str,
    vocabulary: usize,
    context: usize,
) -> anyhow::Result<(TextModel, Vec<String>)> {
    let family = ChatFamily::from_model_type(model_type)
        .with_context(|| format!("there is no chat format for models of the type {model_type:?}"))?;
    let tokenizer = files.read("tokenizer.json")?.with_context(|| {
        format!("{} has no tokenizer.json: copy it from the original checkpoint", files.name())
    })?;
    let template = files.read("chat_template.jinja")?.map(String::from_utf8).transpose();
    let template = template.context("chat_template.jinja is not UTF-8")?;
    let tokenizer_config = files.read("tokenizer_config.json")?;
    let generation_config = files.read("generation_config.json")?;
    let text = TextModel::load(&TextSources {
        tokenizer_json: &tokenizer,
        tokenizer_config: tokenizer_config.as_deref(),
        chat_template: template.as_deref(),
        generation_config: generation_config.as_deref(),
        config_eos: &end_of_text(files)?,
        family,
        context,
    });
    let cannot_load = || format!("cannot load {}", files.name());
    let text = text.with_context(cannot_load)?;
    let fit =
        tokenizer_fit::check(text.tokenizer().vocabulary_size(), vocabulary).with_context(cannot_load)?;
    let unapplied = text.unapplied_settings().iter().map(ToString::to_string);
    let remarks = fit.into_iter().chain(unapplied).collect();
    Ok((text, remarks))
}

/// End-of-text ids of config.json, at the top and in `text_config`.
fn end_of_text(files: &ModelFiles) -> anyhow::Result<Vec<u32>> {
    let config = files.read("config.json")?.unwrap_or_default();
    // The model has read the file before; what is wrong with it has been said.
    let config: Value = serde_json::from_slice(&config).unwrap_or_default();
    let places = [&config["eos_token_id"], &config["text_config"]["eos_token_id"]];
    Ok(places.into_iter().flat_map(ids).collect())
}

fn ids(value: &Value) -> Vec<u32> {
    let one = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match value {
        Value::Array(values) => values.iter().filter_map(one).collect(),
        value => one(value).into_iter().collect(),
    }
}

/// A running engine and the text side of its model.
pub(crate) struct Running {
    /// Answers requests.
    pub(crate) engine: Arc<LocalEngine>,
    /// Text to tokens and back.
    pub(crate) text: TextModel,
    /// What the model computes on.
    pub(crate) device: Device,
    /// The folder in which conversations outlive the program, if there is one.
    pub(crate) store: Option<Arc<Store>>,
}

/// Loads a model with its text side and starts an engine that takes so many requests.
pub(crate) fn start(
    settings: &ModelSettings,
    sessions: &SessionSettings,
    requests: RequestLimits,
    quiet: bool,
) -> anyhow::Result<Running> {
    let files = open(&settings.model)?;
    let device = settings.device();
    let loaded = load(&files, &device, settings, quiet)?;
    let context = settings.context.unwrap_or_else(|| loaded.model.max_context());
    let (text, remarks) = load_text(&files, &loaded.model_type, loaded.model.vocabulary(), context)?;
    for remark in remarks.iter().filter(|_| !quiet) {
        output::stderr(&format!("note: {remark}\n"));
    }
    let sessions = session_store::options(sessions, settings.key_value_dtype, &files, &device, quiet)?;
    let store = sessions.disk.as_ref().map(|disk| Arc::clone(&disk.store));
    let options =
        EngineOptions { model_id: model_id(&settings.model), context: settings.context, requests, sessions };
    Ok(Running { engine: Arc::new(LocalEngine::start(loaded, options)), text, device, store })
}

/// What clients call the model: the last part of its folder.
fn model_id(name: &ModelName) -> String {
    match name {
        ModelName::Demo(demo) => demo.name().to_owned(),
        ModelName::Folder(dir) => {
            let dir = dir.canonicalize().unwrap_or_else(|_| dir.clone());
            dir.file_name().unwrap_or(dir.as_os_str()).to_string_lossy().into_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_text_ids_come_in_several_shapes() {
        assert_eq!(ids(&serde_json::json!([2, 0])), [2, 0]);
        assert_eq!(ids(&serde_json::json!(7)), [7]);
        assert_eq!(ids(&Value::Null), [0_u32; 0]);
    }

    #[test]
    fn a_context_larger_than_the_models_is_refused() {
        assert!(check_context(Some(4097), 4096).unwrap_err().is::<Usage>());
        assert!(check_context(Some(4096), 4096).is_ok());
        assert!(check_context(None, 4096).is_ok());
    }
}
