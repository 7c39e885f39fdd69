//! The habits of an account, and what is unlike them: a stolen account noticed from envelopes.
//!
//! A message is compared with what the account has done before: the share of its recipients that
//! it has never written to, in the run of messages it stands in, the hour, and the client's
//! network. What the comparison says is added up as a log-likelihood ratio, "a thief sends" to
//! "the owner sends", which begins again at 0 where it would be negative: a cumulative sum test
//! (E. S. Page, "Continuous inspection schemes", Biometrika 41, 1954, with the ratio of A. Wald,
//! "Sequential analysis", 1947), which also forgets with a time constant. An alarm is raised
//! where the sum reaches a threshold. A second rule holds the strangers of about a day against
//! the most that the account has had: it is for a thief who mixes known recipients in.
//!
//! The owner's habits are estimated from counts with a prior of some messages (the mean of a
//! Dirichlet distribution). All constants were chosen by hand on two public sets of mail and then
//! frozen: changing one changes the measured rates of detection and of false alarms.

mod answers;
mod bytes;
mod failures;
mod layout;
mod marked;
#[cfg(test)]
mod tests;
mod update;

pub use answers::{Answer, Answers, RecipientsKept, UNTIL_ANSWERED};
pub use layout::Habits;
pub use marked::marks;
pub use update::{Added, Alarm, Rule, Sensitivity, Update};

/// Known recipients: so many buckets, each of [`WAYS`] fingerprints of 8 bits.
const BUCKETS: usize = 32;
/// Fingerprints in a bucket.
const WAYS: usize = 8;
/// So many places of a row are for those met again; strangers enter behind them, so that a flood
/// of strangers evicts strangers.
const PROTECTED: usize = 3;
/// So many strangers, one after another, are remembered well enough that a mailing to them raises no
/// alarm when it comes again: somewhat fewer than there are places for, as buckets fill unevenly.
const REMEMBERED: u32 = 130;
/// Known networks of clients: so many fingerprints of 16 bits.
const NETWORKS: usize = 8;
/// The score is forgotten with this time constant, in seconds.
const SCORE_FORGOTTEN: f64 = 7.0 * DAY;
/// The share of the messages that are the thief's while he is at work.
const THIEF_SHARE: f64 = 0.85;
/// His messages by [`Class`].
const THIEF: [f64; 3] = [0.03, 0.03, 0.94];
/// Everybody's messages by [`Class`], in each [`Context`].
const PRIOR: [[f64; 3]; 3] = [[0.75, 0.12, 0.13], [0.87, 0.07, 0.06], [0.65, 0.10, 0.25]];
/// The prior weighs as much as so many messages.
const PRIOR_MESSAGES: f64 = 10.0;
/// From this share of strangers on, nearly all recipients of a message are strangers.
const NEARLY_ALL: f64 = 0.75;
/// The weight of "more strangers in a message than usual".
const MANY_WEIGHT: f64 = 0.75;
/// A message is one decision: the most that it can add to the score, in nats.
const MESSAGE_MAX: f64 = 6.0;
/// Seconds after which a message comes after a pause.
const PAUSE: i64 = 3600;
/// Mail to known recipients lowers the score in full once in so many seconds.
const LOWERED_EACH: f64 = 1.0;
/// A message is learned in full once in so many seconds.
const LEARNED_EACH: f64 = 30.0;
/// Nothing is learned while the score is above this part of its threshold.
const LEARNED_BELOW: f64 = 0.5;
/// So many messages until an account counts as known: to a new one, everybody is a stranger.
pub const YOUNG: u16 = 20;
/// The share of messages to strangers that are the owner's, of a new account.
const YOUNG_SHARE: f64 = 0.85;
/// That share is halved after so many messages.
const YOUNG_MESSAGES: f64 = 5.0;
/// The least volume of strangers that is an alarm.
const VOLUME_MIN: f64 = 80.0;
/// The volume that is an alarm, in records of the account.
const VOLUME_RECORDS: f64 = 2.0;
/// A day raises the record to this multiple and one more, at most: so that nobody trains it in a
/// week.
const RECORD_GROWTH: f64 = 1.05;
/// Half of the record is forgotten in so many days.
const RECORD_HALVED: f64 = 60.0;
/// After an alarm the next one needs a higher score, which is forgotten with this time constant,
/// in seconds.
const AGAIN_FORGOTTEN: f64 = 14.0 * DAY;
/// The pace of new recipients is a mean of about so many days.
const PACE_DAYS: f64 = 30.0;
/// The evidence of an alarm that nobody answers is kept, and added to, for so many seconds.
const EVIDENCE_KEPT: i64 = 7 * DAY_SECONDS;
/// Hours are judged once so many active ones are known.
const HOURS_MIN: u32 = 40;
/// The most that an unusual hour adds.
const HOUR_MAX: f64 = 2.0;
/// Networks are judged once so many messages have had one.
const NETWORKED_MIN: f64 = 10.0;
/// Counts of messages with a network are halved from here on.
const NETWORKED_HALVED: f64 = 200.0;
/// Other counts are halved from here on.
const COUNT_HALVED: f64 = 255.0;
/// The mean of the logarithm of a message's strangers moves by this part.
const MANY_MOVES: f64 = 1.0 / 16.0;
/// It begins here.
const MANY_FIRST: f32 = 0.3;
/// A failure that comes so much later than the last message, in seconds, counts as of then.
const FAILED_LATEST: i64 = SCORE_FORGOTTEN as i64;
/// So many seconds after an alarm, or after the last message that was held or deferred since, the
/// account is no longer suspected.
pub const SUSPECTED_FOR: i64 = DAY_SECONDS;
/// So many seconds after an alarm it is not in any case.
const SUSPECTED_MOST: i64 = 7 * DAY_SECONDS;
/// The first message comes so many seconds after an imagined one.
const BEFORE_FIRST: i64 = 1_000_000_000;
const DAY: f64 = 86_400.0;
const DAY_SECONDS: i64 = 86_400;
const HOUR_SECONDS: i64 = 3600;
/// The level of alarms is not counted further.
const LEVEL_MAX: f64 = 10_000.0;
/// Volume, record and pace are not counted further.
const VOLUME_MAX: f64 = 1e9;

