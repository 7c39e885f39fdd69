//! What becomes of mail that Postfix and Sendmail have accepted: the follower counts it from their
//! logs.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::net::UnixDatagram;

use exirate::spool::{Options, Spool};
use exirate::store::{Entry, Inspect};
use serde_json::Value;

use super::server::{FrontEnd, Server};
use super::{postfix, sendmail};
use kit::machine::Machine;
use kit::{sink, until};

/// A limit that holds until the fortieth, and one that is never reached.
const POLICY: &str = "version = 1\n[policy.p]\nkey = \"auth\"\n[policy.p.default]\n\
    unknown_recipients = \"39.5/1w\"\nfailed_recipients = \"500/1w\"\n";
/// Each domain has a server of its own, as a reply with 421 ends the connection for all.
const MAIN: &str = "default_transport = smtp:[127.0.0.1]:2501\n\
    transport_maps = inline:{ full.test=smtp:[127.0.0.1]:2502, busy.test=smtp:[127.0.0.1]:2503, \
    silent.test=smtp:[127.0.0.1]:2504 }\n\
    smtp_helo_timeout = 1s\nsmtp_tls_security_level = none\nminimal_backoff_time = 1s\n";

/// Starts the follower, as the unit does, but for its user.
fn follow(machine: &Machine) {
    machine.run(
        "install -d -o exirate-mail -g exirate-mail /var/lib/exirate-follow/exirate-mail
        : >/var/log/follow.log
        setsid setpriv --reuid=exirate-mail --regid=exirate-mail --groups=adm --no-new-privs \
            exirate serve follow --config /etc/exirate/exirate.toml >>/var/log/follow.log 2>&1 </dev/null &
        echo $! >/run/follow.pid",
    );
    let mut said = String::new();
    until("the follower says something", || {
        said = machine.read("/var/log/follow.log");
        said.contains('\n')
    });
    assert!(said.contains("following"), "{said}");
}

fn names(prefix: &str, count: u32, domain: &str) -> Vec<String> {
    (0..count).map(|n| format!("{prefix}{n}@{domain}")).collect()
}

fn send(server: &Server, user: &str, to: &[String]) {
    send_from(server, user, &format!("{user}@mail.test"), to);
}

fn send_from(server: &Server, user: &str, sender: &str, to: &[String]) {
    let mut client = server.machine.login(user);
    let to: Vec<&str> = to.iter().map(String::as_str).collect();
    let reply = client.message(sender, &to, "Subject: x\r\n\r\nx\r\n");
    assert!(reply.is_ok(), "{reply:?}");
    assert!(client.quit().unwrap().is_ok());
}

/// Whether another recipient of alice is accepted.
fn accepts(server: &Server) -> bool {
    let mut client = server.machine.login("alice");
    assert!(client.command("MAIL FROM:<alice@mail.test>").is_ok());
    client.command("RCPT TO:<ok@x.test>").is_ok()
}

/// The rates by unit and login.
fn rates(server: &Server) -> BTreeMap<String, i64> {
    let spool = server.machine.path("/var/lib/exirate");
    let mut spool = Spool::open(&spool, Options::default()).unwrap();
    let mut rates = BTreeMap::new();
    let visit = &mut |entry: Entry| {
        let name = String::from_utf8_lossy(&entry.key).into_owned();
        if let Some(name) = name.strip_prefix("p/") {
            #[allow(clippy::cast_possible_truncation)]
            rates.insert(name.replace("/1w/", " "), entry.average.rate.round() as i64);
        }
    };
    Inspect::for_each(&mut spool, visit).unwrap();
    rates
}

/// What has been counted of alice, when everything before the next message has been.
fn counted(server: &Server, marker: &str) -> (i64, i64) {
    send(server, marker, &["gone@x.test".to_owned()]);
    let of = |unit: &str, user: &str| format!("{unit} auth:{user}@mail.test");
    let marker = of("unknown_recipients", marker);
    until("the marker is counted", || rates(server).contains_key(&marker));
    // Records are read one after another: alice's may have been, before all of hers were counted.
    let found = rates(server);
    let of = |unit| found.get(&of(unit, "alice")).copied().unwrap_or_default();
    (of("unknown_recipients"), of("failed_recipients"))
}

/// Waits until nothing is delivered.
fn delivered(server: &Server, count: usize) {
    until("all has been tried", || {
        let log = server.machine.read("/var/log/mail.log");
        log.lines().filter(|line| line.contains(", status=")).count() >= count
    });
}

/// Puts the policy into use, and names the log.
fn configure(machine: &Machine) {
    machine.write("/etc/exirate/policy.toml", POLICY);
    machine.run(
        "set -e
        exirate policy apply /etc/exirate/policy.toml
        echo 'list: gone-a@x.test, gone-b@x.test, spam-c@x.test' >>/etc/aliases
        newaliases
        printf '[follow]\\nlog = \"/var/log/mail.log\"\\n' >>/etc/exirate/exirate.toml",
    );
}

