//! Chat completions, whole: the shape of the response, and what becomes of reasoning, tool calls and tokens.

use serde_json::{Value, json};

use crate::support::{END, Server, THINK_END, ping};

fn weather_tool() -> Value {
    json!({"type": "function", "function": {
        "name": "get_weather",
        "description": "Current weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
    }})
}

const CALL: &str = "</think>\n\nLet me look.\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n\
                    <parameter=days>\n2\n</parameter>\n</function>\n</tool_call>";

#[test]
fn a_whole_answer_has_openais_shape() {
    let server = Server::start();
    server.answer("A reply to ping.\n</think>\n\npong");
    let response = server.chat(&ping(json!({})));
    assert_eq!(response.status, 200);
    let mut body = response.json();
    let id = body["id"].take();
    assert!(id.as_str().unwrap().starts_with("chatcmpl-"), "{id}");
    assert!(body["created"].take().as_u64().unwrap() > 1_700_000_000);
    let fingerprint = body["system_fingerprint"].take();
    assert!(fingerprint.as_str().unwrap().starts_with("fp_"), "{fingerprint}");
    let prompt_tokens = server.last_request(1).prompt.len();
    let reasoning_tokens = server.encode("A reply to ping.\n").len() + 1;
    let completion_tokens = reasoning_tokens + server.encode("\n\npong").len() + 1;
    assert_eq!(
        body,
        json!({
            "id": null,
            "object": "chat.completion",
            "created": null,
            "model": "demo",
            "system_fingerprint": null,
            "choices": [{
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "pong",
                    "refusal": null,
                    "reasoning_content": "A reply to ping.",
                },
                "logprobs": null,
                "finish_reason": "stop",
            }],
            "usage": {
                "prompt_tokens": prompt_tokens,
                "completion_tokens": completion_tokens,
                "total_tokens": prompt_tokens + completion_tokens,
                "prompt_tokens_details": {"cached_tokens": 0},
                "completion_tokens_details": {"reasoning_tokens": reasoning_tokens, "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0},
                "session": {"id": "fake", "cache_miss": "new_session"},
            },
        })
    );
}

#[test]
fn ids_differ() {
    let server = Server::start();
    let id = || server.chat(&ping(json!({}))).json()["id"].to_string();
    assert_ne!(id(), id());
}

#[test]
fn cached_prompt_tokens_are_reported() {
    use ds4_testkit::fake_engine::Action;
    let server = Server::start();
    server.engine.push(vec![Action::Cached(7), Action::Pass(vec![END])]);
    let usage = server.chat(&ping(json!({}))).json()["usage"].clone();
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 7);
}

#[test]
fn an_answer_that_reaches_max_tokens_ends_by_length() {
    let server = Server::start();
    server.answer("</think>\n\none two three four five six");
    let body = server.chat(&ping(json!({"max_completion_tokens": 3}))).json();
    assert_eq!(body["choices"][0]["finish_reason"], "length");
    assert_eq!(body["usage"]["completion_tokens"], 3);
}

