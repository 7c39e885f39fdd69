//! `exirate policy apply`: put a policy file in use.

use std::collections::{BTreeMap, HashSet};
use std::ffi::CStr;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use super::file::{GivenUsers, UsersText, needs_exim, other_server, sound};
use crate::cli::shared::administrator::AuditLog;
use crate::cli::shared::database::Common;
use crate::cli::shared::rates;
use crate::cli::shared::screen::{Screen, complain, note};
use crate::cli::{Failure, Json, Outcome};
use crate::cluster::ClusterSettings;
use crate::doctor;
use crate::identity::fold::Folding;
use crate::policy::changes::{Changes, changes, digest};
use crate::policy::counters::{RuleName, retain};
use crate::policy::image::{Image, ImageError, PolicyFile, build, install};
use crate::policy::limit::Per;
use crate::policy::lint::lint;
use crate::policy::model::Policies;
use crate::policy::source::FILE;
use crate::serve::servers;
use crate::spool::{Options, Spool};
use crate::standing::databases::{exclusively, require_owner};
use crate::standing::renamed::{Moves, Stores};
use crate::store::Memory;
use crate::text::time::now;
use crate::text::{bytes, counted_or_no, printable};
use crate::toml_file::diagnostic::{Diagnostics, place};

/// Put a policy file into use
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Put the policy file into use:
    exirate policy apply /etc/exirate/policy.toml
  What would that change?
    exirate policy apply --dry-run /etc/exirate/policy.toml
  Another file, for the Exim with this spool directory:
    exirate policy apply --spool /var/spool/exim4 policy.toml

Run it as root or as Exim's user. With an error, nothing changes. Otherwise, running processes use the new
policies from their next message on; no restart is needed. Each line that is printed is a
difference from what was in use before.

Exit status: 0 the policies are in use; 2 an error, and nothing has changed.

The file, and the files it names, are checked and compiled into DIR/exirate/policy.image,
which Exim reads. With an error, nothing changes: the policies that were in use still
are. Otherwise, the image is replaced in one step. Running processes use it from their next
message on: no restart of Exim is needed. Warnings are those of `exirate policy lint`.

Run it as root or as Exim's user. Each line that it prints is a part of the file that
differs from what was in use before; `exirate policy diff` shows how two files differ.

Where `[identity]` gives logins other names, as with a new `qualify`, their rates, habits and
overrides get them as well. If they cannot be moved, nothing changes.

With --users, CSV, such as the result of a database query, replaces the file of users that the
policy file names, and is kept for the next time. It is refused, and nothing changes, if it is
empty, does not end with a newline, or has an error; and, without --allow-shrink, if it has no
user, or fewer than 90 % of the users of the file before, where that has at least 20.
docs/database.md has a worked example.", add = Json::of::<AppliedJson<'_>>())]
pub(super) struct Apply {
    /// The policy file
    #[arg(value_name = "FILE", default_value = FILE)]
    file: PathBuf,

    /// Check the file and show what would change, but change nothing
    #[arg(long)]
    dry_run: bool,

    /// Replace the file of users that the policy file names by this CSV; - is standard input
    #[arg(long, value_name = "CSV", value_hint = clap::ValueHint::FilePath)]
    users: Option<PathBuf>,

    /// Replace it also if far fewer users are left
    #[arg(long, requires = "users")]
    allow_shrink: bool,

    /// Print and change nothing where nothing would change, as for a timer
    #[arg(long)]
    if_changed: bool,

    #[command(flatten)]
    common: Common,
}

/// The file that is locked while policies are applied.
const LOCK: &CStr = c"policy.lock";
/// How long to wait for another who applies policies.
const PATIENCE: Duration = Duration::from_secs(30);

/// A part of the file that differs, as JSON has it.
#[derive(Serialize, JsonSchema)]
struct JsonChange<'a> {
    part: &'a str,
    #[serde(flatten)]
    settings: Changes,
}

/// Everything, as JSON has it.
#[derive(Serialize, JsonSchema)]
struct AppliedJson<'a> {
    /// Its path.
    image: String,
    /// False with --dry-run.
    applied: bool,
    /// Of the image.
    bytes: usize,
    policies: usize,
    users: usize,
    warnings: usize,
    /// The parts that differ.
    changes: Vec<JsonChange<'a>>,
    /// How many records got another name.
    moved: usize,
}

