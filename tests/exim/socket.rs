//! An Exim that loads no library asks `exirate serve mail` by its socket: everything is counted
//! and said as by the library. Debian's light Exims, old and new, and the machine's own.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use crate::acl_files::{base64, copy_shipped, login};
use crate::policy::{ALL_UNITS, STAGES, apply, rates};
use exirate::engine::Kind;
use exirate::spool::{Options, Spool};
use exirate::store::{Entry, Inspect};
use kit::exim::open_to_all;
use kit::front_ends::Machine;
use kit::{Client, PrivateExim, Process, Setup};

/// Who decides for an Exim.
enum Decider {
    Library,
    Socket(Machine, Option<Process>),
}

/// An Exim with the shipped files, and who decides for it.
struct Asking {
    exim: PrivateExim,
    decider: Decider,
}

impl Asking {
    /// The machine's Exim with the library.
    fn library(policies: &str, setup: impl FnOnce(Setup) -> Setup) -> Self {
        let exim = built(setup(Setup::new().library()));
        apply(&exim, policies);
        Self { exim, decider: Decider::Library }
    }

    /// An Exim that asks the socket: the machine's, or that of a chroot.
    fn socket(chroot: Option<&str>, policies: &str, setup: impl FnOnce(Setup) -> Setup) -> Self {
        let machine = Machine::for_exim(policies, "");
        let daemon = machine.start();
        let new = Setup::new().socket(&machine.path("policy.sock"));
        let new = chroot.into_iter().fold(new, Setup::of_chroot);
        Self { exim: built(setup(new)), decider: Decider::Socket(machine, Some(daemon)) }
    }

    /// The rates of all records, by their names.
    fn rates(&self) -> BTreeMap<String, i64> {
        let spool = match &self.decider {
            Decider::Library => return rates(&self.exim),
            Decider::Socket(machine, _) => machine.spool(),
        };
        let mut rates = BTreeMap::new();
        let mut spool = Spool::open(&spool, Options::default()).unwrap();
        let visit = &mut |entry: Entry| {
            if entry.kind == Kind::Policy {
                let name = String::from_utf8(entry.key.clone()).unwrap();
                let name = name.replace("p/", "").replace("/1w/", " ");
                rates.insert(name, entry.average.rate.round() as i64);
            }
        };
        Inspect::for_each(&mut spool, visit).unwrap();
        rates
    }
}

/// An Exim with the shipped files beside its configuration.
fn built(setup: Setup) -> PrivateExim {
    let exim = setup.auth().main(".include PRIVATE/exim/exirate.conf").build();
    copy_shipped(&exim);
    exim
}

const POLICY: &str = "  .include PRIVATE/exim/acl_policy.conf\n";
const END: &str = "  .include PRIVATE/exim/acl_policy_end.conf\n";

/// The policies in every ACL, as the heads of the files say.
fn everywhere(setup: Setup) -> Setup {
    let setup =
        STAGES.iter().filter(|stage| **stage != "acl_smtp_mime").fold(setup, |setup, stage| {
            let lines = match *stage {
                "acl_smtp_quit" | "acl_smtp_notquit" => format!("{END}  accept\n"),
                "acl_smtp_auth" => format!("{POLICY}  accept\n"),
                "acl_smtp_rcpt" => format!(
                    "{POLICY}{POLICY}  deny local_parts = bad\n  deny !acl = inner\n  \
                 .include PRIVATE/exim/acl_policy_refused.conf\n  accept\n"
                ),
                // Twice: each thing is counted once.
                _ => format!("{POLICY}{POLICY}  accept\n"),
            };
            setup.acl(stage, &lines)
        });
    let setup = setup.acls("inner:\n  deny local_parts = worse\n  accept\n");
    setup.main("prdr_enable = true\nchunking_advertise_hosts = *\nhelo_accept_junk_hosts = *\nacl_smtp_vrfy = accept")
}

fn session(exim: &PrivateExim, last: u8) -> Client {
    let mut client = exim.connect(Ipv4Addr::new(127, 0, 0, last));
    assert_eq!(client.expect().code, 220);
    client.command("EHLO client.test");
    client
}

