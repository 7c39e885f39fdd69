//! Recognises the probe of `exirate setup`: an SMTP session on the loopback address that
//! shows whether the policies are evaluated, counts nothing and delivers nothing.
//!
//! `setup` writes a random secret to a file in the directory of the database, which only
//! root and the owner of that directory can read, and names it in EHLO. A step of a session
//! that names it is not evaluated: the verdict is fixed, and shows the stage in the reply.
//! None of these verdicts lets a message or a login through, so whoever learns a secret
//! (the mail server may log the name) can do nothing with it. It holds for a minute at most.
//!
//! Steps whose name in EHLO does not look so, and those of other clients, cost a comparison.

use std::fs::File;
use std::hint::black_box;
use std::io;
use std::path::{Path, PathBuf};

use rand::TryRng as _;
use rand::rngs::SysRng;

use super::outcome::Outcome;
use super::word::Verdict;
use crate::event::{AclStage, Event};
use crate::spool;
use crate::sys::files::{self, Access};
use crate::sys::secure_dir::{DirError, SecureDir};

/// The file, in the directory of the database.
const FILE: &std::ffi::CStr = c"probe";
/// Only its owner, that of the database, may read it.
const MODE: u32 = 0o600;
/// The first line of the file.
const FIRST: &str = "exirate probe 1";
/// How long a secret holds, in seconds.
const LONGEST: i64 = 60;
/// How many digits a secret has.
const DIGITS: usize = 32;
/// The start and the end of the name in EHLO. Around the part: `exirate-probe-rcpt-SECRET.invalid`.
const START: &str = "exirate-probe-";
const END: &str = ".invalid";
/// In place of the name of a policy, for logs.
pub(super) const POLICY: &str = "exirate-probe";

/// What a part of the session is to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// That policies are evaluated at RCPT: each recipient is refused.
    Rcpt,
    /// That they are evaluated when the message has been received: it is refused then, and
    /// held if it is not.
    Data,
}

impl Part {
    const ALL: [Self; 2] = [Self::Rcpt, Self::Data];

    fn word(self) -> &'static str {
        match self {
            Self::Rcpt => "rcpt-",
            Self::Data => "data-",
        }
    }
}

/// A secret that is in force until it is dropped.
#[derive(Debug)]
pub struct Ticket {
    secret: String,
    directory: SecureDir,
}

impl Ticket {
    /// A new one for the mail server that decides with the database in `spool`, from `now`
    /// on, in seconds since 1970. It replaces another one.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn issue(spool: &Path, now: i64) -> Result<Self, DirError> {
        let directory = spool::open_directory(spool, true)?;
        let mut secret = [0; DIGITS / 2];
        let random = SysRng.try_fill_bytes(&mut secret).map_err(io::Error::other);
        random.map_err(directory.failed("draw a secret for", FILE))?;
        let secret: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        let text = format!("{FIRST}\nsecret {secret}\nuntil {}\n", now.saturating_add(LONGEST));
        let file = directory.create_file(FILE, MODE)?;
        let ticket = Self { secret, directory };
        let written = files::write_start(&file, text.as_bytes());
        written.map_err(ticket.directory.failed("write", FILE))?;
        Ok(ticket)
    }

    /// The name for EHLO.
    #[must_use]
    pub fn helo(&self, part: Part) -> String {
        format!("{START}{}{}{END}", part.word(), self.secret)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // If it cannot be removed, it ends by itself.
        let _ = files::remove_at(self.directory.directory(), FILE);
    }
}

/// What the reply shows of a stage.
#[must_use]
pub fn text(stage: AclStage) -> &'static str {
    match stage {
        AclStage::Auth => "exirate probe: AUTH",
        AclStage::Rcpt => "exirate probe: RCPT",
        AclStage::Data => "exirate probe: DATA",
        _ => "exirate probe",
    }
}

/// Recognises the probe where the policies of a spool directory are in use.
#[derive(Debug)]
pub(super) struct Probes {
    spool: PathBuf,
}

impl Probes {
    pub(super) fn of(spool: &Path) -> Self {
        Self { spool: spool.to_owned() }
    }

    /// What is to be done about an event of the probe; `None` if it is not one.
    #[inline]
    pub(super) fn outcome(
        &self,
        stage: AclStage,
        event: &Event<&str>,
        now: impl FnOnce() -> i64,
    ) -> Option<Outcome> {
        let said = event.helo?.strip_prefix(START)?;
        self.of_probe(said, stage, event, now)
    }

    #[cold]
    fn of_probe(
        &self,
        said: &str,
        stage: AclStage,
        event: &Event<&str>,
        now: impl FnOnce() -> i64,
    ) -> Option<Outcome> {
        if !event.client.address()?.to_canonical().is_loopback() {
            return None;
        }
        let said = said.strip_suffix(END)?;
        let named = |part: &Part| said.strip_prefix(part.word()).map(|secret| (*part, secret));
        let (part, secret) = Part::ALL.iter().find_map(named)?;
        let known = in_force(&self.spool, now())?;
        is_same(secret.as_bytes(), known.as_bytes()).then(|| outcome(part, stage))
    }
}

/// The verdict. No message and no login goes through, whatever the front end evaluates.
fn outcome(part: Part, stage: AclStage) -> Outcome {
    let verdict = match (stage, part) {
        (AclStage::Auth | AclStage::Data, _) | (AclStage::Rcpt, Part::Rcpt) => Verdict::Reject,
        (AclStage::Rcpt | AclStage::Predata | AclStage::Mime | AclStage::Prdr, _) => Verdict::Hold,
        _ => Verdict::Accept,
    };
    let text = if verdict == Verdict::Accept { "" } else { text(stage) };
    Outcome { verdict, measured: verdict, text: text.to_owned(), ..Outcome::default() }
}

/// The secret that is in force in a spool directory. A file that others could have written or
/// read, or that has ended, has none.
fn in_force(spool: &Path, now: i64) -> Option<String> {
    let directory = spool::open_directory(spool, false).ok()?;
    let (file, info) = directory.open_file(Access::Read, FILE).ok()??;
    if info.mode & 0o7777 != MODE || info.links != 1 {
        return None;
    }
    let (secret, until) = read(&file)?;
    (now..now.saturating_add(LONGEST + 1)).contains(&until).then_some(secret)
}

/// What the file says.
fn read(file: &File) -> Option<(String, i64)> {
    let mut bytes = [0; 128];
    let length = files::read_at(file, 0, &mut bytes).ok()?;
    let text = std::str::from_utf8(bytes.get(..length)?).ok()?;
    let mut lines = text.strip_suffix('\n')?.split('\n');
    if lines.next() != Some(FIRST) {
        return None;
    }
    let secret = lines.next()?.strip_prefix("secret ")?;
    let until = lines.next()?.strip_prefix("until ")?.parse().ok()?;
    let is_whole = lines.next().is_none() && secret.len() == DIGITS;
    is_whole.then(|| (secret.to_owned(), until))
}

/// Whether both are the same, in a time that does not depend on where they differ.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len()
        && black_box(one.iter().zip(other).fold(0, |differs, (a, b)| differs | (a ^ b))) == 0
}

#[cfg(test)]
#[cfg(feature = "cli")]
mod tests;
