//! What is kept between calls of `policy`.

use super::policy_facts::PolicyVariables;
use crate::policy::evaluator::{Evaluated, Evaluator};
use crate::policy::session::PolicySession;

/// What is kept between calls of `policy`.
#[derive(Default)]
pub(super) struct Policies {
    pub(super) variables: Option<PolicyVariables>,
    pub(super) evaluator: Option<Evaluator<'static>>,
    pub(super) session: PolicySession,
    /// The latest call, for `policy_info`.
    pub(super) latest: Option<Evaluated>,
    /// The process that has logged an error.
    pub(super) logged: Option<u32>,
}
