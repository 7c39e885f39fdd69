//! Habits in the database.

use std::path::Path;

use kit::habits::{Message, stream};

use super::super::database::shard_name;
use super::super::kill_tests::copy;
use super::super::tests::open;
use super::*;
use crate::engine::BlockTime;
use crate::spool::slots::SLOT_BYTES;
use crate::spool::{EventKind, EventReader, LoggedEvent};
use crate::store::{Learn, SendingStage, Store as _};
use crate::sys::failpoint;
use crate::sys::lock::{LockKind, try_lock};
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
    spool.learn_habits(habits_key(identity, &mut Vec::new()), message, Sensitivity::Normal).unwrap()
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
            let next = || _ = learn(&mut dying, IDENTITY, &mail[before]);
            let died = failpoint::dies_after(steps, next);
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

/// Sends a message as a policy that observes has it learned; what its habits say.
fn send(spool: &mut Spool, at: i64, to: &str, sensitivity: Sensitivity) -> Judged {
    send_as(spool, at, to, sensitivity, Learn::Always)
}

fn send_as(spool: &mut Spool, at: i64, to: &str, sensitivity: Sensitivity, learn: Learn) -> Judged {
    let mut name = Vec::new();
    let sending = Sending {
        key: habits_key(IDENTITY, &mut name),
        network: None,
        recipients: &[spool.habits_hash(to.as_bytes())],
        sensitivity,
        stage: SendingStage::Sent,
        learn,
    };
    spool.learn(&sending, || Timestamp { seconds: at, micros: 7 }).unwrap()
}

fn alarms(spool: &mut Spool, now: i64) -> Vec<LoggedEvent> {
    let mut reader = EventReader::new(EventKind::Crossings);
    spool.read_events(&mut reader, Timestamp { seconds: now, micros: 0 }, true).unwrap()
}

#[test]
fn the_score_of_a_later_alarm_is_logged_with_one_digit() {
    let folder = memory_folder();
    let mut spool = open(folder.path());
    let at = |n: i64| 1_800_000_000 + n * 60;
    let mut name = Vec::new();
    let key = habits_key(IDENTITY, &mut name);
    for n in 0..400 {
        if send(&mut spool, at(n), &format!("s{n}@b.test"), Sensitivity::High).alarm.is_some() {
            spool.answer_habits(key, AlarmAnswer::Accepted).unwrap();
        }
    }
    let limits: Vec<f64> =
        alarms(&mut spool, at(400)).iter().map(|one| one.windows[0].limit).collect();
    let is_short = |limit: &f64| (limit * 10.0 - (limit * 10.0).round()).abs() < 1e-9;
    assert!(limits.len() > 1 && limits.iter().all(is_short), "{limits:?}");
}

/// Mail to somebody known, and to strangers until the next one raises an alarm; when that is,
/// and its recipient.
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
        let died = failpoint::dies_after(steps, || send(&mut dying, at, &to, Sensitivity::Normal));
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
            let next = || _ = dying.answer_habits(key, answer);
            let died = failpoint::dies_after(steps, next);
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

#[test]
fn a_lock_that_is_kept_is_released_before_another_is_taken_and_at_the_end() {
    let folder = memory_folder();
    let mut spool = open(folder.path());
    let shard = |spool: &Spool, identity: &[u8]| {
        spool.database.hashing.place(habits_key(identity, &mut Vec::new())).shard
    };
    let alice = shard(&spool, IDENTITY);
    let other = (0..100).map(|n| format!("auth:user{n}").into_bytes());
    let bob = other.into_iter().find(|one| shard(&spool, one) != alice).unwrap();
    let is_free = |spool: &Spool, identity: &[u8]| {
        let path = spool.database.path_of(&shard_name(shard(spool, identity)));
        let file = std::fs::File::open(path).unwrap();
        try_lock(&file, LockKind::Exclusive).unwrap().is_some()
    };
    let mail = stream(0);
    for identity in [IDENTITY, &bob] {
        learn(&mut spool, identity, &mail[0]);
    }
    spool.keep_lock(true);
    for message in &mail[1..3] {
        learn(&mut spool, IDENTITY, message);
        assert_eq!([IDENTITY, &bob].map(|one| is_free(&spool, one)), [false, true]);
    }
    learn(&mut spool, &bob, &mail[3]);
    assert_eq!([IDENTITY, &bob].map(|one| is_free(&spool, one)), [true, false]);
    // Also before one of the same shard is taken otherwise.
    assert!(spool.habits(habits_key(&bob, &mut Vec::new())).unwrap().is_some());
    assert!(is_free(&spool, &bob));
    learn(&mut spool, IDENTITY, &mail[4]);
    assert!(!is_free(&spool, IDENTITY));
    spool.keep_lock(false);
    assert!(is_free(&spool, IDENTITY));
    learn(&mut spool, IDENTITY, &mail[5]);
    assert!(is_free(&spool, IDENTITY));
    assert_eq!(read(&mut spool).unwrap().messages(), 5);
}

#[test]
fn a_block_is_set_with_its_alarm_and_stays_until_it_is_answered() {
    const START: i64 = 1_795_000_000;
    let blocks = |time| Learn::UnlessSuspected(time);
    let to_stranger = |spool: &mut Spool, n: i64, learn| {
        send_as(spool, START + n, &format!("{n}@b.test"), Sensitivity::High, learn)
    };
    let folder = memory_folder();
    let mut spool = open(folder.path());
    let lifted = blocks(BlockTime::UntilLifted);
    let first = (0..99).find(|&n| {
        let before = memory_folder();
        copy(folder.path(), before.path());
        let has_alarm = to_stranger(&mut open(before.path()), n, lifted).alarm.is_some();
        if !has_alarm {
            to_stranger(&mut spool, n, lifted);
        }
        has_alarm
    });
    let first = first.unwrap();
    drop(spool);
    for steps in 0.. {
        let attempt = memory_folder();
        copy(folder.path(), attempt.path());
        let mut dying = open(attempt.path());
        let died = failpoint::dies_after(steps, || _ = to_stranger(&mut dying, first, lifted));
        drop(dying);
        let mut spool = open(attempt.path());
        let habits = read(&mut spool).unwrap();
        let is_suspected = habits.is_suspected(START + first);
        assert_eq!(habits.blocked(START + first).is_some(), is_suspected, "step {steps}");
        if !died {
            assert!(is_suspected);
            break;
        }
    }
    let mut spool = open(folder.path());
    let alarm = to_stranger(&mut spool, first, lifted).alarm.unwrap();
    assert_eq!(alarm.blocked, Some(BlockTime::UntilLifted));
    // It outlives the setting, the time for which accounts are remembered, and a rebuild.
    let later = START + HABITS_KEPT as i64 + 86_400;
    spool.compact(Timestamp { seconds: later, micros: 0 }, |_| ()).unwrap();
    let judged = send_as(&mut spool, later, "1@b.test", Sensitivity::High, blocks(BlockTime::Kept));
    assert!(judged.blocked.is_some() && judged.suspected.is_some());
    assert!(
        spool.answer_habits(habits_key(IDENTITY, &mut Vec::new()), AlarmAnswer::Accepted).unwrap()
    );
    assert_eq!(read(&mut spool).unwrap().blocked(later), None);
}
