//! `exirate import` of what the real exim_dumpdb prints after real checks of
//! Exim's own.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;

use crate::{exirate, list};
use kit::{PrivateExim, Setup, exim};

/// What this machine's exim_dumpdb prints, in this time zone.
fn dump(spool: &Path, options: &[&str], zone: &str) -> String {
    let mut command = Command::new("exim_dumpdb");
    command.args(options).arg(spool).arg("ratelimit").env("TZ", zone);
    let ran = exim::run(command, b"");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    ran.stdout
}

/// Imports a dump into the database in `spool`; what it says.
fn import(spool: &Path, dump: &str, options: &[&str], zone: &str) -> String {
    let mut command = exirate();
    command.args(["import", "-"]).args(options).arg("--spool").arg(spool).env("TZ", zone);
    let ran = exim::run(command, dump.as_bytes());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    ran.stdout
}

/// Sends a message's envelope from `sender` to these recipients.
fn session(exim: &PrivateExim, sender: &str, recipients: &[&str]) {
    let (mut client, _) = exim.pipe(&["-bs"]);
    assert_eq!(client.expect().code, 220);
    assert_eq!(client.command("EHLO client.test").code, 250);
    assert_eq!(client.command(format!("MAIL FROM:<{sender}>")).code, 250);
    for recipient in recipients {
        assert_eq!(client.command(format!("RCPT TO:<{recipient}>")).code, 250);
    }
    client.command("QUIT");
}

#[test]
fn after_the_import_the_next_answer_is_the_one_that_exim_gives() {
    const SPECS: [&str; 3] = [
        "1000 / 1w / per_rcpt / strict / plain",
        "1000 / 1w / per_addr / strict / unique",
        "1000 / 2w / per_rcpt / leaky / a key: of words",
    ];
    let mut acl = String::new();
    for spec in SPECS {
        acl += &format!(
            "  warn ratelimit = {spec}\n  \
             warn set acl_m_native = $sender_rate\n  \
             warn condition = ${{if eq{{$sender_address}}{{second@x.test}}}}\n       \
             set acl_m_ours = ${{dlfunc{{EXIRATE}}{{ratelimit}}{{{spec}}}}} $sender_rate\n       \
             logwrite = both: native $acl_m_native ours $acl_m_ours\n"
        );
    }
    let exim = Setup::new().library().acl("acl_smtp_rcpt", &(acl + "  accept\n")).build();
    session(&exim, "first@x.test", &["a@y.test", "b@y.test", "a@y.test", "c@y.test"]);

    let text = dump(&exim.spool(), &[], "UTC");
    assert_eq!(text.lines().count(), 3, "{text}");
    let said = import(&exim.spool(), &text, &[], "UTC");
    assert!(said.starts_with("imported 3 records\n1 filter of unique events left out"), "{said}");
    // Root has made all this, for Exim to use.
    let owner = std::fs::metadata(exim.spool()).unwrap();
    for file in std::fs::read_dir(exim.spool().join("exirate")).unwrap() {
        let file = file.unwrap();
        let found = file.metadata().unwrap();
        assert_eq!((found.uid(), found.gid()), (owner.uid(), owner.gid()), "{file:?}");
        assert_eq!(found.mode() & 0o7777, 0o640, "{file:?}");
    }
    let rows = list(&exim.spool());
    assert!(rows.iter().all(|row| row["limit"].is_null()), "a dump has no limits: {rows:?}");

    // The next event, new to both.
    session(&exim, "second@x.test", &["d@y.test"]);
    let log = exim.log("main");
    let both: Vec<&str> = log.lines().filter_map(|l| l.split_once("both: ")).map(|l| l.1).collect();
    assert_eq!(
        both,
        ["native 5.0 ours no 5.0", "native 4.0 ours no 4.0", "native 5.0 ours no 5.0"],
        "{log}"
    );
}

#[test]
fn times_are_those_of_the_zone_that_the_dump_was_made_in() {
    let exim = Setup::new()
        .acl("acl_smtp_rcpt", "  warn ratelimit = 9 / 1w / per_rcpt / strict / x\n  accept\n")
        .build();
    session(&exim, "a@x.test", &["b@y.test"]);
    let mut seen = Vec::new();
    for (dumped, options, read) in [
        ("UTC0", &[][..], &[][..]),
        ("JST-9", &[], &[]),
        ("EST5EDT,M3.2.0,M11.1.0", &[], &[]),
        ("JST-9", &["-z"], &["--utc"]),
    ] {
        let to = tempfile::tempdir().unwrap();
        import(to.path(), &dump(&exim.spool(), options, dumped), read, dumped);
        let rows = list(to.path());
        assert_eq!(rows[0]["last_rate"], 1.0);
        seen.push(rows[0]["last_seen"].as_str().unwrap().to_owned());
    }
    seen.dedup();
    assert_eq!(seen.len(), 1, "{seen:?}");
}
