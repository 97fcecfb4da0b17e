//! `serve`: real requests over a socket, and how the server ends.

use std::io::Read as _;
use std::net::TcpListener;

use serde_json::{Value, json};

use crate::sandbox::{Sandbox, ran};
use crate::server::Server;

fn ping() -> Value {
    json!({"messages": [{"role": "user", "content": "ping"}]})
}

#[test]
fn requests_are_answered() {
    let server = Server::start(&["--temperature", "0", "--think", "off"]);
    let answer = server.chat(&ping());
    assert_eq!(answer["model"], "demo");
    assert_eq!(answer["choices"][0]["message"]["content"], "pong");
    let streamed = json!({"messages": ping()["messages"], "stream": true}).to_string();
    let (status, body) = server.request("POST /v1/chat/completions HTTP/1.1", &streamed);
    assert_eq!(status, 200);
    assert!(body.contains("\"content\":\"pong\"") && body.contains("data: [DONE]"), "{body}");
    assert_eq!(server.request("GET /health HTTP/1.1", "").0, 200);
}

#[test]
fn clients_are_answered_side_by_side_as_if_they_were_alone() {
    let server = Server::start(&["--parallel", "3", "--max-tokens", "60", "--no-sessions"]);
    let asked =
        ["ping", "Write a short story about a lighthouse.", "What is 48 + 27?", "Hello", "Count to ten."];
    let ask = |(i, text): (usize, &str)| {
        let messages = json!([{"role": "user", "content": text}]);
        let answer = server.chat(&json!({"messages": messages, "seed": i, "logprobs": true}));
        answer["choices"].clone()
    };
    let alone: Vec<Value> = asked.into_iter().enumerate().map(ask).collect();
    let together: Vec<Value> = std::thread::scope(|scope| {
        let clients: Vec<_> =
            asked.into_iter().enumerate().map(|asked| scope.spawn(move || ask(asked))).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    assert_eq!(together, alone);
}

#[test]
fn an_answer_that_a_stop_string_ends_is_one_like_others() {
    let server = Server::start(&["--temperature", "0", "--think", "off"]);
    let mut request = ping();
    request["messages"][0]["content"] = "Write a short story about a lighthouse.".into();
    let first = server.chat(&request);
    let whole = first["choices"][0]["message"]["content"].as_str().unwrap();
    let word = whole.split(' ').nth(6).unwrap();
    request["stop"] = json!([word]);
    let stopped = server.chat(&request);
    assert_eq!(stopped["choices"][0]["finish_reason"], "stop");
    assert!(whole.starts_with(stopped["choices"][0]["message"]["content"].as_str().unwrap()));
    let figure = |name: &str| {
        let (_, body) = server.request("GET /metrics HTTP/1.1", "");
        let line =
            body.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned));
        line.unwrap_or_else(|| panic!("no {name} in {body}"))
    };
    assert_eq!(figure("ds4_requests_completed_total"), "2");
    assert_eq!(figure("ds4_requests_cancelled_total"), "0");
    let drafted = |answer: &Value| answer["usage"]["speculation"]["drafted"].as_u64().unwrap();
    assert_eq!(figure("ds4_drafted_tokens_total"), (drafted(&first) + drafted(&stopped)).to_string());
}

#[cfg(target_os = "linux")]
#[test]
fn a_pinned_thread_has_one_core() {
    if std::thread::available_parallelism().unwrap().get() == 1 {
        return;
    }
    let cores_of = |arguments: &[&str]| {
        let server = Server::start(arguments);
        let thread = server.thread("kernel-1").expect("a second thread");
        let status = std::fs::read_to_string(thread.join("status")).unwrap();
        status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim().to_owned()
    };
    let pinned = cores_of(&["--threads", "2", "--pin"]);
    assert!(pinned.parse::<usize>().is_ok(), "{pinned:?} is not one core");
    assert_ne!(cores_of(&["--threads", "2"]), pinned);
}

