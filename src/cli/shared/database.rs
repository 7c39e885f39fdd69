//! The two stores below the spool directory: the rate database, which most
//! commands are about, and the trace store.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use indicatif::ProgressBar;

use super::screen::{Tally, complain, note, progress};
use super::spool_dir;
use crate::cli::Failure;
use crate::identity::fold::Folding;
use crate::policy::image::PolicyFile;
use crate::spool::{self, Options, Spool, SpoolError};
use crate::store::{Entry, Inspect};
use crate::sys::files;
use crate::sys::lock::{self, Guard, LockKind};
use crate::text;
use crate::trace::{self, TraceError, TraceStore, trace_directory};

/// The options of every command that uses a store.
#[derive(Clone, Debug, Args)]
pub(in crate::cli) struct Common {
    /// Use this spool directory of Exim; the database is DIR/exirate
    ///
    /// The default is what `exim -bP spool_directory` prints.
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub(in crate::cli) spool: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub(in crate::cli) json: bool,
}

impl Common {
    /// The spool directory.
    pub(in crate::cli) fn directory(&self) -> Result<PathBuf, Failure> {
        spool_dir::find(self.spool.as_deref())
    }

    /// How the policies in use fold identities; where there are none, the default.
    pub(in crate::cli) fn folding(&self) -> Result<Folding, Failure> {
        let folding = PolicyFile::open(&self.directory()?).folding();
        Ok(folding.unwrap_or_else(|error| {
            note(format_args!("identities are folded as without policies: {error}"));
            Folding::default()
        }))
    }

    /// A command for people that uses the same database: `words`, such as `held`, KEY as it is
    /// shown, and further options.
    pub(in crate::cli) fn command(&self, words: &str, key: &str, options: &str) -> String {
        let mut options = options.to_owned();
        if let Some(directory) = &self.spool {
            options += &format!(" --spool {}", text::shell(&directory.display().to_string()));
        }
        let shown = text::shell(key);
        match key.starts_with('-') {
            false => format!("exirate {words} {shown}{options}"),
            true if words.contains(" --") => format!("exirate {words}={shown}{options}"),
            true => format!("exirate {words}{options} -- {shown}"),
        }
    }

    /// Opens the database for reading only; it must exist.
    pub(in crate::cli) fn spool(&self) -> Result<Spool, Failure> {
        Ok(Spool::open_existing(&self.directory()?, Options::default())?)
    }

