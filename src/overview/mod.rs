//! What all of this server comes to, on one screen or as metrics.
//!
//! - [`status`]: whether mail is limited, and by what, and [`keys`] who is blocked
//! - [`counts`]: the counts of the databases, and [`prometheus`] as metrics
//! - [`cluster`]: the limits that servers share

pub(crate) mod cluster;
pub(crate) mod counts;
pub(crate) mod keys;
pub(crate) mod prometheus;
pub(crate) mod status;
