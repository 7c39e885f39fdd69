//! Limits by the calendar, from the policy file to what commands print.

use exirate::calendar::{Every, load};
use exirate::engine::{Algorithm, AlgorithmKind, Check, Kind, RecordKey};
use exirate::spool::{Options, Spool};
use exirate::store::Store as _;
use exirate::sys::clock;

use crate::{exirate, json, run, stderr, stdout};

const NAME: &str = "outbound/recipients/daily/auth:alice";

fn key(name: &str) -> RecordKey<'_> {
    RecordKey {
        name: name.as_bytes(),
        identity_start: name.rfind('/').unwrap() + 1,
        kind: Kind::Policy,
        algorithm: AlgorithmKind::Calendar,
    }
}

/// A database in which so many recipients of alice were counted today, of at most 4.
fn database(events: u32) -> tempfile::TempDir {
    let spool = tempfile::tempdir().unwrap();
    let now = clock::now();
    let window = load(Some("UTC")).unwrap().window(Every::Day, now.0);
    let check = Check::new(key(NAME), Algorithm::Calendar { limit: 4.0, window });
    let mut database = Spool::open(spool.path(), Options::default()).unwrap();
    for _ in 0..events {
        database.decide_one(&check, || now.into()).unwrap();
    }
    spool
}

#[test]
fn a_count_is_listed_shown_set_and_carried_to_another_database() {
    let spool = database(5);
    let record = &json(&run(spool.path(), &["list", "--json"]))[0];
    assert_eq!((&record["algorithm"], &record["limit"]), (&"calendar".into(), &4.0.into()));
    assert_eq!((&record["rate"], &record["over"]), (&5.0.into(), &true.into()));
    assert_eq!((&record["period_text"], &record["period"]), (&"daily".into(), &86_400.0.into()));
    let shown = stdout(&run(spool.path(), &["show", "alice"]));
    for line in [
        "auth:alice: over the limit",
        "  count now     5 of 4 daily (125%)",
        "  next event    refused: count 6 would be over the limit",
        "  counts        recipients of policy outbound by the calendar",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    let explained = stdout(&run(spool.path(), &["explain", "alice"]));
    assert!(explained.contains("4 daily: count 5 before, 6 with this event"), "{explained}");
    assert!(run(spool.path(), &["set", "alice", "--rate", "3"]).status.success());
    let other = tempfile::tempdir().unwrap();
    let file = other.path().join("all.jsonl");
    let file = file.to_str().unwrap();
    let exported = run(spool.path(), &["export"]);
    std::fs::write(file, &exported.stdout).unwrap();
    let imported = run(other.path(), &["import", file]);
    assert!(imported.status.success(), "{}", stderr(&imported));
    let record = &json(&run(other.path(), &["show", "alice", "--json"]))[0];
    assert_eq!((&record["rate"], &record["remaining"]), (&3.0.into(), &1.0.into()));
    assert!(record["window"]["end"].as_str().unwrap().ends_with("T00:00:00Z"), "{record}");
    assert!(run(other.path(), &["verify"]).status.success());
}

#[test]
fn what_is_over_is_called_by_its_word_everywhere() {
    let spool = database(5);
    let said = |arguments: &[&str]| stdout(&run(spool.path(), arguments));
    let table = said(&["events"]);
    assert!(table.contains(" 5.0      4  daily "), "{table}");
    let explained = said(&["explain", "alice", "--at", "now"]);
    assert!(explained.contains("4 daily: count 4 before, 5 with"), "{explained}");
    let status = said(&["status"]);
    for line in ["auth:alice: 5.0 of 4 daily outbound/recipients", "auth:alice: 5.0/4 daily"] {
        assert!(status.contains(line), "{line}: {status}");
    }
    let policy = spool.path().join("policy.toml");
    let text = "version = 1\n[on.crossing]\nlog = true\nrun = [\"/bin/sh\", \"-c\", \
                \"echo $1 >$0\", \"DIR/ran\", \"{limit} {period}\"]\n";
    let folder = spool.path().to_str().unwrap();
    std::fs::write(&policy, text.replace("DIR", folder)).unwrap();
    said(&["policy", "apply", policy.to_str().unwrap()]);
    let alerts = said(&["events", "deliver"]);
    assert!(alerts.contains("alice is over the limit: 5.0/4 daily "), "{alerts}");
    assert_eq!(std::fs::read_to_string(spool.path().join("ran")).unwrap(), "4 daily\n");
}

#[test]
fn a_policy_starts_again_at_midnight_of_its_zone() {
    let directory = tempfile::tempdir().unwrap();
    let policy = directory.path().join("policy.toml");
    let text = "version = 1\ntimezone = \"Europe/Berlin\"\n[policy.out]\nkey = \"client\"\n\
                default.messages = [\"2 daily\", \"100/1h\"]\n\
                text = \"Over {limit} in {period}; again in {retry_after}\"\n";
    std::fs::write(&policy, text).unwrap();
    // The day of 25 hours.
    let times = ["24T21:59:59", "24T22:00:00", "24T22:00:01", "25T22:00:00", "25T23:00:00"];
    let event = |time: &&str| {
        format!(
            "{{\"time\":\"2026-10-{time}Z\",\"stage\":\"mail\",\"client\":\"192.0.2.1\",\"message_id\":\"{time}\"}}\n"
        )
    };
    let events = directory.path().join("events.jsonl");
    std::fs::write(&events, times.iter().map(event).collect::<String>()).unwrap();
    let mut command = exirate();
    command.args(["policy", "run"]).arg(&events).arg("--policy").arg(&policy);
    let output = command.output().unwrap();
    let lines: Vec<serde_json::Value> =
        stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let verdicts: Vec<&str> = lines.iter().filter_map(|line| line["verdict"].as_str()).collect();
    assert_eq!(verdicts, ["accept", "accept", "accept", "defer", "accept"]);
    assert_eq!(lines[3]["text"], "Over 2 in one day; again in 1h");
    std::fs::write(&policy, text.replace("2 daily", "2/day")).unwrap();
    let output = exirate().args(["policy", "lint"]).arg(&policy).output().unwrap();
    assert!(stdout(&output).contains("\"2 daily\" for a count that starts again"));
}

/// A message of alice at this time.
fn message(time: &str) -> String {
    format!(
        "{time} 1vM1aC-000000001Ac-1aBc <= s@x.test H=h [192.0.2.7] P=esmtpa A=plain:alice S=1000 \
         for r@y.test q@y.test\n"
    )
}

/// Two messages before midnight, and three after it.
fn around_midnight() -> String {
    ["20 23:58", "20 23:59", "21 00:00", "21 00:01", "21 12:00"]
        .map(|time| message(&format!("2026-11-{time}:00")))
        .concat()
}

/// A folder with `policy.toml` and `mainlog`.
fn folder(policy: &str, log: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("policy.toml"), policy).unwrap();
    std::fs::write(folder.path().join("mainlog"), log).unwrap();
    folder
}

