//! The web service with very many keys and open streams: questions, memory, snapshots, and what a
//! check in Exim costs meanwhile.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use exirate::serve::web::role::Role;
use exirate::serve::web::token;
use exirate::store::FOREVER;
use kit::table::{head, middle, middle_of, print, row};
use kit::{PrivateExim, Process, process::most_memory, until};
use rustix::process::Signal;

use crate::cluster::processor_seconds;
use crate::effort::Effort;
use crate::exim::{Check, Taken, sessions};
use crate::keys::{decide, number, open, parse, random, spec};
use crate::session::names;

/// Room for the largest database.
const MAX_BYTES: u64 = 8 << 30;
/// One key of so many is over its limit.
const BLOCKED: usize = 5000;
/// So many ask at the same time.
const CLIENTS: usize = 8;
/// So many questions a second are asked while checks are measured.
const ASKED: u64 = 100;
/// How much dearer a check may be meanwhile.
const DEARER: f64 = 1.05;
/// Within what time an identity is shown.
const IDENTITY: Duration = Duration::from_millis(10);

/// The web service, and who asks it.
pub(crate) struct Desk {
    socket: PathBuf,
    token: String,
    process: Process,
}

impl Desk {
    /// That of this program, with its files in this folder, for the database in this spool directory.
    pub(crate) fn start(program: &Path, folder: &Path, spool: &Path) -> Self {
        let at = |name: &str| folder.join(name).display().to_string();
        let (config, socket, tokens) = (at("exirate.toml"), folder.join("web"), at("tokens"));
        let text = format!(
            "[mail]\nspool = {:?}\n[web]\nlisten = \"unix:{}\"\ntokens = {tokens:?}\n\
             state = {:?}\n",
            spool,
            socket.display(),
            at("state"),
        );
        fs::write(&config, text).unwrap();
        let add = |all: &mut token::Tokens| all.add("panel", Role::View, 0, FOREVER, None);
        let token = token::change(tokens.as_ref(), add).unwrap();
        let mut command = Command::new(program);
        command.args(["serve", "web", "--config", &config]).stdin(Stdio::null());
        let process = Process(command.stderr(Stdio::null()).spawn().unwrap());
        until("the web service listens", || UnixStream::connect(&socket).is_ok());
        Self { socket, token, process }
    }

    fn request(&self, path: &str) -> String {
        format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\r\n",
            self.token
        )
    }

    pub(crate) fn connect(&self) -> BufReader<UnixStream> {
        BufReader::new(UnixStream::connect(&self.socket).unwrap())
    }

    /// Asks once, and reads all of the reply.
    pub(crate) fn ask(&self, peer: &mut BufReader<UnixStream>, path: &str) -> Duration {
        let begun = Instant::now();
        peer.get_mut().write_all(self.request(path).as_bytes()).unwrap();
        let (mut line, mut length) = (String::new(), 0);
        peer.read_line(&mut line).unwrap();
        assert!(line.starts_with("HTTP/1.1 200"), "{path}: {line}");
        while line != "\r\n" {
            line.clear();
            peer.read_line(&mut line).unwrap();
            if let Some(text) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = text.trim().parse().unwrap();
            }
        }
        peer.read_exact(&mut vec![0; length]).unwrap();
        begun.elapsed()
    }

    /// Opens streams, and waits until each has had an event.
    fn streams(&self, count: usize) -> Vec<UnixStream> {
        let mut streams = Vec::new();
        for _ in 0..count {
            let mut stream = UnixStream::connect(&self.socket).unwrap();
            stream.write_all(self.request("/api/v1/events").as_bytes()).unwrap();
            streams.push(stream);
        }
        for stream in &mut streams {
            let mut text = String::new();
            while !text.contains("event: ") {
                let mut part = [0; 4096];
                let length = stream.read(&mut part).unwrap();
                assert!(length > 0, "{text}");
                text += &String::from_utf8_lossy(&part[..length]);
            }
            stream.set_nonblocking(true).unwrap();
        }
        streams
    }
}

