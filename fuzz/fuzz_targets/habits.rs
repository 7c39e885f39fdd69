//! Any bytes as the habits of an account, and any messages, failures and answers after them: all
//! numbers stay finite and within their bounds, and what is stored is read back.
#![no_main]

use arbitrary::Arbitrary;
use exirate::rate::habits::{Alarm, Habits, Sensitivity};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input {
    /// Bytes that replace those from this place on, of an account that has sent a little.
    place: u16,
    bytes: Vec<u8>,
    steps: Vec<(Gap, Step)>,
}

/// How much later the next step is.
#[derive(Arbitrary, Debug)]
enum Gap {
    Seconds(u8),
    Hours(u16),
    /// The clock is anything.
    At(i64),
}

#[derive(Arbitrary, Debug)]
enum Step {
    Message { network: Option<u16>, recipients: Vec<u8>, strangers: u8 },
    Marked { strangers: u8 },
    Held,
    Failed(u8),
    Accepted,
    Stolen(Vec<u8>),
}

/// A hash of which the bits that count are those of a small number.
fn hash(number: u8) -> u64 {
    u64::from(number) | u64::from(number) << 40
}

fn check(habits: &Habits, alarm: Option<Alarm>, highest: f64) {
    let score = habits.score(habits.at());
    assert!((0.0..=highest).contains(&score), "{score} of {highest}");
    assert_eq!(Habits::from_bytes(&habits.to_bytes()).as_ref(), Some(habits));
    let Alarm { usual, volume, record, .. } = alarm.unwrap_or_else(|| habits.evidence(i64::MAX));
    assert!([usual, volume, record].iter().all(|number| number.is_finite() && *number >= 0.0));
}

fuzz_target!(|input: Input| {
    let mut first = Habits::default();
    for n in 0..9 {
        first.message(1_800_000_000 + n * 500, None, [hash(n as u8 % 4)], Sensitivity::Normal);
    }
    let mut bytes = first.to_bytes();
    let place = usize::from(input.place) % bytes.len();
    bytes[place..].iter_mut().zip(&input.bytes).for_each(|(to, from)| *to = *from);
    let Some(mut habits) = Habits::from_bytes(&bytes) else { return };
    let mut at = habits.at();
    for (gap, step) in input.steps {
        at = match gap {
            Gap::Seconds(seconds) => at.saturating_add(seconds.into()),
            Gap::Hours(hours) => at.saturating_add(i64::from(hours) * 3600),
            Gap::At(at) => at,
        };
        // That at which the last alarm was raised, or would have been.
        let highest = habits.threshold(i64::MIN, Sensitivity::Low).max(habits.score(i64::MIN));
        let is_marked = matches!(step, Step::Marked { .. });
        let update = match step {
            Step::Message { network, recipients, strangers } => {
                let known = recipients.into_iter().map(hash);
                let new = (0..u64::from(strangers)).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                let network = network.map(u64::from);
                Some(habits.message(at, network, known.chain(new), Sensitivity::Low))
            }
            Step::Marked { strangers } => {
                let new = (0..u64::from(strangers)).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                Some(habits.marked_message(at, new, Sensitivity::Low))
            }
            Step::Held => {
                habits.hold(at);
                None
            }
            Step::Failed(recipient) => Some(habits.failed(at, hash(recipient), Sensitivity::Low)),
            Step::Accepted => {
                habits.accept();
                None
            }
            Step::Stolen(recipients) => {
                habits.stolen(recipients.into_iter().map(hash), [7]);
                None
            }
        };
        if let Some(update) = update {
            assert!(update.score.is_finite() && update.threshold >= 20.0);
            // Marked mail is nothing to the score.
            assert!(is_marked || update.alarm.is_some() || update.score < update.threshold);
        }
        check(&habits, update.and_then(|update| update.alarm), highest + 6.0);
    }
});
