//! Drives both sides through the same session in step, and compares.

use super::session::{Step, Way};
use kit::exim::lossless;
use kit::smtp::stuffed;
use kit::{Client, FakeClock, PrivateExim, Reply};
use std::collections::BTreeMap;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::net::Ipv4Addr;
use std::path::PathBuf;

/// What was compared.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub sessions: usize,
    pub replies: usize,
    /// Records of the three variables, and verdicts that were `over`, by ACL.
    pub stages: BTreeMap<String, (usize, usize)>,
}

impl Tally {
    pub fn add(&mut self, other: &Tally) {
        self.sessions += other.sessions;
        self.replies += other.replies;
        for (stage, (checks, over)) in &other.stages {
            let sum = self.stages.entry(stage.clone()).or_default();
            sum.0 += checks;
            sum.1 += over;
        }
    }

    pub fn checks(&self) -> usize {
        self.stages.values().map(|p| p.0).sum()
    }

    fn record(&mut self, record: &str) {
        let stage = record.split('.').next().unwrap_or_default().to_owned();
        let sum = self.stages.entry(stage).or_default();
        sum.0 += usize::from(record.contains(" rate="));
        sum.1 += usize::from(record.ends_with(" over"));
    }
}

/// A log that is read as it grows.
struct Tail {
    path: PathBuf,
    read: u64,
    marker: &'static str,
}

impl Tail {
    fn new(path: PathBuf, marker: &'static str) -> Self {
        Self { path, read: 0, marker }
    }

    /// The records added since the last time.
    fn records(&mut self) -> Vec<String> {
        let mut bytes = vec![];
        if let Ok(mut file) = std::fs::File::open(&self.path) {
            file.seek(SeekFrom::Start(self.read)).unwrap();
            file.read_to_end(&mut bytes).unwrap();
        }
        let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |n| n + 1);
        self.read += whole as u64;
        lossless(&bytes[..whole])
            .lines()
            .filter_map(|l| l.split_once(self.marker).map(|(_, record)| record.to_owned()))
            .collect()
    }
}

/// One side: its Exim, and the conversations that are open.
struct Seat {
    // Before its Exim, so that conversations end first.
    open: BTreeMap<usize, Client>,
    exim: PrivateExim,
    /// Whether the latest greeting offered CHUNKING: a chunk that is not
    /// expected would be taken for commands.
    chunking: BTreeMap<usize, bool>,
    log: Tail,
    errors: Tail,
    debug: Vec<Tail>,
}

impl Seat {
    fn new(exim: PrivateExim) -> Self {
        let path = exim.folder().join("log/mainlog");
        let log = Tail::new(path.clone(), " @@ ");
        let errors = Tail::new(path, "error in arguments");
        Self { errors, exim, open: BTreeMap::new(), chunking: BTreeMap::new(), log, debug: vec![] }
    }

    /// All that was recorded since the last time.
    fn records(&mut self) -> Vec<String> {
        let mut records = self.log.records();
        self.debug.iter_mut().for_each(|d| records.extend(d.records()));
        records
    }