/// How many recipients of a message are strangers: none, some, or nearly all.
type Class = usize;
/// The class of nearly all.
const STRANGERS: Class = 2;
/// Added to the class of the last message: mail of which nothing is learned has gone to strangers.
const UNLEARNED: u8 = 128;
/// What a message comes after: a pause, a message to known recipients, or one with strangers,
/// as these come in runs.
type Context = usize;

impl Habits {
    /// Updates the habits by a message that was sent `at` this second since 1970.
    ///
    /// `network` and `recipients` are hashes, under a key that the sender does not know, of the
    /// client's network and of each recipient.
    pub fn message(
        &mut self,
        at: i64,
        network: Option<u64>,
        recipients: impl IntoIterator<Item = u64>,
        sensitivity: Sensitivity,
    ) -> Update {
        let at = self.begin(at);
        let is_first = self.messages == 0;
        let last = if is_first { at - BEFORE_FIRST } else { self.at.into() };
        let elapsed = at - last;
        let faded = left_of(self.score, elapsed, SCORE_FORGOTTEN);

        let (mut all, mut strangers) = (0_u32, 0_u32);
        for hash in recipients {
            all = all.saturating_add(1);
            strangers = strangers.saturating_add(u32::from(!self.recipient(hash)));
        }
        let class: Class = match strangers {
            0 => 0,
            _ if f64::from(strangers) >= NEARLY_ALL * f64::from(all) => STRANGERS,
            _ => 1,
        };
        let context: Context = match self.last_class() {
            _ if elapsed > PAUSE => 0,
            0 => 1,
            _ => 2,
        };
        let is_new_hour = at / HOUR_SECONDS != last.div_euclid(HOUR_SECONDS);
        let is_new_network = network.is_some_and(|hash| !self.network(hash));
        let total: f64 = self.counts[context].iter().copied().sum();
        let added = self.added(
            at,
            strangers,
            self.expected(context, class, total),
            class,
            is_new_hour,
            is_new_network,
        );
        let gain = added.recipients + added.many + added.hour + added.network;
        let gain = if strangers > 0 { gain.max(0.0) } else { gain };
        let score = (faded + gain.min(MESSAGE_MAX)).max(0.0);
        let is_over = self.count_volume(at, strangers);

        if faded < 1.0 && self.unanswered().is_none_or(|alarm| at - alarm >= EVIDENCE_KEPT) {
            self.begin_evidence(at);
        }
        self.last_added = [0; 5];
        self.add_to_evidence(added);
        let more = u16::try_from(strangers).unwrap_or(u16::MAX);
        self.episode_strangers = self.episode_strangers.saturating_add(more);
        self.episode_messages = self.episode_messages.saturating_add(1);
        self.episode_networks = self.episode_networks.saturating_add(u8::from(is_new_network));

        let factor = self.factor(at);
        let threshold = sensitivity.threshold() * factor;
        let alarm = (score >= threshold || is_over).then(|| self.alarm(at, is_over, factor));
        let left = if alarm.is_some() { 0.0 } else { score };
        self.score = left as f32;
        if strangers > 0 {
            let many = f64::from(self.many);
            self.many = (many + (f64::from(strangers).ln() - many) * MANY_MOVES) as f32;
        }
        if left < LEARNED_BELOW * sensitivity.threshold() {
            self.learn(at, context, class, total, network.map(|_| is_new_network), is_new_hour);
            let pace = left_of(self.pace, elapsed, PACE_DAYS * DAY) + f64::from(strangers);
            self.pace = pace.min(VOLUME_MAX) as f32;
        }
        self.messages = self.messages.saturating_add(1);
        self.class = class as u8 | self.class & UNLEARNED;
        self.at = second(at);
        Update { score, threshold, strangers, added, alarm }
    }

