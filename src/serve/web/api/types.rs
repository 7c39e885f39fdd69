//! What is in replies of the API, and in requests. Each field says what it is: `openapi.json` is
//! made of this.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::standing::held::HeldJson;
use crate::standing::key_state::KeyStateJson;
use crate::standing::override_state::OverrideJson;
use crate::standing::usage::UsageReport;

/// The caller and its permissions.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::serve::web) struct Me {
    /// token:NAME or person:NAME.
    pub(in crate::serve::web) name: String,
    /// view or help.
    pub(in crate::serve::web) role: &'static str,
    /// Whose identities the token is for: customer NAME, or domain NAME NAME; null: all.
    pub(in crate::serve::web) scope: Option<String>,
    /// When the token ends; null if never, or for a person.
    pub(in crate::serve::web) until: Option<String>,
    /// What a page sends as X-CSRF-Token with each change; not needed with an Authorization
    /// header.
    pub(in crate::serve::web) csrf: String,
    /// For how many seconds somebody may be allowed or denied.
    pub(in crate::serve::web) longest: i64,
    /// How many changes may be made on a day.
    pub(in crate::serve::web) changes_a_day: u64,
    /// The release of exirate.
    pub(in crate::serve::web) release: &'static str,
}

/// How many keys there are.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::serve::web) struct Status {
    /// When they were counted.
    pub(in crate::serve::web) at: String,
    /// Keys with a rate.
    pub(in crate::serve::web) keys: u64,
    /// Those whose next event would be refused.
    pub(in crate::serve::web) blocked: u64,
    /// Those that have used four fifths of their limit, and are not blocked.
    pub(in crate::serve::web) close: u64,
    /// Accounts whose mail is unlike their habits, of which nobody has answered the alarm.
    pub(in crate::serve::web) suspected: u64,
    /// Overrides that deny.
    pub(in crate::serve::web) denied: u64,
    /// Overrides that allow, and keys that a policy exempts.
    pub(in crate::serve::web) exempt: u64,
    /// What could not be read, in sentences.
    pub(in crate::serve::web) unread: Vec<String>,
}

/// A page of keys.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::serve::web) struct Keys {
    /// When they were read.
    pub(in crate::serve::web) at: String,
    /// The keys: the largest share of a limit first; of those that are suspected, denied or
    /// allowed, the latest first.
    pub(in crate::serve::web) keys: Vec<Row>,
    /// The cursor of the next page; null if this is the last.
    pub(in crate::serve::web) next: Option<String>,
}

/// A key: against one limit, denied or allowed, or suspected.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::serve::web) struct Row {
    /// The key for people, with the name of a local user.
    pub(in crate::serve::web) shown: String,
    /// The key as the routes take it.
    pub(in crate::serve::web) pasted: String,
    /// Why the next event passes or is refused.
    pub(in crate::serve::web) reason: String,
    /// How many more events pass now; null if there is no bound, or it is not known.
    pub(in crate::serve::web) remaining: Option<f64>,
    /// The table of the policy in use that the limit is from; null of a spec, or if there is no
    /// such limit any more.
    pub(in crate::serve::web) rule: Option<String>,
    /// The override that decides.
    pub(in crate::serve::web) r#override: Option<OverrideJson>,
    /// What its habits say, of one that is suspected.
    pub(in crate::serve::web) suspicion: Option<Suspicion>,
    /// The figures; null of an override (state=denied or exempt), and of an account that is
    /// suspected.
    pub(in crate::serve::web) state: Option<KeyStateJson>,
}

/// What a search has found.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::serve::web) struct Found {
    /// When all keys were read.
    pub(in crate::serve::web) at: String,
    /// The identities, the best first.
    pub(in crate::serve::web) found: Vec<Hit>,
    /// Whether there are more.
    pub(in crate::serve::web) more: bool,
}

/// An identity that was found.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::serve::web) struct Hit {
    /// The key for people, with the name of a local user.
    pub(in crate::serve::web) shown: String,
    /// The key as the routes take it.
    pub(in crate::serve::web) pasted: String,
    /// Whether its next event is refused.
    pub(in crate::serve::web) refused: bool,
    /// Whether it is suspected for its habits.
    pub(in crate::serve::web) suspected: bool,
    /// Why the next event passes or is refused: of the limit of which most is used, or of the
    /// override; null if only its habits are known.
    pub(in crate::serve::web) reason: Option<String>,
    /// Which part of that limit is used: 1 at the limit; null if there is no record.
    pub(in crate::serve::web) share: Option<f64>,
}

