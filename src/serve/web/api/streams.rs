//! The streams that are open.

use hyper::body::Bytes;
use tokio::sync::watch;

use crate::serve::count::Count;

/// The streams that are open.
pub(in crate::serve::web) struct Streams {
    pub(in crate::serve::web) open: Count,
    /// The latest event, which all of them have; `None` once the service stops.
    pub(super) latest: watch::Sender<Option<Bytes>>,
}

impl Streams {
    /// Ends all of them.
    pub(in crate::serve::web) fn end(&self) {
        self.latest.send_replace(None);
    }
}

impl Default for Streams {
    fn default() -> Self {
        Self { open: Count::default(), latest: watch::channel(Some(Bytes::new())).0 }
    }
}
