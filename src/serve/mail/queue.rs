//! Jobs for threads, of which only so many may wait.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The jobs that wait.
pub(super) struct Queue<T> {
    waiting: Mutex<JobQueue<T>>,
    changed: Condvar,
}

struct JobQueue<T> {
    jobs: VecDeque<T>,
    is_closed: bool,
}

impl<T> Queue<T> {
    pub(super) fn new() -> Self {
        let waiting = JobQueue { jobs: VecDeque::new(), is_closed: false };
        Self { waiting: Mutex::new(waiting), changed: Condvar::new() }
    }

    fn waiting(&self) -> MutexGuard<'_, JobQueue<T>> {
        // Nothing that may fail runs while it is locked.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a job, unless `most` are waiting or no thread takes any more: then it is
    /// returned.
    pub(super) fn push(&self, job: T, most: usize) -> Result<(), T> {
        let mut waiting = self.waiting();
        if waiting.is_closed || waiting.jobs.len() >= most {
            return Err(job);
        }
        waiting.jobs.push_back(job);
        drop(waiting);
        self.changed.notify_one();
        Ok(())
    }

    /// Waits for a job; `None` when the queue is closed and empty.
    pub(super) fn pop(&self) -> Option<T> {
        let mut waiting = self.waiting();
        loop {
            if let Some(job) = waiting.jobs.pop_front() {
                return Some(job);
            }
            if waiting.is_closed {
                return None;
            }
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes no more jobs; those that wait are still done.
    pub(super) fn close(&self) {
        self.waiting().is_closed = true;
        self.changed.notify_all();
    }
}
