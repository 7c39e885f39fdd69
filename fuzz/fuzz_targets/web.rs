//! What the web service is asked over HTTP, and its broker in lines of JSON: both run here, on real sockets.
//! A request is replied to at most once, with a status that the service means, and
//! nobody who helps ends what an administrator has denied.
#![no_main]

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use arbitrary::Arbitrary;
use exirate::engine::Overridden;
use exirate::serve::web::broker::daemon::run_broker;
use exirate::serve::web::daemon::run_web;
use exirate::serve::web::role::Role;
use exirate::serve::web::token;
use exirate::spool::{Options, Spool};
use exirate::store::{FOREVER, Override, Target};
use libfuzzer_sys::fuzz_target;

/// Who is denied by an administrator.
const DENIED: &str = "mallory";
/// The routes that do not last.
const PATHS: [&str; 22] = [
    "/",
    "/desk.js",
    "/api/v1/me",
    "/api/v1/status",
    "/api/v1/keys",
    "/api/v1/identity",
    "/api/v1/identities",
    "/api/v1/search",
    "/api/v1/crossings",
    "/api/v1/changes",
    "/api/v1/policies",
    "/api/v1/overrides",
    "/api/v1/unblock",
    "/api/v1/allow",
    "/api/v1/deny",
    "/api/v1/accept",
    "/api/v1/stolen",
    "/api/v1/session",
    "/api/v1/openapi.json",
    "/api/v1/",
    "*",
    "//",
];
const PARAMETERS: [&str; 7] = ["key", "state", "search", "limit", "cursor", "q", "token"];

#[derive(Arbitrary, Debug)]
enum Input<'a> {
    /// Bytes for the web service.
    Raw(&'a [u8]),
    /// A request.
    Request {
        method: u8,
        path: u8,
        query: Vec<(u8, &'a str)>,
        headers: Vec<(u8, &'a [u8])>,
        body: Body<'a>,
    },
    /// Bytes for the broker.
    Line(&'a [u8]),
    /// A change.
    Change { by_person: bool, verb: u8, key: &'a str, seconds: Option<i64>, reason: &'a str },
}

#[derive(Arbitrary, Debug)]
enum Body<'a> {
    Bytes(&'a [u8]),
    Change { key: &'a str, seconds: Option<i64>, reason: Option<&'a str> },
}

/// Both services.
struct Desk {
    folder: PathBuf,
    help: String,
}

fn desk() -> &'static Desk {
    static DESK: OnceLock<Desk> = OnceLock::new();
    DESK.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("exirate-web-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("state")).expect("a folder");
        let add = |all: &mut token::Tokens| all.add("desk", Role::Help, 0, FOREVER, None);
        let help = token::change(&folder.join("tokens"), add).expect("a token");
        let at = folder.display();
        let text = format!(
            "[mail]\nspool = \"{at}\"\n[web]\nlisten = \"unix:{at}/web\"\nbroker = \"{at}/broker\"\n\
             state = \"{at}/state\"\ntokens = \"{at}/tokens\"\nuser = \"root\"\nhelp = [\"root\"]\n\
             changes_a_day = 1000000\n"
        );
        std::fs::write(folder.join("exirate.toml"), text).expect("a configuration");
        let mut spool = Spool::open(&folder, Options::default()).expect("a database");
        let denial = Override {
            overridden: Overridden::Deny,
            target: Target::Exact { key: DENIED.into(), counted_as: None, folding: None },
            argument: DENIED.to_owned(),
            until: FOREVER,
            since: 0,
            reason: String::new(),
            who: "uid=0".to_owned(),
        };
        spool.change_overrides(&mut |all: &mut Vec<Override>| all.push(denial.clone())).expect("a denial");
        for (run, socket) in [(run_broker as fn(&Path) -> _, "broker"), (run_web, "web")] {
            let path = folder.join("exirate.toml");
            std::thread::spawn(move || run(&path));
            while UnixStream::connect(folder.join(socket)).is_err() {
                std::thread::yield_now();
            }
        }
        Desk { folder, help }
    })
}

fuzz_target!(|input: Input<'_>| {
    let desk = desk();
    match input {
        Input::Raw(bytes) => {
            // A wrong token is replied to after a second.
            let shown = String::from_utf8_lossy(bytes).to_ascii_lowercase();
            if !["authorization", "cookie"].iter().any(|header| shown.contains(header)) {
                check(&ask(desk, "web", bytes, true), None);
            }
        }
        Input::Request { method, path, query, headers, body } => {
            let request = request(desk, (method, path), &query, &headers, &body);
            check(&ask(desk, "web", &request, false), Some(1));
        }
        Input::Line(bytes) => {
            let _ = ask(desk, "broker", bytes, true);
        }
        Input::Change { by_person, verb, key, seconds, reason } => {
            let who = match by_person {
                true => serde_json::json!({ "person": "root" }),
                false => serde_json::json!({ "token": desk.help }),
            };
            let verb = ["unblock", "allow", "deny", "accept", "stolen"][usize::from(verb) % 5];
            let line = serde_json::json!({
                "who": who, "verb": verb, "key": key, "seconds": seconds, "reason": reason
            });
            let reply = ask(desk, "broker", format!("{line}\n").as_bytes(), false);
            let reply = String::from_utf8(reply).expect("a line");
            if reply.starts_with("{\"done\"") {
                let timed = ["allow", "deny"].contains(&verb);
                let fits =
                    seconds.map_or(!timed, |seconds| timed && (1..=86_400).contains(&seconds));
                assert!(fits, "{line}: {reply}");
            }
            let spool = Spool::open_existing(&desk.folder, Options::default());
            let list = spool.and_then(|mut spool| spool.overrides()).expect("the overrides");
            let stays = |one: &Override| {
                one.argument == DENIED && one.overridden == Overridden::Deny && one.who == "uid=0"
            };
            assert!(list.iter().any(stays), "{line}: {reply}");
        }
    }
});

