//! One event of mail: a step of the SMTP dialogue, or a message handed over without one.
//!
//! [`Event`] is what is known of it, whoever describes it: Exim's variables, a milter, Postfix's
//! policy protocol, a line of a log, a line of JSON. Its fields are stated once, in
//! [`mod@fields`]; what follows from them ([`Event::complete`]) is computed in one place.
//! [`AclStage`] is where in the dialogue it happens, [`Signs`] what that is known by, and [`session`] is what is remembered of
//! the dialogue.

mod caller;
mod circumstances;
pub mod fields;
mod origin;
#[cfg(feature = "rates")]
pub mod session;
mod signs;
mod stage;
mod unit;

pub use caller::{Caller, UNKNOWN, account_key};
pub use circumstances::{Circumstances, HandedOver};
pub use fields::Event;
pub use origin::{Local, Origin};
pub use signs::{Signs, is_of_dialogue};
pub use stage::{AclStage, Context, ContextSource, Scope};
pub use unit::Unit;
