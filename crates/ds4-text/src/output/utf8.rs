//! Bytes to text, a few at a time: a character is released when its last byte is there.

/// Holds back the bytes of an unfinished character.
#[derive(Default)]
pub(crate) struct Utf8Decoder {
    tail: Vec<u8>,
}

impl Utf8Decoder {
    /// The text that is certain after these bytes. Bytes that can no longer become a character are U+FFFD, one for
    /// each maximal broken run, exactly as `String::from_utf8_lossy` does it for the whole.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
        self.tail.extend_from_slice(bytes);
        let mut text = String::new();
        let mut rest = self.tail.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    rest = &[];
                }
                Err(error) => {
                    let (valid, broken) = rest.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    rest = broken;
                    if let Some(length) = error.error_len() {
                        text.push(char::REPLACEMENT_CHARACTER);
                        rest = &broken[length..];
                        continue;
                    }
                }
            }
            break;
        }
        self.tail = rest.to_vec();
        text
    }

    /// U+FFFD if a character was left unfinished.
    pub(crate) fn finish(&mut self) -> String {
        let tail = std::mem::take(&mut self.tail);
        String::from_utf8_lossy(&tail).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_character_waits_for_its_last_byte_and_a_broken_one_does_not() {
        let mut decoder = Utf8Decoder::default();
        let pieces: Vec<String> = "é🙂".bytes().map(|byte| decoder.push(&[byte])).collect();
        assert_eq!(pieces, ["", "é", "", "", "", "🙂"]);
        assert_eq!(decoder.push(b"\xf0\x9f"), "");
        assert_eq!(decoder.push(b"a"), "\u{fffd}a");
        assert_eq!(decoder.push(b"\xe2"), "");
        assert_eq!(decoder.finish(), "\u{fffd}");
        assert_eq!(decoder.finish(), "");
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_pieces_read_as_the_whole(pieces: Vec<Vec<u8>>, text: String, cut: usize) {
            let mut pieces = pieces;
            let (left, right) = text.as_bytes().split_at(cut % (text.len() + 1));
            pieces.extend([left.to_vec(), right.to_vec()]);
            let mut decoder = Utf8Decoder::default();
            let mut read: String = pieces.iter().map(|piece| decoder.push(piece)).collect();
            read += &decoder.finish();
            let whole = pieces.concat();
            prop_assert_eq!(read, String::from_utf8_lossy(&whole));
        }
    }
}
