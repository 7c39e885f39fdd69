//! What the scheme consists of: its parameters, and the key in its hashes.

use super::super::DigestKey;
use super::super::settings::HbfSettings;
use super::hashing::Hashing;

/// The scheme `hbf` with its parameters and its key.
#[derive(Clone, Debug)]
pub struct Hbf {
    pub(super) settings: HbfSettings,
    pub(super) hashing: Hashing,
}

impl Hbf {
    /// One with these parameters; those out of range are taken for the nearest
    /// within.
    pub fn new(settings: HbfSettings, key: &DigestKey) -> Self {
        Self { settings: settings.nearest(), hashing: Hashing::new(key) }
    }
}
