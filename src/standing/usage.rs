//! What accounts, domains and customers have sent, by day and by hour.
//!
//! Accounts alone are counted, so a domain or a customer is the sum of those accounts of it that
//! are known, by the policies in use.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use super::accounts::of_target;
use super::key_text;
use super::scope::{Scope, Sight};
use crate::calendar::Zone;
use crate::engine::RecordKey;
use crate::identity::fold::{CUSTOMER, DOMAIN, domain, split_field};
use crate::policy::image::{Image, PolicyFile};
use crate::policy::key::{of_customer, of_domain};
use crate::policy::limit::Subject;
use crate::rate::Timestamp;
use crate::rate::usage::{DAYS, HOURS, Sent, Usage};
use crate::store::{Inspect, InspectError, Target};
use crate::text;

/// How a list of usage is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum By {
    /// By customer of the policies in use.
    Customer,
    /// By the domain of logins.
    Domain,
    /// By login and local account.
    User,
}

impl By {
    /// All of them.
    pub(crate) const ALL: &[Self] = &[Self::Customer, Self::Domain, Self::User];

    /// How it is written.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Customer => CUSTOMER,
            Self::Domain => DOMAIN,
            Self::User => "user",
        }
    }
}

/// What a list of usage is sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SortBy {
    /// Messages, the most first.
    Messages,
    /// Recipients, the most first.
    Recipients,
    /// Bytes, the most first.
    Bytes,
    /// Refused recipients, the most first.
    Refused,
    /// Failed deliveries, the most first.
    Failed,
    /// Keys, in their order.
    Key,
}

impl SortBy {
    /// All of them.
    pub(crate) const ALL: &[Self] =
        &[Self::Messages, Self::Recipients, Self::Bytes, Self::Refused, Self::Failed, Self::Key];

    /// How it is written.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Recipients => "recipients",
            Self::Bytes => "bytes",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Key => "key",
        }
    }
}

/// What was sent on a day.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct UsageDay {
    /// The day in the time zone, such as 2026-11-29.
    pub(crate) date: String,
    /// What it has sent.
    #[serde(flatten)]
    pub(crate) sent: Sent,
}

/// What was sent in an hour.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct UsageHour {
    /// When it began, in UTC.
    pub(crate) at: String,
    /// Recipients that were accepted.
    pub(crate) recipients: u64,
    /// Recipients that were refused.
    pub(crate) refused: u64,
}

/// What an account, a domain or a customer has sent in some days.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct UsageRow {
    /// The key: auth:alice@example.org, domain:example.org, customer:acme; empty for accounts
    /// that have no domain or no customer.
    pub(crate) key: String,
    /// Its part of the recipients of all in the list.
    pub(crate) share: f64,
    /// What it has sent.
    #[serde(flatten)]
    pub(crate) sent: Sent,
}

/// What an account, a domain or a customer has sent.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct UsageReport {
    /// The key.
    pub(crate) key: String,
    /// The time zone of the days.
    pub(crate) zone: String,
    /// The last 35 days, the present one last.
    pub(crate) days: Vec<UsageDay>,
    /// The last 24 hours, the present one last.
    pub(crate) hours: Vec<UsageHour>,
    /// Of a domain or a customer, its accounts.
    pub(crate) members: Vec<UsageRow>,
}

/// Who has sent how much.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct UsageList {
    /// user, domain or customer.
    pub(crate) by: &'static str,
    /// In so many days, the present one included.
    pub(crate) days: usize,
    /// The time zone of the days.
    pub(crate) zone: String,
    /// The first of them.
    pub(crate) from: String,
    /// The last of them: today.
    pub(crate) to: String,
    /// What all have sent.
    pub(crate) total: UsageRow,
    /// Each of them.
    pub(crate) rows: Vec<UsageRow>,
}

impl UsageRow {
    fn new(key: String, sent: Sent, all: Sent) -> Self {
        let share =
            if all.recipients == 0 { 0.0 } else { sent.recipients as f64 / all.recipients as f64 };
        Self { key, share, sent }
    }

    fn count(&self, sort: SortBy) -> u64 {
        match sort {
            SortBy::Messages => self.sent.messages,
            SortBy::Recipients => self.sent.recipients,
            SortBy::Bytes => self.sent.bytes,
            SortBy::Refused => self.sent.refused,
            SortBy::Failed => self.sent.failed,
            SortBy::Key => 0,
        }
    }
}

impl UsageReport {
    /// The last days, at most 35, today included.
    pub(crate) fn last_days(&self, days: usize) -> &[UsageDay] {
        self.days.get(self.days.len().saturating_sub(days)..).unwrap_or_default()
    }

