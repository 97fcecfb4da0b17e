//! Settings of `generation_config.json` that would change which tokens are sampled and that this program does not have.
//! They are named when the model is loaded: without them its answers are not those that its makers meant.

use std::fmt;

use serde_json::{Map, Value};

/// A setting that is not applied.
#[derive(Clone, Debug, PartialEq)]
pub struct UnappliedSetting {
    /// Its name in `generation_config.json`.
    pub name: &'static str,
    /// Its value there.
    pub value: Value,
}

impl fmt::Display for UnappliedSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, value } = self;
        write!(
            f,
            "generation_config.json sets {name} to {value}, which is not supported: answers are made without it"
        )
    }
}

/// Names as transformers has them, each with the number that asks for nothing, if one does.
const SETTINGS: [(&str, Option<f64>); 25] = [
    ("repetition_penalty", Some(1.0)),
    ("encoder_repetition_penalty", Some(1.0)),
    ("presence_penalty", Some(0.0)),
    ("frequency_penalty", Some(0.0)),
    ("no_repeat_ngram_size", Some(0.0)),
    ("encoder_no_repeat_ngram_size", Some(0.0)),
    ("typical_p", Some(1.0)),
    ("epsilon_cutoff", Some(0.0)),
    ("eta_cutoff", Some(0.0)),
    ("top_h", None),
    ("min_length", Some(0.0)),
    ("min_new_tokens", Some(0.0)),
    ("num_beams", Some(1.0)),
    ("penalty_alpha", Some(0.0)),
    ("guidance_scale", Some(1.0)),
    ("exponential_decay_length_penalty", None),
    ("forced_bos_token_id", None),
    ("forced_eos_token_id", None),
    ("suppress_tokens", None),
    ("begin_suppress_tokens", None),
    ("bad_words_ids", None),
    ("force_words_ids", None),
    ("sequence_bias", None),
    ("stop_strings", None),
    ("watermarking_config", None),
];

/// Those settings of the file that ask for something.
pub(crate) fn find(config: &Map<String, Value>) -> Vec<UnappliedSetting> {
    let asks = |value: &Value, neutral: Option<f64>| match value {
        Value::Null => false,
        Value::Array(list) => !list.is_empty(),
        value => neutral.is_none() || value.as_f64() != neutral,
    };
    let found = SETTINGS.iter().filter_map(|&(name, neutral)| {
        let value = config.get(name).filter(|value| asks(value, neutral))?;
        Some(UnappliedSetting { name, value: value.clone() })
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_asks_for_nothing_is_passed_over() {
        let Value::Object(config) = json!({
            "repetition_penalty": 1.05, "typical_p": 1, "no_repeat_ngram_size": 0, "num_beams": 1, "top_h": null,
            "suppress_tokens": [], "stop_strings": "END", "temperature": 0.7,
        }) else {
            panic!("an object")
        };
        let found: Vec<String> = find(&config).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "generation_config.json sets repetition_penalty to 1.05, which is not supported: answers are made without it",
                "generation_config.json sets stop_strings to \"END\", which is not supported: answers are made without it",
            ]
        );
    }
}
