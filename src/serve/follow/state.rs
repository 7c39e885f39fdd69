//! What the follower remembers besides what it has counted, and shows to others.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

const NAME: &str = "state.json";

/// The state of the follower. Times are seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// When it began: failures before are not counted.
    pub began: i64,
    /// From when on the log is needed: messages since then may be in the queue.
    pub from: i64,
    /// Until when the log has been read.
    pub read: i64,
    /// What is followed.
    pub log: String,
    /// How many failed recipients were counted in the last days.
    pub counted: u64,
    /// Why it cannot go on, if it cannot.
    pub error: Option<String>,
}

impl State {
    /// That in a directory, if there is one.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(directory: &Path) -> io::Result<Option<Self>> {
        match fs::read(directory.join(NAME)) {
            // One that is damaged is as none: the log is read from the start.
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn write(&self, directory: &Path) -> io::Result<()> {
        let new = directory.join("state.new");
        fs::write(&new, serde_json::to_vec(self)?)?;
        fs::rename(&new, directory.join(NAME))
    }
}
