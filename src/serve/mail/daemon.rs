//! Start, reload and stop of the mail front ends.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::timeout;

use super::decider::Decider;
use super::milter::Milter;
use super::policy_file::{Apply, KeptPolicies};
use super::postfix::PolicyService;
use crate::serve::config::{self, Address, Checked, Mail};
use crate::serve::listen::{Acceptor, Bound, CLOSING, Peers};
use crate::serve::log::{Level, Log};
use crate::serve::notify::Manager;
use crate::serve::supervise::{
    Signals, Unit, cannot_start, is_in_use, listen_until_stopped, need_restart, raise_open_files,
    read_again, start,
};
use crate::spool::{Options, Spool};
use crate::sys::inherited;

/// How long connections may take to end when the daemon stops.
const STOP_MAX: Duration = Duration::from_secs(15);

/// Where the configuration is.
#[derive(Clone, Debug)]
pub struct Configured {
    /// The file.
    pub path: PathBuf,
    /// The spool directory of an Exim with the library, for the accounts that run that Exim
    /// themselves, instead of mail servers.
    pub callers: Option<PathBuf>,
}

impl Configured {
    /// Reads it.
    ///
    /// # Errors
    /// Why the file cannot be read.
    pub fn read(&self) -> Result<Checked<Mail>, String> {
        match &self.callers {
            Some(spool) => config::read_callers(&self.path, spool),
            None => config::read_mail(&self.path),
        }
    }
}

/// Runs the mail front ends with this configuration until a signal stops them. With `take_over`,
/// in the place of those that run. `apply` puts the policy file into use that the configuration names.
///
/// # Errors
/// Why they cannot start, in words.
pub fn run_mail(configured: Configured, take_over: bool, apply: Apply) -> Result<(), String> {
    let log = Rc::new(Log::stderr());
    let mail = configured.read()?.logged(&configured.path, &log)?;
    if configured.callers.is_some() {
        // The socket is in the directory of the database.
        Spool::open(&mail.spool, Options::default()).map_err(|error| error.to_string())?;
    }
    let policies = Rc::new(KeptPolicies::begin(apply, &mail, Rc::clone(&log))?);
    raise_open_files(&log, mail.max_connections.saturating_add(CLOSING));
    let (runtime, signals) = start()?;
    let bind_by = if take_over { Bound::take_over } else { Bound::bind };
    let bind = |address: &Address| bind_by(address, mail.access);
    let mut policy = mail.policy.as_ref().map(bind).transpose()?;
    let mut milter = mail.milter.as_ref().map(bind).transpose()?;
    let manager = Manager::from_environment();
    for bound in policy.iter_mut().chain(&mut milter) {
        bound.keep(&manager);
    }
    // Those of an earlier configuration.
    for name in inherited::close_rest() {
        manager.forget(&name);
    }
    let decider = Rc::new(Decider::new(&mail, Rc::clone(&log)).map_err(cannot_start)?);
    let peers = Peers::new(mail.max_connections, Rc::clone(&log));
    peers.allow(&mail.allow);
    let service = PolicyService::new(&mail, Rc::clone(&decider), Rc::clone(&log));
    let filter = Milter::new(&mail, Rc::clone(&decider), Rc::clone(&log));
    let daemon = MailDaemon { configured, mail, policies, decider, peers, service, filter, log };
    LocalSet::new().block_on(&runtime, daemon.run(signals, policy, milter))
}

/// The running front ends.
struct MailDaemon {
    configured: Configured,
    mail: Mail,
    policies: Rc<KeptPolicies>,
    decider: Rc<Decider>,
    peers: Rc<Peers>,
    service: Rc<PolicyService>,
    filter: Rc<Milter>,
    log: Rc<Log>,
}

impl MailDaemon {
    async fn run(
        mut self,
        mut signals: Signals,
        mut policy: Option<Bound>,
        mut milter: Option<Bound>,
    ) -> Result<(), String> {
        let (stop, stopped) = watch::channel(false);
        let acceptor = |bound: &mut Option<Bound>| -> Result<Option<Acceptor>, String> {
            bound.as_mut().map(Bound::acceptor).transpose().map_err(cannot_start)
        };
        let (policy_acceptor, milter_acceptor) = (acceptor(&mut policy)?, acceptor(&mut milter)?);
        let (service, filter) = (Rc::clone(&self.service), Rc::clone(&self.filter));
        let peers = Rc::clone(&self.peers);
        let serving = spawn_local(async move {
            let policy = async {
                if let Some(acceptor) = policy_acceptor {
                    service.serve(acceptor, Rc::clone(&peers), stopped.clone()).await;
                }
            };
            let milter = async {
                if let Some(acceptor) = milter_acceptor {
                    filter.serve(acceptor, Rc::clone(&peers), stopped.clone()).await;
                }
            };
            tokio::join!(policy, milter);
        });
        let policies = Rc::clone(&self.policies);
        let keeping = spawn_local(async move { policies.keep().await });
        let (log, bound) = (Rc::clone(&self.log), policy.into_iter().chain(milter).collect());
        let why =
            listen_until_stopped(&mut self, &mut signals, &log, bound, &stop, serving).await?;
        keeping.abort();
        let left = self.peers.ended(STOP_MAX).await;
        if left > 0 {
            let text = format_args!("{left} connections have not ended, and are closed");
            log.write(Level::Warning, text);
        }
        if timeout(STOP_MAX, self.filter.recorded()).await.is_err() {
            log.write(Level::Warning, "some messages are not recorded: it takes too long");
        }
        self.decider.stop().await;
        log.write(Level::Notice, "stopped");
        why.result()
    }
}

impl Unit for MailDaemon {
    fn status(&self) -> String {
        format!("{} mail servers connected, {}", self.peers.connected(), self.decider.status())
    }

    fn state(&self) -> String {
        String::new()
    }

    fn reload(&mut self) {
        let path = &self.configured.path;
        let Some(new) = read_again(self.configured.read(), path, &self.log) else { return };
        let old = &self.mail;
        let same = [
            ("listen.policy", old.policy == new.policy),
            ("listen.milter", old.milter == new.milter),
            ("spool", old.spool == new.spool),
            ("workers", old.workers == new.workers),
            ("socket_mode", old.access.mode == new.access.mode),
            ("socket_group", old.access.group == new.access.group),
        ];
        need_restart(&same, &self.log);
        self.policies.set(&new);
        self.decider.set(&new);
        self.service.set(&new);
        self.filter.set(&new);
        self.peers.set(new.max_connections);
        self.peers.allow(&new.allow);
        raise_open_files(&self.log, new.max_connections.saturating_add(CLOSING));
        let Mail { policy, milter, spool, workers, access, .. } = old.clone();
        self.mail = Mail { policy, milter, spool, workers, access, ..new };
        is_in_use(&self.configured.path, &self.log);
    }
}