impl Apply {
    pub(super) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let spool = self.common.directory()?;
        // Before the lock: who writes it may be slow.
        let users = self.users.as_deref().map(UsersText::read).transpose()?;
        if self.dry_run {
            return self.apply(&spool, users, screen);
        }
        require_owner(&spool)?;
        // From reading the files on: else what was read first could replace what was read later.
        let applied = exclusively(&spool, LOCK, PATIENCE, || self.apply(&spool, users, screen))?;
        applied.ok_or_else(|| {
            let waited = PATIENCE.as_secs();
            Failure::new(format!(
                "another `exirate policy apply` has been running for {waited} s: nothing has \
                 changed"
            ))
        })
    }

    /// Applies the file, with `users` in place of those that it names; or says what would change.
    fn apply(
        &self,
        spool: &Path,
        users: Option<UsersText>,
        screen: &mut Screen<'_>,
    ) -> Result<Outcome, Failure> {
        let (given, policies) = match users {
            None => (None, sound(&self.file)?),
            Some(users) => {
                let (given, policies) = GivenUsers::of(users, &self.file)?;
                if !self.allow_shrink {
                    given.require_enough()?;
                }
                (Some(given), policies)
            }
        };
        if let Some((at, why)) = needs_exim(&policies, other_server()) {
            return Err(Failure::new(format!("{}: {why}", place(&policies.files, at))));
        }
        let image = Image::from_bytes(build(&policies))?;
        let changed = thread::scope(|scope| {
            let changed = scope.spawn(|| since(spool, &policies));
            if !changes(Some(&image), &policies)?.is_empty() {
                return Err(Failure::new("the compiled policies are not those of the file"));
            }
            changed.join().map_err(|_| Failure::new("an internal error"))?
        })?;
        let given = given.filter(|_| !self.dry_run);
        if self.if_changed && changed.is_empty() {
            // What is applied next has the users in any case.
            given.map_or(Ok(()), |given| given.keep(|| Ok(())))?;
            return Ok(Outcome::Fine);
        }
        let (moves, mut stores) = planned_moves(spool, &policies.identity.folding)?;
        let warnings = warn(&policies);
        let image = image.written().unwrap_or_default();
        let path = if self.dry_run {
            spool.join("exirate/policy.image")
        } else {
            let install = || Ok(install(spool, image)?);
            let path = match given {
                Some(given) => given.keep(install)?,
                None => install()?,
            };
            log(spool, &self.file)?;
            free_counters(spool, &policies);
            if let Err(failure) = stores.settle(&moves, &policies.identity.folding, now()) {
                note(format_args!(
                    "not all rates, habits and overrides have the names that the policies give \
                     them: {failure}; apply again"
                ));
            }
            publish(spool, &policies);
            if self.common.spool.is_none() {
                note_unasked(spool, &policies);
            }
            path
        };
        let moved = moves.counts();
        let applied = AppliedJson {
            image: path.display().to_string(),
            applied: !self.dry_run,
            bytes: image.len(),
            policies: policies.policies.len(),
            users: policies.policies.values().map(|policy| policy.users.len()).sum(),
            warnings,
            changes: changed
                .iter()
                .map(|(part, settings)| JsonChange { part, settings: *settings })
                .collect(),
            moved: moved.0 + moved.1,
        };
        screen.show(self.common.json, &applied, |screen, it| it.print(screen, &changed, moved))?;
        Ok(Outcome::Fine)
    }
}

/// Puts `file` into use in this spool directory, if anything would change: what has, in lines.
///
/// # Errors
/// Why nothing has, in words.
pub(in crate::cli) fn apply_file(file: &Path, spool: &Path) -> Result<Vec<String>, String> {
    let common = Common { spool: Some(spool.to_owned()), json: false };
    let (file, if_changed) = (file.to_owned(), true);
    let apply =
        Apply { file, dry_run: false, users: None, allow_shrink: false, if_changed, common };
    let mut text = Vec::new();
    apply.run(&mut Screen::of(&mut text, None)).map_err(|failure| failure.to_string())?;
    Ok(String::from_utf8_lossy(&text).lines().map(str::to_owned).collect())
}

