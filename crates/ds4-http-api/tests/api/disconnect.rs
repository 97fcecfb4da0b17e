//! A client that goes away ends its request, wherever that is, and the next one is served.

use std::net::{Shutdown, TcpStream};

use ds4_engine_api::FinishReason;
use ds4_testkit::fake_engine::{Action, tokens};
use serde_json::json;

use crate::support::{PATIENCE, Server, ping, read_until};

fn assert_next_is_served(server: &Server) {
    server.answer("pong");
    assert_eq!(server.chat(&ping(json!({"enable_thinking": false}))).answer(), "pong");
}

fn assert_cancelled(server: &Server, started: bool) {
    let ended = server.engine.wait_ended(1, PATIENCE).expect("the engine is told");
    assert_eq!(ended[0].outcome, Ok(FinishReason::Cancelled));
    assert_eq!(ended[0].started, started);
}

#[test]
fn in_prefill() {
    for stream in [true, false] {
        let server = Server::start();
        server.engine.push(vec![Action::Prefill { done: 1, total: 9 }, Action::WaitForCancel]);
        let client = server.open_chat(&ping(json!({"stream": stream})));
        assert!(server.engine.wait_load(1, 0, PATIENCE));
        drop(client);
        assert_cancelled(&server, true);
        assert_next_is_served(&server);
    }
}

#[test]
fn in_the_middle_of_an_answer() {
    let server = Server::start();
    let mut script = tokens(&server.encode("Once upon"));
    script.push(Action::WaitForCancel);
    server.engine.push(script);
    let client = server.open_chat(&ping(json!({"stream": true})));
    assert!(read_until(&client, "data: ").is_some());
    drop(client);
    assert_cancelled(&server, true);
    assert_next_is_served(&server);
}

#[test]
fn in_the_queue() {
    for stream in [true, false] {
        let server = Server::start();
        server.engine.push(vec![Action::WaitForCancel]);
        let first = server.open_chat(&ping(json!({})));
        assert!(server.engine.wait_load(1, 0, PATIENCE));
        let second = server.open_chat(&ping(json!({"stream": stream})));
        assert!(server.engine.wait_load(1, 1, PATIENCE));
        drop(second);
        assert_cancelled(&server, false);
        drop(first);
        assert!(server.engine.wait_load(0, 0, PATIENCE));
    }
}

#[test]
fn a_client_that_closes_its_sending_side_counts_as_gone() {
    let server = Server::start();
    server.engine.push(vec![Action::WaitForCancel]);
    let client: TcpStream = server.open_chat(&ping(json!({"stream": true})));
    assert!(server.engine.wait_load(1, 0, PATIENCE));
    client.shutdown(Shutdown::Write).unwrap();
    assert_cancelled(&server, true);
    assert_next_is_served(&server);
}
