//! The streams that are open.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use hyper::body::Bytes;
use tokio::sync::{Notify, watch};

use super::news::Latest;
use crate::serve::count::Count;
use crate::serve::web::look::Seen;
use crate::serve::web::look::news_reader::NewsReader;

/// The streams that are open.
#[derive(Default)]
pub(in crate::serve::web) struct Streams {
    pub(in crate::serve::web) open: Count,
    /// Those of each who has some, by name.
    own: RefCell<HashMap<String, Rc<Count>>>,
    /// What streams have, by whose identities whoever reads them may see.
    feeds: RefCell<HashMap<Seen, Rc<Feed>>>,
}

/// What all streams have that may see the same.
pub(super) struct Feed {
    pub(super) seen: Seen,
    pub(super) open: Count,
    /// How keys stand; `None` once the service stops. A change wakes the streams, also for news.
    pub(super) heard: watch::Sender<Option<Heard>>,
    /// What has happened.
    pub(super) news: RefCell<Latest>,
    pub(super) reader: RefCell<Option<NewsReader>>,
    /// Something was changed: all is read at once.
    pub(super) wake: Notify,
}

/// How keys stand.
#[derive(Clone, Default)]
pub(super) struct Heard {
    /// An event; empty if nothing was read yet.
    pub(super) state: Bytes,
    /// How many there were before.
    pub(super) states: u64,
}

impl Heard {
    /// Takes in an event; false if it is the same.
    pub(super) fn hear(&mut self, state: Bytes) -> bool {
        let is_new = self.state != state;
        if is_new {
            self.state = state;
            self.states += 1;
        }
        is_new
    }
}

impl Streams {
    /// Those of whoever has this name.
    pub(super) fn of(&self, name: &str) -> Rc<Count> {
        let mut own = self.own.borrow_mut();
        own.retain(|_, count| count.get() > 0);
        Rc::clone(own.entry(name.to_owned()).or_default())
    }

    /// What a stream has that may see this. What nobody has any more is dropped, but for what all see.
    pub(super) fn feed(&self, seen: &Seen) -> Rc<Feed> {
        let mut feeds = self.feeds.borrow_mut();
        feeds.retain(|seen, feed| seen.is_none() || feed.open.get() > 0);
        Rc::clone(feeds.entry(seen.clone()).or_insert_with(|| Rc::new(Feed::new(seen.clone()))))
    }

    /// Has all be read at once.
    pub(super) fn wake(&self) {
        self.feeds.borrow().values().for_each(|feed| feed.wake.notify_one());
    }

    /// Ends all of them.
    pub(in crate::serve::web) fn end(&self) {
        for feed in self.feeds.borrow().values() {
            feed.heard.send_replace(None);
        }
    }
}

impl Feed {
    fn new(seen: Seen) -> Self {
        Self {
            seen,
            open: Count::default(),
            heard: watch::channel(Some(Heard::default())).0,
            news: RefCell::default(),
            reader: RefCell::default(),
            wake: Notify::new(),
        }
    }
}
