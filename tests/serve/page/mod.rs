//! The page of the web service in a real browser, as somebody uses it who has never seen it, with
//! mail that a real policy service counts.

mod hostile;
mod live;
mod tasks;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use kit::browser::Browser;
use kit::{Process, TIMEOUT, until};
use serde_json::Value;

use crate::desk::{Desk, bearer, read};

const POLICY: &str = r#"
version = 1
[policy.outbound]
when = "authenticated"
update = "strict"
habits = "hold"
[policy.outbound.default]
recipients = ["1000/1h", "5000/1d"]
[policy.outbound.customer.acme]
domains = ["acme.test"]
total.recipients = "3/1d"
[policy.outbound.user."vip@example.org"]
recipients = "2000/1h"
[[policy.outbound.exempt]]
match = ["ceo@example.org"]
reason = "year-end letter"
"#;

/// A machine whose mail is counted, and whose desk is open.
struct Office {
    desk: Desk,
    port: u16,
    _mail: Process,
    _broker: Process,
    web: Option<Process>,
}

impl Office {
    fn new() -> Self {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let desk = Desk::empty(&format!("listen = \"inet:127.0.0.1:{port}\""));
        let at = desk.folder.path().display().to_string();
        let config = desk.path("exirate.toml");
        let text = std::fs::read_to_string(&config).unwrap();
        std::fs::write(&config, format!(
                "[listen]\npolicy = \"unix:{at}/policy\"\n[follow]\nlog = \"{at}/month.log\"\n{text}"
            ))
            .unwrap();
        std::fs::write(desk.path("policy.toml"), POLICY).unwrap();
        let policy = desk.path("policy.toml");
        exirate(&["policy", "apply", policy.to_str().unwrap(), "--spool", &at], 0);
        let (mail, broker) =
            (desk.start("mail", Some("policy")), desk.start("broker", Some("broker")));
        let mut office = Self { desk, port, _mail: mail, _broker: broker, web: None };
        office.open();
        office
    }

    /// Starts the web service.
    fn open(&mut self) {
        self.web = Some(self.desk.start("web", None));
        until("it listens", || TcpStream::connect(("127.0.0.1", self.port)).is_ok());
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    /// The login sends messages to so many recipients each.
    fn send(&self, login: &str, messages: usize, recipients: usize) {
        for _ in 0..messages {
            let message = format!("END-OF-MESSAGE\nrecipient_count={recipients}");
            self.count(login, login, &message);
        }
    }

    /// The policy service counts a step of a message.
    fn count(&self, login: &str, sender: &str, state: &str) {
        let mut stream = UnixStream::connect(self.desk.path("policy")).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let request = format!(
            "request=smtpd_access_policy\nprotocol_name=ESMTP\nsasl_username={login}\n\
             sender={sender}\nclient_address=192.0.2.7\nhelo_name=<i>{login}\nsize=2000\n\
             protocol_state={state}\n\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut reply = [0; 512];
        assert!(stream.read(&mut reply).unwrap() > 0);
    }

    /// Somebody has the password of this account, and writes to strangers.
    fn steal(&self, login: &str) {
        let (now, mut log) = (exirate::sys::clock::now().0, String::new());
        let mut line = |at: i64, number: i64, client: &str, to: &str| {
            let at = jiff::Timestamp::from_second(at).unwrap().strftime("%F %T");
            log += &format!(
                "{at} 1vM2a0-{number:011}-1aBc <= {login} H=(pc) [{client}] P=esmtpsa A=plain:{login} \
                 S=2048 for {to}\n"
            );
        };
        let end = now - 1800;
        for number in 0..90 {
            let to = ["erin", "frank", "grace", "heidi"][(number * 7 + number / 5) as usize % 4];
            line(end - (90 - number) * 28_000, number, "192.0.2.40", &format!("{to}@example.net"));
        }
        for number in 0..20 {
            line(end + number * 60, 90 + number, "203.0.113.9", &format!("r{number}@example.com"));
        }
        let file = self.desk.path("month.log");
        std::fs::write(&file, log).unwrap();
        let at = self.desk.folder.path().to_str().unwrap();
        exirate(&["habits", "learn", file.to_str().unwrap(), "--spool", at], 1);
    }

    /// A change by another program. Returns the status of the reply.
    fn change(&self, path: &str, body: &Value) -> u16 {
        let (body, token) = (body.to_string(), bearer(&self.desk.help));
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{token}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        read(stream).status
    }

    /// A browser in which a token is signed in with.
    fn visitor(&self, token: &str) -> Browser {
        let mut browser = Browser::start();
        browser.open_url(&self.url());
        sign_in(&mut browser, token);
        browser
    }

    /// What a page complains of, besides refusals, and that the service was away.
    fn complaints(&self, browser: &mut Browser) -> Vec<String> {
        let url = self.url();
        let mut all = browser.complaints_besides(|asked| asked.starts_with(&url));
        let expected = ["401 (Unauthorized)", "403 (Forbidden)", "ERR_CONNECTION_REFUSED"];
        all.retain(|one| !expected.iter().any(|text| one.contains(text)));
        all
    }
}

fn exirate(arguments: &[&str], status: i32) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_exirate"));
    let output = command.env("TZ", "UTC").args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(status), "{output:?}");
}

