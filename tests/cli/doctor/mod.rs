//! `exirate doctor`, on a real Exim: first nothing is wrong, then one thing after
//! another is broken, and the fix that the doctor names repairs it.

#![allow(clippy::panic)]

mod files;
mod library;
mod mailer;
mod misconfigured;
mod places;
mod real;
mod trace;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;

use crate::{exirate, json, stdout};
use kit::library::{built, built_trace};
use kit::{PrivateExim, Setup};

/// An Exim with a limit, whose database has a key in it.
fn exim() -> PrivateExim {
    let exim = configured("${dlfunc{EXIRATE}{ratelimit}{9 / 1h / per_cmd / strict / a}}");
    checked(&exim);
    exim
}

/// An Exim with this condition in its ACL for RCPT, and no database yet.
fn configured(condition: &str) -> PrivateExim {
    let acl = format!("  defer condition = {condition}\n  accept\n");
    Setup::new().library().callers().acl("acl_smtp_rcpt", &acl).build()
}

/// Has Exim count something, so that there is a database.
fn checked(exim: &PrivateExim) {
    let library = exim.library();
    let check = format!("${{dlfunc{{{}}}{{ratelimit}}{{9 / 1h / strict / a}}}}", library.display());
    assert_eq!(exim.expand(&check).stdout, "no\n");
}

/// The program and the libraries where the scripts build them, as the doctor looks
/// for them there.
fn beside_its_libraries() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("doctor");
        for (name, library) in [("exim-rates", built()), ("exim-trace", built_trace())] {
            let folder = target.join(name).join("release");
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::copy(library, folder.join("libexirate.so")).unwrap();
        }
        let folder = target.join("release");
        std::fs::create_dir_all(&folder).unwrap();
        let program = folder.join("exirate");
        let _ = std::fs::remove_file(&program);
        std::fs::hard_link(env!("CARGO_BIN_EXE_exirate"), &program).unwrap();
        program
    })
}

/// What the doctor says of an Exim.
struct Diagnosis {
    code: i32,
    findings: Vec<Value>,
}

impl Diagnosis {
    /// Of an Exim's configuration.
    fn of(exim: &PrivateExim) -> Self {
        Self::with(exim, &[])
    }

    /// The same, with more arguments.
    fn with(exim: &PrivateExim, arguments: &[&str]) -> Self {
        let mut doctor = Command::new(beside_its_libraries());
        doctor.args(["doctor", "--json", "--config"]).arg(exim.config()).args(arguments);
        let output = doctor.output().unwrap();
        let report = json(&output);
        let findings = report["findings"].as_array().unwrap().clone();
        let count = |level: &str| findings.iter().filter(|f| f["level"] == level).count();
        assert_eq!(report["problems"], count("problem"));
        assert_eq!(report["warnings"], count("warning"));
        assert_eq!(report["notes"], count("note"));
        assert_eq!(report["complete"], true);
        let code = output.status.code().unwrap();
        assert_eq!(code, i32::from(count("problem") > 0));
        findings.iter().for_each(real::advice_is_real);
        Self { code, findings }
    }

    /// The texts of this level.
    fn texts(&self, level: &str) -> Vec<&str> {
        let of_level = self.findings.iter().filter(|finding| finding["level"] == level);
        of_level.map(|finding| finding["text"].as_str().unwrap()).collect()
    }

    /// There is nothing wrong.
    fn is_well(&self) {
        assert_eq!(self.texts("problem"), Vec::<&str>::new());
        assert_eq!(self.code, 0);
    }

    /// The finding of this level whose text has all of `words` in it.
    fn finding(&self, level: &str, words: &[&str]) -> &Value {
        let fits = |finding: &&Value| {
            let text = finding["text"].as_str().unwrap();
            finding["level"] == level && words.iter().all(|word| text.contains(word))
        };
        self.findings.iter().find(fits).unwrap_or_else(|| {
            panic!("no {level} with {words:?} in {:#?}", self.findings);
        })
    }

    /// Runs the commands that fix the finding of this level with these words;
    /// there must be some.
    fn fix(&self, level: &str, words: &[&str]) {
        let commands = self.finding(level, words)["fix"].as_array().unwrap();
        assert!(!commands.is_empty(), "no command for {words:?}");
        for command in commands {
            let command = command.as_str().unwrap();
            let output = Command::new("/bin/sh").args(["-c", command]).output().unwrap();
            assert!(output.status.success(), "{command}: {output:?}");
        }
    }
}

/// Breaks something, and expects that the doctor notices and that its commands fix
/// it.
fn broken_and_fixed(exim: &PrivateExim, words: &[&str], how: impl FnOnce(&Path)) {
    how(&exim.spool().join("exirate"));
    let found = Diagnosis::of(exim);
    found.fix("problem", words);
    Diagnosis::of(exim).is_well();
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_good_configuration_is_well() {
    let mut exim = exim();
    exim.start();
    let before = contents(exim.folder());
    let found = Diagnosis::of(&exim);
    found.is_well();
    assert_eq!(found.texts("note"), Vec::<&str>::new());
    for words in [
        &["/usr/sbin/exim4", "Exim version 4.", "dlfunc"][..],
        &["exim.conf", "runs as Debian-exim:Debian-exim", "spool"],
        &[concat!("exirate.so is exirate ", env!("CARGO_PKG_VERSION")), "sets $sender_rate"],
        &["no other user can read or change them"],
        &["the database is sound: 1 key in "],
        &["% of its size limit of 1 GiB"],
        &["a check that counts nothing succeeded"],
        &["free, and the database may grow by "],
        &["locks and shared mappings work in "],
        &["daemon", "may open ", "files"],
    ] {
        found.finding("ok", words);
    }
    // It has changed nothing, and Exim has logged nothing of it.
    let after = contents(exim.folder());
    let names = |files: &[(String, _)]| files.iter().map(|file| file.0.clone()).collect::<Vec<_>>();
    assert_eq!(names(&before), names(&after));
    for (before, after) in before.iter().zip(&after) {
        assert!(before == after, "{} has changed", before.0);
    }

    let mut doctor = exirate();
    doctor.args(["doctor", "--color", "never", "--config"]).arg(exim.config());
    let output = doctor.output().unwrap();
    let report = stdout(&output);
    assert!(report.starts_with("Exim\n  ok       /usr/sbin/exim4 is Exim version 4."), "{report}");
    for head in [
        "\nThe configuration\n",
        "\nThe library\n",
        "\nThe database\n",
        "\nThe file system\n",
        "\nThe machine\n",
    ] {
        assert!(report.contains(head), "{report}");
    }
    assert!(report.ends_with("\nAll is well.\n"), "{report}");
}

/// Every file of a folder, with what is in it.
fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let (mut found, mut waiting) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(directory) = waiting.pop() {
        for entry in directory.read_dir().unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                waiting.push(path.clone());
            }
            let name = path.strip_prefix(folder).unwrap().display().to_string();
            found.push((name, std::fs::read(&path).unwrap_or_default()));
        }
    }
    found.sort();
    assert!(found.len() > 4, "{found:?}");
    found
}
