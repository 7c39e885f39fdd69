//! Units of systemd.

use std::process::Command;

use crate::mta::command;

/// The command that makes a unit run that does not.
pub(super) fn start(unit: &str) -> String {
    let says = |question: &str| {
        let mut systemctl = Command::new("/usr/bin/systemctl");
        systemctl.args([question, unit]);
        command::run(systemctl).map_or_else(|_| String::new(), |said| said.stdout.trim().to_owned())
    };
    command_for(unit, &says("is-enabled"), &says("is-active"))
}

/// A unit that was never enabled is to be enabled; one that is, has a reason not to run, or
/// runs and does not do its work.
fn command_for(unit: &str, enabled: &str, active: &str) -> String {
    match (enabled, active) {
        ("enabled" | "static" | "enabled-runtime", "active" | "activating" | "failed") => {
            format!("systemctl restart {unit}")
        }
        _ => format!("systemctl enable --now {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_that_was_never_enabled_is_enabled() {
        for (enabled, active, expected) in [
            ("disabled", "inactive", "systemctl enable --now x.service"),
            ("not-found", "inactive", "systemctl enable --now x.service"),
            ("", "", "systemctl enable --now x.service"),
            ("enabled", "inactive", "systemctl enable --now x.service"),
            ("enabled", "failed", "systemctl restart x.service"),
            ("enabled", "active", "systemctl restart x.service"),
        ] {
            assert_eq!(command_for("x.service", enabled, active), expected, "{enabled} {active}");
        }
    }
}
