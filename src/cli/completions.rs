//! `exirate completions`: what a shell needs to complete the program's words.

use clap::Args;
use clap_complete::Shell;

use super::screen::Screen;
use super::{Failure, Outcome};

/// Prints completions for a shell
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  For everyone on a Debian machine:
    exirate completions bash > /usr/share/bash-completion/completions/exirate
    exirate completions zsh > /usr/share/zsh/vendor-completions/_exirate
    exirate completions fish > /usr/share/fish/vendor_completions.d/exirate.fish

Exit status: 0 printed; 2 an error.")]
pub(super) struct Completions {
    /// Which shell
    shell: Shell,
}

impl Completions {
    pub(super) fn run(
        &self,
        screen: &mut Screen<'_>,
        mut program: clap::Command,
    ) -> Result<Outcome, Failure> {
        clap_complete::generate(self.shell, &mut program, "exirate", screen);
        Ok(Outcome::Fine)
    }
}
