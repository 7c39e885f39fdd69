//! The habits of accounts: records of a kind of their own.
//!
//! Such a record has two slots where others have a filter. Each holds the whole habits, a number
//! and a check; an update writes the older one. So a process that is killed loses at most the
//! message that it was about. The record's state says when the account last sent, for forgetting
//! and eviction.

use std::net::IpAddr;

use crate::engine::{Change, FilterChange, Overridden, RecordKey, State};
use crate::rate::habits::{Habits, Sensitivity, Update};
use crate::rate::{Average, Timestamp};
pub use crate::store::habits_key;
use crate::store::{Judged, OwnedKey, Sending, habits_network_hash};

use super::apply::{Failure, NewFilter};
use super::events::{count_lost, journal_alarm};
use super::forget::HABITS_KEPT;
use super::hashing::{KeySlot, fold};
use super::iterate::LeftOut;
use super::locked::Locked;
use super::record::{Fill, Record};
use super::shard::Body;
use super::{Spool, SpoolError};

/// The offset of a slot's number, after the habits.
const SEQUENCE: usize = Habits::BYTES;
/// The offset of its check, which covers what is before.
const CHECK: usize = SEQUENCE + 4;
/// The size of a slot.
pub(super) const SLOT_BYTES: usize = CHECK + 4;
/// The size of both.
pub(super) const SLOTS_BYTES: usize = 2 * SLOT_BYTES;

/// A message as habits see it: its envelope.
#[derive(Clone, Copy, Debug)]
pub struct SentMessage<R> {
    /// When it was sent, in seconds since 1970.
    pub at: i64,
    /// The client's address, where it is known.
    pub client: Option<IpAddr>,
    /// The recipients, folded.
    pub recipients: R,
}

/// What somebody who knows says of the last alarm of an account.
#[derive(Clone, Copy, Debug)]
pub enum AlarmAnswer<'a> {
    /// It was the owner.
    Accepted,
    /// It was a thief: the messages since the evidence began went to these recipients, folded, and
    /// came from these clients. Both are forgotten.
    Stolen {
        /// The recipients.
        recipients: &'a [String],
        /// The clients.
        clients: &'a [IpAddr],
    },
}

/// The habits in a slot, and which it is.
struct Slot {
    habits: Habits,
    which: usize,
    sequence: u32,
}

impl Spool {
    /// Updates the habits of an account by a message. `key` is that of [`habits_key`].
    ///
    /// # Errors
    /// The database could not be used; nothing was learned.
    pub fn learn_habits<'r, R: IntoIterator<Item = &'r [u8]>>(
        &mut self,
        key: RecordKey<'_>,
        message: SentMessage<R>,
        sensitivity: Sensitivity,
    ) -> Result<Update, SpoolError> {
        let SentMessage { at, client, recipients } = message;
        let hashing = self.database.hashing.clone();
        let hash = |text: &[u8]| hashing.habit(text);
        let network = client.and_then(|client| habits_network_hash(client, hash));
        self.locked(key, false, |locked| {
            let (mut habits, before) = locked.habits();
            let recipients = recipients.into_iter().map(hash);
            let update = habits.message(at, network, recipients, sensitivity);
            locked.write(&habits, before, update.threshold)?;
            Ok(update)
        })
    }

    /// Updates the habits of an account by a message, and journals the alarm that it may raise.
    pub(super) fn judge_habits(
        &mut self,
        sending: &Sending<'_>,
        clock: impl FnOnce() -> Timestamp,
        overridden: impl FnOnce(i64) -> Option<Overridden>,
    ) -> Result<Judged, SpoolError> {
        let mut events = Vec::new();
        let judged = self.locked(sending.key, false, |locked| {
            let (mut habits, before) = locked.habits();
            let now = clock();
            let (judged, is_changed) =
                sending.judge(&mut habits, now.seconds, overridden(now.seconds));
            let told = judged.alarm.filter(|alarm| alarm.is_told && judged.overridden.is_none());
            if let Some(alarm) = told {
                let Locked { database, key_slot, key, lookup, .. } = &*locked;
                let (scores, number) = ((judged.score, judged.threshold), habits.answers().alarms);
                let place = (key, *key_slot, lookup);
                if !journal_alarm(database, place, &alarm, scores, number, now, &mut events) {
                    count_lost(locked.body);
                }
            }
            if is_changed {
                locked.write(&habits, before, judged.threshold)?;
            }
            Ok(judged)
        });
        self.keep_events(events);
        judged
    }

