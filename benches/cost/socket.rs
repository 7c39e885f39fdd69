//! An Exim that asks the socket of `exirate serve mail`: what a recipient costs there, and what
//! the daemon spends when thousands of SMTP sessions are open.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kit::front_ends::Machine;
use kit::table::{head, median, micros, print, row};
use kit::{PrivateExim, Process, Setup, repository};

use crate::cluster::processor_seconds;
use crate::effort::Effort;
use crate::exim::{Check, sessions};
use crate::session::names;

const POLICY: &str = "[policy.p]\nkey = \"helo\"\nupdate = \"strict\"\n\
                      default.recipients = \"100000/1h\"\n";
/// How many threads make requests.
const THREADS: usize = 16;

/// Prints both tables.
pub(crate) fn run(effort: Effort) {
    recipients(effort);
    daemon(effort);
}

/// The machine's Exim, by the shipped file, with a daemon.
fn by_socket() -> (PrivateExim, Machine, Process) {
    let machine = Machine::for_exim(POLICY, "");
    let daemon = machine.start();
    let files = repository().join("exim");
    let include = |name| format!(".include {}\n", files.join(name).display());
    let setup = Setup::new().socket(&machine.path("policy.sock")).main(&include("exirate.conf"));
    let acl = format!("{}  accept\n", include("acl_policy.conf"));
    (setup.acl("acl_smtp_rcpt", &acl).build(), machine, daemon)
}

/// The shipped file with the library.
fn by_library() -> PrivateExim {
    let exim = Check::Policy(format!("version = 1\n{POLICY}")).exim();
    let config = std::fs::read_to_string(exim.config()).unwrap();
    let files = repository().join("exim");
    let policy = files.join("acl_policy.conf").display().to_string();
    let config = config.replace(
        "  warn condition = ${dlfunc{EXIRATE}{policy_over}{p}}\n",
        &format!("  .include {policy}\n"),
    );
    let macros = format!(".include {}\nbegin acl\n", files.join("exirate.conf").display());
    std::fs::write(exim.config(), config.replacen("begin acl\n", &macros, 1)).unwrap();
    exim
}

/// The shipped file with the library where it asks the daemon, as for an account that starts Exim itself.
fn by_callers() -> PrivateExim {
    let exim = by_library().with_callers();
    let config = std::fs::read_to_string(exim.config()).unwrap();
    let of_account = format!("RATELIMIT_ACCOUNT = bool{{yes}}\n{config}");
    std::fs::write(exim.config(), of_account).unwrap();
    exim
}

fn recipients(effort: Effort) {
    let spec = "100000 / 1h / per_rcpt / strict / $sender_helo_name".to_owned();
    let (socket, _machine, _daemon) = by_socket();
    let exims = [
        ("", Check::None.exim()),
        ("native ratelimit", Check::Native(vec![spec.clone()]).exim()),
        ("exirate.so, a spec", Check::Ours(vec![spec]).exim()),
        ("exirate.so, acl_policy.conf", by_library()),
        ("an account's own Exim, acl_policy.conf", by_callers()),
        ("the socket, acl_policy.conf", socket),
    ];
    let mut taken: Vec<Vec<Duration>> = vec![Vec::new(); exims.len()];
    for round in 0..effort.rounds {
        for ((_, exim), taken) in exims.iter().zip(&mut taken) {
            taken.push(sessions(exim, &names(1), round, effort.recipients).time);
        }
    }
    let medians: Vec<f64> = taken.into_iter().map(median).collect();
    head(&format!("A recipient in Exim, {} RCPTs, one session", effort.recipients));
    let mut table = vec![row(["", "a recipient"])];
    for ((name, _), median) in exims.iter().zip(&medians).skip(1) {
        let cost = (median - medians[0]) / effort.recipients as f64;
        table.push(row([name, &micros(cost)]));
    }
    print(&table);
}

/// A request as `exim/exirate.conf` makes it.
fn request(session: usize, message: usize, command: &str, number: usize) -> String {
    let text = |text: &str| STANDARD.encode(text);
    let to = if command == "RCPT" { format!("user{number}.{session}") } else { String::new() };
    format!(
        "request=exirate_policy\npackage=\nsession={session}.1795675543259264\nmessage={message}\n\
         command={}\nnotquit=\nrouter=\ntransport=\naddress=192.0.2.{}\nserver=192.0.2.1\nid=\n\
         protocol={}\nhelo={}\nident=\nauthenticated=1\nlogin={}\nauth_failed=0\nsender={}\n\
         local_part={}\ndomain={}\nsize=-1\nrecipients=0\nnumber={number}\nfailed=0\nlist=\n\
         originator=0\ncaller=0\nexim=100\n\n",
        text(command),
        session % 250,
        text("esmtpsa"),
        text(&format!("client{session}.test")),
        text(&format!("user{session}@example.org")),
        text(&format!("user{session}@example.org")),
        text(&to),
        text(if to.is_empty() { "" } else { "private.test" }),
    )
}

