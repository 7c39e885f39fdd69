//! The web service and its broker as processes, asked over real sockets as a panel, as a browser and
//! as an attacker would.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

use exirate::serve::web::token;
use kit::until;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::desk::{Desk, bearer, broker, read};

/// A user who is nobody here: of Debian.
const NOBODY: u32 = 65_534;

#[test]
fn a_panel_shows_who_is_blocked_and_unblocks() {
    let desk = Desk::new("");
    let (mut of_broker, mut of_web) = desk.both();
    let status = desk.get("/api/v1/status").json();
    assert_eq!((&status["keys"], &status["blocked"]), (&json!(3), &json!(3)));
    // By pages, each key once.
    let (mut seen, mut path) = (Vec::new(), "/api/v1/keys?limit=2".to_owned());
    loop {
        let page = desk.get(&path).json();
        seen.extend(page["keys"].as_array().unwrap().iter().map(|key| key["pasted"].clone()));
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/api/v1/keys?limit=2&cursor={next}");
    }
    seen.sort_by_key(|key| key.to_string());
    assert_eq!(seen[1..], [json!("alice@example.org"), json!("bob@example.net")]);
    assert_eq!(seen[0], json!("\\<script>alert(1)</script>@x"));
    let found = desk.get("/api/v1/keys?search=ALICE").json();
    assert_eq!(found["keys"].as_array().unwrap().len(), 1);
    let alice = desk.get("/api/v1/identity?key=Alice%40example.org").json();
    assert_eq!((&alice["refused"], &alice["records"][0]["remaining"]), (&json!(true), &json!(0.0)));
    let reason = alice["reasons"][0].as_str().unwrap();
    assert!(
        reason.starts_with("2.0 of 2 in 1h (") && reason.contains("): the next passes in"),
        "{reason}"
    );
    let done = desk.change("/api/v1/unblock", json!({ "key": "alice@example.org" }));
    assert_eq!((done.status, &done.json()["records"]), (200, &json!(1)));
    assert_eq!(done.json()["said"][0], "alice@example.org can send again now");
    let again = desk.change("/api/v1/unblock", json!({ "key": "alice@example.org" }));
    assert_eq!(again.problem(), "nothing");
    let after = desk.get("/api/v1/identity?key=alice%40example.org").json();
    assert_eq!((&after["refused"], &after["records"]), (&json!(false), &json!([])));
    let body = json!({ "key": "bob@example.net", "seconds": 7200, "reason": "letter" });
    let done = desk.change("/api/v1/allow", body.clone());
    assert!(done.json()["said"][0].as_str().unwrap().starts_with("bob@example.net is allowed"));
    let bob = desk.get("/api/v1/identity?key=bob%40example.net").json();
    assert_eq!(
        (&bob["refused"], &bob["overrides"][0]["who"]),
        (&json!(false), &json!("web=token:desk"))
    );
    let all = desk.get("/api/v1/overrides").json();
    assert_eq!(all["overrides"][0]["reason"], "letter");
    let end = json!({ "key": "bob@example.net" });
    let ended = desk.change("/api/v1/end", end.clone()).json();
    let said = ended["said"][0].as_str().unwrap();
    assert!(said.starts_with("ended: bob@example.net is allowed until "), "{ended}");
    let bob = desk.get("/api/v1/identity?key=bob%40example.net").json();
    assert_eq!((&bob["refused"], &bob["overrides"]), (&json!(true), &json!([])));
    assert_eq!(desk.change("/api/v1/end", end).problem(), "nothing");
    let log = desk.audit_log();
    assert!(log.contains("web=token:desk unblock rate="), "{log}");
    assert!(log.contains("web=token:desk allow --end key=bob@example.net"), "{log}");
    // Without the broker nothing is changed, and all is still shown.
    of_broker.signal(Signal::TERM);
    assert!(of_broker.wait().success());
    assert_eq!(desk.change("/api/v1/deny", body).problem(), "unavailable");
    assert_eq!(desk.get("/api/v1/status").status, 200);
    of_web.signal(Signal::TERM);
    assert!(of_web.wait().success());
    let log = desk.log();
    assert!(!log.contains("exirate_"), "a token is in the log: {log}");
}

