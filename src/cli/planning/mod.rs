//! Limits before they are in force: what rules say, and what they would have refused.

pub(super) mod check;
pub(super) mod logs;
pub(super) mod measure;
pub(super) mod policy;
pub(super) mod report;
pub(super) mod rules;
pub(super) mod shadow;
pub(super) mod simulate;
