//! What the administrator may write for `KEY`.

use crate::prepared::Prepared;
use crate::{run, stderr, stdout};

/// The keys that `exirate list ARGUMENTS` shows, in order, each as
/// `period mode key`; and what it says besides.
fn listed(machine: &Prepared, arguments: &str) -> (Vec<String>, String, Option<i32>) {
    let jq = r#"jq -r '.[] | "\(.period_text) \(.mode) \(.key)"'"#;
    let line = format!("exirate list {arguments} --sort key --json > out; s=$?; {jq} out; exit $s");
    let output = machine.run(&line);
    let keys = stdout(&output).lines().map(str::to_owned).collect();
    (keys, stderr(&output), output.status.code())
}

#[test]
fn keys_are_found_as_administrators_write_them() {
    let machine = Prepared::new();
    let odd = r#"exirate check '9 / 1h / strict' --key "$(printf 'a\033[1m\\b*')" >out"#;
    assert_eq!(stderr(&machine.run(odd)), "");
    let client = ["10m per_conn 2001:db8::1"];
    let alice = ["1d per_rcpt alice@example.org", "1h per_rcpt alice@example.org"];
    for (arguments, expected) in [
        ("alice", &["1h per_rcpt alice"][..]),
        ("alice@example.org", &alice),
        ("'<alice@example.org>'", &alice),
        ("alice@example.org --period 60m", &alice[1..]),
        ("alice@example.org --mode per_rcpt --period 1d", &alice[..1]),
        ("web --mode per_byte", &["1d per_mail web"]),
        ("1h/per_rcpt/alice@example.org", &alice[1..]),
        ("'*/per_rcpt/alice@*'", &alice),
        ("2001:db8::1", &client),
        ("2001:DB8:0:0::1", &client),
        ("'[2001:db8::1]'", &client),
        ("::ffff:192.0.2.7", &["10m per_conn 192.0.2.7"]),
        ("'192.0.2.*'", &["10m per_conn 192.0.2.7"]),
        ("'*@example.net'", &["1h per_rcpt bob@example.net"]),
        ("web bob@example.net", &["1h per_rcpt bob@example.net", "1d per_mail web"]),
        ("web 'w*'", &["1d per_mail web"]),
        ("--mode per_addr", &["1h per_addr carol@example.org"]),
        (r"'a\u{1b}[1m\\b*'", &["1h per_mail a\u{1b}[1m\\b*"]),
    ] {
        let (keys, said, status) = listed(&machine, arguments);
        assert_eq!(keys, expected, "{arguments}: {said}");
        assert_eq!((said.as_str(), status), ("", Some(0)), "{arguments}");
    }
}

#[test]
fn letters_in_another_case_are_found_where_nothing_else_is_and_it_is_said() {
    let machine = Prepared::new();
    let (keys, said, status) = listed(&machine, "ALICE@example.org 'WEB*'");
    assert_eq!((keys.len(), status), (3, Some(0)));
    assert_eq!(
        said,
        "exirate: note: ALICE@example.org is there only in another case of letters\n\
         exirate: note: WEB* is there only in another case of letters\n"
    );
    assert_eq!(stderr(&machine.run("exirate check '9 / 1h / strict / ALICE' >out")), "");
    let (keys, said, _) = listed(&machine, "ALICE");
    assert_eq!((keys, said.as_str()), (vec!["1h per_mail ALICE".to_owned()], ""));
}

#[test]
fn what_is_not_there_is_said_with_what_is_near() {
    let machine = Prepared::new();
    for (arguments, expected) in [
        ("alcie@example.org", "no key alcie@example.org is remembered; there is alice@example.org"),
        ("nobody", "no key nobody is remembered; `exirate list` shows all keys"),
        ("'*@nowhere'", "no key *@nowhere is remembered; `exirate list` shows all keys"),
        ("web --mode per_cmd", "web is remembered, but not with this --mode or --period"),
        ("''", "no key (the empty key) is remembered"),
        ("'[a-'", "no key [a- is remembered (as a glob: "),
        ("\"$(printf 'x\\033y')\"", r"no key x\u{1b}y is remembered"),
    ] {
        for command in ["list", "show", "top"] {
            let output = machine.run(&format!("exirate {command} {arguments}"));
            let said = stderr(&output);
            assert!(
                said.contains(&format!("exirate: {expected}")),
                "{command} {arguments}: {said}"
            );
            assert_eq!(
                (output.status.code(), stdout(&output).as_str()),
                (Some(1), ""),
                "{command}"
            );
        }
    }
    // What is there is shown all the same.
    let (keys, said, status) = listed(&machine, "nobody web");
    assert_eq!((keys.len(), status), (1, Some(1)));
    assert!(said.contains("no key nobody"), "{said}");
}

#[test]
fn wrong_modes_and_periods_are_refused_with_what_would_be_right() {
    let machine = Prepared::new();
    for (arguments, expected) in [
        ("--mode hourly", "per_mail, per_rcpt, per_addr, per_conn, per_cmd or per_byte"),
        ("--period soon", "a period, such as 1h, 30m"),
        ("--period 1h/2", "a period, such as 1h, 30m"),
        ("--sort size", "rate, share, seen, key"),
        ("--limit few", "invalid value 'few' for '--limit <N>'"),
        ("--limit -1", "invalid value '-1' for '--limit <N>'"),
        ("--color red", "auto, always, never"),
    ] {
        let output = run(&machine.spool(), &[&["list"][..], &words(arguments)].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        assert!(stderr(&output).contains(expected), "{arguments}: {}", stderr(&output));
    }
    let output = machine.run("exirate show");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("<KEY>"), "{}", stderr(&output));
}

fn words(text: &str) -> Vec<&str> {
    text.split(' ').collect()
}
