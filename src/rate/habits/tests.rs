use super::*;
use kit::habits::{ACCOUNTS, mix, stream};
use quickcheck::{TestResult, quickcheck};

/// The score after each message of [`kit::habits::streams`], and `!` where there was an alarm,
/// as the reference (`habits.py`) has computed them. To make it again, in its folder:
///
/// ```sh
/// scripts/bench habits --streams | python3 -c '
/// import sys, habits
/// accounts = {}
/// for line in sys.stdin:
///     at, account, network, *to = map(int, line.split())
///     one = accounts.setdefault(account, habits.Account())
///     alarm = one.message(at, network, [habits.mix(n) for n in to])
///     print("%.3f" % one.score + ("!" if alarm else ""))' | fmt -w 100
/// ```
const REFERENCE: &str = include_str!("reference.txt");

fn send(habits: &mut Habits, at: i64, network: u64, recipients: &[u64]) -> Update {
    let network = (network != 0).then(|| mix(network));
    let hashes = recipients.iter().map(|&number| mix(number));
    habits.message(at, network, hashes, Sensitivity::Normal)
}

#[test]
fn scores_and_alarms_are_those_of_the_reference() {
    let mut expected = REFERENCE.split_ascii_whitespace();
    let mut alarms = 0;
    for account in 0..ACCOUNTS {
        // Through bytes after each message, as a store keeps it.
        let mut bytes = Habits::default().to_bytes();
        for (n, message) in stream(account).iter().enumerate() {
            let mut habits = Habits::from_bytes(&bytes).unwrap();
            let update = send(&mut habits, message.at, message.network, &message.recipients);
            bytes = habits.to_bytes();
            let text = expected.next().unwrap();
            let score: f64 = text.trim_end_matches('!').parse().unwrap();
            let got = habits.score(habits.at());
            assert!((got - score).abs() < 0.002, "{account}, {n}: {got}, not {text}");
            assert_eq!(update.alarm.is_some(), text.ends_with('!'), "{account}, {n}");
            assert!(habits.threshold(habits.at(), Sensitivity::Normal) > got);
            alarms += u32::from(update.alarm.is_some());
        }
    }
    assert_eq!(expected.next(), None);
    assert_eq!(alarms, 11);
}

#[test]
fn an_alarm_says_what_led_to_it() {
    let mut habits = Habits::default();
    let start = 1_800_000_000;
    for n in 0..100 {
        send(&mut habits, start + n * 20_000, 1, &[n as u64 % 5]);
    }
    let (stolen, mut sent) = (start + 100 * 20_000, 0);
    let alarm = loop {
        let update = send(&mut habits, stolen + sent * 30, 7, &[1000 + sent as u64]);
        sent += 1;
        assert!(update.added.recipients > 0.0 && update.strangers == 1);
        assert_eq!(update.added.network > 0.0, sent == 1);
        if let Some(alarm) = update.alarm {
            assert!(update.score >= update.threshold);
            break alarm;
        }
    };
    assert_eq!(alarm.rule, Rule::Score);
    assert_eq!(i64::from(alarm.messages), sent);
    assert_eq!(i64::from(alarm.strangers), sent);
    assert_eq!((alarm.networks, alarm.seconds), (1, (sent - 1) * 30));
    assert!(alarm.usual < 0.5, "{alarm:?}");
    let now = stolen + sent * 30;
    assert_eq!(habits.alarm_at(), Some(now - 30));
    assert!(habits.is_suspected(now) && !habits.is_suspected(now + 86_400));
    assert_eq!(habits.score(now), 0.0);
    // The next alarm needs more.
    assert!(habits.threshold(now, Sensitivity::Normal) > 31.9);
}

#[test]
fn a_clock_that_was_years_ahead_does_not_stop_the_time() {
    let (mut right, mut wrong) = (Habits::default(), Habits::default());
    let start = 1_800_000_000;
    for n in 0..30 {
        for habits in [&mut right, &mut wrong] {
            send(habits, start + n * 1000, 1, &[n as u64 % 4]);
        }
    }
    send(&mut wrong, start + 500_000_000, 1, &[1]);
    for n in 31..60 {
        for habits in [&mut right, &mut wrong] {
            send(habits, start + n * 1000, 1, &[n as u64]);
        }
    }
    assert_eq!(wrong.at(), right.at());
    let now = right.at() + 7 * 86_400;
    assert!((wrong.score(now) - right.score(now)).abs() < 1.0);
    assert!(wrong.score(now) < wrong.score(wrong.at()) / 2.0);
}

quickcheck! {
    fn any_bytes_give_finite_habits_or_none(at: usize, with: Vec<u8>, sent: Vec<u32>) -> TestResult {
        let mut habits = Habits::default();
        for n in 0..40 {
            send(&mut habits, 1_800_000_000 + n * 500, n as u64, &[n as u64 % 9]);
        }
        let mut bytes = habits.to_bytes();
        let at = at % bytes.len();
        bytes[at..].iter_mut().zip(&with).for_each(|(byte, &with)| *byte = with);
        let Some(mut habits) = Habits::from_bytes(&bytes) else { return TestResult::discard() };
        assert_eq!(habits.to_bytes(), bytes);
        // One message to somebody known is no alarm, whatever was stored.
        let mut known = habits.clone();
        let first = known.known[0][0];
        if first != 0 {
            let hash = u64::from(first) << 40;
            let now = known.at();
            let update = known.message(now, None, [hash], Sensitivity::Low);
            assert!(update.alarm.is_none(), "{update:?}");
        }
        for gap in sent {
            let now = habits.at() + i64::from(gap);
            let update = send(&mut habits, now, u64::from(gap), &[gap.into(), 1]);
            assert!(update.score.is_finite() && update.threshold.is_finite());
            assert!(Habits::from_bytes(&habits.to_bytes()).is_some());
        }
        TestResult::passed()
    }
}
