//! The forms that the names of records have, in the hash `exirate:forms`: so a command finds all
//! records of one identity by their names, and need not read all keys.
//!
//! A name is a prefix, such as `1h/per_rcpt/`, and an identity. Prefixes follow from the specs and
//! policies in use, and are few. Each agent adds those that it counts under; a command that makes a
//! record does so too. A field is `KIND ALGORITHM SPELLING:PREFIX`, without the blanks; its value says
//! nothing. `SPELLING` is how identities are written after this prefix: see [`Spelling`].

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::{Value, cmd};

use super::connection::Connection;
use super::error::RedisError;
use super::record;
use super::servers::{KnownServers, SERVERS};
use crate::engine::{Check, Kind, RecordKey, Update};
use crate::identity::fold::Folding;
use crate::store::OwnedKey;
use crate::sys::clock;

/// The hash.
const KEY: &str = "exirate:forms";
/// So many are kept. Where there are more, [`MANY`] is one of them.
const FORMS_MAX: usize = 1000;
/// The field which says that not all forms are kept.
const MANY: &[u8] = b"many";

/// How an identity is written: bits that say what a folding might change. Where it changes something,
/// the identity is known under another name than that in its record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Spelling(u8);

impl Spelling {
    /// Every folding may change it.
    const ODD: u8 = 1;
    /// It has a `+`.
    const PLUS: u8 = 2;
    /// Its local part has a dot.
    const DOTS: u8 = 4;
    /// It has no domain.
    const BARE: u8 = 8;
    /// It has several fields, each of which is a name of it.
    const FIELDS: u8 = 16;

    fn of(key: &RecordKey<'_>) -> Self {
        let identity = key.identity();
        if key.kind != Kind::Spec {
            return Self(if identity.contains(&b',') { Self::FIELDS } else { 0 });
        }
        let text = std::str::from_utf8(identity).unwrap_or_default();
        if text.parse::<std::net::IpAddr>().is_ok() {
            // All foldings write an address alike.
            let folding = Folding::default().without_masks();
            let is_usual = folding.folded_bytes(identity, &mut String::new()) == identity;
            return Self(if is_usual { 0 } else { Self::ODD });
        }
        let (local, domain) = text.split_once('@').unwrap_or((text, ""));
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let is_part = |part: &str| {
            let is_letter = |byte: u8| is_plain(byte) || b"._-+".contains(&byte);
            let ends = [part.bytes().next(), part.bytes().last()];
            part.bytes().all(is_letter) && ends.into_iter().flatten().all(is_plain)
        };
        let is_whole = !local.is_empty() && text.contains('@') != domain.is_empty();
        if !(is_whole && is_part(local) && is_part(domain)) {
            return Self(Self::ODD);
        }
        let mut bits = 0;
        for (is_so, bit) in [
            (local.contains('+'), Self::PLUS),
            (local.contains('.'), Self::DOTS),
            (domain.is_empty(), Self::BARE),
        ] {
            bits |= if is_so { bit } else { 0 };
        }
        Self(bits)
    }

    /// Whether this folding may change an identity that is written so, or it has other names.
    fn is_changed_by(self, folding: &Folding) -> bool {
        let mut bits = Self::ODD | Self::FIELDS;
        for (folds, bit) in [
            (folding.plus, Self::PLUS),
            (!folding.dots.is_empty(), Self::DOTS),
            (folding.qualify.is_some(), Self::BARE),
        ] {
            bits |= if folds { bit } else { 0 };
        }
        self.0 & bits != 0
    }
}

/// A form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Form {
    /// A record with an empty identity.
    prefix: OwnedKey,
    spelling: Spelling,
}

impl Form {
    /// The field of the form that a record's name has, into `field`.
    fn write(key: &RecordKey<'_>, field: &mut Vec<u8>) {
        field.clear();
        field.extend([record::kind_letter(key.kind), record::algorithm_letter(key.algorithm)]);
        field.extend(Spelling::of(key).0.to_string().bytes());
        field.push(b':');
        field.extend(key.name.get(..key.identity_start).unwrap_or_default());
    }

