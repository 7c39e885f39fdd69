//! Who may, within which bounds; and the change.

use super::used::Used;
use super::wire::{Done, Refused, Reply, Request, Verb, Who, Why};
use crate::engine::Overridden;
use crate::identity::fold::Folding;
use crate::policy::image::{ImageError, PolicyFile};
use crate::serve::config::Web;
use crate::serve::rates::{self, Purpose};
use crate::serve::web::role::Role;
use crate::serve::web::token::{Refusal, TokenFile};
use crate::spool::habits::{AlarmAnswer, habits_key};
use crate::standing::override_state;
use crate::standing::pattern::{Pattern, Syntax};
use crate::standing::{accounts, audit_log, change};
use crate::store::{Inspect, Override, OwnedKey, Target};
use crate::text;
use crate::toml_file::Word as _;

#[cfg(test)]
mod tests;

/// The longest key and the longest reason, in bytes.
const KEY_MAX: usize = 1024;
const REASON_MAX: usize = 200;
/// What the name of everybody begins with who changes something by the broker.
const BY_WEB: &str = "web=";

/// The broker.
#[derive(Debug)]
pub struct Broker {
    web: Web,
    tokens: TokenFile,
    used: Used,
}

/// Somebody who may ask.
struct Asker {
    /// `token:desk` or `person:alice`.
    name: String,
    role: Role,
}

impl Broker {
    /// With this configuration.
    ///
    /// # Errors
    /// What it remembers cannot be read, in words.
    pub fn new(web: Web) -> Result<Self, String> {
        let state = web.state.display();
        let used = Used::open(&web.state).map_err(|error| format!("{state}: {error}"))?;
        Ok(Self { tokens: TokenFile::new(&web.tokens), used, web })
    }

    /// The configuration.
    pub(super) fn web(&self) -> &Web {
        &self.web
    }

    /// Uses another configuration from now on; where it remembers what stays.
    pub(super) fn set(&mut self, web: Web) {
        if web.tokens != self.web.tokens {
            self.tokens = TokenFile::new(&web.tokens);
        }
        self.web = web;
    }

    /// Does what somebody asks for, if he may.
    pub fn answer(&mut self, request: &Request, now: i64) -> Reply {
        match self.do_it(request, now) {
            Ok(done) => Reply::Done(done),
            Err(refused) => Reply::Refused(refused),
        }
    }

    fn do_it(&mut self, request: &Request, now: i64) -> Result<Done, Refused> {
        let Asker { name, role } = self.asker(&request.who, now)?;
        if role < Role::Help {
            return Err(refused(
                Why::Role,
                format!("{name} may look only: the role help is needed"),
            ));
        }
        let until = self.until(request, now)?;
        if request.reason.len() > REASON_MAX {
            let detail = format!("the reason is longer than {REASON_MAX} bytes");
            return Err(refused(Why::Bounds, detail));
        }
        let folding = folding(&self.web)?;
        let (pattern, target, argument) = one_key(&request.key, &folding)?;
        // What cannot be done is not counted.
        let mut store = rates::open(&self.web.spool, Purpose::Change).map_err(database)?;
        let most = self.web.changes_a_day;
        match self.used.count(&name, most, now) {
            Ok(true) => {}
            Ok(false) => {
                let detail = format!("{name} has made {most} changes today, and may make no more");
                return Err(refused(Why::Bounds, detail));
            }
            Err(error) => return Err(database(format!("{}: {error}", self.web.state.display()))),
        }
        let mut work = Work { store: &mut *store, who: format!("{BY_WEB}{name}"), now };
        let set = |overridden| Override {
            overridden,
            target: target.clone(),
            argument: argument.clone(),
            until: until.unwrap_or(now),
            since: now,
            reason: request.reason.clone(),
            who: format!("{BY_WEB}{name}"),
        };
        match request.verb {
            Verb::Unblock => work.unblock(&pattern, &target, &argument),
            Verb::Allow => work.set(&set(Overridden::Allow)),
            Verb::Deny => work.set(&set(Overridden::Deny)),
            Verb::Accept | Verb::Stolen => {
                let answer = match request.verb {
                    Verb::Accept => AlarmAnswer::Accepted,
                    _ => AlarmAnswer::Stolen { recipients: &[], clients: &[] },
                };
                let mut done = self.habits(&target, &argument, answer)?;
                let line = format!("habits {} key={argument}", request.verb.word());
                work.log(line);
                if request.verb == Verb::Stolen {
                    match work.set(&set(Overridden::Deny)) {
                        Ok(denied) => {
                            done.said.extend(denied.said);
                            done.until = denied.until;
                        }
                        // An administrator has denied it.
                        Err(Refused { why: Why::Bounds, detail }) => done.said.push(detail),
                        Err(refused) => return Err(refused),
                    }
                }
                Ok(done)
            }
        }
    }

