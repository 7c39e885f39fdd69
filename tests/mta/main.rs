//! Real Postfix and Sendmail, each in a chroot as on a machine of its own, with
//! `exirate serve mail` as the documents set it up.

#![cfg(feature = "cli")]
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod chroots;
#[path = "../common/mod.rs"]
mod common;
mod document;
mod machine;
#[path = "../redis_common/process.rs"]
#[allow(dead_code)]
mod process;
