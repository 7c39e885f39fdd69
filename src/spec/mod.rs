//! Parses the administrator's spec into a validated [`SpecRequest`].
//!
//! A spec is `m / p / options / key`, as the `ratelimit` condition of Exim
//! reads it. A [`Spec`] is the parsed text; [`Spec::request`] adds what depends
//! on the ACL stage and the message (see [`Context`]).
//!
//! The semantics are those of `acl_ratelimit` in Exim 4.96, with these
//! differences: a period may be a bare number of seconds; `nan` is not a
//! number, and -0 is 0; a period that would overflow in Exim is an error, and
//! so is a spec longer than [`MAX_LEN`] or with a NUL byte in it.

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
pub use crate::event::{AclStage, Context, ContextSource, Scope};
pub use cache::{CachedSpec, SpecArguments, SpecCache};
pub use error::{Fault, SpecError, Variable};
pub use lint::Lint;
pub use list::MAX_LEN;
pub use literal::split_key;
pub use option::{NamedOption, options};
pub use request::{Mode, SpecRequest};
pub use stored_key::StoredKey;
#[cfg(feature = "cli")]
pub(crate) use {
    interval::{NoInterval as NoPeriod, seconds as period, typed as typed_period},
    number::limit,
};

use interval::NoInterval;
use list::Items;
use std::borrow::Cow;
use word::{COUNT, UNIQUE, Word};

/// A parsed spec, independent of the ACL stage.
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
    /// `count=` follows the `per_*` option, and so overrides it.
    count_overrules: bool,
    unique: Unique<'a>,
    key: Option<Cow<'a, [u8]>>,
}

/// The unique event of `unique=` or `per_addr`; the later of them takes effect.
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
    /// Parses `text`, a slash list `m / p / options / key`.
    ///
    /// # Errors
    /// Every fault that does not depend on the ACL stage, in the order in which
    /// Exim finds them.
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

    /// Adds the key `key` to a spec without a key. It is taken literally and
    /// never parsed: slashes, blanks and the names of options are part of it.
    /// An empty key means the default key. `unique` is the text of the unique
    /// event (see `unique=`), also taken literally; the empty text is an event
    /// too.
    ///
    /// Use this for text from a client: within the spec it could contain an
    /// option, such as `noupdate`, and so switch the limit off.
    ///
    /// # Errors
    /// The spec contains a key or a unique event too, or one of the arguments
    /// contains a NUL byte.
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

    /// Parses the items after the period.
    fn options(&mut self, items: Items<'a>) -> Result<(), Fault> {
        // Exim reads all items before it reports conflicts.
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

    /// Sets the update mode; repeating the same one is not a conflict.
    fn set_update(&mut self, second: Update, conflict: &mut Option<Fault>) {
        match self.update {
            Some(first) if first != second => {
                let (first, second) = (first.word(), second.word());
                conflict.get_or_insert(Fault::TwoUpdates { first, second });
            }
            _ => self.update = Some(second),
        }
    }

    /// The limit as written, without surrounding blanks; Exim shows it in
    /// `$sender_rate_limit`.
    #[must_use]
    pub fn limit_text(&self) -> &[u8] {
        &self.limit_text
    }

    /// The period as written, without surrounding blanks; Exim shows it in
    /// `$sender_rate_period`.
    #[must_use]
    pub fn period_text(&self) -> &[u8] {
        &self.period_text
    }

    /// Likely mistakes that Exim accepts without complaint.
    #[must_use]
    pub fn lints(&self) -> Vec<Lint> {
        lint::lints(&self.text)
    }

    /// Converts to a spec that does not borrow its text.
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

    /// Whether the request at `stage` is independent of the client, the
    /// recipients and the size, except for the recipient if
    /// [`Spec::counts_recipients`].
    fn is_determined_by(&self, stage: AclStage) -> bool {
        let counts_context = match self.mode {
            Some(Mode::PerByte) => true,
            Some(Mode::PerRcpt) => stage.has_all_recipients(),
            _ => false,
        };
        self.key.is_some() && !counts_context
    }

    /// Whether the unique event at `stage` is the recipient's address.
    fn counts_recipients(&self, stage: AclStage) -> bool {
        matches!(self.unique, Unique::Address) && self.can_count_at(stage)
    }

    /// Replaces the recipient in `request`, which is of this spec.
    fn set_recipient(&self, request: &mut SpecRequest, context: &Context<'_>) {
        let event = request.unique.get_or_insert_default();
        event.clear();
        for part in [context.local_part, b"@", context.domain] {
            event.extend_from_slice(part);
        }
    }

    /// Whether the written mode can count at `stage`. The default mode can
    /// count everywhere.
    fn can_count_at(&self, stage: AclStage) -> bool {
        self.mode.is_none_or(|mode| request::counts_at(mode, stage))
    }

    /// The request of this spec in this context.
    ///
    /// # Errors
    /// A mode that cannot count in this ACL is combined with `leaky` or
    /// `strict`, or the key is too long.
    pub fn request(&self, context: &Context<'_>) -> Result<SpecRequest, SpecError> {
        let mode = self.mode.unwrap_or(Mode::PerMail);
        let stage = context.stage;
        let wrong_stage = !self.can_count_at(stage);
        if wrong_stage
            && !self.noupdate
            && matches!(self.update, Some(Update::Leaky | Update::Strict))
        {
            return Err(self.error(Fault::WrongStage { mode, stage }));
        }
        let update = if self.noupdate || wrong_stage {
            Update::ReadOnly
        } else {
            self.update.unwrap_or(Update::Leaky)
        };
        let batched = mode == Mode::PerRcpt && stage.has_all_recipients();
        let count = match mode {
            _ if update == Update::ReadOnly => 0.0,
            _ if self.count_overrules => self.count.unwrap_or(1.0),
            Mode::PerRcpt if batched => f64::from(context.recipients),
            Mode::PerByte => context.message_size.map_or(0.0, |bytes| bytes as f64),
            _ => self.count.unwrap_or(1.0),
        };
        let scope = match mode {
            _ if stage == AclStage::Outside => Scope::Evaluation,
            _ if update == Update::ReadOnly => Scope::Command,
            Mode::PerConn => Scope::Connection,
            Mode::PerMail | Mode::PerByte => Scope::Message,
            Mode::PerRcpt if batched => Scope::Message,
            Mode::PerRcpt | Mode::PerAddr | Mode::PerCmd => Scope::Command,
        };
        let unique = match &self.unique {
            Unique::No => None,
            Unique::Address if wrong_stage => Some(b"*".to_vec()),
            Unique::Address => Some([context.local_part, b"@", context.domain].concat()),
            Unique::Text(text) => Some(text.to_vec()),
        };
        let written = match &self.key {
            Some(key) => &**key,
            None => context.host_address.unwrap_or_default(),
        };
        let unique_mark: &[u8] = if unique.is_some() { b"/unique/" } else { b"/" };
        let stored_name = mode.stored_name().as_bytes();
        let key = [&*self.period_text, b"/", stored_name, unique_mark, written].concat();
        let key_start = key.len() - written.len();
        if u16::try_from(key.len()).is_err() {
            return Err(self.error(Fault::LongKey { length: key.len() }));
        }
        let (limit, period) = (self.limit, self.period);
        Ok(SpecRequest { key, key_start, limit, period, mode, update, count, unique, scope })
    }

    /// An error for a fault found after the period.
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
