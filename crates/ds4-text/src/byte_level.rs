//! The bytes that each token stands for. Byte-level vocabularies spell bytes as printable characters; this is the way
//! back, laid out for reading one token at a time. Splitting text into tokens is the tokenizer library's work.

use std::collections::HashMap;

/// Bytes of all tokens of a vocabulary in one buffer.
pub(crate) struct TokenBytes {
    bytes: Vec<u8>,
    /// Start of each token in `bytes`, and one more for the end of the last. Ids without a token are empty.
    starts: Vec<u32>,
    known: Vec<bool>,
}

impl TokenBytes {
    /// Reads (token, id) pairs. `is_added` tells tokens that are written as themselves, not byte by byte.
    pub(crate) fn new(vocabulary: &HashMap<String, u32>, is_added: impl Fn(u32) -> bool) -> Self {
        let size = vocabulary.values().max().map_or(0, |&id| id as usize + 1);
        let mut texts: Vec<Option<&str>> = vec![None; size];
        for (text, &id) in vocabulary {
            texts[id as usize] = Some(text);
        }
        let mut table = Self { bytes: Vec::new(), starts: vec![0], known: Vec::with_capacity(size) };
        for (id, text) in texts.iter().enumerate() {
            table.known.push(text.is_some());
            match text {
                Some(text) if is_added(id as u32) => table.bytes.extend_from_slice(text.as_bytes()),
                Some(text) => table.bytes.extend(spelled_bytes(text)),
                None => {}
            }
            table.starts.push(table.bytes.len() as u32);
        }
        table
    }

    /// One more than the highest id.
    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    pub(crate) fn get(&self, id: u32) -> Option<&[u8]> {
        let id = id as usize;
        if !self.known.get(id).copied().unwrap_or(false) {
            return None;
        }
        self.bytes.get(self.starts[id] as usize..self.starts[id + 1] as usize)
    }
}

/// The bytes behind a token's spelling. A token with a character outside of the byte alphabet was never spelled byte
/// by byte and stands for its own UTF-8 bytes.
fn spelled_bytes(token: &str) -> Vec<u8> {
    token.chars().map(byte_of).collect::<Option<Vec<u8>>>().unwrap_or_else(|| token.as_bytes().to_vec())
}

/// The byte alphabet of GPT-2: printable Latin-1 characters stand for themselves, the 68 other bytes for the
/// characters from U+0100 on, in byte order.
fn byte_of(character: char) -> Option<u8> {
    match character as u32 {
        code @ (0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) => Some(code as u8),
        code @ 0x100..=0x120 => Some((code - 0x100) as u8),
        code @ 0x121..=0x142 => Some((code - 0x121 + 0x7f) as u8),
        0x143 => Some(0xad),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alphabet_covers_every_byte_once() {
        let mut bytes: Vec<u8> = (0..0x200).filter_map(char::from_u32).filter_map(byte_of).collect();
        assert_eq!(bytes.len(), 256);
        bytes.sort_unstable();
        assert!(bytes.iter().enumerate().all(|(index, &byte)| index == byte as usize));
    }

    #[test]
    fn spelled_tokens_become_bytes_and_added_tokens_stay() {
        let vocabulary = HashMap::from([("Ġé".to_string(), 1), ("<é>".to_string(), 3)]);
        let table = TokenBytes::new(&vocabulary, |id| id == 3);
        assert_eq!(table.len(), 4);
        assert_eq!(table.get(0), None);
        assert_eq!(table.get(1), Some(&b" \xe9"[..]));
        assert_eq!(table.get(3), Some("<é>".as_bytes()));
        assert_eq!(table.get(4), None);
    }
}
