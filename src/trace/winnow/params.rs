//! The parameters of the scheme, and its keyed hashes.

use super::super::settings::{GramOrder, WinnowSettings};
use super::super::{DigestKey, MessagePart};
use super::buffers::Spare;
use super::grams::{Scratch, Winnower};
use super::hashing::Hashing;
use super::marks::{Marker, Material};

/// The scheme `winnow` with its parameters and key.
#[derive(Clone, Debug)]
pub struct Winnow {
    pub(super) hashing: Hashing,
    pub(super) text: Winnower,
    pub(super) bytes: Winnower,
    pub(super) centibits: u16,
    pub(super) spare: Spare,
}

impl Winnow {
    /// Creates it with these parameters; values out of range are clamped.
    pub fn new(settings: WinnowSettings, key: &DigestKey) -> Self {
        let settings = settings.nearest();
        let hashing = Hashing::new(key);
        Self {
            text: Winnower::new(settings.gram, settings.window, settings.order, hashing.order),
            // Windows much wider than a gram gain next to nothing by another order.
            bytes: Winnower::new(
                settings.bytes_gram,
                settings.bytes_window,
                GramOrder::Random,
                hashing.order,
            ),
            centibits: settings.centibits,
            hashing,
            spare: Spare::default(),
        }
    }

    /// Makes the marks of a part; `None` if it has none.
    pub(super) fn marker(&self, part: MessagePart, material: Material) -> Option<Marker> {
        Marker::of(part, material, |part| self.hashing.marks_of(part))
    }

    /// Passes the elements of a text to `element`, with duplicates.
    pub(super) fn text_elements(
        &self,
        text: &[u8],
        scratch: &mut Scratch,
        mut element: impl FnMut(u64),
    ) {
        self.text.select(text, scratch, |gram| element(self.hashing.text.hash(gram)));
    }

    /// Passes the elements of an attachment's bytes to `element`, with
    /// duplicates.
    pub(super) fn bytes_elements(
        &self,
        bytes: &[u8],
        scratch: &mut Scratch,
        mut element: impl FnMut(u64),
    ) {
        self.bytes.select(bytes, scratch, |gram| element(self.hashing.bytes.hash(gram)));
    }
}
