//! What an account of this machine can do to the Exim that it starts itself: it chooses the
//! descriptors that it inherits, its limits, its signals and its standard input, stops it and kills
//! it at any step, slows it down, and gives it a connection of a network namespace of its own. Its mail is limited, held or
//! deferred, or Exim itself fails; it is never accepted uncounted, and nobody else waits for it.

mod bed;

use bed::{ACCOUNT, Asks, Bed, Queued};
use kit::exim::{PROGRAM, user};
use kit::network::Network;
use kit::{Random, counts};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The seed of the first run. Run n has the n-th after it: `EXIRATE_TEST_RUN=n` repeats it alone.
const SEED: u64 = 45;
/// How many runs there are.
const RUNS: u64 = 90;
const RUNS_LONG: u64 = 1000;

/// How the account starts Exim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// A message on standard input.
    Message,
    /// A batch of them.
    Batch,
    /// A dialogue on a file or a pipe.
    Dialogue,
    /// A dialogue on a connection that claims to be from another.
    Connection,
    /// A test in the name of a client.
    Test,
}

/// What standard input is, where that is no connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Input {
    #[default]
    File,
    Pipe,
    /// A socket that is none of a network.
    Socket,
    Directory,
    Null,
    Closed,
}

impl Input {
    /// Whether what it should read is there.
    fn has_text(self) -> bool {
        matches!(self, Self::File | Self::Pipe | Self::Socket)
    }
}

/// What it does to the process.
#[derive(Clone, Debug, Default)]
struct Attack {
    input: Input,
    /// Descriptors that it inherits.
    descriptors: usize,
    /// Limits of `prlimit`.
    limits: String,
    /// The limit of a file's size ends within a line of the log.
    cuts_log: bool,
    /// A scheduling class, or what it does with signals.
    inherited: &'static [&'static str],
    /// The permissions of new files.
    umask: Option<&'static str>,
    /// An alarm that it has set, in microseconds.
    alarm: Option<usize>,
    /// A signal at so many system calls.
    signal: Option<(&'static str, usize)>,
    /// How long it is stopped.
    stopped: Duration,
    /// A control group with so little of a processor, or frozen for a time.
    group: Option<Group>,
    keeps_resource: bool,
    /// It names another sender of a message.
    forges: bool,
    /// The daemon does not run.
    no_daemon: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    Slow,
    Frozen,
}

impl Attack {
    fn generate(random: &mut Random, long: bool) -> Self {
        let mut attack = Self { keeps_resource: random.chance(20), ..Self::default() };
        let kinds = 1 + usize::from(random.chance(25));
        for _ in 0..kinds {
            match random.below(19) {
                0 | 1 => {
                    attack.descriptors = random.within(1, 60);
                    let most = 3 + attack.descriptors + random.below(8);
                    let _ = write!(attack.limits, " --nofile={most}");
                }
                2 | 3 => {
                    let _ = write!(attack.limits, " --nofile={}", random.within(3, 16));
                }
                4 => {
                    let _ = write!(attack.limits, " --as={}", random.within(4 << 20, 48 << 20));
                }
                5 => {
                    let (name, from, to) = random.pick(&[
                        ("data", 1 << 18, 8 << 20),
                        ("stack", 1 << 14, 1 << 18),
                        ("nproc", 0, 3),
                        ("memlock", 0, 1 << 12),
                    ]);
                    let _ = write!(attack.limits, " --{name}={}", random.within(from, to));
                }
                6 => {
                    let _ = write!(attack.limits, " --fsize={}", random.below(2000));
                }
                7 => attack.cuts_log = true,
                8 => {
                    let _ = write!(attack.limits, " --cpu={}", random.below(2));
                }
                9 => {
                    let classes: [&'static [&'static str]; 3] = [
                        &["nice", "-n", "19"],
                        &["chrt", "--batch", "0"],
                        &["chrt", "--idle", "0"],
                    ];
                    attack.inherited = random.pick(&classes);
                }
                10 => {
                    let signals = ["KILL", "TERM", "INT", "HUP", "ALRM", "PIPE", "XCPU", "XFSZ"];
                    let signal = if random.chance(50) { "KILL" } else { random.pick(&signals) };
                    attack.signal = Some((signal, random.within(1, 900)));
                }
                11 => {
                    attack.signal = Some(("STOP", random.within(100, 900)));
                    // A few are stopped for longer than Exim waits for the daemon.
                    let most = if random.chance(if long { 10 } else { 25 }) { 1300 } else { 60 };
                    attack.stopped = Duration::from_millis(most);
                }
                12 => {
                    let signals: [&'static [&'static str]; 3] = [
                        &["env", "--ignore-signal=CHLD", "--ignore-signal=PIPE"],
                        &["env", "--ignore-signal=ALRM", "--ignore-signal=TERM"],
                        &["env", "--block-signal"],
                    ];
                    attack.inherited = random.pick(&signals);
                }
                13 => attack.umask = Some(random.pick(&["777", "277", "000"])),
                14 => attack.alarm = Some(random.within(20_000, 150_000)),
                15 | 16 => {
                    attack.input = random.pick(&[
                        Input::Pipe,
                        Input::Socket,
                        Input::Directory,
                        Input::Null,
                        Input::Closed,
                    ]);
                }
                17 => attack.group = Some(random.pick(&[Group::Slow, Group::Frozen])),
                _ => attack.no_daemon = true,
            }
        }
        attack.forges = random.chance(33);
        // What `strace` does to a process in a group that is frozen is not the subject.
        if attack.signal.is_some() {
            attack.group = None;
        }
        attack
    }
}

