//! `exirate allow`, `deny`, `overrides` and `unblock`.

use std::path::Path;
use std::process::Output;

use crate::{exirate, json, list, run, stderr, stdout};
use kit::FakeClock;

const CHECK: [&str; 4] = ["check", "10 / 1w / strict", "--key", "alice"];

/// A database with alice over her limit, and bob under it.
fn database() -> tempfile::TempDir {
    let spool = tempfile::tempdir().unwrap();
    for (key, cost) in [("alice", "30"), ("bob", "1")] {
        let count = ["check", "--count", "10 / 1w / strict", "--key", key, "--cost", cost];
        assert_eq!(stderr(&run(spool.path(), &count)), "");
    }
    spool
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

/// The exit status of a check of `key`.
fn check(spool: &Path, key: &str) -> Option<i32> {
    code(&run(spool, &["check", "10 / 1w / strict", "--key", key]))
}

fn fine(output: &Output) -> String {
    assert_eq!((code(output), stderr(output)), (Some(0), String::new()));
    stdout(output)
}

fn log(spool: &Path) -> String {
    std::fs::read_to_string(spool.join("exirate/audit.log")).unwrap()
}

#[test]
fn who_is_allowed_passes_and_is_still_counted() {
    let spool = database();
    let spool = spool.path();
    assert_eq!(check(spool, "alice"), Some(1));
    let allow = ["allow", "alice", "--until", "forever", "--reason", "year-end\nletter"];
    assert_eq!(fine(&run(spool, &allow)), "alice is allowed forever (year-end\\nletter)\n");
    assert_eq!(check(spool, "alice"), Some(0));
    let count = ["check", "--count", "10 / 1w / leaky", "--key", "alice", "--json"];
    let counted = json(&run(spool, &count));
    assert_eq!((&counted["override"], &counted["over"]), (&"allow".into(), &false.into()));
    assert!(counted["rate"].as_f64().unwrap() > 30.0 && counted["remaining"].is_null());
    let shown = stdout(&run(spool, &CHECK));
    assert!(shown.starts_with("allowed, whatever the rate (nothing was counted)\n"), "{shown}");
    assert!(shown.contains("  override         allow: see `exirate overrides`\n"), "{shown}");
    let log = log(spool);
    let line = log.lines().last().unwrap();
    assert!(line.contains("Z uid="), "{line}");
    assert!(line.ends_with(" allow until=forever key=alice reason=year-end\\nletter"), "{line}");
    // Only that key.
    assert_eq!(check(spool, "alice2"), Some(0));
    fine(&run(spool, &["overrides", "--remove", "alice"]));
    assert_eq!(check(spool, "alice"), Some(1));
}

#[test]
fn who_is_denied_is_refused_until_unblocked() {
    let spool = database();
    let spool = spool.path();
    fine(&run(spool, &["deny", "bob", "--reason", "stolen"]));
    assert_eq!(check(spool, "bob"), Some(1));
    let check_json = json(&run(spool, &["check", "10 / 1w / leaky", "--key", "bob", "--json"]));
    assert_eq!((&check_json["override"], &check_json["over"]), (&"deny".into(), &true.into()));
    assert_eq!(check_json["retry_after"], serde_json::Value::Null);
    let unblocked = fine(&run(spool, &["unblock", "bob"]));
    assert!(unblocked.starts_with("removed: bob is denied until "), "{unblocked}");
    assert!(
        unblocked.contains("reset bob (per_mail, 1w): under the limit, rate 1.0"),
        "{unblocked}"
    );
    assert_eq!(check(spool, "bob"), Some(0));
    let log = log(spool);
    let words: Vec<&str> = log.lines().map(|line| line.split(' ').nth(2).unwrap()).collect();
    assert!(words.ends_with(&["deny", "unblock", "unblock"]) || log.contains(" sudo="), "{log}");
    assert!(log.contains(" unblock removed=deny key=bob\n"), "{log}");
    let again = run(spool, &["unblock", "bob"]);
    assert_eq!(code(&again), Some(1));
    assert_eq!(stderr(&again), "exirate: no key matches bob; `exirate list` shows all keys\n");
    // A denial of a key that was never seen.
    unseen(&run(spool, &["deny", "carol"]));
    assert_eq!(check(spool, "carol"), Some(1));
    fine(&run(spool, &["unblock", "carol"]));
    assert_eq!(check(spool, "carol"), Some(0));
}

#[test]
fn overrides_fold_and_say_if_nobody_was_seen() {
    let spool = database();
    let spool = spool.path();
    // Also in the keys of specs, which are literal.
    fine(&run(spool, &["deny", " BOB. "]));
    assert_eq!(["bob", "Bob", "bob ", "bobby"].map(|key| check(spool, key)), DENIED);
    assert!(fine(&run(spool, &["list", "BOB"])).contains("bob (denied)"));
    assert!(fine(&run(spool, &["show", r"bob\n"])).contains("denied by an override"));
    fine(&run(spool, &["unblock", "bOb"]));
    assert_eq!(check(spool, "Bob"), Some(0));
    let said = unseen(&run(spool, &["deny", "Alcie"]));
    assert!(
        said.contains("Alcie has not been seen yet (similar: alice); it is denied from now on"),
        "{said}"
    );
    let json = json(&run(spool, &["allow", "alice", "--json"]));
    assert_eq!((&json["seen"], &json["exact"]), (&true.into(), &false.into()));
    // A login that looks like what follows it in the log.
    unseen(&run(spool, &["deny", "a reason=b", "--reason", "c"]));
    assert!(log(spool).ends_with(" key=a\\x20reason=b reason=c\n"), "{}", log(spool));
    // Byte for byte.
    unseen(&run(spool, &["deny", "Dora", "--exact"]));
    assert_eq!(["Dora", "dora"].map(|key| check(spool, key)), [Some(1), Some(0)]);
    fine(&run(spool, &["unblock", "Dora"]));
    assert_eq!(check(spool, "Dora"), Some(0));
    // A network, and its addresses.
    unseen(&run(spool, &["deny", "[2001:DB8::7]"]));
    let keys = ["2001:db8::7", "2001:db8:0::7", "2001:db8::/64", "2001:db8::8"];
    assert_eq!(keys.map(|key| check(spool, key)), DENIED);
}

/// Three are denied and one is not.
const DENIED: [Option<i32>; 4] = [Some(1), Some(1), Some(1), Some(0)];

/// What is said of a key that was not seen, for which an override is set all the same.
fn unseen(output: &Output) -> String {
    let said = stderr(output);
    let note = " has not been seen yet";
    // A denial acts all the same, and is fine; a permission meets nobody.
    let status = i32::from(stdout(output).contains(" is allowed "));
    assert!(code(output) == Some(status) && said.contains(note), "{output:?}");
    said
}

#[test]
fn globs_are_weaker_than_keys_and_unblock_names_what_is_left() {
    let spool = database();
    let spool = spool.path();
    fine(&run(spool, &["deny", "*", "--until", "1h", "--yes"]));
    fine(&run(spool, &["allow", "{al,x}*", "--until", "1h", "--yes"]));
    assert_eq!((check(spool, "alice"), check(spool, "bob")), (Some(1), Some(1)));
    fine(&run(spool, &["allow", "alice"]));
    assert_eq!((check(spool, "alice"), check(spool, "bob")), (Some(0), Some(1)));
    let output = run(spool, &["unblock", "bob"]);
    assert_eq!(code(&output), Some(1));
    let at = spool.display();
    let said = format!(
        "bob is still denied by *; `exirate overrides --remove '*' --spool {at}` ends that, or \
         `exirate allow bob --spool {at}`"
    );
    assert!(stderr(&output).contains(&said), "{}", stderr(&output));
    let output = run(spool, &["unblock", "*"]);
    assert_eq!(code(&output), Some(2));
    assert!(stderr(&output).contains("use --yes"), "{}", stderr(&output));
    let report = json(&run(spool, &["unblock", "*", "--yes", "--json"]));
    assert_eq!(report["removed"][0]["key"], "*");
    assert_eq!(report["reset"][0]["key"], "alice");
    assert_eq!(check(spool, "bob"), Some(0));
    // A glob unblocks the keys that it matches.
    unseen(&run(spool, &["deny", "bob@x.test"]));
    fine(&run(spool, &["unblock", "*@x.test", "--yes"]));
    assert_eq!(check(spool, "bob@x.test"), Some(0));
    // Literally.
    unseen(&run(spool, &["deny", "*", "--exact"]));
    assert_eq!((check(spool, "*"), check(spool, "bob")), (Some(1), Some(0)));
    fine(&run(spool, &["overrides", "--remove", r"\*"]));
    assert_eq!(check(spool, "*"), Some(0));
}

#[test]
fn overrides_are_listed_and_replaced() {
    let spool = database();
    let spool = spool.path();
    let none = run(spool, &["overrides"]);
    assert_eq!((code(&none), stdout(&none)), (Some(0), String::new()));
    assert_eq!(stderr(&none), "exirate: note: no key is allowed or denied\n");
    assert_eq!(json(&run(spool, &["overrides", "--json"])), serde_json::json!([]));
    fine(&run(spool, &["allow", "alice", "--until", "2999-12-31T00:00:00Z"]));
    fine(&run(spool, &["deny", "bob", "--exact", "--until", "forever", "--reason", "stolen"]));
    let replaced = json(&run(spool, &["deny", "alice", "--until", "1h", "--json"]));
    assert_eq!((&replaced["override"], &replaced["key"]), (&"deny".into(), &"alice".into()));
    assert_eq!(replaced["replaced"]["override"], "allow");
    assert_eq!(replaced["replaced"]["until"], "2999-12-31T00:00:00Z");
    let rows = json(&run(spool, &["overrides", "--json"]));
    let row = &rows[0];
    assert_eq!((&row["key"], &row["until"]), (&"bob".into(), &serde_json::Value::Null));
    assert_eq!((&row["glob"], &row["exact"]), (&false.into(), &true.into()));
    assert_eq!(row["reason"], "stolen");
    assert!(row["who"].as_str().unwrap().starts_with("uid="), "{row}");
    assert_eq!(rows.as_array().unwrap().len(), 2);
    let table = fine(&run(spool, &["overrides"]));
    for text in ["OVERRIDE", "bob --exact", "forever", "stolen", "uid="] {
        assert!(table.contains(text), "{text} is not in:\n{table}");
    }
    assert_eq!((check(spool, "bob"), check(spool, "BOB")), (Some(1), Some(0)));
    let weaker = run(spool, &["allow", "bob", "--until", "1h"]);
    assert_eq!(
        stderr(&weaker),
        format!(
            "exirate: note: no effect, as a stronger override applies to it: bob --exact is \
             denied forever (stolen); to end that one: `exirate overrides --remove bob --exact \
             --spool {}`\n",
            spool.display()
        )
    );
    assert_eq!(check(spool, "bob"), Some(1));
    let weaker = json(&run(spool, &["allow", "bob", "--json"]));
    assert_eq!(
        (&weaker["stronger"]["key"], &replaced["stronger"]),
        (&"bob".into(), &serde_json::Value::Null)
    );
    fine(&run(spool, &["overrides", "--remove", "bob"]));
    let listed = list(spool);
    let of = |key: &str| listed.iter().find(|row| row["key"] == key).unwrap()["override"].clone();
    assert_eq!((of("alice"), of("bob")), ("deny".into(), "deny".into()));
    assert!(fine(&run(spool, &["list"])).contains("bob (denied)"));
    assert!(fine(&run(spool, &["top", "--once"])).contains("bob (denied)"));
    assert_eq!(json(&run(spool, &["top", "--json"]))["records"][0]["override"], "deny");
    let shown = fine(&run(spool, &["show", "bob"]));
    assert!(shown.starts_with("bob: under the limit, and denied by an override\n"), "{shown}");
    assert!(shown.contains("  override      bob --exact is denied forever (stolen)\n"));
    assert_eq!(json(&run(spool, &["show", "bob", "--json"]))[0]["override"]["key"], "bob");
    fine(&run(spool, &["overrides", "--remove", "Bob", "--remove", "ALICE"]));
    let missing = run(spool, &["overrides", "--remove", "bob"]);
    assert_eq!(code(&missing), Some(1));
    assert_eq!(stderr(&missing), "exirate: no override of bob; `exirate overrides` lists them\n");
    assert!(log(spool).contains(" overrides removed=deny key=bob --exact\n"));
    assert_eq!(list(spool)[0]["override"], serde_json::Value::Null);
}

#[test]
fn an_override_ends_at_its_time() {
    let spool = database();
    let clock = FakeClock::new();
    let at = |moment: &str, arguments: &[&str]| {
        clock.freeze(moment);
        let mut command = exirate();
        command
            .args(arguments)
            .arg("--spool")
            .arg(spool.path())
            .envs(clock.environment())
            .env("TZ", "UTC");
        command.output().unwrap()
    };
    let check = ["check", "10 / 1w / strict", "--key", "dora"];
    unseen(&at("2037-01-01 10:00:00", &["deny", "dora", "--until", "1h"]));
    assert_eq!(code(&at("2037-01-01 10:59:59", &check)), Some(1));
    assert_eq!(code(&at("2037-01-01 11:00:00", &check)), Some(0));
    let listed = at("2037-01-01 11:00:00", &["overrides", "--json"]);
    assert_eq!(json(&listed), serde_json::json!([]));
    // The default is a day, also for allow, which meets nobody.
    let allowed = at("2037-01-01 10:00:00", &["allow", "dora", "--json"]);
    assert_eq!(code(&allowed), Some(1));
    let allowed = json(&allowed);
    assert_eq!(
        (&allowed["until"], &allowed["seen"]),
        (&"2037-01-02T10:00:00Z".into(), &false.into())
    );
    // One that has ended is dropped by the next change.
    unseen(&at("2037-01-03 10:00:00", &["allow", "emil"]));
    let before = at("2037-01-01 10:00:00", &["overrides", "--json"]);
    assert_eq!(json(&before).as_array().unwrap().len(), 1);
}

#[test]
fn wrong_input_says_what_would_be_right() {
    let spool = database();
    for (arguments, said) in [
        (&["allow"][..], "<KEY>"),
        (&["allow", "alice", "--until", "soon"], "expected a time, such as 18:00"),
        (&["deny", "alice", "--until", "2001-01-01"], " is in the past; expected a time"),
        (&["deny", "1h/per_rcpt/alice"], "write the key without its period and mode"),
        (&["deny", "**@x"], "write `*`"),
        (&["deny", "[a"], "not a valid glob"),
        (&["allow", "a", "-i"], "unexpected argument"),
        (&["overrides", "--exact"], "--remove"),
    ] {
        let output = run(spool.path(), arguments);
        assert_eq!(code(&output), Some(2), "{arguments:?}");
        assert!(stderr(&output).contains(said), "{arguments:?}: {}", stderr(&output));
    }
    let long = "x".repeat(1025);
    let output = run(spool.path(), &["deny", "alice", "--reason", &long]);
    assert_eq!(stderr(&output), "exirate: the reason is longer than 1024 bytes\n");
    assert_eq!(json(&run(spool.path(), &["overrides", "--json"])), serde_json::json!([]));
    let empty = tempfile::tempdir().unwrap();
    for command in ["allow", "deny", "unblock"] {
        let output = run(empty.path(), &[command, "alice"]);
        assert_eq!(code(&output), Some(2));
        assert!(stderr(&output).contains("no rate database"), "{}", stderr(&output));
    }
    assert_eq!(std::fs::read_dir(empty.path()).unwrap().count(), 0);
}

#[test]
fn a_damaged_list_is_reported_and_denies_nobody() {
    let spool = database();
    fine(&run(spool.path(), &["deny", "*", "--yes"]));
    assert_eq!(check(spool.path(), "bob"), Some(1));
    let path = spool.path().join("exirate/overrides");
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(check(spool.path(), "bob"), Some(0));
    let output = run(spool.path(), &["overrides"]);
    assert_eq!(code(&output), Some(2));
    assert!(stderr(&output).contains("none is in force"), "{}", stderr(&output));
    // Other commands go on.
    assert_eq!(code(&run(spool.path(), &["list"])), Some(0));
    let output = run(spool.path(), &["verify"]);
    assert_eq!(code(&output), Some(1));
    assert!(stdout(&output).contains("overrides: it is damaged"), "{}", stdout(&output));
    let output = run(spool.path(), &["repair"]);
    let said = stdout(&output) + &stderr(&output);
    assert!(said.contains("has been quarantined as overrides.damaged-1: the keys"), "{said}");
    assert!(said.contains("audit.log lists the commands"), "{said}");
    assert_eq!(code(&run(spool.path(), &["verify"])), Some(0));
    let listed = run(spool.path(), &["overrides"]);
    assert_eq!(code(&listed), Some(0));
    let said = stderr(&listed);
    assert!(said.contains("overrides.damaged-1 was damaged, and is kept"), "{said}");
    fine(&run(spool.path(), &["deny", "bob"]));
    assert_eq!(check(spool.path(), "bob"), Some(1));
}

#[test]
fn a_check_that_counts_quarantines_a_damaged_list_and_says_so_once() {
    let spool = database();
    fine(&run(spool.path(), &["deny", "*", "--yes"]));
    std::fs::write(spool.path().join("exirate/overrides"), "damaged").unwrap();
    let count = ["check", "--count", "10 / 1w / strict", "--key", "bob"];
    let said = stderr(&run(spool.path(), &count));
    assert!(said.contains("has been quarantined as overrides.damaged-1"), "{said}");
    assert_eq!(stderr(&run(spool.path(), &count)), "");
    assert_eq!(code(&run(spool.path(), &["verify"])), Some(0));
}

#[test]
fn copy_copies_overrides_and_says_what_it_leaves_out() {
    let (spool, copies) = (database(), tempfile::tempdir().unwrap());
    fine(&run(spool.path(), &["deny", "bob"]));
    let copy = |name: &str| {
        let target = copies.path().join(name);
        (run(spool.path(), &["copy", target.to_str().unwrap()]), target)
    };
    let (output, target) = copy("sound");
    fine(&output);
    assert_eq!(check(&target, "bob"), Some(1));
    let path = spool.path().join("exirate/overrides");
    std::fs::write(&path, "damaged").unwrap();
    let (output, target) = copy("damaged");
    assert_eq!(code(&output), Some(1));
    assert!(stdout(&output).contains("the copy has no overrides: "), "{output:?}");
    assert_eq!((check(&target, "bob"), list(&target).len()), (Some(0), 2));
    assert_eq!(std::fs::read(&path).unwrap(), b"damaged", "a copy changes nothing");
    // Commands that only read say what is wrong, and go on.
    let top = run(spool.path(), &["top", "--once"]);
    assert!(stdout(&top).contains("1 UNREADABLE (exirate verify)"), "{top:?}");
    assert!(stderr(&run(spool.path(), &["list"])).contains("none is in force"));
}

#[test]
fn overrides_set_at_once_by_many_processes_are_all_kept() {
    let spool = database();
    let mut running = Vec::new();
    for n in 0..12 {
        let mut command = exirate();
        command.args(["deny", &format!("user{n}"), "--spool"]).arg(spool.path());
        running.push(command.stdout(std::process::Stdio::null()).spawn().unwrap());
    }
    for mut process in running {
        assert!(process.wait().unwrap().success());
    }
    let rows = json(&run(spool.path(), &["overrides", "--json"]));
    assert_eq!(rows.as_array().unwrap().len(), 12);
    assert!((0..12).all(|n| check(spool.path(), &format!("user{n}")) == Some(1)));
}

/// The reply of a denial: as it is named, or else by whom it is about and until when.
#[test]
fn a_denial_says_what_the_client_is_told() {
    let spool = database();
    for (arguments, reply) in [
        (&["alice"][..], "defer"),
        (&["alice", "--until", "forever"], "reject"),
        (&["auth:alice", "--until", "forever"], "reject"),
        (&["alice", "--until", "forever", "--reply", "defer"], "defer"),
        (&["alice", "--reply", "reject"], "reject"),
        (&["192.0.2.7", "--until", "forever"], "defer"),
        (&["client:192.0.2.7", "--until", "forever"], "defer"),
        (&["2001:db8::/32", "--until", "forever"], "defer"),
        (&["sender:alice@x.test", "--until", "forever"], "defer"),
        (&["al*", "--until", "forever", "--yes"], "defer"),
    ] {
        let denied = run(spool.path(), &[&["deny", "--json"][..], arguments].concat());
        assert_eq!(code(&denied), Some(0));
        assert_eq!(json(&denied)["reply"], reply, "{arguments:?}");
    }
    let shown = stdout(&run(spool.path(), &["deny", "alice", "--until", "forever"]));
    assert!(shown.contains("rejected (550): programs do not try again\n"), "{shown}");
    assert_eq!(check(spool.path(), "alice"), Some(1));
    assert!(log(spool.path()).contains(" deny until=forever reply=reject key=alice\n"));
}

#[test]
fn an_override_is_ended_by_the_command_that_sets_it() {
    let spool = database();
    let spool = spool.path();
    fine(&run(spool, &["allow", "alice"]));
    let other = run(spool, &["deny", "alice", "--end"]);
    assert_eq!((code(&other), stdout(&other)), (Some(1), String::new()));
    assert!(stderr(&other).starts_with("exirate: alice is allowed until "), "{}", stderr(&other));
    let ended = fine(&run(spool, &["allow", "ALICE", "--end"]));
    assert!(ended.starts_with("ended: alice is allowed until "), "{ended}");
    assert_eq!(check(spool, "alice"), Some(1));
    for command in ["allow", "deny"] {
        let none = run(spool, &[command, "alice", "--end"]);
        assert_eq!(code(&none), Some(1));
        assert!(stderr(&none).contains("alice has no override"), "{}", stderr(&none));
    }
    // The records stay.
    fine(&run(spool, &["deny", "alice"]));
    fine(&run(spool, &["deny", "alice", "--end"]));
    assert_eq!(check(spool, "alice"), Some(1));
    let ended = json(&run(spool, &["deny", "alice", "--end", "--json"]));
    assert_eq!(ended, serde_json::json!({ "ended": null }));
    assert!(log(spool).contains(" deny --end key=alice\n"));
}

/// A login without its domain, and with the one by which the mail server qualifies it, are one user;
/// while all policies only observe, nobody is told that mail is refused.
#[test]
fn an_override_of_a_login_is_ended_with_its_domain_or_without() {
    let spool = tempfile::tempdir().unwrap();
    let (file, spool) = (spool.path().join("policy.toml"), spool.path());
    let apply = |action: &str| {
        let text = format!(
            "version = 1\naction = \"{action}\"\n[identity]\nqualify = \"example.org\"\n[policy.p]\n\
             key = \"auth\"\ndefault.recipients = \"5/1h\"\nuser.\"alice@example.org\".recipients = \"9/1h\"\n"
        );
        std::fs::write(&file, text).unwrap();
        fine(&run(spool, &["policy", "apply", file.to_str().unwrap()]));
    };
    let count = ["check", "--count", "10 / 1w / strict", "--key", "bob"];
    assert_eq!(stderr(&run(spool, &count)), "");
    apply("enforce");
    for (set, ended) in [("alice", "alice@example.org"), ("alice@example.org", "alice")] {
        for command in ["deny", "allow"] {
            fine(&run(spool, &[command, set]));
            let said = fine(&run(spool, &[command, ended, "--end"]));
            assert!(said.starts_with(&format!("ended: {set} is ")), "{said}");
        }
    }
    // The very name first, and then the other.
    fine(&run(spool, &["deny", "alice@example.org"]));
    fine(&run(spool, &["deny", "alice"]));
    for (name, ended) in [("alice", "alice"), ("alice", "alice@example.org")] {
        let said = stdout(&run(spool, &["deny", name, "--end"]));
        assert!(said.starts_with(&format!("ended: {ended} is ")), "{said}");
    }
    let none = run(spool, &["deny", "alice", "--end"]);
    assert!(stderr(&none).contains("alice has no override"), "{}", stderr(&none));
    apply("observe");
    let denied = run(spool, &["deny", "alice"]);
    assert!(stderr(&denied).contains("all policies in use only observe"), "{}", stderr(&denied));
    fine(&run(spool, &["unblock", "alice"]));
    assert_eq!(stderr(&run(spool, &["allow", "alice"])), "");
}

/// A slip is named before anything is done; a denial acts all the same.
#[test]
fn who_was_never_seen_is_named_first() {
    let spool = tempfile::tempdir().unwrap();
    let spool = spool.path();
    let count = ["check", "--count", "10 / 1w / strict", "--key", "alice"];
    assert_eq!(stderr(&run(spool, &count)), "");
    for (command, status) in [("deny", 0), ("allow", 1)] {
        let output = run(spool, &[command, "alice@example.org"]);
        assert_eq!(code(&output), Some(status));
        assert!(stderr(&output).contains(" (similar: alice); it is "), "{}", stderr(&output));
        assert!(stdout(&output).starts_with("alice@example.org is "), "{}", stdout(&output));
    }
    for command in ["unblock", "set"] {
        let rate: &[&str] = if command == "set" { &["--rate", "0"] } else { &[] };
        let output = run(spool, &[&[command, "zed@example.net"][..], rate].concat());
        assert_eq!((code(&output), stdout(&output)), (Some(1), String::new()));
        assert!(stderr(&output).contains("no key matches zed@example.net"), "{}", stderr(&output));
    }
}
