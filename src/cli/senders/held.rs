//! `exirate held`: the messages that policies hold, and those that wait.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;

use clap::{Args, Subcommand};
use schemars::JsonSchema;
use serde::Serialize;

use super::undecided::Decide;
use crate::cli::shared::administrator::AuditLog;
use crate::cli::shared::confirm;
use crate::cli::shared::database::Common;
use crate::cli::shared::hold_queue::{self, QueueOptions};
use crate::cli::shared::keys::{Narrow, Selection};
use crate::cli::shared::screen::{Screen, complain, note};
use crate::cli::shared::table::{self, Column};
use crate::cli::{Failure, Json, Outcome};
use crate::spool::habits::habits_key;
use crate::standing::held::{Dealt, Deed, Details, HeldJson, HeldMessage, HeldState, HoldQueue};
use crate::standing::key_state::second;
use crate::standing::key_text;
use crate::text::time::now;
use crate::text::{self, counted_or_no, printable};

/// Show, release or delete mail that is held, or that waits
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  What do policies hold?
    exirate held
  Which messages of alice?
    exirate held alice@example.org

A policy with the verdict `hold` accepts a message, and the mail server keeps it: frozen by Exim,
on hold in Postfix, quarantined by Sendmail. Messages held for another reason are not shown. The
policy (undecided) holds what an account of this machine handed over while `exirate serve mail`
could not decide: `exirate held decide`. Mail that waits for room within a limit at delivery
leaves by itself: LEAVES says about when, computed from the limit and from what waits before it.

Exit status: 0 no message is held or waits; 1 messages are, or a KEY or ID has none; 2 an error.

Run it as root, or as the mail server's user. ID is a message's name in the queue. KEY is who was
counted: a login such as alice@example.org, a client's address, local_account:NAME, destination:NAME,
or a glob such as '*@example.org'. AGE is how long a message has been held, or in the queue, TO how
many recipients have not received it, or wait.", add = Json::of::<Vec<HeldJson>>())]
pub(in crate::cli) struct HeldCommand {
    #[command(subcommand)]
    command: Option<HeldAction>,

    /// Show these messages, or those of these keys or globs; the default is all
    #[arg(value_name = "ID|KEY")]
    which: Vec<OsString>,

    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Subcommand)]
enum HeldAction {
    Show(Show),
    Release(Release),
    Delete(Delete),
    Decide(Decide),
}

/// Where the messages are.
#[derive(Debug, Args)]
pub(super) struct Place {
    #[command(flatten)]
    queue: QueueOptions,

    #[command(flatten)]
    common: Common,
}

/// Show the recipients and headers of held messages
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  What would be sent, and to which people?
    exirate held show alice@example.org

Exit status: 0 shown; 1 a KEY or ID has no held message; 2 an error.

It shows the recipients who have not received the message, and its headers unchanged. ID and KEY
are as in `exirate held`.", add = Json::of::<Vec<DetailsJson>>())]
struct Show {
    /// Show these messages, or those of these keys or globs
    #[arg(value_name = "ID|KEY", required = true)]
    which: Vec<OsString>,

    #[command(flatten)]
    place: Place,
}

/// Release messages that are held or wait: they are delivered
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  It was alice who sent them:
    exirate held release alice@example.org --yes

Exit status: 0 released; 1 a KEY or ID has no held message, or nothing was released; 2 an error.

Where a KEY is given, it asks first; without a terminal, --yes is needed. The mail server delivers
them from now on as it delivers others: with Exim and Postfix, it begins at once. What was done is
logged to audit.log in the database's directory, and to syslog (facility mail). It does not end the
suspicion of an account (`exirate habits accept`), nor a limit: what is sent next may be held again.
What waits leaves at once, and counts for no limit at delivery: for that, run it as root.")]
#[command(add = Json::of::<Vec<HeldJson>>())]
struct Release {
    #[command(flatten)]
    change: HeldChange,
}

/// Delete messages that are held or wait: nobody gets them
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  A thief sent them:
    exirate held delete alice@example.org --yes

Exit status: 0 deleted; 1 a KEY or ID has no held message, or nothing was deleted; 2 an error.

It asks first; without a terminal, --yes is needed. The senders are not informed. What was done is
logged to audit.log in the database's directory, and to syslog (facility mail).")]
#[command(add = Json::of::<Vec<HeldJson>>())]
struct Delete {
    #[command(flatten)]
    change: HeldChange,
}

/// What both do.
#[derive(Debug, Args)]
struct HeldChange {
    /// These messages, or those of these keys or globs
    #[arg(value_name = "ID|KEY", required = true)]
    which: Vec<OsString>,

    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,

