//! Who may, within which bounds.

use std::path::Path;

use super::queue::AskedQueue;
use super::used::Used;
use super::wire::{Done, Refused, Reply, Request, Verb, Who, Why};
use super::work::{Later, Work};
use crate::engine::Overridden;
use crate::identity::fold::Folding;
use crate::policy::image::PolicyFile;
use crate::serve::config::Web;
use crate::serve::rates::{self, Purpose};
use crate::serve::web::role::Role;
use crate::serve::web::token::{TokenFile, TokenRefusal};
use crate::standing::changer::Changer;
use crate::standing::held::HoldQueue as _;
use crate::standing::one_key::{NotOne, OneKey};
use crate::standing::override_state;
use crate::standing::scope::{Scope, Sight};
use crate::store::{Inspect, Target};
use crate::text;
use crate::toml_file::Word as _;

#[cfg(test)]
mod tests;

/// The longest key and the longest reason, in bytes.
const KEY_MAX: usize = 1024;
const REASON_MAX: usize = 200;

/// The most messages of a reply.
const HELD_MAX: usize = 500;

/// The broker.
#[derive(Debug)]
pub struct Broker {
    web: Web,
    tokens: TokenFile,
    used: Used,
}

/// How a denial replies, if the request says so; other changes have no reply.
fn denial_reply(request: &Request) -> Result<Option<override_state::DenialReply>, Refused> {
    match (request.verb, request.reply.as_deref()) {
        (_, None) => Ok(None),
        (Verb::Deny, Some(word)) => {
            let words = override_state::DenialReply::words().join(" or ");
            let detail = format!("the reply of a denial is {words}");
            let wrong = || Refused::new(Why::Malformed, detail);
            Ok(Some(override_state::DenialReply::of(word).ok_or_else(wrong)?))
        }
        (verb, Some(_)) => {
            let detail = format!("{} has no reply", verb.word());
            Err(Refused::new(Why::Malformed, detail))
        }
    }
}

/// Somebody who may ask.
struct Asker {
    /// `token:desk` or `person:alice`.
    name: String,
    role: Role,
    /// Whose identities he may see and change.
    scope: Option<Scope>,
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

    /// Does what somebody asks for, if he may. What concerns logs and queues is to be done after that.
    pub(super) fn answer(&mut self, request: &Request, now: i64) -> (Reply, Option<Later>) {
        match self.carry_out(request, now) {
            Ok((done, later)) => (Reply::Done(done), later),
            Err(refused) => (Reply::Refused(refused), None),
        }
    }

    /// Checks role and bounds, finds the key, and has [`Work`] make the change.
    fn carry_out(&mut self, request: &Request, now: i64) -> Result<(Done, Option<Later>), Refused> {
        let Asker { name, role, scope } = self.asker(&request.who, now)?;
        if request.verb == Verb::Held {
            return self.held(&request.key, scope);
        }
        if role < Role::Help {
            let detail = format!("{name} may look only: the role help is needed");
            return Err(Refused::new(Why::Role, detail));
        }
        let until = self.until(request, now)?;
        if request.reason.len() > REASON_MAX {
            let detail = format!("the reason is longer than {REASON_MAX} bytes");
            return Err(Refused::new(Why::Bounds, detail));
        }
        let reply = denial_reply(request)?;
        let policies = PolicyFile::open(&self.web.spool);
        let folding = policies.folding().map_err(Refused::database)?;
        let key = one_key(&request.key, &folding)?;
        check_scope(&Sight::by(scope.as_ref(), &policies, &folding), &key.target)?;
        // What a total refuses can be helped by nothing else, and its mailboxes stay as they are.
        let may = scope.is_none() && request.verb == Verb::Unblock && key.is_total();
        if key.is_of_group() && !may {
            let shown = text::printable(request.key.as_bytes());
            let detail =
                format!("{shown} counts many senders together: an administrator changes it");
            return Err(Refused::new(Why::Bounds, detail));
        }
        let OneKey { pattern, target, shown: argument } = key;
        let mut store = open_for(request.verb, &self.web.spool).map_err(Refused::database)?;
        let Self { web, used, .. } = self;
        let mut count = || match used.count(&name, web.changes_a_day, now) {
            Ok(true) => Ok(()),
            Ok(false) => {
                let most = web.changes_a_day;
                let detail = format!("{name} has made {most} changes today, and may make no more");
                Err(Refused::new(Why::Bounds, detail))
            }
            Err(error) => Err(Refused::database(format!("{}: {error}", web.state.display()))),
        };
        let mut work = Work {
            store: &mut *store,
            web,
            queue: AskedQueue::at(&web.held),
            by: Changer::helper(&name),
            now,
            folding,
            policies: &policies,
            scope: scope.as_ref(),
            target,
            argument,
            count: &mut count,
        };
        let until = until.unwrap_or(now);
        let done = match request.verb {
            Verb::Accept => return work.accept().map(|(done, later)| (done, Some(later))),
            Verb::Release => {
                let later = work.release(request.id.clone())?;
                return Ok((Done::default(), Some(later)));
            }
            Verb::Stolen => {
                let (done, later) = work.stolen(until, request.delete)?;
                return Ok((done, Some(later)));
            }
            Verb::Unblock => work.unblock(&pattern),
            Verb::Allow => work.set(Overridden::Allow, until, &request.reason),
            Verb::Deny => {
                let by_default = override_state::DenialReply::by_default(&work.target, until);
                let reply = reply.unwrap_or(by_default);
                work.set(reply.denial(), until, &request.reason)
            }
            Verb::End => work.end(),
            // It was answered above.
            Verb::Held => Ok(Done::default()),
        };
        done.map(|done| (done, None))
    }

