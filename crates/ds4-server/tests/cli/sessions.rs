//! Conversations that outlive the program: reused by servers and chats, listed, removed, and never in the way.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::sandbox::Sandbox;
use crate::server::Server;

const CHAT: [&str; 4] = ["chat", "--quiet", "--temperature", "0"];

/// The budget for the disk also says how much of it stays free: with the default, a nearly full machine would save nothing.
const DISK: [&str; 2] = ["--session-disk", "1GiB"];

fn chat(sandbox: &Sandbox, arguments: &[&str], script: &str) -> String {
    sandbox.run_with(&[&CHAT[..], &DISK, arguments].concat(), script).succeeded().stdout
}

fn listed(sandbox: &Sandbox) -> Vec<Value> {
    let list = sandbox.run(&["sessions", "list", "--json"]).succeeded().stdout;
    serde_json::from_str(&list).unwrap()
}

fn question(text: &str) -> Value {
    json!({"messages": [{"role": "user", "content": text}], "temperature": 0})
}

/// Asks, and asks again with the answer in the history. Returns both requests' answers.
fn two_turns(server: &Server) -> [Value; 2] {
    let mut request = question("What is the capital of Japan?");
    let first = server.chat(&request);
    let messages = request["messages"].as_array_mut().unwrap();
    messages.extend([
        first["choices"][0]["message"].clone(),
        json!({"role": "user", "content": "And of Italy?"}),
    ]);
    [first, server.chat(&request)]
}

fn cached(answer: &Value) -> u64 {
    answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
}

#[test]
fn a_turn_reads_only_what_is_new() {
    let server = Server::start(&["--temperature", "0"]);
    let [first, second] = two_turns(&server);
    let known = first["usage"]["total_tokens"].as_u64().unwrap();
    // The token that ended the answer is run with the next prompt.
    assert!(cached(&second) >= known - 1, "{second}");
    assert_eq!(second["usage"]["session"]["id"], first["usage"]["session"]["id"]);
    assert_eq!(first["usage"]["session"]["cache_miss"], "new_session");
    let cold = Server::start(&["--temperature", "0", "--no-sessions"]);
    let [_, same] = two_turns(&cold);
    assert_eq!((cached(&same), &same["usage"]["session"]["cache_miss"]), (0, &json!("disabled")));
    assert_eq!(same["choices"], second["choices"]);
}

#[test]
#[cfg(unix)]
fn a_restarted_server_goes_on() {
    let sandbox = Sandbox::new();
    let mut server = Server::start_in(&sandbox, &[&["--temperature", "0"][..], &DISK].concat());
    let [first, _] = two_turns(&server);
    server.signal("-TERM");
    assert_eq!(server.wait(), Some(0));
    let server = Server::start_in(&sandbox, &[&["--temperature", "0"][..], &DISK].concat());
    let [again, second] = two_turns(&server);
    assert_eq!(again["choices"], first["choices"]);
    assert!(cached(&second) >= first["usage"]["total_tokens"].as_u64().unwrap() - 1, "{second}");
}

/// As OpenAI's client does: it knows nothing of reasoning.
#[test]
#[cfg(unix)]
fn a_restarted_server_goes_on_though_the_reasoning_does_not_come_back() {
    let sandbox = Sandbox::new();
    let flags = [&["--temperature", "0", "--think", "on"][..], &DISK].concat();
    let mut request = question("What is the capital of Japan?");
    let mut server = Server::start_in(&sandbox, &flags);
    let first = server.chat(&request);
    let message = &first["choices"][0]["message"];
    assert!(message["reasoning_content"].as_str().is_some_and(|text| !text.is_empty()), "{first}");
    server.signal("-TERM");
    assert_eq!(server.wait(), Some(0));
    let answer = json!({"role": "assistant", "content": message["content"]});
    let next = json!({"role": "user", "content": "And of Italy?"});
    request["messages"].as_array_mut().unwrap().extend([answer, next]);
    let second = Server::start_in(&sandbox, &flags).chat(&request);
    let prompt = first["usage"]["prompt_tokens"].as_u64().unwrap();
    assert!(cached(&second) + 12 >= prompt, "{} of {prompt}", cached(&second));
}

