//! The parameters of the scheme, and its keyed hashes.

use super::super::DigestKey;
use super::super::settings::HbfSettings;
use super::hashing::Hashing;

/// The scheme `hbf` with its parameters and key.
#[derive(Clone, Debug)]
pub struct Hbf {
    pub(super) settings: HbfSettings,
    pub(super) hashing: Hashing,
}

impl Hbf {
    /// Creates it with these parameters; values out of range are clamped.
    pub fn new(settings: HbfSettings, key: &DigestKey) -> Self {
        Self { settings: settings.nearest(), hashing: Hashing::new(key) }
    }
}
