//! Operating system services: locks, memory mappings, secure files, the clock,
//! fork detection, unix sockets, wide vectors.
//!
//! Nothing here depends on the rest of the crate, so points in time are plain
//! numbers. Apart from `exim`, this is the only module with `unsafe`.
#![allow(unsafe_code)]

#[cfg(feature = "cli")]
pub mod child;
pub mod clock;
pub mod descriptors;
pub mod files;
pub mod fork;
mod host_name;
#[cfg(feature = "cli")]
pub mod inherited;
pub mod lock;
pub mod lock_holder;
pub mod mapping;
pub mod secure_dir;
pub mod small_file;
pub mod unix_stream;
#[cfg(feature = "cli")]
pub mod users;
#[cfg(feature = "trace")]
pub mod vectors;

pub use host_name::host_name;

#[cfg(test)]
pub(crate) mod failpoint;
#[cfg(test)]
pub(crate) mod simulated_disk;
#[cfg(test)]
pub(crate) mod write_trace;
