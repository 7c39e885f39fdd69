//! The tests that every store passes.

use crate::rate::bloom::{self, Event};
use crate::rate::{Average, Timestamp};

use super::{Change, FilterChange, Remembered, Store};

/// Runs all of them; `fresh` gives an empty store each time.
pub(crate) fn all<S: Store>(mut fresh: impl FnMut() -> S) {
    remembers_what_it_was_told(&mut fresh());
    changes_nothing_unless_asked(&mut fresh());
    keeps_keys_apart(&mut fresh());
    keeps_filters_through_every_change(&mut fresh());
    hashes_events(&mut fresh());
    runs_the_decision_once_even_if_it_panics(&mut fresh());
}

/// A change that is told from others by `n`.
fn change(n: u32, filter: FilterChange) -> Change {
    Change {
        average: Average {
            at: Timestamp { seconds: 1_700_000_000 + i64::from(n), micros: n % 1_000_000 },
            rate: f64::from(n) / 3.0,
        },
        limit: f64::from(n) + 0.5,
        over_since: n,
        filter,
    }
}

/// Checks all but the filter.
fn assert_is(remembered: Option<Remembered<'_>>, n: u32) {
    let expected = change(n, FilterChange::Keep);
    let found = remembered.unwrap();
    assert_eq!(
        (found.average, found.limit.to_bits(), found.over_since),
        (expected.average, expected.limit.to_bits(), expected.over_since)
    );
}

fn write<S: Store>(store: &mut S, key: &[u8], change: Change) {
    store.update(key, None, |_, _| ((), Some(change))).unwrap();
}

fn read<S: Store, T>(
    store: &mut S,
    key: &[u8],
    look: impl FnOnce(Option<Remembered<'_>>) -> T,
) -> T {
    store.update(key, None, |remembered, _| (look(remembered), None)).unwrap()
}

fn remembers_what_it_was_told<S: Store>(store: &mut S) {
    read(store, b"key", |r| assert_eq!(r, None));
    for n in [1, 2, 3, 500, 4] {
        write(store, b"key", change(n, FilterChange::Keep));
        read(store, b"key", |r| {
            assert_is(r, n);
            assert_eq!(r.unwrap().filter, None);
        });
    }
    let odd = Change {
        average: Average {
            at: Timestamp { seconds: -5, micros: 999_999 },
            rate: f64::MIN_POSITIVE,
        },
        limit: f64::INFINITY,
        over_since: u32::MAX,
        filter: FilterChange::Keep,
    };
    write(store, b"key", odd);
    read(store, b"key", |r| {
        let r = r.unwrap();
        assert_eq!((r.average, r.limit, r.over_since), (odd.average, odd.limit, odd.over_since));
    });
}

fn changes_nothing_unless_asked<S: Store>(store: &mut S) {
    write(store, b"key", change(7, FilterChange::Keep));
    let answer = store.update(b"key", Some(b"event"), |r, event| {
        assert_is(r, 7);
        (event.is_some(), None)
    });
    assert!(answer.unwrap());
    read(store, b"key", |r| assert_is(r, 7));
    assert!(store.update(b"other", None, |r, event| ((r, event) == (None, None), None)).unwrap());
    read(store, b"other", |r| assert_eq!(r, None));
}

fn keeps_keys_apart<S: Store>(store: &mut S) {
    let key = |n: u32| match n % 4 {
        0 => n.to_le_bytes().to_vec(),
        1 => format!("1h/per_mail/{n}").into_bytes(),
        2 => vec![b'x'; n as usize],
        _ => [&[0, b'/', 0xFF][..], &n.to_be_bytes()].concat(),
    };
    write(store, b"", change(9, FilterChange::Keep));
    for n in 0..3000 {
        write(store, &key(n), change(n, FilterChange::Keep));
    }
    for n in 0..3000 {
        read(store, &key(n), |r| assert_is(r, n));
    }
    read(store, b"", |r| assert_is(r, 9));
}

fn keeps_filters_through_every_change<S: Store>(store: &mut S) {
    let events: Vec<_> = (0..20u128).map(|n| Event(n * 0x1234_5678_9ABC_DEF1_0246_8ACE)).collect();
    let mut n = 0;
    for bytes in [40, 40, 41, 1000, 40, 200_000, bloom::MAX_BYTES] {
        let epoch = 1_700_000_000 + i64::from(n);
        let key = b"1h/per_rcpt/unique/key";
        let mut model = vec![0; bytes];
        for (i, &event) in events.iter().enumerate() {
            n += 1;
            let filter = match i {
                0 => FilterChange::Renew { bytes, epoch, event },
                _ => FilterChange::Insert(event),
            };
            write(store, key, change(n, filter));
            n += 1;
            write(store, key, change(n, FilterChange::Keep));
            bloom::insert(&mut model, event);
            read(store, key, |r| {
                assert_is(r, n);
                let filter = r.unwrap().filter.unwrap();
                assert_eq!(filter.epoch, epoch);
                assert_eq!(filter.bits, model);
            });
        }
    }
    // There is no filter to insert into.
    write(store, b"plain", change(1, FilterChange::Insert(Event(1))));
    write(store, b"plain", change(2, FilterChange::Insert(Event(1))));
    read(store, b"plain", |r| {
        assert_is(r, 2);
        assert_eq!(r.unwrap().filter, None);
    });
    // A record without one gets one.
    write(store, b"plain", change(3, FilterChange::Renew { bytes: 40, epoch: 0, event: Event(5) }));
    read(store, b"plain", |r| {
        assert_is(r, 3);
        assert!(bloom::contains(r.unwrap().filter.unwrap().bits, Event(5)));
    });
}

fn hashes_events<S: Store>(store: &mut S) {
    let mut hash = |text: &[u8]| store.update(b"key", Some(text), |_, e| (e, None)).unwrap();
    let one = hash(b"one");
    assert!(one.is_some());
    assert_eq!(one, hash(b"one"));
    assert_ne!(one, hash(b"two"));
    assert!(hash(b"").is_some());
}

fn runs_the_decision_once_even_if_it_panics<S: Store>(store: &mut S) {
    write(store, b"key", change(1, FilterChange::Keep));
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = store.update(b"key", None, |_, _| -> ((), Option<Change>) { panic!("on purpose") });
    }));
    assert!(result.is_err());
    let mut runs = 0;
    store
        .update(b"key", None, |r, _| {
            runs += 1;
            assert_is(r, 1);
            ((), Some(change(2, FilterChange::Keep)))
        })
        .unwrap();
    assert_eq!(runs, 1);
    read(store, b"key", |r| assert_is(r, 2));
}

#[test]
fn memory_conforms() {
    all(super::Memory::new);
}
