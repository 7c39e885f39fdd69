//! The mail of accounts in logs, as their habits see it: sender, time, client and recipients.

use std::collections::HashSet;
use std::net::IpAddr;

use jiff::tz::TimeZone;

use crate::identity::Field;
use crate::identity::fold::Folding;
use crate::logs::files::Stamped;
use crate::logs::messages::{Item, ItemKind, JoinCounts, JoinSettings, Joiner};
use crate::policy::habits;
use crate::policy::model::Identity;
use crate::text::time::zone;

/// A message that an account sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The account, as in the records of policies: `auth:alice@example.org`.
    pub account: String,
    /// When, in seconds since 1970.
    pub at: i64,
    /// From where, where that is known.
    pub client: Option<IpAddr>,
    /// The recipients, folded.
    pub recipients: Vec<String>,
}

/// Reads the messages of accounts from the lines of logs.
#[derive(Debug)]
pub struct Senders {
    joiner: Joiner,
    reader: Reader,
    /// That of this machine, and of logs that do not say theirs.
    zone: TimeZone,
    /// The time of the latest line.
    latest: i64,
}

/// Makes messages of items.
#[derive(Debug)]
struct Reader {
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
        let reader = Reader { identity, without_recipients: 0, ended: None };
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
        let Reader { without_recipients, ended, .. } = reader;
        let waiting = ended.map_or(0, |ended| ended.waiting);
        Finished { counts: joiner.counts().clone(), without_recipients, waiting }
    }
}

impl Reader {
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
        let folding = &self.identity.folding;
        let recipients = message.recipients.iter().map(|recipient| {
            let mut folded = String::new();
            let _ = folding.field_into(Field::Recipient, recipient, &mut folded);
            folded
        });
        let recipients = recipients.collect();
        let client = event.client.address();
        Some(Sent { account, at: item.at.seconds, client, recipients })
    }
}
