//! The changes: by the same code as those of the commands.

use super::queue::AskedQueue;
use super::thief::Thief;
use super::wire::{Done, Refused, Reply, Why};
use crate::engine::Overridden;
use crate::identity::fold::Folding;
use crate::policy::image::PolicyFile;
use crate::rate::Wait;
use crate::serve::config::Web;
use crate::serve::rates::{self, Purpose};
use crate::spool::Spool;
use crate::standing::accounts::{self, Account, InUse};
use crate::standing::change::{self, Ended, NotSet};
use crate::standing::changer::Changer;
use crate::standing::held::{self, Dealt, Deed, HeldMessage, HoldQueue as _, of_account};
use crate::standing::in_force::InForce;
use crate::standing::key_state::KeyState;
use crate::standing::pattern::Pattern;
use crate::standing::scope::{Scope, Sight};
use crate::standing::totals::{self, Totals};
use crate::standing::{alarm, audit_line, left, override_state, words};
use crate::store::{Entry, FOREVER, Inspect, InspectError, Override, OwnedKey, Target, Wanted};
use crate::text;

/// So many records that were deleted are named.
const NAMED: usize = 20;

/// What is done after the change, while others may ask.
pub(super) type Later = Box<dyn FnOnce(Done) -> Reply + Send>;

/// A change of one key, and who makes it.
pub(super) struct Work<'w> {
    pub(super) store: &'w mut dyn Inspect,
    pub(super) web: &'w Web,
    pub(super) queue: AskedQueue,
    pub(super) by: Changer,
    pub(super) now: i64,
    pub(super) folding: Folding,
    pub(super) policies: &'w PolicyFile,
    /// Whose identities whoever makes it may see.
    pub(super) scope: Option<&'w Scope>,
    pub(super) target: Target,
    pub(super) argument: String,
    /// Counts the change, which is made after that.
    pub(super) count: &'w mut dyn FnMut() -> Result<(), Refused>,
}

