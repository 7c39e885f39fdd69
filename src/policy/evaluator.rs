//! Evaluates policies at a step of an SMTP session: what every front end calls.
//!
//! A front end describes a [`Step`]: the ACL stage, what is known of the event, the numbers
//! of the session and the recipients. It gets the strictest of what the policies made of it
//! ([`Evaluated`]): the verdict with its text and its reason. What was counted in the session
//! is in its [`PolicySession`].
//!
//! A policy that cannot be evaluated (there is none of that name, no image, no database, or
//! one of them is damaged) makes of the event what `on_error` says: that of the call, else
//! the policy's own where it can be read, else the front end's. It is counted as an error,
//! and [`Failure`] is its line in the log.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use super::compare::{Compared, ComparedMessage};
use super::counters::{Checked, Counters};
use super::decide::{
    CountedChecks, Decided, Rules, ToCount, applies, decide, exempt_recipients, is_total,
};
use super::habits::{HABITS, is_bounce, is_learned_at};
use super::image::{Image, ImageError, PolicyFile, PolicyImage};
use super::key::Key;
use super::limit::Subject;
use super::model::Identity;
use super::outcome::Outcome;
use super::probe::{self, Probes};
use super::settings::PolicySettings;
use super::usage;
use super::word::{Action, AfterWaiting, Field, OnError, Unit, Verdict, Word as _};
use crate::calendar::{Every, Zone};
use crate::engine::{Algorithm, BlockTime, Check, Kind, RecordKey, Update};
use crate::event::session::{Occurrence, SessionFacts, SessionMemory};
use crate::event::{AclStage, Event, Scope};
use crate::rate::Timestamp;
use crate::rate::usage::Sent;
use crate::spool::Spool;
#[cfg(feature = "cli")]
use crate::store::Memory;
use crate::store::{Counting, Enforcement, EventDetails, Judged, OVERDUE, SendingStage, Store};

/// What policies remember of one SMTP session.
pub type PolicySession = SessionMemory<Outcome>;

/// What the client reads if nothing could be decided, and that refuses.
pub const UNAVAILABLE: &str = "Temporarily unavailable; try again later";

/// A step of a session: one run of an ACL.
#[derive(Clone, Copy)]
pub struct Step<'a> {
    /// The ACL stage.
    pub stage: AclStage,
    /// What is known of it.
    pub event: Event<&'a str>,
    /// The numbers of the session. The recipients are at least those that the session has
    /// accepted.
    pub facts: SessionFacts,
    /// The recipients of the message, where all are known: it is called if they are needed.
    pub recipients: &'a dyn Fn() -> Vec<Cow<'a, str>>,
    /// A unit of which this step is one, for reasons other than a policy.
    pub is_one_of: Option<Unit>,
    /// The message says of itself that a program wrote it or a list sends it: see
    /// [`marks`](crate::rate::habits::marks). Called when it is learned.
    pub marked: &'a dyn Fn() -> bool,
    /// Nothing is counted.
    pub only_looks: bool,
    /// Nothing may be refused now: counters count all as observed.
    pub bypassed: bool,
    /// What happens if a policy cannot be evaluated.
    pub on_error: OnErrors,
}

impl<'a> Step<'a> {
    /// A step that counts and may refuse, of which no more than this is known.
    #[must_use]
    pub fn new(stage: AclStage, event: Event<&'a str>) -> Self {
        Self {
            stage,
            event,
            facts: SessionFacts::default(),
            recipients: &Vec::new,
            is_one_of: None,
            marked: &|| false,
            only_looks: false,
            bypassed: false,
            on_error: OnErrors::default(),
        }
    }
}

/// What a front end says of policies that cannot be evaluated.
#[derive(Clone, Copy, Debug)]
pub struct OnErrors {
    /// For this call, whatever the policy says.
    pub of_call: Option<OnError>,
    /// Where it cannot be read what the policy says.
    pub of_front_end: OnError,
    /// Where the store cannot decide, whatever the policy and the call say: for those who are able
    /// to bring that about, by a lock, a full disk or many requests.
    pub of_store: Option<OnError>,
}

impl Default for OnErrors {
    fn default() -> Self {
        Self { of_call: None, of_front_end: OnError::FailOpen, of_store: None }
    }
}

/// What a policy made of a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evaluated {
    /// The policy; empty if there was none to evaluate.
    pub policy: Arc<str>,
    /// What is to be done, and why.
    pub outcome: Outcome,
    /// Why it could not be evaluated.
    pub failure: Option<Failure>,
}

/// Why a policy could not be evaluated, as a line for a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The policy.
    pub policy: Arc<str>,
    /// The error.
    pub error: String,
    /// What was made of the event.
    pub on_error: OnError,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let done = match self.on_error {
            OnError::FailOpen => "the mail is not limited by it",
            OnError::FailClosed => "the mail is deferred",
        };
        let Self { policy, error, on_error } = self;
        let on_error = on_error.word();
        write!(
            f,
            "cannot evaluate the policy {policy:?}, so {done} (on_error = {on_error}): {error}"
        )
    }
}