/// Several identities.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::serve::web) struct Identities {
    /// In the order in which they were asked for.
    pub(in crate::serve::web) identities: Vec<Identity>,
}

/// All of one identity.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::serve::web) struct Identity {
    /// The key.
    pub(in crate::serve::web) key: String,
    /// Whether the next event of one of its records is refused.
    pub(in crate::serve::web) refused: bool,
    /// Why, in sentences.
    pub(in crate::serve::web) reasons: Vec<String>,
    /// When its rates refuse no more; null if it is not refused, or does not depend on its rates
    /// alone.
    pub(in crate::serve::web) free_at: Option<String>,
    /// Its records, the largest share of a limit first.
    pub(in crate::serve::web) records: Vec<Row>,
    /// The totals that count what it sends.
    pub(in crate::serve::web) totals: Vec<Row>,
    /// The overrides that apply to it.
    pub(in crate::serve::web) overrides: Vec<OverrideJson>,
    /// What its habits say; null if they are not known.
    pub(in crate::serve::web) suspicion: Option<Suspicion>,
}

/// What the habits of an account say.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::serve::web) struct Suspicion {
    /// The account, as the routes take it.
    pub(in crate::serve::web) account: String,
    /// Whether an alarm waits for an answer.
    pub(in crate::serve::web) suspected: bool,
    /// What led to it, in a sentence without its subject; null where there is nothing.
    pub(in crate::serve::web) evidence: Option<String>,
    /// When what the evidence is about began.
    pub(in crate::serve::web) since: String,
    /// Until when it is suspected, unless somebody answers; null if only an answer ends it.
    pub(in crate::serve::web) until: Option<String>,
    /// What becomes of its mail meanwhile: off, observe, hold or defer; off where no policy in
    /// use says so.
    pub(in crate::serve::web) action: &'static str,
    /// Whether the alarm has blocked it, so that its mail is refused meanwhile.
    pub(in crate::serve::web) blocked: bool,
    /// The score now.
    pub(in crate::serve::web) score: f64,
    /// From which score on an alarm is raised.
    pub(in crate::serve::web) threshold: f64,
    /// When the last alarm was raised.
    pub(in crate::serve::web) alarm_at: Option<String>,
    /// How it was answered: accepted or stolen; null if it was not.
    pub(in crate::serve::web) answer: Option<&'static str>,
    /// How many strangers were written to lately.
    pub(in crate::serve::web) strangers: u64,
    /// In how many messages.
    pub(in crate::serve::web) messages: u64,
    /// Within how many seconds.
    pub(in crate::serve::web) seconds: i64,
    /// From how many networks that are new.
    pub(in crate::serve::web) networks: u64,
    /// How many of the strangers could not be delivered to.
    pub(in crate::serve::web) failures: u64,
    /// How many strangers it usually writes to in a day.
    pub(in crate::serve::web) usual: f64,
    /// How many alarms there were.
    pub(in crate::serve::web) alarms: u64,
    /// How many of the alarms were the owner.
    pub(in crate::serve::web) accepted: u64,
    /// How many of the alarms were a thief.
    pub(in crate::serve::web) stolen: u64,
}

/// What was logged of crossings and refusals.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::serve::web) struct Crossings {
    /// The latest first.
    pub(in crate::serve::web) crossings: Vec<Crossing>,
    /// The cursor of the next page; null if this is the last.
    pub(in crate::serve::web) next: Option<String>,
    /// When the oldest that is logged, of any key, has happened; null if there is none. Older
    /// ones are not known.
    pub(in crate::serve::web) oldest: Option<String>,
    /// From where all of them came, not only those of the page: the latest first.
    pub(in crate::serve::web) clients: Vec<Client>,
}

/// From where something was refused, or crossed a limit.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::serve::web) struct Client {
    /// The client's address.
    pub(in crate::serve::web) client: String,
    /// How many came from there.
    pub(in crate::serve::web) events: u64,
    /// When the latest came.
    pub(in crate::serve::web) last: String,
}