/// Dialogues that pass all stages, with pipelining, RSET, failed logins, refused recipients,
/// several messages and connections that break.
fn dialogues(exim: &PrivateExim) {
    let mut client = session(exim, 1);
    for _ in 0..3 {
        assert_eq!(client.command(format!("AUTH PLAIN {}", base64(b"\0u\0bad"))).code, 535);
    }
    login(&mut client, "Alice");
    for (from, to) in [("a@c.test", &["u", "v", "w"][..]), ("", &["u", "x"])] {
        let to: Vec<String> = to.iter().map(|name| format!("{name}@private.test")).collect();
        let to: Vec<&str> = to.iter().map(String::as_str).collect();
        let reply = client.message(from, &to, "Subject: x\n\nhello\n");
        assert!(reply.is_ok(), "{}", reply.text);
    }
    client.quit();
    // Refused recipients, forgotten by RSET and by another EHLO; what is in one packet.
    let mut client = session(exim, 2);
    for end in ["RSET", "EHLO again.test"] {
        client.send(
            format!(
                "MAIL FROM:<b@c.test>\r\nRCPT TO:<bad@private.test>\r\nRCPT TO:<y@private.test>\r\n\
                 RCPT TO:<worse@private.test>\r\n{end}\r\n"
            )
            .as_bytes(),
        );
        let codes = [(); 5].map(|()| client.expect().code);
        assert_eq!(codes, [250, 550, 250, 550, 250]);
    }
    client.quit();
    // By BDAT, with PRDR.
    let mut client = session(exim, 3);
    login(&mut client, "bdat");
    assert!(client.command("MAIL FROM:<a@c.test> PRDR").is_ok());
    assert!(client.command("RCPT TO:<u@private.test>").is_ok());
    assert!(client.command("RCPT TO:<v@private.test>").is_ok());
    client.send(b"BDAT 9\r\nSubject: BDAT 10 LAST\r\n\r\n\r\nhello\r");
    assert!(client.expect().is_ok() && client.expect().code / 100 <= 3);
    client.quit();
    // In a batch, from standard input, and as a local dialogue.
    let batch = b"MAIL FROM:<a@c.test>\nRCPT TO:<u@private.test>\nDATA\nSubject: x\n\nx\n.\n";
    exim.run(&["-oMa", "192.0.2.8", "-bS"], batch);
    let message = b"Subject: x\n\nx\n";
    exim.run(&["-oMa", "192.0.2.9", "u@private.test", "v@private.test", "u@private.test"], message);
    let (mut client, _) = exim.pipe(&["-bs"]);
    client.expect();
    client.command("EHLO client.test");
    client.message("l@c.test", &["u@private.test"], "Subject: x\n\nx\n");
    client.quit();
    // One that breaks, after a guess and a refused recipient.
    let mut client = session(exim, 4);
    assert_eq!(client.command(format!("AUTH PLAIN {}", base64(b"\0u\0bad"))).code, 535);
    client.command("MAIL FROM:<>");
    client.command("RCPT TO:<bad@private.test>");
    drop(client);
}

/// The rates without those of bytes, which differ with the headers that an Exim adds; of those
/// whether there are any.
fn comparable(rates: BTreeMap<String, i64>) -> BTreeMap<String, i64> {
    let plain = |(name, rate): (String, i64)| {
        let rate = if name.starts_with("bytes ") { i64::from(rate > 10) } else { rate };
        (name, rate)
    };
    rates.into_iter().map(plain).collect()
}

/// Waits until the last connection, which broke, has been counted.
fn counted(asking: &Asking) -> BTreeMap<String, i64> {
    asking.exim.wait_until("the end of the broken connection", |_| {
        let rates = asking.rates();
        rates.get("auth_failures client:127.0.0.1") == Some(&4)
            && rates.get("rejected_recipients client:127.0.0.1") == Some(&5)
    });
    comparable(asking.rates())
}

/// Every dialogue counts the same by the socket, in this Exim, as by the library.
fn counts_as_the_library(chroot: Option<&str>) {
    let counted = |mut asking: Asking| {
        asking.exim.start();
        dialogues(&asking.exim);
        let rates = counted(&asking);
        let panics = asking.exim.log("panic");
        assert!(panics.lines().all(|line| line.contains("lost privilege")), "{panics}");
        rates
    };
    let expected = counted(Asking::library(ALL_UNITS, everywhere));
    assert_eq!(counted(Asking::socket(chroot, ALL_UNITS, everywhere)), expected);
}

#[test]
fn everything_is_counted_as_by_the_library() {
    counts_as_the_library(None);
}

