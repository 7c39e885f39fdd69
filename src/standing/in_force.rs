//! What decides the next event of a key: its rate, an override, or the policy in use.
//!
//! Whatever shows who is blocked asks [`InForce`].

use std::path::Path;

use super::key_state::{KeyState, KeyStateJson, Next};
use super::key_text;
use super::override_state::{participle, sentence};
use super::scope::{OTHERS, Scope, Sight};
use crate::engine::{Block, Overridden, RecordKey};
use crate::history::explain::rule::{self, Exempt, LimitRule, Said};
use crate::identity::fold::{CUSTOMER, DOMAIN, Folding, split_field};
use crate::policy::image::{Image, ImageError, PolicyFile, PolicyImage};
use crate::policy::model::MemberKind;
use crate::policy::outcome::strictest;
use crate::policy::word::{Action, Verdict, Word as _};
use crate::rate::{Timestamp, Wait};
use crate::store::{FOREVER, Inspect, Override, Overrides, Target, deciding};
use crate::text;
use crate::text::time::now as clock;

/// A limit that is kept rounded is within this part of itself.
const ROUNDED: f64 = 1e-6;

/// The overrides of a store and the policies in use.
#[derive(Debug, Default)]
pub(crate) struct InForce {
    overrides: Vec<Override>,
    policies: Option<PolicyFile>,
    pub(crate) now: Timestamp,
    /// Whose identities whoever looks may see.
    scope: Option<Scope>,
}

/// What becomes of the next event of a key, if it is of size 1.
#[derive(Debug)]
pub(crate) struct NextEvent<'a> {
    /// Whether it is over the limit, whatever else decides.
    pub(crate) over: bool,
    /// What decides.
    pub(crate) by: By<'a>,
}

/// What decides the next event of a key.
#[derive(Clone, Debug)]
pub(crate) enum By<'a> {
    /// Its rate.
    Rate,
    /// `exirate allow` or `exirate deny`.
    Override(&'a Override),
    /// A crossing has blocked it, and a policy refuses it so.
    Blocked(Block),
    /// The policy of this name exempts it.
    Exempt(String, Exempt),
    /// The policy of this name only observes.
    Observed(String),
    /// It is over, and this verdict of the policy of this name does not refuse it.
    Accepted(String, Verdict),
    /// No policy in use has such a limit any more; the record is forgotten in time.
    Removed,
}

impl InForce {
    /// Those of `store`, and of the spool directory `spool`; and what cannot be read.
    pub(crate) fn of(store: &mut dyn Inspect, spool: &Path) -> (Self, Vec<String>) {
        let mut problems = Vec::new();
        let overrides = store.overrides().unwrap_or_else(|error| {
            problems.push(error.to_string());
            Vec::new()
        });
        let file = PolicyFile::open(spool);
        match file.image() {
            Ok(_) | Err(ImageError::Absent { .. }) => {}
            Err(error) => problems.push(format!("{error}: who is exempt is not known")),
        }
        let policies = file.image().is_ok().then_some(file);
        (Self { overrides, policies, now: clock(), scope: None }, problems)
    }

    /// The same as somebody sees it who has this scope: nothing that others are called is said.
    pub(crate) fn seen_by(mut self, scope: Option<&Scope>) -> Self {
        self.scope = scope.cloned();
        let sight = self.sight();
        let masked = self.overrides.iter().map(|one| sight.masked(one)).collect();
        self.overrides = masked;
        self
    }

    /// Whose identities whoever looks may see.
    pub(crate) fn scope(&self) -> Option<&Scope> {
        self.scope.as_ref()
    }