    /// Sorts the accounts of a domain or a customer.
    pub(crate) fn sort_members(&mut self, by: SortBy) {
        sort(&mut self.members, by);
    }
}

/// `today 12 messages to 30 recipients, yesterday 3 to 5`: the last two days in a line.
pub(crate) fn in_a_line(usage: &Usage) -> String {
    let [.., yesterday, today] = &usage.days;
    let refused = |day: &Sent| match (day.refused, day.failed) {
        (0, 0) => String::new(),
        (refused, failed) => format!(" ({refused} refused, {failed} failed)"),
    };
    format!(
        "today {} to {}{}, yesterday {} to {}{}",
        text::counted(today.messages, "message", "messages"),
        text::counted(today.recipients, "recipient", "recipients"),
        refused(today),
        yesterday.messages,
        yesterday.recipients,
        refused(yesterday)
    )
}

/// Reads what was sent, as of a time, by the policies in use.
#[derive(Debug)]
pub(crate) struct UsageReader {
    policies: PolicyFile,
    zone: Zone,
    now: i64,
    /// Whose accounts are counted; all, if none.
    scope: Option<Scope>,
}

impl UsageReader {
    /// Of the database in this spool directory, as of the second `now`.
    pub(crate) fn of(spool: &Path, now: Timestamp) -> Self {
        let policies = PolicyFile::open(spool);
        let zone = policies.image().ok().and_then(|image| image.zone().ok()).cloned();
        Self { policies, zone: zone.unwrap_or_default(), now: now.seconds, scope: None }
    }

    /// The same for somebody who may see these identities alone.
    pub(crate) fn seen_by(self, scope: Option<Scope>) -> Self {
        Self { scope, ..self }
    }

    /// Whether what accounts send is counted.
    pub(crate) fn is_counted(&self) -> bool {
        self.policies.image().is_ok_and(Image::counts_usage)
    }

    /// The name of the time zone.
    pub(crate) fn zone(&self) -> String {
        let name = &self.zone.name;
        if name.is_empty() { "UTC".to_owned() } else { name.to_string() }
    }

    fn day(&self) -> i64 {
        self.zone.day(self.now)
    }

    /// Calls `visit` with the identity of each account and what it has sent. A part that cannot be
    /// read is an error: a sum without it would be wrong.
    fn each(
        &self,
        store: &mut dyn Inspect,
        visit: &mut dyn FnMut(&[u8], &Usage),
    ) -> Result<(), InspectError> {
        let sight = Sight::by(
            self.scope.as_ref(),
            &self.policies,
            &self.policies.folding().unwrap_or_default(),
        );
        let mut visit = |identity: &[u8], usage: &Usage| {
            if sight.has_identity(identity) {
                visit(identity, usage);
            }
        };
        let unread = store.for_each_usage(self.now, self.day(), &mut visit)?;
        unread.parts.into_iter().next().map_or(Ok(()), Err)
    }

