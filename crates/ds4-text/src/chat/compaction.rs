//! Making a conversation shorter: a summary by the model takes the place of all but the last turn. Asking the model is up
//! to the caller, and until there is a summary nothing has changed.

use super::{ChatPrompt, Message, Role, Thinking};
use crate::CompactionError;

/// What a model is asked for.
const SUMMARISE: &str = "Summarise our conversation so far for yourself, so that you can go on without it: what was asked, \
    what was found out or decided, names, numbers, and what is still open. Answer with the summary alone.";
/// What stands before a summary, at the end of the instructions.
const SUMMARY_FOLLOWS: &str = "Summary of the conversation so far:\n\n";

/// A conversation whose older turns are to give way to a summary.
#[derive(Clone, Debug, PartialEq)]
pub struct Compaction {
    question: ChatPrompt,
    instructions: Vec<Message>,
    last_turn: Vec<Message>,
    replaced: usize,
}

/// A conversation that was made shorter.
#[derive(Clone, Debug, PartialEq)]
pub struct Compacted {
    /// What takes the place of the older messages.
    pub summary: String,
    /// How many messages it stands for.
    pub replaced: usize,
    /// The conversation to go on with: the instructions with the summary, and the last turn as it was.
    pub messages: Vec<Message>,
}

impl Compaction {
    /// Takes a conversation apart. The last turn, which stays, begins with the last message of the person that was
    /// answered; what was said before it is asked about.
    ///
    /// # Errors
    /// There is nothing before the last turn.
    pub fn of(conversation: &ChatPrompt) -> Result<Self, CompactionError> {
        let messages = &conversation.messages;
        let spoken = messages.iter().take_while(|message| message.role == Role::System).count();
        let last = |role, end: usize| messages[..end].iter().rposition(|message| message.role == role);
        let last_turn = last(Role::Assistant, messages.len()).and_then(|answer| last(Role::User, answer));
        let last_turn = last_turn.filter(|&turn| turn > spoken).ok_or(CompactionError::NothingToCompact)?;
        let mut asked = messages[..last_turn].to_vec();
        asked.push(Message::new(Role::User, SUMMARISE));
        let question = ChatPrompt {
            messages: asked,
            thinking: Thinking::Off,
            add_generation_prompt: true,
            ..conversation.clone()
        };
        Ok(Self {
            question,
            instructions: messages[..spoken].to_vec(),
            last_turn: messages[last_turn..].to_vec(),
            replaced: last_turn - spoken,
        })
    }

    /// The prompt for the summary. It begins as the conversation does, whose state it can start from.
    pub fn question(&self) -> &ChatPrompt {
        &self.question
    }

    /// Puts the model's answer in the place of what was asked about. `is_whole` says that the model ended it.
    ///
    /// # Errors
    /// The answer is cut off or empty.
    pub fn finish(mut self, answer: &str, is_whole: bool) -> Result<Compacted, CompactionError> {
        let summary = answer.trim().to_owned();
        if !is_whole || summary.is_empty() {
            return Err(CompactionError::NoSummary);
        }
        let instructions = self.instructions.pop();
        let text = instructions.as_ref().map(|message| message.content.as_str());
        let with_summary = Message {
            content: instructions_with_summary(text, &summary),
            ..instructions.clone().unwrap_or_else(|| Message::new(Role::System, ""))
        };
        let messages = self.instructions.into_iter().chain([with_summary]).chain(self.last_turn).collect();
        Ok(Compacted { summary, replaced: self.replaced, messages })
    }
}

/// Instructions that end with a summary of what was said. An earlier summary gives way: it was part of what the new one is
/// about.
pub fn instructions_with_summary(instructions: Option<&str>, summary: &str) -> String {
    let own = instructions.unwrap_or_default();
    let own = own.rfind(SUMMARY_FOLLOWS).map_or(own, |at| own[..at].trim_end());
    let space = if own.is_empty() { "" } else { "\n\n" };
    format!("{own}{space}{SUMMARY_FOLLOWS}{summary}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conversation(messages: &[(Role, &str)]) -> ChatPrompt {
        ChatPrompt::new(messages.iter().map(|(role, text)| Message::new(*role, *text)).collect())
    }

    fn texts(messages: &[Message]) -> Vec<&str> {
        messages.iter().map(|message| message.content.as_str()).collect()
    }

    use Role::{Assistant, System, Tool, User};

    #[test]
    fn a_summary_takes_the_place_of_all_but_the_last_turn() {
        let talk = conversation(&[(User, "one"), (Assistant, "1"), (User, "two"), (Assistant, "2")]);
        let compaction = Compaction::of(&talk).unwrap();
        assert_eq!(texts(&compaction.question().messages), ["one", "1", SUMMARISE]);
        assert_eq!(compaction.question().thinking, Thinking::Off);
        let compacted = compaction.finish(" They counted.\n", true).unwrap();
        assert_eq!((compacted.summary.as_str(), compacted.replaced), ("They counted.", 2));
        let summary = format!("{SUMMARY_FOLLOWS}They counted.");
        assert_eq!(texts(&compacted.messages), [&summary, "two", "2"]);
        assert_eq!(compacted.messages[0].role, System);
    }

    #[test]
    fn a_question_without_an_answer_stays_with_the_turn_before_it() {
        let talk =
            conversation(&[(User, "one"), (Assistant, "1"), (User, "two"), (Assistant, "2"), (User, "3")]);
        let compacted = Compaction::of(&talk).unwrap().finish("Numbers.", true).unwrap();
        assert_eq!(texts(&compacted.messages)[1..], ["two", "2", "3"]);
    }

    #[test]
    fn results_of_tools_stay_with_the_turn_that_called_them() {
        let talk = conversation(&[
            (System, "Be brief."),
            (User, "one"),
            (Assistant, "1"),
            (User, "look it up"),
            (Assistant, "(a call)"),
            (Tool, "found"),
        ]);
        let compacted = Compaction::of(&talk).unwrap().finish("Numbers.", true).unwrap();
        let instructions = format!("Be brief.\n\n{SUMMARY_FOLLOWS}Numbers.");
        assert_eq!(texts(&compacted.messages), [&instructions, "look it up", "(a call)", "found"]);
    }

    #[test]
    fn a_new_summary_replaces_the_old_one() {
        let first = instructions_with_summary(Some("Be brief."), "Old.");
        assert_eq!(
            instructions_with_summary(Some(&first), "New."),
            format!("Be brief.\n\n{SUMMARY_FOLLOWS}New.")
        );
        let alone = instructions_with_summary(None, "Old.");
        assert_eq!(instructions_with_summary(Some(&alone), "New."), format!("{SUMMARY_FOLLOWS}New."));
    }

    #[test]
    fn a_single_turn_is_not_made_shorter() {
        for messages in [
            &[][..],
            &[(System, "Be brief.")],
            &[(User, "one")],
            &[(System, "Be brief."), (User, "one"), (Assistant, "1")],
            &[(User, "one"), (Assistant, "1"), (User, "two")],
        ] {
            let error = Compaction::of(&conversation(messages)).unwrap_err();
            assert_eq!(error, CompactionError::NothingToCompact);
        }
    }

    #[test]
    fn half_a_summary_is_none() {
        let talk = conversation(&[(User, "one"), (Assistant, "1"), (User, "two"), (Assistant, "2")]);
        let compaction = Compaction::of(&talk).unwrap();
        assert_eq!(compaction.clone().finish("They", false), Err(CompactionError::NoSummary));
        assert_eq!(compaction.finish(" \n", true), Err(CompactionError::NoSummary));
    }
}
