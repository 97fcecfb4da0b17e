//! Loading a checkpoint's text files: what counts, where it comes from, and what is said when it is wrong.

mod demo;

use ds4_text::{
    ChatFamily, ChatPrompt, GenerationDefaults, Message, Role, TextError, TextModel, TextSources, Thinking,
};
use serde_json::json;

/// A byte-level tokenizer of a few tokens, in which an added token is an ordinary entry too and a merge leads to it.
fn small_tokenizer() -> Vec<u8> {
    let mut vocabulary = serde_json::Map::new();
    for (id, token) in ["a", "b", "ab", "<e>", "<", "e", ">", "<e"].iter().enumerate() {
        vocabulary.insert(token.to_string(), json!(id));
    }
    json!({
        "version": "1.0",
        "added_tokens": [{"id": 3, "content": "<e>", "single_word": false, "lstrip": false, "rstrip": false,
                          "normalized": false, "special": true}],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": [["a", "b"], ["<", "e"], ["<e", ">"]]},
    })
    .to_string()
    .into_bytes()
}

fn sources(tokenizer_json: &[u8]) -> TextSources<'_> {
    TextSources {
        tokenizer_json,
        tokenizer_config: None,
        chat_template: None,
        generation_config: None,
        config_eos: &[],
        family: ChatFamily::Qwen,
        context: 4096,
    }
}

fn hello() -> ChatPrompt {
    ChatPrompt::new(vec![Message::new(Role::User, "ab")])
}

fn load_error(sources: &TextSources<'_>) -> TextError {
    TextModel::load(sources).err().expect("these files do not load")
}

#[test]
fn the_demo_names_its_stop_tokens_and_defaults() {
    let model = demo::text_model();
    assert_eq!(model.stop_tokens(), [2, 0]);
    let expected = GenerationDefaults {
        temperature: 0.7,
        top_p: 0.9,
        max_new_tokens: Some(512),
        ..ChatFamily::Qwen.generation_defaults()
    };
    assert_eq!(model.defaults(), &expected);
    assert_eq!(model.tokenizer().id_of("<|im_end|>"), Some(2));
    assert_eq!(model.tokenizer().token_text(2).as_deref(), Some("<|im_end|>"));
    assert_eq!(model.tokenizer().token_bytes(u32::MAX), None);
}

#[test]
fn stop_tokens_are_united_from_all_files_and_never_guessed() {
    let json = small_tokenizer();
    let bare = TextModel::load(&sources(&json)).unwrap();
    assert_eq!(bare.stop_tokens(), [0; 0]);
    let model = TextModel::load(&TextSources {
        generation_config: Some(b"{\"eos_token_id\": [1, 0]}"),
        tokenizer_config: Some(b"{\"eos_token\": \"<e>\"}"),
        config_eos: &[0, 2],
        ..sources(&json)
    })
    .unwrap();
    assert_eq!(model.stop_tokens(), [1, 0, 2, 3]);
}

#[test]
fn the_template_file_counts_before_the_one_in_the_config() {
    let json = small_tokenizer();
    let config = br#"{"bos_token": "<e>", "chat_template": "{{ bos_token }}b{{ messages[0].content }}"}"#;
    let in_config = TextSources { tokenizer_config: Some(config), ..sources(&json) };
    let rendered = TextModel::load(&in_config).unwrap().render_chat(&hello()).unwrap();
    assert_eq!((rendered.text.as_str(), rendered.tokens.as_slice()), ("<e>bab", &[3, 1, 2][..]));
    let both = TextSources { chat_template: Some("a"), ..in_config };
    assert_eq!(TextModel::load(&both).unwrap().render_chat(&hello()).unwrap().tokens, [0]);
}

#[test]
fn a_merge_cannot_lead_to_an_added_token() {
    let json = small_tokenizer();
    let model = TextModel::load(&sources(&json)).unwrap();
    assert_eq!(model.tokenizer().encode_plain("a<e>b").unwrap(), [0, 4, 5, 6, 1]);
    assert_eq!(model.tokenizer().encode_with_special("a<e>b").unwrap(), [0, 3, 1]);
}

