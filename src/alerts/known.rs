//! What is known of who went over a limit, besides the event: what an alert says in a
//! sentence, and the commands to act.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use serde::Serialize;

use crate::engine::RecordKey;
use crate::history::explain::crossing::{Crossing, Sender};
use crate::history::explain::rule;
use crate::identity::Field;
use crate::identity::fold::CUSTOMER;
use crate::spool::{Enforcement, EventKind, LoggedEvent};
use crate::standing::in_force::until;
use crate::standing::key_text;
use crate::standing::logged::{decisive, in_period, key};
use crate::text::{self, counted};
use crate::trace::TraceStore;

/// What an alert says besides its event.
#[derive(Clone, Debug, Serialize)]
pub(super) struct AlertContext {
    /// Who it is, as people call them: the login, the address of the client.
    pub(super) who: String,
    /// What has happened, in a sentence.
    pub(super) text: String,
    /// How many refusals of the key are logged since.
    refused: usize,
    /// To how many different recipients, as far as the journal knows.
    recipients: usize,
    /// From how many addresses of clients.
    clients: usize,
    /// The messages in the period before, where they are recorded.
    messages: Option<u64>,
    pub(super) commands: Commands,
}

/// Commands that can be pasted.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Commands {
    explain: String,
    deny: String,
    unblock: String,
    /// Of an alarm of habits.
    #[serde(flatten)]
    answers: Option<Answers>,
}

/// Commands that answer an alarm of habits.
#[derive(Clone, Debug, Serialize)]
struct Answers {
    accept: String,
    stolen: String,
    held: String,
}

/// Where more is known.
pub(super) struct Sources<'a> {
    /// The name of this server.
    pub(super) host: &'a str,
    /// The log of refusals, by the names of records.
    pub(super) refusals: HashMap<&'a [u8], Vec<&'a LoggedEvent>>,
    /// The messages of the period before are counted there.
    pub(super) traces: Option<&'a TraceStore>,
    /// The spool directory, where commands have to name it.
    pub(super) spool: Option<&'a Path>,
}

impl<'a> Sources<'a> {
    /// Where nothing more is known.
    pub(super) fn of(host: &'a str) -> Self {
        Self { host, refusals: HashMap::new(), traces: None, spool: None }
    }
}

impl AlertContext {
    pub(super) fn of(event: &LoggedEvent, sources: &Sources<'_>) -> Self {
        let refusals = sources.refusals.get(&*event.stored).into_iter().flatten().copied();
        let refusals: Vec<&LoggedEvent> = refusals.filter(|other| other.at >= event.at).collect();
        let each = || std::iter::once(event).chain(refusals.iter().copied());
        let different = |of: &dyn Fn(&LoggedEvent) -> Vec<u8>| {
            each().map(of).filter(|text| !text.is_empty()).collect::<BTreeSet<_>>().len()
        };
        let window = decisive(event);
        let recorded = sources
            .traces
            .zip(Sender::of_event(event))
            .and_then(|(store, sender)| Crossing::counted(store, &sender, event, &window).ok());
        let recorded = recorded.filter(|recorded| recorded.messages > 0);
        let mut known = Self {
            who: who(&event.record_key()),
            text: String::new(),
            refused: refusals.len(),
            recipients: different(&|event| event.texts.recipient.clone()),
            clients: different(&|event| event.texts.client.clone()),
            messages: recorded.as_ref().map(|recorded| recorded.messages),
            commands: Commands::of(event, sources.spool),
        };
        known.text = known.sentence(event, &refusals, sources.host, recorded.as_ref());
        known
    }

