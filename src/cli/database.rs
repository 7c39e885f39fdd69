//! The database that the commands look into.

use clap::Args;

use super::screen::{Tally, complain, note};
use super::{Failure, spool_dir};
use crate::rate::Timestamp;
use crate::spool::{Entry, Options, Spool};
use crate::sys::clock;

/// What every command that uses the database understands.
#[derive(Debug, Args)]
pub(super) struct Common {
    /// Exim's spool directory; the database is DIR/exirate
    ///
    /// Without it, Exim is asked (`exim -bP spool_directory`).
    #[arg(long, value_name = "DIR")]
    pub(super) spool: Option<std::path::PathBuf>,

    /// Prints JSON
    #[arg(long)]
    pub(super) json: bool,
}

impl Common {
    /// Opens the database for reading only; it must be there.
    pub(super) fn open(&self) -> Result<Spool, Failure> {
        let dir = spool_dir::find(self.spool.as_deref())?;
        Ok(Spool::open_existing(&dir, Options::default())?)
    }

    /// Opens the database for changing it; it must be there. What the opening
    /// has mended is told.
    pub(super) fn open_to_change(&self) -> Result<Spool, Failure> {
        let dir = spool_dir::find(self.spool.as_deref())?;
        // A command that changes what is there makes nothing that is not.
        Spool::require(&dir)?;
        let mut spool = Spool::open(&dir, Options::default())?;
        tell_incidents(&mut spool);
        Ok(spool)
    }
}

/// Shows every record that can be read to `visit`, and complains about what
/// cannot. Gives how many shards could not be read: see [`incomplete`].
pub(super) fn visit(spool: &mut Spool, mut visit: impl FnMut(Entry)) -> Result<usize, Failure> {
    let mut tally = Tally::of("keys read");
    let left_out = spool.for_each(|entry| {
        tally.add();
        visit(entry);
    })?;
    drop(tally);
    for error in &left_out.shards {
        complain(error);
    }
    if left_out.damaged > 0 {
        note(format_args!(
            "left out {} damaged record(s) in {}",
            left_out.damaged,
            spool.directory().display()
        ));
    }
    Ok(left_out.shards.len())
}

/// Tells what the database has mended by the way.
pub(super) fn tell_incidents(spool: &mut Spool) {
    for incident in spool.take_incidents() {
        note(incident);
    }
}

/// An error if shards could not be read: for the end, after what could be read
/// has been written.
pub(super) fn incomplete(unread: usize) -> Result<(), Failure> {
    match unread {
        0 => Ok(()),
        _ => Err(Failure::new(format!(
            "the list is not complete: {unread} of the 256 shards could not be read"
        ))),
    }
}

/// The moment a command looks at the clock.
pub(super) fn now() -> Timestamp {
    clock::now().into()
}