impl AppliedJson<'_> {
    /// Prints it; `rates` and `habits` are how many of `moved` are these.
    fn print(
        &self,
        screen: &mut Screen<'_>,
        changed: &BTreeMap<String, Changes>,
        (rates, habits): (usize, usize),
    ) -> Result<(), Failure> {
        for (part, change) in changed {
            writeln!(screen, "{part}: {}", describe(*change))?;
        }
        if changed.is_empty() {
            writeln!(screen, "nothing changes")?;
        }
        if self.moved > 0 {
            let would = if self.applied { "have" } else { "would get" };
            let rates = counted_or_no(rates, "rate", "rates");
            let habits = counted_or_no(habits, "account's habits", "accounts' habits");
            writeln!(screen, "{rates} and {habits} {would} the new names of their logins")?;
        }
        let policies = counted_or_no(self.policies, "policy", "policies");
        let users = counted_or_no(self.users, "user", "users");
        let state = if self.applied { "in use" } else { "would be in use" };
        let (path, size) = (printable(self.image.as_bytes()), bytes(self.bytes as u64));
        writeln!(screen, "{path}: {policies}, {users}, {size}: {state}")?;
        Ok(())
    }
}

/// What gets another name by `folding`, before anything is changed: what cannot be moved would begin
/// at zero, and a denial would end.
fn planned_moves(spool: &Path, folding: &Folding) -> Result<(Moves, Stores), Failure> {
    let is_renamed = folds_otherwise(spool, folding);
    let opened = open_stores(spool, is_renamed);
    let planned = opened.and_then(|mut stores| Ok((stores.moves(folding)?, stores)));
    match planned {
        Err(_) if !is_renamed => Ok(Default::default()),
        Err(failure) => Err(Failure::new(format!(
            "nothing has changed, as the rates of logins could not be moved to their new names: \
             {failure}"
        ))),
        planned => planned,
    }
}

/// Opens the database of this server, and what it shares with others; that this cannot be opened is an
/// error if it `is_needed`.
fn open_stores(spool: &Path, is_needed: bool) -> Result<Stores, Failure> {
    let own = match Spool::require(spool) {
        Ok(()) => Some(Spool::open(spool, Options::default())?),
        Err(_) => None,
    };
    let shared = match ClusterSettings::of(spool) {
        Ok((_, Some(settings))) if is_needed || File::open(&settings.config).is_ok() => {
            match rates::connect(&settings, Box::new(Memory::new())) {
                Err(failure) if is_needed => return Err(failure),
                connected => connected.ok(),
            }
        }
        _ => None,
    };
    Ok(Stores { own, shared })
}

/// `2 settings changed, 1 added, 3 removed`
fn describe(change: Changes) -> String {
    let Changes { added, removed, changed } = change;
    let parts = [(changed, "changed"), (added, "added"), (removed, "removed")];
    let parts = parts.iter().filter(|(count, _)| *count > 0);
    let parts =
        parts.map(|(count, how)| format!("{} {how}", counted_or_no(*count, "setting", "settings")));
    parts.collect::<Vec<_>>().join(", ")
}

/// Prints the warnings of `exirate policy lint`; how many.
fn warn(policies: &Policies) -> usize {
    let mut found = Diagnostics::default();
    lint(policies, now().seconds, &mut found);
    let warnings = found.sorted();
    for one in &warnings {
        let line = format!("{}: warning: {}", place(&policies.files, one.at), one.message);
        complain(printable(line.as_bytes()));
    }
    warnings.len()
}

/// What differs from the policies in use, if there are any that can be read.
fn since(spool: &Path, policies: &Policies) -> Result<BTreeMap<String, Changes>, Failure> {
    let file = PolicyFile::open(spool);
    let unknown = |error: &ImageError| {
        if !matches!(error, ImageError::Absent { .. }) {
            note(format_args!("what changes is not known: {error}"));
        }
    };
    let image = file.image().map_err(unknown).ok();
    match changes(image, policies) {
        Ok(found) => Ok(found),
        Err(error) => {
            unknown(&error);
            Ok(changes(None, policies)?)
        }
    }
}

