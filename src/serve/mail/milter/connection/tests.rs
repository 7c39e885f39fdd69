use std::os::unix::net::{UnixListener, UnixStream};

use tokio::runtime::Builder;
use tokio::task::LocalSet;
use tokio::time::sleep;

use super::*;
use crate::policy::word::Verdict as V;
use crate::serve::listen::{Acceptor, Peers};
use crate::serve::mail::milter::packet::{self, write};

/// How long a test waits for what must come.
const TIMEOUT: Duration = Duration::from_secs(60);
const OFFER: &[u8] = &[0, 0, 0, 6, 0, 0, 1, 255, 0, 31, 255, 255];
const CONNECT: &[u8] = b"host\x004\x01\x02192.0.2.7\0";

/// Decides at once, by `verdict`.
struct Decider {
    verdict: Cell<V>,
    delay: Cell<f64>,
    events: RefCell<Vec<MailEvent>>,
    recorded: RefCell<Vec<(Envelope, Vec<u8>)>>,
    /// Recording waits until it may.
    may_record: watch::Sender<bool>,
}

impl Decide for Decider {
    async fn decide(
        &self,
        session: PolicySession,
        event: MailEvent,
    ) -> (PolicySession, MailVerdict) {
        self.events.borrow_mut().push(event);
        tokio::task::yield_now().await;
        let (verdict, delay) = (self.verdict.get(), self.delay.get());
        (session, MailVerdict::of(verdict, delay, "text"))
    }

    async fn record(&self, envelope: Envelope, message: Vec<u8>) {
        let _ = self.may_record.subscribe().wait_for(|&may| may).await;
        self.recorded.borrow_mut().push((envelope, message));
    }
}

/// A milter that listens, and a mail server that does not wait for it.
struct World {
    folder: tempfile::TempDir,
    decider: Rc<Decider>,
    shared: Rc<Shared<Decider>>,
    peers: Rc<Peers>,
    log: Rc<Log>,
    stop: watch::Sender<bool>,
}

impl World {
    fn client(&self) -> Client {
        let stream = UnixStream::connect(self.folder.path().join("s")).unwrap();
        stream.set_nonblocking(true).unwrap();
        Client { stream: tokio::net::UnixStream::from_std(stream).unwrap() }
    }

    async fn until(&self, what: &str, is: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !is(self) {
            assert!(begun.elapsed() < TIMEOUT, "{what}: {:?}", self.log.lines());
            sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Runs `test` with a milter that waits `idle` for the negotiation.
fn with(wants: Wants, idle: Duration, test: impl AsyncFnOnce(&World)) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("s")).unwrap();
        listener.set_nonblocking(true).unwrap();
        let listener = Acceptor::Unix(tokio::net::UnixListener::from_std(listener).unwrap());
        let decider = Rc::new(Decider {
            verdict: Cell::new(V::Accept),
            delay: Cell::new(0.0),
            events: RefCell::default(),
            recorded: RefCell::default(),
            may_record: watch::channel(true).0,
        });
        let log = Rc::new(Log::kept());
        let settings = Settings { max_message: 50_000, max_buffered: 100_000, idle_timeout: idle };
        let shared = Rc::new(Shared::new(Rc::clone(&decider), settings, Rc::clone(&log)));
        let peers = Peers::new(3, Rc::clone(&log));
        let (stop, stopped) = watch::channel(false);
        let world = World { folder, decider, shared, peers, log, stop };
        let (shared, peers) = (Rc::clone(&world.shared), Rc::clone(&world.peers));
        spawn_local(async move {
            let stop = stopped.clone();
            let begin = move |stream, peer| {
                spawn_local(serve(Rc::clone(&shared), wants, stream, stop.clone(), peer));
            };
            peers.accept(listener, stopped, begin).await;
        });
        test(&world).await;
    });
}

struct Client {
    stream: tokio::net::UnixStream,
}

impl Client {
    async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    async fn say(&mut self, command: u8, data: &[u8]) {
        let mut bytes = Vec::new();
        write(&mut bytes, command, data);
        self.send(&bytes).await;
    }

    /// The next reply: its code and its data; `None` at the end.
    async fn reply(&mut self) -> Option<(char, Vec<u8>)> {
        use tokio::io::AsyncReadExt as _;
        let read = async {
            let length = self.stream.read_u32().await.ok()?;
            let mut bytes = vec![0; length as usize];
            self.stream.read_exact(&mut bytes).await.ok()?;
            Some((char::from(bytes.remove(0)), bytes))
        };
        timeout(TIMEOUT, read).await.expect("a reply in time")
    }

    async fn code(&mut self) -> char {
        self.reply().await.expect("a reply").0
    }

    /// Negotiation, and a message with one recipient up to its end.
    async fn message(&mut self, body: &[u8]) {
        self.say(packet::NEGOTIATE, OFFER).await;
        assert_eq!(self.code().await, 'O');
        self.say(packet::CONNECT, CONNECT).await;
        self.say(packet::MAIL, b"<ann@example.org>\0").await;
        self.say(packet::RCPT, b"<a@x>\0").await;
        assert_eq!(self.code().await, 'c');
        self.say(packet::BODY, body).await;
    }
}

