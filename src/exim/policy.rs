//! What a call of `policy` does: facts → policy → verdict.

use super::boundary::Session as _;
use super::context;
use super::info::Field;
use super::policy_facts::{Attributes, PolicyFacts, PolicyVariables, lossy};
use super::policy_state::{CountedBy, Latest, Policies};
use super::rate_variables::Setting;
use super::session::{CallError, Session};
use super::variables::Source;
use crate::policy::counters::{Checked, Counters};
use crate::policy::decide::{DecideError, Rules, decide};
use crate::policy::event::{Event, Occurrence};
use crate::policy::explain;
use crate::policy::image::{Image, ImageError, PolicyFile};
use crate::policy::outcome::{Decided, Outcome, Reason};
use crate::policy::word::{OnError, Unit, Verdict, Word as _};
use crate::rate::{Timestamp, Wait};
use crate::remote::RemoteError;
use crate::stage::{AclStage, Scope};
use crate::sys::{clock, fork};
use std::borrow::Cow;
use std::fmt;

/// Why a policy cannot be evaluated.
#[derive(Debug)]
enum PolicyError {
    /// The image cannot be used.
    Image(String),
    /// There is no such policy.
    Unknown { name: String, known: String },
    /// The database cannot be used.
    Store(CallError),
}

impl PolicyError {
    fn of(error: DecideError<ImageError, RemoteError>) -> Self {
        match error {
            DecideError::Tables(error) => Self::Image(error.to_string()),
            DecideError::Store(error) => Self::Store(CallError::Database(error)),
        }
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Image(error) => f.write_str(error),
            Self::Unknown { name, known } => {
                let name = name.escape_debug();
                write!(f, "there is no policy \"{name}\" (the policies are: {known})")
            }
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl Session {
    /// Evaluates policies with the attributes of the call: the policy `names`, several
    /// separated by commas, or `*` for all. They are evaluated in this order until one
    /// refuses the event; the strictest verdict counts.
    pub(super) fn policy(&mut self, names: &[u8], more: &[&[u8]]) -> Result<Verdict, CallError> {
        let attributes = Attributes::read(more);
        let attributes =
            attributes.map_err(|error| CallError::Usage(format!("policy: {error}").into()))?;
        let stage = context::stage(&self.host, &self.variables, &self.acls);
        self.forget_what_ended(stage);
        self.command_marks.set();
        self.message_marks.set();
        let names = lossy(names.into());
        let names = match names.trim() {
            "*" => self.all_names().map_or(names, Cow::Owned),
            _ => names,
        };
        let mut latest: Option<Latest> = None;
        for name in names.split(',') {
            let this = self.one_policy(name.trim(), &attributes, stage);
            let refuses = this.outcome.verdict >= Verdict::Defer;
            if latest.as_ref().is_none_or(|before| this.outcome.outweighs(&before.outcome)) {
                latest = Some(this);
            }
            if refuses {
                break;
            }
        }
        let latest = latest.unwrap_or_default();
        if let Some(reason) = &latest.outcome.reason {
            self.show_reason(reason);
        }
        let verdict = latest.outcome.verdict;
        self.policies.latest = Some(latest);
        Ok(verdict)
    }

    /// The names of all policies, separated by commas, if the image can be read.
    #[cold]
    fn all_names(&mut self) -> Option<String> {
        let names: Vec<&str> = self.image().ok()?.names().collect();
        Some(names.join(","))
    }

    /// Evaluates one policy.
    fn one_policy(&mut self, name: &str, attributes: &Attributes<'_>, stage: AclStage) -> Latest {
        let policy = name.to_owned();
        let mut latest = match self.evaluate(name, attributes, stage) {
            Ok(outcome) => Latest { policy, outcome, error: None },
            Err((error, on_error)) => {
                let mut on_error = attributes.on_error.unwrap_or(on_error);
                let failed = format_args!("the policy {name:?} cannot be evaluated");
                if on_error == OnError::FailClosed && self.lifts(&failed) {
                    on_error = OnError::FailOpen;
                }
                self.log_policy_error(name, &error, on_error);
                if let Some(counters) = &mut self.policies.counters {
                    counters.count_error();
                }
                let outcome = match on_error {
                    OnError::FailOpen => Outcome::default(),
                    OnError::FailClosed => Outcome {
                        verdict: Verdict::Defer,
                        text: "Temporarily unavailable; try again later".to_owned(),
                        ..Outcome::default()
                    },
                };
                Latest { policy, outcome, error: Some(error.to_string()) }
            }
        };
        let Outcome { verdict, .. } = latest.outcome;
        let refused = format_args!("the policy {name:?} says {}", verdict.word());
        if verdict > Verdict::Log && self.lifts(&refused) {
            latest.outcome.lift();
        }
        if self.has_events() {
            let reason = latest.outcome.reason.as_ref();
            let (rule, unit) = reason.map_or(("", ""), |one| (&one.rule, one.unit.word()));
            let texts = [&latest.policy, rule, unit].map(str::as_bytes);
            self.describe_events(texts, latest.outcome.enforcement());
        }
        if self.variables.debugs_acls(&self.host) {
            self.host.debug(&debug_line(&latest));
        }
        latest
    }

    /// The outcome, or why there is none and what to do then.
    fn evaluate(
        &mut self,
        name: &str,
        attributes: &Attributes<'_>,
        stage: AclStage,
    ) -> Result<Outcome, (PolicyError, OnError)> {
        let open = OnError::FailOpen;
        self.image().map_err(|error| (error, open))?;
        self.store()
            .map(|_| ())
            .map_err(|error| (PolicyError::Store(error), self.on_error(name)))?;
        let only_looks = self.variables.only_looks(&self.host);
        let bypassed = self.stop.is_active(&self.host, &self.variables);
        let Self { host, variables, acls, policies, decisions, store, .. } = self;
        let more = policies
            .variables
            .get_or_insert_with(|| PolicyVariables::find(&Source::new(host, acls.tables())));
        let image = policies.file.as_ref().and_then(|file| file.image().ok());
        let counters = policies.counters.as_mut();
        let (Some(image), Some(store), Some(counters)) = (image, store, counters) else {
            return Ok(Outcome::default());
        };
        let damaged = |error: ImageError| (PolicyError::Image(error.to_string()), open);
        let identity = image.identity().map_err(damaged)?;
        let policy = image.policy(name).map_err(damaged)?;
        let policy = policy.ok_or_else(|| (unknown(name, image), open))?;
        let head = policy.head();
        let rules = Rules { name, identity, head, tables: &policy };
        let facts = PolicyFacts::read(host, variables, more, stage, attributes);
        let by = counted_by(&mut policies.counted, name);
        let occurrences = &mut policies.occurrences;
        by.counted.occurrences(stage, &facts.session, occurrences);
        let event = facts.event(attributes);
        let mut of = |event: &Event<'_>, occurrences: &[Occurrence]| {
            let count = |decided: &Decided<'_>| {
                if !only_looks {
                    let checked = decided.checked(head);
                    let observed = checked.observed || bypassed;
                    counters.count(&Checked { observed, ..checked });
                }
            };
            let now = || clock::now().into();
            decide(&rules, event, occurrences, only_looks, decisions, store, now, count)
                .map_err(|error| (PolicyError::of(error), head.on_error))
        };
        let outcome = of(&event, occurrences)?;
        if !by.counted.wants_each_recipient(stage) || outcome.verdict >= Verdict::Defer {
            return Ok(outcome);
        }
        // All recipients are known, and none was counted at RCPT.
        let each = match &by.each_recipient {
            Some(each) => each.clone(),
            None => {
                let addresses = more.recipients.read(host, &variables.recipients_count);
                let one = [Occurrence::one(Unit::UniqueRecipients, Scope::Evaluation)];
                let mut strictest = Outcome::default();
                for address in addresses.unwrap_or_default() {
                    let address = lossy(address.into());
                    let outcome = of(&Event { recipient: Some(&address), ..event }, &one)?;
                    if outcome.outweighs(&strictest) {
                        strictest = outcome;
                    }
                }
                by.each_recipient.insert(strictest).clone()
            }
        };
        Ok(if each.outweighs(&outcome) { each } else { outcome })
    }

