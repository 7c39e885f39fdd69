//! What a call of `policy` does: facts → policy → verdict.

use super::facts::{Attributes, PolicyFacts, PolicyVariables};
use super::state::Policies;
use crate::cluster::ClusterStore;
use crate::event::AclStage;
use crate::exim::host::bypass::Stop;
use crate::exim::host::context;
use crate::exim::host::exports::Host;
use crate::exim::host::variables::{VariableSource, Variables};
use crate::exim::rates::asked::attribute;
use crate::exim::rates::info::unknown_field;
use crate::exim::rates::rate_variables::{RateVariables, Setting};
use crate::exim::rates::session::{CallError, Session};
use crate::identity::written;
use crate::policy::evaluator::{Evaluated, Evaluator, Observer, OnErrors, Step};
use crate::policy::info::{Field, POLICY_FIELDS, PolicyInfo};
use crate::policy::outcome::Reason;
use crate::policy::reply::Fields;
use crate::policy::word::{At, Verdict, Word as _};
use crate::rate::Timestamp;
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
        let is_route = attributes.at == Some(At::Delivery);
        if is_route
            && (stage != AclStage::Outside || !self.variables.message_id.is_there(&self.host))
        {
            let text = "policy: at=delivery is for a router that has a message";
            return Err(CallError::Usage(text.into()));
        }
        self.forget_what_ended(stage);
        if self.asks(stage) {
            return self.ask_policies(stage, names, &attributes);
        }
        self.command_marks.set();
        self.message_marks.set();
        let opened = self.store().map(|_| ()).map_err(|error| error.to_string());
        let debugs = self.variables.debugs_acls(&self.host);
        let bypassed = self.stop.is_active(&self.host, &self.variables);
        let Self { host, variables, acls, policies, store, rate_variables, stop, .. } = self;
        let Policies { variables: more, evaluator, session, latest, asked, logged } = policies;
        *asked = None;
        let evaluator =
            evaluator.get_or_insert_with(|| new_evaluator(host, variables, store.as_ref()));
        let more = more.get_or_insert_with(|| {
            PolicyVariables::find(&VariableSource::new(host, acls.tables()))
        });
        let facts = PolicyFacts::read(host, variables, more, stage, &attributes);
        let recipients = || {
            let addresses = more.recipients.read(host, &variables.recipients_count);
            addresses.unwrap_or_default().into_iter().map(|text| written(text.into())).collect()
        };
        let step = Step {
            stage: if is_route { AclStage::Route } else { stage },
            event: facts.event.view(),
            facts: facts.session,
            recipients: &recipients,
            is_one_of: None,
            marked: &|| more.is_marked(),
            only_looks: false,
            bypassed,
            on_error: OnErrors { of_call: attributes.on_error, ..OnErrors::default() },
        };
        let store = store.as_mut().ok_or(opened.as_ref().err().map_or("", String::as_str));
        let mut shown = Shown { host, variables, debugs, logged, stop };
        let names = written(names.into());
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

/// The reply to a router where the daemon has not decided.
const NOT_ROUTED: &[u8] = b"verdict=\"defer\" route=\"defer: no verdict from exirate/callers\"";

impl Session {
    /// Has the daemon evaluate them, for an account.
    #[cold]
    #[inline(never)]
    fn ask_policies(
        &mut self,
        stage: AclStage,
        names: &[u8],
        attributes: &Attributes<'_>,
    ) -> Result<Verdict, CallError> {
        let mut request = "request=exirate_policy\n".to_owned();
        let Attributes { package, script, on_error, refused, at, age } = attributes;
        let on_error = on_error.map(|word| word.word().into());
        let policies = Some(written(names.into())).filter(|names| names.trim() != "*");
        for (name, value) in [
            ("policies", &policies),
            ("package", package),
            ("script", script),
            ("on_error", &on_error),
        ] {
            if let Some(value) = value {
                attribute(&mut request, name, value.as_bytes());
            }
        }
        if let Some(at) = at {
            request.push_str(&format!("at={}\nage={}\n", at.word(), age.unwrap_or(0)));
        }
        request.push_str(if *refused == Some(true) { "refused=1\n" } else { "" });
        let asked = match self.ask(stage, &request) {
            // An error of the router would delay what others send to the same address, too.
            Err(CallError::Undecided(_)) if *at == Some(At::Delivery) => {
                Some(Fields::parse(NOT_ROUTED))
            }
            asked => asked?,
        };
        self.command_marks.set();
        self.message_marks.set();
        let Some(fields) = asked else { return Ok(Verdict::Accept) };
        let verdict = fields.get(b"verdict").map(String::from_utf8_lossy);
        let verdict = verdict.and_then(|word| Verdict::of(&word));
        let unknown = || CallError::Undecided("its reply has no verdict".to_owned());
        self.rate_variables.set_rate(fields.rate());
        let window = fields.get(b"window").unwrap_or_default();
        let slash = window.iter().position(|&byte| byte == b'/').unwrap_or(window.len());
        let (limit, period) = window.split_at(slash);
        let period = period.get(1..).unwrap_or_default();
        let [limit, period] = [limit, period].map(Setting::Checked);
        self.rate_variables.set_texts(&self.host, limit, period);
        self.policies.asked = Some(fields);
        verdict.ok_or_else(unknown)
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

/// A field of the latest call of `policy`, as of `now`.
pub(in crate::exim) fn field<'a>(
    policies: &'a Policies,
    name: &[u8],
    now: Timestamp,
) -> Result<Field<'a>, CallError> {
    let name = name.trim_ascii();
    if !POLICY_FIELDS.split(", ").any(|field| field.as_bytes() == name) {
        return Err(unknown_field("policy_info", name, POLICY_FIELDS));
    }
    if let Some(asked) = &policies.asked {
        return Ok(asked.field(name).unwrap_or(Field::Checked(b"")));
    }
    let Some(latest) = &policies.latest else {
        return Err(CallError::Usage(
            "policy_info: no policy has been evaluated in this process yet (it describes the \
             latest call of policy)"
                .into(),
        ));
    };
    let field = PolicyInfo::from(latest).field(name, now);
    field.ok_or_else(|| unknown_field("policy_info", name, POLICY_FIELDS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_router_without_a_decision_has_its_recipient_wait() {
        let fields = Fields::parse(NOT_ROUTED);
        assert_eq!(fields.get(b"verdict"), Some(&b"defer"[..]));
        assert!(fields.get(b"route").unwrap().starts_with(b"defer: no verdict"));
    }
}
