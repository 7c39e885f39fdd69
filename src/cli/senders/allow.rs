//! `exirate allow` and `exirate deny`: override the limits of a key for a time.
//!
//! A denial always acts. Where nobody of the name was seen, that is said first, with who is nearest.

use std::ffi::OsString;
use std::io::Write as _;

use clap::Args;
use clap::builder::PossibleValuesParser;
use schemars::JsonSchema;
use serde::Serialize;

use super::events::EventSource;
use crate::cli::shared::administrator::{self, AuditLog};
use crate::cli::shared::database::print_incidents;
use crate::cli::shared::keys::{self, Narrow, Selection};
use crate::cli::shared::rates::Rates;
use crate::cli::shared::screen::{Screen, complain, note};
use crate::cli::shared::{complete, confirm, times};
use crate::cli::{Failure, Json, Outcome};
use crate::engine::Overridden;
use crate::identity::fold::Folding;
use crate::policy::word::Action;
use crate::spool::EventKind;
use crate::standing::change::{self, Ended, NotSet};
use crate::standing::databases::require_owner;
use crate::standing::in_force::InForce;
use crate::standing::override_state::{self, DenialReply, OverrideJson};
use crate::standing::{key_text, totals};
use crate::store::{Inspect, Override, OwnedKey, Target};
use crate::text;
use crate::text::time::now;
use crate::toml_file::Word as _;

/// How long an override lasts unless it says so itself.
const UNTIL: &str = "1d";

/// Allow a key for a time, whatever its rate
#[derive(Debug, Args)]
#[command(after_help = help(Overridden::Allow), add = json())]
pub(in crate::cli) struct Allow {
    #[command(flatten)]
    setting: Setting,
}

/// Deny a key for a time, whatever its rate
#[derive(Debug, Args)]
#[command(after_help = help(Overridden::Deny), add = json())]
pub(in crate::cli) struct Deny {
    #[command(flatten)]
    setting: Setting,

    /// Answer 451 (defer) or 550 (reject), which tells programs not to try again; the default is
    /// reject for a login with `--until forever`, and else defer
    #[arg(long, value_name = "REPLY", value_parser = PossibleValuesParser::new(DenialReply::words()),
          conflicts_with = "end")]
    reply: Option<String>,
}

#[derive(Debug, Args)]
struct Setting {
    /// Override the limits of this key, or of all keys that this glob matches
    #[arg(value_name = "KEY", add = complete::keys())]
    key: OsString,

    /// End the override at this time, or `forever`
    #[arg(long, value_name = "TIME", default_value = UNTIL, value_parser = times::end_or_forever,
          conflicts_with = "end", add = times::Ahead)]
    until: i64,

    /// End it now; records stay as they are
    #[arg(long)]
    end: bool,

    /// Say why, for the list and the log
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true,
        conflicts_with = "end"
    )]
    reason: String,

    /// Take KEY byte for byte: no globs, no escapes, no folding
    #[arg(long)]
    exact: bool,

    /// Do not ask for confirmation of a glob
    #[arg(long, short)]
    yes: bool,

    #[command(flatten)]
    common: Rates,
}

