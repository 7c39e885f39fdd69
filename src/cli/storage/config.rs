//! `exirate config`: the settings of the rate database, its event logs, and the trace store.

use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use clap::{Args, Subcommand};
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::shared::administrator::AuditLog;
use crate::cli::shared::confirm;
use crate::cli::shared::database::{Common, print_incidents};
use crate::cli::shared::event_settings::{self, EventSetting, LogJson};
use crate::cli::shared::screen::{Screen, TERMINAL, Terminal, note};
use crate::cli::trace::scheme_options;
use crate::cli::{Failure, Json, Outcome};
use crate::spec::typed_period;
use crate::spool::{self, EventKind, EventLimits, MAX_BYTES_MIN, Spool};
use crate::standing::databases::{Both, require_owner};
use crate::sys::users;
use crate::text::time::now;
use crate::text::{self, Voice as _, bytes, parse_bytes};
use crate::trace::{self, Access, KEEP_MIN, Query, TRACE_BYTES_MIN, TraceStore, trace_directory};

/// The names of the settings.
const RATES_MAX_SIZE: &str = "rates.max_size";
const TRACE_MAX_SIZE: &str = "trace.max_size";
const TRACE_KEEP: &str = "trace.keep";

/// The length of a stored key such as `1h/per_rcpt/alice@example.org`: the number of
/// keys there is room for is computed with it.
const KEY_BYTES: usize = 30;

/// Show or change the settings of the databases and event logs
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  Show the settings:
    exirate config
  Let the rate database grow to 2 GiB:
    exirate config set rates.max_size=2G

`exirate help config set` describes each setting. Limits on mail are in the policy file and in Exim's
configuration: see `exirate policy show` and `exirate rules`.

Exit status: 0 shown; 2 an error.

