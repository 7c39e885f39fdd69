//! What becomes of mail that was accepted: the follower counts it from Exim's log.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::acl_files::login;
use crate::policy::{OVER, apply, rates};
use exirate::rate::habits::Sensitivity;
use exirate::spool::habits::{SentMessage, habits_key};
use exirate::spool::{Options, Spool};
use kit::{Client, PrivateExim, Process, Setup, until};
use rustix::process::Signal;

/// A limit that holds until the fortieth, and one that is never reached.
const POLICY: &str = "[policy.p]\nkey = \"auth\"\n[policy.p.default]\n\
    unknown_recipients = \"39.5/1w\"\nfailed_recipients = \"500/1w\"\n";

/// A server on the loopback interface that replies to each recipient as its name says.
fn sink() -> u16 {
    let (listener, port) = silent();
    kit::sink::serve(listener);
    port
}

/// A server that accepts connections and says nothing.
fn silent() -> (TcpListener, u16) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// An Exim that delivers to these ports, when the queue is run.
fn exim(sink: u16, silent: u16) -> PrivateExim {
    let routers = format!(
        "list:\n  driver = redirect\n  domains = here.test\n  local_parts = list\n  \
         data = gone-a@x.test, gone-b@x.test, spam-c@x.test\n\n\
         nowhere:\n  driver = redirect\n  domains = nowhere.test\n  allow_fail\n  \
         data = :fail: Unrouteable address\n\n\
         out:\n  driver = manualroute\n  domains = *.test\n  transport = out\n  self = send\n  \
         route_list = silent.test 127.0.0.1::{silent}; * 127.0.0.1::{sink}"
    );
    let mut exim = Setup::new()
        .library()
        .auth()
        .main("queue_only = true\nremote_max_parallel = 1\nretry_interval_max = 1s")
        .acl("acl_smtp_rcpt", OVER)
        .router(&routers)
        .transport(
            "out:\n  driver = smtp\n  allow_localhost\n  command_timeout = 1s\n  \
             connect_timeout = 1s\n  hosts_avoid_tls = *\n  max_rcpt = 500",
        )
        .build();
    apply(&exim, POLICY);
    exim.start();
    exim
}