/// Sees an evaluation while it goes on.
pub trait Observer {
    /// A limit was decided, whether or not it is the reason of the outcome.
    fn decided(&mut self, _decided: &Decided<'_>) {}

    /// The message was compared with the habits of its account, which has this key.
    fn judged(&mut self, _key: &str, _judged: &Judged) {}

    /// Whether nothing may be refused now, although `what`. It is called where something
    /// would be.
    fn lifts(&mut self, _what: &dyn fmt::Display) -> bool {
        false
    }

    /// A policy was evaluated, or could not be.
    fn evaluated(&mut self, _evaluated: &Evaluated) {}
}

/// Where the policies are.
#[derive(Debug)]
enum ImageSource<'i> {
    InUse(Box<PolicyFile>),
    Given(&'i Image),
    Unknown(String),
}

impl ImageSource<'_> {
    fn image(&mut self) -> Result<&Image, String> {
        match self {
            Self::InUse(file) => file.refresh().map_err(ToString::to_string),
            Self::Given(image) => Ok(*image),
            Self::Unknown(why) => Err(why.clone()),
        }
    }
}

/// Evaluates policies.
#[derive(Debug)]
pub struct Evaluator<'i> {
    source: ImageSource<'i>,
    counters: Option<Counters>,
    probes: Option<Probes>,
    /// What accounts send is counted, unless the policies say that it is not.
    counts_usage: bool,
}

impl Evaluator<'static> {
    /// By the policies in use in the spool directory `spool`, each time by the newest.
    #[must_use]
    pub fn open(spool: &Path) -> Self {
        Self::by(PolicyFile::open(spool), spool)
    }

    /// As [`Evaluator::open`], of the directory of an open database, which need not be opened
    /// again.
    #[must_use]
    pub fn beside(database: &Spool, spool: &Path) -> Self {
        Self::by(PolicyFile::beside(database, spool), spool)
    }

    fn by(file: PolicyFile, spool: &Path) -> Self {
        Self {
            source: ImageSource::InUse(Box::new(file)),
            counters: Some(Counters::new(spool)),
            probes: Some(Probes::of(spool)),
            counts_usage: true,
        }
    }

    /// One that knows no policies, for this reason.
    #[must_use]
    pub fn without_policies(why: String) -> Self {
        let source = ImageSource::Unknown(why);
        Self { source, counters: None, probes: None, counts_usage: false }
    }
}

impl<'i> Evaluator<'i> {
    /// By the policies of an image. No counter counts it, nor what accounts send.
    #[must_use]
    pub fn of_image(image: &'i Image) -> Self {
        let source = ImageSource::Given(image);
        Self { source, counters: None, probes: None, counts_usage: false }
    }

    /// Evaluates the policies `names`, several separated by commas, or `*` for all, in this
    /// order until one refuses the step; what the strictest of them made of it. `store` is
    /// the database, or why it cannot be used. `clock` is called when it is locked.
    pub fn evaluate<S: Store>(
        &mut self,
        session: &mut PolicySession,
        names: &str,
        step: &Step<'_>,
        store: Result<&mut S, &str>,
        clock: impl Fn() -> Timestamp,
        observer: &mut impl Observer,
    ) -> Evaluated {
        let probes = self.probes.as_ref();
        let of_probe = |all: &Probes| all.outcome(step.stage, &step.event, || clock().seconds);
        if let Some(outcome) = probes.and_then(of_probe) {
            let policy = Arc::from(probe::POLICY);
            let evaluated = Evaluated { policy, outcome, failure: None };
            observer.evaluated(&evaluated);
            return evaluated;
        }
        let is_route = step.stage == AclStage::Route;
        // The mail server's own bounces never wait, nor do those of other machines. Those of a login
        // or of a local account, who may write anything so, do.
        if is_route && step.event.sender == Some("") && !usage::has_account(&step.event) {
            return Evaluated::default();
        }
        let image = self.source.image();
        let image = image.as_ref().map(|image| *image);
        let counters = self.counters.as_mut();
        let mut store = store.map(KeptLock);
        let store = match &mut store {
            Ok(KeptLock(store)) => Ok(&mut **store),
            Err(why) => Err(*why),
        };
        let counts = if step.only_looks { CountedChecks::Nothing } else { CountedChecks::All };
        let compared = None;
        let mut run =
            Run { image, step, session, store, counters, clock, observer, compared, counts };
        let policies = || {
            let all = image.ok().filter(|_| names.trim() == "*");
            let named = all.is_none().then(|| names.split(',').map(str::trim));
            let named = named.into_iter().flatten().map(|name| (name, named_policy(image, name)));
            let all = all.into_iter().flat_map(Image::each);
            let all = all.map(|(name, policy)| (name, policy.map_err(PolicyFault::unread)));
            all.chain(named).filter(|(_, policy)| is_evaluated(policy, is_route))
        };
        let account = match image {
            Ok(image) if self.counts_usage && !step.only_looks && image.counts_usage() => {
                usage::account(&step.event)
            }
            _ => None,
        };
        if account.is_some() {
            run.session.begin_usage();
            if let Ok(store) = &mut run.store {
                store.keep_lock(true);
            }
        }
        let strictest = run.strictest(policies);
        if let Some(account) = account {
            run.count_usage(account, strictest.as_ref());
        }
        let strictest = strictest.unwrap_or_default();
        run.session.end_step(strictest.outcome.verdict < Verdict::Defer);
        strictest
    }
}

