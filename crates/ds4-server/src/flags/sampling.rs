//! How answers are made: sampling, length and thinking.

use clap::Args;
use ds4_engine_api::{SamplingParams, Speculation, SpeculationMode};
use ds4_text::{GenerationDefaults, Thinking};

use super::range::{at_least_one, not_negative, unit};

/// Flags of every command that answers. What is not given is as the checkpoint's generation_config.json says.
#[derive(Args, Clone, Debug)]
pub(crate) struct SamplingFlags {
    /// How much chance decides, from 0: the most probable token, always [default: the model's]
    #[arg(long, value_name = "T", value_parser = not_negative, help_heading = "Answers")]
    temperature: Option<f64>,

    /// Draw from the most probable tokens that together have this probability, 0 to 1 [default: the model's]
    #[arg(long, value_name = "P", value_parser = unit, help_heading = "Answers")]
    top_p: Option<f64>,

    /// Draw from this many of the most probable tokens; 0 is all [default: the model's]
    #[arg(long, value_name = "K", help_heading = "Answers")]
    top_k: Option<usize>,

    /// Leave out tokens less probable than this share of the most probable one, 0 to 1 [default: the model's]
    #[arg(long, value_name = "P", value_parser = unit, help_heading = "Answers")]
    min_p: Option<f64>,

    /// Start of the random numbers: the same seed gives the same answer [default: drawn anew each time]
    #[arg(long, value_name = "N", help_heading = "Answers")]
    seed: Option<u64>,

    /// Most tokens of an answer [default: the model's, or what the context leaves]
    #[arg(long, value_name = "N", value_parser = at_least_one, help_heading = "Answers")]
    max_tokens: Option<usize>,

    /// Whether and how hard to think before answering: off, on, low, medium, high, xhigh or max. Models take the
    /// nearest level that they have [default: the model's]
    #[arg(long, value_name = "off|LEVEL", value_parser = thinking, help_heading = "Answers")]
    think: Option<Thinking>,

    /// What drafts tokens ahead: auto, off, mtp (the model's draft head), copy (runs of the prompt) or both. At
    /// temperature 0 the answer is the same, only faster; else one that is as likely
    #[arg(long, value_name = "MODE", default_value = "auto", value_parser = speculation_mode, help_heading = "Answers")]
    speculate: SpeculationMode,

    /// Most tokens that the draft head proposes at a time, 1 to 5
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = draft_depth, help_heading = "Answers")]
    draft_depth: usize,
}

fn speculation_mode(word: &str) -> Result<SpeculationMode, String> {
    let names = SpeculationMode::NAMES.map(|(name, _)| name).join(", ");
    SpeculationMode::from_name(word).ok_or_else(|| format!("must be one of {names}"))
}

fn draft_depth(word: &str) -> Result<usize, String> {
    let depth = word.parse().ok().filter(|depth| (1..=Speculation::MAX_DEPTH).contains(depth));
    depth.ok_or_else(|| format!("must be 1 to {}", Speculation::MAX_DEPTH))
}

fn thinking(word: &str) -> Result<Thinking, ds4_text::TextError> {
    word.parse()
}

/// What the flags mean for a given model.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AnswerSettings {
    /// How the next token is chosen.
    pub(crate) sampling: SamplingParams,
    /// Most tokens of an answer; `None` is what the context leaves.
    pub(crate) max_tokens: Option<usize>,
    /// Whether and how hard to think.
    pub(crate) thinking: Thinking,
    /// How tokens are drafted ahead.
    pub(crate) speculation: Speculation,
}

impl SamplingFlags {
    /// Resolves what was not given with the model's defaults.
    pub(crate) fn settings(&self, defaults: &GenerationDefaults) -> AnswerSettings {
        let defaults = self.over(defaults);
        AnswerSettings {
            sampling: SamplingParams {
                temperature: defaults.temperature,
                top_p: defaults.top_p,
                top_k: defaults.top_k,
                min_p: defaults.min_p,
                seed: self.seed,
                ..SamplingParams::default()
            },
            max_tokens: defaults.max_new_tokens,
            thinking: self.thinking(),
            speculation: self.speculation(),
        }
    }

    /// How tokens are drafted ahead.
    pub(crate) fn speculation(&self) -> Speculation {
        Speculation { mode: self.speculate, depth: self.draft_depth }
    }

    /// The model's defaults, replaced where a flag was given.
    pub(crate) fn over(&self, defaults: &GenerationDefaults) -> GenerationDefaults {
        GenerationDefaults {
            temperature: self.temperature.unwrap_or(defaults.temperature),
            top_p: self.top_p.unwrap_or(defaults.top_p),
            top_k: self.top_k.unwrap_or(defaults.top_k),
            min_p: self.min_p.unwrap_or(defaults.min_p),
            max_new_tokens: self.max_tokens.or(defaults.max_new_tokens),
        }
    }

    /// Whether and how hard to think.
    pub(crate) fn thinking(&self) -> Thinking {
        self.think.unwrap_or_default()
    }

    /// The seed, if one was given.
    pub(crate) fn seed(&self) -> Option<u64> {
        self.seed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use ds4_text::ChatFamily;

    #[derive(Parser)]
    struct Typed {
        #[command(flatten)]
        flags: SamplingFlags,
    }

    fn settings(line: &str) -> AnswerSettings {
        let defaults = GenerationDefaults {
            temperature: 0.7,
            max_new_tokens: Some(512),
            ..ChatFamily::Qwen.generation_defaults()
        };
        Typed::parse_from(line.split(' ')).flags.settings(&defaults)
    }

    #[test]
    fn flags_win_over_the_models_defaults() {
        let plain = settings("x");
        assert_eq!((plain.sampling.temperature, plain.max_tokens), (0.7, Some(512)));
        assert_eq!(plain.thinking, Thinking::Default);
        let given = settings("x --temperature 0 --max-tokens 9 --seed 0 --think off");
        assert_eq!((given.sampling.temperature, given.max_tokens), (0.0, Some(9)));
        assert_eq!((given.sampling.seed, given.thinking), (Some(0), Thinking::Off));
        assert_eq!(given.sampling.top_p, plain.sampling.top_p);
    }
}
