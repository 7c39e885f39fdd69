//! What the doctor has found.

use std::borrow::Cow;
use std::io::Write as _;
use std::path::Path;

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use super::super::Failure;
use super::super::screen::Screen;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    /// It is as it should be.
    Ok,
    /// It works, and is worth knowing.
    Note,
    /// Mail is not limited as it should be, or may soon not be.
    Problem,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
pub(super) struct Finding {
    about: &'static str,
    pub(super) level: Level,
    pub(super) text: String,
    /// Commands for a shell that mend it, in their order; none where no command
    /// does.
    pub(super) mend: Vec<String>,
}

/// All that was found, in the order in which it was looked at.
#[derive(Debug, Default)]
pub(super) struct Findings {
    about: &'static str,
    pub(super) list: Vec<Finding>,
    /// Something was hidden from whoever runs this.
    hidden: bool,
}

/// The findings, as JSON has them.
#[derive(Serialize)]
struct Told<'a> {
    problems: usize,
    notes: usize,
    complete: bool,
    findings: &'a [Finding],
}

impl Findings {
    /// What follows is about this.
    pub(super) fn about(&mut self, what: &'static str) {
        self.about = what;
    }

    /// Something is as it should be.
    pub(super) fn ok(&mut self, text: impl Into<String>) {
        self.add(Level::Ok, text.into());
    }

    /// Something is worth knowing.
    pub(super) fn note(&mut self, text: impl Into<String>) -> &mut Self {
        self.add(Level::Note, text.into());
        self
    }

    /// Something could not be looked at but by root.
    pub(super) fn hidden(&mut self, text: impl Into<String>) {
        self.hidden = true;
        self.note(text).mend(as_root());
    }

    /// Whether something could not be looked at.
    pub(super) fn is_hidden(&self) -> bool {
        self.hidden
    }

    /// Something is wrong.
    pub(super) fn problem(&mut self, text: impl Into<String>) -> &mut Self {
        self.add(Level::Problem, text.into());
        self
    }

    /// Adds a command that mends what was found last.
    pub(super) fn mend(&mut self, command: impl Into<String>) -> &mut Self {
        if let Some(last) = self.list.last_mut() {
            last.mend.push(command.into());
        }
        self
    }

    fn add(&mut self, level: Level, text: String) {
        self.list.push(Finding { about: self.about, level, text, mend: Vec::new() });
    }

    /// How many there are of this level.
    pub(super) fn count(&self, level: Level) -> usize {
        self.list.iter().filter(|finding| finding.level == level).count()
    }

    /// Writes them as JSON.
    pub(super) fn json(&self, screen: &mut Screen<'_>) -> Result<(), Failure> {
        screen.json(&Told {
            problems: self.count(Level::Problem),
            notes: self.count(Level::Note),
            complete: !self.hidden,
            findings: &self.list,
        })
    }

    /// Writes them for people.
    pub(super) fn tell(&self, screen: &mut Screen<'_>) -> Result<(), Failure> {
        let mut about = "";
        for finding in &self.list {
            if finding.about != about {
                about = finding.about;
                let head = screen.paint(Style::new().bold(), about);
                writeln!(screen, "{head}")?;
            }
            let (word, style) = match finding.level {
                Level::Ok => ("ok      ", AnsiColor::Green.on_default()),
                Level::Note => ("note    ", AnsiColor::Yellow.on_default()),
                Level::Problem => ("PROBLEM ", AnsiColor::Red.on_default().bold()),
            };
            let word = screen.paint(style, word);
            writeln!(screen, "  {word} {}", harmless(&finding.text))?;
            for (n, command) in finding.mend.iter().enumerate() {
                let lead = if n == 0 { "mend:" } else { "" };
                writeln!(screen, "           {lead:<5} {}", harmless(command))?;
            }
        }
        let (problems, notes) = (self.count(Level::Problem), self.count(Level::Note));
        let verdict = match problems {
            0 if self.hidden => "Nothing wrong was seen".to_owned(),
            0 => "All is well".to_owned(),
            _ => counted(problems, "problem"),
        };
        match notes {
            0 => writeln!(screen, "{verdict}.")?,
            _ => writeln!(screen, "{verdict}, {}.", counted(notes, "note"))?,
        }
        Ok(())
    }
}

/// `1 note`, `2 notes`.
pub(super) fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// `text` without anything that drives a terminal. Backslashes and quotes stay,
/// so that commands can be copied.
fn harmless(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '"' | '\'' => shown.push(c),
            _ => shown.extend(c.escape_debug()),
        }
    }
    shown
}

/// A path as a shell reads it back.
pub(super) fn quoted(path: &Path) -> Cow<'static, str> {
    let text = path.display().to_string();
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/._-+:@%,=".contains(&b);
    if !text.is_empty() && text.bytes().all(plain) {
        text.into()
    } else {
        format!("'{}'", text.replace('\'', r"'\''")).into()
    }
}

/// The command that runs this again as root.
fn as_root() -> String {
    let arguments = std::env::args_os().skip(1);
    arguments.fold("sudo exirate".to_owned(), |command, argument| {
        format!("{command} {}", quoted(Path::new(&argument)))
    })
}

/// A size in the unit that fits: `3.2 MiB`.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (bytes as f64, UNITS[0]);
    for larger in &UNITS[1..] {
        // What would be rounded to 1024 is one of the next unit.
        if value < 1023.5 {
            break;
        }
        (value, unit) = (value / 1024.0, larger);
    }
    match unit {
        "bytes" => format!("{bytes} bytes"),
        _ if value < 10.0 => format!("{value:.1} {unit}"),
        _ => format!("{value:.0} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_can_be_copied_and_drive_no_terminal() {
        assert_eq!(quoted(Path::new("/var/spool/exim4/00.shard")), "/var/spool/exim4/00.shard");
        assert_eq!(quoted(Path::new("/a b/it's")), r"'/a b/it'\''s'");
        assert_eq!(quoted(Path::new("")), "''");
        assert_eq!(harmless(r"'\''"), r"'\''");
        assert_eq!(harmless("a\x1b[2J\n"), r"a\u{1b}[2J\n");
    }

    #[test]
    fn sizes_are_in_the_unit_that_fits() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1024, "1.0 KiB"),
            (100 << 20, "100 MiB"),
            ((1 << 30) - 1, "1.0 GiB"),
            (1 << 30, "1.0 GiB"),
            (u64::MAX, "16777216 TiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn the_verdict_is_in_words() {
        let tell = |findings: &Findings| {
            let mut out = Vec::new();
            let mut screen = Screen::plain(&mut out, None);
            findings.tell(&mut screen).unwrap();
            drop(screen);
            String::from_utf8(out).unwrap()
        };
        let mut findings = Findings::default();
        findings.about("Exim");
        findings.ok("fine");
        assert_eq!(tell(&findings), "Exim\n  ok       fine\nAll is well.\n");
        findings.note("hm");
        findings.problem("bad").mend("one").mend("two");
        assert_eq!(
            tell(&findings),
            "Exim\n  ok       fine\n  note     hm\n  PROBLEM  bad\n           mend: one\n           \
             \u{20}     two\n1 problem, 1 note.\n"
        );
    }
}