impl<'w> Work<'w> {
    fn sight(&self) -> Sight<'w> {
        Sight::by(self.scope, self.policies, &self.folding)
    }

    /// What is in force, as whoever makes the change sees it.
    fn in_force(&mut self) -> InForce {
        InForce::of(self.store, &self.web.spool).0.seen_by(self.scope)
    }

    /// Allows or denies the key.
    pub(super) fn set(
        &mut self,
        overridden: Overridden,
        until: i64,
        reason: &str,
    ) -> Result<Done, Refused> {
        self.check(Some(overridden))?;
        (self.count)()?;
        let set = Override {
            overridden,
            target: self.target.clone(),
            argument: self.argument.clone(),
            until,
            since: self.now,
            reason: reason.to_owned(),
            who: self.by.who().to_owned(),
        };
        let mut done = self.put(&set)?;
        if overridden == Overridden::Allow {
            let in_force = self.in_force();
            let holding = totals::holding(&in_force, &self.target, &[]);
            done.said.extend(holding.iter().map(|name| totals::still_holds(name)));
        }
        Ok(done)
    }

    /// Ends the override of the key.
    pub(super) fn end(&mut self) -> Result<Done, Refused> {
        self.check(None)?;
        let list = self.store.overrides().map_err(Refused::database)?;
        let is_there = |one: &&Override| one.is_active(self.now) && one.target == self.target;
        let Some(one) = list.iter().find(is_there) else {
            let nothing = format!("{} has no override of its own", self.argument);
            return Err(Refused::new(Why::Nothing, nothing));
        };
        (self.count)()?;
        let denials = one.overridden.is_denial();
        let (store, target) = (&mut *self.store, &self.target);
        let ended = change::end_override(store, target, denials, self.now, &mut self.by);
        let said = match ended.map_err(Refused::database)? {
            Ended::This(one) => format!("ended: {}", override_state::sentence(&one)),
            Ended::Not(_) => format!("{} has no override any more", self.argument),
        };
        let said = std::iter::once(said).chain(self.by.unlogged()).collect();
        Ok(Done { said, ..Done::default() })
    }

    fn put(&mut self, set: &Override) -> Result<Done, Refused> {
        let changed = change::set_override(self.store, set, self.now, &mut self.by);
        let changed = changed.map_err(|why| match why {
            NotSet::Stays(one) => stays(&self.sight().masked(&one)),
            NotSet::Failed(error) => Refused::database(error),
        })?;
        let mut said = vec![override_state::sentence(set)];
        said.extend(changed.before());
        let stronger = changed.stronger.map(|one| self.sight().masked(&one));
        said.extend(stronger.as_ref().map(change::no_effect));
        said.extend(self.by.unlogged());
        let until = Some(set.until).filter(|until| *until != FOREVER);
        Ok(Done { said, until, ..Done::default() })
    }

    /// Whether an administrator's denial stays, so that nothing is changed.
    fn check(&mut self, overridden: Option<Overridden>) -> Result<(), Refused> {
        let list = self.store.overrides().map_err(Refused::database)?;
        match change::in_the_way(&list, &self.target, overridden, self.now, &self.by) {
            Some(one) => Err(stays(&self.sight().masked(one))),
            None => Ok(()),
        }
    }

    /// Deletes the records of the key, and ends denials of it.
    pub(super) fn unblock(&mut self, pattern: &Pattern) -> Result<Done, Refused> {
        self.check(None)?;
        let (now, target) = (self.now, self.target.clone());
        let is_meant = |one: &Override| change::is_denial_of(one, &target, now);
        let mut keys = Vec::new();
        let identities = pattern.identities();
        let sight = self.sight();
        let mut wanted = Wanted {
            selects: &mut |key| pattern.matches(key) && sight.has(key),
            identities: Some((&identities, &self.folding)),
        };
        let mut add = |entry: Entry| keys.push(OwnedKey::from(entry.record_key()));
        let unread = self.store.for_each_wanted(&mut wanted, &mut add);
        keys.sort_unstable();
        let mut unread = unread.map_err(Refused::database)?.parts;
        let list = self.store.overrides().map_err(Refused::database)?;
        if keys.is_empty() && !list.iter().any(is_meant) {
            if let Some(error) = unread.pop() {
                return Err(Refused::database(error));
            }
            let nothing = format!("{} has no record and no denial", self.argument);
            let left = self.left(&[])?;
            let all: Vec<String> = std::iter::once(nothing).chain(left).collect();
            return Err(Refused::new(Why::Nothing, all.join("; ")));
        }
        (self.count)()?;
        let removed = change::remove_denials(self.store, is_meant, &mut self.by);
        let removed = removed.map_err(Refused::database)?;
        let mut records: Vec<KeyState> = Vec::new();
        let see = |record| {
            records.push(record);
            Ok::<(), InspectError>(())
        };
        let (store, by) = (&mut *self.store, &mut self.by);
        let deleted = change::delete(store, &keys, &self.argument, by, see);
        let mut said = self.left(&records)?;
        if let Err(error) = deleted {
            said.insert(0, format!("not all records were deleted: {error}"));
        } else if said.is_empty() {
            said.push(format!("{} can send again now", self.argument));
        }
        let removed = removed.iter().map(override_state::sentence);
        said.extend(removed.map(|sentence| format!("removed: {sentence}")));
        // As they stood without the denials.
        let in_force = self.in_force();
        let named = records.iter().take(NAMED).map(|record| words::stood(record, &in_force));
        said.extend(named.map(|record| format!("reset {record}")));
        if let Some(more) = records.len().checked_sub(NAMED).filter(|more| *more > 0) {
            said.push(format!("reset {}", text::counted(more, "more record", "more records")));
        }
        said.extend(unread.iter().map(|error| format!("not all could be read: {error}")));
        said.extend(self.by.unlogged());
        Ok(Done { said, records: records.len() as u64, ..Done::default() })
    }

    /// What still refuses the key, whose `records` have been deleted.
    fn left(&mut self, records: &[KeyState]) -> Result<Vec<String>, Refused> {
        let mut said = Vec::new();
        let list = self.store.overrides().map_err(Refused::database)?;
        let deciding = override_state::of_target(&list, &self.target, self.now);
        let denial = deciding.filter(|one| one.overridden.is_denial());
        let sight = self.sight();
        said.extend(denial.map(|one| left::denied(&self.argument, &sight.masked(one))));
        let spool = &self.web.spool;
        let in_force = self.in_force();
        let keys = records.iter().map(KeyState::record_key);
        let totals = Totals::of(self.store, &in_force, keys).map_err(Refused::database)?;
        let refusing = Totals::refusing_target(self.store, &in_force, &self.target);
        let totals = totals.and(refusing.map_err(Refused::database)?);
        said.extend(totals.names_refusing(&in_force).iter().map(|name| left::total(name)));
        if InUse::of(spool).has_any() {
            let mut own = rates::own(spool, Purpose::Read).map_err(Refused::database)?;
            let all = accounts::with_habits(&mut own, &self.target).map_err(Refused::database)?;
            let all = all.iter().filter(|one| one.habits.is_suspected(self.now));
            said.extend(all.map(|account| left::suspected(&account.shown())));
        }
        let is_never = |record: &&KeyState| {
            let next = in_force.next(record);
            next.overridden().is_none() && next.wait(record, in_force.now) == Some(Wait::Never)
        };
        said.extend(records.iter().filter(is_never).map(left::never));
        Ok(said)
    }

    /// Says that the last alarm was the owner; what was held for it is to be released after that.
    pub(super) fn accept(mut self) -> Result<(Done, Later), Refused> {
        let mut own = rates::own(&self.web.spool, Purpose::Change).map_err(Refused::database)?;
        let is_open = |one: &Account| one.habits.suspected_until().is_some();
        let accounts = self.accounts(&mut own, is_open)?;
        (self.count)()?;
        let mut done = Done::default();
        let in_use = InUse::of(&self.web.spool);
        for account in &accounts {
            let accepted = alarm::accept(&mut own, account, &in_use, &mut self.by);
            let accepted = accepted.map_err(Refused::database)?;
            done.records += u64::from(accepted.is_some());
            done.said.extend(accepted.into_iter().flatten());
        }
        done.said.extend(self.by.unlogged());
        let later = self.deal(Deed::Release, accounts);
        Ok((done, Box::new(move |done| Reply::Done(later(done)))))
    }

    /// Releases what is held or waits of the key: all, or one message.
    pub(super) fn release(self, id: Option<String>) -> Result<Later, Refused> {
        (self.count)()?;
        let Self { web, queue, mut by, folding, target, argument, .. } = self;
        let (spool, scope) = (web.spool.clone(), self.scope.cloned());
        Ok(Box::new(move |done| {
            let mut held = match queue.held() {
                Ok(held) => held.into_messages(),
                Err(why) => return Reply::refused(Why::Queue, why),
            };
            let policies = PolicyFile::open(&spool);
            let sight = Sight::by(scope.as_ref(), &policies, &folding);
            held.retain(|one| sight.has_identity(&one.key));
            let is_meant = |one: &&HeldMessage| {
                one.is_of_target(&target) && id.as_ref().is_none_or(|id| *id == one.id)
            };
            let messages: Vec<&HeldMessage> = held.iter().filter(is_meant).collect();
            if messages.is_empty() {
                return Reply::refused(
                    Why::Nothing,
                    format!("no message of {argument} is held or waits"),
                );
            }
            let mut own = rates::own(&spool, Purpose::Change).ok();
            let dealt = Deed::Release.with(&queue, &messages, own.as_mut(), &mut by);
            Reply::Done(dealt_with(done, Deed::Release, dealt, &by_hand(&argument), &mut by))
        }))
    }

    /// Does it, after the change, with what was held for the alarms of these accounts.
    fn deal(self, deed: Deed, accounts: Vec<Account>) -> impl FnOnce(Done) -> Done + Send + use<> {
        let Self { web, queue, mut by, .. } = self;
        let spool = web.spool.clone();
        move |mut done| {
            let held = match queue.held() {
                Ok(held) => held.messages,
                Err(why) => {
                    for account in accounts.iter().filter(|one| one.habits.held() > 0) {
                        let (key, by_hand) = (account.shown(), by_hand(&account.name()));
                        done.said
                            .push(format!("mail of {key} may still be held: {why}; {by_hand}"));
                    }
                    return done;
                }
            };
            let mut own = rates::own(&spool, Purpose::Change).ok();
            for account in &accounts {
                let (messages, others) = of_account(&held, account);
                let dealt = deed.with(&queue, &messages, own.as_mut(), &mut by);
                done = dealt_with(done, deed, dealt, &by_hand(&account.name()), &mut by);
                if let Some(sentence) = held::sentence(&others, &account.shown()) {
                    done.said.push(format!("{sentence}, for another reason or an earlier alarm"));
                }
            }
            done
        }
    }

    /// Says that the last alarm was a thief: the account is denied first.
    pub(super) fn stolen(mut self, until: i64, delete: bool) -> Result<(Done, Later), Refused> {
        let mut own = rates::own(&self.web.spool, Purpose::Change).map_err(Refused::database)?;
        let accounts = self.accounts(&mut own, alarm::may_be_thief)?;
        (self.count)()?;
        let mut done = Done::default();
        for account in accounts.iter().filter(|one| one.habits.answer().is_none()) {
            let who = self.by.who().to_owned();
            let times = (self.now, until);
            let set = alarm::denial(account, &self.folding, times, alarm::REASON, &who);
            match self.put(&set.map_err(Refused::database)?) {
                Ok(denied) => done.said.extend(denied.said),
                // An administrator has denied it.
                Err(Refused { why: Why::Bounds, detail }) => done.said.push(detail),
                Err(refused) => return Err(refused),
            }
        }
        for account in &accounts {
            let answered = alarm::stolen(&mut own, account, None, &mut self.by);
            match answered.map_err(Refused::database)? {
                true => done.records += 1,
                false => done.said.push(alarm::was_answered(account)),
            }
        }
        done.said.extend(self.by.unlogged());
        let again = |all: &[Account]| -> Vec<Account> {
            all.iter()
                .map(|one| Account { key: one.key.clone(), habits: one.habits.clone() })
                .collect()
        };
        let by = Changer::helper(self.by.who().trim_start_matches(audit_line::BY_WEB));
        let thief = Thief::new(self.web, self.folding.clone(), again(&accounts), by);
        let thief = if self.scope.is_some() { thief.alone() } else { thief };
        let deal = delete.then(|| self.deal(Deed::Delete, accounts));
        let later: Later = Box::new(move |done| {
            let done = match deal {
                Some(deal) => deal(done),
                None => done,
            };
            Reply::Done(thief.look_up(done))
        });
        Ok((done, later))
    }

    /// The accounts that the key may mean, and that are wanted.
    fn accounts(
        &self,
        own: &mut Spool,
        is_wanted: impl FnMut(&Account) -> bool,
    ) -> Result<Vec<Account>, Refused> {
        let all = accounts::with_habits(own, &self.target).map_err(Refused::database)?;
        let (wanted, others): (Vec<_>, Vec<_>) = all.into_iter().partition(is_wanted);
        if wanted.is_empty() {
            let others: Vec<String> = others.iter().map(Account::unsuspected).collect();
            let detail = match &others[..] {
                [] => format!("{} has no habits that are known", self.argument),
                others => others.join("; "),
            };
            return Err(Refused::new(Why::Nothing, detail));
        }
        Ok(wanted)
    }
}

/// How an administrator releases what is held.
fn by_hand(key: &str) -> String {
    format!("an administrator runs `exirate held release {}`", text::shell(key))
}

/// Adds what became of messages.
fn dealt_with(
    mut done: Done,
    deed: Deed,
    dealt: Dealt<'_>,
    by_hand: &str,
    by: &mut Changer,
) -> Done {
    let (word, count) = (deed.done(), dealt.done.len());
    if count > 0 {
        done.messages += count as u64;
        done.said
            .push(format!("{word}: {}", text::counted(count, "held message", "held messages")));
    }
    if let Some((_, why)) = dealt.failed.first() {
        let failed = text::counted(dealt.failed.len(), "held message", "held messages");
        done.said.push(format!("not {word}: {failed}: {why}; {by_hand}"));
    }
    done.said.extend(by.unlogged());
    done
}

/// An administrator's denial stays.
fn stays(denial: &Override) -> Refused {
    let detail = format!(
        "{}: set by {}; only an administrator may end it",
        override_state::sentence(denial),
        text::printable(denial.who.as_bytes())
    );
    Refused::new(Why::Bounds, detail)
}
