//! What drove a sender over a limit: the messages in the window, as far as the trace store
//! has them.
//!
//! [`Crossing::read`] finds them and [`Crossing::judgement`] says in a line what they are.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use schemars::JsonSchema;
use serde::Serialize;

use super::rule;
use crate::identity::Field;
use crate::identity::fold::DOMAIN;
use crate::policy::network::Cidr;
use crate::spec::StoredKey;
use crate::spool::{EventWindow, LoggedEvent};
use crate::store::DetailTexts;
use crate::text::counted;
use crate::trace::{
    Accepts, Address, Envelope, Query, QueryResult, Sample, TraceError, TraceStore,
};

/// The most messages of which the envelopes are read, the newest of the window.
pub const MESSAGES_MAX: usize = 50_000;
/// The most messages that are compared with each other: chosen evenly among all of them.
pub const COMPARED_MAX: usize = 256;
/// The most entries of each list.
const LISTED: usize = 10;
/// Clients are counted by networks of so many bits.
const V4_BITS: u8 = 24;
const V6_BITS: u8 = 64;
/// The part of the messages that makes one text of all, if they are alike.
const MOST: f64 = 0.8;
/// Messages that share so much are the same text: no name or link differs.
const SAME: f64 = 0.995;
/// If no more than this part of the messages is alike, they are different.
const FEW: f64 = 0.2;

/// Whose messages are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sender {
    /// The authenticated login.
    Login(String),
    /// A client, or a network of clients.
    Client(Cidr),
    /// The envelope sender; empty for bounces.
    Address(String),
    /// A login or an envelope sender: a key that may be either.
    Name(String),
    /// All logins or senders of this domain.
    Domain(String),
    /// Everybody who writes to this recipient.
    Recipient(String),
}

/// What the messages are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// No message of the sender is recorded in the window.
    Nothing,
    /// One message, perhaps to many recipients.
    OneMessage,
    /// The same text again and again: a newsletter.
    SameText,
    /// One text with changes: a mail merge.
    Variants,
    /// Several texts, each in several messages.
    SeveralTexts,
    /// Each message says something else.
    DifferentTexts,
    /// There is nothing to compare.
    NotCompared,
}

/// Something and how many messages have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Tally {
    /// What is counted.
    pub name: String,
    /// The number of messages.
    pub messages: usize,
}

/// How alike the messages are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Alike {
    /// How many messages were compared, each with each.
    pub compared: usize,
    /// The mean over all pairs of the share of the longer message that the shorter one has
    /// too, 0 to 1.
    pub likeness: f64,
    /// How many groups of messages there are in which each is taken for the text of another
    /// one. A message that is like no other is a group.
    pub texts: usize,
    /// The part of the compared messages that the largest group has.
    pub largest: f64,
    /// The mean likeness within the largest group.
    pub within: f64,
}

/// The messages of a sender in a window of time.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Crossing {
    /// The first second of the window.
    pub since: i64,
    /// The last second.
    pub until: i64,
    /// How many messages there are.
    pub messages: u64,
    /// How many of them are too old to be among those that the rest is about.
    pub omitted: u64,
    /// How many envelope recipients they have together.
    pub recipients: usize,
    /// How many of these are different.
    pub different_recipients: usize,
    /// How many domains these have.
    pub recipient_domains: usize,
    /// The domains with the most messages.
    pub domains: Vec<Tally>,
    /// How many networks the clients are in, /24 of IPv4 and /64 of IPv6.
    pub client_networks: usize,
    /// The networks with the most messages; `local` is without a client.
    pub networks: Vec<Tally>,
    /// How many different envelope senders there are.
    pub different_senders: usize,
    /// The senders with the most messages.
    pub senders: Vec<Tally>,
    /// How alike they are; null if fewer than two could be compared.
    pub alike: Option<Alike>,
    /// What they are.
    pub pattern: Pattern,
    /// What is not known, and why.
    pub unknown: Vec<String>,
}

/// When the messages came that drove a sender over the limit `window`: the first and the last
/// second of the period before `event`.
#[must_use]
pub fn span(event: &LoggedEvent, window: &EventWindow) -> (i64, i64) {
    let until = event.at.seconds;
    (until.saturating_sub(window.period.ceil() as i64), until) // saturates
}

impl Crossing {
    /// The messages of `sender` in the period of the limit `window` that `event` has crossed:
    /// see [`span`].
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn of_event(
        store: &TraceStore,
        sender: &Sender,
        event: &LoggedEvent,
        window: &EventWindow,
    ) -> Result<Self, TraceError> {
        let (since, until) = span(event, window);
        Self::read(store, sender, since, until)
    }

