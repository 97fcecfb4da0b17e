//! What was said in the sessions of late, so that a session can be made shorter without its client sending all of it
//! again. Kept in memory only, the longest unused is forgotten first.

use std::collections::VecDeque;

use ds4_text::ChatPrompt;

/// Sessions that are remembered, at most.
const MOST: usize = 64;
/// Bytes of text in all of them, at most.
const MOST_BYTES: usize = 32 << 20;

/// The conversations, each with its tools and settings.
#[derive(Debug, Default)]
pub(crate) struct Conversations {
    /// Session, conversation and its bytes; the newest last.
    kept: VecDeque<(String, ChatPrompt, usize)>,
}

impl Conversations {
    /// Remembers what was said in a session, in the place of what was remembered before.
    pub(crate) fn keep(&mut self, session: &str, conversation: ChatPrompt) {
        self.forget(session);
        let bytes = text_bytes(&conversation);
        self.kept.push_back((session.to_owned(), conversation, bytes));
        while self.kept.len() > MOST || self.kept.iter().map(|(.., bytes)| bytes).sum::<usize>() > MOST_BYTES
        {
            self.kept.pop_front();
        }
    }

    /// What was said in a session.
    pub(crate) fn get(&self, session: &str) -> Option<&ChatPrompt> {
        self.kept.iter().find(|(id, ..)| id == session).map(|(_, conversation, _)| conversation)
    }

    /// The session is gone.
    pub(crate) fn forget(&mut self, session: &str) {
        self.kept.retain(|(id, ..)| id != session);
    }
}

fn text_bytes(conversation: &ChatPrompt) -> usize {
    let messages = conversation.messages.iter().map(|message| {
        let calls = message.tool_calls.iter().map(|call| call.arguments.to_string().len());
        message.content.len()
            + message.reasoning_content.as_ref().map_or(0, String::len)
            + calls.sum::<usize>()
    });
    messages.sum::<usize>() + conversation.tools.iter().map(|tool| tool.to_string().len()).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ds4_text::{Message, Role};

    fn said(text: &str) -> ChatPrompt {
        ChatPrompt::new(vec![Message::new(Role::User, text)])
    }

    #[test]
    fn the_last_thing_said_counts() {
        let mut conversations = Conversations::default();
        conversations.keep("a", said("one"));
        conversations.keep("a", said("two"));
        assert_eq!(conversations.get("a"), Some(&said("two")));
        conversations.forget("a");
        assert_eq!(conversations.get("a"), None);
    }

    #[test]
    fn there_is_room_for_so_many_sessions_and_bytes() {
        let mut conversations = Conversations::default();
        (0..=MOST).for_each(|i| conversations.keep(&i.to_string(), said("x")));
        assert!(conversations.get("0").is_none() && conversations.get("1").is_some());
        let half = said(&"x".repeat(MOST_BYTES / 2 + 1));
        conversations.keep("a", half.clone());
        conversations.keep("b", half);
        assert!(conversations.get("a").is_none() && conversations.get("b").is_some());
    }
}