/// Each text that a client can choose is a key.
const BY_TEXT: &str = "[identity]\nfold = { case = false }\n\
    [policy.a]\nkey = \"auth\"\ndefault.messages = \"1M/1w\"\n\
    [policy.s]\nkey = \"sender\"\ndefault.recipients = \"1M/1w\"\n\
    [policy.r]\nkey = \"recipient\"\ndefault.unique_recipients = \"1k/1w\"\n\
    [policy.h]\nkey = \"helo\"\ndefault.connections = \"1M/1w\"\n\
    [policy.w]\nkey = \"script\"\ndefault.recipients = \"1M/1w\"\n";

/// Sends what a client can choose, as far as Exim accepts it.
fn hostile(exim: &PrivateExim) {
    let texts: [&[u8]; 12] = [
        b"a=b",
        b"a\tsender=x@y.test",
        b"100%s%n",
        b"$h${readsocket{/x}{y}}",
        b"\\\\n\\\\",
        b"a, b",
        b"\xc3\xa9",
        b"\xff\xfe",
        b"{}}{",
        b"verdict=accept",
        b"a  b ",
        &[b'x'; 60],
    ];
    for (n, text) in texts.iter().enumerate() {
        let mut client = exim.connect(Ipv4Addr::new(127, 0, 1, n as u8));
        assert_eq!(client.expect().code, 220);
        client.command([b"EHLO ", *text].concat());
        client.command("EHLO client.test");
        // A login may have any byte but NUL.
        let name = [text, &b"\nauthenticated=\nrequest=exirate_policy\r\n\n"[..], text].concat();
        login(&mut client, &name);
        let quoted = [b"\"", *text, b"\""].concat();
        client.command([b"MAIL FROM:<", &quoted[..], b"@c.test>"].concat());
        client.command("MAIL FROM:<plain@c.test>");
        client.command([b"RCPT TO:<", &quoted[..], b"@private.test>"].concat());
        client.command("RCPT TO:<u@private.test>");
        client.data("Subject: x\n\nx\n");
        client.quit();
        // A local program; the sender stands for its script.
        let (mut local, _) = exim.pipe(&["-bs"]);
        assert_eq!(local.expect().code, 220);
        local.command("EHLO client.test");
        if local.command([b"MAIL FROM:<", &quoted[..], b"@c.test>"].concat()).is_ok() {
            local.command("RCPT TO:<u@private.test>");
        }
        local.quit();
    }
    // All recipients at once.
    let list = ["\"a, b\"@private.test", "\"c\\\"d, e\"@private.test", "u@private.test"];
    exim.run(&[&["-oMa", "192.0.2.9"][..], &list].concat(), b"Subject: x\n\nx\n");
}

/// What a client sends arrives as in the library, and changes nothing else.
fn texts_arrive(chroot: Option<&str>) {
    let everywhere = |setup: Setup| {
        let setup = ["connect", "helo", "mail", "rcpt", "data", "quit"]
            .iter()
            .fold(setup, |setup, stage| {
                setup.acl(&format!("acl_smtp_{stage}"), &format!("{POLICY}  accept\n"))
            });
        setup
            .acl("acl_not_smtp", &format!("{POLICY}  accept\n"))
            .main("helo_accept_junk_hosts = *\nsmtputf8_advertise_hosts =")
            .main("RATELIMIT_SCRIPT = $sender_address")
    };
    let counted = |mut asking: Asking| {
        asking.exim.start();
        hostile(&asking.exim);
        let rates = asking.rates();
        assert_eq!(asking.exim.log("main").matches("no verdict").count(), 0);
        rates
    };
    let expected = counted(Asking::library(BY_TEXT, everywhere));
    assert!(expected.len() > 40, "{expected:?}");
    let scripts = expected.keys().filter(|name| name.starts_with("w/")).count();
    assert!(scripts > 8, "{expected:?}");
    assert!(!expected.keys().any(|name| name.contains("script:plain")), "{expected:?}");
    let by_socket = counted(Asking::socket(chroot, BY_TEXT, everywhere));
    for (name, rate) in &expected {
        assert_eq!(by_socket.get(name), Some(rate), "{name:?}");
    }
    assert_eq!(by_socket, expected);
}

#[test]
fn no_text_of_a_client_adds_or_changes_an_attribute() {
    texts_arrive(None);
}