#[cfg(feature = "cli")]
impl Evaluator<'_> {
    /// Whether any policy is evaluated at delivery.
    ///
    /// # Errors
    /// The policies cannot be read.
    pub fn sends_later(&mut self) -> Result<bool, String> {
        let mut all = self.source.image()?.each();
        Ok(all.any(|(_, policy)| policy.map_or(true, |one| one.delivery().is_at_delivery())))
    }

    /// Whether the limits allow this step where nothing else has been counted. No counter counts it.
    pub fn allows_alone(&mut self, names: &str, step: &Step<'_>, now: Timestamp) -> bool {
        let counters = self.counters.take();
        let (mut session, mut empty) = (PolicySession::default(), Memory::new());
        let store = Ok(&mut empty);
        let one = self.evaluate(&mut session, names, step, store, || now, &mut Unseen);
        self.counters = counters;
        one.outcome.verdict < Verdict::Defer
    }
}

/// The strictest of what was evaluated.
struct Strictest(Option<Evaluated>);

impl Strictest {
    #[inline]
    fn add(&mut self, this: Evaluated) {
        if self.0.as_ref().is_none_or(|before| this.outcome.outweighs(&before.outcome)) {
            self.0 = Some(this);
        }
    }
}

/// A store that keeps its lock while an event is evaluated, and no longer, also during a panic.
struct KeptLock<'s, S: Store>(&'s mut S);

impl<S: Store> Drop for KeptLock<'_, S> {
    fn drop(&mut self) {
        self.0.keep_lock(false);
    }
}

/// Whether a policy is evaluated at the stage of routers, or at all others.
#[inline]
fn is_evaluated(policy: &Result<PolicyImage<'_>, PolicyFault>, is_route: bool) -> bool {
    policy.as_ref().map_or(true, |policy| policy.delivery().is_at_delivery() == is_route)
}

/// Why a policy cannot be evaluated, and what it says of that, if it can be read.
struct PolicyFault {
    error: String,
    on_error: Option<OnError>,
    /// The store could not decide.
    is_of_store: bool,
}

impl PolicyFault {
    /// Of policies that cannot be read.
    fn unread(error: impl fmt::Display) -> Self {
        Self { error: error.to_string(), on_error: None, is_of_store: false }
    }
}

/// One call.
struct Run<'r, 's, S, C, O> {
    image: Result<&'r Image, &'r String>,
    step: &'r Step<'s>,
    session: &'r mut PolicySession,
    store: Result<&'r mut S, &'r str>,
    counters: Option<&'r mut Counters>,
    clock: C,
    observer: &'r mut O,
    /// The policy by which the message is compared with the habits of its account.
    compared: Option<Compared<'r, 's>>,
    /// Which checks count.
    counts: CountedChecks,
}

/// Sees nothing.
struct Unseen;

impl Observer for Unseen {}

