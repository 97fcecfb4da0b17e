//! A scripted chat: every turn's answer against that of a cold engine, and how much of each prompt had to be prefilled.

use super::harness::{AMPLE, Answer, Checkpoint, request};
use super::{Numbers, Outcome};

/// Tokens that a turn may prefill beyond its new ones: the distance of the states inside a prompt.
const SLACK: usize = 256;

/// Most tokens of a scripted message.
const MESSAGE: usize = 40;

/// Most tokens of an answer.
const ANSWER: usize = 24;

/// Turns between two restarts.
const RESTARTS: usize = 12;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// A new message after the answer.
    Append,
    /// Another message in place of the last.
    Edit,
    /// The same prompt again.
    Regenerate,
    /// A new message whose answer is stopped on the way.
    Cancel,
}

/// The tokens of the conversation, and where in it the last message begins and ends.
#[derive(Default)]
struct Timeline {
    tokens: Vec<u32>,
    message: usize,
    prompt: usize,
}

impl Timeline {
    /// Brings the conversation to the end of the next prompt.
    fn turn(&mut self, turn: Turn, message: &[u32]) {
        match turn {
            Turn::Append | Turn::Cancel => self.message = self.tokens.len(),
            Turn::Edit => self.tokens.truncate(self.message),
            Turn::Regenerate => return self.tokens.truncate(self.prompt),
        }
        self.tokens.extend(message);
        self.prompt = self.tokens.len();
    }
}

/// `longest` tokens into a conversation another one begins.
pub(super) fn run(checkpoint: &Checkpoint, turns: usize, longest: usize) -> Outcome {
    let folder = tempfile::tempdir()?;
    let cold = checkpoint.cold()?;
    let mut warm = checkpoint.on_disk(folder.path(), AMPLE)?;
    let mut numbers = Numbers::new(turns as u64);
    let mut timeline = Timeline::default();
    let mut known: Vec<Vec<u32>> = Vec::new();
    let mut tally = Tally::default();
    for index in 0..turns {
        if index % RESTARTS == RESTARTS - 1 {
            drop(warm);
            warm = checkpoint.on_disk(folder.path(), AMPLE)?;
            tally.restarts += 1;
        }
        if timeline.tokens.len() + MESSAGE + ANSWER > longest {
            timeline = Timeline::default();
        }
        let turn = match numbers.below(8) {
            _ if timeline.tokens.is_empty() => Turn::Append,
            0 => Turn::Edit,
            1 => Turn::Regenerate,
            2 => Turn::Cancel,
            _ => Turn::Append,
        };
        let length = 1 + numbers.below(MESSAGE);
        timeline.turn(turn, &numbers.tokens(length, warm.vocabulary()));
        let prompt = timeline.tokens.clone();
        let after = if turn == Turn::Cancel { 1 + numbers.below(ANSWER / 2) } else { usize::MAX };
        let answer = warm.ask_and_cancel(request(&prompt, ANSWER), after)?;
        let expected = cold.ask(request(&prompt, ANSWER))?;
        tally.count(turn, &answer, &expected, prompt.len(), prompt.len() - seen_before(&known, &prompt));
        timeline.tokens.extend(&answer.tokens);
        known.push(timeline.tokens.clone());
    }
    Ok((tally.holds(), tally.figure(turns)))
}

/// Tokens at the start of the prompt that an earlier turn had in the same places.
fn seen_before(known: &[Vec<u32>], prompt: &[u32]) -> usize {
    let common = |earlier: &Vec<u32>| earlier.iter().zip(prompt).take_while(|(a, b)| a == b).count();
    known.iter().map(common).max().unwrap_or(0)
}

#[derive(Default)]
struct Tally {
    different: usize,
    logprobs: usize,
    edits: usize,
    regenerates: usize,
    cancels: usize,
    restarts: usize,
    prompt_tokens: usize,
    prefilled: usize,
    /// The most that a turn prefilled beyond its new tokens.
    beyond: usize,
}

impl Tally {
    fn count(&mut self, turn: Turn, answer: &Answer, expected: &Answer, prompt: usize, new: usize) {
        let is_whole = turn == Turn::Cancel || answer.tokens.len() == expected.tokens.len();
        self.different += usize::from(!(is_whole && answer.begins(expected) && !answer.tokens.is_empty()));
        self.logprobs += answer.logprobs.len();
        match turn {
            Turn::Append => {}
            Turn::Edit => self.edits += 1,
            Turn::Regenerate => self.regenerates += 1,
            Turn::Cancel => self.cancels += 1,
        }
        let prefilled = prompt - answer.cached;
        self.prompt_tokens += prompt;
        self.prefilled += prefilled;
        self.beyond = self.beyond.max(prefilled.saturating_sub(new));
    }

    fn holds(&self) -> bool {
        self.different == 0 && self.beyond <= SLACK
    }

    fn figure(&self, turns: usize) -> String {
        format!(
            "{turns} turns with {} edits, {} regenerates, {} cancels, {} restarts: {} differ from a cold engine \
             ({} log-probabilities compared bit for bit); {} of {} prompt tokens prefilled, in a turn at most its new \
             ones + {} (limit {SLACK})",
            self.edits,
            self.regenerates,
            self.cancels,
            self.restarts,
            self.different,
            self.logprobs,
            self.prefilled,
            self.prompt_tokens,
            self.beyond,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(tokens: &[u32], logprobs: &[u32]) -> Answer {
        Answer { tokens: tokens.to_vec(), logprobs: logprobs.to_vec(), ..Answer::default() }
    }

    fn tally(turn: Turn, got: &Answer, new: usize) -> Tally {
        let mut tally = Tally::default();
        tally.count(turn, got, &answer(&[5, 6], &[7, 8]), 300, new);
        tally
    }

    #[test]
    fn a_wrong_bit_a_missing_token_and_too_much_prefill_each_fail() {
        assert!(tally(Turn::Append, &answer(&[5, 6], &[7, 8]), 44).holds());
        assert!(!tally(Turn::Append, &answer(&[5, 6], &[7, 9]), 44).holds());
        assert!(!tally(Turn::Append, &answer(&[5], &[7]), 44).holds());
        assert!(tally(Turn::Cancel, &answer(&[5], &[7]), 44).holds());
        assert!(!tally(Turn::Append, &answer(&[5, 6], &[7, 8]), 43).holds());
    }

    #[test]
    fn an_edit_replaces_the_message_and_a_regenerate_the_answer() {
        let mut timeline = Timeline::default();
        timeline.turn(Turn::Append, &[1, 2]);
        timeline.tokens.extend([10, 11]);
        timeline.turn(Turn::Append, &[3]);
        timeline.tokens.push(12);
        timeline.turn(Turn::Regenerate, &[9]);
        assert_eq!(timeline.tokens, [1, 2, 10, 11, 3]);
        timeline.tokens.push(13);
        timeline.turn(Turn::Edit, &[4, 4]);
        assert_eq!(timeline.tokens, [1, 2, 10, 11, 4, 4]);
        assert_eq!(seen_before(&[vec![1, 2, 10, 11, 3], vec![1, 3]], &timeline.tokens), 4);
    }
}
