//! `exirate trace verify`: is the trace store sound?

use std::io::Write as _;

use clap::Args;
use serde::Serialize;

use super::super::screen::Screen;
use super::super::{Failure, Outcome, text};
use super::open::{Common, bar};
use crate::trace::Verified;

/// Check every byte of the trace store, and the owner and mode of its files
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Is it sound?
    exirate trace verify
  For scripts:
    exirate trace verify --json | jq '.problems | length'

Exim may run meanwhile. Nothing is changed; `exirate trace repair` repairs what can be
repaired. Messages that are damaged are left out of results, and are forgotten with
their age.

Exit status: 0 it is sound; 1 it is not, and each problem is a line; 2 an error.

JSON: an object; `problems` is an array of texts.")]
pub(super) struct Verify {
    #[command(flatten)]
    common: Common,
}

/// What was found, as JSON has it.
#[derive(Serialize)]
struct Findings {
    files: u64,
    messages: u64,
    bytes: u64,
    problems: Vec<String>,
}

impl Verify {
    pub(super) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let mut problems = Vec::new();
        let Verified { files, messages, bytes, .. } = match self.common.open_if_there()? {
            Some(store) => store
                .verify(&mut bar("messages"), &mut |problem| problems.push(problem.to_string()))?,
            None => Verified::default(),
        };
        let findings = Findings { files, messages, bytes, problems };
        if self.common.json {
            screen.json(&findings)?;
        } else {
            for problem in &findings.problems {
                writeln!(screen, "{}", text::printable(problem.as_bytes()))?;
            }
            let verdict = match findings.problems.len() {
                0 => "sound".to_owned(),
                1 => "1 problem".to_owned(),
                n => format!("{n} problems"),
            };
            writeln!(screen, "{verdict}: {messages} message(s) in {files} file(s)")?;
        }
        Ok(Outcome::found_if(!findings.problems.is_empty()))
    }
}
