//! What is not about answers: health, models, metrics, keys, paths, methods, sizes, the end.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use ds4_http_api::ApiOptions;
use ds4_testkit::fake_engine::Action;
use serde_json::json;

use crate::support::{PATIENCE, Server, ping};

#[test]
fn health_answers_while_the_engine_is_busy() {
    let server = Server::start();
    server.engine.push(vec![Action::WaitForCancel]);
    let _first = server.open_chat(&ping(json!({})));
    assert!(server.engine.wait_load(1, 0, PATIENCE));
    let _second = server.open_chat(&ping(json!({})));
    assert!(server.engine.wait_load(1, 1, PATIENCE));
    let response = server.get("/health");
    assert_eq!(response.status, 200);
    assert_eq!(response.json(), json!({"status": "ok", "model": "demo", "running": 1, "waiting": 1}));
}

#[test]
fn after_the_engine_has_stopped_health_is_503_with_its_reason() {
    let server = Server::start();
    server.engine.stop("it panicked");
    let health = server.get("/health");
    assert_eq!((health.status, &health.json()["error"]["code"]), (503, &json!("engine_stopped")));
    assert_eq!(health.json()["error"]["message"], "the engine has stopped (it panicked); restart the server");
    let chat = server.chat(&ping(json!({})));
    assert_eq!((chat.status, &chat.json()["error"]["code"]), (503, &json!("engine_stopped")));
    assert!(server.get("/metrics").body.contains("\nds4_engine_up 0\n"));
}

#[test]
fn a_full_queue_is_429() {
    let server = Server::start();
    server.engine.push(vec![Action::WaitForCancel]);
    let _running = server.open_chat(&ping(json!({})));
    assert!(server.engine.wait_load(1, 0, PATIENCE));
    let _waiting = [server.open_chat(&ping(json!({}))), server.open_chat(&ping(json!({})))];
    assert!(server.engine.wait_load(1, 2, PATIENCE));
    let response = server.chat(&ping(json!({"stream": true})));
    assert_eq!((response.status, &response.json()["error"]["code"]), (429, &json!("queue_full")));
    assert!(response.headers.contains("retry-after: 1"), "{}", response.headers);
}

#[test]
fn the_model_is_listed() {
    let server = Server::start();
    let demo = json!({
        "id": "demo", "object": "model", "created": 1_700_000_000, "owned_by": "ds4server", "context_length": 512,
    });
    assert_eq!(server.get("/v1/models").json(), json!({"object": "list", "data": [demo]}));
    assert_eq!(server.get("/v1/models/demo").json(), demo);
}

#[test]
fn metrics_count_requests_and_tokens() {
    let server = Server::start();
    server.answer("</think>\n\npong");
    server.chat(&ping(json!({})));
    let text = server.get("/metrics").body;
    let tokens = server.encode("\n\npong").len() + 2;
    for line in [
        "# HELP ds4_requests_completed_total Requests that ended, by any cause.",
        "# TYPE ds4_requests_completed_total counter",
        "ds4_requests_completed_total 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line:?} is not in {text}");
    }
    assert!(text.contains(&format!("ds4_decode_tokens_total {tokens}\n")), "{text}");
}

#[test]
fn metrics_count_responses_by_status_refusals_included() {
    let server = Server::with(ApiOptions { api_key: Some("secret".into()), ..ApiOptions::default() });
    let with_key = "Authorization: Bearer secret\r\n";
    let statuses = [
        server.send("POST", "/v1/chat/completions", with_key, ping(json!({})).to_string().as_bytes()).status,
        server.send("POST", "/v1/chat/completions", with_key, b"{").status,
        server.send("POST", "/v1/chat/completions", with_key, b"[]").status,
        server.get("/v1/models").status,
        server.get("/nowhere").status,
    ];
    assert_eq!(statuses, [200, 400, 400, 401, 404]);
    let text = server.send("GET", "/metrics", with_key, b"").body;
    let counts: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("ds4_http_responses_total")).collect();
    assert_eq!(
        counts,
        [r#"{status="200"} 1"#, r#"{status="400"} 2"#, r#"{status="401"} 1"#, r#"{status="404"} 1"#]
    );
}

