//! Where alerts go: standard output, a program, a URL or a mail address.

use std::env::var_os;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use super::alert::{Alert, Head};
use super::cursor::{CursorFile, SavedCursor};
use super::digest::Digest;
use super::program::{Account, TIMEOUT, run};
use crate::engine::Kind;
use crate::history::explain::rule;
use crate::identity::Field;
use crate::policy::image::{ImageError, PolicyFile, PolicyImage};
use crate::policy::model::{OnCrossing, Piece, Template};
use crate::redis::{RedisError, SharedEvents};
use crate::spool::LoggedEvent;

/// The program that sends mail, unless another is named.
pub(crate) const SENDMAIL: &str = "/usr/sbin/sendmail";
/// The program for `post`.
pub(crate) const CURL: &str = "curl";
/// What curl may have of the environment: how it reaches other machines, and trusts them.
const CURL_VARIABLES: [&str; 7] = [
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "CURL_CA_BUNDLE",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];

/// The names of all receivers: those in `[on.crossing]`, and the stream of all servers.
pub(crate) const NAMES: [&str; 6] = ["log", "run", "post", "mail", "contact", "shared"];

/// Where alerts go. A new one is also a setting of `OnCrossing` (`policy/settings.rs`), its name in
/// [`NAMES`], a line in [`Receiver::all`], and what it needs to run, in `doctor/alerts.rs`.
pub(super) enum Receiver<'a> {
    /// A line on standard output.
    Log,
    /// A program, and its arguments.
    Run(&'a [Template]),
    /// A URL that gets JSON.
    Post(&'a str),
    /// A mail address, and the program that sends mail.
    Mail(&'a str, &'a str),
    /// Of the account, the contact that the policies in use of this spool directory name, and the
    /// program that sends mail.
    Contact(&'a Path, &'a str),
    /// The stream of the crossings of all servers.
    Shared(Stream<'a>),
}

/// Connects to the stream of all servers, by the agent's configuration in this file; the second is
/// the name of this server.
pub(crate) type Connect<'a> = dyn Fn(&Path) -> Result<(SharedEvents, String), String> + Sync + 'a;

/// The stream of the crossings of all servers, which is connected when it is needed.
pub(super) struct Stream<'a> {
    connect: &'a Connect<'a>,
    /// The agent's configuration.
    config: PathBuf,
    /// The connection, and the name of this server.
    open: Mutex<Option<(SharedEvents, String)>>,
}

impl<'a> Stream<'a> {
    /// The stream to which the agent's configuration leads.
    pub(super) fn new(connect: &'a Connect<'a>, config: PathBuf) -> Self {
        Self { connect, config, open: Mutex::new(None) }
    }

    fn append(&self, alert: &Alert<'_>) -> Result<(), String> {
        self.with(|stream, server| stream.append(server, alert.head.id, &alert.event.encode()))
    }

    /// Publishes a part of what accounts send.
    pub(super) fn publish_usage(&self, part: usize, bytes: &[u8]) -> Result<(), String> {
        self.with(|stream, server| stream.publish_usage(server, part, bytes))
    }

    fn with(
        &self,
        work: impl FnOnce(&SharedEvents, &str) -> Result<(), RedisError>,
    ) -> Result<(), String> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let (stream, server) = match &mut *open {
            Some(open) => open,
            closed => closed.insert((self.connect)(&self.config)?),
        };
        work(stream, server).map_err(|error| error.to_string())
    }
}

impl<'a> Receiver<'a> {
    /// The receivers that `[on.crossing]` names; [`Receiver::Shared`] is added by `send.rs`.
    pub(super) fn all(spool: &'a Path, on: &'a OnCrossing, sendmail: &'a str) -> Vec<Self> {
        let log = on.log.then_some(Self::Log);
        let run = (!on.run.is_empty()).then_some(Self::Run(&on.run));
        let post = on.post.as_deref().map(Self::Post);
        let mail = on.mail.as_deref().map(|address| Self::Mail(address, sendmail));
        let contact = on.contact.then_some(Self::Contact(spool, sendmail));
        [log, run, post, mail, contact].into_iter().flatten().collect()
    }