    /// What the accounts, or the domain or the customer, that `target` may mean have sent: nothing
    /// for those of which nothing is known. The members of a domain or a customer are with what they
    /// have sent in so many days.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(crate) fn reports(
        &self,
        store: &mut dyn Inspect,
        target: &Target,
        days: usize,
    ) -> Result<Vec<UsageReport>, InspectError> {
        let mut reports = Vec::new();
        for identity in of_target(target) {
            let report = match By::of_key(&identity) {
                Some(by) => self.of_group(store, by, &identity, days)?,
                None => {
                    let usage = store.usage(&identity, self.now, self.day())?;
                    usage.map(|usage| self.report(&identity, &usage, Vec::new()))
                }
            };
            reports.extend(report);
        }
        Ok(reports)
    }

    /// What each account among these keys sends, in a line.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(crate) fn lines<'k>(
        &self,
        store: &mut dyn Inspect,
        keys: impl Iterator<Item = RecordKey<'k>>,
    ) -> Result<Vec<String>, InspectError> {
        let identities: BTreeSet<&[u8]> = keys.map(|key| key.identity()).collect();
        let mut lines = Vec::new();
        for identity in identities {
            if let Some(usage) = store.usage(identity, self.now, self.day())? {
                let (key, sent) = (key_text::key(identity), in_a_line(&usage));
                lines.push(format!("{key} sent {sent}: see `exirate usage`"));
            }
        }
        Ok(lines)
    }

    /// Of a domain or a customer, `key`.
    fn of_group(
        &self,
        store: &mut dyn Inspect,
        by: By,
        key: &[u8],
        days: usize,
    ) -> Result<Option<UsageReport>, InspectError> {
        let (mut sum, mut members) = (Usage::default(), Vec::new());
        self.each(store, &mut |identity, usage| {
            if self.group(by, identity).as_bytes() == key {
                sum += usage;
                members.push((key_text::key(identity), usage.last(days)));
            }
        })?;
        let all = sum.last(days);
        let rows = members.into_iter().map(|(member, sent)| UsageRow::new(member, sent, all));
        let mut rows: Vec<UsageRow> = rows.collect();
        sort(&mut rows, SortBy::Recipients);
        Ok((!rows.is_empty()).then(|| self.report(key, &sum, rows)))
    }

    /// Who has sent how much in so many days.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(crate) fn list(
        &self,
        store: &mut dyn Inspect,
        by: By,
        days: usize,
        order: SortBy,
    ) -> Result<UsageList, InspectError> {
        let (mut groups, mut all) = (BTreeMap::<String, Sent>::new(), Sent::default());
        self.each(store, &mut |identity, usage| {
            let sent = usage.last(days);
            if !sent.is_nothing() {
                all += sent;
                *groups.entry(self.group(by, identity)).or_default() += sent;
            }
        })?;
        let shown = |key: String| if by == By::User { key } else { key_text::key(key.as_bytes()) };
        let rows = groups.into_iter().map(|(key, sent)| UsageRow::new(shown(key), sent, all));
        let mut rows: Vec<UsageRow> = rows.collect();
        sort(&mut rows, order);
        let total = UsageRow::new(String::new(), all, all);
        let (from, to) = (self.date(DAYS.min(days) - 1), self.date(0));
        Ok(UsageList { by: by.word(), days, zone: self.zone(), from, to, total, rows })
    }

    /// What all accounts have sent, by day, and how many of them today.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(crate) fn total(&self, store: &mut dyn Inspect) -> Result<(Usage, u64), InspectError> {
        let (mut sum, mut accounts) = (Usage::default(), 0);
        self.each(store, &mut |_, usage| {
            sum += usage;
            accounts += u64::from(!usage.last(1).is_nothing());
        })?;
        Ok((sum, accounts))
    }

    /// The key of the group of an account, empty if it has none; of users, as it is shown.
    fn group(&self, by: By, identity: &[u8]) -> String {
        let value = || {
            let (_, value) = split_field(identity)?;
            Some(std::str::from_utf8(value).ok()?.replace(",,", ","))
        };
        let group = match by {
            By::User => Some(key_text::key(identity)),
            By::Domain => value().and_then(|value| domain(&value).map(of_domain)),
            By::Customer => value().and_then(|value| self.customer(&value)),
        };
        group.unwrap_or_default()
    }

    /// The customer of an account, by the first policy that knows one.
    fn customer(&self, identity: &str) -> Option<String> {
        let image = self.policies.image().ok()?;
        let (package, client, recipient) = (None, None, None);
        let subject = Subject { identity, is_ambiguous: false, package, client, recipient };
        image.each().find_map(|(_, policy)| {
            let policy = policy.ok()?;
            let name = policy.customer(&subject).ok()??;
            Some(of_customer(name))
        })
    }

    fn report(&self, key: &[u8], usage: &Usage, members: Vec<UsageRow>) -> UsageReport {
        let days = usage
            .days
            .iter()
            .enumerate()
            .map(|(number, &sent)| UsageDay { date: self.date(DAYS - 1 - number), sent });
        let hour = self.now.div_euclid(3600);
        let hours = usage.hours.iter().enumerate().map(|(number, sent)| UsageHour {
            at: text::iso_second((hour - (HOURS - 1 - number) as i64) * 3600),
            recipients: sent.recipients,
            refused: sent.refused,
        });
        UsageReport {
            key: key_text::key(key),
            zone: self.zone(),
            days: days.collect(),
            hours: hours.collect(),
            members,
        }
    }

    /// The date so many days ago.
    fn date(&self, ago: usize) -> String {
        let day = self.day() - ago as i64;
        let iso = text::iso_second(day * 86_400);
        iso.split('T').next().unwrap_or_default().to_owned()
    }
}

impl By {
    /// Of the key of a domain or a customer.
    fn of_key(key: &[u8]) -> Option<Self> {
        let (field, _) = split_field(key)?;
        [Self::Domain, Self::Customer].into_iter().find(|by| by.word().as_bytes() == field)
    }
}

fn sort(rows: &mut [UsageRow], by: SortBy) {
    rows.sort_by(|one, other| {
        other.count(by).cmp(&one.count(by)).then_with(|| one.key.cmp(&other.key))
    });
}
