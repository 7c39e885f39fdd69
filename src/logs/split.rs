//! Lines that Exim split for syslog: at 870 bytes, unless it was built with
//! `SYSLOG_LONG_LINES`, and at newlines. Each part begins with `[1/3] ` or `[1\3] `.

use std::collections::HashMap;

/// At most so many lines wait for their other parts.
const LINES_MAX: usize = 256;
/// A line has at most so many parts, and so many bytes.
const PARTS_MAX: u32 = 64;

/// Lines of which not all parts have been read, by the program and the process that write them.
#[derive(Debug, Default)]
pub(super) struct Parts {
    waiting: HashMap<(u32, Option<u32>), (u32, String)>,
}

/// What became of a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LinePart {
    /// It is none of several.
    Whole,
    /// More follow; or an earlier one is missing, so that the line cannot be joined.
    Waits,
    /// It was the last one; this is the line.
    Joined(String),
}

impl Parts {
    /// Considers a line that this process of a program wrote by syslog.
    pub(super) fn line(&mut self, program: (u32, Option<u32>), rest: &str) -> LinePart {
        let Some((number, of, joint, text)) = part(rest) else { return LinePart::Whole };
        if number == 1 {
            if self.waiting.len() >= LINES_MAX {
                self.waiting.clear();
            }
            self.waiting.insert(program, (1, text.to_owned()));
        } else {
            let Some((last, line)) = self.waiting.get_mut(&program) else { return LinePart::Waits };
            if *last + 1 != number {
                self.waiting.remove(&program);
                return LinePart::Waits;
            }
            *last = number;
            line.push_str(text);
        }
        if number < of {
            // At a newline, the next part begins with what follows it.
            if joint == '\\'
                && let Some((_, line)) = self.waiting.get_mut(&program)
            {
                line.push(' ');
            }
            return LinePart::Waits;
        }
        self.waiting.remove(&program).map_or(LinePart::Waits, |(_, line)| LinePart::Joined(line))
    }
}

/// `[1/3] text`: its number, of how many, what it was split at, and the text.
fn part(rest: &str) -> Option<(u32, u32, char, &str)> {
    let (head, text) = rest.strip_prefix('[')?.split_once("] ")?;
    let joint = head.chars().find(|c| matches!(c, '/' | '\\'))?;
    let (number, of) = head.split_once(joint)?;
    let is_number = |text: &str| text.len() <= 2 && text.bytes().all(|b| b.is_ascii_digit());
    if !is_number(number) || !is_number(of) {
        return None;
    }
    let (number, of) = (number.parse().ok()?, of.parse().ok()?);
    ((1..=of).contains(&number) && (2..=PARTS_MAX).contains(&of))
        .then_some((number, of, joint, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_joined_by_the_process_that_wrote_them() {
        let mut parts = Parts::default();
        assert_eq!(parts.line((1, Some(1)), "[1/3] 1xx <= a@"), LinePart::Waits);
        assert_eq!(parts.line((1, Some(2)), "[1\\2] one"), LinePart::Waits);
        assert_eq!(parts.line((1, Some(1)), "[2/3] x.test H="), LinePart::Waits);
        assert_eq!(parts.line((1, Some(2)), "[2\\2] two"), LinePart::Joined("one two".into()));
        assert_eq!(
            parts.line((1, Some(1)), "[3/3] [::1]"),
            LinePart::Joined("1xx <= a@x.test H=[::1]".into())
        );
        assert!(parts.waiting.is_empty());
    }

    #[test]
    fn a_line_without_one_of_its_parts_is_given_up() {
        let mut parts = Parts::default();
        assert_eq!(parts.line((1, Some(1)), "[2/2] x"), LinePart::Waits);
        assert_eq!(parts.line((1, Some(1)), "[1/3] x"), LinePart::Waits);
        assert_eq!(parts.line((1, Some(1)), "[3/3] x"), LinePart::Waits);
        assert!(parts.waiting.is_empty());
        for text in
            ["[12] x", "[1/2]", "[0/2] x", "[3/2] x", "[1/1] x", "[1/999] x", "1/2 x", "[/] x"]
        {
            assert_eq!(parts.line((1, Some(1)), text), LinePart::Whole, "{text}");
        }
        for n in 0..9999 {
            parts.line((1, Some(n)), "[1/2] x");
        }
        assert!(parts.waiting.len() <= LINES_MAX);
    }
}
