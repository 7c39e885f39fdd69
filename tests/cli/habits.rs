//! `exirate habits`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::path::Path;
use std::process::Output;

use exirate::rate::habits::Sensitivity;
use exirate::spool::habits::SentMessage;
use exirate::spool::{Options, Spool};
use exirate::store::habits_key;
use kit::FakeClock;
use kit::habits::{Message, stream};
use serde_json::Value;

use crate::logs_as_written::add_to_journal;
use crate::{exirate, json, run, stderr, stdout};

/// Networks from here on are a thief's.
const THIEVES: u64 = 900;
/// A zone three hours east of Greenwich, and those hours.
const ZONE: (&str, i64) = ("UTC-3", 3 * 3600);

/// The mail of alice, whose account is stolen, and of bob, as Exim logs it; without the messages of
/// bob's thief. Every other line has its time in UTC and says so, others are of [`ZONE`].
fn log() -> String {
    log_of(2)
}

/// The same, where each n-th line has its time in UTC.
fn log_of(each: usize) -> String {
    let mail =
        |login: &'static str, account| stream(account).into_iter().map(move |one| (login, one));
    let bob = mail("bob", 2).filter(|(_, one)| one.network < THIEVES);
    let mut all: Vec<(&str, Message)> = mail("Alice@example.org", 1).chain(bob).collect();
    all.sort_by_key(|(_, one)| one.at);
    let mut log = String::new();
    for (n, (login, Message { at, network, recipients })) in all.into_iter().enumerate() {
        let (ahead, zone) = if n % each == 0 { (0, " +0000") } else { (ZONE.1, "") };
        let at = jiff::Timestamp::from_second(at + ahead).unwrap().strftime("%F %T");
        let (high, low) = (network / 256, network % 256);
        write!(
            log,
            "{at}{zone} 1vM1aC-{n:011}-1aBc <= a@x.test H=h [10.{high}.{low}.7] P=esmtpsa A=plain:{login} \
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
    command.env("TZ", ZONE.0).args(["habits", "learn"]).arg(folder.join("mainlog")).args(options);
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
    // A stranger whose hash is like that of somebody known counts for nothing.
    assert!(after < 20, "{after}");
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
        format!(
            "learned: no message of 2 accounts; {messages} messages not later than the last known \
             one: left out\n"
        )
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
        let account = 1 + usize::from(login == "bob");
        let theirs = |one: &&Message| account == 1 || one.network < THIEVES;
        assert_eq!(one[0]["at"], stream(account).iter().rfind(theirs).unwrap().at);
    }
    let missing = run(spool, &["habits", "carol"]);
    assert_eq!((missing.status.code(), &*stdout(&missing)), (Some(1), ""));
    let missing = stderr(&missing);
    assert_eq!(missing, "exirate: no key matches carol; `exirate habits` shows all accounts\n");
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
    let counts = ["added", "filters_left_out", "habits_left_out"];
    assert_eq!(counts.map(|name| left_out[name].as_u64().unwrap()), [0, 0, 2]);
    let imported = run(third, &["import", export.to_str().unwrap()]);
    assert!(stdout(&imported).contains("\nhabits of 2 accounts left out: "), "{imported:?}");

    let erased = json(&run(spool, &["erase", "alice@example.org", "--yes", "--json"]));
    assert_eq!(erased["rates"], 1);
    let left = shown(spool);
    assert!(left.contains("auth:bob") && !left.contains("alice"), "{left}");
}

#[test]
fn a_clock_that_was_wrong_silences_no_account() {
    let folder = folder();
    let spool = folder.path().join("spool");
    // One has been learned already.
    let mut name = Vec::new();
    let message = SentMessage { at: 4_000_000_000, client: None, recipients: [&b"a@x.test"[..]] };
    let mut before = Spool::open(&spool, Options::default()).unwrap();
    let known = habits_key(b"auth:bob", &mut name);
    before.learn_habits(known, message, Sensitivity::Normal).unwrap();
    drop(before);
    let wrong = "2099-01-01 00:00:00 +0000 1vM1aC-00000000004-1aBc <= a@x.test H=h [192.0.2.9] \
                 P=esmtpsa A=plain:Alice@example.org S=9 for a@x.test\n";
    std::fs::write(folder.path().join("mainlog"), wrong.to_owned() + &log()).unwrap();
    let messages = log().lines().count() as u64 - 3;
    let learned = json(&learn(folder.path(), &["--json"]));
    let counts = ["messages", "ahead", "known"].map(|name| learned[name].as_u64().unwrap());
    assert_eq!(counts, [messages, 1, 0]);
    // The clock of the database is right again.
    let again = learn(folder.path(), &[]);
    let known = format!("learned: no message of 2 accounts; {messages} messages not later than");
    assert!(stdout(&again).starts_with(&known), "{again:?}");
    assert!(stderr(&again).contains("1 message dated more than a day from now"), "{again:?}");
}

#[test]
fn only_one_learns_at_a_time() {
    let folder = folder();
    learn(folder.path(), &[]);
    let lock = folder.path().join("spool/exirate/habits.lock");
    let lock = File::options().write(true).open(lock).unwrap();
    lock.lock().unwrap();
    let output = learn(folder.path(), &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("another `exirate habits learn` is running"), "{output:?}");
    // To compare needs no lock.
    assert_eq!(learn(folder.path(), &["--dry-run"]).status.code(), Some(1));
    lock.unlock().unwrap();
    assert!(stdout(&learn(folder.path(), &[])).starts_with("learned: no message"));
}

#[test]
fn who_changes_nothing_moves_no_cursor() {
    let folder = tempfile::tempdir().unwrap();
    let (spool, cursor) = (folder.path().join("spool"), folder.path().join("cursor"));
    std::fs::create_dir(&spool).unwrap();
    let client = "AB31166401: client=c[192.0.2.9], sasl_method=PLAIN, sasl_username=alice";
    let active = "AB31166401: from=<a@x.test>, size=900, nrcpt=1 (queue active)";
    let sent = "AB31166401: to=<b@x.test>, relay=mx[192.0.2.1]:25, delay=1, dsn=2.0.0, status=sent \
                (250 ok)";
    let lines = [
        (0, 2, "postfix/smtpd", client),
        (1, 2, "postfix/qmgr", active),
        (2, 2, "postfix/smtp", sent),
        (3, 2, "postfix/qmgr", "AB31166401: removed"),
    ];
    add_to_journal(folder.path(), 1000, &lines);
    let journal = format!("--journal={}", folder.path().display());
    let cursor = cursor.to_str().unwrap();
    let learn = |options: &[&str]| {
        let command = ["habits", "learn", &journal, "--cursor", cursor, "--json"];
        json(&run(&spool, &[&command[..], options].concat()))["messages"].clone()
    };
    assert_eq!(
        [learn(&["--dry-run"]), learn(&["--dry-run"]), learn(&[]), learn(&[])],
        [1, 1, 1, 0]
    );
}

/// Lines of a message of alice's, as Postfix logs them: of its arrival, and of its delivery.
fn postfix(id: &str, day: u32, minute: u32) -> [String; 2] {
    let at = |second: u32| format!("Nov {day} 10:{minute:02}:{second:02} mx1 postfix");
    let begin = format!(
        "{}/smtpd[7]: {id}: client=c[192.0.2.9], sasl_method=PLAIN, sasl_username=alice\n{}/qmgr[8]: \
         {id}: from=<a@x.test>, size=900, nrcpt=1 (queue active)\n",
        at(0),
        at(1)
    );
    let end = format!(
        "{}/smtp[9]: {id}: to=<b@x.test>, relay=mx[192.0.2.1]:25, delay=1, dsn=2.0.0, status=sent \
         (250 ok)\n{}/qmgr[8]: {id}: removed\n",
        at(2),
        at(3)
    );
    [begin, end]
}

#[test]
fn a_message_that_waits_for_its_delivery_is_learned_with_those_after_it() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("spool")).unwrap();
    let [first, second, third] = [1, 2, 3].map(|n| postfix(&format!("AB3116640{n}"), 20, n));
    let log = [first.concat(), second[0].clone(), third.concat()].concat();
    let learn = |log: &str| {
        std::fs::write(folder.path().join("mainlog"), log).unwrap();
        let learned = json(&learn(folder.path(), &["--json"]));
        ["messages", "known", "waiting"].map(|name| learned[name].as_u64().unwrap())
    };
    assert_eq!(learn(&log), [1, 0, 2]);
    assert_eq!(learn(&(log.clone() + &second[1])), [2, 1, 0]);
    // Nobody waits for ever.
    let later = postfix("AB31166404", 22, 1).concat();
    assert_eq!(learn(&(log + &later)), [1, 2, 0]);
}