#[test]
fn a_list_of_which_a_fifth_does_not_exist_is_over_at_its_number_and_no_sooner() {
    let server = postfix::start_with("bookworm-postfix", FrontEnd::Policy, MAIN);
    let machine = &server.machine;
    for port in 2501..=2503 {
        sink::serve(machine.listen(port));
    }
    let silence = machine.listen(2504);
    configure(machine);
    follow(machine);
    let mut to = names("gone", 39, "x.test");
    to.extend(names("ok", 80, "x.test"));
    to.extend(names("full", 40, "full.test"));
    to.extend(names("busy", 30, "busy.test"));
    to.extend(names("quiet", 10, "silent.test"));
    send(&server, "alice", &to);
    // A list of this server: its members were not chosen by the client.
    send(&server, "alice", &["list@mail.test".to_owned()]);
    // Where replies go is not chosen by who sends them.
    send_from(&server, "alice", "", &names("gone-reply", 3, "x.test"));
    delivered(&server, 199 + 1 + 3 + 3);
    assert_eq!(counted(&server, "dora"), (39, 39), "{}", machine.read("/var/log/mail.log"));
    assert!(accepts(&server));
    // Alice's, that of the marker, and three that count for nobody.
    until("status shows what was counted", || {
        let status: Value = serde_json::from_str(&machine.run("exirate status --json")).unwrap();
        let follower = &status["follower"];
        assert_eq!(follower["running"], true, "{status}");
        follower["counted_today"] == 43
    });
    assert!(machine.run("exirate status").contains("43 failed recipients found today"));

    // However often the queue is run, over a rotation and a kill.
    machine.run(
        "postqueue -f
        kill -KILL $(cat /run/follow.pid)
        postqueue -f
        # As logrotate does: what Postfix itself creates, root alone can read.
        mv /var/log/mail.log /var/log/mail.log.1
        install -m 640 -g adm /dev/null /var/log/mail.log
        postfix reload",
    );
    send(&server, "alice", &["gone-last@x.test".to_owned(), "spam@x.test".to_owned()]);
    machine.run("postqueue -f");
    follow(machine);
    assert_eq!(counted(&server, "emil"), (40, 41), "{}", machine.read("/var/log/follow.log"));
    assert!(!accepts(&server));
    // A configuration that is read again, and one that cannot be used.
    let again = |text: &str, said: &str| {
        machine.write("/etc/exirate/exirate.toml", text);
        machine.run("kill -HUP $(cat /run/follow.pid)");
        until(said, || machine.read("/var/log/follow.log").contains(said));
    };
    let text = machine.read("/etc/exirate/exirate.toml");
    again(&(text.clone() + "state = \"/nowhere\"\n"), "cannot use /nowhere");
    again(&(text + "# again\n"), "was read again");
    assert_eq!(counted(&server, "flora"), (40, 41));
    drop(silence);
}

/// Writes what programs there log to a file, as a syslog does.
pub(super) fn syslog(machine: &Machine) {
    let socket = UnixDatagram::bind(machine.path("/dev/log")).unwrap();
    machine.run("chmod 666 /dev/log");
    let path = machine.path("/var/log/mail.log");
    std::thread::spawn(move || {
        let mut buffer = [0; 8192];
        while let Ok(length) = socket.recv(&mut buffer) {
            // `<22>Nov 26 15:38:45 sendmail[88]: text`
            let text = String::from_utf8_lossy(&buffer[..length]);
            let Some((_, text)) = text.split_once('>') else { continue };
            let Some((time, rest)) = text.split_at_checked("Nov 26 15:38:45 ".len()) else {
                continue;
            };
            let file = File::options().create(true).append(true).open(&path);
            let Ok(mut file) = file else { return };
            writeln!(file, "{time}mx1 {}", rest.trim_end_matches(['\n', '\0'])).unwrap();
        }
    });
}

#[test]
fn of_sendmails_log_each_recipient_counts_once() {
    let more = "define(`SMART_HOST', `relay:[127.0.0.1]')dnl\n\
                define(`RELAY_MAILER_ARGS', `TCP $h 2501')dnl\n";
    let server = sendmail::start_with(more, syslog);
    let machine = &server.machine;
    sink::serve(machine.listen(2501));
    configure(machine);
    follow(machine);
    let mut to = names("gone", 39, "x.test");
    to.extend(names("ok", 20, "x.test"));
    to.extend(names("full", 10, "x.test"));
    to.push("list@mail.test".to_owned());
    send(&server, "alice", &to);
    send_from(&server, "alice", "", &names("gone-reply", 3, "x.test"));
    let log = || machine.read("/var/log/mail.log");
    until("all have been tried", || log().matches("to=<gone").count() >= 39 + 3);
    assert_eq!(counted(&server, "dora"), (39, 39), "{}", log());
    assert!(accepts(&server));
    machine.run(
        "kill -KILL $(cat /run/follow.pid); mv /var/log/mail.log /var/log/mail.log.1; sendmail -q",
    );
    send(&server, "alice", &["gone-last@x.test".to_owned(), "spam@x.test".to_owned()]);
    until("all have been tried", || log().contains("to=<spam@"));
    follow(machine);
    assert_eq!(counted(&server, "emil"), (40, 41), "{}", machine.read("/var/log/follow.log"));
    assert!(!accepts(&server));
}
