//! The files in `exim/`, as an administrator includes them, in a real Exim.

use std::io::{Read as _, Write as _};
use std::net::Ipv4Addr;
use std::os::unix::fs::chown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use exirate::store::{Entry, Inspect, OwnedKey};
use exirate::trace::{Access, ContentQuery, Part, Query, TraceStore, decode, trace_directory};
use kit::exim::{Ran, open_to_all, run, user};
use kit::{Client, PrivateExim, Setup};

/// An Exim with `macros` above `exirate.conf`, and `file` in the ACL `option`.
pub(crate) fn exim(macros: &str, option: &str, file: &str) -> PrivateExim {
    let exim = Setup::new()
        .library()
        .auth()
        .main(macros)
        .main(".include PRIVATE/exim/exirate.conf")
        .proxied()
        .main("hostlist relay_from_hosts = 127.0.0.3")
        .acl(option, &format!(".include PRIVATE/exim/{file}\n  accept\n"))
        .build();
    copy_shipped(&exim);
    exim
}

/// Copies the shipped files beside the configuration: Exim's user reads some of them at run
/// time, and may not look everywhere.
pub(crate) fn copy_shipped(exim: &PrivateExim) {
    let copy = exim.folder().join("exim");
    std::fs::create_dir(&copy).unwrap();
    open_to_all(&copy);
    for entry in std::fs::read_dir(shipped()).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, copy.join(path.file_name().unwrap())).unwrap();
    }
}

#[test]
fn without_the_libraries_the_files_are_empty() {
    let mut files = 0;
    for entry in std::fs::read_dir(shipped()).unwrap() {
        let path = entry.unwrap().path();
        if !path.file_name().unwrap().to_str().unwrap().starts_with("acl_") {
            continue;
        }
        files += 1;
        // EXIRATE is undefined where the file that names the libraries is missing.
        let exim = Setup::new()
            .main(&format!(".include {}", shipped().join("exirate.conf").display()))
            .acl("acl_smtp_rcpt", &format!(".include {}\n  accept\n", path.display()))
            .build();
        let config = std::fs::read_to_string(exim.config()).unwrap();
        let config: Vec<&str> = config.lines().filter(|l| !l.starts_with("EXIRATE")).collect();
        std::fs::write(exim.config(), config.join("\n") + "\n").unwrap();
        let (mut client, _) = exim.pipe(&["-bs"]);
        assert_eq!(client.expect().code, 220, "{}", path.display());
        client.command("EHLO client.test");
        client.command("MAIL FROM:<alice@client.test>");
        let reply = client.command("RCPT TO:<bob@private.test>");
        assert_eq!(reply.code, 250, "{}: {}", path.display(), reply.text);
    }
    assert!(files >= 11, "{files}");
}

pub(crate) fn shipped() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/exim"))
}

