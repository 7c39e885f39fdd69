//! `exirate show`.

use serde_json::Value;

use crate::prepared::Prepared;
use crate::{run, stderr};

fn shown(machine: &Prepared, arguments: &str) -> Vec<Value> {
    let output = machine.run(&format!("exirate show --json {arguments}"));
    assert_eq!(stderr(&output), "", "{arguments}");
    serde_json::from_slice::<Value>(&output.stdout).unwrap().as_array().unwrap().clone()
}

#[test]
fn the_next_event_gets_what_was_foreseen() {
    let machine = Prepared::new();
    for (key, spec) in [
        ("alice", "100 / 1h / per_rcpt / strict / alice"),
        ("192.0.2.7", "20 / 10m / per_conn / strict / 192.0.2.7"),
        ("carol@example.org", "100 / 1h / per_addr / strict / carol@example.org"),
        ("2001:db8::1", "20 / 10m / per_conn / strict / 2001:db8::1"),
    ] {
        let before = &shown(&machine, key)[0];
        let line = format!("exirate check --count '{spec}' --recipient new@example.net --json");
        let output = machine.run(&line);
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(before["next"]["rate"], answer["rate"], "{key}");
        assert_eq!(before["next"]["over"], answer["over"], "{key}");
        assert_eq!(before["next"]["count"], 1.0);
        assert_eq!(shown(&machine, key)[0]["last_rate"], answer["rate"], "{key}");
    }
}

#[test]
fn a_sender_over_the_limit_is_free_at_the_shown_time() {
    let machine = Prepared::new();
    let alice = &shown(&machine, "alice@example.org --period 1h")[0];
    assert_eq!((&alice["over"], &alice["remaining"]), (&true.into(), &0.0.into()));
    assert_eq!(alice["over_since"], "2026-11-20T11:42:05Z");
    let free_at = alice["free_at"].as_str().unwrap();
    let check = "exirate check '100 / 1h / per_rcpt / strict / alice@example.org'";
    let time = free_at.replace('T', " ").replace('Z', "");
    machine.at(&time);
    assert_eq!(machine.run(check).status.code(), Some(0), "{free_at}");
    let alice = &shown(&machine, "alice@example.org --period 1h")[0];
    assert_eq!((&alice["over"], &alice["free_at"]), (&false.into(), &Value::Null));
    assert_eq!(alice["retry_after"], 0);
    // Its seconds are rounded up, so two before it must still wait.
    let second: u32 = time[17..].parse().unwrap();
    assert!(second >= 2, "choose another time in prepared.rs");
    machine.at(&format!("{}{:02}", &time[..17], second - 2));
    assert_eq!(machine.run(check).status.code(), Some(1), "{free_at}");
}

#[test]
fn a_record_is_gone_only_from_when_it_says_on() {
    let machine = Prepared::new();
    let from = shown(&machine, "192.0.2.7")[0]["forgotten_from"].as_str().unwrap().to_owned();
    assert_eq!(from, "2026-11-20T18:41:20Z");
    machine.at("2026-11-20 18:41:19");
    let text = machine.show("exirate show 192.0.2.7");
    assert!(text.contains("(in 1s), if no more events come"), "{text}");
    machine.at("2026-11-20 18:41:20");
    let text = machine.show("exirate show 192.0.2.7");
    assert!(text.contains("forgotten     at the next cleanup"), "{text}");
}

#[test]
fn unique_events_are_known_again() {
    let machine = Prepared::new();
    let seen = |event: &str| {
        let arguments = format!("carol@example.org --event {event}");
        shown(&machine, &arguments)[0]["event_seen"].clone()
    };
    for known in ["r3@example.net", "r4@EXAMPLE.net", "r5@example.net"] {
        assert_eq!(seen(known), true, "{known}");
    }
    for new in ["R3@example.net", "r6@example.net", "r3", "-x"] {
        assert_eq!(seen(new), false, "{new}");
    }
    assert_eq!(shown(&machine, "alice --event r3@example.net")[0]["event_seen"], Value::Null);
    let text = machine.show("exirate show alice --event r3@example.net");
    assert!(text.contains("this key has no filter"), "{text}");
    machine.at("2026-11-20 12:38:42");
    assert_eq!(seen("r3@example.net"), false, "the period is over");
    let text = machine.show("exirate show carol@example.org --event r3@example.net");
    assert!(text.contains("would count: the filter's period is over"), "{text}");
    assert!(text.contains("until       ended, 2026-11-20 12:38:40"), "{text}");
}

#[test]
fn several_records_of_a_key_are_shown_the_nearest_to_its_limit_first() {
    let machine = Prepared::new();
    let text = machine.show("exirate show alice@example.org web");
    let heads: Vec<&str> =
        text.lines().filter(|line| line.ends_with(": under the limit")).collect();
    assert_eq!(heads, ["web: under the limit", "alice@example.org: under the limit"]);
    assert!(text.starts_with("alice@example.org: over the limit\n"), "{text}");
    assert_eq!(text.matches("\n\n").count(), 2, "{text}");
}

#[test]
fn limits_that_no_wait_helps_are_shown_as_such() {
    let machine = Prepared::new();
    let checks = "exirate check --count '1 / 1h / strict / one'; exirate check --count '0 / 1h / strict / none'; \
                  exirate check --count 'inf / 1h / strict / any'; exirate check --count '9 / 1h / strict' --key ''";
    let said = stderr(&machine.run(checks));
    assert!(said.starts_with("exirate: note: the limit is 0, which blocks everything"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    let text = machine.show("exirate show one none any ''");
    for line in [
        "one: every event is refused",
        "none: every event is refused",
        "any: under the limit",
        "(the empty key): under the limit",
        "  free again    never (one event is as large as the limit)",
        "  next event    passes: rate 2.0; any number would pass",
        "  rate now      1.0 of inf in 1h (0%)",
    ] {
        assert!(text.lines().any(|shown| shown == line), "{line}\n{text}");
    }
    for shown in shown(&machine, "one none") {
        assert_eq!((&shown["retry_after"], &shown["free_at"]), (&Value::Null, &Value::Null));
    }
}

#[test]
fn a_clock_that_was_set_back_is_reported() {
    let machine = Prepared::new();
    machine.at("2026-11-20 11:40:00");
    let text = machine.show("exirate list alice");
    assert!(text.contains(" 10m30s ahead "), "{text}");
    let text = machine.show("exirate show alice");
    assert!(text.contains("2026-11-20 11:50:30 UTC (in 10m"), "{text}");
}

#[test]
fn a_key_in_a_damaged_file_is_not_taken_for_one_that_is_not_there() {
    let machine = Prepared::new();
    let database = machine.spool().join("exirate");
    for entry in std::fs::read_dir(&database).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "shard") {
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[20] ^= 1;
            std::fs::write(&path, bytes).unwrap();
        }
    }
    let output = run(&machine.spool(), &["show", "alice"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("its header is damaged"), "{}", stderr(&output));
    let empty = tempfile::tempdir().unwrap();
    let output = run(empty.path(), &["show", "alice"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("no rate database at"), "{}", stderr(&output));
}