    #[command(flatten)]
    place: Place,
}

/// A message with its details, in JSON.
#[derive(Serialize, JsonSchema)]
struct DetailsJson {
    #[serde(flatten)]
    message: HeldJson,
    /// The recipients.
    to: Vec<String>,
    /// The lines of the headers.
    headers: Vec<String>,
}

const COLUMNS: [Column; 9] = [
    Column::words("KEY"),
    Column::words("AGE"),
    Column::words("LEAVES"),
    Column::numbers("TO"),
    Column::numbers("SIZE").spare(2),
    Column::words("ID"),
    Column::words("POLICY").spare(3),
    Column::words("SENDER").spare(1),
    Column::words("WHY"),
];

impl HeldCommand {
    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        match &self.command {
            Some(HeldAction::Show(show)) => show.run(screen),
            Some(HeldAction::Release(release)) => release.change.run(screen, Deed::Release),
            Some(HeldAction::Delete(delete)) => delete.change.run(screen, Deed::Delete),
            Some(HeldAction::Decide(decide)) => decide.run(screen),
            None => self.list(screen),
        }
    }

    fn list(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let found = self.place.find(&*self.place.queue()?, &self.which)?;
        let messages = &found.messages;
        if self.place.common.json {
            screen.json(&messages.iter().map(HeldJson::of).collect::<Vec<_>>())?;
        } else if messages.is_empty() {
            writeln!(screen, "no message is held or waits")?;
        } else {
            let rows = || messages.iter().map(cells);
            table::cells(screen, COLUMNS, rows)?;
        }
        found.outcome(!messages.is_empty())
    }
}

fn cells(message: &HeldMessage) -> [String; 9] {
    let plain = |text: &str| printable(text.as_bytes());
    let leaves = match (message.state, message.until) {
        (HeldState::Held, _) => "if released".to_owned(),
        (HeldState::Waiting, None) => "later".to_owned(),
        (HeldState::Waiting, Some(until)) => {
            format!("in about {}", text::rough((until - now().seconds).max(0) as f64))
        }
    };
    [
        key_text::key(&message.key),
        text::rough_age(second(message.at), now()),
        leaves,
        message.recipients.to_string(),
        text::bytes(message.size),
        plain(&message.id),
        plain(&message.policy),
        format!("<{}>", plain(&message.sender)),
        plain(&message.why),
    ]
}

/// The messages that an invocation is about.
struct FoundMessages {
    messages: Vec<HeldMessage>,
    /// An argument has none.
    missing: bool,
    /// Some could not be read.
    unread: usize,
}

impl FoundMessages {
    /// The outcome of a command that found something, if `found`.
    fn outcome(&self, found: bool) -> Result<Outcome, Failure> {
        match self.unread {
            0 => Ok(Outcome::found_if(found || self.missing)),
            unread => Err(Failure::new(format!(
                "{} not be read",
                text::counted(unread, "message of the queue could", "messages of the queue could")
            ))),
        }
    }
}

impl Place {
    pub(super) fn queue(&self) -> Result<Box<dyn HoldQueue>, Failure> {
        let queue = self.queue.queue(&self.common.directory()?);
        queue.map_err(|why| Failure::new(printable(why.as_bytes())))
    }

    /// The held messages that `which` names, by their keys; all without one.
    fn find(&self, queue: &dyn HoldQueue, which: &[OsString]) -> Result<FoundMessages, Failure> {
        let held = queue.held().map_err(|why| Failure::new(printable(why.as_bytes())))?;
        for why in &held.unread {
            complain(printable(why.as_bytes()));
        }
        let unread = held.unread.len();
        let mut messages = held.into_messages();
        let folding = self.common.folding()?;
        let narrow = Narrow::unselective(false);
        let mut wanted: Vec<HeldArgument<'_>> = Vec::new();
        for argument in which {
            let selection = Selection::new(std::slice::from_ref(argument), &narrow, &folding)?;
            wanted.push(HeldArgument { argument, selection, found: false });
        }
        if !wanted.is_empty() {
            // All are asked, so that each knows whether it has a message.
            messages.retain(|message| {
                wanted.iter_mut().map(|one| one.is(message)).filter(|is| *is).count() > 0
            });
        }
        messages.sort_by(|a, b| (&a.key, a.at, &a.id).cmp(&(&b.key, b.at, &b.id)));
        let missing: Vec<&HeldArgument<'_>> = wanted.iter().filter(|one| !one.found).collect();
        for one in &missing {
            let argument = printable(one.argument.as_bytes());
            complain(format_args!("no message that is held or waits matches {argument}"));
        }
        Ok(FoundMessages { messages, missing: !missing.is_empty(), unread })
    }
}

