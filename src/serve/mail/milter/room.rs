//! The memory that all connections together may use.

use std::cell::Cell;
use std::rc::Rc;

/// A number of bytes that connections share.
#[derive(Clone, Debug)]
pub struct Room(Rc<RoomInner>);

#[derive(Debug)]
struct RoomInner {
    used: Cell<usize>,
    most: Cell<usize>,
}

impl Room {
    /// Room for `most` bytes.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self(Rc::new(RoomInner { used: Cell::new(0), most: Cell::new(most) }))
    }

    /// Makes room for `most` bytes from now on.
    pub fn set(&self, most: usize) {
        self.0.most.set(most);
    }

    /// How many bytes are used.
    #[must_use]
    pub fn used(&self) -> usize {
        self.0.used.get()
    }

    /// A share, which is empty.
    #[must_use]
    pub fn share(&self) -> Share {
        Share { room: self.clone(), bytes: 0 }
    }
}

/// What one user has of the room; it is given back when this is dropped.
#[derive(Debug)]
pub struct Share {
    room: Room,
    bytes: usize,
}

impl Share {
    /// Makes it `bytes` in size; false, and nothing changes, if there is no room for that.
    pub fn resize(&mut self, bytes: usize) -> bool {
        let inner = &self.room.0;
        let others = inner.used.get().saturating_sub(self.bytes);
        let used = others.saturating_add(bytes);
        if bytes > self.bytes && used > inner.most.get() {
            return false;
        }
        inner.used.set(used);
        self.bytes = bytes;
        true
    }

    /// Makes it larger by `bytes`; false, and nothing changes, if there is no room for that.
    pub fn add(&mut self, bytes: usize) -> bool {
        self.resize(self.bytes.saturating_add(bytes))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.resize(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_never_more_than_the_room_and_are_given_back() {
        let room = Room::new(100);
        let (mut one, mut two) = (room.share(), room.share());
        assert!(one.resize(60) && two.add(30) && !two.add(11) && two.add(10));
        assert_eq!(room.used(), 100);
        assert!(!one.resize(usize::MAX) && !one.add(usize::MAX));
        assert!(one.resize(10));
        drop(two);
        assert_eq!(room.used(), 10);
        // Less room than is used: nothing is added until it is enough again.
        room.set(5);
        assert!(!one.add(1) && one.resize(4) && one.add(1));
        drop(one);
        assert_eq!(room.used(), 0);
    }
}