#[test]
fn times_without_a_zone_are_right_after_summer_time_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let spool = folder.path().join("spool");
    std::fs::create_dir(&spool).unwrap();
    let line = |n: u32, at: &str| {
        format!(
            "2025-10-26 {at} 1vM1aC-{n:011}-1aBc <= a@x.test H=h [192.0.2.9] P=esmtpsa A=plain:u{n} \
             S=9 for b@x.test\n"
        )
    };
    // The clock goes back from 3:00 to 2:00.
    let times = ["02:10:00", "02:50:00", "02:01:00", "03:10:00", "12:00:00"];
    let log: String = (0..).zip(times).map(|(n, at)| line(n, at)).collect();
    std::fs::write(folder.path().join("mainlog"), log).unwrap();
    let mut command = exirate();
    command.env("TZ", "CET-1CEST,M3.5.0,M10.5.0/3").args(["habits", "learn"]);
    let learned = command.arg(folder.path().join("mainlog")).arg("--spool").arg(&spool).output();
    let learned = learned.unwrap();
    assert_eq!(stderr(&learned), "");
    let real = ["00:10:00", "00:50:00", "01:01:00", "02:10:00", "11:00:00"];
    for (n, real) in (0..).zip(real) {
        let one = json(&run(&spool, &["habits", &format!("u{n}"), "--json"]));
        let real: jiff::Timestamp = format!("2025-10-26T{real}Z").parse().unwrap();
        assert_eq!(one[0]["at"], real.as_second(), "{n}");
    }
}