    fn read(field: &[u8]) -> Option<Self> {
        let (&[kind, algorithm], rest) = field.split_first_chunk()?;
        let colon = rest.iter().position(|byte| *byte == b':')?;
        let bits = std::str::from_utf8(rest.get(..colon)?).ok()?.parse().ok()?;
        let name = rest.get(colon + 1..)?.to_vec();
        let identity_start = name.len();
        let (kind, algorithm) = (record::kind_of(kind)?, record::algorithm_of(algorithm)?);
        let prefix = OwnedKey { name, identity_start, kind, algorithm };
        Some(Self { prefix, spelling: Spelling(bits) })
    }

    /// The record of this form that an identity has.
    pub(super) fn of(&self, identity: &[u8]) -> OwnedKey {
        let name = [&self.prefix.name, identity].concat();
        OwnedKey { name, ..self.prefix.clone() }
    }

    /// Whether identities are written so that this folding changes none of them.
    pub(super) fn is_as_folded(&self, folding: &Folding) -> bool {
        !self.spelling.is_changed_by(folding)
    }
}

/// The forms that an agent or a command has used.
#[derive(Clone, Default)]
pub(super) struct UsedForms(Arc<Mutex<KeptForms>>);

#[derive(Default)]
struct KeptForms {
    all: HashSet<Vec<u8>>,
    /// Those that are not yet in the hash.
    unpublished: Vec<Vec<u8>>,
    scratch: Vec<u8>,
}

impl UsedForms {
    fn lock(&self) -> MutexGuard<'_, KeptForms> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the forms of these checks. Whether one is new.
    pub(super) fn see(&self, checks: &[Check<'_>]) -> bool {
        let mut new = false;
        // What only looks makes no record, such as the check by which `cluster status` asks.
        for check in checks.iter().filter(|check| check.update != Update::ReadOnly) {
            new |= self.see_one(&check.record_key());
        }
        new
    }

    /// Notes the form of this record. Whether it is new.
    pub(super) fn see_one(&self, key: &RecordKey<'_>) -> bool {
        let kept = &mut *self.lock();
        Form::write(key, &mut kept.scratch);
        if kept.all.contains(&kept.scratch) || kept.all.contains(MANY) {
            return false;
        }
        let new = if kept.all.len() < FORMS_MAX { kept.scratch.clone() } else { MANY.to_vec() };
        kept.all.insert(new.clone());
        kept.unpublished.push(new);
        true
    }

    /// All are to be published again: the hash may be gone.
    pub(super) fn again(&self) {
        let kept = &mut *self.lock();
        kept.unpublished = kept.all.iter().cloned().collect();
    }

    /// Adds what is new to the hash, and what was removed from it.
    pub(super) async fn publish(&self, connection: &Connection) -> Result<(), RedisError> {
        let (mut new, known) = {
            let mut kept = self.lock();
            (std::mem::take(&mut kept.unpublished), kept.all.clone())
        };
        if new.is_empty() && !known.is_empty() {
            // Whoever may not look adds nothing again.
            let Some(there) = fields(connection, KEY).await else { return Ok(()) };
            let there: HashSet<Vec<u8>> = there.into_iter().map(|(field, _)| field).collect();
            new = known.difference(&there).cloned().collect();
        }
        if new.is_empty() {
            return Ok(());
        }
        let mut add = cmd("HSET");
        add.arg(KEY);
        for field in &new {
            add.arg(field).arg(1);
        }
        let added = connection.send(&add).await;
        if added.is_err() {
            self.lock().unpublished.extend(new);
        }
        added?;
        Ok(())
    }
}

/// All forms; `None` if some may be missing: an agent of 0.1.0 adds none.
pub(super) async fn all(connection: &Connection) -> Option<Vec<Form>> {
    // A user who may only look needs no script for the time: a day more or less does not matter.
    let servers = fields(connection, SERVERS).await?;
    let now = clock::now().0.unsigned_abs();
    let pairs = servers.iter().map(|(field, value)| (&**field, &**value));
    let (servers, _) = KnownServers::read(now, pairs);
    let mut agents = servers.servers.values().filter_map(|server| server.agent.as_ref());
    if !agents.all(|agent| agent.config.is_some()) || servers.unreadable > 0 {
        return None;
    }
    let forms = fields(connection, KEY).await?;
    let forms = forms.iter().map(|(field, _)| Form::read(field));
    forms.collect::<Option<Vec<_>>>().filter(|forms| !forms.is_empty())
}

/// The fields of a hash and their values.
async fn fields(connection: &Connection, key: &str) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let Ok(Value::Array(all)) = connection.send(cmd("HGETALL").arg(key)).await else {
        return None;
    };
    let mut all = all.into_iter().map(|one| match one {
        Value::BulkString(bytes) => Some(bytes),
        _ => None,
    });
    let mut pairs = Vec::new();
    while let Some(field) = all.next() {
        pairs.push((field?, all.next()??));
    }
    Some(pairs)
}