/// Publishes the digest of the policies, if this server shares limits with others and the user
/// may read the agent's configuration. The policies are in use whether this succeeds or not.
fn publish(spool: &Path, policies: &Policies) {
    let settings = match ClusterSettings::of(spool) {
        Ok((_, Some(settings))) if File::open(&settings.config).is_ok() => settings,
        _ => return,
    };
    let published = servers::connect(&settings).and_then(|(register, name)| {
        let digest = digest(policies);
        register.set_policy(&name, Some(&digest)).map_err(|error| error.to_string())
    });
    if let Err(why) = published {
        note(format_args!("the tools of other servers do not know that these are in use: {why}"));
    }
}

/// Says that the mail server of this machine asks nothing yet, or not what these policies need.
fn note_unasked(spool: &Path, policies: &Policies) {
    let glance = doctor::glance(None);
    let is_here = glance.spool.as_deref().is_none_or(|used| used == spool);
    let Some(server) = glance.server.filter(|_| is_here && glance.complete) else { return };
    if glance.decided_by.is_empty() {
        return note(format_args!(
            "{server} does not ask for any policy yet, so nothing is counted: `exirate setup`"
        ));
    }
    if let Some(doubt) = glance.doubt {
        return note(format_args!("mail may not be limited: {doubt}; see `exirate doctor`"));
    }
    let later: Vec<&str> = policies.at_delivery().map(|(name, _)| name).collect();
    if !later.is_empty() && !glance.at_delivery {
        note(format_args!(
            "nothing asks at delivery, so these limit nothing yet: {}; see `exirate doctor`",
            later.join(", ")
        ));
    }
}

/// Whether the policies in use fold logins in another way.
fn folds_otherwise(spool: &Path, folding: &Folding) -> bool {
    let in_use = PolicyFile::open(spool);
    let before = in_use.image().ok().and_then(|image| image.identity().ok());
    before.is_some_and(|before| before.folding.without_masks() != folding.without_masks())
}

/// Frees the counters of rules that no longer exist. The policies are in use whether this
/// succeeds or not.
fn free_counters(spool: &Path, policies: &Policies) {
    let known = known_rules(policies);
    let is_known = |policy: &str, rule: &str| known.contains(&(policy.to_owned(), rule.to_owned()));
    if let Err(error) = retain(spool, is_known) {
        note(format_args!("the counters of rules that no longer exist are still there: {error}"));
    }
}

/// All policies and their rules, as counters name them.
fn known_rules(policies: &Policies) -> HashSet<(String, String)> {
    let mut known = HashSet::new();
    for (name, policy) in &policies.policies {
        let mut rules = HashSet::new();
        let customers = policy.customers.values().map(|one| (&one.limits, Per::Customer));
        for (limits, total) in policy.other_tables().map(|one| (one, Per::Domain)).chain(customers)
        {
            for (amounts, per) in [(&limits.each, Per::Key), (&limits.total, total)] {
                for (unit, amount) in amounts {
                    let windows = amount.windows.iter();
                    rules.extend(windows.map(|one| RuleName::new(*unit, false, &one.text, per)));
                }
            }
            let buckets = limits.buckets.iter().flat_map(|buckets| &buckets.buckets);
            rules.extend(buckets.map(|one| RuleName::new(one.unit, true, &one.text, Per::Key)));
        }
        rules.extend(policy.uses_habits().then_some(RuleName::HABITS));
        known.extend(rules.iter().map(|rule| (name.clone(), rule.to_string())));
    }
    known
}

/// Logs the change, if there is a rate database to log to.
fn log(spool: &Path, file: &Path) -> Result<(), Failure> {
    if Spool::require(spool).is_err() {
        return Ok(());
    }
    let mut spool = Spool::open(spool, Options::default())?;
    let file = printable(file.as_os_str().as_encoded_bytes());
    AuditLog::new().add(&mut spool, format_args!("policy apply {file}"));
    Ok(())
}
