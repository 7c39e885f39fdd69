//! Overrides in a real SMTP session: applied at the next message, without a restart.

use std::process::Command;

use kit::{Client, EntryPoint, FakeClock, PrivateExim, Setup};

fn build(clock: &FakeClock) -> PrivateExim {
    let acl = format!(
        "  defer condition = {}\n        message = refused \
         <${{dlfunc{{EXIRATE}}{{ratelimit_info}}{{override}}}}> $sender_rate\n  accept\n",
        EntryPoint::chosen().ask("1.5 / 1h / per_mail / strict / $sender_address")
    );
    let mut exim = Setup::new().library().clock(clock).acl("acl_smtp_mail", &acl).build();
    exim.start();
    exim
}

/// Runs the program on the database of `exim`.
fn exirate(exim: &PrivateExim, clock: &FakeClock, arguments: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_exirate"));
    command.args(arguments).arg("--spool").arg(exim.spool()).envs(clock.environment());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// The reply to MAIL of a new message in this session.
fn mail(client: &mut Client, from: &str) -> (i32, String) {
    client.command("RSET");
    let reply = client.command(format!("MAIL FROM:<{from}>"));
    (i32::from(reply.code), reply.text)
}

#[test]
fn a_running_session_applies_overrides_at_its_next_message() {
    let clock = FakeClock::new();
    let exim = build(&clock);
    let mut client = exim.session();
    let mut code = |from: &str| mail(&mut client, from);
    assert_eq!(code("a@x.test").0, 250);
    let (refused, text) = code("a@x.test");
    assert!(refused == 451 && text.contains("refused <> 2.0"), "{text}");

    exirate(&exim, &clock, &["allow", "a@x.test", "--until", "1h"]);
    assert_eq!(code("a@x.test").0, 250);
    assert_eq!(code("a@x.test").0, 250);
    // It was counted meanwhile.
    exirate(&exim, &clock, &["deny", "*@x.test", "--until", "1h", "--yes"]);
    assert_eq!(code("a@x.test").0, 250, "the key is stronger than the glob");
    let (refused, text) = code("b@x.test");
    assert!(refused == 451 && text.contains("refused <deny> 1.0"), "{text}");
    assert_eq!(code("a@y.test").0, 250);

    // Both end by themselves.
    clock.set(3601);
    let (refused, text) = code("a@x.test");
    assert!(refused == 451 && text.contains("refused <>"), "{text}");
    assert_eq!(code("c@x.test").0, 250);

    exirate(&exim, &clock, &["unblock", "a@x.test"]);
    assert_eq!(code("a@x.test").0, 250);
    assert_eq!(exim.log("panic"), "");
}

#[test]
fn debugging_output_names_the_override() {
    let clock = FakeClock::new();
    let exim = build(&clock);
    drop(exim.session());
    let session = |exim: &PrivateExim| {
        exim.run(&["-d+acl", "-bh", "192.0.2.1"], b"HELO x\r\nMAIL FROM:<a@x.test>\r\nQUIT\r\n")
    };
    assert!(!session(&exim).stderr.contains("ratelimit override"));
    let mut client = exim.session();
    client.command("MAIL FROM:<b@x.test>");
    exirate(&exim, &clock, &["deny", "a@x.test"]);
    let shown = session(&exim).stderr;
    assert!(shown.contains("ratelimit override: deny, so over the limit"), "{shown}");
}
