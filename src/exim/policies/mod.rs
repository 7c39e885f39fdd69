//! Policies: `policy` and `identity`.

pub(super) mod call;
pub mod dlfunc;
pub mod dlfunc_identity;
pub(super) mod facts;
pub(super) mod identities;
pub(super) mod state;
