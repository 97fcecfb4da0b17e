//! Sessions: their names in requests and answers, what is shared between them, and what the routes say.

use ds4_engine_api::{Held, SessionSummary};
use ds4_testkit::fake_engine::{Action, tokens};
use serde_json::{Value, json};

use crate::support::{END, Server, ping};

fn session(id: &str) -> SessionSummary {
    let memory = Some(Held { states: 2, bytes: 4096 });
    let title = Some("ping".into());
    SessionSummary { id: id.into(), title, created: 5, used: 9, tokens: 70, memory, disk: None }
}

#[test]
fn an_answer_names_its_session_and_why_nothing_was_reused() {
    let server = Server::start();
    let response = server.chat(&ping(json!({"session_id": "talk-1"})));
    assert!(response.headers.contains("\r\nx-ds4-session: talk-1\r\n"), "{}", response.headers);
    assert!(response.headers.contains("x-ds4-cache-miss: new_session"), "{}", response.headers);
    let usage = &response.json()["usage"];
    assert_eq!(usage["session"], json!({"id": "talk-1", "cache_miss": "new_session"}));
    let session = server.last_request(1).session;
    assert_eq!((session.id.as_deref(), session.title.as_deref()), (Some("talk-1"), Some("ping")));
}

#[test]
fn a_hit_has_no_reason() {
    let server = Server::start();
    let mut script = vec![Action::Cached(3)];
    script.extend(tokens(&[END]));
    server.engine.push(script);
    let response = server.chat(&ping(json!({})));
    assert!(!response.headers.contains("x-ds4-cache-miss"), "{}", response.headers);
    let usage = &response.json()["usage"];
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 3);
    assert_eq!(usage["session"], json!({"id": "fake", "cache_miss": null}));
    assert_eq!(server.last_request(1).session.id, None);
}

#[test]
fn a_stream_names_them_in_its_usage() {
    let server = Server::start();
    server.answer("pong");
    let request = json!({"stream": true, "stream_options": {"include_usage": true}, "session_id": "s"});
    let body = server.chat(&ping(request)).body;
    let last = body.lines().filter_map(|line| line.strip_prefix("data: {")).next_back().unwrap();
    let last: Value = serde_json::from_str(&format!("{{{last}")).unwrap();
    assert_eq!(last["usage"]["session"], json!({"id": "s", "cache_miss": "new_session"}));
}

#[test]
fn completions_have_sessions_too() {
    let server = Server::start();
    let response = server.post("/v1/completions", &json!({"prompt": "ping", "session_id": "raw"}));
    assert!(response.headers.contains("x-ds4-session: raw"), "{}", response.headers);
}

#[test]
fn names_that_are_no_names_are_refused() {
    let server = Server::start();
    for id in [json!(""), json!("a b"), json!("line\nbreak"), json!("x".repeat(129))] {
        let response = server.chat(&ping(json!({"session_id": id})));
        assert_eq!(response.status, 400, "{id}");
        assert_eq!(response.json()["error"]["param"], "session_id");
    }
    assert_eq!(server.chat(&ping(json!({"session_id": 7}))).status, 400);
}

#[test]
fn instructions_are_shared_between_sessions() {
    let server = Server::start();
    server.chat(&ping(json!({})));
    assert_eq!(server.last_request(1).shared_prefix, 0, "there are none");
    let with = |question: &str| {
        let system = json!({"role": "system", "content": "You are brief."});
        server.chat(&json!({"messages": [system, {"role": "user", "content": question}]}));
    };
    with("ping");
    let first = server.last_request(2);
    with("What is the capital of France?");
    let second = server.last_request(3);
    assert_eq!(first.shared_prefix, second.shared_prefix);
    assert_eq!(first.prompt[..first.shared_prefix], second.prompt[..first.shared_prefix]);
    assert!(server.decode(&first.prompt[..first.shared_prefix]).contains("You are brief."));
}

#[test]
fn sampled_tokens_come_back_when_the_history_does() {
    let server = Server::start();
    // Letter by letter, as the encoder would not write it.
    let mut answer: Vec<u32> = "thoughts\n</think>\n\nhello"
        .split_inclusive("</think>")
        .flat_map(|part| {
            let (text, end) =
                part.strip_suffix("</think>").map_or((part, None), |text| (text, Some("</think>")));
            let letters = text.chars().flat_map(|letter| server.encode(&letter.to_string()));
            letters
                .chain(end.into_iter().flat_map(|end| server.text.tokenizer().id_of(end)))
                .collect::<Vec<_>>()
        })
        .collect();
    answer.push(END);
    server.engine.push(tokens(&answer));
    let reply = server.chat(&ping(json!({}))).json()["choices"][0]["message"].clone();
    assert_eq!((&reply["content"], &reply["reasoning_content"]), (&json!("hello"), &json!("thoughts")));
    let mut timeline = server.last_request(1).prompt;
    timeline.extend(answer);

    let mut request = ping(json!({}));
    let messages = request["messages"].as_array_mut().unwrap();
    messages.extend([reply, json!({"role": "user", "content": "again"})]);
    server.chat(&request);
    let next = server.last_request(2).prompt;
    assert!(next.starts_with(&timeline), "{}", server.decode(&next));

    request["messages"][1]["content"] = "good day".into();
    server.chat(&request);
    assert!(!server.last_request(3).prompt.starts_with(&timeline), "another text has its own tokens");
}

#[test]
fn sessions_are_listed_shown_and_removed() {
    let server = Server::start();
    server.engine.set_sessions(vec![session("a"), session("team/b")]);
    let list = server.get("/v1/sessions").json();
    assert_eq!(list["object"], "list");
    assert_eq!(
        list["data"][0],
        json!({"object": "session", "id": "a", "title": "ping", "created": 5, "used": 9, "tokens": 70,
            "memory": {"states": 2, "bytes": 4096}, "disk": null})
    );
    assert_eq!(server.get("/v1/sessions/team/b").json()["id"], "team/b");
    let gone = server.send("DELETE", "/v1/sessions/a", "", b"");
    assert_eq!(gone.json(), json!({"id": "a", "object": "session.deleted", "deleted": true}));
    for response in [server.send("DELETE", "/v1/sessions/a", "", b""), server.get("/v1/sessions/a")] {
        assert_eq!((response.status, &response.json()["error"]["code"]), (404, &json!("session_not_found")));
    }
    assert_eq!(server.get("/v1/sessions").json()["data"].as_array().unwrap().len(), 1);
}