#[test]
fn broken_files_are_named() {
    let json = small_tokenizer();
    assert!(matches!(load_error(&sources(b"{}")), TextError::InvalidTokenizer { .. }));
    assert!(matches!(load_error(&sources(&json[..json.len() / 2])), TextError::InvalidTokenizer { .. }));
    let word_level = String::from_utf8(json.clone()).unwrap().replace(
        r#""decoder":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}"#,
        r#""decoder":null"#,
    );
    assert!(matches!(load_error(&sources(word_level.as_bytes())), TextError::NotByteLevel));
    let config = TextSources { tokenizer_config: Some(b"["), ..sources(&json) };
    assert!(load_error(&config).to_string().starts_with("tokenizer_config.json cannot be parsed"));
    let generation = TextSources { generation_config: Some(b"{\"top_k\": -1}"), ..sources(&json) };
    assert!(load_error(&generation).to_string().starts_with("generation_config.json cannot be parsed"));
    let template = TextSources { chat_template: Some("a\n{% if %}"), ..sources(&json) };
    assert!(matches!(load_error(&template), TextError::TemplateSyntax { line: Some(2), .. }));
}

#[test]
fn a_conversation_that_cannot_be_rendered_says_why() {
    let json = small_tokenizer();
    let render = |template: &str, prompt: &ChatPrompt| {
        let model =
            TextModel::load(&TextSources { chat_template: Some(template), ..sources(&json) }).unwrap();
        model.render_chat(prompt).unwrap_err()
    };
    let no_template = TextModel::load(&sources(&json)).unwrap().render_chat(&hello()).unwrap_err();
    assert!(matches!(no_template, TextError::NoChatTemplate { missing: "<|im_start|>" }));
    let raised = render("{{ raise_exception('no ' + messages[0].role) }}", &hello());
    assert_eq!(raised.to_string(), "the chat template refuses this conversation: no user");
    let mut prompt = hello();
    prompt.template_kwargs.insert("messages".into(), json!([]));
    assert!(matches!(render("a", &prompt), TextError::ReservedTemplateArgument { .. }));
    prompt.template_kwargs = serde_json::Map::from_iter([("reasoning_effort".into(), json!("extreme"))]);
    assert!(matches!(render("a", &prompt), TextError::UnknownThinkingLevel { .. }));
    prompt.thinking = Thinking::Off;
    assert!(matches!(render("{{ x.y }}", &prompt), TextError::TemplateFailed { line: Some(1), .. }));
    assert!(matches!("robot".parse::<Role>(), Err(TextError::UnsupportedRole { .. })));
}

#[test]
fn thinking_reaches_the_template_only_as_far_as_it_was_asked_for() {
    let json = small_tokenizer();
    let template = "{{ enable_thinking is defined and enable_thinking }} {{ reasoning_effort is defined and reasoning_effort }}";
    let model = TextModel::load(&TextSources { chat_template: Some(template), ..sources(&json) }).unwrap();
    let render = |thinking: Thinking, kwargs: serde_json::Value| {
        let kwargs = kwargs.as_object().unwrap().clone();
        model
            .render_chat(&ChatPrompt { thinking, template_kwargs: kwargs, ..hello() })
            .map(|prompt| prompt.text)
    };
    let medium = "medium".parse::<Thinking>().unwrap();
    assert_eq!(render(Thinking::Default, json!({})).unwrap(), "False False");
    assert_eq!(render(Thinking::On, json!({})).unwrap(), "True False");
    assert_eq!(
        render(medium, json!({"reasoning_effort": "low", "enable_thinking": false})).unwrap(),
        "True medium"
    );
    assert_eq!(render(Thinking::Default, json!({"reasoning_effort": "high"})).unwrap(), "True xhigh");
    assert_eq!(
        render(Thinking::Default, json!({"reasoning_effort": "low", "enable_thinking": false})).unwrap(),
        "False low"
    );
    assert_eq!(render(Thinking::Off, json!({"enable_thinking": true})).unwrap(), "False False");
    assert!(matches!(
        render(Thinking::Default, json!({"reasoning_effort": 3})),
        Err(TextError::UnknownThinkingLevel { word }) if word == "3"
    ));
}
