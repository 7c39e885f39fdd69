//! Wrong input, and the errors for it.

use std::fs;

use super::{passed, pipe, trace};
use crate::{run, stderr, stdout};

#[test]
fn each_mistake_is_named_with_what_would_be_right() {
    let spool = passed();
    let spool = spool.path();
    let at = |name: &str| spool.join(name).display().to_string();
    fs::write(at("latin1.txt"), b"caf\xe9 caf\xe9 caf\xe9 caf\xe9").unwrap();
    fs::write(at("binary"), b"\0\x01\x02 and so on for long enough").unwrap();
    fs::write(at("empty"), "").unwrap();
    fs::write(at("blank"), "> \n> \n").unwrap();
    fs::write(at("no.mbox"), "Subject: x\n\n").unwrap();
    fs::create_dir(at("plain")).unwrap();
    let cases: &[(&[&str], &[&str])] = &[
        (&["query"], &["nothing to search for: use --text", "exirate trace export"]),
        (
            &["query", "--text", "too short"],
            &["it is 9 bytes", "(\"too short\")", "the minimum is "],
        ),
        (
            &["query", "--text", "the margin of the northern branch * no"],
            &["part 2 is 2 bytes", "(\"no\")"],
        ),
        (&["query", "--text", " * "], &["contains nothing that can be searched for"]),
        (&["query", "--text", ""], &["contains nothing that can be searched for"]),
        (&["query", "--file", &at("missing")], &["cannot read", "missing", "No such file"]),
        (&["query", "--file", spool.to_str().unwrap()], &["it is a directory"]),
        (&["query", "--file", &at("latin1.txt")], &["is not UTF-8", "--charset", "windows-1252"]),
        (
            &["query", "--file", &at("latin1.txt"), "--charset", "klingon"],
            &["--charset klingon: unknown charset"],
        ),
        (&["query", "--charset", "latin1"], &["--file"]),
        (&["query", "--file", &at("binary")], &["is not UTF-8", "--attachment"]),
        (&["query", "--file", &at("empty")], &["empty is empty"]),
        (&["query", "--file", &at("blank")], &["blank contains nothing"]),
        (&["query", "--attachment", &at("empty")], &["empty is empty"]),
        (&["query", "--file", "-", "--attachment", "-"], &["- is given twice"]),
        (&["query", "--text", "x", "--at-least", "0"], &["such as 70% or 0.7"]),
        (&["query", "--text", "x", "--at-least", "150%"], &["up to 100%"]),
        (&["query", "--from", ""], &["the sender of a bounce is <>"]),
        (&["query", "--from", "[a"], &["not a glob"]),
        (&["query", "--client", "laptop"], &["an IP address, such as 192.0.2.7"]),
        (&["query", "--client", "10.0.0.0/40"], &["at most 32 bits"]),
        (&["query", "--since", "soon"], &["expected a time, such as", "2h for two hours ago"]),
        (&["query", "--since", "1h", "--until", "2h"], &["--since is later than --until"]),
        (&["query", "--from", "x", "--at-least", "50%"], &["is a share of a text or a file"]),
        (&["query", "--text", "x", "--doubtful"], &["--doubtful needs --at-least"]),
        (&["query", "--limit", "-1"], &["-1"]),
        (&["query", "--text", "x", "--sort", "size"], &["best, time"]),
        (&["record"], &["nothing to record", "--mbox FILE or --maildir DIR"]),
        (&["record", &at("missing")], &["cannot read", "missing"]),
        (&["record", &at("plain")], &["is a directory: use --maildir"]),
        (&["record", "--mbox", &at("plain")], &["is a directory: use --maildir"]),
        (&["record", "--maildir", &at("plain")], &["is not a maildir", "cur or new"]),
        (&["record", "--maildir", &at("no.mbox")], &["it is not a directory", "--mbox"]),
        (&["record", "--mbox", &at("no.mbox")], &["is not an mbox", "its first line"]),
        (&["record", &at("no.mbox"), &at("blank"), "--id", "x"], &["--id needs exactly one FILE"]),
        (&["record", "-", "-"], &["- is given twice"]),
        (&["record", &at("no.mbox"), "--time", "soon"], &["expected a time"]),
        (&["record", &at("no.mbox"), "--client", "laptop"], &["invalid IP address"]),
        (&["record", &at("no.mbox"), "--gram", "99"], &["hashed together: 4 to 32"]),
        (&["record", &at("no.mbox"), "--block", "64"], &["--block belongs to the scheme hbf"]),
        (&["record", &at("no.mbox"), "--scheme", "bloom"], &["winnow, hbf"]),
        (&["export", "--json", "--format", "csv"], &["contradict"]),
        (&["export", "--output", "/nonexistent/x"], &["cannot write /nonexistent/x.tmp"]),
        (&["quary"], &["quary", "query"]),
    ];
    for (arguments, words) in cases {
        let output = trace(spool, arguments);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}{}", stdout(&output));
        for word in *words {
            assert!(said.contains(word), "{arguments:?} lacks {word:?}: {said}");
        }
    }
    assert_eq!(run(spool, &["verify"]).status.code(), Some(0), "nothing of it did harm");
}

#[test]
fn without_a_store_nothing_is_made() {
    let spool = tempfile::tempdir().unwrap();
    for arguments in [&["query", "--text", "whatever it may be"][..], &["export"]] {
        let output = trace(spool.path(), arguments);
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(2), ""));
        assert!(stderr(&output).starts_with("exirate: no trace store at "), "{}", stderr(&output));
    }
    let output = pipe(spool.path(), &["record", "--id", "x", "--mbox", "-"], b"");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(fs::read_dir(spool.path()).unwrap().count(), 0);
}
