//! Every refusal: its status, its code, the parameter that it names, and words of its message.

use ds4_engine_api::EngineError;
use ds4_testkit::fake_engine::Action;
use serde_json::{Value, json};

use crate::support::{CONTEXT, Response, Server, ping};

/// Checks OpenAI's error object.
fn expect(response: &Response, status: u16, code: &str, param: Option<&str>, words: &str) {
    let body = response.json();
    let error = &body["error"];
    let found = (response.status, error["code"].as_str(), error["param"].as_str());
    assert_eq!(found, (status, Some(code), param), "{}", response.body);
    assert!(error["message"].as_str().unwrap().contains(words), "{words:?} is not in {}", response.body);
    let kind = match status {
        401 => "authentication_error",
        429 => "rate_limit_error",
        500.. => "server_error",
        _ => "invalid_request_error",
    };
    assert_eq!(error["type"], kind);
    assert_eq!(body.as_object().unwrap().len(), 1, "only `error`");
}

/// A chat request with these parameters is refused, streaming or not, and the engine never sees it.
fn refused(server: &Server, parameters: Value, code: &str, param: &str, words: &str) {
    for stream in [false, true] {
        let mut request = ping(parameters.clone());
        request["stream"] = request.get("stream").cloned().unwrap_or(json!(stream));
        expect(&server.chat(&request), 400, code, Some(param), words);
    }
    assert!(server.engine.wait_load(0, 0, std::time::Duration::ZERO));
}

#[test]
fn values_out_of_range_are_named() {
    let server = Server::start();
    let rows = [
        ("temperature", json!(-0.1), "between 0 and 2, but it is -0.1"),
        ("temperature", json!(2.1), "between 0 and 2"),
        ("top_p", json!(1.5), "between 0 and 1"),
        ("top_p", json!(-1), "between 0 and 1"),
        ("top_k", json!(-2), "at least 0, or -1"),
        ("speculate", json!("always"), "one of auto, off, mtp, copy and both"),
        ("draft_depth", json!(6), "between 1 and 5"),
        ("min_p", json!(1.01), "between 0 and 1"),
        ("presence_penalty", json!(2.5), "between -2 and 2"),
        ("frequency_penalty", json!(-3), "between -2 and 2"),
        ("max_tokens", json!(0), "at least 1"),
        ("max_completion_tokens", json!(-5), "at least 1"),
        ("top_logprobs", json!(21), "between 0 and 20"),
        ("n", json!(0), "at least 1"),
        ("seed", json!(1e300), "a 64-bit integer, but it is 1e"),
        ("session_id", json!(""), "1 to 128 letters"),
        ("session_id", json!("a b"), "1 to 128 letters"),
        ("session_id", json!("../x"), "without empty, `.` and `..` parts"),
        ("session_id", json!("a/./b"), "without empty, `.` and `..` parts"),
        ("session_id", json!("a//b"), "without empty, `.` and `..` parts"),
        ("session_id", json!("/"), "without empty, `.` and `..` parts"),
        ("stop", json!(["a", "b", "c", "d", "e"]), "up to 4"),
        ("stop", json!(""), "not empty"),
        ("logit_bias", json!({"4096": 1}), "token ids"),
        ("logit_bias", json!({"x": 1}), "token ids"),
        ("tool_choice", json!("maybe"), "`auto` or `none`"),
        ("messages", json!([]), "at least one message"),
    ];
    for (param, value, words) in rows {
        refused(&server, json!({param: value}), "invalid_value", param, words);
    }
    refused(&server, json!({"stop": ["a", ""]}), "invalid_value", "stop[1]", "not empty");
    refused(
        &server,
        json!({"logit_bias": {"7": 101}}),
        "invalid_value",
        "logit_bias.7",
        "between -100 and 100",
    );
    refused(&server, json!({"thinking": {"type": "sometimes"}}), "invalid_value", "thinking.type", "enabled");
}

#[test]
fn wrong_types_are_named_with_what_was_expected() {
    let server = Server::start();
    let rows = [
        ("temperature", json!("hot"), "a number, not a string"),
        ("top_k", json!(1.5), "an integer, not a fraction"),
        ("seed", json!("0"), "an integer, not a string"),
        ("stream", json!("yes"), "a boolean, not a string"),
        ("stop", json!(7), "a string or an array of up to 4 strings, not an integer"),
        ("logit_bias", json!([1]), "an object, not an array"),
        ("messages", json!("hello"), "an array, not a string"),
        ("model", json!(3), "a string, not an integer"),
        ("tools", json!({}), "an array, not an object"),
        ("tool_choice", json!(1), "a string, not an integer"),
        ("reasoning_effort", json!(3), "a string, not an integer"),
        ("enable_thinking", json!("no"), "a boolean, not a string"),
        ("chat_template_kwargs", json!("x"), "an object, not a string"),
        ("logprobs", json!(5), "a boolean, not an integer"),
    ];
    for (param, value, words) in rows {
        refused(&server, json!({param: value}), "invalid_type", param, words);
    }
}