/// Control groups, of either version, as far as they can be made here.
struct Groups {
    slow: Option<PathBuf>,
    frozen: Option<(PathBuf, &'static str, [&'static str; 2])>,
}

impl Groups {
    fn make() -> Self {
        let name = format!("exirate-test-{}", std::process::id());
        let made = |parent: &str| {
            let path = Path::new("/sys/fs/cgroup").join(parent).join(&name);
            (path.parent().unwrap().join("cgroup.procs").exists()
                && std::fs::create_dir(&path).is_ok())
            .then_some(path)
        };
        let mut slow = made("cpu");
        if let Some(path) = &slow {
            std::fs::write(path.join("cpu.cfs_period_us"), "100000").unwrap();
            std::fs::write(path.join("cpu.cfs_quota_us"), "5000").unwrap();
        }
        let mut frozen = made("freezer").map(|path| (path, "freezer.state", ["FROZEN", "THAWED"]));
        if slow.is_none()
            && frozen.is_none()
            && let Some(path) = made("").or_else(|| made("unified"))
        {
            if std::fs::write(path.join("cpu.max"), "5000 100000").is_ok() {
                slow = Some(path.clone());
            }
            frozen = Some((path, "cgroup.freeze", ["1", "0"]));
        }
        Self { slow, frozen }
    }

    fn path(&self, group: Group) -> Option<&Path> {
        match group {
            Group::Slow => self.slow.as_deref(),
            Group::Frozen => self.frozen.as_ref().map(|(path, ..)| &**path),
        }
    }

    fn freeze(&self, is: bool) {
        if let Some((path, file, words)) = &self.frozen {
            let _ = std::fs::write(path.join(file), words[usize::from(!is)]);
        }
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for path in self.slow.iter().chain(self.frozen.iter().map(|(path, ..)| path)) {
            let _ = std::fs::remove_dir(path);
        }
    }
}

/// The client that it claims to be, in a network of the account's own.
const INNOCENT: &str = "198.51.100.7";

/// A connection to a mail server there: the client's end, and the server's.
fn connected(network: &Network) -> (TcpStream, TcpStream) {
    network.within(|| {
        let server = TcpListener::bind((INNOCENT, 25)).unwrap();
        let client = TcpStream::connect((INNOCENT, 25)).unwrap();
        (client, server.accept().unwrap().0)
    })
}

/// One run.
struct Run<'a> {
    number: u64,
    bed: &'a Bed,
    groups: &'a Groups,
    network: &'a Network,
    asks: Asks,
    is_over: bool,
    way: Way,
    to: usize,
    attack: Attack,
}

/// What became of it.
#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    signal: Option<i32>,
    output: String,
}

