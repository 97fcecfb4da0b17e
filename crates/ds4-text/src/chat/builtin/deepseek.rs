//! DeepSeek V4 Flash: instructions without a marker of their own, turns between `<｜User｜>` and `<｜Assistant｜>`, calls as
//! DSML. Reasoning of answers before the last question is dropped, unless tools are in use.

use serde_json::Value;

use super::prompt_text::json;
use super::{Conversation, PromptText, Turn, arguments_object, without_closing};
use crate::TextError;
use crate::chat::message::{Role, ToolCall};
use crate::chat::thinking::ThinkingLevel;

const BEGIN: &str = "<｜begin▁of▁sentence｜>";
const END: &str = "<｜end▁of▁sentence｜>";
const USER: &str = "<｜User｜>";
const ASSISTANT: &str = "<｜Assistant｜>";
const PARAMETER_END: &str = "</｜DSML｜parameter>";

pub(crate) const MARKERS: &[&str] = &[BEGIN, END, USER, ASSISTANT, "<think>", "</think>"];

/// The words by which DeepSeek's prompt format asks for the most reasoning.
const MAX_EFFORT: &str = "Reasoning Effort: Absolute maximum with no shortcuts permitted.\nYou MUST be very thorough \
    in your thinking and comprehensively decompose the problem to resolve the root cause, rigorously stress-testing \
    your logic against all potential paths, edge cases, and adversarial scenarios.\nExplicitly write out your entire \
    deliberation process, documenting every intermediate step, considered alternative, and rejected hypothesis to \
    ensure absolutely no assumption is left unchecked.\n\n";

const TOOLS_OPEN: &str = "## Tools\n\nYou have access to a set of tools to help answer the user question. You can \
    invoke tools by writing a \"<｜DSML｜tool_calls>\" block like the following:\n\n<｜DSML｜tool_calls>\n\
    <｜DSML｜invoke name=\"$TOOL_NAME\">\n\
    <｜DSML｜parameter name=\"$PARAMETER_NAME\" string=\"true|false\">$PARAMETER_VALUE</｜DSML｜parameter>\n...\n\
    </｜DSML｜invoke>\n<｜DSML｜invoke name=\"$TOOL_NAME2\">\n...\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>\n\n\
    String parameters should be specified as raw text and set `string=\"true\"`. Preserve characters such as `>`, `&`, \
    and `&&` exactly; never replace normal string characters with XML or HTML entity escapes. Only if a string value \
    itself contains the exact closing parameter tag `</｜DSML｜parameter>`, write that tag as \
    `&lt;/｜DSML｜parameter>` inside the value. For all other types (numbers, booleans, arrays, objects), pass the value \
    in JSON format and set `string=\"false\"`.\n\n\
    If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside \
    <think>...</think> BEFORE any tool calls or final response.\n\n\
    Otherwise, output directly after </think> with tool calls or final response.\n\n### Available Tool Schemas\n\n";
const TOOLS_CLOSE: &str = "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke \
    tool calls. Use the exact parameter names from the schemas.";

pub(crate) fn render(conversation: &Conversation<'_>) -> Result<String, TextError> {
    let mut out = PromptText::new(conversation.guard);
    out.markup(BEGIN);
    if conversation.thinking == Some(ThinkingLevel::Max) {
        out.markup(MAX_EFFORT);
    }
    system(conversation, &mut out)?;
    for turn in conversation.turns() {
        match turn.message.role {
            Role::Assistant => answer(&turn, &mut out)?,
            Role::Tool => {
                if !turn.continues {
                    out.markup(USER);
                }
                let result = without_closing(&turn.message.content, "</tool_result>", "&lt;");
                out.markup("<tool_result>").client(&result).markup("</tool_result>");
            }
            Role::User | Role::System => {
                out.markup(USER).client(&turn.message.content);
            }
        }
    }
    if conversation.add_generation_prompt {
        let think = if conversation.thinking.is_some() { "<think>" } else { "</think>" };
        out.markup(ASSISTANT).markup(think);
    }
    Ok(out.finish())
}

/// Instructions, then tools, with a blank line between.
fn system(conversation: &Conversation<'_>, out: &mut PromptText<'_>) -> Result<(), TextError> {
    let mut separator = "";
    for text in conversation.system_texts().filter(|text| !text.is_empty()) {
        out.markup(separator).client(text);
        separator = "\n\n";
    }
    if conversation.tools.is_empty() {
        return Ok(());
    }
    out.markup(separator).markup(TOOLS_OPEN);
    for (index, function) in conversation.functions().enumerate() {
        out.markup(if index == 0 { "" } else { "\n" }).client(&json(function)?);
    }
    out.markup(TOOLS_CLOSE);
    Ok(())
}

fn answer(turn: &Turn<'_>, out: &mut PromptText<'_>) -> Result<(), TextError> {
    out.markup(ASSISTANT);
    if let Some(reasoning) = turn.kept_reasoning() {
        out.markup("<think>").client(reasoning);
    }
    out.markup("</think>").client(&turn.message.content);
    if !turn.message.tool_calls.is_empty() {
        out.markup("\n\n<｜DSML｜tool_calls>\n");
        turn.message.tool_calls.iter().try_for_each(|call| invoke(call, out))?;
        out.markup("</｜DSML｜tool_calls>");
    }
    out.markup(END);
    Ok(())
}

fn invoke(call: &ToolCall, out: &mut PromptText<'_>) -> Result<(), TextError> {
    out.markup("<｜DSML｜invoke name=\"").client(&attribute(&call.name)).markup("\">\n");
    for (key, value) in arguments_object(&call.arguments).iter() {
        // The escaped tag is still JSON; text has no escapes of its own.
        let (is_string, value) = match value {
            Value::String(text) => ("true", without_closing(text, PARAMETER_END, "&lt;")),
            other => ("false", without_closing(&json(other)?, PARAMETER_END, "\\u003c")),
        };
        out.markup("<｜DSML｜parameter name=\"").client(&attribute(key));
        out.markup("\" string=\"").markup(is_string).markup("\">").client(&value);
        out.markup(PARAMETER_END).markup("\n");
    }
    out.markup("</｜DSML｜invoke>\n");
    Ok(())
}

/// A value between quotation marks.
fn attribute(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
