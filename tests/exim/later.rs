//! Mail that is sent later: policies at delivery, by the shipped router, in a real Exim.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

use crate::acl_files::{copy_shipped, login};
use crate::policy::apply;
use kit::exim::Ran;
use kit::front_ends::Machine;
use kit::{FakeClock, PrivateExim, Process, Setup};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A week's worth leaves at once, and then as much each week: no test takes an hour, in which
/// another one would leave.
const POLICIES: &str = "[on.crossing]\nlog = true\n\
    [destination.slow]\ndomains = [\"slow.test\", \"*.slow.test\"]\n\
    [policy.pace]\nat = \"delivery\"\nkey = \"destination\"\nburst = 60\nlongest = \"10w\"\n\
    default.recipients = \"60/1w\"\n\
    user.\"fast.test\".recipients = \"unlimited\"\n\
    [policy.users]\nat = \"delivery\"\nkey = \"auth\"\nlongest = \"20h\"\n\
    user.alice.recipients = \"2.5/1w\"\n";

const WEEK: i64 = 7 * 86_400;

/// Who decides.
enum Decider {
    Library,
    Socket(Box<Machine>, Process),
}

/// An Exim whose queue is run by the test, and its clock.
struct Later {
    exim: PrivateExim,
    clock: FakeClock,
    decider: Decider,
}

impl Later {
    fn new(by_socket: bool) -> Self {
        Self::with(by_socket, "defer")
    }

    /// With this verdict where there is no reply.
    fn with(by_socket: bool, unanswered: &str) -> Self {
        let clock = FakeClock::new();
        let setup = Setup::new().clock(&clock).auth();
        let (setup, decider) = if by_socket {
            let machine = Box::new(Machine::for_exim(POLICIES, ""));
            let daemon = start(&machine, &clock);
            (setup.socket(&machine.path("policy.sock")), Decider::Socket(machine, daemon))
        } else {
            (setup.library(), Decider::Library)
        };
        let mut exim = setup
            .main(&format!(
                "RATELIMIT_UNANSWERED = {unanswered}\ndomainlist local_domains = here.test\n\
                 queue_only = true\nqueue_run_in_order = true\ndelay_warning =\n.include PRIVATE/exim/exirate.conf",
            ))
            .acl("acl_smtp_rcpt", "  accept\n")
            .router(
                ".include PRIVATE/exim/router_later.conf\n\n\
                 list:\n  driver = redirect\n  local_parts = list\n  domains = here.test\n  \
                 data = v@other.test, a@other.test, b@other.test, \
                 d9ed8f671581d939f5afd21a4c94dcee@exirate-later.invalid\n\n\
                 down:\n  driver = manualroute\n  domains = down.test\n  transport = down\n  \
                 route_list = * 127.0.0.1\n  self = send\n\n\
                 kept:\n  driver = accept\n  transport = kept",
            )
            .transport(
                "down:\n  driver = smtp\n  port = 1\n  allow_localhost\n\n\
                 kept:\n  driver = appendfile\n  file = PRIVATE/log/kept\n  user = Debian-exim\n\n\
                 begin retry\n\n.include PRIVATE/exim/retry_later.conf\nseldom.test * F,4d,1h\n* * F,4d,1s\n",
            )
            .build();
        copy_shipped(&exim);
        if !by_socket {
            apply(&exim, POLICIES);
        }
        exim.start();
        Self { exim, clock, decider }
    }

    /// Sends a message, each with a recipient of its own.
    fn send(&self, login_as: Option<&str>, sender: &str, to: &[String]) {
        let mut client = self.exim.connect(Ipv4Addr::LOCALHOST);
        client.expect();
        client.command("EHLO client.test");
        if let Some(user) = login_as {
            login(&mut client, user);
        }
        for to in to {
            let reply = client.message(sender, &[to], &format!("Subject: {to}\r\n\r\nx"));
            assert!(reply.is_ok(), "{}", reply.text);
        }
        client.quit();
    }

    fn run_queue(&self) {
        let ran = self.exim.run(&["-q"], b"");
        assert_eq!(ran.code, 0, "{ran:?}");
    }

    /// The recipients that were delivered, in their order.
    fn delivered(&self) -> Vec<String> {
        let kept = std::fs::read_to_string(self.exim.folder().join("log/kept"));
        let kept = kept.unwrap_or_default();
        kept.lines().filter_map(|line| line.strip_prefix("Subject: ")).map(str::to_owned).collect()
    }

