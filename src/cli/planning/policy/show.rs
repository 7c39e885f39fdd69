//! `exirate policy show`: the limits that apply to a user.

use std::io::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anstyle::Style;
use clap::Args;

use super::file::compiled;
use crate::cli::shared::screen::{Screen, note};
use crate::cli::shared::table::{self, Column};
use crate::cli::shared::{spool_dir, times};
use crate::cli::{Failure, Json, Outcome};
use crate::policy::image::{ImageError, PolicyFile};
use crate::policy::model::Location;
use crate::policy::shown::{
    AskedMail, ExemptLine, HabitsLine, LimitLine, PoliciesJson, PolicySource, Shown,
};
use crate::policy::source::FILE;
use crate::rate::Timestamp;
use crate::text::time::now;
use crate::text::{self, printable};
use crate::toml_file::diagnostic::{place, similar};

/// Show the limits that apply to a user
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  What may a user do, and which rule says so?
    exirate policy show --user news@example.org
  With the package that Exim hands over, from a certain client:
    exirate policy show --user ceo@example.org --package gold --client 192.0.2.7
  What would a new policy file limit for a client that does not authenticate?
    exirate policy show --client 192.0.2.7 --policy bounces --file policy.toml
  Which policies are there, and what limits whoever has no limits of their own?
    exirate policy list

The policies in use are shown, or those of --file. PER is what is counted, RULE the table that the
limit is from, WHERE its line.

Exit status: 0 something is limited; 1 nothing is limited for it; 2 an error.

The policies in use are shown, those of the last `exirate policy apply`; where there are
none, those of /etc/exirate/policy.toml. Standard error says which.

Each window is a line. PER is what is counted: the identity, all users of its domain or
its customer together, or what the policy has as its key. RULE is the table that the limit is
from, WHERE its line; the policies in use have no lines. Limits that an exemption lifts are shown dimmed, and the
exemption is named below. So is the package that applies, and what names it: the user, the domain, the customer
or the front end; and what becomes of mail that is unlike the habits of the user, where they are on.")]
#[command(add = Json::of::<PoliciesJson<'_>>())]
pub(super) struct Show {
    /// The login, the account or the address; without one, and without --client, the limits of
    /// whoever has none of their own
    #[arg(long)]
    user: Option<String>,

    /// The client's address
    #[arg(long, value_name = "ADDRESS")]
    client: Option<IpAddr>,

    /// The recipient
    #[arg(long, value_name = "ADDRESS")]
    recipient: Option<String>,

    /// The package that Exim hands over
    #[arg(long)]
    package: Option<String>,

    /// Show only this policy
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,

    /// As of this time, for exemptions
    #[arg(long, value_name = "TIME", value_parser = times::as_of, add = times::Ahead)]
    at: Option<Timestamp>,

    /// Show the policies of this policy file, not those in use
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Show the policies in use in this spool directory of Exim
    ///
    /// The default is what `exim -bP spool_directory` prints.
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath, conflicts_with = "file")]
    spool: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

const COLUMNS: [Column; 7] = [
    Column::words("POLICY"),
    Column::words("LIMIT"),
    Column::words("UNIT"),
    Column::words("PER"),
    Column::words("RULE"),
    Column::words("WHEN").spare(1),
    Column::words("WHERE"),
];