pub(crate) fn login(client: &mut Client, name: impl AsRef<[u8]>) {
    let plain = base64(&[b"\0", name.as_ref(), b"\0good"].concat());
    assert_eq!(client.command(format!("AUTH PLAIN {plain}")).code, 235);
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let word =
            chunk.iter().fold(0, |word, &b| word << 8 | u32::from(b)) << (8 * (3 - chunk.len()));
        for n in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * n) & 63) as usize];
            text.push(if n <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

/// A session from `source` that has said EHLO.
pub(crate) fn session(exim: &PrivateExim, source: [u8; 4]) -> Client {
    let mut client = exim.connect(Ipv4Addr::from(source));
    assert_eq!(client.expect().code, 220);
    client.command("EHLO client.test");
    client
}

/// Replies to RCPT commands for these local parts.
pub(crate) fn recipients(client: &mut Client, names: &[&str]) -> Vec<String> {
    assert_eq!(client.command("MAIL FROM:<s@client.test>").code, 250);
    let replies = names.iter().map(|n| client.command(format!("RCPT TO:<{n}@private.test>")).text);
    replies.collect()
}

pub(crate) fn codes(replies: &[String]) -> Vec<&str> {
    replies.iter().map(|r| &r[..3]).collect()
}

#[test]
fn users_may_write_to_so_many_people() {
    let mut exim = exim("RATELIMIT_USER = 2.5 / 1w", "acl_smtp_rcpt", "acl_check_rcpt.conf");
    exim.start();
    let mut client = session(&exim, [127, 0, 0, 1]);
    assert_eq!(codes(&recipients(&mut client, &["a", "b", "c", "d"])), ["250"; 4]);
    drop(client);
    let mut client = session(&exim, [127, 0, 0, 1]);
    login(&mut client, "alice");
    let replies = recipients(&mut client, &["a", "a", "b", "c"]);
    assert_eq!(codes(&replies), ["250", "250", "250", "451"], "{replies:?}");
    let text = &replies[3];
    assert!(text.starts_with("451 Sender rate 3.0 / 1w is over 2.5; try again in "), "{text}");
    let wait = text.rsplit(' ').next().unwrap().strip_suffix('s').unwrap();
    assert!(wait.parse::<u32>().unwrap() > 0, "{text}");
    drop(client);
    let mut client = session(&exim, [127, 0, 0, 2]);
    login(&mut client, "bob");
    assert_eq!(codes(&recipients(&mut client, &["a", "b"])), ["250", "250"]);
    assert_eq!(exim.log("panic"), "");
}

#[test]
fn a_user_has_one_limit_whatever_the_name_looks_like() {
    // An account called like an option has a limit, and ALICE is alice.
    for (file, option) in
        [("acl_check_rcpt.conf", "acl_smtp_rcpt"), ("acl_check_rcpt_lookup.conf", "acl_smtp_rcpt")]
    {
        let macros = "RATELIMIT_USER = 2.5 / 1w\nRATELIMIT_FILE = PRIVATE/exim/limits";
        let mut exim = exim(macros, option, file);
        exim.start();
        for [first, second] in
            [["noupdate", "noupdate"], ["a/noupdate/b", "A/NoUpdate/b"], ["alice", "ALICE"]]
        {
            let mut client = session(&exim, [127, 0, 0, 1]);
            login(&mut client, first);
            let replies = recipients(&mut client, &["a", "b", "c", "d"]);
            assert_eq!(codes(&replies), ["250", "250", "451", "451"], "{file} {first}");
            let mut client = session(&exim, [127, 0, 0, 1]);
            login(&mut client, second);
            assert_eq!(codes(&recipients(&mut client, &["e"])), ["451"], "{file} {second}");
        }
        assert_eq!(exim.log("panic"), "");
    }
}

#[test]
fn clients_may_name_so_many_recipients() {
    let mut exim =
        exim("RATELIMIT_CLIENT = 2.5 / 1w", "acl_smtp_rcpt", "acl_check_rcpt_client.conf");
    exim.start();
    let mut client = session(&exim, [127, 0, 0, 2]);
    let replies = recipients(&mut client, &["a", "a", "a"]);
    assert_eq!(codes(&replies), ["250", "250", "451"], "{replies:?}");
    assert!(replies[2].contains("is over 2.5; try again in "), "{replies:?}");
    // Our own relay, and a user, are let alone.
    let mut relay = session(&exim, [127, 0, 0, 3]);
    assert_eq!(codes(&recipients(&mut relay, &["a", "a", "a", "a"])), ["250"; 4]);
    let mut client = session(&exim, [127, 0, 0, 2]);
    login(&mut client, "alice");
    assert_eq!(codes(&recipients(&mut client, &["a", "a", "a", "a"])), ["250"; 4]);
    assert_eq!(exim.log("panic"), "");
}

#[test]
fn clients_are_slowed_down() {
    let macros = "RATELIMIT_BRISK = 2.5 / 1w\nRATELIMIT_DELAY = 0s";
    let mut exim = exim(macros, "acl_smtp_rcpt", "acl_check_rcpt_delay.conf");
    exim.start();
    let mut client = session(&exim, [127, 0, 0, 1]);
    assert_eq!(codes(&recipients(&mut client, &["a", "b", "c", "d"])), ["250"; 4]);
    // leaky: the third and the fourth were not counted.
    exim.wait_for_log("slowed down: 127.0.0.1 at 3.0 / 1w", 2);
    assert_eq!(exim.log("panic"), "");
}

#[test]
fn limits_are_looked_up_in_the_file() {
    let macros = "RATELIMIT_USER = 2.5 / 1w\nRATELIMIT_FILE = PRIVATE/exim/limits";
    let mut exim = exim(macros, "acl_smtp_rcpt", "acl_check_rcpt_lookup.conf");
    exim.start();
    let names: Vec<String> = (0..40).map(|n| format!("user{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let passed = |user: &str| {
        let mut client = session(&exim, [127, 0, 0, 1]);
        login(&mut client, user);
        let replies = recipients(&mut client, &names);
        replies.iter().take_while(|r| r.starts_with("250")).count()
    };
    assert_eq!(passed("nobody"), 2);
    // 20 / 1h: the rate decays a little on the way. Once in 400 runs the Bloom filter
    // takes one of the addresses for an earlier one, which then does not count.
    let passed_by_intern = passed("intern");
    assert!((20..=21).contains(&passed_by_intern), "{passed_by_intern}");
    assert_eq!(passed("helpdesk"), names.len());
    assert_eq!(exim.log("panic"), "");
}

#[test]
fn rates_are_measured_and_nothing_is_refused() {
    let mut exim = exim("", "acl_smtp_rcpt", "acl_check_rcpt_measure.conf");
    exim.start();
    let mut client = session(&exim, [127, 0, 0, 9]);
    assert_eq!(codes(&recipients(&mut client, &["a", "b", "c"])), ["250"; 3]);
    for rate in ["1.0", "2.0", "3.0"] {
        exim.wait_for_log(&format!("measured: 127.0.0.9 sends {rate} recipients / 1h"), 1);
    }
    assert_eq!(exim.log("panic"), "");
}

#[test]
fn what_only_measures_or_logs_never_defers() {
    let both = "acl_check_rcpt_measure.conf\n  accept\nrepeated:\n  .include PRIVATE/exim/\
                acl_check_data_repeated.conf";
    let mut exim = exim("acl_smtp_data = repeated", "acl_smtp_rcpt", both);
    // Neither store can be used.
    std::fs::write(exim.spool().join("exirate"), "in its place").unwrap();
    exim.start();
    let mut client = session(&exim, [127, 0, 0, 9]);
    for _ in 0..2 {
        assert_eq!(codes(&recipients(&mut client, &["a", "b", "c"])), ["250"; 3]);
        let text = "Subject: x\n\nthe parcel is under the third step of the stairs\n";
        assert_eq!(client.data(text).code, 250);
    }
    client.quit();
    let log = exim.log("main");
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("exirate:")).collect();
    assert_eq!(lines.len(), 2, "once a process by each library: {log}");
    for (line, function) in lines.iter().zip([
        "ratelimit_or_no failed and returns \"no\": ratelimit database not available",
        "recorded_or_no failed and returns \"no\": ",
    ]) {
        assert!(line.contains(&format!("exirate: {function}")), "{log}");
    }
    assert!(!log.contains("measured:") && !log.contains("rejected"), "{log}");
    assert_eq!(exim.log("panic"), "");
    for (call, wanted) in [
        ("RATELIMIT_SAFELY_OVER{many / 1h}}", "\"many\" is not a positive number"),
        ("RATELIMIT_SAFELY_OVER{5 / 1h}{a}{b}{c}}", "but 4 were given"),
        (
            "TRACE_SAFELY_SEEN{keys}}",
            "exirate: recorded_or_no failed and returns \"no\": recorded: ",
        ),
    ] {
        let ran = exim.expand(call);
        assert_eq!(ran.stdout, "no\n", "{call}: {ran:?}");
        assert!((ran.stderr + &exim.log("main")).contains(wanted), "{call}: {}", exim.log("main"));
    }
}

#[test]
fn connections_are_counted() {
    let mut exim =
        exim("RATELIMIT_CONNECT = 2.5 / 1w", "acl_smtp_connect", "acl_check_connect.conf");
    exim.start();
    let mut greetings = Vec::new();
    // All loopback addresses are one client.
    for source in [1, 1, 1, 2] {
        let mut client = exim.connect(Ipv4Addr::new(127, 0, 0, source));
        greetings.push(client.expect().text);
    }
    // Another one.
    greetings.push(exim.connect(Ipv4Addr::new(192, 0, 2, 7)).expect().text);
    assert_eq!(codes(&greetings), ["220", "220", "451", "451", "220"], "{greetings:?}");
    assert!(greetings[2].contains("Sender rate 3.0 / 1w is over 2.5"), "{greetings:?}");
    assert_eq!(exim.log("panic"), "");
}

#[test]
fn bytes_are_counted() {
    let mut exim = exim("RATELIMIT_BYTES = 8k / 1w", "acl_smtp_data", "acl_check_data.conf");
    exim.start();
    let text = |bytes: usize| format!("Subject: x\n\n{}", "0123456789abcde\n".repeat(bytes / 16));
    let mut client = session(&exim, [127, 0, 0, 1]);
    login(&mut client, "alice");
    let mut send = |bytes| client.message("s@client.test", &["a@private.test"], &text(bytes)).text;
    assert_eq!(&send(4_000)[..3], "250");
    let reply = send(6_000);
    assert!(reply.starts_with("451 Sender rate 1") && reply.contains("try again in"), "{reply}");
    let reply = send(9_000);
    assert!(reply.starts_with("451") && reply.ends_with("this is too much at once"), "{reply}");
    // What was refused was not counted.
    assert_eq!(&send(1_000)[..3], "250");
    for name in ["ALICE", "noupdate"] {
        let mut client = session(&exim, [127, 0, 0, 1]);
        login(&mut client, name);
        let mut send = |bytes| client.message("s@client.test", &["a@private.test"], &text(bytes));
        let first = if name == "ALICE" { 4_000 } else { 9_000 };
        assert_eq!(send(first).code, 451, "{name}");
    }
    assert_eq!(exim.log("panic"), "");
}

/// Whether there is a daemon is seen by the connection that asks it.
#[test]
fn what_exim_itself_begins_connects_once() {
    let macros = "RATELIMIT_LOCAL = 2.5 / 1w\nRATELIMIT_EXEMPT = 0\n\
                  exim_user = www-data\nexim_group = www-data";
    let exim = exim(macros, "acl_not_smtp", "acl_not_smtp.conf");
    let (uid, gid) = user("www-data");
    let database = exim.spool().join("exirate");
    std::fs::create_dir_all(&database).unwrap();
    for path in [&exim.folder().join("spool"), &exim.folder().join("log"), &database] {
        chown(path, Some(uid), Some(gid)).unwrap();
    }
    let socket = database.join("callers");
    let listener = UnixListener::bind(&socket).unwrap();
    chown(&socket, Some(uid), Some(gid)).unwrap();
    let daemon = std::thread::spawn(move || {
        let mut requests = Vec::new();
        for stream in listener.incoming() {
            let (mut stream, mut request) = (stream.unwrap(), String::new());
            stream.read_to_string(&mut request).unwrap();
            if request == "end" {
                break;
            }
            requests.push(request);
            // Who only looks whether somebody listens is gone.
            let _ = stream.write_all(b"over=no\n\n");
        }
        requests
    });
    let mut command = exim.command();
    command.args(["-t"]).uid(uid).gid(gid);
    let ran = run(command, b"From: f@client.test\nTo: a@private.test\n\nhello\n");
    assert_eq!(ran.code, 0, "{ran:?}");
    UnixStream::connect(&socket).unwrap().write_all(b"end").unwrap();
    let requests = daemon.join().unwrap();
    let starts = requests.iter().map(|request| request.lines().next().unwrap_or_default());
    assert_eq!(starts.collect::<Vec<_>>(), ["request=exirate_ratelimit"], "{requests:?}");
}

#[test]
fn local_accounts_may_write_to_so_many_recipients() {
    // Who names a configuration of their own has no rights but their own, so
    // this Exim belongs to the account; it is limited all the same.
    let macros = "RATELIMIT_LOCAL = 2.5 / 1w\nRATELIMIT_EXEMPT = 0\n\
                  exim_user = www-data\nexim_group = www-data";
    let exim = exim(macros, "acl_not_smtp", "acl_not_smtp.conf");
    let (uid, gid) = user("www-data");
    for name in ["spool", "log"] {
        chown(exim.folder().join(name), Some(uid), Some(gid)).unwrap();
    }
    let message = b"From: f@client.test\nTo: a@private.test\n\nhello\n";
    for _ in 0..4 {
        let ran = exim.run(&["-t"], message);
        assert_eq!(ran.code, 0, "root is not limited: {ran:?}");
    }
    let _daemon = kit::front_ends::serve_callers(exim.folder());
    let send = |message: &[u8]| {
        let mut command = exim.command();
        command.args(["-t"]).uid(uid).gid(gid);
        run(command, message)
    };
    // One message to thousands is no one message.
    let to: Vec<String> = (0..3001).map(|n| format!("u{n}@private.test")).collect();
    let many = format!("From: f@client.test\nTo: {}\n\nhello\n", to.join(",\n "));
    let refused = send(many.as_bytes());
    assert_eq!(refused.code, 1, "{refused:?}");
    let said = "account www-data sent to 3001.0 recipients / 1w";
    assert!(refused.stderr.contains(said), "{refused:?}");
    // It counted, as it was tried.
    assert_eq!(send(message).code, 1);
    let reset = exirate::spool::Spool::open(&exim.spool(), exirate::spool::Options::default());
    let mut reset = reset.unwrap();
    let mut keys = Vec::new();
    let visit = &mut |entry: Entry| keys.push(OwnedKey::from(entry.record_key()));
    Inspect::for_each(&mut reset, visit).unwrap();
    assert_eq!(keys.len(), 1);
    assert!(Inspect::remove(&mut reset, keys[0].key()).unwrap().is_some());
    let ran: Vec<Ran> = (0..3).map(|_| send(message)).collect();
    let codes: Vec<i32> = ran.iter().map(|ran| ran.code).collect();
    assert_eq!(codes, [0, 0, 1], "{ran:?}");
    // It logs to standard error, as the log is root's.
    assert!(ran[2].stderr.contains("account www-data sent to 3.0 recipients / 1w"), "{ran:?}");
    assert!(ran[2].stderr.contains(" / 1w is over 2.5; try again in "), "{ran:?}");
    assert_eq!(exim.log("panic"), "");
}

#[test]
fn what_was_held_is_counted_and_released_once() {
    let macros = "RATELIMIT_LOCAL = 2.5 / 1w\nRATELIMIT_EXEMPT = 0\n\
                  exim_user = www-data\nexim_group = www-data";
    let exim = exim(macros, "acl_not_smtp", "acl_not_smtp.conf");
    let (uid, gid) = user("www-data");
    for name in ["spool", "log"] {
        chown(exim.folder().join(name), Some(uid), Some(gid)).unwrap();
    }
    let send = |to: &[&str]| {
        let mut command = exim.command();
        command.args(["-i"]).args(to).uid(uid).gid(gid);
        let ran = run(command, b"Subject: x\n\nhello\n");
        assert_eq!(ran.code, 0, "{ran:?}");
    };
    let held = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_exirate"));
        command.arg("held").args(arguments).arg("--exim").arg(kit::exim::PROGRAM);
        run(
            {
                command.arg("--config").arg(exim.config()).arg("--spool").arg(exim.spool());
                command
            },
            b"",
        )
    };
    let rates = || {
        let mut spool =
            exirate::spool::Spool::open(&exim.spool(), exirate::spool::Options::default());
        let mut rates = Vec::new();
        let visit = &mut |entry: Entry| rates.push(entry.average.rate.round() as i64);
        Inspect::for_each(spool.as_mut().unwrap(), visit).unwrap();
        rates
    };
    // Nobody decides.
    send(&["one@private.test"]);
    // Exim delivers what has no sender after some days, frozen or not.
    send(&["-f", "<>", "two@private.test", "three@private.test"]);
    let shown = held(&[]);
    assert_eq!(shown.stdout.matches("(undecided)").count(), 2, "{shown:?}");
    assert!(shown.stdout.contains("local:"), "{shown:?}");
    let tried = held(&["decide"]);
    assert_eq!(tried.code, 2, "{tried:?}");
    let left = held(&["--json"]).stdout;
    assert_eq!(left.matches("(undecided)").count(), 2);
    // What had no sender is shown so.
    for (sender, count) in [("www-data@", 1), ("\"", 1)] {
        let sender = format!("\"sender\":\"{sender}");
        assert_eq!(left.matches(&sender).count(), count, "{left}");
    }
    let senders = || {
        let files = std::fs::read_dir(exim.spool().join("input")).unwrap();
        let files = files.map(|file| file.unwrap().path());
        let heads = files.filter(|file| file.to_str().unwrap().ends_with("-H"));
        let senders = heads.map(|file| {
            let text = std::fs::read(file).unwrap();
            String::from_utf8_lossy(&text).lines().nth(2).unwrap_or_default().to_owned()
        });
        senders.collect::<Vec<_>>()
    };
    assert!(senders().iter().all(|sender| sender.starts_with("<www-data@")), "{:?}", senders());
    assert_eq!(senders().len(), 2);
    // Somebody does: one is counted, and the other waits, as it is more than what is left.
    let _daemon = kit::front_ends::serve_callers(exim.folder());
    for (count, said) in [(1, "is counted and delivered"), (0, "")] {
        let decided = held(&["decide"]);
        assert_eq!((decided.code, decided.stderr.as_str()), (1, ""), "{decided:?}");
        assert_eq!(decided.stdout.lines().count(), count, "{decided:?}");
        assert!(decided.stdout.contains(said), "{decided:?}");
        let left = held(&["--json"]).stdout;
        assert_eq!(left.matches("(undecided)").count(), 1);
        assert!(left.contains("\"sender\":\"\""), "{left}");
        assert!(senders()[0].starts_with("<www-data@"), "{:?}", senders());
        assert_eq!(rates(), [1]);
    }
}

