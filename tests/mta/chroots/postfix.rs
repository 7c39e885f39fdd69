//! Postfix, by the policy protocol and as a milter, with the lines of docs/postfix.md.

use super::server::{FrontEnd, Server};
use super::{cases, faults};
use crate::document;
use kit::machine::{INSIDE, Machine};
use kit::until;

const PAGE: &str = include_str!("../../../docs/postfix.md");

/// What a Postfix has without exirate: users who log in, local accounts, and the world, which
/// it throws away. Its processes run in their chroot, as Debian has it.
const CONFIGURATION: &str = r#"compatibility_level = 3.6
alias_maps = hash:/etc/aliases
myhostname = mail.test
mydestination = mail.test, localhost
mynetworks = 127.0.0.0/8
inet_protocols = ipv4
default_transport = discard:
disable_dns_lookups = yes
smtpd_peername_lookup = no
smtpd_sasl_auth_enable = yes
smtpd_tls_security_level = none
message_size_limit = 30000000
mailbox_size_limit = 0
maillog_file = /var/log/mail.log
"#;
const SASL: &str = "pwcheck_method: auxprop\nauxprop_plugin: sasldb\nmech_list: PLAIN LOGIN\n";

/// A Postfix with exirate.
pub(super) fn start(chroot: &str, front_end: FrontEnd) -> Server {
    start_with(chroot, front_end, "")
}

/// The same with more lines for main.cf.
pub(super) fn start_with(chroot: &str, front_end: FrontEnd, more: &str) -> Server {
    let machine = Machine::start(chroot);
    Server::accounts(&machine);
    machine.write("/etc/postfix/sasl/smtpd.conf", SASL);
    Server::install(&machine, PAGE, front_end == FrontEnd::Milter);
    let [policy, milter] = document::for_file(PAGE, "cf", "/etc/postfix/main.cf")[..] else {
        panic!("the page has two blocks for main.cf")
    };
    let lines = if front_end == FrontEnd::Policy { policy } else { milter };
    machine.write("/etc/postfix/main.cf", &(CONFIGURATION.to_owned() + lines + more));
    machine.run(
        "set -e
        newaliases
        mkdir -p /var/spool/postfix/etc
        install -m 640 -g postfix /etc/sasldb2 /var/spool/postfix/etc/sasldb2
        chown root:postfix /etc/sasldb2
        chmod 640 /etc/sasldb2
        /usr/lib/postfix/configure-instance.sh '' 2>/dev/null || true
        postfix start",
    );
    until("Postfix listens", || machine.connect(INSIDE, 25).is_some());
    let server = Server { machine, front_end };
    // The page's commands for a Postfix that runs.
    let reload = document::commands(PAGE, "systemctl reload postfix");
    let reload: Vec<&str> = reload.lines().filter(|line| !line.contains("doctor")).collect();
    server.machine.run(&format!("set -e\n{}", reload.join("\n")));
    server
}

/// What Postfix must not have logged: it was served at all times.
fn served(server: &Server) {
    let log = server.machine.read("/var/log/mail.log");
    for wrong in ["problem talking to", "milter unix:", "fatal", "panic"] {
        let line = log.lines().find(|line| line.contains(wrong) && line.contains("exirate"));
        assert_eq!(line, None);
    }
    assert!(!log.contains("fatal:"), "{log}");
}

fn all_cases(chroot: &str, front_end: FrontEnd) {
    let server = start(chroot, front_end);
    cases::all(&server);
    served(&server);
}

#[test]
fn bookworms_is_limited_by_the_policy_protocol() {
    all_cases("bookworm-postfix", FrontEnd::Policy);
}

#[test]
fn trixies_is_limited_by_the_policy_protocol() {
    all_cases("trixie-postfix", FrontEnd::Policy);
}

#[test]
fn bookworms_is_limited_by_the_milter() {
    all_cases("bookworm-postfix", FrontEnd::Milter);
}

#[test]
fn trixies_is_limited_by_the_milter() {
    all_cases("trixie-postfix", FrontEnd::Milter);
}

#[test]
fn mail_goes_on_without_the_policy_service() {
    faults::all(&start("trixie-postfix", FrontEnd::Policy));
}

#[test]
fn mail_goes_on_without_the_milter() {
    faults::all(&start("bookworm-postfix", FrontEnd::Milter));
}
