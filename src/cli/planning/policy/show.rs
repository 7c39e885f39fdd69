//! `exirate policy show`: the limits that apply to a user.

use std::io::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anstyle::Style;
use clap::Args;
use serde::Serialize;

use super::file::{FILE, now, sound};
use crate::cli::shared::screen::{Screen, note};
use crate::cli::shared::table::{Column, Layout};
use crate::cli::shared::text::printable;
use crate::cli::shared::{spool_dir, time};
use crate::cli::{Failure, Outcome};
use crate::policy::changes::condition;
use crate::policy::image::{ImageError, PolicyFile};
use crate::policy::limit::{Rule, Subject};
use crate::policy::model::{Location, MemberKind, Policies, Policy};
use crate::policy::resolve::{Effective, resolve};
use crate::policy::word::{Field, Word as _};
use crate::rate::Timestamp;
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

The policies in use are shown, those of the last `exirate policy apply`; where there are
none, those of /etc/exirate/policy.toml. Standard error says which.

Each window is a line. PER is what is counted: the identity, all users of its domain
together, or what the policy has as its key. RULE is the table that the limit is
from, WHERE its line; the policies in use have no lines. Limits that an exemption lifts are shown dimmed, and the
exemption is named below.

Exit status: 0 something is limited; 1 nothing is limited for it; 2 an error.

JSON: `file` is what is shown, and `policies` an array of objects with `policy`, `when`,
`action`, `identity` (null if the policy counts something else), `package`, `exempt` (null,
or an object with `file`, `line`, `until` and `reason`) and `limits`, each with `unit`,
`per`, `kind` (window or bucket), `limit` (or burst), `period` (seconds; of a bucket, in
which all of it leaks), `text`, `rule`, `file` and `line` (null for policies in use); a
unit without limit has null for both numbers.")]
pub(super) struct Show {
    /// The login, the account or the address
    #[arg(long, required_unless_present = "client")]
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
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
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

/// One limit.
#[derive(Clone, Serialize)]
struct Line {
    unit: &'static str,
    per: String,
    kind: &'static str,
    limit: Option<f64>,
    period: Option<f64>,
    text: String,
    rule: String,
    file: String,
    line: Option<u32>,
    #[serde(skip)]
    place: String,
}

/// An exemption.
#[derive(Serialize)]
struct JsonExempt<'a> {
    file: String,
    line: Option<u32>,
    until: Option<String>,
    reason: Option<&'a str>,
}

/// What a policy says.
#[derive(Serialize)]
struct JsonPolicy<'a> {
    policy: &'a str,
    when: String,
    action: &'static str,
    identity: Option<&'a str>,
    package: Option<&'a str>,
    exempt: Option<JsonExempt<'a>>,
    limits: Vec<Line>,
}

#[derive(Serialize)]
struct Json<'a> {
    file: String,
    policies: Vec<JsonPolicy<'a>>,
}

/// Whose limits are shown, folded.
struct Searched {
    identity: String,
    /// What the policy counts together.
    per: String,
    recipient: Option<String>,
}

