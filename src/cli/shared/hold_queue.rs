//! The queue of the mail server, as far as policies hold messages in it.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;

use super::administrator::AuditLog;
use super::keys::{Narrow, Selection};
use super::screen::{Screen, complain};
use crate::cli::Failure;
use crate::identity::fold::Folding;
use crate::mta::ServerKind;
use crate::mta::held::queue;
use crate::spool::habits::habits_key;
use crate::spool::{Options, Spool, SpoolError};
use crate::standing::held::{self, Dealt, Deed, Held, HeldMessage, HoldQueue};
use crate::standing::key_text;
use crate::text::printable;

/// Where the messages are.
#[derive(Debug, Default, Args)]
pub(in crate::cli) struct QueueOptions {
    /// Use the queue of this one of several mail servers
    #[arg(long, value_enum, value_name = "NAME")]
    server: Option<ServerKind>,

    /// Use the queue of this Exim
    #[arg(long, value_name = "PROGRAM")]
    exim: Option<PathBuf>,

    /// Have Exim read this configuration file, not the usual one
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl QueueOptions {
    /// The queue, with what was noted in the database of this spool directory.
    pub(in crate::cli) fn queue(&self, spool: &Path) -> Result<Box<dyn HoldQueue>, String> {
        let notes = || match Spool::open_existing(spool, Options::default()) {
            Ok(mut spool) => spool.held_notes().map_err(|error| error.to_string()),
            Err(SpoolError::Absent { .. }) => Ok(Vec::new()),
            Err(error) => Err(error.to_string()),
        };
        queue(self.server, self.exim.as_deref(), self.config.as_deref(), notes)
    }

    /// What policies hold in it.
    pub(in crate::cli) fn held(&self, spool: &Path) -> Result<HeldMail, String> {
        let queue = self.queue(spool)?;
        let Held { messages, unread } = queue.held()?;
        Ok(HeldMail { queue, messages, unread })
    }
}

/// What policies hold in a queue.
pub(in crate::cli) struct HeldMail {
    queue: Box<dyn HoldQueue>,
    pub(in crate::cli) messages: Vec<HeldMessage>,
    /// What could not be read.
    pub(in crate::cli) unread: Vec<String>,
}

impl HeldMail {
    /// That of this machine, where there is one mail server whose queue this user may read.
    pub(in crate::cli) fn if_readable(spool: &Path) -> Option<Self> {
        QueueOptions::default().held(spool).ok().filter(|held| held.unread.is_empty())
    }

    /// Those of the messages that `keys` name; `exact` takes them literally.
    pub(in crate::cli) fn of_keys(
        &self,
        keys: &[OsString],
        exact: bool,
        folding: &Folding,
    ) -> Result<Vec<&HeldMessage>, Failure> {
        let mut selection = Selection::new(keys, &Narrow::unselective(exact), folding)?;
        let is_of_them = |message: &&HeldMessage| {
            let mut name = Vec::new();
            selection.contains(&habits_key(&message.key, &mut name))
        };
        Ok(self.messages.iter().filter(is_of_them).collect())
    }

    /// As [`deal`].
    pub(in crate::cli) fn deal<'m>(
        &self,
        deed: Deed,
        messages: &[&'m HeldMessage],
        spool: Option<&mut Spool>,
        log: &mut AuditLog,
    ) -> Dealt<'m> {
        deal(&*self.queue, deed, messages, spool, log)
    }
}

/// Does it with these messages; what fails is reported.
pub(in crate::cli) fn deal<'m>(
    queue: &dyn HoldQueue,
    deed: Deed,
    messages: &[&'m HeldMessage],
    spool: Option<&mut Spool>,
    log: &mut AuditLog,
) -> Dealt<'m> {
    let dealt = log.with(|by| deed.with(queue, messages, spool, by));
    for (message, why) in &dealt.failed {
        let (id, done) = (printable(message.id.as_bytes()), deed.done());
        complain(format_args!("{id} was not {done}: {}", printable(why.as_bytes())));
    }
    dealt
}

/// Prints, of each key, how many of these messages are held, and how they are released.
pub(in crate::cli) fn print(
    screen: &mut Screen<'_>,
    messages: &[&HeldMessage],
    command: impl Fn(&str, &str) -> String,
) -> Result<(), Failure> {
    let mut messages = messages.to_vec();
    messages.sort_by(|a, b| a.key.cmp(&b.key));
    for of_key in messages.chunk_by(|a, b| a.key == b.key) {
        let key = of_key.first().map_or_else(String::new, |one| key_text::key(&one.key));
        let Some(sentence) = held::sentence(of_key, &key) else { continue };
        let (look, release) = (command("held", &key), command("held release", &key));
        writeln!(screen, "{sentence}: see `{look}`; `{release}` has them delivered")?;
    }
    Ok(())
}