impl Run<'_> {
    fn recipients(&self) -> Vec<String> {
        (0..self.to).map(|n| format!("r{n}@private.test")).collect()
    }

    fn input(&self) -> String {
        let message = "Subject: x\n\nhello\n";
        let mut text = String::new();
        let dialogue = matches!(self.way, Way::Dialogue | Way::Connection | Way::Test);
        match self.way {
            Way::Message => text.push_str(message),
            _ => {
                if dialogue {
                    text.push_str("EHLO client.test\n");
                }
                text.push_str("MAIL FROM:<sender@private.test>\n");
                for to in self.recipients() {
                    let _ = writeln!(text, "RCPT TO:<{to}>");
                }
                let _ = write!(text, "DATA\n{message}.\n");
                if dialogue {
                    text.push_str("QUIT\n");
                }
            }
        }
        if dialogue { text.replace('\n', "\r\n") } else { text }
    }

    /// Starts Exim as the account does, and waits for its end.
    fn start(&self) -> Ran {
        let Attack { descriptors, limits, cuts_log, inherited, signal, .. } = &self.attack;
        let mut line: Vec<String> = Vec::new();
        let mut add = |words: &[&str]| line.extend(words.iter().map(|word| (*word).to_owned()));
        if let Some((name, count)) = signal {
            add(&["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=all", "-e"]);
            add(&[&format!("inject=all:signal=SIG{name}:when={count}")]);
        }
        if !self.attack.keeps_resource {
            add(&["setpriv", "--bounding-set=-sys_resource"]);
        }
        add(inherited);
        if let Some(micros) = self.attack.alarm {
            let script = "ualarm shift; exec @ARGV";
            add(&["perl", "-MTime::HiRes=ualarm", "-e", script, &micros.to_string()]);
        }
        let log = std::fs::metadata(self.bed.path("log/mainlog")).map_or(0, |file| file.len());
        let within = log + self.number * 37 % 130;
        let limits = match cuts_log {
            true => format!("{limits} --fsize={within}"),
            false => limits.clone(),
        };
        let mut script = String::new();
        for _ in 0..*descriptors {
            script.push_str("exec {fd}</dev/null\n");
        }
        if let Some(group) = self.attack.group.and_then(|group| self.groups.path(group)) {
            let _ = writeln!(script, "echo $$ >{}/cgroup.procs", group.display());
        }
        if let Some(mask) = self.attack.umask {
            let _ = writeln!(script, "umask {mask}");
        }
        if self.way != Way::Connection && self.attack.input == Input::Closed {
            script.push_str("exec <&-\n");
        }
        let (uid, gid) = user(ACCOUNT);
        let _ = write!(
            script,
            "exec prlimit --core=0{limits} -- /usr/sbin/chroot --userspec={uid}:{gid} --groups= \
             {} /usr/bin/env -i {PROGRAM} \"$@\"",
            self.bed.path("").display()
        );
        add(&["/bin/bash", "-c", &script, "bash"]);
        match self.way {
            Way::Message if self.attack.forges => {
                add(&["-odq", "-oem", "-i", "-f", "forged@private.test"]);
            }
            Way::Message => add(&["-odq", "-oem", "-i"]),
            Way::Batch => add(&["-odq", "-oem", "-bS"]),
            Way::Dialogue | Way::Connection => add(&["-odq", "-bs"]),
            Way::Test => add(&["-bh", INNOCENT]),
        }
        let to = self.recipients();
        if self.way == Way::Message {
            line.extend(to);
        }
        let mut command = Command::new(&line[0]);
        command.args(&line[1..]).env_clear().env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin");
        command.current_dir("/").process_group(0).stderr(Stdio::null());
        let output = self.bed.path("output");
        let to_output = || Stdio::from(File::create(&output).unwrap());
        if self.way == Way::Connection {
            let (mut client, server) = connected(self.network);
            let (input, out): (OwnedFd, OwnedFd) =
                (server.try_clone().unwrap().into(), server.into());
            let child = command.stdin(input).stdout(out).spawn().unwrap();
            drop(command);
            let text = self.input();
            let mut writes = client.try_clone().unwrap();
            let writer = std::thread::spawn(move || {
                let _ = writes.write_all(text.as_bytes());
            });
            let reader = std::thread::spawn(move || {
                let mut replies = Vec::new();
                let _ = client.read_to_end(&mut replies);
                replies
            });
            let status = self.attend(child);
            let replies = String::from_utf8_lossy(&reader.join().unwrap()).into_owned();
            writer.join().unwrap();
            return Ran { code: status.code(), signal: status.signal(), output: replies };
        }
        let text = self.input();
        let (input, writes): (Stdio, Option<OwnedFd>) = match self.attack.input {
            Input::File => (self.bed.input(&text).into(), None),
            Input::Pipe => {
                let (reads, writes) = std::io::pipe().unwrap();
                (reads.into(), Some(writes.into()))
            }
            Input::Socket => {
                let (one, other) = UnixStream::pair().unwrap();
                (OwnedFd::from(one).into(), Some(other.into()))
            }
            Input::Directory => (File::open(self.bed.path("home")).unwrap().into(), None),
            Input::Null | Input::Closed => (Stdio::null(), None),
        };
        let child = command.stdin(input).stdout(to_output()).spawn().unwrap();
        drop(command);
        // There is room for all of it, whether it is read or not.
        if let Some(writes) = writes {
            let _ = File::from(writes).write_all(text.as_bytes());
        }
        let status = self.attend(child);
        let output = std::fs::read(&output).unwrap();
        let output = String::from_utf8_lossy(&output).into_owned();
        Ran { code: status.code(), signal: status.signal(), output }
    }

    /// Continues what it has stopped, and waits for its end. Meanwhile others are decided.
    fn attend(&self, mut child: std::process::Child) -> std::process::ExitStatus {
        use rustix::process::{Pid, Signal, kill_process_group};
        let group = Pid::from_raw(child.id().try_into().unwrap()).unwrap();
        let begun = Instant::now();
        let is_frozen = self.attack.group == Some(Group::Frozen);
        let stops = matches!(self.attack.signal, Some(("STOP", _)));
        let mut has_frozen = false;
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                if is_frozen {
                    self.groups.freeze(false);
                }
                // What it has begun in the background.
                let _ = kill_process_group(group, Signal::KILL);
                return status;
            }
            let passed = begun.elapsed();
            if is_frozen && !has_frozen && passed > Duration::from_millis(10 + self.number % 40) {
                has_frozen = true;
                self.groups.freeze(true);
                assert!(self.attack.no_daemon || self.bed.decides_for_others());
                self.groups.freeze(false);
            }
            if stops && passed > self.attack.stopped {
                if !self.attack.no_daemon {
                    assert!(self.bed.decides_for_others(), "others wait in run {}", self.number);
                }
                let _ = kill_process_group(group, Signal::CONT);
            }
            assert!(passed < Duration::from_secs(100), "run {} does not end", self.number);
            std::thread::sleep(Duration::from_millis(3));
        }
    }

    /// Runs it, and checks what became of the mail; a word for that.
    fn check(&self) -> &'static str {
        let before = self.bed.counted();
        let ran = self.start();
        let after = self.bed.counted();
        let queue = self.bed.take_queue();
        let counted = after.0 - before.0;
        let what = || {
            let log = self.bed.world.log("mainlog");
            let lines: Vec<&str> = log.lines().rev().take(12).collect();
            let panics = self.bed.world.log("paniclog");
            let panics: Vec<&str> = panics.lines().rev().take(6).collect();
            format!(
                "run {} (EXIRATE_TEST_RUN): {:?}, {:?} over={}, to {}, {:?}\n{ran:?}\ncounted \
                 {before:?} {after:?}, {queue:?}\n{lines:#?}\n{panics:#?}",
                self.number, self.asks, self.way, self.is_over, self.to, self.attack
            )
        };
        let accepted: Vec<&Queued> =
            queue.iter().filter(|one| !one.is_held && one.sender != "<>").collect();
        let held: Vec<&Queued> = queue.iter().filter(|one| one.is_held).collect();
        let bounces = queue.iter().filter(|one| one.sender == "<>").count();
        let to: u32 = accepted.iter().map(|one| one.recipients).sum();
        // A dialogue has no ACL in the file for specs, and refuses.
        assert!(counted > f64::from(to) - 0.5, "accepted uncounted: {}", what());
        assert!(!self.is_over || to == 0, "accepted over the limit: {}", what());
        assert!(after.1 < 0.5, "counted for a client: {}", what());
        assert!(held.iter().all(|one| one.has_request), "held without its request: {}", what());
        // What is undecided is neither returned nor lost. (In a line of one's own, Exim returns
        // a message if it cannot load the library.)
        // What Exim cannot read, it returns.
        let has_text = self.way == Way::Connection || self.attack.input.has_text();
        if !self.is_over && !self.asks.is_own() && has_text {
            assert_eq!(bounces, 0, "returned: {}", what());
            let has_ended = ran.code == Some(0) && ran.signal.is_none();
            let is_stdin =
                matches!(self.way, Way::Message | Way::Batch) && self.attack.input.has_text();
            assert!(
                !(has_ended && is_stdin && accepted.is_empty() && held.is_empty()),
                "lost: {}",
                what()
            );
        }
        match () {
            () if !held.is_empty() => "held",
            () if !accepted.is_empty() => "counted and accepted",
            () if ran.output.contains("\n451") || ran.output.starts_with("451") => "deferred",
            () if self.is_over && counted > 0.5 => "limited",
            () if self.way == Way::Test && counted > 0.5 => "counted, a test",
            () if bounces > 0 => "returned by Exim",
            () if ran.signal.is_some() || ran.code != Some(0) => "Exim failed",
            () => "refused or ended early",
        }
    }
}