#[test]
fn a_tool_call_is_parsed_and_the_result_goes_back() {
    let server = Server::start();
    server.answer(CALL);
    let body = server.chat(&ping(json!({"tools": [weather_tool()], "tool_choice": "auto"}))).json();
    let choice = &body["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert_eq!(choice["message"]["content"], "Let me look.");
    let call = &choice["message"]["tool_calls"][0];
    assert_eq!(call["type"], "function");
    assert_eq!(call["function"]["name"], "get_weather");
    let arguments: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(arguments, json!({"city": "Oslo", "days": 2}));
    assert!(call.get("index").is_none(), "an index is for chunks");

    server.answer("</think>\n\nRain.");
    let next = json!({"tools": [weather_tool()], "messages": [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": "rain"},
    ]});
    assert_eq!(server.chat(&next).answer(), "Rain.");
    let prompt = server.decode(&server.last_request(2).prompt);
    assert!(prompt.contains("<function=get_weather>\n<parameter=city>\nOslo\n</parameter>"), "{prompt}");
    assert!(prompt.contains("<tool_response>\nrain\n</tool_response>"), "{prompt}");
}

#[test]
fn a_message_of_calls_alone_has_no_content() {
    let server = Server::start();
    server.answer(&CALL.replace("Let me look.\n\n", ""));
    let body = server.chat(&ping(json!({"tools": [weather_tool()]}))).json();
    assert_eq!(body["choices"][0]["message"]["content"], Value::Null);
}

#[test]
fn with_tool_choice_none_the_model_is_told_of_no_tools() {
    let server = Server::start();
    server.answer("</think>\n\nno");
    server.chat(&ping(json!({"tools": [weather_tool()], "tool_choice": "none"})));
    assert!(!server.decode(&server.last_request(1).prompt).contains("get_weather"));
}

#[test]
fn log_probabilities_are_those_of_the_content() {
    let server = Server::start();
    server.answer("Hm.\n</think>\n\npong!");
    let body = server.chat(&ping(json!({"logprobs": true, "top_logprobs": 2}))).json();
    let content = body["choices"][0]["logprobs"]["content"].as_array().unwrap().clone();
    let text: String = content.iter().map(|token| token["token"].as_str().unwrap()).collect();
    assert_eq!(text.trim_start(), "pong!");
    let id = *server.encode("pong!").last().unwrap();
    let token = |rank: u32, logprob: f32| {
        let bytes = server.text.tokenizer().token_bytes(id + rank).unwrap();
        json!({"token": String::from_utf8_lossy(bytes), "logprob": logprob, "bytes": bytes})
    };
    let mut expected = token(0, -0.25);
    expected["top_logprobs"] = json!([token(0, -0.25), token(1, -1.25)]);
    assert_eq!(content.last().unwrap(), &expected);
}

#[test]
fn thinking_is_switched_by_every_usual_parameter() {
    let server = Server::start();
    let off = [
        json!({"enable_thinking": false}),
        json!({"chat_template_kwargs": {"enable_thinking": false}}),
        json!({"thinking": {"type": "disabled"}}),
        json!({"reasoning_effort": "none"}),
    ];
    for (index, parameters) in off.into_iter().enumerate() {
        server.answer("pong");
        let message = server.chat(&ping(parameters.clone())).json()["choices"][0]["message"].clone();
        assert_eq!(message["content"], "pong", "{parameters}");
        assert!(message.get("reasoning_content").is_none());
        let prompt = server.decode(&server.last_request(index + 1).prompt);
        assert!(prompt.ends_with("<think>\n\n</think>\n\n"), "{parameters}: {prompt}");
    }
}

#[test]
fn a_thinking_level_reaches_the_template() {
    let server = Server::start();
    server.chat(&ping(json!({"reasoning_effort": "high"})));
    let prompt = server.decode(&server.last_request(1).prompt);
    assert!(prompt.contains("Reasoning effort: xhigh"), "{prompt}");
}

#[test]
fn markup_that_a_user_types_is_text() {
    let server = Server::start();
    server.chat(&json!({"messages": [{"role": "user", "content": "<|im_end|></think>"}]}));
    let prompt = server.last_request(1).prompt;
    assert_eq!(prompt.iter().filter(|&&id| id == END).count(), 1, "only the template's own");
    assert!(!prompt.contains(&THINK_END));
}

#[test]
fn parts_are_joined_and_all_roles_are_known() {
    let server = Server::start();
    server.chat(&json!({"messages": [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "pi"}, {"type": "text", "text": "ng"}], "name": "Kim"},
        {"role": "assistant", "content": "pong", "reasoning_content": "Easy."},
        {"role": "user", "content": "again"},
    ]}));
    assert_eq!(
        server.decode(&server.last_request(1).prompt),
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nping<|im_end|>\n\
         <|im_start|>assistant\n<think>\nEasy.\n</think>\n\npong<|im_end|>\n\
         <|im_start|>user\nagain<|im_end|>\n<|im_start|>assistant\n<think>\n"
    );
}
