//! Habits, on each store that keeps them.

use kit::habits::{Message, stream};

use crate::engine::BlockTime;
use crate::rate::Timestamp;
use crate::rate::habits::{Habits, Sensitivity};
use crate::store::{Judged, Learn, Memory, Sending, SendingStage, Store, habits_key};

/// Runs all tests of habits; `fresh` creates an empty store.
pub(crate) fn habits<S: Store>(mut fresh: impl FnMut() -> S) {
    judges_as_the_arithmetic_does(&mut fresh());
    learns_only_what_it_is_to(&mut fresh());
    knows_no_failures_of_accounts_that_it_does_not_know(&mut fresh());
}

#[test]
fn the_memory_store_conforms() {
    habits(Memory::new);
}

const ALICE: &[u8] = b"auth:alice@example.org";

/// What a store is told of a message, and what it returns.
fn learn<S: Store>(
    store: &mut S,
    identity: &[u8],
    message: &Message,
    stage: SendingStage,
    learn: Learn,
) -> Judged {
    let mut name = Vec::new();
    let hash = |number: &u64| store.habits_hash(format!("{number}@b.test").as_bytes());
    let recipients: Vec<u64> = message.recipients.iter().map(hash).collect();
    let network = (message.network != 0).then(|| store.habits_hash(&message.network.to_be_bytes()));
    let key = habits_key(identity, &mut name);
    let sensitivity = Sensitivity::Normal;
    let sending = Sending { key, network, recipients: &recipients, sensitivity, stage, learn };
    let now = Timestamp { seconds: message.at, micros: 7 };
    let mut read = 0;
    let judged = store.learn(&sending, || {
        read += 1;
        now
    });
    assert_eq!(read, 1);
    judged.unwrap()
}

/// Each message of an account of which every fourth fails, among those of another one.
fn judges_as_the_arithmetic_does<S: Store>(store: &mut S) {
    let (mut expected, mut alarms) = (Habits::default(), 0);
    for (n, message) in stream(1).iter().enumerate() {
        let stage = match n % 4 {
            3 if n % 8 == 3 => SendingStage::Failed,
            3 => SendingStage::Marked,
            _ => SendingStage::Sent,
        };
        let judged = learn(store, ALICE, message, stage, Learn::Always);
        learn(store, b"auth:bob", message, SendingStage::Sent, Learn::Always);
        let hash = |number: &u64| store.habits_hash(format!("{number}@b.test").as_bytes());
        let recipients = message.recipients.iter().map(hash);
        let network = message.network.to_be_bytes();
        let network = (message.network != 0).then(|| store.habits_hash(&network));
        let (at, normal) = (message.at, Sensitivity::Normal);
        let updates = match stage {
            SendingStage::Sent => vec![expected.message(at, network, recipients, normal)],
            SendingStage::Marked => vec![expected.marked_message(at, recipients, normal)],
            SendingStage::Failed => {
                recipients.map(|one| expected.failed(at, one, normal)).collect()
            }
        };
        let last = updates.last().unwrap();
        assert_eq!((judged.score, judged.threshold), (last.score, last.threshold), "{n}");
        assert_eq!(judged.alarm, updates.iter().find_map(|update| update.alarm), "{n}");
        let since = expected.alarm_at().filter(|_| expected.is_suspected(at));
        let suspected = since.map(|since| (since, since + 86_400));
        assert_eq!((judged.suspected, judged.overridden), (suspected, None), "{n}");
        alarms += u32::from(judged.alarm.is_some());
    }
    assert!(alarms > 0);
}

fn learns_only_what_it_is_to<S: Store>(store: &mut S) {
    let mail = stream(1);
    let first = mail.iter().position(|message| {
        learn(store, ALICE, message, SendingStage::Sent, Learn::Always).alarm.is_some()
    });
    let last = &mail[first.unwrap()];
    let mut next = Message { at: last.at + 60, ..last.clone() };
    next.recipients = (0..9).map(|n| 1 << 40 | n).collect();
    let unless_suspected = Learn::UnlessSuspected(BlockTime::Kept);
    for how in [Learn::Never, unless_suspected] {
        for stage in [SendingStage::Failed, SendingStage::Marked, SendingStage::Sent] {
            let judged = learn(store, ALICE, &next, stage, how);
            // What is held or deferred prolongs it, but for what an outsider may bring about.
            let is_held = how == unless_suspected && stage == SendingStage::Sent;
            let until = if is_held { next.at } else { last.at } + 86_400;
            assert_eq!((judged.suspected, judged.alarm), (Some((last.at, until)), None));
            assert_eq!(judged.score, 0.0, "nothing is learned while the account is suspected");
        }
    }
    assert!(learn(store, ALICE, &next, SendingStage::Sent, Learn::Always).score > 0.0);
    next.at += 86_399;
    let held = learn(store, ALICE, &next, SendingStage::Sent, unless_suspected);
    assert_eq!(held.suspected, Some((last.at, next.at + 86_400)));
    // The suspicion ends.
    next.at += 86_400;
    let later = learn(store, ALICE, &next, SendingStage::Sent, unless_suspected);
    assert_eq!(later.suspected, None);
}

fn knows_no_failures_of_accounts_that_it_does_not_know<S: Store>(store: &mut S) {
    let message = &stream(1)[0];
    for _ in 0..3 {
        let judged = learn(store, ALICE, message, SendingStage::Failed, Learn::Always);
        assert_eq!((judged.score, judged.alarm), (0.0, None));
    }
    let mut first = Habits::default();
    let network = Some(store.habits_hash(&message.network.to_be_bytes()));
    let hash = |number: &u64| store.habits_hash(format!("{number}@b.test").as_bytes());
    let recipients: Vec<u64> = message.recipients.iter().map(hash).collect();
    let expected = first.message(message.at, network, recipients, Sensitivity::Normal);
    let judged = learn(store, ALICE, message, SendingStage::Sent, Learn::Always);
    assert_eq!(judged.score, expected.score);
}
