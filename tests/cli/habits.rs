//! `exirate habits`.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Output;

use kit::habits::{Message, stream};
use serde_json::Value;

use crate::{exirate, json, run, stderr, stdout};

/// Networks from here on are a thief's.
const THIEVES: u64 = 900;

/// The mail of alice, of whom it is stolen, and of bob, as Exim logs it; without the messages of
/// bob's thief.
fn log() -> String {
    let mail =
        |login: &'static str, account| stream(account).into_iter().map(move |one| (login, one));
    let bob = mail("bob", 2).filter(|(_, one)| one.network < THIEVES);
    let mut all: Vec<(&str, Message)> = mail("Alice@example.org", 1).chain(bob).collect();
    all.sort_by_key(|(_, one)| one.at);
    let mut log = String::new();
    for (n, (login, Message { at, network, recipients })) in all.into_iter().enumerate() {
        let at = jiff::Timestamp::from_second(at).unwrap().strftime("%F %T");
        let (high, low) = (network / 256, network % 256);
        write!(
            log,
            "{at} 1vM1aC-{n:011}-1aBc <= a@x.test H=h [10.{high}.{low}.7] P=esmtpsa A=plain:{login} \
             S=9 for"
        )
        .unwrap();
        recipients.iter().for_each(|one| write!(log, " R{one}@Y.test").unwrap());
        log.push('\n');
    }
    // Neither a bounce, nor root's mail, nor that of a server.
    log + "2026-02-16 10:00:00 1vM1aC-00000000001-1aBc <= <> R=1vM1aC-00000000001-1aBc U=Debian-exim P=local S=9 for a@x.test\n\
     2026-02-16 10:00:00 1vM1aC-00000000002-1aBc <= root@x.test U=root P=local S=9 for a@x.test\n\
     2026-02-16 10:00:00 1vM1aC-00000000003-1aBc <= b@z.test H=h [192.0.2.9] P=esmtps S=9 for a@x.test\n"
}

/// A folder with the log and a spool directory.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("spool")).unwrap();
    std::fs::write(folder.path().join("mainlog"), log()).unwrap();
    folder
}

fn learn(folder: &Path, options: &[&str]) -> Output {
    let mut command = exirate();
    command.env("TZ", "UTC").args(["habits", "learn"]).arg(folder.join("mainlog")).args(options);
    command.arg("--spool").arg(folder.join("spool")).output().unwrap()
}

/// Fails unless alice is named while her account is stolen, soon, and nobody else is.
fn assert_is_named(found: &Value) {
    let theft: Vec<i64> =
        stream(1).iter().filter(|one| one.network >= THIEVES).map(|one| one.at).collect();
    let alarms = found["alarms"].as_array().unwrap();
    assert!(!alarms.is_empty(), "{found}");
    for alarm in alarms {
        assert_eq!(alarm["key"], "auth:alice@example.org");
        assert!(theft.contains(&alarm["at"].as_i64().unwrap()), "{alarm}");
    }
    let after = theft.iter().position(|&at| alarms[0]["at"] == at).unwrap();
    assert!(after < 12, "{after}");
}

#[test]
fn a_stolen_account_is_named_from_logs_and_its_habits_stay() {
    let folder = folder();
    let spool = &folder.path().join("spool");
    let dry = json(&learn(folder.path(), &["--dry-run", "--json"]));
    assert_is_named(&dry);
    assert!(!spool.join("exirate").exists());

    let learned = learn(folder.path(), &["--json"]);
    assert_eq!(learned.status.code(), Some(1));
    let learned = json(&learned);
    assert_is_named(&learned);
    let messages = log().lines().count() as u64 - 3;
    assert_eq!((&learned["messages"], &learned["accounts"]), (&messages.into(), &2.into()));

    // What is known is not learned twice.
    let again = learn(folder.path(), &[]);
    assert_eq!(
        stdout(&again),
        format!("learned: no message of 2 accounts; {messages} messages learned before\n")
    );

    let shown = json(&run(spool, &["habits", "--json"]));
    let keys: Vec<&str> =
        shown.as_array().unwrap().iter().map(|one| one["key"].as_str().unwrap()).collect();
    assert_eq!(keys.len(), 2);
    for login in ["alice@example.org", "bob"] {
        assert!(keys.contains(&&*format!("auth:{login}")), "{keys:?}");
        let one = json(&run(spool, &["habits", login, "--json"]));
        assert_eq!(one.as_array().unwrap().len(), 1);
        assert_eq!(one[0]["alarm_at"].is_i64(), login != "bob");
    }
    let missing = run(spool, &["habits", "carol"]);
    assert_eq!((missing.status.code(), &*stdout(&missing)), (Some(1), "no account matches\n"));
    // They are no rates.
    assert_eq!(crate::list(spool), Vec::<Value>::new());
}

#[test]
fn habits_are_exported_imported_and_erased_as_rates_are() {
    let folder = folder();
    let spool = &folder.path().join("spool");
    learn(folder.path(), &[]);
    let shown = |spool: &Path| stdout(&run(spool, &["habits", "--json"]));
    let before = shown(spool);
    let export = folder.path().join("export");
    let exported = run(spool, &["export", "--output", export.to_str().unwrap()]);
    assert!(stdout(&exported).starts_with("wrote 2 records"), "{}", stdout(&exported));

    let other = &folder.path().join("other");
    std::fs::create_dir(other).unwrap();
    let imported = run(other, &["import", export.to_str().unwrap()]);
    assert_eq!(
        (stderr(&imported), stdout(&imported)),
        (String::new(), "imported 2 records\n".into())
    );
    // The scores fade meanwhile.
    let exact = |text: String| {
        let all: Value = serde_json::from_str(&text).unwrap();
        let one = |one: &Value| (one["key"].clone(), one["at"].clone(), one["evidence"].clone());
        all.as_array().unwrap().iter().map(one).collect::<Vec<_>>()
    };
    assert_eq!(exact(shown(other)), exact(before));

    // Into a database with another key, they mean nothing.
    let third = &folder.path().join("third");
    std::fs::create_dir(third).unwrap();
    run(third, &["check", "--count", "1 / 1h / per_conn / strict", "--key", "x"]);
    let left_out = json(&run(third, &["import", export.to_str().unwrap(), "--json"]));
    assert_eq!((&left_out["added"], &left_out["filters_left_out"]), (&0.into(), &2.into()));

    let erased = json(&run(spool, &["erase", "alice@example.org", "--yes", "--json"]));
    assert_eq!(erased["rates"], 1);
    let left = shown(spool);
    assert!(left.contains("auth:bob") && !left.contains("alice"), "{left}");
}
