//! A page of HTML in one file, which shows the rates of a log and of a database.
//!
//! The page loads nothing: its style, its script and its data are in it, and its content
//! security policy allows only these. All texts are data; the script shows them as text.

mod logs;
mod networks;
mod rates;
mod refused;
mod who;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::page_parts::{script, style};
use crate::text::json;

pub use logs::WantedLog;
pub use networks::Networks;
pub use rates::RatesOfLog;
pub use refused::Evaluation;
pub use who::Who;

const TEMPLATE: &str = include_str!("page.html");
const STYLE: &str = style!("style.css");
const SCRIPT: &str = script!(
    "script/sections.js",
    "script/grid.js",
    "script/peaks.js",
    "script/rates.js",
    "script/refused.js",
    "script/detail.js",
    "script/live.js",
    "script/main.js",
);

/// What the page shows. Times are in seconds since 1970, on the clock of the log; texts of
/// times are those of this machine.
#[derive(Debug, Default, Serialize)]
pub struct Page {
    /// The version of exirate.
    pub version: &'static str,
    /// When the page was made.
    pub made: String,
    /// What a reader should know of the data.
    pub notes: Vec<String>,
    /// What a log shows.
    pub log: Option<Log>,
    /// What policies would have refused of it.
    pub policy: Option<Policy>,
    /// The state of a rate database.
    pub live: Option<Live>,
}

/// The rates of a log, in columns: the n-th entry of each is about the n-th identity.
#[derive(Debug, Default, Serialize)]
pub struct Log {
    /// What identities are, in the plural: `logins`.
    pub who: &'static str,
    /// The same in the singular: `Login`.
    pub one: &'static str,
    /// What is counted: `recipients`.
    pub unit: &'static str,
    /// The period as it was written.
    pub period: String,
    /// Of which clock times are.
    pub zone: &'static str,
    /// The limit to begin with.
    pub limit: Option<f64>,
    /// The first and the last second.
    pub span: (i64, i64),
    /// How many messages there were.
    pub total: u64,
    /// The identities.
    pub names: Vec<String>,
    /// Their highest rates, exactly: limits are compared with them.
    pub peaks: Vec<f64>,
    /// When these were reached.
    pub when: Vec<i64>,
    /// Their messages.
    pub messages: Vec<u64>,
    /// What was counted of each.
    pub counts: Vec<f64>,
    /// Rates at messages, ascending, and how many messages met each.
    pub rates: Vec<(f64, u64)>,
    /// Messages by weekday (Monday first) and hour.
    pub heat: [[u64; 24]; 7],
    /// The rates of the busiest over time, the highest peak first.
    pub series: Vec<Series>,
    /// From which networks the mail of the busiest, and of those who were refused, came.
    pub networks: Vec<NetworksOf>,
}

/// The rate of an identity over time.
#[derive(Debug, Default, Serialize)]
pub struct Series {
    /// Its number.
    pub id: usize,
    /// When, and the rate then.
    pub points: Vec<(i64, f64)>,
    /// From when until when [`near`](Self::near) shows the rate: half a day before and after
    /// the peak.
    pub around: (i64, i64),
    /// When, and the rate then, more exactly in time.
    pub near: Vec<(i64, f64)>,
}

/// From which networks the mail of an identity came.
#[derive(Debug, Default, Serialize)]
pub struct NetworksOf {
    /// The number of the identity.
    pub id: usize,
    /// How many networks there are.
    pub count: usize,
    /// Those with the most messages, these first.
    pub busiest: Vec<Network>,
}

/// A network, and the messages of an identity from it.
#[derive(Debug, Default, Serialize)]
pub struct Network {
    /// `192.0.2.0/24`; a single client by its address.
    pub name: String,
    /// How many messages.
    pub messages: u32,
    /// When the first one was received.
    pub first: i64,
    /// When the last one was.
    pub last: i64,
}

/// What policies would have refused.
#[derive(Debug, Default, Serialize)]
pub struct Policy {
    /// The policy file.
    pub file: String,
    /// Attempts that were decided.
    pub decided: u64,
    /// How many of them would have been refused.
    pub refused: u64,
    /// Each limit and key that refused something, the most first.
    pub limits: Vec<RefusingLimit>,
    /// How many of the refused attempts were of the n-th identity of the log; `None` if that
    /// is not known.
    pub of: Vec<Option<u64>>,
    /// Whose attempts a limit refused: the number of the limit, that of the identity, and how
    /// many. What is missing in a limit's sum is of nobody that the log's rates are of.
    pub shares: Vec<(usize, usize, u64)>,
    /// Single refusals, of each limit the first ones.
    pub refusals: Vec<Refusal>,
    /// How many messages were compared with the habits of their accounts.
    pub compared: u64,
    /// The accounts that these would have named, in the order of time.
    pub named: Vec<Named>,
}

/// A single refusal: the number of the limit, when, the rate, from when on one more would
/// have passed (`None`: never), the recipient, and the number of the identity, if it is known.
pub type Refusal = (usize, i64, f64, Option<i64>, String, Option<usize>);

/// An account that its habits would have named.
#[derive(Debug, Default, Serialize)]
pub struct Named {
    /// Its key.
    pub key: String,
    /// When, the first time.
    pub at: i64,
    /// After how many recipients that it had never written to.
    pub strangers: u32,
    /// The evidence.
    pub evidence: String,
    /// How many alarms there were in all.
    pub alarms: u64,
}

