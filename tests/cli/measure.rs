//! `exirate measure`.

use std::process::{Command, Output};

use crate::prepared::Prepared;
use crate::{exirate, stderr, stdout};

fn measure(arguments: &[&str], log: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mainlog");
    std::fs::write(&path, log).unwrap();
    exirate().arg("measure").args(arguments).arg(&path).output().unwrap()
}

fn rows(output: &Output) -> Vec<(String, f64, u64)> {
    assert_eq!(stderr(output), "");
    let rows: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let row = |row: &serde_json::Value| {
        let key = row["key"].as_str().unwrap().to_owned();
        (key, row["peak"].as_f64().unwrap(), row["events"].as_u64().unwrap())
    };
    rows["rates"].as_array().unwrap().iter().map(row).collect()
}

/// A log in which alice sends `count` messages, a minute apart, and bob one.
fn log(count: u32) -> String {
    let mut lines = String::new();
    for n in 0..count {
        lines += &format!(
            "2026-11-20 10:{:02}:00 1vM1aC-000000001Ac-1aBc <= alice@x.test H=h [192.0.2.7] \
             A=plain:alice S=1000 for r@y.test q@y.test\n",
            n % 60
        );
    }
    lines + "2026-11-20 10:00:30 1vM1aD-000000001Ac-1aBc <= bob@x.test U=bob S=7 for r@y.test\n\n"
}

#[test]
fn the_peak_is_that_of_the_checks_formula() {
    let found = rows(&measure(&["1h", "--json"], &log(30)));
    assert_eq!(found[0].0, "alice@x.test");
    assert_eq!((found[1].0.as_str(), found[1].1, found[1].2), ("bob@x.test", 1.0, 1));
    // What the formula gives, step by step.
    let mut rate = 1.0_f64;
    for _ in 1..30 {
        let x = 60.0 / 3600.0;
        let a = f64::exp(-x);
        rate = (1.0 - a) / x + a * rate;
    }
    assert!((found[0].1 - rate).abs() < 1e-9, "{} and not {rate}", found[0].1);
    assert_eq!(found[0].2, 30);

    // Lines in any order are the same.
    let mut shuffled: Vec<String> = log(30).lines().map(str::to_owned).collect();
    shuffled.reverse();
    assert_eq!(rows(&measure(&["1h", "--json"], &shuffled.join("\n"))), found);
}

#[test]
fn what_counts_can_be_chosen() {
    let names = |arguments: &[&str]| {
        let output = measure(arguments, &log(3));
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stdout(&output)
    };
    assert!(names(&["1h", "--by", "host"]).ends_with("192.0.2.7\n"));
    assert!(names(&["1h", "--by", "user"]).ends_with(" bob\n"));
    let found = rows(&measure(&["1h", "--by", "all", "--count", "bytes", "--json"], &log(1)));
    // The second event is small, and the first has decayed by then.
    assert_eq!(found[0], (String::new(), 1000.0, 2));
    let found = rows(&measure(&["1h", "--count", "recipients", "--json"], &log(1)));
    assert_eq!(found[0], ("alice@x.test".to_owned(), 2.0, 1));
    let found = rows(&measure(&["1h", "--match", r"<= (\S+).* S=(\d+)", "--json"], &log(1)));
    assert_eq!(found[0], ("alice@x.test".to_owned(), 1000.0, 1));
    let human = names(&["1h", "--limit", "2", "--top", "1"]);
    let row: Vec<&str> = human.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row, ["2.9", "3", "1", "2026-11-20", "10:02:00", "alice@x.test"]);
}

/// A month in which most users send a few messages, and one thousands in an hour.
fn month() -> String {
    let mut lines = String::new();
    let mut line = |at: String, user: &str| {
        lines += &format!(
            "{at} 1vM1aC-000000001Ac-1aBc <= a@x.test H=h [192.0.2.7] A=plain:{user} S=1000 for r@y.test\n"
        );
    };
    for day in 1..=28 {
        for user in 0..40 {
            line(format!("2026-09-{day:02} 08:{:02}:00", user % 60), &format!("user{user}"));
        }
    }
    for n in 0..2000 {
        line(format!("2026-09-14 03:{:02}:{:02}", n / 60, n % 60), "stolen");
    }
    lines
}

