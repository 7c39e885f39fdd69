//! What the scheme consists of: its parameters, and the key in its hashes.

use super::super::DigestKey;
use super::super::settings::WinnowSettings;
use super::grams::{Scratch, Winnower};
use super::hashing::Hashing;

/// The scheme `winnow` with its parameters and its key.
#[derive(Clone, Debug)]
pub struct Winnow {
    pub(super) hashing: Hashing,
    pub(super) text: Winnower,
    pub(super) bytes: Winnower,
    pub(super) centibits: u16,
}

impl Winnow {
    /// One with these parameters; those out of range are taken for the nearest
    /// within.
    pub fn new(settings: WinnowSettings, key: &DigestKey) -> Self {
        let settings = settings.nearest();
        let hashing = Hashing::new(key);
        Self {
            text: Winnower::new(settings.gram, settings.window, hashing.order),
            bytes: Winnower::new(settings.bytes_gram, settings.bytes_window, hashing.order),
            centibits: settings.centibits,
            hashing,
        }
    }

    /// Gives the elements of a text, some more than once.
    pub(super) fn text_elements(
        &self,
        text: &[u8],
        scratch: &mut Scratch,
        mut element: impl FnMut(u64),
    ) {
        self.text.kept(text, scratch, |gram| element(self.hashing.text.hash(gram)));
    }

    /// Gives the elements of an attachment's bytes, some more than once.
    pub(super) fn bytes_elements(
        &self,
        bytes: &[u8],
        scratch: &mut Scratch,
        mut element: impl FnMut(u64),
    ) {
        self.bytes.kept(bytes, scratch, |gram| element(self.hashing.bytes.hash(gram)));
    }
}
