//! Streams: the transcript of events, pauses, characters and stop strings over several tokens, slow readers.

use std::io::Read;
use std::time::Duration;

use ds4_http_api::ApiOptions;
use ds4_testkit::fake_engine::{Action, tokens};
use serde_json::{Value, json};

use crate::support::{END, PATIENCE, Server, ping, slowly};

/// A chunk's choice and usage in short; checks that all else is the same in all chunks.
fn transcript(chunks: &[Value]) -> Vec<Value> {
    chunks
        .iter()
        .map(|chunk| {
            for field in ["id", "created", "model", "system_fingerprint"] {
                assert_eq!(chunk[field], chunks[0][field]);
            }
            assert_eq!(chunk["object"], "chat.completion.chunk");
            let mut short = chunk["choices"][0].clone();
            if let Some(choice) = short.as_object_mut() {
                assert_eq!(choice.remove("index"), Some(json!(0)));
                choice.retain(|_, value| !value.is_null());
            }
            short
        })
        .collect()
}

#[test]
fn the_transcript_of_a_chat() {
    let server = Server::start();
    let reasoning = server.encode("Why");
    let content = server.encode("pong");
    server.answer("Why\n</think>\n\npong");
    let response = server.chat(&ping(json!({"stream": true})));
    assert_eq!(response.status, 200);
    assert!(response.headers.contains("cache-control: no-cache"), "{}", response.headers);
    let mut expected = vec![json!({"delta": {"role": "assistant", "content": ""}})];
    let text = |id: &u32| server.text.tokenizer().token_text(*id).unwrap();
    expected.extend(reasoning.iter().map(|id| json!({"delta": {"reasoning_content": text(id)}})));
    expected.extend(content.iter().map(|id| json!({"delta": {"content": text(id)}})));
    expected.push(json!({"delta": {}, "finish_reason": "stop"}));
    let chunks = response.chunks();
    assert_eq!(transcript(&chunks), expected);
    assert!(chunks.iter().all(|chunk| chunk.get("usage").is_none()), "only with include_usage");
}

#[test]
fn the_transcript_of_a_tool_call() {
    let server = Server::start();
    server.answer("</think>\n\n<tool_call>\n<function=now>\n</function>\n</tool_call>");
    let tools = json!([{"type": "function", "function": {"name": "now"}}]);
    let chunks = server.chat(&ping(json!({"stream": true, "tools": tools}))).chunks();
    let mut events = transcript(&chunks);
    let id = events[1]["delta"]["tool_calls"][0]["id"].take();
    assert!(id.as_str().unwrap().starts_with("call_"));
    let call =
        json!({"index": 0, "id": null, "type": "function", "function": {"name": "now", "arguments": "{}"}});
    assert_eq!(
        events,
        [
            json!({"delta": {"role": "assistant", "content": ""}}),
            json!({"delta": {"tool_calls": [call]}}),
            json!({"delta": {}, "finish_reason": "tool_calls"}),
        ]
    );
}

#[test]
fn counts_come_last_if_they_are_wanted() {
    let server = Server::start();
    server.answer("</think>\n\npong");
    let request = ping(json!({"stream": true, "stream_options": {"include_usage": true}}));
    let chunks = server.chat(&request).chunks();
    let (last, others) = chunks.split_last().unwrap();
    assert!(others.iter().all(|chunk| chunk["usage"].is_null() && chunk.get("usage").is_some()));
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["usage"]["completion_tokens"], server.encode("\n\npong").len() + 2);
}

#[test]
fn log_probabilities_come_with_their_text() {
    let server = Server::start();
    server.answer("Hm.\n</think>\n\npong pong");
    let chunks = server.chat(&ping(json!({"stream": true, "logprobs": true}))).chunks();
    let tokens: Vec<Value> = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["logprobs"]["content"].as_array().cloned())
        .flatten()
        .collect();
    let text: String = tokens.iter().map(|token| token["token"].as_str().unwrap()).collect();
    assert_eq!(text.trim_start(), "pong pong");
    assert_eq!(tokens[0]["top_logprobs"], json!([]));
}

/// What a chat brings in passes of so many tokens each: the number of chunks, reasoning, content, and tokens with
/// log-probabilities.
fn in_passes_of(size: usize, answer: &str) -> (usize, String, String, Vec<Value>) {
    let server = Server::start();
    server.answer_in_passes(answer, size);
    let chunks = server.chat(&ping(json!({"stream": true, "logprobs": true}))).chunks();
    let choices = || chunks.iter().map(|chunk| &chunk["choices"][0]);
    let text = |field: &str| choices().filter_map(|choice| choice["delta"][field].as_str()).collect();
    let logprobs = choices().filter_map(|choice| choice["logprobs"]["content"].as_array()).flatten();
    (chunks.len(), text("reasoning_content"), text("content"), logprobs.cloned().collect())
}

#[test]
fn tokens_of_a_pass_come_in_one_chunk() {
    let answer = "Why not?\n</think>\n\npong, and pong";
    let (single, thought, said, logprobs) = in_passes_of(1, answer);
    assert_eq!((&thought[..], &said[..]), ("Why not?", "pong, and pong"));
    for size in [2, 3, 5, 100] {
        let (chunks, a, b, c) = in_passes_of(size, answer);
        assert_eq!((&a, &b, &c), (&thought, &said, &logprobs), "in passes of {size}");
        assert!(chunks < single, "{chunks} with passes of {size}, {single} of single tokens");
    }
    assert_eq!(in_passes_of(100, answer).0, 4, "the role, reasoning, content, the end");
}

