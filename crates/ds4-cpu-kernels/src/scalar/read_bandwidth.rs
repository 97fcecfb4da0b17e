//! Reading memory as fast as plain code can.

/// Wrapping sum of the bytes taken as little-endian 64-bit words, the last one padded with zeros.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    let (words, tail) = bytes.as_chunks::<8>();
    let sum = words.iter().fold(0u64, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    last[..tail.len()].copy_from_slice(tail);
    sum.wrapping_add(u64::from_le_bytes(last))
}
