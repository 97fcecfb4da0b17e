//! What a client reads of an answer, checked against the whole answer at once and against the template: an answer that
//! is rendered into the history and read back is the same answer.

mod demo;

use ds4_text::{ChatPrompt, Message, OutputOptions, Role, TextDelta, Thinking, ToolCall};
use proptest::prelude::*;
use serde_json::{Value, json};

const END_OF_TURN: u32 = 2;
const THINK: u32 = 3;
const THINK_END: u32 = 4;

/// An answer, read to its end.
#[derive(Debug, Default, PartialEq)]
struct Answer {
    reasoning: String,
    content: String,
    calls: Vec<(String, Value)>,
    stopped: Option<String>,
}

fn read(tokens: &[u32], options: OutputOptions) -> Answer {
    let mut stream = demo::text_model().output(options);
    let mut deltas: Vec<TextDelta> = tokens.iter().flat_map(|&token| stream.push(token)).collect();
    deltas.extend(stream.finish());
    assert_eq!(stream.finish(), [], "the end comes once");
    let mut answer = Answer { stopped: stream.stopped().map(str::to_string), ..Answer::default() };
    for delta in deltas {
        match delta {
            TextDelta::Reasoning(text) => answer.reasoning += &text,
            TextDelta::Content(text) => answer.content += &text,
            TextDelta::ToolCall(call) => {
                assert_eq!(call.index, answer.calls.len());
                let arguments = serde_json::from_str(&call.arguments).expect("arguments are JSON");
                answer.calls.push((call.name, arguments));
            }
        }
    }
    answer
}

fn plain(text: &str) -> Vec<u32> {
    demo::text_model().tokenizer().encode_plain(text).expect("any text can be encoded")
}

/// Tokens of a text in which added tokens count.
fn marked(text: &str) -> Vec<u32> {
    demo::text_model().tokenizer().encode_with_special(text).expect("any text can be encoded")
}

