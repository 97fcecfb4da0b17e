//! Any bytes as a safetensors file: never a panic, and what is accepted lies inside the file and covers it once.
#![no_main]

use ds4_weights::{ElementType, parse_header};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    // The length field is hard to guess. With a true one in front, the fuzzer works on the JSON; the first byte says
    // how much of the rest is data.
    if let Some((&data_len, rest)) = bytes.split_first() {
        let header_len = rest.len().saturating_sub(usize::from(data_len));
        let mut file = (header_len as u64).to_le_bytes().to_vec();
        file.extend_from_slice(rest);
        check(&file);
    }
});

fn check(file: &[u8]) {
    let header = match parse_header(file) {
        Ok(header) => header,
        Err(problems) => {
            assert!(!problems.is_empty(), "refused without a reason");
            problems.iter().for_each(|problem| assert!(!problem.to_string().is_empty()));
            return;
        }
    };
    let mut uses = vec![0u8; file.len()];
    for entry in &header.entries {
        if let ElementType::Supported(dtype) = &entry.dtype {
            assert_eq!(entry.shape.iter().product::<usize>() * dtype.size(), entry.range.len());
        }
        uses[entry.range.clone()].iter_mut().for_each(|n| *n += 1);
    }
    let data_start = 8 + u64::from_le_bytes(std::array::from_fn(|i| file[i])) as usize;
    assert!(uses[..data_start].iter().all(|&n| n == 0), "a tensor in the header");
    assert!(uses[data_start..].iter().all(|&n| n == 1), "a byte of data without owner or with two");
}
