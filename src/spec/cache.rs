//! The specs of late, taken apart once.

use super::{Request, Spec, SpecError};
use crate::stage::{AclStage, ContextSource};
use std::ops::Deref;
use std::rc::Rc;

/// As many specs as a busy ACL has lines.
const SLOTS: usize = 8;

/// A check as it is written: a spec, and perhaps the key and the unique event
/// as arguments of their own ([`Spec::with_literal`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpecArguments<'a> {
    /// `m / p / options`, and the key where that is no argument of its own.
    pub spec: &'a [u8],
    /// The key.
    pub key: Option<&'a [u8]>,
    /// The unique event; only beside a key.
    pub unique: Option<&'a [u8]>,
}

impl<'a> From<&'a [u8]> for SpecArguments<'a> {
    fn from(spec: &'a [u8]) -> Self {
        Self { spec, key: None, unique: None }
    }
}

impl<'a> SpecArguments<'a> {
    /// [`Spec::parse`], with the key and the unique event that are given.
    ///
    /// # Errors
    /// Those of [`Spec::parse`] and [`Spec::with_literal`].
    pub fn parse(self) -> Result<Spec<'a>, SpecError> {
        let spec = Spec::parse(self.spec)?;
        match self.key {
            Some(key) => spec.with_literal(key, self.unique),
            None => Ok(spec),
        }
    }
}

/// Remembers the specs that come again and again: the lines of an ACL are
/// expanded for every recipient, and mostly to the same texts.
#[derive(Default)]
pub struct SpecCache {
    slots: [Slot; SLOTS],
    next: usize,
}

/// A text seen before. It is kept taken apart from the second time on, so
/// that one with a key that is new each time costs no more than its copy.
#[derive(Default)]
struct Slot {
    text: Vec<u8>,
    key: Option<Vec<u8>>,
    unique: Option<Vec<u8>>,
    spec: Option<Rc<Spec<'static>>>,
    /// What it asks for at one place, where that depends on nothing else but
    /// the recipient.
    request: Option<(AclStage, Rc<Request>)>,
}

impl Slot {
    fn holds(&self, arguments: &SpecArguments<'_>) -> bool {
        self.text == arguments.spec
            && self.key.as_deref() == arguments.key
            && self.unique.as_deref() == arguments.unique
    }
}

/// A spec, be it remembered or new.
pub enum CachedSpec<'a> {
    /// Taken apart before; with its place in the [`SpecCache`] that knows it, until
    /// the next text is read.
    Before(Rc<Spec<'static>>, usize),
    /// Taken apart now.
    Now(Spec<'a>),
}

impl<'a> Deref for CachedSpec<'a> {
    type Target = Spec<'a>;

    fn deref(&self) -> &Spec<'a> {
        match self {
            Self::Before(spec, _) => spec,
            Self::Now(spec) => spec,
        }
    }
}

