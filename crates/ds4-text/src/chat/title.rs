//! What a list of conversations shows of each: the first words of the person.

use super::{Message, Role};

/// Characters of a title.
const LONGEST: usize = 60;

/// The first words of the first message of the person, `None` if there are none.
pub fn title_of(messages: &[Message]) -> Option<String> {
    let first = messages.iter().find(|message| message.role == Role::User)?;
    first_words(&first.content)
}

/// The first words of a text on one line, `None` if there are none. Control characters are left out: titles are shown on
/// terminals.
pub fn first_words(text: &str) -> Option<String> {
    let mut title = String::new();
    for word in text.split_whitespace() {
        if !title.is_empty() {
            title.push(' ');
        }
        title.extend(word.chars().filter(|letter| !letter.is_control()).take(LONGEST + 1));
        if let Some((end, _)) = title.char_indices().nth(LONGEST) {
            title.truncate(end);
            title.push_str("...");
            break;
        }
    }
    (!title.is_empty()).then_some(title)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_one_short_line() {
        let title = first_words(&format!("one\n two {}", "é".repeat(100))).unwrap();
        assert!(title.starts_with("one two éé") && title.ends_with("é..."), "{title}");
        assert_eq!(title.chars().count(), LONGEST + 3);
        assert_eq!(first_words("  \n"), None);
        assert_eq!(first_words("a \u{1b}[31mb").as_deref(), Some("a [31mb"));
        assert_eq!(first_words(&"x".repeat(LONGEST)).unwrap().len(), LONGEST);
    }

    #[test]
    fn instructions_are_no_title() {
        let messages = [Message::new(Role::System, "Be brief."), Message::new(Role::User, "ping")];
        assert_eq!(title_of(&messages).as_deref(), Some("ping"));
        assert_eq!(title_of(&messages[..1]), None);
    }
}
