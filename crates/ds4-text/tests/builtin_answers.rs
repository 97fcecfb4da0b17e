//! Answers in the families' own call formats: what is rendered into the history is read back as the same calls.
#![allow(clippy::unwrap_used, reason = "tests only")]

mod demo;

use std::sync::LazyLock;

use ds4_text::{
    ChatFamily, ChatPrompt, Message, OutputOptions, Role, TextDelta, TextModel, Thinking, ToolCall,
};
use proptest::prelude::*;
use serde_json::{Value, json};

const FAMILIES: [ChatFamily; 3] = [ChatFamily::Qwen, ChatFamily::DeepSeek, ChatFamily::Glm];

fn tools() -> Vec<Value> {
    let properties =
        json!({"text": {"type": "string"}, "count": {"type": "integer"}, "list": {"type": "array"}});
    vec![
        json!({"type": "function", "function": {"name": "edit", "parameters": {"properties": properties}}}),
        json!({"type": "function", "function": {"name": "clock"}}),
    ]
}

/// Content and calls.
type Read = (String, Vec<(String, Value)>);

fn read(model: &TextModel, tokens: &[u32], tools: Vec<Value>) -> Read {
    let mut stream = model.output(OutputOptions { tools, ..OutputOptions::default() });
    let mut deltas: Vec<TextDelta> = tokens.iter().flat_map(|&token| stream.push(token)).collect();
    deltas.extend(stream.finish());
    let mut read = Read::default();
    for delta in deltas {
        match delta {
            TextDelta::Reasoning(text) => panic!("no reasoning was begun: {text}"),
            TextDelta::Content(text) => read.0 += &text,
            TextDelta::ToolCall(call) => {
                assert_eq!(call.index, read.1.len());
                read.1.push((call.name, serde_json::from_str(&call.arguments).unwrap()));
            }
        }
    }
    read
}

/// The tokens of an answer as the family's template writes it into the history, without what is around it.
fn rendered(model: &TextModel, content: &str, calls: &[(String, Value)]) -> Vec<u32> {
    let question = Message::new(Role::User, "?");
    let render = |messages, add_generation_prompt| {
        let prompt = ChatPrompt {
            thinking: Thinking::Off,
            tools: tools(),
            add_generation_prompt,
            ..ChatPrompt::new(messages)
        };
        model.render_chat(&prompt).unwrap().tokens
    };
    let tool_calls = calls
        .iter()
        .map(|(name, arguments)| ToolCall {
            id: "1".into(),
            name: name.clone(),
            arguments: arguments.clone(),
        })
        .collect();
    let answer = Message { tool_calls, ..Message::new(Role::Assistant, content) };
    let prompt = render(vec![question.clone()], true);
    let whole = render(vec![question, answer], false);
    assert!(whole.starts_with(&prompt), "the history goes on where the prompt ended");
    whole[prompt.len()..].to_vec()
}

fn calls() -> Vec<(String, Value)> {
    let text = "  a < b\n<x>\n</parameter> </arg_value> </tool_call> &lt; &amp;\n";
    vec![("edit".into(), json!({"text": text, "count": 3, "list": [1, "b"]})), ("clock".into(), json!({}))]
}

#[test]
fn rendered_calls_are_read_back() {
    for family in FAMILIES {
        let model = demo::without_template(family, 4096);
        let (content, read_back) = read(&model, &rendered(&model, "I look.", &calls()), tools());
        assert_eq!(content.trim_end(), "I look.", "{family:?}");
        // The closing tag of its own form is escaped for good in Qwen's and GLM's text.
        let mut expected = calls();
        let own_tag = match family {
            ChatFamily::Qwen => "</parameter>",
            ChatFamily::Glm => "</arg_value>",
            ChatFamily::DeepSeek => "",
        };
        if !own_tag.is_empty() {
            let text = expected[0].1["text"].as_str().unwrap();
            expected[0].1["text"] = text.replace(own_tag, &own_tag.replace('<', "&lt;")).into();
        }
        assert_eq!(read_back, expected, "{family:?}");
    }
}

#[test]
fn without_tools_calls_are_text() {
    for family in FAMILIES {
        let model = demo::without_template(family, 4096);
        let (content, read_back) = read(&model, &rendered(&model, "I look.", &calls()), Vec::new());
        assert_eq!(read_back, []);
        assert!(content.contains("clock"), "{family:?}: {content}");
    }
}

#[test]
fn a_dsml_block_that_is_cut_off_or_has_no_form_is_text() {
    let model = demo::without_template(ChatFamily::DeepSeek, 4096);
    let encode = |text: &str| model.tokenizer().encode_with_special(text).unwrap();
    for text in [
        "a <",
        "a < b",
        "a\n\n<｜DSML｜",
        "a\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"clock\">",
        "a\n\n<｜DSML｜tool_calls>\nwords</｜DSML｜tool_calls> b",
        "a ｜DSML｜ b",
        "<<",
    ] {
        assert_eq!(read(&model, &encode(text), tools()), (text.to_owned(), vec![]));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn dsml_carries_any_text(text in any::<String>(), key in "[a-z\"&<>]{1,8}", content in "[a-z<\n]{0,8}") {
        static MODEL: LazyLock<TextModel> =
            LazyLock::new(|| demo::without_template(ChatFamily::DeepSeek, 4096));
        let calls = vec![("edit".to_owned(), json!({key: text}))];
        let (read_content, read_back) = read(&MODEL, &rendered(&MODEL, &content, &calls), tools());
        prop_assert_eq!(read_back, calls);
        prop_assert_eq!(read_content, content);
    }
}