impl SpecCache {
    /// [`SpecArguments::parse`], or its result for the same texts before.
    ///
    /// # Errors
    /// Those of [`SpecArguments::parse`]; they are not remembered.
    pub fn parse<'a>(
        &mut self,
        arguments: impl Into<SpecArguments<'a>>,
    ) -> Result<CachedSpec<'a>, SpecError> {
        let arguments = arguments.into();
        let Some(number) = self.slots.iter().position(|slot| slot.holds(&arguments)) else {
            let spec = arguments.parse()?;
            if let Some(slot) = self.slots.get_mut(self.next) {
                slot.text.clear();
                slot.text.extend_from_slice(arguments.spec);
                slot.key = arguments.key.map(<[u8]>::to_vec);
                slot.unique = arguments.unique.map(<[u8]>::to_vec);
                slot.spec = None;
                slot.request = None;
            }
            self.next = (self.next + 1) % SLOTS;
            return Ok(CachedSpec::Now(spec));
        };
        let slot = &mut self.slots[number];
        if let Some(spec) = &slot.spec {
            return Ok(CachedSpec::Before(Rc::clone(spec), number));
        }
        let spec = Rc::new(arguments.parse()?.into_owned());
        slot.spec = Some(Rc::clone(&spec));
        Ok(CachedSpec::Before(spec, number))
    }

    /// [`Spec::request`] of the spec read last. What it was at the same place
    /// before is taken again where it can only be the same but for the
    /// recipient. `read` is only called where something else than `place`
    /// matters.
    ///
    /// # Errors
    /// Those of [`Spec::request`]; they are not remembered.
    pub fn request<S: ContextSource>(
        &mut self,
        spec: &CachedSpec<'_>,
        place: AclStage,
        read: impl FnOnce() -> S,
    ) -> Result<Rc<Request>, SpecError> {
        let slot = match spec {
            CachedSpec::Before(_, number) => self.slots.get_mut(*number),
            CachedSpec::Now(_) => None,
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
    use crate::stage::Context;

    impl ContextSource for Context<'_> {
        fn context(&self, place: AclStage) -> Context<'_> {
            Context { place, ..*self }
        }
    }

    #[test]
    fn what_is_remembered_is_what_would_be_read() {
        let mut cache = SpecCache::default();
        let texts: Vec<String> = (0..3 * SLOTS)
            .map(|n| format!("{n}k / {}h / per_addr / unique=a//b{n} / strict / k//{n}", n + 1))
            .collect();
        for round in 0..4 {
            for text in texts.iter().take(SLOTS << (round % 2)).chain(&texts[..2]) {
                let known = cache.parse(text.as_bytes()).unwrap();
                assert_eq!(*known, Spec::parse(text.as_bytes()).unwrap());
            }
        }
    }

    #[test]
    fn the_second_time_it_is_known() {
        let mut cache = SpecCache::default();
        let spec = &b"100 / 1h / strict / k"[..];
        assert!(matches!(cache.parse(spec), Ok(CachedSpec::Now(_))));
        assert!(matches!(cache.parse(spec), Ok(CachedSpec::Before(..))));
        assert!(matches!(cache.parse(spec), Ok(CachedSpec::Before(..))));
        for n in 0..SLOTS {
            cache.parse(format!("{n} / 1h").as_bytes()).unwrap();
        }
        assert!(matches!(cache.parse(spec), Ok(CachedSpec::Now(_))));
    }

    #[test]
    fn arguments_of_their_own_are_told_apart() {
        let mut cache = SpecCache::default();
        let spec = &b"100 / 1h / strict"[..];
        let all = [
            SpecArguments { spec, key: None, unique: None },
            SpecArguments { spec, key: Some(b""), unique: None },
            SpecArguments { spec, key: Some(b"k"), unique: None },
            SpecArguments { spec, key: Some(b"k"), unique: Some(b"") },
            SpecArguments { spec, key: Some(b"k"), unique: Some(b"u") },
            SpecArguments { spec, key: Some(b"ku"), unique: Some(b"") },
            SpecArguments { spec: b"100 / 1h / strict / k", key: None, unique: None },
        ];
        for _ in 0..3 {
            for arguments in all {
                assert_eq!(*cache.parse(arguments).unwrap(), arguments.parse().unwrap());
            }
        }
        let twice = SpecArguments { spec: all[6].spec, key: Some(b"k"), unique: None };
        assert!(cache.parse(twice).is_err() && cache.parse(twice).is_err());
    }

    #[test]
    fn errors_and_empty_texts_are_told_each_time() {
        let mut cache = SpecCache::default();
        for text in ["", "x / 1h", "1 / 1h / leaky / strict"] {
            for _ in 0..3 {
                let error = cache.parse(text.as_bytes()).map(|_| ()).unwrap_err();
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
        let places =
            [AclStage::Rcpt, AclStage::Data, AclStage::Rcpt, AclStage::Mail, AclStage::Outside];
        let mut cache = SpecCache::default();
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
                let known = cache.parse(text).unwrap();
                let first = cache.request(&known, place, || context);
                let known = cache.parse(text).unwrap();
                let second = cache.request(&known, place, || context);
                assert_eq!(first.map(|r| (*r).clone()), plain);
                assert_eq!(second.map(|r| (*r).clone()), plain);
            }
        }
    }
}