    /// Does one step, and gives the replies that came; `None` is the end.
    fn take(&mut self, step: &Step) -> Vec<Option<Reply>> {
        match step {
            Step::Open(n, way) => {
                let client = match way {
                    Way::Daemon(host) => self.exim.connect(Ipv4Addr::new(127, 0, 0, *host)),
                    Way::Pipe => self.exim.pipe(&["-bs"]).0,
                    Way::Check(address) => {
                        let (client, stderr) = self.exim.pipe(&["-bh", address]);
                        self.debug.push(Tail::new(stderr, "LOG: @@ "));
                        client
                    }
                };
                self.open.insert(*n, client);
                self.chunking.remove(n);
                vec![self.reply(*n)]
            }
            Step::Say(n, lines) => {
                let packet: Vec<u8> =
                    lines.iter().flat_map(|l| l.iter().chain(b"\r\n")).copied().collect();
                self.send(*n, &packet);
                lines.iter().map(|_| self.reply(*n)).collect()
            }
            Step::Data(n, text) => {
                self.send(*n, b"DATA\r\n");
                let go = self.reply(*n);
                let mut replies = vec![go.clone()];
                if go.is_some_and(|r| r.code == 354) {
                    self.send(*n, stuffed(text).as_bytes());
                    replies.push(self.reply(*n));
                    // With PRDR there is a reply for each recipient as well.
                    while replies.last().is_some_and(prdr) {
                        replies.push(self.reply(*n));
                    }
                }
                replies
            }
            Step::Chunks(n, text, most) => self.chunks(*n, text, *most),
            Step::Cut(n) => {
                let mut replies = vec![];
                for line in ["MAIL FROM:<one@private.test>", "RCPT TO:<a@private.test>", "DATA"] {
                    self.send(*n, format!("{line}\r\n").as_bytes());
                    replies.push(self.reply(*n));
                }
                let wanted = replies.iter().flatten().any(|r| r.code == 354);
                if wanted {
                    self.send(*n, b"Subject: cut off\r\n\r\nand no mo");
                }
                self.hang_up(*n);
                replies
            }
            Step::Quit(n) => {
                if let Some(client) = self.open.get_mut(n) {
                    client.send_quit();
                }
                // The QUIT ACL has run when it says goodbye.
                let replies = vec![self.reply(*n)];
                self.open.remove(n);
                replies
            }
            Step::Drop(n) => {
                self.hang_up(*n);
                vec![]
            }
            Step::Run(args, input) => {
                let ran = self
                    .exim
                    .run(&args.iter().map(String::as_str).collect::<Vec<_>>(), input.as_bytes());
                vec![
                    Some(Reply { code: ran.code.unsigned_abs() as u16, text: ran.stdout }),
                    Some(Reply { code: 0, text: ran.stderr }),
                ]
            }
            Step::Jump(_) => vec![],
        }
    }

    fn send(&mut self, n: usize, bytes: &[u8]) {
        if let Some(client) = self.open.get_mut(&n) {
            client.send(bytes);
        }
    }

    /// The next reply; a conversation that has ended is over.
    fn reply(&mut self, n: usize) -> Option<Reply> {
        let reply = self.open.get_mut(&n)?.reply();
        match &reply {
            None => drop(self.open.remove(&n)),
            Some(r) if r.text.contains(" Hello ") => {
                self.chunking.insert(n, r.text.contains("CHUNKING"));
            }
            Some(_) => {}
        }
        reply
    }

    fn chunks(&mut self, n: usize, text: &str, most: usize) -> Vec<Option<Reply>> {
        let bytes = text.replace('\n', "\r\n").into_bytes();
        let mut replies = vec![];
        if self.chunking.get(&n) != Some(&true) {
            return replies;
        }
        let mut chunks = bytes.chunks(most).peekable();
        while let Some(chunk) = chunks.next() {
            let last = if chunks.peek().is_none() { " LAST" } else { "" };
            let command = format!("BDAT {}{last}\r\n", chunk.len()).into_bytes();
            self.send(n, &[&command, chunk].concat());
            let reply = self.reply(n);
            let go_on = reply.as_ref().is_some_and(Reply::is_ok);
            replies.push(reply);
            while last == " LAST" && replies.last().is_some_and(prdr) {
                replies.push(self.reply(n));
            }
            if !go_on {
                break;
            }
        }
        replies
    }

    /// Hangs up, and waits until Exim has noticed: the not-QUIT ACL ends with
    /// a record of its own, or else with an error.
    fn hang_up(&mut self, n: usize) {
        let Some(client) = self.open.remove(&n) else { return };
        let ended = |log: &str| {
            let ends =
                |l: &&str| l.contains(" @@ end") || l.contains("ACL for not-QUIT returned ERROR");
            log.lines().filter(ends).count()
        };
        let before = ended(&self.exim.log("main"));
        client.close();
        self.exim.wait_until("the end of a connection", |log| ended(log) > before);
    }
}

fn prdr(reply: &Option<Reply>) -> bool {
    reply.as_ref().is_some_and(|r| r.code == 353 || prdr_recipient(&r.text))
}

fn prdr_recipient(text: &str) -> bool {
    text.contains("PRDR R=<") || text.contains(" prdr.")
}

/// Both sides.
pub struct Pair {
    seats: [Seat; 2],
    pub tally: Tally,
    /// The latest time of the clock so far.
    latest: i64,
}