    /// Its name in `[on.crossing]`.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Run(_) => "run",
            Self::Post(_) => "post",
            Self::Mail(..) => "mail",
            Self::Contact(..) => "contact",
            Self::Shared(_) => "shared",
        }
    }

    /// Whether it is to alert somebody: the stream of all servers gets every crossing, and
    /// no refusal.
    pub(super) fn is_alerted(&self) -> bool {
        !matches!(self, Self::Shared(_))
    }

    /// Whether it is to get an alert of this event: a contact of the first of a day.
    pub(super) fn wants(&self, is_first_of_day: bool) -> bool {
        is_first_of_day || !matches!(self, Self::Contact(..))
    }

    /// Whether it can get several alerts in one message.
    pub(super) fn takes_digests(&self) -> bool {
        matches!(self, Self::Post(_) | Self::Mail(..))
    }

    /// Where it leads, for people: of a URL, without what may be a password.
    pub(super) fn destination(&self) -> String {
        match self {
            Self::Log => "standard output".to_owned(),
            Self::Run(words) => {
                let program = words.first().and_then(|word| word.0.first());
                match program {
                    Some(Piece::Text(program)) => program.clone(),
                    _ => "the program".to_owned(),
                }
            }
            Self::Post(url) => {
                let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
                let place = rest.split(['/', '?', '#']).next().unwrap_or_default();
                format!("{scheme}://{}", place.rsplit('@').next().unwrap_or_default())
            }
            Self::Mail(to, sendmail) => format!("{sendmail}, for {to},"),
            Self::Contact(..) => "the contact of each account".to_owned(),
            Self::Shared(_) => "the stream of all servers".to_owned(),
        }
    }

    /// Whether it has got the crossing of this id.
    pub(super) fn has_got(&self, spool: &Path, id: &str) -> bool {
        let saved = CursorFile::open(spool, self.name()).and_then(|file| file.read());
        matches!(saved, Ok(SavedCursor::Cursor(cursor)) if cursor.is_done(id))
    }

    /// Sends alerts together, where it can take them so.
    pub(super) fn send_digest(&self, digest: &Digest<'_>, account: Account) -> Result<(), String> {
        match self {
            Self::Post(url) => post(url, &digest.head, &digest.json()?, account),
            Self::Mail(to, sendmail) => mail(to, sendmail, digest.mail(to), account),
            Self::Log | Self::Run(_) | Self::Contact(..) | Self::Shared(_) => {
                digest.alerts.iter().try_for_each(|alert| self.send(alert, account))
            }
        }
    }

    /// Sends an alert, or says why not.
    pub(super) fn send(&self, alert: &Alert<'_>, account: Account) -> Result<(), String> {
        match self {
            Self::Log => {
                let line = alert.line() + "\n";
                // Not through the screen, which another thread has locked.
                let out = std::io::stdout().as_fd().try_clone_to_owned();
                out.and_then(|out| File::from(out).write_all(line.as_bytes()))
                    .map_err(|error| format!("cannot write to standard output: {error}"))
            }
            Self::Run(words) => {
                let mut words = words.iter().map(|word| alert.expand(word));
                let program = words.next().unwrap_or_default();
                let prepare = |command: &mut Command| {
                    command
                        .args(words)
                        .env("EXIRATE_EVENT_ID", alert.head.id)
                        .env("EXIRATE_ATTEMPT", alert.head.attempt.to_string())
                        .env("EXIRATE_REDELIVERED", alert.head.redelivered());
                    if alert.head.test {
                        command.env("EXIRATE_TEST", "yes");
                    }
                };
                run(&program, prepare, account, alert.json()?)
            }
            Self::Post(url) => post(url, &alert.head, &alert.json()?, account),
            Self::Mail(to, sendmail) => mail(to, sendmail, alert.mail(to), account),
            Self::Contact(spool, sendmail) => match contact(spool, alert)? {
                Some(to) => mail(&to, sendmail, alert.mail_to_owner(&to), account),
                None => Ok(()),
            },
            Self::Shared(stream) => stream.append(alert),
        }
    }
}

/// The contact of the account that an alert is about, if it has one.
fn contact(spool: &Path, alert: &Alert<'_>) -> Result<Option<String>, String> {
    let Some(account) = account_of(alert.event) else { return Ok(None) };
    let file = PolicyFile::open(spool);
    let image = file.image().map_err(|error| error.to_string())?;
    let said = |(_, policy): (&str, Result<PolicyImage<'_>, ImageError>)| policy?.contact(&account);
    let mut each = image.each().map(said).filter_map(Result::transpose);
    each.next().transpose().map_err(|error| error.to_string())
}

/// The login or the local account whose crossing it is; `None` if others are counted, or more with it.
pub(super) fn account_of(event: &LoggedEvent) -> Option<String> {
    let record = event.record_key();
    let identity = std::str::from_utf8(record.identity()).ok()?;
    let fields =
        matches!(record.kind, Kind::Policy | Kind::Habits).then(|| rule::fields(identity))?;
    let (field, value) = fields.into_iter().next()?;
    let is_account = [Field::Auth, Field::LocalAccount].iter().any(|one| one.word() == field);
    is_account.then_some(value)
}

/// Posts JSON to a URL.
fn post(url: &str, head: &Head<'_>, json: &str, account: Account) -> Result<(), String> {
    let prepare = |command: &mut Command| {
        command
            // Its first option: no file of a user's changes what it does.
            .args(["--disable", "--silent", "--show-error", "--fail", "--globoff"])
            .args(["--proto", "=http,https", "--output", "/dev/null", "--max-time"])
            .arg(TIMEOUT.as_secs().to_string())
            .args(["--config", "-"]);
        let set = CURL_VARIABLES.iter().filter_map(|name| Some((name, var_os(name)?)));
        command.envs(set);
    };
    run(CURL, prepare, account, curl_config(url, head, json))
}

/// Passes a message to a program that sends mail.
fn mail(to: &str, sendmail: &str, message: String, account: Account) -> Result<(), String> {
    let prepare = |command: &mut Command| {
        // The null sender: what cannot be delivered is not returned.
        command.args(["-oi", "-f", "<>", "--", to]);
    };
    run(sendmail, prepare, account, message)
}

/// The options of curl that other users must not see in the list of processes: a URL may
/// contain a password.
fn curl_config(url: &str, head: &Head<'_>, json: &str) -> String {
    let options = [
        ("url", url.to_owned()),
        ("header", "Content-Type: application/json".to_owned()),
        // It would wait for a reply before it sends a large body.
        ("header", "Expect:".to_owned()),
        ("header", format!("X-Exirate-Event-Id: {}", head.id)),
        ("header", format!("X-Exirate-Attempt: {}", head.attempt)),
        ("header", format!("X-Exirate-Redelivered: {}", head.redelivered())),
        ("data-raw", json.to_owned()),
    ];
    let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    options.iter().map(|(name, value)| format!("{name} = \"{}\"\n", quoted(value))).collect()
}
