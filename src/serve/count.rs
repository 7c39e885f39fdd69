//! How much there is of something of which there may be only so much.

use std::cell::Cell;
use std::rc::Rc;

use tokio::sync::Notify;

/// The number of what exists at the moment.
#[derive(Debug, Default)]
pub(in crate::serve) struct Count(Rc<CountInner>);

#[derive(Debug, Default)]
struct CountInner {
    number: Cell<usize>,
    less: Notify,
}

impl Count {
    pub(in crate::serve) fn get(&self) -> usize {
        self.0.number.get()
    }

    /// Counts `more` until the result is dropped.
    pub(in crate::serve) fn add(&self, more: usize) -> CountGuard {
        self.0.number.set(self.0.number.get() + more);
        CountGuard { count: Rc::clone(&self.0), number: more }
    }

    /// Waits until it is less than now.
    pub(in crate::serve) async fn less(&self) {
        self.0.less.notified().await;
    }
}

/// Something that is counted.
#[derive(Debug)]
pub(in crate::serve) struct CountGuard {
    count: Rc<CountInner>,
    number: usize,
}

impl Drop for CountGuard {
    fn drop(&mut self) {
        let number = &self.count.number;
        number.set(number.get().saturating_sub(self.number));
        self.count.less.notify_one();
    }
}
