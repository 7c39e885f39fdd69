//! What is lost, and clocks that are set.

use super::simulation::{KEYS, Message, Server, Simulation};
use super::truth::{Limit, share_of};

impl Simulation {
    /// What a server has in memory is written to its disk.
    pub(super) fn save(&mut self, server: usize) {
        let server = &mut self.servers[server];
        server.saved = server.memories.clone();
    }

    /// The power of a server fails: it continues with what is on its disk.
    pub(super) fn fail_power(&mut self, server: usize) {
        for key in 0..KEYS.len() {
            let share = share_of(self.limits[key].algorithm, self.servers.len() as f64);
            let Server { memories, saved, .. } = &self.servers[server];
            let [had, has] = [memories, saved].map(|one| one.apart[key].at(self.now, share));
            self.forget(key, (had - has).max(0.0));
        }
        let server = &mut self.servers[server];
        server.memories = server.saved.clone();
    }

    /// An agent is started again: its connections are closed, and what waits is asked again.
    pub(super) fn restart_agent(&mut self, server: usize) {
        let waiting = self.waiting.values().filter(|event| event.server == server);
        for event in waiting.cloned().collect::<Vec<_>>() {
            self.transmit(server, Message::Request(event));
        }
    }

    /// The shared store's replica has all events.
    pub(super) fn replicate(&mut self) {
        self.replica = self.shared.clone();
    }

    /// The shared store's replica becomes the shared store.
    pub(super) fn fail_over(&mut self) {
        for key in 0..KEYS.len() {
            let Limit { algorithm, .. } = self.limits[key];
            let [had, has] =
                [&self.shared, &self.replica].map(|one| one.accepted(key).at(self.now, algorithm));
            self.forget(key, (had - has).max(0.0));
        }
        self.shared = self.replica.clone();
        self.restart_shared();
    }

    /// The shared store is started again, with all that it had: all connections are closed.
    pub(super) fn restart_shared(&mut self) {
        (0..self.servers.len()).for_each(|server| self.restart_agent(server));
    }

    /// The clock of a server is set, by so many seconds, while no event waits.
    pub(super) fn set_clock(&mut self, server: usize, seconds: f64) {
        self.pass(self.deadline);
        let servers = self.servers.len() as f64;
        self.servers[server].ahead += (seconds * 1e6) as i64;
        for key in 0..KEYS.len() {
            let share = share_of(self.limits[key].algorithm, servers);
            let Server { memories, saved, .. } = &mut self.servers[server];
            let [lost, _] = [memories, saved]
                .map(|one| one.apart[key].forget(self.now, share, seconds.max(0.0)));
            self.forget(key, lost);
        }
    }

    /// The clock of the shared store is set, by so many seconds.
    pub(super) fn set_shared_clock(&mut self, seconds: f64) {
        self.shared.ahead += (seconds * 1e6) as i64;
        for key in 0..KEYS.len() {
            let limit = self.limits[key];
            let [lost, _] = [&mut self.shared, &mut self.replica]
                .map(|one| one.forget(key, self.now, &limit, seconds.max(0.0)));
            self.forget(key, lost);
        }
    }
}