#[test]
fn known_parameters_that_are_not_implemented_are_refused() {
    let server = Server::start();
    let tool = json!({"type": "function", "function": {"name": "f"}});
    let rows = [
        ("n", json!(2), "only one answer"),
        ("response_format", json!({"type": "json_object"}), "\"type\": \"text\""),
        ("response_format", json!({"type": "json_schema", "json_schema": {}}), "text"),
        ("tool_choice", json!("required"), "cannot be forced"),
        ("tool_choice", json!({"type": "function", "function": {"name": "f"}}), "cannot be forced"),
        ("parallel_tool_calls", json!(false), "the model decides"),
        ("functions", json!([{"name": "f"}]), "send `tools`"),
        ("function_call", json!("auto"), "send `tool_choice`"),
        ("audio", json!({"voice": "x"}), "text"),
        ("modalities", json!(["text", "audio"]), "text"),
        ("prediction", json!({"type": "content"}), "leave it out"),
        ("verbosity", json!("low"), "medium"),
        ("web_search_options", json!({}), "leave it out"),
        ("repetition_penalty", json!(1.1), "`frequency_penalty`"),
        ("min_tokens", json!(5), "send 0"),
        ("ignore_eos", json!(true), "send false"),
        ("stop_token_ids", json!([5]), "send `stop`"),
        ("guided_json", json!({}), "not constrained"),
        ("continue_final_message", json!(true), "a new message"),
        ("best_of", json!(3), "only one answer"),
        ("top_logprobs", json!(3), "needs `logprobs`"),
    ];
    for (param, value, words) in rows {
        refused(&server, json!({"tools": [tool], param: value}), "unsupported_parameter", param, words);
    }
}

#[test]
fn messages_are_checked_one_by_one() {
    let server = Server::start();
    let image = json!([{"type": "image_url", "image_url": {"url": "data:"}}]);
    let rows = [
        (json!({"role": "user"}), "missing_required_parameter", "messages[0].content", "missing"),
        (json!({"content": "x"}), "missing_required_parameter", "messages[0].role", "missing"),
        (json!({"role": "wizard", "content": "x"}), "invalid_value", "messages[0].role", "one of system"),
        (json!({"role": "function", "content": "x"}), "unsupported_parameter", "messages[0].role", "`tool`"),
        (json!({"role": "user", "content": 3}), "invalid_type", "messages[0].content", "text parts"),
        (
            json!({"role": "user", "content": image}),
            "unsupported_parameter",
            "messages[0].content[0].type",
            "text only",
        ),
        (json!("hi"), "invalid_type", "messages[0]", "an object, not a string"),
        (
            json!({"role": "assistant", "tool_calls": [{"id": "1", "function": {}}]}),
            "missing_required_parameter",
            "messages[0].tool_calls[0].function.name",
            "a string",
        ),
    ];
    for (message, code, param, words) in rows {
        refused(&server, json!({"messages": [message]}), code, param, words);
    }
    refused(&server, json!({"messages": null}), "missing_required_parameter", "messages", "missing");
}

#[test]
fn tools_are_checked_one_by_one() {
    let server = Server::start();
    let rows = [
        (json!({"type": "function"}), "missing_required_parameter", "tools[0].function"),
        (json!({"type": "retrieval"}), "unsupported_parameter", "tools[0].type"),
        (json!({"type": "function", "function": {"name": ""}}), "invalid_value", "tools[0].function.name"),
    ];
    for (tool, code, param) in rows {
        refused(&server, json!({"tools": [tool]}), code, param, "");
    }
}

#[test]
fn an_unknown_thinking_level_names_the_valid_ones() {
    let server = Server::start();
    let words = "low, medium, high, xhigh, max";
    refused(&server, json!({"reasoning_effort": "extreme"}), "invalid_value", "reasoning_effort", words);
}

#[test]
fn what_the_template_refuses_is_the_clients_error() {
    let server = Server::start();
    refused(
        &server,
        json!({"chat_template_kwargs": {"messages": []}}),
        "invalid_value",
        "chat_template_kwargs",
        "set",
    );
}

