//! Brings messages into the form that templates expect: one leading system message, reasoning apart from the answer,
//! tool arguments as an object. What a message then looks like in the prompt is the template's business.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::message::{Message, Role};

const THINK_OPEN: &str = "<think>";
const THINK_CLOSE: &str = "</think>";

/// The messages as the template gets them.
///
/// - System messages at the start are joined, with a blank line between, because templates allow one (clients send a
///   `system` and a `developer` message, for instance). Later ones stay where they are: the template may refuse them.
/// - An assistant message that begins with `<think>...</think>` and has no separate reasoning is split: clients that
///   do not know of reasoning send it back like that.
pub(crate) fn prepare(messages: &[Message]) -> Vec<Message> {
    with_split_reasoning(&with_one_leading_system(messages))
}

fn with_one_leading_system(messages: &[Message]) -> Vec<Message> {
    let mut prepared: Vec<Message> = Vec::with_capacity(messages.len());
    for message in messages {
        match prepared.as_mut_slice() {
            [only] if only.role == Role::System && message.role == Role::System => {
                only.content.push_str("\n\n");
                only.content.push_str(&message.content);
            }
            _ => prepared.push(message.clone()),
        }
    }
    prepared
}

/// The messages with nothing changed but where reasoning stands: what built-in templates get.
pub(crate) fn with_split_reasoning(messages: &[Message]) -> Vec<Message> {
    let mut prepared = messages.to_vec();
    for message in &mut prepared {
        if message.role == Role::Assistant && message.reasoning_content.is_none() {
            split_reasoning(message);
        }
    }
    prepared
}

/// Takes the newlines off that the output side takes off too, see [`OutputStream`](crate::OutputStream).
fn split_reasoning(message: &mut Message) {
    let Some(rest) = message.content.trim_start().strip_prefix(THINK_OPEN) else { return };
    let Some((reasoning, content)) = rest.split_once(THINK_CLOSE) else { return };
    let reasoning = reasoning.strip_prefix('\n').unwrap_or(reasoning);
    let reasoning = reasoning.strip_suffix('\n').unwrap_or(reasoning).to_string();
    let content = content.strip_prefix('\n').unwrap_or(content);
    let content = content.strip_prefix('\n').unwrap_or(content).to_string();
    message.reasoning_content = Some(reasoning);
    message.content = content;
}

/// Tool arguments as an object: itself, the object that a string holds, or one parameter named `arguments`.
pub(crate) fn arguments_object(arguments: &Value) -> Cow<'_, Map<String, Value>> {
    match arguments {
        Value::Object(object) => Cow::Borrowed(object),
        Value::String(text) if text.trim().is_empty() => Cow::Owned(Map::new()),
        Value::String(text) => match serde_json::from_str(text) {
            Ok(Value::Object(object)) => Cow::Owned(object),
            _ => Cow::Owned(single_argument(arguments)),
        },
        Value::Null => Cow::Owned(Map::new()),
        _ => Cow::Owned(single_argument(arguments)),
    }
}

fn single_argument(value: &Value) -> Map<String, Value> {
    Map::from_iter([("arguments".to_string(), json!(value))])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leading_system_messages_are_joined_and_later_ones_stay() {
        let prepared = prepare(&[
            Message::new(Role::System, "a"),
            Message::new(Role::System, "b"),
            Message::new(Role::User, "c"),
            Message::new(Role::System, "d"),
        ]);
        let contents: Vec<&str> = prepared.iter().map(|message| message.content.as_str()).collect();
        assert_eq!(contents, ["a\n\nb", "c", "d"]);
    }

    #[test]
    fn reasoning_at_the_start_of_an_answer_is_split_off() {
        let split = |content: &str| {
            let message = prepare(&[Message::new(Role::Assistant, content)]).remove(0);
            (message.reasoning_content, message.content)
        };
        assert_eq!(split("<think>\nwhy\n</think>\n\nso"), (Some("why".into()), "so".into()));
        assert_eq!(split("\n<think></think>\n\n\n so"), (Some(String::new()), "\n so".into()));
        assert_eq!(split("the tag <think>x</think>"), (None, "the tag <think>x</think>".into()));
        assert_eq!(split("<think>open"), (None, "<think>open".into()));
    }

    #[test]
    fn separate_reasoning_and_other_roles_are_left_alone() {
        let mut assistant = Message::new(Role::Assistant, "<think>x</think>y");
        assistant.reasoning_content = Some("z".into());
        let user = Message::new(Role::User, "<think>x</think>y");
        assert_eq!(prepare(&[user.clone(), assistant.clone()]), [user, assistant]);
    }

    #[test]
    fn arguments_become_an_object_in_any_case() {
        let object = |value: Value| Value::Object(arguments_object(&value).into_owned());
        assert_eq!(object(json!({"a": 1})), json!({"a": 1}));
        assert_eq!(object(json!("{\"b\": 1, \"a\": 2}")), json!({"b": 1, "a": 2}));
        assert_eq!(object(json!("")), json!({}));
        assert_eq!(object(json!("not json")), json!({"arguments": "not json"}));
        assert_eq!(object(json!("[1]")), json!({"arguments": "[1]"}));
        assert_eq!(object(json!([1])), json!({"arguments": [1]}));
    }
}