    /// Who asks.
    fn asker(&mut self, who: &Who, now: i64) -> Result<Asker, Refused> {
        match who {
            Who::Token(secret) => {
                let tokens = self.tokens.current().map_err(database)?;
                match tokens.find(secret, now) {
                    Ok(token) => {
                        Ok(Asker { name: format!("token:{}", token.name), role: token.role })
                    }
                    Err(Refusal::Unknown) => Err(refused(Why::Unknown, "no such token")),
                    Err(Refusal::Ended) => Err(refused(Why::Unknown, "the token has ended")),
                }
            }
            Who::Person(name) => {
                let role = if self.web.help.contains(name) {
                    Role::Help
                } else if self.web.view.contains(name) {
                    Role::View
                } else {
                    return Err(refused(Why::Unknown, "nobody of this name is in view or help"));
                };
                Ok(Asker { name: format!("person:{name}"), role })
            }
        }
    }

    /// When an override ends that is asked for.
    fn until(&self, request: &Request, now: i64) -> Result<Option<i64>, Refused> {
        let longest = self.web.longest;
        match (request.verb, request.seconds) {
            (Verb::Unblock | Verb::Accept, None) => Ok(None),
            // Who is stolen stays denied until somebody who may do more has looked at it.
            (Verb::Stolen, None) => Ok(Some(crate::store::FOREVER)),
            (Verb::Allow | Verb::Deny, Some(seconds)) if (1..=longest).contains(&seconds) => {
                Ok(Some(now.saturating_add(seconds)))
            }
            (Verb::Allow | Verb::Deny, _) => {
                let detail = format!("expected seconds from 1 to {longest}");
                Err(refused(Why::Bounds, detail))
            }
            (verb, Some(_)) => {
                let detail = format!("{} has no seconds", verb.word());
                Err(refused(Why::Malformed, detail))
            }
        }
    }

    /// Answers the alarms of the accounts that a key may mean.
    fn habits(
        &self,
        target: &Target,
        argument: &str,
        answer: AlarmAnswer<'_>,
    ) -> Result<Done, Refused> {
        let mut spool = rates::own(&self.web.spool, Purpose::Change).map_err(database)?;
        let mut done = Done::default();
        for identity in accounts::of_target(target) {
            let mut name = Vec::new();
            let key = habits_key(&identity, &mut name);
            if spool.answer_habits(key, answer).map_err(database)? {
                let shown = text::printable(&identity);
                done.said.push(format!("the alarm of {shown} is answered"));
                done.records += 1;
            }
        }
        match done.records {
            0 => Err(refused(Why::Nothing, format!("no alarm of {argument} waits for an answer"))),
            _ => Ok(done),
        }
    }
}

/// A change, and who makes it.
struct Work<'s> {
    store: &'s mut dyn Inspect,
    who: String,
    now: i64,
}

