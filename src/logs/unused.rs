//! Why lines are not used: each is counted under a reason that a person can check.

use std::collections::HashSet;

/// So many examples of each reason are kept, each of another form.
const EXAMPLES: usize = 8;
/// So many characters of an example are kept.
const EXAMPLE_MAX: usize = 200;
/// So many lines of a reason are looked at for examples; of those after, one in as many.
const LOOKED_AT: u64 = 512;

/// Why a line is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// It has no time.
    WithoutTime,
    /// Another program wrote it.
    OtherProgram,
    /// Its form is not known.
    NotUnderstood,
    /// It says nothing of who sends how much.
    Silent,
    /// It is of a message that is counted already.
    Again,
    /// It is of a message whose arrival is not in the log.
    NotBegun,
    /// The same line was written twice.
    Copy,
    /// It is a part of a line.
    Part,
    /// Too many servers write to the log.
    TooManyServers,
}

impl Reason {
    /// What is said of the lines.
    #[must_use]
    pub fn text(self) -> &'static str {
        REASONS[self as usize].2
    }
}

/// The reasons, each with its name in JSON and what is said of the lines.
pub const REASONS: [(Reason, &str, &str); 9] = [
    (Reason::WithoutTime, "without_time", "without a time at the start"),
    (Reason::OtherProgram, "of_other_programs", "of other programs"),
    (Reason::NotUnderstood, "not_understood", "of a form that is not known, such as what ACLs log"),
    (Reason::Silent, "of_no_use", "without anything about who sends how much"),
    (
        Reason::Again,
        "of_counted_messages",
        "of messages that are counted already: tried again, put into the queue again, or back from a \
         filter",
    ),
    (Reason::NotBegun, "of_unknown_messages", "of messages whose arrival is not in the log"),
    (Reason::Copy, "copies", "written twice by Exim, for the main log and the reject log"),
    (Reason::Part, "parts", "of several that make one, which is read when it is complete"),
    (Reason::TooManyServers, "of_too_many_servers", "of more servers than can be distinguished"),
];

/// The lines that are not used, by reason.
#[derive(Clone, Debug, Default)]
pub struct Unused {
    of: [UnusedLines; REASONS.len()],
}

/// The lines that are not used for one reason.
#[derive(Clone, Debug, Default)]
pub struct UnusedLines {
    /// How many.
    pub count: u64,
    /// The first ones of some forms: `FILE:LINE`, and the start of the line.
    pub examples: Vec<(String, String)>,
    forms: HashSet<String>,
}

impl Unused {
    /// Counts a line at this place, `FILE` and the number of the line.
    pub fn add(&mut self, reason: Reason, place: (&str, u64), line: &str) {
        if let Some(lines) = self.of.get_mut(reason as usize) {
            lines.add(place, line);
        }
    }

    /// Adds the lines of another reader.
    pub fn join(&mut self, other: Self) {
        for (of, other) in self.of.iter_mut().zip(other.of) {
            of.count += other.count;
            of.examples.extend(other.examples);
            of.examples.truncate(EXAMPLES);
        }
    }

    /// The lines of a reason.
    #[must_use]
    pub fn of(&self, reason: Reason) -> &UnusedLines {
        &self.of[reason as usize]
    }

    /// Each reason, its name and what is said of its lines, and the lines.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, &'static str, &UnusedLines)> {
        REASONS.iter().map(|(reason, name, text)| (*name, *text, self.of(*reason)))
    }
}

impl UnusedLines {
    fn add(&mut self, (file, number): (&str, u64), line: &str) {
        self.count += 1;
        let is_looked_at = self.count <= LOOKED_AT || self.count.is_multiple_of(LOOKED_AT);
        if self.examples.len() >= EXAMPLES || !is_looked_at || !self.forms.insert(form(line)) {
            return;
        }
        let text = line.chars().take(EXAMPLE_MAX).collect();
        self.examples.push((format!("{file}:{number}"), text));
    }
}

/// What lines of one form have in common: the start, without numbers, ids and addresses.
fn form(line: &str) -> String {
    let is_word = |word: &&str| !word.bytes().any(|b| b.is_ascii_digit() || b == b'@');
    let mut form = String::new();
    for word in line.split(' ').filter(is_word).take(5) {
        form.push_str(word);
        form.push(' ');
    }
    form
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_are_of_different_forms() {
        let mut unused = Unused::default();
        for (line, number) in (0..2000).map(|n| format!("x {n} y{n}@z {}", n % 3 == 0)).zip(1..) {
            unused.add(Reason::Silent, ("log", number), &line);
        }
        let lines = unused.of(Reason::Silent);
        assert_eq!(lines.count, 2000);
        let examples: Vec<_> = lines.examples.iter().map(|(place, _)| &**place).collect();
        assert_eq!(examples, ["log:1", "log:2"]);
        assert!(REASONS.iter().enumerate().all(|(at, (reason, ..))| *reason as usize == at));
    }
}
