//! What exirate.so keeps between calls, and what a call does.

use super::asked::{Callers, attribute};
use super::debug;
use super::marks::Marks;
use super::rate_variables::{RateVariables, Setting};
use super::shadow_state::Shadow;
use crate::cluster::{ClusterError, ClusterStore};
use crate::engine::{Decision, Update};
use crate::event::session::DecisionCache;
use crate::exim::host::boundary::{self, Boundary};
use crate::exim::host::bypass::Stop;
use crate::exim::host::context::{self, Acls, CallFacts};
use crate::exim::host::directory::{self, NoDirectory};
use crate::exim::host::exports::Host;
use crate::exim::host::table::Tables;
use crate::exim::host::variables::{Text, VariableSource, Variables};
use crate::exim::policies::facts::{PolicyVariables, recipient};
use crate::exim::policies::identities::Identities;
use crate::exim::policies::state::Policies;
use crate::policy::check_info::CheckInfo;
use crate::policy::reply::Fields;
use crate::rate::Wait;
use crate::spec::{AclStage, Spec, SpecArguments, SpecCache, SpecError, SpecRequest, Variable};
use crate::spool::Options;
use crate::store::{EventDetails, Store};
use crate::sys::{clock, fork};
use std::borrow::Cow;
use std::fmt;
use std::rc::Rc;

/// Why a call fails.
#[derive(Debug, thiserror::Error)]
pub(in crate::exim) enum CallError {
    /// The call itself is wrong.
    #[error("{0}")]
    Usage(Cow<'static, str>),
    /// The spec is wrong.
    #[error("{0}")]
    Spec(#[source] SpecError),
    /// The spool database, or the shared store, cannot be used.
    #[error("ratelimit database not available: {0}")]
    Database(#[source] ClusterError),
    /// The directory of the spool database is unknown.
    #[error("ratelimit database not available: {0}")]
    Directory(NoDirectory),
    /// An account runs this Exim, and the daemon has not decided.
    #[error(
        "no decision by `exirate serve mail`, which decides about mail that an account of this \
         machine hands over by an Exim of its own: {0}"
    )]
    Undecided(String),
}

/// The session, behind the boundary that catches panics; for dlfunc and lookup.
pub(in crate::exim) static SESSION: Boundary<Session> = Boundary::new();

/// What is kept between calls.
pub(in crate::exim) struct Session {
    pub(in crate::exim) host: Host,
    pub(in crate::exim) latest: Option<CheckInfo>,
    /// The latest decision, if it is the daemon's.
    pub(in crate::exim) asked: Option<Fields>,
    pub(in crate::exim) callers: Callers,
    pub(in crate::exim) policies: Policies,
    pub(in crate::exim) shadow: Shadow,
    pub(in crate::exim) identities: Identities,
    specs: SpecCache,
    pub(in crate::exim) variables: Variables,
    pub(in crate::exim) acls: Acls,
    pub(in crate::exim) rate_variables: RateVariables,
    pub(in crate::exim) command_marks: Marks,
    pub(in crate::exim) message_marks: Marks,
    pub(in crate::exim) decisions: DecisionCache,
    /// The RCPT command of the latest call, by its number within its message.
    recipient: Option<i64>,
    /// The process in which the cached decisions were made.
    process: u32,
    pub(in crate::exim) store: Option<ClusterStore>,
    pub(in crate::exim) stop: Stop,
}

// SAFETY: its `Rc`s never leave it, so their counts are only changed under the lock
// of the boundary. The addresses in it are
// those of Exim's global variables, which are the same in every thread; Exim,
// whose only thread calls us, does not touch them during a call.
unsafe impl Send for Session {}

impl boundary::Session for Session {
    type Error = CallError;

