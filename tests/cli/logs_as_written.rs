//! Logs as others write them: other loggers, filters, several servers, the journal. What single
//! lines become is tested in `src/logs/messages/written_tests.rs`.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use kit::{Process, until};
use rustix::process::Signal;
use serde_json::Value;

use crate::{exirate, json, stderr, stdout};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/logs_as_written");

/// Key, peak and events of each, as `exirate measure` finds them.
fn measured(folder: &Path, arguments: &[&str]) -> Vec<(String, f64, u64)> {
    let mut command = exirate();
    let output = command.arg("measure").args(arguments).arg("--json").current_dir(folder).output();
    let found: Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
    let rows = found["rates"].as_array().unwrap().iter();
    rows.map(|row| {
        let key = row["key"].as_str().unwrap().to_owned();
        (key, row["peak"].as_f64().unwrap(), row["events"].as_u64().unwrap())
    })
    .collect()
}

#[test]
fn a_message_counts_once_for_its_login_whatever_it_passes() {
    let folder = Path::new(FOLDER);
    for (log, bytes) in [
        ("requeue", 3210.0),
        ("postsuper-requeue", 3210.0),
        ("content-filter", 3210.0),
        ("before-queue-filter", 3600.0),
        ("message-repeated", 700.0),
    ] {
        let file = format!("{log}.log");
        for (by, count, peak) in [
            ("auth", "messages", 1.0),
            ("auth", "recipients", 1.0),
            ("auth", "bytes", bytes),
            ("host", "messages", 1.0),
            ("sender", "messages", 1.0),
        ] {
            let key = if by == "host" { "192.0.2.9" } else { "alice@example.org" };
            let found = measured(folder, &["1h", &file, "--by", by, "--count", count]);
            assert_eq!(found, [(key.to_owned(), peak, 1)], "{log} {by} {count}");
        }
    }
}

#[test]
fn many_messages_of_one_second_count_as_many() {
    let folder = tempfile::tempdir().unwrap();
    let line = |n: u32| {
        format!(
            "2026-11-20 10:00:00 1tAB{n:02}-000000001Ab-0123 <= alice@example.org H=x [192.0.2.1] \
             P=esmtpa A=plain:alice S=99 for b{n}@example.net\n"
        )
    };
    std::fs::write(folder.path().join("mainlog"), (0..100).map(line).collect::<String>()).unwrap();
    for period in ["1s", "1h", "30d", "26w", "52w"] {
        for count in ["messages", "recipients", "different"] {
            let found = measured(folder.path(), &[period, "mainlog", "--count", count]);
            assert_eq!((found.len(), found[0].2), (1, 100));
            assert!((99.8..100.1).contains(&found[0].1), "{period} {count}: {found:?}");
        }
        let mut command = exirate();
        command.args(["measure", period, "mainlog", "--suggest"]).current_dir(folder.path());
        let text = stdout(&command.output().unwrap());
        assert!(text.contains(&format!("suggested: 150 / {period} / per_mail")), "{text}");
    }
}

#[test]
fn the_night_when_summer_time_ends_is_noted_and_does_not_count_double() {
    let folder = tempfile::tempdir().unwrap();
    // A message a minute, from 1 o'clock on; at 3 it is 2 again.
    let line = |minute: u32| {
        let clock = if minute < 120 { minute + 60 } else { minute };
        format!(
            "2026-10-25 {:02}:{:02}:00 1vM1aC-{minute:011}-1aBc <= alice@x.test H=h [192.0.2.7] \
             P=esmtpa A=plain:alice S=1000\n",
            clock / 60,
            clock % 60
        )
    };
    let log: String = (0..360).map(line).collect();
    std::fs::write(folder.path().join("mainlog"), &log).unwrap();
    let found = measured(folder.path(), &["1h", "mainlog"]);
    // A message a minute never comes to more than 60 an hour.
    assert!((59.0..60.5).contains(&found[0].1), "{found:?}");
    let mut command = exirate();
    let output = command.args(["measure", "1h", "mainlog"]).current_dir(folder.path()).output();
    let said = stderr(&output.unwrap());
    assert!(said.contains("mainlog:121: the clock goes back by an hour here"), "{said}");
    // With zones, nothing is to be guessed.
    let zoned: String = (0..360)
        .map(|minute| {
            let zone = if minute < 120 { "+0200" } else { "+0100" };
            line(minute).replacen(":00 1v", &format!(":00 {zone} 1v"), 1)
        })
        .collect();
    std::fs::write(folder.path().join("mainlog"), &zoned).unwrap();
    let output = exirate().args(["measure", "1h", "mainlog"]).current_dir(folder.path()).output();
    assert_eq!(stderr(&output.unwrap()), "");
    assert!((measured(folder.path(), &["1h", "mainlog"])[0].1 - found[0].1).abs() < 1e-6);
}

