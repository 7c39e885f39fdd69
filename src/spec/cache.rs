//! Recently used specs, already parsed.

use super::{Spec, SpecError, SpecRequest};
use crate::event::{AclStage, ContextSource};
use std::ops::Deref;
use std::rc::Rc;

/// As many specs as a busy ACL has lines.
const SLOTS: usize = 8;

/// The arguments of a check: a spec, and optionally the key and the unique
/// event as separate arguments ([`Spec::with_literal`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpecArguments<'a> {
    /// `m / p / options`, followed by the key if that is not a separate
    /// argument.
    pub spec: &'a [u8],
    /// The key.
    pub key: Option<&'a [u8]>,
    /// The unique event; only together with a key.
    pub unique: Option<&'a [u8]>,
}

impl<'a> From<&'a [u8]> for SpecArguments<'a> {
    fn from(spec: &'a [u8]) -> Self {
        Self { spec, key: None, unique: None }
    }
}

impl<'a> SpecArguments<'a> {
    /// Parses the spec and adds the key and the unique event, if given.
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

/// Caches parsed specs: the lines of an ACL are expanded for every recipient,
/// mostly to the same texts.
#[derive(Default)]
pub struct SpecCache {
    slots: [Slot; SLOTS],
    next: usize,
}

/// A text seen before. Its parsed form is kept from the second time on, so that
/// a text with a key that is always new costs no more than a copy.
#[derive(Default)]
struct Slot {
    text: Vec<u8>,
    key: Option<Vec<u8>>,
    unique: Option<Vec<u8>>,
    spec: Option<Rc<Spec<'static>>>,
    /// Its request at one stage, if that depends on nothing else but the
    /// recipient.
    request: Option<(AclStage, Rc<SpecRequest>)>,
}

impl Slot {
    fn holds(&self, arguments: &SpecArguments<'_>) -> bool {
        self.text == arguments.spec
            && self.key.as_deref() == arguments.key
            && self.unique.as_deref() == arguments.unique
    }
}

/// A spec from the cache, or a new one.
pub enum CachedSpec<'a> {
    /// Parsed before, with its slot in the [`SpecCache`], which is valid until
    /// the next text is parsed.
    Cached(Rc<Spec<'static>>, usize),
    /// Parsed now.
    New(Spec<'a>),
}

impl<'a> Deref for CachedSpec<'a> {
    type Target = Spec<'a>;

    fn deref(&self) -> &Spec<'a> {
        match self {
            Self::Cached(spec, _) => spec,
            Self::New(spec) => spec,
        }
    }
}

impl SpecCache {
    /// [`SpecArguments::parse`], or its earlier result for the same texts.
    ///
    /// # Errors
    /// Those of [`SpecArguments::parse`]; they are not cached.
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
            return Ok(CachedSpec::New(spec));
        };
        let slot = &mut self.slots[number];
        if let Some(spec) = &slot.spec {
            return Ok(CachedSpec::Cached(Rc::clone(spec), number));
        }
        let spec = Rc::new(arguments.parse()?.into_owned());
        slot.spec = Some(Rc::clone(&spec));
        Ok(CachedSpec::Cached(spec, number))
    }

    /// [`Spec::request`] of the spec parsed last. An earlier request at the
    /// same stage is reused if it can differ only in the recipient. `read` is
    /// called only if more than the stage matters.
    ///
    /// # Errors
    /// Those of [`Spec::request`]; they are not cached.
    pub fn request<S: ContextSource>(
        &mut self,
        spec: &CachedSpec<'_>,
        stage: AclStage,
        read: impl FnOnce() -> S,
    ) -> Result<Rc<SpecRequest>, SpecError> {
        let slot = match spec {
            CachedSpec::Cached(_, number) => self.slots.get_mut(*number),
            CachedSpec::New(_) => None,
        };
        let Some(slot) = slot.filter(|_| spec.is_determined_by(stage)) else {
            return spec.request(&read().context(stage)).map(Rc::new);
        };
        if let Some((at, request)) = &mut slot.request
            && *at == stage
        {
            if !spec.counts_recipients(stage) {
                return Ok(Rc::clone(request));
            }
            // Not while a cached decision still refers to it.
            if let Some(free) = Rc::get_mut(request) {
                spec.set_recipient(free, &read().context(stage));
                return Ok(Rc::clone(request));
            }
        }
        let request = Rc::new(spec.request(&read().context(stage))?);
        slot.request = Some((stage, Rc::clone(&request)));
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Context;

    impl ContextSource for Context<'_> {
        fn context(&self, stage: AclStage) -> Context<'_> {
            Context { stage, ..*self }
        }
    }

    #[test]
    fn cached_specs_equal_parsed_specs() {
        let mut cache = SpecCache::default();
        let texts: Vec<String> = (0..3 * SLOTS)
            .map(|n| format!("{n}k / {}h / per_addr / unique=a//b{n} / strict / k//{n}", n + 1))
            .collect();
        for round in 0..4 {
            for text in texts.iter().take(SLOTS << (round % 2)).chain(&texts[..2]) {
                let cached = cache.parse(text.as_bytes()).unwrap();
                assert_eq!(*cached, Spec::parse(text.as_bytes()).unwrap());
            }
        }
    }

    #[test]
    fn the_second_use_is_cached() {
        let mut cache = SpecCache::default();
        let spec = &b"100 / 1h / strict / k"[..];
        assert!(matches!(cache.parse(spec), Ok(CachedSpec::New(_))));
        assert!(matches!(cache.parse(spec), Ok(CachedSpec::Cached(..))));
        assert!(matches!(cache.parse(spec), Ok(CachedSpec::Cached(..))));
        for n in 0..SLOTS {
            cache.parse(format!("{n} / 1h").as_bytes()).unwrap();
        }
        assert!(matches!(cache.parse(spec), Ok(CachedSpec::New(_))));
    }

    #[test]
    fn different_arguments_are_different_entries() {
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
    fn errors_are_reported_each_time() {
        let mut cache = SpecCache::default();
        for text in ["", "x / 1h", "1 / 1h / leaky / strict"] {
            for _ in 0..3 {
                let error = cache.parse(text.as_bytes()).map(|_| ()).unwrap_err();
                assert_eq!(Err(error), Spec::parse(text.as_bytes()).map(|_| ()));
            }
        }
    }

    #[test]
    fn cached_requests_equal_those_of_the_spec_at_every_stage() {
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
        let stages =
            [AclStage::Rcpt, AclStage::Data, AclStage::Rcpt, AclStage::Mail, AclStage::Outside];
        let mut cache = SpecCache::default();
        for round in 0..60_u32 {
            let text = texts[round as usize / 4 % texts.len()].as_bytes();
            for stage in stages {
                let context = Context {
                    stage,
                    host_address: Some(b"192.0.2.1"),
                    recipients: round,
                    message_size: Some(u64::from(round)),
                    local_part: if round % 2 == 0 { b"joe" } else { b"" },
                    domain: if round % 3 == 0 { b"example.org" } else { b"example.net" },
                };
                let plain = Spec::parse(text).unwrap().request(&context);
                // Twice, as a line may be evaluated again while its first
                // request is in use.
                let cached = cache.parse(text).unwrap();
                let first = cache.request(&cached, stage, || context);
                let cached = cache.parse(text).unwrap();
                let second = cache.request(&cached, stage, || context);
                assert_eq!(first.map(|r| (*r).clone()), plain);
                assert_eq!(second.map(|r| (*r).clone()), plain);
            }
        }
    }
}
