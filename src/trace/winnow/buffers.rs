//! What one message after another is digested in, so that it is not allocated for each.

use std::sync::Mutex;

use super::grams::Scratch;

/// The buffers of a message.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    /// For elements: at most 512 KiB, as a digest has no more of them at once.
    pub(super) recent: Vec<u64>,
    pub(super) scratch: Scratch,
}

/// The buffers of the last message, for the next one.
#[derive(Debug, Default)]
pub(super) struct Spare(Mutex<Option<Buffers>>);

impl Spare {
    /// Takes them, empty.
    pub(super) fn take(&self) -> Buffers {
        // Another thread may have them.
        self.0.try_lock().ok().and_then(|mut spare| spare.take()).unwrap_or_default()
    }

    /// Keeps them.
    pub(super) fn keep(&self, mut buffers: Buffers) {
        if let Ok(mut spare) = self.0.try_lock() {
            buffers.recent.clear();
            *spare = Some(buffers);
        }
    }
}

impl Clone for Spare {
    fn clone(&self) -> Self {
        Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_kept_empty_and_taken_once() {
        let spare = Spare::default();
        spare.keep(Buffers { recent: vec![7; 10], ..Buffers::default() });
        let first = spare.take().recent;
        assert!(first.is_empty() && first.capacity() >= 10);
        assert_eq!(spare.take().recent.capacity(), 0);
    }
}
