//! `run`: where prompts come from, and what goes to which stream.

use std::io::Read as _;
use std::process::Stdio;

use crate::sandbox::{Sandbox, demo_folder, ran};

const PING: [&str; 5] = ["run", "--temperature", "0", "--think", "off"];

fn ping<'a>(more: &[&'a str]) -> Vec<&'a str> {
    PING.iter().chain(more).copied().collect()
}

#[test]
fn ping_prints_pong_and_nothing_else() {
    let ran = Sandbox::new().run(&ping(&["ping"])).succeeded();
    assert_eq!(ran.stdout, "pong\n");
    assert!(
        ran.stderr.contains("2 tokens, ") && ran.stderr.contains("first token after 0."),
        "{}",
        ran.stderr
    );
}

#[test]
fn prompts_come_from_standard_input_and_files_too() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.run_with(&ping(&[]), "ping\n").succeeded().stdout, "pong\n");
    assert_eq!(sandbox.run_with(&ping(&["-"]), "ping").succeeded().stdout, "pong\n");
    sandbox.write("prompt.txt", "ping\n");
    assert_eq!(sandbox.run(&ping(&["@prompt.txt"])).succeeded().stdout, "pong\n");
}

#[test]
fn quiet_leaves_standard_error_empty() {
    let ran = Sandbox::new().run(&["run", "--temperature", "0", "--quiet", "ping"]).succeeded();
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("pong\n", ""));
}

#[test]
fn thinking_goes_to_standard_error_unless_it_is_asked_for() {
    const THOUGHT: &str = "The user says ping. The usual reply is pong.";
    let sandbox = Sandbox::new();
    let ran = sandbox.run(&["run", "--temperature", "0", "ping"]).succeeded();
    assert_eq!(ran.stdout, "pong\n");
    assert!(ran.stderr.starts_with(&format!("{THOUGHT}\n\n")), "{}", ran.stderr);
    let ran = sandbox.run(&["run", "--temperature", "0", "--show-thinking", "--quiet", "ping"]).succeeded();
    assert_eq!(ran.stdout, format!("<think>\n{THOUGHT}\n</think>\n\npong\n"));
}

#[test]
fn a_seed_repeats_an_answer_and_another_one_changes_it() {
    let sandbox = Sandbox::new();
    let story = |seed: &str| {
        sandbox
            .run(&["run", "-q", "--seed", seed, "Write a short story about a lighthouse."])
            .succeeded()
            .stdout
    };
    let first = story("1");
    assert_eq!(story("1"), first);
    assert!((2..6).any(|seed| story(&seed.to_string()) != first));
}

#[test]
fn a_raw_prompt_is_taken_as_it_is() {
    let prompt = "<|im_start|>user\nping<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
    let ran = Sandbox::new().run(&["run", "-q", "--temperature", "0", "--raw", prompt]).succeeded();
    assert_eq!(ran.stdout, "pong\n");
}

#[test]
fn max_tokens_ends_an_answer_and_is_said() {
    let ran = Sandbox::new()
        .run(&ping(&["--max-tokens", "3", "Write a short story about a lighthouse."]))
        .succeeded();
    assert!(ran.stderr.contains("3 tokens, ") && ran.stderr.contains("longest length"), "{}", ran.stderr);
}

#[test]
fn cached_keys_and_values_can_be_half_floats() {
    for kv in ["f16", "bf16"] {
        assert_eq!(Sandbox::new().run(&ping(&["--kv", kv, "ping"])).succeeded().stdout, "pong\n");
    }
}

#[test]
fn mistakes_on_the_command_line_exit_with_2() {
    let sandbox = Sandbox::new();
    let unknown_level = sandbox.run(&["run", "--think", "hard", "ping"]).failed_with(2);
    assert!(unknown_level.contains("valid are off, on, low, medium, high, xhigh, max"), "{unknown_level}");
    assert!(sandbox.run(&["run", "--temperature", "nan", "ping"]).failed_with(2).contains("from 0 on"));
    assert!(sandbox.run(&["run", "--context", "5000", "ping"]).failed_with(2).contains("4096"));
    assert_eq!(sandbox.run(&["run", " "]).failed_with(2), "error: the prompt is empty\n");
    sandbox.run(&["run", "--threads", "0", "ping"]).failed_with(2);
    sandbox.run(&["walk"]).failed_with(2);
}

#[test]
fn what_cannot_be_read_exits_with_1() {
    let sandbox = Sandbox::new();
    let error = sandbox.run(&["run", "@nothing.txt"]).failed_with(1);
    assert!(error.starts_with("error: cannot read the prompt from nothing.txt\n  caused by: "), "{error}");
    std::fs::write(sandbox.path("latin1.txt"), b"caf\xe9").unwrap();
    assert!(sandbox.run(&["run", "@latin1.txt"]).failed_with(1).contains("valid UTF-8"));
}

#[test]
fn a_prompt_longer_than_the_context_names_both_lengths() {
    let prompt = "word ".repeat(200);
    let error = Sandbox::new().run(&["run", "--context", "64", &prompt]).failed_with(1);
    assert!(error.contains("maximum context length is 64 tokens"), "{error}");
}

#[test]
fn a_reader_that_has_enough_is_success() {
    let sandbox = Sandbox::new();
    let mut command =
        sandbox.command(&["run", "--quiet", "--seed", "1", "Write a short story about a lighthouse."]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    // The pipe is closed by now, in the middle of the story.
    let ran = ran(child.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
}

#[test]
#[cfg(unix)]
fn ctrl_c_stops_the_answer_and_exits_with_130() {
    let sandbox = Sandbox::new();
    // Without end-of-text tokens in reach, this goes on for thousands of tokens.
    let folder = sandbox.demo_copy("model");
    std::fs::remove_file(folder.join("generation_config.json")).unwrap();
    let mut command = sandbox.command(&[
        "run",
        "--model",
        "model",
        "--temperature",
        "100",
        "--top-k",
        "0",
        "--top-p",
        "1",
        "--seed",
        "1",
        "ping",
    ]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0];
    let mut stderr = child.stderr.take().unwrap();
    stderr.read_exact(&mut first).unwrap();
    assert!(
        std::process::Command::new("kill")
            .args(["-INT", &child.id().to_string()])
            .status()
            .unwrap()
            .success()
    );
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    let status = child.wait_with_output().unwrap().status;
    assert_eq!(status.code(), Some(130), "{rest}");
    assert!(rest.contains("interrupted"), "{rest}");
}

#[test]
fn the_model_comes_from_the_environment_where_no_flag_names_one() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command(&ping(&["--quiet", "ping"]));
    assert_eq!(ran(command.env("DS4_MODEL", demo_folder()).output().unwrap()).succeeded().stdout, "pong\n");
    let error = ran(command.env("DS4_MODEL", "nowhere").output().unwrap()).failed_with(1);
    assert!(error.contains("nowhere is not a folder"), "{error}");
    command.args(["--model", "demo"]);
    ran(command.output().unwrap()).succeeded();
}

#[test]
fn every_demo_model_says_pong() {
    for model in ["demo:qwen", "demo:deepseek", "demo:glm"] {
        let ran = Sandbox::new().run(&ping(&["--model", model, "--quiet", "ping"])).succeeded();
        assert_eq!(ran.stdout, "pong\n", "{model}");
    }
}
