//! States between requests, on the demo model: what is reused, that answers stay equal to those of a cold engine, and
//! that states survive a restart.
#![allow(clippy::unwrap_used, reason = "tests only")]

mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ds4_engine::{DiskOptions, LocalEngine, RequestLimits, SessionOptions};
use ds4_engine_api::{Engine, Event, GenerateRequest, SamplingParams, SessionUse, Speculation};
use ds4_session_store::{Fingerprint, Fingerprints, Store, StoreOptions};

use support::{demo_engine, submit, tokens};

fn engine(sessions: SessionOptions) -> LocalEngine {
    demo_engine("qwen4_exp", RequestLimits { parallel: 4, waiting: 4, caches: None }, sessions)
}

fn warm() -> LocalEngine {
    engine(SessionOptions { memory_bytes: 1 << 30, disk: None })
}

fn on_disk(folder: &Path) -> LocalEngine {
    on_disk_with(folder, 1 << 30)
}

fn on_disk_with(folder: &Path, memory_bytes: u64) -> LocalEngine {
    let options = StoreOptions { free_floor: 0, ..StoreOptions::default() };
    let of = |name: &str| Fingerprint::of(name.as_bytes());
    let fingerprints = Fingerprints { model: of("demo"), template: of("template"), settings: of("settings") };
    let store = Arc::new(Store::open(folder, options).unwrap());
    engine(SessionOptions { memory_bytes, disk: Some(DiskOptions { store, fingerprints }) })
}

#[derive(Debug, Default, PartialEq)]
struct Answer {
    tokens: Vec<u32>,
    cached: usize,
    miss: Option<String>,
    session: String,
}

fn request(prompt: &[u32], max_tokens: usize) -> GenerateRequest {
    GenerateRequest {
        prompt: prompt.to_vec(),
        sampling: SamplingParams::default(),
        max_tokens,
        stop_tokens: vec![2],
        logprobs: None,
        speculation: Speculation::default(),
        session: SessionUse::default(),
        shared_prefix: 0,
    }
}

/// Runs a request; cancels it after `cancel_after` tokens.
fn run(engine: &LocalEngine, request: GenerateRequest, cancel_after: usize) -> Answer {
    let (cancel, events) = submit(engine, request);
    let mut answer = Answer::default();
    for event in events {
        match event {
            Event::Started { cached_tokens, miss, session, .. } => {
                (answer.cached, answer.miss, answer.session) = (cached_tokens, miss, session);
            }
            Event::Tokens(_) => {
                answer.tokens.extend(event.token_ids());
                if answer.tokens.len() >= cancel_after {
                    cancel.cancel();
                }
            }
            Event::Failed(error) => panic!("{error}"),
            Event::Queued { .. } | Event::Prefill { .. } | Event::Finished { .. } => {}
        }
    }
    answer
}

fn ask(engine: &LocalEngine, prompt: &[u32], max_tokens: usize) -> Answer {
    run(engine, request(prompt, max_tokens), usize::MAX)
}

#[test]
fn the_next_turn_prefills_only_what_is_new() {
    let (engine, cold) = (warm(), engine(SessionOptions::default()));
    let mut timeline = tokens(1, 300);
    let mut session = String::new();
    for turn in 0..6 {
        let answer = ask(&engine, &timeline, 20);
        let expected = ask(&cold, &timeline, 20);
        assert_eq!(answer.tokens, expected.tokens, "turn {turn}");
        assert_eq!(expected.miss.as_deref(), Some("disabled"));
        if turn == 0 {
            assert_eq!((answer.cached, answer.miss.as_deref()), (0, Some("new_session")));
            session = answer.session;
        } else {
            // All but the last sampled token and the new turn.
            assert!(
                answer.cached >= timeline.len() - 13,
                "turn {turn}: {} of {}",
                answer.cached,
                timeline.len()
            );
            assert_eq!((answer.session, answer.miss), (session.clone(), None));
        }
        timeline.extend(answer.tokens);
        timeline.extend(tokens(100 + turn, 12));
    }
    assert!(engine.status().cached_tokens > 1500);
}

#[test]
fn the_same_request_again_runs_one_token_and_gives_the_same_answer() {
    let engine = warm();
    let prompt = tokens(2, 700);
    let first = ask(&engine, &prompt, 30);
    let again = ask(&engine, &prompt, 30);
    assert_eq!((again.tokens, again.cached), (first.tokens, prompt.len() - 1));
}

