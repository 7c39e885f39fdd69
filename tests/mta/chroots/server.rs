//! A mail server with exirate in front of it.

use std::process::{Command, Output};

use crate::document;
use kit::machine::Machine;
use kit::{Reply, until};

/// How the mail server reaches exirate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrontEnd {
    /// Postfix's policy protocol.
    Policy,
    /// A milter of Postfix.
    Milter,
    /// A milter of Sendmail, which words some replies in its own way.
    Sendmail,
}

/// The users who can log in; each case has its own.
const USERS: [&str; 14] = [
    "alice", "dora", "emil", "flora", "gus", "hanna", "ivo", "jan", "kim", "lea", "max", "nora",
    "otto", "pia",
];
/// The local accounts that get mail.
pub(super) const ACCOUNTS: [&str; 2] = ["bob", "carol"];

/// Policies beside those of the document, for verdicts that it does not use.
const MORE: &str = r#"
[policy.held]
when = ["authenticated", { sender_domain = ["hold.test"] }]
verdicts = { "100%" = "hold" }
update = "strict"
default.messages = "2/1h"
[policy.refused]
when = ["authenticated", { sender_domain = ["reject.test"] }]
verdicts = { "100%" = "reject" }
text = "100% of {limit} {unit}"
update = "strict"
default.messages = "2/1h"
[policy.large]
when = ["authenticated", { sender_domain = ["large.test"] }]
update = "strict"
text = "Over {limit} bytes in {period}"
default.bytes = "15M/1h"
[policy.outbound.user."nora@mail.test"]
recipients = "100000/1d"
[policy.loopback]
when = [{ sender_domain = ["loop.test"] }]
key = "client"
update = "strict"
default.recipients = "3/1h"
[policy.bounces]
when = "null_sender"
key = ["recipient"]
bucket = { burst = 2, rate = "1 / 1d" }
"#;

/// A running mail server, and exirate.
pub(super) struct Server {
    pub(super) machine: Machine,
    pub(super) front_end: FrontEnd,
}

impl Server {
    /// Makes the accounts that the mail server has before exirate is installed: users with a
    /// password for SASL, accounts, and names that throw mail away.
    pub(super) fn accounts(machine: &Machine) {
        let mut script = String::new();
        for user in USERS {
            script += &format!("echo secret | saslpasswd2 -p -c -u mail.test {user}\n");
        }
        for account in ACCOUNTS {
            script += &format!("useradd --create-home {account}\n");
        }
        for n in 0..20 {
            script += &format!("echo 'u{n}: /dev/null' >>/etc/aliases\n");
        }
        script += "echo 'undeliverable: |/bin/false' >>/etc/aliases\n";
        machine.run(&format!("set -e\n{script}"));
    }

    /// Sets exirate up as a page says, with limits that a test can reach, and starts it.
    pub(super) fn install(machine: &Machine, page: &str, record: bool) {
        let policy = document::for_file(page, "toml", "/etc/exirate/policy.toml")[0];
        // Five an hour for a user, eight for a client from outside.
        assert!(policy.contains("\"100/1h\"") && policy.contains("\"1000/1h\""));
        let policy = policy.replace("\"100/1h\"", "\"5/1h\"").replace("\"1000/1h\"", "\"8/1h\"");
        machine.write("/etc/exirate/policy.toml", &(policy + MORE + kit::addresses::POLICIES));
        let config = document::for_file(page, "toml", "/etc/exirate/exirate.toml")[0];
        assert!(config.contains("[mail]\n"));
        let config =
            config.replace("[mail]\n", if record { "[mail]\nrecord = true\n" } else { "[mail]\n" });
        machine.write("/etc/exirate/exirate.toml", &config);
        machine.run(&format!("set -e\n{}", document::commands(page, "systemctl enable")));
        until("exirate listens", || machine.read("/var/log/exirate.log").contains("listening"));
    }

    /// The output of a command of exirate.
    pub(super) fn exirate(&self, line: &str) -> Output {
        self.machine.tried(&format!("exirate {line}"))
    }

    /// The last replies of the log.
    pub(super) fn log(&self) -> String {
        self.machine.read("/var/log/exirate.log")
    }

    /// Checks that a recipient or a message was refused with a policy's text, and with this
    /// code: by policy protocol, Postfix makes its own of it.
    pub(super) fn refused(&self, reply: &Reply, code: u16, text: &str) {
        let code = match (self.front_end, code) {
            (FrontEnd::Policy, 451) => 450,
            (FrontEnd::Policy, _) => 554,
            (_, code) => code,
        };
        assert_eq!(reply.code, code, "{reply:?}\n{}", self.log());
        let enhanced = if code < 500 { "4.7.1" } else { "5.7.1" };
        assert!(reply.text.starts_with(&format!("{code} {enhanced} ")), "{reply:?}");
        assert!(reply.text.contains(text), "{reply:?}");
        match self.front_end {
            FrontEnd::Policy => assert!(reply.text.contains(" rejected: "), "{reply:?}"),
            FrontEnd::Milter => {
                assert!(reply.text.contains(&format!("{enhanced} {text}")), "{reply:?}");
            }
            // It may put the recipient before the text.
            FrontEnd::Sendmail => {}
        }
    }

    /// What swaks, a client of this machine, prints.
    pub(super) fn swaks(&self, arguments: &[&str]) -> String {
        let mut swaks: Command = self.machine.beside("swaks");
        swaks.args(["--server", "192.0.2.1", "--local-interface", "192.0.2.2", "--ehlo", "swaks"]);
        let output = swaks.args(arguments).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}