    /// The same, by the policies in use.
    pub(crate) fn sight(&self) -> Sight<'_> {
        Sight::new(self.scope.as_ref(), self.image(), self.folding())
    }

    /// What the key of a total is called.
    pub(crate) fn name_of_total(&self, key: &RecordKey<'_>) -> String {
        if self.scope.is_none() || self.sight().has(key) {
            return key_text::key(key.identity());
        }
        OTHERS.to_owned()
    }

    /// What becomes of the next event of a key.
    pub(crate) fn next(&self, record: &KeyState) -> NextEvent<'_> {
        let over = self.is_over(record);
        NextEvent { over, by: self.decides(record, over) }
    }

    /// Whether the next event of a key is refused: as [`InForce::next`], and cheaper.
    pub(crate) fn refuses(&self, record: &KeyState) -> bool {
        let may = !self.overrides.is_empty() || record.blocked(self.now).is_some();
        (may || self.is_over(record)) && self.next(record).is_refused()
    }

    /// Whether the next event of a key is over the limit. A store keeps the limit of a calendar
    /// window rounded; that of the policy in use is exact.
    fn is_over(&self, record: &KeyState) -> bool {
        let rate = record.rate_after(self.now, 1.0);
        let is_near = (rate - record.limit).abs() <= record.limit * ROUNDED;
        let rule = if is_near { self.rule(record) } else { None };
        match rule {
            Some(rule) => record.algorithm.over(rate, rule.limit, 1.0),
            None => !record.passes(rate),
        }
    }

    /// A record in JSON.
    pub(crate) fn json(&self, record: &KeyState) -> KeyStateJson {
        let next = self.next(record);
        let of = Next {
            is_refused: next.is_refused(),
            is_over: next.over,
            decided_by: next.decided_by(),
            wait: next.wait(record, self.now),
        };
        record.json(of, self.now)
    }

    fn decides(&self, record: &KeyState, over: bool) -> By<'_> {
        let overridden = deciding(&self.overrides, &record.record_key(), self.now.seconds);
        let denied = overridden.is_some_and(|one| one.overridden.is_denial());
        let (said, blocked) = (self.said(record), record.blocked(self.now));
        let name = || {
            let counted = record.mode().unwrap_or_default();
            counted.split('/').next().unwrap_or_default().to_owned()
        };
        match (overridden, said) {
            // Denials are observed as well.
            (_, Some(said)) if denied && said.settings.action == Action::Observe => {
                By::Observed(name())
            }
            (Some(one), _) => By::Override(one),
            (None, said) if self.is_removed(record, said.as_ref()) => By::Removed,
            (None, None) => blocked.map_or(By::Rate, By::Blocked),
            (None, Some(Said { exempt: Some(exempt), .. })) => By::Exempt(name(), exempt),
            (None, Some(said)) if said.settings.action == Action::Observe => By::Observed(name()),
            (None, Some(_)) if blocked.is_some() => blocked.map_or(By::Rate, By::Blocked),
            (None, Some(said)) => {
                let part = record.rate_after(self.now, 1.0) / record.limit;
                let part = if part >= 1.0 { part } else { 1.0 };
                match strictest(said.settings, |from| from <= part) {
                    verdict if over && verdict < Verdict::Defer => By::Accepted(name(), verdict),
                    _ => By::Rate,
                }
            }
        }
    }

    /// What the policies say of a record.
    fn said(&self, record: &KeyState) -> Option<Said<'_>> {
        let image = self.image()?;
        // Damage is noted by what reads all of it; here it decides nothing.
        rule::find(image, &record.record_key(), self.now.seconds).ok()?
    }

    /// Whether it is of a limit that the policies in use do not have; where they have packages, a
    /// front end may hand over the one that has it.
    fn is_removed(&self, record: &KeyState, said: Option<&Said<'_>>) -> bool {
        if said.is_some_and(|said| said.rule.is_some()) {
            return false;
        }
        let Some(image) = self.image() else { return false };
        let key = record.record_key();
        let Some([name, ..]) = rule::parts(&key) else { return false };
        match image.policy(name) {
            Ok(Some(policy)) => said.is_some() && !policy.has_packages(),
            Ok(None) => true,
            Err(_) => false,
        }
    }

    /// The policies in use.
    pub(crate) fn image(&self) -> Option<&Image> {
        self.policies.as_ref()?.image().ok()
    }

    /// The overrides, also those that have ended.
    pub(crate) fn overrides(&self) -> &[Override] {
        &self.overrides
    }

    /// Those that are in force, of whoever looks: none of others, and no glob unless he sees all.
    pub(crate) fn own_overrides(&self) -> impl Iterator<Item = &Override> {
        let (sight, now) = (self.sight(), self.now.seconds);
        let all = self.overrides.iter().filter(move |one| one.is_active(now));
        all.filter(move |one| sight.has_target(&one.target))
    }

    /// What decides the override of a key, of many keys in turn.
    pub(crate) fn quick_overrides(&self) -> impl FnMut(&RecordKey<'_>) -> Option<Overridden> {
        // They were read from such bytes.
        let bytes = Overrides::encode(&self.overrides).unwrap_or_default();
        let overrides = Overrides::decode(bytes).unwrap_or_default();
        let (mut scratch, second) = (String::new(), self.now.seconds);
        move |key| match overrides.is_empty() {
            true => None,
            false => overrides.find(key, &mut scratch).at(second),
        }
    }

    /// How the policies in use fold identities.
    pub(crate) fn folding(&self) -> Folding {
        let identity = self.image().and_then(|image| image.identity().ok());
        identity.map_or_else(Folding::default, |identity| identity.folding.clone())
    }

    /// Whether a table of a policy in use is for whom `target` means.
    pub(crate) fn names(&self, target: &Target) -> bool {
        let Target::Exact { key, counted_as, .. } = target else { return false };
        let all = self.image().into_iter().flat_map(Image::each).filter_map(|(_, one)| one.ok());
        let named = |policy: &PolicyImage<'_>, name: &[u8]| {
            let (kind, name) = match split_field(name) {
                Some((field, name)) if field == CUSTOMER.as_bytes() => (MemberKind::Customer, name),
                Some((field, name)) if field == DOMAIN.as_bytes() => (MemberKind::Domain, name),
                Some((_, name)) => (MemberKind::User, name),
                None => (MemberKind::User, name),
            };
            let name = str::from_utf8(name).ok();
            name.is_some_and(|name| matches!(policy.find_member(kind, name), Ok(Some(_))))
        };
        all.into_iter()
            .any(|policy| std::iter::once(key).chain(counted_as).any(|name| named(&policy, name)))
    }

    /// Whether a policy in use exempts anybody.
    pub(crate) fn has_exemptions(&self) -> bool {
        let all = self.image().into_iter().flat_map(Image::each);
        all.into_iter().any(|(_, policy)| policy.is_ok_and(|policy| policy.has_exemptions()))
    }

    /// Whether `exirate allow` lifts this limit now.
    pub(crate) fn is_allowed(&self, key: &RecordKey<'_>) -> bool {
        let deciding = deciding(&self.overrides, key, self.now.seconds);
        deciding.is_some_and(|one| one.overridden == Overridden::Allow)
    }

    /// The rule of a policy that counts a record with its latest limit. Another limit is that
    /// of a package which only Exim knows, or of an earlier policy.
    pub(crate) fn rule(&self, record: &KeyState) -> Option<LimitRule> {
        let rule = self.said(record)?.rule;
        rule.filter(|rule| record.algorithm.is_stored_as(rule.limit, record.limit))
    }
}

