//! Times are typed and shown in the same way by all commands.

use crate::prepared::{Prepared, commands};
use crate::{exirate, stderr, stdout};

/// The options that take a TIME, each with its command.
fn options() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for command in commands() {
        let output = exirate().args(command.split(' ')).arg("--help").output().unwrap();
        let help = stdout(&output);
        let before = found.len();
        for line in help.lines() {
            // What it means is on the next line, or on the same.
            let line = line.trim_start();
            let is_option = line.starts_with('-');
            if let Some((option, _)) = line.split_once(" <TIME>").filter(|_| is_option) {
                let option = option.split(' ').next_back().unwrap();
                found.push((command.clone(), option.to_owned()));
            }
        }
        let explained = help.contains("\n\nTIME is a time on the clock of this server, such as");
        assert_eq!(explained, found.len() > before, "{command}");
    }
    found
}

#[test]
fn every_option_takes_the_same_times_and_says_so() {
    let options = options();
    for (command, option) in [
        ("events", "--since"),
        ("explain", "--at"),
        ("explain", "--since"),
        ("trace query", "--since"),
        ("trace query", "--until"),
        ("trace export", "--until"),
        ("allow", "--until"),
        ("deny", "--until"),
        ("check", "--at"),
        ("policy show", "--at"),
        ("set", "--at"),
        ("trace record", "--time"),
        ("web token add", "--until"),
    ] {
        assert!(
            options.contains(&(command.into(), option.into())),
            "{command} {option}: {options:?}"
        );
    }
    for (command, option) in options {
        let said = |time: &str| {
            let argument = format!("{option}={time}");
            stderr(&exirate().args(command.split(' ')).arg(argument).output().unwrap())
        };
        let wrong = said("soon");
        assert!(
            wrong.contains("; expected a time, such as ")
                || wrong.contains(": expected a time, such as "),
            "{command} {option}: {wrong}"
        );
        let ahead = wrong.contains("'tomorrow 18:00'");
        assert!(ahead || wrong.contains("'yesterday 14:05'"), "{command} {option}: {wrong}");
        // What else is missing is another matter.
        for time in
            ["23:59", "Tue", "tue 14:05", "1h", "in 1h", "2999-12-31", "2999-12-31T18:00:00Z"]
        {
            let said = said(time);
            // Nothing was counted in the year 2999.
            let is_range = command == "set" && said.contains("more than a year ahead");
            assert!(
                is_range || !said.contains("invalid value"),
                "{command} {option}={time}: {said}"
            );
        }
    }
}

#[test]
fn times_are_shown_in_the_zone_of_the_server_with_its_name() {
    let machine = Prepared::new();
    for (zone, shown) in [
        ("UTC", "2026-11-20 11:42:05 UTC"),
        ("Europe/Berlin", "2026-11-20 12:42:05 CET"),
        (":America/New_York", "2026-11-20 06:42:05 EST"),
        ("XYZ-3:30", "2026-11-20 15:12:05 XYZ"),
    ] {
        let line = |line: &str| machine.show(&format!("export TZ={zone}; {line}"));
        for command in
            ["events alice@example.org", "show alice@example.org", "explain alice@example.org"]
        {
            let text = line(&format!("exirate {command}"));
            assert!(text.contains(shown), "{zone}: {text}");
        }
        // What is shown can be typed.
        let found = line(&format!("exirate explain alice@example.org --at '{shown}'"));
        assert!(found.contains(shown), "{found}");
        let since = |time: &str| line(&format!("exirate events --json --since '{time}' | wc -l"));
        assert_eq!(since(shown), "2\n", "{zone}");
        assert_eq!(since("tomorrow"), "0\n", "{zone}");
        // JSON is UTC everywhere.
        let json = line("exirate events --json alice@example.org");
        assert!(json.contains(r#""time":"2026-11-20T11:42:05Z""#), "{json}");
    }
}

#[test]
fn an_hour_that_the_clock_shows_twice_can_be_told_apart() {
    let machine = Prepared::new();
    let until = |time: &str| {
        let line = format!(
            "export TZ=Europe/Berlin; exirate allow x --until '{time}' --json | jq -r .until"
        );
        machine.show(&line)
    };
    // Summer time ends there on 31 October 2027, and begins on 28 March.
    for (time, utc) in [
        ("2027-10-31 02:30", "2027-10-31T01:30:00Z"),
        ("2027-10-31 02:30 CEST", "2027-10-31T00:30:00Z"),
        ("2027-10-31 02:30 CET", "2027-10-31T01:30:00Z"),
        ("2027-10-31", "2027-10-31T23:00:00Z"),
        ("2027-03-28 02:30", "2027-03-28T01:30:00Z"),
        ("2027-03-28", "2027-03-28T22:00:00Z"),
        // It is 12:50 there.
        ("12:49", "2026-11-21T11:49:00Z"),
        ("12:51", "2026-11-20T11:51:00Z"),
        ("tomorrow", "2026-11-21T23:00:00Z"),
    ] {
        let shown = until(time);
        assert_eq!(shown.lines().last(), Some(utc), "{time}: {shown}");
    }
}
