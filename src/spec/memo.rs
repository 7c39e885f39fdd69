//! The specs of late, taken apart once.

use super::{Context, Place, Request, Spec, SpecError};
use std::ops::Deref;
use std::rc::Rc;

/// As many specs as a busy ACL has lines.
const SLOTS: usize = 8;

/// Something that holds what a [`Context`] borrows.
pub trait Surroundings {
    /// What is known, at `place`.
    fn context(&self, place: Place) -> Context<'_>;
}

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
    spec: Option<Rc<Spec<'static>>>,
    /// What it asks for at one place, where that depends on nothing else but
    /// the recipient.
    request: Option<(Place, Rc<Request>)>,
}

/// A spec, be it remembered or new.
pub enum Known<'a> {
    /// Taken apart before; with its place in the [`Memo`] that knows it, until
    /// the next text is read.
    Before(Rc<Spec<'static>>, usize),
    /// Taken apart now.
    Now(Spec<'a>),
}

impl<'a> Deref for Known<'a> {
    type Target = Spec<'a>;

    fn deref(&self) -> &Spec<'a> {
        match self {
            Self::Before(spec, _) => spec,
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
        let Some(number) = self.slots.iter().position(|slot| slot.text == text) else {
            let spec = Spec::parse(text)?;
            if let Some(slot) = self.slots.get_mut(self.next) {
                slot.text.clear();
                slot.text.extend_from_slice(text);
                slot.spec = None;
                slot.request = None;
            }
            self.next = (self.next + 1) % SLOTS;
            return Ok(Known::Now(spec));
        };
        let slot = &mut self.slots[number];
        if let Some(spec) = &slot.spec {
            return Ok(Known::Before(Rc::clone(spec), number));
        }
        let spec = Rc::new(Spec::parse(text)?.into_owned());
        slot.spec = Some(Rc::clone(&spec));
        Ok(Known::Before(spec, number))
    }

    /// [`Spec::request`] of the spec read last. What it was at the same place
    /// before is taken again where it can only be the same but for the
    /// recipient. `read` is only called where something else than `place`
    /// matters.
    ///
    /// # Errors
    /// Those of [`Spec::request`]; they are not remembered.
    pub fn request<S: Surroundings>(
        &mut self,
        spec: &Known<'_>,
        place: Place,
        read: impl FnOnce() -> S,
    ) -> Result<Rc<Request>, SpecError> {
        let slot = match spec {
            Known::Before(_, number) => self.slots.get_mut(*number),
            Known::Now(_) => None,
        };
        let Some(slot) = slot.filter(|_| spec.is_settled_by(place)) else {
            return spec.request(&read().context(place)).map(Rc::new);
        };
        if let Some((at, request)) = &mut slot.request
            && *at == place
        {
            if !spec.counts_recipients(place) {
                return Ok(Rc::clone(request));
            }
            // Not where an answer to it is still remembered.
            if let Some(free) = Rc::get_mut(request) {
                spec.set_recipient(free, &read().context(place));
                return Ok(Rc::clone(request));
            }
        }
        let request = Rc::new(spec.request(&read().context(place))?);
        slot.request = Some((place, Rc::clone(&request)));
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Surroundings for Context<'_> {
        fn context(&self, place: Place) -> Context<'_> {
            Context { place, ..*self }
        }
    }

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
        assert!(matches!(memo.parse(spec), Ok(Known::Before(..))));
        assert!(matches!(memo.parse(spec), Ok(Known::Before(..))));
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

    #[test]
    fn requests_are_those_of_the_spec_at_every_place() {
        let texts = [
            "10 / 1h / per_rcpt / strict / k",
            "10 / 1h / per_mail / count=3 / k",
            "10 / 1h / per_cmd",
            "10 / 1h / per_addr / k",
            "10 / 1h / unique=$x / per_addr / leaky / k//l",
            "10 / 1h / per_byte / k",
            "10 / 1h / per_byte / count=4 / k",
            "10 / 1h / per_conn / unique=x / readonly / k",
            "10 / 1h / k",
        ];
        let places = [Place::Rcpt, Place::Data, Place::Rcpt, Place::Mail, Place::Outside];
        let mut memo = Memo::default();
        for round in 0..60_u32 {
            let text = texts[round as usize / 4 % texts.len()].as_bytes();
            for place in places {
                let context = Context {
                    place,
                    host_address: Some(b"192.0.2.1"),
                    recipients: round,
                    message_size: Some(u64::from(round)),
                    local_part: if round % 2 == 0 { b"joe" } else { b"" },
                    domain: if round % 3 == 0 { b"example.org" } else { b"example.net" },
                };
                let plain = Spec::parse(text).unwrap().request(&context);
                // Twice, as a line may be met twice while the first is held.
                let known = memo.parse(text).unwrap();
                let first = memo.request(&known, place, || context);
                let known = memo.parse(text).unwrap();
                let second = memo.request(&known, place, || context);
                assert_eq!(first.map(|r| (*r).clone()), plain);
                assert_eq!(second.map(|r| (*r).clone()), plain);
            }
        }
    }
}
