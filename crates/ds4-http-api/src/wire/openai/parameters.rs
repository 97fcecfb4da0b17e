//! Parameters that chat completions and completions share, with the ranges that are accepted.
//!
//! - `temperature` 0 to 2; 0 is the most probable token.
//! - `top_p` 0 to 1; both 0 and 1 filter nothing, as in the implementations that the sampler follows.
//! - `top_k` from 0 (off); -1 is off too. `min_p` 0 to 1; 0 is off.
//! - `presence_penalty`, `frequency_penalty` -2 to 2.
//! - `seed` any 64-bit integer; 0 is a seed, and a negative one stands for the unsigned number with the same bits.
//! - `logit_bias` token ids, as strings, to -100 to 100.
//! - `stop` a string or up to 4 of them, none of them empty.
//! - `n` only 1.
//! - `speculate` (not OpenAI's) auto, off, mtp, copy or both; `draft_depth` 1 to 5. They change the speed, not the answer.
//! - `session_id` (not OpenAI's) 1 to 128 letters, digits, `-`, `_`, `.`, `:` and `/`. Clients resolve `.`, `..` and empty
//!   parts of a path, so there are none of these between its slashes.
//!
//! Absent sampling parameters take the model's defaults (`generation_config.json`).

use ds4_engine_api::{SamplingParams, Speculation, SpeculationMode};
use ds4_text::GenerationDefaults;
use serde_json::Value;

use crate::error::ParameterError;
use crate::fields::{Fields, out_of_range, wrong_type};
use crate::wire::openai::unsupported;

/// Most alternatives that a request may ask for at each position.
pub(crate) const MOST_LOGPROBS: usize = 20;

const MOST_STOPS: usize = 4;
const LONGEST_SESSION: usize = 128;

/// What both kinds of requests have.
#[derive(Debug)]
pub(crate) struct Parameters {
    /// Name of the model, if the request has one.
    pub(crate) model: Option<String>,
    /// How the next token is chosen.
    pub(crate) sampling: SamplingParams,
    /// Texts that end the answer.
    pub(crate) stop: Vec<String>,
    /// Whether the answer comes in pieces.
    pub(crate) stream: bool,
    /// Whether a stream ends with a chunk of token counts.
    pub(crate) include_usage: bool,
    /// How tokens are drafted ahead, as far as the request says.
    pub(crate) speculation: (Option<SpeculationMode>, Option<usize>),
    /// The session that the request belongs to, if it says so.
    pub(crate) session: Option<String>,
}

impl Parameters {
    /// Reads and checks them. `vocabulary` bounds the ids of `logit_bias`.
    pub(crate) fn read(
        fields: &Fields<'_>,
        defaults: &GenerationDefaults,
        vocabulary: usize,
    ) -> Result<Self, ParameterError> {
        unsupported::refuse(fields, unsupported::BOTH)?;
        if fields.integer("n", 1..=i128::MAX, "at least 1")?.is_some_and(|n| n != 1) {
            return Err(
                fields.not_supported("n", "only one answer per request is made: send 1 or leave it out")
            );
        }
        let stream_options = fields.object("stream_options")?;
        let include_usage = match stream_options {
            Some(options) => options.boolean("include_usage")?.unwrap_or(false),
            None => false,
        };
        Ok(Self {
            model: fields.string("model")?.map(str::to_owned),
            sampling: sampling(fields, defaults, vocabulary)?,
            stop: stop(fields)?,
            stream: fields.boolean("stream")?.unwrap_or(false),
            include_usage,
            speculation: speculation(fields)?,
            session: session(fields)?,
        })
    }
}

fn speculation(fields: &Fields<'_>) -> Result<(Option<SpeculationMode>, Option<usize>), ParameterError> {
    let mode = fields.string("speculate")?.map(|name| {
        SpeculationMode::from_name(name)
            .ok_or_else(|| fields.out_of_range("speculate", "one of auto, off, mtp, copy and both"))
    });
    let depth = fields.integer("draft_depth", 1..=Speculation::MAX_DEPTH as i128, "between 1 and 5")?;
    Ok((mode.transpose()?, depth.map(|depth| depth as usize)))
}

