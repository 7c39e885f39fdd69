//! What the administrator wrote → a validated [`Request`].
//!
//! `m / p / options / key`, as the `ratelimit` condition of Exim reads it. A
//! [`Spec`] is the text taken apart; [`Spec::request`] adds what depends on
//! where in Exim it stands (see [`Context`]).
//!
//! The semantics are those of `acl_ratelimit` in Exim 4.96, with these
//! differences: a period may be a bare number of seconds; `nan` is no number,
//! and -0 is 0; a period that would overflow there is an error, and so is a
//! spec longer than [`MAX_LEN`] or with a NUL byte in it.

mod cache;
mod error;
mod interval;
mod lint;
mod list;
mod literal;
mod number;
mod option;
mod request;
mod stored_key;
mod word;

pub use crate::engine::Update;
pub use crate::stage::{AclStage, Context, ContextSource, Scope};
pub use cache::{CachedSpec, SpecArguments, SpecCache};
pub use error::{Fault, SpecError, Variable};
pub use lint::Lint;
pub use list::MAX_LEN;
pub use literal::split_key;
pub use option::{NamedOption, options};
pub use request::{Mode, Request};
pub use stored_key::StoredKey;

use interval::NoInterval;
use list::Items;
use std::borrow::Cow;
use word::{COUNT, UNIQUE, Word};

/// A spec taken apart, before it is known where in Exim it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec<'a> {
    text: Cow<'a, [u8]>,
    limit_text: Cow<'a, [u8]>,
    period_text: Cow<'a, [u8]>,
    limit: f64,
    period: f64,
    mode: Option<Mode>,
    update: Option<Update>,
    noupdate: bool,
    count: Option<f64>,
    /// `count=` stands behind the `per_*` option, and so overrules it.
    count_overrules: bool,
    unique: Unique<'a>,
    key: Option<Cow<'a, [u8]>>,
}

/// What `unique=` and `per_addr` ask for; the later of them wins.
#[derive(Clone, Debug, PartialEq)]
enum Unique<'a> {
    /// Every event counts.
    No,
    /// The recipient's address.
    Address,
    /// This text.
    Text(Cow<'a, [u8]>),
}

impl<'a> Spec<'a> {
    /// Takes `text` apart: a slash list `m / p / options / key`.
    ///
    /// # Errors
    /// Whatever Exim finds wrong with a spec wherever it stands, in the order
    /// in which Exim finds it.
    pub fn parse(text: &'a [u8]) -> Result<Self, SpecError> {
        if text.len() > MAX_LEN {
            let length = text.len();
            return Err(SpecError::before_limit(Fault::TooLong { length }));
        }
        if text.contains(&0) {
            return Err(SpecError::before_limit(Fault::Nul));
        }
        let mut items = Items::new(text);
        let Some(limit_text) = items.next() else {
            return Err(SpecError::before_limit(Fault::NoLimit));
        };
        let Some(limit) = number::limit(&limit_text) else {
            return Err(SpecError::in_limit(&limit_text));
        };
        let Some(period_text) = items.next() else {
            return Err(SpecError::from_period(Fault::NoPeriod, &limit_text, None));
        };
        let period = match interval::seconds(&period_text) {
            Ok(period) => period,
            Err(reason) => {
                let text = period_text.to_vec();
                let fault = match reason {
                    NoInterval::Malformed => Fault::BadPeriod { text },
                    NoInterval::TooLong => Fault::LongPeriod { text },
                };
                return Err(SpecError::from_period(fault, &limit_text, Some(&period_text)));
            }
        };
        let mut spec = Spec {
            text: Cow::Borrowed(text),
            limit_text,
            period_text,
            limit,
            period,
            mode: None,
            update: None,
            noupdate: false,
            count: None,
            count_overrules: false,
            unique: Unique::No,
            key: None,
        };
        match spec.options(items) {
            Ok(()) => Ok(spec),
            Err(fault) => Err(spec.error(fault)),
        }
    }

