//! The mail of accounts in logs, as their habits see it: sender, time, client and recipients.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

use jiff::tz::TimeZone;
use schemars::JsonSchema;
use serde::Serialize;

use crate::event::{Event, Origin};
use crate::identity::Field;
use crate::identity::fold::Folding;
use crate::logs::files::Stamped;
use crate::logs::messages::{Item, ItemKind, JoinCounts, JoinSettings, Joiner};
use crate::policy::habits;
use crate::policy::model::Identity;
use crate::text::time::zone;
use crate::trace::Envelope;

/// A message that an account sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The account, as in the records of policies: `auth:alice@example.org`.
    pub account: String,
    /// When, in seconds since 1970.
    pub at: i64,
    /// From where, where that is known.
    pub client: Option<IpAddr>,
    /// The recipients, folded, each once.
    pub recipients: Vec<String>,
    /// Whether it has no sender: then it is not learned.
    pub is_bounce: bool,
}

impl Sent {
    /// The message of an envelope in the trace store, if an account has sent it.
    #[must_use]
    pub fn of_envelope(identity: &Identity, envelope: &Envelope) -> Option<Self> {
        let Envelope { time, sender, recipients, client, authenticated, .. } = envelope;
        let login = Some(&**authenticated).filter(|login| !login.is_empty());
        let sender = Some(&**sender);
        // Exim calls the user of a program on this machine authenticated.
        let event = match client {
            Some(_) => Event { auth: login, sender, ..Event::default() },
            None => {
                Event { local_account: login, client: Origin::Program, sender, ..Event::default() }
            }
        };
        let account = habits::account(identity, &event)?.text;
        let recipients = folded(&identity.folding, recipients);
        let is_bounce = habits::is_bounce(&event);
        Some(Self { account, at: *time, client: *client, recipients, is_bounce })
    }
}

/// Recipients as habits know them.
fn folded(folding: &Folding, recipients: &[impl AsRef<str>]) -> Vec<String> {
    let folded = recipients.iter().map(|recipient| {
        let mut folded = String::new();
        let _ = folding.field_into(Field::Recipient, recipient.as_ref(), &mut folded);
        folded
    });
    let mut folded: Vec<String> = folded.collect();
    folded.sort_unstable();
    folded.dedup();
    folded
}

/// What accounts have sent since a time of each.
#[derive(Debug, Default)]
pub struct SentSince {
    accounts: HashMap<String, SentMail>,
}

/// What an account has sent since a time.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct SentMail {
    #[serde(skip)]
    since: i64,
    /// How many messages.
    pub messages: u64,
    /// How many of them to each recipient.
    pub recipients: BTreeMap<String, u64>,
    /// How many of them from each client.
    pub clients: BTreeMap<IpAddr, u64>,
}

impl SentSince {
    /// Of these accounts, each since a time in seconds since 1970.
    #[must_use]
    pub fn new(accounts: impl IntoIterator<Item = (String, i64)>) -> Self {
        let mail = |since| SentMail { since, ..SentMail::default() };
        Self { accounts: accounts.into_iter().map(|(key, since)| (key, mail(since))).collect() }
    }

    /// Counts a message, if it is of one of the accounts and no earlier than its time.
    pub fn add(&mut self, sent: &Sent) {
        let Some(mail) = self.accounts.get_mut(&sent.account) else { return };
        if sent.at >= mail.since {
            mail.messages += 1;
            for recipient in &sent.recipients {
                *mail.recipients.entry(recipient.clone()).or_default() += 1;
            }
            if let Some(client) = sent.client {
                *mail.clients.entry(client).or_default() += 1;
            }
        }
    }

    /// How many recipients are counted.
    #[must_use]
    pub fn recipients(&self) -> usize {
        self.accounts.values().map(|mail| mail.recipients.len()).sum()
    }

    /// The mail of an account.
    pub fn of(&mut self, account: &str) -> SentMail {
        self.accounts.remove(account).unwrap_or_default()
    }

    /// The earliest of the times, in seconds since 1970.
    #[must_use]
    pub fn from(&self) -> i64 {
        self.accounts.values().map(|mail| mail.since).min().unwrap_or_default()
    }
}

/// Reads the messages of accounts from the lines of logs.
#[derive(Debug)]
pub struct Senders {
    joiner: Joiner,
    reader: MessageReader,
    /// That of this machine, and of logs that do not say theirs.
    zone: TimeZone,
    /// The time of the latest line.
    latest: i64,
}

/// Makes messages of items.
#[derive(Debug)]
struct MessageReader {
    identity: Identity,
    without_recipients: u64,
    ended: Option<Ended>,
}

/// What waits where the log ends.
#[derive(Debug, Default)]
struct Ended {
    /// The accounts of messages whose recipients the rest of the log will name.
    accounts: HashSet<String>,
    /// A message that was received before, in seconds since 1970, is not waited for.
    from: i64,
    /// Messages that are left for the next time.
    waiting: u64,
}

/// What was read of a log.
#[derive(Debug)]
pub struct Finished {
    /// What became of the lines.
    pub counts: JoinCounts,
    /// How many messages of accounts have recipients that are not known.
    pub without_recipients: u64,
    /// How many are left for the next time: see [`Senders::finish`].
    pub waiting: u64,
}

