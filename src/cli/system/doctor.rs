//! `exirate doctor`: check that the mail server, exirate and the database work together.

use std::io::Write as _;
use std::path::PathBuf;

use anstyle::{AnsiColor, Style};
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::shared::screen::Screen;
use crate::cli::{Failure, Json, Outcome};
use crate::doctor::{Depth, Finding, Findings, Level, Subject};
use crate::text::counted;

/// Check that mail server, exirate and database work together
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Does everything work?
    exirate doctor
  Would it work with this configuration?
    exirate doctor --exim /usr/sbin/exim4 --config /etc/exim4/exim4.conf
  For scripts:
    exirate doctor --json | jq -r '.findings[] | .level + \": \" + .text'

Run it as root. It checks the mail server and its configuration, the libraries, the policies in use,
the databases, the daemons and shared limits, and changes nothing. A problem means that mail is not
limited as it should be, or is deferred; where commands fix it, they are shown.

Exit status: 0 no problem; 1 there are problems; 2 an error: not everything could be
checked.

Run it as root: other users cannot read all of Exim's configuration and files. It checks Exim and
what it can load; every call of exirate's libraries in its configuration (`exirate rules` lists
them), and whether mail reaches it; the libraries; the database and its files; that the policies
in use are those of /etc/exirate/policy.toml, and are evaluated where they count; if limits are
shared, the agent, the Redis servers, and the other mail servers: how many run, and whether their
releases, policies and clocks are the same; the web service and its broker; the trace store, if
there is one; the file system; the limits of Exim's daemon, and whether the daemon has read the
configuration as it is now. Warnings of `exirate policy lint` about the policies in use are
warnings here. As root, it runs no program that another user can change. Where there is no Exim,
it checks instead that Postfix or Sendmail asks `exirate serve mail` in the right place of its
lists, on the socket where the daemon listens, and that mail is accepted while the daemon is down.
It changes nothing. A problem means that mail is not limited as it should be, or is deferred;
where commands fix it, they are shown.", add = Json::of::<FindingsJson<'_>>())]
pub(in crate::cli) struct Doctor {
    /// Read this configuration file of Exim, not the usual one
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Check this Exim
    #[arg(long, value_name = "PROGRAM")]
    exim: Option<PathBuf>,

    /// Check the database of this spool directory, not that of Exim's configuration
    #[arg(long, value_name = "DIR")]
    spool: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The findings, as JSON has them.
#[derive(Serialize, JsonSchema)]
struct FindingsJson<'a> {
    problems: usize,
    warnings: usize,
    notes: usize,
    /// False where something could not be checked.
    complete: bool,
    findings: &'a [Finding],
}

impl Doctor {
    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let Self { config, exim, spool, json } = self;
        let subject = Subject { config: config.clone(), exim: exim.clone(), spool: spool.clone() };
        let findings = subject.examine(Depth::All).map_err(Failure::new)?.findings;
        let problems = findings.count(Level::Problem);
        if *json {
            screen.json(&FindingsJson {
                problems,
                warnings: findings.count(Level::Warning),
                notes: findings.count(Level::Note),
                complete: !findings.is_hidden(),
                findings: &findings.list,
            })?;
        } else {
            print(&findings, screen)?;
        }
        if problems == 0 && findings.is_hidden() {
            return Err(Failure::new("not everything could be checked: run this as root"));
        }
        Ok(Outcome::found_if(problems > 0))
    }
}

/// Prints what was found for people.
fn print(findings: &Findings, screen: &mut Screen<'_>) -> Result<(), Failure> {
    let mut about = "";
    for finding in &findings.list {
        if finding.about != about {
            about = finding.about;
            let head = screen.paint(Style::new().bold(), about);
            writeln!(screen, "{head}")?;
        }
        let (word, style) = match finding.level {
            Level::Ok => ("ok      ", AnsiColor::Green.on_default()),
            Level::Note => ("note    ", AnsiColor::Cyan.on_default()),
            Level::Warning => ("warning ", AnsiColor::Yellow.on_default()),
            Level::Problem => ("PROBLEM ", AnsiColor::Red.on_default().bold()),
        };
        let word = screen.paint(style, word);
        writeln!(screen, "  {word} {}", harmless(&finding.text))?;
        for (n, command) in finding.fix.iter().enumerate() {
            let lead = if n == 0 { "fix:" } else { "" };
            writeln!(screen, "           {lead:<5} {}", harmless(command))?;
        }
    }
    let counts = [
        counted(findings.count(Level::Problem), "problem", "problems"),
        counted(findings.count(Level::Warning), "warning", "warnings"),
        counted(findings.count(Level::Note), "note", "notes"),
    ];
    let mut words: Vec<&str> = counts.iter().map(String::as_str).collect();
    words.retain(|count| !count.starts_with("0 "));
    match (findings.count(Level::Problem), findings.count(Level::Warning)) {
        (0, _) if findings.is_hidden() => words.insert(0, "No problem was found"),
        (0, 0) => words.insert(0, "All is well"),
        (0, _) => words.insert(0, "No problem"),
        _ => {}
    }
    writeln!(screen, "{}.", words.join(", "))?;
    Ok(())
}

/// `text` without terminal control characters. Backslashes and quotes stay,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_drives_no_terminal() {
        assert_eq!(harmless(r"'\''"), r"'\''");
        assert_eq!(harmless("a\x1b[2J\n"), r"a\u{1b}[2J\n");
    }

    #[test]
    fn the_verdict_is_in_words() {
        let print = |findings: &Findings| {
            let mut out = Vec::new();
            let mut screen = Screen::of(&mut out, None);
            super::print(findings, &mut screen).unwrap();
            drop(screen);
            String::from_utf8(out).unwrap()
        };
        let mut findings = Findings::default();
        findings.about("Exim");
        findings.ok("fine");
        assert_eq!(print(&findings), "Exim\n  ok       fine\nAll is well.\n");
        findings.note("hm");
        findings.problem("bad").fix("one").fix("two");
        assert_eq!(
            print(&findings),
            "Exim\n  ok       fine\n  note     hm\n  PROBLEM  bad\n           fix:  one\n           \
             \u{20}     two\n1 problem, 1 note.\n"
        );
    }
}