#[test]
fn every_verdict_has_its_effect_its_text_and_its_line() {
    let text = "100% \\\"of\\\" $h \\\\n {limit}: \u{e9}";
    for (verdict, code) in
        [("reject", 550), ("defer", 451), ("log", 250), ("delay", 250), ("hold", 250)]
    {
        let policy = format!(
            "[policy.p]\nupdate = \"strict\"\nlongest_delay = \"1s\"\ntext = \"{text}\"\n\
             default.recipients = \"1.5/1w\"\nverdicts = {{ \"100%\" = \"{verdict}\" }}\n"
        );
        let with_policy = |setup: Setup| setup.acl("acl_smtp_rcpt", &format!("{POLICY}  accept\n"));
        let seen =
            [Asking::library(&policy, with_policy), Asking::socket(None, &policy, with_policy)]
                .map(|mut asking| {
                    asking.exim.start();
                    let mut client = asking.exim.session();
                    let to = ["a@private.test", "b@private.test"];
                    let reply = client.message("s@client.test", &to, "Subject: x\n\nx\n");
                    assert_eq!(reply.code, code, "{verdict}: {}", reply.text);
                    client.quit();
                    let log = asking.exim.log("main");
                    let line =
                        log.lines().find_map(|line| line.split_once("policy p: ")).unwrap().1;
                    assert_eq!(log.contains("frozen"), verdict == "hold", "{log}");
                    assert_eq!(asking.exim.log("panic"), "");
                    let text = if code == 250 { String::new() } else { reply.text };
                    (text, line.to_owned())
                });
        assert_eq!(seen[0], seen[1]);
        assert!(seen[0].1.starts_with(&format!("{verdict} [127.0.0.1]: 2.0 recipients")));
    }
}

const DEFER: &str = "[policy.p]\nupdate = \"strict\"\ntext = \"no more\"\n\
                     default.recipients = \"1.5/1w\"\n";

/// The codes of three RCPT commands in one connection.
fn three(exim: &PrivateExim) -> [u16; 3] {
    let mut client = exim.session();
    client.command("MAIL FROM:<s@client.test>");
    let codes =
        ["a", "b", "c"].map(|name| client.command(format!("RCPT TO:<{name}@private.test>")).code);
    client.quit();
    codes
}

/// Without the daemon, mail is accepted or deferred, and the log says so.
fn goes_on_without_the_daemon(chroot: Option<&str>) {
    for (unanswered, code) in [("accept", 250), ("defer", 451)] {
        let mut asking = Asking::socket(chroot, DEFER, |setup| {
            let setup = ["acl_smtp_rcpt", "acl_smtp_data"]
                .iter()
                .fold(setup, |setup, stage| setup.acl(stage, &format!("{POLICY}  accept\n")));
            setup.main(&format!("RATELIMIT_UNANSWERED = {unanswered}"))
        });
        asking.exim.start();
        let Decider::Socket(machine, daemon) = &mut asking.decider else { unreachable!() };
        *daemon = None;
        assert_eq!(three(&asking.exim), [code; 3]);
        // What Exim has opened since is not written to instead.
        let mut client = asking.exim.session();
        for _ in 0..2 {
            let reply =
                client.message("s@client.test", &["a@private.test"], "Subject: x\n\nhello\n");
            assert_eq!(reply.code, code, "{}", reply.text);
            client.command("RSET");
        }
        client.quit();
        let log = asking.exim.log("main");
        assert_eq!(log.matches("exirate: no verdict from ").count(), 2, "once a connection: {log}");
        assert_eq!(asking.exim.log("panic"), "");
        for file in find(&asking.exim.spool()) {
            let text = String::from_utf8_lossy(&std::fs::read(&file).unwrap()).into_owned();
            assert!(!text.contains("request="), "{file:?}: {text}");
        }
        assert!(!log.contains("request="), "{log}");
        // Back again.
        *daemon = Some(machine.start());
        assert_eq!(three(&asking.exim), [250, 451, 451]);
        let log = asking.exim.log("main");
        assert!(log.contains("policy p: defer [127.0.0.1]: 2.0 recipients"), "{log}");
        assert_eq!(log.matches("exirate: no verdict from ").count(), 2, "{log}");
    }
}

#[test]
fn without_the_daemon_mail_goes_on() {
    goes_on_without_the_daemon(None);
}

