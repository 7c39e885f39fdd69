//! The probe of `exirate setup`, by each front end: its replies show the stage, and nothing is
//! counted. What is not the probe counts.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;

use exirate::policy::probe::{Part, Ticket};
use exirate::spool::{Options, Spool};
use exirate::store::Entry;
use exirate::sys::clock;
use kit::front_ends::{self, Machine, Message, Mta};
use kit::{Client, Setup};

use crate::acl_files::base64;
use crate::policy::{apply, with_the_shipped_acl};

const POLICY: &str = "[policy.p]\nkey = [\"client\"]\nupdate = \"strict\"\naction = \"observe\"\n\
                      default.recipients = \"100/1h\"\ndefault.messages = \"100/1h\"\n";
const RCPT: &str = "exirate probe: RCPT";
const DATA: &str = "exirate probe: DATA";

/// All rates of a database.
fn rates(spool: &Path) -> BTreeMap<String, f64> {
    let mut rates = BTreeMap::new();
    let add = &mut |entry: Entry| {
        rates.insert(String::from_utf8_lossy(&entry.key).into_owned(), entry.state().rate());
    };
    Spool::open(spool, Options::default()).unwrap().for_each(add).unwrap();
    rates
}

fn ticket(spool: &Path) -> Ticket {
    Ticket::issue(spool, clock::now().0).unwrap()
}

#[test]
fn exim_shows_it_and_counts_nothing() {
    let mut exim = with_the_shipped_acl(Setup::new().proxied());
    apply(&exim, POLICY);
    exim.start();
    let ticket = ticket(&exim.spool());
    let hello = |source: Ipv4Addr, name: &str| {
        let mut client = exim.connect(source);
        assert_eq!(client.expect().code, 220);
        assert_eq!(client.command(format!("EHLO {name}")).code, 250);
        client
    };
    let to = |client: &mut Client| {
        assert_eq!(client.command("MAIL FROM:<>").code, 250);
        client.command("RCPT TO:<postmaster@private.test>")
    };
    let mut client = hello(Ipv4Addr::LOCALHOST, &ticket.helo(Part::Rcpt));
    let plain = base64(b"\0alice\0good");
    let reply = client.command(format!("AUTH PLAIN {plain}"));
    assert_eq!(reply.text, "503 exirate probe: AUTH", "a right password as well");
    let reply = to(&mut client);
    assert_eq!(reply.text, format!("550 {RCPT}"));
    assert_eq!(client.command(format!("EHLO {}", ticket.helo(Part::Data))).code, 250);
    assert_eq!(to(&mut client).code, 250);
    assert_eq!(client.command("DATA").code, 354);
    let reply = client.command("Subject: probe\r\n\r\nx\r\n.");
    assert_eq!(reply.text, format!("550 {DATA}"));
    client.quit();
    assert_eq!(rates(&exim.spool()), BTreeMap::new());

    let outside = Ipv4Addr::new(192, 0, 2, 9);
    let wrong = ticket.helo(Part::Rcpt).replace("rcpt-", "rcpt-0");
    for (source, name) in [(outside, "client.test"), (Ipv4Addr::LOCALHOST, &wrong)] {
        let mut client = hello(source, name);
        assert_eq!(to(&mut client).code, 250, "{name}");
        client.quit();
    }
    assert_eq!(rates(&exim.spool()).len(), 4, "a recipient and a message of each");
    let helo = ticket.helo(Part::Rcpt);
    drop(ticket);
    let mut client = hello(Ipv4Addr::LOCALHOST, &helo);
    assert_eq!(to(&mut client).code, 250);
    client.quit();
    assert_eq!(exim.log("panic"), "");
}

#[test]
fn exim_freezes_the_message_if_only_rcpt_is_reached() {
    let mut exim = crate::acl_files::exim("", "acl_smtp_rcpt", "acl_policy.conf");
    apply(&exim, POLICY);
    exim.start();
    let ticket = ticket(&exim.spool());
    let mut client = exim.connect(Ipv4Addr::LOCALHOST);
    client.expect();
    client.command(format!("EHLO {}", ticket.helo(Part::Data)));
    let reply = client.message("", &["postmaster@private.test"], "Subject: probe\n\nx\n");
    assert_eq!(reply.code, 250);
    client.quit();
    let queue = exim.run(&["-bpr"], b"").stdout;
    assert!(queue.contains("*** frozen ***"), "{queue}");
}

#[test]
fn the_mail_front_ends_show_it_and_count_nothing() {
    let (machine, _daemon) = Machine::with_milter(POLICY, "");
    let spool = machine.spool();
    let ticket = ticket(&spool);
    let mut policy = front_ends::Client::connect(&machine);
    let mut ask = |client: &str, helo: &str, state: &str| {
        let message = Message { client: client.to_owned(), ..Message::new("") };
        let request = message.request(state, "postmaster@mail.test", 1, 10);
        policy.ask(&request.replace("helo_name=client.example", &format!("helo_name={helo}")))
    };
    let [rcpt, data] = [Part::Rcpt, Part::Data].map(|part| ticket.helo(part));
    assert_eq!(ask("127.0.0.1", &rcpt, "RCPT"), format!("REJECT 5.7.1 {RCPT}"));
    assert_eq!(ask("::1", &data, "RCPT"), format!("HOLD {RCPT}"));
    assert_eq!(ask("127.0.0.1", &data, "END-OF-MESSAGE"), format!("REJECT 5.7.1 {DATA}"));

    // A reply of the milter: its code and its text.
    let session = |client: &str, helo: &str| {
        let mut mta = Mta::begun_for(&machine, client);
        mta.say(b'H', format!("{helo}\0").as_bytes());
        mta.say(b'M', b"<>\0");
        mta.say(b'R', b"<postmaster@mail.test>\0");
        let (code, text) = mta.reply().unwrap();
        (mta, code, String::from_utf8(text).unwrap())
    };
    let (_, code, text) = session("127.0.0.1", &rcpt);
    assert_eq!((code, &*text), ('y', &*format!("550 5.7.1 {RCPT}\0")));
    let (mut mta, code, _) = session("127.0.0.1", &data);
    assert_eq!(code, 'c');
    mta.say(b'B', b"x");
    mta.say(b'E', b"");
    assert_eq!(mta.reply().unwrap(), ('y', format!("550 5.7.1 {DATA}\0").into_bytes()));
    assert_eq!(rates(&spool), BTreeMap::new());

    // Another client, and another secret.
    let wrong = rcpt.replace("rcpt-", "rcpt-0");
    assert_eq!(ask("192.0.2.9", &rcpt, "RCPT"), "DUNNO");
    assert_eq!(ask("127.0.0.1", &wrong, "RCPT"), "DUNNO");
    assert_eq!(session("192.0.2.10", &rcpt).1, 'c');
    assert_eq!(session("127.0.0.2", &wrong).1, 'c');
    // A recipient and a message of each; all loopback addresses are one client.
    let rates = rates(&spool);
    assert_eq!((rates.len(), rates.values().sum::<f64>().round()), (6, 8.0), "{rates:?}");
    // The log names no secret.
    let secret = rcpt.trim_start_matches("exirate-probe-rcpt-").trim_end_matches(".invalid");
    assert!(!machine.log().contains(secret));
}