#[test]
fn keys_that_stand_out_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = String::new();
    for user in 0..120 {
        let count = if user == 7 { 900 } else { 10 };
        for n in 0..count {
            log += &format!(
                "2026-11-20 10:00:00 1tA{user:03}-{n:011}-0123 <= u{user}@x.test H=x [192.0.2.1] \
                 P=esmtpa A=plain:u{user} S=99 for b@example.net\n"
            );
        }
    }
    std::fs::write(folder.path().join("mainlog"), log).unwrap();
    let suggest = |more: &[&str]| {
        let mut command = exirate();
        command.args(["measure", "1h", "mainlog", "--by", "auth", "--suggest"]).args(more);
        command.current_dir(folder.path()).output().unwrap()
    };
    let text = stdout(&suggest(&[]));
    assert!(text.contains("\n  exempt u7: then 15 / 1h hits nobody\n"), "{text}");
    let found = json(&suggest(&["--json"]));
    assert_eq!(found["periods"][0]["hits"][0]["key"], "u7");
}

#[test]
fn lines_that_are_not_used_are_shown_by_reason() {
    let unused = |command: &str, arguments: &[&str]| {
        let mut exirate = exirate();
        exirate.arg(command).args(arguments).arg("--unused");
        let output = exirate.arg("postsuper-requeue.log").current_dir(FOLDER).output().unwrap();
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
        output
    };
    let policy = tempfile::tempdir().unwrap();
    let file = policy.path().join("policy.toml");
    std::fs::write(&file, "version = 1\n[policy.a]\ndefault.messages = \"9/1h\"\n").unwrap();
    let simulate = ["--policy", file.to_str().unwrap()];
    for (command, arguments) in [("measure", &["1h"][..]), ("simulate", &simulate)] {
        let text = stdout(&unused(command, arguments));
        for part in [
            "10 lines used\n",
            "\n1 line without anything about who sends how much\n  postsuper-requeue.log:8: Nov 20 10:30:00 mx1 postfix/postsuper",
            "\n2 lines of messages that are counted already: tried again, ",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let found = json(&unused(command, &[arguments, &["--json"]].concat()));
        let all: Vec<&Value> = found.as_array().unwrap().iter().collect();
        assert_eq!((all.len(), &all[1]["reason"]), (2, &"of_counted_messages".into()));
        assert_eq!(
            (&all[1]["count"], &all[0]["examples"][0][0]),
            (&2.into(), &"postsuper-requeue.log:8".into())
        );
    }
}

/// When the entries of journals begin, in seconds.
const START: u64 = 1_795_175_437;

/// Adds entries to a journal, written by this user: second, facility, program and text of each.
pub(crate) fn add_to_journal(folder: &Path, user: u32, entries: &[(u64, u8, &str, &str)]) {
    let boot = "3f1f5d6f2c4f4ad5a0f0c0f0a0b0c0d0";
    let entry = |&(second, facility, program, text): &(u64, u8, &str, &str)| {
        format!(
            "__REALTIME_TIMESTAMP={}\n__MONOTONIC_TIMESTAMP={}\n_BOOT_ID={boot}\n_HOSTNAME=mx1\n\
             _UID={user}\nSYSLOG_FACILITY={facility}\nSYSLOG_IDENTIFIER={program}\nSYSLOG_PID=100\n\
             MESSAGE={text}\n\n",
            (START + second) * 1_000_000,
            second * 1_000_000
        )
    };
    let export = folder.join("export");
    std::fs::write(&export, entries.iter().map(entry).collect::<String>()).unwrap();
    let mut remote = std::process::Command::new("/lib/systemd/systemd-journal-remote");
    let output = remote.arg("--output").arg(folder.join("mail.journal")).arg(export).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn the_journal_is_read_on_from_its_cursor() {
    let folder = tempfile::tempdir().unwrap();
    let client = "client=c.example.net[192.0.2.9], sasl_method=PLAIN, sasl_username=alice";
    let active = |id: &str| format!("{id}: from=<a@x.test>, size=900, nrcpt=1 (queue active)");
    let add = |second: u64, id: &str| {
        let begin = format!("{id}: {client}");
        add_to_journal(
            folder.path(),
            1000,
            &[
                (second, 2, "postfix/smtpd", &begin),
                (second, 9, "cron", &active("FFFFFFFFFF")),
                (second + 1, 2, "postfix/qmgr", &active(id)),
            ],
        );
    };
    add(0, "AB31166401");
    add(5, "AB31166402");
    let journal = format!("--journal={}", folder.path().display());
    let cursor = folder.path().join("cursor");
    let events = |arguments: &[&str]| {
        let all = [&["1h", &journal, "--by", "auth"], arguments].concat();
        measured(folder.path(), &all).first().map(|(key, _, events)| (key.clone(), *events))
    };
    let alice = |events| Some(("alice".to_owned(), events));
    let with_cursor = ["--cursor", cursor.to_str().unwrap()];
    assert_eq!(events(&[]), alice(2));
    assert_eq!(events(&with_cursor), alice(2));
    assert_eq!(events(&with_cursor), None);
    add(10, "AB31166403");
    assert_eq!(events(&with_cursor), alice(1));
    assert_eq!(events(&[]), alice(3));
    // What journalctl says of an error is shown.
    let mut command = exirate();
    let output = command.args(["measure", "1h", "--journal=/nonexistent"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("cannot read journal: journalctl: "), "{}", stderr(&output));
}

/// A message of this login, of which a recipient does not exist.
fn failure(second: u64, id: &str, login: &str) -> [(u64, u8, &'static str, String); 3] {
    let client = format!("client=c[192.0.2.9], sasl_method=PLAIN, sasl_username={login}");
    let failed = "to=<gone@x.test>, relay=mx[192.0.2.1]:25, delay=1, dsn=5.1.1, status=bounced (host \
                  mx[192.0.2.1] said: 550 5.1.1 no (in reply to RCPT TO command))";
    [
        (second, 2, "postfix/smtpd", format!("{id}: {client}")),
        (
            second,
            2,
            "postfix/qmgr",
            format!("{id}: from=<a@x.test>, size=9, nrcpt=1 (queue active)"),
        ),
        (second, 2, "postfix/smtp", format!("{id}: {failed}")),
    ]
}

#[test]
fn the_follower_counts_of_the_journal_what_the_mail_server_has_written() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["journal", "spool", "state", "other"] {
        std::fs::create_dir(at(name)).unwrap();
    }
    let policy = "version = 1\n[policy.p]\ndefault.unknown_recipients = \"9/1w\"\n\
                  [policy.receivers]\nkey = \"destination\"\nverdicts = { \"100%\" = \"log\" }\n\
                  default.throttled_recipients = \"9/1w\"\n";
    std::fs::write(at("policy.toml"), policy).unwrap();
    let mut apply = exirate();
    apply.args(["policy", "apply", "--spool"]).arg(at("spool")).arg(at("policy.toml"));
    let applied = apply.output().unwrap();
    assert!(applied.status.success(), "{}", stderr(&applied));
    let config = |spool: &str, state: &str| {
        let (spool, journal, state) = (at(spool), at("journal"), at(state));
        let log = format!("journal:{}", journal.display());
        let text =
            format!("[mail]\nspool = {spool:?}\n[follow]\nlog = {log:?}\nstate = {state:?}\n");
        std::fs::write(at("exirate.toml"), text).unwrap();
    };
    let checked = |file: &str| {
        exirate().args(["serve", "follow", "--check", "--config"]).arg(at(file)).output().unwrap()
    };
    config("missing", "state");
    let found = checked("exirate.toml");
    assert_eq!(found.status.code(), Some(1), "{}", stderr(&found));
    let error = format!("error: mail.spool: the directory {} does not", at("missing").display());
    assert!(stdout(&found).contains(&error), "{}", stdout(&found));
    let missing = checked("missing.toml");
    assert_eq!(missing.status.code(), Some(2));
    assert!(stderr(&missing).contains("missing.toml: No such file"), "{}", stderr(&missing));
    // No policies are in use here: it waits, until its configuration names another database.
    config("other", "state");
    let said = std::fs::File::create(at("said")).unwrap();
    let mut command = exirate();
    command.args(["serve", "follow", "--config"]).arg(at("exirate.toml")).stderr(said);
    let follower = Process(command.spawn().unwrap());
    let says = |what: &str| std::fs::read_to_string(at("said")).unwrap().contains(what);
    until("it follows", || says("following the journal in "));
    let second = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 1 - START;
    let add = |user: u32, id: &str, login: &str| {
        let entries = failure(second(), id, login);
        let entries = entries
            .each_ref()
            .map(|(at, facility, name, text)| (*at, *facility, *name, text.as_str()));
        add_to_journal(&at("journal"), user, &entries);
    };
    let counted = |login: &str| {
        let output = exirate().args(["list", "--json", "--spool"]).arg(at("spool")).output();
        // There is no database before the first is counted.
        let keys = serde_json::from_slice::<Value>(&output.unwrap().stdout).unwrap_or_default();
        let of = |key: &Value| key["key"].as_str().unwrap().contains(login);
        keys.as_array().is_some_and(|keys| keys.iter().any(of))
    };
    // A line that looks like Postfix's, of a user who is not.
    add(65_534, "AB31166401", "ceo");
    add(0, "AB31166402", "alice");
    until("it waits", || says("no policy image"));
    config("spool", "state");
    let found = checked("exirate.toml");
    assert!(found.status.success(), "{}", stdout(&found));
    follower.signal(Signal::HUP);
    until("it is counted", || counted("alice"));
    assert!(!counted("ceo"));
    // A configuration that cannot be used changes nothing, and one that can is used at once.
    config("spool", "nowhere");
    follower.signal(Signal::HUP);
    until("it goes on as before", || says("the previous configuration stays in use"));
    add(0, "AB31166403", "bob");
    until("it is counted", || counted("bob"));
    config("spool", "state");
    follower.signal(Signal::HUP);
    until("it is read again", || says("was read again"));
    add(0, "AB31166404", "carol");
    until("it is counted", || counted("carol"));
    assert!(!counted("ceo"));
    // A program's mail counts for the key that Postfix's front end knows it by; root's for none.
    for (uid, id) in [(0, "AB31166405"), (33, "AB31166406")] {
        let [_, queued, failed] = failure(second(), id, "");
        let pickup = format!("{id}: uid={uid} from=<www-data>");
        let entries = [(queued.0, 2, "postfix/pickup", pickup), queued, failed];
        let entries = entries
            .each_ref()
            .map(|(at, facility, name, text)| (*at, *facility, *name, text.as_str()));
        add_to_journal(&at("journal"), 0, &entries);
    }
    until("it is counted", || counted("client:127.0.0.1"));
    let output = exirate().args(["list", "--json", "--spool"]).arg(at("spool")).output();
    let keys: Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
    let of_program = keys.as_array().unwrap().iter().find(|key| key["key"] == "client:127.0.0.1");
    assert_eq!(of_program.unwrap()["rate"].as_f64().unwrap().round(), 1.0, "{keys}");
    assert_eq!(keys.as_array().unwrap().len(), 4, "{keys}");
    // Whose server is sent too much: once a recipient, however often it is tried.
    let [client, queued, _] = failure(second(), "AB31166407", "dora");
    let slower = "AB31166407: to=<b@gmail.com>, relay=mx[192.0.2.1]:25, delay=1, dsn=4.7.28, \
                  status=deferred (host mx[192.0.2.1] said: 421-4.7.28 an unusual rate 421 4.7.28 of \
                  mail (in reply to end of DATA command))";
    let tried = |seconds| (second() + seconds, 2, "postfix/smtp", slower);
    let [client, queued] = [&client, &queued].map(|one| (one.0, one.1, one.2, one.3.as_str()));
    add_to_journal(&at("journal"), 0, &[client, queued, tried(0), tried(1)]);
    add(0, "AB31166408", "erin");
    until("they are counted", || counted("erin"));
    let output = exirate().args(["list", "--json", "--spool"]).arg(at("spool")).output();
    let keys: Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
    let of_receiver =
        keys.as_array().unwrap().iter().find(|key| key["key"] == "destination:google");
    assert_eq!(of_receiver.unwrap()["rate"].as_f64().unwrap().round(), 1.0, "{keys}");
    assert_eq!(keys.as_array().unwrap().len(), 6, "{keys}");
}

/// The keys that a limit refuses, of a log beside this file.
fn simulated(policy: &str, log: &str, options: &[&str]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("policy.toml");
    std::fs::write(&file, format!("version = 1\ntimezone = \"UTC\"\n{policy}")).unwrap();
    let mut command = exirate();
    command.args(["simulate", "--json", "--policy"]).arg(&file).args(options).arg(log);
    let output = command.current_dir(FOLDER).output().unwrap();
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = found["limits"].as_array().unwrap().iter();
    rows.map(|row| row["key"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn what_comes_back_from_a_filter_may_end_before_the_line_that_says_so() {
    let found = measured(Path::new(FOLDER), &["1h", "filter-late-link.log", "--by", "all"]);
    assert_eq!(found, [(String::new(), 1.0, 1)]);
    let found = measured(Path::new(FOLDER), &["1h", "filter-late-link.log"]);
    assert_eq!(found, [("alice@example.org".to_owned(), 1.0, 1)]);
}

#[test]
fn programs_mail_counts_for_the_key_that_the_front_end_decides_on() {
    let log = "root-and-local-account.log";
    let of = |unit: &str, options: &[&str]| {
        let policy = format!("[policy.web]\nwhen = \"local\"\ndefault.{unit} = \"1/1w\"\n");
        simulated(&policy, log, options)
    };
    assert_eq!(of("messages", &["--stages", "not-smtp"]), ["client:127.0.0.1"]);
    // Root's is nobody's.
    let found = measured(Path::new(FOLDER), &["1h", log, "--by", "host"]);
    assert_eq!(found, [("127.0.0.1".to_owned(), 1.0, 1)]);
    let found = measured(Path::new(FOLDER), &["1h", log, "--by", "sender"]);
    assert_eq!(found, [("www-data@mx.example.org".to_owned(), 1.0, 1)]);
    assert_eq!(measured(Path::new(FOLDER), &["1h", log, "--by", "user"]), []);
    // No front end knows an account of it that could have habits.
    let spool = tempfile::tempdir().unwrap();
    let mut learn = exirate();
    learn.args(["habits", "learn", "--json", log, "--spool"]).arg(spool.path());
    let learned = json(&learn.current_dir(FOLDER).output().unwrap());
    assert_eq!((&learned["messages"], &learned["accounts"]), (&0.into(), &0.into()), "{learned}");
}

#[test]
fn a_leap_day_gives_its_year_to_a_log_without_years() {
    let found = measured(Path::new(FOLDER), &["30d", "leap-day.log", "--by", "all"]);
    assert!((2.8..3.0).contains(&found[0].1) && found[0].2 == 3, "{found:?}");
    // The same, in files of a day each, which were copied together.
    let folder = tempfile::tempdir().unwrap();
    let whole = std::fs::read_to_string(Path::new(FOLDER).join("leap-day.log")).unwrap();
    for day in ["Feb 28", "Feb 29", "Mar  1"] {
        let of_day = whole.lines().filter(|line| line.starts_with(day));
        let text: String = of_day.map(|line| format!("{line}\n")).collect();
        // The file of 29 February has lines of the next day as well.
        let more =
            if day == "Feb 29" { "Mar  1 00:00:01 mx postfix/qmgr[50]: x: removed\n" } else { "" };
        std::fs::write(folder.path().join(format!("mail.log.{day}")), text + more).unwrap();
    }
    let parts = measured(folder.path(), &["30d", "mail.log*", "--by", "all"]);
    assert_eq!(parts, found);
}

#[test]
fn failures_without_a_status_are_told_apart_by_what_made_them() {
    let policy = "[policy.failed]\nwhen = \"always\"\ndefault.failed_recipients = \"1/1w\"\n\
                  [policy.unknown]\nwhen = \"always\"\ndefault.unknown_recipients = \"1/1w\"\n";
    let of = |only| {
        let found = simulated(policy, "failures-without-status.log", &["--only", only]);
        let number = |key: &String| {
            let digits: String = key.chars().filter(char::is_ascii_digit).collect();
            digits.parse::<u32>().unwrap()
        };
        let mut numbers: Vec<u32> = found.iter().map(number).collect();
        numbers.sort_unstable();
        numbers
    };
    let unknown = of("unknown");
    assert_eq!(unknown, [0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 13, 14, 15]);
    let others = of("failed").into_iter().filter(|one| !unknown.contains(one));
    // A quota, a mail loop, a program that is missing, a panel's limits: neither.
    assert_eq!(others.collect::<Vec<_>>(), [12, 17, 25]);
}

#[test]
fn a_failed_login_may_have_a_tab_before_its_words() {
    let mut command = exirate();
    command.args(["measure", "1h", "--by", "all", "--json", "authenticator-tab.log"]);
    let output = command.current_dir(FOLDER).output().unwrap();
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&found["lines"]["used"], &found["lines"]["read"]),
        (&2.into(), &2.into()),
        "{found}"
    );
}