    /// How many, to how many, from where, since when, and against which limit, as far as it is
    /// known.
    fn sentence(
        &self,
        event: &LoggedEvent,
        refusals: &[&LoggedEvent],
        host: &str,
        recorded: Option<&Crossing>,
    ) -> String {
        let window = decisive(event);
        let texts = event.texts.map(|text| text::printable(text));
        if event.is_alarm() {
            let (who, evidence, at) = (&self.who, &texts.evidence, text::local(event.at));
            return format!("{who} may be stolen: {evidence} ({host}, {at}).");
        }
        let policy = match &*texts.policy {
            "" => String::new(),
            policy => format!(" of the policy {policy}"),
        };
        if event.is_overdue() {
            let (who, at) = (&self.who, text::local(event.at));
            // A kill may have left it out.
            let done = Some(texts.evidence).filter(|done| !done.is_empty());
            let done = done.map(|done| format!(", and is {done}")).unwrap_or_default();
            return format!(
                "{who}: mail has waited for longer than `longest`{policy} allows{done} ({host}, {at}). \
                 This is said once a day."
            );
        }
        let still = if event.kind == EventKind::Refusals { "still " } else { "" };
        let mut text = format!(
            "{} is {still}over the limit of {} {} {}{policy} on {host}, with {:.1} at {}",
            self.who,
            text::number(window.limit),
            unit(event),
            in_period(event, &window),
            window.after,
            text::local(event.at),
        );
        if !texts.client.is_empty() && texts.client != self.who {
            text += &format!(", from {}", texts.client);
        }
        if self.clients > 1 {
            text +=
                &format!(" and {}", counted(self.clients - 1, "other address", "other addresses"));
        }
        text += &script(event, refusals, &self.who);
        text += match event.enforcement {
            Enforcement::Enforced => "",
            Enforcement::Observed => ", which is only observed",
            Enforcement::Exempt => ", and exempt",
            Enforcement::Waits => ", and waits",
        };
        if let Some(block) = event.blocked() {
            let unblock = &self.commands.unblock;
            text += &format!("; blocked {}: `{unblock}` ends that", until(block));
        }
        if let Some(recorded) = recorded {
            text += &format!(
                "; recorded of that time: {} to {}, {} different, from {}",
                counted(recorded.messages, "message", "messages"),
                counted(recorded.recipients as u64, "recipient", "recipients"),
                recorded.different_recipients,
                counted(recorded.client_networks as u64, "network", "networks"),
            );
        }
        if self.refused > 0 {
            text += &format!("; refused since: {} or more", self.refused);
        }
        if self.recipients > 1 {
            text += &format!(", to {} recipients in all", self.recipients);
        }
        text + "."
    }
}

impl Commands {
    fn of(event: &LoggedEvent, spool: Option<&Path>) -> Self {
        let bytes = key(event);
        // Byte for byte where a shell can have it so; else in escapes, which mean the same key.
        let literal = std::str::from_utf8(bytes).ok().filter(|key| text::printable(bytes) == **key);
        let (option, key) = match literal {
            Some(key) => (" --exact", key.to_owned()),
            None => ("", key_text::key(bytes)),
        };
        let spool =
            spool.map(|spool| format!(" --spool {}", text::shell(&spool.display().to_string())));
        let spool = spool.unwrap_or_default();
        let end = if key.starts_with('-') { " --" } else { "" };
        let key = text::shell(&key);
        let command = |word: &str| format!("exirate {word}{option}{spool}{end} {key}");
        let answer = |word: &str| {
            let key = text::shell(&key_text::key(bytes));
            format!("exirate {word}{spool}{end} {key}")
        };
        let is_alarm = event.is_alarm();
        Self {
            explain: if is_alarm { answer("explain --habits") } else { command("explain") },
            deny: command("deny"),
            unblock: command("unblock"),
            answers: is_alarm.then(|| Answers {
                accept: answer("habits accept"),
                stolen: answer("habits stolen"),
                held: answer("held"),
            }),
        }
    }