/// Reads what comes on streams until `stop`; returns how many bytes came.
fn drain(streams: &mut [UnixStream], stop: &AtomicBool) -> usize {
    let (mut part, mut bytes) = (vec![0; 1 << 16], 0);
    while !stop.load(Ordering::Relaxed) {
        for stream in &mut *streams {
            match stream.read(&mut part) {
                Ok(length) => {
                    assert!(length > 0, "a stream has ended");
                    bytes += length;
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        thread::sleep(Duration::from_millis(20));
    }
    bytes
}

/// An Exim whose database has so many keys.
fn exim(keys: usize) -> PrivateExim {
    let ours = vec!["1000000 / 1h / per_rcpt / strict / $sender_helo_name".to_owned()];
    let exim = Check::Ours(ours).exim();
    let mut spool = open(&exim.spool());
    spool.set_max_bytes(MAX_BYTES).unwrap();
    let (mut request, mut blocked) = (parse(&spec(0)), parse(&spec(0)));
    blocked.limit = 1.0;
    for n in 0..keys {
        let request = if n % BLOCKED == 0 { &mut blocked } else { &mut request };
        number(request, n);
        decide(&mut spool, request);
    }
    exim
}

/// Prints all of it.
pub(crate) fn run(effort: Effort) {
    let keys = effort.keys.iter().copied().filter(|&keys| keys <= 1_000_000).max().unwrap();
    let exim = exim(keys);
    let program = Path::new(env!("CARGO_BIN_EXE_exirate"));
    let desk = Desk::start(program, exim.folder(), &exim.spool());
    head(&format!("The web service with {keys} keys and {} open streams", effort.streams));
    let first = desk.ask(&mut desk.connect(), "/api/v1/status");
    let one_snapshot = most_memory(&desk.process);
    let mut streams = desk.streams(effort.streams);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let stop = &stop;
        let drained = scope.spawn(move || drain(&mut streams, stop));
        let dearer = checks(&desk, &exim, effort);
        let identity = routes(&desk, keys, effort);
        let begun = (Instant::now(), processor_seconds(&desk.process));
        thread::sleep(effort.watched);
        let used = processor_seconds(&desk.process) - begun.1;
        let share = 100.0 * used / begun.0.elapsed().as_secs_f64();
        let mb = |bytes: usize| format!("{:.0} MB", bytes as f64 / 1e6);
        print(&[
            row(["the service", ""]),
            row(["its first snapshot", &format!("{:.2} s", first.as_secs_f64())]),
            row(["of a processor, for the streams alone", &format!("{share:.1} %")]),
            row(["memory at most, after the first snapshot", &mb(one_snapshot)]),
            row(["memory at most, after all questions", &mb(most_memory(&desk.process))]),
        ]);
        let is_met = |met| if met { "met" } else { "MISSED" };
        println!(
            "an identity within {} ms, the median: {}",
            IDENTITY.as_millis(),
            is_met(identity <= IDENTITY)
        );
        println!("a check at most {DEARER} times as dear: {}", is_met(dearer <= DEARER));
        stop.store(true, Ordering::Relaxed);
        println!("(the streams have sent {})", mb(drained.join().unwrap()));
    });
}

/// What is asked for, by a number of a key.
type Route = Box<dyn Fn(usize) -> String + Sync>;

/// Prints what routes cost; the median of an identity.
fn routes(desk: &Desk, keys: usize, effort: Effort) -> Duration {
    let key = |n: usize| format!("user{n:08}%40example.org");
    let many = move |n: usize| {
        (0..100).map(|more| format!("key={}&", key((n + more) % keys))).collect::<String>()
    };
    let routes: [(&str, Route); 13] = [
        ("me", Box::new(|_| "/api/v1/me".to_owned())),
        ("status", Box::new(|_| "/api/v1/status".to_owned())),
        ("keys", Box::new(|_| "/api/v1/keys".to_owned())),
        ("keys?state=close", Box::new(|_| "/api/v1/keys?state=close".to_owned())),
        ("keys?search=", Box::new(|n| format!("/api/v1/keys?search=user{n:08}"))),
        ("keys?state=suspected", Box::new(|_| "/api/v1/keys?state=suspected".to_owned())),
        ("search?q=, a whole mailbox", Box::new(move |n| format!("/api/v1/search?q={}", key(n)))),
        ("search?q=, a part", Box::new(|n| format!("/api/v1/search?q={:04}", n % 10_000))),
        ("policies", Box::new(|_| "/api/v1/policies".to_owned())),
        ("changes", Box::new(|_| "/api/v1/changes".to_owned())),
        ("identities, 100 keys", Box::new(move |n| format!("/api/v1/identities?{}", many(n)))),
        ("overrides", Box::new(|_| "/api/v1/overrides".to_owned())),
        ("identity", Box::new(move |n| format!("/api/v1/identity?key={}", key(n)))),
    ];
    let mut table = vec![row(["route", "questions a second", "p50", "p99", "slowest"])];
    let ms = |time: Duration| format!("{:.2} ms", time.as_secs_f64() * 1e3);
    let mut median = Duration::ZERO;
    for (name, path) in &routes {
        let begun = Instant::now();
        let mut times: Vec<Duration> = thread::scope(|scope| {
            let ask = |client: usize| {
                let (mut peer, mut times) = (desk.connect(), Vec::new());
                for n in random(keys).skip(client * 7) {
                    times.push(desk.ask(&mut peer, &path(n)));
                    if begun.elapsed() >= effort.asked {
                        break;
                    }
                }
                times
            };
            let all: Vec<_> = (0..CLIENTS).map(|client| scope.spawn(move || ask(client))).collect();
            all.into_iter().flat_map(|one| one.join().unwrap()).collect()
        });
        let seconds = begun.elapsed().as_secs_f64();
        times.sort_unstable();
        median = middle(times.clone());
        let p99 = times[(times.len() * 99 / 100).min(times.len() - 1)];
        let each = times.len() as f64 / seconds;
        let each = if each < 10.0 { format!("{each:.1}") } else { format!("{each:.0}") };
        table.push(row([name, &each, &ms(median), &ms(p99), &ms(times[times.len() - 1])]));
    }
    print(&table);
    median
}

/// What the service does while checks are measured.
const MEANWHILE: [&str; 3] = ["stopped", "streams", "streams and questions"];

/// Prints what a check costs meanwhile; how much dearer it is at most.
fn checks(desk: &Desk, exim: &PrivateExim, effort: Effort) -> f64 {
    let bare = Check::None.exim();
    let (asks, ended) = (AtomicBool::new(false), AtomicBool::new(false));
    let number = AtomicUsize::new(0);
    // The sums of a round: without a check, and with one.
    let sum = |exim: &PrivateExim| {
        let begun = Instant::now();
        let (mut all, mut runs) = ((0.0, 0.0), 0.0);
        while begun.elapsed() < effort.asked || runs == 0.0 {
            let run = number.fetch_add(1, Ordering::Relaxed);
            let Taken { time, processor } = sessions(exim, &names(1), run, effort.recipients);
            all = (all.0 + time.as_secs_f64(), all.1 + processor.as_secs_f64());
            runs += 1.0;
        }
        let checks = runs * effort.recipients as f64 / 1e6;
        (all.0 / checks, all.1 / checks)
    };
    let mut costs: BTreeMap<usize, Vec<(f64, f64)>> = BTreeMap::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                if asks.load(Ordering::Relaxed) {
                    // As a panel does, which keeps no connection.
                    let mut peer = desk.connect();
                    let n = number.load(Ordering::Relaxed);
                    desk.ask(&mut peer, &format!("/api/v1/identity?key=user{n:08}%40example.org"));
                    desk.ask(&mut peer, "/api/v1/keys");
                }
                thread::sleep(Duration::from_millis(2000 / ASKED));
            }
        });
        for round in 0..effort.rounds {
            for step in 0..MEANWHILE.len() {
                // In another order each time.
                let what = (step + round) % MEANWHILE.len();
                desk.process.signal(if what == 0 { Signal::STOP } else { Signal::CONT });
                asks.store(what == 2, Ordering::Relaxed);
                let (without, with) = (sum(&bare), sum(exim));
                let cost = (with.0 - without.0, with.1 - without.1);
                costs.entry(what).or_default().push(cost);
            }
        }
        ended.store(true, Ordering::Relaxed);
        desk.process.signal(Signal::CONT);
    });
    let mut table = vec![row(["a check, while the service is", "time", "", "processor", ""])];
    let mut dearest = 0.0_f64;
    for (what, name) in MEANWHILE.iter().enumerate() {
        let part = |part: fn(&(f64, f64)) -> f64| {
            let pairs = costs[&what].iter().zip(&costs[&0]);
            let ratios = middle_of(pairs.map(|(one, other)| part(one) / part(other)).collect());
            (middle_of(costs[&what].iter().map(part).collect()), ratios)
        };
        let (time, processor) = (part(|cost| cost.0), part(|cost| cost.1));
        dearest = dearest.max(processor.1);
        let cells = [time, processor].map(|(cost, ratio)| {
            (
                format!("{cost:.2} µs"),
                if what == 0 { String::new() } else { format!("{ratio:.3}×") },
            )
        });
        let [(time, times), (processor, processors)] = &cells;
        table.push(row([name, time, times, processor, processors]));
    }
    print(&table);
    println!(
        "(medians of {} rounds, each against the same round without; at most {ASKED} questions a second)",
        effort.rounds
    );
    dearest
}
