//! Serves a scripted engine with the demo model's tokenizer and template, to try clients against the API without a
//! model: `cargo run -p ds4-http-api --example fake_server -- 127.0.0.1:8123 [API_KEY]`.
//!
//! It answers `pong`, after a short thought unless the prompt switched thinking off, and calls the first tool that it is
//! offered, unless the conversation has a tool's result already. A completion gets a text of 40 tokens.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ds4_engine_api::{Engine, GenerateRequest, ModelInfo};
use ds4_http_api::{ApiOptions, ApiState, serve};
use ds4_testkit::fake_engine::{Action, FakeEngine, Script};
use ds4_text::{ChatFamily, TextModel, TextSources, Tokenizer};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:8123".into());
    let text = Arc::new(demo_text()?);
    let engine = Arc::new(FakeEngine::new(model(), 16));
    let reader = Arc::clone(&text);
    engine.respond_with(Box::new(move |request| script(reader.tokenizer(), request)));
    let options = ApiOptions { api_key: arguments.next(), ..ApiOptions::default() };
    let listener = tokio::net::TcpListener::bind(address).await?;
    let state = ApiState::new(engine as Arc<dyn Engine>, text, options);
    serve(
        listener,
        state,
        async {
            let _ = tokio::signal::ctrl_c().await;
        },
        std::future::pending(),
    )
    .await?;
    Ok(())
}

fn script(tokenizer: &Tokenizer, request: &GenerateRequest) -> Script {
    let bytes: Vec<u8> = request
        .prompt
        .iter()
        .flat_map(|&id| tokenizer.token_bytes(id).unwrap_or_default().to_vec())
        .collect();
    let prompt = String::from_utf8_lossy(&bytes);
    let answer = if !prompt.contains("<|im_start|>") {
        " lighthouse".repeat(40)
    } else if prompt.contains("<tools>") && !prompt.contains("<tool_response>") {
        let name =
            prompt.split("\"name\": \"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or("none");
        format!(
            "<tool_call>\n<function={name}>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>"
        )
    } else {
        "pong".to_owned()
    };
    let thought = if prompt.ends_with("<think>\n") { "The usual reply is pong.\n</think>\n\n" } else { "" };
    let ids = tokenizer.encode_with_special(&format!("{thought}{answer}<|im_end|>")).unwrap_or_default();
    ids.into_iter().flat_map(|id| [Action::Sleep(Duration::from_millis(2)), Action::Pass(vec![id])]).collect()
}

fn model() -> ModelInfo {
    ModelInfo {
        id: "demo".into(),
        model_type: "qwen4_exp".into(),
        parameters: 8_300_000,
        weight_bytes: 16_600_000,
        vocabulary: 4096,
        context: 4096,
        loaded_at: 1_700_000_000,
    }
}

fn demo_text() -> Result<TextModel, Box<dyn std::error::Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo/qwen4_exp");
    let template = std::fs::read_to_string(folder.join("chat_template.jinja"))?;
    Ok(TextModel::load(&TextSources {
        tokenizer_json: &std::fs::read(folder.join("tokenizer.json"))?,
        tokenizer_config: Some(&std::fs::read(folder.join("tokenizer_config.json"))?),
        chat_template: Some(&template),
        generation_config: Some(&std::fs::read(folder.join("generation_config.json"))?),
        config_eos: &[],
        family: ChatFamily::Qwen,
        context: 4096,
    })?)
}