    /// As [`Common::spool`]; `None` if there is no database yet.
    pub(in crate::cli) fn spool_if_any(&self) -> Result<Option<Spool>, Failure> {
        match Spool::open_existing(&self.directory()?, Options::default()) {
            Ok(spool) => Ok(Some(spool)),
            Err(SpoolError::Absent { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// As [`Spool::open_to_change`]. Prints what opening it has repaired.
    pub(in crate::cli) fn spool_to_change(&self) -> Result<Spool, Failure> {
        let mut spool = Spool::open_to_change(&self.directory()?, Options::default())?;
        print_incidents(&mut spool);
        Ok(spool)
    }

    /// Opens the trace store for reading only; it must exist.
    pub(in crate::cli) fn open_traces(&self) -> Result<TraceStore, Failure> {
        Ok(TraceStore::open(&trace_directory(&self.directory()?), trace::Access::Read)?)
    }
}

/// Refuses a user who would leave files that Exim cannot write to.
pub(in crate::cli) fn require_owner(spool: &Path) -> Result<(), Failure> {
    let me = rustix::process::geteuid();
    match files::info_of(spool) {
        Ok(info) if !me.is_root() && info.uid != me.as_raw() => Err(Failure::new(format!(
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
pub(in crate::cli) fn exclusively<T>(
    spool: &Path,
    lock: &CStr,
    timeout: Duration,
    work: impl FnOnce() -> Result<T, Failure>,
) -> Result<Option<T>, Failure> {
    let dir = spool::open_directory(spool, true).map_err(SpoolError::from)?;
    let file = dir.open_or_create(lock, spool::FILE_MODE).map_err(SpoolError::from)?;
    let guard: Option<Guard<'_>> = lock::lock(&file, LockKind::Exclusive, timeout)
        .map_err(|error| SpoolError::from(dir.failed("lock", lock)(error)))?;
    guard.map(|_guard| work()).transpose()
}

/// Both stores, open.
pub(in crate::cli) struct Both {
    /// The rate database, if there is one.
    pub(in crate::cli) rates: Option<Spool>,
    /// The trace store, if there is one.
    pub(in crate::cli) traces: Option<TraceStore>,
}

impl Both {
    /// Opens what exists, for reading only. Notes that there is no rate database
    /// if there is a trace store.
    ///
    /// # Errors
    /// Neither exists, or one cannot be read.
    pub(in crate::cli) fn open(directory: &Path) -> Result<Self, Failure> {
        Self::open_for(directory, trace::Access::Read)
    }

    /// Opens what exists, for changing it; else as [`Both::open`].
    pub(in crate::cli) fn open_to_change(directory: &Path) -> Result<Self, Failure> {
        require_owner(directory)?;
        let mut both = Self::open_for(directory, trace::Access::Write)?;
        both.rates.iter_mut().for_each(|spool| print_incidents(spool));
        Ok(both)
    }

    fn open_for(directory: &Path, access: trace::Access) -> Result<Self, Failure> {
        let traces = open_traces(directory, access)?;
        let opened = match access {
            trace::Access::Read => Spool::open_existing(directory, Options::default()),
            trace::Access::Write => Spool::open_to_change(directory, Options::default()),
        };
        let rates = match opened {
            Ok(spool) => Some(spool),
            Err(error @ SpoolError::Absent { .. }) if traces.is_some() => {
                note(error);
                None
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Self { rates, traces })
    }
}

/// Opens the trace store, if there is one.
///
/// # Errors
/// It cannot be used.
pub(in crate::cli) fn open_traces(
    directory: &Path,
    access: trace::Access,
) -> Result<Option<TraceStore>, Failure> {
    let directory = trace_directory(directory);
    // Read first: opening it for writing would create it.
    match TraceStore::open(&directory, trace::Access::Read) {
        Ok(store) if access == trace::Access::Read => Ok(Some(store)),
        Ok(_) => Ok(Some(TraceStore::open(&directory, access)?)),
        Err(TraceError::Absent { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// A progress bar for work whose extent is known once it has begun.
pub(in crate::cli) fn bar(what: &'static str) -> impl FnMut(u64, u64) {
    let mut bar: Option<ProgressBar> = None;
    move |done, of| bar.get_or_insert_with(|| progress(of, what)).set_position(done)
}

/// Calls `visit` with every record that can be read, and prints what cannot.
/// Returns how many shards could not be read: see [`incomplete`].
pub(in crate::cli) fn visit(
    store: &mut dyn Inspect,
    mut visit: impl FnMut(Entry),
) -> Result<usize, Failure> {
    let mut tally = Tally::of("keys read");
    let unread = store.for_each(&mut |entry| {
        tally.add();
        visit(entry);
    })?;
    drop(tally);
    unread.parts.iter().for_each(complain);
    if unread.damaged > 0 {
        let damaged = text::counted(unread.damaged, "damaged record", "damaged records");
        note(format_args!("left out {damaged} in {}", store.location()));
    }
    Ok(unread.parts.len())
}

/// Prints what the database has repaired while it was used.
pub(in crate::cli) fn print_incidents(store: &mut dyn Inspect) {
    store.take_incidents().iter().for_each(note);
}

/// An error if parts of the store could not be read, shards or nodes: for the end, after what
/// could be read has been printed.
pub(in crate::cli) fn incomplete(unread: usize) -> Result<(), Failure> {
    match unread {
        0 => Ok(()),
        _ => Err(Failure::new(format!("the output is incomplete: {} not be read", parts(unread)))),
    }
}

/// `2 parts of the rates could`, which were named before.
pub(in crate::cli) fn parts(unread: usize) -> String {
    text::counted(unread, "part of the rates could", "parts of the rates could")
}

/// Prints which files could not be read, or not all of them. An error if there are
/// any: for the end, after what could be read has been printed.
pub(in crate::cli) fn traces_incomplete(damaged: &[trace::Problem]) -> Result<(), Failure> {
    damaged.iter().for_each(complain);
    let files: BTreeSet<&Path> = damaged.iter().map(|problem| problem.path.as_path()).collect();
    match files.len() {
        0 => Ok(()),
        count => Err(Failure::new(format!(
            "the result is incomplete: {} of the store could not be read, or not all of it; see \
             `exirate verify`",
            text::counted(count as u64, "file", "files")
        ))),
    }
}