    /// Answers the last alarm of an account: see [`Habits::accept`] and [`Habits::stolen`]. `key` is
    /// that of [`habits_key`]. Returns whether there was one that nobody had answered.
    ///
    /// # Errors
    /// The database could not be used; nothing was changed.
    pub fn answer_habits(
        &mut self,
        key: RecordKey<'_>,
        answer: AlarmAnswer<'_>,
    ) -> Result<bool, SpoolError> {
        self.locked(key, false, |locked| {
            let Some(Slot { mut habits, which, sequence }) = locked.slot() else {
                return Ok(false);
            };
            let hash = |bytes: &[u8]| locked.database.hashing.habit(bytes);
            let before = habits.clone();
            let is_open = match answer {
                AlarmAnswer::Accepted => habits.accept(),
                AlarmAnswer::Stolen { recipients, clients } => habits.stolen(
                    recipients.iter().map(|one| hash(one.as_bytes())),
                    clients.iter().filter_map(|&client| habits_network_hash(client, hash)),
                ),
            };
            if habits != before {
                let threshold = habits.threshold(habits.at(), Sensitivity::default());
                locked.write(&habits, Some((which, sequence)), threshold)?;
            }
            Ok(is_open)
        })
    }

    /// The habits of an account; `key` is that of [`habits_key`].
    ///
    /// # Errors
    /// The database could not be used.
    pub fn habits(&mut self, key: RecordKey<'_>) -> Result<Option<Habits>, SpoolError> {
        let slot = self.database.hashing.place(key);
        self.peek(key, None, |remembered, _| {
            newest(remembered?.filter?.bits, slot).map(|slot| slot.habits)
        })
    }

    /// Calls `visit` with the key and the habits of each account, in no particular order, and
    /// returns what had to be left out.
    ///
    /// # Errors
    /// The database's directory cannot be used; nothing has been visited.
    pub fn for_each_habits(
        &mut self,
        mut visit: impl FnMut(OwnedKey, Habits),
    ) -> Result<LeftOut, SpoolError> {
        let hashing = self.database.hashing.clone();
        let read = |body: &Body| -> Vec<(OwnedKey, Habits)> {
            let all = body.records().flatten().filter(Record::is_of_habits);
            let read = all.filter_map(|record| {
                let slot = record.slot(&body.map, &hashing)?;
                let key = record.record_key(&body.map)?;
                let bits = record.remembered(&body.map, body.seed)?.filter?.bits;
                Some((OwnedKey::from(key), newest(bits, slot)?.habits))
            });
            read.collect()
        };
        let shards = self.each_shard(read, |all| {
            all.into_iter().for_each(|(key, habits)| visit(key, habits));
        })?;
        Ok(LeftOut { shards, ..LeftOut::default() })
    }
}

impl Locked<'_> {
    /// The habits, and where they are.
    fn habits(&self) -> (Habits, Option<(usize, u32)>) {
        match self.slot() {
            Some(Slot { habits, which, sequence }) => (habits, Some((which, sequence))),
            None => (Habits::default(), None),
        }
    }

    /// The slot that was written last.
    fn slot(&self) -> Option<Slot> {
        // Also where no state is sound: a slot has a check of its own.
        let filter = self.lookup.record?.filter(&self.body.map, self.body.seed)?;
        newest(filter.bits, self.key_slot)
    }

    /// Writes the habits: into the slot that was not written last.
    fn write(
        &mut self,
        habits: &Habits,
        before: Option<(usize, u32)>,
        threshold: f64,
    ) -> Result<(), Failure> {
        let at = habits.at();
        let share = habits.score(at) / threshold;
        // It is evicted last.
        let rate = if habits.is_suspected(at) { 1.0 } else { share.min(1.0) };
        let average = Average { at: Timestamp { seconds: at, micros: 0 }, rate };
        let change =
            Change { state: State::new(average, 1.0, HABITS_KEPT), filter: FilterChange::Keep };
        let Locked { file, body, key_slot, key, lookup, .. } = self;
        let map = &mut body.map;
        if let (Some(record), Some((which, sequence))) = (lookup.record, before) {
            let slot = encoded(habits, sequence.wrapping_add(1), *key_slot);
            let offset = record.filter_offset() + (1 - which) * SLOT_BYTES;
            let mut write = || {
                map.write(offset, &slot)?;
                record.write_state(map, &change, 0)
            };
            return write().ok_or_else(Failure::lost);
        }
        let mut slots = [0; SLOTS_BYTES];
        slots[..SLOT_BYTES].copy_from_slice(&encoded(habits, 1, *key_slot));
        let fill = Fill::Bits(&slots);
        // One that was forgotten by hand, or has no sound slot.
        if let Some(record) = lookup.record.filter(|one| one.filter_bytes == Some(SLOTS_BYTES)) {
            let seed = body.seed;
            let mut write = || {
                record.void_filter(map)?;
                record.write_state(map, &change, 0)?;
                record.begin_filter(map, seed, at, fill)
            };
            return write().ok_or_else(Failure::lost);
        }
        let slots = NewFilter { bytes: SLOTS_BYTES, epoch: at, fill };
        body.append(file, *key_slot, key, lookup, &change, Some(slots))
    }
}

