//! Selecting messages by authenticated ids: most are not stored, but are the sender or its
//! local part.

use std::cell::RefCell;

use super::super::query::Address;
use super::dictionary::local_part;
use super::lookup::Words;

/// The authenticated ids that a query is about.
#[derive(Debug)]
pub(in super::super) struct Authenticated<'a> {
    words: &'a Words<'a>,
    wanted: &'a Address<'a>,
    /// The numbers of those that are stored, or of none, in order.
    names: Vec<u32>,
    /// The numbers of the addresses that are selected, in order, if one is wanted.
    senders: Option<Vec<u32>>,
    /// For each sender that was looked up, whether its address and its local part are selected.
    known: RefCell<Vec<Option<[bool; 2]>>>,
}

impl<'a> Authenticated<'a> {
    /// Those that are wanted; `None` if some of those that are stored are damaged.
    pub(in super::super) fn of(words: &'a Words<'a>, wanted: &'a Address<'a>) -> Option<Self> {
        let names = words.matching_names(&|name| wanted.matches(name))?;
        let senders = match wanted {
            Address::Is(address) => Some(words.find(address)?),
            Address::Test(_) => None,
        };
        let known = RefCell::new(vec![None; words.addresses_count()]);
        Some(Self { words, wanted, names, senders, known })
    }

    /// The numbers of those that are stored, or of none, in order.
    pub(super) fn names(&self) -> &[u32] {
        &self.names
    }

    /// The numbers of the addresses that are selected, in order, if they are known.
    pub(super) fn senders(&self) -> Option<&[u32]> {
        self.senders.as_deref()
    }

    /// Whether the address with this number is selected, or else its local part. So it is if it
    /// is damaged.
    pub(super) fn has_sender(&self, number: u32, as_address: bool) -> bool {
        let mut known = self.known.borrow_mut();
        let Some(known) = known.get_mut(number as usize) else { return true };
        let [address, local] = *known.get_or_insert_with(|| self.look_up(number));
        if as_address { address } else { local }
    }

    /// Whether a sender and its local part are selected; both if it is damaged.
    fn look_up(&self, sender: u32) -> [bool; 2] {
        // Most addresses do not begin with the one that is wanted.
        if let Address::Is(wanted) = self.wanted
            && self.words.has_local_part(sender, local_part(wanted)) == Some(false)
            && self.words.has_local_part(sender, wanted) == Some(false)
        {
            return [false; 2];
        }
        let both = |address: String| {
            [self.wanted.matches(&address), self.wanted.matches(local_part(&address))]
        };
        self.words.address(sender).map_or([true; 2], both)
    }
}
