//! Reading little-endian fields off untrusted bytes. Running out of bytes is damage, never a panic, and nothing is
//! allocated that the bytes at hand do not back.

use crate::Damage;

pub(super) struct ByteReader<'a> {
    rest: &'a [u8],
}

impl<'a> ByteReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn bytes(&mut self, count: u64, at: &'static str) -> Result<&'a [u8], Damage> {
        let split = usize::try_from(count).ok().and_then(|count| self.rest.split_at_checked(count));
        let (bytes, rest) = split.ok_or(Damage::Malformed { at })?;
        self.rest = rest;
        Ok(bytes)
    }

    pub(super) fn array<const N: usize>(&mut self, at: &'static str) -> Result<[u8; N], Damage> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(Damage::Malformed { at })?;
        self.rest = rest;
        Ok(*bytes)
    }

    pub(super) fn u8(&mut self, at: &'static str) -> Result<u8, Damage> {
        self.array(at).map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self, at: &'static str) -> Result<u16, Damage> {
        self.array(at).map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self, at: &'static str) -> Result<u32, Damage> {
        self.array(at).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, at: &'static str) -> Result<u64, Damage> {
        self.array(at).map(u64::from_le_bytes)
    }

    pub(super) fn text(&mut self, count: u64, at: &'static str) -> Result<&'a str, Damage> {
        std::str::from_utf8(self.bytes(count, at)?).map_err(|_| Damage::Malformed { at })
    }

    /// A count and as many tokens.
    pub(super) fn tokens(&mut self, at: &'static str) -> Result<Vec<u32>, Damage> {
        let count = self.u64(at)?;
        let bytes = self.bytes(count.checked_mul(4).ok_or(Damage::Malformed { at })?, at)?;
        let (tokens, _) = bytes.as_chunks::<4>();
        Ok(tokens.iter().map(|token| u32::from_le_bytes(*token)).collect())
    }
}