/// The problem of a record of habits, if it has one.
pub(super) fn fault(record: &Record, body: &Body, slot: KeySlot) -> Option<&'static str> {
    let filter = record.filter(&body.map, body.seed)?;
    newest(filter.bits, slot).is_none().then_some("has no sound slot")
}

/// The sound slot with the higher number.
fn newest(slots: &[u8], of: KeySlot) -> Option<Slot> {
    let (first, second) = slots.split_first_chunk::<SLOT_BYTES>()?;
    let second = second.first_chunk::<SLOT_BYTES>()?;
    let later = sequence(second).wrapping_sub(sequence(first)).cast_signed() > 0;
    let order = if later { [(second, 1), (first, 0)] } else { [(first, 0), (second, 1)] };
    order.into_iter().find_map(|(slot, which)| {
        let (habits, _) = slot.split_first_chunk()?;
        let is_sound = slot[CHECK..] == check(slot, of);
        let habits = is_sound.then(|| Habits::from_bytes(habits))??;
        Some(Slot { habits, which, sequence: sequence(slot) })
    })
}

/// A slot with its number and its check, which is valid in the record of this key only.
fn encoded(habits: &Habits, sequence: u32, of: KeySlot) -> [u8; SLOT_BYTES] {
    let mut slot = [0; SLOT_BYTES];
    slot[..SEQUENCE].copy_from_slice(&habits.to_bytes());
    slot[SEQUENCE..CHECK].copy_from_slice(&sequence.to_le_bytes());
    let check = check(&slot, of);
    slot[CHECK..].copy_from_slice(&check);
    slot
}

