//! The web service and its broker, as an attacker: each route by whoever may not, requests that other
//! sites forge, and peers that are slow, broken or many.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use exirate::serve::web::role::Role;
use exirate::serve::web::token;
use exirate::store::FOREVER;
use kit::{Process, TIMEOUT, until};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use serde_json::{Value, json};

use super::desk::{Desk, bearer, read};

/// A user who is nobody here: of Debian.
const NOBODY: u32 = 65_534;
/// What the names of routes in `openapi.json` are not: the files of the page.
const FILES: [&str; 4] = ["/", "/desk.css", "/desk.js", "/desk.svg"];

/// A route, as `openapi.json` has it: a new one is attacked as the others are.
#[derive(Debug)]
struct Route {
    method: String,
    path: String,
    /// Nobody is asked who it is.
    is_open: bool,
    needs_help: bool,
}

impl Route {
    fn is_change(&self) -> bool {
        self.method != "GET"
    }
}

fn routes(desk: &Desk) -> Vec<Route> {
    let schema = desk.ask("GET", "/api/v1/openapi.json", &[], None).json();
    let mut all = Vec::new();
    for (path, methods) in schema["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            all.push(Route {
                method: method.to_uppercase(),
                path: path.clone(),
                is_open: operation["security"] == json!([]),
                needs_help: operation["description"] == "Role: help.",
            });
        }
    }
    assert!(all.len() > 15 && all.iter().filter(|one| one.needs_help).count() == 7, "{all:?}");
    all
}

/// The status and the kind of the problem; a stream is not read to its end.
fn outcome(desk: &Desk, route: &Route, headers: &[&str]) -> (u16, String) {
    let more: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    let host = if more.contains("Host: ") { "" } else { "Host: localhost\r\n" };
    let typed =
        if more.contains("Content-Type: ") { "" } else { "Content-Type: application/json\r\n" };
    let Route { method, path, .. } = route;
    let mut stream = desk.connect();
    let request = format!(
        "{method} {path} HTTP/1.1\r\n{host}Connection: close\r\n{more}{typed}Content-Length: 2\r\n\r\n{{}}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "{route:?} {headers:?}");
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let status: u16 = head.split(' ').nth(1).unwrap().parse().unwrap();
    if status == 200 {
        return (status, String::new());
    }
    let challenge = "www-authenticate: Bearer";
    assert_eq!(head.contains(challenge), status == 401, "{head}");
    let mut body = Vec::new();
    let _ = stream.read_to_end(&mut body);
    let json: Value = serde_json::from_slice(&body).unwrap();
    let kind = json["type"].as_str().unwrap().trim_start_matches("urn:exirate:problem:");
    (status, kind.to_owned())
}

fn refused(status: u16, kind: &str) -> (u16, String) {
    (status, kind.to_owned())
}

/// Tokens of all kinds.
struct Secrets {
    ended: String,
    removed: String,
    guessed: String,
}

fn secrets(desk: &Desk) -> Secrets {
    let add = |name: &str, until| {
        let add =
            token::change(&desk.path("tokens"), |all| all.add(name, Role::Help, 0, until, None));
        add.unwrap()
    };
    let (ended, removed) = (add("ended", 1), add("removed", FOREVER));
    // Of use until it is removed.
    let known =
        |secret: &str| desk.ask("GET", "/api/v1/me", &[&bearer(secret)], None).status == 200;
    assert!(known(&removed) && known(&desk.view));
    token::change(&desk.path("tokens"), |all| Ok(all.remove("removed"))).unwrap();
    // As a real one, but for its last sign.
    let mut guessed = desk.help.clone();
    let last = if guessed.pop() == Some('A') { 'B' } else { 'A' };
    guessed.push(last);
    Secrets { ended, removed, guessed }
}

#[test]
fn each_route_is_for_who_may_alone() {
    let desk = Desk::new("");
    let (_broker, web) = desk.both();
    let Secrets { ended, removed, guessed } = secrets(&desk);
    let wrong = [
        vec![],
        vec![bearer("")],
        vec![bearer(&guessed), "Cookie: exirate=x".to_owned()],
        vec![bearer(&ended)],
        vec![format!("Cookie: exirate={removed}")],
        vec![format!("Authorization: Basic {}", desk.help)],
        // Nobody is a proxy, and the right cookie has another name here.
        vec!["X-Remote-User: root".to_owned(), format!("Cookie: __Host-exirate={}", desk.help)],
    ];
    let (all, desk_ref, wrong) = (routes(&desk), &desk, &wrong);
    std::thread::scope(|scope| {
        for route in all.iter().filter(|route| !route.is_open) {
            scope.spawn(move || {
                // Each is replied to after a second.
                for headers in wrong {
                    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
                    let found = outcome(desk_ref, route, &headers);
                    assert_eq!(found, refused(401, "unknown"), "{route:?} {headers:?}");
                }
            });
        }
    });
    for route in all.iter().filter(|route| !route.is_open) {
        let (by_view, by_help) = (bearer(&desk.view), bearer(&desk.help));
        let found = outcome(&desk, route, &[&by_view]);
        match route.needs_help {
            true => assert_eq!(found, refused(403, "role"), "{route:?}"),
            // A parameter is missing at most.
            false => assert!([200, 400].contains(&found.0), "{route:?} {found:?}"),
        }
        let found = outcome(&desk, route, &[&by_help]);
        assert!([200, 400].contains(&found.0), "{route:?} {found:?}");
        if route.is_change() {
            for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"] {
                let kind = format!("Content-Type: {kind}");
                let found = outcome(&desk, route, &[&by_help, &kind]);
                assert_eq!(found, refused(415, "media-type"), "{route:?}");
            }
        }
    }
    assert_eq!(desk.audit_log(), "");
    // In a query and in a wrong body as well, a secret is nowhere that others can read.
    let _ = desk.get(&format!("/api/v1/me?token={}", desk.help));
    let body = json!({ "token": desk.help, "more": ended });
    assert_eq!(desk.ask("POST", "/api/v1/session", &[], Some(body)).problem(), "malformed");
    assert_eq!(desk.change("/api/v1/unblock", json!({ "key": "alice@example.org" })).status, 200);
    let of_process = format!("/proc/{}", web.0.id());
    let mut public = desk.log() + &desk.audit_log();
    for file in ["cmdline", "environ", "status"] {
        public += &std::fs::read_to_string(format!("{of_process}/{file}")).unwrap();
    }
    for secret in [&desk.help, &desk.view, &ended, &removed, &guessed] {
        assert!(!public.contains(&secret[8..]), "a token is shown: {public}");
    }
    assert!(public.contains("somebody unknown has asked"), "{public}");
}