#[test]
fn a_prompt_is_saved_whose_answer_may_come_back_changed() {
    for saves_prompt in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let prompt = tokens(21, 300);
        let session = SessionUse { saves_prompt, ..SessionUse::default() };
        let first = GenerateRequest { session, ..request(&prompt, 20) };
        run(&on_disk(folder.path()), first, usize::MAX);
        // As if the answer had lost its reasoning on the way.
        let next = [&prompt[..], &tokens(22, 10)].concat();
        let after = ask(&on_disk(folder.path()), &next, 1);
        assert_eq!(after.cached, if saves_prompt { 299 } else { 0 });
    }
}

#[test]
fn what_has_no_room_in_memory_is_saved_all_the_same() {
    for memory_bytes in [0, 1, 1 << 30] {
        let folder = tempfile::tempdir().unwrap();
        let prompt = tokens(23, 700);
        let session = SessionUse { saves_prompt: true, ..SessionUse::default() };
        let first = GenerateRequest { session, shared_prefix: 400, ..request(&prompt, 5) };
        run(&on_disk_with(folder.path(), memory_bytes), first, usize::MAX);
        let engine = on_disk_with(folder.path(), memory_bytes);
        assert_eq!(ask(&engine, &[&prompt[..], &tokens(24, 10)].concat(), 1).cached, 699, "{memory_bytes}");
        assert_eq!(
            ask(&engine, &[&prompt[..400], &tokens(25, 10)].concat(), 1).cached,
            400,
            "{memory_bytes}"
        );
    }
}

#[test]
fn an_edited_message_reuses_the_state_before_it() {
    let (engine, cold) = (warm(), engine(SessionOptions::default()));
    let mut prompt = tokens(3, 900);
    ask(&engine, &prompt, 5);
    prompt.truncate(800);
    prompt.extend(tokens(4, 60));
    let edited = ask(&engine, &prompt, 20);
    assert!((512..=800).contains(&edited.cached), "{}", edited.cached);
    assert_eq!(edited.tokens, ask(&cold, &prompt, 20).tokens);
    let other = ask(&engine, &tokens(5, 50), 3);
    assert_eq!((other.cached, other.miss.as_deref()), (0, Some("new_session")));
}

#[test]
fn a_shared_prefix_serves_other_sessions() {
    let (engine, cold) = (warm(), engine(SessionOptions::default()));
    let system = tokens(6, 333);
    let with = |user: u32| [&system[..], &tokens(user, 40)].concat();
    run(&engine, GenerateRequest { shared_prefix: system.len(), ..request(&with(7), 5) }, usize::MAX);
    let second = GenerateRequest {
        shared_prefix: system.len(),
        session: SessionUse { id: Some("other".to_owned()), ..SessionUse::default() },
        ..request(&with(8), 20)
    };
    let answer = run(&engine, second, usize::MAX);
    assert_eq!((answer.cached, answer.session.as_str()), (system.len(), "other"));
    assert_eq!(answer.tokens, ask(&cold, &with(8), 20).tokens);
}

#[test]
fn chats_that_share_only_their_beginning_are_sessions_of_their_own() {
    let engine = warm();
    let system = tokens(6, 333);
    let ask = |user: u32| {
        let prompt = [&system[..], &tokens(user, 40)].concat();
        run(&engine, GenerateRequest { shared_prefix: system.len(), ..request(&prompt, 5) }, usize::MAX)
    };
    let (first, second) = (ask(7), ask(8));
    assert_eq!((first.cached, second.cached), (0, system.len()));
    assert_ne!(first.session, second.session);
}

#[test]
fn a_cancelled_answer_can_be_continued() {
    let (engine, cold) = (warm(), engine(SessionOptions::default()));
    let prompt = tokens(9, 200);
    let partial = run(&engine, request(&prompt, 200), 9);
    let mut timeline = [&prompt[..], &partial.tokens].concat();
    timeline.extend(tokens(10, 5));
    let answer = ask(&engine, &timeline, 20);
    assert!(answer.cached >= prompt.len(), "{}", answer.cached);
    assert_eq!(answer.tokens, ask(&cold, &timeline, 20).tokens);
}

#[test]
fn a_state_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let prompt = tokens(11, 600);
    let first = {
        let engine = on_disk(folder.path());
        ask(&engine, &prompt, 20)
    };
    let timeline = [&prompt[..], &first.tokens, &tokens(12, 9)].concat();
    let engine = on_disk(folder.path());
    let answer = ask(&engine, &timeline, 30);
    assert!(answer.cached >= prompt.len() + first.tokens.len() - 4, "{}", answer.cached);
    assert_eq!(answer.session, first.session);
    let cold = cold_answer(&timeline);
    assert_eq!(answer.tokens, cold);
    assert!(engine.status().snapshots > 0);
}