    /// The score at `now`.
    #[must_use]
    pub fn score(&self, now: i64) -> f64 {
        let elapsed = now.saturating_sub(self.at.into()).max(0);
        left_of(self.score, elapsed, SCORE_FORGOTTEN)
    }

    /// The score at which an alarm is raised at `now`.
    #[must_use]
    pub fn threshold(&self, now: i64, sensitivity: Sensitivity) -> f64 {
        sensitivity.threshold() * self.factor(now)
    }

    /// The evidence since the score was nearly 0, as an alarm at `now` would show it.
    #[must_use]
    pub fn evidence(&self, now: i64) -> Alarm {
        Alarm {
            rule: Rule::Score,
            strangers: self.episode_strangers.into(),
            messages: self.episode_messages.into(),
            seconds: now.saturating_sub(self.since.into()),
            is_put_back: self.is_put_back(),
            networks: self.episode_networks.into(),
            failures: self.episode_failures.into(),
            usual: f64::from(self.pace) / PACE_DAYS,
            before: self.messages.saturating_sub(self.episode_messages),
            volume: self.volume.into(),
            record: self.record.into(),
            is_told: false,
            untold: 0,
            blocked: None,
        }
    }

    /// Whether the evidence begins a day and more before the last alarm: an alarm by volume puts its
    /// begin back so far, and what is counted began later.
    fn is_put_back(&self) -> bool {
        let alarm = self.alarm_at();
        alarm.is_some_and(|alarm| i64::from(self.since) <= alarm.saturating_sub(DAY_SECONDS))
    }

    /// When the last message was sent, in seconds since 1970.
    #[must_use]
    pub fn at(&self) -> i64 {
        self.at.max(self.volume_at).max(self.held_at).into()
    }

    /// How many messages it has learned from, up to 65,535.
    #[must_use]
    pub fn messages(&self) -> u16 {
        self.messages
    }

    /// When the last alarm was raised, if ever.
    #[must_use]
    pub fn alarm_at(&self) -> Option<i64> {
        (self.alarms > 0).then_some(self.alarm_at.into())
    }

    /// The time that counts for a message: never before the last one.
    fn begin(&mut self, at: i64) -> i64 {
        let at = self.set_back(at);
        if self.messages == 0 {
            self.lowered_at = second(at - 3600);
            self.learned_at = second(at - 600);
            return at;
        }
        at.max(self.at.into())
    }

    /// A time as one that can be stored. If all that is known is more than a day ahead of it, the
    /// clock was wrong for a while, and its times are set back: if they stood still until it is
    /// right again, the score would grow and never fade.
    fn set_back(&mut self, at: i64) -> i64 {
        let at = at.clamp(0, u32::MAX.into());
        let ahead = self.at() - at;
        if ahead > DAY_SECONDS {
            for time in [
                &mut self.at,
                &mut self.volume_at,
                &mut self.lowered_at,
                &mut self.learned_at,
                &mut self.alarm_at,
                &mut self.told_at,
                &mut self.since,
                &mut self.held_at,
            ] {
                *time = second(i64::from(*time) - ahead);
            }
        }
        at
    }

    /// Whether the recipient is known; it is afterwards.
    #[inline]
    fn recipient(&mut self, hash: u64) -> bool {
        let (bucket, fingerprint) = place_of(hash);
        meet(&mut self.known[bucket], fingerprint)
    }