impl<'r, S: Store, C: Fn() -> Timestamp, O: Observer> Run<'r, '_, S, C, O> {
    /// What the strictest of the policies made of the step; they are evaluated in their order until
    /// one refuses it. None, if there are none.
    fn strictest<'n, I>(&mut self, policies: impl Fn() -> I) -> Option<Evaluated>
    where
        I: Iterator<Item = (&'n str, Result<PolicyImage<'r>, PolicyFault>)>,
    {
        let (stage, counts) = (self.step.stage, self.counts);
        // Where a recipient waits by one, it counts for none.
        let first = if stage == AclStage::Route { self.waits_by(policies()) } else { None };
        let firstly =
            first.into_iter().flat_map(|first| policies().enumerate().skip(first).take(1));
        let others = policies().enumerate().filter(|(number, _)| Some(*number) != first);
        let mut strictest = Strictest(None);
        let mut refused = false;
        // The policies whose totals have not been counted, each with the session before it.
        let mut left_out = Vec::new();
        for (number, (name, policy)) in firstly.chain(others) {
            self.counts = counts;
            if let Ok(policy) = policy
                && let Some(before) = self.refused_later(name, policy, policies().skip(number + 1))
            {
                left_out.push((name, policy, before));
                self.counts = CountedChecks::NoTotals;
            }
            let this = self.one(name, policy);
            // What became of mail is known for all of them.
            refused = this.outcome.verdict >= Verdict::Defer && stage != AclStage::Delivery;
            strictest.add(this);
            if refused {
                break;
            }
        }
        if !refused && let Some(this) = self.habits() {
            strictest.add(this);
        }
        let is_refused = |one: &Evaluated| one.outcome.verdict >= Verdict::Defer;
        if !left_out.is_empty() && !strictest.0.as_ref().is_some_and(is_refused) {
            // A unique event that is known has passed after all.
            for (name, policy, before) in left_out {
                strictest.add(self.count_totals(name, policy, before));
            }
        }
        strictest.0
    }

    /// A run that counts nothing, to see what would be decided of `step`, with unique events or
    /// without.
    fn foreseeing<'a, 'step>(
        &'a mut self,
        step: &'a Step<'step>,
        session: &'a mut PolicySession,
        unseen: &'a mut Unseen,
        unique: bool,
    ) -> Run<'a, 'step, S, &'a C, Unseen> {
        Run {
            image: self.image,
            step,
            session,
            store: match &mut self.store {
                Ok(store) => Ok(&mut **store),
                Err(why) => Err(*why),
            },
            counters: None,
            clock: &self.clock,
            observer: unseen,
            compared: None,
            counts: CountedChecks::Foreseen { unique },
        }
    }

    /// The number of the policy by which the recipient of this step would wait; nothing is counted.
    /// One policy alone decides by itself.
    fn waits_by<'n>(
        &mut self,
        policies: impl Iterator<Item = (&'n str, Result<PolicyImage<'r>, PolicyFault>)>,
    ) -> Option<usize> {
        let policies: Vec<_> = policies.collect();
        if policies.len() < 2 || self.step.only_looks {
            return None;
        }
        let step = Step { only_looks: true, ..*self.step };
        let (mut session, mut unseen) = (PolicySession::default(), Unseen);
        let mut run = self.foreseeing(&step, &mut session, &mut unseen, true);
        policies.into_iter().position(|(name, policy)| {
            let outcome = policy.and_then(|policy| run.limits(name, policy));
            outcome.is_ok_and(|(_, outcome)| outcome.verdict >= Verdict::Defer)
        })
    }

    /// Evaluates one policy.
    fn one(&mut self, name: &str, policy: Result<PolicyImage<'r>, PolicyFault>) -> Evaluated {
        let outcome = policy.and_then(|policy| {
            let mut decided = self.outcome(name, policy)?;
            if self.step.stage == AclStage::Route {
                decided.1.of_route(policy.delivery(), self.step.facts.message_age);
            }
            Ok(decided)
        });
        let evaluated = match outcome {
            Ok((policy, outcome)) => Evaluated { policy, outcome, failure: None },
            Err(fault) => self.failed(name, fault),
        };
        let evaluated = self.complete(name, evaluated);
        if let Some(after) = evaluated.outcome.overdue
            && !evaluated.outcome.observed
        {
            self.overdue(&evaluated, after);
        }
        evaluated
    }

    /// A recipient has waited for as long as it may: the journal gets one event of its key in a day, a
    /// crossing of a record that only serves for that.
    #[cold]
    fn overdue(&mut self, evaluated: &Evaluated, after: AfterWaiting) {
        let Self { step, store: Ok(store), counters, clock, .. } = self else { return };
        let Some((key, _)) = evaluated.outcome.counted().filter(|_| !step.only_looks) else {
            return;
        };
        let prefix = format!("{}/{OVERDUE}/daily/", evaluated.policy);
        let now = clock().seconds;
        let window = Zone::default().window(Every::Day, now);
        let algorithm = Algorithm::Calendar { limit: 0.0, window };
        let check = Check {
            key: RecordKey {
                name: &[&prefix, key].concat().into_bytes(),
                identity_start: prefix.len(),
                kind: Kind::Policy,
                algorithm: algorithm.kind(),
            },
            algorithm,
            count: 1.0,
            event: None,
            update: Update::Strict,
            refuses: None,
            total: false,
            overridden: None,
            blocks: BlockTime::Ignored,
        };
        if store.decide_one(&check, &*clock).is_err() {
            if let Some(counters) = counters {
                counters.count_error();
            }
        } else if store.has_events() {
            let done = match after {
                // A whole message, which Postfix or Sendmail holds.
                AfterWaiting::Return if step.event.recipient.is_none() => "still held",
                AfterWaiting::Return => "returned to its sender",
                AfterWaiting::Deliver => "delivered over the limit",
            };
            let (unit, evidence) = (OVERDUE.as_bytes(), done.as_bytes());
            let enforcement = Enforcement::Enforced;
            describe_as(*store, Some(evaluated), &step.event, |details| EventDetails {
                unit,
                evidence,
                enforcement,
                ..details
            });
        }
    }

    /// Lifts, describes and shows what was made of the step.
    fn complete(&mut self, name: &str, mut evaluated: Evaluated) -> Evaluated {
        let Outcome { verdict, .. } = evaluated.outcome;
        let refused = format_args!("the policy {name:?} says {}", verdict.word());
        if verdict > Verdict::Log && self.observer.lifts(&refused) {
            evaluated.outcome.lift();
        }
        if let Ok(store) = &mut self.store
            && store.has_events()
        {
            describe(*store, Some(&evaluated), &self.step.event);
        }
        self.observer.evaluated(&evaluated);
        evaluated
    }

    /// The session as it is, if this policy has a total that would count the step, and the
    /// policies after it, or habits, will refuse it. Nothing is counted.
    fn refused_later<'n>(
        &mut self,
        name: &str,
        policy: PolicyImage<'r>,
        later: impl Iterator<Item = (&'n str, Result<PolicyImage<'r>, PolicyFault>)>,
    ) -> Option<PolicySession> {
        let Step { stage, event, only_looks, .. } = self.step;
        if *only_looks || matches!(stage, AclStage::Delivery | AclStage::Route) {
            return None;
        }
        let identity = self.image.ok()?.identity().ok()?;
        let may_refuse = |policy: &Result<PolicyImage<'_>, PolicyFault>| {
            policy.as_ref().map_or(true, |one| applies(one.settings(), identity, event))
        };
        let mut later = later.filter(|(_, policy)| may_refuse(policy)).peekable();
        let is_learned = policy.uses_habits() && is_learned_at(*stage);
        if later.peek().is_none() && !is_learned || !counts_in_total(identity, &policy, event) {
            return None;
        }
        let before = self.session.clone();
        let mut session = self.session.clone();
        let step = Step { only_looks: true, ..*self.step };
        let mut unseen = Unseen;
        let mut run = self.foreseeing(&step, &mut session, &mut unseen, false);
        let fails = |fault: PolicyFault| {
            let OnErrors { of_call, of_front_end, of_store } = step.on_error;
            let of_store = of_store.filter(|_| fault.is_of_store);
            of_store.or(of_call).or(fault.on_error).unwrap_or(of_front_end) == OnError::FailClosed
        };
        // For its habits, and as it refuses in any case what it refuses with a unique event that is known.
        if run.outcome(name, policy).is_ok_and(|(_, outcome)| outcome.verdict >= Verdict::Defer) {
            return None;
        }
        run.counts = CountedChecks::Foreseen { unique: true };
        let refuses = later.any(|(name, policy)| {
            let outcome = policy.and_then(|policy| run.outcome(name, policy));
            outcome.map_or_else(fails, |(_, outcome)| outcome.verdict >= Verdict::Defer)
        });
        let is_later =
            refuses || run.habits().is_some_and(|one| one.outcome.verdict >= Verdict::Defer);
        is_later.then_some(before)
    }

    /// Counts the totals of a policy that [`Run::refused_later`] had left out, as nothing after it
    /// refused the step; in the session as it was before that policy.
    fn count_totals(
        &mut self,
        name: &str,
        policy: PolicyImage<'r>,
        mut before: PolicySession,
    ) -> Evaluated {
        before.swap_decisions(self.session);
        let mut run = Run {
            image: self.image,
            step: self.step,
            session: &mut before,
            store: match &mut self.store {
                Ok(store) => Ok(&mut **store),
                Err(why) => Err(*why),
            },
            counters: self.counters.as_deref_mut(),
            clock: &self.clock,
            observer: &mut *self.observer,
            compared: None,
            counts: CountedChecks::OnlyTotals,
        };
        let outcome = run.limits(name, policy);
        let evaluated = match outcome {
            Ok((policy, outcome)) => Evaluated { policy, outcome, failure: None },
            Err(fault) => run.failed(name, fault),
        };
        let evaluated = run.complete(name, evaluated);
        before.swap_decisions(self.session);
        evaluated
    }

    #[cold]
    fn failed(&mut self, name: &str, fault: PolicyFault) -> Evaluated {
        let PolicyFault { error, on_error, is_of_store } = fault;
        if let Some(counters) = &mut self.counters {
            counters.count_error();
        }
        let OnErrors { of_call, of_front_end, of_store } = self.step.on_error;
        let of_store = of_store.filter(|_| is_of_store);
        let mut on_error = of_store.or(of_call).or(on_error).unwrap_or(of_front_end);
        let refused = format_args!("the policy {name:?} cannot be evaluated");
        if on_error == OnError::FailClosed && self.observer.lifts(&refused) {
            on_error = OnError::FailOpen;
        }
        let outcome = match on_error {
            OnError::FailOpen => Outcome::default(),
            OnError::FailClosed => Outcome {
                verdict: Verdict::Defer,
                text: UNAVAILABLE.to_owned(),
                ..Outcome::default()
            },
        };
        let policy: Arc<str> = name.chars().take(64).collect::<String>().into();
        let failure = Some(Failure { policy: Arc::clone(&policy), error, on_error });
        Evaluated { policy, outcome, failure }
    }

    /// What a policy makes of the step.
    fn outcome(
        &mut self,
        name: &str,
        policy: PolicyImage<'r>,
    ) -> Result<(Arc<str>, Outcome), PolicyFault> {
        if policy.uses_habits()
            && is_learned_at(self.step.stage)
            && let Ok(store) = &mut self.store
        {
            store.keep_lock(true);
        }
        let decided = self.limits(name, policy)?;
        let accepts = decided.1.verdict < Verdict::Defer;
        if policy.uses_habits()
            && (accepts && is_learned_at(self.step.stage) || self.has_failed(policy.settings()))
        {
            let Self { image, step, clock, compared, .. } = self;
            let image = image.map_err(PolicyFault::unread)?;
            let now = || clock().seconds;
            let added = image
                .identity()
                .and_then(|identity| Compared::by(compared, policy, identity, &step.event, now));
            let on_error = Some(policy.settings().on_error);
            added.map_err(|error| PolicyFault {
                error: error.to_string(),
                on_error,
                is_of_store: false,
            })?;
        }
        Ok(decided)
    }

    /// Whether the step is a failed recipient of which the habits are to know.
    fn has_failed(&self, settings: &PolicySettings) -> bool {
        let Step { stage, is_one_of, .. } = self.step;
        // As for limits, that of a reply is no evidence.
        *stage == AclStage::Delivery
            && is_one_of.is_some()
            && settings.habits_failures
            && self.step.event.sender != Some("")
    }

    /// Has the message learned, which all policies accept; what becomes of it by that.
    fn habits(&mut self) -> Option<Evaluated> {
        let compared = self.compared.take()?;
        let policy = compared.policy;
        let Self { image, step, session, store, counters, clock, observer, .. } = self;
        let (Ok(image), Ok(store)) = (image, store) else { return None };
        let has_failed = step.stage == AclStage::Delivery;
        let message = ComparedMessage {
            event: step.event,
            recipients: step.recipients,
            stage: match has_failed {
                true => SendingStage::Failed,
                false if is_bounce(&step.event) || (step.marked)() => SendingStage::Marked,
                false => SendingStage::Sent,
            },
            only_looks: step.only_looks,
            bypassed: step.bypassed,
        };
        let identity = image.identity().map_err(|error| error.to_string());
        let outcome = identity.and_then(|identity| {
            let visit = |key: &str, judged: &Judged| observer.judged(key, judged);
            compared.judge(identity, &message, &mut session.habits, *store, clock(), visit)
        });
        let name = Arc::clone(policy.name());
        let outcome = match outcome {
            Ok(outcome) => outcome?,
            Err(error) => {
                let on_error = Some(policy.settings().on_error);
                let failed = self.failed(&name, PolicyFault { error, on_error, is_of_store: true });
                return Some(self.complete(&name, failed));
            }
        };
        if let Some(counters) = counters.as_mut().filter(|_| !step.only_looks) {
            let observed = policy.settings().action == Action::Observe || step.bypassed;
            counters.count(&Checked::of_habits(&name, observed, outcome.measured));
        }
        // As a rule, it is nothing to what limits have decided.
        outcome.habits.as_ref()?;
        let evaluated = Evaluated { policy: Arc::clone(&name), outcome, failure: None };
        Some(self.complete(&name, evaluated))
    }

    /// Counts what the account of the step sends by it.
    fn count_usage(&mut self, account: (Field, &str), strictest: Option<&Evaluated>) {
        let Self { image: Ok(image), step, session, store: Ok(store), clock, .. } = self else {
            return;
        };
        let accepted = strictest.is_none_or(|one| one.outcome.verdict < Verdict::Defer);
        let sent = sent(step, session, accepted);
        if sent.is_nothing() {
            return;
        }
        let (field, text) = account;
        let is_it = |key: &str| usage::is_of(field, key);
        let fold =
            || image.identity().ok().map(|identity| usage::key(identity, field, &step.event));
        let key = session.account_key(text, is_it, || fold().unwrap_or_default());
        if key.is_empty() {
            return;
        }
        let day = |at| image.zone().map_or_else(|_| Zone::default().day(at), |zone| zone.day(at));
        let counting = Counting { identity: key.as_bytes(), sent, day: &day };
        if store.count_usage(&counting, &*clock).is_err()
            && let Some(counters) = &mut self.counters
        {
            counters.count_error();
        }
    }

    /// What the limits of a policy make of the step.
    fn limits(
        &mut self,
        name: &str,
        policy: PolicyImage<'_>,
    ) -> Result<(Arc<str>, Outcome), PolicyFault> {
        let Self { image, step, session, store, counters, clock, observer, counts, .. } = self;
        let clock = &*clock;
        let image = image.map_err(PolicyFault::unread)?;
        let settings = policy.settings();
        let fault = |error: String, is_of_store: bool| {
            let on_error = Some(settings.on_error);
            PolicyFault { error, on_error, is_of_store }
        };
        let damaged = |error: ImageError| fault(error.to_string(), false);
        let store = store.as_mut().map_err(|error| fault((*error).to_owned(), true))?;
        let identity = image.identity().map_err(damaged)?;
        let rules = Rules { name, identity, policy };

        let (cache, occurrences, known) = session.parts(policy.name());
        // Where each recipient is evaluated, it may apply to one of them.
        let is_one = !known.counted.wants_each_recipient(step.stage);
        if is_one && !applies(settings, identity, &step.event) {
            known.counted.pass(step.stage, &step.facts);
            if step.stage == AclStage::Rcpt {
                *known.recipient_is_exempt = Some(false);
            }
            return Ok((Arc::clone(known.policy), Outcome::default()));
        }
        let recipients = step.facts.recipients.max(known.accepted);
        let facts = SessionFacts { recipients, ..step.facts };
        known.counted.occurrences(step.stage, &facts, occurrences);
        if let Some(unit) = step.is_one_of {
            let of_it = occurrences.iter_mut().filter(|one| unit.includes(one.unit));
            of_it.for_each(|one| one.count = 1.0);
        }
        if step.stage == AclStage::Route && step.event.recipient.is_none() {
            // A whole message.
            let all = occurrences.iter_mut().filter(|one| one.unit == Unit::Recipients);
            all.for_each(|one| one.count = step.facts.recipients.max(1).into());
        }
        let all_exempt = policy.exempts_recipients()
            && leave_out_exempt(&rules, step, recipients, known.all_exempt, occurrences, clock)
                .map_err(damaged)?;
        let counts = *counts;
        let delivered_after = (step.stage == AclStage::Delivery).then_some(step.facts.message_age);
        // Of the message, then of each recipient.
        let mut weigh = |event: &Event<&str>, occurrences: &[Occurrence]| {
            let visit = |decided: &Decided<'_>| {
                if let Some(counters) = counters.as_mut().filter(|_| !step.only_looks) {
                    let checked = decided.checked(settings);
                    let observed = checked.observed || step.bypassed;
                    counters.count(&Checked { observed, ..checked });
                }
                observer.decided(decided);
            };
            let all_exempt = all_exempt && event.recipient.is_none();
            let bypassed = step.bypassed;
            let counted = ToCount { occurrences, all_exempt, counts, delivered_after, bypassed };
            let decided = decide(&rules, event, counted, cache, *store, clock, visit);
            decided.map_err(|error| fault(error.to_string(), true))
        };
        let outcome = weigh(&step.event, occurrences)?;
        if step.stage == AclStage::Rcpt {
            *known.recipient_is_exempt = Some(outcome.exempt);
        }
        let policy = Arc::clone(known.policy);
        if !known.counted.wants_each_recipient(step.stage) || outcome.verdict >= Verdict::Defer {
            return Ok((policy, outcome));
        }
        // All recipients are known, and none was counted at RCPT.
        let each = match known.each_recipient {
            Some(each) => each.clone(),
            none => none.insert(strictest_of_each(step, weigh)?).clone(),
        };
        Ok((policy, if each.outweighs(&outcome) { each } else { outcome }))
    }
}