fn cold_answer(prompt: &[u32]) -> Vec<u32> {
    ask(&engine(SessionOptions::default()), prompt, 30).tokens
}

#[test]
fn a_damaged_file_is_a_miss_and_not_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let prompt = tokens(13, 300);
    let first = ask(&on_disk(folder.path()), &prompt, 10);
    for file in files_below(folder.path()) {
        let mut bytes = std::fs::read(&file).unwrap();
        if bytes.len() > 64 {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            std::fs::write(&file, bytes).unwrap();
        }
    }
    let timeline = [&prompt[..], &first.tokens, &tokens(14, 9)].concat();
    let answer = ask(&on_disk(folder.path()), &timeline, 30);
    assert_eq!(answer.cached, 0);
    assert_eq!(answer.tokens, cold_answer(&timeline));
}

fn files_below(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files_below(&path)) } else { found.push(path) }
    }
    found
}

#[test]
fn memory_stays_within_its_budget() {
    let budget = 24 << 20;
    let engine = engine(SessionOptions { memory_bytes: budget, disk: None });
    for turn in 0..12 {
        ask(&engine, &tokens(20 + turn, 400), 5);
        std::thread::sleep(Duration::from_millis(5));
        assert!(engine.status().snapshot_bytes <= budget, "{:?}", engine.status());
    }
    assert!(engine.status().snapshots > 0);
}

/// Runs a request that fails, because of a bias that no sampler can take, and returns the error.
fn fail(engine: &LocalEngine, prompt: &[u32], bias: f64) -> String {
    let mut request = request(prompt, 5);
    request.sampling.logit_bias = vec![(7, bias)];
    let (_, events) = submit(engine, request);
    let failed = |event| if let Event::Failed(error) = event { Some(error.to_string()) } else { None };
    events.into_iter().find_map(failed).unwrap()
}

#[test]
fn a_failed_request_lets_go_of_its_session() {
    // One fails before its first step, the other one with its first token.
    for bias in [f64::NAN, f64::MAX] {
        let first = tokens(40, 400);
        let whole = warm();
        ask(&whole, &first, 5);
        // After the last event the state is still being kept; the next request comes after that.
        fail(&whole, &first, bias);
        let engine = engine(SessionOptions { memory_bytes: whole.status().snapshot_bytes, disk: None });
        let answer = ask(&engine, &first, 5);
        let failing = [&first[..], &answer.tokens, &[11, 12]].concat();
        fail(&engine, &failing, bias);
        // All of the room is for whoever needs it now.
        (41..44).for_each(|seed| drop(ask(&engine, &tokens(seed, 400), 5)));
        assert_eq!(ask(&engine, &[&failing[..], &[13]].concat(), 5).cached, 0, "{bias}");
    }
}

/// A request of a named session.
fn of(session: &str, prompt: &[u32], max_tokens: usize) -> GenerateRequest {
    let title = Some(format!("about {session}"));
    let session = SessionUse { id: Some(session.to_owned()), title, ..SessionUse::default() };
    GenerateRequest { session, ..request(prompt, max_tokens) }
}

/// Waits until what the last answer leaves behind is kept, which comes after its last event.
fn settle(engine: &LocalEngine) {
    assert!(!engine.remove_session("nobody").unwrap());
}

#[test]
fn a_session_is_listed_as_soon_as_its_answer_has_ended() {
    let engine = warm();
    for turn in 0..20 {
        let id = format!("talk-{turn}");
        run(&engine, of(&id, &tokens(90 + turn, 40), 2), usize::MAX);
        assert!(engine.sessions().iter().any(|session| session.id == id), "{turn}");
    }
}

#[test]
fn sessions_are_listed_with_the_places_they_are_kept_in() {
    let folder = tempfile::tempdir().unwrap();
    let prompt = tokens(50, 300);
    let (timeline, created) = {
        let engine = on_disk(folder.path());
        let answer = run(&engine, of("a", &prompt, 5), usize::MAX);
        settle(&engine);
        let list = engine.sessions();
        let [session] = list.as_slice() else { panic!("{list:?}") };
        assert_eq!((session.id.as_str(), session.title.as_deref()), ("a", Some("about a")));
        let memory = session.memory.unwrap();
        assert_eq!((memory.states, memory.bytes), (3, engine.status().snapshot_bytes));
        assert!((300..=305).contains(&session.tokens), "{session:?}");
        ([&prompt[..], &answer.tokens, &[11]].concat(), session.created)
    };
    let engine = on_disk(folder.path());
    let restarted = engine.sessions();
    assert_eq!((restarted[0].memory, restarted[0].disk.unwrap().states), (None, 1));
    assert_eq!((restarted[0].title.as_deref(), restarted[0].created), (Some("about a"), created));
    ask(&engine, &timeline, 5);
    settle(&engine);
    let both = &engine.sessions()[0];
    assert!(both.memory.is_some() && both.disk.is_some(), "{both:?}");
    assert_eq!((both.title.as_deref(), both.created), (Some("about a"), created));
}