    fn begin() -> Self {
        let host = Host::find();
        let tables = Tables::find();
        let source = VariableSource::new(&host, &tables);
        let rate_variables = RateVariables::find(&source);
        // If the rate variables were not found correctly, no other one is trusted.
        let right = rate_variables.work();
        Self {
            latest: None,
            asked: None,
            callers: Callers::default(),
            policies: Policies::default(),
            shadow: Shadow::default(),
            identities: Identities::default(),
            specs: SpecCache::default(),
            variables: Variables::find(&source),
            rate_variables,
            command_marks: if right { Marks::of_command(&source) } else { Marks::none() },
            message_marks: if right { Marks::of_message(&source) } else { Marks::none() },
            decisions: DecisionCache::default(),
            recipient: None,
            process: fork::process(),
            store: None,
            stop: Stop::default(),
            acls: Acls::new(tables),
            host,
        }
    }

    fn host(&self) -> &Host {
        &self.host
    }

    fn lifts(&mut self, what: &dyn fmt::Display) -> bool {
        self.stop.lifts(&self.host, &self.variables, what)
    }

    /// Closes the files and leaks the rest: Exim's variables may still point into it.
    fn abandon(mut self) {
        let files = self.store.take();
        std::mem::forget(self);
        drop(files);
    }
}

impl Session {
    /// Decides one check: whether the sender is at or over the limit.
    pub(in crate::exim) fn ratelimit(
        &mut self,
        arguments: SpecArguments<'_>,
    ) -> Result<bool, CallError> {
        #[cfg(exirate_test_panics)]
        crate::exim::host::text::panic_on_demand(arguments.spec);
        let parsed = self.specs.parse(arguments);
        self.show_texts(parsed.as_deref());
        let spec = parsed.map_err(CallError::Spec)?;
        let stage = context::stage(&self.host, &self.variables, &self.acls);
        self.forget_what_ended(stage);
        if self.asks(stage) {
            return self.ask_spec(stage, arguments, false);
        }
        let request = self
            .specs
            .request(&spec, stage, || CallFacts::read(&self.host, &self.variables))
            .map_err(CallError::Spec)?;
        let debugs = self.variables.debugs_acls(&self.host);
        if debugs {
            self.host.debug(&debug::requested(&request));
        }
        let recalled = self.decisions.recall(request.scope, &request.check().key);
        let decision = match recalled {
            Some(before) => before.against(request.limit),
            None => self.decide(&request)?,
        };
        if debugs {
            self.debug(&request, &decision, recalled.is_some());
        }
        self.rate_variables.set_rate(Some(decision.rate));
        self.command_marks.set();
        self.message_marks.set();
        if recalled.is_none() {
            self.decisions.keep(request.scope, &request.check().key, decision);
        }
        let over = self.refuses(decision.over);
        self.keep_for_info(&spec, &request, Decision { over, ..decision });
        Ok(over)
    }

    /// Decides several specs of one key together, as one event: whether the
    /// sender is at or over any of the limits. Leaky ones count it only if none of
    /// them is over.
    pub(in crate::exim) fn ratelimit_all(
        &mut self,
        key: &[u8],
        specs: &[&[u8]],
    ) -> Result<bool, CallError> {
        let stage = context::stage(&self.host, &self.variables, &self.acls);
        if self.asks(stage) {
            self.forget_what_ended(stage);
            return self.ask_specs(stage, key, specs);
        }
        let mut requests = Vec::with_capacity(specs.len());
        for spec in specs {
            let arguments = SpecArguments { spec, key: Some(key), unique: None };
            requests.push(self.request(arguments, stage)?);
        }
        self.forget_what_ended(stage);
        let recall = |request: &Rc<SpecRequest>| {
            let before = self.decisions.recall(request.scope, &request.check().key);
            before.map(|before| before.against(request.limit))
        };
        let recalled: Vec<_> = requests.iter().map(recall).collect();
        // A leaky one that was over before in this command, message or connection
        // still prevents the others from counting.
        let is_leaky = |request: &SpecRequest| request.update == Update::Leaky;
        let mut all = requests.iter().zip(&recalled);
        let blocked = all.any(|(r, before)| is_leaky(r) && before.is_some_and(|d| d.over));
        let decided =
            self.decide_new(&requests, &recalled, |request| blocked && is_leaky(request))?;
        let longest = longest_wait(&decided).and_then(|n| Some((n, *decided.get(n)?)));
        self.command_marks.set();
        self.message_marks.set();
        let Some((n, decision)) = longest else { return Ok(false) };
        self.rate_variables.set_rate(Some(decision.rate));
        if let (Some(spec), Some(request)) = (specs.get(n), requests.get(n)) {
            let arguments = SpecArguments { spec, key: Some(key), unique: None };
            let spec = self.specs.parse(arguments).map_err(CallError::Spec)?;
            self.show_texts(Ok(&spec));
            let over = self.refuses(decision.over);
            self.keep_for_info(&spec, request, Decision { over, ..decision });
            return Ok(over);
        }
        Ok(self.refuses(decision.over))
    }

