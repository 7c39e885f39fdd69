//! `exirate setup`: has the mail server of this machine ask exirate, and takes that back.
//!
//! [`find`] finds the mail server; its planner ([`exim`], ...) looks at the configuration and
//! makes a [`plan`] of what is missing: each [`change`] only adds. [`Setup::carry_out`] makes
//! them in an order in which no moment holds half of one, and puts all back if anything fails;
//! [`Setup::undo`] takes back what the [`manifest`] names. [`policy_file`] writes the policy
//! file to start from.

mod change;
mod daemon;
mod diff;
mod error;
mod exim;
mod files;
pub(crate) mod find;
mod manifest;
mod plan;
pub(crate) mod policy_file;
mod postfix;
mod probe;
mod revert;
mod sendmail;
mod server;
mod service;

use std::path::Path;

pub(crate) use change::{BEGIN, Change, END};
pub(crate) use error::SetupError;
pub(crate) use files::{Contents, Steps};
pub(crate) use manifest::{DIRECTORY, Manifest, clean};
pub(crate) use plan::Plan;
pub(crate) use server::{Absent, MailServer};
pub(crate) use service::is_in_runlevels;
use service::{Service, run};

use manifest::{Directory, ManifestEntry};

/// The daemon of alerts, without `.service`.
const ALERTS: &str = "exirate-alerts";

/// The change that has it run; `None` if it does.
pub(crate) fn start_of_alerts() -> Option<Change> {
    let service = Service::look(ALERTS, Path::new(""));
    (!service.is_up()).then_some(Change::Start(service))
}

/// One run of setup.
pub(crate) struct Setup<'a> {
    /// The mail server.
    pub(crate) server: &'a dyn MailServer,
    /// The directory of the manifest.
    pub(crate) state: &'a Path,
    /// The failpoint.
    pub(crate) steps: Steps,
}

impl Setup<'_> {
    /// Makes the changes of a plan. If one fails, or the mail server does not come to the
    /// lines, all is as it was before.
    ///
    /// # Errors
    /// Why it is as it was before, or cannot be.
    pub(crate) fn carry_out(&self, plan: &Plan) -> Result<(), SetupError> {
        self.server.is_running()?;
        // As it is, it was checked for the plan.
        let contents = plan.contents();
        self.server.check(&contents)?;
        let directory = Directory::make(self.state)?;
        let _guard = directory.lock()?;
        let mut manifest = Manifest::read(self.state)?.unwrap_or_default();
        let (known, was_finished) = (manifest.entries.len(), manifest.finished);
        let entry = |configuration| {
            move |change: &Change| ManifestEntry { configuration, change: change.clone() }
        };
        manifest.entries.extend(plan.prepare.iter().map(entry(false)));
        manifest.entries.extend(plan.configure.iter().map(entry(true)));
        manifest.finished = false;
        self.write(&directory, &manifest)?;
        let done = self.make(plan, &contents).and_then(|()| {
            manifest.finished = true;
            self.write(&directory, &manifest)
        });
        let Err(why) = done else { return Ok(()) };
        let added = manifest.entries.split_off(known);
        manifest.finished = was_finished;
        let back = self.revert(&added).and_then(|left| {
            self.write(&directory, &manifest)?;
            match left.first() {
                Some(what) => Err(SetupError::Unfit(what.clone())),
                None => Ok(()),
            }
        });
        let why = Box::new(why);
        Err(match back {
            Ok(()) => SetupError::PutBack { why },
            Err(also) => SetupError::Stuck { why, also: Box::new(also) },
        })
    }

    /// Has the daemon of alerts run, now and at each boot, where it does not yet.
    ///
    /// # Errors
    /// It does not start: what was changed for it is as it was before.
    pub(crate) fn start_alerts(&self) -> Result<(), SetupError> {
        let Some(start) = start_of_alerts() else { return Ok(()) };
        let directory = Directory::make(self.state)?;
        let _guard = directory.lock()?;
        let mut manifest = Manifest::read(self.state)?.unwrap_or_default();
        manifest.entries.push(ManifestEntry { configuration: false, change: start.clone() });
        self.write(&directory, &manifest)?;
        start.apply(&self.steps).inspect_err(|_| {
            let _ = start.revert(&self.steps);
            manifest.entries.pop();
            let _ = self.write(&directory, &manifest);
        })
    }

    /// Puts the policy file `new`, which is sound, in the place of `old` and has it be in use.
    ///
    /// # Errors
    /// The file and the policies in use are as they were before.
    pub(crate) fn set_policies(&self, path: &Path, old: &str, new: &str) -> Result<(), SetupError> {
        if old != new {
            files::replace(path, new.as_bytes(), &self.steps)?;
        }
        change::apply_policies(path, self.server.spool()).inspect_err(|_| {
            let _ = files::replace(path, old.as_bytes(), &self.steps);
        })
    }

    fn write(&self, directory: &Directory, manifest: &Manifest) -> Result<(), SetupError> {
        directory.write(manifest, &self.steps)
    }

    fn make(&self, plan: &Plan, contents: &Contents) -> Result<(), SetupError> {
        for change in &plan.prepare {
            change.apply(&self.steps)?;
        }
        let mut written: Vec<&Path> = Vec::new();
        for change in &plan.configure {
            let Change::Insert { file, .. } = change else {
                change.apply(&self.steps)?;
                continue;
            };
            if written.contains(&&**file) {
                continue;
            }
            if !plan.is_current(file)? {
                return Err(SetupError::Unfit(format!(
                    "{} was changed meanwhile: run `exirate setup` again",
                    file.display()
                )));
            }
            let bytes = contents.get(file).and_then(Option::as_deref).unwrap_or_default();
            files::replace(file, bytes, &self.steps)?;
            written.push(file);
        }
        // Until the administrator has added the lines, there is nothing to try.
        if !plan.by_hand.is_empty() {
            return Ok(());
        }
        self.server.put_into_force(&self.steps)?;
        self.server.probe()
    }
}
