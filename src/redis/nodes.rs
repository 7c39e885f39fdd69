//! The nodes of a Redis Cluster. Each has a connection of its own and fails by itself: while
//! one is away, what is asked of it fails at once, and the others decide for their keys.
//!
//! Which node has which keys is read by CLUSTER SLOTS at first, and again after MOVED and
//! while a node is away, as a replica may have replaced it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::aio::ConnectionLike as _;
use redis::{Arg, Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value, cmd};

use super::connect::{first_ok, to_server};
use super::node::{Address, Node};
use super::settings::{Settings, Transport};

/// How often a request is sent, with those after MOVED, ASK or TRYAGAIN.
const SENT_MAX: usize = 6;
/// The pause while slots are being moved.
const TRY_AGAIN: Duration = Duration::from_millis(5);
/// The slots are read no more often.
const READ_PAUSE: Duration = Duration::from_millis(200);
/// So many nodes are asked for the slots at the same time.
const ASKED: usize = 3;
const SLOTS: u16 = 16_384;

/// The nodes, which many requests share.
#[derive(Clone)]
pub(super) struct Nodes(Arc<Inner>);

struct Inner {
    settings: Settings,
    map: Mutex<Map>,
    is_reading: AtomicBool,
}

/// Who has which slots.
#[derive(Default)]
struct Map {
    /// By the last slot of a range: its first one, and its primary.
    ranges: BTreeMap<u16, (u16, Address)>,
    /// Slots that have another primary, by MOVED.
    moved: BTreeMap<u16, Address>,
    /// All nodes, replicas as well.
    nodes: BTreeMap<Address, Arc<Node>>,
    read: Option<Instant>,
}

impl Map {
    /// The node with this address.
    fn node(&mut self, address: &Address) -> Arc<Node> {
        let new = || Arc::new(Node::new(address.clone()));
        Arc::clone(self.nodes.entry(address.clone()).or_insert_with(new))
    }
}

impl Nodes {
    /// Finds the nodes.
    pub(super) async fn open(settings: &Settings) -> RedisResult<Self> {
        let settings = settings.clone();
        let inner = Inner { settings, map: Mutex::default(), is_reading: AtomicBool::new(false) };
        let nodes = Self(Arc::new(inner));
        nodes.read_from_seeds().await?;
        Ok(nodes)
    }