fn sequence(slot: &[u8; SLOT_BYTES]) -> u32 {
    slot[SEQUENCE..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn check(slot: &[u8; SLOT_BYTES], of: KeySlot) -> [u8; 4] {
    // Four sums at once, as each step of one waits for the step before.
    let mut sums = [of.hash(); 4];
    let mut parts = slot[..CHECK].chunks_exact(8 * sums.len());
    for part in &mut parts {
        let (words, _) = part.as_chunks::<8>();
        sums.iter_mut().zip(words).for_each(|(sum, word)| *sum = fold(*sum, word));
    }
    let [first, rest @ ..] = sums;
    let sum = fold(first, parts.remainder());
    (rest.iter().fold(sum, |sum, next| fold(sum, &next.to_le_bytes())) as u32).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::path::Path;

    use kit::habits::{Message, stream};

    use super::super::kill_tests::copy;
    use super::super::tests::open;
    use super::*;
    use crate::spool::{EventKind, EventReader, LoggedEvent};
    use crate::store::{Learn, SendingStage, Store as _};
    use crate::sys::failpoint;
    use crate::sys::simulated_disk::memory_folder;

    const IDENTITY: &[u8] = b"auth:alice@example.org";

    /// Learns a message of the generated mail.
    fn learn(spool: &mut Spool, identity: &[u8], message: &Message) -> Update {
        let texts: Vec<String> = message.recipients.iter().map(|n| format!("{n}@b.test")).collect();
        let client = IpAddr::from([192, 0, message.network as u8, 7]);
        let message = SentMessage {
            at: message.at,
            client: (message.network != 0).then_some(client),
            recipients: texts.iter().map(String::as_bytes),
        };
        spool
            .learn_habits(habits_key(identity, &mut Vec::new()), message, Sensitivity::Normal)
            .unwrap()
    }

    fn read(spool: &mut Spool) -> Option<Habits> {
        spool.habits(habits_key(IDENTITY, &mut Vec::new())).unwrap()
    }

    #[test]
    fn mail_that_is_learned_record_by_record_raises_the_same_alarms() {
        let folder = memory_folder();
        let mut spool = open(folder.path());
        let (mut known, mut alarms) = (Habits::default(), 0);
        for message in stream(1) {
            let hashing = spool.database.hashing.clone();
            let network = [192, 0, message.network as u8, 0];
            let network = (message.network != 0).then(|| hashing.habit(&network));
            let texts =
                message.recipients.iter().map(|n| hashing.habit(format!("{n}@b.test").as_bytes()));
            let expected = known.message(message.at, network, texts, Sensitivity::Normal);
            assert_eq!(learn(&mut spool, IDENTITY, &message), expected);
            assert_eq!(read(&mut spool).as_ref(), Some(&known));
            alarms += u32::from(expected.alarm.is_some());
        }
        assert!(alarms > 0);
        // It is one record, which is no rate.
        assert_eq!(spool.stats().unwrap().dead, 0);
        let mut names = Vec::new();
        spool.for_each_habits(|key, habits| names.push((key.name, habits))).unwrap();
        assert_eq!(names, [(b"habits/auth:alice@example.org".to_vec(), known)]);
        spool.for_each(|entry| panic!("{entry:?}")).unwrap();
        assert_eq!(spool.verify().unwrap().problems().count(), 0);
    }

    #[test]
    fn who_is_killed_loses_at_most_one_message() {
        let mail = stream(2);
        // The first message adds a record, the others change it; the last finds one that was
        // forgotten by hand.
        for (before, forgotten) in [(0, false), (1, false), (60, false), (60, true)] {
            let folder = memory_folder();
            let mut spool = open(folder.path());
            mail[..before].iter().for_each(|one| _ = learn(&mut spool, IDENTITY, one));
            learn(&mut spool, b"auth:bob", &mail[7]);
            if forgotten {
                spool.forget(habits_key(IDENTITY, &mut Vec::new())).unwrap();
            }
            let old = read(&mut spool);
            assert_eq!(old.is_none(), before == 0 || forgotten);
            drop(spool);
            let mut deaths = 0;
            for steps in 0.. {
                let attempt = memory_folder();
                copy(folder.path(), attempt.path());
                let mut dying = open(attempt.path());
                failpoint::allow_steps(Some(steps));
                let next = || _ = learn(&mut dying, IDENTITY, &mail[before]);
                let died = catch_unwind(AssertUnwindSafe(next)).is_err();
                failpoint::allow_steps(None);
                drop(dying);
                let mut spool = open(attempt.path());
                let mut new = old.clone().unwrap_or_default();
                let found = read(&mut spool);
                let problems: Vec<_> = spool.verify().unwrap().problems().collect();
                assert!(problems.is_empty(), "step {steps}: {problems:?}");
                if found != old {
                    assert_eq!(found.as_ref().unwrap().messages(), new.messages() + 1);
                    new = found.unwrap();
                } else {
                    assert!(died, "step {steps}");
                }
                learn(&mut spool, IDENTITY, &mail[before + 1]);
                assert_eq!(read(&mut spool).unwrap().messages(), new.messages() + 1);
                let mut others = 0;
                spool.for_each_habits(|_, _| others += 1).unwrap();
                assert_eq!(others, 2);
                if !died {
                    break;
                }
                deaths += 1;
            }
            assert!(deaths >= if before == 0 { 8 } else { 2 }, "{before}: {deaths}");
        }
    }

    /// Sends a message as a policy has it learned; what its habits say.
    fn send(spool: &mut Spool, at: i64, to: &str, sensitivity: Sensitivity) -> Judged {
        let mut name = Vec::new();
        let sending = Sending {
            key: habits_key(IDENTITY, &mut name),
            network: None,
            recipients: &[spool.habits_hash(to.as_bytes())],
            sensitivity,
            stage: SendingStage::Sent,
            learn: Learn::Always,
        };
        spool.learn(&sending, || Timestamp { seconds: at, micros: 7 }).unwrap()
    }

    fn alarms(spool: &mut Spool, now: i64) -> Vec<LoggedEvent> {
        let mut reader = EventReader::new(EventKind::Crossings);
        spool.read_events(&mut reader, Timestamp { seconds: now, micros: 0 }, true).unwrap()
    }

    /// Mail to somebody known, and to strangers until the next one raises an alarm; when that is,
    /// and to whom.
    fn theft(spool: &mut Spool, from: &Path) -> (i64, String) {
        let mut at = 1_800_000_000;
        for _ in 0..60 {
            at += 20_000;
            assert_eq!(send(spool, at, "bob@b.test", Sensitivity::Normal).alarm, None);
        }
        for n in 0..100 {
            let (next, to) = (at + 60, format!("s{n}@b.test"));
            let folder = memory_folder();
            copy(from, folder.path());
            if send(&mut open(folder.path()), next, &to, Sensitivity::Normal).alarm.is_some() {
                return (next, to);
            }
            assert_eq!(send(spool, next, &to, Sensitivity::Normal).alarm, None);
            at = next;
        }
        panic!("no alarm");
    }

    #[test]
    fn an_alarm_is_journaled_once_whenever_the_process_is_killed() {
        let folder = memory_folder();
        let mut spool = open(folder.path());
        let (at, to) = theft(&mut spool, folder.path());
        let old = read(&mut spool);
        drop(spool);
        let mut deaths = 0;
        for steps in 0.. {
            let attempt = memory_folder();
            copy(folder.path(), attempt.path());
            let mut dying = open(attempt.path());
            failpoint::allow_steps(Some(steps));
            let died =
                catch_unwind(AssertUnwindSafe(|| send(&mut dying, at, &to, Sensitivity::Normal)))
                    .is_err();
            failpoint::allow_steps(None);
            drop(dying);
            let mut spool = open(attempt.path());
            // Lost is the message at most, and then the next one raises the alarm.
            if read(&mut spool) == old {
                assert!(died, "step {steps}");
                assert!(send(&mut spool, at + 60, &to, Sensitivity::Normal).alarm.is_some());
            }
            let habits = read(&mut spool).unwrap();
            assert!(habits.is_suspected(at + 60));
            let found = alarms(&mut spool, at + 60);
            assert_eq!(found.len(), 1, "step {steps}");
            assert!(found[0].is_alarm() && found[0].number == 1);
            assert_eq!(found[0].record_key(), habits_key(IDENTITY, &mut Vec::new()));
            assert!(found[0].texts.evidence.ends_with(b" new ones a day"));
            assert_eq!(spool.verify().unwrap().problems().count(), 0);
            if !died {
                break;
            }
            deaths += 1;
        }
        assert!(deaths >= 3, "{deaths}");
    }

    #[test]
    fn an_account_is_told_of_once_a_day() {
        let folder = memory_folder();
        let mut spool = open(folder.path());
        let (mut at, _) = theft(&mut spool, folder.path());
        // A few alarms a day.
        let (mut raised, mut sent) = (0, 0);
        for day in 1..=3 {
            while raised < 2 * day && sent < 3000 {
                (at, sent) = (at + 60, sent + 1);
                let judged = send(&mut spool, at, &format!("t{sent}@b.test"), Sensitivity::High);
                raised += usize::from(judged.alarm.is_some());
            }
            for _ in 0..60 {
                at += 3000;
                send(&mut spool, at, "bob@b.test", Sensitivity::High);
            }
        }
        let found = alarms(&mut spool, at);
        assert!((2..raised).contains(&found.len()), "{} of {raised}", found.len());
        assert!(found.windows(2).all(|two| two[1].at.seconds - two[0].at.seconds > 86_400));
        // The next one counts those between.
        assert!(found[1].texts.evidence.ends_with(b" since the last alert"));
    }

    /// The offset of the slots of the only record in its shard.
    fn slots(spool: &mut Spool) -> (usize, usize) {
        let slot = spool.database.hashing.place(habits_key(IDENTITY, &mut Vec::new()));
        let shard = usize::from(slot.shard);
        let body = &spool.shards[shard].as_ref().unwrap().body;
        (shard, body.records().flatten().next().unwrap().filter_offset())
    }

    #[test]
    fn a_damaged_slot_costs_a_message_and_two_the_account() {
        let folder = memory_folder();
        let mut spool = open(folder.path());
        let mail = stream(0);
        mail[..50].iter().for_each(|one| _ = learn(&mut spool, IDENTITY, one));
        let (shard, offset) = slots(&mut spool);
        // The fiftieth is in the second slot.
        for (which, messages) in [(1, Some(49)), (0, None)] {
            let at = offset + which * SLOT_BYTES + 300;
            let body = &mut spool.shards[shard].as_mut().unwrap().body;
            body.map.change(at, 1, |byte| byte[0] ^= 1).unwrap();
            assert_eq!(read(&mut spool).map(|habits| habits.messages()), messages);
            let problems = spool.verify().unwrap().problems().count();
            assert_eq!(problems, usize::from(messages.is_none()));
        }
        learn(&mut spool, IDENTITY, &mail[51]);
        assert_eq!(read(&mut spool).unwrap().messages(), 1);
        assert_eq!(spool.verify().unwrap().problems().count(), 0);
    }

    #[test]
    fn slots_are_not_those_of_another_account() {
        let folder = memory_folder();
        let mut spool = open(folder.path());
        let message = &stream(0)[0];
        learn(&mut spool, IDENTITY, message);
        let key = OwnedKey::from(habits_key(b"auth:malice", &mut Vec::new()));
        let entry = spool.get(habits_key(IDENTITY, &mut Vec::new())).unwrap().unwrap();
        let stolen = crate::store::Entry { key: key.name.clone(), ..entry.clone() };
        spool.restore(&stolen).unwrap();
        assert_eq!(spool.habits(key.key()).unwrap(), None);
        // In its own record, also of another file, they are.
        let habits = read(&mut spool).unwrap();
        spool.forget(entry.record_key()).unwrap();
        assert_eq!(read(&mut spool), None);
        spool.restore(&entry).unwrap();
        assert_eq!(read(&mut spool), Some(habits));
    }

    #[test]
    fn an_alarm_is_answered_once_and_whoever_is_killed_meanwhile_has_answered_or_not() {
        let folder = memory_folder();
        let mut spool = open(folder.path());
        let mut name = Vec::new();
        let key = habits_key(IDENTITY, &mut name);
        let accepted = AlarmAnswer::Accepted;
        assert!(!spool.answer_habits(key, accepted).unwrap());
        let alarmed =
            |message: &Message, spool: &mut Spool| learn(spool, IDENTITY, message).alarm.is_some();
        let mail = stream(1);
        let sent = mail.iter().position(|one| alarmed(one, &mut spool)).unwrap();
        let suspected = read(&mut spool).unwrap();
        drop(spool);
        let recipients: Vec<String> = mail[sent - 5..=sent]
            .iter()
            .flat_map(|one| one.recipients.iter().map(|n| format!("{n}@b.test")))
            .collect();
        let clients = [IpAddr::from([192, 0, mail[sent].network as u8, 1])];
        let stolen = AlarmAnswer::Stolen { recipients: &recipients, clients: &clients };
        for answer in [accepted, stolen] {
            for steps in 0.. {
                let attempt = memory_folder();
                copy(folder.path(), attempt.path());
                let mut dying = open(attempt.path());
                failpoint::allow_steps(Some(steps));
                let next = || _ = dying.answer_habits(key, answer);
                let died = catch_unwind(AssertUnwindSafe(next)).is_err();
                failpoint::allow_steps(None);
                drop(dying);
                let mut spool = open(attempt.path());
                let found = read(&mut spool).unwrap();
                let is_open = found == suspected;
                assert!(is_open || !found.is_suspected(found.at()), "{steps}");
                assert!(died || !is_open);
                assert_eq!(spool.answer_habits(key, answer).unwrap(), is_open);
                assert_eq!(spool.verify().unwrap().problems().count(), 0);
                if !died {
                    break;
                }
            }
        }
    }

    #[test]
    fn habits_outlive_a_rebuild_and_go_after_400_days() {
        let folder = memory_folder();
        let mut spool = open(folder.path());
        let mail = stream(0);
        mail[..20].iter().for_each(|one| _ = learn(&mut spool, IDENTITY, one));
        let (habits, last) = (read(&mut spool), mail[19].at);
        for (days, expected) in [(399, habits), (401, None)] {
            let now = Timestamp { seconds: last + days * 86_400, micros: 0 };
            spool.compact(now, |_| ()).unwrap();
            assert_eq!(read(&mut spool), expected, "{days}");
        }
    }
}
