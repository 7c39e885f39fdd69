//! `exirate policy show`: the limits that apply to a user.

use std::borrow::Cow;
use std::io::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anstyle::Style;
use clap::Args;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use super::file::compiled;
use crate::cli::shared::screen::{Screen, note};
use crate::cli::shared::spool_dir;
use crate::cli::shared::table::{self, Column};
use crate::cli::shared::times;
use crate::cli::{Failure, Json, Outcome};
use crate::identity::mailbox;
use crate::policy::image::{Applied, Image, ImageError, PolicyFile, PolicyImage};
use crate::policy::key;
use crate::policy::limit::{AppliedHabits, Limit, Package, Per, Rule, Subject};
use crate::policy::model::{Identity, Limits, Location, Policies, Policy};
use crate::policy::source::FILE;
use crate::policy::word::{Field, State, Word as _};
use crate::rate::Timestamp;
use crate::sys::host_name;
use crate::text::time::now;
use crate::text::{self, iso_second, printable};
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

/// One limit.
#[derive(Clone, Serialize, JsonSchema)]
struct LimitLine {
    unit: &'static str,
    per: String,
    /// window or bucket.
    kind: &'static str,
    /// The limit, or the burst; null without limit.
    limit: Option<f64>,
    /// In seconds; of a bucket, in which all of it leaks.
    period: Option<f64>,
    /// The limit, as it is written.
    text: String,
    rule: String,
    /// Where it stands.
    file: String,
    /// Null for policies in use.
    line: Option<u32>,
    #[serde(skip)]
    place: String,
}

/// An exemption.
#[derive(Serialize, JsonSchema)]
struct ExemptLine<'a> {
    file: String,
    line: Option<u32>,
    #[serde(serialize_with = "second")]
    #[schemars(with = "Option<String>")]
    until: Option<i64>,
    reason: Option<&'a str>,
    #[serde(skip)]
    place: String,
}

fn second<S: Serializer>(until: &Option<i64>, serializer: S) -> Result<S::Ok, S::Error> {
    until.map(iso_second).serialize(serializer)
}

/// What becomes of mail that is unlike the user's habits.
#[derive(Serialize, JsonSchema)]
struct HabitsLine {
    habits: &'static str,
    sensitivity: &'static str,
    rule: String,
}

/// A policy, and what it says of the subject.
#[derive(Serialize, JsonSchema)]
struct Shown<'p> {
    policy: &'p str,
    /// To which mail it applies.
    when: String,
    action: &'static str,
    /// Who is counted; null if the policy counts something else.
    identity: Option<&'p str>,
    package: Option<&'p str>,
    /// What names it: `customer acme`.
    package_from: Option<String>,
    #[serde(skip)]
    applied_package: Option<Package<'p>>,
    #[serde(skip)]
    unknown_package: Option<&'p str>,
    customer: Option<&'p str>,
    /// Null: off.
    habits: Option<HabitsLine>,
    exempt: Option<ExemptLine<'p>>,
    limits: Vec<LimitLine>,
}

#[derive(Serialize, JsonSchema)]
struct PoliciesJson<'a> {
    /// What is shown.
    file: String,
    policies: &'a [Shown<'a>],
}

/// Whose limits are shown, folded.
struct Searched {
    identity: String,
    /// Of an address that mail servers may read differently.
    is_ambiguous: bool,
    /// What the policy counts together.
    per: String,
    recipient: Option<String>,
}

/// The policies that are shown.
enum PolicySource {
    /// Those in use.
    InUse(PolicyFile),
    /// Those of a policy file, compiled, and where they are written.
    File(Box<Image>, Policies),
}

impl PolicySource {
    fn file(path: &Path) -> Result<Self, Failure> {
        let (policies, image) = compiled(path)?;
        Ok(Self::File(Box::new(image), policies))
    }

    fn image(&self) -> Result<&Image, &ImageError> {
        match self {
            Self::InUse(file) => file.image(),
            Self::File(image, _) => Ok(image),
        }
    }

    /// The policy `name` as it is written, if that is known.
    fn written(&self, name: &str) -> Option<&Policy> {
        match self {
            Self::InUse(_) => None,
            Self::File(_, policies) => policies.policies.get(name),
        }
    }