fn request(
    desk: &Desk,
    (method, path): (u8, u8),
    query: &[(u8, &str)],
    headers: &[(u8, &[u8])],
    body: &Body<'_>,
) -> Vec<u8> {
    let method = ["GET", "POST", "HEAD", "DELETE", "PUT", "OPTIONS"][usize::from(method) % 6];
    let path = PATHS[usize::from(path) % PATHS.len()];
    let mut text = format!("{method} {path}?");
    for (name, value) in query {
        let name = PARAMETERS[usize::from(*name) % PARAMETERS.len()];
        let value = form_urlencoded::byte_serialize(value.as_bytes()).collect::<String>();
        text += &format!("{name}={value}&");
    }
    text += &format!(" HTTP/1.1\r\nConnection: close\r\nAuthorization: Bearer {}\r\n", desk.help);
    let mut request = text.into_bytes();
    let mut has_host = false;
    for (name, value) in headers {
        let names =
            ["Host", "Origin", "Sec-Fetch-Site", "X-Remote-User", "Accept", "Last-Event-ID"];
        let name = names[usize::from(*name) % names.len()];
        has_host |= name == "Host";
        // No line ends, or there would be other headers.
        let value = value.iter().map(|b| if b"\r\n\0".contains(b) { b'x' } else { *b });
        request.extend(format!("{name}: ").bytes().chain(value).chain(*b"\r\n"));
    }
    if !has_host {
        request.extend(b"Host: localhost\r\n");
    }
    let body = match body {
        Body::Bytes(bytes) => bytes.to_vec(),
        Body::Change { key, seconds, reason } => {
            let mut body = serde_json::json!({ "key": key });
            if let Some(seconds) = seconds {
                body["seconds"] = (*seconds).into();
            }
            if let Some(reason) = reason {
                body["reason"] = (*reason).into();
            }
            body.to_string().into_bytes()
        }
    };
    let length = body.len();
    request.extend(
        format!("Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n").bytes(),
    );
    request.extend(body);
    request
}

/// What is replied to these bytes; `ends` if they may be no whole request, which nothing follows.
fn ask(desk: &Desk, socket: &str, bytes: &[u8], ends: bool) -> Vec<u8> {
    let mut stream = UnixStream::connect(desk.folder.join(socket)).expect("it listens");
    // It may have replied before it has read all.
    let _ = stream.write_all(bytes);
    if ends {
        let _ = stream.shutdown(Shutdown::Write);
    }
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    reply
}

fn check(reply: &[u8], most: Option<usize>) {
    let text = String::from_utf8_lossy(reply);
    if text.is_empty() {
        return;
    }
    let status = text.strip_prefix("HTTP/1.1 ").and_then(|text| text.get(..3));
    let good = [
        "200", "400", "401", "403", "404", "405", "409", "413", "414", "415", "421", "429", "431",
        "503",
    ];
    assert!(status.is_some_and(|status| good.contains(&status)), "{text}");
    if let Some(most) = most {
        assert!(text.matches("\r\ncontent-security-policy: ").count() <= most, "{text}");
    }
}
