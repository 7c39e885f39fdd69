//! Postfix's policy delegation: what is counted, the replies to Postfix, start, reload, stop.

use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::process::Stdio;

use rustix::process::Signal;

use kit::front_ends::Mta;
use kit::front_ends::{Client, Message};
use kit::front_ends::{Machine, exirate, succeeds};
use kit::{Process, TIMEOUT, until, until_another_second};

/// Two recipients a week for each login.
const TWO: &str = "[policy.out]
when = \"authenticated\"
text = \"Over {limit} {unit}: {key}\"
default.recipients = \"2.5/1w\"
";

#[test]
fn the_limit_bites_and_each_recipient_counts_once() {
    let machine = Machine::new(TWO, "");
    let _daemon = machine.start();
    let [mut one, mut two] = [Client::connect(&machine), Client::connect(&machine)];
    let message = Message::new("alice");
    assert_eq!(one.rcpt(&message, "a@example.net"), "DUNNO");
    // The same recipient once more, in another restriction list or by another connection.
    assert_eq!(one.rcpt(&message, "a@example.net"), "DUNNO");
    assert_eq!(two.rcpt(&message, "a@example.net"), "DUNNO");
    assert_eq!(two.rcpt(&message, "b@example.net"), "DUNNO");
    let refused = "DEFER_IF_PERMIT 4.7.1 Over 2.5 recipients: auth:alice";
    assert_eq!(one.rcpt(&message, "c@example.net"), refused);
    assert_eq!(one.rcpt(&message, "c@example.net"), refused);
    assert_eq!(one.rcpt(&message, "a@example.net"), "DUNNO");
    assert_eq!(two.rcpt(&Message::new("bob"), "c@example.net"), "DUNNO");
    assert_eq!(two.rcpt(&Message::new(""), "c@example.net"), "DUNNO");
    machine.until_logged(
        "exirate: policy out: defer [192.0.2.7]: 3.0 recipients, limit 2.5/1w, key auth:alice \
         (default)\n",
    );
    assert!((machine.rate("auth:alice", "recipients") - 2.0).abs() < 0.1);
    // What `exirate` shows of it is as in Exim.
    let events = succeeds(exirate(&["events", "--json", "--spool"]).arg(machine.spool()));
    assert!(events.contains("\"login\":\"alice\""), "{events}");
    assert!(events.contains("\"recipient\":\"c@example.net\""), "{events}");
    let stats = succeeds(exirate(&["stats", "--spool"]).arg(machine.spool()));
    assert!(stats.contains("recipients/1w"), "{stats}");
}

#[test]
fn a_daemon_whose_socket_is_lost_ends_so_that_the_next_one_is_found() {
    for lost in ["policy.sock", "milter.sock"] {
        let (machine, mut daemon) = Machine::with_milter(TWO, "");
        assert_eq!(Client::connect(&machine).rcpt(&Message::new("alice"), "a@b.example"), "DUNNO");
        std::fs::remove_file(machine.path(lost)).unwrap();
        assert_eq!(daemon.wait().code(), Some(2), "systemd starts it again");
        machine.until_logged(&format!("{lost} was removed: stopping, to be started again"));
        assert!(!machine.path("policy.sock").exists() && !machine.path("milter.sock").exists());
    }
}