    /// The files that locations are in.
    fn files(&self) -> Vec<PathBuf> {
        match self {
            Self::InUse(file) => {
                file.image().map(|image| image.path().to_owned()).into_iter().collect()
            }
            Self::File(_, policies) => policies.files.clone(),
        }
    }
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
        let mut policies = Vec::new();
        for name in
            image.names().filter(|name| self.policy.as_deref().is_none_or(|only| only == *name))
        {
            let Some(policy) = image.policy(name)? else { continue };
            policies.push((name, policy, self.searched(identity, policy)));
        }
        let mut shown = Vec::new();
        for (name, policy, searched) in &policies {
            shown.push(self.shown(&files, name, policy, source.written(name), searched, at)?);
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
            return PolicySource::file(file);
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
        PolicySource::file(Path::new(FILE))
    }

    /// Says what is shown; JSON has it in `file`.
    fn note(&self, what: std::fmt::Arguments<'_>) {
        if !self.json {
            note(printable(what.to_string().as_bytes()));
        }
    }

    fn searched(&self, all: &Identity, policy: PolicyImage<'_>) -> Searched {
        let folding = &all.folding;
        let fold = |field, text: &Option<String>| {
            key::folded(all, field, text.as_deref()?).map(Cow::into_owned)
        };
        let user = fold(Field::Auth, &self.user);
        let (sender, recipient) =
            (fold(Field::Sender, &self.user), fold(Field::Recipient, &self.recipient));
        let is_local = policy.settings().requires(State::Local);
        let written = || self.user.as_deref().map(|user| user.trim().to_owned());
        let value = |field: Field| match field {
            // Whoever used AUTH is never local.
            Field::Auth if is_local => None,
            Field::Auth => user.clone(),
            Field::Sender => sender.clone(),
            Field::LocalAccount | Field::Script => written().filter(|user| !user.is_empty()),
            Field::Client => self.client.map(|client| folding.client(client).to_string()),
            Field::Client56 | Field::Client48 => {
                let network = self.client.and_then(|client| field.wider_network(client));
                network.map(|network| network.to_string())
            }
            Field::Recipient => recipient.clone(),
            Field::SenderDomain => domain_of(sender.as_deref()),
            Field::RecipientDomain => domain_of(recipient.as_deref()),
            Field::Destination => domain_of(recipient.as_deref())
                .map(|domain| all.destinations.of(&domain).to_owned()),
            Field::Helo => None,
            Field::Server => Some(host_name().to_owned()),
        };
        let (first, per) = match &policy.settings().key[..] {
            [] => {
                let first = all.chain.iter().find_map(|field| Some((*field, value(*field)?)));
                let per = first.as_ref().map(|(_, value)| value.clone());
                let nobody = self.user.is_none() && self.client.is_none();
                let each = if nobody { "each user" } else { "" };
                (first, per.unwrap_or_else(|| each.to_owned()))
            }
            key => {
                let part = |field: &Field| {
                    value(*field).unwrap_or_else(|| format!("each {}", field.word()))
                };
                let per: Vec<String> = key.iter().map(part).collect();
                (key.first().and_then(|field| Some((*field, value(*field)?))), per.join(", "))
            }
        };
        let address = |field: Field| if field.is_of_recipient() { &recipient } else { &sender };
        let is_ambiguous = first.as_ref().is_some_and(|(field, _)| {
            field.is_of_address() && address(*field).as_deref().is_some_and(mailbox::is_ambiguous)
        });
        let identity = first.map(|(_, value)| value).unwrap_or_default();
        Searched { identity, is_ambiguous, per, recipient }
    }

