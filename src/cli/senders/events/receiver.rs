//! Where alerts go: standard output, a program, a URL or a mail address.

use std::env::var_os;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use super::alert::Alert;
use super::program::{Account, TIMEOUT, run};
use crate::cli::shared::servers::configuration;
use crate::policy::model::{OnCrossing, Template};
use crate::redis::SharedEvents;

/// The program for `post`.
pub(in crate::cli) const CURL: &str = "curl";
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
pub(in crate::cli) const NAMES: [&str; 5] = ["log", "run", "post", "mail", "shared"];

/// Where alerts go.
pub(super) enum Receiver<'a> {
    /// A line on standard output.
    Log,
    /// A program, and its arguments.
    Run(&'a [Template]),
    /// A URL that gets JSON.
    Post(&'a str),
    /// A mail address, and the program that sends mail.
    Mail(&'a str, &'a str),
    /// The stream of the crossings of all servers.
    Shared(Stream),
}

/// The stream of the crossings of all servers, which is connected when it is needed.
pub(super) struct Stream {
    /// The agent's configuration.
    config: PathBuf,
    /// The connection, and the name of this server.
    open: Mutex<Option<(SharedEvents, String)>>,
}

impl Stream {
    /// The stream to which the agent's configuration leads.
    pub(super) fn new(config: PathBuf) -> Self {
        Self { config, open: Mutex::new(None) }
    }

    fn append(&self, alert: &Alert<'_>) -> Result<(), String> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let (stream, server) = match &mut *open {
            Some(open) => open,
            closed => {
                let config = configuration(&self.config)?;
                let stream = SharedEvents::connect(&config.redis)
                    .map_err(|error| format!("{} cannot be used: {error}", config.redis))?;
                closed.insert((stream, config.agent.server_name))
            }
        };
        stream.append(server, alert.id, &alert.event.encode()).map_err(|error| error.to_string())
    }
}

impl<'a> Receiver<'a> {
    /// The receivers of a policy file.
    pub(super) fn all(on: &'a OnCrossing, sendmail: &'a str) -> Vec<Self> {
        let log = on.log.then_some(Self::Log);
        let run = (!on.run.is_empty()).then_some(Self::Run(&on.run));
        let post = on.post.as_deref().map(Self::Post);
        let mail = on.mail.as_deref().map(|address| Self::Mail(address, sendmail));
        [log, run, post, mail].into_iter().flatten().collect()
    }

    /// Its name in `[on.crossing]`.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Run(_) => "run",
            Self::Post(_) => "post",
            Self::Mail(..) => "mail",
            Self::Shared(_) => "shared",
        }
    }

    /// Whether it is to alert somebody: the stream of all servers gets every crossing, and
    /// no refusal.
    pub(super) fn is_alerted(&self) -> bool {
        !matches!(self, Self::Shared(_))
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
                        .env("EXIRATE_EVENT_ID", alert.id)
                        .env("EXIRATE_ATTEMPT", alert.attempt.to_string())
                        .env("EXIRATE_REDELIVERED", alert.redelivered());
                };
                run(&program, prepare, account, &alert.json()?)
            }
            Self::Post(url) => {
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
                run(CURL, prepare, account, &curl_config(url, alert)?)
            }
            Self::Mail(to, sendmail) => {
                let prepare = |command: &mut Command| {
                    // The null sender: what cannot be delivered is not returned.
                    command.args(["-oi", "-f", "<>", "--", to]);
                };
                run(sendmail, prepare, account, &alert.mail(to))
            }
            Self::Shared(stream) => stream.append(alert),
        }
    }
}

/// The options of curl that other users must not see in the list of processes: a URL may
/// contain a password.
fn curl_config(url: &str, alert: &Alert<'_>) -> Result<String, String> {
    let options = [
        ("url", url.to_owned()),
        ("header", "Content-Type: application/json".to_owned()),
        ("header", format!("X-Exirate-Event-Id: {}", alert.id)),
        ("header", format!("X-Exirate-Attempt: {}", alert.attempt)),
        ("header", format!("X-Exirate-Redelivered: {}", alert.redelivered())),
        ("data-raw", alert.json()?),
    ];
    let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    Ok(options.iter().map(|(name, value)| format!("{name} = \"{}\"\n", quoted(value))).collect())
}
