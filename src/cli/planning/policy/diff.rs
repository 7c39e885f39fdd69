//! `exirate policy diff`: what two policy files differ in.

use std::io::Write as _;
use std::path::PathBuf;

use anstyle::AnsiColor;
use clap::Args;

use super::file::sound;
use crate::cli::shared::screen::Screen;
use crate::cli::{Failure, Outcome};
use crate::policy::changes::settings;
use crate::text::printable;

/// Show how two policy files differ
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  What would a new policy file change?
    exirate policy diff /etc/exirate/policy.toml policy.toml

A line that starts with `-` is a setting of the old file, one with `+` of the new one. Only what a
file means is compared: not order, comments, or the way a period is written.

Exit status: 0 both mean the same; 1 they differ; 2 an error.

A line that starts with `-` is a setting of the old file, one with `+` of the new
one. Only what a file means is compared: not the order, comments, or whether a
period is written as 60m or as 1h. A setting that is not written has its default.")]
pub(super) struct Diff {
    /// The old policy file
    #[arg(value_name = "OLD")]
    old: PathBuf,

    /// The new policy file
    #[arg(value_name = "NEW")]
    new: PathBuf,
}

impl Diff {
    pub(super) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let old = settings(&sound(&self.old)?);
        let new = settings(&sound(&self.new)?);
        let mut names: Vec<&String> = old.keys().chain(new.keys()).collect();
        names.sort();
        names.dedup();
        let mut differ = false;
        for name in names {
            let (before, after) = (old.get(name), new.get(name));
            if before == after {
                continue;
            }
            differ = true;
            for (sign, value, color) in
                [("-", before, AnsiColor::Red), ("+", after, AnsiColor::Green)]
            {
                let Some(value) = value else { continue };
                let line = printable(format!("{sign} {name} = {value}").as_bytes());
                let line = screen.paint(color.on_default(), line);
                writeln!(screen, "{line}")?;
            }
        }
        Ok(Outcome::found_if(differ))
    }
}
