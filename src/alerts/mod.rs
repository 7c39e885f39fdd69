//! Alerts: from the journal of crossings to the receivers that `[on.crossing]` of the policies in
//! use names.
//!
//! [`send`] sends what is new, as `exirate serve alerts` and `exirate events deliver` do;
//! [`delivery`] is what one receiver gets, [`cursor`] how far it has got, [`receiver`] where it
//! leads, and [`program`] what runs commands for it. [`alert`], [`known`] and [`digest`] are what it
//! is sent.

mod alert;
mod cursor;
mod delivery;
mod digest;
mod error;
mod event;
mod known;
mod program;
mod receiver;
mod send;
mod voice;

pub(crate) use delivery::{Delivered, ReceiverReport, delivered, has_alert};
pub(crate) use error::AlertError;
pub(crate) use event::{EventJson, mark};
pub(crate) use receiver::{CURL, Connect, NAMES as RECEIVERS, SENDMAIL};
pub(crate) use send::{SendOutcome, Sender, Tested, destinations};
pub(crate) use voice::Voice;