/// Names go into headers, paths and logs.
fn session(fields: &Fields<'_>) -> Result<Option<String>, ParameterError> {
    const EXPECTED: &str = "1 to 128 letters, digits, `-`, `_`, `.`, `:` or `/`, without empty, `.` and `..` parts between slashes";
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/".contains(&byte);
    let is_name = |id: &str| {
        id.len() <= LONGEST_SESSION
            && id.bytes().all(allowed)
            && id.split('/').all(|part| !matches!(part, "" | "." | ".."))
    };
    match fields.string("session_id")? {
        Some(id) if is_name(id) => Ok(Some(id.to_owned())),
        Some(_) => Err(fields.out_of_range("session_id", EXPECTED)),
        None => Ok(None),
    }
}

fn sampling(
    fields: &Fields<'_>,
    defaults: &GenerationDefaults,
    vocabulary: usize,
) -> Result<SamplingParams, ParameterError> {
    const UNIT: &str = "between 0 and 1";
    const PENALTY: &str = "between -2 and 2";
    let top_k = match fields.integer("top_k", -1..=i64::MAX.into(), "at least 0, or -1 for no limit")? {
        Some(-1) => 0,
        Some(top_k) => top_k as usize,
        None => defaults.top_k,
    };
    Ok(SamplingParams {
        temperature: fields
            .number("temperature", 0.0..=2.0, "between 0 and 2")?
            .unwrap_or(defaults.temperature),
        top_p: fields.number("top_p", 0.0..=1.0, UNIT)?.unwrap_or(defaults.top_p),
        top_k,
        min_p: fields.number("min_p", 0.0..=1.0, UNIT)?.unwrap_or(defaults.min_p),
        presence_penalty: fields.number("presence_penalty", -2.0..=2.0, PENALTY)?.unwrap_or(0.0),
        frequency_penalty: fields.number("frequency_penalty", -2.0..=2.0, PENALTY)?.unwrap_or(0.0),
        logit_bias: logit_bias(fields, vocabulary)?,
        seed: fields
            .integer("seed", i64::MIN.into()..=u64::MAX.into(), "a 64-bit integer")?
            .map(|seed| seed as u64),
    })
}

fn logit_bias(fields: &Fields<'_>, vocabulary: usize) -> Result<Vec<(u32, f64)>, ParameterError> {
    let Some(map) = fields.map("logit_bias")? else { return Ok(Vec::new()) };
    let biases = Fields::of_map(map, fields.name("logit_bias"));
    map.keys()
        .map(|key| {
            let id = key.parse::<u32>().ok().filter(|&id| (id as usize) < vocabulary);
            let id = id.ok_or_else(|| {
                let key = Value::String(key.clone());
                out_of_range(fields.name("logit_bias"), "a map from token ids of this model to biases", &key)
            })?;
            let bias = biases.number(key, -100.0..=100.0, "between -100 and 100")?;
            Ok((id, bias.unwrap_or(0.0)))
        })
        .collect()
}

fn stop(fields: &Fields<'_>) -> Result<Vec<String>, ParameterError> {
    const EXPECTED: &str = "a string or an array of up to 4 strings";
    let one = |value: &Value, name: String| match value {
        Value::String(text) if text.is_empty() => Err(out_of_range(name, "a text that is not empty", value)),
        Value::String(text) => Ok(text.clone()),
        _ => Err(wrong_type(name, EXPECTED, value)),
    };
    match fields.value("stop") {
        None => Ok(Vec::new()),
        Some(Value::Array(texts)) if texts.len() > MOST_STOPS => Err(fields.out_of_range("stop", EXPECTED)),
        Some(Value::Array(texts)) => texts
            .iter()
            .enumerate()
            .map(|(index, text)| one(text, format!("{}[{index}]", fields.name("stop"))))
            .collect(),
        Some(text) => Ok(vec![one(text, fields.name("stop"))?]),
    }
}
