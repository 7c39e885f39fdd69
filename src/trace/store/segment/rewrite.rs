//! Changing the envelopes of a segment: its digests stay as they are.

use crate::trace::{Envelope, Scheme};

use super::super::TraceError;
use super::super::cipher::random;
use super::super::key::DerivedKeys;
use super::Segment;
use super::build::{Origin, Plain, assemble, encode};
use super::head::SegmentHead;
use super::lookup::Words;
use super::positions::Positions;
use super::read::Messages;
use super::rows::Wanted;

impl Segment {
    /// All envelopes, in order; `None` if one of them cannot be read.
    pub(in super::super) fn envelopes(&self) -> Option<Vec<Envelope>> {
        let (words, messages) = (Words::of(self)?, Messages::of(self)?);
        let (mut envelopes, mut damaged) = (Vec::new(), false);
        let unread = messages.read(&words, &Wanted::default(), &mut |row| {
            damaged |= row.damaged;
            envelopes.push(row.envelope);
        });
        let is_whole = unread.damaged.is_empty() && !damaged;
        (is_whole && envelopes.len() == self.head.messages as usize).then_some(envelopes)
    }

    /// All envelopes and their digests, in order; `None` if one of them cannot be read.
    pub(in super::super) fn messages(
        &self,
        scheme: &dyn Scheme,
    ) -> Option<(Vec<Envelope>, Vec<Vec<u8>>)> {
        if !self.is_sound() {
            return None;
        }
        let envelopes = self.envelopes()?;
        let sealed = scheme.unseal(&self.plain_body()?)?;
        let all: Vec<u32> = (0..self.head.messages).collect();
        let order = Messages::of(self)?.at_positions(&all);
        let mut digests = vec![Vec::new(); envelopes.len()];
        for (message, digest) in order.into_iter().zip(sealed) {
            *digests.get_mut(message? as usize)? = digest;
        }
        Some((envelopes, digests))
    }

    /// The file of this segment with other envelopes of the same messages, in the same
    /// order; `None` if it is damaged.
    ///
    /// # Errors
    /// There are no random numbers.
    pub(in super::super) fn with_envelopes(
        &self,
        envelopes: &[Envelope],
        key: &DerivedKeys,
    ) -> Result<Option<Vec<u8>>, TraceError> {
        let Some((head, plain)) = self.encode_with(envelopes) else { return Ok(None) };
        Ok(Some(assemble(head, &plain, key, random()?)))
    }

    fn encode_with(&self, envelopes: &[Envelope]) -> Option<(SegmentHead, Plain)> {
        let messages = Messages::of(self)?;
        let all: Vec<u32> = (0..self.head.messages).collect();
        let order: Option<Vec<u32>> = messages.at_positions(&all).into_iter().collect();
        let positions = Positions::of(&order?)?;
        let SegmentHead { number, first, log, settings, decode, lost, .. } = self.head;
        let body = self.plain_body()?;
        let origin = Origin { number, first, log, settings, decode, lost };
        Some(encode(envelopes, &positions, origin, body))
    }
}