/// All files in a directory.
fn find(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let (directories, mut files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    files.extend(directories.iter().flat_map(|directory| find(directory)));
    files
}

#[test]
fn a_daemon_that_says_nothing_is_awaited_until_the_deadline() {
    let folder = tempfile::tempdir().unwrap();
    open_to_all(folder.path());
    let path = folder.path().join("silent.sock");
    let _listens = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    std::fs::set_permissions(&path, mode).unwrap();
    let setup = Setup::new().socket(&path).main("RATELIMIT_DEADLINE = 1s");
    let mut exim = built(setup.acl("acl_smtp_rcpt", &format!("{POLICY}  accept\n")));
    exim.start();
    assert_eq!(three(&exim), [250; 3]);
    assert_eq!(exim.log("main").matches("exirate: no verdict from ").count(), 1);
}

#[test]
fn a_spec_is_checked_as_by_the_library() {
    let lines = "  defer message = RATELIMIT_INFO{rate}} of RATELIMIT_INFO{limit}} in \
                 RATELIMIT_INFO{period}}, RATELIMIT_INFO{mode}} RATELIMIT_INFO{remaining}} \
                 RATELIMIT_INFO{key}}\n\
                 \x20       condition = RATELIMIT_OVER{2.5 / 1w / per_rcpt / strict}{k/noupdate \"$sender_address\"}}\n\
                 \x20 defer message = the same\n\
                 \x20       condition = RATELIMIT_OVER{1k / 1w / per_rcpt / strict}{k/noupdate \"$sender_address\"}}\n\
                 \x20       condition = ${if eq{RATELIMIT_INFO{rate}}}{1.0}}\n\
                 \x20       condition = ${if eq{$local_part}{b}}\n  accept\n";
    let wrong = "  warn local_parts = wrong\n       condition = RATELIMIT_OVER{2.5 / soon}{k}}\n";
    let setup = |setup: Setup| {
        let setup = setup.acl("acl_smtp_rcpt", &format!("{wrong}{lines}"));
        setup.acls(".include PRIVATE/exim/acls_socket.conf")
    };
    let seen =
        [Asking::library(DEFER, setup), Asking::socket(None, DEFER, setup)].map(|mut asking| {
            asking.exim.start();
            let mut client = asking.exim.session();
            client.command("MAIL FROM:<\"a / leaky\"@client.test>");
            let replies = ["a", "b", "c", "d"]
                .map(|name| client.command(format!("RCPT TO:<{name}@private.test>")).text);
            assert!(replies[0].starts_with("250"), "{replies:?}");
            assert!(
                replies[2].starts_with("451 3.0 of 2.5 in 1w, per_rcpt 0 k/noupdate"),
                "{replies:?}"
            );
            let wrong = client.command("RCPT TO:<wrong@private.test>").code;
            client.quit();
            assert!(asking.exim.log("main").contains("soon"), "{}", asking.exim.log("main"));
            (replies, wrong)
        });
    assert_eq!(seen[0], seen[1]);
}

#[test]
fn mail_of_the_system_is_not_counted() {
    let policy = "[policy.p]\nkey = \"local_account\"\ntext = \"no more\"\ndefault.recipients = \"1.5/1w\"\n";
    let asking = Asking::socket(None, policy, |setup| {
        let setup = setup.acl("acl_not_smtp", &format!("{POLICY}  accept\n"));
        setup.main("trusted_users = root")
    });
    let send = || asking.exim.run(&["u@private.test", "v@private.test"], b"Subject: x\n\nx\n").code;
    // Root's: not counted at all.
    assert_eq!((send(), send()), (0, 0));
    assert_eq!(asking.rates(), BTreeMap::new());
}

/// Other releases of Exim, which run here.
mod chroots {
    use super::*;

    fn is_as_the_library(chroot: &str) {
        counts_as_the_library(Some(chroot));
        texts_arrive(Some(chroot));
        goes_on_without_the_daemon(Some(chroot));
    }

    #[test]
    fn the_light_exim_4_94_is_as_the_library() {
        is_as_the_library("bullseye-light");
    }

    #[test]
    fn the_light_exim_4_98_is_as_the_library() {
        is_as_the_library("trixie-light");
    }

    #[test]
    fn exim_4_100_is_as_the_library() {
        is_as_the_library("forky-heavy");
    }
}
