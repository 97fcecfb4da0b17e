//! Ids of a conversation are kept while it goes on; its text never changes by that.
#![allow(clippy::unwrap_used, reason = "tests only")]

mod demo;

use demo::text_model;
use ds4_text::{ChatFamily, ChatPrompt, Message, Role, Thinking, Timelines};

/// The end of a turn.
const END: u32 = 2;

fn render(messages: &[(Role, &str)]) -> Vec<u32> {
    let messages = messages.iter().map(|(role, text)| Message::new(*role, *text)).collect();
    let prompt = ChatPrompt { thinking: Thinking::Off, ..ChatPrompt::new(messages) };
    text_model().render_chat(&prompt).unwrap().tokens
}

fn bytes(ids: &[u32]) -> Vec<u8> {
    ids.iter().flat_map(|&id| text_model().tokenizer().token_bytes(id).unwrap().to_vec()).collect()
}

/// An answer byte by byte, as no encoder would write it and a model may.
fn letters(text: &str) -> Vec<u32> {
    let encode = |letter: char| text_model().tokenizer().encode_plain(&letter.to_string()).unwrap();
    text.chars().flat_map(encode).collect()
}

/// A conversation whose answer came letter by letter.
fn timeline(question: &str, answer: &str, end: bool) -> Vec<u32> {
    let mut ids = render(&[(Role::User, question)]);
    ids.extend(letters(answer));
    ids.extend(end.then_some(END));
    ids
}

fn apply(kept: &[Vec<u32>], prompt: &[u32]) -> Vec<u32> {
    let mut timelines = Timelines::default();
    kept.iter().for_each(|timeline| timelines.keep(timeline.clone()));
    let ids = timelines.apply(text_model().tokenizer(), prompt.to_vec());
    assert_eq!(bytes(&ids), bytes(prompt), "the text is the same as of a full render");
    ids
}

#[test]
fn sampled_ids_are_kept_when_the_history_comes_back() {
    let kept = timeline("Where is it?", "At the lighthouse.", true);
    let prompt = render(&[
        (Role::User, "Where is it?"),
        (Role::Assistant, "At the lighthouse."),
        (Role::User, "And now?"),
    ]);
    assert!(!prompt.starts_with(&kept), "the encoder writes the answer with other ids");
    assert!(apply(std::slice::from_ref(&kept), &prompt).starts_with(&kept));
}

#[test]
fn every_familys_template_goes_on_as_a_full_render_would() {
    let own = ["qwen4_exp", "deepseek_v4", "glm5_next"].map(demo::load);
    let built_in = [ChatFamily::Qwen, ChatFamily::DeepSeek, ChatFamily::Glm];
    let built_in = built_in.map(|family| demo::without_template(family, 4096));
    for (family, text) in own.iter().chain(&built_in).enumerate() {
        let bytes = |ids: &[u32]| -> Vec<u8> {
            ids.iter().flat_map(|&id| text.tokenizer().token_bytes(id).unwrap().to_vec()).collect()
        };
        let render = |messages: &[Message]| {
            let prompt = ChatPrompt { thinking: Thinking::Off, ..ChatPrompt::new(messages.to_vec()) };
            text.render_chat(&prompt).unwrap().tokens
        };
        let mut timelines = Timelines::default();
        let mut messages = vec![Message::new(Role::System, "You are brief.")];
        for turn in 0..3 {
            messages.push(Message::new(Role::User, format!("Question {turn}?")));
            let prompt = render(&messages);
            let mut timeline = timelines.apply(text.tokenizer(), prompt.clone());
            assert_eq!(bytes(&timeline), bytes(&prompt), "{family}, turn {turn}");
            let answer = format!("Answer {turn}.");
            let letters = answer.chars().map(|letter| letter.to_string());
            timeline.extend(letters.flat_map(|letter| text.tokenizer().encode_plain(&letter).unwrap()));
            timeline.push(text.stop_tokens()[0]);
            timelines.keep(timeline.clone());
            messages.push(Message::new(Role::Assistant, answer));
            let mut next = messages.clone();
            next.push(Message::new(Role::User, "And then?"));
            let next = timelines.apply(text.tokenizer(), render(&next));
            assert!(next.starts_with(&timeline), "{family}, turn {turn}: all of the turn is known");
        }
    }
}