    /// What each is for, as a line of a mail, and itself.
    pub(super) fn each(&self) -> Vec<(&'static str, &str)> {
        match &self.answers {
            None => vec![
                ("Why, and when mail passes again", &self.explain),
                ("Stop all of it for a day", &self.deny),
                ("Let it send again now", &self.unblock),
            ],
            Some(answers) => vec![
                ("What each signal has added", &self.explain),
                ("It was the owner: let it go on", &answers.accept),
                ("It was a thief: stop it, and list the people it wrote to", &answers.stolen),
                ("Its messages that policies hold", &answers.held),
            ],
        }
    }
}

/// The script that was seen last, unless `who` names it, and how many others were.
fn script(event: &LoggedEvent, refusals: &[&LoggedEvent], who: &str) -> String {
    let events = std::iter::once(event).chain(refusals.iter().copied());
    let named: Vec<&LoggedEvent> = events.filter(|event| !event.texts.script.is_empty()).collect();
    let Some(last) = named.iter().max_by_key(|event| event.at) else { return String::new() };
    let last = text::printable(&last.texts.script);
    if who.ends_with(&format!("script {last}")) {
        return String::new();
    }
    let all: BTreeSet<&[u8]> = named.iter().map(|event| &*event.texts.script).collect();
    let others = match all.len() - 1 {
        0 => String::new(),
        n => format!(" and {}", counted(n, "other script", "other scripts")),
    };
    format!(", by the script {last}{others}")
}

/// Who was counted, without what keys begin with: the login `alice`, not `auth:alice`.
fn who(record: &RecordKey<'_>) -> String {
    let Some([_, _, _, identity]) = rule::parts(record) else {
        return key_text::title(key_text::key_of(record));
    };
    let name = |(field, value): (String, String)| {
        let value = text::printable(value.as_bytes());
        match Field::of(field.as_bytes()) {
            Some(Field::Auth | Field::Client | Field::Client56 | Field::Client48) => value,
            Some(Field::LocalAccount) => format!("local user {value}"),
            Some(Field::Script) => format!("script {value}"),
            Some(Field::Sender) if value.is_empty() => "the null sender".to_owned(),
            Some(Field::Sender) => format!("sender {value}"),
            Some(Field::SenderDomain) => format!("senders of {value}"),
            Some(Field::Recipient) => format!("mail to {value}"),
            Some(Field::RecipientDomain | Field::Destination) => format!("mail to {value}"),
            Some(Field::Helo) => format!("clients called {value}"),
            Some(Field::Server) => format!("all of the server {value}"),
            None if field == CUSTOMER => format!("all of customer {value}"),
            None => format!("all of {value}"),
        }
    };
    let names: Vec<String> = rule::fields(identity).into_iter().map(name).collect();
    match names.is_empty() {
        true => key_text::title(key_text::key_of(record)),
        false => names.join(", "),
    }
}