    /// What `exirate held` prints.
    fn held(&self, arguments: &[&str]) -> Ran {
        let config = self.exim.config().to_str().unwrap();
        let of_exim = ["--exim", kit::exim::PROGRAM, "--config", config];
        self.exirate(&[&["held"], arguments, &of_exim].concat())
    }

    /// What a command prints of the database.
    fn exirate(&self, arguments: &[&str]) -> Ran {
        let mut command = Command::new(env!("CARGO_BIN_EXE_exirate"));
        command.envs(self.clock.environment()).args(arguments);
        let spool = match &self.decider {
            Decider::Library => self.exim.spool().to_owned(),
            Decider::Socket(machine, _) => machine.spool(),
        };
        command.arg("--spool").arg(spool);
        kit::exim::run(command, b"")
    }

    /// How many lines of the main log say that a recipient in this domain waits.
    fn waits(&self, domain: &str) -> usize {
        let log = self.exim.log("main");
        let end = format!("@{domain}> R=exirate_waits defer");
        log.lines().filter(|line| line.contains(&end)).count()
    }
}

/// The daemon, with this clock.
fn start(machine: &Machine, clock: &FakeClock) -> Process {
    let mut command = machine.command();
    command.envs(clock.environment()).stdin(Stdio::null());
    let daemon = Process(command.spawn().unwrap());
    let socket = machine.path("policy.sock");
    kit::until("the daemon listens", || std::os::unix::net::UnixStream::connect(&socket).is_ok());
    daemon
}

fn names(prefix: &str, count: usize, domain: &str) -> Vec<String> {
    (0..count).map(|n| format!("{prefix}{n:03}@{domain}")).collect()
}

/// Each message that waits is listed, with about when it leaves; one leaves at once if it is released.
fn what_waits_is_shown(later: &Later) {
    let listed = later.held(&["--json"]);
    assert_eq!(listed.code, 1, "{listed:?}");
    let listed: Vec<Value> = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!(listed.len(), 90);
    for one in &listed {
        let text = |name: &str| one[name].as_str().unwrap().to_owned();
        let said = (text("state"), text("policy"), text("key"), text("sender"));
        let word = str::to_owned;
        let key = "destination:slow";
        let expected = (word("waiting"), word("pace"), word(key), word("news@here.test"));
        assert_eq!((said, text("why")), (expected, word("61.0 recipients, limit 60/1w")));
        assert_eq!(one["recipients"], 1);
    }
    // One after the other, in a week 60.
    let until = |n: usize| listed[n]["until"].as_i64().unwrap();
    assert_eq!((until(60) - until(0), until(89) - until(0)), (WEEK, 89 * WEEK / 60));
    let id = listed[89]["id"].as_str().unwrap();
    let shown = later.held(&["show", id]);
    assert!(shown.stdout.contains("waits since") && shown.stdout.contains("to:"), "{shown:?}");
    let released = later.held(&["release", id]);
    assert_eq!((released.code, &*released.stderr), (0, ""), "{released:?}");
    later.exim.wait_for_log(&format!("{id} Completed"), 1);
    assert_eq!(later.delivered().len(), 73);
    assert_eq!(later.held(&["destination:fast.test"]).code, 1);
    let table = later.held(&["destination:slow"]).stdout;
    assert_eq!(table.matches("in about 7d ").count(), 1, "{table}");
}