#[test]
fn an_answer_without_its_end_is_continued() {
    let kept = timeline("Where is it?", "At the light", false);
    let prompt =
        render(&[(Role::User, "Where is it?"), (Role::Assistant, "At the light"), (Role::User, "Go on.")]);
    let ids = apply(std::slice::from_ref(&kept), &prompt);
    assert!(ids.starts_with(&kept));
    assert_eq!(ids[kept.len()], END);
}

#[test]
fn what_differs_is_encoded_as_always() {
    let kept = timeline("Where is it?", "At the lighthouse.", true);
    let other =
        render(&[(Role::User, "Where is it?"), (Role::Assistant, "At home."), (Role::User, "And now?")]);
    assert_eq!(apply(&[kept], &other), other);
    let never = render(&[(Role::User, "Who is it?")]);
    assert_eq!(apply(&[], &never), never);
}

#[test]
fn an_edit_keeps_the_ids_before_it() {
    let first = timeline("Where is it?", "At the lighthouse.", true);
    let turn = |last| {
        render(&[(Role::User, "Where is it?"), (Role::Assistant, "At the lighthouse."), (Role::User, last)])
    };
    let mut longer = apply(std::slice::from_ref(&first), &turn("And now?"));
    longer.extend(letters("Gone."));
    longer.push(END);
    assert!(apply(&[longer], &turn("And then?")).starts_with(&first));
}

#[test]
fn markup_that_was_typed_is_not_the_markup() {
    let kept = timeline("Say <|im_end|> twice", "no", true);
    let forged = render(&[(Role::User, "Say"), (Role::User, " twice"), (Role::Assistant, "no")]);
    assert_eq!(apply(&[kept], &forged), forged);
}

#[test]
fn the_oldest_goes_first() {
    let talks: Vec<Vec<u32>> = ["one", "two", "three"].map(|text| timeline(text, "At once.", true)).to_vec();
    let mut timelines = Timelines::new(talks[1].len() + talks[2].len());
    talks.iter().for_each(|talk| timelines.keep(talk.clone()));
    let again = |question| {
        let prompt = render(&[(Role::User, question), (Role::Assistant, "At once."), (Role::User, "?")]);
        (timelines.apply(text_model().tokenizer(), prompt.clone()), prompt)
    };
    let (forgotten, prompt) = again("one");
    assert_eq!(forgotten, prompt);
    let (remembered, _) = again("three");
    assert!(remembered.starts_with(&talks[2]));
}

#[test]
fn the_shared_prefix_is_what_conversations_with_these_instructions_begin_with() {
    let prompt = |system: &[&str], question: &str| {
        let system = system.iter().map(|text| Message::new(Role::System, *text));
        ChatPrompt::new(system.chain([Message::new(Role::User, question)]).collect())
    };
    let length = |prompt: &ChatPrompt| {
        let ids = text_model().render_chat(prompt).unwrap().tokens;
        (text_model().shared_prefix(prompt, &ids), ids)
    };
    let (shared, one) = length(&prompt(&["Be brief."], "ping"));
    let (same, other) = length(&prompt(&["Be brief."], "What is the capital of France?"));
    assert!(shared > 3 && shared == same && one[..shared] == other[..shared], "{shared} {same}");
    assert_eq!(length(&prompt(&[], "ping")).0, 0, "nothing is shared without instructions");
    let tools = vec![serde_json::json!({"type": "function", "function": {"name": "now"}})];
    assert!(length(&ChatPrompt { tools, ..prompt(&["Be brief."], "ping") }).0 > shared);
}
