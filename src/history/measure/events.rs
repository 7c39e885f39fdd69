//! The events in logs that rates are measured of.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::rc::Rc;

use regex::Regex;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use super::MeasureError;
use super::runs::{self, Runs};
use crate::event::Event;
use crate::history::explain::rule;
use crate::identity::Field;
use crate::identity::fold::{CUSTOMER, DOMAIN, Folding, domain};
use crate::logs::files::Stamped;
use crate::logs::item::Text;
use crate::logs::messages::{Item, ItemKind, JoinSettings, Joiner};
use crate::logs::unused::{Reason, Unused};
use crate::policy::image::{Image, ImageError};
use crate::policy::key::{self, Key};
use crate::policy::limit::Subject;
use crate::policy::model::Identity;
use crate::rate::Timestamp;

/// At most so many keys, and so many bytes of them.
const KEYS_MAX: usize = 4 << 20;
const KEY_BYTES_MAX: usize = 256 << 20;
/// Of a key, so many bytes are kept: `--match` may find the whole line.
const KEY_MAX: usize = 4096;

/// The identity that a message counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum By {
    /// The envelope sender
    Sender,
    /// The client's IP address; of IPv6, its network of 64 bits
    Host,
    /// The authenticated user (A=), in lower case
    Auth,
    /// The local user, or the ident of a client (U=)
    User,
    /// The domain of the authenticated user
    Domain,
    /// The customer of the authenticated or local user, as a policy file has it
    Customer,
    /// All messages together
    All,
}

impl By {
    /// Whether several users count together by it, whom policies know.
    #[must_use]
    pub fn is_of_group(self) -> bool {
        matches!(self, Self::Domain | Self::Customer)
    }
}

/// The identity that mail counts for.
#[derive(Clone, Debug)]
pub struct MeasuredBy {
    /// Which.
    pub by: By,
    /// How users are known, as the policies say.
    identity: Identity,
    /// The policies with the customers.
    image: Option<Rc<Image>>,
}

impl MeasuredBy {
    /// By this, with the policies that know users and customers.
    ///
    /// # Errors
    /// The policies are damaged.
    pub fn new(by: By, image: Option<Rc<Image>>) -> Result<Self, ImageError> {
        let identity = match &image {
            Some(image) => image.identity()?.clone(),
            None => Identity::default(),
        };
        Ok(Self { by, identity, image })
    }

    /// The identity that such mail counts for, if it has one.
    pub fn identity<'a>(&self, event: &Event<&'a str>) -> Option<Cow<'a, str>> {
        match self.by {
            By::All => Some(Cow::Borrowed("")),
            By::Sender if event.sender == Some("") => Some(Cow::Borrowed("<>")),
            By::Sender => event.sender.map(Cow::Borrowed),
            // As the shipped ACLs count them.
            By::Host => {
                let network = |client| Folding::default().client(client).to_string();
                event.client.address().map(|client| Cow::Owned(network(client)))
            }
            By::Auth => event.auth.map(|login| match Folding::default() {
                folding if folding.is_folded(login) => Cow::Borrowed(login),
                folding => folding.identity(login).map_or(Cow::Borrowed(login), Cow::Owned),
            }),
            By::User => event.local_account.map(Cow::Borrowed),
            By::Domain | By::Customer => {
                let field = if event.auth.is_some() { Field::Auth } else { Field::LocalAccount };
                let key = Key::of(&self.identity, &[field], event)?;
                self.group(None, &key.identity).map(Cow::Owned)
            }
        }
    }

    /// The domain or the customer of a user, by this policy or by the first that knows it.
    fn group(&self, policy: Option<&str>, user: &str) -> Option<String> {
        if self.by == By::Domain {
            return domain(user).map(str::to_owned);
        }
        let subject = Subject { identity: user, ..Subject::default() };
        let mut all = self.image.as_deref()?.each();
        all.find_map(|(name, image)| {
            let is_meant = policy.is_none_or(|policy| policy == name);
            image.ok().filter(|_| is_meant)?.customer(&subject).ok()?.map(str::to_owned)
        })
    }

    /// The same of what a policy has counted as `identity`, as the key of a total: `customer:acme`.
    #[must_use]
    pub fn group_of_key(&self, policy: &str, identity: &str) -> Option<String> {
        let (field, value) = rule::fields(identity).into_iter().next()?;
        let known = Field::of(field.as_bytes());
        let name = match (&*field, self.by) {
            (DOMAIN, _) => self.group(Some(policy), &format!("@{value}")),
            (CUSTOMER, By::Customer) => Some(value),
            _ if matches!(known, Some(Field::Auth | Field::LocalAccount | Field::Script)) => {
                self.group(Some(policy), &value)
            }
            _ => None,
        };
        let key = if self.by == By::Domain { key::of_domain } else { key::of_customer };
        name.as_deref().map(key)
    }
}