    /// The image of the policies, opened again if another has replaced it.
    fn image(&mut self) -> Result<&Image, PolicyError> {
        let file = match self.policies.file {
            Some(ref mut file) => file,
            None => {
                let directory = super::directory::spool(&self.host, &self.variables);
                let directory =
                    directory.map_err(|error| PolicyError::Store(CallError::Directory(error)))?;
                self.policies.counters = Some(Counters::new(&directory));
                let opened = match self.store() {
                    Ok(store) => PolicyFile::beside(store.spool(), &directory),
                    // It says what is to be done without a database.
                    Err(_) => PolicyFile::open(&directory),
                };
                self.policies.file.insert(opened)
            }
        };
        file.refresh().map_err(|error| PolicyError::Image(error.to_string()))
    }

    /// What the policy `name` says of errors, if it can be read.
    fn on_error(&self, name: &str) -> OnError {
        let image = self.policies.file.as_ref().and_then(|file| file.image().ok());
        let policy = image.and_then(|image| image.policy(name).ok());
        policy.flatten().map_or(OnError::FailOpen, |policy| policy.head().on_error)
    }

    /// Sets `$sender_rate`, `$sender_rate_limit` and `$sender_rate_period`.
    fn show_reason(&mut self, reason: &Reason) {
        self.rate_variables.set_rate(Some(reason.decision.rate));
        let (limit, period) = reason.window().split_once('/').unwrap_or((reason.window(), ""));
        let [limit, period] = [limit, period].map(|text| Setting::Checked(text.as_bytes()));
        self.rate_variables.set_texts(&self.host, limit, period);
    }

