//! Prompts and ids equal what transformers makes of the demo checkpoint. `fixtures/make_fixtures.py` recorded them and
//! says with which versions.

mod demo;

use ds4_text::{ChatPrompt, Message, Thinking, ToolCall};
use serde_json::Value;

fn cases(json: &str) -> Vec<Value> {
    let recorded: Value = serde_json::from_str(json).expect("fixtures are JSON");
    recorded["cases"].as_array().expect("fixtures hold cases").clone()
}

fn ids(case: &Value) -> Vec<u32> {
    serde_json::from_value(case["ids"].clone()).expect("ids are numbers")
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_string)
}

fn message(json: &Value) -> Message {
    let calls = json["tool_calls"].as_array().cloned().unwrap_or_default();
    let call = |call: &Value| ToolCall {
        id: text(&call["id"]).expect("calls have ids"),
        name: text(&call["function"]["name"]).expect("calls have names"),
        arguments: call["function"]["arguments"].clone(),
    };
    Message {
        role: json["role"].as_str().expect("messages have roles").parse().expect("roles are known"),
        content: text(&json["content"]).expect("messages have content"),
        reasoning_content: text(&json["reasoning_content"]),
        tool_calls: calls.iter().map(call).collect(),
        tool_call_id: text(&json["tool_call_id"]),
        name: text(&json["name"]),
    }
}

fn thinking(kwargs: &Value) -> Thinking {
    match (kwargs["enable_thinking"].as_bool(), kwargs["reasoning_effort"].as_str()) {
        (_, Some(level)) => level.parse().expect("levels are known"),
        (Some(false), None) => Thinking::Off,
        (Some(true), None) => Thinking::On,
        (None, None) => Thinking::Default,
    }
}

fn prompt(case: &Value) -> ChatPrompt {
    let messages = case["messages"].as_array().expect("cases have messages");
    ChatPrompt {
        tools: case["tools"].as_array().expect("cases have tools").clone(),
        thinking: thinking(&case["kwargs"]),
        add_generation_prompt: case["add_generation_prompt"].as_bool().expect("cases say how they end"),
        ..ChatPrompt::new(messages.iter().map(message).collect())
    }
}

#[test]
fn rendered_prompts_and_their_ids_are_those_of_transformers() {
    let model = demo::text_model();
    let cases = cases(include_str!("fixtures/chat.json"));
    assert!(cases.len() >= 12);
    for case in cases {
        let rendered = model.render_chat(&prompt(&case)).unwrap();
        assert_eq!(rendered.text, case["text"].as_str().unwrap(), "{}", case["name"]);
        assert_eq!(rendered.tokens, ids(&case), "{}", case["name"]);
    }
}

#[test]
fn arguments_sent_as_a_string_render_like_the_object() {
    let model = demo::text_model();
    for case in cases(include_str!("fixtures/chat.json")) {
        let mut prompt = prompt(&case);
        for call in prompt.messages.iter_mut().flat_map(|message| &mut message.tool_calls) {
            call.arguments = Value::String(call.arguments.to_string());
        }
        assert_eq!(model.render_chat(&prompt).unwrap().tokens, ids(&case), "{}", case["name"]);
    }
}

#[test]
fn template_arguments_do_what_the_flags_do() {
    let model = demo::text_model();
    for case in cases(include_str!("fixtures/chat.json")) {
        let mut prompt = prompt(&case);
        prompt.thinking = Thinking::Default;
        prompt.template_kwargs = case["kwargs"].as_object().unwrap().clone();
        assert_eq!(model.render_chat(&prompt).unwrap().tokens, ids(&case), "{}", case["name"]);
    }
}

#[test]
fn plain_ids_are_those_of_the_tokenizers_package() {
    let model = demo::text_model();
    for case in cases(include_str!("fixtures/encode.json")) {
        let text = case["text"].as_str().unwrap();
        assert_eq!(model.tokenizer().encode_plain(text).unwrap(), ids(&case), "{text:?}");
        assert_eq!(model.tokenizer().encode_with_special(text).unwrap(), ids(&case), "{text:?}");
    }
    for case in cases(include_str!("fixtures/chat.json")) {
        let text = case["text"].as_str().unwrap();
        assert_eq!(model.tokenizer().encode_with_special(text).unwrap(), ids(&case));
    }
}

#[test]
fn the_prompt_says_whether_the_answer_begins_with_reasoning() {
    let model = demo::text_model();
    for case in cases(include_str!("fixtures/chat.json")) {
        let rendered = model.render_chat(&prompt(&case)).unwrap();
        assert_eq!(rendered.in_reasoning, rendered.text.ends_with("<think>\n"), "{}", case["name"]);
    }
}
