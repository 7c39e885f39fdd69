//! The schemes' parameters as data. Their names and ranges are in
//! [`parameters`](super::parameters).

/// A scheme and its parameters, as a segment's header keeps them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Settings {
    /// Winnowed grams, with one filter for each message.
    Winnow(WinnowSettings),
    /// Hierarchical Bloom filters.
    Hbf(HbfSettings),
}

/// The parameters of the scheme `winnow`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WinnowSettings {
    /// The length of a gram of text in bytes.
    pub gram: u8,
    /// Of this many consecutive grams of text at least one is kept.
    pub window: u8,
    /// The length of a gram of an attachment's bytes.
    pub bytes_gram: u8,
    /// The window of an attachment's bytes.
    pub bytes_window: u8,
    /// The size of a filter, in hundredths of a bit for each kept gram of a message with 256 of
    /// them, with fewer for longer messages; repeated grams count a quarter.
    pub centibits: u16,
    /// The order of the grams of text.
    pub order: GramOrder,
}

/// The order of grams, of which the first of each window is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GramOrder {
    /// A random order: about 2 of `window + 1` grams are kept.
    Random,
    /// A random order in which open syncmers come first and closed ones second: fewer grams are
    /// kept, and the shortest excerpt that is always found is the same.
    OpenClosed,
}

/// The parameters of the scheme `hbf`, named as in the paper (see
/// [`Hbf`](super::Hbf)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HbfSettings {
    /// `s`: the size of a block in bytes.
    pub block: u16,
    /// `m`: the size of a filter in bits.
    pub bits: u32,
    /// `k`: the number of hash functions.
    pub probes: u8,
    /// `n`: the number of insertions that saturate a filter.
    pub capacity: u32,
    /// Which insertions `n` counts.
    pub counted: Counted,
}

/// The two readings of the paper's `n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Counted {
    /// "Number of elements that can be inserted": those of all levels.
    Elements,
    /// "Number of blocks that can be inserted": those of the lowest level.
    Blocks,
}

impl Settings {
    /// Whether a sealed body keeps the digests of messages apart, so that segments can be
    /// merged.
    pub(super) fn keeps_messages_apart(&self) -> bool {
        matches!(self, Self::Winnow(_))
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::Winnow(WinnowSettings::default())
    }
}

impl Default for WinnowSettings {
    fn default() -> Self {
        Self {
            gram: 6,
            window: 10,
            bytes_gram: 16,
            bytes_window: 255,
            centibits: 122,
            order: GramOrder::OpenClosed,
        }
    }
}

impl Default for HbfSettings {
    /// The paper's parameters.
    fn default() -> Self {
        Self { block: 32, bits: 65_536, probes: 4, capacity: 4_369, counted: Counted::Elements }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kit::quickcheck;

    #[test]
    fn layout() {
        let bytes = Settings::default().encode();
        assert_eq!(bytes, [1, 6, 10, 16, 255, 122, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        let hbf = HbfSettings { counted: Counted::Blocks, ..HbfSettings::default() };
        let bytes = Settings::Hbf(hbf).encode();
        assert_eq!(bytes, [2, 32, 0, 0, 0, 1, 0, 4, 0x11, 0x11, 0, 0, 1, 0, 0, 0]);
    }

    quickcheck! {
        fn encoded_settings_are_decoded(a: u64, b: u64) -> bool {
            let [gram, window, bytes_gram, bytes_window, c0, c1, probes, ..] = a.to_le_bytes();
            let winnow = WinnowSettings {
                gram, window, bytes_gram, bytes_window,
                centibits: u16::from_le_bytes([c0, c1]),
                order: if a >> 63 == 0 { GramOrder::Random } else { GramOrder::OpenClosed },
            };
            let hbf = HbfSettings {
                block: a as u16,
                bits: b as u32,
                probes,
                capacity: (b >> 32) as u32,
                counted: if a >> 63 == 0 { Counted::Elements } else { Counted::Blocks },
            };
            [Settings::Winnow(winnow), Settings::Hbf(hbf)].into_iter().all(|settings| {
                let nearest = settings.nearest();
                // Values out of range are not decoded.
                let plain = Settings::decode(&settings.encode());
                nearest.nearest() == nearest
                    && Settings::decode(&nearest.encode()) == Some(nearest)
                    && plain == Some(settings).filter(|_| settings == nearest)
            })
        }

        fn decoded_settings_are_encoded_alike(a: u64, b: u64, known: bool) -> bool {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&a.to_le_bytes());
            bytes[8..].copy_from_slice(&b.to_le_bytes());
            if known {
                bytes[0] = 1 + bytes[0] % 2;
                bytes[8..].fill(0);
            }
            Settings::decode(&bytes).is_none_or(|settings| settings.encode() == bytes)
        }
    }
}
