//! What was said so far, and how answers are made.

use ds4_text::{ChatPrompt, Compacted, Message, Role, instructions_with_summary};

use crate::flags::AnswerSettings;

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
        let system = match (&self.system, &self.summary) {
            (system, Some(summary)) => Some(instructions_with_summary(system.as_deref(), summary)),
            (system, None) => system.clone(),
        };
        let system = system.map(|text| Message::new(Role::System, text));
        let messages = system.into_iter().chain(self.messages.iter().cloned()).collect();
        ChatPrompt { thinking: self.settings.thinking, ..ChatPrompt::new(messages) }
    }

    /// Puts a summary in the place of the older messages of its [`prompt`](Self::prompt).
    pub(super) fn compact(&mut self, compacted: Compacted) {
        self.messages.drain(..compacted.replaced);
        self.summary = Some(compacted.summary);
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
    use ds4_text::{Compaction, Thinking};

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
    fn a_compacted_conversation_goes_on_as_the_compaction_has_it() {
        let mut talk = conversation();
        talk.start_anew(Some("Be brief.".into()));
        for summary in ["They counted.", "They counted further."] {
            for text in ["one", "two"] {
                talk.ask(text.into());
                talk.answer(text.to_uppercase(), String::new());
            }
            let compacted = Compaction::of(&talk.prompt()).unwrap().finish(summary, true).unwrap();
            talk.compact(compacted.clone());
            assert_eq!((talk.prompt().messages, talk.messages.len()), (compacted.messages, 2));
        }
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
