//! The filter and the jail for fail2ban, with the real fail2ban and lines that a real Exim
//! wrote through the shipped ACL files.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::{run, stderr, stdout};
use kit::{Client, PrivateExim, Setup};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// At most two recipients for each client, user, and sender of bounces.
const POLICY: &str = "version = 1
[identity]
chain = [\"auth\", \"local_account\", \"client\"]
[policy.outbound]
when = \"authenticated\"
update = \"strict\"
text = \"Over {limit}: {sender} {recipient} {key}\"
default.recipients = \"2.5/1w\"
[policy.web]
when = [\"local\", \"system\"]
update = \"strict\"
default.recipients = \"2.5/1w\"
[policy.inbound]
when = [\"!authenticated\", \"!local\"]
update = \"strict\"
text = \"Over {limit}: {sender} {recipient} {key}\"
verdicts = { \"60%\" = \"log\", \"100%\" = \"defer\", \"150%\" = \"reject\" }
default.recipients = \"2.5/1w\"
default.bytes = \"200/1w\"
";

/// A key of which a client chooses a part.
const CLAIMED: &str = "[policy.unsure]
when = [\"!authenticated\", \"!local\"]
key = [\"client\", \"sender\", \"helo\"]
update = \"strict\"
default.recipients = \"1.5/1w\"
";

/// An Exim with the shipped files in its ACLs, and `main` in its main section.
fn exim(main: &str, policy: &str) -> PrivateExim {
    let include = |name: &str| format!(".include {ROOT}/exim/{name}\n  accept\n");
    let mut setup = Setup::new()
        .library()
        .main("RATELIMIT_CONNECT = 1.5 / 1w\nRATELIMIT_CLIENT = 2.5 / 1w")
        .main(&format!(".include {ROOT}/exim/exirate.conf"))
        .main("hostlist relay_from_hosts = 127.0.0.3\nhelo_accept_junk_hosts = *")
        .main(main);
    if policy.is_empty() {
        setup = setup
            .acl("acl_smtp_connect", &include("acl_check_connect.conf"))
            .acl("acl_smtp_rcpt", &include("acl_check_rcpt_client.conf"));
    } else {
        for option in ["acl_smtp_rcpt", "acl_smtp_data", "acl_not_smtp"] {
            setup = setup.acl(option, &include("acl_policy.conf"));
        }
    }
    let exim = setup.build();
    if !policy.is_empty() {
        let file = exim.folder().join("policy.toml");
        fs::write(&file, policy).unwrap();
        let applied = run(&exim.spool(), &["policy", "apply", file.to_str().unwrap()]);
        assert!(applied.status.success(), "{}", stderr(&applied));
    }
    exim
}

/// A session from `address`, as `user` if that is not empty, that has sent this HELO.
fn session(exim: &PrivateExim, address: &str, user: &str, helo: &str) -> Client {
    let mut options = vec!["-oMa", address];
    if !user.is_empty() {
        options.extend(["-oMaa", "plain", "-oMai", user]);
    }
    options.push("-bs");
    let mut client = exim.pipe(&options).0;
    if client.expect().code == 220 {
        client.command(format!("HELO {helo}"));
    }
    client
}

/// Sends MAIL and RCPT; returns the code of the last reply.
fn recipients(client: &mut Client, sender: &str, recipients: &[&str]) -> u16 {
    assert_eq!(client.command(format!("MAIL FROM:<{sender}>")).code, 250, "{sender}");
    let reply = |to: &&str| client.command(format!("RCPT TO:<{to}>")).code;
    recipients.iter().map(reply).last().unwrap()
}

/// The addresses that fail2ban finds in a log, one for each line that matches.
fn addresses(folder: &Path, log: &str, options: &str) -> Vec<String> {
    let path = folder.join("fail2ban.log");
    fs::write(&path, log).unwrap();
    // fail2ban-regex takes no filter whose path has a blank.
    let filter = folder.join("exirate.filter.conf");
    fs::copy(Path::new(ROOT).join("scripts/maintenance/exirate.filter.conf"), &filter).unwrap();
    let output = Command::new("fail2ban-regex")
        .args(["--usedns", "no", "--out", "<ip>"])
        .arg(path)
        .arg(format!("{}[{options}]", filter.display()))
        .output()
        // Of the Debian package fail2ban.
        .unwrap();
    assert_eq!(stderr(&output), "");
    stdout(&output).lines().map(str::to_owned).collect()
}

/// The lines of the main log that contain `text`, without their time stamps.
fn lines<'a>(log: &'a str, text: &str) -> Vec<&'a str> {
    let lines = log.lines().filter_map(|line| line.find(text).map(|at| &line[at..]));
    lines.collect()
}

#[test]
fn clients_over_a_limit_are_found_in_every_form_of_the_log() {
    for main in [
        "",
        "log_selector = +all",
        "log_timezone = true\nlog_selector = +millisec",
        "log_timezone = true\nlog_selector = +pid",
    ] {
        let exim = exim(main, POLICY);
        for address in ["192.0.2.7", "2001:db8::7"] {
            let mut client = session(&exim, address, "", "client.test");
            // 60% is a line in the log, but no refusal.
            let to = ["a@private.test", "b@private.test", "c@private.test"];
            assert_eq!(recipients(&mut client, "s@client.test", &to), 451);
            assert_eq!(client.command("RCPT TO:<d@private.test>").code, 550);
            client.quit();
        }
        // Refused when it has been received, so its line has a message id.
        let mut client = session(&exim, "192.0.2.9", "", "client.test");
        let text = "Subject: x\n\n".to_owned() + &"x".repeat(400);
        assert_eq!(client.message("s@client.test", &["a@private.test"], &text).code, 550);
        client.quit();
        let log = exim.log("main");
        let key = "2.0 recipients, limit 2.5/1w, key client:192.0.2.7 (default)";
        let line = format!("policy inbound: log [192.0.2.7]: {key}");
        assert_eq!(lines(&log, "policy inbound: log [192.0.2.7]"), [line], "{log}");
        assert!(lines(&log, "bytes, limit 200/1w, key client:192.0.2.9 (default)").len() == 1);
        let expected = ["192.0.2.7", "192.0.2.7", "2001:db8::7", "2001:db8::7", "192.0.2.9"];
        assert_eq!(addresses(exim.folder(), &log, "mode=normal"), expected, "{log}");

        // The forms in which syslog writes each line, with Exim's time stamp or without.
        let stamp = |line: &str| -> usize {
            let date = "2026-11-23 06:14:14".len();
            let more = line[date..].find(|c: char| !matches!(c, '.' | '0'..='9')).unwrap() + date;
            let zone = line[more..].starts_with(" +") || line[more..].starts_with(" -");
            if zone { more + 7 } else { more + 1 }
        };
        for before in
            ["Nov  3 06:14:14 mail exim[77]: ", "2026-11-23T06:14:14.5+00:00 mail exim4: "]
        {
            let with: String = log.lines().map(|line| format!("{before}{line}\n")).collect();
            assert_eq!(addresses(exim.folder(), &with, "log=syslog"), expected, "{with}");
            let without = |line: &str| format!("{before}{}\n", &line[stamp(line)..]);
            let without: String = log.lines().map(without).collect();
            assert_eq!(addresses(exim.folder(), &without, "log=syslog"), expected, "{without}");
        }
        assert_eq!(exim.log("panic"), "");
    }
}

#[test]
fn users_are_found_only_if_the_administrator_says_so() {
    let exim = exim("", POLICY);
    let to = ["a@private.test", "b@private.test", "c@private.test"];
    let mut client = session(&exim, "192.0.2.7", "alice", "client.test");
    assert_eq!(recipients(&mut client, "s@client.test", &to), 451);
    client.quit();
    // A web form has no address.
    let ran = exim.run(&to, b"Subject: x\n\nx\n");
    assert_ne!(ran.code, 0, "{}", ran.stderr);
    let log = exim.log("main");
    let user = "policy outbound: defer [192.0.2.7]: 3.0 recipients, limit 2.5/1w, key auth:alice";
    assert_eq!(lines(&log, "policy outbound"), [format!("{user} (default)")], "{log}");
    assert_eq!(lines(&log, "policy web: defer local: 3.0 recipients, limit 2.5/1w").len(), 1);
    assert!(addresses(exim.folder(), &log, "mode=normal").is_empty(), "{log}");
    assert_eq!(addresses(exim.folder(), &log, "mode=aggressive"), ["192.0.2.7"], "{log}");
}

#[test]
fn recipients_that_do_not_exist_are_reason_enough() {
    let policy = "version = 1\n[policy.guesses]\nupdate = \"strict\"\n\
                  default.rejected_recipients = \"1.5/1w\"\n";
    let exim = exim("", policy);
    let config = fs::read_to_string(exim.config()).unwrap();
    let rejects = "  deny local_parts = nobody\n  accept\n";
    fs::write(exim.config(), config.replacen("  accept\n", rejects, 1)).unwrap();
    let to = ["nobody@private.test"; 4];
    for user in ["", "alice"] {
        let mut client = session(&exim, "192.0.2.7", user, "client.test");
        assert_eq!(recipients(&mut client, "s@client.test", &to), 451, "{}", exim.log("main"));
    }
    let log = exim.log("main");
    assert!(log.contains("rejected_recipients, limit 1.5/1w, key auth:alice (default)"), "{log}");
    let lines = lines(&log, "policy guesses: defer ").len();
    assert_eq!(addresses(exim.folder(), &log, "mode=normal"), vec!["192.0.2.7"; lines], "{log}");
}

#[test]
fn the_other_limits_of_clients_are_found() {
    for main in ["", "log_selector = +all"] {
        let exim = exim(main, "");
        let to = ["a@private.test", "b@private.test", "c@private.test"];
        for address in ["192.0.2.7", "2001:db8::7"] {
            let mut client = session(&exim, address, "", "client.test");
            assert_eq!(recipients(&mut client, "s@client.test", &to), 451);
            drop(client);
            // The second connection.
            drop(session(&exim, address, "", "client.test"));
        }
        let log = exim.log("main");
        for line in [
            "over the limit: [192.0.2.7]: 3.0 recipients, limit 2.5 / 1w",
            "over the limit: [192.0.2.7]: 2.0 connections, limit 1.5 / 1w",
        ] {
            assert_eq!(lines(&log, line), [line], "{log}");
        }
        let expected = ["192.0.2.7", "192.0.2.7", "2001:db8::7", "2001:db8::7"];
        assert_eq!(addresses(exim.folder(), &log, "mode=normal"), expected, "{log}");
        assert_eq!(exim.log("panic"), "");
    }
}

/// What a client may choose to get 192.0.2.1 banned.
fn hostile() -> Vec<String> {
    let line = "policy inbound: defer [192.0.2.1]: 9.0 recipients, limit 1/1h, \
                key client:192.0.2.1 (default)";
    let date = "2026-11-23 06:14:14";
    vec![
        line.to_owned(),
        format!(" {line}"),
        format!("x {date} {line}"),
        format!("\\\"{date} {line}\\\""),
        format!("[192.0.2.1] 1vLPqB-000000005Zk-0aQe {line}"),
        format!("(x) [192.0.2.1]: {line}"),
        format!("x exim[77]: {date} {line}"),
        format!("a\\nb\\r\\n{date} {line}"),
        "]: 9.0 recipients, limit 1/1h, key client:192.0.2.1 (".to_owned(),
        "over the limit: [192.0.2.1]: 9.0 recipients, limit 1 / 1h".to_owned(),
        "alice (default) key client:192.0.2.1 (x".to_owned(),
        "[192.0.2.1]".to_owned(),
        "192.0.2.1".to_owned(),
    ]
}

#[test]
fn what_a_client_chooses_bans_nobody_else() {
    for main in ["", "log_selector = +all", "print_topbitchars = true"] {
        let exim = exim(main, &format!("{POLICY}{CLAIMED}"));
        for (n, text) in hostile().into_iter().enumerate() {
            let quoted = |domain: &str| format!("\"{text}\"@{domain}");
            let to: Vec<String> = (0..5).map(|n| quoted(&format!("r{n}.test"))).collect();
            let to: Vec<&str> = to.iter().map(String::as_str).collect();
            let plain = text.replace(['\\', '"'], "");
            for user in ["", &plain] {
                let address = format!("198.51.100.{}", n + 100 * usize::from(!user.is_empty()));
                let mut client = session(&exim, &address, user, &plain);
                let code = recipients(&mut client, &quoted("sender.test"), &to);
                assert!(code == 451 || code == 550, "{text}: {code}\n{}", exim.log("main"));
                client.command("RSET");
                // Commands that are no commands, and a message with such headers.
                client.command(&plain);
                client.command(format!("VRFY {plain}"));
                client.quit();
                let mut client = session(&exim, &address, user, &plain);
                let body =
                    format!("Subject: {plain}\nX: a\n {plain}\nFrom: \"{text}\" <a@b.c>\n\nx\n");
                client.message(&quoted("sender.test"), &to[..1], &body);
                client.quit();
            }
        }
        let log = exim.log("main");
        assert!(log.matches("192.0.2.1").count() > 100, "{log}");
        let syslog: String =
            log.lines().map(|line| format!("Nov 23 06:14:14 mail exim[77]: {line}\n")).collect();
        for mode in ["normal", "aggressive"] {
            let option = format!("mode={mode}");
            let found = addresses(exim.folder(), &log, &option);
            assert!(found.len() > 20, "{mode}: {found:?}");
            assert!(found.iter().all(|ip| ip.starts_with("198.51.100.")), "{mode}: {found:?}");
            let users = found.iter().any(|ip| ip.len() == "198.51.100.100".len());
            assert_eq!(users, mode == "aggressive", "{mode}: {found:?}");
            let option = format!("{option},log=syslog");
            assert_eq!(addresses(exim.folder(), &syslog, &option), found);
        }
    }
}

#[test]
fn a_policy_that_cannot_be_evaluated_bans_nobody() {
    let exim = exim("", &POLICY.replace("\"!local\"]", "\"!local\"]\non_error = \"fail-closed\""));
    // The database cannot be used.
    let database = exim.spool().join("exirate/database");
    let _ = fs::remove_file(&database);
    fs::create_dir(&database).unwrap();
    let mut client = session(&exim, "192.0.2.7", "", "client.test");
    assert_eq!(recipients(&mut client, "s@client.test", &["a@private.test"]), 451);
    client.quit();
    let log = exim.log("main");
    let line = "policy inbound: defer [192.0.2.7]: Temporarily unavailable; try again later";
    assert_eq!(lines(&log, "policy inbound: "), [line], "{log}");
    for mode in ["mode=normal", "mode=aggressive"] {
        assert!(addresses(exim.folder(), &log, mode).is_empty(), "{log}");
    }
}

/// A fail2ban with the shipped filter and jail, which writes whom it bans into a file.
struct Fail2ban<'a> {
    exim: &'a PrivateExim,
    server: Option<Child>,
}

impl<'a> Fail2ban<'a> {
    fn new(exim: &'a PrivateExim) -> Self {
        let own = exim.folder().join("fail2ban");
        let copied = Command::new("cp").args(["-r", "/etc/fail2ban"]).arg(&own).output().unwrap();
        assert!(copied.status.success(), "fail2ban is needed: {}", stderr(&copied));
        fs::remove_dir_all(own.join("jail.d")).unwrap();
        fs::create_dir(own.join("jail.d")).unwrap();
        let shipped = |name: &str| Path::new(ROOT).join("scripts/maintenance").join(name);
        fs::copy(shipped("exirate.filter.conf"), own.join("filter.d/exirate.conf")).unwrap();
        let jail = fs::read_to_string(shipped("exirate.jail.conf")).unwrap();
        let log = exim.folder().join("log/mainlog");
        let jail = jail.replace("/var/log/exim4/mainlog", log.to_str().unwrap());
        fs::write(own.join("jail.d/exirate.conf"), jail).unwrap();
        // In place of the firewall.
        let banned = exim.folder().join("banned");
        let action = format!("[Definition]\nactionban = echo <ip> >>{}\n", banned.display());
        fs::write(own.join("action.d/to-file.conf"), action).unwrap();
        let here = |name: &str| exim.folder().join(name).display().to_string();
        let local = format!(
            "[DEFAULT]\nsocket = {}\npidfile = {}\nlogtarget = {}\ndbfile = None\n",
            here("fail2ban.sock"),
            here("fail2ban.pid"),
            here("fail2ban-server.log")
        );
        fs::write(own.join("fail2ban.local"), local).unwrap();
        fs::write(own.join("jail.local"), "[DEFAULT]\naction = to-file\n").unwrap();
        Self { exim, server: None }
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.arg("-c").arg(self.exim.folder().join("fail2ban")).env_remove("LD_PRELOAD");
        command
    }

    fn client(&self, arguments: &[&str]) -> Output {
        self.command("fail2ban-client").args(arguments).output().unwrap()
    }

    fn banned(&self) -> Vec<String> {
        let text = fs::read_to_string(self.exim.folder().join("banned")).unwrap_or_default();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }
}

impl Drop for Fail2ban<'_> {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

#[test]
fn the_jail_bans_who_goes_on_after_being_refused() {
    let exim = exim("", POLICY);
    let session = |address: &str, user: &str, times: usize| {
        let mut client = session(&exim, address, user, "client.test");
        let to: Vec<String> = (0..times + 2).map(|n| format!("r{n}@private.test")).collect();
        recipients(
            &mut client,
            "s@client.test",
            &to.iter().map(String::as_str).collect::<Vec<_>>(),
        );
        client.quit();
    };
    session("192.0.2.7", "", 99);
    let mut fail2ban = Fail2ban::new(&exim);
    let tested = fail2ban.client(&["-t"]);
    assert!(tested.status.success(), "{}{}", stdout(&tested), stderr(&tested));
    let server = fail2ban.command("fail2ban-server").arg("-f").stdout(Stdio::null()).spawn();
    fail2ban.server = Some(server.unwrap());
    for address in ["192.0.2.8", "2001:db8::8"] {
        session(address, "", 100);
    }
    session("192.0.2.9", "alice", 150);
    session("127.0.0.5", "", 150);
    let deadline = Instant::now() + kit::TIMEOUT;
    while fail2ban.banned().len() < 2 {
        let log = fs::read_to_string(exim.folder().join("fail2ban-server.log"));
        assert!(Instant::now() < deadline, "{log:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    // All lines before these have been read.
    session("192.0.2.10", "", 100);
    while fail2ban.banned().len() < 3 {
        assert!(Instant::now() < deadline, "{:?}", fail2ban.banned());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(fail2ban.banned(), ["192.0.2.10", "192.0.2.8", "2001:db8::8"]);
}
