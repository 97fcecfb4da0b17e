//! Reads tool calls in DeepSeek's form, DSML, from the first tag to the last:
//!
//! ```text
//! <｜DSML｜tool_calls>
//! <｜DSML｜invoke name="NAME">
//! <｜DSML｜parameter name="KEY" string="true|false">value</｜DSML｜parameter>
//! </｜DSML｜invoke>
//! </｜DSML｜tool_calls>
//! ```
//!
//! Strings are taken as they are, but for the one tag that they cannot hold and that the prompt tells the model to escape.
//! Where this begins is not decided here: the word between the bars is a token of its own.

use serde_json::{Map, Value};

use super::tool_call::CallBody;

/// The token in every tag.
pub(crate) const WORD: &str = "｜DSML｜";

const CALLS: &str = "<｜DSML｜tool_calls>";
const CALLS_END: &str = "</｜DSML｜tool_calls>";
const INVOKE: &str = "<｜DSML｜invoke name=\"";
const INVOKE_END: &str = "</｜DSML｜invoke>";
const PARAMETER: &str = "<｜DSML｜parameter name=\"";
const PARAMETER_END: &str = "</｜DSML｜parameter>";
const ESCAPED_END: &str = "&lt;/｜DSML｜parameter>";

/// Whether the last tag has come.
pub(crate) fn is_complete(block: &str) -> bool {
    block.ends_with(CALLS_END)
}

/// The calls of a block, or that it is none.
pub(crate) fn parse(block: &str) -> Option<Vec<CallBody>> {
    let mut rest = block.strip_prefix(CALLS)?.strip_suffix(CALLS_END)?.trim();
    let mut calls = Vec::new();
    while !rest.is_empty() {
        let (name, after) = rest.strip_prefix(INVOKE)?.split_once("\">")?;
        let mut arguments = Map::new();
        rest = after.trim_start();
        while let Some(parameter) = rest.strip_prefix(PARAMETER) {
            let (key, after) = parameter.split_once("\" string=\"")?;
            let (is_string, after) = after.split_once("\">")?;
            let (value, after) = after.split_once(PARAMETER_END)?;
            let text = || Value::String(value.replace(ESCAPED_END, PARAMETER_END));
            let value = match is_string {
                "true" => text(),
                _ => serde_json::from_str(value).unwrap_or_else(|_| text()),
            };
            arguments.insert(unescaped(key), value);
            rest = after.trim_start();
        }
        rest = rest.strip_prefix(INVOKE_END)?.trim_start();
        calls.push(CallBody { name: unescaped(name), arguments });
    }
    (!calls.is_empty()).then_some(calls)
}

/// A value between quotation marks.
fn unescaped(text: &str) -> String {
    text.replace("&quot;", "\"").replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn block(inner: &str) -> String {
        format!("{CALLS}\n{inner}{CALLS_END}")
    }

    fn read(block: &str) -> Option<Vec<(String, Value)>> {
        let calls = parse(block)?;
        Some(calls.into_iter().map(|call| (call.name, Value::Object(call.arguments))).collect())
    }

    #[test]
    fn calls_are_read_with_the_types_they_say() {
        let edit = "<｜DSML｜invoke name=\"a&quot;b\">\n\
                    <｜DSML｜parameter name=\"t\" string=\"true\">\n 12 &lt;/｜DSML｜parameter>\n</｜DSML｜parameter>\n\
                    <｜DSML｜parameter name=\"n\" string=\"false\">[1, \"x\"]</｜DSML｜parameter>\n\
                    <｜DSML｜parameter name=\"w\" string=\"false\">word</｜DSML｜parameter>\n</｜DSML｜invoke>\n";
        let clock = "<｜DSML｜invoke name=\"clock\">\n</｜DSML｜invoke>\n";
        let expected = [
            ("a\"b".to_owned(), json!({"t": "\n 12 </｜DSML｜parameter>\n", "n": [1, "x"], "w": "word"})),
            ("clock".to_owned(), json!({})),
        ];
        assert_eq!(read(&block(&format!("{edit}{clock}"))).unwrap(), expected);
        assert!(is_complete(&block(clock)) && !is_complete(CALLS));
    }

    #[test]
    fn what_does_not_have_the_form_is_no_call() {
        for inner in [
            "",
            "text",
            "<｜DSML｜invoke name=\"a\">",
            "<｜DSML｜invoke name=\"a\">\ntext</｜DSML｜invoke>",
            "<｜DSML｜invoke name=\"a\">\n<｜DSML｜parameter name=\"k\">1</｜DSML｜parameter>\n</｜DSML｜invoke>",
            "<｜DSML｜invoke name=\"a\">\n<｜DSML｜parameter name=\"k\" string=\"true\">1</｜DSML｜invoke>",
        ] {
            assert_eq!(read(&block(inner)), None, "{inner}");
        }
    }
}
