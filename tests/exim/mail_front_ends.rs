//! Postfix and Sendmail as the daemon's mail front ends see them: the same messages that a
//! real Exim receives.

use std::net::Ipv4Addr;

use crate::policy_replayed::Fate;
use kit::Process;
use kit::front_ends::Machine;
use kit::front_ends::Mta;
use kit::front_ends::{Client, Message};

/// A machine whose daemon speaks both protocols.
pub(crate) struct Daemon {
    pub(crate) machine: Machine,
    _process: Process,
}

impl Daemon {
    /// One with these policies.
    pub(crate) fn start(policies: &str) -> Self {
        let (machine, process) = Machine::with_milter(policies, "");
        Self { machine, _process: process }
    }
}

/// An SMTP connection of a Postfix that asks the policy service.
pub(crate) struct Postfix {
    policy: Client,
    latest: Message,
}

impl Postfix {
    pub(crate) fn connect(daemon: &Daemon, client: Ipv4Addr, login: &str) -> Self {
        let client = client.to_string();
        let policy = Client::connect(&daemon.machine);
        Self { policy, latest: Message { client, ..Message::new(login) } }
    }

    pub(crate) fn send(&mut self, sender: &str, recipients: &[String]) -> Fate {
        self.latest = Message { sender: sender.to_owned(), ..self.latest.next() };
        let Self { policy, latest } = self;
        let mut fate = Fate::default();
        for recipient in recipients {
            fate.recipient(deferred(&policy.rcpt(latest, recipient)));
        }
        let accepted = recipients.len() as u32 - fate.refused;
        if accepted > 0 {
            let only = if accepted == 1 { recipients[0].as_str() } else { "" };
            fate.end(deferred(&policy.end(latest, only, accepted, 20)));
        }
        fate
    }
}

/// The text of an action that defers.
fn deferred(action: &str) -> Option<String> {
    let text = action.strip_prefix("DEFER_IF_PERMIT 4.7.1 ").map(str::to_owned);
    assert!(text.is_some() || action == "DUNNO", "{action}");
    text
}

/// An SMTP connection of a Sendmail with the milter.
pub(crate) struct Sendmail {
    mta: Mta,
    login: String,
}

impl Sendmail {
    pub(crate) fn connect(daemon: &Daemon, client: Ipv4Addr, login: &str) -> Self {
        let mta = Mta::begun_for(&daemon.machine, &client.to_string());
        Self { mta, login: login.to_owned() }
    }

    pub(crate) fn send(&mut self, sender: &str, recipients: &[String]) -> Fate {
        let login = format!("M{{auth_authen}}\0{}\0", self.login);
        self.mta.say(b'D', login.as_bytes());
        self.mta.say(b'M', format!("<{sender}>\0").as_bytes());
        let mut fate = Fate::default();
        for recipient in recipients {
            self.mta.say(b'R', format!("<{recipient}>\0").as_bytes());
            fate.recipient(self.deferred());
        }
        if (fate.refused as usize) < recipients.len() {
            self.mta.say(b'E', b"");
            fate.end(self.deferred());
        } else {
            self.mta.say(b'A', b"");
        }
        fate
    }

    /// The text of the next reply, if it defers.
    fn deferred(&mut self) -> Option<String> {
        let (code, text) = self.mta.reply().unwrap();
        if code == 'c' {
            return None;
        }
        let text = String::from_utf8(text).unwrap();
        let text = text.strip_prefix("451 4.7.1 ").filter(|_| code == 'y');
        Some(text.unwrap_or_else(|| panic!("{code}")).trim_end_matches('\0').replace("%%", "%"))
    }
}
