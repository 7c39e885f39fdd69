//! Decides an event by a policy: `when` → key → limits → checks → verdict.

use std::borrow::Cow;
use std::cell::LazyCell;
use std::ops::Range;

use super::image::{ImageError, PolicyImage};
use super::key::{self, Key};
use super::limit::{Limit, Per, Rule, Subject};
use super::model::{Identity, PolicySettings, When};
use super::outcome::Outcome;
use crate::event::session::{DecisionCache, Occurrence};
use crate::event::{Event, Scope};

pub use super::outcome::Decided;
use super::word::{Action, Counting, DenialReply, Field, State, Unit, Verdict};
use crate::engine::{Algorithm, BlockTime, Check, Decision, Kind, RecordKey, Update};
use crate::rate::Timestamp;
use crate::store::Store;

/// A policy to decide by.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'p> {
    /// Its name.
    pub name: &'p str,
    /// Who is counted.
    pub identity: &'p Identity,
    /// What it says.
    pub policy: PolicyImage<'p>,
}

/// Why an event could not be decided.
#[derive(Debug, thiserror::Error)]
pub enum DecideError<S> {
    /// The policy is damaged.
    #[error("{0}")]
    Policy(#[source] ImageError),
    /// The store could not be used.
    #[error("{0}")]
    Store(#[source] S),
}

/// Why the limits of an event are lifted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lifted {
    /// An entry exempts the identity or the client: the event is measured.
    ByIdentity,
    /// An entry names the recipient, or all recipients of the message: neither counts.
    ByRecipients,
}

/// A limit and what this event counts against it.
struct Planned<'a> {
    limit: Limit<'a>,
    count: f64,
    scope: Scope,
    /// Whether it is of the message or the recipient, not of the connection.
    is_of_message: bool,
    /// The record's name, in the text of all names.
    name: Range<usize>,
    identity_start: usize,
    /// The unique event, in the same text.
    event: Option<Range<usize>>,
    /// The decision, if it is reused or has been made.
    decision: Option<Decision>,
}

/// What of an event is counted.
#[derive(Clone, Copy, Debug)]
pub struct ToCount<'o> {
    /// How often it is which unit.
    pub occurrences: &'o [Occurrence],
    /// It is of a message of which every recipient is exempt: see [`exempt_recipients`].
    pub all_exempt: bool,
    /// Which of the checks count.
    pub counts: CountedChecks,
    /// The log says what became of a message that was accepted so many seconds ago.
    pub delivered_after: Option<u64>,
    /// Nothing may be refused now: no crossing blocks.
    pub bypassed: bool,
}

