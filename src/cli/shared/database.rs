//! The two stores below the spool directory: the rate database, which most
//! commands are about, and the trace store.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;

use super::screen::{complain, note};
use super::spool_dir;
use crate::cli::Failure;
use crate::identity::fold::Folding;
use crate::policy::image::PolicyFile;
use crate::spool::{Options, Spool, SpoolError};
use crate::standing::commands::Commands;
use crate::store::Inspect;
use crate::text;
use crate::trace::{self, TraceStore, trace_directory};

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

    /// Commands for people about the same database.
    pub(in crate::cli) fn commands(&self) -> Commands {
        Commands { spool: self.spool.clone(), local: false }
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
