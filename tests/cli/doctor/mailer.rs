//! Exim itself, and its daemon.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Diagnosis, exim, set_mode};
use crate::{exirate, stderr};
use kit::exim::{PROGRAM, USER};
use kit::write_script;

/// A program that is Exim, but for what `case` of its arguments says.
fn disguised(folder: &Path, name: &str, case: &str) -> PathBuf {
    let program = folder.join(name);
    let script = format!("#!/bin/sh\ncase \"$*\" in\n{case}\nesac\nexec {PROGRAM} \"$@\"\n");
    write_script(&program, &script);
    program
}

#[test]
fn an_exim_without_dlfunc_is_a_problem_where_lines_call_the_library() {
    let exim = exim();
    let version = "*-bV*) echo 'Exim version 4.99 #1'; echo 'Support for: IPv6'; exit 0;;";
    let light = disguised(exim.folder(), "exim-light", version);
    let found = Diagnosis::with(&exim, &["--exim", light.to_str().unwrap()]);
    found.finding("ok", &["Exim version 4.99 #1", "it loads no libraries"]);
    let problem = found.finding("problem", &["exim-light cannot load libraries", "lacks dlfunc"]);
    assert_eq!(problem["fix"][0], "apt-get install exim4-daemon-heavy");
    assert_eq!(found.texts("problem").len(), 1, "{:?}", found.texts("problem"));
    assert_eq!(Diagnosis::with(&exim, &["--exim", PROGRAM]).code, 0);
}

#[test]
fn what_only_root_may_read_is_noted() {
    let exim = exim();
    for (case, words) in [
        ("*-bV*) echo 'Sendmail 8'; exit 0;;", "-bV does not print what Exim prints: Sendmail 8"),
        ("*-bV*) exit 0;;", "-bV does not print what Exim prints: it prints nothing"),
        ("*-bV*) echo no >&2; exit 1;;", "-bV does not print what Exim prints: no"),
    ] {
        let other = disguised(exim.folder(), "other", case);
        let output = exirate().arg("doctor").arg("--exim").arg(&other).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
    }
    for (option, words) in [
        (["--exim", "/nonexistent"], "--exim /nonexistent: there is no such program"),
        (["--exim", "nonexistent"], "--exim nonexistent: there is no such program"),
        (["--config", "/nonexistent"], "--config /nonexistent: No such file"),
    ] {
        let output = exirate().arg("doctor").args(option).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
    }
    // Exim hides what is not for everybody.
    let hidden = disguised(
        exim.folder(),
        "hidden",
        "*'-bP macros'*) echo 'EXIRATE = <value not displayable>'; exit 0;;",
    );
    let mut doctor = exirate();
    doctor.args(["doctor", "--exim"]).arg(&hidden).arg("--config").arg(exim.config());
    let output = doctor.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("run this as root"), "{}", stderr(&output));
    assert!(crate::stdout(&output).contains("only root may read all of"), "{output:?}");
}

#[test]
fn a_configuration_that_exim_cannot_read_is_a_problem() {
    let exim = exim();
    let good = std::fs::read(exim.config()).unwrap();
    std::fs::write(exim.config(), "spool_directory = /x\nno_such_option = 1\n").unwrap();
    Diagnosis::of(&exim).finding("problem", &["cannot read its configuration", "no_such_option"]);
    std::fs::write(exim.config(), good).unwrap();
    Diagnosis::of(&exim).is_well();
}

#[test]
fn the_default_configuration_is_checked_as_exims_user() {
    let exim = exim();
    // An Exim that has this for its usual configuration.
    let usual = disguised(exim.folder(), "exim-usual", "");
    let script = std::fs::read_to_string(&usual).unwrap();
    let named = format!("exec {PROGRAM} -C {}", exim.config().display());
    std::fs::write(&usual, script.replace(&format!("exec {PROGRAM}"), &named)).unwrap();
    let doctor = || {
        let mut doctor = exirate();
        doctor.args(["doctor", "--color", "never", "--exim"]).arg(&usual);
        doctor.output().unwrap()
    };
    let output = doctor();
    let report = crate::stdout(&output);
    assert!(report.contains("a check that counts nothing succeeded"), "{report}");
    assert_eq!(output.status.code(), Some(0), "{report}");
    // Exim's user, and only that user, cannot reach the spool; the modes of the
    // files do not show it.
    kit::exim::open_to_all(exim.folder());
    let way = exim.folder().join("way");
    std::fs::create_dir(&way).unwrap();
    std::fs::rename(exim.spool(), way.join("spool")).unwrap();
    let config = std::fs::read_to_string(exim.config()).unwrap();
    let moved = config.replace("PRIVATE/spool", "PRIVATE/way/spool");
    std::fs::write(exim.config(), moved).unwrap();
    set_mode(&way, 0o700);
    let output = doctor();
    let report = crate::stdout(&output);
    assert!(report.contains("PROBLEM  Exim cannot use the database: "), "{report}");
    assert_eq!(output.status.code(), Some(1), "{report}");
}

/// Runs a command as Exim's user does: where root may not change the limits of
/// others' processes, the daemon's own user still may.
fn as_exim(command: &str) {
    let mut runuser = Command::new("runuser");
    let output = runuser.args(["-u", USER, "--", "/bin/sh", "-c", command]).output().unwrap();
    assert!(output.status.success(), "{command}: {output:?}");
}

#[test]
fn a_daemon_with_too_few_files_is_found() {
    let mut exim = exim();
    exim.start();
    let log = exim.log("main");
    let daemon = log.split("pid=").nth(1).unwrap().split(',').next().unwrap();
    for (files, level) in [("100", "note"), ("20", "problem")] {
        as_exim(&format!("prlimit --pid {daemon} --nofile={files}:"));
        let found = Diagnosis::of(&exim);
        let few = format!("may open {files} files");
        let mend = &found.finding(level, &[daemon, &few, "LimitNOFILE="])["fix"];
        assert_eq!(mend.as_array().unwrap().len(), 1);
        as_exim(mend[0].as_str().unwrap());
        let found = Diagnosis::of(&exim);
        found.is_well();
        found.finding("ok", &[daemon, "may open 320 files"]);
    }
    exim.stop();
    Diagnosis::of(&exim).finding("note", &["no Exim daemon runs"]);
}