    /// Whether the network is known; it is afterwards.
    fn network(&mut self, hash: u64) -> bool {
        meet(&mut self.networks, network_of(hash))
    }

    /// The class of the last message.
    fn last_class(&self) -> Class {
        (self.class & !UNLEARNED).into()
    }

    /// The probability that the owner sends a message of this class in this context.
    fn expected(&self, context: Context, class: Class, total: f64) -> f64 {
        let counted = self.counts[context][class];
        let known = (counted + PRIOR_MESSAGES * PRIOR[context][class]) / (total + PRIOR_MESSAGES);
        if self.messages >= YOUNG {
            return known;
        }
        let new = YOUNG_SHARE / (1.0 + f64::from(self.messages) / YOUNG_MESSAGES);
        known * (1.0 - new) + if class == STRANGERS { new } else { 0.0 }
    }

    /// What each signal adds.
    fn added(
        &mut self,
        at: i64,
        strangers: u32,
        expected: f64,
        class: Class,
        is_new_hour: bool,
        is_new_network: bool,
    ) -> Added {
        if strangers == 0 {
            // Mail to known recipients speaks for the owner, but not each of a burst.
            let part = ((at - i64::from(self.lowered_at)) as f64 / LOWERED_EACH).min(1.0);
            self.lowered_at = second(at);
            return Added { recipients: (1.0 - THIEF_SHARE).ln() * part, ..Added::default() };
        }
        let ratio = THIEF_SHARE * THIEF[class] / expected + 1.0 - THIEF_SHARE;
        let mut added = Added { recipients: ratio.ln(), ..Added::default() };
        if strangers > 1 {
            let unlike = f64::from(strangers).ln() - f64::from(self.many);
            added.many = MANY_WEIGHT * unlike.max(0.0);
        }
        if is_new_hour {
            added.hour = self.unusual_hour(at);
        }
        let networked = f64::from(self.networked);
        if is_new_network && networked >= NETWORKED_MIN {
            let new = f64::from(self.networked_new) + 1.0;
            added.network = (0.5 * 0.95 * (networked + 5.0) / new + 0.5).ln().max(0.0);
        }
        added
    }

    /// What it adds that the account is active at this hour of the day: judged once an hour.
    fn unusual_hour(&self, at: i64) -> f64 {
        let active: u32 = self.hours.iter().map(|&hours| u32::from(hours)).sum();
        if active < HOURS_MIN {
            return 0.0;
        }
        let hour = hour_of_day(at);
        let of = |hour: usize| f64::from(self.hours[hour % 24]);
        let near = of(hour) + (of(hour + 23) + of(hour + 1)) / 2.0 + 1.0;
        let usual = near / (2.0 * f64::from(active) + 24.0);
        (0.5 / 24.0 / usual + 0.5).ln().clamp(0.0, HOUR_MAX)
    }

    /// Counts the strangers of a message in the volume; whether that is too high.
    fn count_volume(&mut self, at: i64, strangers: u32) -> bool {
        // Of a new account, today is the first day.
        let last = if self.volume_at == 0 { at } else { at.min(self.volume_at.into()) };
        let days = at / DAY_SECONDS - last / DAY_SECONDS;
        let (mut record, mut peak) = (f64::from(self.record), f64::from(self.peak));
        if days > 0 {
            record *= 0.5_f64.powf(days.min(400) as f64 / RECORD_HALVED);
            // The mail of which nothing is learned leaves the account new for as long as its sender
            // likes, and so has the bound of one that is known.
            if peak > record && self.messages < YOUNG && self.class & UNLEARNED == 0 {
                record = peak;
            } else if peak > record {
                record = peak.min(record * RECORD_GROWTH + 1.0);
            }
            peak = 0.0;
        }
        let mut volume = left_of(self.volume, at - last, DAY);
        if strangers > 0 {
            volume += 1.0 + f64::from(strangers).log2();
        }
        volume = volume.min(VOLUME_MAX);
        self.volume = volume as f32;
        self.record = record as f32;
        self.peak = peak.max(volume) as f32;
        self.volume_at = second(at);
        strangers > 0 && volume > VOLUME_MIN.max(VOLUME_RECORDS * record)
    }

    /// The evidence begins with the message of this second. (The reference's begins with the one
    /// before.)
    fn begin_evidence(&mut self, at: i64) {
        self.since = second(at);
        (self.episode_strangers, self.episode_messages, self.episode_networks) = (0, 0, 0);
        self.episode_failures = 0;
        self.episode_added = [0; 5];
        self.record_before = self.record;
        self.counts_before = self.counts.map(|context| context.map(|count| (count + 0.5) as u8));
        self.networked_before =
            [self.networked, self.networked_new].map(|count| (count + 0.5) as u8);
    }

