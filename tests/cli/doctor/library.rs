//! The library, and the lines that call it.

use std::os::unix::fs::chown;
use std::path::Path;

use super::{Diagnosis, broken_and_fixed, checked, configured, exim, set_mode};
use kit::Setup;
use kit::library::{built, built_trace};

#[test]
fn a_missing_or_wrong_library_is_installed_again() {
    let exim = exim();
    let library = exim.library();
    broken_and_fixed(&exim, &["exim.conf:", "exirate.so does not exist"], |_| {
        std::fs::remove_file(&library).unwrap();
    });
    broken_and_fixed(&exim, &["exirate.so does not say that it is from exirate"], |_| {
        std::fs::write(&library, "#!/bin/sh\n").unwrap();
    });
    let version = env!("CARGO_PKG_VERSION");
    let other = format!("9{}", &version[1..]);
    let said =
        [format!("is from exirate {other}"), format!("this program is from exirate {version}")];
    broken_and_fixed(&exim, &[&said[0], &said[1]], |_| {
        let mut bytes = std::fs::read(built()).unwrap();
        let mark = concat!("@(#)exirate ", env!("CARGO_PKG_VERSION"), "\0").as_bytes();
        let at = bytes.windows(mark.len()).position(|window| window == mark).unwrap();
        bytes[at + 12] = b'9';
        std::fs::write(&library, bytes).unwrap();
    });
    broken_and_fixed(&exim, &["does not say that it is from exirate"], |_| {
        std::fs::copy(some_library(), &library).unwrap();
    });
    let trace = library.with_file_name("exirate-trace.so");
    let config = std::fs::read_to_string(exim.config()).unwrap();
    let records = "  warn condition = ${dlfunc{EXIRATE_TRACE}{record}}\n  accept\n";
    std::fs::write(exim.config(), config.replacen("  accept\n", records, 1)).unwrap();
    broken_and_fixed(&exim, &["exirate-trace.so does not exist"], |_| {
        std::fs::remove_file(&trace).unwrap();
    });
    assert_eq!(std::fs::read(&trace).unwrap(), std::fs::read(built_trace()).unwrap());
    std::fs::remove_file(&library).unwrap();
    std::fs::create_dir(&library).unwrap();
    Diagnosis::of(&exim).finding("problem", &["is not a regular file"]);
    // None of it was loaded, so that Exim's panic log is empty.
    assert_eq!(exim.log("panic"), "");
}

/// A library of this machine that is not one of exirate's.
fn some_library() -> &'static Path {
    let places = ["/lib/x86_64-linux-gnu/libm.so.6", "/lib/aarch64-linux-gnu/libm.so.6"];
    places.into_iter().map(Path::new).find(|path| path.exists()).unwrap()
}

#[test]
fn a_library_that_others_can_change_or_exim_cannot_read_is_a_problem() {
    let exim = exim();
    let library = exim.library();
    broken_and_fixed(&exim, &["mode 0666", "should belong to root"], |_| {
        set_mode(&library, 0o666);
    });
    broken_and_fixed(&exim, &["belongs to Debian-exim", "should belong to root"], |spool| {
        use std::os::unix::fs::MetadataExt as _;
        chown(&library, Some(spool.metadata().unwrap().uid()), None).unwrap();
    });
    broken_and_fixed(&exim, &["user Debian-exim may not read it (mode 0600)"], |_| {
        set_mode(&library, 0o600);
    });
    let folder = exim.folder();
    broken_and_fixed(&exim, &["may not enter", "(mode 0750)"], |_| {
        set_mode(folder, 0o750);
    });
    broken_and_fixed(&exim, &["everyone may write to", "exirate.so"], |_| {
        set_mode(folder, 0o777);
    });
}

#[test]
fn a_library_that_cannot_be_loaded_is_a_problem() {
    let exim = exim();
    let library = exim.library();
    let bytes = std::fs::read(built()).unwrap();
    let mark = b"@(#)exirate ";
    let at = bytes.windows(mark.len()).position(|window| window == mark).unwrap();
    broken_and_fixed(&exim, &["Exim crashes when it loads", "the file is damaged"], |_| {
        // Sound at its start, where the version is, and cut off after that.
        std::fs::write(&library, &bytes[..at + 40]).unwrap();
    });
    // An object file, for RISC-V, and of an ELF that is yet to be.
    for (at, other) in [(16, 1), (18, 243), (20, 9)] {
        broken_and_fixed(&exim, &["Exim cannot load", "exirate.so"], |_| {
            let mut bytes = bytes.clone();
            bytes[at] = other;
            std::fs::write(&library, bytes).unwrap();
        });
    }
}

