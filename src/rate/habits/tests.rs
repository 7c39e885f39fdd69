use super::*;
use kit::habits::{ACCOUNTS, mix, stream};
use kit::innocents::INNOCENTS;
use kit::quickcheck;
use kit::random::Random;
use quickcheck::TestResult;

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

/// Of an account that writes to five people, then the messages of a thief up to the alarm.
fn attacked() -> (Habits, Habits, Vec<u64>, i64) {
    let mut habits = Habits::default();
    let mut at = 1_800_000_000;
    for n in 0..100 {
        at += 20_000;
        send(&mut habits, at, 1, &[n % 5]);
    }
    let (before, mut to) = (habits.clone(), Vec::new());
    loop {
        at += 30;
        to.push(1000 + to.len() as u64);
        if send(&mut habits, at, 7, &to[to.len() - 1..]).alarm.is_some() {
            return (before, habits, to, at);
        }
    }
}

#[test]
fn an_accepted_alarm_is_over_and_raises_the_record() {
    let (before, mut habits, to, at) = attacked();
    let open = Answers { alarms: 1, ..Answers::default() };
    assert_eq!((habits.answers(), habits.answer()), (open, None));
    assert_eq!(habits.suspected_until(), Some(at + 86_400));
    assert_eq!(habits.since(), at - (to.len() as i64 - 1) * 30);
    // Another alarm of the same suspicion is counted in it, and the evidence goes on.
    let mut more = habits.clone();
    let mut next = at;
    loop {
        next += 1;
        if send(&mut more, next, 8, &[next as u64]).alarm.is_some() {
            break;
        }
    }
    assert_eq!((more.answers(), more.since()), (open, habits.since()));
    assert!(more.evidence(next).strangers > habits.evidence(at).strangers);

    assert!(habits.accept());
    assert!(!habits.is_suspected(at) && habits.suspected_until().is_none());
    // Whoever has answered is told of the next one, on the same day too.
    let mut told = habits.clone();
    let next = (60..600).find_map(|n| send(&mut told, at + n, 9, &[9000 + n as u64]).alarm);
    assert!(next.is_some_and(|alarm| alarm.is_told));
    assert_eq!((habits.score(at), habits.answer()), (0.0, Some(Answer::Accepted)));
    assert!(habits.record >= to.len() as f32 - 1.0 && before.record < 5.0);
    // It is answered once.
    let answered = habits.clone();
    assert!(!habits.accept() && !habits.stolen([], []) && habits == answered);
    assert_eq!(habits.answers(), Answers { accepted: 1, ..open });
    // Those people are known from now on.
    let update = send(&mut habits, at + 60, 7, &to[to.len() - 1..]);
    assert_eq!((update.strangers, habits.episode_messages), (0, 1));
    assert!(!Habits::default().accept());
}

#[test]
fn what_a_thief_has_made_usual_is_forgotten() {
    let (before, mut habits, to, mut at) = attacked();
    // He goes on for hours.
    let mut all = to.clone();
    for n in 0..500 {
        at += 20;
        all.push(5000 + n);
        send(&mut habits, at, 7, &[5000 + n]);
    }
    assert!(habits.record > 100.0 && habits.level > 0.0, "{habits:?}");
    assert!(habits.stolen(all.iter().map(|&n| mix(n)), [mix(7)]));
    assert_eq!(habits.answers(), Answers { alarms: 1, accepted: 0, stolen: 1 });
    assert!(!habits.is_suspected(at) && habits.alarm_at().is_some());
    assert!((habits.record - before.record).abs() < 0.1 && habits.volume == 0.0);
    assert!((habits.threshold(at, Sensitivity::Normal) - 16.0).abs() < 1e-9);
    for &n in &all {
        let (bucket, fingerprint) = place_of(mix(n));
        assert!(!habits.known[bucket].contains(&fingerprint));
    }
    // The owner is who he was; the thief who returns is noticed as he was.
    for n in 0..5 {
        at += 5000;
        assert_eq!(send(&mut habits, at, 1, &[n]).added.network, 0.0);
    }
    let again = to.iter().position(|&n| {
        at += 30;
        send(&mut habits, at, 7, &[n]).alarm.is_some()
    });
    assert!(again.is_some_and(|sent| sent < to.len() + 2), "{again:?}");
    assert_eq!(habits.answers().alarms, 2);
}

