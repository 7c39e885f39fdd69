//! What [`Preview`] decides is what the next event gets.

use std::path::Path;

use kit::quickcheck;
use quickcheck::{Arbitrary, Gen};

use crate::engine::{
    Algorithm, AlgorithmKind, BlockTime, Check, Kind, Overridden, RecordKey, Update,
};
use crate::rate::Timestamp;
use crate::store::{FOREVER, Override, Store as _, Target};

use super::{Preview, Spool};

/// One event: who, how large, and how much later than the one before.
#[derive(Clone, Copy, Debug)]
struct Step {
    identity: u8,
    windows: u8,
    count: u8,
    unique: Option<u8>,
    update: Update,
    refuses: u8,
    total: bool,
    pause: u16,
}

impl Arbitrary for Step {
    fn arbitrary(g: &mut Gen) -> Self {
        let updates = [Update::Leaky, Update::Leaky, Update::Strict, Update::ReadOnly];
        Self {
            identity: u8::arbitrary(g) % 3,
            windows: u8::arbitrary(g) % 4 + 1,
            count: u8::arbitrary(g) % 5,
            unique: Option::<u8>::arbitrary(g).map(|event| event % 6),
            update: *g.choose(&updates).unwrap_or(&Update::Strict),
            refuses: u8::arbitrary(g),
            total: bool::arbitrary(g),
            pause: u16::arbitrary(g) % 200,
        }
    }
}

/// The checks of `step`, with the texts of their records' names and unique event.
fn checks<'a>(step: &Step, names: &'a [String], unique: Option<&'a str>) -> Vec<Check<'a>> {
    let algorithms = [
        Algorithm::MovingAverage { limit: 8.0, period: 60.0 },
        Algorithm::MovingAverage { limit: 20.0, period: 600.0 },
        Algorithm::Bucket { burst: 6.0, rate: 0.05 },
        Algorithm::MovingAverage { limit: 9.0, period: 3600.0 },
    ];
    let each = names.iter().zip(algorithms).take(usize::from(step.windows));
    each.map(|(name, algorithm)| Check {
        key: RecordKey {
            name: name.as_bytes(),
            identity_start: 3,
            kind: Kind::Policy,
            algorithm: AlgorithmKind::MovingAverage,
        },
        algorithm,
        count: if step.update == Update::ReadOnly { 0.0 } else { f64::from(step.count) },
        event: unique.map(str::as_bytes),
        update: step.update,
        refuses: crate::store::conformance::refuses(step.refuses),
        total: step.total,
        overridden: None,
        blocks: BlockTime::Ignored,
    })
    .collect()
}

fn deny(spool: &mut Spool, identity: &str) {
    let one = Override {
        overridden: Overridden::Deny,
        target: Target::literal(identity.as_bytes()),
        argument: identity.to_owned(),
        until: FOREVER,
        since: 0,
        reason: String::new(),
        who: "root".to_owned(),
    };
    spool.change_overrides(|list| list.push(one)).unwrap();
}

fn run(folder: &Path, steps: &[Step]) -> bool {
    let mut spool = super::tests::open(folder);
    deny(&mut spool, "id2");
    let mut now = Timestamp { seconds: 1_700_000_000, micros: 0 };
    steps.iter().all(|step| {
        now.seconds += i64::from(step.pause);
        let names = ["1m/", "10/", "b1/", "1h/"].map(|start| format!("{start}id{}", step.identity));
        let unique = step.unique.map(|event| event.to_string());
        let checks = checks(step, &names, unique.as_deref());
        let (mut shown, mut real) = (Vec::new(), Vec::new());
        let before = spool.stats().unwrap();
        Preview::new(&mut spool).decide(&checks, || now, &mut shown).unwrap();
        let counted = spool.stats().unwrap() != before;
        spool.decide(&checks, || now, &mut real).unwrap();
        if shown != real || counted {
            eprintln!("{step:?}\n{shown:#?}\n{real:#?}");
        }
        shown == real && !counted
    })
}

quickcheck! {
    fn a_preview_is_what_the_next_event_gets(steps: Vec<Step>) -> bool {
        run(tempfile::tempdir().unwrap().path(), &steps)
    }
}

#[test]
fn a_preview_counts_its_own_events_and_no_other_sees_them() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = super::tests::open(folder.path());
    let now = Timestamp { seconds: 1_700_000_000, micros: 0 };
    let names = ["1m/id0".to_owned()];
    let step = Step {
        identity: 0,
        windows: 1,
        count: 3,
        unique: None,
        update: Update::Strict,
        refuses: 4,
        total: false,
        pause: 0,
    };
    let checks = checks(&step, &names, None);
    let mut preview = Preview::new(&mut spool);
    let mut rate = || preview.decide_one(&checks[0], || now).unwrap().rate.round();
    assert_eq!([rate(), rate(), rate()], [3.0, 6.0, 9.0]);
    assert_eq!(spool.decide_one(&checks[0], || now).unwrap().rate.round(), 3.0);
}
