//! How `exirate status` looks.

use std::io::Write as _;

use anstyle::{AnsiColor, Style};

use crate::cli::Failure;
use crate::cli::senders::list::OVER;
use crate::cli::shared::screen::Screen;
use crate::overview::keys::{Blocked, CrossingShown, DatabaseKeys};
use crate::overview::status::{Cluster, HeldCount, Policies, Status, Verdict};
use crate::policy::word::{Action, Word as _};
use crate::standing::usage;
use crate::text::time::now;
use crate::text::{self, bytes, counted, counted_or_no};

const WELL: Style = AnsiColor::Green.on_default().bold();
const UNSURE: Style = AnsiColor::Yellow.on_default().bold();

pub(super) fn print(screen: &mut Screen<'_>, status: &Status) -> Result<(), Failure> {
    let style = match status.verdict {
        Verdict::Limited => WELL,
        Verdict::Observed => UNSURE,
        Verdict::Bypassed | Verdict::Doubtful | Verdict::NotLimited => OVER.bold(),
    };
    writeln!(screen, "{}", screen.paint(style, &status.text))?;
    let mut rows = Rows::default();
    for by in &status.decided_by {
        let policies = match &by.policies {
            _ if !by.evaluates => None,
            None => Some("all policies".to_owned()),
            Some(names) => Some(format!("policies {}", names.join(", "))),
        };
        let specs = (by.specs > 0).then(|| counted(by.specs, "spec", "specs"));
        let what: Vec<String> = policies.into_iter().chain(specs).collect();
        rows.add("decided", format!("{} by its {}: {}", by.server, by.front_end, what.join(", ")));
    }
    if !status.decided_by.is_empty() {
        let decisions = status.keys.decisions_since_utc_midnight;
        let decisions = counted_or_no(decisions, "decision", "decisions");
        rows.add("decided", format!("{decisions} since 00:00 UTC"));
    }
    of_policies(&mut rows, &status.policies);
    of_keys(&mut rows, &status.keys);
    of_queue(&mut rows, status);
    status.units.iter().for_each(|one| rows.add("units", one.shown()));
    if let Some(follower) = &status.follower {
        rows.add("follower", follower.shown());
    }
    if let Some(cluster) = &status.cluster {
        rows.add("shared", of_cluster(cluster));
    }
    if let Some(database) = &status.keys.database {
        let damaged = (database.damaged > 0)
            .then(|| counted(database.damaged, "damaged record", "damaged records"));
        let unread = (database.unreadable > 0)
            .then(|| counted(database.unreadable, "part cannot be read", "parts cannot be read"));
        let health: Vec<String> = damaged.into_iter().chain(unread).collect();
        rows.add("database", store(database.disk_bytes, database.max_bytes, &health));
    }
    if let Some(trace) = &status.trace {
        let damaged = (trace.damaged > 0)
            .then(|| counted(trace.damaged, "file cannot be read", "files cannot be read"));
        let messages = counted_or_no(trace.messages, "message", "messages");
        let health: Vec<String> = [Some(messages), damaged].into_iter().flatten().collect();
        rows.add("trace", store(trace.disk_bytes, trace.max_bytes, &health));
    }
    let doctor = &status.doctor;
    let found = match (doctor.problems, doctor.warnings) {
        (0, 0) => "no problem".to_owned(),
        (0, n) => counted(n, "warning", "warnings"),
        (n, 0) => counted(n, "problem", "problems"),
        (n, m) => {
            format!("{}, {}", counted(n, "problem", "problems"), counted(m, "warning", "warnings"))
        }
    };
    let part = if doctor.complete { "" } else { ", as far as this user can see" };
    let first = doctor.first.as_ref().map(|first| format!(": {first}")).unwrap_or_default();
    rows.add("doctor", format!("{found}{part}{first}; more: `exirate doctor`"));
    rows.print(screen)
}