#[test]
fn an_account_shows_what_led_to_its_score_and_what_is_missing() {
    let (_, habits, to, at) = attacked();
    let added = habits.added_since();
    let sum = added.recipients + added.many + added.hour + added.network;
    assert!((sum - 16.0).abs() < 3.0, "{added:?}");
    assert!(added.network > 1.0 && habits.last_added().network == 0.0);
    let mut before = habits;
    assert!(before.accept());
    let next = before.messages_to_alarm(at, Sensitivity::Normal, 1000).unwrap();
    assert!(next as usize > to.len() && next < 100, "{next}");
    assert_eq!(before.messages_to_alarm(at, Sensitivity::Normal, next - 1), None);
    assert!(before.messages_to_alarm(at, Sensitivity::High, 1000).unwrap() < next);
    assert_eq!(before.clone(), before);
}

#[test]
fn recipients_who_do_not_exist_are_evidence_of_the_message_that_they_were_sent() {
    let (before, alarmed, to, _) = attacked();
    // The same theft, in which each second recipient fails soon.
    let (mut habits, mut at) = (before, alarmed.since());
    let noticed = to.iter().position(|&n| {
        let sent = send(&mut habits, at, 7, &[n]);
        let failed = (n % 2 == 0).then(|| habits.failed(at + 9, mix(n), Sensitivity::Normal));
        at += 30;
        if let Some(failed) = failed {
            assert!((failed.added.failures - 2.16).abs() < 0.01 && failed.strangers == 0);
            assert!((failed.score - sent.score - failed.added.failures).abs() < 1e-5);
        }
        failed.or(Some(sent)).and_then(|update| update.alarm).is_some_and(|alarm| {
            assert_eq!(u64::from(alarm.failures), n / 2 - 499);
            true
        })
    });
    assert!(noticed.is_some_and(|sent| sent + 3 < to.len()), "{noticed:?} of {}", to.len());
    assert!(habits.is_suspected(at) && habits.alarm_at() == Some(at - 21));
    assert_eq!(Habits::from_bytes(&habits.to_bytes()), Some(habits));
}