/// A policy, and what it says of the subject.
struct Shown<'p> {
    name: &'p str,
    policy: &'p Policy,
    identity: &'p str,
    effective: Effective<'p>,
    lines: Vec<Line>,
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
        let (mut policies, image) = self.policies()?;
        let at = self.at.map_or_else(now, |at| at.seconds);
        if let Some(name) = self.policy.as_ref().filter(|n| !policies.policies.contains_key(*n)) {
            let names = || policies.policies.keys().map(String::as_str);
            let instead = match similar(name, names()) {
                Some(known) => format!("did you mean {known:?}?"),
                None => format!("its policies: {}", names().collect::<Vec<_>>().join(", ")),
            };
            let file = place(&policies.files, Location::default());
            return Err(Failure::new(format!("{file} has no policy {name:?}; {instead}")));
        }
        let wanted = |name: &str| self.policy.as_ref().is_none_or(|only| only == name);
        policies.policies.retain(|name, _| wanted(name));
        let searched: Vec<Searched> =
            policies.policies.values().map(|policy| self.searched(&policies, policy)).collect();
        if let Some(image) = image {
            for ((name, policy), searched) in policies.policies.iter_mut().zip(&searched) {
                add_members(&image, name, policy, &searched.identity)?;
            }
        }
        let shown: Vec<Shown<'_>> = policies
            .policies
            .iter()
            .zip(&searched)
            .map(|((name, policy), searched)| self.shown(&policies, name, policy, searched, at))
            .collect();
        if self.json {
            let file = place(&policies.files, Location::default());
            let policies = shown.iter().map(|one| json(&policies, one)).collect();
            screen.json(&Json { file, policies })?;
        } else {
            print(screen, &policies, &shown)?;
        }
        screen.flush()?;
        for one in &shown {
            if let Some((package, false)) = &one.effective.package {
                let package = printable(package.as_bytes());
                note(format_args!(
                    "the policy {:?} has no package {package:?}: it is ignored",
                    one.name
                ));
            }
        }
        let limited = shown.iter().any(|one| one.lines.iter().any(|line| line.limit.is_some()));
        Ok(Outcome::found_if(!limited))
    }

    /// The policies that are shown; and the image that has their domains and users, if these
    /// are in none of them.
    fn policies(&self) -> Result<(Policies, Option<PolicyFile>), Failure> {
        if let Some(file) = &self.file {
            return Ok((sound(file)?, None));
        }
        let in_use = match spool_dir::find(self.spool.as_deref()) {
            Ok(spool) => Some(PolicyFile::open(&spool)),
            Err(failure) if self.spool.is_some() => return Err(failure),
            // A machine without Exim.
            Err(_) => None,
        };
        match in_use.as_ref().map(PolicyFile::image) {
            Some(Ok(image)) => {
                self.note(format_args!("the policies in use, {}", image.path().display()));
                Ok((image.outline()?, in_use))
            }
            None | Some(Err(ImageError::Absent { .. })) => {
                self.note(format_args!("no policies are in use; those of {FILE}"));
                Ok((sound(Path::new(FILE))?, None))
            }
            Some(Err(error)) => Err(error.into()),
        }
    }

    /// Says what is shown; JSON has it in `file`.
    fn note(&self, what: std::fmt::Arguments<'_>) {
        if !self.json {
            note(printable(what.to_string().as_bytes()));
        }
    }

    fn searched(&self, all: &Policies, policy: &Policy) -> Searched {
        let folding = &all.identity.folding;
        let fold = |text: &Option<String>| text.as_deref().and_then(|text| folding.identity(text));
        let (user, recipient) = (fold(&self.user), fold(&self.recipient));
        let value = |field: Field| match field {
            Field::Auth | Field::LocalAccount | Field::Script | Field::Sender => user.clone(),
            Field::Client => self.client.map(|client| folding.client(client).to_string()),
            Field::Recipient => recipient.clone(),
            Field::SenderDomain => domain_of(user.as_deref()),
            Field::RecipientDomain => domain_of(recipient.as_deref()),
            Field::Helo => None,
        };
        let (identity, per) = match &policy.settings.key[..] {
            [] => {
                let identity = all.identity.chain.iter().find_map(|field| value(*field));
                (identity.clone(), identity.unwrap_or_default())
            }
            key => {
                let part = |field: &Field| {
                    value(*field).unwrap_or_else(|| format!("each {}", field.word()))
                };
                let per: Vec<String> = key.iter().map(part).collect();
                (key.first().and_then(|field| value(*field)), per.join(", "))
            }
        };
        Searched { identity: identity.unwrap_or_default(), per, recipient }
    }

    fn shown<'p>(
        &'p self,
        all: &Policies,
        name: &'p str,
        policy: &'p Policy,
        searched: &'p Searched,
        at: i64,
    ) -> Shown<'p> {
        let subject = Subject {
            identity: &searched.identity,
            package: self.package.as_deref(),
            client: self.client,
            recipient: searched.recipient.as_deref(),
        };
        let effective = resolve(policy, &subject, at);
        let lines = lines(all, &effective, &searched.per, &searched.identity);
        Shown { name, policy, identity: &searched.identity, effective, lines }
    }
}

/// Adds what the image has of this user, and of its domain.
fn add_members(
    image: &PolicyFile,
    name: &str,
    policy: &mut Policy,
    identity: &str,
) -> Result<(), Failure> {
    let Some(image) = image.image()?.policy(name)? else { return Ok(()) };
    let domain = domain_of(Some(identity));
    for (kind, name) in
        [(MemberKind::User, Some(identity)), (MemberKind::Domain, domain.as_deref())]
    {
        let Some(name) = name else { continue };
        let member = image.find_member(kind, name)?;
        if let Some(member) = member {
            policy.members_mut(kind).insert(name, member);
        }
    }
    Ok(())
}

fn domain_of(address: Option<&str>) -> Option<String> {
    address.and_then(crate::policy::fold::domain).map(str::to_owned)
}