/// A limit, and the key that it refused.
#[derive(Debug, Default, Serialize)]
#[allow(missing_docs, reason = "as in `report::simulate::Refused`")]
pub struct RefusingLimit {
    pub key: String,
    pub policy: String,
    pub rule: String,
    pub unit: &'static str,
    pub window: String,
    pub observed: bool,
    pub refused: u64,
    pub times: u64,
    pub over: f64,
    pub peak: f64,
    pub limit: f64,
    pub first: i64,
    pub last: i64,
}

/// The state of a rate database.
#[derive(Debug, Default, Serialize)]
pub struct Live {
    /// The time.
    pub at: String,
    /// How many keys there are.
    pub keys: u64,
    /// Those that are blocked, and others close to their limits or over them, the highest
    /// shares first.
    pub over: Vec<LiveKey>,
    /// See [`Self::over`].
    pub close: Vec<LiveKey>,
    /// The latest crossings, the newest first.
    pub crossings: Vec<LiveCrossing>,
    /// The latest refusals, the newest first.
    pub refusals: Vec<LiveRefusal>,
    /// The trace store, if there is one.
    pub trace: Option<LiveTrace>,
}

/// A key of the database.
#[derive(Debug, Default, Serialize)]
pub struct LiveKey {
    /// Who is counted.
    pub key: String,
    /// What is counted.
    pub what: String,
    /// The rate now.
    pub rate: f64,
    /// The limit.
    pub limit: f64,
    /// The rate in parts of the limit; `None` if the limit is 0.
    pub share: Option<f64>,
    /// When one more event would pass.
    pub free: String,
    /// What decides instead of the rate; empty where that does.
    pub why: String,
}

/// A crossing.
#[derive(Debug, Default, Serialize)]
pub struct LiveCrossing {
    /// When.
    pub when: String,
    /// Who was counted.
    pub key: String,
    /// The limit and its period.
    pub limit: String,
    /// The rate.
    pub rate: f64,
    /// Whether it was held against the sender: enforced, observed or exempt.
    pub enforcement: &'static str,
    /// What was sent, as far as the trace store knows.
    pub judgement: String,
}

/// A refusal that was logged; what is not known is empty.
#[derive(Debug, Default, Serialize)]
pub struct LiveRefusal {
    /// When.
    pub when: String,
    /// Who was counted.
    pub key: String,
    /// The limit and its period.
    pub limit: String,
    /// The rate.
    pub rate: f64,
    /// The policy, if one was evaluated.
    pub policy: String,
    /// The table that the limit is from.
    pub rule: String,
    /// The login.
    pub login: String,
    /// The client's address.
    pub client: String,
    /// The envelope sender.
    pub sender: String,
    /// The recipient.
    pub recipient: String,
    /// The message's id.
    pub message_id: String,
}

/// The trace store.
#[derive(Debug, Default, Serialize)]
pub struct LiveTrace {
    /// How many messages it has.
    pub messages: u64,
    /// Its size.
    pub bytes: u64,
}

impl Page {
    /// The page as HTML.
    ///
    /// # Errors
    /// The data cannot be written as JSON.
    pub fn html(&self) -> Result<String, serde_json::Error> {
        let data = escaped(&json(self)?);
        let fields = [
            ("{style-hash}", hash(STYLE)),
            ("{script-hash}", hash(SCRIPT)),
            ("{style}", STYLE.to_owned()),
            ("{data}", data),
            ("{script}", SCRIPT.to_owned()),
        ];
        let mut html = String::with_capacity(TEMPLATE.len() + 2 * SCRIPT.len() + fields[3].1.len());
        let mut rest = TEMPLATE;
        // In their order in the template: what is filled in is never searched.
        for (field, value) in fields {
            let (before, after) = rest.split_once(field).unwrap_or((rest, ""));
            html.push_str(before);
            html.push_str(&value);
            rest = after;
        }
        html.push_str(rest);
        Ok(html)
    }
}

/// What a content security policy calls an inline style or script.
fn hash(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text.as_bytes())))
}

/// JSON that can be within `<script>`: nothing in it ends the element, or begins a comment.
fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len() + json.len() / 16);
    for c in json.chars() {
        match c {
            '<' => text.push_str("\\u003c"),
            '>' => text.push_str("\\u003e"),
            '&' => text.push_str("\\u0026"),
            '\u{2028}' => text.push_str("\\u2028"),
            '\u{2029}' => text.push_str("\\u2029"),
            _ => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_all_parts_and_no_text_ends_the_data() {
        let hostile = "</script><!-- & {script} \u{2028} <b>";
        let log = Log { names: vec![hostile.to_owned()], ..Log::default() };
        let html = Page { log: Some(log), ..Page::default() }.html().unwrap();
        let (start, rest) =
            html.split_once(r#"<script type="application/json" id="data">"#).unwrap();
        assert!(start.contains(STYLE) && start.contains("default-src 'none'"));
        assert!(start.contains(&format!("script-src '{}'", hash(SCRIPT))));
        let (data, rest) = rest.split_once("</script>").unwrap();
        assert!(!data.contains(['<', '>', '&', '\u{2028}']), "{data}");
        let data: serde_json::Value = serde_json::from_str(data).unwrap();
        assert_eq!(data["log"]["names"][0], hostile);
        assert!(rest.contains(SCRIPT) && html.ends_with("</html>\n"));
        // The hash of an empty text, as in the specification's examples.
        assert_eq!(hash(""), "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
    }

    #[test]
    fn the_script_makes_no_markup_of_data() {
        for forbidden in
            ["innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "fetch("]
        {
            assert!(!SCRIPT.contains(forbidden), "{forbidden}");
        }
    }
}
