//! `exirate policy`.

use std::path::Path;
use std::process::Output;

use crate::{exirate, json, stderr, stdout};

/// The file of the documentation's first example.
const EXAMPLE: &str = include_str!("../../src/policy/source/example.toml");

fn policy(dir: &Path, arguments: &[&str]) -> Output {
    exirate().arg("policy").args(arguments).current_dir(dir).output().unwrap()
}

fn with(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    dir
}

#[test]
fn lint_reports_each_error_with_its_line_and_column() {
    let wrong = "version = 1\n[policy.out]\nacton = \"observe\"\nusers = \"u.csv\"\n";
    let dir = with(&[("ok.toml", EXAMPLE), ("wrong.toml", wrong), ("u.csv", "user\n\"a\n")]);
    let output = policy(dir.path(), &["lint", "ok.toml"]);
    assert_eq!(stdout(&output), "ok.toml: 2 policies, 1 user; no error, no warning\n");
    assert_eq!(output.status.code(), Some(0));

    let output = policy(dir.path(), &["lint", "wrong.toml"]);
    assert_eq!(
        stdout(&output),
        "wrong.toml:3:1: error: unknown key \"acton\" in [policy.out]; did you mean \"action\"? \
         Allowed: when, action, update, on_error, text, texts, key, verdicts, habits_failures, longest_delay, bucket, \
         default, package, customer, domain, user, users, exempt, habits, \
         sensitivity, at, burst, longest, after_longest\n\
         u.csv:2:1: error: the quote has no end\n"
    );
    assert_eq!(output.status.code(), Some(1));
    let output = policy(dir.path(), &["lint", "--json", "wrong.toml"]);
    let found = json(&output);
    assert_eq!(found["errors"], 2);
    assert_eq!(found["policies"], serde_json::Value::Null);
    assert_eq!(found["diagnostics"][1]["file"], "u.csv");
    assert_eq!(found["diagnostics"][0]["line"], 3);

    // Where there is an error, the others show nothing.
    for arguments in
        [&["show", "--user", "a", "--file", "wrong.toml"][..], &["diff", "ok.toml", "wrong.toml"]]
    {
        let output = policy(dir.path(), arguments);
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(2), ""));
        let said = stderr(&output);
        assert!(said.starts_with("exirate: wrong.toml:3:1: unknown key \"acton\""), "{said}");
        assert!(said.ends_with("exirate: wrong.toml cannot be used: see above\n"), "{said}");
    }
}

#[test]
fn lint_warns_of_what_is_not_meant() {
    let text = EXAMPLE.replace("2026-12-31", "2020-12-31").replace("\"500/1d\"", "\"50/1d\"");
    let dir = with(&[("p.toml", &text)]);
    let output = policy(dir.path(), &["lint", "p.toml"]);
    let lines: Vec<String> = stdout(&output).lines().map(str::to_owned).collect();
    assert_eq!(
        lines,
        [
            "p.toml:17:14: warning: \"100/1h\" never matters: \"50/1d\" is reached before it",
            "p.toml:27:1: warning: expired at 2020-12-31T00:00:00Z: nobody is exempt by it",
            "p.toml: 2 policies, 1 user; no error, 2 warnings",
        ]
    );
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_file_that_cannot_be_read_is_an_error() {
    let dir = with(&[("bytes.toml", "")]);
    std::fs::write(dir.path().join("bytes.toml"), b"version = 1\n\xff").unwrap();
    for (file, words) in [
        ("none.toml", "cannot read none.toml: No such file"),
        ("bytes.toml", "not UTF-8 in line 2"),
    ] {
        let output = policy(dir.path(), &["lint", file]);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
    }
}

#[test]
fn a_domain_outside_ascii_is_its_a_label() {
    let file = "version = 1\ntimezone = \"UTC\"\n[policy.out]\nwhen = \"authenticated\"\nkey = \"auth\"\n\
                default.messages = \"1/1h\"\ndomain.\"xn--mnchen-3ya.example\".messages = \"5/1h\"\n\
                domain.\"köln.example\".messages = \"5/1h\"\n[[policy.out.exempt]]\n\
                match = [\"ceo@münchen.example\"]\nreason = \"letters\"\n";
    let dir = with(&[("p.toml", file)]);
    let show = |user: &str| {
        json(&policy(dir.path(), &["show", "--file", "p.toml", "--user", user, "--json"]))
    };
    for user in [
        "a@münchen.example",
        "A@MÜNCHEN.example",
        "a@xn--mnchen-3ya.example",
        "a@köln.example",
        "a@xn--kln-sna.example",
    ] {
        let found = show(user);
        assert_eq!(found["policies"][0]["limits"][0]["limit"], 5.0, "{user}: {found}");
    }
    for user in ["ceo@münchen.example", "ceo@xn--mnchen-3ya.example"] {
        assert_eq!(show(user)["policies"][0]["exempt"]["reason"], "letters", "{user}");
    }
    // In overrides as well, of one and of many.
    let spool = dir.path().join("spool");
    std::fs::create_dir(&spool).unwrap();
    exirate::spool::Spool::open(&spool, exirate::spool::Options::default()).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = exirate();
        command.args(arguments).args(["--spool", "spool"]).current_dir(&dir).output().unwrap()
    };
    assert_eq!(run(&["policy", "apply", "p.toml"]).status.code(), Some(0));
    assert_eq!(run(&["deny", "a@münchen.example"]).status.code(), Some(0));
    assert_eq!(
        run(&["deny", "*@xn--kln-sna.example", "--until", "1h", "--yes"]).status.code(),
        Some(0)
    );
    for (user, is_denied) in [
        ("a@xn--mnchen-3ya.example", true),
        ("A@München.example", true),
        ("b@xn--mnchen-3ya.example", false),
        ("b@köln.example", true),
    ] {
        let check = json(&run(&["check", "out", "--auth", user, "--json"]));
        let text = check["text"].as_str().unwrap();
        assert_eq!(text.starts_with("Blocked"), is_denied, "{user}: {check}");
    }
}