/// A burst to one destination leaves in its order at the pace of its bucket, whatever is killed;
/// other mail does not wait.
fn a_burst_is_spread(by_socket: bool) {
    let mut later = Later::new(by_socket);
    let burst: Vec<String> =
        (0..150).map(|n| format!("to{n:03}@{}", ["slow.test", "mx.slow.test"][n % 2])).collect();
    later.send(None, "news@here.test", &burst);
    later.send(None, "", &names("bounce", 3, "slow.test"));
    later.send(None, "ann@here.test", &names("quick", 3, "other.test"));
    later.send(None, "ann@here.test", &names("fast", 3, "fast.test"));
    later.send(None, "ann@here.test", &names("home", 3, "here.test"));

    later.run_queue();
    let first = later.delivered();
    let (slow, others): (Vec<_>, Vec<_>) = first.into_iter().partition(|to| to.starts_with("to"));
    assert_eq!(slow, burst[..60], "{}", later.exim.log("main"));
    let others: BTreeSet<String> = others.into_iter().collect();
    let expected = [
        names("bounce", 3, "slow.test"),
        names("quick", 3, "other.test"),
        names("fast", 3, "fast.test"),
        names("home", 3, "here.test"),
    ];
    assert_eq!(others, expected.concat().into_iter().collect());
    assert_eq!(later.waits("slow.test") + later.waits("mx.slow.test"), 90);
    let why = "policy pace: 61.0 recipients, limit 60/1w, key destination:slow";
    assert!(later.exim.log("main").contains(why), "{}", later.exim.log("main"));

    // Nothing more in the same week; and the queue names the real recipients.
    later.run_queue();
    assert_eq!(later.delivered().len(), 72);
    let queue = later.exim.run(&["-bp"], b"").stdout;
    assert!(queue.contains("to149@mx.slow.test") && !queue.contains("exirate-later"), "{queue}");

    what_waits_is_shown(&later);

    // In the next one, a runner is killed, and the daemon too.
    // An hour more than it takes until there is room for as many, in which less than one flows off: else
    // the last would wait for as long as the sending above took.
    later.clock.set(WEEK + 3600);
    let mut runner = later.exim.command();
    let mut runner = runner.arg("-q").stdin(Stdio::null()).spawn().unwrap();
    later.exim.wait_for_log("=> to070 <", 1);
    kill_process(Pid::from_child(&runner), Signal::KILL).unwrap();
    runner.wait().unwrap();
    if let Decider::Socket(machine, daemon) = &mut later.decider {
        daemon.signal(Signal::KILL);
        *daemon = start(machine, &later.clock);
    }
    // The process that delivers goes on with its message, which is locked meanwhile.
    // A daemon that is killed may have counted a recipient of which Exim never learns.
    let lost = usize::from(by_socket);
    kit::until("the week's are out", || {
        later.run_queue();
        later.delivered().len() >= 133 - lost
    });
    assert!((133 - lost..=133).contains(&later.delivered().len()));

    later.clock.set(2 * WEEK);
    kit::until("all are out", || {
        later.run_queue();
        later.exim.run(&["-bpc"], b"").stdout.trim() == "0"
    });
    let mut slow = later.delivered();
    slow.retain(|to| to.starts_with("to"));
    // Those that were locked meanwhile let others go first: none is lost, and none is there twice.
    slow.sort();
    assert_eq!(slow, burst, "{}", later.exim.log("main"));
    assert_eq!(later.exim.log("panic"), "");
}

#[test]
fn a_burst_is_spread_by_the_library() {
    a_burst_is_spread(false);
}

#[test]
fn a_burst_is_spread_by_the_socket() {
    a_burst_is_spread(true);
}

/// A recipient counts once for its sender, however often its delivery is tried; and what has waited
/// too long is returned.
#[test]
fn a_recipient_is_counted_once_and_returned_in_the_end() {
    let later = Later::new(false);
    later.send(Some("alice"), "alice@here.test", &names("down", 2, "down.test"));
    for round in 1..5 {
        later.clock.set(round * 5);
        later.run_queue();
    }
    let of_alice = || {
        let rates = crate::policy::rates(&later.exim);
        rates.into_iter().find(|(name, _)| name.ends_with("auth:alice")).map(|(_, rate)| rate)
    };
    assert_eq!(of_alice(), Some(2));
    assert_eq!(later.waits("down.test"), 0, "{}", later.exim.log("main"));
    // One that is over waits, and those that were counted before it still do not.
    later.send(Some("alice"), "alice@here.test", &names("late", 3, "other.test"));
    later.send(Some("bob"), "bob@here.test", &names("bob", 1, "other.test"));
    later.clock.set(60);
    later.run_queue();
    assert_eq!((later.waits("other.test"), later.waits("down.test")), (3, 0));
    assert_eq!(later.delivered(), names("bob", 1, "other.test"));
    // What waits counts for no destination.
    let rates = crate::policy::rates(&later.exim);
    let other: Vec<_> = rates.iter().filter(|(name, _)| name.ends_with("other.test")).collect();
    assert_eq!(other.len(), 1, "{rates:?}");
    assert_eq!(*other[0].1, 1);

    let alerts = || later.exirate(&["events", "deliver"]).stdout;
    assert_eq!(alerts(), "");
    later.clock.set(20 * 3600 + 120);
    later.run_queue();
    let log = later.exim.log("main");
    let why = "policy users: not delivered in time";
    let is_returned = |line: &str| {
        line.contains(" ** ") && line.contains("<late000@other.test>") && line.contains(why)
    };
    assert!(log.lines().any(is_returned), "{log}");
    // An alert of all three.
    let alerts = alerts();
    let said = " alice has mail that has waited too long ";
    assert!(alerts.lines().count() == 1 && alerts.contains(said), "{alerts}");
    assert!(alerts.contains(" unit=overdue_recipients ") && alerts.contains(" evidence=returned"));
    // The bounce goes to her, and says why.
    later.run_queue();
    let kept = std::fs::read_to_string(later.exim.folder().join("log/kept")).unwrap();
    let (_, bounce) = kept.split_once("could not be delivered").unwrap_or_else(|| panic!("{log}"));
    assert!(bounce.contains("late000@other.test") && bounce.contains(why), "{bounce}");
}

