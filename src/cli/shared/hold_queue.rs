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
use crate::mta::held::{HeldMail, queue_of};
use crate::spool::Spool;
use crate::spool::habits::habits_key;
use crate::standing::held::{self, Dealt, Deed, HeldMessage, HoldQueue};
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
        queue_of(spool, self.server, self.exim.as_deref(), self.config.as_deref())
    }

    /// What policies hold in it.
    pub(in crate::cli) fn held(&self, spool: &Path) -> Result<HeldMail, String> {
        HeldMail::of(self.queue(spool)?)
    }
}

/// Those of the messages that `keys` name, first those that are held; `exact` takes them literally.
pub(in crate::cli) fn of_keys<'m>(
    mail: &'m HeldMail,
    keys: &[OsString],
    exact: bool,
    folding: &Folding,
) -> Result<Vec<&'m HeldMessage>, Failure> {
    let mut selection = Selection::new(keys, &Narrow::unselective(exact), folding)?;
    let is_of_them = |message: &&HeldMessage| {
        let mut name = Vec::new();
        selection.contains(&habits_key(&message.key, &mut name))
    };
    Ok(mail.messages.iter().chain(&mail.waiting).filter(is_of_them).collect())
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

/// Prints, of each key, how many of these messages are held, how many wait, and how they are released.
pub(in crate::cli) fn print(
    screen: &mut Screen<'_>,
    messages: &[&HeldMessage],
    command: impl Fn(&str, &str) -> String,
) -> Result<(), Failure> {
    let mut messages = messages.to_vec();
    messages.sort_by(|a, b| (&a.key, a.state).cmp(&(&b.key, b.state)));
    for of_key in messages.chunk_by(|a, b| a.key == b.key && a.state == b.state) {
        let key = of_key.first().map_or_else(String::new, |one| key_text::key(&one.key));
        let Some(sentence) = held::sentence(of_key, &key) else { continue };
        let (look, release) = (command("held", &key), command("held release", &key));
        writeln!(screen, "{sentence}: see `{look}`; `{release}` has them delivered")?;
    }
    Ok(())
}