/// The same, in which each message is to somebody else.
fn strangers(log: &str) -> String {
    let each = log.lines().zip(0..);
    each.map(|(line, n)| line.replace("for r@", &format!("for r{n}@")) + "\n").collect()
}

#[test]
fn a_limit_is_suggested_that_hits_only_who_stands_out() {
    let arguments = ["1h,1d", "--by", "auth", "--suggest"];
    let output = measure(&arguments, &month());
    assert_eq!((output.status.code(), &*stderr(&output)), (Some(0), ""));
    let text = stdout(&output);
    let head = "period 1h: 41 keys, 3120 events\npeaks: 50 % at most 1.0, 90 % at most 1.0, ";
    assert!(text.starts_with(head), "{text}");
    assert!(text.contains("\nsuggested: 1.5 / 1h / per_mail\n  1 key of 41 stands out"), "{text}");
    assert!(text.contains("\nperiod 1d: 41 keys"), "{text}");
    let json = measure(&[&arguments[..], &["--json"]].concat(), &month());
    let found: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(
        (&found["periods"][0]["period"], &found["periods"][1]["period"]),
        (&3600.0.into(), &86400.0.into())
    );
    // What the suggested limit would have hit is what --limit says.
    for (number, period) in ["1h", "1d"].into_iter().enumerate() {
        let limit = &found["periods"][number]["suggested"];
        let limits = found["periods"][number]["limits"].as_array().unwrap();
        let hit = limits.iter().find(|one| one["limit"] == *limit).unwrap();
        let limit = limit.to_string();
        let rows = measure(&[period, "--by", "auth", "--limit", &limit, "--json"], &month());
        let rows: serde_json::Value = serde_json::from_slice(&rows.stdout).unwrap();
        let over =
            rows["rates"].as_array().unwrap().iter().map(|row| row["over"].as_u64().unwrap());
        let over: Vec<u64> = over.filter(|over| *over > 0).collect();
        assert_eq!((hit["keys"].as_u64(), hit["events"].as_u64()), (Some(1), Some(over[0])));
        assert_eq!(over.len(), 1, "{period}");
    }
    // Who is known to be stolen is not to be exempt.
    let machine = Prepared::new();
    std::fs::write(machine.spool().with_file_name("work/stolen.log"), strangers(&month())).unwrap();
    let suggest = "exirate measure 1h --by auth --suggest stolen.log";
    let exempt = "  exempt stolen: then 1.5 / 1h hits nobody\n";
    assert!(machine.show(suggest).contains(exempt), "{}", machine.show(suggest));
    let answered =
        machine.show("exirate habits learn stolen.log; exirate habits stolen stolen --yes");
    let text = machine.show(suggest);
    assert!(
        text.contains("\n  do not exempt stolen: may be stolen, see `exirate habits`\n"),
        "{answered}{text}"
    );
    assert!(!text.contains("  exempt stolen"), "{text}");
    let both = measure(&["1h,1d", "--by", "auth", "--top", "2"], &month());
    let rows: Vec<String> = stdout(&both).lines().map(str::to_owned).collect();
    assert!(rows[0].contains("PERIOD") && rows[1].contains(" 1d ") && rows[2].contains(" 1h "));
    for wrong in [&["1h,soon"][..], &["1h", "--suggest", "--limit", "5"]] {
        assert_eq!(measure(wrong, &month()).status.code(), Some(2), "{wrong:?}");
    }
}

