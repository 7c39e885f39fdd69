//! What is kept between calls of `policy`.

use super::facts::PolicyVariables;
use crate::policy::evaluator::PolicySession;
use crate::policy::evaluator::{Evaluated, Evaluator};
use crate::policy::reply::Fields;

/// What is kept between calls of `policy`.
#[derive(Default)]
pub(in crate::exim) struct Policies {
    pub(in crate::exim) variables: Option<PolicyVariables>,
    pub(in crate::exim) evaluator: Option<Evaluator<'static>>,
    pub(in crate::exim) session: PolicySession,
    /// The latest call, for `policy_info`.
    pub(in crate::exim) latest: Option<Evaluated>,
    /// What the daemon replied to it, if it was asked.
    pub(in crate::exim) asked: Option<Fields>,
    /// The process that has logged an error.
    pub(in crate::exim) logged: Option<u32>,
}
