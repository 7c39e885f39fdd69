//! Threads in which the database is read.

use std::sync::Arc;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::spawn_blocking;

use crate::serve::web::http::problem::{Problem, unavailable};

/// How many looks there are at the same time: one more would take a processor from mail.
pub(super) const LOOKS_MAX: usize = 2;

/// The threads that there are.
#[derive(Clone)]
pub(super) struct Places(Arc<Semaphore>);

impl Places {
    pub(super) fn new(most: usize) -> Self {
        Self(Arc::new(Semaphore::new(most)))
    }

    /// Whether somebody else has or awaits one.
    pub(super) fn is_used(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// A place, as soon as there is one.
    pub(super) async fn take(&self) -> Result<SemaphorePermit<'_>, Problem> {
        self.0.acquire().await.map_err(unavailable)
    }

    /// Runs `look` in a thread, as soon as there is one.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        look: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let _place = self.take().await?;
        spawn_blocking(look).await.map_err(unavailable)?
    }
}