#[test]
fn a_session_that_is_only_in_memory_is_listed_and_removed() {
    let engine = warm();
    let prompt = tokens(51, 300);
    ask(&engine, &prompt, 5);
    settle(&engine);
    let list = engine.sessions();
    assert_eq!((list.len(), list[0].disk), (1, None));
    assert!(engine.remove_session(&list[0].id).unwrap());
    assert!(!engine.remove_session(&list[0].id).unwrap());
    assert_eq!((engine.sessions().len(), engine.status().snapshots), (0, 0));
    assert_eq!(ask(&engine, &prompt, 5).cached, 0);
}

#[test]
fn a_removed_session_does_not_come_back_with_a_save_that_is_on_its_way() {
    let folder = tempfile::tempdir().unwrap();
    let engine = on_disk(folder.path());
    for seed in 60..64 {
        run(&engine, of("a", &tokens(seed, 400), 3), usize::MAX);
        engine.remove_session("a").unwrap();
    }
    // Waits for the saves.
    drop(engine);
    assert_eq!(on_disk(folder.path()).sessions(), []);
}

#[test]
fn a_session_that_is_removed_while_it_is_answered_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let engine = on_disk(folder.path());
    let mut events = submit(&engine, of("a", &tokens(70, 300), 200)).1.into_iter();
    events.find(|event| matches!(event, Event::Tokens(_))).unwrap();
    assert!(engine.remove_session("a").unwrap(), "the states of its prompt were kept");
    assert!(events.any(|event| matches!(event, Event::Finished { .. })), "the answer goes on");
    settle(&engine);
    assert_eq!(engine.sessions(), []);
    // The next request of that name is another session.
    run(&engine, of("a", &tokens(71, 300), 3), usize::MAX);
    settle(&engine);
    assert_eq!(engine.sessions().len(), 1);
    drop(engine);
    assert_eq!(on_disk(folder.path()).sessions().len(), 1);
}

/// Two windows of one chat, or an agent that asks two things at once.
#[test]
fn two_requests_of_a_session_may_run_at_once() {
    let engine = warm();
    let start = |request: GenerateRequest| {
        let mut events = submit(&engine, request).1.into_iter();
        events.find(|event| matches!(event, Event::Tokens(_))).unwrap();
        events
    };
    let end = |mut events: std::sync::mpsc::IntoIter<Event>| {
        assert!(events.any(|event| matches!(event, Event::Finished { .. })));
    };
    let (short, long) = (tokens(72, 300), tokens(73, 300));
    let (first, second) = (start(of("a", &short, 20)), start(of("a", &long, 400)));
    end(first);
    settle(&engine);
    assert_eq!(engine.sessions().len(), 1, "it is in use by the other");
    end(second);
    settle(&engine);
    for prompt in [&short, &long] {
        assert_eq!(ask(&engine, &[&prompt[..], &[11]].concat(), 1).cached, 299);
    }
    // What runs when the session is removed leaves nothing, what comes after that does.
    let removed = start(of("b", &tokens(74, 300), 400));
    engine.remove_session("b").unwrap();
    run(&engine, of("b", &tokens(75, 300), 2), usize::MAX);
    end(removed);
    settle(&engine);
    assert_eq!(ask(&engine, &tokens(74, 300), 1).cached, 0);
    assert_eq!(ask(&engine, &tokens(75, 300), 1).cached, 299);
}

#[test]
fn a_request_that_keeps_nothing_uses_what_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let engine = on_disk(folder.path());
    let prompt = tokens(80, 600);
    let answer = run(&engine, of("a", &prompt, 5), usize::MAX);
    settle(&engine);
    // Saved beside the answer, a moment later.
    while engine.sessions()[0].disk.is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let before = (engine.sessions(), engine.status().snapshot_bytes);
    let aside = [&prompt[..], &answer.tokens, &tokens(81, 300)].concat();
    let session = SessionUse { keeps: false, ..SessionUse::default() };
    let answer = run(&engine, GenerateRequest { session, ..request(&aside, 5) }, usize::MAX);
    assert!(answer.cached >= 600, "{}", answer.cached);
    settle(&engine);
    assert_eq!((engine.sessions(), engine.status().snapshot_bytes), before);
}
