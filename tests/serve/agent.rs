//! Start, reload and stop; who may ask; what systemd sees.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Output};

use exirate::cluster::wire::ReplyStatus;
use rustix::process::Signal;

use crate::client::{NotDecided, fresh, request};
use crate::process::{Machine, Manager, Process, until};

fn output(command: &mut Command) -> Output {
    command.stderr(std::process::Stdio::piped()).output().unwrap()
}

#[test]
fn it_starts_before_redis_and_decides_when_it_is_there() {
    let machine = Machine::new("", "");
    let _agent = machine.start();
    let mut client = machine.client();
    let Err(NotDecided::Refused(ReplyStatus::Unavailable, _)) = client.ask("alice") else {
        panic!("decided without Redis");
    };
    machine.until_logged(" is away: ");
    let _redis = machine.redis();
    until("it decides", || client.ask("warm-up").is_ok());
    assert_eq!(client.ask("alice").unwrap(), 1);
    assert_eq!(client.ask("alice").unwrap(), 2);
    // The same event once more.
    let event = fresh();
    assert_eq!(client.ask_as(event, "alice").unwrap(), 3);
    assert_eq!(client.ask_as(event, "alice").unwrap(), 3);
    assert_eq!(machine.client().ask("bob").unwrap(), 1);
}

#[test]
fn one_whose_socket_is_lost_ends_so_that_the_next_one_is_found() {
    let machine = Machine::new("", "");
    let _redis = machine.redis();
    let socket = machine.path("agent.sock");
    for replaced in [false, true] {
        let mut agent = machine.start_deciding();
        let mut client = machine.client();
        std::fs::remove_file(&socket).unwrap();
        if replaced {
            std::fs::write(&socket, "of somebody else").unwrap();
        }
        assert_eq!(agent.wait().code(), Some(2), "systemd starts it again");
        assert!(matches!(client.ask("alice"), Err(NotDecided::Closed)));
        let why = if replaced { "replaced by something else" } else { "removed" };
        let line = format!("{} was {why}: stopping, to be started again", socket.display());
        assert!(machine.log().contains(&line), "{}", machine.log());
        assert_eq!(socket.exists(), replaced);
    }
}

#[test]
fn it_stops_when_it_has_replied_and_leaves_no_socket() {
    use std::io::Write as _;
    let machine = Machine::new("deadline = \"5s\"", "");
    let redis = machine.redis();
    for signal in [Signal::TERM, Signal::INT] {
        let mut agent = machine.start_deciding();
        let mut clients: Vec<_> = (0..20).map(|_| machine.client()).collect();
        // The requests wait for Redis while the agent is told to stop.
        redis.process.signal(Signal::STOP);
        for client in &mut clients {
            client.stream.write_all(&request(fresh(), "alice")).unwrap();
        }
        agent.signal(signal);
        until("it listens no more", || !machine.path("agent.sock").exists());
        redis.process.signal(Signal::CONT);
        for client in &mut clients {
            client.decision().unwrap();
            assert!(matches!(client.decision(), Err(NotDecided::Closed)));
        }
        assert!(agent.wait().success());
        assert!(machine.log().ends_with("exirate: stopped\n"), "{}", machine.log());
    }
    let _agent = machine.start_deciding();
    assert_eq!(machine.client().ask("alice").unwrap(), 41);
}

#[test]
fn a_second_instance_is_refused_and_a_killed_one_is_replaced() {
    let machine = Machine::new("", "");
    let _redis = machine.redis();
    let mut first = machine.start_deciding();
    let second = output(&mut machine.command());
    assert_eq!(second.status.code(), Some(2));
    let said = String::from_utf8(second.stderr).unwrap();
    let pid = first.0.id();
    let socket = machine.path("agent.sock");
    let expected = format!(
        "exirate: {} is in use by process {pid} (exirate): stop that first, or set another path \
         in [listen]\n",
        socket.display()
    );
    assert_eq!(said, expected);
    assert_eq!(machine.client().ask("alice").unwrap(), 1);
    first.signal(Signal::KILL);
    first.wait();
    assert!(socket.exists());
    let _third = machine.start_deciding();
    assert_eq!(machine.client().ask("alice").unwrap(), 2);
}