#[test]
fn no_other_site_asks() {
    let desk = Desk::new("hosts = [\"desk.example.org\"]\nhelp = [\"root\"]");
    let (_broker, _web) = desk.both();
    let session = json!({ "token": desk.help });
    let session = desk.ask("POST", "/api/v1/session", &[], Some(session));
    let csrf = format!("X-CSRF-Token: {}", session.json()["csrf"].as_str().unwrap());
    // As a user of this machine, by a cookie, and by a token: a browser sends the first two by itself.
    let askers =
        ["X-Nothing: x".into(), format!("Cookie: exirate={}", desk.help), bearer(&desk.help)];
    let mut me = desk.ask("GET", "/api/v1/me", &[], None).json();
    let of_user = format!("X-CSRF-Token: {}", me["csrf"].take().as_str().unwrap());
    for route in routes(&desk) {
        for (asker, csrf) in askers.iter().zip([&of_user, &csrf, &csrf]) {
            for from in [
                "Sec-Fetch-Site: cross-site",
                "Sec-Fetch-Site: same-site",
                "Origin: https://evil.test",
                "Origin: http://localhost:8080",
                "Origin: http://desk.example.org",
                "Origin: null",
                "Origin: ",
            ] {
                if route.is_open && !route.is_change() {
                    continue;
                }
                let found = outcome(&desk, &route, &[asker, csrf, from]);
                assert_eq!(found, refused(403, "forged"), "{route:?} {from}");
            }
            let same = outcome(&desk, &route, &[asker, csrf, "Origin: http://localhost"]);
            assert!([200, 400].contains(&same.0), "{route:?} {same:?}");
        }
        if route.needs_help {
            for (asker, wrong) in askers[..2].iter().zip([&csrf, &of_user]) {
                // None, that of somebody else, and one that is cut.
                for csrf in ["X-Nothing: x", wrong, &csrf[..csrf.len() - 1]] {
                    let found = outcome(&desk, &route, &[asker, csrf]);
                    assert_eq!(found, refused(403, "forged"), "{route:?} {csrf}");
                }
            }
        }
        // A name of another site that leads here.
        for host in ["evil.test", "localhost.evil.test", "desk.example.org.", "xn--", "[::2]"] {
            let host = format!("Host: {host}");
            let found = outcome(&desk, &route, &[&host, &bearer(&desk.help)]);
            assert_eq!(found, refused(421, "host"), "{route:?} {host}");
        }
        let two = outcome(&desk, &route, &["Host: localhost\r\nHost: evil.test"]);
        assert_eq!(two, refused(421, "host"), "{route:?}");
    }
    for path in FILES {
        let answer = desk
            .raw(&format!("GET {path} HTTP/1.1\r\nHost: evil.test\r\nConnection: close\r\n\r\n"));
        assert_eq!(answer.problem(), "host", "{path}");
    }
    assert_eq!(desk.audit_log(), "");
    // By another name than this machine's, the cookie is of that host alone, and for TLS.
    let body = json!({ "token": desk.help }).to_string();
    let named = |method: &str, more: &str, body: &str| {
        desk.raw(&format!(
            "{method} HTTP/1.1\r\nHost: desk.example.org\r\nConnection: close\r\n{more}\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ))
    };
    let set = named("POST /api/v1/session", "", &body);
    let cookie = set.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    let expected =
        format!("__Host-exirate={}; Path=/; HttpOnly; SameSite=Strict; Secure", desk.help);
    assert_eq!(cookie, expected);
    let with = |name: &str| format!("Cookie: {name}={}\r\n", desk.view);
    assert_eq!(named("GET /api/v1/me", &with("__Host-exirate"), "").json()["name"], "token:panel");
    // One of another host of the domain is not looked at: root has connected.
    assert_eq!(named("GET /api/v1/me", &with("exirate"), "").json()["name"], "person:root");
    let gone = named("DELETE /api/v1/session", "", "").head;
    assert!(gone.contains("set-cookie: __Host-exirate=; Path=/; "), "{gone}");
    assert!(gone.contains("; Max-Age=0\r\n"), "{gone}");
}

/// What another user of this machine is replied to these bytes.
fn as_nobody(socket: &Path, request: &str) -> String {
    let script = "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n\
                  s.sendall(sys.argv[2].encode())\nd=b''\n\
                  while True:\n p=s.recv(9999)\n if not p: break\n d+=p\nprint(d.decode())";
    let mut command = Command::new("python3");
    command.args(["-c", script]).arg(socket).arg(request).uid(NOBODY).gid(NOBODY);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_person_is_named_by_the_proxy_alone_and_once() {
    let desk = Desk::new("proxy = \"root\"\nhelp = [\"alice\"]\nview = [\"carol\"]");
    let (_broker, _web) = desk.both();
    let me = |headers: &[&str]| desk.ask("GET", "/api/v1/me", headers, None);
    assert_eq!(me(&["X-Remote-User: alice"]).json()["name"], "person:alice");
    // A proxy that adds its header to the one that it was sent.
    let two = me(&["X-Remote-User: alice", "X-Remote-User: carol"]);
    assert_eq!(two.problem(), "unknown");
    for name in ["", "ALICE", "alice,carol", "alice\u{a0}", "root"] {
        assert_eq!(me(&[&format!("X-Remote-User: {name}")]).problem(), "unknown", "{name}");
    }
    // Another user who says that he is a proxy.
    for path in [desk.folder.path(), &desk.path("web")] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    let request = "GET /api/v1/me HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
                   X-Remote-User: alice\r\nX-Forwarded-User: alice\r\n\r\n";
    let said = as_nobody(&desk.path("web"), request);
    assert!(said.starts_with("HTTP/1.1 401 "), "{said}");
    assert!(said.contains("nobody is neither in view nor in help"), "{said}");
}

#[test]
fn guesses_are_counted_and_keep_nobody_out() {
    let desk = Desk::new("");
    let manager = UnixDatagram::bind(desk.path("notify")).unwrap();
    manager.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut command = desk.command("web");
    command.env("NOTIFY_SOCKET", desk.path("notify"));
    let web = Process(command.spawn().unwrap());
    let status = |part: &str| {
        loop {
            let mut bytes = [0; 4096];
            let length = manager.recv(&mut bytes).expect(part);
            if String::from_utf8_lossy(&bytes[..length]).contains(part) {
                return;
            }
        }
    };
    status("READY=1");
    let guess = || {
        let mut stream = desk.connect();
        let request = "GET /api/v1/me HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
                       Authorization: Bearer exirate_guess\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        stream
    };
    let guesses: Vec<_> = (0..200).map(|_| guess()).collect();
    assert_eq!(desk.get("/api/v1/me").status, 200);
    let mut at_once = 0;
    for stream in guesses {
        let answer = read(stream);
        match answer.status {
            401 => assert_eq!(answer.problem(), "unknown"),
            _ => {
                assert_eq!((answer.status, &*answer.problem()), (429, "busy"));
                at_once += 1;
            }
        }
    }
    // At most 64 wait, each for a second.
    assert!(at_once > 0, "200 guesses were all replied to in their turn");
    web.signal(Signal::HUP);
    status("200 of somebody unknown");
}

#[test]
fn peers_that_are_broken_are_replied_to_at_most_once_and_closed() {
    let desk = Desk::new("");
    let (_broker, _web) = desk.both();
    let help = bearer(&desk.help);
    let inner = format!(
        "POST /api/v1/unblock HTTP/1.1\r\nHost: localhost\r\n{help}\r\nContent-Type: application/json\r\n\
         Content-Length: 27\r\n\r\n{{\"key\":\"alice@example.org\"}}"
    );
    let length = inner.len();
    let start =
        "POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    let huge = "x".repeat(100_000);
    // A request within another one, if two who read it disagree about its length; and none at all.
    for bytes in [
        format!("{start}Content-Length: 2\r\nContent-Length: {length}\r\n\r\n{inner}"),
        format!("{start}Content-Length: {length}\r\nTransfer-Encoding: identity\r\n\r\n{inner}"),
        format!(
            "{start}Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n{length:x}\r\n{inner}\r\n"
        ),
        format!("{start}Content-Length: +{length}\r\n\r\n{inner}"),
        format!("{start}Content-Length: 0x10\r\n\r\n{inner}"),
        format!("{start}Content-Length : {length}\r\n\r\n{inner}"),
        format!("{start}Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n{inner}"),
        format!("{start}Transfer-Encoding: chunked\r\n\r\n-1\r\n{inner}"),
        format!("{start}Content-Length: {length}\r\n\r\n{}", &inner[..length - 1]),
        "GET /api/v1/me HTTP/1.1\nHost: localhost\n A: b\n\n".to_owned(),
        "GET /api/v1/me\0 HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(),
        "GET /api/v1/me HTTP/1.1\r\nHost: local\0host\r\n\r\n".to_owned(),
        "GET /api/v1/me HTTP/1.1\r\nHost: localhost\r\nA: b\rc\r\n\r\n".to_owned(),
        "CONNECT localhost:25 HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
        "OPTIONS * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".to_owned(),
        format!("GET /{huge} HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        format!("GET /?{huge} HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: localhost\r\nCookie: {huge}\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "A: b\r\n".repeat(1000)),
        format!("{start}Content-Length: 99999999999999999999\r\n\r\n{huge}"),
        huge.clone(),
        "\r\n".repeat(50_000),
    ] {
        let mut stream = desk.connect();
        // It may be closed before all is sent.
        let _ = stream.write_all(bytes.as_bytes());
        let _ = stream.shutdown(Shutdown::Write);
        let mut reply = Vec::new();
        let _ = stream.read_to_end(&mut reply);
        let text = String::from_utf8_lossy(&reply);
        let shown = &bytes[..bytes.len().min(200)];
        assert!(text.is_empty() || text.starts_with("HTTP/1.1 4"), "{shown:?}: {text}");
        assert!(text.matches("HTTP/1.1 ").count() < 2, "{shown:?}: {text}");
    }
    assert_eq!(desk.audit_log(), "");
    // Several at once are replied to in their order; who hangs up meanwhile is forgotten.
    let of = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{help}\r\n\r\n");
    let mut stream = desk.connect();
    let all = of("/api/v1/me")
        + &of("/nothing")
        + &inner
        + "GET /desk.css HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(all.as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    let found: Vec<&str> =
        reply.match_indices("HTTP/1.1 ").map(|(at, _)| &reply[at + 9..at + 12]).collect();
    assert_eq!(found, ["200", "404", "200", "200"], "{reply}");
    for _ in 0..50 {
        let mut stream = desk.connect();
        stream.write_all(of("/api/v1/events").as_bytes()).unwrap();
        stream.write_all(of("/api/v1/status").repeat(20).as_bytes()).unwrap();
    }
    // A stream of which the head alone is asked for is none. Whoever else asks is not kept out by
    // the streams of those.
    let head = |token: &str| {
        let head = desk.ask("HEAD", "/api/v1/events", &[&bearer(token)], None);
        assert_eq!(head.body.len(), 0);
        head.status
    };
    assert_eq!(head(&desk.view), 200);
    until("they are forgotten", || head(&desk.help) == 200);
    until("they are forgotten", || desk.get("/api/v1/status").status == 200);
}

/// Lets this process have many connections.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(10_000).min(10_000);
    assert!(wanted >= 8_000, "this test needs 8000 open files: ulimit -Hn");
    if limit.current.is_some_and(|current| current < wanted) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit }).unwrap();
    }
}