#[test]
fn messages_bytes_and_connections_count_once() {
    let policies = "[policy.out]
key = [\"client\"]
default.messages = \"100/1w\"
default.bytes = \"1000/1w\"
default.connections = \"100/1w\"
default.recipients = \"100/1w\"
";
    let machine = Machine::new(policies, "");
    let _daemon = machine.start();
    let mut client = Client::connect(&machine);
    let first = Message::new("");
    for message in [first.clone(), first.next()] {
        assert_eq!(client.rcpt(&message, "a@example.net"), "DUNNO");
        assert_eq!(client.rcpt(&message, "b@example.net"), "DUNNO");
        assert_eq!(client.end(&message, "", 2, 300), "DUNNO");
        assert_eq!(client.end(&message, "", 2, 300), "DUNNO");
    }
    // Not asked at RCPT: the recipients count at the end.
    let third = Message::new("");
    assert_eq!(client.end(&third, "", 3, 300), "DUNNO");
    let fourth = Message::new("");
    let refused = client.end(&fourth, "a@example.net", 1, 300);
    assert_eq!(refused, "DEFER_IF_PERMIT 4.7.1 Over the limit");
    // A refused event counts nowhere.
    for (unit, expected) in
        [("messages", 3.0), ("bytes", 900.0), ("connections", 2.0), ("recipients", 7.0)]
    {
        let rate = machine.rate("client:192.0.2.7", unit);
        assert!((rate - expected).abs() < 0.1, "{unit}: {rate}");
    }
}

#[test]
fn each_verdict_has_its_action() {
    let policies = "[policy.hold]
when = \"authenticated\"
update = \"strict\"
text = \"W\u{e4}it\\u0007, {sender}\"
verdicts = { \"100%\" = \"hold\", \"190%\" = \"reject\" }
default.recipients = \"1/1w\"
[policy.watch]
when = \"!authenticated\"
action = \"observe\"
default.recipients = \"1/1w\"
";
    let machine = Machine::new(policies, "prepend = true");
    let daemon = machine.start();
    let mut client = Client::connect(&machine);
    let message = Message { sender: "a\u{1}b@example.org".to_owned(), ..Message::new("alice") };
    assert_eq!(client.rcpt(&message, "a@example.net"), "HOLD W?it, ab@example.org");
    assert_eq!(client.rcpt(&message, "b@example.net"), "REJECT 5.7.1 W?it, ab@example.org");
    let message = Message::new("");
    let header = "PREPEND X-Exirate: policy=watch verdict=log unit=recipients rate=1.0 limit=1/1w";
    assert_eq!(client.rcpt(&message, "a@example.net"), header);
    // Once a message.
    assert_eq!(client.rcpt(&message, "b@example.net"), "DUNNO");
    assert_eq!(client.rcpt(&message, "a@example.net"), "DUNNO");
    assert_eq!(client.end(&message, "", 2, 10), "DUNNO");
    for state in ["VRFY", "ETRN", "", "XYZ"] {
        assert_eq!(client.ask(&message.request(state, "x", 0, 0)), "DUNNO");
    }
    // Without the setting, it is a line in the log and no header.
    machine.configure("");
    daemon.signal(Signal::HUP);
    machine.until_logged("exirate.toml was read again, and is in use");
    assert_eq!(client.rcpt(&Message::new(""), "a@example.net"), "DUNNO");
    machine.until_logged("policy watch: log [192.0.2.7]: 3.0 recipients, limit 1/1w, key ");
}

#[test]
fn policies_are_refreshed_and_chosen() {
    let machine = Machine::new(TWO, "policies = [\"out\"]");
    let daemon = machine.start();
    let mut client = Client::connect(&machine);
    assert_eq!(client.rcpt(&Message::new("alice"), "a@example.net"), "DUNNO");
    machine.apply(&TWO.replace("2.5/", "1.5/"));
    let refused = client.rcpt(&Message::new("alice"), "a@example.net");
    assert_eq!(refused, "DEFER_IF_PERMIT 4.7.1 Over 1.5 recipients: auth:alice");
    machine.configure("policies = [\"in\", \"out\"]\non_error = \"fail-closed\"");
    daemon.signal(Signal::HUP);
    machine.until_logged("is in use");
    let message = Message::new("bob");
    let unavailable = "DEFER_IF_PERMIT 4.3.0 Temporarily unavailable; try again later";
    assert_eq!(client.rcpt(&message, "a@example.net"), unavailable);
    machine.until_logged(
        "cannot evaluate the policy \"in\", so the mail is deferred (on_error = \
                          fail-closed): there is no policy \"in\" (the policies are: out)",
    );
    // It is no decision, and not remembered as one.
    machine.apply(&format!("{TWO}\n[policy.in]\ndefault.recipients = \"100/1h\""));
    assert_eq!(client.rcpt(&message, "a@example.net"), "DUNNO");
}

#[test]
fn without_policies_mail_is_accepted_and_logged() {
    let machine = Machine::new(TWO, "");
    std::fs::remove_file(machine.spool().join("exirate/policy.image")).unwrap();
    let _daemon = machine.start();
    let mut client = Client::connect(&machine);
    assert_eq!(client.rcpt(&Message::new("alice"), "a@example.net"), "DUNNO");
    machine.until_logged(
        "cannot evaluate the policy \"*\", so the mail is not limited by it \
                          (on_error = fail-open): no policy image",
    );
    machine.apply(TWO);
    let actions: Vec<String> =
        (0..3).map(|_| client.rcpt(&Message::new("alice"), "a@example.net")).collect();
    assert_eq!(actions[..2], ["DUNNO", "DUNNO"]);
    assert!(actions[2].starts_with("DEFER_IF_PERMIT"), "{actions:?}");
}

#[test]
fn it_listens_on_tcp_and_its_socket_has_the_mode_that_is_set() {
    use std::io::{BufReader, Read as _, Write as _};
    use std::os::unix::fs::PermissionsExt as _;
    let machine = Machine::new(TWO, "socket_mode = \"0666\"");
    let mut daemon = machine.start();
    let mode = std::fs::metadata(machine.path("policy.sock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o666);
    daemon.signal(Signal::TERM);
    assert!(daemon.wait().success());
    assert!(!machine.path("policy.sock").exists());
    let port = kit::redis::free_port();
    machine.write(&format!("policy = \"inet:127.0.0.1:{port}\""), "");
    let daemon = Process(machine.command().spawn().unwrap());
    machine.until_logged(&format!("listening on inet:127.0.0.1:{port}"));
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let request = Message::new("alice").request("RCPT", "a@example.net", 0, 0);
    stream.write_all(request.as_bytes()).unwrap();
    let mut reply = [0; 14];
    BufReader::new(&stream).read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"action=DUNNO\n\n");
    daemon.signal(Signal::TERM);
}

#[test]
fn a_reload_takes_a_sound_configuration_only() {
    let machine = Machine::new(TWO, "");
    let daemon = machine.start();
    machine.configure("on_eror = \"accept\"");
    daemon.signal(Signal::HUP);
    machine.until_logged("the previous configuration stays in use");
    let wrong = "unknown key \"on_eror\" in [mail]; did you mean \"on_error\"?";
    assert!(machine.log().contains(wrong), "{}", machine.log());
    let mut client = Client::connect(&machine);
    assert_eq!(client.rcpt(&Message::new("alice"), "a@example.net"), "DUNNO");
    machine.configure("workers = 3\nsocket_mode = \"0600\"");
    daemon.signal(Signal::HUP);
    machine.until_logged("workers has changed: restart to use the new value");
    machine.until_logged("socket_mode has changed: restart to use the new value");
}

#[test]
fn it_stops_when_it_has_replied() {
    let machine = Machine::new(TWO, "");
    for signal in [Signal::TERM, Signal::INT] {
        let mut daemon = machine.start();
        let mut clients: Vec<Client> = (0..20).map(|_| Client::connect(&machine)).collect();
        for client in &mut clients {
            let request = Message::new("").request("RCPT", "a@example.net", 0, 0);
            client.send(&request).unwrap();
        }
        daemon.signal(signal);
        for client in &mut clients {
            assert_eq!(client.action().unwrap(), "DUNNO");
            let closed = client.action().unwrap_err().kind();
            assert!(matches!(closed, ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset));
        }
        assert!(daemon.wait().success());
        assert!(machine.log().ends_with("exirate: stopped\n"), "{}", machine.log());
        assert!(!machine.path("policy.sock").exists());
    }
}

#[test]
fn systemd_is_told_what_happens() {
    let machine = Machine::new(TWO, "");
    let path = machine.path("notify.sock");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(TIMEOUT)).unwrap();
    let next = |start: &str| {
        let mut buffer = [0; 1000];
        loop {
            let bytes = manager.recv(&mut buffer).unwrap();
            let message = String::from_utf8_lossy(&buffer[..bytes]).into_owned();
            if message.starts_with(start) {
                return message;
            }
        }
    };
    let mut command = machine.command();
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "300000");
    let mut daemon = Process(command.spawn().unwrap());
    let ready = next("READY=1\nSTATUS=");
    assert_eq!(
        ready,
        "READY=1\nSTATUS=0 mail servers connected, 0 decisions, 0 refusals, 0 without a decision"
    );
    next("WATCHDOG=1");
    daemon.signal(Signal::HUP);
    next("RELOADING=1");
    next("READY=1");
    daemon.signal(Signal::TERM);
    next("STOPPING=1");
    assert!(daemon.wait().success());
}

#[test]
fn the_check_says_what_is_wrong() {
    let outcomes = "[policy.in]\ndefault.auth_failures = \"9/1h\"\n\
                    default.rejected_recipients = \"9/1h\"\n";
    let machine = Machine::new(&format!("{TWO}{outcomes}"), "socket_mode = \"0600\"");
    let check = |user: &str| {
        let mut command = exirate(&["serve", "mail", "--check", "--user", user, "--config"]);
        let output = command.arg(machine.path("exirate.toml")).output().unwrap();
        let [text, notes] =
            [output.stdout, output.stderr].map(|said| String::from_utf8(said).unwrap());
        (output.status.code(), text, notes)
    };
    let (code, text, notes) = check("root");
    assert_eq!(code, Some(0), "{text}");
    let [socket, spool] = [machine.path("policy.sock"), machine.spool()];
    let expected =
        format!(": policy unix:{}, database in {}; no error, ", socket.display(), spool.display());
    assert!(text.contains(&expected), "{text}");
    // What the front end cannot see.
    for unit in ["auth_failures", "rejected_recipients"] {
        let note =
            format!("exirate: note: policy \"in\": Postfix's policy protocol cannot see {unit}\n");
        assert!(notes.contains(&note), "{notes}");
    }
    // Another user could not run it.
    let (code, text, _) = check("games");
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains(": error: mail.spool: ") && text.contains("; 2 errors, "), "{text}");
    std::fs::remove_dir_all(machine.spool()).unwrap();
    let (code, text, _) = check("root");
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("/spool does not exist: install -d -o root -g root "), "{text}");
    machine.write("", "");
    let (code, text, _) = check("root");
    assert_eq!(code, Some(1));
    assert!(text.contains("[listen] names no socket for mail servers"), "{text}");
}