/// Each count of several is what it is alone.
#[test]
fn several_counts_are_measured_in_one_pass() {
    let all = ["messages", "recipients", "different", "bytes"];
    let arguments = ["1h,1d", "--by", "user", "--json", "--count"];
    // Of one message the size is not known, of another no recipient.
    let more = "2026-11-20 11:00:00 1vM1aE-000000001Ac-1aBc <= c@x.test U=carl P=local for r@y.test\n\
                2026-11-20 11:00:30 1vM1aF-000000001Ac-1aBc <= bob@x.test U=bob S=7\n";
    let log = log(3) + more;
    let run = |counts: &str, more: &[&str]| {
        let output = measure(&[&arguments[..], &[counts], more].concat(), &log);
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (json, stderr(&output))
    };
    let (together, notes) = run(&all.join(","), &[]);
    // Of four without U=.
    assert_eq!(together["lines"]["messages_lacking"], 5, "{notes}");
    for lacking in
        ["3 messages without a user (U=): not counted as messages", "not counted as bytes"]
    {
        assert!(notes.contains(lacking), "{notes}");
    }
    let of = |all: &serde_json::Value, name: &str, count: &str| -> Vec<serde_json::Value> {
        let rows = all[name].as_array().unwrap().iter().cloned();
        let rows = rows.filter(|row| row["count"] == count).map(|mut row| {
            row.as_object_mut().unwrap().remove("count");
            row
        });
        rows.collect()
    };
    let (suggested, _) = run(&all.join(","), &["--suggest"]);
    for count in all {
        let rows = of(&together, "rates", count);
        assert!(rows.len() >= 2, "{count}: {rows:?}");
        assert_eq!(run(count, &[]).0["rates"], serde_json::Value::from(rows), "{count}");
        let periods = of(&suggested, "periods", count);
        assert_eq!(periods.len(), 2, "{count}");
        let alone = run(count, &["--suggest"]).0;
        assert_eq!(alone["periods"], serde_json::Value::from(periods), "{count}");
    }
    let rows = stdout(&measure(&["1h", "--count", "messages,bytes", "--top", "1"], &log));
    let rows: Vec<Vec<&str>> = rows.lines().map(|row| row.split_whitespace().collect()).collect();
    assert_eq!(rows[0][2], "COUNT");
    assert_eq!([rows[1][2], rows[2][2]], ["messages", "bytes"], "{rows:?}");
    let text = stdout(&measure(&["1h", "--count", "messages,bytes", "--suggest"], &log));
    assert!(text.starts_with("messages, period 1h: ") && text.contains("\nbytes, period 1h: "));
}

#[test]
fn useless_options_are_reported() {
    let output = measure(&["1h"], "no log\n");
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("no line could be used"), "{}", stderr(&output));
    let failed =
        "2026-11-20 10:00:00 plain \tauthenticator failed for (x) [192.0.2.7]: 535 wrong\n";
    let output = measure(&["1h"], failed);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("nothing to count in these lines"), "{}", stderr(&output));
    let output = measure(&["1h", "--by", "auth"], &log(1));
    assert!(stderr(&output).contains("1 message without an authenticated user (A=): not counted"));
    for (arguments, words) in [
        (&["soon"][..], "expected a period"),
        (&["1h", "--match", "("], "unclosed group"),
        (&["1h", "--match", "(a)(b)(c)"], "it has 3 groups"),
        (&["1h", "--count", "bytes,messages", "--limit", "5"], "--limit needs one --count"),
    ] {
        let output = measure(arguments, "");
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
    }
    let output = exirate().args(["measure", "1h", "/nonexistent"]).output().unwrap();
    assert!(stderr(&output).contains("cannot read /nonexistent"), "{}", stderr(&output));
}

#[test]
fn it_finds_what_exims_own_script_would_find_in_a_real_log() {
    let mut exim = kit::Setup::new().build();
    exim.start();
    let mut client = exim.session();
    for n in 0..3 {
        let message = format!("From: a@x.test\r\nTo: b@y.test\r\n\r\n{n}\r\n");
        assert!(client.message("a@x.test", &["b@y.test"], &message).is_ok());
    }
    client.quit();
    exim.wait_for_log("<= a@x.test", 3);
    let mut command = Command::new(env!("CARGO_BIN_EXE_exirate"));
    command.args(["measure", "1w", "--json"]);
    let ran = kit::exim::run(command, exim.log("main").as_bytes());
    let rows: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        (&rows["rates"][0]["key"], &rows["rates"][0]["events"]),
        (&"a@x.test".into(), &3.into())
    );
    let peak = rows["rates"][0]["peak"].as_f64().unwrap();
    assert!((2.9..3.1).contains(&peak), "{peak}");
}