#[test]
fn a_library_on_a_file_system_without_programs_is_a_problem() {
    let exim = exim();
    let place = exim.folder().join("noexec");
    let mounted = super::places::Mounted::tmpfs(&place, "noexec");
    super::set_mode(&place, 0o755);
    std::fs::copy(built(), place.join("exirate.so")).unwrap();
    let config = std::fs::read_to_string(exim.config()).unwrap();
    let moved = config.replace("/exirate.so", "/noexec/exirate.so");
    std::fs::write(exim.config(), moved).unwrap();
    Diagnosis::of(&exim).finding("problem", &["noexec/exirate.so", "mounted noexec"]);
    drop(mounted);
}

#[test]
fn lines_that_limit_nothing_or_wrongly_are_found() {
    let nothing = Setup::new().library().callers().build();
    let words = ["nothing is limited", "calls ratelimit of exirate.so", "`exirate setup`"];
    let diagnosis = Diagnosis::of(&nothing);
    diagnosis.finding("problem", &words);
    // No file that is not there is named.
    let shipped = std::path::Path::new("/etc/exim4/exirate/acl_check_rcpt.conf");
    let names = |text: &str| text.contains("acl_check_rcpt.conf");
    assert!(shipped.exists() || !diagnosis.texts("problem").into_iter().any(names));

    let call = |function: &str, argument: &str| {
        format!("${{dlfunc{{EXIRATE}}{{{function}}}{{{argument}}}}}")
    };
    for (condition, words) in [
        (call("ratelimt", "9 / 1h"), &["no function \"ratelimt\"", "did you mean ratelimit?"]),
        (call("ratelimit", "9 / soon"), &["in \"9 / soon\"", "\"soon\" is not a time value"]),
        (
            "${dlfunc{exirate.so}{ratelimit}{9 / 1h}}".into(),
            &["\"exirate.so\"", "an absolute path"],
        ),
    ] {
        Diagnosis::of(&configured(&condition)).finding("problem", words);
    }
    for (condition, level, words) in [
        (
            call("ratelimit", "9 / 1h / per-rcpt / a"),
            "warning",
            &["looks like the option per_rcpt", "exim.conf"],
        ),
        (
            "${dlfunc{EXIRATE}{ratelimit}{9 / 1h / $no_such_variable}}".into(),
            "note",
            &["no rate database", "yet"],
        ),
    ] {
        let acl = format!("  defer condition = {condition}\n  accept\n");
        let exim = Setup::new().library().acl("acl_smtp_rcpt", &acl).build();
        let found = Diagnosis::of(&exim);
        assert!(
            matches!(found.texts("problem")[..], [why] if why.contains("no daemon listens on "))
        );
        found.finding(level, words);
        assert!(!exim.spool().join("exirate").exists(), "the doctor makes no database");
    }
}

#[test]
fn a_path_that_exim_expands_is_understood() {
    let exim = configured("${dlfunc{$config_dir/exirate.so}{ratelimit}{9 / 1h / strict / a}}");
    let found = Diagnosis::of(&exim);
    found.is_well();
    let library = exim.library();
    found.finding(
        "ok",
        &[library.to_str().unwrap(), concat!("is exirate ", env!("CARGO_PKG_VERSION"))],
    );
    checked(&exim);
    Diagnosis::of(&exim).finding("ok", &["a check that counts nothing succeeded"]);
}

#[test]
fn exims_own_conditions_used_with_ours_are_reported() {
    let acl = "  defer ratelimit = 9 / 1h / strict\n  \
               defer condition = ${dlfunc{EXIRATE}{ratelimit}{9 / 1h / strict / a}}\n  accept\n";
    let exim = Setup::new().library().callers().acl("acl_smtp_rcpt", acl).build();
    let found = Diagnosis::of(&exim);
    found.is_well();
    found.finding("note", &["still used, once, such as in `defer ratelimit = 9 / 1h / strict`"]);
}