#[test]
fn a_key_is_asked_for_everywhere_but_at_health() {
    let server = Server::with(ApiOptions { api_key: Some("secret".into()), ..ApiOptions::default() });
    let body = ping(json!({})).to_string();
    let chat = |headers: &str| server.send("POST", "/v1/chat/completions", headers, body.as_bytes());
    for headers in
        ["", "Authorization: Bearer wrong\r\n", "Authorization: secret\r\n", "Authorization: Bearer\r\n"]
    {
        let response = chat(headers);
        assert_eq!(response.status, 401, "{headers:?}");
        assert_eq!(response.json()["error"]["code"], "invalid_api_key");
        assert!(!response.body.contains("secret"));
    }
    let large = server.send("POST", "/v1/completions", "", &vec![b' '; 8 << 20]);
    assert_eq!(large.status, 401, "a client that sends all of a large body first learns of it");
    assert_eq!(chat("Authorization: Bearer secret\r\n").status, 200);
    assert_eq!(server.get("/v1/models").status, 401);
    assert_eq!(server.get("/metrics").status, 401);
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn unknown_paths_and_methods_are_errors_in_json() {
    let server = Server::start();
    let response = server.get("/v1/chat");
    assert_eq!((response.status, &response.json()["error"]["code"]), (404, &json!("unknown_url")));
    for (method, path) in [("GET", "/v1/chat/completions"), ("POST", "/v1/models"), ("DELETE", "/health")] {
        let response = server.send(method, path, "", b"");
        assert_eq!(response.status, 405, "{method} {path}");
        assert_eq!(response.json()["error"]["code"], "method_not_allowed");
        assert!(response.headers.contains("allow: "), "{}", response.headers);
    }
}

#[test]
fn the_content_type_does_not_matter() {
    let server = Server::start();
    server.answer("pong");
    let body = ping(json!({"enable_thinking": false})).to_string();
    let response =
        server.send("POST", "/v1/chat/completions", "Content-Type: text/plain\r\n", body.as_bytes());
    assert_eq!(response.answer(), "pong");
}

#[test]
fn a_body_that_is_too_large_is_refused_after_it_was_sent() {
    let server = Server::with(ApiOptions { max_body_bytes: 1000, ..ApiOptions::default() });
    let response = server.send("POST", "/v1/chat/completions", "", &vec![b' '; 1900]);
    assert_eq!((response.status, &response.json()["error"]["code"]), (413, &json!("request_too_large")));
    let message = response.json()["error"]["message"].to_string();
    assert!(message.contains("larger than the 1000 bytes") && message.contains("`--max-body`"), "{message}");
    assert_eq!(server.chat(&ping(json!({}))).status, 200, "a body within the limit passes");
}

#[test]
fn a_body_without_end_is_cut_off() {
    let server = Server::with(ApiOptions { max_body_bytes: 1000, ..ApiOptions::default() });
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let head = "POST /v1/completions HTTP/1.1\r\nHost: test\r\nContent-Length: 100000000000\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let start = Instant::now();
    while stream.write_all(&[b' '; 4096]).is_ok() {
        assert!(start.elapsed() < PATIENCE, "the server goes on reading");
    }
}

#[test]
fn a_shutdown_tells_those_who_wait_at_once_and_those_who_run_when_their_time_is_over() {
    let options = ApiOptions { shutdown_grace: Duration::from_millis(400), ..ApiOptions::default() };
    let server = Server::with(options.clone());
    let state = ds4_http_api::ApiState::new(server.engine.clone(), server.text.clone(), options);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let serving = runtime.spawn(ds4_http_api::serve(
        listener,
        state,
        async {
            let _ = stopped.await;
        },
        std::future::pending(),
    ));
    server.engine.push(vec![Action::WaitForCancel]);
    let ask = |body: serde_json::Value| {
        let (body, mut client) = (body.to_string(), TcpStream::connect(address).unwrap());
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = "POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\nContent-Length:";
        write!(client, "{head} {}\r\n\r\n{body}", body.len()).unwrap();
        client
    };
    let mut running = ask(ping(json!({"stream": true})));
    assert!(server.engine.wait_load(1, 0, PATIENCE));
    let mut waiting = ask(ping(json!({})));
    assert!(server.engine.wait_load(1, 1, PATIENCE));
    stop.send(()).unwrap();
    let asked = Instant::now();
    let mut refused = [0; 12];
    waiting.read_exact(&mut refused).unwrap();
    assert_eq!((&refused[..], asked.elapsed() < Duration::from_millis(300)), (&b"HTTP/1.1 503"[..], true));
    let mut told = String::new();
    running.read_to_string(&mut told).unwrap();
    assert!(
        told.contains("\"code\":\"shutting_down\"") && asked.elapsed() > Duration::from_millis(300),
        "{told}"
    );
    runtime.block_on(async { tokio::time::timeout(PATIENCE, serving).await }).unwrap().unwrap().unwrap();
    runtime.shutdown_background();
    assert!(server.engine.wait_ended(2, PATIENCE).is_some(), "and the requests are cancelled");
}