#[test]
fn a_lock_that_is_held_delays_mail_for_a_moment_only() {
    use rustix::fs::{FlockOperation, flock};
    let machine = Machine::new(TWO, "");
    let _daemon = machine.start();
    let mut client = Client::connect(&machine);
    let message = Message::new("alice");
    assert_eq!(client.rcpt(&message, "a@example.net"), "DUNNO");
    let shards: Vec<std::fs::File> = std::fs::read_dir(machine.spool().join("exirate"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "shard"))
        .map(|path| std::fs::File::open(path).unwrap())
        .collect();
    assert_eq!(shards.len(), 1);
    flock(&shards[0], FlockOperation::LockExclusive).unwrap();
    assert_eq!(client.rcpt(&message, "b@example.net"), "DUNNO");
    machine.until_logged(
        "cannot evaluate the policy \"out\", so the mail is not limited by it (on_error = \
         fail-open): cannot lock ",
    );
    drop(shards);
    assert_eq!(client.rcpt(&message, "c@example.net"), "DUNNO");
    assert!(client.rcpt(&message, "d@example.net").starts_with("DEFER_IF_PERMIT"));
}

#[test]
fn a_second_instance_is_refused() {
    let machine = Machine::new(TWO, "");
    let _first = machine.start();
    let second = machine.command().stderr(Stdio::piped()).output().unwrap();
    assert_eq!(second.status.code(), Some(2));
    let said = String::from_utf8(second.stderr).unwrap();
    assert!(said.contains("policy.sock is in use by process "), "{said}");
    let mut client = Client::connect(&machine);
    until("it decides", || client.rcpt(&Message::new("a"), "a@example.net") == "DUNNO");
}

