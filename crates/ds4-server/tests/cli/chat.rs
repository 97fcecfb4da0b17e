//! `chat` with a script on its standard input: no prompts, answers on standard output.

use std::fs;

use crate::sandbox::Sandbox;

const CHAT: [&str; 4] = ["chat", "--quiet", "--temperature", "0"];

#[test]
fn a_script_gets_answers_without_prompts() {
    let ran = Sandbox::new().run_with(&CHAT, "ping\n\nWhat is the capital of France?\n").succeeded();
    assert_eq!(ran.stdout, "pong\nThe capital of France is Paris.\n");
    assert_eq!(ran.stderr, "");
}

#[test]
fn the_conversation_is_remembered() {
    let script = "What is the capital of Japan?\nAnd of Italy?\n";
    let ran = Sandbox::new().run_with(&CHAT, script).succeeded();
    assert_eq!(ran.stdout, "The capital of Japan is Tokyo.\nIt is Rome.\n");
}

#[test]
fn a_backslash_continues_a_message() {
    let sandbox = Sandbox::new();
    sandbox.run_with(&CHAT, "one\\\ntwo\n/save talk.json\n").succeeded();
    let talk = fs::read_to_string(sandbox.path("talk.json")).unwrap();
    assert!(talk.contains(r#""content": "one\ntwo""#), "{talk}");
}

#[test]
fn a_saved_conversation_goes_on() {
    let sandbox = Sandbox::new();
    let script = "/think off\nWhat is the capital of Japan?\n/save talk.json\n";
    let first = sandbox.run_with(&CHAT, script).succeeded();
    let saved: serde_json::Value =
        serde_json::from_slice(&fs::read(sandbox.path("talk.json")).unwrap()).unwrap();
    assert_eq!(saved["settings"]["think"], "off");
    assert_eq!(saved["settings"]["temperature"], 0.0);
    assert_eq!(saved["messages"][1]["content"], first.stdout.trim_end());

    // The same settings again, although the second run was started with others.
    let second =
        sandbox.run_with(&["chat", "-q"], "/load talk.json\n/regenerate\n/save again.json\n").succeeded();
    assert_eq!(second.stdout, first.stdout);
    let read = |name| fs::read_to_string(sandbox.path(name)).unwrap();
    assert_eq!(read("again.json"), read("talk.json"));
    let third = sandbox.run_with(&["chat", "-q", "--load", "talk.json"], "/regenerate\n").succeeded();
    assert_eq!(third.stdout, first.stdout);
}

#[test]
fn thinking_is_switched() {
    let script = "ping\n/nothink\nping\n/think low\nping\n";
    let ran =
        Sandbox::new().run_with(&["chat", "-q", "--temperature", "0", "--show-thinking"], script).succeeded();
    let thoughts: Vec<bool> = ran.stdout.split("pong\n").map(|part| part.contains("<think>")).collect();
    assert_eq!(thoughts, [true, false, true, false], "{}", ran.stdout);
}

#[test]
fn figures_and_help_are_printed() {
    let ran = Sandbox::new().run_with(&CHAT, "/nothink\nping\n/stats\n/help\n/quit\nping\n").succeeded();
    for part in ["last answer    2 tokens, ", "conversation   2 messages", "/regenerate   "] {
        assert!(ran.stdout.contains(part), "{part}: {}", ran.stdout);
    }
    assert_eq!(ran.stdout.matches("pong").count(), 1, "nothing is answered after /quit");
}

#[test]
fn instructions_start_the_conversation_anew() {
    let sandbox = Sandbox::new();
    sandbox.run_with(&CHAT, "ping\n/system Be brief.\n/save talk.json\n").succeeded();
    let saved: serde_json::Value =
        serde_json::from_slice(&fs::read(sandbox.path("talk.json")).unwrap()).unwrap();
    assert_eq!(saved["system"], "Be brief.");
    assert_eq!(saved["messages"], serde_json::json!([]));
}

#[test]
fn a_script_ends_at_its_first_mistake() {
    let sandbox = Sandbox::new();
    let ran = sandbox.run_with(&CHAT, "/exit\nping\n");
    assert_eq!(ran.failed_with(2), "error: there is no command /exit; /help lists them\n");
    let ran = sandbox.run_with(&CHAT, "/regenerate\n");
    assert_eq!(ran.failed_with(2), "error: there is no message to answer yet\n");
    sandbox.write("talk.json", r#"{"version": 1, "messages": [{"role": "robot"}]}"#);
    let error = sandbox.run_with(&CHAT, "/load talk.json\n").failed_with(1);
    assert!(error.starts_with("error: talk.json is not a saved conversation\n  caused by: "), "{error}");
}
