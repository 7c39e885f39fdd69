//! Between the agent and Redis is a proxy, which misbehaves in every way.

use std::time::{Duration, Instant};

use exirate::cluster::wire::ReplyStatus;

use crate::client::NotDecided;
use crate::process::{Machine, until};
use kit::redis::{Fault, Proxy, RedisServer};
use kit::{TIMEOUT, counts};

const DEADLINE: Duration = Duration::from_millis(100);
/// What a request may take beyond its deadline: this machine may be busy.
const MARGIN: Duration = Duration::from_secs(2);
/// So soon the agent mostly knows what is wrong.
const NOTICED: Duration = Duration::from_millis(700);

#[test]
fn no_fault_of_redis_delays_a_request_or_stays() {
    let folder = tempfile::tempdir().unwrap();
    let server = RedisServer::start(folder.path(), "redis", &[]);
    let proxy = Proxy::start(server.port);
    let milliseconds = DEADLINE.as_millis();
    let redis =
        format!("server = \"redis://127.0.0.1:{}\"\ndeadline = \"{milliseconds}ms\"", proxy.port);
    let machine = Machine::of(&redis, "");
    let (mut decided, mut undecided) = (0, 0);
    let (mut longest, mut away) = (Duration::ZERO, Duration::ZERO);
    for (fault, expected) in Fault::every(proxy.port) {
        // Each writes the first changes of a minute to its log.
        let _agent = machine.start_deciding();
        let mut client = machine.client();
        let lines = machine.log().lines().count();
        proxy.set(fault);
        let begun = Instant::now();
        let log = || machine.log().lines().skip(lines).map(str::to_owned).collect::<Vec<_>>();
        // It is noticed, and does not end by itself. On a busy machine, deadlines may pass
        // before the reason is known.
        let is_said = || log().iter().any(|line| line.contains(expected));
        let is_early = || begun.elapsed() < NOTICED;
        let mut is_busy = false;
        while is_early() || !is_said() && begun.elapsed() < TIMEOUT {
            is_busy |= !is_early();
            let asked = Instant::now();
            match client.ask("alice") {
                Err(NotDecided::Refused(ReplyStatus::Unavailable, _)) => undecided += 1,
                other => panic!("{fault:?}: {other:?}"),
            }
            longest = longest.max(asked.elapsed());
            std::thread::sleep(Duration::from_millis(5));
        }
        proxy.set(Fault::None);
        let ended = Instant::now();
        until("events are counted again", || {
            let ok = client.ask("alice").is_ok();
            *(if ok { &mut decided } else { &mut undecided }) += 1;
            ok
        });
        away = away.max(ended.elapsed());
        let said = log();
        assert!(is_said(), "{fault:?}: {said:#?}");
        // Lost, another reason or two, and back.
        assert!(said.len() >= 2 && (said.len() <= 5 || is_busy), "{fault:?}: {said:#?}");
    }
    let _agent = machine.start_deciding();
    let sum = machine.client().ask("alice").unwrap() - 1;
    let range = decided..=decided + undecided;
    assert!(range.contains(&sum), "{sum} is not in {range:?}");
    assert!(longest < DEADLINE + MARGIN, "{longest:?}");
    assert!(away < Duration::from_secs(10), "{away:?}");
    let milliseconds = |time: Duration| time.as_millis() as u64;
    counts::record(
        "ms that the agent takes to reply while Redis is faulty, at most",
        milliseconds(longest),
    );
    counts::record("ms until the agent counts again after a fault, at most", milliseconds(away));
}
