//! The rates that are shown and changed: those that servers share, if this one shares its limits,
//! or those of its own database.

use std::path::Path;

use super::config;
use crate::cluster::ClusterSettings;
use crate::redis::SharedRates;
use crate::spool::{Options, Spool, open_directory};
use crate::store::Inspect;

/// What the rates are opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::serve) enum Purpose {
    /// To look.
    Read,
    /// To change them.
    Change,
}

/// Opens the rates of the spool directory `spool`, which has a database.
///
/// # Errors
/// They cannot be used, in words.
pub(in crate::serve) fn open(spool: &Path, purpose: Purpose) -> Result<Box<dyn Inspect>, String> {
    let directory = open_directory(spool, false).map_err(|error| error.to_string())?;
    let settings = ClusterSettings::read(&directory).map_err(|error| error.to_string())?;
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
    let redis = config.redis;
    let shared = match purpose {
        Purpose::Read => SharedRates::look(&redis, Box::new(own)),
        Purpose::Change => SharedRates::connect(&redis, Box::new(own)),
    };
    let shared =
        shared.map_err(|error| format!("the shared rates at {redis} cannot be used: {error}"))?;
    Ok(Box::new(shared))
}

/// Opens this server's own database.
///
/// # Errors
/// It cannot be used, in words.
pub(in crate::serve) fn own(spool: &Path, purpose: Purpose) -> Result<Spool, String> {
    let opened = match purpose {
        Purpose::Read => Spool::open_existing(spool, Options::default()),
        Purpose::Change => {
            Spool::require(spool).and_then(|_| Spool::open(spool, Options::default()))
        }
    };
    opened.map_err(|error| error.to_string())
}