    fn map(&self) -> MutexGuard<'_, Map> {
        self.0.map.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends one command to the node that has its key; one without a key to any node.
    pub(super) async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        let Some(slot) = key(command).map(slot) else {
            let mut all = self.primaries();
            all.sort_by_key(|node| node.is_away());
            let any = all.first().ok_or_else(|| no_node("no node has any slot"))?;
            return any.ask(&self.0.settings, command, false).await;
        };
        let mut redirected_to: Option<Arc<Node>> = None;
        let mut last = None;
        for _ in 0..SENT_MAX {
            let (node, asking) = match redirected_to.take() {
                Some(node) => (node, true),
                None => (self.primary(slot)?, false),
            };
            let error = match node.ask(&self.0.settings, command, asking).await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            match error.kind() {
                ErrorKind::Server(ServerErrorKind::Moved) => {
                    if let Some(address) = redirected(&error, &node) {
                        let mut map = self.map();
                        map.node(&address);
                        map.moved.insert(slot, address);
                    }
                    self.read_soon();
                }
                ErrorKind::Server(ServerErrorKind::Ask) => {
                    redirected_to =
                        redirected(&error, &node).map(|address| self.map().node(&address));
                }
                ErrorKind::Server(ServerErrorKind::TryAgain) => {
                    tokio::time::sleep(TRY_AGAIN).await;
                }
                _ => {
                    if node.is_away() {
                        self.read_soon();
                    }
                    return Err(error);
                }
            }
            last = Some(error);
        }
        Err(last.unwrap_or_else(|| no_node("no reply")))
    }

    /// Sends one command to this node.
    pub(super) async fn send_to(&self, node: &Arc<Node>, command: &Cmd) -> RedisResult<Value> {
        node.ask(&self.0.settings, command, false).await
    }

    /// Sends several commands at once to this node; a reply may be an error.
    pub(super) async fn send_all_to(
        &self,
        node: &Arc<Node>,
        commands: Vec<Cmd>,
    ) -> RedisResult<Vec<Value>> {
        node.ask_all(&self.0.settings, commands).await
    }

    /// The nodes that have slots.
    pub(super) fn primaries(&self) -> Vec<Arc<Node>> {
        let map = self.map();
        let named = || map.ranges.values().map(|(_, one)| one).chain(map.moved.values());
        let nodes = map.nodes.iter().filter(|(address, _)| named().any(|one| one == *address));
        nodes.map(|(_, node)| Arc::clone(node)).collect()
    }

    /// All nodes, replicas as well.
    pub(super) fn all(&self) -> Vec<Arc<Node>> {
        self.map().nodes.values().cloned().collect()
    }

    /// Whether the node that has this key does not reply.
    pub(super) fn is_away(&self, key: &[u8]) -> bool {
        self.primary(slot(key)).is_ok_and(|node| node.is_away())
    }

    /// The node that has this slot.
    fn primary(&self, slot: u16) -> RedisResult<Arc<Node>> {
        let found = {
            let mut map = self.map();
            let range = map.ranges.range(slot..).next().map(|(_, range)| range);
            let in_range = range.filter(|(first, _)| *first <= slot).map(|(_, address)| address);
            let address = map.moved.get(&slot).or(in_range).cloned();
            address.map(|address| map.node(&address))
        };
        found.ok_or_else(|| {
            self.read_soon();
            no_node(&format!("no node has the slot {slot}"))
        })
    }

    /// Reads who has which slots, at the same time as other requests are sent; not if that was
    /// done a moment ago.
    fn read_soon(&self) {
        let was_read = self.map().read.is_some_and(|read| read.elapsed() < READ_PAUSE);
        if was_read || self.0.is_reading.swap(true, Ordering::AcqRel) {
            return;
        }
        let nodes = self.clone();
        tokio::spawn(async move {
            nodes.read().await;
            nodes.0.is_reading.store(false, Ordering::Release);
        });
    }

    /// Reads the slots from nodes that reply, else from those of the configuration.
    async fn read(&self) {
        self.map().read = Some(Instant::now());
        let settings = &self.0.settings;
        let asked = self.primaries().into_iter().filter(|node| !node.is_away()).take(ASKED);
        let asked = asked.map(|node| {
            Box::pin(async move {
                let reply = node.look(settings, &slots()).await?;
                Ok((node.address.0.clone(), reply))
            })
        });
        let read =
            first_ok(asked.collect()).await.and_then(|(host, reply)| self.set(&host, &reply));
        if read.is_err() {
            // Else it is tried again when a request needs it.
            let _ = self.read_from_seeds().await;
        }
    }

    async fn read_from_seeds(&self) -> RedisResult<()> {
        let settings = &self.0.settings;
        let asked = settings.servers.all().iter().map(|server| {
            Box::pin(async move {
                let mut connection = to_server(server, settings).await?;
                let reply = connection.req_packed_command(&slots()).await?.extract_error()?;
                let host = match &server.transport {
                    Transport::Tcp { host, .. } => host.clone(),
                    Transport::Unix(_) => "127.0.0.1".to_owned(),
                };
                Ok((host, reply))
            })
        });
        let (host, reply) = first_ok(asked.collect()).await?;
        self.set(&host, &reply)
    }

    /// Takes over who has which slots, as the node on this host says.
    fn set(&self, host: &str, reply: &Value) -> RedisResult<()> {
        let unreadable = || RedisError::from((ErrorKind::Parse, "CLUSTER SLOTS"));
        let ranges = ranges(reply, host).ok_or_else(unreadable)?;
        let mut map = self.map();
        let mut nodes = BTreeMap::new();
        for address in ranges.iter().flat_map(|range| &range.nodes) {
            nodes.insert(address.clone(), map.node(address));
        }
        let range = |range: Range| Some((range.last, (range.first, range.nodes.first()?.clone())));
        let ranges = ranges.into_iter().filter_map(range).collect();
        *map = Map { ranges, moved: BTreeMap::new(), nodes, read: Some(Instant::now()) };
        Ok(())
    }
}

fn slots() -> Cmd {
    let mut slots = cmd("CLUSTER");
    slots.arg("SLOTS");
    slots
}

fn no_node(why: &str) -> RedisError {
    (ErrorKind::ClusterConnectionNotFound, "no node", why.to_owned()).into()
}

/// The node that MOVED or ASK names; without a host, it is that of the node that replied.
fn redirected(error: &RedisError, from: &Node) -> Option<Address> {
    let (address, _) = error.redirect_node()?;
    let (host, port) = address.rsplit_once(':')?;
    let host = if host.is_empty() { &from.address.0 } else { host };
    Some((host.trim_matches(['[', ']']).to_owned(), port.parse().ok()?))
}

/// Some slots in a row, and their nodes, the primary first.
struct Range {
    first: u16,
    last: u16,
    nodes: Vec<Address>,
}

