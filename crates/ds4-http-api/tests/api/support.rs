//! A server on a free port with a scripted engine, and an HTTP/1.1 client of a few lines.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ds4_engine_api::{Engine, GenerateRequest, ModelInfo};
use ds4_http_api::{ApiOptions, ApiState, serve};
use ds4_testkit::fake_engine::{Action, FakeEngine, Script, passes};
use ds4_text::{ChatFamily, TextModel, TextSources};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

/// Long enough for a loaded machine; nothing waits that long when it works.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// End of a turn of the demo model.
pub(crate) const END: u32 = 2;
pub(crate) const THINK_END: u32 = 4;
pub(crate) const CONTEXT: usize = 512;

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) engine: Arc<FakeEngine>,
    pub(crate) text: Arc<TextModel>,
    /// Dropping it ends the server.
    _runtime: Runtime,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::with(ApiOptions::default())
    }

    pub(crate) fn with(options: ApiOptions) -> Self {
        let engine = Arc::new(FakeEngine::new(model(), 2));
        let text = Arc::new(demo_text());
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let state = ApiState::new(Arc::clone(&engine) as Arc<dyn Engine>, Arc::clone(&text), options);
        runtime.spawn(serve(listener, state, std::future::pending(), std::future::pending()));
        Self { address, engine, text, _runtime: runtime }
    }

    /// Ids of ordinary text.
    pub(crate) fn encode(&self, text: &str) -> Vec<u32> {
        self.text.tokenizer().encode_plain(text).unwrap()
    }

    /// A script that writes `text` in which added tokens mean what they spell, and ends the turn.
    pub(crate) fn answer(&self, text: &str) {
        self.answer_in_passes(text, 1);
    }

    /// The same in passes of so many tokens each.
    pub(crate) fn answer_in_passes(&self, text: &str, size: usize) {
        let mut ids = self.text.tokenizer().encode_with_special(text).unwrap();
        ids.push(END);
        self.engine.push(passes(&ids, size));
    }

    /// The text of a prompt that the engine got.
    pub(crate) fn decode(&self, ids: &[u32]) -> String {
        let bytes: Vec<u8> =
            ids.iter().flat_map(|&id| self.text.tokenizer().token_bytes(id).unwrap().to_vec()).collect();
        String::from_utf8(bytes).unwrap()
    }

    /// The request that the engine got last.
    pub(crate) fn last_request(&self, count: usize) -> GenerateRequest {
        self.engine.wait_ended(count, PATIENCE).unwrap().pop().unwrap().request
    }

    pub(crate) fn get(&self, path: &str) -> Response {
        self.send("GET", path, "", b"")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Response {
        self.send("POST", path, "Content-Type: application/json\r\n", body.to_string().as_bytes())
    }

    pub(crate) fn chat(&self, body: &Value) -> Response {
        self.post("/v1/chat/completions", body)
    }

    pub(crate) fn send(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Response {
        let mut stream = self.open(method, path, &format!("Connection: close\r\n{headers}"), body);
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        Response::parse(&bytes)
    }

    /// Sends a request and leaves the response to the caller.
    pub(crate) fn open(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let length = body.len();
        let head =
            format!("{method} {path} HTTP/1.1\r\nHost: test\r\n{headers}Content-Length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        stream
    }

    /// Sends a chat request and leaves the response to the caller.
    pub(crate) fn open_chat(&self, body: &Value) -> TcpStream {
        self.open("POST", "/v1/chat/completions", "", body.to_string().as_bytes())
    }
}

/// One user message, with further members.
pub(crate) fn ping(more: Value) -> Value {
    let mut body = json!({"model": "demo", "messages": [{"role": "user", "content": "ping"}]});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// Tokens with a pause before each.
pub(crate) fn slowly(ids: &[u32], pause: Duration) -> Script {
    ids.iter().flat_map(|&id| [Action::Sleep(pause), Action::Pass(vec![id])]).collect()
}

/// Reads lines of a stream until one begins with `start`; `None` if the stream ends before.
pub(crate) fn read_until(stream: &TcpStream, start: &str) -> Option<String> {
    BufReader::new(stream).lines().map_while(Result::ok).find(|line| line.starts_with(start))
}

pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: String,
    pub(crate) body: String,
}

impl Response {
    fn parse(bytes: &[u8]) -> Self {
        let split =
            bytes.windows(4).position(|window| window == b"\r\n\r\n").expect("a response with headers");
        let headers = String::from_utf8(bytes[..split].to_vec()).unwrap().to_lowercase();
        let mut body = bytes[split + 4..].to_vec();
        if headers.contains("transfer-encoding: chunked") {
            body = unchunk(&body);
        }
        let status = headers.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, headers, body: String::from_utf8(body).unwrap() }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The answer of a chat completion, or the text of a completion.
    pub(crate) fn answer(&self) -> String {
        let choice = self.json()["choices"][0].clone();
        let text = if choice["text"].is_string() { &choice["text"] } else { &choice["message"]["content"] };
        text.as_str().unwrap_or_else(|| panic!("no text in {}", self.body)).to_owned()
    }

    /// The events of a stream: data as it was sent, `# ` before comments, `! ` before event names.
    pub(crate) fn events(&self) -> Vec<String> {
        assert!(self.headers.contains("content-type: text/event-stream"), "{}", self.headers);
        assert!(self.body.ends_with("\n\n"), "the last event is whole");
        let line = |line: &str| match line.split_once(": ") {
            Some(("data", data)) => data.to_owned(),
            Some(("", comment)) => format!("# {comment}"),
            Some(("event", name)) => format!("! {name}"),
            _ => panic!("not a line of an event: {line:?}"),
        };
        self.body.split("\n\n").flat_map(str::lines).map(line).collect()
    }

    /// The chunks of a stream that ended normally.
    pub(crate) fn chunks(&self) -> Vec<Value> {
        let mut events = self.events();
        assert_eq!(events.pop().as_deref(), Some("[DONE]"));
        events.iter().map(|data| serde_json::from_str(data).unwrap()).collect()
    }

    /// All `content` of a stream's chunks, or all `text`.
    pub(crate) fn streamed_text(&self) -> String {
        self.chunks()
            .iter()
            .map(|chunk| {
                let choice = &chunk["choices"][0];
                choice["delta"]["content"].as_str().or(choice["text"].as_str()).unwrap_or_default().to_owned()
            })
            .collect()
    }
}

fn unchunk(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    loop {
        let line = body.windows(2).position(|window| window == b"\r\n").expect("a chunk's size");
        let size = usize::from_str_radix(std::str::from_utf8(&body[..line]).unwrap(), 16).unwrap();
        if size == 0 {
            return whole;
        }
        whole.extend_from_slice(&body[line + 2..line + 2 + size]);
        body = &body[line + 2 + size + 2..];
    }
}

fn model() -> ModelInfo {
    ModelInfo {
        id: "demo".into(),
        model_type: "qwen4_exp".into(),
        parameters: 8_300_000,
        weight_bytes: 16_600_000,
        vocabulary: 4096,
        context: CONTEXT,
        loaded_at: 1_700_000_000,
    }
}

fn demo_text() -> TextModel {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo/qwen4_exp");
    let read = |name: &str| std::fs::read(folder.join(name)).unwrap();
    let template = String::from_utf8(read("chat_template.jinja")).unwrap();
    TextModel::load(&TextSources {
        tokenizer_json: &read("tokenizer.json"),
        tokenizer_config: Some(&read("tokenizer_config.json")),
        chat_template: Some(&template),
        generation_config: Some(&read("generation_config.json")),
        config_eos: &[],
        family: ChatFamily::Qwen,
        context: CONTEXT,
    })
    .unwrap()
}