/// What is kept of a key.
pub fn cut(key: &str) -> &str {
    let end = key.floor_char_boundary(KEY_MAX);
    key.get(..end).unwrap_or(key)
}

/// What of a message counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Count {
    /// Each one once
    Messages,
    /// Its size (S=)
    Bytes,
    /// Its recipients: those that log_selector = +received_recipients adds to its line,
    /// else those of its deliveries
    Recipients,
    /// Its recipients, each once a period: different ones, as per_addr counts them
    Different,
}

impl Count {
    /// The word that stands for it in arguments and tables.
    pub fn word(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Bytes => "bytes",
            Self::Recipients => "recipients",
            Self::Different => "different",
        }
    }

    /// The mode of a spec which counts the same, with a slash.
    pub fn mode(self) -> &'static str {
        match self {
            Self::Messages => " / per_mail",
            Self::Bytes => " / per_byte",
            Self::Recipients => " / per_rcpt",
            Self::Different => " / per_addr",
        }
    }

    /// What messages lack that are not counted `by` this.
    pub fn lacking(self, by: By) -> &'static str {
        match (by, self) {
            (By::Auth, Self::Messages) => "an authenticated user (A=)",
            (By::Host, Self::Messages) => "a client (H=)",
            (By::User, Self::Messages) => "a user (U=)",
            (By::Domain, Self::Messages) => "an authenticated user with a domain (A=)",
            (By::Customer, Self::Messages) => "a user of a customer",
            (By::Sender | By::All, Self::Recipients | Self::Different) => {
                "a recipient (neither `for` nor a delivery)"
            }
            (By::Sender | By::All, _) => "a size (S=)",
            (_, Self::Bytes) => "such an identity or a size (S=)",
            (_, Self::Recipients | Self::Different) => {
                "such an identity or a recipient (neither `for` nor a delivery)"
            }
        }
    }
}

/// What of which lines counts, and for which identity.
#[derive(Debug)]
pub enum Measured<'a> {
    /// Messages that came in, counted in each of these ways.
    Arrivals(MeasuredBy, Vec<Count>),
    /// Lines that match: group 1 is the key, group 2 the size.
    Lines(&'a Regex),
}

/// What became of the lines and messages.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Lines {
    /// All lines; empty ones are neither used nor unused.
    pub read: u64,
    /// Those that say what is measured.
    pub used: u64,
    /// The others, by reason.
    #[serde(flatten, serialize_with = "by_reason")]
    #[schemars(skip)]
    pub unused: Unused,
    /// Messages that lack something of what is measured.
    pub messages_lacking: u64,
    /// Messages that were not waited for until their end.
    pub messages_given_up: u64,
    /// Messages of which the log does not show who handed them over.
    pub messages_without_origin: u64,
    /// Messages whose line can be read in two ways: who has logged in is not known.
    pub messages_ambiguous: u64,
    /// Messages that were received before the log begins, which are not counted.
    pub messages_before: u64,
}

/// How many lines of each reason there are.
fn by_reason<S: Serializer>(unused: &Unused, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(unused.all().map(|(name, _, lines)| (name, lines.count)))
}

/// The events of logs.
pub struct Events<'a> {
    lines: Option<&'a Regex>,
    joiner: Joiner,
    found: Collector,
}

/// The events that were found.
struct Collector {
    by: MeasuredBy,
    counted: Vec<CountedEvents>,
    keys: KeyTexts,
    counts: Lines,
    hasher: RandomState,
    /// Why no more lines are to be read.
    failure: Option<MeasureError>,
}

/// The events of what is counted in one way.
pub struct CountedEvents {
    /// How they are counted.
    pub count: Count,
    /// The events, in the order of time.
    pub runs: Runs,
    /// Messages that lack it.
    pub lacking: u64,
}

/// The keys, by their texts.
#[derive(Default)]
struct KeyTexts {
    numbers: HashMap<String, u32>,
    bytes: usize,
}

impl<'a> Events<'a> {
    /// None yet, of what is to be measured.
    #[must_use]
    pub fn new(measured: &Measured<'a>) -> Self {
        let (by, counts, lines) = match measured {
            Measured::Arrivals(by, counts) => (by.clone(), &counts[..], None),
            Measured::Lines(pattern) => {
                let by = MeasuredBy { by: By::All, identity: Identity::default(), image: None };
                (by, &[Count::Messages][..], Some(*pattern))
            }
        };
        let recipients =
            counts.iter().any(|count| matches!(count, Count::Recipients | Count::Different));
        let one = |&count| CountedEvents { count, runs: Runs::one_of(counts.len()), lacking: 0 };
        let joiner = Joiner::new(JoinSettings { recipients, failures: false });
        let found = Collector {
            by,
            counted: counts.iter().map(one).collect(),
            keys: KeyTexts::default(),
            counts: Lines::default(),
            hasher: RandomState::new(),
            failure: None,
        };
        Self { lines, joiner, found }
    }