fn in_folder(folder: &tempfile::TempDir, arguments: &[&str]) -> std::process::Output {
    exirate().args(arguments).current_dir(folder.path()).output().unwrap()
}

#[test]
fn a_log_is_measured_by_the_calendar() {
    let folder = folder("", &around_midnight());
    let measure = |arguments: &[&str]| {
        let all = [&["measure"], arguments, &["--by", "auth", "--json", "mainlog"]].concat();
        json(&in_folder(&folder, &all))
    };
    for (period, count, limit, peak, over) in [
        ("daily", "messages", "2", 3.0, 1),
        // Exactly the limit passes.
        ("daily", "messages", "3", 3.0, 0),
        ("hourly", "messages", "1", 2.0, 2),
        ("weekly", "messages", "4", 5.0, 1),
        ("monthly", "recipients", "9", 10.0, 1),
        // Each recipient counts once in a day.
        ("daily", "different", "1", 2.0, 8),
    ] {
        let found = &measure(&[period, "--count", count, "--limit", limit])["rates"][0];
        let shown = (&found["every"], &found["peak"], &found["over"]);
        assert_eq!(shown, (&period.into(), &peak.into(), &over.into()), "{period} {count}");
    }
    let wrong = stderr(&in_folder(&folder, &["measure", "day", "mainlog"]));
    assert!(wrong.contains("1d12h or 3600; or daily"), "{wrong}");
    let both = measure(&["1d,daily"]);
    assert_eq!(
        (&both["rates"][0]["period"], both["rates"].as_array().unwrap().len()),
        (&86_400.0.into(), 2)
    );
    let suggested = &measure(&["daily", "--suggest"])["periods"][0];
    assert_eq!((&suggested["suggested"], &suggested["every"]), (&5.0.into(), &"daily".into()));
    let text = stdout(&in_folder(&folder, &["measure", "daily", "mainlog", "--suggest"]));
    assert!(text.contains("\nsuggested: 5 daily\n"), "{text}");
    // Times with a zone are of one clock, and the days are those of this server.
    let times = ["2026-11-20 00:30:00 +0100", "2026-11-20 01:30:00 +0100"];
    let folder = self::folder("", &times.map(message).concat());
    let zone = load(None).unwrap();
    let day = |hours: i64| zone.window(Every::Day, 1_795_132_800 + hours * 3600 + 1800);
    let peak = if day(-1) == day(0) { 2.0 } else { 1.0 };
    let found = json(&in_folder(&folder, &["measure", "daily", "mainlog", "--json"]));
    assert_eq!(found["rates"][0]["peak"], peak);
    let report = in_folder(&folder, &["report", "mainlog", "--period", "daily"]);
    assert!(stderr(&report).contains("expected one period, such as 1h"));
}