#[cfg(test)]
mod tests {
    use quickcheck::Arbitrary as _;

    use super::*;
    use crate::engine::AlgorithmKind;

    fn spec(name: &[u8]) -> RecordKey<'_> {
        RecordKey {
            name,
            identity_start: 12,
            kind: Kind::Spec,
            algorithm: AlgorithmKind::MovingAverage,
        }
    }

    #[test]
    fn a_form_is_read_as_it_was_written() {
        let key = spec(b"1h/per_rcpt/alice+x@example.org");
        let mut field = Vec::new();
        Form::write(&key, &mut field);
        assert_eq!(field, b"sm2:1h/per_rcpt/");
        let form = Form::read(&field).unwrap();
        assert_eq!(form.of(b"alice+x@example.org"), OwnedKey::from(key));
        let plus = Folding { plus: true, ..Folding::default() };
        assert!(form.is_as_folded(&Folding::default()) && !form.is_as_folded(&plus));
        for wrong in [&b""[..], b"many", b"sm", b"sm2", b"sx2:", b"xm2:", b"sm256:"] {
            assert_eq!(Form::read(wrong), None);
        }
    }

    /// Whatever the folding, what is not said to be changed by it is not changed.
    #[test]
    fn an_identity_that_is_written_as_folded_is_not_changed() {
        let mut random = kit::generator(12);
        let parts = [
            "alice",
            "Bob",
            ".",
            "+",
            "@",
            "example.org",
            "192.0.2.7",
            "::1",
            ":",
            " ",
            "é",
            "a-b_c",
        ];
        let foldings = [
            Folding::default(),
            Folding { case: false, ..Folding::default() },
            Folding { plus: true, ..Folding::default() },
            Folding { dots: vec!["example.org".into()], ..Folding::default() },
            Folding { qualify: Some("example.org".into()), ..Folding::default() },
        ];
        let mut as_folded = 0;
        for _ in 0..20_000 {
            let some: Vec<usize> = Vec::arbitrary(&mut random);
            let text: String = some.iter().take(5).map(|n| parts[n % parts.len()]).collect();
            let name = format!("1h/per_rcpt/{text}");
            let spelling = Spelling::of(&spec(name.as_bytes()));
            for folding in &foldings {
                if spelling.is_changed_by(folding) {
                    continue;
                }
                as_folded += 1;
                let by = folding.without_masks();
                let folded = by.folded_bytes(text.as_bytes(), &mut String::new()).to_vec();
                assert_eq!(String::from_utf8_lossy(&folded), text, "{folding:?}");
            }
        }
        assert!(as_folded > 1000, "{as_folded}");
    }
}