    /// What is held or waits, of a key or of all that somebody may see.
    fn held(&self, key: &str, scope: Option<Scope>) -> Result<(Done, Option<Later>), Refused> {
        let policies = PolicyFile::open(&self.web.spool);
        let folding = policies.folding().map_err(Refused::database)?;
        let target = match key {
            "" => None,
            key => {
                let target = one_key(key, &folding)?.target;
                check_scope(&Sight::by(scope.as_ref(), &policies, &folding), &target)?;
                Some(target)
            }
        };
        let queue = AskedQueue::at(&self.web.held);
        let later: Later = Box::new(move |done| match queue.held() {
            Ok(mut held) => {
                let mut unread = std::mem::take(&mut held.unread);
                let mut messages = held.into_messages();
                let sight = Sight::by(scope.as_ref(), &policies, &folding);
                messages.retain(|one| {
                    sight.has_identity(&one.key)
                        && target.as_ref().is_none_or(|target| one.is_of_target(target))
                });
                // It may be of others.
                if !sight.is_of_all() {
                    unread.clear();
                }
                messages.sort_by(|a, b| (a.state, a.at, &a.id).cmp(&(b.state, b.at, &b.id)));
                let count = messages.len() as u64;
                messages.truncate(HELD_MAX);
                Reply::Done(Done { said: unread, held: messages, messages: count, ..done })
            }
            // The reply has no messages, and says why.
            Err(why) => Reply::Done(Done { said: vec![why], ..done }),
        });
        Ok((Done::default(), Some(later)))
    }

    /// Who asks.
    fn asker(&mut self, who: &Who, now: i64) -> Result<Asker, Refused> {
        match who {
            Who::Token(secret) => {
                let tokens = self.tokens.current().map_err(Refused::database)?;
                match tokens.find(secret, now) {
                    Ok(token) => {
                        let (name, scope) = (format!("token:{}", token.name), token.scope.clone());
                        Ok(Asker { name, role: token.role, scope })
                    }
                    Err(TokenRefusal::Unknown) => Err(Refused::new(Why::Unknown, "no such token")),
                    Err(TokenRefusal::Ended) => {
                        Err(Refused::new(Why::Unknown, "the token has ended"))
                    }
                }
            }
            Who::User(name) | Who::Person(name) => {
                let is_user = matches!(who, Who::User(_));
                let role = self.web.role_of(name, is_user).ok_or_else(|| {
                    Refused::new(Why::Unknown, "nobody of this name is in view or help")
                })?;
                Ok(Asker { name: format!("person:{name}"), role, scope: None })
            }
        }
    }

    /// When an override ends that is asked for.
    fn until(&self, request: &Request, now: i64) -> Result<Option<i64>, Refused> {
        let longest = self.web.longest;
        match (request.verb, request.seconds) {
            (Verb::Unblock | Verb::Accept | Verb::End | Verb::Release | Verb::Held, None) => {
                Ok(None)
            }
            // Who is stolen stays denied until somebody who may do more has looked at it.
            (Verb::Stolen, None) => Ok(Some(crate::store::FOREVER)),
            (Verb::Allow | Verb::Deny, Some(seconds)) if (1..=longest).contains(&seconds) => {
                Ok(Some(now.saturating_add(seconds)))
            }
            (Verb::Allow | Verb::Deny, _) => {
                let detail = format!("expected seconds from 1 to {longest}");
                Err(Refused::new(Why::Bounds, detail))
            }
            (verb, Some(_)) => {
                let detail = format!("{} has no seconds", verb.word());
                Err(Refused::new(Why::Malformed, detail))
            }
        }
    }
}

/// The rates that a request changes; habits are of this server alone.
fn open_for(verb: Verb, spool: &Path) -> Result<Box<dyn Inspect>, String> {
    match verb {
        Verb::Accept | Verb::Release => {
            rates::own(spool, Purpose::Change).map(|own| Box::new(own) as Box<dyn Inspect>)
        }
        _ => rates::open(spool, Purpose::Change),
    }
}

/// Refuses what is not in the scope of whoever asks, before anything is looked up of it.
fn check_scope(sight: &Sight<'_>, target: &Target) -> Result<(), Refused> {
    match sight.has_target(target) {
        true => Ok(()),
        false => Err(Refused::new(Why::Bounds, sight.refusal())),
    }
}

/// What the text of a key means: one identity.
fn one_key(text: &str, folding: &Folding) -> Result<OneKey, Refused> {
    if text.is_empty() || text.len() > KEY_MAX {
        let detail = format!("expected a key of 1 to {KEY_MAX} bytes");
        return Err(Refused::new(Why::Malformed, detail));
    }
    OneKey::parse(text, folding).map_err(|fault| match fault {
        NotOne::Wrong(why) => Refused::new(Why::Malformed, why),
        NotOne::Glob => {
            let shown = text::printable(text.as_bytes());
            Refused::new(Why::Bounds, format!("{shown}: expected one key, not a glob"))
        }
    })
}
