//! What the bundled models answer, against the reference's greedy answers in their `samples.txt`.
//!
//! The reference computed in bfloat16, so where two tokens are nearly as likely either may win: an answer that differs passes
//! if the first token that differs is such a near-tie, and the item says how near.

use anyhow::Context;
use ds4_testkit::golden;
use ds4_testkit::tolerance::SAMPLE_NEAR_TIE;
use ds4_text::{ChatFamily, ChatPrompt, Message, Role, TextModel, TextSources, Thinking};
use serde_json::json;

use crate::report::Report;
use crate::subject::{Machine, Subject};

/// As many tokens as the reference was given for an answer.
const MOST_TOKENS: usize = 320;

/// The sample for which the reference was offered a tool.
const WITH_TOOL: &str = "tool call";

/// One item a sample of a demo model.
pub(crate) fn run(report: &mut Report, family: &str) -> anyhow::Result<()> {
    let folder = golden::demo(family);
    let (text, subject) = (demo_text(family)?, Subject::open(&folder, Machine::best())?);
    let samples = std::fs::read_to_string(folder.join("samples.txt"))?;
    for sample in greedy_samples(&samples) {
        let item = format!("{family}, answer to \"{}\"", sample.name);
        let mut figure = "equal".to_owned();
        let mut near = true;
        for turn in 0..sample.turns.len() {
            if let Some(difference) = compare(&text, &subject, &sample, turn)? {
                near &= difference.margin <= SAMPLE_NEAR_TIE;
                figure = difference.to_string();
            }
        }
        if near { report.passed(&item, &figure) } else { report.failed(&item, &figure) }
    }
    Ok(())
}

/// The text side of a demo model.
pub(crate) fn demo_text(family: &str) -> anyhow::Result<TextModel> {
    let folder = golden::demo(family);
    let read = |name| std::fs::read(folder.join(name));
    let template = String::from_utf8(read("chat_template.jinja")?)?;
    Ok(TextModel::load(&TextSources {
        tokenizer_json: &read("tokenizer.json")?,
        tokenizer_config: Some(&read("tokenizer_config.json")?),
        chat_template: Some(&template),
        generation_config: Some(&read("generation_config.json")?),
        config_eos: &[],
        family: ChatFamily::from_model_type(family).context("an unknown family")?,
        context: 4096,
    })?)
}

struct Sample<'a> {
    name: &'a str,
    turns: Vec<Turn<'a>>,
}

struct Turn<'a> {
    question: &'a str,
    reasoning: Option<&'a str>,
    answer: &'a str,
}

fn greedy_samples(text: &str) -> Vec<Sample<'_>> {
    let sections = text.split("\n==================== ").skip(1);
    let named = sections.filter_map(|section| section.split_once(" (greedy)\n"));
    let sample = |(name, body)| Sample { name, turns: turns(body) };
    named.map(sample).collect()
}

fn turns(body: &str) -> Vec<Turn<'_>> {
    let turn = |text| -> Option<Turn<'_>> {
        let (question, answer): (&str, &str) = str::split_once(text, "\n[assistant] ")?;
        let (reasoning, answer) = match answer.strip_prefix("(thinks: ") {
            Some(rest) => rest.split_once(")\n").map(|(reasoning, answer)| (Some(reasoning), answer))?,
            None => (None, answer),
        };
        Some(Turn { question, reasoning, answer: answer.trim() })
    };
    body.strip_prefix("[user] ").unwrap_or(body).split("\n[user] ").filter_map(turn).collect()
}

/// Where an answer leaves the reference's.
struct Difference {
    /// What both have said so far, its end.
    after: String,
    ours: String,
    reference: String,
    /// By how much our token's logit is above that of the reference's token.
    margin: f32,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { after, ours, reference, margin } = self;
        write!(f, "after {after:?} {ours:?} instead of {reference:?}, ahead by a logit of {margin:.4}")
    }
}

