//! Real Postfix and Sendmail, each in a chroot as on a machine of its own, with
//! `exirate serve mail` as the documents set it up.

#![cfg(feature = "cli")]
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod chroots;
mod document;