/// Lines with a name each, which is shown where it changes.
#[derive(Default)]
struct Rows(Vec<(&'static str, String)>);

impl Rows {
    fn add(&mut self, name: &'static str, value: String) {
        self.0.push((name, value));
    }

    fn print(&self, screen: &mut Screen<'_>) -> Result<(), Failure> {
        let mut before = "";
        for (name, value) in &self.0 {
            let shown = if *name == before { "" } else { name };
            before = name;
            writeln!(screen, "  {shown:<9}  {value}")?;
        }
        Ok(())
    }
}

/// What policies hold in the queue, and what waits there.
fn of_queue(rows: &mut Rows, status: &Status) {
    let kept = |name: &'static str, count: &Option<HeldCount>, then: &str| {
        let HeldCount { messages, keys, since_second, until_second, .. } = count.as_ref()?;
        let since = text::time::local_second((*since_second)?);
        let messages = counted(*messages, "message", "messages");
        let keys = counted(*keys, "key", "keys");
        let until = until_second.map(text::time::local_second);
        let until = until.map_or_else(String::new, |at| format!(", out by about {at}"));
        Some((name, format!("{messages} of {keys}, since {since}{until}: see {then}")))
    };
    let release = "`exirate held`; `exirate held release KEY`";
    for (name, text) in
        [kept("held", &status.held, release), kept("waiting", &status.waiting, "`exirate held`")]
            .into_iter()
            .flatten()
    {
        rows.add(name, text);
    }
}

fn of_policies(rows: &mut Rows, policies: &Policies) {
    let Policies {
        policies: all, exempt, applied_at, policy_file, policy_file_state, error, ..
    } = policies;
    if let Some(error) = error {
        rows.add("policies", format!("cannot be read: {error}"));
    }
    let of = |action: Action| {
        let names = all.iter().filter(|policy| policy.action == action.word());
        names.map(|policy| &*policy.name).collect::<Vec<_>>().join(", ")
    };
    let kinds = [("enforced", of(Action::Enforce)), ("observed", of(Action::Observe))];
    for (word, names) in kinds.iter().filter(|(_, names)| !names.is_empty()) {
        rows.add("policies", format!("{word}: {names}"));
    }
    let unused = all.iter().filter(|policy| !policy.evaluated).map(|policy| &*policy.name);
    let unused: Vec<&str> = unused.collect();
    if !unused.is_empty() {
        rows.add("policies", format!("nothing evaluates: {}", unused.join(", ")));
    }
    if *exempt > 0 {
        rows.add("policies", format!("{} in exempt", counted(*exempt, "entry", "entries")));
    }
    let in_use = !all.is_empty() || error.is_some();
    let when = applied_at.map_or_else(|| "before".to_owned(), text::local_second);
    let state = match *policy_file_state {
        "same" => format!("as applied {when}"),
        "differs" if in_use => {
            format!("differs from what was applied {when}: see `exirate policy diff`")
        }
        "differs" => "was never applied: see `exirate policy apply`".to_owned(),
        "errors" => "has errors, and is not in use: see `exirate policy lint`".to_owned(),
        "absent" if in_use => format!("is not there; in use is what was applied {when}"),
        "absent" => return,
        "large" => format!(
            "is large, and was not compared with what was applied {when}: see `exirate policy diff`"
        ),
        _ => "cannot be read".to_owned(),
    };
    rows.add("policies", format!("{policy_file} {state}"));
}

fn of_keys(rows: &mut Rows, keys: &DatabaseKeys) {
    let now = now();
    if keys.database.is_none() {
        rows.add("keys", match keys.elsewhere.as_ref() {
            None => "none: nothing was ever counted".to_owned(),
            Some(other) => {
                let other = other.display();
                format!("none here; what was counted before is in {other}: `exirate list --spool {other}`")
            }
        });
        return;
    }
    let last = keys.last.map(|last| format!("; the last event {}", text::rough_age(last, now)));
    let today = keys.keys_today;
    rows.add("keys", format!("{}, {today} counted today{}", keys.keys, last.unwrap_or_default()));
    rows.add("blocked", counted_or_no(keys.blocked, "key", "keys"));
    for one in &keys.blocked_first {
        rows.add("blocked", blocked(one));
    }
    if keys.blocked > keys.blocked_first.len() as u64 {
        rows.add("blocked", "more: `exirate list --over`".to_owned());
    }
    if keys.suspected > 0 {
        let first = keys.suspected_first.join(", ");
        let more = if keys.suspected > keys.suspected_first.len() { ", …" } else { "" };
        rows.add(
            "habits",
            format!(
                "{} suspected: {first}{more}; see `exirate habits`",
                counted(keys.suspected, "account is", "accounts are")
            ),
        );
    }
    if let Some(usage) = keys.usage.as_ref().filter(|usage| !usage.is_nothing()) {
        rows.add("sent", format!("{}; see `exirate usage`", usage::in_a_line(usage)));
    }
    let (allowed, denied) = (keys.allowed, keys.denied);
    if allowed + denied > 0 {
        rows.add("overrides", format!("{allowed} allowed, {denied} denied"));
        keys.overrides.iter().for_each(|one| rows.add("overrides", one.text.clone()));
        if allowed + denied > keys.overrides.len() {
            rows.add("overrides", "more: `exirate overrides`".to_owned());
        }
    }
    rows.add("crossings", format!("{} today", keys.crossings_today));
    for one in &keys.crossings {
        rows.add("crossings", crossing(one, !keys.receivers.is_empty()));
    }
    for one in &keys.receivers {
        let waiting = match (one.waiting, one.failing) {
            (0, _) => "has everything".to_owned(),
            (n, false) => format!("{} to be sent", counted(n, "alert is", "alerts are")),
            (n, true) => format!(
                "{} to be sent, and the last attempt has failed",
                counted(n, "alert is", "alerts are")
            ),
        };
        rows.add("alerts", format!("{}: {waiting}", one.name));
    }
}

fn blocked(one: &Blocked) -> String {
    let period = one.period.as_deref().unwrap_or("?");
    let limit = text::number(one.limit);
    let since = one.since_at.map(|since| format!(", since {}", text::local(since)));
    let wait = one.wait.as_ref().map(|wait| format!(", passes {wait}"));
    let mode = one.mode.as_ref().map(|mode| format!(" {mode}")).unwrap_or_default();
    let per = if one.is_of_calendar { ' ' } else { '/' };
    let measured = format!("{:.1} of {limit}{per}{period}{mode}", one.rate);
    let why = one.why.as_ref().map(|why| format!("; {why}")).unwrap_or_default();
    format!(
        "  {}: {measured}{}{}{why}",
        one.key,
        since.unwrap_or_default(),
        wait.unwrap_or_default()
    )
}

fn crossing(one: &CrossingShown, any_receiver: bool) -> String {
    let delivery = match (any_receiver, one.is_silent, &one.waiting_for[..]) {
        (false, ..) => String::new(),
        (_, true, _) => " (no alert)".to_owned(),
        (_, _, []) => " (alerted)".to_owned(),
        (_, _, names) => format!(" (not yet sent: {})", names.join(", ")),
    };
    let limit = text::number(one.limit);
    format!(
        "  {} {}: {:.1}/{limit} {}{delivery}",
        text::local(one.at),
        one.key,
        one.rate,
        one.in_period
    )
}

fn of_cluster(cluster: &Cluster) -> String {
    let away = cluster.away_since.as_ref().map(|since| format!(", away since {since}"));
    let now = match (&cluster.error, cluster.reply_ms) {
        (Some(error), _) => format!("the agent does not decide: {error}"),
        (None, time) => format!("the agent replies in {} ms", time.unwrap_or_default()),
    };
    format!(
        "by {}{}; {now}",
        counted(cluster.servers, "server", "servers"),
        away.unwrap_or_default()
    )
}

fn store(disk: u64, most: u64, more: &[String]) -> String {
    let part = text::percent(disk as f64 / most.max(1) as f64);
    let more: String = more.iter().map(|one| format!(", {one}")).collect();
    format!("{}, {part} of the size limit {}{more}", bytes(disk), bytes(most))
}