#[test]
fn a_script_is_called_by_its_directory_and_by_the_header_of_php() {
    let exim = exim("", "acl_not_smtp", "acl_policy.conf");
    let here = exim.folder().display().to_string();
    let message = exim.folder().join("message");
    let script = |headers: &[u8]| {
        let text = [b"To: a@private.test\n", headers, b"\nhello\n"].concat();
        std::fs::write(&message, text).unwrap();
        let file = message.to_str().unwrap();
        let ran = exim.run(&["-bem", file, "<RATELIMIT_SCRIPT>"], b"");
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{headers:?}");
        let script = ran.stdout.trim_end().strip_prefix('<').unwrap().strip_suffix('>').unwrap();
        script.strip_prefix(here.as_str()).unwrap().to_owned()
    };
    for (headers, called) in [
        ("", ""),
        ("X-PHP-Originating-Script: 33:contact.php\r\n", ":contact.php"),
        // The first is PHP's own.
        ("X-PHP-Originating-Script: 33:a.php\nX-PHP-Originating-Script: 0:b.php\n", ":a.php"),
        ("X-PHP-Script: example.org/a.php for 192.0.2.7\n", ":example.org/a.php"),
        ("X-PHP-Script: example.org/a.php\nX-PHP-Originating-Script: 33:b.php\n", ":b.php"),
        ("X-PHP-Originating-Script: 33:a\n\tfolded\n", ":a"),
        ("X-PHP-Originating-Script:\n", ""),
        (
            "X-PHP-Originating-Script: ${run{/bin/true}}{}}$h_to:\\n\n",
            ":${run{/bin/true}}{}}$h_to:\\n",
        ),
    ] {
        assert_eq!(script(headers.as_bytes()), called, "{headers:?}");
    }
    let long = format!("X-PHP-Originating-Script: 0:{}\n", "x".repeat(9000));
    assert_eq!(here.len() + script(long.as_bytes()).len(), 300);
    // The name of a directory makes no line of the log.
    let odd = exim.folder().join("a\n2026-11-26 16:00:00 1xViw2-0004je-0V ** b@x.test: \u{e9}");
    std::fs::create_dir(&odd).unwrap();
    let mut command = exim.command();
    command.current_dir(&odd).args(["-bem", message.to_str().unwrap(), "RATELIMIT_SCRIPT"]);
    let ran = kit::exim::run(command, b"").stdout;
    let escaped = "/a\\n2026-11-26 16:00:00 1xViw2-0004je-0V ** b@x.test: \\303\\251:xx";
    assert!(ran.contains(escaped) && ran.lines().count() == 1, "{ran}");
}

