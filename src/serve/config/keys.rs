//! The keys that several units have in one file.

/// At the top.
pub(super) const TOP: [&str; 4] = ["listen", "redis", "agent", "mail"];
/// In `[listen]`.
pub(super) const LISTEN: [&str; 3] = ["agent", "policy", "milter"];