    /// Has the daemon decide one check, for an account; `looks`: nothing is counted.
    #[cold]
    #[inline(never)]
    fn ask_spec(
        &mut self,
        stage: AclStage,
        arguments: SpecArguments<'_>,
        looks: bool,
    ) -> Result<bool, CallError> {
        let SpecArguments { spec, key, unique } = arguments;
        let mut attributes = "request=exirate_ratelimit\n".to_owned();
        attribute(&mut attributes, "spec", spec);
        for (name, value) in [("key", key), ("unique", unique)] {
            value.into_iter().for_each(|value| attribute(&mut attributes, name, value));
        }
        attributes.push_str(if looks { "look=1\n" } else { "" });
        let asked = self.ask(stage, &attributes)?;
        self.command_marks.set();
        self.message_marks.set();
        let Some(fields) = asked else { return Ok(false) };
        if let Some(error) = fields.get(b"error") {
            return Err(CallError::Usage(String::from_utf8_lossy(error).into_owned().into()));
        }
        self.rate_variables.set_rate(fields.rate());
        let over = fields.get(b"over") == Some(b"yes");
        self.latest = None;
        self.asked = Some(fields);
        Ok(over)
    }

    /// Has it decide several specs of one key, one after another: where one is over that counts only
    /// what is accepted, no such one counts.
    #[cold]
    #[inline(never)]
    fn ask_specs(
        &mut self,
        stage: AclStage,
        key: &[u8],
        specs: &[&[u8]],
    ) -> Result<bool, CallError> {
        let mut leaky_is_over = false;
        let mut leaky = Vec::with_capacity(specs.len());
        for spec in specs {
            let arguments = SpecArguments { spec, key: Some(key), unique: None };
            let is_leaky = self.request(arguments, stage)?.update == Update::Leaky;
            leaky.push(is_leaky);
            leaky_is_over = leaky_is_over || is_leaky && self.ask_spec(stage, arguments, true)?;
        }
        let mut any_over = false;
        for (spec, is_leaky) in specs.iter().zip(leaky) {
            let arguments = SpecArguments { spec, key: Some(key), unique: None };
            let parsed = self.specs.parse(arguments).map_err(CallError::Spec)?;
            let before = self.asked.take();
            if !any_over {
                self.show_texts(Ok(&parsed));
            }
            let is_over = self.ask_spec(stage, arguments, is_leaky && leaky_is_over)?;
            if any_over && !is_over {
                self.asked = before;
                self.rate_variables.set_rate(self.asked.as_ref().and_then(Fields::rate));
            }
            any_over |= is_over;
        }
        Ok(any_over)
    }

    /// Whether what is over its limit is refused: not while nothing may be.
    #[inline]
    pub(in crate::exim) fn refuses(&mut self, over: bool) -> bool {
        over && !boundary::Session::lifts(self, &"a check is over its limit")
    }

    /// The request of one spec, whose texts are shown where it is wrong.
    fn request(
        &mut self,
        arguments: SpecArguments<'_>,
        stage: AclStage,
    ) -> Result<Rc<SpecRequest>, CallError> {
        let parsed = self.specs.parse(arguments);
        if parsed.is_err() {
            self.show_texts(parsed.as_deref());
        }
        let spec = parsed.map_err(CallError::Spec)?;
        let read = || CallFacts::read(&self.host, &self.variables);
        let request = self.specs.request(&spec, stage, read);
        if request.is_err() {
            self.show_texts(Ok(&spec));
        }
        request.map_err(CallError::Spec)
    }

