//! Qwen3.8 Flash Next: ChatML, the level of thinking as a sentence of the system message, calls as XML.

use serde_json::json;

use super::prompt_text::{json, text_or_json};
use super::{Conversation, PromptText, Turn, trim, without_closing};
use crate::TextError;
use crate::chat::message::Role;
use crate::chat::thinking::ThinkingLevel;

pub(crate) const MARKERS: &[&str] = &["<|im_start|>", "<|im_end|>", "<think>", "</think>"];

/// The sentences that the model was trained with; medium has none.
const LOW: &str = "Reasoning effort is set to low. Keep your thinking brief and focused, moving directly to the \
    conclusion without unnecessary elaboration.";
const XHIGH: &str = "Reasoning effort is set to xhigh. Please think carefully through the task, validate key \
    assumptions, consider plausible alternatives, and prioritize correctness, consistency, and clarity in the final \
    answer.";

const TOOLS_OPEN: &str = "# Tools\n\nYou have access to the following functions:\n\n<tools>";
const TOOLS_CLOSE: &str = "\n</tools>\n\nIf you choose to call a function ONLY reply in the following format with NO \
    suffix:\n\n<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\nvalue_1\n</parameter>\n\
    <parameter=example_parameter_2>\nThis is the value for the second parameter\nthat can span\nmultiple lines\n\
    </parameter>\n</function>\n</tool_call>\n\n<IMPORTANT>\nReminder:\n\
    - Function calls MUST follow the specified format: an inner <function=...></function> block must be nested within \
    <tool_call></tool_call> XML tags\n\
    - Required parameters MUST be specified\n\
    - You may provide optional reasoning for your function call in natural language BEFORE the function call, but NOT \
    after\n\
    - If there is no function call available, answer the question like normal with your current knowledge and do not \
    tell the user about function calls\n</IMPORTANT>";

pub(crate) fn render(conversation: &Conversation<'_>) -> Result<String, TextError> {
    let mut out = PromptText::new(conversation.guard);
    system(conversation, &mut out)?;
    let mut turns = conversation.turns().into_iter().peekable();
    while let Some(turn) = turns.next() {
        match turn.message.role {
            Role::Assistant => answer(conversation, &turn, &mut out)?,
            Role::Tool => {
                if !turn.continues {
                    out.markup("<|im_start|>user");
                }
                let result = without_closing(&turn.message.content, "</tool_response>", "&lt;");
                out.markup("\n<tool_response>\n").client(&result).markup("\n</tool_response>");
                if turns.peek().is_none_or(|next| !next.continues) {
                    out.markup("<|im_end|>\n");
                }
            }
            Role::User | Role::System => {
                out.markup("<|im_start|>user\n").client(trim(&turn.message.content)).markup("<|im_end|>\n");
            }
        }
    }
    if conversation.add_generation_prompt {
        out.markup("<|im_start|>assistant\n<think>\n");
        if conversation.thinking.is_none() {
            out.markup("\n</think>\n\n");
        }
    }
    Ok(out.finish())
}

/// One system message: level, tools, instructions, with a blank line between.
fn system(conversation: &Conversation<'_>, out: &mut PromptText<'_>) -> Result<(), TextError> {
    let sentence = match conversation.thinking {
        Some(ThinkingLevel::Low) => LOW,
        None | Some(ThinkingLevel::Medium) => "",
        Some(ThinkingLevel::High | ThinkingLevel::Xhigh | ThinkingLevel::Max) => XHIGH,
    };
    let texts: Vec<&str> = conversation.system_texts().map(trim).filter(|text| !text.is_empty()).collect();
    if sentence.is_empty() && conversation.tools.is_empty() && texts.is_empty() {
        return Ok(());
    }
    out.markup("<|im_start|>system\n").markup(sentence);
    let mut separator = if sentence.is_empty() { "" } else { "\n\n" };
    if !conversation.tools.is_empty() {
        out.markup(separator).markup(TOOLS_OPEN);
        for function in conversation.functions() {
            out.markup("\n").client(&json(&json!({"type": "function", "function": function}))?);
        }
        out.markup(TOOLS_CLOSE);
        separator = "\n\n";
    }
    for text in texts {
        out.markup(separator).client(text);
        separator = "\n\n";
    }
    out.markup("<|im_end|>\n");
    Ok(())
}

/// Reasoning of every turn stays in the history.
fn answer(
    conversation: &Conversation<'_>,
    turn: &Turn<'_>,
    out: &mut PromptText<'_>,
) -> Result<(), TextError> {
    let reasoning = turn.message.reasoning_content.as_deref().unwrap_or_default();
    let content = trim(&turn.message.content);
    out.markup("<|im_start|>assistant\n<think>\n").client(trim(reasoning)).markup("\n</think>\n\n");
    out.client(content);
    for (index, call) in turn.message.tool_calls.iter().enumerate() {
        let separator = match index {
            0 if content.is_empty() => "",
            0 => "\n\n",
            _ => "\n",
        };
        out.markup(separator).markup("<tool_call>\n<function=").client(&call.name).markup(">\n");
        for (key, value) in conversation.ordered_arguments(call) {
            let value = without_closing(&text_or_json(&value)?, "</parameter>", "&lt;");
            out.markup("<parameter=").client(&key).markup(">\n").client(&value).markup("\n</parameter>\n");
        }
        out.markup("</function>\n</tool_call>");
    }
    out.markup("<|im_end|>\n");
    Ok(())
}