impl Show {
    pub(super) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let source = self.source()?;
        let (image, files) = (source.image()?, source.files());
        let at = self.at.map_or_else(|| now().seconds, |at| at.seconds);
        if let Some(name) = self.policy.as_deref().filter(|name| image.names().all(|n| n != *name))
        {
            let instead = match similar(name, image.names()) {
                Some(known) => format!("did you mean {known:?}?"),
                None => format!("its policies: {}", image.names().collect::<Vec<_>>().join(", ")),
            };
            let file = place(&files, Location::default());
            return Err(Failure::new(format!("{file} has no policy {name:?}; {instead}")));
        }
        let identity = image.identity()?;
        let asked = AskedMail {
            user: self.user.clone(),
            client: self.client,
            recipient: self.recipient.clone(),
            package: self.package.clone(),
        };
        let mut policies = Vec::new();
        for name in
            image.names().filter(|name| self.policy.as_deref().is_none_or(|only| only == *name))
        {
            let Some(policy) = image.policy(name)? else { continue };
            policies.push((name, policy, asked.searched(identity, policy)));
        }
        let mut shown = Vec::new();
        for (name, policy, searched) in &policies {
            shown.push(asked.shown(&files, name, policy, source.written(name), searched, at)?);
        }
        if self.json {
            let file = place(&files, Location::default());
            screen.json(&PoliciesJson { file, policies: &shown })?;
        } else {
            print(screen, &shown)?;
        }
        screen.flush()?;
        for one in &shown {
            if let Some(package) = one.unknown_package {
                let package = printable(package.as_bytes());
                note(format_args!(
                    "the policy {:?} has no package {package:?}: it is ignored",
                    one.policy
                ));
            }
        }
        let limited = shown.iter().any(|one| one.limits.iter().any(|line| line.limit.is_some()));
        Ok(Outcome::found_if(!limited))
    }

    /// The policies that are shown.
    fn source(&self) -> Result<PolicySource, Failure> {
        if let Some(file) = &self.file {
            return of_file(file);
        }
        let in_use = match spool_dir::find(self.spool.as_deref()) {
            Ok(spool) => Some(PolicyFile::open(&spool)),
            Err(failure) if self.spool.is_some() => return Err(failure),
            // A machine without Exim.
            Err(_) => None,
        };
        if let Some(in_use) = in_use {
            match in_use.image() {
                Ok(image) => {
                    self.note(format_args!("the policies in use, {}", image.path().display()));
                    return Ok(PolicySource::InUse(in_use));
                }
                Err(ImageError::Absent { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.note(format_args!("no policies are in use; those of {FILE}"));
        of_file(Path::new(FILE))
    }

    /// Says what is shown; JSON has it in `file`.
    fn note(&self, what: std::fmt::Arguments<'_>) {
        if !self.json {
            note(printable(what.to_string().as_bytes()));
        }
    }
}

fn of_file(path: &Path) -> Result<PolicySource, Failure> {
    let (policies, image) = compiled(path)?;
    Ok(PolicySource::File(Box::new(image), policies))
}

fn print(screen: &mut Screen<'_>, shown: &[Shown<'_>]) -> Result<(), Failure> {
    let mut rows: Vec<(Style, [String; 7])> = Vec::new();
    for one in shown {
        let style = if one.exempt.is_some() { Style::new().dimmed() } else { Style::new() };
        for line in &one.limits {
            let LimitLine { text, unit, per, rule, place, .. } = line;
            let cells = [one.policy, text, unit, per, rule, &one.when, place];
            rows.push((style, cells.map(|cell| printable(cell.as_bytes()))));
        }
    }
    if !rows.is_empty() {
        table::styled(screen, COLUMNS, &rows)?;
    }
    for one in shown {
        let mut line = |what: String| {
            writeln!(screen, "{}", printable(format!("{}: {what}", one.policy).as_bytes()))
        };
        if one.limits.is_empty() {
            line("no limit".to_owned())?;
        }
        if let Some(package) = one.applied_package {
            line(package.to_string())?;
        }
        if let Some(HabitsLine { habits, sensitivity, rule }) = &one.habits {
            line(format!("habits {habits}, sensitivity {sensitivity} ({rule})"))?;
        }
        if let Some(ExemptLine { until, reason, place, .. }) = &one.exempt {
            let until = until.map_or_else(
                || "forever".to_owned(),
                |until| format!("until {}", text::local_second(until)),
            );
            let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
            line(format!("exempt {until}{reason} ({place})"))?;
        }
    }
    Ok(())
}
