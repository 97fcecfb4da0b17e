//! Completions: the prompt as it is, the answer as it is.

use serde_json::{Value, json};

use crate::support::{END, Server};

const PATH: &str = "/v1/completions";

#[test]
fn a_whole_answer_has_openais_shape() {
    let server = Server::start();
    server.answer(" upon a time");
    let mut body = server.post(PATH, &json!({"model": "demo", "prompt": "Once"})).json();
    assert!(body["id"].take().as_str().unwrap().starts_with("cmpl-"));
    assert!(body["created"].take().is_u64());
    assert!(body["system_fingerprint"].take().is_string());
    let (prompt, answer) = (server.encode("Once").len(), server.encode(" upon a time").len() + 1);
    assert_eq!(
        body,
        json!({
            "id": null,
            "object": "text_completion",
            "created": null,
            "model": "demo",
            "system_fingerprint": null,
            "choices": [{"index": 0, "text": " upon a time", "logprobs": null, "finish_reason": "stop"}],
            "usage": {
                "prompt_tokens": prompt,
                "completion_tokens": answer,
                "total_tokens": prompt + answer,
                "prompt_tokens_details": {"cached_tokens": 0},
                "completion_tokens_details": {"reasoning_tokens": 0, "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0},
                "session": {"id": "fake", "cache_miss": "new_session"},
            },
        })
    );
    assert_eq!(server.last_request(1).max_tokens, 16, "OpenAI's default");
}

#[test]
fn prompts_are_text_or_tokens() {
    let server = Server::start();
    let text = server.text.tokenizer().encode_with_special("<|im_start|>user\nhi").unwrap();
    assert_eq!(text[0], 1, "markup in a raw prompt is markup");
    let prompts = [
        (json!("<|im_start|>user\nhi"), text.clone()),
        (json!(["<|im_start|>user\nhi"]), text),
        (json!([5, 6, 7]), vec![5, 6, 7]),
        (json!([[5, 6, 7]]), vec![5, 6, 7]),
    ];
    for (index, (prompt, expected)) in prompts.into_iter().enumerate() {
        let response = server.post(PATH, &json!({"prompt": prompt}));
        assert_eq!(response.status, 200, "{prompt}: {}", response.body);
        assert_eq!(server.last_request(index + 1).prompt, expected, "{prompt}");
    }
}

#[test]
fn reasoning_is_part_of_the_text() {
    let server = Server::start();
    server.answer("<think>\nwhy\n</think>\n\nso");
    let response = server.post(PATH, &json!({"prompt": "x", "max_tokens": 100}));
    assert_eq!(response.answer(), "<think>\nwhy\n</think>\n\nso");
}

#[test]
fn log_probabilities_come_in_columns() {
    let server = Server::start();
    let ids = server.encode("Héllo wörld");
    server.answer("Héllo wörld");
    let body = server.post(PATH, &json!({"prompt": "x", "logprobs": 2, "max_tokens": 50})).json();
    let logprobs = &body["choices"][0]["logprobs"];
    let texts: Vec<String> = ids.iter().map(|&id| server.text.tokenizer().token_text(id).unwrap()).collect();
    assert_eq!(logprobs["tokens"], json!(texts));
    assert_eq!(logprobs["token_logprobs"], json!(vec![-0.25; ids.len()]));
    assert_eq!(logprobs["text_offset"][0], 0);
    assert_eq!(logprobs["text_offset"][1], texts[0].chars().count());
    let second = server.text.tokenizer().token_text(ids[0] + 1).unwrap();
    let expected = serde_json::Map::from_iter([(texts[0].clone(), json!(-0.25)), (second, json!(-1.25))]);
    assert_eq!(logprobs["top_logprobs"][0], Value::Object(expected));
}

#[test]
fn a_stream_of_chunks() {
    let server = Server::start();
    server.answer(" upon a time");
    let request =
        json!({"prompt": "Once", "stream": true, "logprobs": 1, "stream_options": {"include_usage": true}});
    let response = server.post(PATH, &request);
    assert_eq!(response.streamed_text(), " upon a time");
    let chunks = response.chunks();
    let [.., end, counts] = chunks.as_slice() else { panic!("{chunks:?}") };
    assert_eq!(end["choices"][0]["finish_reason"], "stop");
    assert_eq!(end["usage"], Value::Null);
    assert_eq!(counts["choices"], json!([]));
    assert_eq!(counts["usage"]["prompt_tokens"], server.encode("Once").len());
    let offsets: Vec<u64> = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["logprobs"]["text_offset"].as_array().cloned())
        .flatten()
        .map(|offset| offset.as_u64().unwrap())
        .collect();
    let lengths = server.encode(" upon a time");
    assert_eq!(offsets.len(), lengths.len());
    assert!(offsets.is_sorted() && offsets[0] == 0, "offsets go on over chunks: {offsets:?}");
}

#[test]
fn the_stop_token_gives_no_text() {
    let server = Server::start();
    server.engine.push(ds4_testkit::fake_engine::tokens(&[END]));
    assert_eq!(server.post(PATH, &json!({"prompt": "x"})).answer(), "");
}