#[test]
fn bodies_that_are_no_request() {
    let server = Server::start();
    let send = |body: &str| server.send("POST", "/v1/chat/completions", "", body.as_bytes());
    expect(&send("{\"messages\": [\n  oops]}"), 400, "invalid_json", None, "(line 2, column 3)");
    expect(&send(""), 400, "invalid_json", None, "line 1");
    expect(&send("{\"messages\": []"), 400, "invalid_json", None, "EOF");
    expect(&send("\"\u{0}\""), 400, "invalid_json", None, "control character");
    expect(&send(&"[".repeat(100_000)), 400, "invalid_json", None, "recursion limit");
    expect(&send("{\"temperature\": 1e400}"), 400, "invalid_json", None, "number out of range");
    expect(&send("{\"temperature\": NaN}"), 400, "invalid_json", None, "line 1");
    expect(&send("[]"), 400, "invalid_type", None, "JSON object, not an array");
    let invalid_utf8 = server.send("POST", "/v1/chat/completions", "", b"{\"model\": \"\xff\"}");
    expect(&invalid_utf8, 400, "invalid_json", None, "");
}

#[test]
fn completions_have_their_own_refusals() {
    let server = Server::start();
    let rows = [
        (json!({}), "missing_required_parameter", "prompt", "missing"),
        (json!({"prompt": ""}), "invalid_value", "prompt", "at least one token"),
        (json!({"prompt": []}), "invalid_value", "prompt", "at least one token"),
        (json!({"prompt": ["a", "b"]}), "unsupported_parameter", "prompt", "one prompt per request"),
        (json!({"prompt": [[1], [2]]}), "unsupported_parameter", "prompt", "one prompt per request"),
        (json!({"prompt": {"a": 1}}), "invalid_type", "prompt", "a string or an array of token ids"),
        (json!({"prompt": [1, -2]}), "invalid_value", "prompt[1]", "a token id"),
        (json!({"prompt": [1, "x"]}), "invalid_type", "prompt[1]", "a token id"),
        (json!({"prompt": [1, 4096]}), "invalid_value", "prompt", "vocabulary of 4096"),
        (json!({"prompt": "x", "echo": true}), "unsupported_parameter", "echo", "send false"),
        (json!({"prompt": "x", "suffix": "y"}), "unsupported_parameter", "suffix", "leave it out"),
        (json!({"prompt": "x", "best_of": 2}), "unsupported_parameter", "best_of", "only one answer"),
        (json!({"prompt": "x", "logprobs": true}), "invalid_type", "logprobs", "an integer"),
        (
            json!({"prompt": "x", "response_format": {"type": "json_object"}}),
            "unsupported_parameter",
            "response_format",
            "text",
        ),
        (json!({"prompt": "x", "n": 3}), "unsupported_parameter", "n", "only one answer"),
    ];
    for (request, code, param, words) in rows {
        expect(&server.post("/v1/completions", &request), 400, code, Some(param), words);
    }
    let long = json!({"prompt": vec![9; CONTEXT]});
    let words = "maximum context length is 512 tokens";
    expect(&server.post("/v1/completions", &long), 400, "context_length_exceeded", Some("prompt"), words);
}

#[test]
fn a_prompt_longer_than_the_context() {
    let server = Server::start();
    let long = json!({"messages": [{"role": "user", "content": "word ".repeat(2 * CONTEXT)}]});
    let words = "maximum context length is 512 tokens";
    refused(&server, long, "context_length_exceeded", "messages", words);
}

#[test]
fn a_prompt_that_cannot_fit_is_not_encoded() {
    let server = Server::start();
    let text = "lorem ipsum ".repeat(1 << 20);
    let start = std::time::Instant::now();
    let long = json!({"messages": [{"role": "user", "content": text}]});
    let words = "maximum context length is 512 tokens, and a prompt of 12582912 bytes has more";
    expect(&server.chat(&long), 400, "context_length_exceeded", Some("messages"), words);
    let long = json!({"prompt": text});
    expect(&server.post("/v1/completions", &long), 400, "context_length_exceeded", Some("prompt"), words);
    // To encode it takes some 10 seconds and gigabytes.
    assert!(start.elapsed() < crate::support::PATIENCE / 4, "{:?}", start.elapsed());
}

