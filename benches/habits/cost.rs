//! What a message costs, and what an account takes.

use std::borrow::Cow;
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use exirate::event::session::SessionFacts;
use exirate::event::{AclStage, Event, Origin};
use exirate::policy::evaluator::{Evaluator, Observer, PolicySession, Step};
use exirate::policy::image::{Image, build};
use exirate::policy::source::compile;
use exirate::rate::Timestamp;
use exirate::rate::habits::{Habits, Sensitivity};
use exirate::spool::habits::SentMessage;
use exirate::spool::{Options, Spool};
use exirate::store::habits_key;
use kit::Random;
use kit::habits::mix;
use kit::table::{head, print, row};

/// Messages in a round.
const ROUND: usize = 20_000;
const ROUNDS: usize = 21;
/// Processes whose first message is measured.
const FIRST: usize = 2000;
/// Recipients of a message, and the most nanoseconds that it may cost.
const GOALS: [(usize, f64); 2] = [(1, 500.0), (50, 3000.0)];
/// Room for the most accounts.
const MAX_BYTES: u64 = 8 << 30;
const START: i64 = 1_790_000_000;

/// Prints the cost of an update, alone and in the database, and the size of so many accounts.
pub(crate) fn run(accounts: usize) {
    head(&format!("An update: the fastest tenth of {ROUNDS} rounds, in nanoseconds"));
    let mut rows = vec![row([
        "recipients",
        "arithmetic",
        "at most",
        "in the database",
        "a lock and a lookup there",
        "difference",
    ])];
    let folder = tempfile::tempdir().unwrap();
    let mut spool = Spool::open(folder.path(), Options::default()).unwrap();
    for (recipients, most) in GOALS {
        let mut random = Random::new(1);
        // One in ten is a stranger.
        let mut someone =
            || if random.chance(10) { random.bits() } else { random.below(100) as u64 };
        let numbers: Vec<u64> = (0..ROUND).map(|_| someone()).collect();
        let texts: Vec<String> = numbers.iter().map(|n| format!("r{n}@example.net")).collect();
        let hashes: Vec<u64> = numbers.iter().map(|&number| mix(number)).collect();
        let of = |n: usize| (0..recipients).map(move |place| (n * recipients + place) % ROUND);
        let mut bytes = Habits::default().to_bytes();
        let (mut name, mut at) = (Vec::new(), START);
        let identity = format!("auth:alice{recipients}@example.org");
        let client = "192.0.2.7".parse().ok();
        let (mut alone, mut stored, mut floor) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let first = at;
            alone.push(nanoseconds(|n| {
                at = first + 60 * n as i64;
                let mut habits = Habits::from_bytes(&bytes).unwrap_or_default();
                let to = of(n).map(|place| hashes[place]);
                black_box(habits.message(at, Some(7), to, Sensitivity::Normal));
                bytes = habits.to_bytes();
            }));
            stored.push(nanoseconds(|n| {
                at = first + 60 * n as i64;
                let recipients = of(n).map(|place| texts[place].as_bytes());
                let message = SentMessage { at, client, recipients };
                let key = habits_key(identity.as_bytes(), &mut name);
                spool.learn_habits(key, message, Sensitivity::Normal).unwrap();
            }));
            floor.push(nanoseconds(|_| {
                let key = habits_key(identity.as_bytes(), &mut name);
                let is_known = spool.update(key, None, |known, _| (known.is_some(), None)).unwrap();
                assert!(is_known);
            }));
        }
        let [alone, stored, floor] = [alone, stored, floor].map(fastest_tenth);
        let missed = if stored - floor > most { ", missed" } else { "" };
        rows.push(row([
            &recipients.to_string(),
            &format!("{alone:.0}"),
            &format!("{most}{missed}"),
            &format!("{stored:.0}"),
            &format!("{floor:.0}"),
            &format!("{:.0}", stored - floor),
        ]));
    }
    print(&rows);
    through_a_policy();
    first_of_a_process();
    fill(accounts);
}