const RECORD: Wants = Wants {
    record: true,
    bytes: false,
    marks: false,
    rejected_recipients: false,
    connect: false,
    helo: false,
    mail: false,
};

#[test]
fn a_message_arrives_in_any_pieces() {
    with(RECORD, TIMEOUT, async |world| {
        let mut bytes = Vec::new();
        write(&mut bytes, packet::NEGOTIATE, OFFER);
        write(&mut bytes, packet::CONNECT, CONNECT);
        write(&mut bytes, packet::MAIL, b"<ann@example.org>\0");
        write(&mut bytes, packet::RCPT, b"<a@x>\0");
        write(&mut bytes, packet::HEADER, b"Subject\0 hi\0");
        write(&mut bytes, packet::BODY, b"text");
        write(&mut bytes, packet::END, b"");
        for length in [1, 7, bytes.len()] {
            let mut client = world.client();
            for piece in bytes.chunks(length) {
                client.send(piece).await;
                tokio::task::yield_now().await;
            }
            for code in ['O', 'c', 'c'] {
                assert_eq!(client.code().await, code);
            }
            client.say(packet::QUIT, b"").await;
            assert_eq!(client.reply().await, None);
        }
        world.until("recorded", |world| world.decider.recorded.borrow().len() == 3).await;
        for (envelope, message) in world.decider.recorded.take() {
            assert_eq!(envelope.recipients, ["a@x"]);
            assert!((clock::now().0 - 60..=clock::now().0).contains(&envelope.time));
            assert_eq!(message, b"Subject: hi\r\n\r\ntext");
        }
        world.until("all is given back", |world| world.shared.room.used() == 0).await;
        assert_eq!(world.log.lines(), [""; 0]);
    });
}

#[test]
fn recording_delays_no_reply_and_never_takes_more_than_its_room() {
    with(RECORD, TIMEOUT, async |world| {
        world.decider.may_record.send_replace(false);
        for _ in 0..5 {
            let mut client = world.client();
            client.message(&[b'x'; 40_000]).await;
            client.say(packet::END, b"").await;
            // The reply comes although nothing can be recorded.
            assert_eq!(client.code().await, 'c');
            assert!(world.shared.room.used() <= 100_000);
        }
        assert_eq!(world.shared.recording.get(), 5);
        world.decider.may_record.send_replace(true);
        world.shared.recorded().await;
        let recorded = world.decider.recorded.take();
        assert_eq!(recorded.iter().filter(|(envelope, _)| !envelope.partial).count(), 2);
        world.until("all is given back", |world| world.shared.room.used() == 0).await;
        // Too many wait.
        let _waiting = world.shared.recording.add(RECORD_MAX);
        let mut client = world.client();
        client.message(b"text").await;
        client.say(packet::END, b"").await;
        assert_eq!(client.code().await, 'c');
        world.until("it is logged", |world| !world.log.lines().is_empty()).await;
        assert_eq!(world.log.lines(), ["not recorded: 1000 messages wait to be recorded"]);
    });
}

#[test]
fn a_delay_ends_when_the_daemon_stops_and_the_reply_is_sent() {
    with(RECORD, TIMEOUT, async |world| {
        let mut client = world.client();
        client.message(b"text").await;
        world.decider.verdict.set(V::Delay);
        world.decider.delay.set(1e9);
        client.say(packet::END, b"").await;
        // The mail server gets messages to wait for longer than it would.
        assert_eq!(client.code().await, 'p');
        world.stop.send_replace(true);
        assert_eq!(client.code().await, 'c');
        assert_eq!(client.reply().await, None);
    });
}

#[test]
fn a_short_delay_is_waited_for() {
    with(RECORD, TIMEOUT, async |world| {
        world.decider.verdict.set(V::Delay);
        world.decider.delay.set(0.05);
        let begun = Instant::now();
        let mut client = world.client();
        client.message(b"text").await;
        assert!(begun.elapsed() >= Duration::from_millis(50));
    });
}

#[test]
fn a_stop_lets_messages_end_and_closes_what_waits() {
    with(RECORD, TIMEOUT, async |world| {
        let (mut idle, mut within) = (world.client(), world.client());
        idle.message(b"text").await;
        idle.say(packet::ABORT, b"").await;
        idle.say(packet::MAIL, b"<x@x>\0").await;
        idle.say(packet::RCPT, b"<x@x>\0").await;
        assert_eq!(idle.code().await, 'c');
        idle.say(packet::END, b"").await;
        assert_eq!(idle.code().await, 'c');
        within.message(b"text").await;
        world.stop.send_replace(true);
        assert_eq!(idle.reply().await, None);
        within.say(packet::END, b"").await;
        assert_eq!(within.code().await, 'c');
        assert_eq!(within.reply().await, None);
        world.until("nobody is connected", |world| world.peers.connected() == 0).await;
        assert_eq!(world.decider.recorded.borrow().len(), 2);
    });
}

