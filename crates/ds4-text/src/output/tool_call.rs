//! Reads a tool call, the text between `<tool_call>` and `</tool_call>`, in the form of Qwen or that of GLM:
//!
//! ```text
//! <function=NAME>
//! <parameter=KEY>
//! value
//! </parameter>
//! </function>
//!
//! NAME<arg_key>KEY</arg_key><arg_value>value</arg_value>
//! ```
//!
//! A body that has neither form is no call; a name alone is one if there is a tool of that name. Values are taken as they
//! are, without any unescaping, only the one newline on each side that Qwen's form adds is taken off.

use std::hash::{BuildHasher, Hasher, RandomState};

use serde_json::{Map, Value};

const FUNCTION: &str = "<function=";
const FUNCTION_END: &str = "</function>";
const PARAMETER: &str = "<parameter=";
const PARAMETER_END: &str = "</parameter>";
const KEY: &str = "<arg_key>";
const KEY_END: &str = "</arg_key>";
const VALUE: &str = "<arg_value>";
const VALUE_END: &str = "</arg_value>";

/// Name and arguments of a call.
#[derive(Debug, PartialEq)]
pub(crate) struct CallBody {
    pub(crate) name: String,
    pub(crate) arguments: Map<String, Value>,
}

/// Reads a body, or finds that it is none. `tools` say which type each argument has.
pub(crate) fn parse(body: &str, tools: &[Value]) -> Option<CallBody> {
    let body = body.trim();
    if body.starts_with(FUNCTION) { function_form(body, tools) } else { pairs_form(body, tools) }
}

fn pairs_form(body: &str, tools: &[Value]) -> Option<CallBody> {
    let (name, mut rest) = body.split_at(body.find(KEY).unwrap_or(body.len()));
    let name = valid_name(name)?;
    if rest.is_empty() && function(tools, name).is_none() {
        return None;
    }
    let schema = properties(tools, name);
    let mut arguments = Map::new();
    while !rest.is_empty() {
        let (key, after_key) = rest.strip_prefix(KEY)?.split_once(KEY_END)?;
        let text = after_key.trim_start().strip_prefix(VALUE)?;
        // As with parameters: a value goes on where the form does not.
        let goes_on = |behind: &str| behind.is_empty() || behind.starts_with(KEY);
        let end = end_before(text, VALUE_END, goes_on)?;
        let value = typed(&text[..end], schema.and_then(|schema| schema.get(key)));
        arguments.insert(key.to_string(), value);
        rest = text[end + VALUE_END.len()..].trim_start();
    }
    Some(CallBody { name: name.to_string(), arguments })
}

fn function_form(body: &str, tools: &[Value]) -> Option<CallBody> {
    let rest = body.strip_prefix(FUNCTION)?;
    // The function's end is the end of the body: whatever looks like one before it is part of a value.
    let (name, parameters) = rest.strip_suffix(FUNCTION_END)?.split_once('>')?;
    let name = valid_name(name)?;
    let schema = properties(tools, name);
    let mut arguments = Map::new();
    let mut rest = parameters.trim_start();
    while !rest.is_empty() {
        let (key, after_key) = rest.strip_prefix(PARAMETER)?.split_once('>')?;
        let key = valid_name(key)?;
        // A closing tag inside of code or prose has something else behind it and stays in the value.
        let goes_on = |behind: &str| behind.is_empty() || behind.starts_with(PARAMETER);
        let end = end_before(after_key, PARAMETER_END, goes_on)?;
        let value = typed(without_frame(&after_key[..end]), schema.and_then(|schema| schema.get(key)));
        arguments.insert(key.to_string(), value);
        rest = after_key[end + PARAMETER_END.len()..].trim_start();
    }
    Some(CallBody { name: name.to_string(), arguments })
}

fn valid_name(name: &str) -> Option<&str> {
    let name = name.trim();
    (!name.is_empty() && !name.contains(['\n', '<'])).then_some(name)
}

/// Where a value ends: at the first closing tag behind which the form goes on, with another argument or with the end.
fn end_before(text: &str, closing: &str, goes_on: impl Fn(&str) -> bool) -> Option<usize> {
    let mut ends = text.match_indices(closing).map(|(position, _)| position);
    ends.find(|position| goes_on(text[position + closing.len()..].trim_start()))
}

fn without_frame(value: &str) -> &str {
    let value = value.strip_prefix('\n').unwrap_or(value);
    value.strip_suffix('\n').unwrap_or(value)
}

/// The properties of a tool's parameters, from a description with or without the `function` wrapper.
fn properties<'a>(tools: &'a [Value], name: &str) -> Option<&'a Map<String, Value>> {
    function(tools, name).and_then(|function| function["parameters"]["properties"].as_object())
}

fn function<'a>(tools: &'a [Value], name: &str) -> Option<&'a Value> {
    tools.iter().map(|tool| tool.get("function").unwrap_or(tool)).find(|function| function["name"] == name)
}

/// A value by its schema: text where a string is allowed, otherwise JSON if it is any, otherwise text. Without a type
/// in the schema, JSON that is itself a string stays text with its quotes.
fn typed(text: &str, schema: Option<&Value>) -> Value {
    let as_text = || Value::String(text.to_string());
    let declared = schema.map(|schema| &schema["type"]).filter(|declared| !declared.is_null());
    let allows_string = declared.is_some_and(|declared| match declared {
        Value::Array(types) => types.iter().any(|one| one == "string"),
        one => one == "string",
    });
    if allows_string {
        return as_text();
    }
    match serde_json::from_str(text) {
        Ok(Value::String(_)) if declared.is_none() => as_text(),
        Ok(value) => value,
        Err(_) => as_text(),
    }
}

