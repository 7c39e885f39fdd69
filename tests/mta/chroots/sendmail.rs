//! Sendmail with the milter, with the lines of docs/sendmail.md.

use super::server::{FrontEnd, Server};
use super::{cases, faults};
use crate::document;
use kit::machine::{INSIDE, Machine};
use kit::until;

const PAGE: &str = include_str!("../../../docs/sendmail.md");

/// What a Sendmail has without exirate: users who log in, and local accounts.
const CONFIGURATION: &str = r"define(`_USE_ETC_MAIL_')dnl
include(`/usr/share/sendmail/cf/m4/cf.m4')dnl
OSTYPE(`debian')dnl
DOMAIN(`debian-mta')dnl
FEATURE(`no_default_msa')dnl
DAEMON_OPTIONS(`Family=inet, Name=MTA-v4, Port=smtp')dnl
define(`confDOMAIN_NAME', `mail.test')dnl
define(`confAUTH_MECHANISMS', `PLAIN LOGIN')dnl
define(`confAUTH_OPTIONS', `A')dnl
TRUST_AUTH_MECH(`PLAIN LOGIN')dnl
FEATURE(`nocanonify')dnl
dnl A busy machine delivers too.
define(`confQUEUE_LA', `100000')dnl
define(`confREFUSE_LA', `100000')dnl
define(`LOCAL_MAILER_PATH', `/usr/local/sbin/deliver')dnl
define(`LOCAL_MAILER_ARGS', `deliver $u')dnl
FEATURE(`accept_unresolvable_domains')dnl
";
/// Puts a message in a mailbox: Debian has that in a package of its own.
const DELIVER: &str = "#!/bin/sh\ncat >>\"/var/mail/$1\"\n";
const MAILERS: &str = "MAILER_DEFINITIONS\nMAILER(`local')dnl\nMAILER(`smtp')dnl\n";
const SASL: &str = "pwcheck_method: auxprop\nauxprop_plugin: sasldb\nmech_list: PLAIN LOGIN\n";

fn start() -> Server {
    start_with("", |_| {})
}

/// The same with more lines for sendmail.mc, after this.
pub(super) fn start_with(more: &str, prepare: impl FnOnce(&Machine)) -> Server {
    let machine = Machine::start("trixie-sendmail");
    prepare(&machine);
    Server::accounts(&machine);
    machine.write("/etc/mail/sasl/Sendmail.conf", SASL);
    machine.write("/usr/lib/sasl2/Sendmail.conf", SASL);
    machine.write("/etc/mail/local-host-names", "mail.test\nlocalhost\n");
    machine.write("/etc/mail/service.switch", "hosts files\naliases files\n");
    Server::install(&machine, PAGE, true);
    let lines = document::for_file(PAGE, "m4", "/etc/mail/sendmail.mc")[0];
    machine.write("/usr/local/sbin/deliver", DELIVER);
    machine.run("chmod 755 /usr/local/sbin/deliver");
    machine.write("/etc/mail/sendmail.mc", &(CONFIGURATION.to_owned() + lines + more + MAILERS));
    let make = document::commands(PAGE, "m4 /etc/mail/sendmail.mc");
    let make: Vec<&str> = make
        .lines()
        .filter(|line| !line.contains("doctor") && !line.contains("systemctl"))
        .collect();
    machine.run(&format!(
        "set -e\nnewaliases\n{}\n{}",
        make.join("\n"),
        "install -d -o smmta -g smmsp /run/sendmail/mta /run/sendmail/msp /run/sendmail/stampdir
        sendmail -bd -q1m"
    ));
    until("Sendmail listens", || machine.connect(INSIDE, 25).is_some());
    Server { machine, front_end: FrontEnd::Sendmail }
}

#[test]
fn it_is_limited_by_the_milter() {
    cases::all(&start());
}

#[test]
fn mail_goes_on_without_the_milter() {
    faults::all(&start());
}