/// The ranges in a reply to CLUSTER SLOTS: the two ends of each, and then its nodes. One without
/// a name is on the host that has replied.
fn ranges(reply: &Value, host: &str) -> Option<Vec<Range>> {
    let Value::Array(ranges) = reply else { return None };
    let address = |node: &Value| {
        let Value::Array(node) = node else { return None };
        let [name, Value::Int(port), ..] = &node[..] else { return None };
        let name = match name {
            Value::BulkString(name) if !name.is_empty() => String::from_utf8(name.clone()).ok()?,
            Value::BulkString(_) | Value::Nil => host.to_owned(),
            _ => return None,
        };
        Some((name, u16::try_from(*port).ok()?))
    };
    let range = |range: &Value| {
        let Value::Array(parts) = range else { return None };
        let [Value::Int(first), Value::Int(last), nodes @ ..] = &parts[..] else { return None };
        let [first, last] = [first, last].map(|slot| u16::try_from(*slot).ok());
        let nodes = nodes.iter().map(address).collect::<Option<Vec<_>>>()?;
        Some(Range { first: first?, last: last?, nodes })
    };
    let ranges = ranges.iter().map(range).collect::<Option<Vec<_>>>()?;
    (!ranges.is_empty()).then_some(ranges)
}

/// The key of a command: the first one of a script, else the first argument. CLUSTER and INFO
/// have none.
fn key(command: &Cmd) -> Option<&[u8]> {
    let argument = |number| match command.args_iter().nth(number) {
        Some(Arg::Simple(bytes)) => Some(bytes),
        _ => None,
    };
    match argument(0)? {
        b"EVAL" | b"EVALSHA" => argument(3),
        b"CLUSTER" | b"INFO" => None,
        _ => argument(1),
    }
}

/// The slot of a key: the CRC-16 (XMODEM) of its tag, the part in braces.
fn slot(key: &[u8]) -> u16 {
    let tag = || {
        let open = key.iter().position(|byte| *byte == b'{')? + 1;
        let rest = key.get(open..)?;
        let tag = rest.get(..rest.iter().position(|byte| *byte == b'}')?)?;
        (!tag.is_empty()).then_some(tag)
    };
    let crc = tag().unwrap_or(key).iter().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 }
        })
    });
    crc % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_in_the_slot_that_redis_says() {
        // As CLUSTER KEYSLOT of Redis 7.0.
        for (text, expected) in [
            ("", 0),
            ("123456789", 12739),
            ("foo", 12182),
            ("{foo}bar", 12182),
            ("exirate:{foo}sm0:x{y}", 12182),
            ("foo{}{bar}", 8363),
            ("foo{{bar}}zap", 4015),
        ] {
            assert_eq!(slot(text.as_bytes()), expected, "{text}");
        }
        let command = cmd("EVALSHA").arg("hash").arg(2).arg("a").arg("b").clone();
        assert_eq!(key(&command), Some(&b"a"[..]));
        assert_eq!(key(cmd("GET").arg("a")), Some(&b"a"[..]));
        assert_eq!((key(&slots()), key(&cmd("INFO"))), (None, None));
    }

    #[test]
    fn the_slots_are_read_and_what_is_wrong_is_not() {
        let text = |text: &str| Value::BulkString(text.into());
        let node = |host: Value, port| Value::Array(vec![host, Value::Int(port), text("id")]);
        let range = |first, last, nodes: Vec<Value>| {
            Value::Array([vec![Value::Int(first), Value::Int(last)], nodes].concat())
        };
        let reply = Value::Array(vec![
            range(0, 5460, vec![node(text("192.0.2.1"), 7000), node(text("192.0.2.2"), 7001)]),
            range(5461, 16383, vec![node(Value::Nil, 7002)]),
        ]);
        let read = ranges(&reply, "192.0.2.9").unwrap();
        let of = |host: &str, port| (host.to_owned(), port);
        assert_eq!((read[0].first, read[0].last), (0, 5460));
        assert_eq!(read[0].nodes, [of("192.0.2.1", 7000), of("192.0.2.2", 7001)]);
        assert_eq!((read[1].last, &*read[1].nodes), (16383, &[of("192.0.2.9", 7002)][..]));
        for wrong in [
            Value::Nil,
            Value::Array(vec![]),
            Value::Array(vec![text("x")]),
            Value::Array(vec![range(0, 70_000, vec![node(text("a"), 1)])]),
            Value::Array(vec![range(0, 1, vec![node(text("a"), -1)])]),
            Value::Array(vec![range(0, 1, vec![node(Value::Int(1), 1)])]),
        ] {
            assert!(ranges(&wrong, "h").is_none(), "{wrong:?}");
        }
    }
}