#[test]
fn one_who_helps_has_bounds() {
    let desk = Desk::new("changes_a_day = 3");
    let (_broker, _web) = desk.both();
    let deny = |seconds: i64, key: &str| {
        let body = json!({ "key": key, "seconds": seconds, "reason": "" });
        desk.change("/api/v1/deny", body)
    };
    assert_eq!(deny(86_401, "a").problem(), "bounds");
    assert_eq!(deny(60, "*").problem(), "bounds");
    for key in ["a", "b", "c"] {
        assert_eq!(deny(60, key).status, 200);
    }
    assert_eq!(deny(60, "d").problem(), "bounds");
}

#[test]
fn a_browser_is_asked_for_more_than_its_cookie() {
    let desk = Desk::new("hosts = [\"desk.example.org\"]");
    let (_broker, _web) = desk.both();
    let body = json!({ "token": desk.help });
    let session = desk.ask("POST", "/api/v1/session", &[], Some(body.clone()));
    let cookie = session.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"), "{cookie}");
    let cookie = format!("Cookie: {}", cookie.split(';').next().unwrap());
    let csrf = session.json()["csrf"].as_str().unwrap().to_owned();
    let unblock = |headers: &[&str]| {
        let all = [&[&*cookie], headers].concat();
        desk.ask("POST", "/api/v1/unblock", &all, Some(json!({ "key": "alice@example.org" })))
    };
    let token = format!("X-CSRF-Token: {csrf}");
    for headers in [
        &[][..],
        &["X-CSRF-Token: "],
        &["X-CSRF-Token: 00000000000000000000000000000000"],
        &[&token, "Origin: https://evil.test"],
        &[&token, "Origin: null"],
        &[&token, "Sec-Fetch-Site: cross-site"],
    ] {
        let answer = unblock(headers);
        assert_eq!((answer.status, &*answer.problem()), (403, "forged"), "{headers:?}");
    }
    assert_eq!(desk.audit_log(), "");
    assert_eq!(unblock(&[&token, "Origin: http://localhost"]).status, 200);
    // Names that lead here, and are none of this service: DNS rebinding.
    let view = bearer(&desk.view);
    for (host, status) in [
        ("localhost:8080", 200),
        ("127.0.0.1", 200),
        ("[::1]:1", 200),
        ("DESK.example.org", 200),
        ("evil.test", 421),
        ("localhost.evil.test", 421),
        ("[::1].evil.test", 421),
        ("localhost:80.evil.test", 421),
        ("", 421),
    ] {
        let request = format!(
            "GET /api/v1/me HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{view}\r\n\r\n"
        );
        assert_eq!(desk.raw(&request).status, status, "{host}");
    }
    let none = desk.raw("GET /api/v1/me HTTP/1.0\r\n\r\n");
    assert_eq!(none.problem(), "host");
    // Over another name than this machine's, the cookie is for TLS alone.
    let (text, length) = (body.to_string(), body.to_string().len());
    let answer = desk.raw(&format!(
        "POST /api/v1/session HTTP/1.1\r\nHost: desk.example.org\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{text}"
    ));
    assert!(answer.head.contains("SameSite=Strict; Secure"), "{}", answer.head);
    assert!(answer.head.contains("content-security-policy: default-src 'none'"), "{}", answer.head);
}

#[test]
fn users_of_this_machine_and_people_whom_the_proxy_names() {
    let desk = Desk::new("help = [\"@root\"]");
    let (_broker, web) = desk.both();
    let me = desk.ask("GET", "/api/v1/me", &["X-Remote-User: mallory"], None).json();
    assert_eq!((&me["name"], &me["role"]), (&json!("person:root"), &json!("help")));
    let csrf = format!("X-CSRF-Token: {}", me["csrf"].as_str().unwrap());
    let key = || Some(json!({ "key": "alice@example.org" }));
    assert_eq!(desk.ask("POST", "/api/v1/unblock", &[], key()).problem(), "forged");
    assert_eq!(desk.ask("POST", "/api/v1/unblock", &[&csrf], key()).status, 200);
    assert!(desk.audit_log().contains("web=person:root unblock"));
    desk.configure("proxy = \"root\"\nview = [\"carol\"]\nhelp = [\"alice\", \"@root\"]");
    web.signal(Signal::HUP);
    until("the configuration is in use", || desk.log().contains("is in use"));
    let as_person =
        |name: &str| desk.ask("GET", "/api/v1/me", &[&format!("X-Remote-User: {name}")], None);
    assert_eq!(as_person("alice").json()["role"], "help");
    assert_eq!(as_person("carol").json()["role"], "view");
    assert_eq!(as_person("mallory").problem(), "unknown");
    // A name from the proxy is in no group.
    assert_eq!(as_person("root").problem(), "unknown");
    assert_eq!(desk.ask("GET", "/api/v1/me", &[], None).problem(), "unknown");
}

