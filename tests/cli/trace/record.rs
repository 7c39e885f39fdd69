//! `exirate trace record`.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use serde_json::Value;

use super::{LUNCH, answer, empty, ids, passed, pipe, trace};
use crate::{json, mail, run, stderr, stdout};

#[test]
fn options_override_what_the_message_contains() {
    let spool = empty();
    let file = spool.path().join("message.eml");
    fs::write(&file, &mail::passed()[0].text).unwrap();
    let output = trace(
        spool.path(),
        &[
            "record",
            "--from",
            "<zoe@example.org>",
            "--to",
            "yann@example.net,xenia@example.net",
            "--to",
            "<walter@example.net>",
            "--id",
            "1vM1aB-0001Ab-1a",
            "--time",
            "2026-11-01T10:00:00Z",
            "--client",
            "2001:db8::7",
            "--auth",
            "zoe",
            file.to_str().unwrap(),
        ],
    );
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let found = &answer(spool.path(), &["--text", "margin of the northern branch"])["found"][0];
    let expected = serde_json::json!({
        "time": "2026-11-01T10:00:00Z", "id": "1vM1aB-0001Ab-1a", "sender": "zoe@example.org",
        "recipients": ["yann@example.net", "xenia@example.net", "walter@example.net"],
        "client": "2001:db8::7", "authenticated": "zoe", "partial": false,
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&found[name], value, "{name}");
    }
    assert_eq!(ids(spool.path(), &["--auth", "z*"]).len(), 1);
}

#[test]
fn every_message_of_an_mbox_is_recorded_once() {
    let spool = empty();
    let file = spool.path().join("archive.mbox");
    fs::write(&file, mail::mbox(&mail::archived()).repeat(50)).unwrap();
    let output = trace(spool.path(), &["record", "--json", "--mbox", file.to_str().unwrap()]);
    let counts = json(&output);
    assert_eq!((&counts["recorded"], &counts["not_recorded"]), (&100.into(), &0.into()));
    assert_eq!(ids(spool.path(), &["--text", "the roof of the old store house has to be mended before the winter, and that Emil asks three firms for their prices"]).len(), 50);
    assert_eq!(ids(spool.path(), &["--from", "dora@example.net"]).len(), 100);
    let found = &answer(
        spool.path(),
        &[
            "--text",
            "Two of the three firms have answered so far; the cheaper one can begin in the second \
             week of December.",
        ],
    )["found"][0];
    assert_eq!(found["id"], "prices@example.net");
    assert_eq!(found["recipients"], serde_json::json!(["alice@example.org"]));
}

#[test]
fn a_maildir_is_recorded_with_its_folders() {
    let spool = empty();
    let root = spool.path().join("Maildir");
    let places = ["cur/1.a:2,S", "new/2.b", ".Sent/cur/3.c:2,S", ".Sent.2026/new/4.d", "tmp/5.e"];
    for (place, letter) in places.iter().zip(mail::passed()) {
        let path = root.join(place);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, letter.text).unwrap();
    }
    let output = trace(spool.path(), &["record", "--json", "--maildir", root.to_str().unwrap()]);
    assert_eq!(json(&output)["recorded"], 4);
    assert_eq!(
        ids(
            spool.path(),
            &["--text", "The new place by the river has a table for three at half past twelve."]
        ),
        [LUNCH]
    );
    let none: [&str; 0] = [];
    assert_eq!(ids(spool.path(), &["--from", "<>"]), none, "tmp is not delivered yet");
}