/// What the help says besides the options.
fn help(overridden: Overridden) -> String {
    let (examples, summary, effect, status) = match overridden {
        Overridden::Allow => (
            "  Exempt alice from all limits for a day:
    exirate allow alice@example.org --reason 'year-end letter'
  Exempt a domain until a given time:
    exirate allow '*@example.org' --until '2999-12-31 18:00' --yes
  End that of somebody now:
    exirate allow news@example.org --end",
            "Its mail is still counted, so it may be over its limits when the override ends.",
            "Checks of an allowed key are counted as usual, and are never over: ratelimit returns
no, and $sender_rate shows the rate. When the override ends, the rate is what it would be without
it, so a key may be over its limits then: `exirate unblock` deletes its records. The total of a
domain or a customer is a key of its own: it still applies, as a note says, and `exirate allow
customer:acme` lifts it. If no record, no event and no policy has this KEY, a note says so, with the
nearest one: the key is allowed all the same, and the exit status is 1.",
            "0 set or ended; 1 nobody has this KEY, not confirmed, or nothing to end; 2 an error.",
        ),
        Overridden::Deny | Overridden::Reject => (
            "  Stop all mail of a stolen account until further notice:
    exirate deny alice@example.org --until forever --reason 'password stolen'
  Stop a client for an hour:
    exirate deny '[192.0.2.7]' --until 1h
  End that now:
    exirate deny alice@example.org --end
  End it, and delete the records of the key:
    exirate unblock alice@example.org",
            "Its mail is refused whatever the rate, wherever a limit is enforced.",
            "Checks of a denied key are always over: ratelimit returns yes, whatever the rate. As
for any check that is over, leaky ones count nothing then, and strict ones count. A policy answers with
--reply: `reject` is 550, after which programs do not try again; `defer` is 451, after which they
do. A login that is denied without an end is rejected by default. Every other denial defers: one
that ends, one of a client, which may relay the mail of others, and one that exirate 0.1.0 has set.
A line of your own says what its verb says; one that only warns does not refuse. If no record, no
event and no policy has this KEY, a note says so first, with the nearest one.",
            "0 set or ended; 1 not confirmed, or nothing to end; 2 an error.",
        ),
    };
    format!(
        "Examples:
{examples}

{} {summary} A glob asks first. `exirate overrides` lists overrides.

Exit status: {status}

KEY is as for `exirate unblock`: a key such as alice@example.org, an IP address in any notation,
local:NAME, or a glob such as '*@example.org'. It is compared with the key of a spec, so it
applies to all limits, periods and modes of that key; a whole stored key such as 1h/per_rcpt/alice
is refused. In a policy's key, such as auth:alice, it is compared with the value, alice, if that
is a login, a local account, a script or a client. A sender, a recipient, their domains and a HELO
are chosen by strangers: name the field, as in sender:bob@example.org or 'sender_domain:*'. The
KEY auth:alice applies to policies that count logins, and to nothing else of alice's; the glob '*'
matches everything.

KEY and the keys of specs are folded as the policies in use fold identities (by default: case,
blanks and dots at the end, IPv6 networks of 64 bits), so Alice@Example.org is alice@example.org.
--exact compares byte for byte. A glob also matches keys that have no record yet; `**` is not
possible in it. For a glob, the command asks first; without a terminal, --yes is needed.

{effect}

If several overrides apply to a key, one for that key alone is stronger than a glob, and otherwise
deny is stronger than allow. If a stronger override leaves this command without effect, it says
so. A later command with the same KEY replaces the earlier one, and --end ends it. Exim's running processes apply a change at their next check. A decision by an
override is never a crossing. The change, and who made it, is logged to audit.log in the
database's directory and to syslog (facility mail).",
        keys::HELP
    )
}

fn json() -> Json {
    Json::of::<AllowReport>().or::<EndedJson>("With --end")
}

/// With --end.
#[derive(Serialize, JsonSchema)]
struct EndedJson {
    ended: Option<OverrideJson>,
}

/// The override that was set, what it has replaced, and what is stronger.
#[derive(Serialize, JsonSchema)]
struct AllowReport {
    #[serde(flatten)]
    set: OverrideJson,
    /// The earlier override of KEY.
    replaced: Option<OverrideJson>,
    /// The one that decides instead of this one.
    stronger: Option<OverrideJson>,
    /// Whether a record, an event or a policy has KEY.
    seen: bool,
}

impl Allow {
    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        match self.setting.end {
            true => self.setting.end(screen, false),
            false => self.setting.run(screen, |_| Overridden::Allow),
        }
    }
}

impl Deny {
    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        if self.setting.end {
            return self.setting.end(screen, true);
        }
        let named = self.reply.as_deref().and_then(DenialReply::of);
        let until = self.setting.until;
        self.setting.run(screen, |target| {
            named.unwrap_or_else(|| DenialReply::by_default(target, until)).denial()
        })
    }
}

