//! The checkpoint's tokenizer: text to ids with and without added tokens, ids to bytes. Which added tokens mean
//! what (end of turn, reasoning, tool call) is not decided here.

use std::collections::BTreeMap;

use tokenizers::{AddedVocabulary, DecoderWrapper, OffsetReferential, OffsetType, Tokenizer as HfTokenizer};

use crate::TextError;
use crate::byte_level::TokenBytes;

/// A byte-level BPE tokenizer as `tokenizer.json` describes it.
pub struct Tokenizer {
    /// Encodes ordinary text; it knows no added tokens, so text can never become one.
    plain: HfTokenizer,
    added: AddedVocabulary,
    added_by_id: BTreeMap<u32, AddedToken>,
    bytes: TokenBytes,
}

/// An entry of `added_tokens`.
pub(crate) struct AddedToken {
    pub(crate) text: String,
    /// Marked as special: no text for a reader.
    pub(crate) special: bool,
}

/// A stretch of text between added tokens, or one of them.
enum Piece {
    Text(std::ops::Range<usize>),
    Added(u32),
}

impl Tokenizer {
    /// Builds the tokenizer from the bytes of a `tokenizer.json`. Truncation and padding that the file may ask for
    /// are switched off.
    pub(crate) fn from_json(json: &[u8]) -> Result<Self, TextError> {
        let invalid = |reason: String| TextError::InvalidTokenizer { reason };
        let mut plain = HfTokenizer::from_bytes(json).map_err(|error| invalid(error.to_string()))?;
        if !plain.get_decoder().is_some_and(is_byte_level) {
            return Err(TextError::NotByteLevel);
        }
        plain.with_padding(None);
        plain.with_truncation(None).map_err(|error| invalid(error.to_string()))?;
        let added = plain.get_added_vocabulary().clone();
        let added_by_id: BTreeMap<u32, AddedToken> = added
            .get_added_tokens_decoder()
            .iter()
            .map(|(&id, token)| (id, AddedToken { text: token.content.clone(), special: token.special }))
            .collect();
        let bytes = TokenBytes::new(&plain.get_vocab(true), |id| added_by_id.contains_key(&id));
        plain.with_added_vocabulary(AddedVocabulary::new());
        Ok(Self { plain, added, added_by_id, bytes })
    }

    /// Ids of a text in which nothing is markup: what spells an added token becomes ordinary tokens.
    pub fn encode_plain(&self, text: &str) -> Result<Vec<u32>, TextError> {
        let mut ids = Vec::new();
        self.append_plain(text, &mut ids)?;
        Ok(ids)
    }

    /// Ids of a raw prompt in which added tokens mean what they spell. No token is put before or after it.
    pub fn encode_with_special(&self, text: &str) -> Result<Vec<u32>, TextError> {
        self.encode_pieces(text, str::to_string)
    }

    /// Splits `text` at the added tokens it spells, lets `restore` change what lies between, and encodes that as
    /// ordinary text.
    pub(crate) fn encode_pieces(
        &self,
        text: &str,
        restore: impl Fn(&str) -> String,
    ) -> Result<Vec<u32>, TextError> {
        let mut ids = Vec::new();
        for piece in self.split(text) {
            match piece {
                Piece::Added(id) => ids.push(id),
                Piece::Text(range) => self.append_plain(&restore(&text[range]), &mut ids)?,
            }
        }
        Ok(ids)
    }

    fn split(&self, text: &str) -> Vec<Piece> {
        let pieces = self.added.extract_and_normalize(self.plain.get_normalizer(), text);
        pieces
            .get_splits(OffsetReferential::Original, OffsetType::Byte)
            .into_iter()
            .map(|(_, (start, end), tokens)| match tokens.as_ref().and_then(|tokens| tokens.first()) {
                Some(token) => Piece::Added(token.id),
                None => Piece::Text(start..end),
            })
            .collect()
    }

    fn append_plain(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), TextError> {
        if text.is_empty() {
            return Ok(());
        }
        for id in self.encode_raw(text)? {
            match self.added_by_id.get(&id) {
                // Files may list an added token among the ordinary ones too, and a merge could then arrive at it.
                // Its characters one by one cannot.
                Some(added) if added.text.chars().nth(1).is_some() => {
                    for character in added.text.chars() {
                        ids.extend(self.encode_raw(character.encode_utf8(&mut [0; 4]))?);
                    }
                }
                _ => ids.push(id),
            }
        }
        Ok(())
    }

    fn encode_raw(&self, text: &str) -> Result<Vec<u32>, TextError> {
        let encoding = self
            .plain
            .encode_fast(text, false)
            .map_err(|error| TextError::Encode { reason: error.to_string() })?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Bytes that a token stands for, which need not be whole characters. `None` if there is no such token.
    pub fn token_bytes(&self, id: u32) -> Option<&[u8]> {
        self.bytes.get(id)
    }

    /// A token as text, with U+FFFD for bytes that are no whole character. `None` if there is no such token.
    pub fn token_text(&self, id: u32) -> Option<String> {
        self.token_bytes(id).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    /// The id of an added token, by its exact text, or of an ordinary token, by the spelling in `tokenizer.json`.
    pub fn id_of(&self, token: &str) -> Option<u32> {
        self.added_id(token).or_else(|| self.plain.token_to_id(token))
    }

    /// One more than the highest id. The rows of a model's output head can be more: they are often padded.
    pub fn vocabulary_size(&self) -> usize {
        self.bytes.len()
    }

    /// All added tokens by id.
    pub(crate) fn added_tokens(&self) -> &BTreeMap<u32, AddedToken> {
        &self.added_by_id
    }

    /// The id of an added token.
    pub(crate) fn added_id(&self, text: &str) -> Option<u32> {
        self.added_by_id.iter().find(|(_, token)| token.text == text).map(|(&id, _)| id)
    }
}

fn is_byte_level(decoder: &DecoderWrapper) -> bool {
    match decoder {
        DecoderWrapper::ByteLevel(_) => true,
        DecoderWrapper::Sequence(sequence) => sequence.get_decoders().iter().any(is_byte_level),
        _ => false,
    }
}
