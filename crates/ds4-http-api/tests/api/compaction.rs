//! Making a session shorter: what the engine is asked for, what the client gets, and that a failure changes nothing.

use std::time::Duration;

use ds4_engine_api::{EngineError, SessionSummary};
use ds4_testkit::fake_engine::{Action, tokens};
use serde_json::{Value, json};

use crate::support::{END, PATIENCE, Response, Server, slowly};

const COMPACT: &str = "/v1/sessions/talk/compact";

/// A server that keeps a session `talk`.
fn server() -> Server {
    let server = Server::start();
    let id = "talk".to_owned();
    let talk = SessionSummary { id, title: None, created: 5, used: 9, tokens: 70, memory: None, disk: None };
    server.engine.set_sessions(vec![talk]);
    server
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn assistant(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

/// A conversation of two turns, and a session in which it was held.
fn two_turns(server: &Server) -> Value {
    let mut messages = vec![json!({"role": "system", "content": "Be brief."})];
    for (question, answer) in [("Capital of Japan?", "Tokyo"), ("Of Italy?", "Rome")] {
        server.answer(answer);
        messages.push(user(question));
        let request = json!({"messages": messages, "session_id": "talk", "enable_thinking": false});
        messages.push(assistant(&server.chat(&request).answer()));
    }
    messages.into()
}

fn code(response: &Response) -> (u16, String) {
    (response.status, response.json()["error"]["code"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn a_summary_takes_the_place_of_the_older_turns() {
    let server = server();
    let messages = two_turns(&server);
    server.answer("They spoke of capitals.");
    let response = server.post(COMPACT, &json!({"temperature": 0, "max_tokens": 100}));
    assert_eq!(response.status, 200, "{}", response.body);
    let compacted = response.json();
    let instructions = "Be brief.\n\nSummary of the conversation so far:\n\nThey spoke of capitals.";
    assert_eq!(
        compacted["messages"],
        json!([{"role": "system", "content": instructions}, messages[3], messages[4]])
    );
    assert_eq!((&compacted["id"], &compacted["object"]), (&json!("talk"), &json!("session.compaction")));
    assert_eq!(
        (&compacted["summary"], &compacted["replaced_messages"]),
        (&json!("They spoke of capitals."), &json!(2))
    );

    let ended = server.engine.wait_ended(4, PATIENCE).unwrap();
    let (asked, rebuilt) = (&ended[2].request, &ended[3].request);
    let text = server.decode(&asked.prompt);
    assert!(text.contains("Tokyo") && text.contains("Summarise") && !text.contains("Rome"), "{text}");
    assert_eq!((asked.session.keeps, asked.max_tokens, asked.sampling.temperature), (false, 100, 0.0));
    let text = server.decode(&rebuilt.prompt);
    assert!(text.contains("They spoke") && text.contains("Rome") && !text.contains("Tokyo"), "{text}");
    assert_eq!((rebuilt.session.id.as_deref(), rebuilt.session.keeps), (Some("talk"), true));
    assert_eq!((rebuilt.max_tokens, compacted["tokens"].as_u64()), (0, Some(rebuilt.prompt.len() as u64)));

    // What the client sends next goes on from there.
    let mut next = compacted["messages"].as_array().unwrap().clone();
    next.push(user("Of France?"));
    server.chat(&json!({"messages": next, "enable_thinking": false}));
    assert!(server.last_request(5).prompt.starts_with(&rebuilt.prompt));
}

#[test]
fn a_session_can_be_compacted_again() {
    let server = server();
    two_turns(&server);
    server.answer("Capitals.");
    assert_eq!(server.post(COMPACT, &json!({})).status, 200);
    assert_eq!(code(&server.post(COMPACT, &json!({}))), (400, "nothing_to_compact".into()), "a turn is left");
}

#[test]
fn the_conversation_can_be_sent() {
    let server = server();
    assert_eq!(code(&server.send("POST", COMPACT, "", b"")), (409, "conversation_unknown".into()));
    server.answer("Hellos.");
    let messages = json!([user("hello"), assistant("hi"), user("you"), assistant("me")]);
    let response = server.post(COMPACT, &json!({"messages": messages}));
    let system = json!({"role": "system", "content": "Summary of the conversation so far:\n\nHellos."});
    assert_eq!(response.json()["messages"], json!([system, messages[2], messages[3]]));
    server.answer("Again.");
    let response = server.post(COMPACT, &json!({"messages": [user("a"), assistant("b")]}));
    assert_eq!(code(&response), (400, "nothing_to_compact".into()));
}

#[test]
fn a_failure_leaves_the_session_as_it_was() {
    let server = server();
    let messages = two_turns(&server);
    let failed = EngineError::Model { reason: "broken".into() };
    let letters = server.encode("half a summary");
    let (cut, whole) = (tokens(&letters), || tokens(&[&letters[..], &[END]].concat()));
    // No summary, half of one, and one that cannot be read into the session.
    server.engine.push(tokens(&[END]));
    assert_eq!(code(&server.post(COMPACT, &json!({}))), (422, "no_summary".into()));
    server.engine.push(cut);
    assert_eq!(code(&server.post(COMPACT, &json!({"max_tokens": 2}))), (422, "no_summary".into()));
    server.engine.push(vec![Action::Fail(failed.clone())]);
    assert_eq!(code(&server.post(COMPACT, &json!({}))), (500, "model_failed".into()));
    server.engine.push(whole());
    server.engine.push(vec![Action::Fail(failed)]);
    assert_eq!(code(&server.post(COMPACT, &json!({}))), (500, "model_failed".into()));
    // It is still the whole conversation that is made shorter.
    server.engine.push(whole());
    let compacted = server.post(COMPACT, &json!({})).json();
    assert_eq!((&compacted["replaced_messages"], &compacted["messages"][2]), (&json!(2), &messages[4]));
}

#[test]
fn only_sessions_are_compacted() {
    let server = server();
    let response = server.post("/v1/sessions/other/compact", &json!({}));
    assert_eq!(code(&response), (404, "session_not_found".into()));
    assert_eq!(code(&server.post("/v1/sessions/talk", &json!({}))), (405, "method_not_allowed".into()));
    assert_eq!(code(&server.post(COMPACT, &json!([]))), (400, "invalid_type".into()));
    let response = server.post(COMPACT, &json!({"model": "other"}));
    assert_eq!(code(&response), (404, "model_not_found".into()));
}

#[test]
fn a_client_that_goes_away_stops_the_summary() {
    let server = server();
    two_turns(&server);
    server.engine.push(slowly(&[30; 400], Duration::from_millis(20)));
    let stream = server.open("POST", COMPACT, "", b"{}");
    assert!(server.engine.wait_load(1, 0, PATIENCE));
    drop(stream);
    let ended = server.engine.wait_ended(3, PATIENCE).unwrap();
    assert_eq!(ended[2].outcome, Ok(ds4_engine_api::FinishReason::Cancelled));
}

#[test]
fn a_removed_session_is_forgotten() {
    let server = server();
    two_turns(&server);
    assert_eq!(server.send("DELETE", "/v1/sessions/talk", "", b"").status, 200);
    assert_eq!(code(&server.post(COMPACT, &json!({}))), (404, "session_not_found".into()));
}