    /// Gives a spec that names no key the key `key`, which is taken as it is
    /// and never parsed: slashes, blanks and the names of options are part of it.
    /// An empty one is the default key. `unique` is the text of the unique event
    /// (see `unique=`), also taken as it is; an empty one is an event like any
    /// other, that of the empty text.
    ///
    /// This is how a client's text gets into a check: in the spec itself it could
    /// hold an option, such as `noupdate`, and so switch the limit off.
    ///
    /// # Errors
    /// The spec names a key, or a unique event, of its own; or there is a NUL
    /// byte in one of the arguments.
    pub fn with_literal(
        mut self,
        key: &'a [u8],
        unique: Option<&'a [u8]>,
    ) -> Result<Self, SpecError> {
        if let Some(in_spec) = &self.key {
            let text = in_spec.to_vec();
            return Err(self.error(Fault::TwoKeys { text }));
        }
        if key.contains(&0) || unique.is_some_and(|text| text.contains(&0)) {
            return Err(self.error(Fault::Nul));
        }
        self.key = Some(key).filter(|key| !key.is_empty()).map(Cow::Borrowed);
        if let Some(text) = unique {
            let option = match &self.unique {
                Unique::No => None,
                Unique::Address => Some(Mode::PerAddr.word()),
                Unique::Text(_) => Some(UNIQUE),
            };
            if let Some(option) = option {
                return Err(self.error(Fault::TwoUniques { option }));
            }
            self.unique = Unique::Text(Cow::Borrowed(text));
        }
        Ok(self)
    }

    /// Reads what stands behind the period.
    fn options(&mut self, items: Items<'a>) -> Result<(), Fault> {
        // Exim reads to the end before it complains of conflicts.
        let (mut two_modes, mut two_updates) = (None, None);
        for item in items {
            match Word::of(&item) {
                Word::Mode(second) => {
                    if let Some(first) = self.mode {
                        two_modes = two_modes.or(Some(Fault::TwoModes { first, second }));
                    }
                    self.mode = Some(second);
                    self.count_overrules = false;
                    if second == Mode::PerAddr {
                        self.unique = Unique::Address;
                    }
                }
                Word::Leaky => self.set_update(Update::Leaky, &mut two_updates),
                Word::Strict => self.set_update(Update::Strict, &mut two_updates),
                Word::ReadOnly => self.set_update(Update::ReadOnly, &mut two_updates),
                Word::NoUpdate => self.noupdate = true,
                Word::Count => {
                    let value = item.get(COUNT.len()..).and_then(number::count);
                    if value.is_none() {
                        return Err(Fault::BadCount { text: item.into_owned() });
                    }
                    self.count = value;
                    self.count_overrules = true;
                }
                Word::Unique => self.unique = Unique::Text(without(item, UNIQUE.len())),
                Word::Key => match &mut self.key {
                    None => self.key = Some(item),
                    Some(key) => {
                        let key = key.to_mut();
                        key.push(b'/');
                        key.extend_from_slice(&item);
                    }
                },
            }
        }
        two_modes.or(two_updates).map_or(Ok(()), Err)
    }

    /// Notes an update mode; the same one twice is no conflict.
    fn set_update(&mut self, second: Update, conflict: &mut Option<Fault>) {
        match self.update {
            Some(first) if first != second => {
                let (first, second) = (first.word(), second.word());
                conflict.get_or_insert(Fault::TwoUpdates { first, second });
            }
            _ => self.update = Some(second),
        }
    }

    /// The limit as written, without the blanks around it; Exim shows it in
    /// `$sender_rate_limit`.
    #[must_use]
    pub fn limit_text(&self) -> &[u8] {
        &self.limit_text
    }

    /// The period as written, without the blanks around it; Exim shows it in
    /// `$sender_rate_period`.
    #[must_use]
    pub fn period_text(&self) -> &[u8] {
        &self.period_text
    }

    /// What looks like a mistake though Exim takes it without complaint.
    #[must_use]
    pub fn lints(&self) -> Vec<Lint> {
        lint::lints(&self.text)
    }