#[test]
fn nothing_of_a_pass_counts_behind_a_stop_string() {
    for stream in [true, false] {
        let server = Server::start();
        let ids = server.encode("One lighthouse, two STOP three four five");
        server.engine.push(vec![Action::Pass(ids.clone()), Action::WaitForCancel]);
        let options = if stream { json!({"include_usage": true}) } else { json!(null) };
        let request =
            json!({"stream": stream, "stop": " STOP", "enable_thinking": false, "stream_options": options});
        let response = server.chat(&ping(request));
        let text = if stream { response.streamed_text() } else { response.answer() };
        let end = if stream { response.chunks().pop().unwrap() } else { response.json() };
        assert_eq!(text, "One lighthouse, two");
        let counted = end["usage"]["completion_tokens"].as_u64().unwrap() as usize;
        assert!(counted < ids.len() && counted >= server.encode("One lighthouse, two").len(), "{counted}");
    }
}

#[test]
fn comments_keep_a_silent_stream_alive() {
    let server = Server::with(ApiOptions { keep_alive: Duration::from_millis(30), ..ApiOptions::default() });
    let pause = Duration::from_millis(200);
    let ids = server.encode("ab");
    let mut script = vec![Action::Prefill { done: 1, total: 2 }];
    script.extend(slowly(&[ids[0]], pause));
    script.extend(slowly(&[END], pause));
    server.engine.push(script);
    let events = server.chat(&ping(json!({"stream": true, "enable_thinking": false}))).events();
    assert_eq!(events[0], "# keep-alive", "before the first token");
    let first_chunk = events.iter().position(|event| event.starts_with('{')).unwrap();
    assert!(events[first_chunk..].iter().any(|event| event == "# keep-alive"), "and in pauses: {events:?}");
}

#[test]
fn a_character_over_several_tokens_comes_whole() {
    let server = Server::start();
    let ids = server.encode("a🦭b");
    assert!(ids.len() > 3, "the demo tokenizer has no such token");
    let mut script = tokens(&ids);
    script.push(Action::Pass(vec![END]));
    server.engine.push(script);
    let response = server.chat(&ping(json!({"stream": true, "enable_thinking": false})));
    assert_eq!(response.streamed_text(), "a🦭b");
    assert!(!response.body.contains('\u{fffd}'));
}

#[test]
fn half_a_character_at_the_end_becomes_a_replacement() {
    let server = Server::start();
    let ids = server.encode("🦭");
    server.engine.push(tokens(&ids[..ids.len() - 1]));
    let response = server.chat(&ping(json!({"stream": true, "enable_thinking": false})));
    assert_eq!(response.streamed_text(), "\u{fffd}");
}

#[test]
fn a_stop_string_over_several_tokens_ends_the_answer_and_the_request() {
    for stream in [true, false] {
        let server = Server::start();
        let mut script = tokens(&server.encode("One lighthouse, two STOP"));
        script.push(Action::WaitForCancel);
        server.engine.push(script);
        let stop = json!(["never", "wo STOP"]);
        let request = ping(json!({"stream": stream, "enable_thinking": false, "stop": stop}));
        let response = server.chat(&request);
        let text = if stream { response.streamed_text() } else { response.answer() };
        assert_eq!(text, "One lighthouse, t");
        assert!(response.body.contains("\"finish_reason\":\"stop\""));
        let ended = server.engine.wait_ended(1, PATIENCE).expect("the engine is told to stop");
        assert_eq!(ended[0].outcome, Ok(ds4_engine_api::FinishReason::Cancelled));
    }
}

#[test]
fn the_start_of_a_stop_string_at_the_end_is_delivered() {
    for stream in [true, false] {
        let server = Server::start();
        server.answer("wait STO");
        let response =
            server.chat(&ping(json!({"stream": stream, "enable_thinking": false, "stop": "STOP"})));
        assert_eq!(if stream { response.streamed_text() } else { response.answer() }, "wait STO");
    }
}

#[test]
fn a_stop_string_in_a_completion() {
    let server = Server::start();
    server.answer(" one\n\ntwo");
    let request = json!({"prompt": "x", "max_tokens": 100, "stop": "\n\n", "stream": true});
    assert_eq!(server.post("/v1/completions", &request).streamed_text(), " one");
}

#[test]
fn a_client_that_does_not_read_does_not_hold_the_engine() {
    let server = Server::start();
    // More than the buffers of sockets take.
    let ids = server.encode(" lighthouse").repeat(50_000);
    let count = ids.len();
    server.engine.push(tokens(&ids));
    let request = ping(json!({"stream": true, "enable_thinking": false, "max_tokens": 1_000_000}));
    let mut stuck = server.open_chat(&request);
    let ended = server.engine.wait_ended(1, PATIENCE).expect("the engine does not wait for the client");
    assert_eq!(ended[0].outcome, Ok(ds4_engine_api::FinishReason::Stop));
    server.answer("pong");
    assert_eq!(server.chat(&ping(json!({"enable_thinking": false}))).answer(), "pong");
    // And nothing was lost for it.
    let mut all = String::new();
    let mut buffer = vec![0; 1 << 20];
    while !all.ends_with("[DONE]\n\n\r\n0\r\n\r\n") {
        let read = stuck.read(&mut buffer).unwrap();
        assert!(read > 0, "the stream ends with [DONE]");
        all.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
    }
    assert_eq!(all.matches("\"content\":\"").count(), count + 1);
}