/// As inetd does, under a user of its own.
#[test]
fn an_account_that_serves_connections_counts_for_their_client() {
    let groups = Groups { slow: None, frozen: None };
    let network = Network::make(&[INNOCENT], "");
    for asks in [Asks::Library, Asks::Socket] {
        let mut bed = Bed::new(false);
        bed.start();
        bed.configure(asks, false);
        let mut run = Run {
            number: 0,
            bed: &bed,
            groups: &groups,
            network: &network,
            asks,
            is_over: false,
            way: Way::Connection,
            to: 3,
            attack: Attack::default(),
        };
        assert_eq!(run.check(), "counted and accepted");
        assert_eq!(bed.counted().1.round(), 0.0);
        bed.set("RATELIMIT_SERVING", &format!("7 : {}", user(ACCOUNT).0));
        let ran = run.start();
        let (all, of_clients) = bed.counted();
        assert_eq!((all.round(), of_clients.round()), (6.0, 3.0), "{asks:?}: {ran:?}");
        assert_eq!(bed.take_queue().len(), 1);
        // What it sends itself is its own.
        run.way = Way::Message;
        let ran = run.start();
        let (all, of_clients) = bed.counted();
        assert_eq!((all.round(), of_clients.round()), (9.0, 3.0), "{asks:?}: {ran:?}");
    }
}

