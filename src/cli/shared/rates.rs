//! The rates that a command shows or changes: those that servers share, if this one shares its
//! limits, or those of its own database.

use std::ops::Deref;
use std::path::Path;

use clap::Args;

use super::database::Common;
use crate::cli::Failure;
use crate::cluster::ClusterSettings;
use crate::serve::servers;
use crate::spool::{Options, Spool, SpoolError};
use crate::standing::commands::Commands;
use crate::store::{Inspect, Memory};

/// The options of a command that shows or changes rates.
#[derive(Clone, Debug, Args)]
pub(in crate::cli) struct Rates {
    #[command(flatten)]
    common: Common,

    /// Use the database of this server, not what it shares with others
    #[arg(long)]
    local: bool,
}

impl Deref for Rates {
    type Target = Common;

    fn deref(&self) -> &Common {
        &self.common
    }
}

impl Rates {
    /// Opens the rates for reading only.
    pub(in crate::cli) fn open(&self) -> Result<Box<dyn Inspect>, Failure> {
        let Some(settings) = self.shared()? else { return Ok(Box::new(self.spool()?)) };
        match self.spool_if_any()? {
            Some(spool) => connect(&settings, Box::new(spool)),
            None => connect(&settings, Box::new(Memory::new())),
        }
    }

    /// Opens the rates for changing them. Prints what opening the database has repaired.
    pub(in crate::cli) fn open_to_change(&self) -> Result<Box<dyn Inspect>, Failure> {
        let Some(settings) = self.shared()? else { return Ok(Box::new(self.spool_to_change()?)) };
        let local = self.spool_created()?;
        connect(&settings, Box::new(local))
    }

    /// As [`Rates::open_to_change`]; `create` opens the own database, where no limits are
    /// shared.
    pub(in crate::cli) fn open_or(
        &self,
        create: impl FnOnce(&Path) -> Result<Spool, Failure>,
    ) -> Result<Box<dyn Inspect>, Failure> {
        match self.shared()? {
            Some(settings) => connect(&settings, Box::new(self.spool_created()?)),
            None => Ok(Box::new(create(&self.directory()?)?)),
        }
    }

    /// How the limits are shared; `None` if they are not, or the own database is wanted.
    pub(in crate::cli) fn shared(&self) -> Result<Option<ClusterSettings>, Failure> {
        if self.local {
            return Ok(None);
        }
        match ClusterSettings::of(&self.directory()?) {
            Ok((_, settings)) => Ok(settings),
            // Without the directory there is no database: opening it says so.
            Err(_) if self.spool_is_absent()? => Ok(None),
            Err(failure) => Err(failure.into()),
        }
    }

    /// Commands for people about the same rates.
    pub(in crate::cli) fn commands(&self) -> Commands {
        Commands { local: self.local, ..self.common.commands() }
    }

    fn spool_is_absent(&self) -> Result<bool, Failure> {
        let required = Spool::require(&self.directory()?);
        Ok(matches!(required, Err(SpoolError::Absent { .. })))
    }

    /// The own database of a server that shares its limits, for the log of changes: created
    /// where no check has created it yet.
    fn spool_created(&self) -> Result<Spool, Failure> {
        match self.spool_is_absent()? {
            true => Ok(Spool::open(&self.directory()?, Options::default())?),
            false => self.spool_to_change(),
        }
    }
}

/// Connects to the shared rates, with the configuration of the agent.
pub(in crate::cli) fn connect(
    settings: &ClusterSettings,
    local: Box<dyn Inspect>,
) -> Result<Box<dyn Inspect>, Failure> {
    let failed =
        |why: String| Failure::new(format!("{why}; --local uses the copies that this server has"));
    servers::rates(settings, local).map_err(failed)
}