#[test]
#[cfg(unix)]
fn sessions_are_listed_shown_and_removed() {
    let sandbox = Sandbox::new();
    assert!(sandbox.run(&["sessions", "list"]).succeeded().stdout.starts_with("no sessions in "));
    assert!(!sandbox.path("state").exists(), "looking makes no folder");
    let mut server = Server::start_in(&sandbox, &DISK);
    server.chat(&{
        let mut request = question("ping");
        request["session_id"] = "talk".into();
        request
    });
    // Saved beside the answer, a moment later.
    for _ in 0..500 {
        if !listed(&sandbox).is_empty() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(listed(&sandbox)[0]["id"], "talk");
    let refused = sandbox.run(&["sessions", "rm", "talk"]).failed_with(2);
    assert!(
        refused.contains("a server or a chat that runs uses ") && refused.lines().count() == 1,
        "{refused}"
    );
    let (_, shown) = server.request("GET /v1/sessions/talk HTTP/1.1", "");
    assert_eq!(serde_json::from_str::<Value>(&shown).unwrap()["object"], "session");
    assert_eq!(server.request("DELETE /v1/sessions/talk HTTP/1.1", "").0, 200);
    assert_eq!(server.request("DELETE /v1/sessions/talk HTTP/1.1", "").0, 404);
    let answer = server.chat(&question("ping"));
    assert_eq!(cached(&answer), 0, "it is gone from memory too");
    server.signal("-TERM");
    server.wait();

    let id = listed(&sandbox)[0]["id"].as_str().unwrap().to_owned();
    let shown = sandbox.run(&["sessions", "show", &id]).succeeded().stdout;
    assert!(shown.contains("created   just now") && shown.contains("states    "), "{shown}");
    let table = sandbox.run(&["sessions", "list"]).succeeded().stdout;
    assert!(table.starts_with("SESSION") && table.contains(&id) && table.contains("MB"), "{table}");
    sandbox.run(&["sessions", "prune"]).succeeded();
    assert_eq!(listed(&sandbox).len(), 1, "it was used today");
    sandbox.run(&["sessions", "rm", &id]).succeeded();
    assert!(sandbox.run(&["sessions", "rm", &id]).failed_with(2).contains("there is no session"));
    assert_eq!(listed(&sandbox), [Value::Null; 0]);
}

#[test]
#[cfg(unix)]
fn a_folder_that_cannot_be_used_is_a_warning() {
    let sandbox = Sandbox::new();
    let first = Server::start_in(&sandbox, &[]);
    let second = Server::start_in(&sandbox, &["--temperature", "0", "--think", "off"]);
    assert_eq!(first.warnings, "");
    assert!(second.warnings.contains("warning: another server keeps its session"), "{}", second.warnings);
    assert_eq!(second.warnings.lines().count(), 1, "{}", second.warnings);
    assert_eq!(second.chat(&question("ping"))["choices"][0]["message"]["content"], "pong");

    sandbox.write("file", "");
    let third = Server::start_in(&sandbox, &["--session-dir", "file/sessions"]);
    assert!(third.warnings.contains("give a folder that this user can write"), "{}", third.warnings);
    assert_eq!(third.request("GET /health HTTP/1.1", "").0, 200);
}

#[test]
fn a_chat_is_resumed() {
    let sandbox = Sandbox::new();
    assert_eq!(chat(&sandbox, &[], "What is the capital of Japan?\n"), "The capital of Japan is Tokyo.\n");
    let sessions = listed(&sandbox);
    assert_eq!(sessions[0]["title"], "What is the capital of Japan?");
    let id = sessions[0]["id"].as_str().unwrap();
    let resumed = chat(&sandbox, &["--resume"], "And of Italy?\n/stats\n");
    assert!(resumed.starts_with("It is Rome.\n"), "{resumed}");
    let stats = resumed.lines().find(|line| line.starts_with(&format!("session        {id}, "))).unwrap();
    let reused: u64 = stats.split([',', ' ']).filter_map(|word| word.parse().ok()).next().unwrap();
    assert!(reused > sessions[0]["tokens"].as_u64().unwrap() - 2, "{stats}: {sessions:?}");
    assert_eq!(listed(&sandbox).len(), 1, "it is the same session");
    let by_name = chat(&sandbox, &["--resume", id], "/save talk.json\n");
    assert_eq!(by_name, "");
    let saved: Value = serde_json::from_slice(&fs::read(sandbox.path("talk.json")).unwrap()).unwrap();
    assert_eq!(saved["messages"].as_array().unwrap().len(), 4);
}

#[test]
fn a_chat_that_cannot_be_saved_is_said_to_be() {
    let sandbox = Sandbox::new();
    let ran = sandbox.run_with(&["chat", "--session-disk", "1kB"], "ping\n").succeeded();
    assert_eq!(ran.stdout, "pong\n");
    assert!(ran.stderr.contains("WARN a session is not on disk"), "{}", ran.stderr);
    assert!(ran.stderr.contains("raise the budget for session checkpoints"), "{}", ran.stderr);
    assert_eq!(listed(&sandbox), [Value::Null; 0]);
}

#[test]
fn there_must_be_something_to_resume() {
    let sandbox = Sandbox::new();
    let resume =
        |arguments: &[&str]| sandbox.run_with(&[&CHAT[..], arguments].concat(), "ping\n").failed_with(2);
    assert!(resume(&["--resume"]).contains("there is no such chat in "));
    assert!(resume(&["--resume", "../../secret"]).contains("there is no such chat in "));
    assert!(resume(&["--resume", "--no-sessions"]).contains("--resume needs the folder"));
}

#[test]
fn chats_go_with_their_sessions() {
    let sandbox = Sandbox::new();
    chat(&sandbox, &[], "ping\n");
    let chats = sandbox.path("state/ds4server/sessions/chats");
    let count = |folder: &Path| fs::read_dir(folder).unwrap().count();
    assert_eq!(count(&chats), 1);
    sandbox.run(&["sessions", "prune", "--all"]).succeeded();
    assert_eq!((count(&chats), listed(&sandbox).len()), (0, 0));
}

#[test]
fn nothing_is_kept_if_nothing_shall_be() {
    let sandbox = Sandbox::new();
    for keep_nothing in [&["--no-sessions"][..], &["--session-disk", "0"]] {
        sandbox.run_with(&[&CHAT[..], keep_nothing].concat(), "ping\n").succeeded();
    }
    sandbox.run(&["run", "--quiet", "ping"]).succeeded();
    assert!(!sandbox.path("state").exists());
}

#[test]
fn a_chat_is_compacted() {
    let sandbox = Sandbox::new();
    let script = "/nothink\nWhat is the capital of Japan?\n/compact\n";
    let early = sandbox.run_with(&CHAT[..], script);
    assert_eq!(early.code, Some(2), "a single turn is not compacted: {early:?}");
    let script =
        "/nothink\nping\nWhat is the capital of Japan?\nAnd of Italy?\n/compact\n/save talk.json\nping\n";
    let ran = sandbox.run_with(&CHAT[..], script).succeeded();
    assert!(ran.stdout.ends_with("pong\n"), "{}", ran.stdout);
    let saved: Value = serde_json::from_slice(&fs::read(sandbox.path("talk.json")).unwrap()).unwrap();
    assert!(!saved["summary"].as_str().unwrap().is_empty());
    let messages = saved["messages"].as_array().unwrap();
    assert_eq!((messages.len(), &messages[0]["content"]), (2, &json!("And of Italy?")));
}

#[test]
fn a_session_is_compacted_over_http() {
    let server = Server::start(&["--temperature", "0"]);
    let mut messages: Vec<Value> = Vec::new();
    let ask = |messages: &[Value]| {
        server.chat(&json!({"messages": messages, "session_id": "talk", "enable_thinking": false}))
    };
    for question in ["ping", "What is the capital of Japan?", "And of Italy?"] {
        messages.push(json!({"role": "user", "content": question}));
        messages.push(ask(&messages)["choices"][0]["message"].clone());
    }
    let session = || {
        let (status, body) = server.request("GET /v1/sessions/talk HTTP/1.1", "");
        assert_eq!(status, 200, "{body}");
        serde_json::from_str::<Value>(&body).unwrap()
    };
    let long = session();
    assert_eq!(long["title"], "ping");
    assert!(long["memory"]["states"].as_u64() > Some(0), "{long}");

    let (status, body) = server.request("POST /v1/sessions/talk/compact HTTP/1.1", "");
    assert_eq!(status, 200, "{body}");
    let compacted: Value = serde_json::from_str(&body).unwrap();
    let mut messages = compacted["messages"].as_array().unwrap().clone();
    assert_eq!((messages.len(), &messages[1]["content"]), (3, &json!("And of Italy?")));
    // It is the session that was made shorter, and it goes on from what was read into it.
    messages.push(json!({"role": "user", "content": "ping"}));
    let next = ask(&messages);
    assert!(cached(&next) >= compacted["tokens"].as_u64().unwrap() - 1, "{next}");
    assert_eq!(session()["title"], "ping");

    let (status, body) = server.request("POST /v1/sessions/nobody/compact HTTP/1.1", "");
    assert!(status == 404 && body.contains("session_not_found"), "{body}");
    let (status, _) = server.request("DELETE /v1/sessions/talk HTTP/1.1", "");
    assert_eq!(status, 200);
    let (status, _) = server.request("POST /v1/sessions/talk/compact HTTP/1.1", "");
    assert_eq!(status, 404);
}