/// Prints what habits add to the evaluation of a policy when a message is complete.
fn through_a_policy() {
    head(&format!(
        "A message through a policy, at DATA: the fastest tenth of {ROUNDS} rounds, in nanoseconds"
    ));
    let mut rows =
        vec![row(["recipients", "without habits", "with habits", "difference", "at most"])];
    let images = images();
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    for (recipients, most) in GOALS {
        let mut random = Random::new(1);
        let mut someone =
            || if random.chance(10) { random.bits() } else { random.below(100) as u64 };
        let texts: Vec<String> =
            (0..ROUND).map(|_| format!("r{}@example.net", someone())).collect();
        let mut times = [Vec::new(), Vec::new()];
        let mut stores =
            folders.each_ref().map(|one| Spool::open(one.path(), Options::default()).unwrap());
        let mut evaluators = images.each_ref().map(Evaluator::of_image);
        for round in 0..ROUNDS {
            for (which, times) in times.iter_mut().enumerate() {
                let mut session = PolicySession::default();
                times.push(nanoseconds(|n| {
                    let to = |place: usize| &*texts[(n * recipients + place) % ROUND];
                    let all = || (0..recipients).map(|place| to(place).into()).collect();
                    let step = step(&all, recipients);
                    session.new_message();
                    let at = START + 60 * (round * ROUND + n) as i64;
                    let clock = || Timestamp { seconds: at, micros: 0 };
                    let store = Ok(&mut stores[which]);
                    let evaluator = &mut evaluators[which];
                    black_box(evaluator.evaluate(
                        &mut session,
                        "out",
                        &step,
                        store,
                        clock,
                        &mut Quiet,
                    ));
                }));
            }
        }
        let [without, with] = times.map(fastest_tenth);
        let missed = if with - without > most { ", missed" } else { "" };
        rows.push(row([
            &recipients.to_string(),
            &format!("{without:.0}"),
            &format!("{with:.0}"),
            &format!("{:.0}", with - without),
            &format!("{most}{missed}"),
        ]));
    }
    print(&rows);
}

/// The same policy without habits and with them.
fn images() -> [Image; 2] {
    ["off", "observe"].map(|habits| {
        let text = format!(
            "version = 1\n[policy.out]\nhabits = \"{habits}\"\ndefault.bytes = \"900G/1h\"\n"
        );
        let none = |_: &Path| Err(String::new());
        let policies = compile(Path::new("policy.toml"), &text, &none).policies.unwrap();
        Image::from_bytes(build(&policies)).unwrap()
    })
}

/// A message that is complete.
fn step<'a>(recipients: &'a dyn Fn() -> Vec<Cow<'a, str>>, count: usize) -> Step<'a> {
    Step {
        facts: SessionFacts {
            recipients: count as u32,
            message_size: 1000,
            ..SessionFacts::default()
        },
        recipients,
        ..Step::new(
            AclStage::Data,
            Event {
                auth: Some("alice@example.org"),
                client: Origin::Client([192, 0, 2, 7].into()),
                sender: Some("alice@example.org"),
                ..Event::default()
            },
        )
    }
}

/// Prints what habits add to the first message of a process: the database is opened, and has known
/// the account for long.
fn first_of_a_process() {
    let images = images();
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mut times = [Vec::new(), Vec::new()];
    for n in 0..FIRST {
        for ((image, folder), times) in images.iter().zip(&folders).zip(&mut times) {
            let all = || vec![Cow::Borrowed("bob@example.net")];
            let (mut session, step) = (PolicySession::default(), step(&all, 1));
            let clock = || Timestamp { seconds: START + 60 * n as i64, micros: 0 };
            let begun = Instant::now();
            let mut spool = Spool::open(folder.path(), Options::default()).unwrap();
            let mut evaluator = Evaluator::of_image(image);
            let store = Ok(&mut spool);
            black_box(evaluator.evaluate(&mut session, "out", &step, store, clock, &mut Quiet));
            times.push(begun.elapsed().as_nanos() as f64);
        }
    }
    let [without, with] = times.map(fastest_tenth);
    println!(
        "\nThe first message of a process, opening the database included, the fastest tenth of {FIRST}: \
         {:.1} us without habits, {:.1} us with them ({:+.1} %, at most 3)",
        without / 1e3,
        with / 1e3,
        (with / without - 1.0) * 100.0
    );
}

/// Sees nothing.
struct Quiet;

impl Observer for Quiet {}

/// What the fastest tenth takes, which waits least for other programs.
fn fastest_tenth(mut times: Vec<f64>) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    times[times.len() / 10]
}

/// The time of one of a round.
fn nanoseconds(mut one: impl FnMut(usize)) -> f64 {
    let before = Instant::now();
    (0..ROUND).for_each(&mut one);
    before.elapsed().as_nanos() as f64 / ROUND as f64
}

/// Prints what so many accounts take in the database.
fn fill(accounts: usize) {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = Spool::open(folder.path(), Options::default()).unwrap();
    spool.set_max_bytes(MAX_BYTES).unwrap();
    let (mut name, before) = (Vec::new(), Instant::now());
    for n in 0..accounts {
        let identity = format!("auth:user{n}@example.org");
        let message = SentMessage { at: START, client: None, recipients: [&b"a@b.test"[..]] };
        let key = habits_key(identity.as_bytes(), &mut name);
        spool.learn_habits(key, message, Sensitivity::Normal).unwrap();
    }
    let created = before.elapsed();
    let before = Instant::now();
    let mut found = 0;
    spool.for_each_habits(|_, _| found += 1).unwrap();
    assert_eq!(found, accounts);
    println!(
        "\n{accounts} accounts: {:.0} bytes of disk each; created in {:.1} s, read in {:.1} s",
        spool.stats().unwrap().disk as f64 / accounts as f64,
        created.as_secs_f64(),
        before.elapsed().as_secs_f64()
    );
}