    /// A decision for each request: the cached one, else that of the store, which
    /// decides all of these in one call. Those that `must_look` do not count.
    fn decide_new(
        &mut self,
        requests: &[Rc<SpecRequest>],
        recalled: &[Option<Decision>],
        must_look: impl Fn(&SpecRequest) -> bool,
    ) -> Result<Vec<Decision>, CallError> {
        let debugs = self.variables.debugs_acls(&self.host);
        let new = requests.iter().zip(recalled).filter(|(_, before)| before.is_none());
        let new: Vec<_> = new
            .map(|(request, _)| match must_look(request) {
                true => read_only(request),
                false => Rc::clone(request),
            })
            .collect();
        let checks: Vec<_> = new.iter().map(|request| request.check()).collect();
        let mut decisions = Vec::new();
        if !checks.is_empty() {
            self.in_store(|store| store.decide(&checks, || clock::now().into(), &mut decisions))?;
        }
        for ((request, check), decision) in new.iter().zip(&checks).zip(&decisions) {
            // One that only looked because of another has not been decided yet.
            let is_known = self.decisions.recall(request.scope, &check.key).is_some();
            if !is_known && !requests.iter().any(|r| must_look(r) && r.key == request.key) {
                self.decisions.keep(request.scope, &check.key, *decision);
            }
        }
        let mut decisions = decisions.into_iter();
        let recalled_or_decided = |before: &Option<Decision>| before.or_else(|| decisions.next());
        let all: Vec<_> = recalled.iter().filter_map(recalled_or_decided).collect();
        if debugs {
            for ((request, decision), before) in requests.iter().zip(&all).zip(recalled) {
                self.host.debug(&debug::requested(request));
                self.debug(request, decision, before.is_some());
            }
        }
        Ok(all)
    }

    /// Sets `$sender_rate_limit` and `$sender_rate_period` as Exim does: as soon as
    /// they are read, and whether or not they are valid.
    fn show_texts(&mut self, parsed: Result<&Spec<'_>, &SpecError>) {
        let (limit, period) = match parsed {
            Ok(spec) => (Setting::Checked(spec.limit_text()), Setting::Checked(spec.period_text())),
            Err(error) => {
                let limit = error.limit_text().map_or(Setting::Unset, Setting::Unchecked);
                let period = match error.period_text() {
                    Variable::Untouched => Setting::Leave,
                    Variable::Unset => Setting::Unset,
                    Variable::Set(text) => Setting::Unchecked(text),
                };
                (limit, period)
            }
        };
        self.rate_variables.set_texts(&self.host, limit, period);
    }

    /// Forgets the cached decisions of commands, messages and connections that have
    /// ended, or may have.
    pub(in crate::exim) fn forget_what_ended(&mut self, stage: AclStage) {
        let same_process = self.process == fork::process();
        if !same_process {
            self.process = fork::process();
            self.decisions.new_connection();
            self.policies.session.new_connection();
        }
        let same_message =
            same_process && (self.rate_variables.rate_is_ours() || self.message_marks.stand());
        if !same_message {
            self.decisions.new_message();
            self.policies.session.new_message();
            self.message_marks.renew();
            self.callers.messages += 1;
        }
        // Within a message, RCPT commands can be told apart by their number.
        let recipient = match stage {
            AclStage::Rcpt => self.variables.rcpt_count.read(&self.host),
            _ => None,
        };
        let same_command = match (recipient, self.recipient) {
            (Some(this), Some(before)) => this == before,
            _ => self.command_marks.stand(),
        };
        if !(same_message && same_command) {
            self.decisions.new_command();
            self.policies.session.new_command();
            self.command_marks.renew();
        }
        self.recipient = recipient;
    }

    #[cold]
    fn debug(&self, request: &SpecRequest, decision: &Decision, recalled: bool) {
        if recalled {
            debug::recalled(decision).for_each(|line| self.host.debug(&line));
        } else {
            debug::computed(request, decision).for_each(|line| self.host.debug(&line));
        }
    }

    fn decide(&mut self, request: &SpecRequest) -> Result<Decision, CallError> {
        self.in_store(|store| store.decide_one(&request.check(), || clock::now().into()))
    }

