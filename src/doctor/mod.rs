//! Whether the mail server, exirate and the database work together: checks → findings.
//!
//! With Exim it checks from the outside in: [`installation`] Exim, [`configuration`] what its
//! configuration limits, [`library`] the libraries it calls,
//! [`lookups`] their links where Exim looks for lookups, [`directory`] and
//! [`files`] the database's files, [`database`] what is in them, [`policy`] the policies
//! in use, [`held`] what becomes of what they hold, [`callers`] who decides about accounts that run Exim
//! themselves, [`alerts`] the receivers of alerts, [`cluster`] what is shared with other
//! servers, [`servers`] those servers, [`desk`] the web service, [`trace`] the trace store, [`filesystem`]
//! what they are on, [`machine`] what Exim may do. Each adds to the
//! [`finding::Findings`]. It changes nothing: what it tries, it tries with a file of its
//! own or with a call that Exim refuses. Where there is no Exim, [`mail`] checks Postfix or
//! Sendmail and the daemon in place of the first four.
//!
//! A check is a function `look` with a line in [`Subject`]: in `stores` if it is about what is in a
//! spool directory, else in `checked`. Its findings are under the heading that
//! [`Findings::about`] has set last, here or in `look`. Some are called by others: [`follower`]
//! and [`habits`] by [`policy`], [`servers`] by [`cluster`], [`reread`] by [`machine`]. [`units`]
//! are those of systemd, [`users`] what users may do with files, [`glance`] what `exirate status`
//! shows of all this.

mod alerts;
mod callers;
mod cluster;
mod configuration;
mod database;
mod desk;
mod directory;
mod files;
mod filesystem;
mod finding;
mod follower;
mod glance;
mod habits;
mod held;
mod installation;
mod library;
mod lookups;
mod machine;
mod mail;
mod policy;
mod reread;
mod servers;
mod trace;
mod units;
mod users;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::mta::exim::Rules;
use crate::mta::{Account, exim};
use crate::place;
use crate::policy::source::{FILE, read};
use crate::serve::config::{self, CALLERS, Mail};
use crate::serve::mail::surroundings::USER as MAIL_USER;
use crate::standing::bypass_state::{self, BypassState};
pub(crate) use finding::EXIM;
pub(crate) use finding::{Finding, Findings, Level};
use glance::Examined;
pub(crate) use glance::{DecidedBy, Glance};
pub(crate) use held::holds;
use policy::Caller;
pub(crate) use units::{UnitState, states as unit_states};

/// Why limits of the policy file on what becomes of accepted mail are not counted, and the command
/// that has them counted.
pub(crate) fn uncounted(spool: &Path) -> Option<String> {
    let policies = read(Path::new(FILE)).ok()?.policies?;
    let mut findings = Findings::default();
    follower::look(&policies, spool, Path::new(config::FILE), &mut findings);
    let problem = findings.list.into_iter().find(|one| one.level == Level::Problem)?;
    let fixes: String = problem.fix.iter().map(|fix| format!("; run `{fix}`")).collect();
    Some(problem.text + &fixes)
}

/// Where the doctor says whether anything is refused.
const LIMITS: &str = "The limits";

/// What is examined; without an answer, what this machine uses.
#[derive(Default)]
pub(crate) struct Subject {
    /// The configuration file of Exim.
    pub(crate) config: Option<PathBuf>,
    /// The program of Exim.
    pub(crate) exim: Option<PathBuf>,
    /// The spool directory.
    pub(crate) spool: Option<PathBuf>,
}

/// How much is examined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// What takes a moment, however many records there are.
    Glance,
    All,
}

/// What is kept in a directory.
struct Stores<'a> {
    spool: &'a Path,
    /// Whose it is to be, if that is known: Exim's user or the daemon's.
    who: Option<&'a Account>,
    /// What evaluates its policies, if that is known.
    callers: Option<Vec<Caller>>,
    /// Whether a line of Exim's configuration records messages.
    record: bool,
    depth: Depth,
}

