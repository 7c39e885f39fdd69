//! What strangers write stays text.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kit::until;
use serde_json::Value;

use super::{
    Office, card, card_button, click_in_list, go, is_accessible, keep, of_text, shown, sign_in,
};
use crate::desk::read;
use crate::process::Stops;

#[test]
fn hostile_names_stay_text() {
    let office = Office::new();
    let owned = "document.title='owned'";
    let logins = [
        format!("<img/src=x/onerror=\"{owned}\">@x"),
        format!("</script><script>{owned}</script>"),
        format!("javascript:{owned}"),
        "__proto__".to_owned(),
        "\u{202e}gro.elpmaxe@ecila\u{2066}\u{200f}".to_owned(),
        "a/b#c?d&e=%2F%00;f\\u{41}".to_owned(),
        format!("{}@example.org", "w".repeat(400)),
    ];
    for login in &logins {
        // Of the recipient that crosses the limit, all is logged.
        office.send(login, 1, 999);
        let (sender, state) =
            (format!("<b>s</b>{login}"), format!("RCPT\nrecipient=<u onclick={owned}>@x"));
        for _ in 0..40 {
            office.count(login, &sender, &state);
        }
        office.send(login, 1, 900);
    }
    let mut browser = office.visitor(&office.desk.help);
    browser.resize(360, 800, "light");
    browser.wait(&format!("document.querySelectorAll('main .card').length === {}", logins.len()));
    let all = shown(&mut browser, "main");
    for hidden in ['\u{202e}', '\u{2066}', '\u{200f}', '\0'] {
        assert!(!all.contains(hidden), "{hidden:?}");
    }
    for login in &logins[..4] {
        assert_eq!(browser.value(&format!("Boolean({})", card(login))), true, "{login}: {all}");
    }
    is_accessible(&mut browser, "hostile names");
    keep(&mut browser, "hostile-360");
    // The page of each is its own.
    let links =
        browser.value("[...document.querySelectorAll('main .card a')].map((one) => one.hash)");
    for (number, link) in links.as_array().unwrap().iter().enumerate() {
        let path = link.as_str().unwrap().trim_start_matches("#/").replace('\'', "%27");
        go(&mut browser, &path, ".rates");
        browser.wait("document.querySelector('main table')");
        let text = shown(&mut browser, "main");
        assert!(text.contains(" of 1,000"), "{path}: {text}");
        assert!(text.contains("<u onclick=") && text.contains("<b>s</b>"), "{path}: {text}");
        super::fits(&mut browser, &path);
        go(&mut browser, "policies", "main table");
        let made = "document.querySelectorAll('img, iframe, script:not([src]), u, i, [onerror], [onclick]').length + document.title.replace(/^[(]7[)] /, '')";
        assert_eq!(browser.value(made), "0Policies in use · exirate desk", "{number}");
    }
    // A key that begins as what every object of the script has is the whole key.
    for key in ["constructor:ceo@example.org", "__proto__:ceo@example.org"] {
        office.desk.block(key);
        go(&mut browser, "", ".card");
        browser.wait(&card(key));
        assert_eq!(browser.value(&format!("{}.querySelector('.what')", card(key))), Value::Null);
    }
    assert_eq!(office.complaints(&mut browser), Vec::<String>::new());
}

/// Whoever is unknown waits for a second, and only so many do: others are refused at once.
#[test]
fn strangers_keep_nobody_from_signing_in() {
    let office = Office::new();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stops = Stops(&stop);
        for _ in 0..80 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", office.port)) else {
                        return;
                    };
                    let request =
                        "GET /api/v1/me HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
                    let _ = stream.write_all(request.as_bytes());
                    if read(stream).status == 429 {
                        std::thread::sleep(Duration::from_millis(50));
                    }
                }
            });
        }
        let busy = || {
            let stream = TcpStream::connect(("127.0.0.1", office.port)).unwrap();
            let request = "GET /api/v1/me HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
            (&stream).write_all(request.as_bytes()).unwrap();
            read(stream).status == 429
        };
        until("too many strangers ask", busy);
        drop(office.visitor(&office.desk.view));
    });
}

#[test]
fn of_what_one_has_seen_nothing_stays_for_the_next() {
    let office = Office::new();
    office.send("alice@example.org", 2, 700);
    let mut browser = office.visitor(&office.desk.help);
    browser.wait(&card("alice@example.org"));
    click_in_list(&mut browser, &card_button("alice@example.org", "Allow for…"));
    browser.wait("document.getElementById('ask').open");
    browser.press("Escape", 27);
    browser.wait("!document.getElementById('ask').open");
    browser.value("document.getElementById('query').focus()");
    browser.type_text("alice");
    browser.wait("document.querySelector('#found [role=option]')");
    office.send("bob@example.org", 2, 900);
    browser.wait(&card("bob@example.org"));
    go(&mut browser, "key/auth%3Aalice%40example.org", ".rates");
    browser.value("window.before = 1");
    let out = of_text("button", "#who", "Sign out");
    browser.click(&out);
    browser.wait("document.activeElement.id === 'token'");
    let all = "document.documentElement.outerHTML + location.hash + [...document.querySelectorAll('input')].map((one) => one.value).join()";
    let all = browser.value(all);
    for name in ["alice", "bob@"] {
        assert!(!all.as_str().unwrap().contains(name), "{all}");
    }
    sign_in(&mut browser, &office.desk.view);
    browser.wait(&card("bob@example.org"));
    assert!(shown(&mut browser, "#who").contains("panel"));
    assert_eq!(browser.value("typeof before"), "undefined", "another page");
}
