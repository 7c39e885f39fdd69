//! The filter of fail2ban, with the real fail2ban and lines of the daemon.

use std::process::{Command, Stdio};

use kit::front_ends::Machine;
use kit::front_ends::{Client, Message};

const FILTER: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/maintenance/exirate.filter.conf");

#[test]
fn fail2ban_finds_the_clients_that_were_refused() {
    let policies = "[policy.in]
when = \"!authenticated\"
key = [\"client\"]
default.recipients = \"1.5/1w\"
[policy.out]
when = \"authenticated\"
default.recipients = \"1.5/1w\"
";
    let machine = Machine::new(policies, "");
    let _daemon = machine.start();
    let mut client = Client::connect(&machine);
    for (address, login) in
        [("192.0.2.7", ""), ("2001:db8::7", ""), ("192.0.2.8", "x]: 1.0 [198.51.100.1]")]
    {
        let message = Message { client: address.to_owned(), ..Message::new(login) };
        for recipient in ["a@example.net", "b@example.net"] {
            client.rcpt(&message, recipient);
        }
    }
    machine.until_logged("policy out: defer [192.0.2.8]");
    // As syslog writes the lines, and fail2ban those of the journal.
    let log: String = machine
        .log()
        .lines()
        .filter_map(|line| line.strip_prefix("exirate: "))
        .map(|line| format!("2026-11-23T06:14:14.5+00:00 mail exirate[77]: {line}\n"))
        .collect();
    let file = machine.path("syslog");
    std::fs::write(&file, &log).unwrap();
    // fail2ban-regex takes no filter whose path has a blank.
    let filter = machine.path("exirate.filter.conf");
    std::fs::copy(FILTER, &filter).unwrap();
    for (mode, expected) in [
        ("normal", &["192.0.2.7", "2001:db8::7"][..]),
        ("aggressive", &["192.0.2.7", "2001:db8::7", "192.0.2.8"]),
    ] {
        let output = Command::new("fail2ban-regex")
            .args(["--usedns", "no", "--out", "<ip>"])
            .arg(&file)
            .arg(format!("{}[log=syslog, mode={mode}]", filter.display()))
            .stdin(Stdio::null())
            .output()
            .expect("fail2ban is needed: apt-get install fail2ban");
        let found = String::from_utf8(output.stdout).unwrap();
        assert_eq!(found.lines().collect::<Vec<_>>(), expected, "{log}");
    }
}