#[test]
fn the_past_is_decided_by_the_calendar() {
    let policy = "version = 1\ntimezone = \"UTC\"\n[policy.out]\nwhen = \"authenticated\"\n\
                  default.messages = [\"2 daily\", \"100/1h\"]\n";
    let folder = folder(policy, &around_midnight());
    let files = ["--policy", "policy.toml", "mainlog"];
    let output = in_folder(&folder, &[&["simulate", "--json"], &files[..]].concat());
    let found = json(&output);
    assert_eq!((&found["messages"], &found["refused"]), (&5.into(), &2.into()), "{found}");
    let limit = &found["limits"][0];
    assert_eq!((&limit["window"], &limit["unit"]), (&"2 daily".into(), &"messages".into()));
    let to = ["report", "--json", "--output", "page.json", "--spool", "."];
    in_folder(&folder, &[&to, &files[..]].concat());
    let page = std::fs::read(folder.path().join("page.json")).unwrap();
    let found: serde_json::Value = serde_json::from_slice(&page).unwrap();
    let limit = &found["policy"]["limits"][0];
    assert_eq!((&limit["window"], &limit["refused"]), (&"2 daily".into(), &2.into()), "{found}");
    // In Berlin the day begins an hour before that of UTC: all are of one day.
    let berlin = policy.replace("UTC", "Europe/Berlin");
    std::fs::write(folder.path().join("policy.toml"), berlin).unwrap();
    let output = in_folder(&folder, &[&["simulate", "--json"], &files[..]].concat());
    assert_eq!(json(&output)["refused"], 6);
}

/// What a store keeps of this limit is a little more.
#[test]
fn a_limit_that_is_kept_rounded_is_compared_exactly() {
    const LIMIT: f64 = 123_456_789.0;
    let policy = "version = 1\ntimezone = \"UTC\"\n[policy.outbound]\nuser.alice.bytes = \"123456789 daily\"\n\
                  default.recipients = \"9/1h\"\n";
    let folder = folder(policy, "");
    let applied = in_folder(&folder, &["policy", "apply", "policy.toml", "--spool", "."]);
    assert!(applied.status.success(), "{}", stderr(&applied));
    let mut database = Spool::open(folder.path(), Options::default()).unwrap();
    let now = clock::now();
    let window = load(Some("UTC")).unwrap().window(Every::Day, now.0);
    let name = NAME.replace("recipients", "bytes");
    let check = Check::new(key(&name), Algorithm::Calendar { limit: LIMIT, window });
    for (count, over) in [(LIMIT - 1.0, false), (1.0, true)] {
        let decision = database.decide_one(&Check { count, ..check }, || now.into()).unwrap();
        assert!(!decision.over, "exactly the limit passes");
        let shown = &json(&run(folder.path(), &["show", "alice", "--json"]))[0];
        assert_eq!((&shown["over"], &shown["next"]["over"]), (&over.into(), &over.into()));
        let listed = json(&run(folder.path(), &["list", "--over", "--json"]));
        assert_eq!(listed.as_array().map_or(0, Vec::len), usize::from(over));
    }
}
