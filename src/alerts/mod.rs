//! Alerts: from the journal of crossings to the receivers that `[on.crossing]` of the policies in
//! use names.
//!
//! [`send`] sends what is new, as `exirate serve alerts` and `exirate events deliver` do;
//! [`delivery`] is what one receiver gets, [`cursor`] how far it has got, [`receiver`] where it
//! leads, and [`program`] what runs commands for it. [`alert`], [`known`] and [`digest`] are what it
//! is sent. [`published`] is what other servers get beside.

mod alert;
mod cursor;
mod delivery;
mod digest;
mod event;
mod known;
mod program;
mod published;
mod receiver;
mod send;

pub(crate) use delivery::{Delivered, ReceiverReport, delivered, has_alert};
pub(crate) use event::{EventJson, mark};
pub(crate) use published::Published;
pub(crate) use receiver::{CURL, Connect, NAMES as RECEIVERS, SENDMAIL};
pub(crate) use send::{SendOutcome, Sender, TEST_KEY, Tested, destinations};