fn with_tools() -> OutputOptions {
    let parameters = json!({"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}});
    let tool = json!({"type": "function", "function": {"name": "weather", "parameters": parameters}});
    OutputOptions { tools: vec![tool], ..OutputOptions::default() }
}

const CALL: &str =
    "<tool_call>\n<function=weather>\n<parameter=city>\n12\n</parameter>\n</function>\n</tool_call>";

#[test]
fn reasoning_ends_at_the_token_and_not_at_its_letters() {
    let mut tokens = plain("The tag </think> closes it.\n");
    tokens.push(THINK_END);
    tokens.extend(plain("\n\nWrite </think>, then \n\n"));
    tokens.push(END_OF_TURN);
    let answer = read(&tokens, OutputOptions { in_reasoning: true, ..OutputOptions::default() });
    assert_eq!(answer.reasoning, "The tag </think> closes it.");
    assert_eq!(answer.content, "Write </think>, then \n\n");
}

#[test]
fn a_character_over_several_tokens_comes_whole() {
    let tokens = plain("🦭");
    assert!(tokens.len() > 1, "the demo vocabulary has no such token");
    let mut stream = demo::text_model().output(OutputOptions::default());
    let deltas: Vec<Vec<TextDelta>> = tokens.iter().map(|&token| stream.push(token)).collect();
    assert!(deltas[..tokens.len() - 1].iter().all(Vec::is_empty));
    assert_eq!(deltas[tokens.len() - 1], [TextDelta::Content("🦭".into())]);
    let answer = read(&tokens[..tokens.len() - 1], OutputOptions::default());
    assert_eq!(answer.content, "\u{fffd}", "a character that never gets finished is shown as broken");
}

#[test]
fn text_that_looks_like_a_marker_is_not_held() {
    let mut stream = demo::text_model().output(with_tools());
    for token in plain("<tool_call> <think> <|im_end|>") {
        assert_eq!(stream.push(token).len(), 1);
    }
}

#[test]
fn stop_strings_are_looked_for_in_the_content_only() {
    let tokens = marked("<think>\none STOP two\n</think>\n\nthree STOP four");
    let stop = vec!["STOP".to_string()];
    let answer = read(&tokens, OutputOptions { stop: stop.clone(), ..OutputOptions::default() });
    assert_eq!((answer.reasoning.as_str(), answer.content.as_str()), ("one STOP two", "three "));
    assert_eq!(answer.stopped.as_deref(), Some("STOP"));
    let raw = read(&tokens, OutputOptions { stop, raw: true, ..OutputOptions::default() });
    assert_eq!((raw.reasoning.as_str(), raw.content.as_str()), ("", "<think>\none "));
}

#[test]
fn calls_are_read_whole_and_typed_and_text_around_them_stays() {
    let answer = read(&marked(&format!("I look.\n\n{CALL}\n{CALL}")), with_tools());
    assert_eq!(answer.content, "I look.");
    assert_eq!(answer.calls, vec![("weather".to_string(), json!({"city": "12"})); 2]);
    let spaced = read(&marked(&format!("{CALL} \n\n\n {CALL}\n\n\n")), with_tools());
    assert_eq!((spaced.content.as_str(), spaced.calls.len()), ("", 2));
    let after = read(&marked(&format!("{CALL}\nDone.\n")), with_tools());
    assert_eq!((after.content.as_str(), after.calls.len()), ("\nDone.\n", 1));
}

#[test]
fn what_is_no_call_is_shown_as_it_came() {
    for text in [
        "Look:\n\n<tool_call>\n{\"name\": \"weather\"}\n</tool_call> end",
        "<tool_call></tool_call>",
        "cut <tool_call>\n<function=weather>\n<parameter=city>\nBe",
    ] {
        let answer = read(&marked(text), with_tools());
        assert_eq!((answer.content.as_str(), answer.calls.len()), (text, 0));
    }
    let offered_none = read(&marked(CALL), OutputOptions::default());
    assert_eq!((offered_none.content.as_str(), offered_none.calls.len()), (CALL, 0));
}

#[test]
fn a_whole_call_counts_even_if_the_closing_token_is_missing() {
    let answer = read(&marked(CALL.trim_end_matches("</tool_call>")), with_tools());
    assert_eq!(answer.calls.len(), 1);
}

#[test]
fn calls_inside_of_reasoning_are_thoughts() {
    let answer = read(&marked(CALL), OutputOptions { in_reasoning: true, ..with_tools() });
    assert_eq!((answer.reasoning.as_str(), answer.calls.len()), (CALL, 0));
}

#[test]
fn a_stop_string_before_a_call_ends_the_answer() {
    let answer =
        read(&marked(&format!("a STOP{CALL}")), OutputOptions { stop: vec!["OP".into()], ..with_tools() });
    assert_eq!((answer.content.as_str(), answer.calls.len()), ("a ST", 0));
    // Undecided until the marker: "abc" might come, so "b" waits.
    let stop = vec!["abc".to_string(), "b".to_string()];
    let late = read(&marked(&format!("ab{CALL}")), OutputOptions { stop, ..with_tools() });
    assert_eq!((late.content.as_str(), late.calls.len(), late.stopped.as_deref()), ("a", 0, Some("b")));
}

/// Bytes of tokens with a text of their own, decoded at once.
fn decode(tokens: &[u32]) -> String {
    let tokenizer = demo::text_model().tokenizer();
    let bytes: Vec<u8> = tokens
        .iter()
        .filter(|&&token| token > END_OF_TURN)
        .flat_map(|&token| tokenizer.token_bytes(token).unwrap_or_default())
        .copied()
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reasoning and content of a whole answer, and the stop string, from the rules in their plainest form.
fn oracle(tokens: &[u32], in_reasoning: bool, stops: &[String]) -> Answer {
    let mut answer = Answer::default();
    let (mut reasoning, mut run, mut skip) = (in_reasoning, String::new(), 0);
    let mut rest = tokens;
    loop {
        let end = rest.iter().position(|&token| token == THINK || token == THINK_END);
        run += &decode(&rest[..end.unwrap_or(rest.len())]);
        let marker = end.map(|end| rest[end]);
        let changes = marker.is_none_or(|marker| reasoning == (marker == THINK_END));
        if changes {
            for _ in 0..skip {
                run = run.strip_prefix('\n').unwrap_or(&run).to_string();
            }
            if reasoning {
                answer.reasoning +=
                    if marker.is_some() { run.strip_suffix('\n').unwrap_or(&run) } else { &run };
            } else {
                let (shown, stop) = before_stop(&run, stops);
                answer.content += shown;
                answer.stopped = stop.map(str::to_string);
            }
            (reasoning, skip, run) = (!reasoning, if reasoning { 2 } else { 1 }, String::new());
        }
        match end {
            Some(end) if answer.stopped.is_none() => rest = &rest[end + 1..],
            _ => return answer,
        }
    }
}

fn before_stop<'a, 'b>(text: &'a str, stops: &'b [String]) -> (&'a str, Option<&'b str>) {
    let found =
        stops.iter().enumerate().filter_map(|(rank, stop)| Some((text.find(stop.as_str())?, rank))).min();
    found.map_or((text, None), |(position, rank)| (&text[..position], Some(&stops[rank])))
}

/// Token sequences with many markers, newlines and broken characters.
fn tokens() -> impl Strategy<Value = Vec<u32>> {
    let newline = plain("\n")[0];
    let double = plain("\n\n")[0];
    let vocabulary = demo::text_model().tokenizer().vocabulary_size() as u32;
    let token = prop_oneof![
        2 => 0u32..9,
        2 => prop::sample::select(vec![newline, double]),
        // The byte alphabet comes first in the vocabulary.
        3 => 9u32..265,
        3 => 0..vocabulary + 3,
    ];
    prop::collection::vec(token, 0..40)
}

fn stops() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(prop_oneof!["[a-e\\n<]{1,3}", "[\\n]{1,3}", Just("</th".to_string())], 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn raw_answers_read_as_the_whole(tokens in tokens(), stop in stops()) {
        let answer = read(&tokens, OutputOptions { raw: true, in_reasoning: true, stop: stop.clone(), ..with_tools() });
        let whole = decode(&tokens);
        let (shown, stopped) = before_stop(&whole, &stop);
        prop_assert_eq!(answer.content.as_str(), shown);
        prop_assert_eq!(answer.stopped.as_deref(), stopped);
        prop_assert_eq!(answer.reasoning, "");
    }

    #[test]
    fn reasoning_and_content_read_as_the_whole(tokens in tokens(), in_reasoning: bool, stop in stops()) {
        let options = OutputOptions { in_reasoning, stop: stop.clone(), ..OutputOptions::default() };
        prop_assert_eq!(read(&tokens, options), oracle(&tokens, in_reasoning, &stop));
    }

    #[test]
    fn any_ids_with_everything_on_are_read_without_panic(
        tokens in prop::collection::vec(prop_oneof![5 => 0u32..9, 1 => any::<u32>(), 2 => 0u32..2000], 0..60),
        in_reasoning: bool,
        stop in stops(),
    ) {
        read(&tokens, OutputOptions { in_reasoning, stop, ..with_tools() });
    }

    #[test]
    fn an_answer_in_the_history_reads_back_the_same(
        reasoning in "[a-z<>/é🦭 \\n]{0,12}",
        content in "([a-z<>/é🦭 \\n]{0,12}[a-z])?",
        cities in prop::collection::vec("[a-z<>/&;é\"\\\\ \\n]{0,12}", 0..3),
        days: i64,
    ) {
        let calls: Vec<(String, Value)> =
            cities.iter().map(|city| ("weather".to_string(), json!({"city": city, "days": days}))).collect();
        let tool_calls = calls
            .iter()
            .map(|(name, arguments)| ToolCall { id: "1".into(), name: name.clone(), arguments: arguments.clone() })
            .collect();
        let question = Message::new(Role::User, "?");
        let answer = Message {
            reasoning_content: Some(reasoning.clone()),
            tool_calls,
            ..Message::new(Role::Assistant, content.clone())
        };
        let model = demo::text_model();
        let before = ChatPrompt { thinking: Thinking::On, ..ChatPrompt::new(vec![question.clone()]) };
        let prompt = model.render_chat(&before).unwrap();
        prop_assert!(prompt.in_reasoning);
        let whole =
            ChatPrompt { add_generation_prompt: false, messages: vec![question, answer], ..before };
        let history = answer_tokens(&model.render_chat(&whole).unwrap().tokens, prompt.tokens.len() - 1);
        let read_back = read(&history, OutputOptions { in_reasoning: true, ..with_tools() });
        prop_assert_eq!(read_back.reasoning, reasoning);
        prop_assert_eq!(read_back.content, content);
        prop_assert_eq!(read_back.calls, calls);
    }
}

/// The answer's tokens in a rendered conversation, from behind the newline that ends the prompt to the end of the turn.
/// That newline may have become one token with the first ones of the reasoning, so there the text is cut.
fn answer_tokens(tokens: &[u32], newline: usize) -> Vec<u32> {
    let (think_end, _) =
        tokens.iter().enumerate().rfind(|(_, token)| **token == THINK_END).expect("reasoning ends");
    let turn_end = tokens.iter().rposition(|&token| token == END_OF_TURN).expect("the turn ends");
    let reasoning = decode(&tokens[newline..think_end]);
    let mut answer = plain(reasoning.strip_prefix('\n').expect("a newline ends the prompt"));
    answer.extend(&tokens[think_end..=turn_end]);
    answer
}