/// What is counted.
fn unit(event: &LoggedEvent) -> String {
    let of_policy = text::printable(&event.texts.unit);
    if !of_policy.is_empty() {
        return of_policy.replace("unique_", "different ").replace('_', " ");
    }
    let key = event.record_key();
    match key_text::parts(&key).map(|parts| parts.mode) {
        Some(b"per_rcpt") => "recipients",
        Some(b"per_addr") => "different recipients",
        Some(b"per_mail") => "messages or bytes",
        Some(b"per_conn") => "connections",
        Some(b"per_cmd") => "commands",
        _ => "events",
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{AlgorithmKind, Kind};
    use crate::rate::Timestamp;
    use crate::spool::EventWindow;

    #[test]
    fn keys_are_called_as_people_call_them() {
        let of = |kind, prefix: &str, identity: &str| {
            let name = format!("{prefix}{identity}").into_bytes();
            let algorithm = AlgorithmKind::MovingAverage;
            who(&RecordKey { name: &name, identity_start: prefix.len(), kind, algorithm })
        };
        for (identity, called) in [
            ("auth:alice@example.org", "alice@example.org"),
            ("client:192.0.2.7", "192.0.2.7"),
            ("auth:alice,client:2001:db8::", "alice, 2001:db8::"),
            ("auth:a,,b", "a,b"),
            ("local_account:www-data", "local user www-data"),
            ("script:/var/www/x.php", "script /var/www/x.php"),
            ("sender:bob@example.org", "sender bob@example.org"),
            ("sender:", "the null sender"),
            ("sender_domain:example.org", "senders of example.org"),
            ("recipient:bob@example.org", "mail to bob@example.org"),
            ("helo:pc", "clients called pc"),
            ("domain:example.org", "all of example.org"),
            ("server:mail1", "all of the server mail1"),
            ("customer:acme", "all of customer acme"),
            ("auth:a\nb", "a\\nb"),
        ] {
            assert_eq!(of(Kind::Policy, "out/recipients/1h/", identity), called);
        }
        // The key of a spec is literal.
        assert_eq!(of(Kind::Spec, "1h/per_rcpt/", "auth:alice"), "auth:alice");
        assert_eq!(of(Kind::Spec, "1h/per_rcpt/", ""), "(the empty key)");
    }

    #[test]
    fn mail_that_has_waited_too_long_is_no_limit() {
        let (prefix, key) = ("pace/overdue_recipients/daily/", "destination:google");
        let event = |prefix: &str| {
            let (name, window) = ([prefix, key].concat(), EventWindow::default());
            let event = LoggedEvent::invented(name.as_bytes(), window, Timestamp::default());
            let mut event = event.of_kind(Kind::Policy, prefix.len());
            event.texts.policy = b"pace".to_vec();
            event.texts.evidence = b"returned to its sender".to_vec();
            event
        };
        let said = AlertContext::of(&event(prefix), &Sources::of("mail1")).text;
        let expected = "mail to google: mail has waited for longer than `longest` of the policy pace \
                        allows, and is returned to its sender (mail1, ";
        assert!(said.starts_with(expected), "{said}");
        assert!(!event("pace/recipients/1m/").is_overdue());
    }

    #[test]
    fn the_script_that_was_seen_last_is_named() {
        let of = |name: &str, seconds| {
            let at = Timestamp { seconds, micros: 0 };
            let mut event = LoggedEvent::invented(b"x", EventWindow::default(), at);
            event.texts.script = name.as_bytes().to_vec();
            event
        };
        let (first, none) = (of("/a:b.php", 1), of("", 4));
        let (second, third) = (of("/c\n", 2), of("/a:b.php", 3));
        assert_eq!(script(&none, &[], "alice"), "");
        assert_eq!(script(&first, &[&none], "local user www"), ", by the script /a:b.php");
        assert_eq!(script(&first, &[], "local user www, script /a:b.php"), "");
        let text = ", by the script /c\\n and 1 other script";
        assert_eq!(script(&first, &[&second], "local user www"), text);
        let text = ", by the script /a:b.php and 1 other script";
        assert_eq!(script(&first, &[&second, &third, &none], "local user www"), text);
    }

    #[test]
    fn commands_name_the_key_byte_for_byte_where_a_shell_can_have_it() {
        let of = |key: &[u8]| {
            let stored = [b"1h/per_rcpt/", key].concat();
            let event =
                LoggedEvent::invented(&stored, EventWindow::default(), Timestamp::default());
            Commands::of(&event, None).deny
        };
        assert_eq!(of(b"alice@example.org"), "exirate deny --exact alice@example.org");
        assert_eq!(of(b"it's *"), "exirate deny --exact \"it's *\"");
        assert_eq!(of(b"-x"), "exirate deny --exact -- -x");
        assert_eq!(of(b""), "exirate deny --exact ''");
        // In double quotes, a shell reads two backslashes as one.
        assert_eq!(of(b"a\xff*"), r#"exirate deny "a\\xff\\*""#);
        assert_eq!(of(b"a\nb"), r#"exirate deny "a\\nb""#);
    }
}
