//! GLM 5.3 Flash: markers without newlines, the level of thinking as a system line, calls as pairs of keys and values.
//! Reasoning of answers before the last question is dropped, unless tools are in use.

use serde_json::{Map, Value};

use super::prompt_text::{json, text_or_json};
use super::{Conversation, PromptText, Turn, trim, without_closing};
use crate::TextError;
use crate::chat::message::Role;
use crate::chat::thinking::ThinkingLevel;

const SYSTEM: &str = "<|system|>";
const USER: &str = "<|user|>";
const ASSISTANT: &str = "<|assistant|>";
const OBSERVATION: &str = "<|observation|>";

pub(crate) const MARKERS: &[&str] =
    &["[gMASK]", "<sop>", SYSTEM, USER, ASSISTANT, OBSERVATION, "<think>", "</think>"];

/// What clients say of a tool to each other, not to the model.
const NOT_FOR_THE_MODEL: [&str; 2] = ["strict", "defer_loading"];

const TOOLS_OPEN: &str = "\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are \
    provided with function signatures within <tools></tools> XML tags:\n<tools>\n\n";
const TOOLS_CLOSE: &str = "</tools>\n\nFor each function call, output the function name and arguments within the \
    following XML format:\n<tool_call>{function-name}<arg_key>{arg-key-1}</arg_key><arg_value>{arg-value-1}</arg_value>\
    <arg_key>{arg-key-2}</arg_key><arg_value>{arg-value-2}</arg_value>...</tool_call>";

pub(crate) fn render(conversation: &Conversation<'_>) -> Result<String, TextError> {
    let mut out = PromptText::new(conversation.guard);
    out.markup("[gMASK]<sop>");
    match conversation.thinking {
        None => {}
        Some(ThinkingLevel::Max) => {
            out.markup(SYSTEM).markup("Reasoning Effort: Max");
        }
        Some(_) => {
            out.markup(SYSTEM).markup("Reasoning Effort: High");
        }
    }
    tools(conversation, &mut out)?;
    for text in conversation.system_texts() {
        out.markup(SYSTEM).client(text);
    }
    for turn in conversation.turns() {
        match turn.message.role {
            Role::Assistant => answer(conversation, &turn, &mut out)?,
            Role::Tool => {
                if !turn.continues {
                    out.markup(OBSERVATION);
                }
                let result = without_closing(&turn.message.content, "</tool_response>", "&lt;");
                out.markup("<tool_response>").client(&result).markup("</tool_response>");
            }
            Role::User | Role::System => {
                out.markup(USER).client(&turn.message.content);
            }
        }
    }
    if conversation.add_generation_prompt {
        out.markup(ASSISTANT).markup("<think>");
        if conversation.thinking.is_none() {
            out.markup("</think>");
        }
    }
    Ok(out.finish())
}

fn tools(conversation: &Conversation<'_>, out: &mut PromptText<'_>) -> Result<(), TextError> {
    if conversation.tools.is_empty() {
        return Ok(());
    }
    out.markup(SYSTEM).markup(TOOLS_OPEN);
    let offered: Vec<&Value> =
        conversation.functions().filter(|function| function["defer_loading"] != true).collect();
    for function in &offered {
        out.client(&json(&for_the_model(function))?).markup("\n\n\n");
    }
    out.markup(if offered.is_empty() { "\n" } else { "" }).markup(TOOLS_CLOSE);
    Ok(())
}

fn for_the_model(function: &Value) -> Value {
    let Some(fields) = function.as_object() else { return function.clone() };
    let kept = fields.iter().filter(|(key, _)| !NOT_FOR_THE_MODEL.contains(&key.as_str()));
    Value::Object(kept.map(|(key, value)| (key.clone(), value.clone())).collect::<Map<_, _>>())
}

fn answer(
    conversation: &Conversation<'_>,
    turn: &Turn<'_>,
    out: &mut PromptText<'_>,
) -> Result<(), TextError> {
    let reasoning = turn.kept_reasoning().unwrap_or_default();
    out.markup(ASSISTANT).markup("<think>").client(reasoning).markup("</think>");
    out.client(trim(&turn.message.content));
    if turn.message.tool_calls.is_empty() {
        return Ok(());
    }
    out.markup("\n");
    for call in &turn.message.tool_calls {
        out.markup("<tool_call>").client(&call.name);
        for (key, value) in conversation.ordered_arguments(call) {
            let key = without_closing(&key, "</arg_key>", "&lt;");
            let value = without_closing(&text_or_json(&value)?, "</arg_value>", "&lt;");
            out.markup("<arg_key>").client(&key).markup("</arg_key>");
            out.markup("<arg_value>").client(&value).markup("</arg_value>");
        }
        out.markup("</tool_call>");
    }
    out.markup("\n");
    Ok(())
}
