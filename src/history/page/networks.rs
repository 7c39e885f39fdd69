//! From which networks the mail of each identity came.

use std::collections::HashMap;
use std::net::IpAddr;

use super::who::{Id, Who};
use super::{Network, NetworksOf};
use crate::history::explain::crossing::network_of;
use crate::history::simulate::{Attempt, AttemptPart, InLog};
use crate::policy::network::Cidr;

/// So many pairs of an identity and a network are remembered, in 40 MB.
const PAIRS_MAX: usize = 400_000;
/// So many networks of an identity are in the page, those with the most messages.
const EACH_MAX: usize = 6;

/// Counts the messages of each identity by the networks of their clients.
pub struct Networks {
    who: Who,
    pairs: HashMap<(Id, Cidr), SeenNetwork>,
    most: usize,
    /// Messages that are in no pair, as there are too many.
    omitted: u64,
}

/// The messages of an identity from a network.
#[derive(Clone, Copy)]
struct SeenNetwork {
    messages: u32,
    first: i64,
    last: i64,
    /// The client, if it is the only one.
    only: Option<IpAddr>,
}

impl Networks {
    /// None yet, of the identities that `who` finds.
    #[must_use]
    pub fn new(who: Who) -> Self {
        Self { who, pairs: HashMap::new(), most: PAIRS_MAX, omitted: 0 }
    }

    /// Considers an attempt: messages that were received count.
    pub fn add(&mut self, attempt: &Attempt) {
        let is_message =
            matches!(attempt.part, AttemptPart::Data { .. } | AttemptPart::NotSmtp { .. });
        if !is_message || attempt.in_log != InLog::Accepted {
            return;
        }
        let (Some(id), Some(client)) = (self.who.of(attempt), attempt.event.client.address())
        else {
            return;
        };
        let (at, client) = (attempt.at.seconds, client.to_canonical());
        let key = (id, network_of(client));
        let has_room = self.pairs.len() < self.most;
        match self.pairs.get_mut(&key) {
            Some(seen) => {
                seen.messages = seen.messages.saturating_add(1);
                (seen.first, seen.last) = (seen.first.min(at), seen.last.max(at));
                seen.only = seen.only.filter(|only| *only == client);
            }
            None if has_room => {
                let seen = SeenNetwork { messages: 1, first: at, last: at, only: Some(client) };
                self.pairs.insert(key, seen);
            }
            None => self.omitted += 1,
        }
    }

    /// How many messages are not counted, as there are too many identities and networks.
    pub fn omitted(&self) -> u64 {
        self.omitted
    }

    /// The networks of the identities with these numbers and names.
    pub fn of<'n>(self, wanted: impl Iterator<Item = (usize, &'n str)>) -> Vec<NetworksOf> {
        let numbers: HashMap<Id, usize> =
            wanted.map(|(number, name)| (self.who.named(name), number)).collect();
        let mut all: HashMap<usize, Vec<(Cidr, SeenNetwork)>> = HashMap::new();
        for ((id, network), seen) in self.pairs {
            if let Some(number) = numbers.get(&id) {
                all.entry(*number).or_default().push((network, seen));
            }
        }
        let mut all: Vec<NetworksOf> = all.into_iter().map(of_one).collect();
        all.sort_unstable_by_key(|one| one.id);
        all
    }
}

/// The busiest networks of an identity.
fn of_one((id, mut networks): (usize, Vec<(Cidr, SeenNetwork)>)) -> NetworksOf {
    networks.sort_unstable_by_key(|(network, seen)| (std::cmp::Reverse(seen.messages), *network));
    let count = networks.len();
    networks.truncate(EACH_MAX);
    let busiest = networks.into_iter().map(|(network, seen)| Network {
        name: match seen.only {
            Some(client) => client.to_string(),
            None => network.to_string(),
        },
        messages: seen.messages,
        first: seen.first,
        last: seen.last,
    });
    NetworksOf { id, count, busiest: busiest.collect() }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::event::{Event, Origin};
    use crate::history::measure::{By, MeasuredBy};
    use crate::rate::Timestamp;

    #[test]
    fn messages_are_counted_by_network_and_no_more_than_there_is_room_for() {
        let mut networks = Networks {
            most: 3,
            ..Networks::new(Who::new(MeasuredBy::new(By::Auth, None).unwrap()))
        };
        for (second, login, client, in_log) in [
            (5, "alice", "192.0.2.7", InLog::Accepted),
            (6, "alice", "192.0.2.7", InLog::Rejected),
            (1, "bob", "192.0.2.7", InLog::Accepted),
            (2, "bob", "192.0.2.9", InLog::Accepted),
            (3, "bob", "2001:db8::1", InLog::Accepted),
            (4, "alice", "198.51.100.1", InLog::Accepted),
        ] {
            let event = Event {
                auth: Some(login.into()),
                client: Origin::Client(client.parse().unwrap()),
                ..Event::default()
            };
            networks.add(&Attempt {
                at: Timestamp { seconds: second, micros: 0 },
                session: 0,
                event: Rc::new(event),
                part: AttemptPart::Data { size: None },
                in_log,
            });
        }
        assert_eq!(networks.omitted(), 1);
        let of = networks.of([(0, "alice"), (1, "bob"), (2, "carol")].into_iter());
        let shown: Vec<String> = of
            .iter()
            .flat_map(|of| of.busiest.iter().map(move |one| (of.id, of.count, one)))
            .map(|(id, count, one)| {
                format!("{id}/{count} {} {} {} {}", one.name, one.messages, one.first, one.last)
            })
            .collect();
        let expected = ["0/1 192.0.2.7 1 5 5", "1/2 192.0.2.0/24 2 1 2", "1/2 2001:db8::1 1 3 3"];
        assert_eq!(shown, expected);
    }
}
