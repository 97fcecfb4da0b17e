//! Any bytes as a session checkpoint: never a panic, and what is accepted points only at bytes that are there.
#![no_main]

use ds4_session_store::{MAGIC, PROLOGUE, Place, VERSION, read_head, read_prologue, verify_part};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    // No fuzzer guesses a checksum. With a true prologue in front, it works on the head; the first two bytes say how
    // much of the rest are inline parts.
    if let Some((&[low, high], rest)) = bytes.split_first_chunk() {
        let inline = usize::from(u16::from_le_bytes([low, high])).min(rest.len());
        check(&sealed(&rest[..rest.len() - inline], &rest[rest.len() - inline..]));
    }
});

fn sealed(head: &[u8], inline: &[u8]) -> Vec<u8> {
    let mut file = MAGIC.to_vec();
    file.extend(VERSION.to_le_bytes());
    file.extend([0; 4]);
    file.extend((head.len() as u64).to_le_bytes());
    file.extend((inline.len() as u64).to_le_bytes());
    let mut hasher = blake3::Hasher::new();
    hasher.update(&file).update(head);
    file.extend(hasher.finalize().as_bytes());
    file.extend(head);
    file.extend(inline);
    file
}

fn check(file: &[u8]) {
    let head = match read_head(file, file.len() as u64) {
        Ok(head) => head,
        Err(damage) => {
            assert!(!damage.to_string().is_empty());
            return;
        }
    };
    let prologue = read_prologue(file).expect("the head was read");
    let inline = &file[PROLOGUE + prologue.head_bytes as usize..];
    assert_eq!(inline.len() as u64, prologue.inline_bytes);
    let mut inline_bytes = 0;
    let mut blob_bytes = vec![0; head.blobs.len()];
    for part in &head.parts {
        match part.place {
            Place::Inline => {
                let start = part.offset as usize;
                let _ = verify_part(part, &inline[start..start + part.length as usize]);
                inline_bytes += part.length;
            }
            Place::Blob(number) => blob_bytes[number] += part.length,
        }
    }
    assert_eq!(inline_bytes, prologue.inline_bytes, "a byte without owner or with two");
    assert!(head.blobs.iter().zip(&blob_bytes).all(|(blob, bytes)| blob.bytes == *bytes));
}