#[test]
fn mail_of_an_account_is_never_accepted_uncounted() {
    let long = counts::is_long();
    let only: Option<u64> = std::env::var("EXIRATE_TEST_RUN").ok().map(|run| run.parse().unwrap());
    let groups = Groups::make();
    let network = Network::make(&[INNOCENT], "");
    let mut beds = [false, true].map(Bed::new);
    for bed in &mut beds {
        bed.start();
    }
    let mut outcomes: BTreeMap<&str, u64> = BTreeMap::new();
    let (mut in_groups, mut with_resource) = (0, 0);
    let runs = if long { RUNS_LONG } else { RUNS };
    for number in 0..runs {
        if only.is_some_and(|only| only != number) {
            continue;
        }
        let mut random = Random::new(SEED + number);
        let is_over = random.chance(35);
        let asks = random.pick(&Asks::ALL);
        let ways = [
            Way::Message,
            Way::Message,
            Way::Message,
            Way::Batch,
            Way::Dialogue,
            Way::Dialogue,
            Way::Connection,
            Way::Connection,
            Way::Test,
        ];
        let way = if asks == Asks::NotSmtp { Way::Message } else { random.pick(&ways) };
        let to = random.within(1, 20);
        let mut attack = Attack::generate(&mut random, long);
        // A line of one's own waits for longer.
        if long && asks.is_own() && attack.stopped > Duration::from_secs(1) {
            attack.stopped = Duration::from_millis(5500);
        }
        let bed = &mut beds[usize::from(is_over)];
        bed.configure(asks, is_over);
        if attack.no_daemon {
            bed.daemon = None;
        }
        let run =
            Run { number, bed, groups: &groups, network: &network, asks, is_over, way, to, attack };
        *outcomes.entry(run.check()).or_default() += 1;
        in_groups += u64::from(run.attack.group.is_some_and(|one| groups.path(one).is_some()));
        with_resource += u64::from(run.attack.keeps_resource);
        if run.attack.no_daemon {
            beds[usize::from(is_over)].start();
        }
    }
    counts::record("starts of Exim by an account in a control group", in_groups);
    counts::record("starts of Exim by an account with CAP_SYS_RESOURCE", with_resource);
    for (outcome, count) in &outcomes {
        counts::record(&format!("starts of Exim by an account: {outcome}"), *count);
    }
    if only.is_none() {
        for outcome in ["counted and accepted", "held", "deferred", "limited", "Exim failed"] {
            assert!(outcomes.contains_key(outcome), "{outcome}: {outcomes:?}");
        }
        assert!(with_resource > 0 && with_resource < runs);
        let has_groups = [Group::Slow, Group::Frozen].iter().any(|&one| groups.path(one).is_some());
        assert_eq!(in_groups > 0, has_groups);
    }
}