    fn shown<'p>(
        &'p self,
        files: &[PathBuf],
        name: &'p str,
        policy: &'p PolicyImage<'p>,
        written: Option<&Policy>,
        searched: &'p Searched,
        at: i64,
    ) -> Result<Shown<'p>, Failure> {
        let subject = Subject {
            identity: &searched.identity,
            is_ambiguous: searched.is_ambiguous,
            package: self.package.as_deref(),
            client: self.client,
            recipient: searched.recipient.as_deref(),
        };
        let exempt = policy.exemption(&subject, at)?.map(|entry| {
            let written = written.and_then(|policy| policy.exempt.get(entry.number as usize));
            let at = written.map(|entry| entry.at).unwrap_or_default();
            let (file, line, place) = (file(files, at), line(at), place(files, at));
            ExemptLine { file, line, until: entry.until, reason: entry.reason, place }
        });
        let mut limits = Vec::new();
        for applied in policy.applied(&subject)? {
            let at = written.and_then(|policy| location(policy, &applied)).unwrap_or_default();
            add_lines(&mut limits, files, &applied, at, searched);
        }
        let habits = policy.habits(&subject)?.map(|AppliedHabits { on, sensitivity, rule }| {
            let (habits, sensitivity) = (on.word(), sensitivity.word());
            HabitsLine { habits, sensitivity, rule: rule.to_string() }
        });
        let package = policy.package(&subject)?;
        let when = policy.settings().when.iter().map(ToString::to_string).collect::<Vec<_>>();
        Ok(Shown {
            policy: name,
            when: when.join(" and "),
            action: policy.settings().action.word(),
            identity: Some(&*searched.identity).filter(|identity| !identity.is_empty()),
            package: package.map(|package| package.name),
            package_from: package.map(|package| package.from.to_string()),
            applied_package: package,
            unknown_package: policy.unknown_package(&subject)?,
            customer: policy.customer(&subject)?,
            habits,
            exempt,
            limits,
        })
    }
}

/// Where limits of `policy` are written.
fn location(policy: &Policy, applied: &Applied<'_>) -> Option<Location> {
    let limits: &Limits = match applied.rule {
        Rule::User(name) => &policy.users.get(name)?.limits,
        Rule::Domain(name) => &policy.domains.get(name)?.limits,
        Rule::Customer(name) => &policy.customers.get(name)?.limits,
        Rule::Package(name) => policy.packages.get(name)?,
        Rule::Default => &policy.default,
    };
    match (applied.unit, applied.per) {
        (Some(unit), Per::Key) => limits.each.get(&unit).map(|amount| amount.at),
        (Some(unit), Per::Domain | Per::Customer) => {
            limits.total.get(&unit).map(|amount| amount.at)
        }
        (None, _) => limits.buckets.as_ref().map(|buckets| buckets.at),
    }
}

fn domain_of(address: Option<&str>) -> Option<String> {
    address.and_then(crate::policy::fold::domain).map(str::to_owned)
}

/// Adds a line for each of these limits.
fn add_lines(
    lines: &mut Vec<LimitLine>,
    files: &[PathBuf],
    applied: &Applied<'_>,
    at: Location,
    searched: &Searched,
) {
    let line = LimitLine {
        unit: applied.unit.map_or("", |unit| unit.word()),
        per: match applied.per {
            Per::Key => searched.per.clone(),
            Per::Domain => {
                let domain = domain_of(Some(&searched.identity));
                domain.map(|domain| format!("all of {domain}")).unwrap_or_default()
            }
            Per::Customer => format!("all of {}", applied.rule),
        },
        kind: Limit::kind(applied.unit),
        limit: None,
        period: None,
        text: "unlimited".to_owned(),
        rule: applied.rule.to_string(),
        file: file(files, at),
        line: line(at),
        place: place(files, at),
    };
    let limited = applied.limits.iter().map(|limit| {
        let (most, period) = (limit.algorithm.limit(), limit.algorithm.period());
        let (unit, text) = (limit.unit.word(), limit.to_string());
        let period = Some(period).filter(|period| period.is_finite());
        LimitLine { unit, limit: Some(most), period, text, ..line.clone() }
    });
    lines.extend(limited);
    if applied.limits.is_empty() {
        lines.push(line);
    }
}

/// The file, where it is known.
fn file(files: &[PathBuf], at: Location) -> String {
    files.get(usize::from(at.file)).map(|file| file.display().to_string()).unwrap_or_default()
}

/// The line, where it is known.
fn line(at: Location) -> Option<u32> {
    Some(at.line).filter(|&line| line > 0)
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