`man exirate-config-set` describes each setting. The settings are stored in the databases. Limits
on mail are in the policy file and in Exim's configuration: see `exirate policy show` and `exirate
rules`.", add = Json::of::<ConfigReport>())]
pub(in crate::cli) struct Config {
    #[command(subcommand)]
    command: Option<ConfigCommand>,

    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    Set(Set),
}

/// Change settings
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Let the rate database grow to 2 GiB:
    exirate config set rates.max_size=2G
  Keep messages for a year, in at most 10 GiB:
    exirate config set trace.keep=52w trace.max_size=10G
  Keep refusals for a week:
    exirate config set refusals.keep=1w

  rates.max_size      size limit of the rate database: 1 GiB unless set
  crossings.max_size  size limit of the log of crossings: 8 MiB unless set
  crossings.keep      how long crossings are kept: 90d unless set
  refusals.max_size   size limit of the log of refusals: 16 MiB unless set
  refusals.keep       how long refusals are kept: 14d unless set
  trace.max_size      size limit of the trace store: 1 GiB unless set
  trace.keep          how long messages are kept: 90d unless set

Where something would be removed at once, it asks first; without a terminal, --yes is needed.

Exit status: 0 set, or already set so; 2 an error.

rates.max_size is the size limit of the rate database: 1 GiB unless set, at least 16 MiB.
When a database is full, it evicts the least important records: those of keys that are
far from their limits first, and of each kind of key separately.
crossings.max_size and refusals.max_size are the size limits of the two logs that `exirate
events` lists: 8 MiB and 16 MiB unless set; 1 MiB to 64 MiB. Once a log exceeds half of
its limit, a new file is begun, and the one before the last is removed.
crossings.keep and refusals.keep are how long these events are kept, such as 90d and 14d
(unless set) or forever; at least 1h. Older ones are not shown, and are removed whenever
another event is logged, and by `exirate repair`.
trace.max_size is the size limit of the trace store: 1 GiB unless set, at least 32 MiB.
When it is reached, the oldest files are removed.
trace.keep is how long messages are kept, such as 90d (unless set) or forever; at least
1d. They are removed a file at a time, once the last message of the file is older.
If a line of Exim's configuration sets keep= or max_size=, as TRACE_KEEP in exirate.conf
does, that applies again from the next message on: change it there as well.

If a change would remove records, events or messages at once, the command asks first; without a
terminal, --yes is needed. Running Exim processes use new settings of the event logs from their
next check on, others from their next connection on. A missing rate database or trace store is
created. Changes are logged to audit.log in the rate database's directory, and to syslog.")]
#[command(add = Json::of::<ConfigReport>())]
struct Set {
    /// The name of a setting, such as rates.max_size, and its value
    #[arg(value_name = "NAME=VALUE", required = true, value_parser = setting)]
    settings: Vec<(String, NewSetting)>,

    /// Do not ask, even if records, events or messages are removed
    #[arg(long, short)]
    yes: bool,

    #[command(flatten)]
    common: Common,
}

/// A setting and its new value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NewSetting {
    RatesMaxSize(u64),
    Event(EventSetting),
    TraceMaxSize(u64),
    TraceKeep(Option<u64>),
}

/// Parses `NAME=VALUE`.
fn setting(text: &str) -> Result<(String, NewSetting), String> {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    let size = |least: u64| match parse_bytes(value)? {
        size if size < least => Err(format!("{name} must be at least {}", bytes(least))),
        size => Ok(size),
    };
    let setting = match name {
        RATES_MAX_SIZE => NewSetting::RatesMaxSize(size(MAX_BYTES_MIN)?),
        TRACE_MAX_SIZE => NewSetting::TraceMaxSize(size(TRACE_BYTES_MIN)?),
        TRACE_KEEP => NewSetting::TraceKeep(keep(value)?),
        _ => NewSetting::Event(EventSetting::parse(name, value).unwrap_or_else(|| {
            Err(format!(
                "there is no setting {name:?}: expected {RATES_MAX_SIZE}=SIZE, \
                 crossings.max_size=SIZE, crossings.keep=TIME, refusals.max_size=SIZE, \
                 refusals.keep=TIME, {TRACE_MAX_SIZE}=SIZE or {TRACE_KEEP}=TIME"
            ))
        })?),
    };
    Ok((name.to_owned(), setting))
}

/// Parses how long messages are kept, in seconds; `None` is for ever.
fn keep(text: &str) -> Result<Option<u64>, String> {
    if text == "forever" {
        return Ok(None);
    }
    match typed_period(text) {
        Ok(seconds) if !(seconds < KEEP_MIN as f64 || seconds > 1e12) => Ok(Some(seconds as u64)),
        Ok(_) => Err(format!("{TRACE_KEEP} must be at least {}", text::duration(KEEP_MIN as f64))),
        Err(_) => Err("expected a time, such as 90d or 52w, or `forever`".to_owned()),
    }
}

/// All settings, in JSON.
#[derive(Serialize, JsonSchema)]
struct ConfigReport {
    /// Null where there is no rate database.
    rates: Option<RatesJson>,
    /// Null where there is no trace store.
    trace: Option<Traces>,
}

/// The rate database, in JSON.
#[derive(Serialize, JsonSchema)]
struct RatesJson {
    #[serde(flatten)]
    place: StorePlace,
    /// In bytes.
    max_size: u64,
    /// How many keys of usual length fit into `max_size`.
    room_keys: u64,
    /// The log of crossings.
    crossings: LogJson,
    /// The log of refusals.
    refusals: LogJson,
    #[serde(skip)]
    events: EventLimits,
}

/// The trace store, in JSON.
#[derive(Serialize, JsonSchema)]
struct Traces {
    #[serde(flatten)]
    place: StorePlace,
    /// In bytes.
    max_size: u64,
    /// In seconds; null: forever.
    keep: Option<u64>,
    digests: String,
}

/// Where a store is, and whose, in JSON.
#[derive(Serialize, JsonSchema)]
struct StorePlace {
    path: String,
    owner: String,
    mode: String,
}

impl StorePlace {
    fn of(directory: &Path) -> Result<Self, Failure> {
        let info = directory
            .metadata()
            .map_err(|error| Failure::new(format!("{}: {error}", directory.display())))?;
        let name = users::name_of(info.uid()).map(|name| text::printable(name.as_encoded_bytes()));
        Ok(Self {
            path: directory.display().to_string(),
            owner: name.unwrap_or_else(|| info.uid().to_string()),
            mode: format!("{:04o}", info.mode() & 0o7777),
        })
    }
}

impl std::fmt::Display for StorePlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, owner {}, mode {}", self.path, self.owner, self.mode)
    }
}

impl ConfigReport {
    fn of(both: &mut Both) -> Result<Self, Failure> {
        let rates = both.rates.as_mut().map(|spool| {
            let max_size = spool.max_bytes();
            let events = spool.event_limits()?;
            Ok::<_, Failure>(RatesJson {
                place: StorePlace::of(spool.directory())?,
                max_size,
                room_keys: spool::capacity(max_size, KEY_BYTES),
                crossings: LogJson::of(events.crossings),
                refusals: LogJson::of(events.refusals),
                events,
            })
        });
        let trace = both.traces.as_ref().map(|store| {
            let trace::Options { settings, keep, max_bytes } = *store.options();
            Ok::<_, Failure>(Traces {
                place: StorePlace::of(store.directory())?,
                max_size: max_bytes,
                keep,
                digests: scheme_options(settings),
            })
        });
        Ok(Self { rates: rates.transpose()?, trace: trace.transpose()? })
    }

    fn print(&self, screen: &mut Screen<'_>) -> std::io::Result<()> {
        let mut row = |name: &str, value: String| writeln!(screen, "{name:<18}  {value}");
        if let Some(rates) = &self.rates {
            row("rates", rates.place.to_string())?;
            let room = format!("room for about {} keys", rough(rates.room_keys));
            row(RATES_MAX_SIZE, format!("{}, {room}", bytes(rates.max_size)))?;
            for kind in EventKind::ALL {
                for (name, value) in event_settings::rows(rates.events.of(kind), kind) {
                    row(&name, value)?;
                }
            }
        }
        if let Some(trace) = &self.trace {
            row("trace", trace.place.to_string())?;
            row(TRACE_MAX_SIZE, bytes(trace.max_size))?;
            row(TRACE_KEEP, text::kept(trace.keep))?;
            row("trace digests", trace.digests.clone())?;
        }
        Ok(())
    }
}

/// A large number, about.
fn rough(count: u64) -> String {
    match count {
        1_000_000.. => format!("{:.1} million", count as f64 / 1e6),
        1_000.. => format!("{} thousand", count / 1_000),
        _ => count.to_string(),
    }
}

impl Config {
    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        match &self.command {
            Some(ConfigCommand::Set(set)) => set.run(screen),
            None => show(screen, &self.common),
        }
    }
}

fn show(screen: &mut Screen<'_>, common: &Common) -> Result<Outcome, Failure> {
    let report = ConfigReport::of(&mut Both::open(&common.directory()?, &Terminal)?)?;
    screen.show(common.json, &report, |screen, report| report.print(screen))?;
    Ok(Outcome::Fine)
}

/// The settings that are to be.
#[derive(Clone, Debug, Default)]
struct Wanted {
    rates_max_size: Option<u64>,
    events: Vec<EventSetting>,
    trace_max_size: Option<u64>,
    trace_keep: Option<Option<u64>>,
}

impl Wanted {
    fn of(settings: &[(String, NewSetting)]) -> Result<Self, Failure> {
        let mut wanted = Self::default();
        for (n, (name, setting)) in settings.iter().enumerate() {
            if settings.iter().take(n).any(|(other, _)| other == name) {
                return Err(Failure::new(format!("{name} is given twice")));
            }
            match *setting {
                NewSetting::RatesMaxSize(size) => wanted.rates_max_size = Some(size),
                NewSetting::Event(setting) => wanted.events.push(setting),
                NewSetting::TraceMaxSize(size) => wanted.trace_max_size = Some(size),
                NewSetting::TraceKeep(keep) => wanted.trace_keep = Some(keep),
            }
        }
        Ok(wanted)
    }
}

impl Set {
    fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let wanted = Wanted::of(&self.settings)?;
        let directory = self.common.directory()?;
        require_owner(&directory)?;
        // Created if missing, and only if something of it is set.
        let mut rates = match (wanted.rates_max_size, wanted.events.is_empty()) {
            (None, true) => None,
            (size, _) => {
                let mut spool = Spool::open(&directory, spool::Options::default())?;
                print_incidents(&mut spool);
                let size = size.unwrap_or(spool.max_bytes());
                let events = event_settings::wanted(&mut spool, &wanted.events)?;
                Some((spool, size, events))
            }
        };
        let mut traces = match (wanted.trace_max_size, wanted.trace_keep) {
            (None, None) => None,
            (size, keep) => {
                let store = TraceStore::open(&trace_directory(&directory), Access::Write)?;
                let before = *store.options();
                let max_bytes = size.unwrap_or(before.max_bytes);
                let keep = keep.unwrap_or(before.keep);
                Some((store, trace::Options { max_bytes, keep, ..before }))
            }
        };
        let (evicts, forgets) = match &mut rates {
            Some((spool, size, events)) => {
                (evicted_by(spool, *size)?, event_settings::removed_by(spool, events)?)
            }
            None => (None, None),
        };
        let removes = match &traces {
            Some((store, options)) => removed_by(store, options)?,
            None => None,
        };
        let losses: Vec<&str> =
            [&evicts, &forgets, &removes].into_iter().flatten().map(|s| &**s).collect();
        if !losses.is_empty() && !confirm::losses(&losses, self.yes)? {
            return Err(Failure::new("nothing was changed"));
        }
        let mut changes = Vec::new();
        if let Some((spool, size, events)) = &mut rates {
            set_rates(spool, *size, evicts.is_some(), &mut changes)?;
            event_settings::set(spool, *events, &mut changes)?;
        }
        if let Some((store, options)) = &mut traces {
            set_traces(store, *options, removes.is_some(), &mut changes)?;
        }
        log(&directory, &changes)?;
        show(screen, &self.common)
    }
}

/// What a lower size limit would evict, in words.
fn evicted_by(spool: &mut Spool, max_bytes: u64) -> Result<Option<String>, Failure> {
    if max_bytes >= spool.max_bytes() {
        return Ok(None);
    }
    let evicted = spool.would_evict(max_bytes, now())?;
    let limit = bytes(max_bytes);
    let records = text::counted(evicted, "record has", "records have");
    Ok((evicted > 0).then(|| format!("{records} no room in {limit}")))
}

/// What other options would remove from the trace store, in words.
fn removed_by(store: &TraceStore, options: &trace::Options) -> Result<Option<String>, Failure> {
    let before = store.options();
    let mut losses = Vec::new();
    if let Some(keep) = options.keep
        && before.keep.is_none_or(|before| keep < before)
    {
        let until = now().seconds.saturating_sub_unsigned(keep).saturating_sub(1);
        let older = Query { until: Some(until), ..Query::default() };
        let older = store.query(&older, &mut Terminal.progress("messages"), &mut |_| {})?.matches;
        if older > 0 {
            let messages = text::counted(older, "message is", "messages are");
            losses.push(format!("{messages} older than {}", text::kept(Some(keep))));
        }
    }
    let disk = store.stats()?.bytes;
    if options.max_bytes < before.max_bytes && disk > options.max_bytes {
        losses.push(format!(
            "the trace store takes {}, and would be cut down to {}",
            bytes(disk),
            bytes(options.max_bytes)
        ));
    }
    Ok((!losses.is_empty()).then(|| losses.join("; ")))
}

/// Sets the size limit of the rate database, and evicts what has no room.
fn set_rates(
    spool: &mut Spool,
    size: u64,
    evict: bool,
    changes: &mut Vec<String>,
) -> Result<(), Failure> {
    let before = spool.max_bytes();
    if size == before {
        return Ok(());
    }
    spool.set_max_bytes(size)?;
    changes.push(format!("{RATES_MAX_SIZE}={size} (was {before})"));
    if evict {
        spool.compact(now(), TERMINAL.shards())?;
        print_incidents(spool);
    }
    Ok(())
}

/// Sets the options of the trace store, and removes what is not kept.
fn set_traces(
    store: &mut TraceStore,
    options: trace::Options,
    remove: bool,
    changes: &mut Vec<String>,
) -> Result<(), Failure> {
    let before = *store.options();
    if options == before {
        return Ok(());
    }
    store.set_options(options)?;
    if options.max_bytes != before.max_bytes {
        changes.push(format!("{TRACE_MAX_SIZE}={} (was {})", options.max_bytes, before.max_bytes));
    }
    if options.keep != before.keep {
        let [new, old] = [options.keep, before.keep].map(text::kept);
        changes.push(format!("{TRACE_KEEP}={new} (was {old})"));
    }
    if remove {
        store.tidy(now().seconds)?;
    }
    store.take_incidents().iter().for_each(note);
    note(REMINDER);
    Ok(())
}

/// What to remember when the trace store's options are changed.
const REMINDER: &str = "if Exim's configuration sets keep= or max_size= (TRACE_KEEP in \
                        exirate.conf), that applies again from its next message on: change it \
                        there as well";

/// Logs the changes, if there is a rate database to log to.
fn log(directory: &Path, changes: &[String]) -> Result<(), Failure> {
    if changes.is_empty() || Spool::require(directory).is_err() {
        return Ok(());
    }
    let mut spool = Spool::open(directory, spool::Options::default())?;
    let mut log = AuditLog::new();
    changes.iter().for_each(|change| log.add(&mut spool, format_args!("config {change}")));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_parsed_and_errors_say_what_is_expected() {
        let parsed = |text: &str| setting(text).map(|(_, setting)| setting);
        assert_eq!(parsed("rates.max_size=2G"), Ok(NewSetting::RatesMaxSize(2 << 30)));
        assert_eq!(parsed("trace.max_size=512MiB"), Ok(NewSetting::TraceMaxSize(512 << 20)));
        assert_eq!(parsed("trace.keep=52w"), Ok(NewSetting::TraceKeep(Some(52 * 7 * 86_400))));
        assert_eq!(parsed("trace.keep=forever"), Ok(NewSetting::TraceKeep(None)));
        for (text, words) in [
            ("rates.max_size", "a number and its unit, such as 512M"),
            ("rates.max_size=5", "a number and its unit, such as 512M"),
            ("rates.max_size=15M", "rates.max_size must be at least 16 MiB"),
            ("trace.max_size=31M", "trace.max_size must be at least 32 MiB"),
            ("trace.keep=23h", "trace.keep must be at least 1d"),
            ("trace.keep=0", "expected a time, such as 90d"),
            ("trace.keep=soon", "expected a time, such as 90d"),
            ("keep=90d", "there is no setting \"keep\": expected rates.max_size=SIZE,"),
            ("", "there is no setting \"\""),
        ] {
            let error = setting(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
        let twice = ["trace.keep=forever", "trace.keep=52w"].map(|text| setting(text).unwrap());
        let Err(Failure::Said(error)) = Wanted::of(&twice) else { panic!() };
        assert_eq!(error, "trace.keep is given twice");
    }
}