/// Whether what is in the trace store may have carried this text.
fn is_remembered(exim: &PrivateExim, text: &str) -> bool {
    let trace = TraceStore::open(&trace_directory(&exim.spool()), Access::Read).unwrap();
    let parts = vec![Part::Text(decode::excerpt(text))];
    let query = Query { content: Some(ContentQuery { parts, min_share: 1.0 }), ..Query::default() };
    let mut found = 0;
    trace.query(&query, &mut |_, _| {}, &mut |_| found += 1).unwrap();
    found > 0
}

#[test]
fn messages_are_remembered() {
    let macros = "TRACE_KEEP = keep=7d / max_size=64M";
    let mut exim = exim(macros, "acl_smtp_data", "acl_check_data_trace.conf");
    exim.start();
    let mut client = session(&exim, [127, 0, 0, 1]);
    let text = "Subject: x\n\nthe parcel is under the third step of the stairs\n";
    assert_eq!(client.message("s@client.test", &["a@private.test"], text).code, 250);
    assert!(is_remembered(&exim, "The parcel is under the third step"));
    // So long that it cannot be there by chance.
    let other = "the letter lies behind the fourth book of the upper shelf, and whoever finds it may \
                 keep the stamp but has to burn all of the rest before the clock strikes midnight";
    assert!(!is_remembered(&exim, other));
    let trace = TraceStore::open(&trace_directory(&exim.spool()), Access::Read).unwrap();
    assert_eq!((trace.options().keep, trace.options().max_bytes), (Some(604_800), 64 << 20));
    assert_eq!(exim.log("panic"), "");
}

