//! What an account is shown as, and what becomes of an alarm that somebody answers.

use super::{
    Added, DAY, Habits, REMEMBERED, SUSPECTED_FOR, SUSPECTED_MOST, Sensitivity, VOLUME_MIN,
    VOLUME_RECORDS, left_of, network_of, place_of, second,
};
use crate::rate::block::Block;

/// Until then somebody is suspected, if only an answer ends that: the last second of a date.
pub const UNTIL_ANSWERED: i64 = 253_402_300_799;

/// What somebody who knows says of an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It was the owner.
    Accepted,
    /// It was a thief.
    Stolen,
}

impl Answer {
    /// How it is written.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Stolen => "stolen",
        }
    }
}

/// How many alarms there were, and how they were answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// Alarms, each with those that followed while the account was suspected.
    pub alarms: u32,
    /// Those of which somebody said that it was the owner.
    pub accepted: u32,
    /// Those of which somebody said that the account was stolen.
    pub stolen: u32,
}

impl Answers {
    /// Those of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            alarms: self.alarms.saturating_add(other.alarms),
            accepted: self.accepted.saturating_add(other.accepted),
            stolen: self.stolen.saturating_add(other.stolen),
        }
    }
}

/// How long the recipients are remembered that have led to an alarm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecipientsKept {
    /// So many were strangers.
    pub new: u32,
    /// Until the account has written to so many other strangers; 0 if there are too many of them.
    pub others: u32,
    /// That is so many days, at the usual pace of the account.
    pub days: f64,
}

impl RecipientsKept {
    /// Whether the same mailing raises an alarm again before long.
    #[must_use]
    pub fn is_too_many(self) -> bool {
        self.others < self.new
    }
}

impl Habits {
    /// How long the recipients are remembered of the messages that led to the last alarm, and of those
    /// since.
    #[must_use]
    pub fn remembered(&self) -> RecipientsKept {
        let alarm = self.evidence(self.at());
        let others = REMEMBERED.saturating_sub(alarm.strangers);
        let days = f64::from(others) / alarm.usual;
        RecipientsKept { new: alarm.strangers, others, days }
    }

    /// Whether the account is suspected at `now`: nobody has answered the last alarm, and it, or a
    /// message that was held or deferred since, is less than a day ago, or it has set a block.
    #[must_use]
    pub fn is_suspected(&self, now: i64) -> bool {
        self.unanswered().is_some_and(|alarm| {
            // One that is more than a day ahead is of a clock that was wrong.
            (alarm - SUSPECTED_FOR < now) && (now < self.ends(alarm))
        })
    }

    /// The block that the last alarm has set, if it has not ended at `now` and nobody has answered.
    #[must_use]
    #[inline]
    pub fn blocked(&self, now: i64) -> Option<Block> {
        Block::held(self.block).filter(|block| block.lasts_at(now) && self.unanswered().is_some())
    }

    /// Until when the account is suspected, if nobody answers and no more mail of it is held or
    /// deferred.
    #[must_use]
    pub fn suspected_until(&self) -> Option<i64> {
        self.unanswered().map(|alarm| self.ends(alarm))
    }

    /// When the suspicion ends that this alarm began.
    fn ends(&self, alarm: i64) -> i64 {
        let ends = (alarm.max(self.held_at.into()) + SUSPECTED_FOR).min(alarm + SUSPECTED_MOST);
        let block = Block::held(self.block);
        ends.max(block.map_or(0, |block| block.end().unwrap_or(UNTIL_ANSWERED)))
    }

    /// How many messages were held or deferred since the last alarm.
    #[must_use]
    pub fn held(&self) -> u32 {
        self.held.into()
    }

    /// Counts a message that is held or deferred, as the account is suspected: it is so for another
    /// day, as whoever sends it has not stopped. Nothing is learned from it: if each raised the score
    /// to the next alarm, which needs a higher one, a thief who goes on would soon need more than he
    /// sends in a day.
    pub fn hold(&mut self, at: i64) {
        let at = self.set_back(at);
        self.held_at = self.held_at.max(second(at));
        self.held = self.held.saturating_add(1);
    }

    /// When the last alarm was raised, if nobody has answered it.
    pub(super) fn unanswered(&self) -> Option<i64> {
        self.alarm_at().filter(|_| self.answer == 0)
    }

    /// How the last alarm was answered.
    #[must_use]
    pub fn answer(&self) -> Option<Answer> {
        match self.answer {
            0 => None,
            1 => Some(Answer::Accepted),
            _ => Some(Answer::Stolen),
        }
    }

    /// How all alarms were answered.
    #[must_use]
    pub fn answers(&self) -> Answers {
        let Self { alarms, accepted, stolen, .. } = *self;
        Answers { alarms: alarms.into(), accepted: accepted.into(), stolen: stolen.into() }
    }

