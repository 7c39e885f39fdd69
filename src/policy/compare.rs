//! Compares a message that all policies accept with the habits of its account, and has it learned.

use std::borrow::Cow;

use super::decide::applies;
use super::habits::{Suspicion, account};
use super::image::{ImageError, PolicyImage};
use super::key::{self, Key};
use super::limit::{AppliedHabits, Rule, Subject};
use super::model::Identity;
use super::outcome::Outcome;
use super::word::{Action, Field, OnHabits, Sensitivity};
use crate::event::Event;
use crate::event::session::HabitsMemory;
use crate::rate::Timestamp;
use crate::store::{Judged, Learn, Sending, SendingStage, Store, habits_key, habits_network_hash};

/// How a message is compared with habits.
pub(super) struct Compared<'i, 'e> {
    /// The account that sends it.
    account: Key<'e>,
    /// The policy that says so.
    pub(super) policy: PolicyImage<'i>,
    on: OnHabits,
    sensitivity: Sensitivity,
}

/// A message that is to be compared.
pub(super) struct ComparedMessage<'m> {
    pub(super) event: Event<&'m str>,
    pub(super) recipients: &'m dyn Fn() -> Vec<Cow<'m, str>>,
    pub(super) stage: SendingStage,
    /// Nothing is learned.
    pub(super) only_looks: bool,
    /// Nothing may be refused now.
    pub(super) bypassed: bool,
}

impl<'i, 'e> Compared<'i, 'e> {
    /// Has the message of `event` compared by `policy`, if that says so, unless a policy before does
    /// what is as strict; with the highest sensitivity of all.
    pub(super) fn by(
        compared: &mut Option<Self>,
        policy: PolicyImage<'i>,
        identity: &Identity,
        event: &Event<&'e str>,
        now: impl Fn() -> i64,
    ) -> Result<(), ImageError> {
        if !applies(policy.settings(), identity, event) {
            return Ok(());
        }
        let new = if compared.is_none() { account(identity, event) } else { None };
        let known = compared.as_ref().map(|compared| &compared.account);
        let Some(account) = known.or(new.as_ref()) else { return Ok(()) };
        let subject = Subject::of_sender(account, event);
        let Some(AppliedHabits { on, sensitivity, .. }) = policy.habits(&subject)? else {
            return Ok(());
        };
        if policy.has_exemptions() && policy.exemption(&subject, now())?.is_some() {
            return Ok(());
        }
        match compared {
            Some(before) => {
                before.sensitivity = before.sensitivity.max(sensitivity);
                if done(&policy, on) > before.done() {
                    (before.policy, before.on) = (policy, on);
                }
            }
            None => {
                *compared = new.map(|account| Self { account, policy, on, sensitivity });
            }
        }
        Ok(())
    }

    /// What becomes of the mail of a suspected account.
    fn done(&self) -> OnHabits {
        done(&self.policy, self.on)
    }

    /// Has `message` learned, unless that is done and `judged` is what came of it; the outcome,
    /// where the account is suspected. `None` where there is nothing to compare. `visit` is called
    /// with the account and what its habits say.
    pub(super) fn judge<S: Store>(
        &self,
        identity: &Identity,
        message: &ComparedMessage<'_>,
        memory: &mut HabitsMemory,
        store: &mut S,
        at: Timestamp,
        visit: impl FnOnce(&str, &Judged),
    ) -> Result<Option<Outcome>, String> {
        let account = &self.account;
        let subject = Subject::of_sender(account, &message.event);
        let HabitsMemory { judged, recipients, name } = memory;
        let judged = match judged {
            Some(judged) => *judged,
            None => {
                let are_known =
                    self.recipients(identity, message, &subject, store, at, recipients)?;
                if are_known && recipients.is_empty() {
                    return Ok(None);
                }
                let hash = |bytes: &[u8]| store.habits_hash(bytes);
                let client = message.event.client.address();
                let learn = match self.done() {
                    _ if message.only_looks || !are_known => Learn::Never,
                    OnHabits::Hold | OnHabits::Defer if !message.bypassed => {
                        Learn::UnlessSuspected(self.policy.blocks().habits)
                    }
                    _ => Learn::Always,
                };
                let sending = Sending {
                    key: habits_key(account.text.as_bytes(), name),
                    network: client.and_then(|client| habits_network_hash(client, hash)),
                    recipients,
                    sensitivity: self.sensitivity,
                    stage: message.stage,
                    learn,
                };
                let now = store.learn(&sending, || at).map_err(|error| error.to_string())?;
                visit(&account.text, &now);
                *judged.insert(now)
            }
        };
        let settings = self.policy.settings();
        let rule = || {
            let applied = self.policy.habits(&subject).ok().flatten();
            applied.map_or(Rule::Default.text(), |one| one.rule.text())
        };
        let suspicion = Suspicion::of(rule, &account.text, judged, at.seconds);
        Ok(Some(match suspicion {
            Some(one) => {
                Outcome::of_habits(settings, self.on, self.policy.blocks().reply, Box::new(one))
            }
            None => Outcome::default(),
        }))
    }

    /// Fills `hashes` with those of the recipients that are not exempt, each once: who names each
    /// twice sends to no more people, and to nobody that the account knows. Returns whether they
    /// are known.
    fn recipients<S: Store>(
        &self,
        identity: &Identity,
        message: &ComparedMessage<'_>,
        subject: &Subject<'_>,
        store: &S,
        at: Timestamp,
        hashes: &mut Vec<u64>,
    ) -> Result<bool, String> {
        hashes.clear();
        let all = match message.stage {
            SendingStage::Failed => Vec::from_iter(message.event.recipient.map(Cow::Borrowed)),
            SendingStage::Sent | SendingStage::Marked => (message.recipients)(),
        };
        let are_known = !all.is_empty();
        for to in all {
            let Some(to) = key::folded(identity, Field::Recipient, &to) else { continue };
            if self.policy.exempts_recipients() {
                let subject = Subject { recipient: Some(&to), ..*subject };
                let exempt = self.policy.exemption(&subject, at.seconds);
                if exempt.map_err(|error| error.to_string())?.is_some() {
                    continue;
                }
            }
            hashes.push(store.habits_hash(to.as_bytes()));
        }
        hashes.sort_unstable();
        hashes.dedup();
        Ok(are_known)
    }
}

/// What a policy that says `on` does with the mail of a suspected account.
fn done(policy: &PolicyImage<'_>, on: OnHabits) -> OnHabits {
    match policy.settings().action {
        Action::Observe => OnHabits::Observe,
        Action::Enforce => on,
    }
}