#[test]
fn metrics_tell_of_drafts_what_answers_tell() {
    let server = Server::start(&["--temperature", "0", "--speculate", "both", "--draft-depth", "3"]);
    let mut request = ping();
    request["messages"][0]["content"] = "Write a short story about a lighthouse.".into();
    let told = server.chat(&request)["usage"]["speculation"].clone();
    let (_, metrics) = server.request("GET /metrics HTTP/1.1", "");
    let figure = |name: &str| -> f64 {
        let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no {name} in {metrics}")).parse().unwrap()
    };
    for (name, field) in [
        ("ds4_draft_cycles_total", "cycles"),
        ("ds4_drafted_tokens_total", "drafted"),
        ("ds4_accepted_tokens_total", "accepted"),
        ("ds4_bonus_tokens_total", "bonus"),
        ("ds4_correction_tokens_total", "corrections"),
        ("ds4_copy_rounds_total", "copy_rounds"),
        ("ds4_copy_drafted_tokens_total", "copy_drafted"),
        ("ds4_copied_tokens_total", "copied"),
        ("ds4_verify_passes_total", "verify_passes"),
    ] {
        assert_eq!(figure(name), told[field].as_f64().unwrap(), "{name}");
    }
    for (position, count) in (1..).zip(told["accepted_by_position"].as_array().unwrap()) {
        let name = format!("ds4_accepted_tokens_by_position_total{{position=\"{position}\"}}");
        assert_eq!(figure(&name), count.as_f64().unwrap());
    }
    for kind in ["draft", "verify", "repair"] {
        let seconds = told[format!("{kind}_seconds")].as_f64().unwrap();
        let microseconds = |seconds: f64| (seconds * 1e6).round();
        assert_eq!(microseconds(figure(&format!("ds4_{kind}_seconds_total"))), microseconds(seconds));
    }
    assert!(figure("ds4_accepted_tokens_total") > 0.0);
}

#[test]
fn flags_are_the_defaults_of_requests() {
    let server = Server::start(&["--temperature", "0", "--max-tokens", "3"]);
    let answer = server.chat(&ping());
    assert_eq!(answer["usage"]["completion_tokens"], 3);
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    let mut request = ping();
    request["max_tokens"] = 100.into();
    assert_eq!(server.chat(&request)["choices"][0]["message"]["content"], "pong");

    let server = Server::start(&["--seed", "5", "--think", "off"]);
    let mut request = ping();
    request["messages"][0]["content"] = "Write a short story about a lighthouse.".into();
    let story = || server.chat(&request)["choices"][0]["message"]["content"].clone();
    assert_eq!(story(), story());
}

#[test]
fn a_key_is_asked_for() {
    let server = Server::start(&["--api-key", "secret", "--temperature", "0"]);
    let body = ping().to_string();
    assert_eq!(server.request("POST /v1/chat/completions HTTP/1.1", &body).0, 401);
    let with_key = "POST /v1/chat/completions HTTP/1.1\r\nauthorization: Bearer secret";
    assert_eq!(server.request(with_key, &body).0, 200);
}

#[test]
#[cfg(unix)]
fn signals_end_it_in_order() {
    for signal in ["-TERM", "-INT"] {
        let mut server = Server::start(&[]);
        assert_eq!(server.request("GET /health HTTP/1.1", "").0, 200);
        server.signal(signal);
        assert_eq!(server.wait(), Some(0), "{signal}");
        let mut rest = String::new();
        server.stderr.read_to_string(&mut rest).unwrap();
        assert!(rest.ends_with("stopped\n"), "{rest}");
    }
}

#[test]
fn a_second_signal_ends_answers_that_run() {
    let mut server = Server::start(&["--no-sessions", "--temperature", "1"]);
    let endless =
        json!({"prompt": "Once", "max_tokens": 4000, "logit_bias": {"2": -100, "0": -100}, "stream": true});
    let mut answer = server.open("POST /v1/completions HTTP/1.1", &endless.to_string());
    let mut begun = [0; 64];
    answer.read_exact(&mut begun).unwrap();
    let start = std::time::Instant::now();
    server.signal("-TERM");
    std::thread::sleep(std::time::Duration::from_millis(100));
    server.signal("-TERM");
    let mut rest = String::new();
    answer.read_to_string(&mut rest).unwrap();
    assert_eq!(server.wait(), Some(0));
    assert!(start.elapsed() < std::time::Duration::from_secs(4), "{:?}", start.elapsed());
    assert!(rest.contains("\"code\":\"shutting_down\""), "{}", &rest[rest.len().saturating_sub(300)..]);
}

#[test]
fn a_port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let sandbox = Sandbox::new();
    let error = ran(sandbox.command(&["serve", "--port", &port]).output().unwrap()).failed_with(1);
    assert!(error.contains(&format!("cannot listen on port {port} of 127.0.0.1")), "{error}");
    assert!(error.contains("hint: another program uses this port"), "{error}");
}

#[test]
fn mistakes_on_the_command_line_exit_with_2() {
    let sandbox = Sandbox::new();
    sandbox.run(&["serve", "--port", "70000"]).failed_with(2);
    sandbox.run(&["serve", "--host", "everywhere"]).failed_with(2);
    assert!(sandbox.run(&["serve", "--log", "x=y=z"]).failed_with(2).contains("--log x=y=z"));
}
