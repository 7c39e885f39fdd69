//! What is remembered of an account: its fields, as a struct and as bytes.

use super::bytes::Field;
use super::{
    BUCKETS, COUNT_HALVED, FAILED_LATEST, LEVEL_MAX, MANY_FIRST, NETWORKED_HALVED, NETWORKS,
    STRANGERS, Sensitivity, VOLUME_MAX, WAYS,
};

/// States the fields of [`Habits`] once: as a struct, and as bytes in the same order.
macro_rules! layout {
    ($($(#[$doc:meta])* $field:ident: $type:ty,)*) => {
        /// What is remembered of an account: of fixed size, [`Habits::BYTES`] as bytes.
        ///
        /// Of recipients and networks it has a few bits of a hash each.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Habits {
            $($(#[$doc])* pub(super) $field: $type,)*
            /// The block that its last alarm has set, as a state holds it: 0 if none was. It is not among the
            /// bytes, but in the state of the record.
            pub(crate) block: u32,
        }

        impl Habits {
            /// Its size as bytes.
            pub const BYTES: usize = 0 $(+ size_of::<$type>())*;

            /// As bytes: the fields without gaps, little-endian.
            #[must_use]
            pub fn to_bytes(&self) -> [u8; Self::BYTES] {
                let mut bytes = [0; Self::BYTES];
                let mut rest = &mut bytes[..];
                $(self.$field.put(&mut rest);)*
                bytes
            }

            /// From bytes that [`Habits::to_bytes`] has made; `None` if they hold what no account
            /// can have.
            #[must_use]
            pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Option<Self> {
                let mut rest = &bytes[..];
                let habits = Self { $($field: Field::take(&mut rest)?,)* block: 0 };
                habits.is_possible().then_some(habits)
            }
        }
    };
}

layout! {
    /// Fingerprints of recipients, in each bucket those met last first.
    known: [[u8; WAYS]; BUCKETS],
    /// Fingerprints of networks, likewise.
    networks: [u16; NETWORKS],
    /// Active hours by the hour of the day in UTC, all halved at 255.
    hours: [u8; 24],
    /// Learned messages by context and class; a context is halved at 255. Parts of messages are
    /// counted, and when it is halved depends on the last digit: so these are not rounded.
    counts: [[f64; 3]; 3],
    /// The log-likelihood ratio, in nats.
    score: f32,
    /// Mean of the logarithm of the strangers of a message that has any.
    many: f32,
    /// Learned messages with a network.
    networked: f32,
    /// Those of them with a new one.
    networked_new: f32,
    /// When the last message was compared; this and all times are seconds since 1970.
    at: u32,
    /// When the volume was last counted.
    volume_at: u32,
    /// When a message last lowered the score.
    lowered_at: u32,
    /// When a message was last learned.
    learned_at: u32,
    /// When the last alarm was raised.
    alarm_at: u32,
    /// When an alarm was last told: at most one a day is.
    told_at: u32,
    /// Alarms since then, which were not.
    untold: u16,
    /// The factor of the threshold at that alarm; 0 before the first.
    level: f32,
    /// Strangers of about a day: a message with `u` counts 1 + log2 u.
    volume: f32,
    /// The highest volume of earlier days.
    record: f32,
    /// The highest volume of this day.
    peak: f32,
    /// When the first message was sent after the score was nearly 0: the evidence begins there.
    since: u32,
    /// Strangers of the last 30 days, about.
    pace: f32,
    /// Messages, up to 65,535.
    messages: u16,
    /// Strangers since `since`.
    episode_strangers: u16,
    /// Messages since then.
    episode_messages: u16,
    /// New networks since then.
    episode_networks: u8,
    /// Failed recipients since then that count.
    episode_failures: u8,
    /// The class of the last message, and [`UNLEARNED`](super::UNLEARNED).
    class: u8,
    /// Whether the last alarm was answered: 0 no, 1 it was the owner, 2 the account was stolen.
    answer: u8,
    /// What the signals of the last message came to, in hundredths of a nat, in the order of
    /// [`Added`](super::Added).
    last_added: [i16; 5],
    /// What those of all messages since `since` came to.
    episode_added: [i16; 5],
    /// `record` before `since`.
    record_before: f32,
    /// `counts` before it, rounded.
    counts_before: [[u8; 3]; 3],
    /// `networked` and `networked_new` before it, rounded.
    networked_before: [u8; 2],
    /// Alarms, each with those that followed while the account was suspected.
    alarms: u16,
    /// Those of them of which somebody said that it was the owner.
    accepted: u16,
    /// Those of which somebody said that the account was stolen.
    stolen: u16,
    /// When a message was last held or deferred.
    held_at: u32,
    /// How many were, since the last alarm.
    held: u16,
}

impl Default for Habits {
    /// Of an account that has never sent.
    fn default() -> Self {
        Self {
            known: [[0; WAYS]; BUCKETS],
            networks: [0; NETWORKS],
            hours: [0; 24],
            counts: [[0.0; 3]; 3],
            score: 0.0,
            many: MANY_FIRST,
            networked: 0.0,
            networked_new: 0.0,
            at: 0,
            volume_at: 0,
            lowered_at: 0,
            learned_at: 0,
            alarm_at: 0,
            told_at: 0,
            untold: 0,
            level: 0.0,
            volume: 0.0,
            record: 0.0,
            peak: 0.0,
            since: 0,
            pace: 0.0,
            messages: 0,
            episode_strangers: 0,
            episode_messages: 0,
            episode_networks: 0,
            episode_failures: 0,
            class: 0,
            answer: 0,
            last_added: [0; 5],
            episode_added: [0; 5],
            record_before: 0.0,
            counts_before: [[0; 3]; 3],
            networked_before: [0; 2],
            alarms: 0,
            accepted: 0,
            stolen: 0,
            held_at: 0,
            held: 0,
            block: 0,
        }
    }
}

impl Habits {
    /// Whether messages can lead to this: all numbers are finite, and the score is below the
    /// threshold that it had.
    fn is_possible(&self) -> bool {
        let highest = Sensitivity::Low.threshold() * (1.0 + f64::from(self.level));
        let within = |value: f32, most: f64| (0.0..=most).contains(&f64::from(value));
        let times = [self.lowered_at, self.learned_at, self.since];
        self.counts.iter().flatten().all(|count| (0.0..=COUNT_HALVED).contains(count))
            && within(self.level, LEVEL_MAX)
            && within(self.score, highest)
            && within(self.many, f64::from(u32::MAX).ln())
            && within(self.networked, NETWORKED_HALVED)
            && within(self.networked_new, self.networked.into())
            && [self.volume, self.record, self.peak, self.pace, self.record_before]
                .iter()
                .all(|&value| within(value, VOLUME_MAX))
            && times.iter().all(|&time| time <= self.at)
            && i64::from(self.alarm_at.max(self.told_at)) <= self.at() + FAILED_LATEST
            && self.last_class() <= STRANGERS
            && self.answer <= 2
            && self.networked_before[0] <= NETWORKED_HALVED as u8
            && self.networked_before[1] <= self.networked_before[0]
    }
}