    /// Logs an error in the main log, once a process.
    #[cold]
    fn log_policy_error(&mut self, name: &str, error: &PolicyError, on_error: OnError) {
        if self.policies.logged.replace(fork::process()) == Some(fork::process()) {
            return;
        }
        let done = match on_error {
            OnError::FailOpen => "the mail is not limited by it",
            OnError::FailClosed => "the mail is deferred",
        };
        let name = name.escape_debug();
        let on_error = on_error.word();
        self.host.log(&format!(
            "exirate: cannot evaluate the policy \"{name}\", so {done} (on_error = {on_error}): {error}"
        ));
    }
}

fn unknown(name: &str, image: &Image) -> PolicyError {
    let known: Vec<&str> = image.names().collect();
    PolicyError::Unknown { name: name.chars().take(64).collect(), known: known.join(", ") }
}

fn counted_by<'a>(all: &'a mut Vec<(String, CountedBy)>, name: &str) -> &'a mut CountedBy {
    let at = all.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
        all.push((name.to_owned(), CountedBy::default()));
        all.len() - 1
    });
    &mut all[at].1
}

/// What `exim -d+acl` shows.
#[cold]
fn debug_line(latest: &Latest) -> String {
    let policy = latest.policy.escape_debug();
    let Latest { outcome, error, .. } = latest;
    let verdict = outcome.verdict.word();
    match (&outcome.reason, error) {
        (_, Some(error)) => format!("exirate policy \"{policy}\": {verdict}, as {error}"),
        (None, None) => format!("exirate policy \"{policy}\": {verdict}, as no limit applies"),
        (Some(reason), None) => format!(
            "exirate policy \"{policy}\": {verdict}: {} {} of {} by {}, rate {:.1}",
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
pub(super) fn field<'a>(
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
    let Some(Latest { policy, outcome, error }) = &policies.latest else {
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
    let of = |of: fn(&Reason) -> &str| text(reason.map_or("", of));
    Ok(match name {
        b"verdict" => Field::Checked(outcome.verdict.word().as_bytes()),
        b"measured" => Field::Checked(outcome.measured.word().as_bytes()),
        b"text" => text(&outcome.text),
        b"policy" => text(policy),
        b"rule" => of(|reason| &reason.rule),
        b"window" => of(Reason::window),
        b"unit" => of(|reason| reason.unit.word()),
        b"key" => of(Reason::key),
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
        _ => text(error.as_deref().unwrap_or_default()),
    })
}
