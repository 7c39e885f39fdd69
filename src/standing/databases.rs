//! The two stores below the spool directory, opened together, read and locked; and why they cannot be.

use std::ffi::CStr;
use std::path::Path;
use std::time::Duration;

use crate::cluster::SettingsError;
use crate::policy::image::ImageError;
use crate::spool::{FILE_MODE, Options, Spool, SpoolError, open_directory};
use crate::store::{Entry, Inspect, InspectError};
use crate::sys::files;
use crate::sys::lock::{self, Guard, LockKind};
use crate::sys::secure_dir::DirError;
use crate::text::{self, Voice};
use crate::trace::{Access, TraceError, TraceStore};

/// Refuses a user who would leave files that Exim cannot write to.
pub(crate) fn require_owner(spool: &Path) -> Result<(), StandingError> {
    let me = rustix::process::geteuid();
    match files::info_of(spool) {
        Ok(info) if !me.is_root() && info.uid != me.as_raw() => Err(StandingError::Unfit(format!(
            "{} belongs to user {}, and this is user {}: run exirate as root, or as that user",
            spool.display(),
            info.uid,
            me.as_raw()
        ))),
        _ => Ok(()),
    }
}

/// Runs `work` while this file of the database's directory is locked; `None` if another
/// process has kept it locked for all of `timeout`.
pub(crate) fn exclusively<T, E: From<SpoolError>>(
    spool: &Path,
    lock: &CStr,
    timeout: Duration,
    work: impl FnOnce() -> Result<T, E>,
) -> Result<Option<T>, E> {
    let dir = open_directory(spool, true).map_err(SpoolError::from)?;
    let file = dir.open_or_create(lock, FILE_MODE).map_err(SpoolError::from)?;
    let guard: Option<Guard<'_>> = lock::lock(&file, LockKind::Exclusive, timeout)
        .map_err(|error| SpoolError::from(dir.failed("lock", lock)(error)))?;
    guard.map(|_guard| work()).transpose()
}

/// Both stores, open.
pub(crate) struct Both {
    /// The rate database, if there is one.
    pub(crate) rates: Option<Spool>,
    /// The trace store, if there is one.
    pub(crate) traces: Option<TraceStore>,
}

impl Both {
    /// Opens what exists, for reading only. Notes that there is no rate database
    /// if there is a trace store.
    ///
    /// # Errors
    /// Neither exists, or one cannot be read.
    pub(crate) fn open(directory: &Path, voice: &dyn Voice) -> Result<Self, StandingError> {
        Self::open_for(directory, Access::Read, voice)
    }

    /// Opens what exists, for changing it; else as [`Both::open`].
    pub(crate) fn open_to_change(
        directory: &Path,
        voice: &dyn Voice,
    ) -> Result<Self, StandingError> {
        require_owner(directory)?;
        let mut both = Self::open_for(directory, Access::Write, voice)?;
        both.rates.iter_mut().for_each(|spool| voice.notes(&spool.take_incidents()));
        Ok(both)
    }

    fn open_for(
        directory: &Path,
        access: Access,
        voice: &dyn Voice,
    ) -> Result<Self, StandingError> {
        let traces = TraceStore::open_if_any(directory, access)?;
        let opened = match access {
            Access::Read => Spool::open_existing(directory, Options::default()),
            Access::Write => Spool::open_to_change(directory, Options::default()),
        };
        let rates = match opened {
            Ok(spool) => Some(spool),
            Err(error @ SpoolError::Absent { .. }) if traces.is_some() => {
                voice.note(format_args!("{error}"));
                None
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Self { rates, traces })
    }
}

/// Calls `visit` with every record that can be read, and says what cannot. Returns how many shards
/// could not be read.
///
/// # Errors
/// The database cannot be read.
pub(crate) fn visit(
    store: &mut dyn Inspect,
    voice: &dyn Voice,
    mut visit: impl FnMut(Entry),
) -> Result<usize, InspectError> {
    let mut tally = voice.tally("keys read");
    let unread = store.for_each(&mut |entry| {
        tally();
        visit(entry);
    })?;
    drop(tally);
    voice.complaints(&unread.parts);
    if unread.damaged > 0 {
        let damaged = text::counted(unread.damaged, "damaged record", "damaged records");
        voice.note(format_args!("left out {damaged} in {}", store.location()));
    }
    Ok(unread.parts.len())
}

/// Why what is stored cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StandingError {
    /// The rate database, or a file beside it.
    #[error("{0}")]
    Spool(#[from] SpoolError),
    /// The rates, of this server or those that several share.
    #[error("{0}")]
    Inspect(#[from] InspectError),
    /// The policies in use.
    #[error("{0}")]
    Image(#[from] ImageError),
    /// Whether limits are shared.
    #[error("{0}")]
    Settings(#[from] SettingsError),
    /// The trace store.
    #[error("{0}")]
    Trace(#[from] TraceError),
    /// Something else, in words.
    #[error("{0}")]
    Unfit(String),
}

impl From<DirError> for StandingError {
    fn from(error: DirError) -> Self {
        Self::Spool(error.into())
    }
}