/// Who logs in cannot leave uncounted by an empty sender.
fn an_empty_sender_of_a_login_waits(by_socket: bool) {
    let later = Later::new(by_socket);
    later.send(Some("alice"), "", &names("mine", 4, "other.test"));
    later.run_queue();
    assert_eq!(later.delivered(), names("mine", 2, "other.test"), "{}", later.exim.log("main"));
    assert_eq!(later.waits("other.test"), 2);
}

#[test]
fn an_empty_sender_of_a_login_waits_by_the_library() {
    an_empty_sender_of_a_login_waits(false);
}

#[test]
fn an_empty_sender_of_a_login_waits_by_the_socket() {
    an_empty_sender_of_a_login_waits(true);
}

/// A subscriber of a list has an address in the domain of what waits: another one gets the mail all the same.
#[test]
fn no_address_has_one_that_waits_taken_for_done() {
    let later = Later::new(false);
    later.send(Some("alice"), "alice@here.test", &["list@here.test".to_owned()]);
    for round in 1..=3 {
        later.run_queue();
        assert_eq!(later.waits("here.test"), round, "{}", later.exim.log("main"));
        later.clock.set(10 * round as i64);
    }
    // 4.100 has a blank before the colon.
    let log = later.exim.log("main").replace(" : ", ": ");
    let is_sent = |name: &str| log.contains(&format!("=> {name} <list@here.test>"));
    assert_eq!([is_sent("a"), is_sent("b"), is_sent("v")], [true, true, false], "{log}");
    assert!(log.contains("R=exirate_waits: no such domain"), "{log}");
}

/// What a local account has handed over waits while the daemon does not reply, and delays nobody
/// else's mail to the same recipient.
fn undecided_mail_of_an_account_waits(by_socket: bool) {
    let mut later = Later::with(by_socket, "accept");
    if let Decider::Socket(_, daemon) = &mut later.decider {
        daemon.signal(Signal::KILL);
        daemon.0.wait().unwrap();
    }
    let config = later.exim.config().display();
    let script = format!(
        "mount --make-rprivate / 2>/dev/null
         mount -t tmpfs tmpfs /etc/exim4 && cp {config} /etc/exim4/exim4.conf && \
         echo 'Subject: web' | setpriv --reuid=www-data --regid=www-data --clear-groups \
         exim4 -oi -f shop@here.test bob@seldom.test"
    );
    let sent = Command::new("unshare")
        // The root of a chroot is no mount: there, all are private already.
        .args(["--mount", "--propagation", "unchanged", "sh", "-c", &script])
        .output()
        .unwrap();
    assert!(sent.status.success(), "{sent:?}");
    later.run_queue();
    assert_eq!(later.delivered(), Vec::<String>::new());
    let to = vec!["bob@seldom.test".to_owned()];
    later.send(Some("alice"), "alice@here.test", &to);
    later.run_queue();
    assert_eq!(later.delivered(), to, "{}", later.exim.log("main"));
    assert!(later.waits("seldom.test") >= 1, "{}", later.exim.log("main"));
}

#[test]
fn undecided_mail_of_an_account_waits_by_the_library() {
    undecided_mail_of_an_account_waits(false);
}

#[test]
fn undecided_mail_of_an_account_waits_by_the_socket() {
    undecided_mail_of_an_account_waits(true);
}