#[test]
fn whatever_makes_a_prompt_too_large_is_seen_before_it_is_encoded() {
    let server = Server::start();
    let start = std::time::Instant::now();
    let text = "lorem ipsum ".repeat(1 << 20);
    let user = json!({"role": "user", "content": "ping"});
    let call = json!({"function": {"name": "f", "arguments": json!({"a": text}).to_string()}});
    let tool = json!({"type": "function", "function": {"name": "f", "description": text}});
    let rows = [
        json!({"messages": [user, {"role": "assistant", "tool_calls": [call]}, user]}),
        json!({"messages": [user], "tools": [tool]}),
    ];
    for request in rows {
        refused(&server, request, "context_length_exceeded", "messages", "bytes has more");
    }
    // Each part is small, and templates that append one to the other take time with the square of their number.
    let tool = json!({"type": "function", "function": {"name": "f"}});
    let rows = [
        json!({"messages": [user], "tools": vec![tool; 200_000]}),
        json!({"messages": vec![json!({"role": "user", "content": ""}); 200_000]}),
    ];
    for request in rows {
        refused(
            &server,
            request,
            "context_length_exceeded",
            "messages",
            "messages, tools and calls has more",
        );
    }
    assert!(start.elapsed() < crate::support::PATIENCE, "{:?}", start.elapsed());
}

#[test]
fn paths_that_are_no_text_lead_nowhere() {
    let server = Server::start();
    for path in ["/v1/sessions/%ff%fe", "/v1/models/%ff"] {
        expect(&server.get(path), 404, "unknown_url", None, path);
    }
}

#[test]
fn a_prompt_of_the_longest_tokens_fits() {
    let server = Server::start();
    let tokenizer = server.text.tokenizer();
    let ids = 9..tokenizer.vocabulary_size() as u32;
    let longest = ids.max_by_key(|&id| tokenizer.token_bytes(id).map_or(0, <[u8]>::len)).unwrap();
    let prompt = tokenizer.token_text(longest).unwrap().repeat(CONTEXT - 1);
    let response = server.post("/v1/completions", &json!({"prompt": prompt}));
    // How the text splits into tokens is the tokenizer's affair; what may not happen is a refusal by size.
    assert!(!response.body.contains("bytes has more"), "{}", response.body);
}

#[test]
fn an_unknown_model() {
    let server = Server::start();
    let response = server.chat(&ping(json!({"model": "gpt-9"})));
    expect(&response, 404, "model_not_found", Some("model"), "`gpt-9` does not exist");
    expect(&server.get("/v1/models/gpt-9"), 404, "model_not_found", Some("model"), "this server has `demo`");
}

#[test]
fn what_the_engine_refuses_or_fails_at() {
    let server = Server::start();
    server.engine.refuse(EngineError::QueueFull { waiting: 9 });
    expect(&server.chat(&ping(json!({}))), 429, "queue_full", None, "9 requests are waiting");
    server.engine.refuse(EngineError::Stopped);
    expect(&server.chat(&ping(json!({}))), 503, "engine_stopped", None, "stopped");
    let nan = EngineError::NonFiniteLogits { position: 3, token: 5, value: f32::NAN };
    server.engine.push(vec![Action::Pass(vec![20]), Action::Fail(nan)]);
    expect(&server.chat(&ping(json!({}))), 500, "non_finite_logits", None, "NaN logit for token 5");
    server.engine.push(vec![Action::Fail(EngineError::Model { reason: "out of memory".into() })]);
    expect(&server.chat(&ping(json!({}))), 500, "model_failed", None, "out of memory");
    // The process goes on.
    server.answer("</think>\n\npong");
    assert_eq!(server.chat(&ping(json!({}))).answer(), "pong");
}

#[test]
fn an_error_in_the_middle_of_a_stream_is_not_a_normal_end() {
    let server = Server::start();
    let nan = EngineError::NonFiniteLogits { position: 3, token: 5, value: f32::NAN };
    let mut script = ds4_testkit::fake_engine::tokens(&server.encode("Hello"));
    script.push(Action::Fail(nan));
    server.engine.push(script);
    let response = server.chat(&ping(json!({"stream": true, "enable_thinking": false})));
    assert_eq!(response.status, 200);
    let events = response.events();
    let [.., name, error] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(name, "! error");
    let error: Value = serde_json::from_str(error).unwrap();
    assert_eq!(error["error"]["code"], "non_finite_logits");
    assert_eq!(error["error"]["type"], "server_error");
    assert!(!response.body.contains("[DONE]") && !response.body.contains("\"finish_reason\":\""));
    assert!(response.body.contains("Hello"), "what came before is there: {}", response.body);
}
