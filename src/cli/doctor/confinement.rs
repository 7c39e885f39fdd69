//! AppArmor and SELinux, where they are in force.

use std::path::{Path, PathBuf};

use super::finding::{Findings, quoted};

/// Says what a policy has to let Exim do, where one may be in its way.
pub(super) fn look(spool: &Path, libraries: &[PathBuf], findings: &mut Findings) {
    let profiles = std::fs::read_to_string("/sys/kernel/security/apparmor/profiles");
    if let Some(profile) = profiles.ok().as_deref().and_then(enforced) {
        let mut rules = format!("{}/exirate/** rwlk", spool.display());
        for library in libraries {
            rules.push_str(&format!(", {} mr", library.display()));
        }
        findings.note(format!(
            "AppArmor's profile {profile} confines Exim: it has to allow {rules}; refusals are in \
             the kernel's log"
        ));
        findings.mend("journalctl -k --grep 'apparmor=\"DENIED\".*exim'");
    }
    let enforcing = std::fs::read_to_string("/sys/fs/selinux/enforce");
    if enforcing.is_ok_and(|text| text.trim() == "1") {
        findings.note(
            "SELinux is in force: the library and the database need the labels that its policy \
             has for their places",
        );
        for path in libraries.iter().chain([&spool.join("exirate")]) {
            findings.mend(format!("restorecon -Rv {}", quoted(path)));
        }
    }
}

/// The profile for Exim that is enforced, in the kernel's list of lines such as
/// `/usr/sbin/exim4 (enforce)`.
fn enforced(profiles: &str) -> Option<&str> {
    profiles.lines().find_map(|line| {
        let name = line.strip_suffix(" (enforce)")?;
        name.to_ascii_lowercase().contains("exim").then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_profile_of_exim_that_is_enforced_counts() {
        assert_eq!(enforced("lsb_release (enforce)\n/usr/sbin/exim4 (complain)\n"), None);
        assert_eq!(enforced("x (enforce)\n/usr/sbin/exim4 (enforce)\n"), Some("/usr/sbin/exim4"));
        assert_eq!(enforced(""), None);
    }
}
