//! The ports that peers on other machines reach.

use std::net::TcpStream;

use rustix::process::Signal;

use kit::front_ends::{Client, Machine, Message, Mta, exirate};
use kit::network::Network;
use kit::{Process, until};

/// Two recipients a week for each login.
const TWO: &str = "[policy.out]
when = \"authenticated\"
default.recipients = \"2.5/1w\"
";
const POLICY: u16 = 10040;
const MILTER: u16 = 10041;
/// Addresses of peers.
const INSIDE: [&str; 2] = ["192.0.2.1", "192.0.2.2"];
const OUTSIDE: &str = "192.0.2.9";

/// A machine that listens for peers of this network.
fn listen(machine: &Machine, allow: &str, mail: &str) {
    let listen = format!(
        "policy = \"inet:0.0.0.0:{POLICY}\"\nmilter = \"inet:0.0.0.0:{MILTER}\"\nallow = [{allow:?}]"
    );
    machine.write(&listen, mail);
}

/// A connection from `address`: what connects to an address of its own has that address.
fn connect(network: &Network, address: &str, port: u16) -> TcpStream {
    network.within(|| TcpStream::connect((address, port)).unwrap())
}

fn start(network: &Network, machine: &Machine) -> Process {
    let daemon = Process(network.within(|| machine.command().spawn().unwrap()));
    until("the daemon listens", || {
        network.within(|| TcpStream::connect(("127.0.0.1", MILTER)).is_ok())
    });
    daemon
}

/// Whether the daemon closes a connection without a reply.
fn is_closed(stream: TcpStream) -> bool {
    let mut client = Client::over(stream);
    // It may be closed before all is written.
    let _ = client.send(&Message::new("bob").request("RCPT", "a@example.net", 0, 0));
    client.action().is_err()
}

#[test]
fn peers_of_the_allowed_networks_are_limited_and_others_refused() {
    let network = Network::make(&[INSIDE[0], INSIDE[1], OUTSIDE], "");
    let machine = Machine::new(TWO, "");
    listen(&machine, "192.0.2.0/30", "");
    let daemon = start(&network, &machine);
    let message = Message::new("alice");
    let rcpt = |address: &str, to: &str| {
        Client::over(connect(&network, address, POLICY)).rcpt(&message, to)
    };
    assert_eq!(rcpt(INSIDE[0], "a@example.net"), "DUNNO");
    assert_eq!(rcpt(INSIDE[1], "b@example.net"), "DUNNO");
    let refused = "DEFER_IF_PERMIT 4.7.1 Over the limit";
    assert_eq!(rcpt(INSIDE[0], "c@example.net"), refused);
    // This machine itself, as for a look at its health.
    assert_eq!(rcpt("127.0.0.1", "d@example.net"), refused);
    assert!(is_closed(connect(&network, OUTSIDE, POLICY)));
    machine.until_logged("192.0.2.9 is not in listen.allow: its connection is closed");
    assert!(is_closed(connect(&network, OUTSIDE, MILTER)));
    assert!((machine.rate("auth:alice", "recipients") - 2.0).abs() < 0.1);
    assert!(machine.rate("auth:bob", "recipients") < 0.1, "nobody outside has counted");
    // A reload changes who may connect.
    listen(&machine, "192.0.2.8/29", "");
    daemon.signal(Signal::HUP);
    machine.until_logged("is in use");
    assert_eq!(rcpt(OUTSIDE, "c@example.net"), refused);
    for port in [POLICY, MILTER] {
        assert!(is_closed(connect(&network, INSIDE[0], port)));
    }
    // Without networks, only this machine's own addresses can be listened on.
    machine.write(&format!("policy = \"inet:0.0.0.0:{POLICY}\""), "");
    assert_eq!(machine.command().status().unwrap().code(), Some(2));
    machine.until_logged("0.0.0.0:10040 can be reached from other machines");
}

#[test]
fn one_address_takes_no_more_than_half_of_the_connections() {
    let network = Network::make(&INSIDE, "");
    let machine = Machine::new(TWO, "");
    listen(&machine, "192.0.2.0/24", "max_connections = 4");
    let _daemon = start(&network, &machine);
    let message = Message::new("alice");
    let open = |address: &str, login: &str| {
        let mut client = Client::over(connect(&network, address, POLICY));
        assert_eq!(client.rcpt(&Message::new(login), "a@example.net"), "DUNNO");
        client
    };
    let mut other = open(INSIDE[1], "other");
    let mut many: Vec<Client> =
        ["a", "b", "c"].map(|login| open(INSIDE[0], login)).into_iter().collect();
    machine.until_logged("2 connections of 192.0.2.1 are open, and no more may: the one that has");
    assert!(many[0].action().is_err(), "it was silent for longest of these");
    assert_eq!(other.rcpt(&message, "a@example.net"), "DUNNO");
    assert_eq!(many[1].rcpt(&message, "a@example.net"), "DUNNO");
    assert_eq!(many[2].rcpt(&message, "a@example.net"), "DUNNO");
}

#[test]
fn a_milter_session_of_an_allowed_address_is_limited_and_its_connections_are_bounded() {
    let network = Network::make(&INSIDE, "");
    let machine = Machine::new(TWO, "");
    listen(&machine, "192.0.2.0/24", "max_connections = 4");
    let _daemon = start(&network, &machine);
    let open = |address: &str| Mta::over(connect(&network, address, MILTER));
    let mut other = open(INSIDE[1]);
    assert_eq!(other.recipient("alice", "a@example.net").0, 'c');
    // Each has a reply before the next connects.
    let mut many: Vec<_> = (0..3)
        .map(|number| {
            let mut mta = open(INSIDE[0]);
            assert_eq!(mta.recipient(&format!("login{number}"), "a@example.net").0, 'c');
            mta
        })
        .collect();
    machine.until_logged("2 connections of 192.0.2.1 are open, and no more may: the one that has");
    assert_eq!(many[0].code(), None, "it was silent for longest of these");
    // One login from both addresses.
    assert_eq!(many[1].recipient("alice", "b@example.net").0, 'c');
    let (code, text) = other.recipient("alice", "c@example.net");
    assert_eq!((code, text.as_str()), ('y', "451 4.7.1 Over the limit\0"));
    let (code, _) = many[2].recipient("alice", "d@example.net");
    assert_eq!(code, 'y');
    assert!((machine.rate("auth:alice", "recipients") - 2.0).abs() < 0.1);
}

#[test]
fn a_gateway_in_an_allowed_network_is_a_warning() {
    let gateway = "ip link add mail0 type veth peer name mail1
        ip addr add 172.22.1.2/24 dev mail0
        ip link set mail0 up
        ip link set mail1 up
        ip route add default via 172.22.1.1";
    let network = Network::make(&[], gateway);
    let machine = Machine::new(TWO, "");
    let check = |allow: &str| {
        listen(&machine, allow, "");
        let mut check = exirate(&["serve", "mail", "--check", "--user", "root", "--config"]);
        check.arg(machine.path("exirate.toml"));
        network.within(|| check.output().unwrap())
    };
    let found = check("172.22.1.0/24");
    let text = String::from_utf8(found.stdout).unwrap();
    assert!(text.contains("exirate.toml:4:9: warning: 172.22.1.1 is in these networks"), "{text}");
    assert_eq!(found.status.code(), Some(1));
    assert_eq!(check("172.22.1.128/25").status.code(), Some(0));
}
