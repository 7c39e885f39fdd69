//! How keys stand: their rates, and what decides their next event, for everything that shows or
//! changes that.
//!
//! - [`in_force`]: the overrides and the policies in use, and what they decide
//! - [`key_state`]: a record as it stands now
//! - [`scope`]: whose identities somebody may see
//! - [`words`]: the same in words
//! - [`totals`]: the totals that count what a key sends
//! - [`override_state`]: an override in words and in JSON
//! - [`listed`]: lists of keys, and [`page`] what the page of a report says of them
//! - [`explained`]: why something was refused, and what would let it pass, with [`commands`]
//! - [`logged`]: a crossing or a refusal that was logged, in words
//! - [`accounts`]: accounts with habits, and those that a key may mean; [`learn`] has them learned
//! - [`change`]: what is changed by hand, [`changer`]: who does it, and [`audit_log`]: the log of that;
//!   [`audit_line`]: the same, read back
//! - [`databases`]: the rate database and the trace store, opened together
//! - [`renamed`]: logins whose names change with the policies
//! - [`exchange`]: records as text, for `exirate export` and `import`
//! - [`held`]: the messages that policies hold
//! - [`left`]: what still refuses a key after a change
//! - [`alarm`]: what is said of an alarm, and [`sent`]: what a thief has sent
//! - [`bypass_state`]: whether nothing is refused now
//! - [`usage`]: what accounts, domains and customers have sent
//! - [`key_text`], [`pattern`], [`one_key`]: keys as text, and what a text means as a key

pub(crate) mod accounts;
pub(crate) mod alarm;
pub(crate) mod audit_line;
pub(crate) mod audit_log;
pub(crate) mod bypass_state;
pub(crate) mod can_send;
pub(crate) mod change;
pub(crate) mod changer;
pub(crate) mod commands;
pub(crate) mod databases;
pub(crate) mod exchange;
pub(crate) mod explained;
pub(crate) mod held;
pub(crate) mod in_force;
pub(crate) mod key_state;
pub(crate) mod key_text;
pub(crate) mod learn;
pub(crate) mod left;
pub(crate) mod listed;
pub(crate) mod logged;
pub(crate) mod one_key;
pub(crate) mod override_state;
pub(crate) mod page;
pub(crate) mod pattern;
pub(crate) mod renamed;
pub(crate) mod scope;
pub(crate) mod sent;
pub(crate) mod totals;
pub(crate) mod usage;
pub(crate) mod words;
