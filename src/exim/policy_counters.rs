//! The tables of a policy in use, with what is decided by them counted.

use std::cell::RefCell;

use crate::policy::counters::{Checked, Counters};
use crate::policy::decide::Tables;
use crate::policy::image::{ImageError, PolicyImage};
use crate::policy::limit::{Exemption, Limit, Subject};

/// A policy, and the counters of what it decides.
pub(super) struct CountedTables<'a, 'i> {
    policy: &'a PolicyImage<'i>,
    counters: RefCell<&'a mut Counters>,
}

impl<'a, 'i> CountedTables<'a, 'i> {
    pub(super) fn new(policy: &'a PolicyImage<'i>, counters: &'a mut Counters) -> Self {
        Self { policy, counters: RefCell::new(counters) }
    }
}

impl Tables for CountedTables<'_, '_> {
    type Error = ImageError;

    fn limits<'a>(
        &'a self,
        subject: &Subject<'a>,
        limits: &mut Vec<Limit<'a>>,
    ) -> Result<(), ImageError> {
        self.policy.limits(subject, limits)
    }

    fn has_exemptions(&self) -> bool {
        self.policy.has_exemptions()
    }

    fn exemption<'a>(
        &'a self,
        subject: &Subject<'a>,
        now: i64,
    ) -> Result<Option<Exemption<'a>>, ImageError> {
        self.policy.exemption(subject, now)
    }

    #[inline]
    fn decided(&self, checked: &Checked<'_>) {
        if let Ok(mut counters) = self.counters.try_borrow_mut() {
            counters.count(checked);
        }
    }
}
