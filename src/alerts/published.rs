//! What this server has counted of what accounts send, published for the others: whoever sends the
//! alerts has a connection to the store of all servers, and reads the database.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::receiver::Stream;
use crate::redis::{PARTS, UsagePart, part_of};
use crate::spool::Spool;
use crate::text::Voice;

/// What has not changed is published again before it expires.
const AGAIN: Duration = Duration::from_hours(24);
/// Between two times, so many times as long passes as one has taken.
const SPARED: u32 = 20;

/// What was published by this process.
#[derive(Debug, Default)]
pub(crate) struct Published(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Of each part, the hash, and when.
    parts: Vec<Option<(u64, Instant)>>,
    hasher: RandomState,
    next: Option<Instant>,
    /// Why it could not be, the last time: that is said once.
    failed: Option<String>,
}

impl Published {
    /// Publishes what has changed.
    pub(super) fn publish(&self, spool: &mut Spool, stream: &Stream<'_>, voice: &dyn Voice) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = Instant::now();
        if state.next.is_some_and(|next| begun < next) {
            return;
        }
        let failed = state.publish(spool, stream).err();
        if let Some(why) = failed.as_ref().filter(|why| state.failed.as_ref() != Some(*why)) {
            voice
                .complain(format_args!("other servers do not know what accounts send here: {why}"));
        }
        state.failed = failed;
        state.next = begun.elapsed().checked_mul(SPARED).and_then(|wait| begun.checked_add(wait));
    }
}

impl State {
    fn publish(&mut self, spool: &mut Spool, stream: &Stream<'_>) -> Result<(), String> {
        let mut parts: Vec<UsagePart> = (0..PARTS).map(|_| UsagePart::default()).collect();
        let left_out = spool.for_each_usage_words(|key, words| {
            let identity = key.key().identity();
            if let Some(part) = parts.get_mut(part_of(identity)) {
                part.add(identity, words);
            }
        });
        if let Some(shard) = left_out.map_err(|error| error.to_string())?.shards.first() {
            return Err(shard.to_string());
        }
        self.parts.resize(PARTS, None);
        for (number, (part, known)) in parts.into_iter().zip(&mut self.parts).enumerate() {
            let bytes = part.into_bytes();
            let hash = self.hasher.hash_one(&bytes);
            if known.is_some_and(|(before, at)| before == hash && at.elapsed() < AGAIN) {
                continue;
            }
            stream.publish_usage(number, &bytes)?;
            *known = Some((hash, Instant::now()));
        }
        Ok(())
    }
}
