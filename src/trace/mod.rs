//! The trace store: which message carried this text, who sent it, who got it?
//!
//! A message that passes is decoded into [`Fragment`]s, a [`Scheme`] makes a small
//! digest of them, and the store keeps the digest beside the message's
//! [`Envelope`]. Of a [`ContentQuery`] the same pieces are made, so that a digest
//! can tell whether its message may have carried them.

pub mod decode;
mod envelope;
mod filter;
mod hbf;
mod scheme;
mod settings;
mod store;
mod winnow;

pub use envelope::Envelope;
pub use hbf::Hbf;
use scheme::is_past;
pub use scheme::{
    Body, ContentQuery, Damage, DigestKey, Digester, Fragment, Hit, Part, Scheme, Sealed, Search,
    TooShort,
};
pub use settings::{Counted, HbfSettings, Settings, WinnowSettings};
pub use store::{
    Access, Address, Answer, Copied, KEEP_DEFAULT, KEEP_MIN, Match, Options, Problem, Query,
    QuerySummary, Repaired, TRACE_BYTES_DEFAULT, TRACE_BYTES_MIN, Tally, Tidied, TraceError,
    TraceStats, TraceStore, Verified, trace_directory,
};
pub use winnow::Winnow;

impl Settings {
    /// The scheme with these parameters. Those out of range are replaced by the
    /// nearest within.
    pub fn scheme(&self, key: &DigestKey) -> Box<dyn Scheme> {
        match self.nearest() {
            Self::Winnow(settings) => Box::new(Winnow::new(settings, key)),
            Self::Hbf(settings) => Box::new(Hbf::new(settings, key)),
        }
    }
}