/// A crossing of a limit, a refusal, or an alarm of habits.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::serve::web) struct Crossing {
    /// A stable ID.
    pub(in crate::serve::web) id: String,
    /// crossing, refusal or alarm.
    pub(in crate::serve::web) event: &'static str,
    /// When.
    pub(in crate::serve::web) at: String,
    /// The key for people.
    pub(in crate::serve::web) shown: String,
    /// The key as the routes take it.
    pub(in crate::serve::web) pasted: String,
    /// Whether it was refused: null if that is not known, as no refusal is logged.
    pub(in crate::serve::web) refused: Option<bool>,
    /// enforced, observed, exempt or waits.
    pub(in crate::serve::web) enforcement: &'static str,
    /// What counts: the policy, what it counts and the rule, or the spec.
    pub(in crate::serve::web) by: String,
    /// Each limit, the rate before and with the event, in sentences; of an alarm, the evidence.
    pub(in crate::serve::web) text: Vec<String>,
    /// The rate with the event; null of an alarm, as are the limit and the period in seconds.
    pub(in crate::serve::web) rate: Option<f64>,
    /// The limit that was crossed.
    pub(in crate::serve::web) limit: Option<f64>,
    /// Its period in seconds.
    pub(in crate::serve::web) period: Option<f64>,
    /// When an event of the same size would have passed; null if that is not known, or never.
    pub(in crate::serve::web) passes_at: Option<String>,
    /// The login; null where it, or what follows, is not known.
    pub(in crate::serve::web) login: Option<String>,
    /// The client's address.
    pub(in crate::serve::web) client: Option<String>,
    /// The envelope sender.
    pub(in crate::serve::web) sender: Option<String>,
    /// The recipient.
    pub(in crate::serve::web) recipient: Option<String>,
    /// The message id.
    pub(in crate::serve::web) message_id: Option<String>,
    /// The script of a web host.
    pub(in crate::serve::web) script: Option<String>,
}

/// What was changed by hand.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::serve::web) struct Changes {
    /// The latest first.
    pub(in crate::serve::web) changes: Vec<Change>,
    /// The cursor of the next page; null if this is the last.
    pub(in crate::serve::web) next: Option<String>,
}

/// A change: a line of audit.log.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::serve::web) struct Change {
    /// When.
    pub(in crate::serve::web) at: String,
    /// Who: token:NAME or person:NAME by the web; else the user of the machine.
    pub(in crate::serve::web) who: String,
    /// Whether it was made by the web.
    pub(in crate::serve::web) web: bool,
    /// What was done: unblock, allow, deny, accept, stolen, or another command.
    pub(in crate::serve::web) what: String,
    /// The key that it is about, as the routes take it, if there is one.
    pub(in crate::serve::web) key: Option<String>,
    /// What the line says of it.
    pub(in crate::serve::web) text: String,
}

/// What a key has sent.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::serve::web) struct SentOfKey {
    /// Whether what accounts send is counted: the policies in use say so.
    pub(in crate::serve::web) counted: bool,
    /// The login, the local account, the domain or the customer that the key means, if it has sent
    /// something in 35 days; of a domain or a customer, its accounts with what they have sent today.
    pub(in crate::serve::web) sent: Vec<UsageReport>,
}

/// The policies in use.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::serve::web) struct PoliciesInUse {
    /// The policies, by name.
    pub(in crate::serve::web) policies: Vec<PolicyInUse>,
}

/// A policy.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::serve::web) struct PolicyInUse {
    /// Its name.
    pub(in crate::serve::web) name: String,
    /// To which mail it applies; empty: to all.
    pub(in crate::serve::web) when: String,
    /// What is counted together: the fields of an identity; of a chain, the first that is known.
    pub(in crate::serve::web) key: Vec<&'static str>,
    /// What becomes of what is over a limit.
    pub(in crate::serve::web) action: &'static str,
    /// Its tables that are not of a user; of customers and of domains, the first 50 each.
    pub(in crate::serve::web) tables: Vec<PolicyTable>,
    /// How many customers have limits or a package of their own.
    pub(in crate::serve::web) customers: usize,
    /// How many domains have such.
    pub(in crate::serve::web) domains: usize,
    /// How many users have such. Which limits hold for one, is in `identity`.
    pub(in crate::serve::web) users: usize,
    /// Who is exempt.
    pub(in crate::serve::web) exempt: Vec<ExemptEntry>,
}

/// A table of limits.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::serve::web) struct PolicyTable {
    /// default, package NAME, customer NAME or domain NAME.
    pub(in crate::serve::web) table: String,
    /// The package of that customer or domain.
    pub(in crate::serve::web) package: Option<String>,
    /// The limits, as they are written, and what they count: 100/1h recipients.
    pub(in crate::serve::web) limits: Vec<PolicyLimit>,
    /// What becomes of the mail of suspected accounts: off, observe, hold or defer; null where the
    /// table does not say it.
    pub(in crate::serve::web) habits: Option<&'static str>,
}