impl Subject {
    /// Examines it all, what matters most first, or at a glance.
    ///
    /// # Errors
    /// There is no mail server, or it cannot be run: why.
    pub(crate) fn examine(&self, depth: Depth) -> Result<Examined, String> {
        let mut examined = self.checked(depth)?;
        examined.findings.list.sort_by_key(|finding| finding.about != LIMITS);
        Ok(examined)
    }

    fn checked(&self, depth: Depth) -> Result<Examined, String> {
        let mut findings = Findings::default();
        if let Some(server) = self.other_server() {
            let file = Path::new(config::FILE);
            let config = mail::look(&server, file, &mut findings);
            let own = config.as_ref().map(|config| config.spool.clone());
            let decided_by = config.as_ref().map(|config| DecidedBy::daemon(&server, config));
            if let Some(spool) = self.spool.clone().or(own.clone()) {
                let who = daemon_account(&spool);
                let callers = config.map(|config| vec![Caller::daemon(file, &config)]);
                let stores =
                    Stores { spool: &spool, who: who.as_ref(), callers, record: false, depth };
                self.stores(stores, |_, _| {}, &mut findings);
            }
            let decided_by = decided_by.unwrap_or_default();
            // What is over a limit at delivery is held when it is complete.
            let (server, at_delivery) = (Some(server.name()), true);
            return Ok(Examined { findings, server, decided_by, at_delivery, spool: own });
        }
        findings.about("Exim");
        let exim = installation::find(self.exim.as_deref(), self.config.as_deref(), &mut findings)?;
        let installation = installation::look(exim, &mut findings)?;
        findings.about("The configuration");
        let settings = installation.settings.as_ref();
        let rules = settings.and_then(|settings| {
            configuration::look(&installation, settings, depth == Depth::All, &mut findings)
        });
        findings.about("The library");
        let libraries = match (settings, &rules) {
            (Some(settings), Some(rules)) => {
                library::look(&installation, settings, rules, &mut findings)
            }
            _ => library::Libraries::default(),
        };
        if let Some(rules) = &rules {
            installation::needs_no_library(&installation, rules, &mut findings);
            lookups::look(&installation.exim.program, rules, &libraries.limiting, &mut findings);
        }
        let exim_user = settings.map(|settings| &settings.who);
        let daemon = rules.as_ref().and_then(|rules| daemon_of(rules, exim_user, &mut findings));
        // Where Exim asks the daemon, the daemon has the database; so it has where Exim can do nothing
        // else, and does not ask it yet.
        let own = daemon.map(|config| config.spool);
        let own = own.or_else(|| Self::of_daemon().filter(|_| !installation.dlfunc));
        let daemon_user = own.as_ref().and_then(|own| daemon_account(own));
        let own = own.or_else(|| settings.map(|settings| settings.spool.clone()));
        let spool = self.spool.as_ref().or(own.as_ref());
        if let Some(spool) = spool {
            let who = daemon_user.as_ref().or(exim_user);
            let check = |spec: &str, findings: &mut Findings| {
                library::check_once(&installation, &libraries, spec, findings);
            };
            let callers = rules.as_ref().map(Caller::of_exim);
            let stores = Stores { spool, who, callers, record: libraries.record, depth };
            self.stores(stores, check, &mut findings);
            held::look(&installation.exim, spool, &mut findings);
        }
        if let (Some(settings), Some(rules)) = (settings, &rules) {
            let of_library = |socket: Option<&str>| socket.is_none_or(|one| one.ends_with(CALLERS));
            let limits = rules.limiting().any(|rule| of_library(rule.call.socket()));
            callers::look(&installation.exim, settings, limits, &mut findings);
        }
        findings.about("The machine");
        let files = rules.as_ref().map_or(&[][..], |rules| &rules.source.files);
        let sends_later = rules.as_ref().is_some_and(Rules::ask_at_delivery);
        machine::daemon(&installation, files, sends_later, &mut findings);
        if let Some(spool) = spool {
            machine::confinement(spool, &libraries.usable, &mut findings);
        }
        let decided_by = rules.as_ref().map(DecidedBy::exim).unwrap_or_default();
        let server = Some(EXIM);
        Ok(Examined { findings, server, decided_by, at_delivery: sends_later, spool: own })
    }

