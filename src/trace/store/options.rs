//! The administrator's settings: scheme and retention.

use std::ffi::CStr;

use bincode::{Decode, Encode};

use crate::sys::secure_dir::SecureDir;

use super::super::Settings;
use super::TraceError;
use super::mirrored::{self, Mirrored, MirroredCopy};

/// The file that contains them.
pub(super) const SETTINGS: &CStr = c"settings";
/// The file while it is being written.
pub(super) const SETTINGS_NEW: &CStr = c"settings.new";

/// The default retention time in seconds: 90 days.
pub const KEEP_DEFAULT: u64 = 90 * 86_400;
/// The default size limit in bytes: 1 GiB.
pub const TRACE_BYTES_DEFAULT: u64 = 1 << 30;
/// The minimum size limit in bytes: two open logs, and a few segments.
pub const TRACE_BYTES_MIN: u64 = 32 << 20;
/// The minimum retention time in seconds: a day.
pub const KEEP_MIN: u64 = 86_400;

/// The administrator's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How new messages are digested.
    pub settings: Settings,
    /// How many seconds messages are kept, at least [`KEEP_MIN`]; `None` for
    /// ever.
    pub keep: Option<u64>,
    /// The size limit of the store in bytes, at least [`TRACE_BYTES_MIN`].
    pub max_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            keep: Some(KEEP_DEFAULT),
            max_bytes: TRACE_BYTES_DEFAULT,
        }
    }
}

/// The contents of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(super) struct OptionsFile {
    pub(super) magic: [u8; 8],
    pub(super) version: u32,
    pub(super) reserved: u32,
    pub(super) settings: [u8; 16],
    pub(super) keep: u64,
    pub(super) max_bytes: u64,
}

impl Mirrored for OptionsFile {
    const MAGIC: [u8; 8] = *b"EXIRATEO";
    const BYTES: usize = 52;
}

/// The value of `keep` in the file for `None`.
const FOR_EVER: u64 = u64::MAX;

impl Options {
    /// The settings that are used if the file is damaged.
    pub(super) fn when_damaged() -> Self {
        Self { keep: None, ..Self::default() }
    }

    /// For a store of this version.
    pub(super) fn to_file(self, version: u32) -> OptionsFile {
        OptionsFile {
            magic: OptionsFile::MAGIC,
            version,
            reserved: 0,
            settings: self.settings.encode(),
            keep: self.keep.unwrap_or(FOR_EVER),
            max_bytes: self.max_bytes,
        }
    }

    fn of_file(file: &OptionsFile) -> Option<Self> {
        Some(Self {
            settings: Settings::decode(&file.settings)?,
            keep: (file.keep != FOR_EVER).then_some(file.keep),
            max_bytes: file.max_bytes,
        })
    }

    /// With values out of range clamped.
    pub(super) fn bounded(self) -> Self {
        Self {
            keep: self.keep.map(|seconds| seconds.clamp(KEEP_MIN, FOR_EVER - 1)),
            max_bytes: self.max_bytes.max(TRACE_BYTES_MIN),
            settings: self.settings.nearest(),
        }
    }

    /// Reads them; the defaults if there is no file. If the file is damaged,
    /// messages do not expire, since all of them might have been meant to be
    /// kept.
    pub(super) fn read(dir: &SecureDir) -> Result<Self, TraceError> {
        Ok(match mirrored::read(dir, SETTINGS)? {
            MirroredCopy::Sound(file, _) => Self::of_file(&file).unwrap_or_else(Self::when_damaged),
            MirroredCopy::Nothing => Self::default(),
            MirroredCopy::Damaged => Self::when_damaged(),
        })
    }

    /// Whether the file contains these settings, in both copies.
    pub(super) fn are_in(self, dir: &SecureDir, version: u32) -> Result<bool, TraceError> {
        Ok(match mirrored::read::<OptionsFile>(dir, SETTINGS)? {
            MirroredCopy::Sound(file, whole) => whole && file == self.to_file(version),
            MirroredCopy::Nothing => self == Self::default(),
            MirroredCopy::Damaged => false,
        })
    }
}