#[test]
fn a_reload_takes_a_sound_configuration_only() {
    let machine = Machine::new("", "users = [\"root\"]");
    let _redis = machine.redis();
    let agent = machine.start_deciding();
    let mut before = machine.client();
    machine.configure("", "userz = [\"root\"]");
    agent.signal(Signal::HUP);
    machine.until_logged("cannot be used: see above; the previous configuration stays in use");
    let wrong =
        "exirate.toml:8:1: error: unknown key \"userz\" in [agent]; did you mean \"users\"?";
    assert!(machine.log().contains(wrong), "{}", machine.log());
    assert_eq!(machine.client().ask("alice").unwrap(), 1);
    // Nobody else may ask from now on; this test runs as root.
    machine.configure("", "users = [\"nobody\"]");
    agent.signal(Signal::HUP);
    machine.until_logged("exirate.toml was read again, and is in use");
    let mut client = machine.client();
    let Err(NotDecided::Refused(ReplyStatus::NotAllowed, why)) = client.decision() else {
        panic!("any user may ask");
    };
    assert!(why.starts_with("user 0 with group 0 may not ask"), "{why}");
    assert!(matches!(client.decision(), Err(NotDecided::Closed)));
    // Who was connected before stays so.
    assert_eq!(before.ask("alice").unwrap(), 2);
}

/// Whether a process of this user and group can connect to the socket.
fn connects(machine: &Machine, uid: u32, gid: u32) -> bool {
    let script = "exit(IO::Socket::UNIX->new(Peer => $ARGV[0]) ? 0 : 1)";
    let mut command = Command::new("perl");
    command.args(["-MIO::Socket::UNIX", "-e", script]).arg(machine.path("agent.sock"));
    command.current_dir("/").uid(uid).gid(gid).status().unwrap().success()
}

#[test]
fn only_the_group_of_the_socket_can_connect() {
    let group = rustix::process::getgid().as_raw();
    // Groups and users of these numbers need not exist.
    let (user, other) = (4_000_001, 4_000_002);
    let machine = Machine::new("", "");
    std::fs::set_permissions(machine.folder.path(), Permissions::from_mode(0o755)).unwrap();
    let _redis = machine.redis();
    let agent = machine.start_deciding();
    let socket = std::fs::metadata(machine.path("agent.sock")).unwrap();
    assert_eq!(socket.mode() & 0o777, 0o660);
    // The group of Exim's processes, without any configuration.
    let exim = exirate::serve::config::exim_group().unwrap();
    assert_eq!(socket.gid(), exim);
    assert!(connects(&machine, user, exim) && !connects(&machine, user, other));
    assert!(!machine.log().contains("no process but root's"), "{}", machine.log());
    drop(agent);
    // Another one, which nobody has who may ask.
    machine.configure("", "socket_group = \"root\"");
    let _agent = machine.start_deciding();
    assert!(connects(&machine, user, group) && !connects(&machine, user, exim));
    machine.until_logged("its group is root, which no user in [agent] has; set socket_group");
}

#[test]
fn a_configuration_with_errors_does_not_start() {
    let machine = Machine::new("deadline = \"20\"", "");
    let refused = output(&mut machine.command());
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8(refused.stderr).unwrap();
    let path = machine.path("exirate.toml");
    let path = path.display();
    let expected = format!(
        "exirate: {path}:5:12: error: \"20\" is not a time; expected such as \"100ms\"\n\
         exirate: {path} cannot be used: see above\n"
    );
    assert_eq!(said, expected);
    std::fs::remove_file(machine.path("exirate.toml")).unwrap();
    let refused = output(&mut machine.command());
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("cannot read") && said.contains("exirate.toml"), "{said}");
}

#[test]
fn systemd_is_told_what_happens() {
    let machine = Machine::new("", "");
    let manager = Manager::new(&machine);
    let _redis = machine.redis();
    let mut command = machine.command();
    command.env("NOTIFY_SOCKET", &manager.path).env("WATCHDOG_USEC", "300000");
    let mut agent = Process(command.spawn().unwrap());
    let ready = manager.next("READY=1\nSTATUS=");
    assert!(ready.contains("redis.sock"), "{ready}");
    let status = manager.next("STATUS=connected to unix://");
    assert!(status.ends_with(" processes connected, 0 decisions"), "{status}");
    for _ in 0..3 {
        manager.next("WATCHDOG=1");
    }
    agent.signal(Signal::HUP);
    manager.next("RELOADING=1");
    manager.next("READY=1");
    agent.signal(Signal::TERM);
    manager.next("STOPPING=1");
    assert!(agent.wait().success());
}