/// An argument.
struct HeldArgument<'a> {
    argument: &'a OsString,
    selection: Selection,
    /// It has a message.
    found: bool,
}

impl HeldArgument<'_> {
    fn is(&mut self, message: &HeldMessage) -> bool {
        let mut name = Vec::new();
        let is_it = self.argument.as_bytes() == message.id.as_bytes()
            || self.selection.contains(&habits_key(&message.key, &mut name));
        self.found |= is_it;
        is_it
    }
}

impl Show {
    fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let queue = self.place.queue()?;
        let found = self.place.find(&*queue, &self.which)?;
        let mut all = Vec::new();
        let mut lost = 0;
        for message in &found.messages {
            match queue.details(&message.id) {
                Ok(details) => all.push((message, details)),
                Err(why) => {
                    lost += 1;
                    let id = printable(message.id.as_bytes());
                    complain(format_args!("message {id}: {}", printable(why.as_bytes())));
                }
            }
        }
        if self.place.common.json {
            let json = all.into_iter().map(|(message, details)| DetailsJson {
                message: HeldJson::of(message),
                to: details.recipients,
                headers: details.headers,
            });
            screen.json(&json.collect::<Vec<_>>())?;
        } else {
            for (n, (message, details)) in all.iter().enumerate() {
                if n > 0 {
                    writeln!(screen)?;
                }
                print(screen, message, details)?;
            }
        }
        FoundMessages { unread: found.unread + lost, ..found }.outcome(false)
    }
}

/// A message as people read it.
fn print(screen: &mut Screen<'_>, message: &HeldMessage, details: &Details) -> std::io::Result<()> {
    let plain = |text: &str| printable(text.as_bytes());
    let since = text::time::local_second(message.at);
    let HeldMessage { id, policy, key, why, sender, .. } = message;
    let kept = match message.state {
        HeldState::Held => "held",
        HeldState::Waiting => "waits",
    };
    writeln!(screen, "{}: {kept} since {since} by policy {}", plain(id), plain(policy))?;
    writeln!(screen, "key:    {}", key_text::key(key))?;
    writeln!(screen, "why:    {}", plain(why))?;
    writeln!(screen, "size:   {}", text::bytes(message.size))?;
    writeln!(screen, "sender: <{}>", plain(sender))?;
    for recipient in &details.recipients {
        writeln!(screen, "to:     {}", plain(recipient))?;
    }
    for line in &details.headers {
        writeln!(screen, "  {}", plain(line))?;
    }
    Ok(())
}

impl HeldChange {
    fn run(&self, screen: &mut Screen<'_>, deed: Deed) -> Result<Outcome, Failure> {
        let (verb, done) = (deed.verb(), deed.done());
        let queue = self.place.queue()?;
        let found = self.place.find(&*queue, &self.which)?;
        let messages: Vec<&HeldMessage> = found.messages.iter().collect();
        let named = |message: &&HeldMessage| {
            self.which.iter().any(|one| one.as_bytes() == message.id.as_bytes())
        };
        if !messages.is_empty() && (deed == Deed::Delete || !messages.iter().all(named)) {
            let lines: Vec<String> = messages.iter().map(|one| one.line()).collect();
            let question = format!("{verb} {}", text::counted(lines.len(), "message", "messages"));
            if !confirm::plainly(&lines, &question, self.yes)? {
                note(format_args!("nothing was {done}"));
                return Ok(Outcome::Found);
            }
        }
        let mut spool = self.place.common.spool_to_change().ok();
        let Dealt { done: changed, failed } =
            hold_queue::deal(&*queue, deed, &messages, spool.as_mut(), &mut AuditLog::new());
        if self.place.common.json {
            let json: Vec<_> = changed.iter().map(|message| HeldJson::of(message)).collect();
            screen.json(&json)?;
        } else {
            for message in &changed {
                writeln!(screen, "{done} {}", message.line())?;
            }
            if changed.len() != 1 {
                let count = counted_or_no(changed.len(), "message", "messages");
                writeln!(screen, "{done}: {count}")?;
            }
        }
        screen.flush()?;
        if !failed.is_empty() {
            let failed = text::counted(failed.len(), "message was", "messages were");
            return Err(Failure::new(format!("{failed} not {done}")));
        }
        found.outcome(changed.is_empty())
    }
}