#[test]
fn over_tcp_a_token_is_needed() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let desk = Desk::new(&format!("listen = \"inet:127.0.0.1:{port}\"\nhelp = [\"root\"]"));
    let _web = desk.start("web", None);
    let connect = || TcpStream::connect(("127.0.0.1", port));
    until("it listens", || connect().is_ok());
    let ask = |headers: &str| {
        let mut stream = connect().unwrap();
        let request = format!(
            "GET /api/v1/me HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\n{headers}\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        read(stream)
    };
    assert_eq!(ask("").problem(), "unknown");
    assert_eq!(ask("X-Remote-User: root\r\n").problem(), "unknown");
    assert_eq!(ask(&format!("{}\r\n", bearer(&desk.view))).status, 200);
    // From elsewhere it is never reached.
    desk.configure("listen = \"inet:0.0.0.0:1\"");
    let mut refused = desk.start("web", None);
    assert!(!refused.wait().success());
    assert!(desk.log().contains("can be reached from other machines"), "{}", desk.log());
}

#[test]
fn requests_that_are_none_or_too_large() {
    let desk = Desk::new("");
    let (_broker, _web) = desk.both();
    let view = bearer(&desk.view);
    for (path, problem) in [
        ("/desk.html", "not-found"),
        ("/api/v1/../v1/me", "not-found"),
        ("/api/v1/me/", "not-found"),
        ("/api/v1/identity", "malformed"),
        ("/api/v1/identity?key=", "malformed"),
        ("/api/v1/identity?key=*", "malformed"),
        ("/api/v1/identity?key=%5Cq", "malformed"),
        ("/api/v1/keys?state=all", "malformed"),
        ("/api/v1/keys?limit=0", "malformed"),
        ("/api/v1/keys?limit=501", "malformed"),
        ("/api/v1/keys?cursor=zz", "malformed"),
        ("/api/v1/keys?cursor=00", "malformed"),
    ] {
        assert_eq!(desk.get(path).problem(), problem, "{path}");
    }
    for key in ["%00", "%ff%fe", "%0d%0aX-A:%20b", "a%27%22%3C", "%F0%9F%92%A9"] {
        let answer = desk.get(&format!("/api/v1/identity?key={key}"));
        assert_eq!(answer.status, 200, "{key}: {answer:?}");
    }
    let answer = desk.ask("DELETE", "/api/v1/me", &[&view], None);
    assert_eq!(answer.problem(), "method");
    assert!(answer.head.contains("allow: GET"), "{}", answer.head);
    let large = json!({ "key": "x".repeat(10_000) });
    assert_eq!(desk.change("/api/v1/unblock", large).problem(), "too-large");
    for body in [json!(null), json!({}), json!({ "key": 1 }), json!({ "key": "a", "more": 1 })] {
        assert_eq!(desk.change("/api/v1/unblock", body.clone()).problem(), "malformed", "{body}");
    }
    let help = bearer(&desk.help);
    let typed = |kind: &str| {
        let request = format!(
            "POST /api/v1/unblock HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{help}\r\n\
             Content-Type: {kind}\r\nContent-Length: 15\r\n\r\n{{\"key\": \"alice\"}}"
        );
        desk.raw(&request)
    };
    assert_eq!(typed("text/plain").problem(), "media-type");
    assert_eq!(typed("application/x-www-form-urlencoded").problem(), "media-type");
    // Chunks, of which nobody says how many there will be.
    let chunks = format!("2000\r\n{}\r\n", "x".repeat(0x2000)).repeat(3);
    let request = format!(
        "POST /api/v1/unblock HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{help}\r\n\
         Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}"
    );
    assert_eq!(desk.raw(&request).problem(), "too-large");
    for request in [
        "\0\0\0\0\r\n\r\n".to_owned(),
        "GET / HTTP/9.9\r\n\r\n".to_owned(),
        format!("GET / HTTP/1.1\r\nA: {}\r\n\r\n", "x".repeat(40_000)),
        format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(200)),
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n".to_owned(),
    ] {
        let mut stream = desk.connect();
        let _ = stream.write_all(request.as_bytes());
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.is_empty() || text.starts_with("HTTP/1.1 4"), "{text}");
    }
    assert_eq!(desk.get("/api/v1/me").status, 200);
}