/// For so long, in seconds, the recipients of a message are waited for.
const WAITS: i64 = 86_400;

impl Senders {
    /// From the start of a log; identities and recipients are folded as the policies in use do.
    #[must_use]
    pub fn new(folding: Folding) -> Self {
        let joiner = Joiner::new(JoinSettings { recipients: true, failures: false });
        let identity = Identity { folding, ..Identity::default() };
        let reader = MessageReader { identity, without_recipients: 0, ended: None };
        Self { joiner, reader, zone: zone(), latest: i64::MIN }
    }

    /// Considers a line, and calls `visit` with every message that is complete.
    pub fn line(&mut self, line: &Stamped<'_>, visit: &mut dyn FnMut(Sent)) {
        let Self { joiner, reader, zone, latest } = self;
        let line = line.in_zone(zone);
        *latest = line.at.seconds.max(*latest);
        joiner.line(&line, &mut |item| reader.item(&item).into_iter().for_each(&mut *visit));
    }

    /// The log has ended: visits what is left. If it `will_go_on` and be read again from its start,
    /// a message of the last day whose recipients it does not name yet is left for then, and so are
    /// those that its account has sent since: who knows these would take it for known as well.
    pub fn finish(self, will_go_on: bool, visit: &mut dyn FnMut(Sent)) -> Finished {
        let Self { mut joiner, mut reader, latest, .. } = self;
        let from = latest.saturating_sub(WAITS);
        reader.ended = will_go_on.then(|| Ended { from, ..Ended::default() });
        joiner.finish(&mut |item| reader.item(&item).into_iter().for_each(&mut *visit));
        let MessageReader { without_recipients, ended, .. } = reader;
        let waiting = ended.map_or(0, |ended| ended.waiting);
        Finished { counts: joiner.counts().clone(), without_recipients, waiting }
    }
}

impl MessageReader {
    /// The message of an item, if an account has sent it.
    fn item(&mut self, item: &Item) -> Option<Sent> {
        let ItemKind::Message(message) = &item.what else { return None };
        let submitter = item.submitter();
        let event = submitter.view();
        let account = habits::account(&self.identity, &event)?.text;
        let has_none = message.recipients.is_empty();
        if let Some(Ended { accounts, from, waiting }) = &mut self.ended
            && (accounts.contains(&account) || has_none && item.at.seconds >= *from)
        {
            *waiting += 1;
            accounts.insert(account);
            return None;
        }
        if has_none {
            self.without_recipients += 1;
            return None;
        }
        let recipients = folded(&self.identity.folding, &message.recipients);
        let client = event.client.address();
        let is_bounce = habits::is_bounce(&event);
        Some(Sent { account, at: item.at.seconds, client, recipients, is_bounce })
    }
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn envelopes_of_the_trace_store_are_mail_of_their_accounts() {
        let identity = Identity::default();
        let envelope = |client: Option<&str>, authenticated: &str, sender: &str| Envelope {
            time: 7,
            sender: sender.into(),
            recipients: vec!["Bob@Example.NET".into()],
            client: client.map(|client| client.parse().unwrap()),
            authenticated: authenticated.into(),
            ..Envelope::default()
        };
        let cases = [
            (Some("192.0.2.7"), "Alice@example.org", "a@b.c", Some("auth:alice@example.org")),
            (None, "www-data", "a@b.c", Some("local_account:www-data")),
            (Some("192.0.2.7"), "", "a@b.c", None),
            (Some("192.0.2.7"), "alice", "", Some("auth:alice")),
            (None, "www-data", "", None),
        ];
        for (client, authenticated, sender, account) in cases {
            let sent = Sent::of_envelope(&identity, &envelope(client, authenticated, sender));
            assert_eq!(sent.as_ref().map(|sent| &*sent.account), account);
            if let Some(sent) = sent {
                assert_eq!((sent.at, &*sent.recipients), (7, &["bob@example.net".to_owned()][..]));
                assert_eq!(sent.is_bounce, sender.is_empty());
            }
        }
    }

    #[test]
    fn mail_is_counted_since_the_time_of_each_account() {
        let mut since = SentSince::new([("auth:a".to_owned(), 10), ("auth:b".to_owned(), 20)]);
        assert_eq!(since.from(), 10);
        let client = Some("192.0.2.7".parse().unwrap());
        for (account, at) in
            [("auth:a", 9), ("auth:a", 10), ("auth:b", 15), ("auth:b", 25), ("c", 30)]
        {
            let recipients = vec![format!("{at}@x.test"), "all@x.test".into()];
            let account = account.into();
            since.add(&Sent { account, at, client, recipients, is_bounce: false });
        }
        let (a, b) = (since.of("auth:a"), since.of("auth:b"));
        assert_eq!((a.messages, b.messages), (1, 1));
        assert!(a.recipients.keys().eq(["10@x.test", "all@x.test"]));
        assert!(b.recipients.keys().eq(["25@x.test", "all@x.test"]) && b.clients.len() == 1);
    }
}