fn sign_in(browser: &mut Browser, token: &str) {
    browser.wait("document.activeElement.id === 'token'");
    browser.type_text(token);
    browser.press("Enter", 13);
    browser.wait("document.querySelector('#sections a[aria-current]')");
}

/// The element of this kind in `within` whose text begins so.
fn of_text(kind: &str, within: &str, text: &str) -> String {
    let text = Value::from(text);
    format!(
        "[...document.querySelectorAll('{within} {kind}')].find((one) => one.textContent.startsWith({text}))"
    )
}

/// The card of a mailbox.
fn card(name: &str) -> String {
    let name = Value::from(name);
    format!(
        "[...document.querySelectorAll('main .card')].find((one) => one.querySelector('bdi').textContent === {name})"
    )
}

/// A button of a card.
fn card_button(name: &str, text: &str) -> String {
    let text = Value::from(text);
    format!(
        "[...{}.querySelectorAll('button')].find((one) => one.textContent.startsWith({text}))",
        card(name)
    )
}

/// Clicks what is in a list, once that has stayed as it is for a moment.
fn click_in_list(browser: &mut Browser, element: &str) {
    browser.wait("!document.querySelector('.cards[data-moved]')");
    browser.wait(element);
    browser.click(element);
}

fn shown(browser: &mut Browser, selector: &str) -> String {
    let text = browser.value(&format!(
        "[...document.querySelectorAll('{selector}')].map((one) => one.innerText).join(' | ')"
    ));
    text.as_str().unwrap().replace('\u{a0}', " ")
}

fn go(browser: &mut Browser, view: &str, until: &str) {
    browser.value(&format!("location.hash = '#/{view}'"));
    browser.wait(&format!("document.querySelector('{until}')"));
}

/// The checker of accessibility finds nothing wrong, and the page is no wider than the window.
fn is_accessible(browser: &mut Browser, what: &str) {
    let path = kit::target().join("tools/node_modules/axe-core/axe.min.js");
    if browser.value("typeof axe") == "undefined" {
        let script = std::fs::read_to_string(&path).unwrap_or_else(|error| {
            panic!("{}: {error}: scripts/test installs it", path.display())
        });
        browser.value(&format!("{script};0"));
    }
    let violations = browser.value(
        "axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) =>
             violations.map(({ id, nodes }) => id + ': ' + nodes.map(({ html }) => html.slice(0, 200)).join(' ')))",
    );
    assert_eq!(violations, serde_json::json!([]), "{what}");
    fits(browser, what);
}

fn fits(browser: &mut Browser, what: &str) {
    let too_wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth";
    assert_eq!(browser.value(too_wide), 0, "{what}");
}

/// Keeps the whole page, if somebody wants to look: EXIRATE_SCREENSHOTS=DIRECTORY.
fn keep(browser: &mut Browser, name: &str) {
    if let Some(directory) = std::env::var_os("EXIRATE_SCREENSHOTS") {
        let file = Path::new(&directory).join(name).with_extension("png");
        std::fs::write(file, browser.whole()).unwrap();
    }
}
