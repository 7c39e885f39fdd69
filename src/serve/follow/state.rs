//! What the follower remembers besides what it has counted, and shows to others.

use std::ffi::CStr;
use std::io;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::folder::Folder;
use crate::text;

const POSITION: (&CStr, &CStr) = (c"position.json", c"position.new");
const STATE: (&CStr, &CStr) = (c"state.json", c"state.new");

/// Which part of the log is needed. Times are seconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Position {
    /// When it began: failures before are not counted.
    pub(super) began: i64,
    /// From when on the log is needed: messages since then may be in the queue.
    pub(super) from: i64,
}

impl Position {
    /// That in a directory. One that is damaged is as none: the follower begins again, and what
    /// has been entered in the ledger is not counted twice.
    pub(super) fn read(directory: &Path) -> io::Result<Option<Self>> {
        read(directory, POSITION.0)
    }

    /// Writes it, to stay there if the machine stops.
    pub(super) fn write(&self, directory: &Path) -> io::Result<()> {
        let json = text::json(self)?;
        Folder::open(directory)?.replace(POSITION.0, POSITION.1, json.as_bytes(), true)
    }
}

/// A follower that has said nothing for so long, in seconds, does not run: it does each five
/// seconds, whether anything is logged or not.
const SILENT: i64 = 60;

/// What others see of the follower. Times are seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FollowerState {
    /// When it wrote this.
    pub alive: i64,
    /// Until when the log has been read.
    pub read: i64,
    /// What is followed.
    pub log: String,
    /// Whether syslog writes it, to which any local user can write.
    pub is_of_syslog: bool,
    /// How many failed recipients were counted in the last days.
    pub counted: u64,
    /// How many were counted on the day that began at `day`.
    pub today: u64,
    /// The last midnight in UTC.
    pub day: i64,
    /// Messages in the queue that were forgotten, as there were too many.
    pub forgotten: u64,
    /// Failed recipients whose login the log does not show.
    pub without_login: u64,
    /// Why it cannot go on, if it cannot.
    pub error: Option<String>,
}

impl FollowerState {
    /// Whether a follower that wrote its state at `alive` runs.
    #[must_use]
    pub fn runs(alive: i64, now: i64) -> bool {
        now.saturating_sub(alive) <= SILENT
    }

    /// That in a directory, if there is one that can be used.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(directory: &Path) -> io::Result<Option<Self>> {
        match read(directory, STATE.0) {
            // The follower has never run.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            read => read,
        }
    }

    pub(super) fn write(&self, directory: &Path) -> io::Result<()> {
        let json = text::json(self)?;
        Folder::open(directory)?.replace(STATE.0, STATE.1, json.as_bytes(), false)
    }
}

fn read<T: DeserializeOwned>(directory: &Path, name: &CStr) -> io::Result<Option<T>> {
    let bytes = Folder::open(directory)?.read(name)?;
    Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
}
