//! Threads in which the database is read.

use std::sync::Arc;

use tokio::sync::Semaphore;
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

    /// Runs `look` in a thread, as soon as there is one.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        look: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let place = self.0.acquire().await;
        let _place = place.map_err(unavailable)?;
        spawn_blocking(look).await.map_err(unavailable)?
    }
}