/// alice writes to the same two people, mallory to somebody else each time.
fn writers() -> String {
    let mut lines = String::new();
    for n in 0..100 {
        let (minute, second) = (n / 6, n % 6 * 10);
        for (user, to) in
            [("alice", "b@y.test c@y.test"), ("mallory", &format!("r{n}@y.test b@y.test"))]
        {
            lines += &format!(
                "2026-11-20 10:{minute:02}:{second:02} 1vM1aC-000000001Ac-1aBc <= a@x.test H=h [192.0.2.7] \
                 A=plain:{user} S=1000 for {to}\n"
            );
        }
    }
    lines
}

#[test]
fn different_recipients_are_counted_as_per_addr_counts_them() {
    let arguments = ["1h", "--by", "auth", "--count", "different", "--json"];
    let found = rows(&measure(&arguments, &writers()));
    let peak = |user: &str| found.iter().find(|row| row.0 == user).unwrap();
    // Two people in a burst; of mallory's, the first ones have decayed a little.
    assert_eq!((peak("alice").1.round(), peak("alice").2), (2.0, 200));
    let expected = 3600.0 / 10.0 * (1.0 - (-990.0_f64 / 3600.0).exp());
    assert!((peak("mallory").1 - expected).abs() < 3.0, "{} {expected}", peak("mallory").1);
    // The filter lasts a period: with one of 5 minutes, alice's people count again.
    let short =
        rows(&measure(&["5m", "--by", "auth", "--count", "different", "--json"], &writers()));
    let of = |user: &str| short.iter().find(|row| row.0 == user).unwrap().1;
    assert!((2.0..3.5).contains(&of("alice")) && of("mallory") > 20.0, "{short:?}");
    // A message is hit once, however many of its recipients are over the limit.
    let arguments = ["1h", "--by", "auth", "--count", "different", "--suggest", "--json"];
    let found: serde_json::Value =
        serde_json::from_slice(&measure(&arguments, &writers()).stdout).unwrap();
    let period = &found["periods"][0];
    assert_eq!((&period["events"], &period["messages"]), (&400.into(), &200.into()));
    for limit in period["limits"].as_array().unwrap() {
        let (events, messages) =
            (limit["events"].as_u64().unwrap(), limit["messages"].as_u64().unwrap());
        assert!(messages <= events && events <= 2 * messages, "{limit}");
    }
    let shares = period["message_rates"].as_array().unwrap();
    assert!((1.9..2.3).contains(&shares[0]["rate"].as_f64().unwrap()), "{shares:?}");
    let text = stdout(&measure(&arguments[..6], &writers()));
    assert!(
        text.contains("MESSAGES HIT") && text.contains("\nsuggested: 100 / 1h / per_addr"),
        "{text}"
    );
}

#[test]
fn lines_that_are_not_used_are_counted() {
    let odd = log(1)
        + "2026-11-20 10:00:31 Start queue run: pid=1\n2026-11-20 10:00:32 from an ACL: <\u{1b}[2J>\n\
           Nov 20 10:00:33 mail dovecot: x\nno time\n";
    let output = measure(&["1h", "--json"], &odd);
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let lines = &found["lines"];
    for (name, count) in [
        ("read", 7),
        ("used", 2),
        ("of_no_use", 1),
        ("of_other_programs", 1),
        ("not_understood", 1),
        ("without_time", 1),
        ("messages_lacking", 0),
    ] {
        assert_eq!(lines[name], count, "{name} of {lines}");
    }
    let notes = stderr(&output);
    assert!(
        notes.contains("1 line of a form that is not known, such as what ACLs log, of 7 lines")
    );
    assert!(notes.contains("mainlog:5: 2026-11-20 10:00:32 from an ACL: <\\u{1b}[2J>"), "{notes}");
    assert!(notes.contains("1 line of other programs, of 7 lines, skipped"), "{notes}");
}
