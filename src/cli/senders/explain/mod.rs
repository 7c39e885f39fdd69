//! `exirate explain`: why something was refused, and what drove a sender over a limit.

mod event;

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;

use anstyle::Style;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use self::event::{CrossingJson, WasRefused};
use super::events::{self, Event, EventSource, key};
use super::habits::account::{FoundAccounts, find, suspected};
use crate::alerts::TEST_KEY;
use crate::cli::shared::keys::{self, Narrow, Selection};
use crate::cli::shared::rates::Rates;
use crate::cli::shared::screen::{Screen, complain, note, noted};
use crate::cli::shared::times::{self, Moment};
use crate::cli::shared::{complete, database, hold_queue};
use crate::cli::{Failure, Json, Outcome};
use crate::history::explain::rule;
use crate::mta::held::HeldMail;
use crate::rate::Timestamp;
use crate::spool::{Enforcement, EventKind, LoggedEvent};
use crate::standing::accounts::{self, Account, InUse};
use crate::standing::audit_line::AuditLine;
use crate::standing::can_send::CanSend;
use crate::standing::explained::{self, EventExplanation, HabitsExplanation, NowExplanation};
use crate::standing::in_force::InForce;
use crate::standing::key_state::KeyState;
use crate::standing::key_text;
use crate::standing::pattern::{Pattern, Syntax};
use crate::standing::totals::Totals;
use crate::standing::usage::UsageReader;
use crate::store::{Entry, Inspect, Override, OwnedKey, Target, Wanted};
use crate::text::time::now;
use crate::text::{self, counted_or_no};

/// How far from --at an event may be, in seconds.
const NEAR: i64 = 3600;
/// The first line.
const BOLD: Style = Style::new().bold();
/// How many events are explained unless --limit says so.
const LIMIT: usize = 5;

/// Explain why mail was refused, and when it would pass
#[derive(Clone, Debug, Args)]
#[command(after_help = help())]
#[command(add = Json::when::<ExplanationJson<'_>>("For each event")
    .or::<CrossingJson>("With --crossing")
    .or::<HabitsExplanation>("With --habits"))]
pub(in crate::cli) struct Explain {
    /// Explain the latest event of these keys or globs
    #[arg(value_name = "KEY", required_unless_present = "id", add = complete::keys())]
    keys: Vec<OsString>,

    /// Explain what was logged of the message with this Exim message id
    #[arg(long, value_name = "ID", conflicts_with_all = ["keys", "now"])]
    id: Option<String>,

    /// Explain the event nearest to this time
    #[arg(long, value_name = "TIME", value_parser = times::past, conflicts_with_all = ["now", "since"])]
    at: Option<Moment>,

    /// Explain all events since this time
    #[arg(long, value_name = "TIME", value_parser = times::since, conflicts_with = "now")]
    since: Option<i64>,

    /// Explain what would happen to the next event; nothing is counted
    #[arg(long)]
    now: bool,

    /// Show the messages that drove the sender over the limit, from the trace store
    #[arg(long, conflicts_with = "now")]
    crossing: bool,

    /// Explain the habits of an account: its score, what added to it, and what would raise an alarm
    #[arg(long, conflicts_with_all = ["id", "at", "since", "now", "crossing", "mode", "period"])]
    habits: bool,

    /// Explain only the last N
    #[arg(long, value_name = "N", default_value_t = LIMIT)]
    limit: usize,

    #[command(flatten)]
    narrow: Narrow,

    #[command(flatten)]
    common: Rates,
}