#[test]
fn who_says_nothing_is_closed() {
    with(RECORD, Duration::from_millis(20), async |world| {
        let mut silent = world.client();
        assert_eq!(silent.reply().await, None);
        world.until("it is logged", |world| !world.log.lines().is_empty()).await;
        let said = "milter: a mail server was too slow or silent for too long: the connection is \
                    closed";
        assert_eq!(world.log.lines(), [said]);
        // One that has begun may be silent for longer.
        let mut client = world.client();
        client.message(b"text").await;
        sleep(Duration::from_millis(60)).await;
        client.say(packet::END, b"").await;
        assert_eq!(client.code().await, 'c');
    });
}

#[test]
fn who_is_slow_within_a_packet_or_takes_no_replies_is_closed() {
    // What docs/serve-mail.md says.
    let documented = include_str!("../../../../../docs/serve-mail.md");
    assert!(documented.contains("takes more than a minute from the first byte of a milter packet"));
    assert_eq!(PACKET_TIMEOUT, Duration::from_mins(1));
    with(RECORD, TIMEOUT, async |world| {
        world.shared.packet_timeout.set(Duration::from_millis(100));
        // It sends a byte now and then: that does not help.
        let mut slow = world.client();
        let mut bytes = Vec::new();
        write(&mut bytes, packet::NEGOTIATE, OFFER);
        slow.send(&bytes).await;
        assert_eq!(slow.code().await, 'O');
        bytes.clear();
        write(&mut bytes, packet::MACRO, &[b'x'; 30_000]);
        for byte in bytes {
            if slow.stream.write_all(&[byte]).await.is_err() {
                break;
            }
            sleep(Duration::from_millis(1)).await;
        }
        let is_logged = |world: &World, times| world.log.lines().len() >= times;
        world.until("the slow one is closed", |world| is_logged(world, 1)).await;
        world.until("nobody is connected", |world| world.peers.connected() == 0).await;
        // Replies that nobody takes.
        let stuck = world.client();
        bytes = Vec::new();
        write(&mut bytes, packet::NEGOTIATE, OFFER);
        let all = bytes.repeat(1000);
        let sent = Cell::new(0);
        let is_closed = |_: &World| match stuck.stream.try_write(&all[sent.get()..]) {
            Ok(more) => {
                sent.set((sent.get() + more) % all.len());
                false
            }
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        };
        world.until("the stuck one is closed", is_closed).await;
    });
}

#[test]
fn who_was_silent_for_longest_makes_place_for_another() {
    with(RECORD, TIMEOUT, async |world| {
        let mut silent = [world.client(), world.client(), world.client()];
        world.until("all are connected", |world| world.peers.connected() == 3).await;
        // Each has been looked at before the next one comes.
        tokio::task::yield_now().await;
        let mut another = world.client();
        another.message(b"text").await;
        assert_eq!(silent[0].reply().await, None);
    });
}

#[test]
fn what_cannot_be_read_is_logged_and_closed() {
    for (bytes, said) in [
        (&[0, 0, 0, 0][..], "a packet without a command"),
        (&[255, 255, 255, 255, b'M'], "a packet 'M' with 4294967294 bytes"),
        (&[0, 0, 0, 1, b'E'], "a command 'E' before the negotiation"),
        (&[0, 0, 0, 5, b'O', 0, 0, 0, 6], "a negotiation that is too short"),
    ] {
        with(RECORD, TIMEOUT, async |world| {
            let mut client = world.client();
            client.send(bytes).await;
            assert_eq!(client.reply().await, None);
            world.until("it is logged", |world| !world.log.lines().is_empty()).await;
            let line = format!(
                "milter: a mail server sent what cannot be read: {said}: the connection is closed"
            );
            assert_eq!(world.log.lines(), [line]);
        });
    }
}

#[test]
fn large_packets_need_room() {
    with(RECORD, TIMEOUT, async |world| {
        let mut full = world.shared.room.share();
        assert!(full.resize(99_000));
        let mut client = world.client();
        client.say(packet::NEGOTIATE, OFFER).await;
        assert_eq!(client.code().await, 'O');
        // It never ends.
        let head = (packet::DATA_MAX as u32).to_be_bytes();
        client.send(&[&head[..], b"D", &[0; 20_000]].concat()).await;
        assert_eq!(client.reply().await, None);
        world.until("it is logged", |world| !world.log.lines().is_empty()).await;
        assert!(world.log.lines()[0].contains("max_buffered leaves no room"));
    });
}

#[test]
fn a_mail_server_that_goes_away_leaves_nothing_behind() {
    with(RECORD, TIMEOUT, async |world| {
        let mut client = world.client();
        client.message(&[b'x'; 10_000]).await;
        world.until("it is kept", |world| world.shared.room.used() > 0).await;
        drop(client);
        world.until("all is given back", |world| world.shared.room.used() == 0).await;
        world.until("nobody is connected", |world| world.peers.connected() == 0).await;
        assert_eq!(world.log.lines(), [""; 0]);
    });
}