/// What `weigh` makes of the strictest of the step's recipients.
fn strictest_of_each(
    step: &Step<'_>,
    mut weigh: impl FnMut(&Event<&str>, &[Occurrence]) -> Result<Outcome, PolicyFault>,
) -> Result<Outcome, PolicyFault> {
    let one = [Occurrence::one(Unit::UniqueRecipients, Scope::Evaluation)];
    let mut strictest = Outcome::default();
    for address in (step.recipients)() {
        let outcome = weigh(&Event { recipient: Some(&address), ..step.event }, &one)?;
        if outcome.outweighs(&strictest) {
            strictest = outcome;
        }
    }
    Ok(strictest)
}

/// Leaves the exempt ones of `recipients` out of `occurrences`; whether each of the message is,
/// which was known to be `all_exempt` before.
fn leave_out_exempt(
    rules: &Rules<'_>,
    step: &Step<'_>,
    recipients: u32,
    all_exempt: bool,
    occurrences: &mut Vec<Occurrence>,
    clock: &impl Fn() -> Timestamp,
) -> Result<bool, ImageError> {
    // Before the first recipient it is not known whether the message counts.
    if matches!(step.stage, AclStage::Mail | AclStage::NotSmtpStart) {
        occurrences.retain(|one| !one.is_of_message());
    }
    if !step.stage.has_all_recipients() {
        return Ok(false);
    }
    let listed = (step.recipients)();
    if listed.is_empty() || listed.len() < recipients as usize {
        return Ok(all_exempt);
    }
    let exempt = exempt_recipients(rules, &step.event, &listed, clock().seconds)?;
    let counts_recipients = |unit: Unit| unit == Unit::Recipients || unit.is_share();
    for one in occurrences.iter_mut().filter(|one| counts_recipients(one.unit)) {
        one.count = (one.count - exempt as f64).max(0.0);
    }
    Ok(exempt == listed.len())
}

