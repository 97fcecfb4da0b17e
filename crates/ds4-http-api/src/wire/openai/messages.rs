//! The conversation of a chat request, and of the response to a compaction.
//!
//! Content is a string or an array of text parts, which are joined without anything between them. An assistant's
//! message may have no content. Images, audio and files are refused: the models read text.

use ds4_text::{Message, Role};
use serde_json::{Map, Value, json};

use crate::error::ParameterError;
use crate::fields::{Fields, wrong_type};
use crate::wire::openai::tools;

const ROLES: &str = "one of system, developer, user, assistant, tool";
const CONTENT: &str = "a string or an array of text parts";

/// Reads `messages`.
pub(crate) fn read(fields: &Fields<'_>) -> Result<Vec<Message>, ParameterError> {
    const EXPECTED: &str = "an array of at least one message";
    let messages = fields.array("messages")?.ok_or_else(|| fields.missing("messages", EXPECTED))?;
    if messages.is_empty() {
        return Err(fields.out_of_range("messages", EXPECTED));
    }
    messages.iter().enumerate().map(|(index, value)| message(value, format!("messages[{index}]"))).collect()
}

/// Writes a message as it is read: `content` is a string, and what the message does not have is left out.
pub(crate) fn write(message: &Message) -> Value {
    let calls = message.tool_calls.iter().map(|call| {
        // A string in both directions, whatever the client sent.
        let arguments = call.arguments.as_str().map_or_else(|| call.arguments.to_string(), str::to_owned);
        json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}})
    });
    let calls = Some(Value::Array(calls.collect())).filter(|_| !message.tool_calls.is_empty());
    let text = |text: &Option<String>| text.clone().map(Value::String);
    let members = [
        ("role", Some(message.role.as_str().into())),
        ("content", Some(message.content.as_str().into())),
        ("reasoning_content", text(&message.reasoning_content)),
        ("tool_calls", calls),
        ("tool_call_id", text(&message.tool_call_id)),
        ("name", text(&message.name)),
    ];
    let present = members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(present.collect::<Map<_, _>>())
}

fn message(value: &Value, path: String) -> Result<Message, ParameterError> {
    let fields = Fields::of(value, path)?;
    let role = fields.required_string("role")?;
    if role == "function" {
        return Err(fields.not_supported("role", "results of tools come with the role `tool`"));
    }
    let role: Role = role.parse().map_err(|_| fields.out_of_range("role", ROLES))?;
    let content = content(&fields)?;
    if content.is_none() && role != Role::Assistant {
        return Err(fields.missing("content", CONTENT));
    }
    if fields.value("function_call").is_some() {
        return Err(fields.not_supported("function_call", "calls come in `tool_calls`"));
    }
    Ok(Message {
        role,
        content: content.unwrap_or_default(),
        reasoning_content: match fields.string("reasoning_content")? {
            Some(reasoning) => Some(reasoning.to_owned()),
            // Another name in use; what is no text under it is some other dialect's.
            None => fields.value("reasoning").and_then(Value::as_str).map(str::to_owned),
        },
        tool_calls: tools::read_calls(&fields)?,
        tool_call_id: fields.string("tool_call_id")?.map(str::to_owned),
        name: fields.string("name")?.map(str::to_owned),
    })
}

fn content(fields: &Fields<'_>) -> Result<Option<String>, ParameterError> {
    match fields.value("content") {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(Value::Array(parts)) => parts
            .iter()
            .enumerate()
            .map(|(index, value)| part(value, format!("{}[{index}]", fields.name("content"))))
            .collect::<Result<String, _>>()
            .map(Some),
        Some(other) => Err(wrong_type(fields.name("content"), CONTENT, other)),
    }
}

fn part(value: &Value, path: String) -> Result<String, ParameterError> {
    let fields = Fields::of(value, path)?;
    match fields.required_string("type")? {
        "text" => fields.required_string("text").map(str::to_owned),
        "refusal" => fields.required_string("refusal").map(str::to_owned),
        "image_url" | "image" | "input_image" | "input_audio" | "video_url" | "file" => {
            Err(fields.not_supported("type", "this model reads text only: send parts of the type `text`"))
        }
        _ => Err(fields.out_of_range("type", "`text`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_written() {
        let messages = json!({"messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "look it up", "name": "Ada"},
            {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "find", "arguments": "{\"q\": 1}"}}
            ]},
            {"role": "tool", "content": "found", "tool_call_id": "call_1"}
        ]});
        let read = read(&Fields::root(messages.as_object().unwrap())).unwrap();
        assert_eq!(Value::Array(read.iter().map(write).collect()), messages["messages"]);
    }
}
