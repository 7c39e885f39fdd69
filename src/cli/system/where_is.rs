//! `exirate where`: where the database of this machine is.

use std::io::Write as _;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::shared::screen::{Screen, note};
use crate::cli::shared::spool_dir;
use crate::cli::{Failure, Json, Outcome};
use crate::place;
use crate::sys::users;
use crate::text::printable;

/// Show where the database of this machine is, and whose it is
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Where is it?
    exirate where
  Start a daemon that needs the user of the database:
    systemctl enable --now \"exirate-web@$(exirate where user)\"
  How much room does it take?
    du -sh \"$(exirate where database)\"

The spool directory is the one that [mail] spool of /etc/exirate/exirate.toml names, else Exim's,
else /var/lib/exirate; the database is the directory exirate in it. Every command and unit uses it.

Exit status: 0 there is a database; 1 nothing was counted there yet; 2 an error, such as that there
is no mail server.", add = Json::of::<FoundPlace>())]
pub(in crate::cli) struct Where {
    /// Print only this
    #[arg(value_enum, value_name = "WHAT")]
    what: Option<Sought>,

    /// Describe this spool directory
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    spool: Option<PathBuf>,

    /// Print the directories that units are confined to, for scripts/install
    #[arg(long, hide = true)]
    confined: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Sought {
    /// The directory of the database
    Database,
    /// The spool directory, which has it
    Spool,
    /// The user who owns it
    User,
    /// The group that may read it
    Group,
}

#[derive(Serialize, JsonSchema)]
struct FoundPlace {
    spool: String,
    database: String,
    exists: bool,
    user: String,
    group: String,
    /// configuration, exim, usual or option.
    stated_by: &'static str,
}

impl Where {
    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        if self.confined {
            place::confined().iter().try_for_each(|path| writeln!(screen, "{}", path.display()))?;
            return Ok(Outcome::Fine);
        }
        let (spool, stated) = match &self.spool {
            Some(given) => (spool_dir::find_silently(Some(given))?, None),
            None => {
                let found = place::find().ok_or_else(|| Failure::new(place::missing()))?;
                (found.0, Some(found.1))
            }
        };
        let (_, gid) = place::owner(&spool).map_err(Failure::new)?;
        let database = spool.join("exirate");
        let exists = database.is_dir();
        let stated_by = match stated {
            Some(place::StatedBy::Configuration) => "configuration",
            Some(place::StatedBy::Exim) => "exim",
            Some(place::StatedBy::Usual) => "usual",
            None => "option",
        };
        let found = FoundPlace {
            spool: spool.display().to_string(),
            database: database.display().to_string(),
            exists,
            user: place::owner_name(&spool),
            group: users::group_name_of(gid).unwrap_or_else(|| gid.to_string()),
            stated_by,
        };
        let FoundPlace { user, group, .. } = &found;
        match self.what {
            _ if self.json => screen.json(&found)?,
            Some(Sought::Database) => writeln!(screen, "{}", found.database)?,
            Some(Sought::Spool) => writeln!(screen, "{}", found.spool)?,
            Some(Sought::User) => writeln!(screen, "{user}")?,
            Some(Sought::Group) => writeln!(screen, "{group}")?,
            None => {
                let by = stated.map_or_else(|| "--spool".to_owned(), |by| by.to_string());
                let shown = printable(found.database.as_bytes());
                writeln!(screen, "{shown}, of {user}:{group} (stated by {by})")?;
                if !exists {
                    note("it is not there yet: nothing was counted");
                }
            }
        }
        Ok(Outcome::found_if(!exists))
    }
}
