//! The text of Postfix's files: logical lines, and the words of lists.

/// The logical lines of a file: a line that starts with a blank continues the one before.
pub(super) fn lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        if line.trim_start().starts_with('#') {
            continue;
        }
        match lines.last_mut() {
            Some(last) if line.starts_with([' ', '\t']) => {
                last.push(' ');
                last.push_str(line.trim());
            }
            _ => lines.push(line.trim_end().to_owned()),
        }
    }
    lines
}

/// A list without blanks, as `postconf -P` takes it: commas between the words, also of those
/// in braces. A text in braces keeps its blanks.
pub(crate) fn without_blanks(list: &str) -> String {
    let word = |word: String| match inside(&word) {
        Some(list) => format!("{{{}}}", without_blanks(list)),
        None => word,
    };
    words(list).into_iter().map(word).collect::<Vec<_>>().join(",")
}

/// What is within braces.
pub(crate) fn inside(word: &str) -> Option<&str> {
    Some(word.strip_prefix('{')?.strip_suffix('}')?.trim())
}

/// The words of a list, between blanks and commas; what is in braces is one word.
pub(crate) fn words(text: &str) -> Vec<String> {
    split(text, |c| c.is_whitespace() || c == ',')
}

pub(super) fn split(text: &str, is_gap: impl Fn(char) -> bool) -> Vec<String> {
    let mut words = Vec::new();
    let (mut word, mut depth) = (String::new(), 0_usize);
    for c in text.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 && is_gap(c) {
            if !word.is_empty() {
                words.push(std::mem::take(&mut word));
            }
        } else {
            word.push(c);
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_can_do_without_blanks() {
        assert_eq!(
            without_blanks(
                "check_policy_service { unix:a, timeout=10s }, permit_mynetworks  reject"
            ),
            "check_policy_service,{unix:a,timeout=10s},permit_mynetworks,reject"
        );
        assert!(without_blanks("{ unix:a, default_action={450 later} }").contains(' '));
    }

    #[test]
    fn what_is_in_braces_is_one_word() {
        let list = "reject_unlisted_recipient,check_policy_service { unix:a, timeout=10s } permit";
        let expected = [
            "reject_unlisted_recipient",
            "check_policy_service",
            "{ unix:a, timeout=10s }",
            "permit",
        ];
        assert_eq!(words(list), expected);
        assert_eq!(inside("{ unix:a, timeout=10s }"), Some("unix:a, timeout=10s"));
        assert_eq!(words(" , "), [""; 0]);
    }
}
