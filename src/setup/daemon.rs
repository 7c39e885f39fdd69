//! The daemon that a mail server asks: its directories, its configuration, and that it runs.

use std::path::{Path, PathBuf};

use super::change::Change;
use super::plan::Plan;
use super::policy_file::Facts;
use super::service::Service;
use super::{SetupError, files};
use crate::place::OWN as DATABASE;
use crate::serve::config::{Address, FILE as CONFIGURATION, Mail, check_mail};
use crate::serve::mail::surroundings::USER as UNIT;

/// What a mail server needs of the daemon.
#[derive(Clone, Debug)]
pub(super) struct DaemonNeeds {
    /// Who asks it, for people.
    pub(super) asker: &'static str,
    /// The key of its socket in `[listen]`.
    pub(super) key: &'static str,
    /// Its socket, if its configuration names no other.
    pub(super) socket: PathBuf,
    /// The group that the directory of the socket is to have, so that the mail server can
    /// connect. Without one, the unit makes the directory, and the mail server is root.
    pub(super) group: Option<String>,
}

impl DaemonNeeds {
    /// Its configuration; `None` where there is none yet.
    pub(super) fn configured() -> Result<Option<Mail>, SetupError> {
        let path = Path::new(CONFIGURATION);
        let Some(bytes) = files::read(path)? else { return Ok(None) };
        let checked = check_mail(path, &String::from_utf8_lossy(&bytes));
        let wrong = || {
            SetupError::Unfit(format!(
                "{CONFIGURATION} has errors: see `exirate serve mail --check`, then run `exirate \
                 setup` again"
            ))
        };
        checked.config.ok_or_else(wrong).map(Some)
    }

    /// The directory of its database.
    pub(super) fn spool(&self) -> PathBuf {
        Self::configured().ok().flatten().map_or_else(|| DATABASE.into(), |mail| mail.spool)
    }

    /// Where it listens, or will.
    pub(super) fn address(&self) -> Result<Address, SetupError> {
        let default = || Address::Unix(self.socket.clone());
        let Some(mail) = Self::configured()? else { return Ok(default()) };
        let listens = if self.key == "policy" { mail.policy } else { mail.milter };
        listens.ok_or_else(|| self.names_no_socket())
    }

    /// For mail servers that can use no other socket.
    pub(super) fn listens_there(&self) -> Result<(), SetupError> {
        let is_it = self.address()? == Address::Unix(self.socket.clone());
        if is_it { Ok(()) } else { Err(self.names_no_socket()) }
    }

    fn names_no_socket(&self) -> SetupError {
        SetupError::Unfit(format!(
            "{CONFIGURATION} is there and does not name the socket that {} is to use: write `{} = \
             \"unix:{}\"` in [listen], then run `exirate setup` again",
            self.asker,
            self.key,
            self.socket.display()
        ))
    }

    /// Adds all that it needs, the policies included, and has it run.
    pub(super) fn plan(
        &self,
        plan: &mut Plan,
        facts: impl FnOnce() -> Result<Facts, SetupError>,
    ) -> Result<(), SetupError> {
        self.prepare(plan)?;
        plan.policies(&self.spool(), facts)?;
        self.start(plan)
    }

    /// Adds its directories and its configuration, but does not start it.
    fn prepare(&self, plan: &mut Plan) -> Result<(), SetupError> {
        plan.directory(Path::new(DATABASE), 0o755, Some((UNIT, UNIT)));
        if let (Some(group), Address::Unix(socket)) = (&self.group, self.address()?)
            && let Some(directory) = socket.parent()
        {
            plan.directory(directory, 0o2750, Some((UNIT, group)));
        }
        let file = Path::new(CONFIGURATION);
        plan.directory(file.parent().unwrap_or(file), 0o755, None);
        if Self::configured()?.is_none() {
            let mode = if self.group.is_some() { "0660" } else { "0600" };
            let text = format!(
                "# Written by `exirate setup`: the daemon that {} asks. docs/serve-mail.md has all \
                 settings.\n[listen]\n{} = \"unix:{}\"\n\n[mail]\nspool = \"{DATABASE}\"\n\
                 socket_mode = \"{mode}\"\n",
                self.asker,
                self.key,
                self.socket.display()
            );
            plan.prepare.push(Change::Create { file: file.to_owned(), text, mode: 0o644 });
        }
        Ok(())
    }

    /// Has it run, when all that it needs is there.
    fn start(&self, plan: &mut Plan) -> Result<(), SetupError> {
        let Address::Unix(socket) = self.address()? else { return Ok(()) };
        let service = Service::look(UNIT, &socket);
        if !service.is_up() || !plan.prepare.is_empty() {
            plan.prepare.push(Change::Start(service));
        }
        Ok(())
    }
}
