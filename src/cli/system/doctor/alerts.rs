//! The receivers in `[on.crossing]`: what they need, and whether they get something.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::finding::{Findings, quoted};
use crate::cli::senders::events::CURL;
use crate::mta::command;
use crate::policy::image::PolicyFile;
use crate::policy::model::{OnCrossing, Piece};

/// Checks the receivers of the policies in use. That these can be read is checked with
/// them.
pub(super) fn look(spool: &Path, findings: &mut Findings) {
    let in_use = PolicyFile::open(spool);
    let Some(on) = in_use.image().ok().and_then(|image| image.on_crossing().ok()) else { return };
    let OnCrossing { log, run, post, mail, repeat: _, observed: _ } = &on;
    let words = run.first().map(|word| &word.0[..]);
    if let Some([Piece::Text(program)]) = words
        && let Some(fault) = fault_of(Path::new(program))
    {
        findings.warning(format!("run in [on.crossing] needs {program}, which {fault}"));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    if post.is_some() && command::named(Path::new(CURL), &path).is_none() {
        findings
            .warning(format!("post in [on.crossing] needs {CURL}, which is not installed"))
            .fix("apt-get install curl");
    }
    let receivers = [
        ("log", *log),
        ("run", !run.is_empty()),
        ("post", post.is_some()),
        ("mail", mail.is_some()),
    ];
    let used = receivers.into_iter().filter_map(|(name, is_used)| is_used.then_some(name));
    let directory = spool.join("exirate");
    // A run writes a file for each receiver.
    let was_sent = |name: &str| directory.join(format!("delivery.{name}")).exists();
    let unsent: Vec<&str> = used.filter(|name| !was_sent(name)).collect();
    if !unsent.is_empty() && directory.read_dir().is_ok() {
        let text = format!(
            "[on.crossing] has {}, and nothing was ever sent there: `exirate events deliver` must run",
            unsent.join(", ")
        );
        findings
            .warning(text)
            .fix("systemctl enable --now exirate-deliver.path exirate-deliver.timer")
            .fix(format!("exirate events deliver --spool {}", quoted(spool)));
    }
}

/// Why a program cannot be run.
fn fault_of(program: &Path) -> Option<&'static str> {
    match program.metadata() {
        Ok(info) if !info.is_file() => Some("is no file"),
        Ok(info) if info.permissions().mode() & 0o111 == 0 => Some("is not executable"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some("does not exist"),
        // What this user may not see, another one may.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;
    use crate::policy::image::{build, install};
    use crate::policy::source::compile;

    /// The warnings about this `[on.crossing]`.
    fn found(spool: &Path, on: &str) -> Vec<String> {
        let text = format!("version = 1\n[on.crossing]\n{on}\n");
        let none = |_: &Path| Err("no file".to_owned());
        let policies = compile(Path::new("policy.toml"), &text, &none).policies.unwrap();
        install(spool, &build(&policies)).unwrap();
        let mut findings = Findings::default();
        look(spool, &mut findings);
        assert!(findings.list.iter().all(|one| one.level == Level::Warning));
        findings.list.into_iter().map(|one| one.text).collect()
    }

    #[test]
    fn what_receivers_lack_is_reported() {
        let spool = tempfile::tempdir().unwrap();
        let dir = spool.path();
        let mut findings = Findings::default();
        look(dir, &mut findings);
        assert!(findings.list.is_empty(), "there is no policy");
        assert_eq!(found(dir, "log = false"), [""; 0]);
        let never = |names: &str| {
            format!(
                "[on.crossing] has {names}, and nothing was ever sent there: \
                 `exirate events deliver` must run"
            )
        };
        assert_eq!(found(dir, "log = true\nmail = \"a@example.org\""), [never("log, mail")]);
        std::fs::write(dir.join("exirate/delivery.log"), "").unwrap();
        assert_eq!(found(dir, "log = true\nmail = \"a@example.org\""), [never("mail")]);
        std::fs::write(dir.join("exirate/delivery.run"), "").unwrap();
        let (program, on) = (dir.join("over"), format!("run = [\"{}/over\"]", dir.display()));
        let lacks = |what: &str| {
            [format!("run in [on.crossing] needs {}, which {what}", program.display())]
        };
        assert_eq!(found(dir, &on), lacks("does not exist"));
        std::fs::write(&program, "").unwrap();
        assert_eq!(found(dir, &on), lacks("is not executable"));
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(found(dir, &on), [""; 0]);
    }
}
