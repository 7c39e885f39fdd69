//! What the operating system gives: locks, mappings, secure files, the clock,
//! fork detection.
//!
//! Nothing here knows anything of ours, so moments are plain numbers. Of all
//! that is not about Exim, this is the only place with `unsafe`.
#![allow(unsafe_code)]

pub mod clock;
pub mod descriptors;
pub mod files;
pub mod fork;
pub mod holder;
pub mod lock;
pub mod mapping;
pub mod secure_dir;
#[cfg(feature = "cli")]
pub mod users;

#[cfg(test)]
pub(crate) mod counts;
#[cfg(test)]
pub(crate) mod failpoint;
#[cfg(test)]
pub(crate) mod images;
#[cfg(test)]
pub(crate) mod write_trace;
