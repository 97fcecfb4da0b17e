//! Any tokens and stop strings as an answer: never a panic, no part of a stop string shown, no text lost in raw mode.
#![no_main]

use std::sync::LazyLock;

use ds4_text::{ChatFamily, OutputOptions, TextDelta, TextModel, TextSources};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

static MODEL: LazyLock<TextModel> = LazyLock::new(|| {
    let sources = TextSources {
        tokenizer_json: include_bytes!("../../demo/qwen4_exp/tokenizer.json"),
        tokenizer_config: Some(include_bytes!("../../demo/qwen4_exp/tokenizer_config.json")),
        chat_template: None,
        generation_config: None,
        config_eos: &[],
        family: ChatFamily::Qwen,
        context: 4096,
    };
    TextModel::load(&sources).expect("the demo tokenizer is sound")
});

const MARKERS: [&str; 4] = ["<think>", "</think>", "<tool_call>", "</tool_call>"];

#[derive(Arbitrary, Debug)]
struct Answer {
    in_reasoning: bool,
    raw: bool,
    with_tool: bool,
    stop: Vec<Stop>,
    tokens: Vec<Token>,
}

#[derive(Arbitrary, Debug)]
enum Token {
    /// An id of the vocabulary.
    Known(u16),
    /// One of the tokens that switch between reasoning, answer and tool call.
    Marker(u8),
    /// Whatever a broken model says.
    Any(u32),
}

#[derive(Arbitrary, Debug)]
enum Stop {
    Text(String),
    /// The text of these tokens, which the answer is more likely to hit.
    Tokens(Vec<u16>),
}

impl Token {
    fn id(&self) -> u32 {
        let tokenizer = MODEL.tokenizer();
        match self {
            Self::Known(id) => u32::from(*id) % tokenizer.vocabulary_size() as u32,
            Self::Marker(i) => tokenizer.id_of(MARKERS[usize::from(*i) % MARKERS.len()]).unwrap_or_default(),
            Self::Any(id) => *id,
        }
    }
}

impl Stop {
    fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Tokens(ids) => {
                let bytes: Vec<u8> =
                    ids.iter().flat_map(|&id| bytes_of(Token::Known(id).id())).copied().collect();
                String::from_utf8_lossy(&bytes).into_owned()
            }
        }
    }
}

fuzz_target!(|answer: Answer| {
    let ids: Vec<u32> = answer.tokens.iter().map(Token::id).collect();
    let stop: Vec<String> = answer.stop.iter().map(Stop::text).collect();
    let tool = serde_json::json!({ "type": "function", "function": {
        "name": "look_up",
        "parameters": { "type": "object", "properties": { "n": { "type": "integer" }, "s": { "type": "string" } } },
    }});
    let options = OutputOptions {
        in_reasoning: answer.in_reasoning,
        raw: answer.raw,
        stop: stop.clone(),
        tools: if answer.with_tool { vec![tool] } else { Vec::new() },
    };
    let (deltas, stopped) = read(&ids, options);

    let mut content = String::new();
    for delta in &deltas {
        match delta {
            TextDelta::Content(text) => content.push_str(text),
            TextDelta::Reasoning(_) => assert!(!answer.raw, "reasoning in raw text"),
            TextDelta::ToolCall(call) => {
                assert!(answer.with_tool && !answer.raw, "a tool call that nobody offered");
                let arguments: serde_json::Value =
                    serde_json::from_str(&call.arguments).expect("arguments are JSON");
                assert!(arguments.is_object());
            }
        }
    }
    if answer.raw {
        // Outside of raw mode a stop string may arise where a marker was taken out between two texts.
        for stop in stop.iter().filter(|stop| !stop.is_empty()) {
            assert!(!content.contains(stop.as_str()), "{stop:?} was shown in {content:?}");
        }
        let everything = whole_text(&ids);
        match stopped {
            None => assert_eq!(content, everything),
            Some(stop) => assert!(everything.starts_with(&(content + &stop))),
        }
    }
});

/// The answer as a client gets it, and the stop string that ended it.
fn read(ids: &[u32], options: OutputOptions) -> (Vec<TextDelta>, Option<String>) {
    let mut stream = MODEL.output(options);
    let mut deltas = Vec::new();
    for &id in ids {
        let was_stopped = stream.stopped().is_some();
        let new = stream.push(id);
        assert!(!was_stopped || new.is_empty(), "text after the stop string");
        deltas.extend(new);
    }
    deltas.extend(stream.finish());
    assert!(stream.finish().is_empty(), "finishing twice gives text twice");
    (deltas, stream.stopped().map(str::to_owned))
}

/// What raw mode shows of these tokens without stop strings, decoded in one go.
fn whole_text(ids: &[u32]) -> String {
    let shown = |id: u32| {
        let raw = OutputOptions { raw: true, ..OutputOptions::default() };
        !read(&[id], raw).0.is_empty()
    };
    let bytes: Vec<u8> = ids.iter().filter(|&&id| shown(id)).flat_map(|&id| bytes_of(id)).copied().collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn bytes_of(id: u32) -> &'static [u8] {
    MODEL.tokenizer().token_bytes(id).unwrap_or_default()
}
