//! Client data as template values, with its text covered by the guard on the way.

use minijinja::Value;
use serde_json::Value as Json;

use super::guard::Guard;
use super::history::arguments_object;
use super::message::{Message, ToolCall};

/// A JSON value with all its strings and keys covered. Key order stays.
pub(crate) fn json_value(json: &Json, guard: &Guard) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(flag) => Value::from(*flag),
        Json::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => Value::from(number),
            (None, Some(number)) => Value::from(number),
            (None, None) => number.as_f64().map_or(Value::UNDEFINED, Value::from),
        },
        Json::String(text) => Value::from(guard.cover(text)),
        Json::Array(items) => items.iter().map(|item| json_value(item, guard)).collect(),
        Json::Object(fields) => object_value(fields, guard),
    }
}

fn object_value(fields: &serde_json::Map<String, Json>, guard: &Guard) -> Value {
    Value::from_pairs(fields.iter().map(|(key, value)| (guard.cover(key), json_value(value, guard))))
}

/// A message in the shape of the chat completions API. Fields that it does not have are absent, not null: templates
/// ask `is defined`.
pub(crate) fn message_value(message: &Message, guard: &Guard) -> Value {
    let mut fields = vec![
        ("role", Value::from(message.role.as_str())),
        ("content", Value::from(guard.cover(&message.content))),
    ];
    let optional = [
        ("reasoning_content", &message.reasoning_content),
        ("tool_call_id", &message.tool_call_id),
        ("name", &message.name),
    ];
    for (key, text) in optional {
        if let Some(text) = text {
            fields.push((key, Value::from(guard.cover(text))));
        }
    }
    if !message.tool_calls.is_empty() {
        fields.push(("tool_calls", message.tool_calls.iter().map(|call| call_value(call, guard)).collect()));
    }
    Value::from_pairs(fields)
}

fn call_value(call: &ToolCall, guard: &Guard) -> Value {
    let function = Value::from_pairs([
        ("name", Value::from(guard.cover(&call.name))),
        ("arguments", object_value(&arguments_object(&call.arguments), guard)),
    ]);
    Value::from_pairs([
        ("id", Value::from(guard.cover(&call.id))),
        ("type", Value::from("function")),
        ("function", function),
    ])
}