/// The follower of that Exim's log.
fn follower(exim: &PrivateExim) -> Process {
    let folder = exim.folder();
    let state = folder.join("follow");
    std::fs::create_dir_all(&state).unwrap();
    let config = folder.join("exirate.toml");
    let text = format!(
        "[mail]\nspool = {:?}\n[follow]\nlog = {:?}\nstate = {state:?}\n",
        exim.spool(),
        folder.join("log/mainlog"),
    );
    std::fs::write(&config, text).unwrap();
    let log = std::fs::File::options().create(true).append(true).open(folder.join("follow.log"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_exirate"));
    command.args(["serve", "follow", "--config"]).arg(&config).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(log.unwrap());
    let follower = Process(command.spawn().unwrap());
    until("the follower reads", || {
        let said = std::fs::read_to_string(folder.join("follow.log")).unwrap_or_default();
        said.contains("following")
    });
    follower
}

fn client(exim: &PrivateExim, user: &str) -> Client {
    let mut client = exim.connect(Ipv4Addr::LOCALHOST);
    client.expect();
    client.command("EHLO client.test");
    login(&mut client, user);
    client
}

fn send(exim: &PrivateExim, user: &str, to: &[String]) {
    let mut client = client(exim, user);
    let to: Vec<&str> = to.iter().map(String::as_str).collect();
    assert!(client.message("a@here.test", &to, "Subject: x\r\n\r\nx").is_ok());
    client.quit();
}

/// Whether another recipient of this user is accepted.
fn accepts(exim: &PrivateExim, user: &str) -> bool {
    let mut client = client(exim, user);
    client.command("MAIL FROM:<a@here.test>");
    client.command("RCPT TO:<ok@x.test>").is_ok()
}

fn run_queue(exim: &PrivateExim) {
    exim.run(&["-qff"], b"");
}

/// What has been counted, when everything before the next message has been.
fn counted(exim: &PrivateExim, marker: u32) -> BTreeMap<String, i64> {
    let user = format!("marker{marker}");
    send(exim, &user, &["gone@x.test".to_owned()]);
    run_queue(exim);
    let key = format!("unknown_recipients auth:{user}");
    until("the marker is counted", || rates(exim).contains_key(&key));
    let mut rates = rates(exim);
    rates.retain(|name, _| !name.contains("marker"));
    rates
}

fn names(prefix: &str, count: u32, domain: &str) -> Vec<String> {
    (0..count).map(|n| format!("{prefix}{n}@{domain}")).collect()
}

#[test]
fn a_list_of_which_a_fifth_does_not_exist_is_over_at_its_number_and_no_sooner() {
    let (sink, (silence, port)) = (sink(), silent());
    let exim = exim(sink, port);
    let log = exim.folder().join("log");
    let follower = follower(&exim);
    let mut to = names("gone", 38, "x.test");
    to.push("nobody@nowhere.test".to_owned());
    to.extend(names("ok", 80, "x.test"));
    to.extend(names("full", 40, "full.test"));
    to.extend(names("busy", 30, "busy.test"));
    to.extend(names("quiet", 10, "silent.test"));
    assert_eq!(to.len(), 199);
    send(&exim, "alice", &to);
    // A list of this server: its members were not chosen by the client.
    send(&exim, "alice", &["list@here.test".to_owned()]);
    run_queue(&exim);
    let expected = |unknown, failed| {
        let of = |unit: &str, n| (format!("{unit} auth:alice"), n);
        BTreeMap::from([of("unknown_recipients", unknown), of("failed_recipients", failed)])
    };
    assert_eq!(counted(&exim, 1), expected(39, 39), "{}", exim.log("main"));
    assert!(accepts(&exim, "alice"));

    // However often the queue is run, and however the follower ends.
    follower.signal(Signal::KILL);
    drop(follower);
    run_queue(&exim);
    std::fs::rename(log.join("mainlog"), log.join("mainlog.1")).unwrap();
    run_queue(&exim);
    let follower = self::follower(&exim);
    assert_eq!(counted(&exim, 2), expected(39, 39));
    assert!(accepts(&exim, "alice"));

    // Failures while nobody reads, of a message that was received before a rotation, which a
    // compressed file has.
    send(&exim, "alice", &["gone-last@x.test".to_owned(), "spam@x.test".to_owned()]);
    follower.signal(Signal::KILL);
    drop(follower);
    compress(&log.join("mainlog.1"), &log.join("mainlog.2.gz"));
    std::fs::rename(log.join("mainlog"), log.join("mainlog.1")).unwrap();
    run_queue(&exim);
    let _follower = self::follower(&exim);
    assert_eq!(counted(&exim, 3), expected(40, 41));
    assert!(!accepts(&exim, "alice"));
    assert!(accepts(&exim, "bob"));
    drop(silence);
}

/// Whoever writes to an account that replies by itself chooses where the replies go.
#[test]
fn failures_of_mail_with_an_empty_sender_count_for_nobody() {
    let (sink, (_silence, port)) = (sink(), silent());
    let exim = exim(sink, port);
    let _follower = follower(&exim);
    for (sender, count) in [("", 5), ("a@here.test", 2)] {
        let mut client = client(&exim, "alice");
        for n in 0..count {
            let to = [format!("gone{n}@x.test")];
            let to: Vec<&str> = to.iter().map(String::as_str).collect();
            assert!(client.message(sender, &to, "Subject: x\r\n\r\nx").is_ok());
        }
        client.quit();
    }
    run_queue(&exim);
    let of = |unit: &str| (format!("{unit} auth:alice"), 2);
    let expected = BTreeMap::from([of("unknown_recipients"), of("failed_recipients")]);
    assert_eq!(counted(&exim, 1), expected, "{}", exim.log("main"));
}

/// The score of alice's habits.
fn score(exim: &PrivateExim) -> f64 {
    let mut name = Vec::new();
    let mut spool = Spool::open(&exim.spool(), Options::default()).unwrap();
    let habits = spool.habits(habits_key(b"auth:alice", &mut name)).unwrap().unwrap();
    habits.score(habits.at())
}

#[test]
fn recipients_that_do_not_exist_are_evidence_of_a_stolen_account() {
    let (sink, (_silence, port)) = (sink(), silent());
    let exim = exim(sink, port);
    let habits = "key = \"auth\"\nhabits = \"observe\"\nhabits_failures = true\n";
    apply(&exim, &POLICY.replacen("key = \"auth\"\n", habits, 1));
    // What she did in the last months; then three messages to strangers.
    let mut spool = Spool::open(&exim.spool(), Options::default()).unwrap();
    let now = jiff::Timestamp::now().as_second();
    let known = (0..60).map(|n| (now - 6_000_000 + n * 90_000, "friend@x.test".to_owned()));
    let strangers = (0..3).map(|n| (now - 30 + n, format!("gone{n}@x.test")));
    let mut name = Vec::new();
    for (at, to) in known.chain(strangers) {
        let message = SentMessage { at, client: None, recipients: [to.as_bytes()] };
        let key = habits_key(b"auth:alice", &mut name);
        let update = spool.learn_habits(key, message, Sensitivity::Normal).unwrap();
        assert_eq!(update.alarm, None);
    }
    drop(spool);
    let before = score(&exim);
    let _follower = follower(&exim);
    let to = ["gone0@x.test", "gone1@x.test", "friend@x.test", "ok@x.test"];
    send(&exim, "alice", &to.map(str::to_owned));
    run_queue(&exim);
    counted(&exim, 1);
    let more = score(&exim) - before;
    assert!((4.2..4.4).contains(&more), "{more}: {}", exim.log("main"));
}

fn compress(from: &Path, to: &Path) {
    let out = std::fs::File::create(to).unwrap();
    let done = Command::new("gzip").arg("-c").arg(from).stdout(out).status().unwrap();
    assert!(done.success());
    std::fs::remove_file(from).unwrap();
}