#[test]
fn peers_that_are_slow_or_many_keep_nobody_out() {
    let desk = Desk::new("max_connections = 20\nmax_streams = 6");
    let (_broker, mut web) = desk.both();
    // More than there may be, and none of them says anything, or only half of it.
    let silent: Vec<UnixStream> = (0..60)
        .map(|number| {
            let mut stream = desk.connect();
            if number % 2 == 0 {
                let _ = stream.write_all(b"GET /api/v1/me HTTP/1.1\r\nHost: loc");
            }
            stream
        })
        .collect();
    until("somebody who asks is served", || {
        let mut stream = desk.connect();
        let request = format!(
            "GET /api/v1/me HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{}\r\n\r\n",
            bearer(&desk.view)
        );
        let mut bytes = Vec::new();
        let _ = stream.write_all(request.as_bytes());
        let _ = stream.read_to_end(&mut bytes);
        bytes.starts_with(b"HTTP/1.1 200")
    });
    drop(silent);
    until("they are gone", || desk.get("/api/v1/me").status == 200);
    // Streams: of one token four, and six of all.
    let stream = |token: &str| {
        let mut stream = desk.connect();
        let request =
            format!("GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n{}\r\n\r\n", bearer(token));
        stream.write_all(request.as_bytes()).unwrap();
        stream
    };
    let tokens = [&desk.view, &desk.view, &desk.view, &desk.view, &desk.help, &desk.help];
    let mut streams = tokens.map(|token| stream(token));
    for (number, stream) in streams.iter_mut().enumerate() {
        if number == 4 {
            assert_eq!(desk.get("/api/v1/events").problem(), "busy");
        }
        let mut text = String::new();
        while !text.contains("\"blocked\":3") {
            let mut part = [0; 4096];
            let length = stream.read(&mut part).unwrap();
            assert!(length > 0, "{text}");
            text += &String::from_utf8_lossy(&part[..length]);
        }
        assert!(text.contains("content-type: text/event-stream"), "{text}");
    }
    assert_eq!(desk.get("/api/v1/events").problem(), "busy");
    // A change is seen.
    assert_eq!(desk.change("/api/v1/unblock", json!({ "key": "alice@example.org" })).status, 200);
    let mut text = String::new();
    while !text.contains("\"blocked\":2") {
        let mut part = [0; 4096];
        let length = streams[0].read(&mut part).unwrap();
        assert!(length > 0, "{text}");
        text += &String::from_utf8_lossy(&part[..length]);
    }
    // A stop ends the streams, and waits for nobody.
    web.signal(Signal::TERM);
    assert!(web.wait().success());
    for stream in &mut streams {
        let _ = stream.read_to_end(&mut Vec::new());
    }
}

#[test]
fn a_stream_ends_with_what_allowed_it() {
    let mine = "view = [\"root\"]";
    let desk = Desk::new(mine);
    let (_broker, web) = desk.both();
    for by_token in [true, false] {
        let token = if by_token { bearer(&desk.view) + "\r\n" } else { String::new() };
        let mut stream = desk.connect();
        let request = format!("GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n{token}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        while !text.contains("\"blocked\":") {
            let mut part = [0; 4096];
            let length = stream.read(&mut part).unwrap();
            assert!(length > 0, "{text}");
            text += &String::from_utf8_lossy(&part[..length]);
        }
        if by_token {
            token::change(&desk.path("tokens"), |all| Ok(all.remove("panel"))).unwrap();
        } else {
            desk.configure("");
            web.signal(Signal::HUP);
            let status = || desk.ask("GET", "/api/v1/me", &[], None).status;
            until("the configuration is in use", || status() == 401);
        }
        desk.block("later@example.org");
        let mut rest = String::new();
        stream.read_to_string(&mut rest).unwrap();
        assert!(!rest.contains("later@example.org"), "{by_token}: {rest}");
        desk.configure(mine);
    }
}