/// The order and the omission that Exim itself does not explain.
#[test]
fn the_trace_store_works_where_only_one_library_was_defined() {
    let mut exim = exim("", "acl_smtp_data", "acl_check_data_trace.conf");
    let config = std::fs::read_to_string(exim.config()).unwrap();
    let without: Vec<&str> = config.lines().filter(|l| !l.starts_with("EXIRATE_TRACE")).collect();
    assert_eq!(without.len() + 1, config.lines().count());
    std::fs::write(exim.config(), without.join("\n") + "\n").unwrap();
    exim.start();
    let mut client = session(&exim, [127, 0, 0, 1]);
    let text = "Subject: x\n\nthe parcel is under the third step of the stairs\n";
    assert_eq!(client.message("s@client.test", &["a@private.test"], text).code, 250);
    assert!(is_remembered(&exim, "The parcel is under the third step"));
    assert_eq!((exim.log("panic"), exim.log("main").contains("exirate:")), (String::new(), false));
}

#[test]
fn local_messages_are_remembered() {
    let exim = exim("", "acl_not_smtp", "acl_not_smtp_trace.conf");
    let message = b"To: a@private.test\n\nthe nightly job has failed on all seven disks\n";
    assert_eq!(exim.run(&["-odq", "-t"], message).code, 0);
    assert!(is_remembered(&exim, "the nightly job has failed on all seven"));
    assert_eq!((exim.log("panic"), exim.log("main").contains("exirate:")), (String::new(), false));
}