/// Decides `event`, as far as `to_count` says, in `store`.
///
/// Decisions that `cache` has are reused.
/// `clock` is called at most three times. The outcome says nothing against the event if
/// the policy does not apply to it: a condition of `when` does not hold, or nothing
/// is known that its key could be made of. `visit` is called with each limit that applies
/// to the event, whether or not it is the reason of the outcome.
///
/// # Errors
/// The tables or the store could not be used; nothing was counted.
#[inline]
pub fn decide<S: Store>(
    rules: &Rules<'_>,
    event: &Event<&str>,
    to_count: ToCount<'_>,
    cache: &mut DecisionCache,
    store: &mut S,
    clock: impl Fn() -> Timestamp,
    mut visit: impl FnMut(&Decided<'_>),
) -> Result<Outcome, DecideError<S::Error>> {
    let Rules { name, identity, policy } = *rules;
    let ToCount { occurrences, all_exempt, counts, delivered_after, bypassed } = to_count;
    let settings = policy.settings();
    if !applies(settings, identity, event) {
        return Ok(Outcome::default());
    }
    let Some(key) = Key::of(identity, &settings.key, event) else { return Ok(Outcome::default()) };
    // Most policies do not ask for it.
    let recipient = LazyCell::new(|| key::value(identity, event, Field::Recipient));
    let subject = Subject::of_sender(&key, event);
    let mut limits = Vec::with_capacity(8);
    policy.limits(&subject, &mut limits).map_err(DecideError::Policy)?;
    let mut texts = String::with_capacity(256);
    let mut planned: Vec<Planned<'_>> = Vec::with_capacity(limits.len());
    // Strangers write to an account that replies by itself, and choose who refuses the replies.
    let spares_failures = event.sender == Some("") && !settings.requires(State::NullSender);
    for limit in limits {
        let Some(one) = occurrences.iter().find(|one| one.unit == limit.unit) else { continue };
        let Some(one) = spared(*one, event, delivered_after, spares_failures) else { continue };
        let recipient = || recipient.as_deref();
        planned.extend(plan(rules, event, &key, recipient, limit, &one, &mut texts, cache));
    }
    // Whether a recipient is exempt matters when the message has been received.
    if planned.is_empty() && !policy.exempts_recipients() {
        return Ok(Outcome::default());
    }
    let lifted = if policy.has_exemptions() {
        let to = || if all_exempt { To::AllExempt } else { To::One(recipient.as_deref()) };
        lifted(&policy, &subject, to, clock().seconds).map_err(DecideError::Policy)?
    } else {
        None
    };
    let exempt = lifted.is_some();
    if planned.is_empty() {
        return Ok(Outcome { exempt, ..Outcome::default() });
    }
    let mode = Mode { counts, ..Mode::of(settings, lifted, block_time(&policy, bypassed)) };
    set_times(&mut planned, &policy, delivered_after, &clock).map_err(DecideError::Policy)?;
    let foreseen = foreseen(&planned, mode);
    if counts == CountedChecks::OnlyTotals {
        planned.retain(|one| is_total(&one.limit));
    }
    decide_new(&mut planned, &texts, mode, cache, store, clock).map_err(DecideError::Store)?;
    if policy.delivery().is_at_delivery() {
        planned.iter_mut().for_each(Planned::pass_if_counted);
    }
    for (one, _) in planned.iter_mut().zip(foreseen).filter(|(_, is_foreseen)| *is_foreseen) {
        one.decision = one.decision.map(|decision| decision.if_counted(one.count));
    }
    let decided = planned.iter().filter_map(|one| {
        let decided = Decided {
            policy: name,
            limit: one.limit,
            key: texts.get(one.name.start + one.identity_start..one.name.end)?,
            record: texts.get(one.name.clone())?,
            decision: one.decision.map(|decision| replied(decision, policy.blocks().reply))?,
            exempt,
        };
        visit(&decided);
        Some(decided)
    });
    let outcome = Outcome::of(settings, decided, exempt, event);
    drop(planned);
    if settings.key.len() < 2 {
        cache.keep_key(key.text);
    }
    Ok(outcome)
}

/// For how long a crossing blocks.
#[inline]
fn block_time(policy: &PolicyImage<'_>, bypassed: bool) -> BlockTime {
    match bypassed {
        // Waiting is no reason to be blocked.
        _ if policy.delivery().is_at_delivery() => BlockTime::Ignored,
        true => BlockTime::Kept,
        false => policy.blocks().limits,
    }
}

/// What counts of an occurrence: nothing of a share where a router is asked again with each attempt,
/// or where failures are spared, as these are no part of what goes out; none, if a failure is spared.
#[inline]
fn spared(
    mut one: Occurrence,
    event: &Event<&str>,
    delivered_after: Option<u64>,
    spares_failures: bool,
) -> Option<Occurrence> {
    let goes_out = one.unit.is_share() && delivered_after.is_none();
    if goes_out && (spares_failures || event.once_a_message) {
        one.count = 0.0;
    }
    (!(spares_failures && one.count > 0.0 && one.unit.is_from_log())).then_some(one)
}

/// Sets the window of each limit of the calendar, and when the message was accepted of whose
/// recipients a share counts one.
#[inline]
fn set_times(
    planned: &mut [Planned<'_>],
    policy: &PolicyImage<'_>,
    delivered_after: Option<u64>,
    clock: impl Fn() -> Timestamp,
) -> Result<(), ImageError> {
    let is_calendar = planned.iter().any(|one| one.limit.every.is_some());
    if !is_calendar && delivered_after.is_none() {
        return Ok(());
    }
    let now = clock().seconds;
    if is_calendar {
        let zone = policy.zone()?;
        planned.iter_mut().for_each(|one| one.limit.algorithm = one.limit.at(zone, now));
    }
    let received = delivered_after.map(|age| now.saturating_sub_unsigned(age));
    for one in planned {
        if let Algorithm::Share { accepted, .. } = &mut one.limit.algorithm {
            *accepted = received;
        }
    }
    Ok(())
}

/// Of which limits it is only to be known what they would decide; none, where they count. A cap is
/// compared with the count itself, and what is reused has been counted.
#[inline]
fn foreseen(planned: &[Planned<'_>], mode: Mode) -> Vec<bool> {
    match mode.counts {
        CountedChecks::Foreseen { unique } => planned
            .iter()
            .map(|one| one.foresees(mode) && (unique || one.event.is_none()))
            .collect(),
        _ => Vec::new(),
    }
}

/// A decision, where a block denies it with this reply.
#[inline]
fn replied(decision: Decision, reply: DenialReply) -> Decision {
    match (decision.blocked, decision.overridden) {
        (Some(_), Some(_)) => Decision { overridden: Some(reply.denial()), ..decision },
        _ => decision,
    }
}

/// Who a message is for.
enum To<'a> {
    /// This recipient, if any is known.
    One(Option<&'a str>),
    /// Recipients of which each is exempt.
    AllExempt,
}

/// Why the limits of `subject` are lifted at `now`.
fn lifted<'a>(
    policy: &'a PolicyImage<'a>,
    subject: &Subject<'a>,
    to: impl FnOnce() -> To<'a>,
    now: i64,
) -> Result<Option<Lifted>, ImageError> {
    if policy.exemption(subject, now)?.is_some() {
        return Ok(Some(Lifted::ByIdentity));
    }
    if !policy.exempts_recipients() {
        return Ok(None);
    }
    let is_exempt = match to() {
        To::AllExempt => true,
        To::One(None) => false,
        To::One(recipient) => policy.exemption(&Subject { recipient, ..*subject }, now)?.is_some(),
    };
    Ok(is_exempt.then_some(Lifted::ByRecipients))
}

/// How many of the recipients of a message an entry of `exempt` names, for an event of an
/// identity that is not exempt itself. `now` is in seconds since 1970.
///
/// # Errors
/// The policy is damaged.
pub fn exempt_recipients(
    rules: &Rules<'_>,
    event: &Event<&str>,
    recipients: &[Cow<'_, str>],
    now: i64,
) -> Result<usize, ImageError> {
    let Rules { identity, policy, .. } = *rules;
    let event = Event { recipient: None, ..*event };
    let Some(key) = Key::of(identity, &policy.settings().key, &event) else { return Ok(0) };
    let subject = Subject::of_sender(&key, &event);
    if policy.exemption(&subject, now)?.is_some() {
        return Ok(0);
    }
    let mut exempt = 0;
    for recipient in recipients {
        let recipient = key::folded(identity, Field::Recipient, recipient);
        let subject = Subject { recipient: recipient.as_deref(), ..subject };
        exempt += usize::from(policy.exemption(&subject, now)?.is_some());
    }
    Ok(exempt)
}

/// Which of the checks of an event count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedChecks {
    /// All.
    All,
    /// All but the totals, as another policy refuses the event.
    NoTotals,
    /// The totals alone, which were left out before.
    OnlyTotals,
    /// None.
    Nothing,
    /// None, and what is decided is what would be if all did.
    Foreseen {
        /// Whether a unique event counts: a check that counts nothing does not say if it is known.
        unique: bool,
    },
}

/// How the checks of an event count.
#[derive(Clone, Copy)]
struct Mode {
    update: Update,
    /// See [`Check::refuses`].
    refuses: Option<f64>,
    /// See [`Check::blocks`].
    blocks: BlockTime,
    counts: CountedChecks,
    /// What is of the message or its recipient does not count.
    spares_message: bool,
}

impl Mode {
    fn of(settings: &PolicySettings, lifted: Option<Lifted>, blocks: BlockTime) -> Self {
        let refusals = settings.verdicts.iter().filter(|grade| grade.verdict >= Verdict::Defer);
        // Where being over the limit does not refuse, the event happens, and counts. An
        // override refuses it all the same.
        let from = refusals.map(|grade| grade.from).filter(|_| lifted.is_none());
        let from = from.fold(f64::INFINITY, f64::min);
        let refuses = (settings.action == Action::Enforce).then_some(from);
        let update = match settings.update {
            Counting::Leaky if refuses.is_some() => Update::Leaky,
            _ => Update::Strict,
        };
        let blocks = match refuses {
            Some(_) if lifted.is_none() => blocks,
            _ => BlockTime::Ignored,
        };
        let spares_message = lifted == Some(Lifted::ByRecipients);
        Self { update, refuses, blocks, counts: CountedChecks::All, spares_message }
    }

    /// Whether it is exempt from being counted: by another recipient it may be counted yet.
    fn spares(self, one: &Planned<'_>) -> bool {
        self.spares_message && one.is_of_message
    }

    /// Whether it may be counted yet in its scope.
    fn leaves_to_later(self, one: &Planned<'_>) -> bool {
        self.spares(one) || self.counts == CountedChecks::NoTotals && is_total(&one.limit)
    }

    /// How its check counts.
    fn update(self, one: &Planned<'_>) -> Update {
        let is_left_out = match self.counts {
            CountedChecks::All => false,
            CountedChecks::NoTotals => is_total(&one.limit),
            CountedChecks::OnlyTotals => !is_total(&one.limit),
            CountedChecks::Nothing | CountedChecks::Foreseen { .. } => true,
        };
        if is_left_out || one.count == 0.0 || self.spares(one) {
            Update::ReadOnly
        } else if one.has_happened() {
            // It has happened, and nothing is refused for it now.
            Update::Strict
        } else {
            self.update
        }
    }
}

/// Whether an event that is refused does not count against this limit. What has already
/// happened counts in any case.
pub(super) fn is_total(limit: &Limit<'_>) -> bool {
    let counts_always = limit.unit == Unit::Connections || limit.unit.is_outcome();
    limit.per.is_total() && !counts_always
}

/// What is counted once, of a text that is folded, and as it is `written`: bytes that are not UTF-8 are
/// all one character there, and name as many recipients as there are.
fn told_apart<'t>(folded: &'t str, written: Option<&'t str>) -> &'t str {
    let is_one_of_many = folded.contains(char::REPLACEMENT_CHARACTER);
    written.filter(|_| is_one_of_many).unwrap_or(folded)
}

/// What `event` counts against `limit`; `None` if what it needs is not known.
#[allow(clippy::too_many_arguments)] // each is another part of the question
fn plan<'a, 'r>(
    rules: &Rules<'_>,
    event: &Event<&str>,
    key: &Key<'_>,
    recipient: impl Fn() -> Option<&'r str>,
    limit: Limit<'a>,
    occurrence: &Occurrence,
    texts: &mut String,
    cache: &DecisionCache,
) -> Option<Planned<'a>> {
    let start = texts.len();
    for part in [rules.name, limit.unit.word(), limit.window()] {
        texts.push_str(part);
        texts.push('/');
    }
    let identity_start = texts.len() - start;
    match (limit.per, limit.rule) {
        (Per::Key, _) => texts.push_str(&key.text),
        (Per::Customer, Rule::Customer(name)) => texts.push_str(&key::of_customer(name)),
        (Per::Domain | Per::Customer, _) => {
            texts.push_str(&key::of_domain(super::fold::domain(&key.identity)?));
        }
    }
    let name = start..texts.len();
    let (count, scope, is_of_message) =
        (occurrence.count, occurrence.scope, occurrence.is_of_message());
    let mut planned = Planned {
        limit,
        count,
        scope,
        is_of_message,
        name,
        identity_start,
        event: None,
        decision: None,
    };
    // What is reused needs no unique event.
    let before = cache.recall(scope, &planned.key(texts));
    planned.decision = before.map(|before| before.against_limit_of(&limit.algorithm));
    if planned.decision.is_some() {
        return Some(planned);
    }
    let field = |field| key::value(rules.identity, event, field);
    // A destination sees each attempt.
    let once = event.once_a_message && !rules.policy.settings().counts_attempts();
    let unique: Option<Cow<'_, str>> = match limit.unit {
        Unit::UniqueRecipients => Some(told_apart(recipient()?, event.recipient).into()),
        Unit::UniqueClients => Some(field(Field::Client)?),
        // A bounce is from nobody.
        Unit::UniqueSenders if event.sender == Some("") => Some("".into()),
        Unit::UniqueSenders => Some(field(Field::Sender)?),
        Unit::Messages | Unit::Bytes if once => event.message_id.map(Into::into),
        Unit::Recipients if once => {
            // As it is written: each spelling is delivered.
            let to = |id| format!("{id} {}", event.recipient.unwrap_or_default());
            event.message_id.map(|id| to(id).into())
        }
        _ => None,
    };
    if let Some(unique) = unique {
        let start = texts.len();
        texts.push_str(&unique);
        planned.event = Some(start..texts.len());
    }
    Some(planned)
}