    /// The messages of `sender` from `since` up to `until`, in seconds since 1970.
    ///
    /// At most [`MESSAGES_MAX`] envelopes are read, and the digests of [`COMPARED_MAX`] messages
    /// are compared, each with each: some 33,000 comparisons, of bits.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn read(
        store: &TraceStore,
        sender: &Sender,
        since: i64,
        until: i64,
    ) -> Result<Self, TraceError> {
        Self::sampled(store, sender, (since, until), COMPARED_MAX)
    }

    /// As [`of_event`](Self::of_event), without comparing the messages.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn counted(
        store: &TraceStore,
        sender: &Sender,
        event: &LoggedEvent,
        window: &EventWindow,
    ) -> Result<Self, TraceError> {
        Self::sampled(store, sender, span(event, window), 0)
    }

    fn sampled(
        store: &TraceStore,
        sender: &Sender,
        (since, until): (i64, i64),
        compared: usize,
    ) -> Result<Self, TraceError> {
        let is_sent = |envelope: &Envelope| sender.is_of(envelope);
        let accepts = move |result: &QueryResult| is_sent(&result.envelope);
        let (from, to) = match sender {
            Sender::Address(address) => (Some(Address::Is(address.clone())), None),
            Sender::Recipient(address) => (None, Some(Address::Is(address.clone()))),
            _ => (None, None),
        };
        let query = Query {
            since: Some(since),
            until: Some(until),
            from,
            to,
            accepts: Some(Accepts(Box::new(accepts))),
            ..Query::default()
        };
        let sample = store.sample(&query, MESSAGES_MAX, compared)?;
        Ok(Self::of(&sample, since, until))
    }

    /// What a sample of messages shows.
    #[must_use]
    pub fn of(sample: &Sample, since: i64, until: i64) -> Self {
        let messages = &sample.messages;
        let mut recipients = BTreeSet::new();
        let (mut domains, mut networks, mut senders) = (Count::new(), Count::new(), Count::new());
        for envelope in messages {
            let own: BTreeSet<String> =
                envelope.recipients.iter().map(|address| address.to_lowercase()).collect();
            let own_domains: BTreeSet<&str> =
                own.iter().map(|address| domain_of(address)).collect();
            own_domains.into_iter().for_each(|domain| add(&mut domains, domain.to_owned()));
            recipients.extend(own);
            let network = envelope.client.map(|client| network_text(network_of(client)));
            add(&mut networks, network.unwrap_or_else(|| "local".to_owned()));
            add(&mut senders, envelope.sender.to_lowercase());
        }
        let alike = Alike::of(sample);
        let different: BTreeSet<&str> =
            recipients.iter().map(|address| domain_of(address)).collect();
        let pattern = match (messages.len(), &alike) {
            (0, _) => Pattern::Nothing,
            (1, _) => Pattern::OneMessage,
            (_, None) => Pattern::NotCompared,
            (_, Some(alike)) => alike.pattern(),
        };
        Self {
            since,
            until,
            messages: messages.len() as u64 + sample.omitted,
            omitted: sample.omitted,
            recipients: messages.iter().map(|envelope| envelope.recipients.len()).sum(),
            different_recipients: recipients.len(),
            recipient_domains: different.len(),
            domains: largest(&domains),
            client_networks: networks.len(),
            networks: largest(&networks),
            different_senders: senders.len(),
            senders: largest(&senders),
            alike,
            pattern,
            unknown: not_compared(sample),
        }
    }

    /// One line: what the messages are, with the numbers that say so.
    #[must_use]
    pub fn judgement(&self) -> String {
        let percent = |part: f64| format!("{:.0}%", part * 100.0);
        let alike = self.alike.clone().unwrap_or_default();
        let what = match self.pattern {
            Pattern::Nothing => return "no message is recorded in this time".to_owned(),
            Pattern::OneMessage => "one message".to_owned(),
            Pattern::SameText => {
                format!(
                    "one text, sent again and again: {}",
                    counted(self.messages, "message", "messages")
                )
            }
            Pattern::Variants => format!(
                "one text with changes: {}, {} alike",
                counted(self.messages, "message", "messages"),
                percent(alike.within)
            ),
            Pattern::SeveralTexts => format!(
                "several texts: {}, {} alike, in {} groups, the largest with {} of them",
                counted(self.messages, "message", "messages"),
                percent(alike.likeness),
                alike.texts,
                percent(alike.largest)
            ),
            Pattern::DifferentTexts => format!(
                "different texts: {}, {} alike",
                counted(self.messages, "message", "messages"),
                percent(alike.likeness)
            ),
            Pattern::NotCompared => counted(self.messages, "message", "messages"),
        };
        format!(
            "{what}, to {} in {}, from {}",
            counted(self.different_recipients, "recipient", "recipients"),
            counted(self.recipient_domains, "domain", "domains"),
            counted(self.client_networks, "client network", "client networks")
        )
    }
}