#[test]
fn the_broker_is_asked_by_the_web_service_alone() {
    let desk = Desk::new("");
    let (_broker, _web) = desk.both();
    let path = desk.path("broker");
    let request = json!({
        "who": { "token": desk.help }, "verb": "unblock", "key": "alice@example.org",
    });
    // As another user that the file system lets in.
    let opened = Command::new("chmod").arg("a+rwx").arg(desk.folder.path()).arg(&path).status();
    assert!(opened.unwrap().success());
    let script = "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n\
                  try:\n s.sendall(sys.argv[2].encode()+b'\\n')\n print(s.recv(9999))\n\
                  except OSError as e:\n print(e)";
    let mut other = Command::new("python3");
    other.args(["-c", script]).arg(&path).arg(request.to_string()).uid(NOBODY).gid(NOBODY);
    let said = String::from_utf8(other.output().unwrap().stdout).unwrap();
    assert!(!said.contains("done"), "{said}");
    until("it is logged", || desk.log().contains("user 65534 may not ask"));
    assert_eq!(desk.audit_log(), "");
    // Bytes that are no request.
    let long = vec![b'x'; 100_000];
    for line in [&b"\n"[..], b"{}\n", b"null\n", &[0xff; 100], &long] {
        let reply = if line.contains(&b'\n') || line.len() > 4096 {
            broker(&path, line)
        } else {
            let mut stream = UnixStream::connect(&path).unwrap();
            stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
            stream.write_all(line).unwrap();
            drop(stream);
            continue;
        };
        let text = String::from_utf8_lossy(&reply);
        assert!(text.is_empty() || text.contains("malformed"), "{text}");
    }
    let reply = broker(&path, format!("{request}\n").as_bytes());
    assert!(String::from_utf8_lossy(&reply).contains("\"done\""));
}

#[test]
fn the_schema_is_that_in_the_documentation() {
    let desk = Desk::new("");
    let (_broker, _web) = desk.both();
    let served = desk.ask("GET", "/api/v1/openapi.json", &[], None).json();
    let path = kit::repository().join("docs/openapi.json");
    let text = serde_json::to_string_pretty(&served).unwrap() + "\n";
    if std::env::var_os("WRITE_OPENAPI").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == text, "WRITE_OPENAPI=1 writes docs/openapi.json again");
    // Each field that is replied is in it, and each that is in it is replied.
    for (path, name) in [
        ("/api/v1/me", "Me"),
        ("/api/v1/status", "Status"),
        ("/api/v1/keys", "Keys"),
        ("/api/v1/keys?state=close", "Keys"),
        ("/api/v1/keys?state=suspected", "Keys"),
        ("/api/v1/keys?state=denied", "Keys"),
        ("/api/v1/keys?state=exempt", "Keys"),
        ("/api/v1/search?q=ALI", "Found"),
        ("/api/v1/identity?key=alice%40example.org", "Identity"),
        ("/api/v1/identities?key=alice%40example.org&key=bob", "Identities"),
        ("/api/v1/crossings", "Crossings"),
        ("/api/v1/crossings?key=alice%40example.org", "Crossings"),
        ("/api/v1/changes", "Changes"),
        ("/api/v1/changes?key=alice%40example.org", "Changes"),
        ("/api/v1/policies", "PoliciesInUse"),
        ("/api/v1/overrides", "Overrides"),
    ] {
        fits(
            &desk.get(path).json(),
            &json!({ "$ref": format!("#/components/schemas/{name}") }),
            &served,
        );
    }
}

/// Whether a value is what a schema says, as far as the schemas of the API go.
fn fits(value: &Value, schema: &Value, document: &Value) {
    if let Some(name) = schema["$ref"].as_str() {
        let schema = document.pointer(name.trim_start_matches('#')).unwrap();
        let properties = schema["properties"].as_object().unwrap();
        let value = value.as_object().unwrap_or_else(|| panic!("{value} is no {name}"));
        let known: Vec<_> = properties.keys().collect();
        let mut found: Vec<_> = value.keys().collect();
        found.sort();
        assert_eq!(found, known, "{name}");
        for (field, schema) in properties {
            fits(&value[field], schema, document);
        }
        return;
    }
    if let Some(any) = schema["anyOf"].as_array() {
        if !value.is_null() {
            fits(value, &any[0], document);
        }
        return;
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::Array(types) => types.iter().map(|one| one.as_str().unwrap()).collect(),
        one => vec![one.as_str().unwrap()],
    };
    let of = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(items) => {
            items.iter().for_each(|item| fits(item, &schema["items"], document));
            "array"
        }
        Value::Object(_) => "object",
    };
    assert!(
        types.contains(&of) || of == "integer" && types.contains(&"number"),
        "{value}: {schema}"
    );
}
