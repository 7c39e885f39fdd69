//! `exirate events deliver`: send crossings to the receivers of the policies in use.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;

use clap::Args;

use crate::alerts::{Published, ReceiverReport, SENDMAIL, SendOutcome, Sender, Tested};
use crate::cli::shared::database::Common;
use crate::cli::shared::screen::{Screen, Terminal, note};
use crate::cli::{Failure, Json, Outcome};
use crate::redis::SharedEvents;
use crate::serve::servers;
use crate::standing::databases::require_owner;

/// Send new crossings to the receivers in [on.crossing] of the policies
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Send what is new, and end:
    exirate events deliver
  Do alerts arrive? Send a test to each receiver, and print how that went:
    exirate events deliver --test
  Which receivers have not received everything?
    exirate events deliver --json

Each receiver that [on.crossing] of the policy file names gets each crossing at least once. A
later run tries again what has failed. The daemon `exirate serve alerts` sends in the same way.

Exit status: 0 no receiver has failed, or another process is sending; 1 a receiver has failed, and
a later run sends the rest; 2 an error.

`log` prints a line, `run` runs a program, `post` sends JSON to a URL, with curl, and `mail` sends
mail. Each receiver gets each crossing at least once; crossings of exempt keys are not sent, and
those of policies that only observe are sent if `observed = true`. A later run tries again what
has failed, and marks it. Where more than ten keys cross within a minute, `post` and `mail` get
one message for all of them, a minute later if some were sent already. The daemon `exirate serve
alerts` does the same at once; only one of them sends at a time. Programs run as the owner of the
spool directory. docs/alerts.md has the details.

Where limits are shared, crossings are also sent to the shared store (`shared` in JSON). For this,
run it as a user who can read the agent's configuration and the password, such as root.")]
#[command(add = Json::when::<ReceiverReport>("For each receiver").or::<Tested>("With --test"))]
pub(super) struct Deliver {
    /// Send mail with this program, which must accept the options of sendmail
    #[arg(long, value_name = "FILE", default_value = SENDMAIL)]
    sendmail: String,

    /// Send a test alert to each receiver, and nothing else
    #[arg(long)]
    test: bool,

    #[command(flatten)]
    common: Common,
}

impl Deliver {
    pub(super) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let directory = self.common.directory()?;
        require_owner(&directory)?;
        let sender = Sender {
            directory: &directory,
            named: self.common.spool.as_deref(),
            sendmail: &self.sendmail,
            connect: &connect,
            voice: &Terminal,
            published: Published::default(),
        };
        if self.test {
            return self.test(screen, &sender);
        }
        let reports = match sender.send()? {
            SendOutcome::All(reports) => reports,
            SendOutcome::Nothing(why) => {
                // Something that runs it now and then would say it each time.
                if std::io::stderr().is_terminal() {
                    note(format_args!("{why}: nothing is sent"));
                }
                Vec::new()
            }
        };
        if self.common.json {
            reports.iter().try_for_each(|report| screen.json(report))?;
        }
        Ok(Outcome::found_if(reports.iter().any(|report| report.failed)))
    }

    /// Sends a test alert to each receiver, and says what each did.
    fn test(&self, screen: &mut Screen<'_>, sender: &Sender<'_>) -> Result<Outcome, Failure> {
        let mut well = true;
        sender.test(|tested| {
            well &= tested.ok;
            let Tested { receiver, to, error, .. } = &tested;
            match error {
                _ if self.common.json => screen.json(&tested)?,
                None => writeln!(screen, "{receiver}: {to} has accepted it")?,
                Some(fault) => writeln!(screen, "{receiver}: {to} has failed: {fault}")?,
            }
            screen.flush()?;
            Ok::<_, Failure>(())
        })?;
        Ok(Outcome::found_if(!well))
    }
}

/// Connects to the stream of all servers.
fn connect(config: &Path) -> Result<(SharedEvents, String), String> {
    let config = servers::configuration(config)?;
    let stream = SharedEvents::connect(&config.redis)
        .map_err(|error| format!("{} cannot be used: {error}", config.redis))?;
    Ok((stream, config.agent.server_name))
}
