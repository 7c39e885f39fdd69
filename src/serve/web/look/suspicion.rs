//! What the habits of accounts say.

use crate::history::explain::rule;
use crate::policy::word::{OnHabits, Word as _};
use crate::rate::habits::{Answer, Answers, Habits, Sensitivity, UNTIL_ANSWERED};
use crate::serve::web::api::types::{Row, Suspicion};
use crate::spool::Spool;
use crate::spool::habits::habits_key;
use crate::standing::accounts::{self, is_refused};
use crate::standing::in_force::InForce;
use crate::standing::key_text;
use crate::store::Target;
use crate::text;

/// The score from which on there is something to say.
const EVIDENCE: f64 = 1.0;

/// What the habits of the account that `target` means say, if there are any.
pub(super) fn of_target(own: &mut Spool, target: &Target, in_force: &InForce) -> Option<Suspicion> {
    accounts::of_target(target).into_iter().find_map(|identity| {
        let mut name = Vec::new();
        // What cannot be read says nothing.
        let habits = own.habits(habits_key(&identity, &mut name)).ok().flatten()?;
        Some(of_account(&identity, &habits, in_force))
    })
}

/// What the habits of the account of this identity say.
pub(super) fn of_account(identity: &[u8], habits: &Habits, in_force: &InForce) -> Suspicion {
    let now = in_force.now.seconds;
    let said = in_force.image().zip(std::str::from_utf8(identity).ok());
    // Damage is said by what reads all of them.
    let said = said.and_then(|(image, identity)| rule::of_habits(image, identity, now).ok()?);
    let sensitivity = said.as_ref().map_or_else(Sensitivity::default, |said| said.sensitivity);
    let (score, evidence) = (habits.score(now), habits.evidence(habits.at()));
    let until = habits.suspected_until().filter(|&until| until > now);
    let on = said.as_ref().map_or(OnHabits::Off, |said| said.on);
    let Answers { alarms, accepted, stolen } = habits.answers();
    Suspicion {
        account: key_text::key(identity),
        suspected: until.is_some(),
        evidence: (score >= EVIDENCE || until.is_some()).then(|| evidence.to_string()),
        since: text::iso_second(habits.since()),
        until: until.filter(|&until| until < UNTIL_ANSWERED).map(text::iso_second),
        action: on.word(),
        blocked: is_refused(habits, on, now),
        score,
        threshold: habits.threshold(now, sensitivity),
        alarm_at: habits.alarm_at().map(text::iso_second),
        answer: habits.answer().map(Answer::word),
        strangers: u64::from(evidence.strangers),
        messages: u64::from(evidence.messages),
        seconds: evidence.seconds,
        networks: u64::from(evidence.networks),
        failures: u64::from(evidence.failures),
        usual: evidence.usual,
        alarms: u64::from(alarms),
        accepted: u64::from(accepted),
        stolen: u64::from(stolen),
    }
}

/// An account that is suspected, as a key.
pub(super) fn row(identity: &[u8], habits: &Habits, in_force: &InForce) -> Row {
    let suspicion = of_account(identity, habits, in_force);
    let evidence = suspicion.evidence.clone().unwrap_or_default();
    Row {
        shown: key_text::shown(identity),
        pasted: suspicion.account.clone(),
        reason: format!("its mail is unlike its habits: {evidence}"),
        remaining: None,
        rule: None,
        r#override: None,
        suspicion: Some(suspicion),
        state: None,
    }
}
