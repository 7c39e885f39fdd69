//! Two servers share a limit by the calendar, through their agents and a Redis Cluster, and are
//! cut off from it.

use exirate::cluster::ClusterStore;
use exirate::engine::{Algorithm, Check, Decision, Update};
use exirate::rate::{CalendarWindow, Timestamp};
use exirate::spool::Options;
use exirate::store::Store as _;
use exirate::sys::clock;

use crate::process::{Machine, Process};
use crate::stores::Store;

struct Server {
    store: ClusterStore,
    agent: Option<Process>,
    /// By how many windows its clock is ahead.
    ahead: i64,
    _machine: Machine,
}

/// A window of decades.
const WINDOW: CalendarWindow = CalendarWindow { start: 1_500_000_000, end: 2_700_000_000 };

impl Server {
    fn start(store: &Store, ahead: i64) -> Self {
        let machine = Machine::of(&store.settings, "");
        machine.share("deadline 5000ms\n");
        let agent = Some(machine.start_deciding());
        let store = ClusterStore::open(machine.folder.path(), Options::default()).unwrap();
        Self { store, agent, ahead, _machine: machine }
    }

    /// Messages, of at most 10 in a window; a read-only check counts none.
    fn decide(&mut self, count: f64) -> Decision {
        let ahead = self.ahead * (WINDOW.end - WINDOW.start);
        let window = CalendarWindow { start: WINDOW.start + ahead, end: WINDOW.end + ahead };
        let update = if count > 0.0 { Update::Leaky } else { Update::ReadOnly };
        let algorithm = Algorithm::Calendar { limit: 10.0, window };
        let check = Check { count, update, ..Check::new("alice", algorithm) };
        let (seconds, micros) = clock::now();
        let now = || Timestamp { seconds: seconds + ahead, micros };
        self.store.decide_one(&check, now).unwrap()
    }
}

#[test]
fn two_servers_count_in_one_window_and_share_what_is_left_of_it() {
    let store = Store::cluster();
    // The clock of one is decades behind.
    let mut servers = [0, -1].map(|ahead| Server::start(&store, ahead));
    for n in 0..4 {
        let decision = servers[n % 2].decide(1.0);
        assert_eq!((decision.rate, decision.over), ((n + 1) as f64, false));
        assert_eq!((decision.start, decision.restarts), (WINDOW.start, WINDOW.end));
    }
    servers.iter_mut().for_each(|server| {
        assert_eq!(server.decide(0.0).rate, 4.0);
        server.agent = None;
    });
    // They know of 3 and of 4, and each admits a half of the rest.
    let admitted = servers.each_mut().map(|server| {
        let decisions: Vec<_> = (0..8).map(|_| server.decide(1.0)).collect();
        assert!(decisions.iter().all(|one| one.start == WINDOW.start));
        decisions.iter().filter(|one| !one.over).count()
    });
    assert_eq!(admitted, [3, 3]);
}
