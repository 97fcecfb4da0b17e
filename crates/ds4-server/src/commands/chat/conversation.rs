//! What was said so far, and how answers are made.

use ds4_text::{ChatPrompt, Message, Role, Thinking};

use crate::flags::AnswerSettings;

/// Messages that a summary leaves alone: the last question and its answer.
const KEPT: usize = 2;
/// What a model is asked for.
const SUMMARISE: &str = "Summarise our conversation so far for yourself, so that you can go on without it: what was asked, \
    what was found out or decided, names, numbers, and what is still open. Answer with the summary alone.";
/// What stands before a summary.
const SUMMARY_FOLLOWS: &str = "Summary of the conversation so far:";

/// A conversation: instructions, then messages of the user and answers in turn.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Conversation {
    /// Instructions that come first.
    pub(super) system: Option<String>,
    /// What was said before the messages, if that was made shorter.
    pub(super) summary: Option<String>,
    /// User, assistant, user, and so on.
    pub(super) messages: Vec<Message>,
    /// How answers are made.
    pub(super) settings: AnswerSettings,
    /// How often the last message was answered before.
    pub(super) repeats: u64,
}

impl Conversation {
    /// One in which nothing was said.
    pub(super) fn new(system: Option<String>, settings: AnswerSettings) -> Self {
        Self { system, summary: None, messages: Vec::new(), settings, repeats: 0 }
    }

    /// Sets or removes the instructions. What was said under others is forgotten.
    pub(super) fn start_anew(&mut self, system: Option<String>) {
        self.system = system;
        self.summary = None;
        self.messages.clear();
        self.repeats = 0;
    }

    /// Adds what the user said.
    pub(super) fn ask(&mut self, text: String) {
        self.messages.push(Message::new(Role::User, text));
        self.repeats = 0;
    }

    /// Takes the last answer back. False if there is nothing to answer.
    pub(super) fn take_back_answer(&mut self) -> bool {
        if self.messages.last().is_some_and(|message| message.role == Role::Assistant) {
            self.messages.pop();
            self.repeats += 1;
        }
        !self.messages.is_empty()
    }

    /// Adds an answer and what the model thought before it.
    pub(super) fn answer(&mut self, content: String, reasoning: String) {
        let reasoning_content = Some(reasoning).filter(|text| !text.is_empty());
        self.messages.push(Message { reasoning_content, ..Message::new(Role::Assistant, content) });
    }

    /// The prompt for the next answer.
    pub(super) fn prompt(&self) -> ChatPrompt {
        self.prompt_of(&self.messages)
    }

    fn prompt_of(&self, messages: &[Message]) -> ChatPrompt {
        let summary = self.summary.as_ref().map(|text| format!("{SUMMARY_FOLLOWS}\n\n{text}"));
        let system: Vec<String> = self.system.iter().cloned().chain(summary).collect();
        let system = (!system.is_empty()).then(|| Message::new(Role::System, system.join("\n\n")));
        let messages = system.into_iter().chain(messages.iter().cloned()).collect();
        ChatPrompt { thinking: self.settings.thinking, ..ChatPrompt::new(messages) }
    }

    /// The prompt that asks for a summary of all but the last messages. `None` if there is nothing to make shorter.
    pub(super) fn summary_prompt(&self) -> Option<ChatPrompt> {
        let mut older = self.messages[..self.older()?].to_vec();
        older.push(Message::new(Role::User, SUMMARISE));
        Some(ChatPrompt { thinking: Thinking::Off, ..self.prompt_of(&older) })
    }

    /// Puts a summary in the place of what [`summary_prompt`](Self::summary_prompt) asked about.
    pub(super) fn compact(&mut self, summary: String) {
        let older = self.older().unwrap_or(0);
        self.messages.drain(..older);
        self.summary = Some(summary);
    }

    /// How many messages are older than those that stay as they are.
    fn older(&self) -> Option<usize> {
        let kept = KEPT + self.messages.len() % 2;
        self.messages.len().checked_sub(kept).filter(|&older| older > 0)
    }

    /// Settings of the next answer. A chosen seed moves on when an answer is wanted again: the same one would give the same
    /// answer.
    pub(super) fn answer_settings(&self) -> AnswerSettings {
        let mut settings = self.settings.clone();
        settings.sampling.seed = settings.sampling.seed.map(|seed| seed.wrapping_add(self.repeats));
        settings
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ds4_engine_api::{SamplingParams, Speculation};
    use ds4_text::Thinking;

    fn conversation() -> Conversation {
        let sampling = SamplingParams { seed: Some(7), ..SamplingParams::default() };
        Conversation::new(
            None,
            AnswerSettings {
                sampling,
                max_tokens: None,
                thinking: Thinking::Off,
                speculation: Speculation::default(),
            },
        )
    }

    #[test]
    fn an_answer_taken_back_is_answered_with_another_seed() {
        let mut talk = conversation();
        assert!(!talk.take_back_answer());
        talk.ask("ping".into());
        assert_eq!(talk.answer_settings().sampling.seed, Some(7));
        talk.answer("pong".into(), String::new());
        assert!(talk.take_back_answer());
        assert_eq!((talk.messages.len(), talk.answer_settings().sampling.seed), (1, Some(8)));
        // Not answered meanwhile: nothing more to take back.
        assert!(talk.take_back_answer());
        assert_eq!((talk.messages.len(), talk.answer_settings().sampling.seed), (1, Some(8)));
        talk.ask("again".into());
        assert_eq!(talk.answer_settings().sampling.seed, Some(7));
    }

    #[test]
    fn a_summary_takes_the_place_of_all_but_the_last_turn() {
        let mut talk = conversation();
        talk.ask("one".into());
        talk.answer("1".into(), String::new());
        assert_eq!(talk.summary_prompt(), None, "a single turn is not made shorter");
        talk.ask("two".into());
        talk.answer("2".into(), String::new());
        let asked = talk.summary_prompt().unwrap().messages;
        assert_eq!((asked.len(), asked[0].content.as_str(), asked[2].role), (3, "one", Role::User));
        talk.compact("They counted.".into());
        let texts: Vec<String> = talk.prompt().messages.into_iter().map(|message| message.content).collect();
        assert_eq!(texts, [format!("{SUMMARY_FOLLOWS}\n\nThey counted."), "two".into(), "2".into()]);
        assert_eq!(talk.summary_prompt(), None);
    }

    #[test]
    fn instructions_come_first() {
        let mut talk = conversation();
        talk.start_anew(Some("Be brief.".into()));
        talk.ask("ping".into());
        let roles: Vec<Role> = talk.prompt().messages.iter().map(|message| message.role).collect();
        assert_eq!(roles, [Role::System, Role::User]);
    }
}
