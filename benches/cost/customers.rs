//! Customers: the image of very many, applying them, and a check with the totals of a domain and
//! of a customer beside a check of four windows of one user.

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Duration;

use exirate::event::{AclStage, Event, Origin};
use exirate::policy::evaluator::{Evaluator, Observer, PolicySession, Step};
use exirate::policy::image::PolicyFile;
use exirate::policy::word::Verdict;
use exirate::rate::Timestamp;
use exirate::rate::usage::Sent;
use exirate::spool::{Options, Spool};
use exirate::store::{Counting, Store as _};
use exirate::sys::clock;
use rustix::time::ClockId;

use crate::effort::Effort;
use crate::image::measured;
use kit::table::{head, median, micros, print, ratio, row};

/// Domains and users of a customer.
const DOMAINS: usize = 4;
const USERS: usize = 20;
/// Checks in a round, each of another user.
const CHECKS: usize = 1000;

/// A policy file with so many customers, and the file of their users: every other user has a limit
/// of its own, and the customers have packages.
fn files(customers: usize) -> (String, String) {
    let mut text = "version = 1\n[policy.plain]\n\
                    default.recipients = [\"100k/1h\", \"200k/2h\", \"500k/1d\", \"900k/1w\"]\n\
                    [policy.p]\nusers = \"users.csv\"\ndefault.recipients = \"1k/1h\"\n\
                    default.total.recipients = \"10M/1h\"\n\
                    package.gold.recipients = [\"100k/1h\", \"500k/1d\"]\n"
        .to_owned();
    let mut users = "user,customer,recipients\n".to_owned();
    for customer in 0..customers {
        let domains: Vec<String> = (0..DOMAINS).map(|n| format!("d{n}.c{customer}.test")).collect();
        let _ = writeln!(
            text,
            "[policy.p.customer.c{customer}]\ndomains = {domains:?}\npackage = \"gold\"\n\
             total.recipients = \"10M/1h\""
        );
        for n in 0..USERS {
            let own = if n % 2 == 0 { "" } else { "100k/1h 500k/1d" };
            let _ = writeln!(users, "{},c{customer},{own}", user(customer, n));
        }
    }
    (text, users)
}

fn user(customer: usize, n: usize) -> String {
    format!("u{n}@d{}.c{customer}.test", n % DOMAINS)
}

struct Nothing;

impl Observer for Nothing {}

fn now() -> Timestamp {
    clock::now().into()
}

/// The processor time of this thread: where other programs run as well, a long round is interrupted more
/// often than a short one.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A recipient of each of these users, by the policy `name`; the processor time of one.
fn checked(
    evaluator: &mut Evaluator<'_>,
    spool: &mut Spool,
    name: &str,
    users: &[String],
) -> Duration {
    let begun = processor_time();
    for user in users {
        let event = Event {
            auth: Some(user.as_str()),
            client: Origin::Client([192, 0, 2, 7].into()),
            recipient: Some("r@x.test"),
            ..Event::default()
        };
        let step = Step::new(AclStage::Rcpt, event);
        let mut session = PolicySession::default();
        let store = Ok(&mut *spool);
        let evaluated = evaluator.evaluate(&mut session, name, &step, store, now, &mut Nothing);
        assert!(black_box(evaluated).outcome.verdict == Verdict::Accept);
    }
    (processor_time() - begun) / users.len() as u32
}