    /// Calls the store, and logs and debugs what comes of it.
    fn in_store<T>(
        &mut self,
        decide: impl FnOnce(&mut ClusterStore) -> Result<T, ClusterError>,
    ) -> Result<T, CallError> {
        let decided = self.store().and_then(|store| decide(store).map_err(CallError::Database));
        if self.store.as_ref().is_some_and(Store::has_events) {
            self.describe_events();
        }
        self.log_damage();
        if decided.is_err() {
            self.rate_variables.set_rate(None);
            if self.variables.debugs_acls(&self.host) {
                self.host.debug(debug::NOT_AVAILABLE);
            }
        }
        decided
    }

    /// Completes crossings and refusals with what Exim knows of the event.
    #[cold]
    fn describe_events(&mut self) {
        let Self { host, variables, acls, policies, store, .. } = self;
        let Some(store) = store else { return };
        let more = policies.variables.get_or_insert_with(|| {
            PolicyVariables::find(&VariableSource::new(host, acls.tables()))
        });
        let read = |text: &Text| text.read(host).map(Cow::into_owned).unwrap_or_default();
        let recipient = recipient(host, variables).unwrap_or_default();
        store.describe(&EventDetails {
            login: &read(&more.authenticated_id),
            client: &read(&variables.sender_host_address),
            sender: &read(&variables.sender_address),
            recipient: recipient.as_bytes(),
            message_id: &read(&variables.message_id),
            ..EventDetails::default()
        });
    }

    /// Logs the damage that was found and repaired.
    pub(in crate::exim) fn log_damage(&mut self) {
        let Some(store) = &mut self.store else { return };
        for incident in store.take_incidents() {
            self.host.log(&format!("exirate: {incident}"));
        }
    }

    pub(in crate::exim) fn store(&mut self) -> Result<&mut ClusterStore, CallError> {
        let bypassed = self.stop.is_active(&self.host, &self.variables);
        let store = match &mut self.store {
            Some(store) => store,
            none => {
                let directory = directory::spool(&self.host, &self.variables);
                let directory = directory.map_err(CallError::Directory)?;
                let store = ClusterStore::open(&directory, Options::default());
                none.insert(store.map_err(|error| CallError::Database(error.into()))?)
            }
        };
        store.set_bypassed(bypassed);
        Ok(store)
    }

    /// Keeps the decision for `ratelimit_info`.
    fn keep_for_info(&mut self, spec: &Spec<'_>, request: &SpecRequest, decision: Decision) {
        self.asked = None;
        let latest = self.latest.get_or_insert_with(|| CheckInfo {
            decision,
            mode: request.mode,
            update: request.update,
            key: Vec::new(),
            limit_text: Vec::new(),
            period_text: Vec::new(),
        });
        latest.decision = decision;
        latest.mode = request.mode;
        latest.update = request.update;
        latest.key.clear();
        latest.key.extend_from_slice(request.written_key());
        latest.limit_text.clear();
        latest.limit_text.extend_from_slice(spec.limit_text());
        latest.period_text.clear();
        latest.period_text.extend_from_slice(spec.period_text());
    }
}

/// Which decision has the longest wait, of those that are over if any is.
fn longest_wait(decisions: &[Decision]) -> Option<usize> {
    let any_over = decisions.iter().any(|decision| decision.over);
    let mut of = decisions.iter().enumerate().filter(|(_, decision)| decision.over == any_over);
    let (mut longest, first) = of.next()?;
    let Some(second) = of.next() else { return Some(longest) };
    let now = clock::now().into();
    let wait = |decision: &Decision| match decision.retry_after(now) {
        Wait::Seconds(seconds) => seconds,
        Wait::Never => f64::INFINITY,
    };
    let mut most = wait(first);
    for (n, decision) in std::iter::once(second).chain(of) {
        let this = wait(decision);
        if this > most {
            (longest, most) = (n, this);
        }
    }
    Some(longest)
}

/// The same check, which counts nothing.
#[cold]
fn read_only(request: &SpecRequest) -> Rc<SpecRequest> {
    Rc::new(request.clone().read_only())
}