/// Begins a stream by this token, and reads its head and first event.
fn stream(desk: &Desk, token: &str) -> UnixStream {
    let mut stream = desk.connect();
    let view = bearer(token);
    let request = format!("GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n{view}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    read_until(&mut stream, "\"blocked\":3");
    stream
}

fn read_until(stream: &mut UnixStream, part: &str) {
    let mut text = String::new();
    while !text.contains(part) {
        let mut bytes = [0; 4096];
        let length = stream.read(&mut bytes).unwrap();
        assert!(length > 0, "it was closed: {text}");
        text += &String::from_utf8_lossy(&bytes[..length]);
    }
}

#[test]
fn five_thousand_connections_keep_nobody_out() {
    raise_open_files();
    let desk = Desk::new("");
    let (_broker, web) = desk.both();
    let mut known = stream(&desk, &desk.view);
    let mut strangers = Vec::new();
    for number in 0..5_000 {
        let mut stream = desk.connect();
        // Nothing, a part of a request, or one that anybody may make; none is read.
        let _ = match number % 3 {
            0 => Ok(()),
            1 => stream.write_all(b"GET /api/v1/me HTTP/1.1\r\nHost: loc"),
            _ => stream.write_all(b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        };
        strangers.push(stream);
        if number % 500 == 499 {
            assert_eq!(desk.get("/api/v1/me").status, 200, "after {number}");
        }
    }
    let open = std::fs::read_dir(format!("/proc/{}/fd", web.0.id())).unwrap().count();
    assert!((900..1_400).contains(&open), "{open} files are open");
    // Who is known is not closed for a stranger: its stream goes on.
    assert_eq!(desk.change("/api/v1/unblock", json!({ "key": "alice@example.org" })).status, 200);
    read_until(&mut known, "\"blocked\":2");
    // Most of the strangers are closed.
    let is_closed = |stream: &mut UnixStream| {
        stream.set_nonblocking(true).unwrap();
        let mut bytes = [0; 65_536];
        loop {
            match stream.read(&mut bytes) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() != ErrorKind::WouldBlock,
            }
        }
    };
    let mut closed = 0;
    for stream in &mut strangers {
        closed += usize::from(is_closed(stream));
    }
    assert!(closed >= 4_000, "{closed} are closed");
}

