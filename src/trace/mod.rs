//! The trace store: which message carried this text, who sent it, who got it?
//!
//! A message that passes is decoded into [`Piece`]s, a [`Scheme`] makes a small
//! digest of them, and the store keeps the digest beside the message's
//! [`Envelope`]. Of a [`Question`] the same pieces are made, so that a digest
//! can tell whether its message may have carried them.

pub mod decode;
mod envelope;
mod filter;
mod hbf;
mod piece;
mod question;
mod scheme;
mod settings;
mod store;
mod winnow;

pub use envelope::Envelope;
pub use hbf::Hbf;
pub use piece::Piece;
pub use question::{Part, Question};
use scheme::is_past;
pub use scheme::{Body, Damage, DigestKey, Digester, Hit, Scheme, Sealed, Search, TooShort};
pub use settings::{Counted, HbfSettings, Settings, WinnowSettings};
pub use store::{
    Access, Address, Answer, Asked, KEEP_DEFAULT, KEEP_MIN, Match, Options, Problem, Query,
    TRACE_BYTES_DEFAULT, TRACE_BYTES_MIN, Tally, Tidied, TraceError, TraceStats, TraceStore,
    Verified, trace_directory,
};
pub use winnow::Winnow;