/// `call_` and 24 hexadecimal digits. Unique, not secret: the randomness is that of the standard library's hash maps.
pub(crate) fn new_call_id() -> String {
    let random = || RandomState::new().build_hasher().finish();
    format!("call_{:016x}{:08x}", random(), random() as u32)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(body: &str, tools: &[Value]) -> Option<(String, Value)> {
        parse(body, tools).map(|call| (call.name, Value::Object(call.arguments)))
    }

    fn edit_tool() -> Value {
        json!({"type": "function", "function": {"name": "edit", "parameters": {"properties": {
            "text": {"type": "string"}, "line": {"type": "integer"}, "note": {"type": ["string", "null"]},
            "any": {}, "list": {"type": "array"},
        }}}})
    }

    #[test]
    fn values_have_the_type_of_the_schema() {
        let body = "\n<function=edit>\n<parameter=text>\n12\n</parameter>\n<parameter=line>\n12\n</parameter>\n\
                    <parameter=note>\nnull\n</parameter>\n<parameter=any>\n\"q\"\n</parameter>\n\
                    <parameter=list>\n[1, \"a\"]\n</parameter>\n<parameter=new>\n{\"a\": 1}\n</parameter>\n</function>\n";
        assert_eq!(
            read(body, &[edit_tool()]).unwrap().1,
            json!({"text": "12", "line": 12, "note": "null", "any": "\"q\"", "list": [1, "a"], "new": {"a": 1}})
        );
        assert_eq!(read(body, &[]).unwrap().1["text"], 12, "without a schema, JSON is JSON");
        let word = "<function=edit><parameter=line>\ntwelve\n</parameter></function>";
        assert_eq!(read(word, &[edit_tool()]).unwrap().1, json!({"line": "twelve"}));
    }

    #[test]
    fn one_newline_on_each_side_goes_and_nothing_is_unescaped() {
        let body = "<function=edit>\n<parameter=text>\n\n    a &lt; b\t\n\n</parameter>\n</function>";
        assert_eq!(read(body, &[edit_tool()]).unwrap().1, json!({"text": "\n    a &lt; b\t\n"}));
        let empty = "<function=edit>\n<parameter=text>\n</parameter>\n</function>";
        assert_eq!(read(empty, &[edit_tool()]).unwrap().1, json!({"text": ""}));
    }

    #[test]
    fn closing_tags_inside_of_a_value_survive() {
        let value =
            "x = \"</parameter>\"\n</function>\n</parameter> # </function>\n</parameter>\n</function>\nend";
        let body = format!("<function=edit>\n<parameter=text>\n{value}\n</parameter>\n</function>");
        assert_eq!(read(&body, &[edit_tool()]).unwrap().1, json!({"text": value}));
    }

    #[test]
    fn a_call_may_have_no_arguments() {
        assert_eq!(read("<function=clock>\n</function>", &[]).unwrap(), ("clock".into(), json!({})));
        assert_eq!(read("<function=clock></function>", &[]).unwrap(), ("clock".into(), json!({})));
    }

    #[test]
    fn pairs_of_keys_and_values_are_a_call() {
        let pair = |key: &str, value: &str| format!("<arg_key>{key}</arg_key><arg_value>{value}</arg_value>");
        let pairs = [("text", " 12\n</arg_value> more"), ("line", "12"), ("list", "[1]")];
        let body: String = pairs.iter().map(|(key, value)| pair(key, value)).collect();
        let expected = json!({"text": " 12\n</arg_value> more", "line": 12, "list": [1]});
        assert_eq!(read(&format!("edit{body}"), &[edit_tool()]).unwrap(), ("edit".into(), expected.clone()));
        let spaced = body.replace("</arg_key><", "</arg_key>\n<").replace("<arg_key>", "\n<arg_key>");
        assert_eq!(read(&format!("edit{spaced}\n"), &[edit_tool()]).unwrap().1, expected);
    }

    #[test]
    fn a_name_alone_is_a_call_of_a_tool_that_exists() {
        assert_eq!(read("\nedit\n", &[edit_tool()]).unwrap(), ("edit".into(), json!({})));
        assert_eq!(read("something", &[edit_tool()]), None);
    }

    #[test]
    fn what_does_not_have_the_form_is_no_call() {
        for body in [
            "",
            "{\"name\": \"clock\"}",
            "<function=>\n</function>",
            "<function=f>",
            "<function=f>\ntext\n</function>",
            "<function=f>\n<parameter=a>\n1\n</function>",
            "<function=f>\n<parameter=a>\n1\n</parameter>\nmore\n</function>",
            "<function=f>\n<parameter=a\n1\n</parameter>\n</function>",
            "before <function=f>\n</function>",
            "f<arg_key>a</arg_key>",
            "f<arg_key>a</arg_key><arg_value>1",
            "f<arg_key>a</arg_key><arg_value>1</arg_value>more",
            "<arg_key>a</arg_key><arg_value>1</arg_value>",
        ] {
            assert_eq!(read(body, &[]), None, "{body}");
        }
    }

    #[test]
    fn ids_have_their_form_and_differ() {
        let (one, two) = (new_call_id(), new_call_id());
        assert_eq!(one.len(), 29);
        assert!(one.strip_prefix("call_").unwrap().bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert_ne!(one, two);
    }
}
