//! What accounts send, for all servers: each server publishes what it has counted itself, also while
//! it could not reach the store, and whoever asks adds that of all of them up.
//!
//! The hash `exirate:usage` names the servers that publish. What a server has counted is in
//! [`PARTS`] values, `exirate:usage:NAME:00` to `ff`, by the checksum of the identity: a byte with
//! the version, then each account after the other, an identity and its words that are not 0, each
//! with its number. A part holds at most [`PART_BYTES_MAX`] bytes, of those that sent latest, and
//! expires when nothing of it would be shown any more.

use std::cmp::Reverse;
use std::collections::HashMap;

use redis::{Cmd, Value, cmd};

use super::error::RedisError;
use super::events::SharedEvents;
use super::inspect::SharedRates;
use crate::rate::usage::{Usage, WORDS};
use crate::store::byte_reader::ByteReader;

/// The hash of the servers.
pub(super) const SERVERS: &str = "exirate:usage";
/// In so many parts, each server publishes.
pub const PARTS: usize = 256;
/// The most bytes of a part: with [`PARTS`], 64 MiB a server.
const PART_BYTES_MAX: usize = 256 << 10;
/// A part expires after so many milliseconds: 36 days.
const KEPT: u64 = 36 * 86_400_000;
const VERSION: u8 = 1;
/// The bytes of a word: none is larger.
const WORD_BYTES: usize = 5;

/// The part that an account is in.
#[must_use]
pub fn part_of(identity: &[u8]) -> usize {
    crc32fast::hash(identity) as usize % PARTS
}

pub(super) fn key(server: &str, part: usize) -> String {
    format!("{SERVERS}:{server}:{part:02x}")
}

/// The accounts of a part, while it is made.
#[derive(Debug, Default)]
pub struct UsagePart(Vec<(u64, Vec<u8>)>);

impl UsagePart {
    /// Adds what an account has sent.
    pub fn add(&mut self, identity: &[u8], words: &[u64; WORDS]) {
        let mut body = Vec::new();
        for (number, word) in (0..=u8::MAX).zip(words).filter(|(_, word)| **word > 0) {
            body.push(number);
            body.extend(word.to_le_bytes().iter().take(WORD_BYTES));
        }
        let mut account = Vec::with_capacity(identity.len() + body.len() + 4);
        for text in [identity, &body] {
            let Ok(length) = u16::try_from(text.len()) else { return };
            account.extend_from_slice(&length.to_le_bytes());
            account.extend_from_slice(text);
        }
        // The first word says until when it has sent.
        self.0.push((words[0], account));
    }

    /// Its bytes: those that sent latest, as many as there is room for; empty if there are none.
    #[must_use]
    pub fn into_bytes(mut self) -> Vec<u8> {
        self.0.sort_by(|(latest, account), (other, next)| {
            (Reverse(latest), account).cmp(&(Reverse(other), next))
        });
        let mut bytes = Vec::new();
        for (_, account) in self.0 {
            if bytes.len() + account.len() >= PART_BYTES_MAX {
                break;
            }
            if bytes.is_empty() {
                bytes.push(VERSION);
            }
            bytes.extend(account);
        }
        bytes
    }
}

/// The accounts of a part, and what each has sent, in [`read_words`]'s bytes; what cannot be read is
/// left out.
fn accounts(part: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let rest = part.strip_prefix(&[VERSION]).unwrap_or_default();
    let mut reader = ByteReader { rest };
    std::iter::from_fn(move || Some((reader.text()?, reader.text()?)))
}

fn read_words(body: &[u8]) -> [u64; WORDS] {
    let (mut words, mut reader) = ([0; WORDS], ByteReader { rest: body });
    while let Some([number, bytes @ ..]) = reader.array::<{ 1 + WORD_BYTES }>() {
        let mut word = [0; 8];
        word[..WORD_BYTES].copy_from_slice(&bytes);
        if let Some(place) = words.get_mut(usize::from(number)) {
            *place = u64::from_le_bytes(word);
        }
    }
    words
}

impl SharedEvents {
    /// Publishes a part of what a server has counted.
    ///
    /// # Errors
    /// It may have been published nevertheless.
    pub fn publish_usage(&self, server: &str, part: usize, bytes: &[u8]) -> Result<(), RedisError> {
        let key = key(server, part);
        if bytes.is_empty() {
            return self.send(cmd("DEL").arg(key));
        }
        self.send(cmd("HSET").arg(SERVERS).arg(server).arg(u32::from(VERSION)))?;
        self.send(cmd("SET").arg(key).arg(bytes).arg("PX").arg(KEPT))
    }
}

impl SharedRates {
    /// The servers that publish.
    fn publishers(&self) -> Result<Vec<String>, RedisError> {
        let Value::Array(fields) = self.send(cmd("HGETALL").arg(SERVERS))? else {
            return Err(RedisError::Reply);
        };
        let names = fields.chunks(2).filter_map(|pair| match pair {
            [Value::BulkString(name), _] => String::from_utf8(name.clone()).ok(),
            _ => None,
        });
        Ok(names.collect())
    }

    /// These parts of a server, those that there are.
    fn parts(
        &self,
        server: &str,
        parts: impl Iterator<Item = usize>,
    ) -> Result<Vec<(String, Vec<u8>)>, RedisError> {
        let keys: Vec<String> = parts.map(|part| key(server, part)).collect();
        let gets: Vec<Cmd> = keys.iter().map(|key| cmd("GET").arg(key).take()).collect();
        let mut found = Vec::new();
        for (key, reply) in keys.into_iter().zip(self.send_all(&None, gets)?) {
            if let Value::BulkString(bytes) = reply? {
                found.push((key, bytes));
            }
        }
        Ok(found)
    }