impl Sender {
    /// The sender whose record `event` is about; `None` if that is no sender.
    #[must_use]
    pub fn of_event(event: &LoggedEvent) -> Option<Self> {
        let key = event.record_key();
        if let Some([_, _, _, identity]) = rule::parts(&key) {
            let fields = rule::fields(identity);
            return fields.iter().find_map(|(field, value)| Self::of_field(field, value));
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_lowercase();
        let key = text(StoredKey::parse(key.name).map_or(key.name, |parts| parts.key));
        let DetailTexts { login, client, sender, .. } = event.texts.map(|bytes| text(bytes));
        let is_in_key = |text: &str| !text.is_empty() && key.contains(text);
        match () {
            () if is_in_key(&login) => Some(Self::Login(login)),
            () if is_in_key(&client) => Self::of_field("client", &client),
            () if is_in_key(&sender) => Some(Self::Address(sender)),
            () => Self::of_field("client", &key).or(Some(Self::Name(key))),
        }
    }

    /// The sender that a field of a policy's key names.
    fn of_field(field: &str, value: &str) -> Option<Self> {
        let value = value.to_owned();
        match Field::of(field.as_bytes()) {
            Some(Field::Auth) => Some(Self::Login(value)),
            Some(Field::Client | Field::Client56 | Field::Client48) => {
                Cidr::parse(&value).ok().map(Self::Client)
            }
            Some(Field::LocalAccount) => Some(Self::Name(value)),
            Some(Field::Sender) => Some(Self::Address(value)),
            Some(Field::SenderDomain) => Some(Self::Domain(value)),
            Some(Field::Recipient) => Some(Self::Recipient(value)),
            Some(
                Field::Script
                | Field::RecipientDomain
                | Field::Destination
                | Field::Helo
                | Field::Server,
            ) => None,
            // The key that all users of a domain share.
            None => (field == DOMAIN).then_some(Self::Domain(value)),
        }
    }

    /// Who is meant, in words.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Self::Login(login) => format!("the login {login}"),
            Self::Client(network) => match (network.address(), network.bits()) {
                (address @ IpAddr::V4(_), 32) | (address, 128) => format!("the client {address}"),
                (address, bits) => format!("the clients in {address}/{bits}"),
            },
            Self::Address(address) if address.is_empty() => "the null sender".to_owned(),
            Self::Address(address) => format!("the sender {address}"),
            Self::Name(name) => format!("the login or sender {name}"),
            Self::Domain(domain) => format!("the logins and senders of {domain}"),
            Self::Recipient(address) => format!("everybody to {address}"),
        }
    }

    /// Whether a message is meant.
    fn is_of(&self, envelope: &Envelope) -> bool {
        let in_domain = |address: &str, domain: &str| {
            address.contains('@') && domain_of(address).eq_ignore_ascii_case(domain)
        };
        match self {
            Self::Login(login) => envelope.authenticated.to_lowercase() == login.to_lowercase(),
            Self::Client(network) => envelope.client.is_some_and(|client| network.contains(client)),
            Self::Domain(domain) => {
                in_domain(&envelope.authenticated, domain) || in_domain(&envelope.sender, domain)
            }
            Self::Name(name) => {
                let is_name = |text: &str| text.to_lowercase() == name.to_lowercase();
                is_name(&envelope.authenticated) || is_name(&envelope.sender)
            }
            // The store knows these.
            Self::Address(_) | Self::Recipient(_) => true,
        }
    }
}

