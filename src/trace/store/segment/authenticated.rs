//! Selecting messages by authenticated ids: most are not stored, but are the sender or its
//! local part.

use super::words::{LOCAL_PART, SENDER};

/// The authenticated ids that a query is about, by numbers, each in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Authenticated {
    /// The ids themselves, or none.
    pub(in super::super) names: Vec<u32>,
    /// The senders whose address is one.
    pub(in super::super) senders: Vec<u32>,
    /// The senders whose local part is one.
    pub(in super::super) locals: Vec<u32>,
}

impl Authenticated {
    /// Whether this is the name of one of them, for this sender.
    pub(super) fn has(&self, name: u32, sender: u32) -> bool {
        let senders = match name {
            SENDER => &self.senders,
            LOCAL_PART => &self.locals,
            _ => return self.names.binary_search(&name).is_ok(),
        };
        senders.binary_search(&sender).is_ok()
    }
}
