//! The milter: scripts of `miltertest` for what mail servers do, and peers that mean harm.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use rustix::process::Signal;

use kit::front_ends::{Machine, exirate};
use kit::front_ends::{Mta, OFFER, packet};
use kit::until;

/// Two recipients a week for each login.
const TWO: &str = "[policy.out]
when = \"authenticated\"
text = \"Over {limit} {unit}: 100% of {key}\"
default.recipients = \"2.5/1w\"
";

/// Runs a script of `miltertest`.
fn script(machine: &Machine, name: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mail/miltertest");
    let mut command = Command::new("miltertest");
    command.arg("-D").arg(format!("socket={}", machine.path("milter.sock").display()));
    command.arg("-D").arg(format!("helpers={}", folder.join("helpers.lua").display()));
    command.arg("-s").arg(folder.join(name));
    let output = command.output().expect("miltertest is needed: apt-get install miltertest");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&said));
}

/// Messages in the trace store, as JSON, that this finds.
fn found(machine: &Machine, query: &[&str]) -> Vec<serde_json::Value> {
    let mut command = exirate(&["trace", "query", "--json", "--spool"]);
    let output = command.arg(machine.spool()).args(query).output().unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    answer["found"].as_array().cloned().unwrap_or_default()
}

#[test]
fn the_limit_bites_at_the_recipient() {
    let (machine, _daemon) = Machine::with_milter(TWO, "");
    script(&machine, "limits.lua");
    machine.until_logged(
        "exirate: policy out: defer [198.51.100.9]: 3.0 recipients, limit 2.5/1w, key auth:ann \
         (default)\n",
    );
    assert!((machine.rate("auth:ann", "recipients") - 2.0).abs() < 0.1);
    assert!((machine.rate("auth:bob", "recipients") - 1.0).abs() < 0.1);
    let mut mta = Mta::begun(&machine);
    let refused = "451 4.7.1 Over 2.5 recipients: 100%% of auth:ann\0".to_owned();
    assert_eq!(mta.recipient("ann", "z@example.com"), ('y', refused));
}

/// How a client gives up a message.
#[derive(Clone, Copy, Debug)]
enum End {
    Reset,
    Helo,
    AnotherConnection,
    Disconnect,
}

#[test]
fn one_refused_recipient_a_message_is_counted_however_the_message_ends() {
    let policy = "[policy.in]\nkey = [\"client\"]\nupdate = \"strict\"\n\
                  default.rejected_recipients = \"5.5/1w\"\n";
    let (machine, _daemon) = Machine::with_milter(policy, "");
    let ends = [End::Reset, End::Helo, End::AnotherConnection, End::Disconnect];
    for (end, client) in ends.into_iter().zip(["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"])
    {
        let mut open = None;
        for _ in 0..6 {
            let mta = open.get_or_insert_with(|| Mta::begun_for(&machine, client));
            // As Sendmail and Postfix say that they refuse the recipient.
            mta.say(b'M', b"<a@example.org>\0");
            mta.say(b'D', b"R{rcpt_mailer}\0error\0{rcpt_host}\x005.1.1\0");
            mta.say(b'R', b"<bad@example.com>\0");
            assert_eq!(mta.code(), Some('c'));
            match end {
                End::Reset => mta.say(b'A', b""),
                End::Helo => mta.say(b'H', b"client.example\0"),
                End::AnotherConnection => {
                    mta.say(b'K', b"");
                    let connect = [&b"client.example\x004\x9c\x40"[..], client.as_bytes(), b"\0"];
                    mta.say(b'C', &connect.concat());
                }
                End::Disconnect => drop(open.take()),
            }
        }
        let rate = machine.rate(&format!("client:{client}"), "rejected_recipients");
        assert!((rate - 6.0).abs() < 0.1, "{end:?}: {rate}");
        let mut mta = open.take().unwrap_or_else(|| Mta::begun_for(&machine, client));
        assert_eq!(mta.recipient("", "a@example.com").0, 'y', "{end:?}");
    }
}