impl Work<'_> {
    fn log(&mut self, line: impl std::fmt::Display) {
        // The change stands; syslog has the line all the same.
        let _ = audit_log::log(self.store, &self.who, line);
    }

    /// The denials of a key by somebody else than one who helps: they stay.
    fn of_administrator(&mut self, target: &Target) -> Result<Option<Override>, Refused> {
        let now = self.now;
        let mut all = self.store.overrides().map_err(database)?;
        all.retain(|one| change::is_denial_of(one, target, now) && !one.who.starts_with(BY_WEB));
        Ok(all.pop())
    }

    fn set(&mut self, set: &Override) -> Result<Done, Refused> {
        if let Some(one) = self.of_administrator(&set.target)? {
            return Err(stays(&one));
        }
        let change::Set { replaced, stronger } =
            change::set_override(self.store, set, self.now).map_err(database)?;
        self.log(change::line_of_set(set));
        let mut said = vec![override_state::sentence(set)];
        said.extend(replaced.map(|one| format!("before: {}", override_state::sentence(&one))));
        said.extend(stronger.map(|one| {
            format!("no effect, as a stronger one applies: {}", override_state::sentence(&one))
        }));
        Ok(Done { said, records: 0, until: Some(set.until) })
    }

    fn unblock(
        &mut self,
        pattern: &Pattern,
        target: &Target,
        argument: &str,
    ) -> Result<Done, Refused> {
        let mut done = Done::default();
        let now = self.now;
        let meant =
            |one: &Override| change::is_denial_of(one, target, now) && one.who.starts_with(BY_WEB);
        for one in change::remove_denials(self.store, meant).map_err(database)? {
            self.log(change::line_of_removed(&one));
            done.said.push(format!("removed: {}", override_state::sentence(&one)));
        }
        let mut keys = Vec::new();
        let unread = self.store.for_each(&mut |entry| {
            if pattern.matches(&entry.record_key()) {
                keys.push(OwnedKey::from(entry.record_key()));
            }
        });
        let unread = unread.map_err(database)?.parts.pop();
        for key in &keys {
            if let Some(record) = change::delete(self.store, key).map_err(database)? {
                self.log(change::line_of_deleted(&record));
                done.records += 1;
            }
        }
        if let Some(error) = unread {
            return Err(database(error));
        }
        if done.records > 0 {
            let records = text::counted(done.records, "record was", "records were");
            done.said.push(format!("{records} deleted"));
        }
        match self.of_administrator(target)? {
            Some(one) => Err(stays(&one)),
            None if done.said.is_empty() => {
                let detail = format!("{argument} has no record and no denial");
                Err(refused(Why::Nothing, detail))
            }
            None => Ok(done),
        }
    }
}

/// What the text of a key means: one identity.
fn one_key(text: &str, folding: &Folding) -> Result<(Pattern, Target, String), Refused> {
    if text.is_empty() || text.len() > KEY_MAX {
        let detail = format!("expected a key of 1 to {KEY_MAX} bytes");
        return Err(refused(Why::Malformed, detail));
    }
    let syntax = Syntax { exact: false, folding: folding.clone() };
    let wrong = |why: String| refused(Why::Malformed, why);
    let pattern = Pattern::parse(text.as_bytes(), syntax).map_err(wrong)?;
    if pattern.is_loose() {
        let detail = format!("{}: expected one key, not a glob", text::printable(text.as_bytes()));
        return Err(refused(Why::Bounds, detail));
    }
    let (target, argument) = pattern.override_target().map_err(wrong)?;
    Ok((pattern, target, argument))
}

/// How the policies in use fold identities.
fn folding(web: &Web) -> Result<Folding, Refused> {
    let file = PolicyFile::open(&web.spool);
    match file.image() {
        Ok(image) => Ok(image.identity().map_err(database)?.folding.clone()),
        Err(ImageError::Absent { .. }) => Ok(Folding::default()),
        Err(error) => Err(database(error)),
    }
}

fn stays(denial: &Override) -> Refused {
    let detail = format!(
        "{}: set by {}; only an administrator may end it",
        override_state::sentence(denial),
        text::printable(denial.who.as_bytes())
    );
    refused(Why::Bounds, detail)
}

fn refused(why: Why, detail: impl Into<String>) -> Refused {
    Refused { why, detail: detail.into() }
}

fn database(error: impl std::fmt::Display) -> Refused {
    refused(Why::Database, error.to_string())
}
