//! `exirate status`.

use serde_json::Value;

use crate::prepared::Prepared;

/// What it says as JSON, and its exit status.
fn status(machine: &Prepared) -> (Value, Option<i32>) {
    let output = machine.run("exirate status --json");
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    (serde_json::from_slice(&output.stdout).unwrap(), output.status.code())
}

/// The verdict, and the sentence.
fn verdict(machine: &Prepared) -> (String, String, Option<i32>) {
    let (status, code) = status(machine);
    let text = |name: &str| status[name].as_str().unwrap().to_owned();
    // People see the same.
    assert!(machine.show("exirate status").starts_with(&(text("text") + "\n")), "{status}");
    (text("verdict"), text("text"), code)
}

/// Runs a line that must succeed.
fn fine(machine: &Prepared, line: &str) {
    let output = machine.run(line);
    assert!(output.status.success(), "{line}: {output:?}");
}

/// Puts this policy file in use.
fn apply(machine: &Prepared, text: &str) {
    fine(
        machine,
        &format!("cat >new.toml <<'END'\nversion = 1\n{text}\nEND\nexirate policy apply new.toml"),
    );
}

#[test]
fn it_says_whether_mail_is_limited() {
    let machine = Prepared::with_callers();
    let found = verdict(&machine);
    assert_eq!(found, ("limited".into(), "mail is limited by 1 spec".into(), Some(0)));
    let (all, _) = status(&machine);
    let by = &all["decided_by"][0];
    assert_eq!((&by["server"], &by["front_end"]), (&"Exim".into(), &"library".into()));

    // No line of Exim's calls us.
    fine(&machine, "sed -i '/dlfunc/d' ../exim.conf");
    let (found, text, code) = verdict(&machine);
    assert_eq!((&*found, code), ("not_limited", Some(1)));
    assert!(
        text.starts_with("nothing is limited: Exim's configuration never calls exirate"),
        "{text}"
    );
    assert!(text.ends_with("; run `exirate setup`"), "{text}");

    // It evaluates policies, and there are none.
    let call = "defer condition = ${dlfunc{/usr/lib/exim4/exirate.so}{policy_over}{*}}";
    fine(&machine, &format!("sed -i 's|^check:|check:\\n  {call}|' ../exim.conf"));
    let (found, text, code) = verdict(&machine);
    assert_eq!((&*found, code), ("not_limited", Some(1)), "{text}");
    let why = "Exim evaluates policies, and none of them is in use; run `exirate setup`";
    assert!(text.ends_with(why), "{text}");

    apply(&machine, "[policy.out]\naction = \"observe\"\ndefault.recipients = \"5/1h\"");
    let (found, text, _) = verdict(&machine);
    assert_eq!(
        (&*found, &*text),
        ("observed", "mail is counted and nothing is refused: out observes only")
    );

    apply(&machine, "[policy.out]\ndefault.recipients = \"5/1h\"");
    let (found, text, _) = verdict(&machine);
    assert_eq!((&*found, &*text), ("limited", "mail is limited by out"));
    let (all, _) = status(&machine);
    assert_eq!(
        all["policies"],
        serde_json::json!([{"name": "out", "action": "enforce", "evaluated": true}])
    );

    let other =
        "[policy.out]\ndefault.recipients = \"5/1h\"\n[policy.in]\ndefault.recipients = \"5/1h\"";
    apply(&machine, &format!("action = \"observe\"\n{other}"));
    let (_, text, _) = verdict(&machine);
    assert_eq!(text, "mail is counted and nothing is refused: in, out observe only");

    // Not those that nothing evaluates.
    apply(&machine, other);
    fine(&machine, "sed -i 's/{policy_over}{[*]}/{policy_over}{in}/' ../exim.conf");
    assert_eq!(verdict(&machine).1, "mail is limited by in");
    let text = machine.show("exirate status");
    assert!(text.contains("nothing evaluates: out\n"), "{text}");

    fine(&machine, "exirate bypass --reason 'wrong limits' 2>/dev/null");
    let (found, text, code) = verdict(&machine);
    assert_eq!((&*found, code), ("bypassed", Some(1)));
    assert!(text.contains("wrong limits"), "{text}");
    fine(&machine, "exirate bypass --end");

    // A library that Exim cannot load limits nothing.
    fine(&machine, "echo damaged >/usr/lib/exim4/exirate.so");
    let (found, text, code) = verdict(&machine);
    assert_eq!((&*found, code), ("doubtful", Some(1)), "{text}");

    // Another directory than Exim's.
    fine(&machine, "mkdir other");
    let text = machine.show("exirate status --spool other");
    assert!(text.starts_with("nothing is limited: Exim uses "), "{text}");
}

#[test]
fn it_shows_who_is_blocked_who_is_exempt_and_which_alerts_were_sent() {
    let machine = Prepared::with_callers();
    apply(&machine, "[on.crossing]\nlog = true");
    fine(&machine, "exirate deny mallory@example.org --until 2h --reason stolen");
    let (all, _) = status(&machine);
    let keys: Vec<&str> = all["blocked_first"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["key"].as_str().unwrap())
        .collect();
    assert_eq!((keys, &all["blocked"]), (vec!["alice@example.org"], &1.into()));
    assert_eq!((&all["allowed"], &all["denied"]), (&1.into(), &1.into()));
    assert_eq!((&all["keys"], &all["keys_today"]), (&8.into(), &8.into()));
    assert_eq!(all["last_event"], "2026-11-20T11:50:30Z");
    assert_eq!(all["decisions_since_utc_midnight"], 10);
    assert_eq!(all["crossings_today"], 2);
    let waiting = |all: &Value| all["crossings"][0]["waiting_for"].clone();
    assert_eq!(waiting(&all), serde_json::json!(["log"]));
    assert_eq!(
        all["receivers"],
        serde_json::json!([{"name": "log", "waiting": 2, "failing": false}])
    );
    assert_eq!(
        (&all["database"]["damaged"], &all["database"]["unreadable"]),
        (&0.into(), &0.into())
    );

    fine(&machine, "exirate events deliver");
    let (all, _) = status(&machine);
    assert_eq!(waiting(&all), serde_json::json!([]));
    assert_eq!(all["receivers"][0]["waiting"], 0);
    let text = machine.show("exirate status");
    assert!(
        text.contains("mallory@example.org is denied until 2026-11-20 13:50:37 UTC (stolen)"),
        "{text}"
    );

    // Tomorrow, nothing was counted today.
    machine.at("2026-11-21 09:00:00");
    let (all, _) = status(&machine);
    assert_eq!(
        (&all["keys_today"], &all["crossings_today"], &all["decisions_since_utc_midnight"]),
        (&0.into(), &0.into(), &0.into())
    );
}
