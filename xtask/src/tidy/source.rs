//! Rust text with comments and literals blanked out, so that rules can look for words without a parser.

/// `text` with every comment, string and character literal replaced by spaces; line breaks stay.
pub(super) fn code_only(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < bytes.len() {
        let skipped = skipped_length(bytes, at);
        if skipped == 0 {
            out.push(if bytes[at].is_ascii() { char::from(bytes[at]) } else { ' ' });
            at += 1;
        } else {
            let blanked = &bytes[at..at + skipped];
            out.extend(blanked.iter().map(|&b| if b == b'\n' { '\n' } else { ' ' }));
            at += skipped;
        }
    }
    out
}

/// The part of a file before its unit tests.
pub(super) fn before_tests(text: &str) -> &str {
    text.find("\n#[cfg(test)]").map_or(text, |at| &text[..at])
}

/// Whether `word` occurs in `code` as a whole word.
pub(super) fn has_word(code: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).any(|(at, _)| {
        !code[..at].chars().next_back().is_some_and(is_part)
            && !code[at + word.len()..].chars().next().is_some_and(is_part)
    })
}

/// Length of the comment or literal that starts at `at`, 0 if none does.
fn skipped_length(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    match rest {
        [b'/', b'/', ..] => rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len()),
        [b'/', b'*', ..] => block_comment(rest),
        [b'"', ..] => string(rest),
        [b'r', b'"' | b'#', ..] if !is_word(bytes, at) => raw_string(rest),
        [b'\'', ..] => character(rest),
        _ => 0,
    }
}

/// Whether the byte before `at` continues a word, so that an `r` there is no string prefix. `br"` counts as one.
fn is_word(bytes: &[u8], at: usize) -> bool {
    at.checked_sub(1).is_some_and(|before| {
        let b = bytes[before];
        (b.is_ascii_alphanumeric() || b == b'_') && b != b'b'
    })
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn string(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

fn raw_string(rest: &[u8]) -> usize {
    let hashes = rest[1..].iter().take_while(|&&b| b == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return 0; // a raw identifier
    }
    let body = 2 + hashes;
    let mut end = vec![b'"'];
    end.resize(1 + hashes, b'#');
    rest[body..].windows(end.len()).position(|w| w == end).map_or(rest.len(), |p| body + p + end.len())
}

/// A character literal; a lifetime is none.
fn character(rest: &[u8]) -> usize {
    match rest {
        [_, b'\\', _, tail @ ..] => tail.iter().position(|&b| b == b'\'').map_or(0, |p| p + 4),
        [_, _, tail @ ..] => tail
            .iter()
            .take(4)
            .position(|&b| b == b'\'')
            .filter(|p| *p == 0 || !rest[1].is_ascii())
            .map_or(0, |p| p + 3),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_and_code_stays() {
        let text = "a // unsafe\nb /* x /* unsafe */ y */ c \"unsafe \\\" unsafe\" d r#\"un\"safe\"# e 'u' f '\\'' &'static g";
        let code = code_only(text);
        assert_eq!(code.len(), text.len());
        assert!(!has_word(&code, "unsafe"), "{code}");
        let left: Vec<_> = code.split_whitespace().collect();
        assert_eq!(left, ["a", "b", "c", "d", "e", "f", "&'static", "g"]);
    }

    #[test]
    fn words_are_whole() {
        assert!(has_word("x = unsafe { y }", "unsafe"));
        assert!(!has_word("#![deny(unsafe_code)]", "unsafe"));
    }

    #[test]
    fn lifetimes_are_no_literals() {
        assert_eq!(code_only("fn f<'a>(x: &'a str) {}"), "fn f<'a>(x: &'a str) {}");
    }
}