    /// The same, independent of the text it was read from.
    #[must_use]
    pub fn into_owned(self) -> Spec<'static> {
        let own = |text: Cow<'_, [u8]>| Cow::Owned(text.into_owned());
        Spec {
            text: own(self.text),
            limit_text: own(self.limit_text),
            period_text: own(self.period_text),
            unique: match self.unique {
                Unique::No => Unique::No,
                Unique::Address => Unique::Address,
                Unique::Text(text) => Unique::Text(own(text)),
            },
            key: self.key.map(own),
            limit: self.limit,
            period: self.period,
            mode: self.mode,
            update: self.update,
            noupdate: self.noupdate,
            count: self.count,
            count_overrules: self.count_overrules,
        }
    }

    /// Whether what is to be decided at `place` depends on nothing else that
    /// Exim knows, not on the client, the recipients or the size; but for the
    /// recipient where [`Spec::counts_recipients`].
    fn is_settled_by(&self, place: AclStage) -> bool {
        let counts_what_is_there = match self.mode {
            Some(Mode::PerByte) => true,
            Some(Mode::PerRcpt) => place.has_all_recipients(),
            _ => false,
        };
        self.key.is_some() && !counts_what_is_there
    }

    /// Whether the unique event at `place` is the recipient's address.
    fn counts_recipients(&self, place: AclStage) -> bool {
        matches!(self.unique, Unique::Address) && self.is_in_place(place)
    }

    /// Makes `request`, of this spec, that of another recipient.
    fn set_recipient(&self, request: &mut Request, context: &Context<'_>) {
        let event = request.unique.get_or_insert_default();
        event.clear();
        for part in [context.local_part, b"@", context.domain] {
            event.extend_from_slice(part);
        }
    }

    /// Whether the mode that is written makes sense at `place`. A default mode
    /// is never out of place.
    fn is_in_place(&self, place: AclStage) -> bool {
        self.mode.is_none_or(|mode| request::counts_at(mode, place))
    }

    /// What is to be decided where Exim stands now.
    ///
    /// # Errors
    /// A mode that cannot count in this ACL together with `leaky` or
    /// `strict`, or a key that is too long.
    pub fn request(&self, context: &Context<'_>) -> Result<Request, SpecError> {
        let mode = self.mode.unwrap_or(Mode::PerMail);
        let place = context.place;
        let out_of_place = !self.is_in_place(place);
        if out_of_place
            && !self.noupdate
            && matches!(self.update, Some(Update::Leaky | Update::Strict))
        {
            return Err(self.error(Fault::BadPlace { mode, place }));
        }
        let update = if self.noupdate || out_of_place {
            Update::ReadOnly
        } else {
            self.update.unwrap_or(Update::Leaky)
        };
        let batched = mode == Mode::PerRcpt && place.has_all_recipients();
        let count = match mode {
            _ if update == Update::ReadOnly => 0.0,
            _ if self.count_overrules => self.count.unwrap_or(1.0),
            Mode::PerRcpt if batched => f64::from(context.recipients),
            Mode::PerByte => context.message_size.map_or(0.0, |bytes| bytes as f64),
            _ => self.count.unwrap_or(1.0),
        };
        let scope = match mode {
            _ if place == AclStage::Outside => Scope::Evaluation,
            _ if update == Update::ReadOnly => Scope::Command,
            Mode::PerConn => Scope::Connection,
            Mode::PerMail | Mode::PerByte => Scope::Message,
            Mode::PerRcpt if batched => Scope::Message,
            Mode::PerRcpt | Mode::PerAddr | Mode::PerCmd => Scope::Command,
        };
        let unique = match &self.unique {
            Unique::No => None,
            Unique::Address if out_of_place => Some(b"*".to_vec()),
            Unique::Address => Some([context.local_part, b"@", context.domain].concat()),
            Unique::Text(text) => Some(text.to_vec()),
        };
        let written = match &self.key {
            Some(key) => &**key,
            None => context.host_address.unwrap_or_default(),
        };
        let unique_mark: &[u8] = if unique.is_some() { b"/unique/" } else { b"/" };
        let filed_as = mode.filed_as().as_bytes();
        let key = [&*self.period_text, b"/", filed_as, unique_mark, written].concat();
        let key_start = key.len() - written.len();
        if u16::try_from(key.len()).is_err() {
            return Err(self.error(Fault::LongKey { length: key.len() }));
        }
        let (limit, period) = (self.limit, self.period);
        Ok(Request { key, key_start, limit, period, mode, update, count, unique, scope })
    }

    /// A fault found behind the period.
    fn error(&self, fault: Fault) -> SpecError {
        SpecError::from_period(fault, &self.limit_text, Some(&self.period_text))
    }
}

/// `item` without its first `length` bytes.
fn without(item: Cow<'_, [u8]>, length: usize) -> Cow<'_, [u8]> {
    match item {
        Cow::Borrowed(item) => Cow::Borrowed(item.get(length..).unwrap_or_default()),
        Cow::Owned(item) => Cow::Owned(item.get(length..).unwrap_or_default().to_vec()),
    }
}

#[cfg(test)]
mod tests;