/// What the step adds to what its account has sent.
#[inline]
fn sent(step: &Step<'_>, session: &mut PolicySession, accepted: bool) -> Sent {
    if step.stage == AclStage::Delivery {
        // As for limits: who refuses the replies of a program is chosen by strangers.
        let is_failure = step.event.sender != Some("")
            && step.is_one_of.is_some_and(|unit| unit.includes(Unit::FailedRecipients));
        return Sent { failed: is_failure.into(), ..Sent::default() };
    }
    let recipients = step.facts.recipients.max(session.accepted());
    let facts = SessionFacts { recipients, ..step.facts };
    session.usage.sent(step.stage, &facts, accepted)
}

/// Whether a total of `policy` counts `event`.
fn counts_in_total(identity: &Identity, policy: &PolicyImage<'_>, event: &Event<&str>) -> bool {
    if !applies(policy.settings(), identity, event) {
        return false;
    }
    let Some(key) = Key::of(identity, &policy.settings().key, event) else { return false };
    let mut limits = Vec::new();
    let found = policy.limits(&Subject::of_sender(&key, event), &mut limits);
    found.is_ok() && limits.iter().any(is_total)
}

/// The policy of this name, or why it cannot be used.
fn named_policy<'i>(
    image: Result<&'i Image, &String>,
    name: &str,
) -> Result<PolicyImage<'i>, PolicyFault> {
    let image = image.map_err(PolicyFault::unread)?;
    let policy = image.policy(name).map_err(PolicyFault::unread)?;
    policy.ok_or_else(|| PolicyFault::unread(Unknown { name, image }))
}

