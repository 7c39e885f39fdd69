//! The policy file that the daemon applies by itself, and the look at its health.

use std::fs;

use rustix::process::Signal;

use kit::front_ends::{Client, Machine, Message, exirate};
use kit::until;

/// So many recipients a week for each login.
fn limit(recipients: &str) -> String {
    format!(
        "version = 1\n[policy.out]\nwhen = \"authenticated\"\ndefault.recipients = \"{recipients}/1w\"\n"
    )
}

/// What `exirate status --health` returns and prints.
fn health(machine: &Machine) -> (Option<i32>, String) {
    let mut command = exirate(&["status", "--health", "--config"]);
    let output = command.arg(machine.path("exirate.toml")).output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn the_policy_file_is_applied_at_the_start_and_when_it_changes() {
    let machine = Machine::new("", "");
    let image = machine.spool().join("exirate/policy.image");
    fs::remove_file(&image).unwrap();
    // Nobody is healthy who only listens.
    {
        let _daemon = machine.start();
        let (code, text) = health(&machine);
        assert_eq!((code, text.contains("policy.image")), (Some(1), true), "{text}");
    }
    let folder = machine.path("edited");
    fs::create_dir(&folder).unwrap();
    let file = folder.join("policy.toml");
    machine.configure(&format!("policy_file = \"{}\"", file.display()));
    fs::write(&file, "version = 1\n[policy.out]\nno = 1\n").unwrap();
    assert_eq!(machine.command().status().unwrap().code(), Some(2));
    machine.until_logged("policy.toml cannot be used: see above; and no policies are in use");
    assert_eq!(health(&machine).0, Some(1), "nobody listens");

    fs::write(&file, limit("1.5")).unwrap();
    let mut daemon = machine.start();
    let mut client = Client::connect(&machine);
    let refused = "DEFER_IF_PERMIT 4.7.1 Over the limit";
    let alice = Message::new("alice");
    assert_eq!(client.rcpt(&alice, "a@example.net"), "DUNNO");
    assert_eq!(client.rcpt(&alice, "b@example.net"), refused);
    let (code, text) = health(&machine);
    assert_eq!((code, text.starts_with("exirate serve mail decides at unix:/")), (Some(0), true));

    // A file with an error keeps the policies in use.
    fs::write(&file, "version = 1\n[policy.out\n").unwrap();
    machine.until_logged("policy.toml cannot be used: see above; the policies that were in use");
    let bob = Message::new("bob");
    assert_eq!(client.rcpt(&bob, "a@example.net"), "DUNNO");
    assert_eq!(client.rcpt(&bob, "b@example.net"), refused);
    let applied = || machine.log().matches(": in use\n").count();
    assert_eq!((applied(), health(&machine).0), (1, Some(0)));

    fs::write(&file, limit("2.5")).unwrap();
    until("the file is applied", || applied() == 2);
    assert_eq!(client.rcpt(&alice, "c@example.net"), "DUNNO");
    assert_eq!(client.rcpt(&alice, "d@example.net"), refused);

    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0));
    assert_eq!(health(&machine).0, Some(1));
}