#[test]
fn one_that_cannot_be_recorded_keeps_no_other_back() {
    let spool = tempfile::tempdir().unwrap();
    let root = spool.path().join("Maildir");
    fs::create_dir_all(root.join("cur")).unwrap();
    fs::write(root.join("cur/1"), &mail::passed()[0].text).unwrap();
    std::os::unix::fs::symlink("/nonexistent", root.join("cur/2")).unwrap();
    fs::write(root.join("cur/3"), "").unwrap();
    // As a mail program saves it.
    fs::write(root.join("cur/6"), mail::mbox(&mail::archived())).unwrap();
    fs::write(root.join("cur/5"), &mail::passed()[3].text).unwrap();
    let output = trace(spool.path(), &["record", "--maildir", root.to_str().unwrap()]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    let all = 2 + mail::archived().len();
    assert!(
        stdout(&output).starts_with(&format!("recorded {all} messages, ")),
        "{}",
        stdout(&output)
    );
    for words in ["cur/2: No such file", "cur/3 is empty", "2 messages could not"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert_eq!(ids(spool.path(), &["--since", "@0"]).len(), all);
}

#[test]
fn any_bytes_are_a_message() {
    let spool = tempfile::tempdir().unwrap();
    let noise: Vec<u8> = mail::plan().into_iter().cycle().take(100_000).collect();
    for bytes in [&noise[..], b"\n", b"\0", b"Subject: ", b"From: \xff\xfe\n\n\xff"] {
        let output = pipe(spool.path(), &["record", "-"], bytes);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
    let found = answer(spool.path(), &["--since", "1h"]);
    assert_eq!(found["matches"], 5, "a message without a time is dated now");
}

#[test]
fn a_message_without_headers_is_recorded_and_reported() {
    let spool = tempfile::tempdir().unwrap();
    let output = pipe(spool.path(), &["record", "-"], b"%PDF-1.7 is no message");
    assert_eq!(output.status.code(), Some(0));
    let said = stderr(&output);
    assert!(said.contains("note: 1 message has no sender, no recipient and no id"), "{said}");
    let output = pipe(spool.path(), &["record", "-", "--from", "a@b.test"], b"text");
    assert_eq!(stderr(&output), "");
}

#[test]
fn a_new_key_is_reported() {
    let spool = passed();
    fs::remove_file(spool.path().join("exirate/trace/key")).unwrap();
    let output = pipe(spool.path(), &["record", "-", "--from", "a@b.test"], b"text");
    let said = stderr(&output);
    assert!(said.contains("key is missing, and a new key is created"), "{said}");
    let output = trace(spool.path(), &["query", "--from", "*"]);
    assert!(stdout(&output).ends_with("1 of 1 message\n"), "{}", stdout(&output));
    assert!(stderr(&output).contains("of another key was not searched"), "{}", stderr(&output));
}

#[test]
fn mail_older_than_the_retention_time_is_reported_together() {
    let spool = tempfile::tempdir().unwrap();
    let spool = spool.path();
    let old = "From old@example.org Mon Jan  1 10:00:00 2001\nSubject: old\n\nmail\n\n".repeat(30);
    let record = |arguments: &[&str]| {
        pipe(spool, &[&["record", "--mbox", "-"], arguments].concat(), old.as_bytes())
    };
    let output = record(&[]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(stdout(&output), "recorded 0 messages, 0 B\n");
    assert_eq!(
        stderr(&output),
        "exirate: 30 messages are older than trace.keep (90d), and not recorded: keep messages for \
         longer, such as with `exirate config set trace.keep=forever`\nexirate: 30 messages could \
         not be recorded; all others are\n"
    );
    let output = run(spool, &["config", "set", "trace.keep=forever"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let counts = json(&record(&["--json"]));
    assert_eq!((&counts["recorded"], &counts["too_old"]), (&30.into(), &0.into()));
}

#[test]
fn the_scheme_is_kept_with_the_store() {
    let spool = passed();
    let spool = spool.path();
    let digests = || {
        // There is no rate database, which is a note.
        let output = run(spool, &["config", "--json"]);
        let settings: Value = serde_json::from_slice(&output.stdout).unwrap();
        settings["trace"]["digests"].as_str().unwrap().to_owned()
    };
    assert!(digests().starts_with("--scheme winnow --gram 6 "));
    let record = |arguments: &[&str]| {
        pipe(spool, &[&["record", "-"], arguments].concat(), mail::archived()[0].text.as_bytes())
    };
    let output = record(&["--window", "12"]);
    assert!(
        stderr(&output)
            .starts_with("exirate: note: from now on: --scheme winnow --gram 6 --window 12 ")
    );
    assert_eq!(stderr(&record(&[])), "", "nothing has changed");
    assert!(digests().contains("--window 12 "));
    // Both are asked.
    assert_eq!(
        ids(
            spool,
            &[
                "--text",
                "agreed that the roof of the old store house has to be mended before the winter"
            ]
        )
        .len(),
        2
    );
    assert_eq!(
        ids(
            spool,
            &["--text", "The new place by the river has a table for three at half past twelve."]
        ),
        [LUNCH]
    );
}

#[test]
fn files_belong_to_the_owner_of_the_spool_directory() {
    let spool = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(spool.path(), Some(65_534), Some(65_534)).unwrap();
    pipe(spool.path(), &["record", "-"], b"Subject: x\n\n");
    let store = spool.path().join("exirate/trace");
    let mut files: Vec<_> = fs::read_dir(&store).unwrap().map(|e| e.unwrap().path()).collect();
    files.push(store);
    for path in files {
        let facts = path.metadata().unwrap();
        assert_eq!((facts.uid(), facts.gid()), (65_534, 65_534), "{}", path.display());
    }
}

#[test]
fn who_is_neither_root_nor_exim_leaves_nothing_behind() {
    let spool = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(spool.path(), open).unwrap();
    let program = spool.path().join("program");
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_exirate")).arg(&program).status();
    assert!(copied.unwrap().success());
    fs::write(spool.path().join("message"), "Subject: x\n\n").unwrap();
    let mut command = Command::new(&program);
    command.args(["trace", "record", "message", "--spool", "."]).current_dir(spool.path());
    let output = command.uid(65_534).gid(65_534).output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("belongs to user 0, and this is user 65534: run exirate as root"),
        "{said}"
    );
    assert!(!spool.path().join("exirate").exists());
}

#[test]
fn many_recipients_are_cut_in_the_table_and_whole_in_json() {
    let spool = tempfile::tempdir().unwrap();
    // The first of them twice.
    let to: Vec<String> = (0..500).chain([0]).map(|n| format!("r{n}@example.net")).collect();
    let output =
        pipe(spool.path(), &["record", "-", "--to", &to.join(",")], b"Subject: to all\n\n");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let said = stdout(&trace(spool.path(), &["query", "--to", "r499@example.net"]));
    assert!(said.contains(" r9@example.net and 490 more\n"), "{said}");
    let found = &answer(spool.path(), &["--to", "r499@*"])["found"][0];
    assert_eq!(found["recipients"], Value::from(to));
}
