//! `exirate web`: who may ask the web service.

use std::io::Write as _;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::shared::screen::{Screen, complain, note};
use crate::cli::shared::table::{self, Column};
use crate::cli::shared::{spool_dir, times};
use crate::cli::{Failure, Json, Outcome};
use crate::serve::web::role::Role;
use crate::serve::web::token::{self, FILE, Token};
use crate::standing::scope::Scope;
use crate::store::FOREVER;
use crate::text;
use crate::text::time::{local_second, now};
use crate::toml_file::Word as _;

/// Give access to the web service
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Let the help desk look and unblock for 90 days:
    exirate web token add desk --role help --until 90d
  Who has a token?
    exirate web token list

Exit status: as the help of each command says.")]
pub(in crate::cli) struct WebCommand {
    #[command(subcommand)]
    command: Below,
}

#[derive(Debug, Subcommand)]
enum Below {
    Token(TokenCommand),
}

/// Make, list and remove tokens of the web service
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Let the help desk look and unblock for 90 days:
    exirate web token add desk --role help --until 90d
  Let a panel look, until it is removed:
    exirate web token add panel --role view --until forever
  Let a customer help its own mailboxes:
    exirate web token add acme --role help --customer acme --until 365d
  Who has a token?
    exirate web token list
  End a token now:
    exirate web token remove desk

Exit status: as the help of each command says.

A token is all that its holder needs: keep it like a password. The file has only a hash of it.")]
struct TokenCommand {
    #[command(subcommand)]
    command: WebAction,
}

#[derive(Debug, Subcommand)]
enum WebAction {
    Add(Add),
    List(TokenList),
    Remove(Remove),
}

#[derive(Debug, Args)]
struct File {
    /// The file of the tokens
    #[arg(long, value_name = "FILE", default_value = FILE)]
    file: PathBuf,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Make a token, and show it once
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Let the help desk look and unblock for 90 days:
    exirate web token add desk --role help --until 90d
  Let whoever runs two domains help their mailboxes:
    exirate web token add two --role help --domain example.org --domain example.net --until 90d

The token is shown now and never again. Programs send it in a header, `Authorization: Bearer TOKEN`;
people paste it into the page.

Exit status: 0 made; 2 an error, such as a token of this NAME that exists already.

The role view may look; the role help may also unblock, allow and deny for a time, and answer
alarms, within the bounds of [web] in /etc/exirate/exirate.toml. The audit log has NAME with each
change.

With --customer or --domain, the token shows and changes nothing of others: see docs/desk.md. Where
nobody is known there, a note says so, with the nearest name, and the token is made all the same.", add = Json::of::<Made<'_>>())]
struct Add {
    /// Whose it is: letters, digits and ._-@+
    #[arg(value_name = "NAME")]
    name: String,

    /// What its holder may do: view or help
    #[arg(long, value_name = "ROLE", value_parser = role)]
    role: Role,

    /// End it at this time, or `forever`
    #[arg(long, value_name = "TIME", value_parser = times::end_or_forever, add = times::Ahead)]
    until: i64,

    /// Only for the identities of the customer of this name in the policies in use
    #[arg(long, value_name = "CUSTOMER", value_parser = customer, conflicts_with = "domains")]
    customer: Option<Scope>,

    /// Only for the identities of this domain; may be repeated
    #[arg(long = "domain", value_name = "DOMAIN")]
    domains: Vec<String>,

    /// The spool directory with the policies that know them
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    spool: Option<PathBuf>,

    #[command(flatten)]
    file: File,
}

/// List the tokens of the web service
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Who has a token?
    exirate web token list

Exit status: 0 listed; 2 an error.", add = Json::of::<Vec<ListedToken<'_>>>())]
struct TokenList {
    #[command(flatten)]
    file: File,
}

/// Remove tokens: they end at once
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  End a token now:
    exirate web token remove desk

Exit status: 0 removed; 1 there is no token of a NAME; 2 an error.")]
#[command(add = Json::of::<Vec<String>>())]
struct Remove {
    /// The names of the tokens
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,

    #[command(flatten)]
    file: File,
}

fn role(text: &str) -> Result<Role, String> {
    Role::of(text).ok_or_else(|| "expected view or help".to_owned())
}

fn customer(text: &str) -> Result<Scope, String> {
    Scope::customer(text).ok_or_else(|| "expected the name of a customer".to_owned())
}

/// A token that was made, in JSON.
#[derive(Serialize, JsonSchema)]
struct Made<'a> {
    name: &'a str,
    role: &'static str,
    /// Null: forever.
    until: Option<String>,
    token: &'a str,
    /// Only if it is for one customer or for some domains: customer NAME, domain NAME NAME.
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<String>,
}

