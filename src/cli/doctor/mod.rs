//! `exirate doctor`: whether everything is as it should be.
//!
//! It looks from the outside in, one file each: [`mailer`] at Exim, [`library`]
//! at the library and the lines that call it ([`calls`], [`image`]), [`directory`] at the
//! database's files ([`files`]), [`contents`] into them, [`trace`] at the trace
//! store, [`filesystem`] at what they lie
//! on, [`daemon`] and [`confinement`] at what Exim may do; [`probe`] has Exim
//! make a check. Each adds to the
//! [`finding::Findings`]. It changes nothing: what it tries, it tries with a
//! file of its own or with a call that Exim refuses.

mod calls;
mod confinement;
mod contents;
mod daemon;
mod directory;
mod files;
mod filesystem;
mod finding;
mod image;
mod library;
mod mailer;
mod people;
mod probe;
mod program;
mod trace;

use std::path::PathBuf;

use clap::Args;

use super::screen::Screen;
use super::{Failure, Outcome};
use finding::{Findings, Level};

/// Looks whether Exim, library and database are as they should be
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Is everything as it should be?
    exirate doctor
  Would it be with this configuration?
    exirate doctor --exim /usr/sbin/exim4 --config /etc/exim4/exim4.conf
  For scripts:
    exirate doctor --json | jq -r '.findings[] | .level + \": \" + .text'

Run it as root: others may not see all of Exim's configuration and files. It
looks at Exim and what it can load, at the lines of its configuration that call
exirate.so, at that library, at the database's files and what is in them, at the
trace store if there is one, at the file system, and at the limits of Exim's daemon. It changes nothing; each finding
says what would mend it, with the commands for that where there are some.

Exit status: 0 all is well, notes or not; 1 there are problems; 2 an error: it could
not look at everything.

JSON: `findings` is an array of objects with `about`, `level` (ok, note or
problem), `text` and `mend`, an array of commands for a shell; `complete` is false
where something could not be looked at.")]
pub(super) struct Doctor {
    /// Exim's configuration file, where it is not the usual one
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Exim's program
    #[arg(long, value_name = "PROGRAM")]
    exim: Option<PathBuf>,

    /// The spool directory to look at, in place of that of Exim's configuration
    #[arg(long, value_name = "DIR")]
    spool: Option<PathBuf>,

    /// Prints JSON
    #[arg(long)]
    json: bool,
}

impl Doctor {
    pub(super) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let findings = self.look()?;
        if self.json {
            findings.json(screen)?;
        } else {
            findings.tell(screen)?;
        }
        match findings.count(Level::Problem) {
            0 if findings.is_hidden() => {
                Err(Failure::new("not everything could be looked at: run this as root"))
            }
            problems => Ok(Outcome::found_if(problems > 0)),
        }
    }

    fn look(&self) -> Result<Findings, Failure> {
        let mut findings = Findings::default();
        findings.about("Exim");
        let exim = mailer::find(self.exim.as_deref(), self.config.as_deref(), &mut findings)?;
        let mailer = mailer::look(exim, &mut findings)?;
        findings.about("The library");
        let libraries = library::look(&mailer, &mut findings);
        let setup = mailer.setup.as_ref();
        let spool = self.spool.as_ref().or(setup.map(|setup| &setup.spool));
        if let Some(spool) = spool {
            findings.about("The database");
            let who = directory::look(spool, setup.map(|setup| &setup.who), &mut findings);
            let contents = who.and_then(|_| contents::look(spool, &mut findings));
            let harmless = contents.as_ref().and_then(|contents| contents.harmless.as_deref());
            // Exim asks the database of its configuration.
            if let (None, Some(spec)) = (&self.spool, harmless) {
                probe::look(&mailer, &libraries.usable, spec, &mut findings);
            }
            findings.about("The trace store");
            let who = setup.map(|setup| &setup.who);
            trace::look(spool, who, libraries.record, &mut findings);
            findings.about("The file system");
            let stats = contents.as_ref().map(|contents| &contents.stats);
            filesystem::look(spool, stats, &mut findings);
        }
        findings.about("The machine");
        daemon::look(&mailer.exim, &mut findings);
        if let Some(spool) = spool {
            confinement::look(spool, &libraries.usable, &mut findings);
        }
        Ok(findings)
    }
}
