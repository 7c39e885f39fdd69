//! The policies in use, and the policy file.

use std::io::ErrorKind;
use std::path::Path;

use super::super::exim_config::Rules;
use super::super::policy::many;
use super::finding::{Findings, quoted};
use crate::policy::image::{ImageError, PolicyFile};
use crate::policy::needs;
use crate::policy::settings::settings;
use crate::policy::source::read;
use crate::policy::word::{Unit, Word as _};
use crate::sys::secure_dir::DirError;

/// Checks the image in `spool`, and that it is what `file` says.
pub(super) fn look(spool: &Path, file: &Path, findings: &mut Findings) {
    let apply = || format!("exirate policy apply --spool {} {}", quoted(spool), quoted(file));
    let lint = || format!("exirate policy lint {}", quoted(file));
    let in_use = PolicyFile::open(spool);
    let policies = match in_use.image().map(|image| image.policies()) {
        Ok(Ok(policies)) => policies,
        Err(ImageError::Absent { .. }) => {
            if file.exists() {
                let file = file.display();
                findings
                    .warning(format!("{file} is not in use: it was never applied"))
                    .fix(apply());
            }
            return;
        }
        Ok(Err(error)) => return cannot_read(&error, &apply(), findings),
        Err(error) => return cannot_read(error, &apply(), findings),
    };
    let count = many(policies.policies.len(), "policy", "policies");
    let written = match read(file) {
        Ok(compiled) => compiled.policies,
        Err(error) => {
            findings.note(format!("{count} in use, and their file is not at hand: {error}"));
            return;
        }
    };
    let file = file.display();
    match written {
        Some(written) if settings(&written) == settings(&policies) => {
            findings.ok(format!("{count} in use, as {file} says"));
        }
        Some(_) => {
            let text = format!("{file} differs from the policies in use: it was not applied");
            findings.warning(text).fix(apply());
        }
        None => {
            let text = format!("{file} has errors: the policies in use are older");
            findings.warning(text).fix(lint());
        }
    }
}

fn cannot_read(error: &ImageError, apply: &str, findings: &mut Findings) {
    match error {
        ImageError::Directory(DirError::Io { source, .. })
            if source.kind() == ErrorKind::PermissionDenied
                && !rustix::process::geteuid().is_root() =>
        {
            findings.hidden(format!("the policies in use were not read: {error}"));
        }
        // Reported with the files, and with the spool directory.
        ImageError::Directory(DirError::Unsafe { .. } | DirError::WrongKind { .. }) => {}
        ImageError::Directory(DirError::Io { source, .. })
            if source.kind() == ErrorKind::NotFound => {}
        _ => {
            findings.problem(error.to_string()).fix(apply);
        }
    }
}

