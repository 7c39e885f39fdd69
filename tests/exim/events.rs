//! Crossings and refusals in a real SMTP session, with what Exim knows of the event.

use std::process::Command;

use kit::{EntryPoint, FakeClock, PrivateExim, Setup};

fn events(exim: &PrivateExim, clock: &FakeClock, more: &[&str]) -> Vec<serde_json::Value> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_exirate"));
    command.args(["events", "--json", "--spool"]).arg(exim.spool()).args(more);
    let output = command.envs(clock.environment()).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let lines = String::from_utf8(output.stdout).unwrap();
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_crossing_and_its_refusals_name_sender_client_and_recipient() {
    let clock = FakeClock::new();
    clock.freeze("2026-11-20 12:00:00");
    let acl = format!(
        "  defer condition = {}\n  accept\n",
        EntryPoint::chosen().ask("1.5 / 1h / per_rcpt / strict / $sender_address")
    );
    let mut exim = Setup::new().library().clock(&clock).acl("acl_smtp_rcpt", &acl).build();
    exim.start();
    let mut client = exim.session();
    client.command("MAIL FROM:<a@x.test>");
    let mut codes = Vec::new();
    for n in 0..4 {
        codes.push(client.command(format!("RCPT TO:<r{n}@y.test>")).code);
    }
    assert_eq!(codes, [250, 451, 451, 451]);
    let crossings = events(&exim, &clock, &[]);
    let [crossing] = &crossings[..] else { panic!("{crossings:?}") };
    let of = |event: &serde_json::Value, names: &[&str]| {
        names.iter().map(|name| event[name].clone()).collect::<Vec<_>>()
    };
    assert_eq!(
        of(crossing, &["event", "key", "number", "limit", "period", "update"]),
        serde_json::json!(["crossing", "a@x.test", 1, 1.5, 3600.0, "strict"]).as_array().unwrap()[..]
    );
    let details = ["sender", "client", "recipient", "login", "policy", "message_id"];
    assert_eq!(
        of(crossing, &details),
        serde_json::json!(["a@x.test", "127.0.0.1", "r1@y.test", null, null, null])
            .as_array()
            .unwrap()[..]
    );
    // The clock stands still, so all of them are in one second.
    let refusals = events(&exim, &clock, &["--refusals", "a@x.test"]);
    let [refusal] = &refusals[..] else { panic!("{refusals:?}") };
    assert_eq!(of(refusal, &details), of(crossing, &details));
    assert_eq!(refusal["windows"][0]["rate_before"], 1.0);
    clock.freeze("2026-11-20 12:00:02");
    client.command("RCPT TO:<later@y.test>");
    assert_eq!(events(&exim, &clock, &["--refusals"])[1]["recipient"], "later@y.test");
    assert_eq!(events(&exim, &clock, &[]).len(), 1);
    assert_eq!(exim.log("panic"), "");
}