/// By policies, by an error with `fail-closed`, and by the daemon's own `on_error`.
#[test]
fn a_bypass_refuses_nothing_by_either_protocol() {
    let closed = format!("{TWO}on_error = \"fail-closed\"\n");
    let (machine, _daemon) =
        Machine::with_milter(&closed.replace("2.5/1w", "0.5/1w"), "on_error = \"fail-closed\"");
    let mut client = Client::connect(&machine);
    let mut number = 0;
    let mut refused = || {
        number += 1;
        let recipient = format!("r{number}@example.net");
        let mut mta = Mta::begun(&machine);
        let by_milter = mta.recipient("ann", &recipient).0 == 'y';
        let by_policy = client.rcpt(&Message::new("ann"), &recipient) != "DUNNO";
        (by_milter, by_policy)
    };
    let bypass = |arguments: &[&str]| {
        let mut command = exirate(&["bypass", "--spool"]);
        succeeds(command.arg(machine.spool()).args(arguments));
        until_another_second();
    };
    let database = machine.spool().join("exirate");
    assert_eq!(refused(), (true, true), "over the limit");
    bypass(&["--reason", "a test"]);
    assert_eq!(refused(), (false, false));
    machine.until_logged("bypass for another ");
    machine.until_logged(" (uid=");
    machine.until_logged(": a test): nothing is refused, although the policy \"out\" says defer");
    bypass(&["--end"]);
    assert_eq!(refused(), (true, true), "it has ended");
    // The daemon that starts with such a database cannot use it.
    std::fs::rename(&database, machine.path("sound")).unwrap();
    std::fs::write(&database, "x").unwrap();
    drop(_daemon);
    let _daemon = machine.start();
    let mut client = Client::connect(&machine);
    let message = Message::new("ann");
    assert_ne!(client.rcpt(&message, "a@example.net"), "DUNNO");
    bypass(&[]);
    assert_eq!(client.rcpt(&message.next(), "b@example.net"), "DUNNO");
    bypass(&["--end"]);
    assert_ne!(client.rcpt(&message.next().next(), "c@example.net"), "DUNNO");
}