/// How far the clock is set back at most, in seconds, from its latest time. Records that
/// decide nothing any more, after three periods of the shortest, 30 minutes, may be
/// forgotten, and native never forgets: were the clock set back by more than a part of
/// them, native's record and its filter would be of use again.
const BACK_MAX: i64 = 1_013;

impl Pair {
    pub fn new(first: PrivateExim, second: PrivateExim) -> Self {
        Self { seats: [Seat::new(first), Seat::new(second)], tally: Tally::default(), latest: 0 }
    }

    /// What each side's main log says of wrong specs, since the last time.
    pub fn errors(&mut self) -> [Vec<String>; 2] {
        self.seats.each_mut().map(|s| s.errors.records())
    }

    /// The panic logs.
    pub fn panics(&self) -> [String; 2] {
        self.seats.each_ref().map(|s| s.exim.log("panic"))
    }

    /// Runs one session on both sides; the first difference ends it.
    pub fn session(
        &mut self,
        steps: &[Step],
        clock: Option<(&FakeClock, &mut i64)>,
    ) -> Result<(), String> {
        let mut clock = clock;
        self.tally.sessions += 1;
        let mut said = String::new();
        for step in steps {
            if let (Step::Jump(by), Some((clock, offset))) = (step, &mut clock) {
                **offset = (**offset + by).max(self.latest - BACK_MAX);
                self.latest = self.latest.max(**offset);
                clock.set(**offset);
            }
            said += &format!("{step:?}\n");
            let [first, second] = &mut self.seats;
            let (a, b) = std::thread::scope(|s| {
                let a = s.spawn(|| first.take(step));
                let b = second.take(step);
                (a.join().expect("the first side"), b)
            });
            let (ra, rb) = (first.records(), second.records());
            for record in &ra {
                said += &format!("    {record}\n");
            }
            for reply in a.iter().flatten() {
                said += &format!("    S: {}\n", reply.text.replace('\n', "\n       "));
            }
            self.tally.replies += a.len();
            ra.iter().filter(|r| *r != "end").for_each(|r| self.tally.record(r));
            let texts = |r: &[Option<Reply>]| -> Vec<String> {
                r.iter()
                    .map(|r| {
                        r.as_ref().map_or("(end)".into(), |r| format!("{} {}", r.code, r.text))
                    })
                    .collect()
            };
            compare("record", &ra, &rb)
                .and_then(|()| compare("reply", &texts(&a), &texts(&b)))
                .map_err(|e| format!("{e}\nthe session, as the first side saw it:\n{said}"))?;
        }
        Ok(())
    }
}

fn compare(what: &str, a: &[String], b: &[String]) -> Result<(), String> {
    for n in 0..a.len().max(b.len()) {
        let (x, y) = (a.get(n), b.get(n));
        let same = match (x, y) {
            (Some(x), Some(y)) => same(x, y),
            _ => false,
        };
        if !same {
            return Err(format!("{what} {n} differs:\n  first:  {x:?}\n  second: {y:?}"));
        }
    }
    Ok(())
}

/// The same text, but for message ids; rates may differ by 0.1.
fn same(a: &str, b: &str) -> bool {
    let words = |s: &str| s.split([' ', '\n']).map(str::to_owned).collect::<Vec<_>>();
    let (a, b) = (words(a), words(b));
    a.len() == b.len()
        && a.iter().zip(&b).all(|(x, y)| x == y || rates_agree(x, y) || (id(x) && id(y)))
}

fn rates_agree(x: &str, y: &str) -> bool {
    let rate = |s: &str| s.strip_prefix("rate=").and_then(|r| r.parse::<f64>().ok());
    match (rate(x), rate(y)) {
        (Some(x), Some(y)) => (x - y).abs() < 0.1001,
        _ => false,
    }
}

/// `id=1xUMJx-0002gb-0J` or `id=1xUQ1o-000000002lJ-1ydK`, or without the `id=`.
fn id(word: &str) -> bool {
    let word = word.strip_prefix("id=").unwrap_or(word);
    let lengths: Vec<usize> = word.split('-').map(str::len).collect();
    // Up to 4.96, and since.
    [[6, 6, 2], [6, 11, 4]].iter().any(|id| lengths == id)
}
