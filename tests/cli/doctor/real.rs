//! Each command that a finding names exists.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::{exirate, stdout};

/// Checks the commands of a finding, and those in backquotes in its text: each
/// program is there, each file or the directory for it, and of `exirate` each
/// command and option.
pub(super) fn advice_is_real(finding: &Value) {
    for fix in finding["fix"].as_array().unwrap() {
        command_is_real(fix.as_str().unwrap());
    }
    let text = finding["text"].as_str().unwrap();
    for quoted in text.split('`').skip(1).step_by(2) {
        if ["exirate ", "exim ", "ulimit "].iter().any(|program| quoted.starts_with(program)) {
            command_is_real(quoted);
        }
    }
}

fn command_is_real(line: &str) {
    for part in line.split("&&") {
        let words: Vec<&str> = part.split_whitespace().collect();
        let [program, arguments @ ..] = &words[..] else { panic!("an empty command: {line}") };
        let (program, arguments) = match (*program, arguments) {
            ("sudo", [program, arguments @ ..]) => (*program, arguments),
            (program, arguments) => (program, arguments),
        };
        match program {
            "exirate" => exirate_is_real(arguments, line),
            // Not on machines without systemd, nor without Debian's Exim.
            "systemctl" | "journalctl" | "restorecon" | "exim" => {}
            _ => {
                let found = Command::new("/bin/sh")
                    .args(["-c", &format!("PATH=$PATH:/usr/sbin:/sbin command -v {program}")])
                    .output()
                    .unwrap();
                assert!(found.status.success(), "there is no {program}: {line}");
            }
        }
        for path in arguments.iter().map(|word| word.trim_matches('\'')) {
            if path.starts_with('/') && !path.contains('*') && program != "mv" {
                let path = Path::new(path);
                let there = path.symlink_metadata().is_ok()
                    || path.parent().is_some_and(Path::exists)
                    // Installed by the package.
                    || path.starts_with("/etc/exim4/")
                    || path.starts_with("/etc/exirate/");
                assert!(there, "there is no {}: {line}", path.display());
            }
        }
    }
}

fn exirate_is_real(arguments: &[&str], line: &str) {
    let is_option = |word: &&str| word.starts_with('-');
    // `trace tidy` and its like are commands of commands.
    let mut command: Vec<&str> = arguments.iter().take(1).copied().collect();
    if let [first @ ("trace" | "config" | "policy"), second, ..] = arguments
        && !is_option(second)
    {
        command = vec![first, second];
    }
    let output = exirate().args(&command).arg("--help").output().unwrap();
    assert!(output.status.success(), "there is no command {command:?}: {line}");
    let help = stdout(&output);
    for option in arguments.iter().filter(|word| is_option(word)) {
        assert!(help.contains(option), "exirate {command:?} has no {option}: {line}");
    }
}
