//! Recording messages in the trace store, and searching it: exirate-trace.so.

pub(super) mod data_file;
pub mod dlfunc;
pub(super) mod message;
pub(super) mod record;
pub(super) mod record_options;
pub(super) mod recorded;
pub(super) mod wrong_options;