/// Connects, asks and reads the reply, as `${readsocket` does; the time it took, unless there was
/// no verdict.
fn ask(socket: &Path, request: &str) -> Option<Duration> {
    let begun = Instant::now();
    let mut stream = UnixStream::connect(socket).ok()?;
    stream.write_all(request.as_bytes()).ok()?;
    stream.shutdown(Shutdown::Write).ok()?;
    finish(stream, begun)
}

fn finish(mut stream: UnixStream, begun: Instant) -> Option<Duration> {
    let mut reply = String::new();
    stream.read_to_string(&mut reply).ok()?;
    let is_decided = reply.starts_with("verdict=\"accept\"") && reply.contains("error=\"\"");
    is_decided.then(|| begun.elapsed())
}

/// What `part` of all times is not longer than.
fn quantile(sorted: &[Duration], part: f64) -> f64 {
    let at = (part * sorted.len() as f64) as usize;
    sorted.get(at.min(sorted.len() - 1)).map_or(0.0, Duration::as_secs_f64)
}

/// A time in microseconds, or in milliseconds if it has any.
fn time(seconds: f64) -> String {
    let millis = 1e3 * seconds;
    if millis < 1.0 { micros(1e6 * seconds) } else { format!("{millis:.1} ms") }
}

fn daemon(effort: Effort) {
    let open = effort.smtp_sessions;
    let limits = format!("max_connections = {}\nmax_in_flight = {}", open + 500, open + 500);
    let machine = Machine::for_exim(POLICY, &limits);
    let daemon = machine.start();
    let socket = machine.path("policy.sock");
    head(&format!("{open} SMTP sessions at once, that ask the socket"));
    let mut table = vec![row([
        "",
        "checks",
        "no verdict",
        "median",
        "99 %",
        "checks a second",
        "daemon, a check",
    ])];
    let mut add = |name: &str, times: Vec<Option<Duration>>, taken: Duration, spent: f64| {
        let mut decided: Vec<Duration> = times.iter().flatten().copied().collect();
        decided.sort();
        let count = times.len() as f64;
        table.push(row([
            name,
            &times.len().to_string(),
            &(times.len() - decided.len()).to_string(),
            &time(quantile(&decided, 0.5)),
            &time(quantile(&decided, 0.99)),
            &format!("{:.0}", count / taken.as_secs_f64()),
            &time(spent / count),
        ]));
    };
    // All sessions are open: each asks at MAIL, then each at RCPT, and so on.
    let steps = [("MAIL", 0), ("RCPT", 1), ("RCPT", 2), ("RCPT", 3), ("QUIT", 3)];
    let mut all = Vec::new();
    let (begun, before) = (Instant::now(), processor_seconds(&daemon));
    for (command, number) in steps {
        let next = AtomicUsize::new(0);
        let work = || {
            let mut times = Vec::new();
            loop {
                let session = next.fetch_add(1, Ordering::Relaxed);
                if session >= open {
                    return times;
                }
                times.push(ask(&socket, &request(session, 1, command, number)));
            }
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
            threads.into_iter().for_each(|thread| all.extend(thread.join().unwrap()));
        });
    }
    let spent = processor_seconds(&daemon) - before;
    add(&format!("{THREADS} of them ask at a time"), all, begun.elapsed(), spent);
    // All of them in the same moment: every connection is open before the first reply is read.
    let mut rounds = Vec::new();
    let (mut taken, before) = (Duration::ZERO, processor_seconds(&daemon));
    for round in 0..effort.rounds {
        let begun = Instant::now();
        let streams: Vec<_> = (0..open)
            .map(|session| {
                let mut stream = UnixStream::connect(&socket).ok()?;
                let text = request(session, 2 + round, "RCPT", 1);
                stream.write_all(text.as_bytes()).ok()?;
                stream.shutdown(Shutdown::Write).ok()?;
                Some((stream, Instant::now()))
            })
            .collect();
        let replies = streams.into_iter().map(|one| one.and_then(|(one, at)| finish(one, at)));
        rounds.extend(replies);
        taken += begun.elapsed();
    }
    let spent = processor_seconds(&daemon) - before;
    add("all of them in one moment", rounds, taken, spent);
    print(&table);
}