/// What the help says besides the options.
fn help() -> String {
    format!(
        "Examples:
  Why was alice refused, and when may she send again?
    exirate explain alice@example.org
  Why on Tuesday, at about five past two?
    exirate explain alice@example.org --at 'Tue 14:05'
  What happened to this message?
    exirate explain --id 1xVl91-0000000001x-0a2b
  Would the next one pass?
    exirate explain alice@example.org --now
  What did she send before that: a newsletter, or phishing?
    exirate explain alice@example.org --crossing
  Is it her, or someone with her password?
    exirate explain alice@example.org --habits

{key} Past events are read from the logs of `exirate events`: for mail that was accepted and
crossed no limit, only the current rates are known.

Exit status: 0 explained; 1 nothing is logged or known of it; 2 an error.

{manual}

If nothing is known of KEY, and exactly one known key contains it or differs from it by one
letter, that key is explained, and a note says so; not with --json, --exact, --mode or --period.

Events are read from the log of refusals and the journal of crossings, as `exirate events` shows
them. A crossing that is not in the log of refusals was not refused: the policy observes, the key
is exempt, or the limit only counts; or it is older than that log. Mail that was accepted and
crossed no limit is not logged: only the current rates are known. The same is true of mail that an
override denied, of events older than the logs keep, and of all but the first refusal of a key in
each second.

Where servers share limits, the crossings are those of all servers, and the current rates are the
shared ones. Refusals and messages are those of this server: for a crossing on another server,
which is named, run the command there. --local looks at this server only.

What the total of a domain or a customer refused is explained where KEY is one of its users, or
the total itself, such as customer:acme. What would happen now is shown for the totals of KEY as
well.

For each limit, the rates right before and with the event follow from what was logged, and so does
when an event of the same size would have passed, if nothing else was counted. For now, the rates
are those of `exirate show`: the next event counts 1. `exirate check` takes a full description of
a message.

With --crossing, the messages in the period before the crossing are read from the trace store of
this server, if messages are recorded: how many, from which clients, to which recipients, and how
alike they are. The latest crossing of KEY is taken, or the one nearest to --at.

With --habits, it shows how far the account's mail is unlike its habits on this server (`exirate
habits`): its score and the threshold; the evidence, and what each signal has added since it began
and with the last message, in nats; the second rule, messages to new recipients of about a day
(one with N of them counts 1 + log2 N); how many messages in a row to new recipients would raise
an alarm; and what the policies in use make of it. The signals may add up to more than the score:
one message adds at most a maximum, and what was added decays.",
        key = keys::HELP,
        manual = keys::MANUAL
    )
}

/// An explanation, as JSON has it.
#[derive(Serialize, JsonSchema)]
struct ExplanationJson<'a> {
    /// As in `exirate events`; null with --now.
    event: Option<events::EventJson>,
    #[serde(flatten)]
    explained: Option<&'a EventExplanation>,
    /// The records of the key and of its totals.
    now: &'a [NowExplanation],
}

impl Explain {
    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        if self.habits {
            return self.explain_habits(screen);
        }
        if self.keys == [TEST_KEY] && !self.common.json {
            writeln!(screen, "{TEST_KEY} is what test alerts are of: nobody is over a limit")?;
            return Ok(Outcome::Fine);
        }
        let outcome = self.explain(screen)?;
        if self.id.is_none() && !self.common.json && !self.crossing {
            self.name_held(screen)?;
        }
        Ok(outcome)
    }

    /// What the habits of accounts say.
    fn explain_habits(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let FoundAccounts { mut accounts, missing, .. } =
            find(&mut self.common.spool()?, &self.keys, &self.common.folding()?)?;
        accounts.sort_by_key(Account::shown);
        let (in_use, now) = (InUse::of(&self.common.directory()?), now().seconds);
        for (n, account) in accounts.iter().enumerate() {
            let explained = HabitsExplanation::of(account, &in_use, &self.common.commands(), now);
            match self.common.json {
                true => screen.json(&explained)?,
                false if n > 0 => writeln!(screen)?,
                false => {}
            }
            if !self.common.json {
                writeln!(screen, "{}", explained.text)?;
            }
        }
        Ok(Outcome::found_if(missing))
    }

    /// Says of each KEY whether it can send now, and if not, why and until when, and what ends a
    /// denial; of a glob, which accounts are suspected. Returns what was said, in the words of what
    /// follows.
    fn say_who_can(
        &self,
        screen: &mut Screen<'_>,
        store: &mut dyn Inspect,
        in_force: &InForce,
    ) -> Result<HashSet<String>, Failure> {
        let mut said = HashSet::new();
        if self.id.is_some() || self.common.json || self.crossing {
            return Ok(said);
        }
        let (folding, commands) = (self.common.folding()?, self.common.commands());
        let in_use = InUse::of(&self.common.directory()?);
        let narrow = Narrow::unselective(self.narrow.is_exact());
        let now = in_force.now.seconds;
        for key in &self.keys {
            let key = std::slice::from_ref(key);
            let all = suspected(&self.common, &in_use, key, &self.narrow, now)?;
            let of_habits = |account| Some((account, explained::suspected(account, &in_use, now)?));
            let all: Vec<(&Account, (&str, i64))> = all.iter().filter_map(of_habits).collect();
            let target = keys::override_target(&key[0], self.narrow.is_exact(), &folding);
            let is_one = !Selection::new(key, &narrow, &folding)?.is_loose();
            let one = target.ok().filter(|_| is_one);
            if let Some((target, name)) = &one {
                let (keys, _) = Selection::new(key, &narrow, &folding)?.keys(store)?;
                let mut records = Vec::new();
                for key in &keys {
                    records.extend(store.get(key.key())?.map(KeyState::from));
                }
                let totals = Totals::of(store, in_force, keys.iter().map(OwnedKey::key))?;
                let totals = totals.and(Totals::refusing_target(store, in_force, target)?);
                let can_send = CanSend::of(in_force, target, &records, &totals);
                let held = all.iter().map(|(_, held)| *held).max_by_key(|(_, until)| *until);
                writeln!(screen, "{}", screen.paint(BOLD, can_send.sentence(name, held)))?;
                if let Some(one) = can_send.overridden {
                    said.insert(explained::decides(one));
                }
                let remedies = match can_send.denial() {
                    Some(denial) => explained::denied(&commands, name, denial),
                    None if can_send.is_blocked() => explained::blocked(&commands, name),
                    None => Vec::new(),
                };
                if !remedies.is_empty() {
                    for (n, text) in remedies.into_iter().enumerate() {
                        let word = if n == 0 { "to pass" } else { "or" };
                        writeln!(screen, "  {word:<8}  {text}")?;
                        said.insert(text);
                    }
                }
            }
            for (account, (verdict, until)) in all {
                let key = account.shown();
                let command = commands.about("explain --habits", &key);
                match one {
                    Some(_) => writeln!(screen, "  {:<8}  see `{command}`", "habits")?,
                    None => writeln!(
                        screen,
                        "now, {key}, habits: suspected, so mail is {verdict} {}; see `{command}`",
                        accounts::until(until, now)
                    )?,
                }
            }
        }
        Ok(said)
    }

    /// When somebody changed by hand how these keys stand, and how: what was refused before that is
    /// not what refuses them now.
    fn changed(&self) -> Result<Option<(Timestamp, String)>, Failure> {
        const CHANGES: [&str; 5] = ["unblock", "allow", "deny", "overrides", "set"];
        let is_about_now = self.at.is_none() && self.since.is_none() && self.id.is_none();
        if !is_about_now || self.common.json || self.crossing {
            return Ok(None);
        }
        let Some(mut spool) = self.common.spool_if_any()? else { return Ok(None) };
        let folding = self.common.folding()?;
        let mut of_keys = Vec::new();
        for key in &self.keys {
            let syntax = Syntax { exact: self.narrow.is_exact(), folding: folding.clone() };
            let pattern = Pattern::parse(key.as_bytes(), syntax).map_err(Failure::new)?;
            if let Ok((target, _)) = pattern.override_target() {
                of_keys.push((pattern, target));
            }
        }
        let lines = spool.changes_logged()?;
        let found =
            lines.iter().rev().filter_map(|line| AuditLine::parse(&line.text)).find(|one| {
                CHANGES.contains(&&*one.what)
                    && of_keys.iter().any(|(pattern, target)| one.is_of(pattern, target, &folding))
            });
        Ok(found.and_then(|one| Some((one.time()?, one.what))))
    }

    /// Names what policies hold of it.
    fn name_held(&self, screen: &mut Screen<'_>) -> Result<(), Failure> {
        let Some(held) = HeldMail::if_readable(&self.common.directory()?) else { return Ok(()) };
        let (exact, folding) = (self.narrow.is_exact(), self.common.folding()?);
        let messages = hold_queue::of_keys(&held, &self.keys, exact, &folding)?;
        let commands = self.common.commands();
        hold_queue::print(screen, &messages, |words, key| commands.here(words, key))
    }

    fn explain(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let mut selection = Selection::new(&self.keys, &self.narrow, &self.common.folding()?)?;
        if self.now {
            let mut searched = self.search(&mut selection)?;
            return match self.of_similar(&mut searched, &mut selection)? {
                Some(similar) => similar.run(screen),
                None => self.explain_now(screen, searched, &selection),
            };
        }
        let (mut found, logs) = self.events(&mut selection)?;
        let logged = found.len();
        if let Some((changed, what)) = self.changed()?
            && let Some((last, _)) = found.last()
            && last.at.seconds < changed.seconds
        {
            let [last, changed] = [last.at, changed].map(text::local);
            found.clear();
            note(format_args!(
                "the last refusal or crossing, at {last}, was before `{what}` at {changed}: --at or \
                 --since explains it"
            ));
            let searched = self.search(&mut selection)?;
            return self.explain_now(screen, searched, &selection);
        }
        self.choose(&mut found);
        if found.is_empty() {
            return self.explain_missing(screen, &mut selection, logged > 0);
        }
        if self.crossing {
            let directory = self.common.directory()?;
            let mut known = false;
            for (event, server) in &found {
                let elsewhere = logs.is_elsewhere(server).then_some(server.as_str());
                known |= event::explain_crossing(
                    screen,
                    &directory,
                    event,
                    (server, elsewhere),
                    self.common.json,
                )?;
            }
            screen.flush()?;
            return Ok(Outcome::found_if(!known));
        }
        let commands = self.common.commands();
        let mut store = self.common.open()?;
        let in_force = noted(InForce::of(&mut *store, &self.common.directory()?));
        let mut said = self.say_who_can(screen, &mut *store, &in_force)?;
        let wanted: HashSet<Vec<u8>> = found.iter().map(|(event, _)| key(event).to_vec()).collect();
        let mut records = Vec::new();
        let mut wanted =
            Wanted { selects: &mut |key| wanted.contains(key_text::key_of(key)), identities: None };
        let mut add = |entry: Entry| records.push(OwnedKey::from(entry.record_key()));
        let unread = store.for_each_wanted(&mut wanted, &mut add)?;
        unread.parts.iter().for_each(complain);
        for (n, (event, server)) in found.iter().enumerate() {
            let explained = EventExplanation::of(event);
            let own = records.iter().filter(|record| key_text::key_of(&record.key()) == key(event));
            let own: Vec<OwnedKey> = own.cloned().collect();
            let now = NowExplanation::of(&mut *store, &own, &commands, &in_force)?;
            if self.common.json {
                let event = Some(events::EventJson::on(server, event));
                screen.json(&ExplanationJson { event, explained: Some(&explained), now: &now })?;
                continue;
            }
            if n > 0 {
                writeln!(screen)?;
            }
            explained.print(screen, event, server, logs.was_refused(event, server))?;
            event::print_now(screen, &now, &mut said)?;
        }
        self.say_usage(screen, &mut *store, &records, in_force.now)?;
        screen.flush()?;
        database::incomplete(unread.parts.len())?;
        Ok(Outcome::Fine)
    }

    /// Says what the accounts among these keys have sent.
    fn say_usage(
        &self,
        screen: &mut Screen<'_>,
        store: &mut dyn Inspect,
        keys: &[OwnedKey],
        now: Timestamp,
    ) -> Result<(), Failure> {
        if self.common.json {
            return Ok(());
        }
        let usage = UsageReader::of(&self.common.directory()?, now);
        for line in usage.lines(store, keys.iter().map(OwnedKey::key))? {
            writeln!(screen, "{line}")?;
        }
        Ok(())
    }

    /// The events that match, in order, and what the logs say of others.
    fn events(&self, selection: &mut Selection) -> Result<(Vec<Event>, Logs), Failure> {
        let mut crossings = EventSource::open(&self.common, EventKind::Crossings)?;
        let own = crossings.own_server().map(str::to_owned);
        let mut found = crossings.next(true)?;
        // A server that shares its limits may have no database of its own yet.
        let spool = || match own {
            Some(_) => self.common.spool_if_any(),
            None => self.common.spool().map(Some),
        };
        if own.is_some()
            && let Some(spool) = spool()?
        {
            // Its crossings that have not been sent to the others yet.
            let is_own = |server: &String| Some(server) == own.as_ref();
            let sent: HashSet<String> =
                found.iter().filter(|one| is_own(&one.1)).map(|one| one.0.id()).collect();
            let mut all = EventSource::own(spool, EventKind::Crossings).next(true)?;
            all.retain(|(event, _)| !sent.contains(&event.id()));
            found.extend(all);
        }
        let mut refused = HashSet::new();
        if !self.crossing
            && let Some(spool) = spool()?
        {
            let refusals = EventSource::own(spool, EventKind::Refusals).next(true)?;
            refused.extend(refusals.iter().map(|(event, _)| event.at.as_micros()));
            found.extend(refusals);
        }
        // An alarm of habits is no limit, nor is mail that has waited too long.
        found.retain(|(event, _)| !event.is_alarm() && !event.is_overdue());
        let folding = self.common.folding()?;
        found.retain(|(event, _)| match &self.id {
            Some(id) => event.texts.message_id == id.trim().as_bytes(),
            None => {
                // What the total of a domain or a customer refused is of its sender as well.
                let is_enforced = event.enforcement == Enforcement::Enforced;
                let sender = is_enforced.then(|| rule::of_sender(event, &folding)).flatten();
                let is_senders = sender.is_some_and(|key| selection.contains(&key.key()));
                selection.contains(&event.record_key()) || is_senders
            }
        });
        // A refusal may be a crossing as well, and says more.
        let is_refusal = |event: &LoggedEvent| event.kind == EventKind::Refusals;
        let id = |event: &LoggedEvent| (event.at.as_micros(), key(event).to_vec());
        let refusals: HashSet<_> = found
            .iter()
            .filter(|(event, _)| is_refusal(event))
            .map(|(event, _)| id(event))
            .collect();
        found.retain(|(event, _)| is_refusal(event) || !refusals.contains(&id(event)));
        found.sort_by_key(|(event, _)| event.at);
        Ok((found, Logs { refused, own }))
    }

    /// Keeps the events that are to be explained.
    fn choose(&self, found: &mut Vec<Event>) {
        if let Some(since) = self.since {
            found.retain(|(event, _)| event.at.seconds >= since);
        } else if let Some(moment) = self.at {
            let (at, long) = (moment.start, moment.seconds());
            let distance = |event: &Event| match event.0.at.seconds - at.seconds {
                after if after >= long => after - long + 1,
                after => (-after).max(0),
            };
            let nearest = found.iter().map(distance).min().unwrap_or(0);
            if nearest > NEAR {
                let near = found.iter().min_by_key(|event| distance(event));
                let near = near.map(|(event, _)| text::local(event.at)).unwrap_or_default();
                note(format_args!(
                    "nothing is logged of it within an hour of {}; the nearest event is at {near}",
                    text::local(at)
                ));
                found.clear();
            }
            // The first of each key.
            found.sort_by_key(|event| (distance(event), event.0.at));
            keep_first_of_each_key(found);
            found.retain(|event| distance(event) <= NEAR);
            found.reverse();
        } else if self.id.is_none() {
            found.reverse();
            keep_first_of_each_key(found);
            found.reverse();
        }
        if found.len() > self.limit {
            let left_out = found.len() - self.limit;
            let (one, several) = match self.since.is_some() || self.id.is_some() {
                true => ("more event", "more events"),
                false => ("more key", "more keys"),
            };
            note(format_args!("left out {}: see --limit", counted_or_no(left_out, one, several)));
            found.drain(..left_out);
        }
    }

    /// Opens the rates, and finds the records of the keys; of one without any, those of the totals
    /// that refuse it.
    fn search(&self, selection: &mut Selection) -> Result<Searched, Failure> {
        let mut store = self.common.open()?;
        let (mut keys, unread) = selection.keys(&mut *store)?;
        let in_force = noted(InForce::of(&mut *store, &self.common.directory()?));
        let folding = self.common.folding()?;
        let arguments = (&*self.keys, &self.narrow);
        let of = keys::of_missing(&mut *store, &in_force, selection, arguments, &folding)?;
        keys.extend(of);
        Ok(Searched { store, keys, unread, in_force })
    }

    /// The same of the key that is surely meant, where nothing is known of KEY. A program gets
    /// what it asks for.
    fn of_similar(
        &self,
        searched: &mut Searched,
        selection: &mut Selection,
    ) -> Result<Option<Self>, Failure> {
        let store = &mut *searched.store;
        if self.common.json || !self.overrides(store)?.is_empty() {
            return Ok(None);
        }
        let similar = selection.only_similar(store)?;
        Ok(similar.map(|key| Self { keys: vec![key], ..self.clone() }))
    }

    /// The overrides of the keys.
    fn overrides(&self, store: &mut dyn Inspect) -> Result<Vec<Override>, Failure> {
        let folding = self.common.folding()?;
        let target = |key: &OsString| self.narrow.override_target(key, &folding).ok();
        let targets: Vec<Target> = self.keys.iter().filter_map(target).collect();
        let (mut all, now) = (store.overrides()?, now().seconds);
        all.retain(|one| one.is_active(now) && targets.contains(&one.target));
        Ok(all)
    }

    /// Whether an override decides for one of the keys, or habits do.
    fn is_decided(&self, store: &mut dyn Inspect) -> Result<bool, Failure> {
        let in_use = InUse::of(&self.common.directory()?);
        let (now, narrow) = (now().seconds, &self.narrow);
        Ok(!self.overrides(store)?.is_empty()
            || !suspected(&self.common, &in_use, &self.keys, narrow, now)?.is_empty())
    }

    /// What is known where nothing is logged.
    fn explain_missing(
        &self,
        screen: &mut Screen<'_>,
        selection: &mut Selection,
        is_elsewhere: bool,
    ) -> Result<Outcome, Failure> {
        if let Some(id) = &self.id {
            let missing = format!(
                "nothing is logged of message {}: no limit has refused it, or its log is gone",
                text::printable(id.as_bytes())
            );
            if self.common.json {
                complain(missing);
            } else {
                writeln!(screen, "{missing}")?;
            }
            return Ok(Outcome::found_if(true));
        }
        // With --crossing, a program gets nothing of the rates.
        let mut searched = None;
        if !(self.crossing && self.common.json) {
            let found = searched.insert(self.search(selection)?);
            if let Some(similar) = self.of_similar(found, selection)? {
                return similar.run(screen);
            }
        }
        let keys: Vec<String> =
            self.keys.iter().map(|key| text::printable(key.as_encoded_bytes())).collect();
        let what = if self.crossing { "crossing" } else { "refusal or crossing" };
        let when = match (is_elsewhere, self.at, self.since) {
            (true, Some(_), _) => " near that time",
            (true, _, Some(_)) => " since then",
            _ => "",
        };
        note(format_args!("no {what} of {} is logged{when}", keys.join(" ")));
        if let Some(searched) = searched.filter(|_| !self.crossing) {
            self.explain_now(screen, searched, selection)?;
        }
        Ok(Outcome::found_if(true))
    }

    /// What would happen to the next event of each record.
    fn explain_now(
        &self,
        screen: &mut Screen<'_>,
        searched: Searched,
        selection: &Selection,
    ) -> Result<Outcome, Failure> {
        let Searched { mut store, keys, unread, in_force } = searched;
        let found = NowExplanation::of(&mut *store, &keys, &self.common.commands(), &in_force)?;
        if self.common.json {
            screen.json(&ExplanationJson { event: None, explained: None, now: &found })?;
        } else {
            let mut said = HashSet::new();
            // Nothing is said of a name that is a slip.
            if !found.is_empty() || !selection.has_missing() || self.is_decided(&mut *store)? {
                said = self.say_who_can(screen, &mut *store, &in_force)?;
            }
            event::print_now(screen, &found, &mut said)?;
        }
        self.say_usage(screen, &mut *store, &keys, in_force.now)?;
        screen.flush()?;
        let missing = selection.report_missing(&mut *store)?;
        database::incomplete(unread)?;
        Ok(Outcome::found_if(missing))
    }
}

/// The rates, and the records of the keys in them.
struct Searched {
    store: Box<dyn Inspect>,
    keys: Vec<OwnedKey>,
    /// How many shards could not be read; why has been printed.
    unread: usize,
    in_force: InForce,
}

/// What the logs say besides the events that are explained.
struct Logs {
    /// When something was refused on this server: a crossing of then is of an event that was
    /// refused, perhaps by the limit of another key.
    refused: HashSet<i64>,
    /// The name of this server, if it shares its limits.
    own: Option<String>,
}

impl Logs {
    /// Whether an event is of another server.
    fn is_elsewhere(&self, server: &str) -> bool {
        !server.is_empty() && self.own.as_deref() != Some(server)
    }

    fn was_refused(&self, event: &LoggedEvent, server: &str) -> WasRefused {
        match () {
            () if event.kind == EventKind::Refusals => WasRefused::Yes,
            () if self.is_elsewhere(server) => WasRefused::Elsewhere,
            () if self.refused.contains(&event.at.as_micros()) => WasRefused::Yes,
            () => WasRefused::NotLogged,
        }
    }
}

/// Keeps the first event of each key.
fn keep_first_of_each_key(found: &mut Vec<Event>) {
    let mut known = HashSet::new();
    found.retain(|(event, _)| known.insert(key(event).to_vec()));
}
