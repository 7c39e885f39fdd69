//! `exirate setup --alerts`: who is told by mail when somebody exceeds a limit.

use std::io::Write as _;
use std::path::Path;

use super::alerts_to::AlertsTo;
use super::{SetupCommand, log};
use crate::alerts::{Published, SENDMAIL, Sender, Tested};
use crate::cli::shared::confirm;
use crate::cli::shared::screen::{Screen, Terminal, note};
use crate::cli::{Failure, Outcome};
use crate::policy::model::{OnCrossing, Policies};
use crate::policy::source::FILE;
use crate::setup::policy_file::with_alerts;
use crate::setup::{MailServer, Plan, start_of_alerts};
use crate::toml_file::text::load;

/// What is asked.
const QUESTION: &str = "mail address for alerts when somebody exceeds a limit (empty: no alerts)";
/// What is said where nobody was asked.
const NOBODY: &str =
    "nobody is alerted when somebody exceeds a limit: `exirate setup --alerts ADDRESS`";

/// Whether anybody is alerted.
fn is_anybody(on: &OnCrossing) -> bool {
    on.log || !on.run.is_empty() || on.post.is_some() || on.mail.is_some()
}

impl SetupCommand {
    /// Whom to alert: what was asked for, else what somebody answers.
    fn alerts_to(&self, screen: &mut Screen<'_>) -> Result<AlertsTo, Failure> {
        match &self.alerts {
            Some(to) => return Ok(to.clone()),
            None if self.yes || self.dry_run => {
                note(NOBODY);
                return Ok(AlertsTo::Nobody);
            }
            None => screen.flush()?,
        }
        loop {
            let Some(reply) = confirm::word(QUESTION)? else { return Ok(AlertsTo::Nobody) };
            match AlertsTo::parse(&reply) {
                Ok(to) => return Ok(to),
                Err(why) => note(why),
            }
        }
    }

    /// Has the policy file that the plan writes name a receiver, and the daemon run that sends
    /// alerts; also where the file that is there names one.
    pub(super) fn choose_alerts(
        &self,
        screen: &mut Screen<'_>,
        plan: &mut Plan,
    ) -> Result<Option<String>, Failure> {
        let to = match plan.policy_text().is_some() {
            true => match self.alerts_to(screen)? {
                AlertsTo::Nobody => return Ok(None),
                AlertsTo::Mail(to) => to,
            },
            false => return Ok(None),
        };
        if let Some(text) = plan.policy_text() {
            *text = with_alerts(text, Some(&to));
        }
        plan.prepare.extend(start_of_alerts());
        Ok(Some(to))
    }

    /// The policy file for `--enforce`, with a receiver where there is none and somebody names one;
    /// and whether it does.
    pub(super) fn with_alerts_for(
        &self,
        screen: &mut Screen<'_>,
        text: String,
        policies: &Policies,
    ) -> Result<(String, bool), Failure> {
        if self.alerts.is_none() && is_anybody(&policies.on_crossing) {
            return Ok((text, false));
        }
        Ok(match self.alerts_to(screen)? {
            AlertsTo::Nobody => (text, false),
            AlertsTo::Mail(to) => (with_alerts(&text, Some(&to)), true),
        })
    }

    /// Has the policy file that is there name the address, puts it into use, and has the daemon run.
    pub(super) fn set_alerts(
        &self,
        screen: &mut Screen<'_>,
        server: &dyn MailServer,
        to: &AlertsTo,
    ) -> Result<Outcome, Failure> {
        let AlertsTo::Mail(to) = to else {
            writeln!(
                screen,
                "nothing changes: to end alerts, remove them from [on.crossing] of {FILE}"
            )?;
            return Ok(Outcome::Fine);
        };
        let path = Path::new(FILE);
        let old = load(path).map_err(Failure::new)?;
        let new = with_alerts(&old, Some(to));
        if self.dry_run {
            writeln!(
                screen,
                "would have [on.crossing] of {FILE} send mail to {to}, and exirate-alerts run"
            )?;
            return Ok(Outcome::Fine);
        }
        screen.flush()?;
        let question = format!("send alerts to {to} from now on");
        if !confirm::plainly(&[], &question, self.yes)? {
            writeln!(screen, "nothing was changed")?;
            return Ok(Outcome::Found);
        }
        self.setup(server).set_policies(path, &old, &new)?;
        self.setup(server).start_alerts()?;
        log(server.spool(), "setup --alerts");
        writeln!(screen, "[on.crossing] of {FILE} says so, and is in use; exirate-alerts runs")?;
        Self::test_alerts(screen, server.spool())
    }

    /// Sends a test, and says how that went.
    pub(super) fn test_alerts(screen: &mut Screen<'_>, spool: &Path) -> Result<Outcome, Failure> {
        let connect = |_: &Path| Err("not for a test".to_owned());
        let sender = Sender {
            directory: spool,
            named: None,
            sendmail: SENDMAIL,
            connect: &connect,
            voice: &Terminal,
            published: Published::default(),
        };
        let mut well = true;
        sender.test(|Tested { receiver, to, error, .. }| {
            well &= error.is_none();
            match error {
                None => writeln!(screen, "test alert: {receiver}: {to} has accepted it")?,
                Some(fault) => {
                    writeln!(screen, "test alert: {receiver}: {to} has failed: {fault}")?
                }
            }
            Ok::<_, Failure>(())
        })?;
        Ok(Outcome::found_if(!well))
    }
}
