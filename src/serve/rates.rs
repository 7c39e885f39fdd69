//! The rates that are shown and changed: those that servers share, if this one shares its limits,
//! or those of its own database.

use std::path::Path;

use rustix::fs::{Access, access};
use rustix::io::Errno;

use super::config::{self, Config};
use crate::cluster::ClusterSettings;
use crate::place;
use crate::redis::SharedRates;
use crate::spool::{Options, Spool};
use crate::store::Inspect;

/// What the rates are opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::serve) enum Purpose {
    /// To look.
    Read,
    /// To change them.
    Change,
}

/// Refuses a daemon that runs as a user who cannot use the database: it would run, and do nothing.
/// `unit` is the name of its template.
///
/// # Errors
/// Whose it is, and how to start it.
pub(in crate::serve) fn may_use(spool: &Path, purpose: Purpose, unit: &str) -> Result<(), String> {
    let wanted = match purpose {
        Purpose::Read => Access::READ_OK | Access::EXEC_OK,
        Purpose::Change => Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK,
    };
    let database = spool.join("exirate");
    let denied = match access(&database, wanted) {
        Err(Errno::ACCESS | Errno::PERM) => true,
        // A sandbox has only what its user may use: the file system is for reading.
        Err(Errno::ROFS) => purpose == Purpose::Change,
        _ => false,
    };
    if !denied {
        return Ok(());
    }
    let owner = place::owner_name(if database.exists() { &database } else { spool });
    Err(format!(
        "{} belongs to {owner}, and this user may not use it: run `systemctl enable --now \
         {unit}@{owner}`",
        database.display()
    ))
}

/// Opens the rates of the spool directory `spool`, which has a database.
///
/// # Errors
/// They cannot be used, in words.
pub(in crate::serve) fn open(spool: &Path, purpose: Purpose) -> Result<Box<dyn Inspect>, String> {
    let (_, settings) = ClusterSettings::of(spool).map_err(|error| error.to_string())?;
    let own = own(spool, purpose)?;
    let Some(settings) = settings else { return Ok(Box::new(own)) };
    let checked = match purpose {
        Purpose::Read => config::read_to_look(&settings.config)?,
        Purpose::Change => config::read(&settings.config)?,
    };
    let file = settings.config.display();
    let config = checked.config.ok_or_else(|| {
        format!("{file} has errors, or names a password that this user may not read")
    })?;
    shared(config, purpose, Box::new(own))
}

/// The rates that servers share, by the configuration of this one's agent; what is of one server
/// alone is in `local`.
///
/// # Errors
/// They cannot be used, in words.
pub(in crate::serve) fn shared(
    config: Config,
    purpose: Purpose,
    local: Box<dyn Inspect>,
) -> Result<Box<dyn Inspect>, String> {
    let (redis, server) = (config.redis, config.agent.server_name);
    let shared = match purpose {
        Purpose::Read => SharedRates::look(&redis, local),
        Purpose::Change => SharedRates::connect(&redis, local),
    };
    let shared =
        shared.map_err(|error| format!("the shared rates at {redis} cannot be used: {error}"))?;
    Ok(Box::new(shared.named(server)))
}

/// Whether this server shares its limits, as far as that can be read.
pub(in crate::serve) fn are_shared(spool: &Path) -> bool {
    matches!(ClusterSettings::of(spool), Ok((_, Some(_))))
}

/// Opens this server's own database.
///
/// # Errors
/// It cannot be used, in words.
pub(in crate::serve) fn own(spool: &Path, purpose: Purpose) -> Result<Spool, String> {
    let opened = match purpose {
        Purpose::Read => Spool::open_existing(spool, Options::default()),
        Purpose::Change => Spool::open_to_change(spool, Options::default()),
    };
    opened.map_err(|error| error.to_string())
}