#[test]
fn more_streams_than_there_may_be_are_refused_and_the_others_go_on() {
    let desk = Desk::new("");
    let add = |name: String| {
        token::change(&desk.path("tokens"), |all| all.add(&name, Role::View, 0, FOREVER, None))
            .unwrap()
    };
    let others: Vec<String> = (1..=10).map(|number| add(format!("screen{number}"))).collect();
    let (_broker, mut web) = desk.both();
    let is_busy = |token: &str| {
        let problem = desk.ask("GET", "/api/v1/events", &[&bearer(token)], None).problem();
        assert_eq!(problem, "busy");
    };
    // A token has a tenth of all, so that the others are not kept out.
    let mut streams = Vec::new();
    for token in &others[..9] {
        streams.extend((0..25).map(|_| stream(&desk, token)));
        for _ in 0..3 {
            is_busy(token);
        }
    }
    // All together have no more than there may be.
    streams.push(stream(&desk, &others[9]));
    streams.extend((0..24).map(|_| stream(&desk, &desk.view)));
    for token in [&others[9], &desk.view, &desk.help] {
        is_busy(token);
    }
    assert_eq!(streams.len(), 250);
    assert_eq!(desk.get("/api/v1/status").status, 200);
    streams.truncate(249);
    let again = || {
        let mut stream = desk.connect();
        let view = bearer(&desk.view);
        let request = format!("GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n{view}\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        status.ends_with(b"200")
    };
    until("there is room for another", again);
    assert_eq!(desk.change("/api/v1/unblock", json!({ "key": "alice@example.org" })).status, 200);
    for stream in &mut streams {
        read_until(stream, "\"blocked\":2");
    }
    // A stop ends them all.
    web.signal(Signal::TERM);
    assert!(web.wait().success());
    for stream in &mut streams {
        let _ = stream.read_to_end(&mut Vec::new());
    }
}