impl Planned<'_> {
    /// A recipient that was counted before does not wait again when its delivery is tried again.
    fn pass_if_counted(&mut self) {
        if let Some(decision) = &mut self.decision
            && decision.details.seen == Some(true)
            && decision.overridden.is_none()
        {
            decision.over = false;
        }
    }

    /// Whether it is what became of mail that was accepted.
    fn has_happened(&self) -> bool {
        let is_failure = matches!(self.limit.algorithm, Algorithm::Share { accepted: Some(_), .. });
        is_failure || self.limit.unit.is_of_delivery()
    }

    /// Whether its decision is to be what it would be if the event was counted.
    fn foresees(&self, mode: Mode) -> bool {
        self.decision.is_none()
            && self.count > 0.0
            && !self.limit.unit.is_cap()
            && !mode.spares(self)
    }

    /// The key of its record, whose name is in `texts`.
    fn key<'t>(&self, texts: &'t str) -> RecordKey<'t> {
        RecordKey {
            name: texts.as_bytes().get(self.name.clone()).unwrap_or_default(),
            identity_start: self.identity_start,
            kind: Kind::Policy,
            algorithm: self.limit.algorithm.kind(),
        }
    }
}

/// Decides what is not reused, in one call of the store.
///
/// Where a total gives way: to what was decided before, here; to another check of this call, in
/// `engine::decide` ([`Check::total`]); to another policy, by [`CountedChecks`].
fn decide_new<S: Store>(
    planned: &mut [Planned<'_>],
    texts: &str,
    mode: Mode,
    cache: &mut DecisionCache,
    store: &mut S,
    clock: impl Fn() -> Timestamp,
) -> Result<(), S::Error> {
    let text = |range: &Range<usize>| texts.as_bytes().get(range.clone()).unwrap_or_default();
    let check = |one: &Planned<'_>, update| Check {
        key: one.key(texts),
        algorithm: one.limit.algorithm,
        count: if update == Update::ReadOnly { 0.0 } else { one.count },
        event: one.event.as_ref().map(text),
        update,
        // What became of mail is not refused now.
        refuses: mode.refuses.filter(|_| one.count == 0.0 || !one.has_happened()),
        total: is_total(&one.limit),
        overridden: None,
        // That of a total would be one of everybody whom it counts.
        blocks: if one.limit.per == Per::Key { mode.blocks } else { BlockTime::Ignored },
    };
    // A cap needs no record.
    for one in planned.iter_mut().filter(|one| one.limit.unit.is_cap()) {
        let cap = one.limit.algorithm.limit();
        one.decision = Some(Decision::of_cap(cap, one.count, clock()));
    }
    // One that refused it before in this command, message or connection still does, and
    // the event then counts nowhere; under strict, against no total.
    let yields = |one: &Planned<'_>| mode.update == Update::Leaky || is_total(&one.limit);
    let stops = |decision: &Decision| decision.refuses(mode.refuses);
    let blocked = planned.iter().any(|one| one.decision.as_ref().is_some_and(stops));
    let update = |one: &Planned<'_>| match blocked && yields(one) {
        true => Update::ReadOnly,
        false => mode.update(one),
    };
    // As most policies are: what follows, without lists.
    if let [one] = planned {
        if one.decision.is_none() {
            let check = check(one, update(one));
            let decision = store.decide_one(&check, clock)?;
            if !mode.leaves_to_later(one) {
                cache.keep(one.scope, &check.key, decision);
            }
            one.decision = Some(decision);
        }
        return Ok(());
    }
    let new = || planned.iter().filter(|one| one.decision.is_none());
    let mut checks: Vec<Check<'_>> = Vec::with_capacity(planned.len());
    checks.extend(new().map(|one| check(one, update(one))));
    let mut decisions = Vec::with_capacity(checks.len());
    match &checks[..] {
        [] => return Ok(()),
        checks => store.decide(checks, clock, &mut decisions)?,
    }
    // Where one of them kept others from counting, these are still to be counted, by the
    // next recipient perhaps.
    let refused = blocked || decisions.iter().any(stops);
    for ((one, check), decision) in new().zip(&checks).zip(&decisions) {
        let is_kept = decision.over || !yields(one);
        if !mode.leaves_to_later(one) && (!refused || is_kept) {
            cache.keep(one.scope, &check.key, *decision);
        }
    }
    let mut decisions = decisions.into_iter();
    planned.iter_mut().filter(|one| one.decision.is_none()).for_each(|one| {
        one.decision = decisions.next();
    });
    Ok(())
}

