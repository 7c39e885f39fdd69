//! The trace store: which message contained this text, who sent it, and who
//! received it.
//!
//! A message is decoded into [`Fragment`]s, a [`Scheme`] makes a small digest
//! of them, and the store keeps the digest with the message's [`Envelope`]. A
//! [`ContentQuery`] is decoded into the same kind of fragments, so that a
//! digest shows whether its message may have contained them.

#[cfg(feature = "cli")]
pub(crate) mod answer;
#[cfg(feature = "cli")]
pub(crate) mod archive;
#[cfg(test)]
mod damage_tests;
pub mod decode;
mod envelope;
mod file_hash;
mod filter;
mod hbf;
mod likeness;
mod message_part;
mod parameters;
mod scheme;
mod settings;
mod store;
mod winnow;

pub use envelope::Envelope;
pub use file_hash::{FileHash, file_hash};
pub use hbf::Hbf;
pub use likeness::{Likeness, Sketch, grouped};
pub use message_part::{MessagePart, MessageParts};
pub use parameters::{Parameter, SCHEMES, SchemeTable, WrongParameter};
pub use scheme::{
    Body, ContentQuery, Damage, DigestKey, Digester, Fragment, Hit, Part, Passage, Scheme, Sealed,
    Search, TooShort, Unsearched,
};
use scheme::{is_past, share};
pub use settings::{Counted, GramOrder, HbfSettings, Settings, WinnowSettings};
pub use store::{
    Accepts, Access, Address, Copied, ERASED, ErasedEnvelopes, KEEP_DEFAULT, KEEP_MIN, Match,
    Options, Problem, Query, QueryResult, QuerySummary, Repaired, Sample, TRACE_BYTES_DEFAULT,
    TRACE_BYTES_MIN, Tidied, TraceError, TraceStats, TraceStore, Verified, trace_directory,
};
pub use winnow::Winnow;

impl Settings {
    /// The scheme with these parameters. Values out of range are clamped.
    pub fn scheme(&self, key: &DigestKey) -> Box<dyn Scheme> {
        match self.nearest() {
            Self::Winnow(settings) => Box::new(Winnow::new(settings, key)),
            Self::Hbf(settings) => Box::new(Hbf::new(settings, key)),
        }
    }
}