/// A limit of a table.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::serve::web) struct PolicyLimit {
    /// What is counted: messages, recipients, and so on.
    pub(in crate::serve::web) unit: &'static str,
    /// Whether all users of a domain, or of a customer, are counted together.
    pub(in crate::serve::web) total: bool,
    /// window, cap or bucket.
    pub(in crate::serve::web) kind: &'static str,
    /// The limit, as it is written; unlimited where there is none.
    pub(in crate::serve::web) text: String,
    /// The limit, or the burst; null where there is none.
    pub(in crate::serve::web) limit: Option<f64>,
    /// The period in seconds; null by the calendar, or where there is none.
    pub(in crate::serve::web) period: Option<f64>,
}

/// Somebody who is exempt by a policy.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::serve::web) struct ExemptEntry {
    /// The identities.
    pub(in crate::serve::web) matches: Vec<String>,
    /// Only for mail to these recipients; empty: to all.
    pub(in crate::serve::web) recipients: Vec<String>,
    /// Until when; null: for ever.
    pub(in crate::serve::web) until: Option<String>,
    /// Why.
    pub(in crate::serve::web) reason: Option<String>,
}

/// Some events of the stream were left out.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::serve::web) struct Missed {
    /// Why, and what to do.
    pub(in crate::serve::web) detail: String,
}

/// All overrides that are in force.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::serve::web) struct Overrides {
    /// In the order in which they were set.
    pub(in crate::serve::web) overrides: Vec<OverrideJson>,
}

/// What policies hold in the mail server's queue, and what waits there.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::serve::web) struct HeldMail {
    /// The messages: the first 500, those that are held before those that wait, each the oldest first.
    pub(in crate::serve::web) held: Vec<HeldJson>,
    /// How many there are; null if that is not known.
    pub(in crate::serve::web) messages: Option<u64>,
    /// What could not be read, and why.
    pub(in crate::serve::web) unread: Vec<String>,
}

/// What was done.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::serve::web) struct Changed {
    /// In sentences.
    pub(in crate::serve::web) said: Vec<String>,
    /// How many records were deleted, or alarms answered.
    pub(in crate::serve::web) records: u64,
    /// How many held messages were released or deleted.
    pub(in crate::serve::web) messages: u64,
    /// When the override ends; null if there is none, or it has no end.
    pub(in crate::serve::web) until: Option<String>,
    /// What a thief has sent; null if it is not about one, or that is not known.
    pub(in crate::serve::web) sent: Option<ThiefMail>,
}

/// What a thief has sent.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::serve::web) struct ThiefMail {
    /// When the evidence began.
    pub(in crate::serve::web) since: String,
    /// How many messages were sent since.
    pub(in crate::serve::web) messages: u64,
    /// To how many recipients.
    pub(in crate::serve::web) recipients: u64,
    /// Who is to be warned: the first 500 of them.
    pub(in crate::serve::web) people: Vec<String>,
    /// From where; the most messages first.
    pub(in crate::serve::web) clients: Vec<String>,
}

/// Of which key.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::serve::web) struct OfKey {
    /// The key.
    pub(in crate::serve::web) key: String,
}

/// Of which account.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::serve::web) struct OfThief {
    /// The key.
    pub(in crate::serve::web) key: String,
    /// What becomes of the messages that were held for the alarm: delete or keep; keep, if it is
    /// missing or null.
    pub(in crate::serve::web) held: Option<WithHeld>,
}

/// Of which key, and which of its held messages.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::serve::web) struct OfHeld {
    /// The key.
    pub(in crate::serve::web) key: String,
    /// The message's name in the queue; all of the key, if it is missing or null.
    pub(in crate::serve::web) id: Option<String>,
}

/// For how long a key is allowed or denied.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::serve::web) struct ForATime {
    /// The key.
    pub(in crate::serve::web) key: String,
    /// For how many seconds.
    pub(in crate::serve::web) seconds: i64,
    /// Why.
    pub(in crate::serve::web) reason: String,
    /// Of a denial, what its clients are told: defer, so that they try again, or reject; without it, or null: defer.
    pub(in crate::serve::web) reply: Option<String>,
}

/// A token that a browser keeps as a cookie.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::serve::web) struct Session {
    /// The token.
    pub(in crate::serve::web) token: String,
}

/// What becomes of held messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(in crate::serve::web) enum WithHeld {
    Delete,
    Keep,
}
