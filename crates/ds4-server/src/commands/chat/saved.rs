//! Conversations as JSON files, and the checks that a file has to pass.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use ds4_engine_api::{SamplingParams, Speculation};
use ds4_text::{Message, Thinking};
use serde::{Deserialize, Serialize};

use super::conversation::Conversation;
use crate::flags::AnswerSettings;

/// Version of the file format; files of another one are refused.
const VERSION: u32 = 1;

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: u32,
    /// For people: any model can go on.
    model: String,
    settings: Settings,
    system: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    summary: Option<String>,
    messages: Vec<Entry>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// As `--think` has it; absent is the model's default.
    think: Option<String>,
    temperature: f64,
    top_p: f64,
    top_k: usize,
    min_p: f64,
    seed: Option<u64>,
    max_tokens: Option<usize>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    role: String,
    content: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
}

/// Writes a conversation. A file of that name is replaced.
pub(super) fn save(path: &Path, conversation: &Conversation, model: &str) -> anyhow::Result<()> {
    let json = serde_json::to_string_pretty(&to_file(conversation, model))?;
    fs::write(path, json + "\n").with_context(|| format!("cannot write {}", path.display()))
}

/// As [`save`], and whatever happens meanwhile, either the old or the new conversation is there. Makes the folder.
pub(super) fn save_whole(path: &Path, conversation: &Conversation, model: &str) -> anyhow::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let unfinished = path.with_extension("unfinished");
    save(&unfinished, conversation, model)?;
    fs::rename(&unfinished, path).with_context(|| format!("cannot write {}", path.display()))
}

/// Reads a conversation.
pub(super) fn load(path: &Path) -> anyhow::Result<Conversation> {
    let json = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    parse(&json).with_context(|| format!("{} is not a saved conversation", path.display()))
}

fn to_file(conversation: &Conversation, model: &str) -> File {
    let Conversation { system, summary, messages, settings, repeats: _ } = conversation;
    let sampling = &settings.sampling;
    File {
        version: VERSION,
        model: model.to_owned(),
        settings: Settings {
            think: think_word(settings.thinking).map(str::to_owned),
            temperature: sampling.temperature,
            top_p: sampling.top_p,
            top_k: sampling.top_k,
            min_p: sampling.min_p,
            seed: sampling.seed,
            max_tokens: settings.max_tokens,
        },
        system: system.clone(),
        summary: summary.clone(),
        messages: messages.iter().map(entry).collect(),
    }
}

fn entry(message: &Message) -> Entry {
    Entry {
        role: message.role.as_str().to_owned(),
        content: message.content.clone(),
        reasoning_content: message.reasoning_content.clone(),
    }
}

fn parse(json: &[u8]) -> anyhow::Result<Conversation> {
    let file: File = serde_json::from_slice(json)?;
    ensure!(file.version == VERSION, "its version is {}, expected {VERSION}", file.version);
    let settings = check_settings(file.settings)?;
    let mut conversation = Conversation::new(file.system, settings);
    conversation.summary = file.summary;
    for (index, entry) in file.messages.into_iter().enumerate() {
        match (index % 2, entry.role.as_str()) {
            (0, "user") => conversation.ask(entry.content),
            (1, "assistant") => {
                conversation.answer(entry.content, entry.reasoning_content.unwrap_or_default())
            }
            (even, role) => {
                let expected = if even == 0 { "user" } else { "assistant" };
                bail!("message {} is of {role:?}, expected {expected:?}", index + 1);
            }
        }
    }
    Ok(conversation)
}

fn check_settings(settings: Settings) -> anyhow::Result<AnswerSettings> {
    let Settings { think, temperature, top_p, top_k, min_p, seed, max_tokens } = settings;
    ensure!(
        (0.0..=f64::MAX).contains(&temperature),
        "temperature is {temperature}, expected a number from 0 on"
    );
    for (name, value) in [("top_p", top_p), ("min_p", min_p)] {
        ensure!((0.0..=1.0).contains(&value), "{name} is {value}, expected a number from 0 to 1");
    }
    ensure!(max_tokens != Some(0), "max_tokens is 0, expected at least 1");
    let thinking = think.map_or(Ok(Thinking::Default), |word| word.parse())?;
    let sampling = SamplingParams { temperature, top_p, top_k, min_p, seed, ..SamplingParams::default() };
    // Drafting ahead is a matter of this run, not of the conversation: the caller sets it.
    Ok(AnswerSettings { sampling, max_tokens, thinking, speculation: Speculation::default() })
}

fn think_word(thinking: Thinking) -> Option<&'static str> {
    match thinking {
        Thinking::Default => None,
        Thinking::Off => Some("off"),
        Thinking::On => Some("on"),
        Thinking::Level(level) => Some(level.as_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ds4_text::ThinkingLevel;

    fn conversation() -> Conversation {
        let sampling = SamplingParams {
            temperature: 0.7,
            top_p: 0.9,
            seed: Some(u64::MAX),
            ..SamplingParams::default()
        };
        let thinking = Thinking::Level(ThinkingLevel::Low);
        let settings =
            AnswerSettings { sampling, max_tokens: Some(5), thinking, speculation: Speculation::default() };
        let mut talk = Conversation::new(Some("Be brief.".into()), settings);
        talk.summary = Some("They met.".into());
        talk.ask("ping".into());
        talk.answer("pong".into(), "The usual reply.".into());
        talk
    }

    fn json() -> serde_json::Value {
        serde_json::to_value(to_file(&conversation(), "demo")).unwrap()
    }

    fn error(change: impl FnOnce(&mut serde_json::Value)) -> String {
        let mut json = json();
        change(&mut json);
        format!("{:#}", parse(json.to_string().as_bytes()).unwrap_err())
    }

    #[test]
    fn what_is_saved_is_loaded() {
        assert_eq!(parse(json().to_string().as_bytes()).unwrap(), conversation());
    }

    #[test]
    fn files_that_are_something_else_are_refused() {
        assert!(error(|json| json["version"] = 2.into()).contains("version is 2, expected 1"));
        assert!(error(|json| json["tempo"] = 2.into()).contains("unknown field `tempo`"));
        assert!(error(|json| json["messages"][0]["role"] = "assistant".into()).contains("message 1"));
        assert!(error(|json| json["settings"]["top_p"] = 1.5.into()).contains("top_p is 1.5"));
        assert!(error(|json| json["settings"]["think"] = "hard".into()).contains("valid are off"));
        assert!(error(|json| json["settings"]["temperature"] = "warm".into()).contains("invalid type"));
    }
}
