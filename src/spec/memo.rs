//! The specs of late, taken apart once.

use super::{Spec, SpecError};
use std::ops::Deref;
use std::sync::Arc;

/// As many specs as a busy ACL has lines.
const SLOTS: usize = 8;

/// Remembers the specs that come again and again: the lines of an ACL are
/// expanded for every recipient, and mostly to the same texts.
#[derive(Default)]
pub struct Memo {
    slots: [Slot; SLOTS],
    next: usize,
}

/// A text seen before. It is kept taken apart from the second time on, so
/// that one with a key that is new each time costs no more than its copy.
#[derive(Default)]
struct Slot {
    text: Vec<u8>,
    spec: Option<Arc<Spec<'static>>>,
}

/// A spec, be it remembered or new.
pub enum Known<'a> {
    /// Taken apart before.
    Before(Arc<Spec<'static>>),
    /// Taken apart now.
    Now(Spec<'a>),
}

impl<'a> Deref for Known<'a> {
    type Target = Spec<'a>;

    fn deref(&self) -> &Spec<'a> {
        match self {
            Self::Before(spec) => spec,
            Self::Now(spec) => spec,
        }
    }
}

impl Memo {
    /// [`Spec::parse`], or what it gave for the same text before.
    ///
    /// # Errors
    /// Those of [`Spec::parse`]; they are not remembered.
    pub fn parse<'a>(&mut self, text: &'a [u8]) -> Result<Known<'a>, SpecError> {
        let Some(slot) = self.slots.iter_mut().find(|slot| slot.text == text) else {
            let spec = Spec::parse(text)?;
            if let Some(slot) = self.slots.get_mut(self.next) {
                slot.text.clear();
                slot.text.extend_from_slice(text);
                slot.spec = None;
            }
            self.next = (self.next + 1) % SLOTS;
            return Ok(Known::Now(spec));
        };
        if let Some(spec) = &slot.spec {
            return Ok(Known::Before(Arc::clone(spec)));
        }
        let spec = Arc::new(Spec::parse(text)?.into_owned());
        slot.spec = Some(Arc::clone(&spec));
        Ok(Known::Before(spec))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_what_would_be_read() {
        let mut memo = Memo::default();
        let texts: Vec<String> = (0..3 * SLOTS)
            .map(|n| format!("{n}k / {}h / per_addr / unique=a//b{n} / strict / k//{n}", n + 1))
            .collect();
        for round in 0..4 {
            for text in texts.iter().take(SLOTS << (round % 2)).chain(&texts[..2]) {
                let known = memo.parse(text.as_bytes()).unwrap();
                assert_eq!(*known, Spec::parse(text.as_bytes()).unwrap());
            }
        }
    }

    #[test]
    fn the_second_time_it_is_known() {
        let mut memo = Memo::default();
        let spec = b"100 / 1h / strict / k";
        assert!(matches!(memo.parse(spec), Ok(Known::Now(_))));
        assert!(matches!(memo.parse(spec), Ok(Known::Before(_))));
        assert!(matches!(memo.parse(spec), Ok(Known::Before(_))));
        for n in 0..SLOTS {
            memo.parse(format!("{n} / 1h").as_bytes()).unwrap();
        }
        assert!(matches!(memo.parse(spec), Ok(Known::Now(_))));
    }

    #[test]
    fn errors_and_empty_texts_are_told_each_time() {
        let mut memo = Memo::default();
        for text in ["", "x / 1h", "1 / 1h / leaky / strict"] {
            for _ in 0..3 {
                let error = memo.parse(text.as_bytes()).map(|_| ()).unwrap_err();
                assert_eq!(Err(error), Spec::parse(text.as_bytes()).map(|_| ()));
            }
        }
    }
}