impl Alike {
    /// How alike the messages of a sample are; `None` if no two can be compared.
    fn of(sample: &Sample) -> Option<Self> {
        let sketches = &sample.sketches;
        let mut groups: Vec<usize> = (0..sketches.len()).collect();
        let (mut sum, mut pairs) = (0.0, 0_u32);
        let mut shares = Vec::new();
        for (n, (_, one)) in sketches.iter().enumerate() {
            for (m, (_, other)) in sketches.iter().enumerate().take(n) {
                let Some(likeness) = one.likeness(other) else { continue };
                sum += likeness.share;
                pairs += 1;
                shares.push((n, m, likeness.share));
                if likeness.is_same_text(sketches.len()) {
                    let (a, b) = (root(&groups, n), root(&groups, m));
                    if let Some(group) = groups.get_mut(a.max(b)) {
                        *group = a.min(b);
                    }
                }
            }
        }
        if pairs == 0 {
            return None;
        }
        let mut sizes: BTreeMap<usize, usize> = BTreeMap::new();
        for n in 0..sketches.len() {
            *sizes.entry(root(&groups, n)).or_default() += 1;
        }
        let (group, size) = sizes.iter().max_by_key(|(_, size)| **size)?;
        let within: Vec<f64> = shares
            .iter()
            .filter(|(n, m, _)| root(&groups, *n) == *group && root(&groups, *m) == *group)
            .map(|(_, _, share)| *share)
            .collect();
        let mean = |sum: f64, count: usize| (sum / count.max(1) as f64).clamp(0.0, 1.0);
        Some(Self {
            compared: sketches.len(),
            likeness: mean(sum, pairs as usize),
            texts: sizes.len(),
            largest: *size as f64 / sketches.len() as f64,
            within: mean(within.iter().sum(), within.len()),
        })
    }

    fn pattern(&self) -> Pattern {
        match self {
            Self { largest, within, .. } if *largest >= MOST && *within >= SAME => {
                Pattern::SameText
            }
            Self { largest, .. } if *largest >= MOST => Pattern::Variants,
            // Two messages, or each of a group of few with one like it.
            Self { texts, compared, .. } if texts == compared => Pattern::DifferentTexts,
            Self { largest, likeness, .. } if *largest <= FEW && *likeness <= FEW => {
                Pattern::DifferentTexts
            }
            _ => Pattern::SeveralTexts,
        }
    }
}

/// The first message of the group that message `n` is in.
fn root(groups: &[usize], mut n: usize) -> usize {
    while let Some(&above) = groups.get(n).filter(|above| **above != n) {
        n = above;
    }
    n
}

type Count = BTreeMap<String, usize>;

fn add(count: &mut Count, name: String) {
    *count.entry(name).or_default() += 1;
}

/// The entries with the most messages.
fn largest(count: &Count) -> Vec<Tally> {
    let mut all: Vec<Tally> =
        count.iter().map(|(name, &messages)| Tally { name: name.clone(), messages }).collect();
    all.sort_by_key(|tally| std::cmp::Reverse(tally.messages));
    all.truncate(LISTED);
    all
}

/// What follows the last `@`; all of an address without one.
fn domain_of(address: &str) -> &str {
    address.rsplit('@').next().unwrap_or_default()
}

/// The network that a client is counted in.
#[must_use]
pub fn network_of(client: IpAddr) -> Cidr {
    let bits = if client.to_canonical().is_ipv4() { V4_BITS } else { V6_BITS };
    Cidr::around(client, bits)
}

/// `192.0.2.0/24`.
fn network_text(network: Cidr) -> String {
    format!("{}/{}", network.address(), network.bits())
}

/// What is not known of the messages of a sample, in sentences.
fn not_compared(sample: &Sample) -> Vec<String> {
    let mut unknown = Vec::new();
    if sample.mixed > 0 {
        unknown.push(format!(
            "{} of the messages are in sealed segments of the scheme hbf, which does not keep \
             their digests apart: they were not compared",
            sample.mixed
        ));
    }
    if sample.otherwise > 0 {
        unknown.push(format!(
            "{} of the messages were recorded with other settings, or by another version: they \
             were not compared",
            sample.otherwise
        ));
    }
    let without = sample.chosen - sample.sketches.len() - sample.mixed - sample.otherwise;
    if without > 0 {
        unknown.push(format!(
            "{without} of the messages have no text, or are very large: they were not compared"
        ));
    }
    if sample.omitted > 0 {
        unknown
            .push(format!("the {} oldest messages of the window are only counted", sample.omitted));
    }
    if sample.other_key > 0 {
        unknown.push(format!(
            "{} of the trace store not searched: written with another key",
            counted(sample.other_key, "file", "files")
        ));
    }
    if !sample.damaged.is_empty() {
        unknown.push(format!(
            "{} in the trace store: see `exirate verify`",
            counted(sample.damaged.len(), "damaged file", "damaged files")
        ));
    }
    unknown
}

#[cfg(test)]
mod tests;