/// Runs a command on the spool directory of `folder`, at this second.
fn at(clock: &FakeClock, second: i64, folder: &Path, line: &[&str]) -> Output {
    clock.freeze(&jiff::Timestamp::from_second(second).unwrap().strftime("%F %T").to_string());
    let mut command = exirate();
    command.env("TZ", ZONE.0).envs(clock.environment()).args(line);
    command.arg("--spool").arg(folder.join("spool")).output().unwrap()
}

#[test]
fn a_suspected_account_is_answered_for() {
    let folder = folder();
    let folder = folder.path();
    let clock = FakeClock::new();
    let log = folder.join("mainlog");
    let log = log.to_str().unwrap();
    let theft: Vec<Message> = stream(1).into_iter().filter(|one| one.network >= THIEVES).collect();
    // An hour after the first message of the thief; what comes later is dated ahead.
    let now = theft[0].at + 3600;
    let run = |line: &[&str]| at(&clock, now, folder, line);
    let learned = json(&run(&["habits", "learn", log, "--json"]));
    assert_eq!(learned["alarms"][0]["key"], "auth:alice@example.org");
    let listed = || {
        let all = json(&run(&["habits", "--json"]));
        all.as_array().unwrap()[0].clone()
    };
    let first = listed();
    assert_eq!(first["key"], "auth:alice@example.org");
    assert!(first["suspected_until"].as_i64().unwrap() > now, "{first}");
    assert_eq!((&first["alarms"], &first["answer"]), (&1.into(), &Value::Null));

    let nobody = run(&["habits", "accept", "bob"]);
    assert_eq!(nobody.status.code(), Some(1));
    let message = stderr(&nobody);
    assert!(message.contains("auth:bob is not suspected: it never had an alarm"), "{message}");
    let nobody = run(&["habits", "stolen", "bob", "--logs", log]);
    assert_eq!(nobody.status.code(), Some(1));
    assert!(stderr(&nobody).contains("to deny it all the same: `exirate deny bob"), "{nobody:?}");
    assert_eq!(json(&run(&["overrides", "--json"])), Value::Array(Vec::new()));

    // What the score consists of, and what the policies make of it.
    let explained = || json(&run(&["explain", "alice@example.org", "--habits", "--json"]));
    let one = explained();
    assert_eq!((&one["key"], &one["policy"]), (&"auth:alice@example.org".into(), &Value::Null));
    let added = one["added"].as_object().unwrap();
    let sum: f64 = added.values().map(|nats| nats.as_f64().unwrap()).sum();
    assert!(added["recipients"].as_f64().unwrap() > 5.0 && sum > 15.0, "{one}");
    assert!(one["messages_to_alarm"].as_u64().unwrap() > 1);
    let explain =
        |options: &[&str]| stdout(&run(&[&["explain", "alice@example.org"], options].concat()));
    assert!(!explain(&[]).contains("suspected"));
    let file = folder.join("policy.toml");
    let policy = "version = 1\n[policy.outbound.default]\nrecipients = [\"100/1h\"]\nhabits = \"hold\"\n\
                  sensitivity = \"high\"\n";
    std::fs::write(&file, policy).unwrap();
    let applied = run(&["policy", "apply", file.to_str().unwrap()]);
    assert_eq!(applied.status.code(), Some(0), "{applied:?}");
    let policy = explained()["policy"].clone();
    let said = ["name", "table", "habits", "sensitivity"].map(|name| policy[name].clone());
    assert_eq!(said, ["outbound", "default", "hold", "high"]);
    for text in [explain(&[]), explain(&["--now"])] {
        assert!(
            text.starts_with(
                "alice@example.org cannot send now: suspected for its habits, so its mail is held; "
            ),
            "{text}"
        );
    }
    let status = json(&run(&["status", "--json"]));
    let suspected = (&status["suspected"], &status["suspected_first"][0]);
    assert_eq!(suspected, (&1.into(), &"auth:alice@example.org".into()));
    let doctor = stdout(&run(&["doctor"]));
    assert!(doctor.contains("habits are known of 2 accounts"), "{doctor}");
    let text = explain(&["--habits"]);
    assert!(text.starts_with("auth:alice@example.org is suspected until "), "{text}");
    // That her rates start from nothing does not help her.
    let unblocked = run(&["unblock", "alice@example.org"]);
    assert_eq!(unblocked.status.code(), Some(1));
    let left = stderr(&unblocked);
    assert!(left.contains("still suspected") && left.contains("`exirate habits accept"), "{left}");

    // Logs that cannot be read keep nobody from denying.
    let lost = run(&["habits", "stolen", "alice@example.org", "--logs", "/nonexistent", "--json"]);
    assert_eq!(lost.status.code(), Some(2), "{lost:?}");
    assert!(stderr(&lost).contains("what was sent is not known: "), "{lost:?}");
    let denied = json(&run(&["overrides", "--json"]));
    assert_eq!(denied[0]["key"], "alice@example.org");
    assert_eq!(
        (&denied[0]["override"], &denied[0]["reason"]),
        (&"deny".into(), &"password stolen".into())
    );
    assert_eq!(listed()["answer"], "stolen");

    let stolen = run(&["habits", "stolen", "alice@example.org", "--logs", log, "--json"]);
    assert_eq!(stolen.status.code(), Some(0), "{stolen:?}");
    let stolen = json(&stolen)[0].clone();
    assert_eq!(stolen["answered"], false);
    let since = stolen["since"].as_i64().unwrap();
    assert_eq!(since, first["since"].as_i64().unwrap());
    let sent: Vec<Message> = stream(1).into_iter().filter(|one| one.at >= since).collect();
    assert_eq!(stolen["messages"], sent.len());
    let people: BTreeSet<String> =
        sent.iter().flat_map(|one| one.recipients.iter().map(|n| format!("r{n}@y.test"))).collect();
    let addresses = run(&["habits", "stolen", "alice@example.org", "--logs", log, "--addresses"]);
    let addresses: BTreeSet<String> = stdout(&addresses).lines().map(str::to_owned).collect();
    assert_eq!(addresses, people);
    let listed: BTreeSet<String> =
        stolen["recipients"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(listed, people);

    let released = run(&["unblock", "alice@example.org"]);
    assert_eq!(released.status.code(), Some(0), "{released:?}");
    assert_eq!(json(&run(&["overrides", "--json"])), Value::Array(Vec::new()));
    let audit = std::fs::read_to_string(folder.join("spool/exirate/audit.log")).unwrap();
    let answers: Vec<&str> =
        audit.lines().filter(|line| line.contains(" habits stolen ")).collect();
    assert_eq!(answers.len(), 1, "{audit}");
    assert!(answers[0].ends_with("key=auth:alice@example.org"), "{audit}");
}

#[test]
fn who_accepts_learns_how_long_that_holds() {
    let folder = folder();
    let folder = folder.path();
    let (spool, policy) = (folder.join("spool"), folder.join("policy.toml"));
    let file = policy.to_str().unwrap();
    let text = "version = 1\n[policy.out]\ndefault.habits = \"hold\"\n";
    std::fs::write(&policy, text).unwrap();
    assert_eq!(run(&spool, &["policy", "apply", file]).status.code(), Some(0));
    let (mut store, mut name) = (Spool::open(&spool, Options::default()).unwrap(), Vec::new());
    let mut send = |second: i64, to: &str| {
        let message = SentMessage { at: second, client: None, recipients: [to.as_bytes()] };
        let key = habits_key(b"auth:school@example.org", &mut name);
        store.learn_habits(key, message, Sensitivity::Normal).unwrap().alarm.is_some()
    };
    let now = jiff::Timestamp::now().as_second();
    (1..60).rev().for_each(|day| _ = send(now - day * 86_400, "friend@example.net"));
    assert!((0..100).filter(|n| send(now - 500 + n * 5, &format!("r{n}@example.net"))).count() > 0);
    let accepted = run(&spool, &["habits", "accept", "school@example.org", "--json"]);
    let said = json(&accepted)[0]["said"].as_str().unwrap().to_owned();
    let words = said.split_once("; its ").unwrap().1;
    let numbers =
        words.split(' ').filter_map(|word| word.trim_end_matches(',').parse::<u32>().ok());
    let numbers: Vec<u32> = numbers.take(2).collect();
    // Some are taken for others, by the random key.
    assert!(numbers[0] > 90 && numbers[0] + numbers[1] == 130, "{said}");
    assert!(said.contains("`exirate allow school@example.org --until 2h`"), "{said}");
    // The line that exempts the account can be pasted.
    let line = said.split_once("each other policy with habits: ").unwrap().1;
    let text = text.replace("[policy.out]\n", &format!("[policy.out]\n{line}\n"));
    std::fs::write(&policy, text).unwrap();
    let shown = exirate().args(["policy", "lint", file]).output().unwrap();
    assert!(stdout(&shown).contains("1 policy, 1 user; no error"), "{shown:?}");
}

#[test]
fn simulations_name_those_who_are_unlike_the_habits_of_policies() {
    let folder = folder();
    let log = folder.path().join("mainlog");
    let all = log_of(1);
    let in_order: Vec<&str> = all.lines().filter(|line| line.contains(" +0000 ")).collect();
    std::fs::write(&log, in_order.join("\n") + "\n").unwrap();
    let named = json(&learn(folder.path(), &["--dry-run", "--json"]));
    let first = &named["alarms"][0];
    let at = first["at"].as_i64().unwrap();
    for (habits, are_named) in [
        ("habits = \"observe\"", true),
        ("habits = \"hold\"\nuser.\"alice@example.org\".habits = \"off\"", false),
        ("default.messages = \"9999/1h\"", false),
    ] {
        let policy = folder.path().join("p.toml");
        std::fs::write(&policy, format!("version = 1\n[policy.out]\n{habits}\n")).unwrap();
        let (policy, log) = (policy.to_str().unwrap(), log.to_str().unwrap());
        let run = |options: &[&str]| {
            let mut command = exirate();
            command.args(options).args(["--policy", policy, log]).output().unwrap()
        };
        let simulated = json(&run(&["simulate", "--json"]));
        let reported = json(&run(&["report", "--json", "--output", "-"]));
        let text = stdout(&run(&["simulate"]));
        if !are_named {
            assert_eq!(simulated["named"], Value::Array(Vec::new()));
            assert_eq!(reported["policy"]["named"], Value::Array(Vec::new()));
            assert_eq!(
                text.contains("Named by habits: no account"),
                habits.contains("hold"),
                "{text}"
            );
            continue;
        }
        let one = &simulated["named"][0];
        assert_eq!((&one["key"], &one["evidence"]), (&first["key"], &first["evidence"]));
        let time: jiff::Timestamp = one["at"].as_str().unwrap().parse().unwrap();
        assert_eq!(time.as_second(), at);
        assert!(one["strangers"].as_u64().is_some_and(|count| (5..20).contains(&count)), "{one}");
        let one = &reported["policy"]["named"][0];
        assert_eq!((&one["key"], &one["at"]), (&first["key"], &at.into()));
        let evidence =
            format!("auth:alice@example.org may be stolen: {}", one["evidence"].as_str().unwrap());
        assert!(text.contains("\nNamed by habits: 1 account of the senders of "), "{text}");
        assert!(text.contains(&evidence), "{text}");
    }
}
