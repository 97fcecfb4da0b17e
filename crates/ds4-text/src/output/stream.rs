//! Reads an answer token by token and says what a client gets to see of it.
//!
//! Channels are told apart by the ids of `<think>`, `</think>`, `<tool_call>`, `</tool_call>` and `｜DSML｜` alone. The same
//! letters spelled with ordinary tokens are text, so an answer may quote them, and no text is ever held because it
//! resembles a marker, but for the `<` that every DSML tag begins with.

use std::sync::Arc;

use serde_json::Value;

use super::delta::{DeltaList, ParsedToolCall, TextDelta};
use super::dsml;
use super::held_tail::{HeldTail, Limit};
use super::stop_matcher::{StopMatcher, StopStep};
use super::tool_call::{self, CallBody};
use super::utf8::Utf8Decoder;
use super::vocabulary::{Meaning, OutputVocabulary};

/// Newlines that templates put before `</think>`, after `<think>`, after `</think>` and before `<tool_call>`.
const BEFORE_THINK_END: Limit = Limit::Newlines(1);
const AFTER_THINK: usize = 1;
const AFTER_THINK_END: usize = 2;
const BEFORE_TOOL_CALL: Limit = Limit::Newlines(2);

/// How to read an answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutputOptions {
    /// The prompt ended inside of reasoning, see [`RenderedPrompt`](crate::RenderedPrompt).
    pub in_reasoning: bool,
    /// Texts that end the answer. They are looked for in the content only, in raw mode in everything. Empty ones are
    /// ignored.
    pub stop: Vec<String>,
    /// Tools that the request offers, for the types of arguments. Without any, tool calls stay text.
    pub tools: Vec<Value>,
    /// Everything is content: for completions, which know neither reasoning nor tools.
    pub raw: bool,
}

/// Turns the tokens of one answer into text.
///
/// Whitespace: the newlines that templates put around markers are no part of the text. One newline is taken off after
/// a generated `<think>` and before `</think>`, up to two after `</think>` and before `<tool_call>`, and text between
/// and after tool calls that is all whitespace. Everything else is kept, at the start of the answer too.
///
/// Special tokens, stop tokens and ids outside of the vocabulary give no text. A closing marker without an open one
/// is dropped. A tool call that cannot be read, or that the answer's end cuts off, is content, markers included.
pub struct OutputStream {
    vocabulary: Arc<OutputVocabulary>,
    tools: Vec<Value>,
    raw: bool,
    utf8: Utf8Decoder,
    channel: Channel,
    /// Newlines that may still be dropped at the start of the channel.
    skip_newlines: usize,
    reasoning_tail: HeldTail,
    stop_matcher: StopMatcher,
    content_tail: HeldTail,
    /// The content goes on with a `<` that may begin a tag of DSML.
    holds_angle: bool,
    calls: usize,
    stopped: Option<String>,
}

enum Channel {
    Reasoning,
    Content,
    /// The body so far, and the newlines before the marker, which come back if this is no call.
    ToolCall {
        body: String,
        before: String,
    },
    /// The same for calls in DSML, from their first tag on.
    Dsml {
        block: String,
        before: String,
    },
}

impl OutputStream {
    pub(crate) fn new(vocabulary: Arc<OutputVocabulary>, options: OutputOptions) -> Self {
        let in_reasoning = options.in_reasoning && !options.raw;
        let tools = if options.raw { Vec::new() } else { options.tools };
        Self {
            vocabulary,
            raw: options.raw,
            utf8: Utf8Decoder::default(),
            channel: if in_reasoning { Channel::Reasoning } else { Channel::Content },
            skip_newlines: 0,
            reasoning_tail: HeldTail::new(BEFORE_THINK_END),
            stop_matcher: StopMatcher::new(options.stop),
            content_tail: HeldTail::new(content_limit(&tools)),
            tools,
            holds_angle: false,
            calls: 0,
            stopped: None,
        }
    }

    /// Reads the next token. Returns what can be shown now, which may be nothing. Never fails: any id is allowed.
    pub fn push(&mut self, token: u32) -> Vec<TextDelta> {
        let mut out = DeltaList::default();
        if self.stopped.is_none() {
            self.read(token, &mut out);
        }
        out.into_vec()
    }

    /// The answer has ended. Returns what was held back; calling it again returns nothing.
    pub fn finish(&mut self) -> Vec<TextDelta> {
        let mut out = DeltaList::default();
        if self.stopped.is_none() {
            self.end_text(&mut out);
            self.release_angle(&mut out);
            match std::mem::replace(&mut self.channel, Channel::Content) {
                Channel::Reasoning => out.reasoning(&self.reasoning_tail.finish()),
                Channel::Content => {}
                Channel::ToolCall { body, before } => self.end_call(body, before, "", &mut out),
                Channel::Dsml { block, before } => self.end_dsml(&block, &before, &mut out),
            }
            self.end_content(&mut out);
            out.content(&self.content_tail.finish());
        }
        out.into_vec()
    }

    /// The stop string that ended the answer. From then on, [`push`](Self::push) returns nothing.
    pub fn stopped(&self) -> Option<&str> {
        self.stopped.as_deref()
    }

    fn read(&mut self, token: u32, out: &mut DeltaList) {
        let meaning = self.vocabulary.meaning(token);
        let marker = match meaning {
            Meaning::Silent => return,
            Meaning::Text => false,
            _ if self.raw => false,
            Meaning::ThinkOpen | Meaning::ThinkClose => {
                matches!(self.channel, Channel::Reasoning | Channel::Content)
            }
            Meaning::ToolCallOpen => matches!(self.channel, Channel::Content) && !self.tools.is_empty(),
            Meaning::ToolCallClose => {
                matches!(self.channel, Channel::Content | Channel::ToolCall { .. }) && !self.tools.is_empty()
            }
            Meaning::DsmlWord => self.holds_angle,
        };
        if marker {
            self.marker(meaning, out);
        } else {
            let vocabulary = Arc::clone(&self.vocabulary);
            let text = self.utf8.push(vocabulary.bytes(token));
            self.text(&text, out);
        }
    }