#[test]
fn a_user_that_looks_like_a_domain_is_a_warning() {
    let file = "version = 1\n[policy.out]\nkey = \"auth\"\ndefault.messages = \"1/1h\"\n\
                users = [\"users.csv\"]\n";
    let dir = with(&[
        ("p.toml", file),
        ("users.csv", "user,messages\nalice@example.org,9/1h\nexample.org,5/1h\n"),
    ]);
    let output = policy(dir.path(), &["lint", "p.toml"]);
    assert!(stdout(&output).contains("\"example.org\" looks like a domain"), "{output:?}");
}

#[test]
fn show_names_the_rule_of_each_limit() {
    let dir = with(&[("p.toml", EXAMPLE)]);
    let show = |arguments: &[&str]| {
        let all = [&["show", "--file", "p.toml"], arguments].concat();
        policy(dir.path(), &all)
    };
    let words = |output: &Output| -> Vec<String> {
        let text = stdout(output);
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    };
    let output = show(&["--user", "News+x@Example.org", "--policy", "outbound"]);
    assert_eq!(stderr(&output), "");
    assert_eq!(
        words(&output),
        [
            "POLICY LIMIT UNIT PER RULE WHEN WHERE",
            "outbound unlimited recipients news@example.org user news@example.org authenticated p.toml:26:14",
            "outbound 60/1h unique_recipients news@example.org default authenticated p.toml:18:21",
            "outbound 500M/1d bytes news@example.org default authenticated p.toml:19:9",
            "outbound 3000/1h recipients all of example.org domain example.org authenticated p.toml:24:24",
            "outbound: package gold, from domain example.org",
        ]
    );
    let output = show(&["--user", "ceo@example.org", "--at", "2026-12-30T00:00:00Z", "--json"]);
    let found = json(&output);
    let outbound = &found["policies"][1];
    assert_eq!(outbound["policy"], "outbound");
    assert_eq!(
        (&outbound["package"], &outbound["customer"]),
        (&"gold".into(), &serde_json::Value::Null)
    );
    assert_eq!(outbound["package_from"], "domain example.org");
    assert_eq!(outbound["exempt"]["reason"], "year-end letter");
    let limit = &outbound["limits"][0];
    assert_eq!((&limit["limit"], &limit["period"]), (&1000.0.into(), &3600.0.into()));
    assert_eq!((&limit["rule"], &limit["line"]), (&"package gold".into(), &21.into()));
    let output = show(&["--user", "ceo@example.org", "--at", "2027-01-01T00:00:00Z", "--json"]);
    assert!(json(&output)["policies"][1]["exempt"].is_null());
    // The policy of bounces counts recipients.
    let output = show(&["--client", "192.0.2.7", "--policy", "bounces"]);
    let row = "bounces burst 5, leak 1/1h recipients each recipient, 192.0.2.7 default null_sender p.toml:34:10";
    assert_eq!(words(&output).get(1).map(String::as_str), Some(row));

    let output = show(&["--user", "x", "--policy", "outbond"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("has no policy \"outbond\"; did you mean \"outbound\"?"));
    let output = show(&["--user", "x", "--package", "tin"]);
    assert!(stderr(&output).contains("has no package \"tin\": it is ignored"));
    // Without a user: the limits of whoever has none of their own.
    let output = show(&["--policy", "outbound"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(words(&output).iter().skip(1).all(|row| row.contains(" default ")), "{output:?}");
}

#[test]
fn diff_shows_what_changes_and_no_more() {
    let other =
        EXAMPLE.replace("500/1d", "600/1d").replace("[policy.bounces]", "# x\n[policy.bounces]");
    let respelled = EXAMPLE.replace("100/1h", "100 / 60m");
    let dir = with(&[("a.toml", EXAMPLE), ("b.toml", &other), ("c.toml", &respelled)]);
    let output = policy(dir.path(), &["diff", "a.toml", "b.toml"]);
    assert_eq!(
        stdout(&output),
        "- policy.outbound.default.recipients = 100 / 1h, 500 / 1d\n\
         + policy.outbound.default.recipients = 100 / 1h, 600 / 1d\n"
    );
    assert_eq!(output.status.code(), Some(1));
    let output = policy(dir.path(), &["diff", "a.toml", "c.toml"]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), ""));
}

#[test]
fn each_example_of_the_documentation_is_as_it_says() {
    let page = include_str!("../../docs/policy.md");
    let mut blocks =
        page.split("\n```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    assert_eq!(blocks.next(), Some(EXAMPLE));
    let mut seen = 0;
    for block in blocks {
        let head = if block.contains("version = 1") { "" } else { "version = 1\n" };
        let users = "user,package,customer,recipients\nalice@example.org,gold,acme,\n";
        let text = format!("{head}{block}");
        let dir = with(&[("p.toml", &text), ("users.csv", users)]);
        let output = policy(dir.path(), &["lint", "p.toml"]);
        // A part of a file may be without a limit.
        let unexpected = stdout(&output).lines().any(|line| line.contains(" error: "))
            || stdout(&output)
                .lines()
                .any(|line| line.contains(" warning: ") && !line.contains("no limit"));
        assert!(!unexpected, "{text}\n{}", stdout(&output));
        seen += 1;
    }
    assert!(seen >= 6, "{seen}");
}
