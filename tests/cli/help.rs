//! What the program says of itself.

use crate::{exirate, stdout};

#[test]
fn every_command_has_help_with_examples() {
    for command in ["check", "list"] {
        let output = exirate().args([command, "--help"]).output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert!(stdout(&output).contains("Examples:\n"), "{}", stdout(&output));
        assert!(stdout(&output).contains(&format!("exirate {command}")));
    }
    let output = exirate().arg("--help").output().unwrap();
    assert!(stdout(&output).contains("Exit status"));
}