    /// Considers a line. Returns whether to go on.
    pub fn add(&mut self, line: &Stamped<'_>) -> bool {
        let Self { lines, joiner, found } = self;
        let Some(pattern) = lines else {
            joiner.line(line, &mut |item| found.item(item));
            return found.failure.is_none();
        };
        match pattern.captures(line.line) {
            None => found.counts.unused.add(Reason::Silent, line.place, line.line),
            Some(groups) => {
                found.counts.used += 1;
                let key = groups.get(1).map_or("", |key| key.as_str());
                let size = groups.get(2).map_or(Some(1.0), |size| size.as_str().parse().ok());
                let size = size.filter(|size| *size >= 0.0);
                found.count(line.at, Some(key), |_| size, &[]);
            }
        }
        found.failure.is_none()
    }

    /// The events, the keys in the order of their numbers, and what became of the lines.
    pub fn finish(self) -> Result<(Vec<CountedEvents>, Vec<String>, Lines), MeasureError> {
        let Self { lines, mut joiner, mut found } = self;
        joiner.finish(&mut |item| found.item(item));
        if let Some(failure) = found.failure {
            return Err(failure);
        }
        let mut counts = found.counts;
        if lines.is_none() {
            let joined = joiner.counts();
            counts.used = joined.used;
            counts.unused = joined.unused.clone();
            counts.messages_without_origin = joined.without_origin;
            counts.messages_ambiguous = joined.ambiguous;
            counts.messages_before = joined.before;
            counts.messages_given_up = joined.given_up;
        }
        let mut keys: Vec<(String, u32)> = found.keys.numbers.into_iter().collect();
        keys.sort_unstable_by_key(|&(_, number)| number);
        Ok((found.counted, keys.into_iter().map(|(key, _)| key).collect(), counts))
    }
}

impl Collector {
    fn item(&mut self, item: Item) {
        let ItemKind::Message(message) = item.what else { return };
        let event = item.server.decided(item.event);
        // No policy counts what root or the mail server itself sends.
        if event.system && self.by.by != By::All {
            return;
        }
        let key = self.by.identity(&event.view());
        let recipients = &message.recipients;
        let size = |count| match count {
            Count::Messages => Some(1.0),
            Count::Bytes => message.size.map(|size| size as f64),
            Count::Recipients | Count::Different => {
                (!recipients.is_empty()).then_some(recipients.len() as f64)
            }
        };
        self.count(item.at, key.as_deref(), size, recipients);
    }

    /// Counts an event in each way, of the size that `size` returns for it, if it has one.
    fn count(
        &mut self,
        at: Timestamp,
        key: Option<&str>,
        size: impl Fn(Count) -> Option<f64>,
        recipients: &[Text],
    ) {
        let Self { counted, keys, hasher, counts, failure, .. } = self;
        let mut lacks = false;
        for CountedEvents { count, runs, lacking } in counted {
            let (Some(key), Some(size)) = (key, size(*count)) else {
                (lacks, *lacking) = (true, *lacking + 1);
                continue;
            };
            let pushed = keys.required(key).and_then(|key| {
                let event =
                    runs::Event { at: at.as_micros(), key, is_first: true, count: size, unique: 0 };
                if *count != Count::Different {
                    return runs.push(event);
                }
                recipients.iter().enumerate().try_for_each(|(place, recipient)| {
                    let unique = hasher.hash_one((key, recipient)).max(1);
                    runs.push(runs::Event { is_first: place == 0, count: 1.0, unique, ..event })
                })
            });
            if let Err(why) = pushed {
                failure.get_or_insert(why);
            }
        }
        counts.messages_lacking += u64::from(lacks);
    }
}

impl KeyTexts {
    /// The number of a key.
    fn required(&mut self, key: &str) -> Result<u32, MeasureError> {
        self.number(key)
            .ok_or(MeasureError::TooManyKeys { keys: self.numbers.len(), bytes: self.bytes })
    }

    /// The number of a key; `None` if there are too many.
    fn number(&mut self, key: &str) -> Option<u32> {
        let key = cut(key);
        if let Some(number) = self.numbers.get(key) {
            return Some(*number);
        }
        if self.numbers.len() >= KEYS_MAX || self.bytes + key.len() > KEY_BYTES_MAX {
            return None;
        }
        let next = u32::try_from(self.numbers.len()).ok()?;
        self.bytes += key.len();
        self.numbers.insert(key.to_owned(), next);
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_bounded() {
        let mut keys = KeyTexts::default();
        let long = |n: u32| format!("{n:06}{}", "x".repeat(9999));
        assert_eq!((keys.number(&long(1)), keys.number(&long(2))), (Some(0), Some(1)));
        assert_eq!((keys.number(&long(1)), keys.bytes), (Some(0), 2 * KEY_MAX));
        for n in 3.. {
            if keys.number(&long(n)).is_none() {
                break;
            }
        }
        assert!(keys.bytes <= KEY_BYTES_MAX);
        assert_eq!(keys.number(&long(2)), Some(1), "known ones are still counted");
    }
}
