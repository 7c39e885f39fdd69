//! Records as text: what `exirate export` writes and `exirate import` reads, what Exim's own
//! `exim_dumpdb` prints, and which numbers a record may have that comes from outside.

pub(crate) mod exim_dump;
pub(crate) mod export_format;
pub(crate) mod range;
