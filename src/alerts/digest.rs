//! Many alerts in one message.

use serde::Serialize;

use super::alert::{Alert, Head};
use crate::text;

/// The most alerts that a mail shows; JSON has all.
const SHOWN: usize = 50;

/// Alerts that are sent together.
#[derive(Serialize)]
pub(super) struct Digest<'a> {
    #[serde(flatten)]
    pub(super) head: Head<'a>,
    event: &'static str,
    host: &'a str,
    /// When the first happened, and the last.
    time: String,
    until: String,
    count: usize,
    text: String,
    #[serde(rename = "events")]
    pub(super) alerts: Vec<Alert<'a>>,
}

impl<'a> Digest<'a> {
    pub(super) fn new(head: Head<'a>, host: &'a str, alerts: Vec<Alert<'a>>) -> Self {
        let times = || alerts.iter().map(|alert| alert.event.at);
        let (first, last) = (times().min().unwrap_or_default(), times().max().unwrap_or_default());
        let names: Vec<&str> = alerts.iter().take(3).map(|alert| &*alert.known.who).collect();
        let more = alerts.len().saturating_sub(names.len());
        let more = (more > 0).then(|| format!(" and {more} more"));
        let text = format!(
            "{} have gone over limits on {host} from {} to {}: {}{}.",
            text::counted(alerts.len(), "key", "keys"),
            text::local(first),
            text::local(last),
            names.join(", "),
            more.unwrap_or_default(),
        );
        let (time, until) = (text::iso(first), text::iso(last));
        Self { head, event: "digest", host, time, until, count: alerts.len(), text, alerts }
    }

    /// One object of JSON.
    pub(super) fn json(&self) -> Result<String, String> {
        text::json(self).map_err(|error| error.to_string())
    }

    /// A mail message.
    pub(super) fn mail(&self, to: &str) -> String {
        let mut body = format!("{}\n", self.text);
        for alert in self.alerts.iter().take(SHOWN) {
            body += &format!("\n{}\n", alert.known.text);
            for (_, command) in alert.known.commands.each() {
                body += &format!("  {command}\n");
            }
        }
        if let Some(more) = self.alerts.len().checked_sub(SHOWN).filter(|more| *more > 0) {
            let first = self.alerts.iter().map(|alert| alert.event.at).min().unwrap_or_default();
            body += &format!(
                "\nAnd {more} more; all of them:\n  exirate events --since '{}'\n",
                text::local(first)
            );
        }
        let subject = format!(
            "{} are over limits on {}",
            text::counted(self.alerts.len(), "key", "keys"),
            self.host
        );
        self.head.mail(to, &subject, &body)
    }
}