#[test]
fn who_says_what_another_said_is_logged() {
    let file = "acl_check_data_repeated.conf";
    let both = format!("{file}\n  .include PRIVATE/exim/acl_check_data_trace.conf");
    let mut exim = exim("", "acl_smtp_data", &both);
    exim.start();
    let mut client = session(&exim, [127, 0, 0, 1]);
    let mut send = |from: &str, text: &str| {
        let text = format!("Subject: x\n\n{text}\n");
        assert_eq!(client.message(from, &["a@private.test"], &text).code, 250);
        exim.log("main").lines().filter(|l| l.contains("said before")).count()
    };
    let won = "You have won seven million guilders in our lottery: to have them sent to you, write \
               to our notary and\ntell him the number of your account and your mother's name";
    assert_eq!(send("s@client.test", won), 0);
    let other = "The committee has looked at all nine of the drafts, and likes the fourth best, but \
                 for its roof; a new one is to be drawn until the end of March";
    assert_eq!(send("t@client.test", other), 0);
    assert_eq!(send("u@client.test", &won.to_uppercase().replace('\n', " ")), 1);
    assert_eq!(send("u@client.test", "ok"), 1);
    assert!(exim.log("main").contains("said before: u@client.test from 127.0.0.1"));
    assert_eq!(exim.log("panic"), "");
}