/// A line for each limit.
fn lines(all: &Policies, effective: &Effective<'_>, per: &str, identity: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    let whole =
        domain_of(Some(identity)).map(|domain| format!("all of {domain}")).unwrap_or_default();
    let mut add =
        |unit, per: &str, kind, text: String, of: Option<(f64, f64)>, rule: &Rule, at: Location| {
            let file = all.files.get(usize::from(at.file));
            lines.push(Line {
                unit,
                per: per.to_owned(),
                kind,
                limit: of.map(|(limit, _)| limit),
                period: of.map(|(_, period)| period),
                text,
                rule: rule.to_string(),
                file: file.map(|file| file.display().to_string()).unwrap_or_default(),
                line: line(at),
                place: place(&all.files, at),
            });
        };
    let units = effective.each.iter().map(|one| (per, one));
    let totals = effective.total.iter().map(|one| (whole.as_str(), one));
    for (per, (unit, applied)) in units.chain(totals) {
        let (unit, at) = (unit.word(), applied.what.at);
        for window in &applied.what.windows {
            let of = Some((window.limit, window.period));
            add(unit, per, "window", window.text.to_string(), of, &applied.rule, at);
        }
        if applied.what.windows.is_empty() {
            add(unit, per, "window", "unlimited".to_owned(), None, &applied.rule, at);
        }
    }
    if let Some(applied) = &effective.buckets {
        let at = applied.what.at;
        for bucket in &applied.what.buckets {
            let text = format!("burst {}, leak {}", bucket.burst, bucket.text);
            let of = Some((bucket.burst, bucket.burst / bucket.leak));
            add(bucket.unit.word(), per, "bucket", text, of, &applied.rule, at);
        }
        if applied.what.buckets.is_empty() {
            add("", per, "bucket", "unlimited".to_owned(), None, &applied.rule, at);
        }
    }
    lines
}

/// The line, where it is known.
fn line(at: Location) -> Option<u32> {
    Some(at.line).filter(|&line| line > 0)
}

fn print(screen: &mut Screen<'_>, all: &Policies, shown: &[Shown<'_>]) -> Result<(), Failure> {
    let mut rows: Vec<(bool, [String; 7])> = Vec::new();
    for one in shown {
        let when = when(one.policy);
        for line in &one.lines {
            let cells =
                [one.name, &line.text, line.unit, &line.per, &line.rule, &when, &line.place];
            let cells = cells.map(|cell| printable(cell.as_bytes()));
            rows.push((one.effective.exempt.is_some(), cells));
        }
    }
    if !rows.is_empty() {
        let layout = Layout::of(screen, COLUMNS, rows.iter().map(|(_, cells)| cells.clone()));
        layout.head(screen)?;
        for alike in rows.chunk_by(|(one, _), (other, _)| one == other) {
            let exempt = alike.first().is_some_and(|(exempt, _)| *exempt);
            let style = if exempt { Style::new().dimmed() } else { Style::new() };
            layout.write(screen, style, alike.iter().map(|(_, cells)| cells.clone()), None)?;
        }
    }
    for one in shown {
        if one.lines.is_empty() {
            writeln!(screen, "{}: no limit", one.name)?;
        }
        if let Some(entry) = one.effective.exempt {
            let until =
                entry.until.map_or_else(|| "for ever".to_owned(), |u| format!("until {}", iso(u)));
            let reason =
                entry.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
            let at = place(&all.files, entry.at);
            let line = format!("{}: exempt {until}{reason} ({at})", one.name);
            writeln!(screen, "{}", printable(line.as_bytes()))?;
        }
    }
    Ok(())
}

fn when(policy: &Policy) -> String {
    policy.settings.when.iter().map(condition).collect::<Vec<_>>().join(" and ")
}

fn iso(seconds: i64) -> String {
    crate::cli::shared::text::iso(Timestamp { seconds, micros: 0 })
}

fn json<'a>(all: &Policies, one: &'a Shown<'_>) -> JsonPolicy<'a> {
    let exempt = one.effective.exempt.map(|entry| JsonExempt {
        file: all
            .files
            .get(usize::from(entry.at.file))
            .map(|f| f.display().to_string())
            .unwrap_or_default(),
        line: line(entry.at),
        until: entry.until.map(iso),
        reason: entry.reason.as_deref(),
    });
    JsonPolicy {
        policy: one.name,
        when: when(one.policy),
        action: one.policy.settings.action.word(),
        identity: Some(one.identity).filter(|identity| !identity.is_empty()),
        package: one.effective.package.map(|(name, _)| name),
        exempt,
        limits: one.lines.clone(),
    }
}
