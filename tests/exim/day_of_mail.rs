//! A day of mail on Debian's own configuration with the shipped files unchanged: nobody
//! innocent is refused, the stolen password and the flooding web form are stopped.
//!
//! The machine is an overlay of this one with its own `/etc`, `/var` and clock, so that Exim is
//! the real setuid program with the configuration that it has by default, whoever starts it.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::acl_files::{base64, login, shipped};
use exirate::policy::{image, source::compile};
use kit::exim::{PROGRAM, Ran, USER, run, user};
use kit::{Client, PrivateExim, Process, Setup, copy_program, library, until};

/// Puts the machine together; its argument is a folder.
const MACHINE: &str = r#"
set -e
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
cd "$1/root"
mount -t proc proc proc
mount --rbind /dev dev
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t tmpfs -o mode=755 tmpfs run
hostname mail.test
echo mail.test >etc/mailname
printf '127.0.0.1 localhost\n192.0.2.1 mail.test\n' >etc/hosts
rm -f etc/resolv.conf
printf 'nameserver 127.0.0.1\noptions timeout:1 attempts:1\n' >etc/resolv.conf
rm -rf var/spool/exim4/* var/log/exim4/*
mkdir -p var/www
echo ready
exec chroot . cat
"#;

/// What Debian asks at the installation, and what an administrator adds.
const SETTINGS: [(&str, &str); 6] = [
    ("dc_eximconfig_configtype", "smarthost"),
    ("dc_other_hostnames", "mail.test"),
    ("dc_smarthost", "smarthost.test"),
    ("dc_minimaldns", "true"),
    ("dc_use_split_config", "true"),
    ("dc_local_interfaces", ""),
];
const AUTHENTICATOR: &str = "day_plain:\n  driver = plaintext\n  public_name = PLAIN\n  \
    server_prompts = :\n  server_condition = ${if eq{$auth3}{good}}\n  server_set_id = $auth2\n";
const TRANSPORTS: &str = "day_smarthost:\n  driver = smtp\n  port = PORT\n  allow_localhost\n\n\
    day_away:\n  driver = autoreply\n  to = $sender_address\n  subject = Away\n  text = Next week.\n";
const ROUTERS: &str = "day_smarthost:\n  driver = manualroute\n  domains = ! +local_domains\n  \
    transport = day_smarthost\n  route_list = * 127.0.0.1\n  self = send\n  no_more\n\n\
    day_away:\n  driver = accept\n  domains = +local_domains\n  local_parts = away\n  \
    condition = ${if def:sender_address}\n  transport = day_away\n  unseen\n  no_verify\n";

const HOUR: i64 = 3600;

struct Machine {
    /// Who decides about local accounts.
    daemon: Option<Process>,
    holder: Child,
    root: PathBuf,
    _folder: tempfile::TempDir,
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.daemon = None;
        // With it, its mounts are gone.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

impl Machine {
    /// Debian's Exim with the smarthost on this port, the shipped files and the shipped policy.
    fn new(smarthost: u16) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut holder = Command::new("unshare")
            .args(["--mount", "--uts", "--propagation", "private", "--"])
            .args(["sh", "-c", MACHINE, "sh"])
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "the machine cannot be put together");
        // `cat` runs once `chroot` has changed the root.
        let process = format!("/proc/{}", holder.id());
        let deadline = Instant::now() + kit::TIMEOUT;
        while std::fs::read_to_string(format!("{process}/comm")).unwrap() != "cat\n" {
            assert!(Instant::now() < deadline);
            std::thread::yield_now();
        }
        let root = format!("{process}/root").into();
        let mut machine = Self { daemon: None, holder, root, _folder: folder };
        std::fs::write(machine.path("/lib/clock.so"), kit::clock::LIBRARY).unwrap();
        machine.set_clock(0);
        machine.write("/etc/ld.so.preload", "/lib/clock.so\n");
        machine.configure(smarthost);
        machine.serve_callers();
        machine
    }

    /// As exirate-mail@Debian-exim.service does.
    fn serve_callers(&mut self) {
        let program = "/usr/lib/exim4/exirate";
        copy_program(env!("CARGO_BIN_EXE_exirate"), self.path(program));
        self.write("/etc/exirate.toml", "");
        let arguments = ["serve", "mail", "--config", "/etc/exirate.toml"];
        let arguments = [&arguments[..], &["--callers", "/var/spool/exim4"]].concat();
        let mut command = self.command_for(user(USER).0, program, &arguments, "10000");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.daemon = Some(Process(command.spawn().unwrap()));
        let socket = self.path("/var/spool/exim4/exirate/callers");
        until("the daemon listens", || UnixStream::connect(&socket).is_ok());
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn copy_all(&self, from: &Path, to: &str) {
        for entry in std::fs::read_dir(from).unwrap() {
            let path = entry.unwrap().path();
            let to = format!("{to}/{}", path.file_name().unwrap().to_str().unwrap());
            if path.is_dir() {
                self.copy_all(&path, &to);
            } else {
                self.write(&to, &std::fs::read_to_string(&path).unwrap());
            }
        }
    }

    fn configure(&self, smarthost: u16) {
        let answers = "/etc/exim4/update-exim4.conf.conf";
        let mut text = std::fs::read_to_string(self.path(answers)).unwrap();
        for (name, value) in SETTINGS {
            text = text
                .lines()
                .filter(|line| !line.starts_with(name))
                .fold(String::new(), |text, line| text + line + "\n");
            text.push_str(&format!("{name}='{value}'\n"));
        }
        self.write(answers, &text);
        let conf = "/etc/exim4/conf.d";
        self.write(&format!("{conf}/auth/50_day"), AUTHENTICATOR);
        self.write(&format!("{conf}/router/050_day"), ROUTERS);
        let transports = TRANSPORTS.replace("PORT", &smarthost.to_string());
        self.write(&format!("{conf}/transport/50_day"), &transports);
        let mut passwd = std::fs::read_to_string(self.path("/etc/passwd")).unwrap();
        for (n, name) in ["alice", "bob", "carol"].iter().enumerate() {
            passwd.push_str(&format!("{name}:x:{}:100::/:/bin/sh\n", 2001 + n));
        }
        self.write("/etc/passwd", &passwd);
        // A user who has left, of which strangers do not know.
        self.write("/etc/aliases", "old: gone@elsewhere.test\naway: alice\npostmaster: alice\n");

        // What the package installs, and the line of README.Debian, which uses all of
        // exim/acls.conf.
        let repository = shipped().parent().unwrap();
        self.copy_all(shipped(), "/etc/exim4/exirate");
        self.copy_all(&repository.join("debian/conf.d"), conf);
        std::fs::copy(library::built(), self.path("/usr/lib/exim4/exirate.so")).unwrap();
        self.write(
            "/usr/lib/exim4/exirate-libraries.conf",
            "EXIRATE = /usr/lib/exim4/exirate.so\n",
        );
        let readme = std::fs::read_to_string(repository.join("debian/README.Debian")).unwrap();
        let switch = "    RATELIMIT_POLICIES = yes\n";
        assert!(readme.contains(switch));
        let environment = "MAIN_KEEP_ENVIRONMENT = ^FAKETIME : NO_FAKE_STAT\n";
        self.write(
            &format!("{conf}/main/000_local"),
            &format!("{environment}{}", switch.trim_start()),
        );
        let ran = self.program(0, "update-exim4.conf", &[], b"");
        assert_eq!(ran.code, 0, "{ran:?}");
        let policy = std::fs::read_to_string(shipped().join("policy.toml")).unwrap();
        let none = |_: &Path| Err(String::new());
        let policies = compile(Path::new("policy.toml"), &policy, &none).policies.unwrap();
        image::install(&self.path("/var/spool/exim4"), &image::build(&policies)).unwrap();
    }

    /// Sets the clock so many seconds after the beginning.
    fn set_clock(&self, seconds: i64) {
        // A rename, so that no process reads half of it.
        self.write("/etc/fake-clock.new", &format!("+{seconds}"));
        std::fs::rename(self.path("/etc/fake-clock.new"), self.path("/etc/fake-clock")).unwrap();
    }

    fn command(&self, uid: u32, program: &str, arguments: &[&str]) -> Command {
        self.command_for(uid, program, arguments, "300")
    }

    /// As above, for so many seconds.
    fn command_for(&self, uid: u32, program: &str, arguments: &[&str], seconds: &str) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--foreground", seconds, "nsenter", "--mount", "--root", "--wd", "--uts"]);
        command.arg(format!("--target={}", self.holder.id()));
        command.args([format!("--setuid={uid}"), format!("--setgid={uid}")]);
        command.args(["--", program]).args(arguments);
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command
    }

    fn program(&self, uid: u32, program: &str, arguments: &[&str], input: &[u8]) -> Ran {
        run(self.command(uid, program, arguments), input)
    }

    /// Hands over a message by the `sendmail` command; whether it is accepted.
    fn sendmail(&self, uid: u32, arguments: &[&str], to: &str) -> bool {
        let arguments = [&["-oi"], arguments, &["--", to]].concat();
        self.program(uid, PROGRAM, &arguments, b"Subject: x\n\nhello\n").code == 0
    }

    /// An SMTP session from this address, after EHLO and, if there is a login, AUTH.
    fn session(&self, client: &str, auth: Option<&str>) -> Client {
        let mut smtp = Client::program(self.command(0, PROGRAM, &["-oMa", client, "-bs"]));
        assert_eq!(smtp.expect().code, 220);
        smtp.command("EHLO client.test");
        if let Some(auth) = auth {
            login(&mut smtp, auth);
        }
        smtp
    }

    /// Sends a message; how many of its recipients are accepted.
    fn send(&self, client: &str, auth: Option<&str>, from: &str, to: &[String]) -> usize {
        let mut smtp = self.session(client, auth);
        if !smtp.command(format!("MAIL FROM:<{from}>")).is_ok() {
            return 0;
        }
        let accepted =
            to.iter().filter(|to| smtp.command(format!("RCPT TO:<{to}>")).is_ok()).count();
        if accepted > 0 {
            let reply = smtp.data("Subject: x\n\nhello\n");
            assert!(reply.is_ok(), "{}", reply.text);
        }
        smtp.quit();
        accepted
    }

    /// So many messages of a stranger to one recipient, all of which must be accepted.
    fn strangers(&self, network: &str, count: usize, from: &str, to: &str) {
        for n in 0..count {
            let client = format!("{network}.{}", n % 200 + 1);
            assert_eq!(self.send(&client, None, from, &[to.to_owned()]), 1, "{client} {from} {to}");
        }
    }

    fn log(&self) -> String {
        let log = std::fs::read(self.path("/var/log/exim4/mainlog")).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// Waits until all messages have left the queue.
    fn wait_for_deliveries(&self) {
        let deadline = Instant::now() + kit::TIMEOUT;
        loop {
            let log = self.log();
            let count = |what: &str| log.lines().filter(|line| line.contains(what)).count();
            // Of a bounce, its message completes after it has arrived.
            if count(" <= ") == count(" Completed") {
                return;
            }
            assert!(Instant::now() < deadline, "{log}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The Internet behind the smarthost, which knows nobody called `gone`.
fn internet() -> PrivateExim {
    let mut internet = Setup::new()
        .main("smtp_accept_max = 0\nsmtp_accept_queue = 0\nrecipients_max = 0")
        .main("log_selector = +received_recipients")
        .acl("acl_smtp_rcpt", "  deny local_parts = gone\n  accept\n")
        .build();
    internet.start();
    internet
}

fn addresses(name: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{name}{n}@elsewhere.test")).collect()
}

#[test]
fn nobody_innocent_is_refused_in_a_day_of_mail() {
    let internet = internet();
    let machine = Machine::new(internet.port());
    let uid = |name: &str| user(name).0;
    let (www, backup, exim) = (uid("www-data"), uid("backup"), uid(USER));
    let list = addresses("subscriber", 300);
    // How many of the thief and of the web form passed, by hour.
    let mut passed = BTreeMap::<&str, Vec<usize>>::new();
    for hour in 0..24 {
        machine.set_clock(i64::from(hour) * HOUR);
        // Cron jobs, one of which fails every minute in one hour; and the mail server's user.
        for _ in 0..if hour == 3 { 60 } else { 2 } {
            assert!(machine.sendmail(0, &[], "root@mail.test"), "root");
        }
        assert!(machine.sendmail(backup, &[], "root@mail.test"), "backup");
        assert!(machine.sendmail(exim, &["-f", "<>"], "alice@mail.test"), "{USER}");
        // Other servers; in one hour they write to a user who has left, so that Exim sends
        // bounces, and to one who is away, and the smarthost returns what alice did not send.
        machine.strangers("198.51.100", 2, "friend@elsewhere.test", "alice@mail.test");
        if hour == 9 {
            machine.strangers("198.51.100", 120, "someone@elsewhere.test", "old@mail.test");
            machine.strangers("198.51.101", 70, "customer@elsewhere.test", "away@mail.test");
            machine.strangers("192.0.2", 60, "", "alice@mail.test");
        }
        // Webmail, which logs in for its users from this machine, and alice at home.
        if (8..18).contains(&hour) {
            let to = addresses(&format!("customer{hour}-"), if hour == 11 { 80 } else { 20 });
            for few in to.chunks(10) {
                let accepted = machine.send("127.0.0.1", Some("alice"), "alice@mail.test", few);
                assert_eq!(accepted, few.len(), "webmail at {hour}");
            }
            let client = format!("203.0.113.{hour}");
            let accepted = machine.send(&client, Some("alice"), "alice@mail.test", &to[..3]);
            assert_eq!(accepted, 3, "alice at {hour}");
        }
        // A list program uses SMTP on this machine, three times in one hour.
        if [10, 14, 14, 14, 20].contains(&hour) {
            for _ in 0..if hour == 14 { 3 } else { 1 } {
                let accepted = machine.send("127.0.0.1", None, "list@mail.test", &list);
                assert_eq!(accepted, list.len(), "the list at {hour}");
            }
        }
        // A web form, which is flooded for three hours from noon on, in every way that it can
        // pretend to be somebody else, or have Exim send its text to somebody else.
        let forged: [&[&str]; 7] = [
            &[],
            &["-f", "<>"],
            &["-f", "root@mail.test"],
            &["-f", "victim@elsewhere.test"],
            &["-f", "Debian-exim@mail.test", "-oMr", "local"],
            &["-f", "<>", "-oMt", "root", "-oMai", "root"],
            &["-oMa", "192.0.2.9", "-oMaa", "plain", "-oMai", "alice"],
        ];
        let attempts = if (12..15).contains(&hour) { 120 } else { 3 };
        for n in 0..attempts {
            let sent = machine.sendmail(www, forged[n % forged.len()], "victim@elsewhere.test");
            assert!(sent || hour >= 12, "the web form at {hour}");
        }
        // The thief has bob's password, and many machines.
        if (12..15).contains(&hour) {
            let to = addresses(&format!("stranger{hour}-"), 240);
            let sent: usize = to
                .chunks(20)
                .enumerate()
                .map(|(n, to)| {
                    machine.send(
                        &format!("203.0.113.{}", 100 + n),
                        Some("bob"),
                        "bob@mail.test",
                        to,
                    )
                })
                .sum();
            passed.entry("thief").or_default().push(sent);
        }
        machine.wait_for_deliveries();
        // Whatever Exim makes of them.
        let log = internet.log("main");
        let arrived = log.lines().filter(|line| line.contains(" for victim@")).count();
        let before: usize = passed.get("web").map_or(0, |passed| passed.iter().sum());
        passed.entry("web").or_default().push(arrived - before);
    }

    let log = machine.log();
    // The first hour of each attack is what the limit permits, and the next ones hardly more.
    let [web, thief] = ["web", "thief"].map(|who| passed[who].clone());
    let rest = |passed: &[usize]| passed.iter().sum::<usize>();
    assert!((40..=50).contains(&web[12]) && rest(&web[13..]) <= 10, "{web:?}");
    assert!((90..=100).contains(&thief[0]) && rest(&thief[1..]) <= 20, "{thief:?}");
    // Who was refused, and nobody else.
    let refused: std::collections::BTreeSet<&str> = log
        .lines()
        .filter_map(|line| line.split_once(": defer ")?.1.split_once(", key "))
        .map(|(_, key)| key.split(' ').next().unwrap())
        .collect();
    assert_eq!(Vec::from_iter(refused), ["auth:bob", "local_account:www-data"], "{log}");
    assert!(!log.contains("when writing error message"), "{log}");
    assert!(!log.contains("rozen"), "{log}");
    // Everything that Exim sent itself arrived: bounces, and the replies for those who are away.
    let arrived = internet.log("main");
    let to =
        |name: &str| arrived.lines().filter(|l| l.contains(" <= <> ") && l.contains(name)).count();
    assert_eq!((to("for someone@"), to("for customer@")), (120, 70));
    let panics = std::fs::read_to_string(machine.path("/var/log/exim4/paniclog"));
    assert!(panics.is_err(), "{panics:?}");
}

/// Forms of several sites, all of which run as www-data, by PHP itself.
#[test]
fn a_script_is_limited_and_named_and_its_account_counts_whatever_it_is_called() {
    let internet = internet();
    let machine = Machine::new(internet.port());
    let policy = std::fs::read_to_string(shipped().join("policy.toml")).unwrap();
    let (start, rest) = policy.split_once("# [policy.scripts]").unwrap();
    let (commented, rest) = rest.split_once("\n\n").unwrap();
    let policy = format!("{start}[policy.scripts]{}\n\n{rest}", commented.replace("\n# ", "\n"));
    let none = |_: &Path| Err(String::new());
    let policies = compile(Path::new("policy.toml"), &policy, &none).policies.unwrap();
    image::install(&machine.path("/var/spool/exim4"), &image::build(&policies)).unwrap();

    // Where the third argument is `other`, another program each time: it is in a directory of its
    // own, and writes the header itself.
    let form = "<?php\nif (($argv[3] ?? '') == 'other') { @mkdir(\"/tmp/$argv[2]\"); chdir(\"/tmp/$argv[2]\"); }\n\
        exit(mail($argv[1], 'Hello', \"Text\\n\", \"X-PHP-Originating-Script: 0:forged$argv[2].php\") ? 0 : 1);\n";
    for site in ["shop", "club"] {
        machine.write(&format!("/srv/www/{site}/contact.php"), form);
    }
    let www = user("www-data").0;
    let sent = |site: &str, header: &str, messages: std::ops::Range<usize>, how: &str| {
        let script = "cd \"/srv/www/$1\" && exec php -d \"mail.add_x_header=$2\" \
                      -d sendmail_path='/usr/sbin/sendmail -t -i' contact.php \"$3\" \"$4\" \"$5\"";
        let sends = |n: &usize| {
            let (to, n) = ("victim@elsewhere.test", n.to_string());
            let arguments = ["-c", script, "sh", site, header, to, &n, how];
            machine.program(www, "sh", &arguments, b"").code == 0
        };
        messages.filter(sends).count()
    };
    // Up to the limit; a little of the rate decays meanwhile.
    let of_shop = sent("shop", "On", 0..24, "");
    assert!((19..=20).contains(&of_shop), "{of_shop}");
    assert_eq!(sent("club", "On", 0..3, ""), 3);
    let of_others = of_shop + 3 + sent("club", "Off", 0..40, "other");
    assert!((49..=51).contains(&of_others), "{of_others}");

    let listed = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_exirate"));
        command.args(arguments).arg("--spool").arg(machine.path("/var/spool/exim4"));
        let ran = run(command, b"");
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{arguments:?}");
        ran.stdout
    };
    let crossings: Vec<serde_json::Value> = listed(&["events", "--json"])
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let who: Vec<_> =
        crossings.iter().map(|one| (one["key"].clone(), one["script"].clone())).collect();
    let account = "local_account:www-data";
    assert_eq!(who.len(), 2, "{who:?}");
    let shop = "/srv/www/shop:contact.php";
    assert_eq!(who[0], (format!("{account},script:{shop}").into(), shop.into()));
    assert_eq!(who[1].0, account);
    let last = who[1].1.as_str().unwrap();
    assert!(last.starts_with("/tmp/") && last.contains(":forged"), "{last}");
    let explained = listed(&["explain", "local_account:www-data"]);
    let named = |line: &str| line.contains("script /tmp/") && line.contains(":forged");
    assert!(explained.lines().any(named), "{explained}");
    assert_eq!(sent("club", "On", 0..1, ""), 0);
    let panics = std::fs::read_to_string(machine.path("/var/log/exim4/paniclog"));
    assert!(panics.is_err(), "{panics:?}");
}

#[test]
fn strangers_cannot_stop_the_mail_of_others() {
    let internet = internet();
    let machine = Machine::new(internet.port());
    // Bounces to carol without DATA, then one that is real.
    for n in 0..10 {
        let mut smtp = machine.session(&format!("198.51.100.{n}"), None);
        assert!(smtp.command("MAIL FROM:<>").is_ok());
        for to in ["carol@mail.test"; 10] {
            assert!(smtp.command(format!("RCPT TO:<{to}>")).is_ok());
        }
        // Refused as relaying.
        for to in ["victim@elsewhere.test"; 4] {
            assert_eq!(smtp.command(format!("RCPT TO:<{to}>")).code, 550);
        }
    }
    machine.strangers("203.0.113", 3, "", "carol@mail.test");
    // A client that tries recipients, and forgets each, stops itself alone; so does one that
    // guesses a password a connection.
    for n in 0..51 {
        let mut smtp = machine.session("198.51.100.77", None);
        smtp.command("MAIL FROM:<x@elsewhere.test>");
        smtp.command(format!("RCPT TO:<nobody{n}@mail.test>"));
        smtp.command("RSET");
        smtp.quit();
    }
    for _ in 0..21 {
        let mut smtp = machine.session("198.51.100.78", None);
        let guess = base64(b"\0alice\0bad");
        assert_eq!(smtp.command(format!("AUTH PLAIN {guess}")).code, 535);
    }
    let carol = ["carol@mail.test".to_owned()];
    for client in ["198.51.100.77", "198.51.100.78"] {
        assert_eq!(machine.send(client, None, "x@elsewhere.test", &carol), 0, "{client}");
    }
    machine.strangers("198.51.102", 2, "friend@elsewhere.test", "carol@mail.test");
    // Programs of one account do not stop those of another, nor SMTP on this machine.
    let (www, backup) = (user("www-data").0, user("backup").0);
    let sent = (0..60).filter(|_| machine.sendmail(www, &[], "victim@elsewhere.test")).count();
    assert!((49..=50).contains(&sent), "{sent}");
    assert!(machine.sendmail(backup, &[], "carol@mail.test"));
    assert_eq!(machine.send("127.0.0.1", None, "list@mail.test", &carol), 1);
    assert_eq!(machine.send("127.0.0.1", Some("alice"), "alice@mail.test", &carol), 1);
    // An SMTP dialogue on standard input is that account's too.
    let mut smtp = Client::program(machine.command(www, PROGRAM, &["-bs"]));
    assert_eq!(smtp.expect().code, 220);
    smtp.command("EHLO localhost");
    smtp.command("MAIL FROM:<>");
    assert_eq!(smtp.command("RCPT TO:<carol@mail.test>").code, 451);
    machine.wait_for_deliveries();
}
