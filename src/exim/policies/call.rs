//! What a call of `policy` does: facts → policy → verdict.

use super::facts::{Attributes, PolicyFacts, PolicyVariables, lossy};
use super::state::Policies;
use crate::cluster::ClusterStore;
use crate::exim::host::bypass::Stop;
use crate::exim::host::context;
use crate::exim::host::exports::Host;
use crate::exim::host::variables::{Source, Variables};
use crate::exim::rates::info::Field;
use crate::exim::rates::rate_variables::{RateVariables, Setting};
use crate::exim::rates::session::{CallError, Session};
use crate::policy::evaluator::{Evaluated, Evaluator, Observer, OnErrors, Step};
use crate::policy::explain;
use crate::policy::outcome::{Outcome, Reason};
use crate::policy::word::{OnError, Verdict, Word as _};
use crate::rate::{Timestamp, Wait};
use crate::sys::{clock, fork};
use std::fmt::Display;

impl Session {
    /// Evaluates policies with the attributes of the call: the policy `names`, several
    /// separated by commas, or `*` for all. They are evaluated in this order until one
    /// refuses the event; the strictest verdict counts.
    pub(in crate::exim) fn policy(
        &mut self,
        names: &[u8],
        more: &[&[u8]],
    ) -> Result<Verdict, CallError> {
        let attributes = Attributes::read(more);
        let attributes =
            attributes.map_err(|error| CallError::Usage(format!("policy: {error}").into()))?;
        let stage = context::stage(&self.host, &self.variables, &self.acls);
        self.forget_what_ended(stage);
        self.command_marks.set();
        self.message_marks.set();
        let opened = self.store().map(|_| ()).map_err(|error| error.to_string());
        let only_looks = self.variables.only_looks(&self.host);
        let debugs = self.variables.debugs_acls(&self.host);
        let bypassed = self.stop.is_active(&self.host, &self.variables);
        let Self { host, variables, acls, policies, store, rate_variables, stop, .. } = self;
        let Policies { variables: more, evaluator, session, latest, logged } = policies;
        let evaluator =
            evaluator.get_or_insert_with(|| new_evaluator(host, variables, store.as_ref()));
        let more =
            more.get_or_insert_with(|| PolicyVariables::find(&Source::new(host, acls.tables())));
        let facts = PolicyFacts::read(host, variables, more, stage, &attributes);
        let recipients = || {
            let addresses = more.recipients.read(host, &variables.recipients_count);
            addresses.unwrap_or_default().into_iter().map(|text| lossy(text.into())).collect()
        };
        let step = Step {
            stage,
            event: facts.event.view(),
            facts: facts.session,
            recipients: &recipients,
            is_one_of: None,
            only_looks,
            bypassed,
            on_error: OnErrors { of_call: attributes.on_error, of_front_end: OnError::FailOpen },
        };
        let store = store.as_mut().ok_or(opened.as_ref().err().map_or("", String::as_str));
        let mut shown = Shown { host, variables, debugs, logged, stop };
        let names = lossy(names.into());
        let clock = || clock::now().into();
        let latest =
            latest.insert(evaluator.evaluate(session, &names, &step, store, clock, &mut shown));
        let verdict = latest.outcome.verdict;
        if let Some(reason) = &latest.outcome.reason {
            show_reason(rate_variables, host, reason);
        }
        self.log_damage();
        Ok(verdict)
    }
}

/// The evaluator, which is opened at the first call.
#[cold]
fn new_evaluator(
    host: &Host,
    variables: &Variables,
    store: Option<&ClusterStore>,
) -> Evaluator<'static> {
    match (crate::exim::host::directory::spool(host, variables), store) {
        (Ok(directory), Some(store)) => Evaluator::beside(store.spool(), &directory),
        // The policies say what is to be done without a database.
        (Ok(directory), None) => Evaluator::open(&directory),
        (Err(error), _) => Evaluator::without_policies(CallError::Directory(error).to_string()),
    }
}

/// Sets `$sender_rate`, `$sender_rate_limit` and `$sender_rate_period`.
fn show_reason(rate_variables: &mut RateVariables, host: &Host, reason: &Reason) {
    rate_variables.set_rate(Some(reason.decision.rate));
    let (limit, period) = reason.window().split_once('/').unwrap_or((reason.window(), ""));
    let [limit, period] = [limit, period].map(|text| Setting::Checked(text.as_bytes()));
    rate_variables.set_texts(host, limit, period);
}

/// What Exim shows of an evaluation.
struct Shown<'a> {
    host: &'a Host,
    variables: &'a Variables,
    stop: &'a mut Stop,
    /// Whether Exim debugs its ACLs.
    debugs: bool,
    /// The process that has logged an error: each logs one.
    logged: &'a mut Option<u32>,
}