#[test]
fn failures_of_one_message_are_one_decision_and_those_of_known_people_none() {
    let (mut habits, ..) = attacked();
    habits.accept();
    let at = habits.at() + 8 * 86_400;
    let all: Vec<u64> = (5000..5200).collect();
    let score = send(&mut habits, at, 1, &all).score;
    assert!(score < 6.1);
    for &n in &all {
        assert_eq!(habits.failed(at + 60, mix(n), Sensitivity::High).alarm, None);
    }
    assert_eq!((habits.evidence(at).failures, habits.evidence(at).messages), (1, 1));
    assert!(habits.score(at) < score + 2.2);
    // She has written to one of these people often.
    let mut known = habits.clone();
    send(&mut known, at + 70, 1, &[1]);
    let before = known.clone();
    assert_eq!(known.failed(at + 80, mix(1), Sensitivity::High).added, Added::default());
    assert_eq!(known, before);
    // Years later, nothing goes on from there.
    let late = habits.failed(i64::MAX, mix(9999), Sensitivity::Normal);
    assert!(late.score.is_finite() && late.alarm.is_none());
    // Of an account that has never sent.
    let none = Habits::default().failed(at, 1, Sensitivity::High);
    assert_eq!((none.score, none.alarm), (0.0, None));
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

#[test]
fn headers_of_programs_and_lists_are_marks() {
    for (name, value, marked) in [
        ("auto-submitted", "auto-replied", true),
        ("Auto-Submitted", " no ", false),
        ("Auto-Submitted", "no (really)", false),
        ("Auto-Submitted", "auto-generated; type=x", true),
        ("Auto-Submitted", "", false),
        ("Precedence", "Bulk\n", true),
        ("precedence", "first-class", false),
        ("LIST-ID", "<a.example.org>", true),
        ("List-Unsubscribe", "<mailto:a@example.org>", false),
        ("Subject", "bulk", false),
    ] {
        assert_eq!(marks(name.as_bytes(), value.as_bytes()), marked, "{name}: {value}");
    }
}

#[test]
fn marked_mail_is_for_the_second_rule_alone() {
    let mut habits = Habits::default();
    let start = 1_800_000_000;
    for n in 0..100 {
        send(&mut habits, start + n * 20_000, 1, &[n as u64 % 5]);
    }
    let (mut unmarked, now) = (habits.clone(), start + 100 * 20_000);
    let mut sent = 0;
    let alarm = loop {
        let hashes = [mix(1000 + sent as u64)];
        let update = habits.marked_message(now + sent, hashes, Sensitivity::High);
        assert_eq!((update.score, update.strangers), (habits.score(now + sent), 1));
        assert_eq!(Habits::from_bytes(&habits.to_bytes()).as_ref(), Some(&habits));
        sent += 1;
        if let Some(alarm) = update.alarm {
            break alarm;
        }
    };
    assert_eq!((alarm.rule, sent), (Rule::Volume, 81));
    let shown = habits.evidence(habits.at());
    assert_eq!((alarm.is_put_back, shown.is_put_back), (false, true));
    assert!(habits.is_suspected(now + sent) && habits.at() == now + sent - 1);
    // Whoever sends marked mail is no better known by that.
    let next = [1000, 1001];
    let of = |habits: &mut Habits| send(habits, now + 5000, 1, &next).added;
    assert_eq!(of(&mut habits), of(&mut unmarked));
    assert_eq!(habits.messages(), unmarked.messages());
}

/// Whoever sends marked mail, and fewer other messages than make an account known, twice as much
/// each day.
#[test]
fn an_account_is_not_kept_new_by_mail_that_is_not_learned() {
    for unmarked in 0..3 {
        let (mut habits, mut recipient, mut sent) = (Habits::default(), 0_u64, 0);
        let alarm = (0..30).find_map(|day| {
            let start = 1_800_000_000 + day * 86_400;
            (0..unmarked).for_each(|n| _ = send(&mut habits, start + n, 1, &[n as u64]));
            (0..32 << day.min(8)).find_map(|n| {
                (recipient, sent) = (recipient + 1, sent + 1);
                let to = [mix(1_000_000 + recipient)];
                let update = habits.marked_message(start + 10 + n, to, Sensitivity::Normal);
                habits = Habits::from_bytes(&habits.to_bytes()).unwrap();
                update.alarm
            })
        });
        assert_eq!(alarm.map(|alarm| alarm.rule), Some(Rule::Volume));
        // On the third day, as the strangers of the days before fade.
        assert!((100..=200).contains(&sent), "{unmarked}: {sent}");
    }
    // What is far below that goes on.
    let mut habits = Habits::default();
    for day in 0..100 {
        for n in 0..20 {
            let to = [mix(1_000_000 + day as u64 * 20 + n as u64)];
            let at = 1_800_000_000 + day * 86_400 + n;
            assert!(habits.marked_message(at, to, Sensitivity::Normal).alarm.is_none());
        }
    }
}

#[test]
fn innocents_are_named_as_the_documents_say() {
    // Of the six accounts, after months of their owner's mail.
    for (start, expected) in [
        ("Christmas cards", 0..=0),
        ("the same as one message", 0..=0),
        ("an announcement", 0..=0),
        ("a mail merge to 20 ", 2..=6),
        ("a mail merge to 150", 6..=6),
        ("a vacation reply", 0..=1),
        ("a newsletter: ", 6..=6),
        ("a newsletter in", 6..=6),
        ("a ticket system", 0..=0),
        ("a new employee", 0..=0),
    ] {
        let innocent = INNOCENTS.iter().find(|one| one.name.starts_with(start)).unwrap();
        let named = (0..ACCOUNTS).filter(|&account| {
            let own: Vec<_> =
                stream(account).into_iter().take_while(|one| one.network < 900).collect();
            let mut habits = Habits::default();
            if !innocent.is_own_account {
                own.iter()
                    .for_each(|one| _ = send(&mut habits, one.at, one.network, &one.recipients));
            }
            let known: Vec<u64> = own.iter().flat_map(|one| one.recipients.clone()).collect();
            let last = &own[own.len() - 1];
            innocent
                .messages(last.at + 60, last.network, &known, account as u64)
                .iter()
                .any(|one| send(&mut habits, one.at, one.network, &one.recipients).alarm.is_some())
        });
        let named = named.count();
        assert!(expected.contains(&named), "{}: {named}", innocent.name);
    }
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
            let failed = habits.failed(now, mix(gap.into()), Sensitivity::High);
            assert!(failed.score.is_finite() && failed.threshold.is_finite());
            let update = send(&mut habits, now, u64::from(gap), &[gap.into(), 1]);
            assert!(update.score.is_finite() && update.threshold.is_finite());
            assert!(Habits::from_bytes(&habits.to_bytes()).is_some());
        }
        TestResult::passed()
    }
}

