//! What Postfix asks.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use kit::machine::{INSIDE, Machine};
use kit::{Client, Process, until};

/// A Postfix that accepts all and throws it away.
const CONFIGURATION: &str = "compatibility_level = 3.6
myhostname = mail.test
mydestination = mail.test
mynetworks = 127.0.0.0/8
inet_protocols = ipv4
local_transport = discard:
local_recipient_maps =
disable_dns_lookups = yes
smtpd_peername_lookup = no
smtpd_client_connection_count_limit = 0
smtpd_error_sleep_time = 0
maillog_file = /var/log/mail.log
";
/// What every message passes, and what stops those of one sender.
const POLICY: &str = r#"version = 1
[policy.clients]
when = "always"
key = ["client"]
update = "strict"
default.recipients = "10000000/1h"
[policy.limited]
when = [{ sender_domain = ["limited.test"] }]
key = ["sender"]
default.recipients = "2/1h"
"#;
const CONFIG: &str = "[listen]
policy = \"unix:/var/spool/postfix/exirate/policy\"
milter = \"unix:/var/spool/postfix/exirate/milter\"
[mail]
spool = \"/var/lib/exirate\"
socket_mode = \"0660\"
";
/// rspamd's proxy, which does all by itself, and only this module.
const RSPAMD: &str = r#"options { filters = ""; pidfile = "DIR/pid"; tempdir = "DIR";
  hs_cache_dir = "DIR"; url_tld = "DIR/tld"; local_addrs = [];
  control_socket = "DIR/control mode=0600"; }
logging { type = "file"; filename = "DIR/log"; level = "warning"; }
worker "rspamd_proxy" { bind_socket = "127.0.0.1:11332"; milter = yes; count = 2;
  upstream "local" { default = yes; self_scan = yes; } }
actions { reject = 1500; }
modules { path = "/usr/share/rspamd/plugins/ratelimit.lua"; }
redis { servers = "127.0.0.1:6379"; }
ratelimit { rates {
    clients { selector = "ip"; bucket = { burst = 10000000; rate = 10000; } }
    limited { selector = "from('smtp'):domain.in('limited.test')"; bucket = { burst = 2; rate = 0.0005; } }
  } max_rate_mult = 1; max_bucket_mult = 1; allow_local = true; }
"#;
const POSTFWD: [&str; 2] = [
    "id=L; sender_domain=limited.test; action=rate(sender/2/3600/450 4.7.1 over)",
    "id=C; action=rate(client_address/10000000/3600/450 4.7.1 over)",
];

/// A server that Postfix asks, or none.
pub(crate) struct Server {
    pub(crate) name: &'static str,
    /// Its lines for `main.cf`.
    lines: &'static str,
    start: fn(&Machine) -> Started,
}

/// The processes of a server, and their files.
#[derive(Default)]
pub(crate) struct Started {
    processes: Vec<Process>,
    /// The file with the process of a daemon that detaches itself.
    daemon: Option<PathBuf>,
    _folder: Option<tempfile::TempDir>,
}

/// The first is what the others are compared with.
pub(crate) const SERVERS: [Server; 5] = [
    Server { name: "nothing", lines: "", start: |_| Started::default() },
    Server {
        name: "exirate, milter",
        lines: "smtpd_milters = unix:exirate/milter\n",
        start: exirate,
    },
    Server {
        name: "exirate, policy protocol",
        lines: "smtpd_recipient_restrictions = check_policy_service unix:exirate/policy\n\
                smtpd_end_of_data_restrictions = check_policy_service unix:exirate/policy\n",
        start: exirate,
    },
    Server {
        name: "rspamd, milter, only ratelimit",
        lines: "smtpd_milters = inet:127.0.0.1:11332\n",
        start: rspamd,
    },
    Server {
        name: "postfwd, policy protocol, only at RCPT",
        lines: "smtpd_recipient_restrictions = check_policy_service inet:127.0.0.1:10045\n",
        start: postfwd,
    },
];

/// Sets Postfix up; returns its version.
pub(crate) fn prepare(machine: &Machine) -> String {
    machine.write("/etc/exirate/policy.toml", POLICY);
    machine.write("/etc/exirate/exirate.toml", CONFIG);
    machine.run(
        "set -e
        systemd-sysusers
        install -d -o exirate-mail -g exirate-mail /var/lib/exirate
        install -d -o exirate-mail -g postfix -m 2750 /var/spool/postfix/exirate
        exirate policy apply",
    );
    format!("Postfix {}", machine.run("postconf -h mail_version").trim())
}