impl Setting {
    /// Ends the override of the key, if it is a denial, or none.
    fn end(&self, screen: &mut Screen<'_>, denials: bool) -> Result<Outcome, Failure> {
        let folding = self.common.folding()?;
        let (target, argument) = keys::override_target(&self.key, self.exact, &folding)?;
        require_owner(&self.common.directory()?)?;
        let mut store = self.common.open_to_change()?;
        let second = now().seconds;
        let end = |by: &mut _| change::end_override(&mut *store, &target, denials, second, by);
        let ended = AuditLog::new().with(end)?;
        print_incidents(&mut *store);
        if self.common.json {
            let json = match &ended {
                Ended::This(one) => Some(OverrideJson::of(one)),
                Ended::Not(_) => None,
            };
            screen.json(&EndedJson { ended: json })?;
        }
        let one = match ended {
            Ended::This(one) => one,
            Ended::Not(_) if self.common.json => return Ok(Outcome::Found),
            Ended::Not(other) => {
                complain(match other {
                    Some(other) => override_state::sentence(&other),
                    None => format!("{argument} has no override; `exirate overrides` lists all"),
                });
                return Ok(Outcome::Found);
            }
        };
        if !self.common.json {
            writeln!(screen, "ended: {}", override_state::sentence(&one))?;
            let list = store.overrides()?;
            if let Some(other) = override_state::of_target(&list, &target, second) {
                note(override_state::sentence(other));
            }
        }
        Ok(Outcome::Fine)
    }

    fn run(
        &self,
        screen: &mut Screen<'_>,
        overridden: impl Fn(&Target) -> Overridden,
    ) -> Result<Outcome, Failure> {
        let folding = self.common.folding()?;
        let (target, argument) = keys::override_target(&self.key, self.exact, &folding)?;
        let overridden = overridden(&target);
        require_owner(&self.common.directory()?)?;
        let mut store = self.common.open_to_change()?;
        if matches!(target, Target::Glob { .. })
            && !self.is_meant(&mut *store, &folding, overridden)?
        {
            note("nothing was changed");
            return Ok(Outcome::Found);
        }
        let now = now();
        let set = Override {
            overridden,
            target,
            argument,
            until: self.until,
            since: now.seconds,
            reason: self.reason.clone(),
            who: administrator::who(),
        };
        // Before anything is changed, as it may be a slip.
        let unseen = self.unseen(&set.target, &folding, &mut *store)?;
        if let Some(unseen) = unseen.as_ref().filter(|_| !self.common.json) {
            let participle = override_state::participle(overridden);
            note(format_args!("{unseen}; it is {participle} from now on"));
        }
        let met = match unseen.is_some() && overridden == Overridden::Allow {
            true => Outcome::Found,
            false => Outcome::Fine,
        };
        let changed = put(&mut *store, &set)?;
        print_incidents(&mut *store);
        if self.common.json {
            let [replaced, stronger] =
                [changed.replaced, changed.stronger].map(|one| one.as_ref().map(OverrideJson::of));
            let (set, seen) = (OverrideJson::of(&set), unseen.is_none());
            screen.json(&AllowReport { set, replaced, stronger, seen })?;
            return Ok(met);
        }
        writeln!(screen, "{}", override_state::sentence(&set))?;
        if let Some(reply) = override_state::reply(overridden) {
            writeln!(screen, "{}", reply.sentence())?;
        }
        if let Some(before) = changed.before() {
            writeln!(screen, "{before}")?;
        }
        note_stronger(&changed, &self.common);
        note_observed(&mut *store, &self.common, overridden)?;
        if overridden == Overridden::Allow {
            self.report_totals(&mut *store, &set.target, &folding)?;
        }
        Ok(met)
    }

    /// Names the totals that still hold for `target`.
    fn report_totals(
        &self,
        store: &mut dyn Inspect,
        target: &Target,
        folding: &Folding,
    ) -> Result<(), Failure> {
        let (in_force, _) = InForce::of(store, &self.common.directory()?);
        let narrow = Narrow::unselective(self.exact);
        let key = std::slice::from_ref(&self.key);
        let (mut records, _) = Selection::new(key, &narrow, folding)?.keys(store)?;
        records.retain(|record| target.applies_to(&record.key()));
        for name in totals::holding(&in_force, target, &records) {
            note(format_args!(
                "{}; `{}` lifts it",
                totals::still_holds(&name),
                self.common.commands().about("allow", &name)
            ));
        }
        Ok(())
    }

