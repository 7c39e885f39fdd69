//! What an account's habits say of it, and what would raise an alarm.

use schemars::JsonSchema;
use serde::Serialize;

use crate::history::explain::rule::SaidOfHabits;
use crate::policy::word::{OnHabits, Word as _};
use crate::rate::habits::{Added, Alarm, Answer, Answers, UNTIL_ANSWERED};
use crate::standing::accounts::{Account, InUse, is_refused, until};
use crate::standing::commands::Commands;
use crate::standing::key_text;
use crate::store::names;
use crate::text;

/// So many messages in a row are tried out.
const MESSAGES_MAX: u32 = 1000;

/// An account, in JSON.
#[derive(Serialize, JsonSchema)]
pub(crate) struct AccountJson {
    key: String,
    score: f64,
    threshold: f64,
    /// The last message; in seconds since 1970, as the other times.
    at: i64,
    messages: u16,
    /// Null: never.
    alarm_at: Option<i64>,
    /// When the evidence began.
    since: i64,
    /// Null: not suspected; in the year 9999, if only an answer ends it.
    suspected_until: Option<i64>,
    /// How many messages were held or deferred since the alarm.
    held: u32,
    /// accepted or stolen; null: none.
    answer: Option<&'static str>,
    /// How many alarms there were.
    alarms: u32,
    /// How many of them were the owner.
    accepted: u32,
    /// How many of them were a thief.
    stolen: u32,
    /// How many strangers it usually writes to in a day.
    usual: f64,
    evidence: EvidenceJson,
}

impl AccountJson {
    /// Of an account, of which an alarm is raised at this threshold.
    pub(crate) fn of(account: &Account, threshold: f64, now: i64) -> Self {
        let habits = &account.habits;
        let evidence = habits.evidence(habits.at());
        let Answers { alarms, accepted, stolen } = habits.answers();
        Self {
            key: account.shown(),
            score: habits.score(now),
            threshold,
            at: habits.at(),
            messages: habits.messages(),
            alarm_at: habits.alarm_at(),
            since: habits.since(),
            suspected_until: habits.suspected_until().filter(|&until| until > now),
            held: habits.held(),
            answer: habits.answer().map(Answer::word),
            alarms,
            accepted,
            stolen,
            usual: evidence.usual,
            evidence: EvidenceJson::of(&evidence),
        }
    }
}

#[derive(Serialize, JsonSchema)]
struct EvidenceJson {
    strangers: u32,
    messages: u32,
    seconds: i64,
    networks: u32,
}

impl EvidenceJson {
    fn of(alarm: &Alarm) -> Self {
        let Alarm { strangers, messages, seconds, networks, .. } = *alarm;
        Self { strangers, messages, seconds, networks }
    }
}

/// What signals have added, in JSON.
#[derive(Serialize, JsonSchema)]
struct AddedJson {
    recipients: f64,
    many: f64,
    hour: f64,
    network: f64,
    failures: f64,
}

impl AddedJson {
    fn of(added: Added) -> Self {
        let Added { recipients, many, hour, network, failures } = added;
        Self { recipients, many, hour, network, failures }
    }
}

/// What the policies say of an account, in JSON.
#[derive(Serialize, JsonSchema)]
struct PolicyJson {
    name: String,
    table: String,
    habits: &'static str,
    sensitivity: &'static str,
}

/// What the habits of an account say of it, in JSON.
#[derive(Serialize, JsonSchema)]
pub(crate) struct HabitsExplanation {
    #[serde(flatten)]
    account: AccountJson,
    /// What each signal has added since the evidence began.
    added: AddedJson,
    /// With the last message.
    last_added: AddedJson,
    volume: f64,
    volume_record: f64,
    volume_limit: f64,
    /// Null: more than 1000.
    messages_to_alarm: Option<u32>,
    /// Null: off or exempt.
    policy: Option<PolicyJson>,
    pub(crate) text: String,
}

impl HabitsExplanation {
    pub(crate) fn of(account: &Account, in_use: &InUse, commands: &Commands, now: i64) -> Self {
        let habits = &account.habits;
        let said = in_use.said(account, now);
        let sensitivity = said.as_ref().map(|said| said.sensitivity).unwrap_or_default();
        let threshold = habits.threshold(now, sensitivity);
        let next = habits.messages_to_alarm(now, sensitivity, MESSAGES_MAX);
        let text =
            AccountLines { account, threshold, next, said: said.as_ref(), commands, now }.text();
        Self {
            account: AccountJson::of(account, threshold, now),
            added: AddedJson::of(habits.added_since()),
            last_added: AddedJson::of(habits.last_added()),
            volume: habits.volume(now),
            volume_record: habits.record(),
            volume_limit: habits.volume_limit(),
            messages_to_alarm: next,
            policy: said.map(|said| PolicyJson {
                name: said.policy,
                table: said.table,
                habits: said.on.word(),
                sensitivity: said.sensitivity.word(),
            }),
            text,
        }
    }
}