/// A policy that does not exist.
struct Unknown<'a> {
    name: &'a str,
    image: &'a Image,
}

impl fmt::Display for Unknown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name: String = self.name.chars().take(64).collect();
        let known: Vec<&str> = self.image.names().collect();
        write!(f, "there is no policy {name:?} (the policies are: {})", known.join(", "))
    }
}

/// Completes crossings and refusals with what is known of the event, and what the policies made
/// of it, if they decided it.
#[cold]
pub fn describe(store: &mut impl Store, evaluated: Option<&Evaluated>, event: &Event<&str>) {
    describe_as(store, evaluated, event, |details| details);
}

/// The same, with other words for some of it.
#[cold]
fn describe_as(
    store: &mut impl Store,
    evaluated: Option<&Evaluated>,
    event: &Event<&str>,
    change: impl for<'d> FnOnce(EventDetails<'d>) -> EventDetails<'d>,
) {
    let reason = evaluated.and_then(|evaluated| evaluated.outcome.reason.as_ref());
    let habits = evaluated.and_then(|evaluated| evaluated.outcome.habits.as_ref());
    let of_habits = || habits.map(|one| (&*one.rule, HABITS));
    let of_reason = reason.map(|one| (&*one.rule, one.unit.word()));
    let (rule, unit) = of_reason.or_else(of_habits).unwrap_or_default();
    let client = event.client.address().map(|client| client.to_string()).unwrap_or_default();
    let bytes = |text: Option<&'_ str>| text.unwrap_or_default().as_bytes().to_owned();
    store.describe(&change(EventDetails {
        policy: evaluated.map_or("", |evaluated| &evaluated.policy).as_bytes(),
        rule: rule.as_bytes(),
        unit: unit.as_bytes(),
        login: &bytes(event.auth),
        client: client.as_bytes(),
        sender: &bytes(event.sender),
        recipient: &bytes(event.recipient),
        message_id: &bytes(event.message_id),
        protocol: &bytes(event.protocol),
        script: &bytes(event.script),
        evidence: b"",
        enforcement: evaluated.map(|evaluated| evaluated.outcome.enforcement()).unwrap_or_default(),
    }));
}

#[cfg(test)]
#[cfg(feature = "cli")]
mod habits_tests;
#[cfg(test)]
#[cfg(feature = "cli")]
mod tests;
