//! The trace store that the commands look into.

use std::path::PathBuf;

use clap::Args;
use indicatif::ProgressBar;

use super::super::screen::{complain, note, progress};
use super::super::{Failure, spool_dir};
use crate::sys::files;
use crate::trace::{Access, Problem, TraceError, TraceStore, trace_directory};

/// What every command that uses the trace store understands.
#[derive(Debug, Args)]
pub(super) struct Common {
    /// Exim's spool directory; the trace store is DIR/exirate/trace
    ///
    /// The default is what `exim -bP spool_directory` prints.
    #[arg(long, value_name = "DIR")]
    spool: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

impl Common {
    /// The store's directory.
    fn directory(&self) -> Result<PathBuf, Failure> {
        Ok(trace_directory(&spool_dir::find(self.spool.as_deref())?))
    }

    /// Opens the store for reading only; it must be there.
    pub(super) fn open(&self) -> Result<TraceStore, Failure> {
        Ok(TraceStore::open(&self.directory()?, Access::Read)?)
    }

    /// Opens the store for reading only. Where there is none yet, which is as
    /// good as an empty one, says so in a note and gives `None`.
    pub(super) fn open_if_there(&self) -> Result<Option<TraceStore>, Failure> {
        let directory = self.directory()?;
        match TraceStore::open(&directory, Access::Read) {
            Ok(trace) => Ok(Some(trace)),
            Err(error @ TraceError::Absent { .. }) => {
                note(error);
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Opens the store for changing it; it must be there.
    pub(super) fn open_to_change(&self) -> Result<TraceStore, Failure> {
        let directory = self.directory()?;
        self.require_right()?;
        // A command that changes what is there makes nothing that is not.
        TraceStore::open(&directory, Access::Read)?;
        Ok(TraceStore::open(&directory, Access::Write)?)
    }

    /// Opens the store for recording; makes one where there is none.
    pub(super) fn open_or_make(&self) -> Result<TraceStore, Failure> {
        let directory = self.directory()?;
        self.require_right()?;
        if let Err(TraceError::NoKey { path }) = TraceStore::open(&directory, Access::Read) {
            note(format_args!(
                "{} is missing, and a new key is created: earlier messages cannot be queried unless \
                 that file is put back",
                path.display()
            ));
        }
        Ok(TraceStore::open(&directory, Access::Write)?)
    }

    /// Refuses whoever would leave files that Exim cannot write to.
    fn require_right(&self) -> Result<(), Failure> {
        let spool = spool_dir::find(self.spool.as_deref())?;
        let me = rustix::process::geteuid();
        match files::info_of(&spool) {
            Ok(facts) if !me.is_root() && facts.uid != me.as_raw() => Err(Failure::new(format!(
                "{} belongs to user {}, and this is user {}: run exirate as root, or as that user",
                spool.display(),
                facts.uid,
                me.as_raw()
            ))),
            _ => Ok(()),
        }
    }
}

/// A progress bar that begins once it is known how much there is to do, named
/// `what`.
pub(super) fn bar(what: &'static str) -> impl FnMut(u64, u64) {
    let mut bar: Option<ProgressBar> = None;
    move |done, of| bar.get_or_insert_with(|| progress(of, what)).set_position(done)
}

/// Tells what the store has found or mended by the way.
pub(super) fn tell_incidents(store: &mut TraceStore) {
    store.take_incidents().iter().for_each(note);
}

/// Says which files could not be read, or not all of them; an error if there
/// are any: for the end, after what could be read has been written.
pub(super) fn incomplete(damaged: &[Problem]) -> Result<(), Failure> {
    damaged.iter().for_each(complain);
    match damaged.len() {
        0 => Ok(()),
        count => Err(Failure::new(format!(
            "the result is incomplete: {count} file(s) of the store could not be read; see \
             `exirate trace verify`"
        ))),
    }
}