    /// What is to be said if no record and no event is of `target`, and no policy names it.
    fn unseen(
        &self,
        target: &Target,
        folding: &Folding,
        store: &mut dyn Inspect,
    ) -> Result<Option<String>, Failure> {
        let narrow = Narrow::unselective(self.exact);
        let mut selection = Selection::new(std::slice::from_ref(&self.key), &narrow, folding)?;
        let (records, _) = selection.keys(store)?;
        let has_habits = |store: &mut dyn Inspect| {
            let mut found = false;
            let see = &mut |key: OwnedKey| found = found || target.applies_to(&key.key());
            store.for_each_habits_key(see).map(|_| found)
        };
        if records.iter().any(|key| target.applies_to(&key.key()))
            || self.has_event(target)
            || InForce::of(store, &self.common.directory()?).0.names(target)
            || has_habits(store)?
        {
            return Ok(None);
        }
        if let Some(key) = records.first() {
            let key = key_text::key(key.key().identity());
            return Ok(Some(format!(
                "no login, local account, script or client of this name was seen; what strangers \
                 choose must be named with its field, as in {key}"
            )));
        }
        // What cannot be searched may have it.
        Ok(selection.unseen(store).ok().flatten())
    }

    /// Whether a crossing or a refusal is of `target`. What cannot be read has none.
    fn has_event(&self, target: &Target) -> bool {
        [EventKind::Refusals, EventKind::Crossings].into_iter().any(|kind| {
            let source = EventSource::open(&self.common, kind);
            let events = source.and_then(|mut source| source.next(true)).unwrap_or_default();
            events.iter().any(|(event, _)| {
                let seen = [&event.texts.login, &event.texts.client]
                    .into_iter()
                    .filter(|name| !name.is_empty());
                target.applies_to(&event.record_key())
                    || seen.into_iter().any(|name| target.applies_to(&name.into()))
            })
        })
    }

    /// Asks whether all keys that the glob matches are meant.
    fn is_meant(
        &self,
        store: &mut dyn Inspect,
        folding: &Folding,
        overridden: Overridden,
    ) -> Result<bool, Failure> {
        let narrow = Narrow::unselective(false);
        let key = std::slice::from_ref(&self.key);
        let (records, _) = Selection::new(key, &narrow, folding)?.keys(store)?;
        let records: Vec<String> =
            records.iter().map(|record| key_text::stored(&record.name)).collect();
        let glob = text::printable(self.key.as_encoded_bytes());
        confirm::glob(overridden.word(), &glob, &records, self.yes)
    }
}

/// Puts an override in the place of an earlier one for the same KEY, and logs that.
pub(super) fn put(store: &mut dyn Inspect, set: &Override) -> Result<change::Set, Failure> {
    let put = |by: &mut _| change::set_override(store, set, set.since, by);
    AuditLog::new().with(put).map_err(|why| match why {
        NotSet::Failed(error) => error.into(),
        NotSet::Stays(one) => Failure::new(override_state::sentence(&one)),
    })
}

/// Notes the override that decides instead of one that was set.
pub(super) fn note_stronger(changed: &change::Set, rates: &Rates) {
    if let Some(stronger) = &changed.stronger {
        let command = rates.commands().about_override("overrides --remove", stronger);
        note(format_args!("{}; to end that one: `{command}`", change::no_effect(stronger)));
    }
}

/// Notes that a denial refuses nothing where all policies in use only observe.
pub(super) fn note_observed(
    store: &mut dyn Inspect,
    rates: &Rates,
    overridden: Overridden,
) -> Result<(), Failure> {
    let (in_force, _) = InForce::of(store, &rates.directory()?);
    let policies = in_force.image().and_then(|image| image.outline().ok());
    let observe = policies.is_some_and(|policies| {
        let mut all = policies.policies.values();
        !policies.policies.is_empty() && all.all(|policy| policy.settings.action == Action::Observe)
    });
    if observe && overridden.is_denial() {
        note(
            "all policies in use only observe, so they refuse none of it: `exirate setup --enforce`",
        );
    }
    Ok(())
}
