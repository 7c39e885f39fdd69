//! Specs: `ratelimit`, `ratelimit_all`, `ratelimit_info`, the lookup and `shadow`, and what
//! exirate.so keeps between calls.

mod ask;
pub(super) mod asked;
mod debug;
pub mod dlfunc;
#[cfg(not(feature = "trace"))]
pub mod dlfunc_elsewhere;
pub mod dlfunc_shadow;
pub(super) mod info;
pub mod lookup;
pub(super) mod marks;
pub(super) mod rate_variables;
pub(super) mod session;
pub(super) mod shadow_state;