/// Postfix, and what it asks.
pub(crate) struct Running<'m> {
    machine: &'m Machine,
    started: Started,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.machine.run("postfix stop");
        // Those that have processes of their own end them.
        for process in &mut self.started.processes {
            process.signal(Signal::TERM);
            process.wait();
        }
        if let Some(file) = &self.started.daemon {
            let pid = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
            let pid = Pid::from_raw(pid).unwrap();
            kill_process(pid, Signal::TERM).unwrap();
            until("it ends", || test_kill_process(pid).is_err());
        }
        if !self.machine.read("/run/exirate-mail.pid").is_empty() {
            self.machine.run("systemctl stop exirate-mail; rm /run/exirate-mail.pid");
        }
    }
}

impl Server {
    /// Starts it, and Postfix.
    pub(crate) fn start<'m>(&self, machine: &'m Machine) -> Running<'m> {
        let started = (self.start)(machine);
        machine.write("/etc/postfix/main.cf", &(CONFIGURATION.to_owned() + self.lines));
        machine.run("rm -f /var/log/mail.log; postfix start");
        until("Postfix listens", || machine.connect(INSIDE, 25).is_some());
        Running { machine, started }
    }

    /// Checks that it limits at all.
    pub(crate) fn limits(&self, machine: &Machine) {
        let code = limited(machine);
        assert_eq!(code / 100, if self.lines.is_empty() { 2 } else { 4 }, "{}", self.name);
        let log = machine.read("/var/log/mail.log");
        assert!(!log.contains("problem talking"), "{log}");
    }
}

fn exirate(machine: &Machine) -> Started {
    machine.run("rm -f /var/log/exirate.log; systemctl start exirate-mail");
    until("exirate listens", || machine.read("/var/log/exirate.log").contains("listening"));
    Started::default()
}

fn rspamd(machine: &Machine) -> Started {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rspamd.conf");
    std::fs::write(folder.path().join("tld"), "com\nnet\norg\n").unwrap();
    std::fs::write(&file, RSPAMD.replace("DIR", folder.path().to_str().unwrap())).unwrap();
    let redis = beside(machine, "redis-server", &["--port", "6379", "--save", ""]);
    until_it_listens(machine, 6379);
    let rspamd = beside(machine, "rspamd", &["-f", "-i", "-c", file.to_str().unwrap()]);
    until_it_listens(machine, 11332);
    Started { processes: vec![rspamd, redis], _folder: Some(folder), ..Started::default() }
}

fn postfwd(machine: &Machine) -> Started {
    let folder = tempfile::tempdir().unwrap();
    let (rules, pid) = (folder.path().join("rules"), folder.path().join("pid"));
    std::fs::write(&rules, POSTFWD.join("\n") + "\n").unwrap();
    let arguments = [
        "--interface",
        "127.0.0.1",
        "--port",
        "10045",
        "--file",
        rules.to_str().unwrap(),
        "--pidfile",
        pid.to_str().unwrap(),
        "--user",
        "root",
        "--group",
        "root",
    ];
    // Its first process ends when it has become a daemon.
    beside(machine, "postfwd2", &arguments).wait();
    until_it_listens(machine, 10045);
    Started { daemon: Some(pid), _folder: Some(folder), ..Started::default() }
}

/// A program of this machine in the network of that one.
fn beside(machine: &Machine, program: &str, arguments: &[&str]) -> Process {
    let mut command: Command = machine.beside(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Process(command.spawn().unwrap_or_else(|error| panic!("{program} is needed: {error}")))
}

fn until_it_listens(machine: &Machine, port: u16) {
    until("it listens", || machine.connect(INSIDE, port).is_some());
}

/// The reply to the last recipient of a message from a sender with a limit of two an hour.
fn limited(machine: &Machine) -> u16 {
    let mut client: Client = machine.session(INSIDE);
    let mut code = 0;
    for _ in 0..4 {
        assert!(client.command("MAIL FROM:<x@limited.test>").is_ok());
        code = client.command("RCPT TO:<u1@mail.test>").code;
        if code == 250 {
            code = client.data("Subject: x\r\n\r\nx\r\n").code;
        } else {
            client.command("RSET");
        }
    }
    assert!(client.quit().unwrap().is_ok());
    code
}
