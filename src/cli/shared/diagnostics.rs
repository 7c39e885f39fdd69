//! What is wrong with a file, as commands print it.

use std::io::Write as _;
use std::path::PathBuf;

use anstyle::{AnsiColor, Style};

use super::screen::Screen;
use crate::cli::Failure;
use crate::text::printable;
use crate::toml_file::diagnostic::{Diagnostic, Severity, place};

/// Prints a line for each.
pub(in crate::cli) fn print(
    screen: &mut Screen<'_>,
    files: &[PathBuf],
    list: &[Diagnostic],
) -> Result<(), Failure> {
    for one in list {
        let at = place(files, one.at);
        let at = printable(at.as_bytes());
        let severity = screen.paint(style(one.severity), one.severity);
        writeln!(screen, "{at}: {severity}: {}", printable(one.message.as_bytes()))?;
    }
    Ok(())
}

fn style(severity: Severity) -> Style {
    match severity {
        Severity::Error => AnsiColor::Red.on_default().bold(),
        Severity::Warning => AnsiColor::Yellow.on_default(),
    }
}