    /// These parts of the other servers; nothing, where this server is not known.
    fn elsewhere(
        &self,
        parts: impl Iterator<Item = usize> + Clone,
    ) -> Result<Vec<Vec<u8>>, RedisError> {
        let mut found = Vec::new();
        let Some(own) = &self.own else { return Ok(found) };
        for server in self.publishers()?.iter().filter(|server| *server != own) {
            found.extend(self.parts(server, parts.clone())?.into_iter().map(|(_, bytes)| bytes));
        }
        Ok(found)
    }

    /// How many accounts that `concerns` selects servers have published; if `removes`, without them
    /// from now on.
    ///
    /// # Errors
    /// The store cannot be used.
    pub fn published_usage(
        &self,
        concerns: &dyn Fn(&[u8]) -> bool,
        removes: bool,
    ) -> Result<u64, RedisError> {
        let mut count = 0;
        for server in self.publishers()? {
            for (key, bytes) in self.parts(&server, 0..PARTS)? {
                let (gone, kept): (Vec<_>, Vec<_>) =
                    accounts(&bytes).partition(|(identity, _)| concerns(identity));
                count += gone.len() as u64;
                if removes && !gone.is_empty() {
                    let mut part = UsagePart::default();
                    kept.iter().for_each(|(identity, body)| part.add(identity, &read_words(body)));
                    self.send(cmd("SET").arg(key).arg(part.into_bytes()).arg("PX").arg(KEPT))?;
                }
            }
        }
        Ok(count)
    }

    /// What other servers have published of an account, until the second `at` of this `day`.
    pub(super) fn usage_elsewhere(
        &self,
        identity: &[u8],
        at: i64,
        day: i64,
    ) -> Result<Option<Usage>, RedisError> {
        let parts = self.elsewhere(std::iter::once(part_of(identity)))?;
        let all = parts.iter().flat_map(|part| accounts(part));
        Ok(sum(all.filter(|(one, _)| *one == identity).map(|(_, body)| body), at, day))
    }

    /// What other servers have published of all accounts.
    pub(super) fn all_usage_elsewhere(&self) -> Result<UsageElsewhere, RedisError> {
        let mut all = UsageElsewhere::default();
        for part in self.elsewhere(0..PARTS)? {
            for (identity, body) in accounts(&part) {
                all.0.entry(identity.into()).or_default().push(body.into());
            }
        }
        Ok(all)
    }
}

/// What other servers have published, by identity.
#[derive(Default)]
pub(super) struct UsageElsewhere(HashMap<Box<[u8]>, Vec<Box<[u8]>>>);

impl UsageElsewhere {
    /// Takes what they have of an account.
    pub(super) fn take(&mut self, identity: &[u8], at: i64, day: i64) -> Option<Usage> {
        let bodies = self.0.remove(identity)?;
        sum(bodies.iter().map(|body| &**body), at, day)
    }

    /// Calls `visit` with those that were not taken.
    pub(super) fn for_each(self, at: i64, day: i64, visit: &mut dyn FnMut(&[u8], &Usage)) {
        for (identity, bodies) in self.0 {
            if let Some(usage) = sum(bodies.iter().map(|body| &**body), at, day) {
                visit(&identity, &usage);
            }
        }
    }
}

fn sum<'b>(bodies: impl Iterator<Item = &'b [u8]>, at: i64, day: i64) -> Option<Usage> {
    let each = bodies.map(|body| Usage::of(&read_words(body), at, day));
    each.reduce(|mut sum, one| {
        sum += &one;
        sum
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::usage::{Sent, count};

    fn words(at: i64, recipients: u64) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        let sent = Sent { messages: 1, recipients, ..Sent::default() };
        count(&mut words, at, || at / 86_400, &sent);
        words
    }

    #[test]
    fn what_0_2_0_has_published_is_read() {
        let now = 1_795_000_000;
        let kept = kit::formats::kept("0.2.0", "usage.part", || {
            let mut part = UsagePart::default();
            part.add(b"auth:a", &words(now, 1 << 39));
            part.into_bytes()
        });
        let read: Vec<_> =
            accounts(&kept).map(|(identity, body)| (identity, read_words(body))).collect();
        assert_eq!(read, [(&b"auth:a"[..], words(now, 1 << 39))]);
    }

    #[test]
    fn a_part_is_read_as_it_was_made_and_holds_those_who_sent_latest() {
        let now = 1_795_000_000;
        let mut part = UsagePart::default();
        part.add(b"auth:a", &words(now, 1 << 39));
        part.add(b"auth:b", &words(now - 40 * 86_400, 2));
        let bytes = part.into_bytes();
        let read: Vec<_> =
            accounts(&bytes).map(|(identity, body)| (identity, read_words(body))).collect();
        let expected: [(&[u8], _); 2] =
            [(b"auth:a", words(now, 1 << 39)), (b"auth:b", words(now - 40 * 86_400, 2))];
        assert_eq!(read, expected);
        // Whatever is stored there, it is read, or left out.
        for cut in 0..bytes.len() {
            assert!(accounts(&bytes[..cut]).count() <= 2);
        }
        assert_eq!(accounts(b"\x02\x01\0a\0\0").count(), 0, "of a later version");
        assert_eq!(read_words(&[255; 12]), [0; WORDS]);
        assert!(UsagePart::default().into_bytes().is_empty());

        let mut part = UsagePart::default();
        (0..20_000_i64).for_each(|n| part.add(n.to_string().as_bytes(), &words(now + n * 900, 1)));
        let bytes = part.into_bytes();
        assert!((PART_BYTES_MAX - 100..PART_BYTES_MAX).contains(&bytes.len()), "{}", bytes.len());
        assert_eq!(accounts(&bytes).next().unwrap().0, b"19999");
    }
}