#[test]
fn lines_for_the_journal_have_a_priority() {
    let machine = Machine::new("", "");
    let mut command = machine.command();
    let log = std::fs::metadata(machine.path("log")).unwrap();
    command.env("JOURNAL_STREAM", format!("{}:{}", log.dev(), log.ino()));
    let agent = Process(command.spawn().unwrap());
    machine.until_logged("<3>unix://");
    agent.signal(Signal::TERM);
    machine.until_logged("<5>SIGTERM: stopping\n");
    machine.until_logged("<5>stopped\n");
    assert!(machine.log().lines().all(|line| line.starts_with('<')), "{}", machine.log());
    // Standard error that is no stream to the journal.
    std::fs::remove_file(machine.path("log")).unwrap();
    let mut command = machine.command();
    command.env("JOURNAL_STREAM", "1:2");
    let _agent = Process(command.spawn().unwrap());
    machine.until_logged("exirate: listening on ");
}

#[test]
fn the_password_is_that_of_the_file_or_of_the_unit() {
    use std::os::unix::fs::PermissionsExt as _;
    let machine = Machine::new("user = \"exirate\"\npassword_file = \"redis.password\"", "");
    let file = machine.path("redis.password");
    std::fs::write(&file, "wrong\n").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let options = ["--user", "exirate", "on", ">right", "~*", "+@all", "--user", "default", "off"];
    let _redis = crate::process::Redis::start(machine.folder.path(), &options);
    let mut agent = machine.start();
    machine.until_logged(" is away: ");
    assert!(matches!(machine.client().ask("alice"), Err(NotDecided::Refused(..))));
    assert!(!machine.log().contains("wrong\n"), "the password is in the log: {}", machine.log());
    // Changed, and read again.
    std::fs::write(&file, "right\n").unwrap();
    agent.signal(Signal::HUP);
    machine.until_decided();
    agent.signal(Signal::TERM);
    assert!(agent.wait().success());
    // systemd hands over a copy, and the file is not readable for the agent.
    std::fs::write(&file, "unused\n").unwrap();
    let credentials = machine.path("credentials");
    std::fs::create_dir(&credentials).unwrap();
    std::fs::write(credentials.join("redis.password"), "right\n").unwrap();
    let mut command = machine.command();
    command.env("CREDENTIALS_DIRECTORY", &credentials);
    let _agent = Process(command.spawn().unwrap());
    until("it listens", || machine.path("agent.sock").exists());
    machine.until_decided();
}

/// Not connected and lost again and again: it is known from the start that nothing can be
/// decided.
#[test]
fn a_user_who_may_not_run_the_script_is_never_connected() {
    let machine = Machine::new("", "");
    let options = ["--user", "default", "on", "nopass", "~*", "+@all", "-time"];
    let _redis = crate::process::Redis::start(machine.folder.path(), &options);
    let _agent = machine.start();
    machine.until_logged("lacks a permission");
    let mut client = machine.client();
    // Each attempt is a connection that Redis accepts.
    let attempts = || {
        let mut info = Command::new("redis-cli");
        info.arg("-s").arg(machine.path("redis.sock")).args(["info", "stats"]);
        let said = String::from_utf8(output(&mut info).stdout).unwrap();
        let line = said.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
        line.unwrap().trim().parse::<u64>().unwrap()
    };
    // This asks as often as it looks, and each look is a connection too.
    let (before, mut looks) = (attempts(), 0);
    until("it was attempted three times more", || {
        let refused = client.ask("alice");
        assert!(
            matches!(refused, Err(NotDecided::Refused(ReplyStatus::Unavailable, _))),
            "{refused:?}"
        );
        looks += 1;
        attempts() >= before + looks + 3
    });
    let log = machine.log();
    assert!(!log.contains("connected to") && log.lines().count() <= 5, "{log}");
}