/// Answers a turn, with the reference's answers to the earlier ones in the history.
fn compare(
    text: &TextModel,
    subject: &Subject,
    sample: &Sample<'_>,
    turn: usize,
) -> anyhow::Result<Option<Difference>> {
    let mut messages = Vec::new();
    for earlier in &sample.turns[..turn] {
        messages.push(Message::new(Role::User, earlier.question));
        let reasoning_content = earlier.reasoning.map(str::to_owned);
        messages.push(Message { reasoning_content, ..Message::new(Role::Assistant, earlier.answer) });
    }
    let turn = &sample.turns[turn];
    messages.push(Message::new(Role::User, turn.question));
    let mut prompt = ChatPrompt::new(messages);
    if sample.name == WITH_TOOL {
        prompt.tools = vec![weather_tool()];
    }
    if turn.reasoning.is_none() {
        prompt.thinking = Thinking::Off;
    }
    let expected = match turn.reasoning {
        Some(reasoning) => format!("{reasoning}\n</think>\n\n{}", turn.answer),
        None => turn.answer.to_owned(),
    };
    let steps = subject.greedy(&text.render_chat(&prompt)?.tokens, text.stop_tokens(), MOST_TOKENS)?;
    Ok(first_difference(text, expected.as_bytes(), &steps))
}

fn weather_tool() -> serde_json::Value {
    let city = json!({"type": "string", "description": "Name of the city"});
    let parameters = json!({"type": "object", "properties": {"city": city}, "required": ["city"]});
    json!({"type": "function", "function": {"name": "get_weather", "description": "Get the current weather for a city.",
           "parameters": parameters}})
}

/// The first step whose token is not the text's; whitespace at the end of an answer is not recorded.
fn first_difference(text: &TextModel, expected: &[u8], steps: &[(u32, Vec<f32>)]) -> Option<Difference> {
    let bytes = |id: u32| text.tokenizer().token_bytes(id).unwrap_or_default();
    let mut rest = expected;
    for (id, logits) in steps {
        let is_stop = text.stop_tokens().contains(id);
        match rest.strip_prefix(bytes(*id)) {
            Some(after) if !is_stop => rest = after,
            _ if rest.is_empty() && (is_stop || bytes(*id).trim_ascii().is_empty()) => {}
            _ => {
                let fits = |id: u32| match rest {
                    [] => text.stop_tokens().contains(&id),
                    rest => !bytes(id).is_empty() && rest.starts_with(bytes(id)),
                };
                let logit = |id: u32| logits[id as usize];
                let reference = (0..)
                    .take(logits.len())
                    .filter(|&id| fits(id))
                    .max_by(|&a, &b| logit(a).total_cmp(&logit(b)))?;
                let said = &expected[..expected.len() - rest.len()];
                let after = String::from_utf8_lossy(&said[said.len().saturating_sub(20)..]).into_owned();
                let word = |id| String::from_utf8_lossy(bytes(id)).into_owned();
                let margin = logit(*id) - logit(reference);
                return Some(Difference { after, ours: word(*id), reference: word(reference), margin });
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_read_with_their_turns() {
        let text = "Samples\n\n==================== a (greedy)\n[user] 1\n\n2\n[assistant] (thinks: x (y).)\nb\nc\n[user] 3\n\
                    [assistant] d\n\n==================== a (sampled)\n[user] 1\n[assistant] e\n";
        let samples = greedy_samples(text);
        assert_eq!(samples.len(), 1);
        let turns: Vec<_> =
            samples[0].turns.iter().map(|turn| (turn.question, turn.reasoning, turn.answer)).collect();
        assert_eq!(turns, [("1\n\n2", Some("x (y)."), "b\nc"), ("3", None, "d")]);
    }

    #[test]
    fn the_first_token_that_differs_is_named_with_its_margin() {
        let text = demo_text("qwen4_exp").unwrap();
        let ids = text.tokenizer().encode_plain("pong").unwrap();
        let row = |id: u32, logit: f32| {
            let mut logits = vec![0.0; text.tokenizer().vocabulary_size()];
            logits[id as usize] = logit;
            (id, logits)
        };
        let stop = text.stop_tokens()[0];
        let mut steps: Vec<_> = ids.iter().map(|&id| row(id, 2.0)).collect();
        steps.push(row(stop, 1.0));
        assert!(first_difference(&text, b"pong", &steps).is_none());
        let early = first_difference(&text, b"pong!", &steps).unwrap();
        assert_eq!((early.after.as_str(), early.reference.as_str(), early.margin), ("pong", "!", 1.0));
    }
}