    /// Adds to what the signals of the last message came to, and of all since the evidence began.
    fn add_to_evidence(&mut self, added: Added) {
        for sums in [&mut self.last_added, &mut self.episode_added] {
            for (sum, more) in sums.iter_mut().zip(added.hundredths()) {
                *sum = sum.saturating_add(more);
            }
        }
    }

    /// What the threshold is multiplied by, because of earlier alarms.
    fn factor(&self, at: i64) -> f64 {
        if self.level == 0.0 {
            return 1.0;
        }
        let elapsed = at.saturating_sub(self.alarm_at.into()).max(0);
        1.0 + left_of(self.level, elapsed, AGAIN_FORGOTTEN)
    }

    /// Raises an alarm.
    #[cold]
    fn alarm(&mut self, at: i64, is_over: bool, factor: f64) -> Alarm {
        let mut alarm = self.evidence(at);
        if !self.is_suspected(at) {
            self.alarms = self.alarms.saturating_add(1);
        }
        if is_over {
            alarm.rule = Rule::Volume;
            self.record = self.volume;
            self.since = self.since.min(second(at - DAY_SECONDS));
        }
        self.answer = 0;
        self.alarm_at = second(at);
        self.held = 0;
        alarm.is_told = self.told_at == 0 || at - i64::from(self.told_at) > SUSPECTED_FOR;
        if alarm.is_told {
            alarm.untold = self.untold.into();
            (self.told_at, self.untold) = (second(at), 0);
        } else {
            self.untold = self.untold.saturating_add(1);
        }
        self.level = factor.min(LEVEL_MAX) as f32;
        alarm
    }

    /// Learns from a message; `network` is whether it had one, and whether that was new.
    fn learn(
        &mut self,
        at: i64,
        context: Context,
        class: Class,
        total: f64,
        network: Option<bool>,
        is_new_hour: bool,
    ) {
        let weight = ((at - i64::from(self.learned_at)) as f64 / LEARNED_EACH).min(1.0);
        self.learned_at = second(at);
        let counts = &mut self.counts[context];
        counts[class] += weight;
        if total + 1.0 >= COUNT_HALVED {
            counts.iter_mut().for_each(|count| *count /= 2.0);
        }
        if let Some(is_new) = network {
            self.networked += 1.0;
            self.networked_new += f32::from(u8::from(is_new));
            if f64::from(self.networked) >= NETWORKED_HALVED {
                self.networked /= 2.0;
                self.networked_new /= 2.0;
            }
        }
        if is_new_hour {
            let hour = &mut self.hours[hour_of_day(at)];
            *hour = hour.saturating_add(1);
            if *hour == u8::MAX {
                self.hours.iter_mut().for_each(|hours| *hours >>= 1);
            }
        }
    }
}

/// Whether a row has this fingerprint; it has afterwards. One that is met again moves to the
/// front, a new one enters behind the protected places.
#[inline]
fn meet<T: Copy + PartialEq>(row: &mut [T], fingerprint: T) -> bool {
    let place = row.iter().position(|&other| other == fingerprint);
    let (from, to) = place.map_or((PROTECTED, row.len() - 1), |place| (0, place));
    row[from..=to].rotate_right(1);
    row[from] = fingerprint;
    place.is_some()
}

/// The bucket of a recipient, and its fingerprint.
#[inline]
fn place_of(hash: u64) -> (usize, u8) {
    (hash as usize % BUCKETS, ((hash >> 40) as u8).max(1))
}

/// The fingerprint of a network.
fn network_of(hash: u64) -> u16 {
    (hash as u16).max(1)
}

/// What is left of a value after so many seconds, if it is forgotten with this time constant.
#[inline]
fn left_of(value: f32, elapsed: i64, constant: f64) -> f64 {
    // As of most values: the exponential is what takes the time.
    if value == 0.0 || elapsed == 0 {
        return value.into();
    }
    f64::from(value) * (-(elapsed as f64) / constant).exp()
}

fn hour_of_day(at: i64) -> usize {
    (at / HOUR_SECONDS).rem_euclid(24) as usize
}

/// A time as it is stored.
fn second(at: i64) -> u32 {
    at.clamp(0, u32::MAX.into()) as u32
}