#[test]
fn every_command_of_every_version_is_answered() {
    let (machine, _daemon) = Machine::with_milter(TWO, "");
    script(&machine, "commands.lua");
    machine.until_logged("the mail server speaks version 1 of the milter protocol");
}

#[test]
fn bytes_are_counted_at_the_end_and_messages_are_held_or_refused() {
    let policies = "[policy.out]
key = [\"sender\"]
when = \"always\"
text = \"100% of the bytes\"
default.bytes = \"4000/1w\"
verdicts = { \"50%\" = \"hold\", \"100%\" = \"defer\" }
";
    let (machine, mut daemon) = Machine::with_milter(policies, "record = true");
    script(&machine, "hold.lua");
    machine.until_logged("policy out: hold [192.0.2.7]: 2");
    machine.until_logged("policy out: defer [192.0.2.7]: 4");
    // What was refused is not recorded.
    until("three are recorded", || found(&machine, &["--from", "ann@example.org"]).len() == 3);
    daemon.signal(Signal::TERM);
    assert!(daemon.wait().success());
    assert_eq!(found(&machine, &["--from", "ann@example.org"]).len(), 3);
}

#[test]
fn an_accepted_message_is_found_in_the_trace_store() {
    let (machine, _daemon) = Machine::with_milter(TWO, "record = true");
    let mut mta = Mta::begun(&machine);
    assert_eq!(mta.recipient("ann", "a@example.com").0, 'c');
    mta.say(b'R', b"<b@example.com>\0");
    assert_eq!(mta.code(), Some('c'));
    mta.say(b'R', b"<c@example.com>\0");
    assert_eq!(mta.code(), Some('y'));
    mta.say(b'L', b"Subject\0 the figures\0");
    mta.say(b'B', b"the margin of the northern branch fell ");
    mta.say(b'B', b"to four percent in the third quarter\r\n");
    mta.say(b'E', b"");
    assert_eq!(mta.code(), Some('c'));
    let text = ["--text", "branch fell to four percent in the third"];
    until("it is recorded", || found(&machine, &text).len() == 1);
    let found = &found(&machine, &text)[0];
    let expected = serde_json::json!({
        "id": "4QUEUE", "sender": "ann@example.org",
        "recipients": ["a@example.com", "b@example.com"],
        "client": "192.0.2.7", "authenticated": "ann", "partial": false,
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&found[name], value, "{name}");
    }
}

#[test]
fn a_trace_store_that_cannot_be_written_delays_and_refuses_nothing() {
    let (machine, _daemon) = Machine::with_milter(TWO, "record = true");
    // A file is where its directory should be.
    let trace = machine.spool().join("exirate/trace");
    std::fs::write(&trace, "").unwrap();
    let mut mta = Mta::begun(&machine);
    assert_eq!(mta.recipient("ann", "a@example.com").0, 'c');
    mta.say(b'B', b"text");
    mta.say(b'E', b"");
    assert_eq!(mta.code(), Some('c'));
    machine.until_logged("a message is not recorded: ");
}

#[test]
fn a_body_of_two_gigabytes_takes_bounded_memory() {
    let (machine, daemon) = Machine::with_milter(TWO, "record = true\nmax_message = \"4M\"");
    let mut mta = Mta::begun(&machine);
    assert_eq!(mta.recipient("ann", "a@example.com").0, 'c');
    let chunk = packet(b'B', &[b'x'; 65_535]);
    let begun = Instant::now();
    let mut sent = 0_u64;
    while sent < 2 << 30 {
        mta.stream.write_all(&chunk).unwrap();
        sent += chunk.len() as u64;
    }
    mta.say(b'E', b"");
    assert_eq!(mta.code(), Some('c'));
    println!("2 GiB in {:?}", begun.elapsed());
    until("it is recorded", || !found(&machine, &["--from", "ann@example.org"]).is_empty());
    assert_eq!(found(&machine, &["--from", "ann@example.org"])[0]["partial"], true);
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.0.id())).unwrap();
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let most: u64 = most.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(most < 200 << 10, "{most} kB");
}

