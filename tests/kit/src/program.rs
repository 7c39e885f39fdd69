//! Programs that a test writes and runs.
//!
//! Another process writes them: if this one did, a child that another test starts
//! meanwhile would hold the file open for writing until it executes its own program,
//! and the file could not be run ("Text file busy").

use std::path::Path;
use std::process::Command;

/// Copies a program, with its mode.
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let mut copy = Command::new("cp");
    run(copy.args(["--preserve=mode", "--"]).arg(from.as_ref()).arg(to.as_ref()));
}

/// Writes a script that everybody may run.
pub fn write_script(path: impl AsRef<Path>, text: &str) {
    let mut write = Command::new("sh");
    write.args(["-c", r#"printf %s "$1" >"$2" && chmod 755 "$2""#, "sh", text]);
    run(write.arg(path.as_ref()));
}

fn run(command: &mut Command) {
    assert!(command.status().unwrap().success(), "{command:?}");
}