impl Observer for Shown<'_> {
    fn lifts(&mut self, what: &dyn Display) -> bool {
        self.stop.lifts(self.host, self.variables, what)
    }

    #[inline]
    fn evaluated(&mut self, evaluated: &Evaluated) {
        if let Some(failure) = &evaluated.failure
            && self.logged.replace(fork::process()) != Some(fork::process())
        {
            self.host.log(&format!("exirate: {failure}"));
        }
        if self.debugs {
            self.host.debug(&debug_line(evaluated));
        }
    }
}

/// What `exim -d+acl` shows.
#[cold]
fn debug_line(evaluated: &Evaluated) -> String {
    let Evaluated { policy, outcome, failure } = evaluated;
    let verdict = outcome.verdict.word();
    match (&outcome.reason, failure) {
        (_, Some(failure)) => {
            let error = &failure.error;
            format!("exirate policy {policy:?}: {verdict}, as {error}")
        }
        (None, None) => format!("exirate policy {policy:?}: {verdict}, as no limit applies"),
        (Some(reason), None) => format!(
            "exirate policy {policy:?}: {verdict}: {} {} of {} by {}, rate {:.1}",
            reason.window(),
            reason.unit.word(),
            reason.key(),
            reason.rule,
            reason.decision.rate
        ),
    }
}

/// A verdict and its reason in a line.
#[cold]
fn explanation(policy: &str, outcome: &Outcome, now: Timestamp) -> String {
    let verdict = outcome.verdict.word();
    let Some(reason) = outcome.reason.as_deref() else {
        return format!("{verdict} by policy {policy}: no limit applies");
    };
    let why = match (outcome.exempt, outcome.observed) {
        (true, _) => format!(" (exempt, else {})", outcome.measured.word()),
        (false, true) => format!(" (observed, else {})", outcome.measured.word()),
        (false, false) => String::new(),
    };
    let what = format!("{} of {}", reason.unit.word().replace('_', " "), reason.key());
    let decided = explain::decided(&reason.decision, reason.window(), &what, now);
    let line = format!("{verdict}{why} by policy {policy}, rule {}: {decided}", reason.rule);
    line.escape_debug().collect()
}

/// All fields of `policy_info`, for the error that lists them.
const FIELDS: &str = "verdict, text, policy, rule, window, unit, key, rate, limit, remaining, \
                      retry_after, delay, score, crossed, observed, exempt, measured, explain, error";

/// A field of the latest call of `policy`, as of `now`.
pub(in crate::exim) fn field<'a>(
    policies: &'a Policies,
    name: &[u8],
    now: Timestamp,
) -> Result<Field<'a>, CallError> {
    let name = name.trim_ascii();
    if !FIELDS.split(", ").any(|field| field.trim().as_bytes() == name) {
        let name = name[..name.len().min(40)].escape_ascii();
        let text = format!("policy_info: unknown field \"{name}\" (one of: {FIELDS})");
        return Err(CallError::Usage(text.into()));
    }
    let Some(Evaluated { policy, outcome, failure }) = &policies.latest else {
        return Err(CallError::Usage(
            "policy_info: no policy has been evaluated in this process yet (it describes the \
             latest call of policy)"
                .into(),
        ));
    };
    let yes = |is: bool| Field::Checked(if is { b"yes" } else { b"no" });
    let text = |text: &'a str| Field::Unchecked(text.as_bytes());
    let reason = outcome.reason.as_deref();
    let decision = reason.map(|reason| &reason.decision);
    let of_reason = |of: fn(&Reason) -> &str| text(reason.map_or("", of));
    Ok(match name {
        b"verdict" => Field::Checked(outcome.verdict.word().as_bytes()),
        b"measured" => Field::Checked(outcome.measured.word().as_bytes()),
        b"text" => text(&outcome.text),
        b"policy" => text(policy),
        b"rule" => of_reason(|reason| &reason.rule),
        b"window" => of_reason(Reason::window),
        b"unit" => of_reason(|reason| reason.unit.word()),
        b"key" => of_reason(Reason::key),
        b"rate" => Field::Rate(decision.map_or(0.0, |decision| decision.rate)),
        b"limit" => match decision {
            Some(decision) => Field::Size(decision.limit),
            None => Field::Checked(b"unlimited"),
        },
        b"remaining" => match decision.map(|decision| decision.remaining(now)) {
            Some(left) if left.is_finite() => Field::Whole(left),
            _ => Field::Checked(b"unlimited"),
        },
        b"retry_after" => match decision.map(|decision| decision.retry_after(now)) {
            Some(Wait::Seconds(seconds)) => Field::Whole(seconds.ceil()),
            Some(Wait::Never) => Field::Checked(b"never"),
            None => Field::Whole(0.0),
        },
        b"explain" => Field::Made(explanation(policy, outcome, now)),
        b"delay" => Field::Whole(outcome.delay.ceil()),
        b"score" => Field::Score(reason.map_or(0.0, Reason::score)),
        b"crossed" => yes(outcome.crossed),
        b"observed" => yes(outcome.observed),
        b"exempt" => yes(outcome.exempt),
        _ => text(failure.as_ref().map_or("", |failure| &failure.error)),
    })
}
