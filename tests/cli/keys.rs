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
    let odd = r#"exirate check --count '9 / 1h / strict' --key "$(printf 'a\033[1m\\b*')" >out"#;
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
        ("ALICE@example.org --period 1h", &alice[1..]),
        ("--exact alice", &["1h per_rcpt alice"]),
        ("2001:db8::1", &client),
        ("2001:DB8:0:0::1", &client),
        ("'[2001:db8::1]'", &client),
        ("::ffff:192.0.2.7", &["10m per_conn 192.0.2.7"]),
        ("'192.0.2.*'", &["10m per_conn 192.0.2.7"]),
        ("'*@example.net'", &["1h per_rcpt bob@example.net"]),
        ("web bob@example.net", &["1h per_rcpt bob@example.net", "1d per_mail web"]),
        ("web 'w*'", &["1d per_mail web"]),
        ("--mode per_addr", &["1h per_addr carol@example.org"]),
        (r"'a\u{1b}\[1m\\b\*'", &["1h per_mail a\u{1b}[1m\\b*"]),
    ] {
        let (keys, said, status) = listed(&machine, arguments);
        assert_eq!(keys, expected, "{arguments}: {said}");
        assert_eq!((said.as_str(), status), ("", Some(0)), "{arguments}");
    }
}

/// What an argument matches depends on nothing that a client can store.
#[test]
fn a_key_that_looks_like_a_glob_hides_no_other() {
    let machine = Prepared::new();
    let hostile = "exirate check --count '9 / 1h / per_rcpt / strict' --cost 1 --key";
    for key in ["'*@example.org'", "'<alice@example.org>'", "ALICE@example.org", "'[192.0.2.7]'"] {
        assert_eq!(stderr(&machine.run(&format!("{hostile} {key} >out"))), "");
    }
    for (arguments, count) in [
        ("'*@example.org'", 5),
        ("'<alice@example.org>'", 4),
        ("'[192.0.2.7]'", 2),
        ("--exact '*@example.org'", 1),
        ("alice@example.org", 3),
        (r"'\*@example.org'", 1),
    ] {
        let (keys, said, status) = listed(&machine, arguments);
        assert_eq!((keys.len(), said.as_str(), status), (count, "", Some(0)), "{arguments}");
        for command in ["show", "top --once", "export", "reset --dry-run"] {
            let output = machine.run(&format!("exirate {command} {arguments} --json"));
            // `export` is lines with a header, the others one object or array.
            let found = stdout(&output).matches("\"stored\":").count()
                + stdout(&output).matches("\"micros\":").count();
            assert_eq!(found, count, "{command} {arguments}: {output:?}");
        }
        let output = machine.run(&format!("exirate set {arguments} --rate 1"));
        let expected = if count == 1 { Some(0) } else { Some(2) };
        assert_eq!(output.status.code(), expected, "{arguments}: {output:?}");
    }
    // What is shown can be pasted.
    let table = stdout(&machine.run("exirate list --exact '*@example.org'"));
    assert!(table.ends_with("  \\*@example.org\n"), "{table}");
    let output = machine.run("exirate unblock '*@example.org' --yes");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(stdout(&output).lines().count(), 5, "{output:?}");
    assert_eq!(listed(&machine, "'*@example.org'").2, Some(1));
}

#[test]
fn a_selection_that_matches_nothing_is_reported() {
    let machine = Prepared::new();
    for (arguments, expected) in [
        ("--period 2h", "exirate: no key matches --period 2h\n"),
        ("--period 5400", "exirate: no key matches --period 1h30m\n"),
        ("--mode per_cmd", "exirate: no key matches --mode per_cmd\n"),
    ] {
        assert_eq!(listed(&machine, arguments), (vec![], expected.to_owned(), Some(1)));
    }
    let output = machine.run("exirate list alice --over");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(
        stderr(&output),
        "exirate: note: no key is blocked: the next event of each would pass\n"
    );
}

#[test]
fn a_local_user_is_found_by_number_and_by_name() {
    let machine = Prepared::new();
    assert_eq!(stderr(&machine.run("exirate check --count '9 / 1h / strict / local:0' >out")), "");
    for argument in ["local:0", "local:root"] {
        let (keys, said, _) = listed(&machine, argument);
        assert_eq!((keys, said.as_str()), (vec!["1h per_mail local:0".to_owned()], ""));
        for command in ["list", "show", "reset --dry-run"] {
            let output = stdout(&machine.run(&format!("exirate {command} {argument}")));
            assert!(output.contains("local:0 (root)"), "{command}: {output}");
        }
    }
    let user = machine.run("exirate list local:0 --json | jq -r '.[0].user'");
    assert_eq!(stdout(&user), "root\n");
}

#[test]
fn what_is_not_there_is_said_with_what_is_near() {
    let machine = Prepared::new();
    for (arguments, expected) in [
        ("alcei@example.org", "no key matches alcei@example.org; similar: alice@example.org"),
        (
            "--exact ALICE@example.org",
            "no key matches ALICE@example.org; similar: alice@example.org",
        ),
        ("nobody", "no key matches nobody; `exirate list` shows all keys"),
        ("'*@nowhere'", "no key matches *@nowhere; `exirate list` shows all keys"),
        ("web --mode per_cmd", "web has no record with this --mode or --period"),
        ("''", "no key matches (the empty key)"),
        ("\"$(printf 'x\\033y')\"", r"no key matches x\u{1b}y"),
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
    for (arguments, expected) in [
        ("'[a-'", "[a-: not a valid glob (unclosed character class"),
        (r"'EXAMPLE\alice'", r"EXAMPLE\\alice: `\a` is not an escape"),
    ] {
        let output = machine.run(&format!("exirate list {arguments}"));
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        assert!(stderr(&output).contains(expected), "{arguments}: {}", stderr(&output));
    }
    // What is there is shown all the same.
    let (keys, said, status) = listed(&machine, "nobody web");
    assert_eq!((keys.len(), status), (1, Some(1)));
    assert!(said.contains("no key matches nobody"), "{said}");
}

#[test]
fn wrong_modes_and_periods_are_refused_with_what_would_be_right() {
    let machine = Prepared::new();
    for (arguments, expected) in [
        ("--mode hourly", "per_mail, per_rcpt, per_addr, per_conn, per_cmd or per_byte"),
        ("--period soon", "expected a period, such as 1h, 30m"),
        ("--period 1h/2", "expected a period, such as 1h, 30m"),
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
