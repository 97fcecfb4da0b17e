//! Keeps text that clients typed from becoming markup.
//!
//! A template joins its own markup and the clients' strings into one text, in which nobody can tell any more who wrote
//! `<|im_end|>`. So before rendering, every character that an added token begins or ends with (`<` and `>`, mostly) is
//! replaced in the clients' strings by a private-use character that occurs in none of them. An added token that still
//! appears in the rendered text was begun and ended by the template. The pieces between are then restored and encoded
//! as ordinary text. One character stands for one, so lengths, slices and trimming work in templates as always.
//!
//! Left out on purpose: tokens of nothing but whitespace, which are no markup, and last characters that are letters or
//! digits, because templates compare strings that hold them (a token `/nothink` is still stopped at its `/`).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::TextError;

/// The private-use areas of Unicode.
const PRIVATE_USE: [std::ops::RangeInclusive<char>; 3] =
    ['\u{e000}'..='\u{f8ff}', '\u{f0000}'..='\u{ffffd}', '\u{100000}'..='\u{10fffd}'];

/// The characters that have to be replaced, for one tokenizer.
pub(crate) struct GuardedCharacters(BTreeSet<char>);

impl GuardedCharacters {
    /// From the texts of all added tokens.
    pub(crate) fn new<'a>(added_tokens: impl Iterator<Item = &'a str>) -> Self {
        let mut characters = BTreeSet::new();
        for token in added_tokens.filter(|token| !token.trim().is_empty()) {
            characters.extend(token.chars().next());
            characters.extend(token.chars().next_back().filter(|last| !last.is_alphanumeric()));
        }
        Self(characters)
    }
}

/// Collects what clients sent, to find characters that they did not use.
#[derive(Default)]
pub(crate) struct UsedCharacters(BTreeSet<char>);

impl UsedCharacters {
    pub(crate) fn note(&mut self, text: &str) {
        self.0.extend(text.chars().filter(|character| is_private_use(*character)));
    }

    pub(crate) fn note_json(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.note(text),
            Value::Array(items) => items.iter().for_each(|item| self.note_json(item)),
            Value::Object(fields) => fields.iter().for_each(|(key, value)| {
                self.note(key);
                self.note_json(value);
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// Replaces and restores the guarded characters of one conversation. The default one guards nothing.
#[derive(Default)]
pub(crate) struct Guard {
    placeholders: BTreeMap<char, char>,
    originals: BTreeMap<char, char>,
}

impl Guard {
    /// Gives every guarded character a placeholder that is not in `used`.
    pub(crate) fn new(guarded: &GuardedCharacters, used: &UsedCharacters) -> Result<Self, TextError> {
        let mut free = PRIVATE_USE.into_iter().flatten().filter(|character| !used.0.contains(character));
        let mut guard = Self { placeholders: BTreeMap::new(), originals: BTreeMap::new() };
        for &character in &guarded.0 {
            let placeholder = free.next().ok_or(TextError::NoFreePlaceholder)?;
            guard.placeholders.insert(character, placeholder);
            guard.originals.insert(placeholder, character);
        }
        Ok(guard)
    }

    /// A client's text as the template gets it.
    pub(crate) fn cover(&self, text: &str) -> String {
        replace(text, &self.placeholders)
    }

    /// The client's text again.
    pub(crate) fn restore(&self, text: &str) -> String {
        replace(text, &self.originals)
    }
}

fn replace(text: &str, map: &BTreeMap<char, char>) -> String {
    text.chars().map(|character| map.get(&character).copied().unwrap_or(character)).collect()
}

fn is_private_use(character: char) -> bool {
    PRIVATE_USE.iter().any(|range| range.contains(&character))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(tokens: &[&str], text: &str) -> Guard {
        let mut used = UsedCharacters::default();
        used.note(text);
        Guard::new(&GuardedCharacters::new(tokens.iter().copied()), &used).unwrap()
    }

    #[test]
    fn first_and_last_characters_are_covered_and_come_back() {
        let text = "a <|im_end|> \u{e000}\u{e001} /nothink";
        let guard = guard(&["<|im_end|>", "/nothink", "  "], text);
        let covered = guard.cover(text);
        assert!(!covered.contains(['<', '>', '/']));
        assert!(covered.contains("think"), "letters at the end of a token stay readable for templates");
        assert_eq!(covered.chars().count(), text.chars().count());
        assert_eq!(guard.restore(&covered), text);
    }

    #[test]
    fn every_private_use_character_in_use_is_an_error() {
        let all: String = PRIVATE_USE.into_iter().flatten().collect();
        let mut used = UsedCharacters::default();
        used.note(&all);
        let result = Guard::new(&GuardedCharacters::new(["<x>"].into_iter()), &used);
        assert!(matches!(result, Err(TextError::NoFreePlaceholder)));
    }
}