/// `until 2026-12-31 18:00:00 CET`, `until it is lifted`
pub(crate) fn until(block: Block) -> String {
    let end = block.end().map(text::time::local_second);
    format!("until {}", end.as_deref().unwrap_or("it is lifted"))
}

impl NextEvent<'_> {
    /// Whether it is refused.
    pub(crate) fn is_refused(&self) -> bool {
        match &self.by {
            By::Rate => self.over,
            By::Override(one) => one.overridden.is_denial(),
            By::Blocked(_) => true,
            By::Exempt(..) | By::Observed(_) | By::Accepted(..) | By::Removed => false,
        }
    }

    /// The override that decides.
    pub(crate) fn overridden(&self) -> Option<&Override> {
        match self.by {
            By::Override(one) => Some(one),
            _ => None,
        }
    }

    /// What decides, as JSON has it.
    pub(crate) fn decided_by(&self) -> &'static str {
        match &self.by {
            By::Rate => "rate",
            By::Override(one) => one.overridden.word(),
            By::Blocked(_) => "blocked",
            By::Exempt(..) => "exempt",
            By::Observed(_) => Action::Observe.word(),
            By::Accepted(_, verdict) => verdict.word(),
            By::Removed => "removed",
        }
    }

    /// What follows a key in a table: ` (exempt)`.
    pub(crate) fn mark(&self) -> String {
        match &self.by {
            By::Rate => String::new(),
            By::Override(one) => {
                format!(" ({})", participle(one.overridden))
            }
            By::Observed(_) => " (observed)".to_owned(),
            By::Blocked(_) | By::Exempt(..) | By::Accepted(..) | By::Removed => {
                format!(" ({})", self.decided_by())
            }
        }
    }

    /// What decides instead of the rate, in words.
    pub(crate) fn why(&self) -> Option<String> {
        let name = |name: &String| text::printable(name.as_bytes());
        Some(match &self.by {
            By::Rate => return None,
            By::Override(one) => sentence(one),
            By::Blocked(block) => {
                format!("a crossing of this limit has blocked it {}", until(*block))
            }
            By::Exempt(policy, Exempt { until, reason }) => {
                let reason = reason.as_deref().unwrap_or("no reason given");
                let reason = text::printable(reason.as_bytes());
                let until = until.map_or(String::new(), |until| {
                    let until = Timestamp { seconds: until, micros: 0 };
                    format!(" until {}", text::local(until))
                });
                format!("the policy {} exempts the key{until} ({reason})", name(policy))
            }
            By::Observed(policy) => format!("the policy {} only observes", name(policy)),
            By::Removed => "no policy in use has this limit any more".to_owned(),
            By::Accepted(policy, verdict) => {
                format!("the verdict of the policy {} is {}", name(policy), verdict.word())
            }
        })
    }

    /// When one more event passes; `None` if that is not known.
    pub(crate) fn wait(&self, record: &KeyState, now: Timestamp) -> Option<Wait> {
        match &self.by {
            By::Rate => record.wait(now),
            By::Blocked(block) => Some(block.wait(now)),
            By::Override(Override { overridden, until, .. }) if overridden.is_denial() => {
                let left = until.saturating_sub(now.seconds) as f64;
                let left = if *until == FOREVER { Wait::Never } else { Wait::Seconds(left) };
                match (left, record.wait(now)) {
                    (Wait::Seconds(one), Some(Wait::Seconds(other))) => {
                        Some(Wait::Seconds(one.max(other)))
                    }
                    (Wait::Never, _) | (_, Some(Wait::Never)) => Some(Wait::Never),
                    (_, None) => None,
                }
            }
            _ => Some(Wait::Seconds(0.0)),
        }
    }

    /// How many more events pass now; `None` if that is not known.
    pub(crate) fn remaining(&self, record: &KeyState, now: Timestamp) -> Option<f64> {
        match &self.by {
            By::Rate => record.remaining(now),
            _ if self.is_refused() => Some(0.0),
            _ => Some(f64::INFINITY),
        }
    }
}
