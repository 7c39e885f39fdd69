//! `exirate completions`: completion scripts for shells.

use std::io::Write as _;

use clap::Args;
use clap_complete::Shell;
use clap_complete::env::Shells;

use crate::cli::shared::complete::VARIABLE;
use crate::cli::shared::screen::Screen;
use crate::cli::{Failure, Outcome};

/// The script for bash. bash splits words at characters such as `@` and `:`, so
/// the word to complete is taken from the line itself.
const BASH: &str = r#"_exirate() {
    local line="${COMP_LINE:0:COMP_POINT}" words word prefix
    read -ra words <<<"$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    word="${words[${#words[@]} - 1]}"
    prefix="${word%"$2"}"
    COMPREPLY=()
    while IFS= read -r word || [[ -n $word ]]; do
        [[ -n $word ]] && COMPREPLY+=("${word#"$prefix"}")
    done < <(VARIABLE=bash _CLAP_IFS=$'\n' _CLAP_COMPLETE_INDEX=$((${#words[@]} - 1)) \
        "${words[0]}" -- "${words[@]}" 2>/dev/null)
    [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == */ ]] && compopt -o nospace
}
complete -o nosort -F _exirate exirate 2>/dev/null || complete -F _exirate exirate
"#;

/// Print a completion script for a shell
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  For all users of a Debian system:
    exirate completions bash > /usr/share/bash-completion/completions/exirate
    exirate completions zsh > /usr/share/zsh/vendor-completions/_exirate
    exirate completions fish > /usr/share/fish/vendor_completions.d/exirate.fish

Exit status: 0 printed; 2 an error.

The scripts call exirate for commands, options, modes, and the keys and periods in the
database, where the user may read it. Keys are left out if the database is larger than
64 MiB, and so are keys with characters that are special to a shell.")]
pub(in crate::cli) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        if self.shell == Shell::Bash {
            screen.write_all(BASH.replace("VARIABLE", VARIABLE).as_bytes())?;
            return Ok(Outcome::Fine);
        }
        let name = self.shell.to_string();
        let shells = Shells::builtins();
        let shell = shells
            .completer(&name)
            .ok_or_else(|| Failure::new(format!("there are no completions for {name}")))?;
        shell.write_registration(VARIABLE, "exirate", "exirate", "exirate", screen)?;
        Ok(Outcome::Fine)
    }
}