/// Prints the costs.
pub(crate) fn run(effort: Effort) {
    let customers = effort.users / USERS;
    let (domains, users) = (customers * DOMAINS, customers * USERS);
    head(&format!("{customers} customers with {domains} domains and {users} users"));
    let folder = tempfile::tempdir().unwrap();
    let (policy, csv) = files(customers);
    let file = folder.path().join("policy.toml");
    std::fs::write(&file, policy).unwrap();
    std::fs::write(folder.path().join("users.csv"), csv).unwrap();
    let mut spool = Spool::open(folder.path(), Options::default()).unwrap();
    let mut rows = vec![row(["", "time", "processor", "memory"])];
    for what in ["policy apply, the first", "policy apply, again"] {
        let figures = measured(folder.path(), &["policy", "apply", file.to_str().unwrap()]);
        let [time, processor, memory] = figures;
        rows.push(row([what, &time, &processor, &memory]));
    }
    print(&rows);
    let mut in_use = PolicyFile::open(folder.path());
    let image = in_use.refresh().unwrap();
    println!("(the image has {} bytes)\n", image.to_bytes().len());

    // Those of a round, all over the tables.
    let names: Vec<String> = (0..CHECKS).map(|n| user(n * customers / CHECKS, n % USERS)).collect();
    let mut evaluator = Evaluator::of_image(image);
    let mut times: [Vec<Duration>; 2] = [const { Vec::new() }; 2];
    // The first round makes the records.
    for round in 0..=effort.short_rounds {
        for (name, times) in ["plain", "p"].into_iter().zip(&mut times) {
            let time = checked(&mut evaluator, &mut spool, name, &names);
            if round > 0 {
                times.push(time);
            }
        }
    }
    let [plain, totals] = times.map(median);
    print(&[
        row(["a check", "processor time"]),
        row(["four windows of a user", &micros(plain)]),
        row(["two of a user, of its domain, of its customer", &micros(totals)]),
    ]);
    println!("(the latter takes {} times as long)", ratio(totals, plain));
    usage(effort, "each of another account", &names);
    usage(effort, "all of one account", &vec![user(0, 0); CHECKS]);
    many_accounts(effort.many_users);
}

/// Prints what a check costs where what its account sends is counted, and where it is not.
fn usage(effort: Effort, whose: &str, users: &[String]) {
    let mut times = [const { Vec::new() }; 2];
    let mut machines = ["", "usage = false\n"].map(|usage| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("policy.toml");
        let limits = "[policy.plain]\ndefault.recipients = \"100k/1h\"\n";
        std::fs::write(&file, format!("version = 1\n{usage}{limits}")).unwrap();
        measured(folder.path(), &["policy", "apply", file.to_str().unwrap()]);
        let spool = Spool::open(folder.path(), Options::default()).unwrap();
        (Evaluator::open(folder.path()), spool, folder)
    });
    for round in 0..=effort.short_rounds {
        for ((evaluator, spool, _), times) in machines.iter_mut().zip(&mut times) {
            let time = checked(evaluator, spool, "plain", users);
            if round > 0 {
                times.push(time);
            }
        }
    }
    let [counted, uncounted] = times.map(median);
    print(&[
        row([&format!("a check of one window, {whose}"), "processor time"]),
        row(["usage = false", &micros(uncounted)]),
        row(["usage counted", &micros(counted)]),
    ]);
    println!("(usage costs {} times as much)", ratio(counted, uncounted));
}

/// Prints what the usage of very many accounts takes, and how long it takes to read it.
fn many_accounts(accounts: usize) {
    head(&format!("The usage of {accounts} accounts"));
    let folder = tempfile::tempdir().unwrap();
    measured(folder.path(), &["config", "set", "rates.max_size=8G"]);
    let mut spool = Spool::open(folder.path(), Options::default()).unwrap();
    let sent = Sent { messages: 1, recipients: 2, ..Sent::default() };
    let begun = processor_time();
    for n in 0..accounts {
        let account = format!("auth:user{n}@example.org");
        let day = |at: i64| at.div_euclid(86_400);
        spool
            .count_usage(&Counting { identity: account.as_bytes(), sent, day: &day }, now)
            .unwrap();
    }
    let time = (processor_time() - begun) / accounts as u32;
    let bytes = spool.disk_bytes() as f64 / accounts as f64;
    println!(
        "({bytes:.0} bytes of disk an account; the first event of one {})\n",
        micros(time.as_secs_f64() * 1e6)
    );
    let mut rows = vec![row(["", "time", "processor", "memory"])];
    let one = format!("user{}@example.org", accounts / 2);
    for arguments in [&["usage", "--by", "domain"][..], &["usage", &one]] {
        let [time, processor, memory] = measured(folder.path(), arguments);
        rows.push(row([&format!("exirate {}", arguments.join(" ")), &time, &processor, &memory]));
    }
    print(&rows);
}