    /// When the evidence begins.
    #[must_use]
    pub fn since(&self) -> i64 {
        self.since.into()
    }

    /// What each signal of the last message added.
    #[must_use]
    pub fn last_added(&self) -> Added {
        Added::of_hundredths(self.last_added)
    }

    /// What each signal of all messages has added since the evidence began. What was above the
    /// most of one message, and what was forgotten since, is in it.
    #[must_use]
    pub fn added_since(&self) -> Added {
        Added::of_hundredths(self.episode_added)
    }

    /// Strangers of about a day at `now`; a message with `u` of them counts 1 + log2 u.
    #[must_use]
    pub fn volume(&self, now: i64) -> f64 {
        left_of(self.volume, now.saturating_sub(self.volume_at.into()).max(0), DAY)
    }

    /// The most of them on earlier days.
    #[must_use]
    pub fn record(&self) -> f64 {
        self.record.into()
    }

    /// The volume beyond which a message to strangers raises an alarm.
    #[must_use]
    pub fn volume_limit(&self) -> f64 {
        VOLUME_MIN.max(VOLUME_RECORDS * self.record())
    }

    /// How many messages in a row, each to one stranger, would raise an alarm from `now` on; `None`
    /// if it is more than `most`.
    #[must_use]
    pub fn messages_to_alarm(&self, now: i64, sensitivity: Sensitivity, most: u32) -> Option<u32> {
        let mut habits = self.clone();
        (1..=most).find(|&count| {
            let row = &habits.known[0];
            let stranger = (1..=u8::MAX).find(|fingerprint| !row.contains(fingerprint));
            let hash = u64::from(stranger.unwrap_or(1)) << 40;
            let at = now.saturating_add(count.into());
            habits.message(at, None, [hash], sensitivity).alarm.is_some()
        })
    }

    /// It was the owner: what led to the last alarm is usual from now on. `false`, and nothing is
    /// changed, if there is no alarm that nobody has answered.
    pub fn accept(&mut self) -> bool {
        let is_open = self.close(Answer::Accepted);
        if is_open {
            self.record = self.record.max(self.peak).max(self.volume);
            // The next alarm is another, and somebody waits for it.
            self.told_at = 0;
            // Recipients of these messages may still fail.
            self.begin_evidence(self.at.into());
        }
        is_open
    }

    /// An override allows the message that has raised this alarm: it was the owner, and nobody is
    /// told.
    pub fn allow(&mut self, alarm: &super::Alarm) {
        self.accept();
        if alarm.is_told {
            self.told_at = 0;
            self.untold = u16::try_from(alarm.untold).unwrap_or(u16::MAX);
        } else {
            self.untold = self.untold.saturating_sub(1);
        }
    }

    /// The account was stolen: what the thief has made usual is so no more, as far as it is known.
    /// `recipients` and `networks` are hashes, as in [`Habits::message`], of those of the messages
    /// since the evidence began. `false` if there is no alarm that nobody has answered: then nothing
    /// is changed, unless the answer was the same and no other evidence has begun since, so that
    /// these can still be forgotten.
    pub fn stolen(
        &mut self,
        recipients: impl IntoIterator<Item = u64>,
        networks: impl IntoIterator<Item = u64>,
    ) -> bool {
        let is_open = self.close(Answer::Stolen);
        if is_open || self.answer() == Some(Answer::Stolen) && self.since <= self.alarm_at {
            for hash in recipients {
                let (bucket, fingerprint) = place_of(hash);
                forget(&mut self.known[bucket], fingerprint);
            }
            networks.into_iter().for_each(|hash| forget(&mut self.networks, network_of(hash)));
        }
        if is_open {
            (self.volume, self.peak, self.record) = (0.0, 0.0, self.record_before);
            self.counts = self.counts_before.map(|context| context.map(f64::from));
            [self.networked, self.networked_new] = self.networked_before.map(f32::from);
            // The alarm was right: the next one needs no more than usual.
            self.level = 0.0;
        }
        is_open
    }

    /// Answers the last alarm.
    fn close(&mut self, answer: Answer) -> bool {
        let is_open = self.unanswered().is_some();
        if is_open {
            let (code, count) = match answer {
                Answer::Accepted => (1, &mut self.accepted),
                Answer::Stolen => (2, &mut self.stolen),
            };
            *count = count.saturating_add(1);
            self.answer = code;
            self.block = 0;
            self.score = 0.0;
        }
        is_open
    }
}

/// Removes a fingerprint from its row.
fn forget<T: Copy + Default + PartialEq>(row: &mut [T], fingerprint: T) {
    if let Some(place) = row.iter().position(|&other| other == fingerprint) {
        row[place..].rotate_left(1);
        if let Some(last) = row.last_mut() {
            *last = T::default();
        }
    }
}