#[test]
fn marked_mail_does_not_stop_the_time_either() {
    let mut habits = Habits::default();
    let start = 1_800_000_000;
    let mut send = |at: i64| {
        let strangers = (0..1000).map(|n| mix(at as u64 + n));
        let alarm = habits.marked_message(at, strangers, Sensitivity::Normal).alarm.is_some();
        let suspected = habits.is_suspected(at);
        habits = Habits::from_bytes(&habits.to_bytes()).unwrap();
        (alarm, suspected)
    };
    let ahead = (0..8).map(|n| send(start + 20 * 86_400 + n * 60)).filter(|(alarm, _)| *alarm);
    assert_eq!(ahead.count(), 1);
    assert_eq!(send(start), (false, true));
    assert_eq!(send(start + 86_400), (false, false));
}

/// An account with an alarm, after messages to strangers.
fn alarmed(at: i64) -> (Habits, Alarm) {
    let mut habits = Habits::default();
    for n in 0..60 {
        send(&mut habits, at - 2_000_000 + n * 20_000, 1, &[n as u64 % 3]);
    }
    let alarm = (0..50).find_map(|n| send(&mut habits, at + n, 1, &[1000 + n as u64]).alarm);
    (habits, alarm.unwrap())
}

#[test]
fn what_was_accepted_is_no_evidence_when_it_fails() {
    let at = 1_800_000_000;
    let (mut habits, _) = alarmed(at);
    for n in 100..160 {
        send(&mut habits, at + n, 1, &[2000 + n as u64]);
    }
    assert!(habits.accept());
    for n in 100..160 {
        let update = habits.failed(at + 1000, mix(2000 + n), Sensitivity::Normal);
        assert_eq!((update.alarm, update.added), (None, Added::default()));
    }
}

#[test]
fn an_alarm_that_an_override_allows_is_the_owners_and_told_to_nobody() {
    let at = 1_800_000_000;
    let (mut habits, alarm) = alarmed(at);
    assert!(alarm.is_told);
    habits.allow(&alarm);
    assert!(!habits.is_suspected(at + 60));
    assert_eq!(habits.answers(), Answers { alarms: 1, accepted: 1, stolen: 0 });
    // The next one is told.
    let next = (60..200).find_map(|n| send(&mut habits, at + n, 1, &[5000 + n as u64]).alarm);
    assert!(next.is_some_and(|alarm| alarm.is_told && alarm.untold == 0));
}

/// How many of 20 accounts a mailing raises an alarm for again, when each has written to as many others
/// since it was accepted as were said to be possible.
fn named_again(count: u64) -> usize {
    let is_named = |account: &u64| {
        let mut random = Random::new(account * 1000 + count);
        let (mut habits, mut at) = (Habits::default(), 1_800_000_000);
        let mut mail = |habits: &mut Habits, to: u64| {
            at += random.within(3600, 25_000) as i64;
            send(habits, at, 1, &[to]).alarm.is_some().then(|| habits.accept());
            at
        };
        let people = account * 100_000;
        let mailing = |habits: &mut Habits, at: i64| {
            let mut send =
                |n| send(habits, at + 5 * n as i64, 1, &[people + 1000 + n]).alarm.is_some();
            (0..count).filter(|&n| send(n)).count() > 0
        };
        for n in 0..300 {
            mail(&mut habits, people + n % 20);
        }
        let now = mail(&mut habits, people);
        assert!(mailing(&mut habits, now), "{account}");
        let RecipientsKept { new, others, .. } = habits.remembered();
        assert!(u64::from(new).abs_diff(count) < 12 && habits.accept(), "{account}: {new}");
        // Some three months of other mail.
        let is_new = |n| n * u64::from(others) / 600 != (n + 1) * u64::from(others) / 600;
        for n in 0..600 {
            mail(&mut habits, people + if is_new(n) { 5000 + n } else { n % 20 });
        }
        let now = mail(&mut habits, people);
        mailing(&mut habits, now)
    };
    (0..20).filter(is_named).count()
}

#[test]
fn what_was_accepted_is_remembered_for_as_long_as_is_said() {
    let named = [20, 50, 65, 100, 129, 200].map(named_again);
    assert!(named[..5] == [0; 5] && named[5] > 10, "{named:?}");
}