#[test]
fn small_chunks_and_single_bytes_are_put_together() {
    let (machine, _daemon) = Machine::with_milter(TWO, "record = true");
    let text = "the margin of the northern branch fell to four percent in the third quarter";
    let mut bytes = packet(b'O', &OFFER);
    bytes.extend(packet(b'C', b"client.example\x004\x9c\x40192.0.2.7\0"));
    bytes.extend(packet(b'M', b"<ann@example.org>\0"));
    bytes.extend(packet(b'R', b"<a@example.com>\0"));
    bytes.extend(packet(b'L', b"Subject\0 figures\0"));
    text.bytes().for_each(|byte| bytes.extend(packet(b'B', &[byte])));
    bytes.extend(packet(b'E', b""));
    let mut mta = Mta::connect(&machine);
    for byte in bytes {
        mta.stream.write_all(&[byte]).unwrap();
    }
    for code in ['O', 'c', 'c'] {
        assert_eq!(mta.code(), Some(code));
    }
    until("it is recorded", || found(&machine, &["--text", &text[..60]]).len() == 1);
}

#[test]
fn lengths_that_lie_close_the_connection_and_harm_no_other() {
    let (machine, mut daemon) = Machine::with_milter(TWO, "");
    let mut other = Mta::begun(&machine);
    let head = |length: u32, command: u8| [&length.to_be_bytes()[..], &[command]].concat();
    for (bytes, is_fault) in [
        (head(0, b'O'), true),
        (head(u32::MAX, b'O'), true),
        (head(u32::MAX, b'B'), true),
        (head(1 << 21, b'L'), true),
        (head(40_000, b'D'), true),
        (packet(b'O', b"short"), true),
        (packet(b'M', b"<a@x>\0"), true),
        (packet(b'?', b""), true),
        (b"GET / HTTP/1.0\r\n\r\n".to_vec(), true),
        // More is announced than comes.
        ([packet(b'O', &OFFER), head(1000, b'M'), b"<a@x>\0".to_vec()].concat(), false),
    ] {
        let mut mta = Mta::connect(&machine);
        mta.stream.write_all(&bytes).unwrap();
        if !is_fault {
            assert_eq!(mta.code(), Some('O'));
            mta.stream.shutdown(std::net::Shutdown::Write).unwrap();
        }
        assert_eq!(mta.code(), None, "{bytes:?}");
    }
    machine.until_logged("milter: a mail server sent what cannot be read: ");
    assert_eq!(other.recipient("ann", "a@example.com").0, 'c');
    assert!((machine.rate("auth:ann", "recipients") - 1.0).abs() < 0.1);
    assert!(daemon.0.try_wait().unwrap().is_none());
}

#[test]
fn silent_connections_do_not_keep_others_from_being_served() {
    let (machine, _daemon) = Machine::with_milter(TWO, "max_connections = 200");
    let silent: Vec<Mta> = (0..1_000).map(|_| Mta::connect(&machine)).collect();
    let mut served = Mta::begun(&machine);
    assert_eq!(served.recipient("ann", "a@example.com").0, 'c');
    // More come, and the one that is served stays.
    let more: Vec<Mta> = (0..1_000).map(|_| Mta::connect(&machine)).collect();
    served.say(b'E', b"");
    assert_eq!(served.code(), Some('c'));
    machine.until_logged("200 connections are open, and no more may");
    drop((silent, more));
}

#[test]
fn a_stop_lets_a_message_end() {
    let (machine, mut daemon) = Machine::with_milter(TWO, "record = true");
    let mut mta = Mta::begun(&machine);
    assert_eq!(mta.recipient("ann", "a@example.com").0, 'c');
    daemon.signal(Signal::TERM);
    machine.until_logged("SIGTERM: stopping");
    mta.say(b'B', b"text");
    mta.say(b'E', b"");
    assert_eq!(mta.code(), Some('c'));
    assert_eq!(mta.code(), None);
    assert!(daemon.wait().success());
    // What was accepted is recorded before the end.
    assert_eq!(found(&machine, &["--from", "ann@example.org"]).len(), 1);
}