/// Checks that Exim's configuration `rules` evaluates the policies in use in `spool` wherever
/// what they limit becomes known.
pub(super) fn stages(spool: &Path, rules: &Rules, findings: &mut Findings) {
    let in_use = PolicyFile::open(spool);
    let Ok(Ok(policies)) = in_use.image().map(|image| image.policies()) else { return };
    let calls = rules.limiting().filter(|rule| rule.call.function.starts_with("policy"));
    let calls: Vec<_> = calls.collect();
    if calls.is_empty() {
        return;
    }
    let calls_in = |acl: &&str| calls.iter().any(|rule| rule.used_by.iter().any(|by| by == acl));
    let refused = calls.iter().any(|rule| {
        rule.call.arguments.iter().any(|argument| argument.replace(' ', "") == "refused=yes")
    });
    for (unit, names) in needs::outcomes(&policies) {
        let is_exact = unit == Unit::RejectedRecipients && refused;
        let (names, word) = (names.join(", "), unit.word());
        let missing: Vec<&str> =
            needs::acls(unit).iter().copied().filter(|acl| !calls_in(acl)).collect();
        if !is_exact && !missing.is_empty() {
            findings.problem(format!(
                "{word} of {names} are not all counted: {} must evaluate the policies too; see \
                 acl_policy.conf and acl_policy_end.conf in /etc/exim4/exirate",
                missing.join(", ")
            ));
        } else if !is_exact && unit == Unit::RejectedRecipients {
            findings.note(format!(
                "{word} of {names} do not count recipients that are followed by RSET, of which \
                 Exim knows nothing later; acl_policy_refused.conf in /etc/exim4/exirate counts \
                 them"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;
    use crate::policy::image::{build, install};

    const TEXT: &str = "version = 1\n[policy.p]\ndefault.messages = \"1/1h\"\n";

    /// What is found, as level and text, and the commands that fix it.
    fn found(spool: &Path, file: &Path) -> Vec<(Level, String, Vec<String>)> {
        let mut findings = Findings::default();
        look(spool, file, &mut findings);
        findings.list.into_iter().map(|one| (one.level, one.text, one.fix)).collect()
    }

    #[test]
    fn a_file_that_is_not_in_use_is_reported() {
        let spool = tempfile::tempdir().unwrap();
        let (dir, file) = (spool.path(), spool.path().join("policy.toml"));
        let apply = |file: &Path| {
            install(dir, &build(&read(file).unwrap().policies.unwrap())).unwrap();
        };
        let fix = format!("exirate policy apply --spool {} {}", dir.display(), file.display());
        assert_eq!(found(dir, &file), []);

        std::fs::write(&file, TEXT).unwrap();
        let [(level, text, fixes)] = &found(dir, &file)[..] else { panic!() };
        assert_eq!((level, fixes), (&Level::Warning, &vec![fix.clone()]));
        assert!(text.ends_with("policy.toml is not in use: it was never applied"), "{text}");

        apply(&file);
        let [(level, text, _)] = &found(dir, &file)[..] else { panic!() };
        assert_eq!(*level, Level::Ok);
        assert_eq!(*text, format!("1 policy in use, as {} says", file.display()));

        // What means the same is the same.
        std::fs::write(&file, TEXT.replace("1/1h", "1 / 60m")).unwrap();
        assert_eq!(found(dir, &file)[0].0, Level::Ok);
        std::fs::write(&file, TEXT.replace("1/1h", "2/1h")).unwrap();
        let [(level, text, fixes)] = &found(dir, &file)[..] else { panic!() };
        assert_eq!((level, fixes), (&Level::Warning, &vec![fix.clone()]));
        assert!(text.contains("differs from the policies in use"), "{text}");

        std::fs::write(&file, TEXT.replace("1/1h", "1")).unwrap();
        let [(level, text, fixes)] = &found(dir, &file)[..] else { panic!() };
        assert_eq!((level, fixes.len()), (&Level::Warning, 1));
        assert!(text.contains("has errors") && fixes[0].contains("policy lint"), "{text}");

        std::fs::remove_file(&file).unwrap();
        assert_eq!(found(dir, &file)[0].0, Level::Note);
    }

    #[test]
    fn acls_in_which_outcomes_become_known_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let (spool, file) = (folder.path(), folder.path().join("policy.toml"));
        let text = "version = 1\n[policy.p]\ndefault.auth_failures = \"1/1h\"\n[policy.q]\n\
                    default.rejected_recipients = \"1/1h\"\n[policy.r]\ndefault.bytes = \"1M/1h\"\n";
        std::fs::write(&file, text).unwrap();
        install(spool, &build(&read(&file).unwrap().policies.unwrap())).unwrap();
        let found = |options: &[&str], attribute: &str| {
            let conf = spool.join("exim.conf");
            let options = options.iter().map(|option| format!("{option} = a\n"));
            let options: String = options.collect();
            let acl = format!(
                "begin acl\na:\n  warn condition = ${{dlfunc{{/l/exirate.so}}{{policy_over}}{{*}}\
                 {attribute}}}\n  accept\n"
            );
            std::fs::write(&conf, options + &acl).unwrap();
            let mut findings = Findings::default();
            stages(spool, &Rules::read(&conf, []).unwrap(), &mut findings);
            findings.list.into_iter().map(|one| (one.level, one.text)).collect::<Vec<_>>()
        };
        // The policies are not used at all, which is reported elsewhere.
        assert_eq!(found(&[], ""), []);
        let all = ["acl_smtp_auth", "acl_smtp_rcpt", "acl_smtp_quit", "acl_smtp_notquit"];
        for (options, missing) in [
            (
                &all[1..2],
                [
                    "acl_smtp_auth, acl_smtp_quit, acl_smtp_notquit",
                    "acl_smtp_quit, acl_smtp_notquit",
                ],
            ),
            (&all[..3], ["acl_smtp_notquit"; 2]),
        ] {
            let found = found(options, "");
            let units = ["auth_failures of p", "rejected_recipients of q"];
            assert_eq!(found.len(), 2, "{found:?}");
            for (((level, text), unit), missing) in found.iter().zip(units).zip(missing) {
                assert_eq!(*level, Level::Problem);
                let start = format!("{unit} are not all counted: {missing} must evaluate ");
                assert!(text.starts_with(&start), "{text}");
            }
        }
        let [(level, text)] = &found(&all, "")[..] else { panic!() };
        assert_eq!(*level, Level::Note);
        assert!(text.contains("followed by RSET") && text.contains("acl_policy_refused.conf"));
        assert_eq!(found(&all, "{refused=yes}"), []);
    }

    #[test]
    fn a_damaged_image_is_reported() {
        let spool = tempfile::tempdir().unwrap();
        let (dir, file) = (spool.path(), spool.path().join("policy.toml"));
        std::fs::write(&file, TEXT).unwrap();
        let image = build(&read(&file).unwrap().policies.unwrap());
        let path = install(dir, &image).unwrap();
        let rows = 72..image.len();
        for at in [0, 8, 20, rows.start + 8, rows.end - 1] {
            let mut damaged = image.clone();
            damaged[at] ^= 1;
            std::fs::write(&path, damaged).unwrap();
            let [(level, text, fixes)] = &found(dir, &file)[..] else { panic!("byte {at}") };
            assert_eq!((level, fixes.len()), (&Level::Problem, 1), "{text}");
            assert!(text.contains("policy.image is damaged at byte "), "{text}");
        }
    }
}