/// A token, in JSON.
#[derive(Serialize, JsonSchema)]
struct ListedToken<'a> {
    name: &'a str,
    role: &'static str,
    since: String,
    /// Null: forever.
    until: Option<String>,
    ended: bool,
    /// Only if it is for one customer or for some domains: customer NAME, domain NAME NAME.
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<String>,
}

fn listed(one: &Token, now: i64) -> ListedToken<'_> {
    let (role, since, until) = (one.role.word(), text::iso_second(one.since), iso_end(one.until));
    let scope = one.scope.as_ref().map(Scope::to_string);
    ListedToken { name: &one.name, role, since, until, ended: one.until <= now, scope }
}

fn iso_end(until: i64) -> Option<String> {
    (until != FOREVER).then(|| text::iso_second(until))
}

fn shown_end(until: i64) -> String {
    if until == FOREVER { "forever".to_owned() } else { local_second(until) }
}

impl WebCommand {
    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let Below::Token(token) = &self.command;
        match &token.command {
            WebAction::Add(add) => add.run(screen),
            WebAction::List(list) => list.run(screen),
            WebAction::Remove(remove) => remove.run(screen),
        }
    }
}

impl Add {
    fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let Self { name, role, until, file, .. } = self;
        let scope = self.scope()?;
        if let Some(scope) = &scope {
            self.note_unknown(scope);
        }
        let shown = scope.as_ref().map(Scope::to_string);
        let add = |all: &mut token::Tokens| all.add(name, *role, now().seconds, *until, scope);
        let secret = token::change(&file.file, add).map_err(Failure::new)?;
        let role = role.word();
        if file.json {
            let until = iso_end(*until);
            screen.json(&Made { name, role, until, token: &secret, scope: shown })?;
        } else {
            writeln!(screen, "{secret}")?;
            screen.flush()?;
            let end = shown_end(*until);
            let only = shown.map_or_else(String::new, |scope| format!(" for {scope} alone"));
            note(format_args!(
                "the token {name}, role {role}{only}, until {end}: copy it now, it is not shown again"
            ));
        }
        Ok(Outcome::Fine)
    }

    fn scope(&self) -> Result<Option<Scope>, Failure> {
        if self.domains.is_empty() {
            return Ok(self.customer.clone());
        }
        let domains = Scope::domains(self.domains.iter().map(String::as_str));
        let fault = || Failure::new("--domain: expected a domain such as example.org");
        domains.map(Some).ok_or_else(fault)
    }

    /// Says of a customer or a domain that nobody has, with the nearest one: the token is made all
    /// the same, as somebody may have it later.
    fn note_unknown(&self, scope: &Scope) {
        let Ok(spool) = spool_dir::find_silently(self.spool.as_deref()) else { return };
        match scope.unknown(&spool) {
            Ok(unknown) => unknown.iter().for_each(note),
            Err(why) => note(why),
        }
    }
}

const COLUMNS: [Column; 5] = [
    Column::words("NAME"),
    Column::words("ROLE"),
    Column::words("MADE").spare(1),
    Column::words("UNTIL"),
    Column::words("FOR"),
];

impl TokenList {
    fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let tokens = token::read(&self.file.file).map_err(Failure::new)?;
        let now = now().seconds;
        if self.file.json {
            screen.json(&tokens.all().map(|one| listed(one, now)).collect::<Vec<_>>())?;
        } else if tokens.all().next().is_none() {
            writeln!(
                screen,
                "there is no token: `exirate web token add NAME --role help --until 90d` makes one"
            )?;
        } else {
            let cells = |one: &Token| {
                let ended = if one.until <= now { " (ended)" } else { "" };
                let end = format!("{}{ended}", shown_end(one.until));
                let scope = one.scope.as_ref().map_or_else(|| "all".to_owned(), Scope::to_string);
                let (role, since) = (one.role.word().to_owned(), local_second(one.since));
                [one.name.clone(), role, since, end, scope]
            };
            table::cells(screen, COLUMNS, || tokens.all().map(cells))?;
        }
        Ok(Outcome::Fine)
    }
}

impl Remove {
    fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let remove =
            |all: &mut token::Tokens| Ok(self.names.iter().partition(|name| all.remove(name)));
        let (removed, missing): (Vec<&String>, Vec<&String>) =
            token::change(&self.file.file, remove).map_err(Failure::new)?;
        if self.file.json {
            screen.json(&removed)?;
        } else {
            for name in &removed {
                writeln!(screen, "removed: {name}")?;
            }
        }
        screen.flush()?;
        for name in &missing {
            complain(format_args!("there is no token {}", text::printable(name.as_bytes())));
        }
        Ok(Outcome::found_if(!missing.is_empty()))
    }
}
