//! Tools that the model may call, and calls in earlier messages.

use ds4_text::ToolCall;
use serde_json::{Map, Value};

use crate::error::ParameterError;
use crate::fields::Fields;

/// Reads `tools`, as the template gets them, minding `tool_choice`: `none` means that the model is told of no tools.
/// A forced call would need constrained sampling and is refused.
pub(crate) fn read(fields: &Fields<'_>) -> Result<Vec<Value>, ParameterError> {
    let tools = fields.array("tools")?.unwrap_or_default();
    for (index, value) in tools.iter().enumerate() {
        check_tool(value, format!("tools[{index}]"))?;
    }
    if fields.boolean("parallel_tool_calls")? == Some(false) {
        return Err(fields.not_supported("parallel_tool_calls", "the model decides how many tools it calls"));
    }
    match fields.value("tool_choice") {
        None => Ok(tools.to_vec()),
        Some(Value::String(choice)) if choice == "auto" => Ok(tools.to_vec()),
        Some(Value::String(choice)) if choice == "none" => Ok(Vec::new()),
        Some(Value::String(choice)) if choice != "required" => {
            Err(fields.out_of_range("tool_choice", "`auto` or `none`"))
        }
        Some(Value::String(_) | Value::Object(_)) => {
            Err(fields.not_supported("tool_choice", "a call cannot be forced: send `auto` or `none`"))
        }
        Some(_) => Err(fields.wrong_type("tool_choice", "a string")),
    }
}

fn check_tool(value: &Value, path: String) -> Result<(), ParameterError> {
    let tool = Fields::of(value, path)?;
    if tool.required_string("type")? != "function" {
        return Err(tool.not_supported("type", "tools are functions: send `function`"));
    }
    let function = tool.object("function")?.ok_or_else(|| tool.missing("function", "an object"))?;
    if function.required_string("name")?.is_empty() {
        return Err(function.out_of_range("name", "a name that is not empty"));
    }
    function.string("description")?;
    function.object("parameters")?;
    Ok(())
}

/// Reads the `tool_calls` of an assistant's message.
pub(crate) fn read_calls(message: &Fields<'_>) -> Result<Vec<ToolCall>, ParameterError> {
    let calls = message.array("tool_calls")?.unwrap_or_default();
    calls
        .iter()
        .enumerate()
        .map(|(index, value)| read_call(value, format!("{}[{index}]", message.name("tool_calls"))))
        .collect()
}

fn read_call(value: &Value, path: String) -> Result<ToolCall, ParameterError> {
    let call = Fields::of(value, path)?;
    let function = call.object("function")?.ok_or_else(|| call.missing("function", "an object"))?;
    // What the string holds is the model's own earlier output, and need not be JSON.
    let arguments = match function.value("arguments") {
        None => Value::Object(Map::new()),
        Some(arguments @ (Value::String(_) | Value::Object(_))) => arguments.clone(),
        Some(_) => return Err(function.wrong_type("arguments", "a string that holds a JSON object")),
    };
    Ok(ToolCall {
        id: call.string("id")?.unwrap_or_default().to_owned(),
        name: function.required_string("name")?.to_owned(),
        arguments,
    })
}
