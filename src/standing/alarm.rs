//! What somebody who knows says of an alarm: it was the owner, or a thief.

use std::fmt::Write as _;
use std::net::IpAddr;

use super::accounts::{Account, InUse};
use super::changer::Changer;
use super::override_state::DenialReply;
use super::pattern;
use crate::history::habits::SentMail;
use crate::identity::fold::Folding;
use crate::rate::habits::{Answer, RecipientsKept};
use crate::spool::habits::AlarmAnswer;
use crate::spool::{Spool, SpoolError};
use crate::store::Override;
use crate::text::{self, counted, counted_or_no};

/// Why a stolen account is denied, where nobody says more.
pub(crate) const REASON: &str = "password stolen";

/// The number of days is said if there are fewer: nobody counts on a pace for longer.
const A_YEAR: f64 = 365.0;

/// Says that the last alarm of an account was the owner, and logs that. Returns what became of it, and
/// how long that holds; `None` if it waits for no answer.
///
/// # Errors
/// The database could not be used; nothing was changed.
pub(crate) fn accept(
    spool: &mut Spool,
    account: &Account,
    in_use: &InUse,
    by: &mut Changer,
) -> Result<Option<Vec<String>>, SpoolError> {
    let accepted = spool.answer_habits(account.key.key(), AlarmAnswer::Accepted)?;
    let Some(at) = account.habits.alarm_at().filter(|_| accepted) else { return Ok(None) };
    let key = account.shown();
    by.log(spool, format_args!("habits accept alarm={} key={key}", text::iso_second(at)));
    let at = text::time::local_second(at);
    let mut said = vec![format!("{key} is no longer suspected: the alarm of {at} was the owner")];
    said.extend(remembered(account, in_use));
    Ok(Some(said))
}

/// How long the recipients stay known that led to the alarm, and what to do where that is not long:
/// a sentence each.
fn remembered(account: &Account, in_use: &InUse) -> Vec<String> {
    let habits = &account.habits;
    let remembered = habits.remembered();
    let RecipientsKept { new, others, days } = remembered;
    let mut known = match others {
        _ if new == 0 => "there were no new recipients".to_owned(),
        0 => format!("its {new} new recipients are more than an account remembers"),
        _ => {
            let stay = counted(new, "new recipient stays", "new recipients stay");
            format!("its {stay} known until it has written to {others} others")
        }
    };
    if new > 0 && others > 0 && days < A_YEAR {
        let days = counted(days.ceil() as u64, "day", "days");
        let _ = write!(known, ", at its usual pace in {days}");
    }
    let mut said = vec![known];
    let held = habits.held();
    if held > 0 {
        let held = counted(held, "message that was held", "messages that were held");
        said.push(format!("those of {held} are not known yet"));
    }
    if remembered.is_too_many() || held > new {
        let (name, at) = (text::shell(&account.name()), habits.at());
        let policy = in_use.said(account, at).map_or_else(|| "NAME".to_owned(), |said| said.policy);
        let identity = account.identity();
        let user = identity.split_once(':').map_or(&*identity, |(_, user)| user);
        said.push(format!(
            "a mailing to them that is repeated may raise an alarm again: before it, run `exirate \
             allow {name} --until 2h`"
        ));
        said.push(format!(
            "or exempt the account, by a line behind [policy.{policy}] in the policy file, and in \
             each other policy with habits: user.{} = {{ habits = \"off\" }}",
            toml_string(user)
        ));
    }
    said
}

/// `text` as a TOML string, without a character that drives a terminal.
fn toml_string(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            _ if c.escape_debug().len() == 1 => quoted.push(c),
            _ => _ = write!(quoted, "\\U{:08X}", u32::from(c)),
        }
    }
    quoted + "\""
}

/// Whether the last alarm of an account may have been a thief: nobody has said otherwise.
pub(crate) fn may_be_thief(account: &Account) -> bool {
    account.habits.alarm_at().is_some() && account.habits.answer() != Some(Answer::Accepted)
}

/// The denial of a stolen account, whichever limit its mail is held against.
///
/// # Errors
/// It cannot be denied, in words.
pub(crate) fn denial(
    account: &Account,
    folding: &Folding,
    (since, until): (i64, i64),
    reason: &str,
    who: &str,
) -> Result<Override, String> {
    let name = account.name();
    let (target, argument) = pattern::override_target(name.as_bytes(), false, folding)?;
    let (reason, who) = (reason.to_owned(), who.to_owned());
    let overridden = DenialReply::by_default(&target, until).denial();
    Ok(Override { overridden, target, argument, until, since, reason, who })
}

/// Says that the last alarm of an account was a thief, and logs that; the recipients and clients of
/// what was `sent` since are forgotten. Returns whether nobody had said so before.
///
/// # Errors
/// The database could not be used; nothing was changed.
pub(crate) fn stolen(
    spool: &mut Spool,
    account: &Account,
    sent: Option<&SentMail>,
    by: &mut Changer,
) -> Result<bool, SpoolError> {
    let (recipients, clients): (Vec<String>, Vec<IpAddr>) = match sent {
        Some(sent) => {
            (sent.recipients.keys().cloned().collect(), sent.clients.keys().copied().collect())
        }
        None => Default::default(),
    };
    let answer = AlarmAnswer::Stolen { recipients: &recipients, clients: &clients };
    let answered = spool.answer_habits(account.key.key(), answer)?;
    if answered {
        let alarm = account.habits.alarm_at().map_or_else(String::new, text::iso_second);
        by.log(spool, format_args!("habits stolen alarm={alarm} key={}", account.shown()));
    }
    Ok(answered)
}

/// That somebody has said so before.
pub(crate) fn was_answered(account: &Account) -> String {
    format!("{}: the answer was given before", account.shown())
}

/// `sent since 2026-11-26 10:00:00 UTC: 3 messages to 5 recipients`
pub(crate) fn sent(since: i64, mail: &SentMail) -> String {
    let messages = counted_or_no(mail.messages, "message", "messages");
    let people = counted_or_no(mail.recipients.len(), "recipient", "recipients");
    format!("sent since {}: {messages} to {people}", text::time::local_second(since))
}