#[test]
fn every_file_is_tried_here() {
    let tests = ["acl_files", "policy", "shadow", "day_of_mail", "outcomes", "socket", "later"]
        .map(|name| {
            let tests = shipped().with_file_name("tests").join("exim");
            std::fs::read_to_string(tests.join(format!("{name}.rs"))).unwrap()
        });
    let tests = tests.concat();
    for entry in std::fs::read_dir(shipped()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(
            tests.contains(&format!("exim/{name}")) || tests.contains(&format!("\"{name}\"")),
            "{name}"
        );
    }
}

#[test]
fn all_files_stand_together_and_the_condition_can_be_a_macro() {
    let at_rcpt = ["_measure", "_delay", "_client", "", "_lookup"]
        .map(|kind| format!(".include PRIVATE/exim/acl_check_rcpt{kind}.conf\n"))
        .concat();
    let exim = exim("acl_smtp_rcpt = all", "acl_smtp_data", "acl_check_data.conf");
    let config = std::fs::read_to_string(exim.config()).unwrap();
    let acl = format!("begin acl\n\nall:\n{at_rcpt}  accept\n");
    std::fs::write(exim.config(), config.replacen("begin acl\n", &acl, 1)).unwrap();
    let (mut client, _) = exim.pipe(&["-bh", "127.0.0.9"]);
    while client.expect().code != 220 {} // it says first that it is a test
    client.command("EHLO client.test");
    assert_eq!(codes(&recipients(&mut client, &["a", "b"])), ["250", "250"]);
    drop(client);

    let ran = exim.expand("RATELIMIT_OVER{2 / 1w / strict / x}}, RATELIMIT_INFO{rate}}");
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("no, 1.0\n", ""));
}