    fn marker(&mut self, meaning: Meaning, out: &mut DeltaList) {
        self.end_text(out);
        if meaning == Meaning::DsmlWord {
            self.holds_angle = false;
        }
        self.release_angle(out);
        match (meaning, std::mem::replace(&mut self.channel, Channel::Content)) {
            (Meaning::ThinkOpen, Channel::Content) => {
                self.end_content(out);
                out.content(&self.content_tail.finish());
                self.channel = Channel::Reasoning;
                self.skip_newlines = AFTER_THINK;
            }
            (Meaning::ThinkClose, Channel::Reasoning) => {
                self.reasoning_tail.take();
                self.skip_newlines = AFTER_THINK_END;
            }
            (Meaning::ToolCallOpen, Channel::Content) => {
                self.end_content(out);
                let before = self.content_tail.take();
                self.skip_newlines = 0;
                self.channel = Channel::ToolCall { body: String::new(), before };
            }
            (Meaning::ToolCallClose, Channel::ToolCall { body, before }) => {
                self.end_call(body, before, "</tool_call>", out);
            }
            (Meaning::DsmlWord, Channel::Content) => {
                self.end_content(out);
                let before = self.content_tail.take();
                self.channel = Channel::Dsml { block: format!("<{}", dsml::WORD), before };
            }
            // A marker where it has no meaning changes nothing.
            (_, channel) => self.channel = channel,
        }
    }

    /// Sends text to the channel that is open.
    fn text(&mut self, text: &str, out: &mut DeltaList) {
        let text = self.without_skipped_newlines(text);
        match &mut self.channel {
            _ if text.is_empty() => {}
            Channel::Reasoning => out.reasoning(&self.reasoning_tail.push(text, BEFORE_THINK_END)),
            Channel::Content => self.content_but_angle(text, out),
            Channel::ToolCall { body, .. } => body.push_str(text),
            Channel::Dsml { block, before } => {
                block.push_str(text);
                if dsml::is_complete(block) {
                    let (block, before) = (std::mem::take(block), std::mem::take(before));
                    self.channel = Channel::Content;
                    self.end_dsml(&block, &before, out);
                }
            }
        }
    }

    /// Holds a last `<` where a tag of DSML may follow.
    fn content_but_angle(&mut self, text: &str, out: &mut DeltaList) {
        self.release_angle(out);
        let may_begin = self.vocabulary.has_dsml() && !self.tools.is_empty();
        match text.strip_suffix('<').filter(|_| may_begin) {
            Some(text) => {
                self.content(text, out);
                self.holds_angle = true;
            }
            None => self.content(text, out),
        }
    }

    /// The `<` that is held begins no tag.
    fn release_angle(&mut self, out: &mut DeltaList) {
        if std::mem::take(&mut self.holds_angle) {
            self.content("<", out);
        }
    }

    fn without_skipped_newlines<'a>(&mut self, text: &'a str) -> &'a str {
        let mut rest = text;
        while self.skip_newlines > 0 && !rest.is_empty() {
            match rest.strip_prefix('\n') {
                Some(after) => {
                    rest = after;
                    self.skip_newlines -= 1;
                }
                None => self.skip_newlines = 0,
            }
        }
        rest
    }

    fn content(&mut self, text: &str, out: &mut DeltaList) {
        let step = self.stop_matcher.push(text);
        self.show(step, out);
    }

    /// No more text belongs to what came before: an unfinished character becomes U+FFFD.
    fn end_text(&mut self, out: &mut DeltaList) {
        let text = self.utf8.finish();
        self.text(&text, out);
    }

    /// No stop string reaches over a marker.
    fn end_content(&mut self, out: &mut DeltaList) {
        let step = self.stop_matcher.finish();
        self.show(step, out);
    }

    fn show(&mut self, step: StopStep, out: &mut DeltaList) {
        out.content(&self.content_tail.push(&step.text, content_limit(&self.tools)));
        if step.stop.is_some() && self.stopped.is_none() {
            out.content(&self.content_tail.finish());
            self.stopped = step.stop;
        }
    }

    fn end_call(&mut self, body: String, before: String, close: &str, out: &mut DeltaList) {
        match tool_call::parse(&body, &self.tools) {
            Some(call) => self.call(call, out),
            None => self.content(&format!("{before}<tool_call>{body}{close}"), out),
        }
    }

    fn end_dsml(&mut self, block: &str, before: &str, out: &mut DeltaList) {
        match dsml::parse(block) {
            Some(calls) => calls.into_iter().for_each(|call| self.call(call, out)),
            None => self.content(&format!("{before}{block}"), out),
        }
    }

    fn call(&mut self, call: CallBody, out: &mut DeltaList) {
        if self.stopped.is_some() {
            return;
        }
        out.tool_call(ParsedToolCall {
            index: self.calls,
            id: tool_call::new_call_id(),
            name: call.name,
            arguments: Value::Object(call.arguments).to_string(),
        });
        self.calls += 1;
        self.content_tail.set_limit(Limit::Blank);
    }
}

/// Newlines before a tool call matter only where there can be one.
fn content_limit(tools: &[Value]) -> Limit {
    if tools.is_empty() { Limit::Newlines(0) } else { BEFORE_TOOL_CALL }
}