/// What is written of an account.
struct AccountLines<'a> {
    account: &'a Account,
    threshold: f64,
    next: Option<u32>,
    said: Option<&'a SaidOfHabits>,
    commands: &'a Commands,
    now: i64,
}

impl AccountLines<'_> {
    fn text(&self) -> String {
        let Self { account, threshold, next, said, now, .. } = *self;
        let habits = &account.habits;
        let mut lines = vec![self.title()];
        let mut line = |name: &str, text: String| lines.push(format!("  {name:<10}{text}"));
        let score = habits.score(now);
        line("score", format!("{score:.1} of {threshold:.1}, at which an alarm is raised"));
        if score >= 1.0 || habits.suspected_until().is_some() {
            line("evidence", habits.evidence(habits.at()).to_string());
            let since = text::time::local_second(habits.since());
            line("added", format!("since {since}: {}", signals(habits.added_since())));
        }
        if habits.held() > 0 {
            let held = text::counted(habits.held(), "message", "messages");
            line("held", format!("{held} held or deferred since the alarm"));
        }
        line("last one", signals(habits.last_added()));
        line(
            "volume",
            format!(
                "{:.1} in about a day, at most {:.1} on earlier days: an alarm is raised above \
                 {:.0}",
                habits.volume(now),
                habits.record(),
                habits.volume_limit()
            ),
        );
        line(
            "next",
            match next {
                Some(1) => "a message to one new recipient raises an alarm".to_owned(),
                Some(next) => {
                    format!("{next} messages in a row, each to a new recipient, raise an alarm")
                }
                None => format!("not even {MESSAGES_MAX} new recipients in a row raise an alarm"),
            },
        );
        line(
            "policy",
            match said {
                Some(SaidOfHabits { policy, table, on, sensitivity }) => format!(
                    "{policy} ({table}): {}; sensitivity {}",
                    becomes(*on),
                    sensitivity.word()
                ),
                None => "habits are off, or the account is exempt: nothing is done".to_owned(),
            },
        );
        if habits.suspected_until().is_some() {
            let name = names(&account.key.key()).last();
            let name = name.map_or_else(String::new, |(name, _)| key_text::key(&name));
            for (answer, meaning) in [
                ("accept", "it was the owner, and this mail is usual from now on"),
                ("stolen", "the account is denied, and the recipients are listed"),
            ] {
                let command = self.commands.about(&format!("habits {answer}"), &name);
                line("answer", format!("`{command}`: {meaning}"));
            }
        }
        lines.join("\n")
    }

    fn title(&self) -> String {
        let Self { account, now, .. } = *self;
        let (key, habits) = (account.shown(), &account.habits);
        match (habits.suspected_until(), habits.answer(), habits.alarm_at()) {
            (Some(end), ..) if end > now => {
                let on = self.said.map_or(OnHabits::Off, |said| said.on);
                let blocked = if is_refused(habits, on, now) { " and blocked" } else { "" };
                let unless = if end < UNTIL_ANSWERED { ", unless somebody answers" } else { "" };
                format!("{key} is suspected{blocked} {}{unless}", until(end, now))
            }
            (Some(_), _, Some(at)) => format!(
                "{key} is not suspected any more: nobody has answered the alarm of {}",
                text::time::local_second(at)
            ),
            (None, Some(answer), Some(at)) => {
                let at = text::time::local_second(at);
                let said = match answer {
                    Answer::Accepted => "was the owner",
                    Answer::Stolen => "was a thief",
                };
                format!("{key} is not suspected: the alarm of {at} {said}")
            }
            _ => format!("{key} is not suspected: it never had an alarm"),
        }
    }
}

/// What becomes of the mail of a suspected account.
fn becomes(on: OnHabits) -> &'static str {
    match on {
        OnHabits::Off => "nothing",
        OnHabits::Observe => "observed only",
        OnHabits::Hold => "mail is held while it is suspected",
        OnHabits::Defer => "mail is deferred while it is suspected",
    }
}

/// `recipients +1.2, many +0.3`
fn signals(added: Added) -> String {
    let Added { recipients, many, hour, network, failures } = added;
    let all = [
        (recipients, "recipients"),
        (many, "more than usual in a message"),
        (hour, "hours"),
        (network, "networks"),
        (failures, "failed recipients"),
    ];
    let said = all.iter().filter(|(nats, _)| nats.abs() >= 0.05);
    let said: Vec<String> = said.map(|(nats, name)| format!("{name} {nats:+.1}")).collect();
    if said.is_empty() { "nothing".to_owned() } else { said.join(", ") }
}

/// How the mail of a suspected account is treated, and until when, if it is held or deferred.
pub(crate) fn suspected(
    account: &Account,
    in_use: &InUse,
    now: i64,
) -> Option<(&'static str, i64)> {
    let until = account.habits.suspected_until().filter(|&until| until > now)?;
    match in_use.said(account, now)?.on {
        on if is_refused(&account.habits, on, now) => Some(("refused", until)),
        OnHabits::Hold => Some(("held", until)),
        OnHabits::Defer => Some(("deferred", until)),
        OnHabits::Off | OnHabits::Observe => None,
    }
}