/// Whether the policy is about `event`. What a limit refuses of the mail server's own mail is
/// lost, so a policy has to name that mail.
pub(super) fn applies(settings: &PolicySettings, identity: &Identity, event: &Event<&str>) -> bool {
    (!event.system || settings.requires(State::System))
        && settings.when.iter().all(|when| holds(when, identity, event))
}

/// Whether a condition of `when` holds for `event`. One about what is not known yet
/// does not hold.
fn holds(when: &When, identity: &Identity, event: &Event<&str>) -> bool {
    let within = |networks: &[super::network::Cidr]| {
        event
            .client
            .address()
            .is_some_and(|client| networks.iter().any(|network| network.contains(client)))
    };
    let domain = |field, patterns: &[super::model::DomainPattern]| {
        // What is done with one that may be of any domain is done with the strictest.
        key::is_ambiguous(event, field)
            || key::value(identity, event, field)
                .is_some_and(|domain| patterns.iter().any(|pattern| pattern.matches(&domain)))
    };
    match when {
        When::Is { state, not } => {
            let is = match state {
                State::Always => true,
                State::Authenticated => event.auth.is_some_and(|login| !login.trim().is_empty()),
                State::Local => event.local.is(),
                State::Relay => within(&identity.relay),
                State::NullSender => event.sender == Some(""),
                State::System => event.system,
            };
            is != *not
        }
        When::Client(networks) => within(networks),
        When::SenderDomain(patterns) => domain(Field::SenderDomain, patterns),
        When::RecipientDomain(patterns) => domain(Field::RecipientDomain, patterns),
    }
}

#[cfg(test)]
#[cfg(feature = "cli")]
mod tests;