    /// The directory that the configuration of the daemons names.
    fn of_daemon() -> Option<PathBuf> {
        let (spool, by) = place::find()?;
        (by == place::StatedBy::Configuration).then_some(spool)
    }

    /// The mail server of a machine without Exim.
    fn other_server(&self) -> Option<mail::Server> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let is_exim = self.exim.is_some() || self.config.is_some();
        let is_exim = is_exim || !exim::installed(&path).is_empty();
        (!is_exim).then(mail::Server::of_this_machine).flatten()
    }

    /// Checks what is kept in a directory; `check` has the mail server do a check by this spec.
    fn stores(
        &self,
        stores: Stores<'_>,
        check: impl FnOnce(&str, &mut Findings),
        findings: &mut Findings,
    ) {
        let Stores { spool, who, callers, record, depth } = stores;
        findings.about(LIMITS);
        match bypass_state::state(spool) {
            None => {}
            Some(BypassState::Active(what)) => {
                findings.warning(what).fix("exirate bypass --end");
            }
            Some(BypassState::None(why)) => {
                findings.problem(why).fix("exirate bypass --end");
            }
            Some(BypassState::Hidden) => findings.hidden("whether a bypass lasts was not checked"),
        }
        findings.about("The database");
        let owner = directory::look(spool, who, findings);
        let contents = owner.filter(|_| depth == Depth::All);
        let contents = contents.and_then(|_| database::look(spool, findings));
        let harmless = contents.as_ref().and_then(|contents| contents.harmless.as_deref());
        // Exim uses the database of its configuration.
        if let (None, Some(spec)) = (&self.spool, harmless) {
            check(spec, findings);
        }
        findings.about("The policies");
        // Exim and the daemon use the policies of their configuration.
        let callers = callers.filter(|_| self.spool.is_none());
        policy::look(spool, Path::new(FILE), callers.as_deref(), findings);
        let units = units::states(spool);
        alerts::look(spool, &units, findings);
        findings.about("The units");
        units::look(&units, findings);
        if depth == Depth::All {
            findings.about("The shared limits");
            cluster::look(spool, Path::new(config::FILE), findings);
            findings.about("The desk");
            desk::look(spool, Path::new(config::FILE), findings);
            findings.about("The trace store");
            trace::look(spool, who, record, findings);
        }
        findings.about("The file system");
        let stats = contents.as_ref().map(|contents| &contents.stats);
        filesystem::look(spool, stats, findings);
    }
}

/// The user of the daemon where the spool directory belongs to it: one of Exim's belongs to Exim's
/// user.
fn daemon_account(spool: &Path) -> Option<Account> {
    Account::named(MAIL_USER).filter(|_| spool.starts_with("/var/lib"))
}

/// The configuration of the daemon, where lines of Exim's that mail comes to ask it, and no
/// library decides.
fn daemon_of(rules: &Rules, who: Option<&Account>, findings: &mut Findings) -> Option<Mail> {
    // Beside the library, a daemon of its own decides about accounts.
    let is_other = |socket: &&str| !socket.ends_with(CALLERS);
    let of_daemon = rules.limiting().filter_map(|rule| rule.call.socket()).filter(is_other);
    let sockets: BTreeSet<&str> = of_daemon.collect();
    let loads = rules.limiting().any(|rule| rule.call.socket().is_none());
    if sockets.is_empty() || loads {
        return None;
    }
    mail::look_for_exim(&sockets, who, Path::new(config::FILE), findings)
}

/// Looks at the mail server of this machine, and at the spool directory `spool`, if it is named,
/// without reading records and asking other servers.
pub(crate) fn glance(spool: Option<&Path>) -> Glance {
    let subject = Subject { spool: spool.map(Path::to_owned), ..Subject::default() };
    Glance::of(subject.examine(Depth::Glance).unwrap_or_else(|why| {
        let mut findings = Findings::default();
        findings.problem(why);
        let (decided_by, at_delivery) = (Vec::new(), false);
        Examined { findings, server: None, decided_by, at_delivery, spool: None }
    }))
}
