//! A headless Chromium, by the DevTools protocol on a pair of pipes.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::process::TIMEOUT;

/// So long, nothing in a test takes: a browser that does not answer hangs.
const LONG: Duration = Duration::from_secs(180);

/// A browser with one tab. All that happens in the tab is kept in `events`.
pub struct Browser {
    process: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    session: String,
    number: u64,
    events: Vec<Value>,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts one with an empty profile.
    pub fn start() -> Self {
        let profile = tempfile::tempdir().unwrap();
        // The browser reads commands from file 3 and writes answers to file 4.
        let script = "exec chromium \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1";
        let mut process = Command::new("sh")
            .args(["-c", script, "sh", "--headless=new", "--no-sandbox", "--disable-gpu"])
            .args(["--remote-debugging-pipe", "--disable-dev-shm-usage", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update"])
            .args(["--disable-sync", "--disable-extensions", "--disable-default-apps"])
            // Whatever the page asks for, nobody outside this machine is asked.
            .arg("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")
            .arg("--proxy-server=127.0.0.1:9")
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .env("HOME", profile.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = process.stdin.take().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            let mut message = Vec::new();
            while output.read_until(0, &mut message).is_ok_and(|read| read > 0) {
                message.pop();
                if sender.send(serde_json::from_slice(&message).unwrap()).is_err() {
                    return;
                }
                message.clear();
            }
        });
        let mut browser = Self {
            process,
            input,
            messages,
            session: String::new(),
            number: 0,
            events: Vec::new(),
            _profile: profile,
        };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = browser.call("Target.attachToTarget", attach);
        browser.session = session["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Calls a method, and waits for its result.
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.number += 1;
        let mut message = json!({"id": self.number, "method": method, "params": parameters});
        if !self.session.is_empty() {
            message["sessionId"] = Value::from(self.session.as_str());
        }
        self.input.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let answer = self.messages.recv_timeout(LONG).expect("the browser answers");
            if answer["id"] != self.number {
                self.events.push(answer);
                continue;
            }
            assert!(answer["error"].is_null(), "{method}: {answer}");
            return answer["result"].clone();
        }
    }

    /// Opens a file, and waits until it is loaded and its scripts have run.
    pub fn open(&mut self, file: &Path) {
        self.open_url(&format!("file://{}", file.display()));
    }

    /// Opens a page of a web service, and waits as [`Browser::open`] does.
    pub fn open_url(&mut self, url: &str) {
        self.events.clear();
        self.call("Page.navigate", json!({"url": url}));
        while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
            let event = self.messages.recv_timeout(LONG).expect("the page loads");
            self.events.push(event);
        }
    }

    /// The value of an expression in the page; of a promise, that which it gives.
    pub fn value(&mut self, expression: &str) -> Value {
        let parameters =
            json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let result = self.call("Runtime.evaluate", parameters);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Presses a key, as a user does.
    pub fn press(&mut self, key: &str, code: u32) {
        for kind in ["keyDown", "keyUp"] {
            let mut event = json!({"type": kind, "key": key, "windowsVirtualKeyCode": code});
            if key == "Enter" {
                event["text"] = Value::from("\r");
            }
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// Waits until an expression in the page is true.
    pub fn wait(&mut self, expression: &str) {
        let begun = Instant::now();
        while self.value(&format!("Boolean({expression})")) != true {
            let shown = "document.body.innerText.slice(0, 3000)";
            assert!(begun.elapsed() < TIMEOUT, "{expression}: {}", self.value(shown));
        }
    }

    /// Types a text where the focus is.
    pub fn type_text(&mut self, text: &str) {
        self.call("Input.insertText", json!({"text": text}));
    }

    /// Moves the pointer to the middle of an element, which is scrolled into the window.
    pub fn point(&mut self, element: &str) -> (Value, Value) {
        let middle = self.value(&format!(
            "{{ const one = {element}; one.scrollIntoView({{ block: 'center', behavior: 'instant' }});
                const {{ left, top, width, height }} = one.getBoundingClientRect();
                [left + width / 2, top + height / 2] }}"
        ));
        let (x, y) = (middle[0].clone(), middle[1].clone());
        let moved = json!({"type": "mouseMoved", "x": x, "y": y});
        self.call("Input.dispatchMouseEvent", moved);
        (x, y)
    }

    /// Clicks an element, as a user does.
    pub fn click(&mut self, element: &str) {
        let (x, y) = self.point(element);
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1});
            self.call("Input.dispatchMouseEvent", event);
        }
    }

    /// Shows pages in a window of this size, as somebody who prefers light or dark.
    pub fn resize(&mut self, width: u32, height: u32, scheme: &str) {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size);
        let scheme = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"media": "", "features": scheme}));
    }

    /// A picture of what is in the window, a PNG.
    pub fn screenshot(&mut self) -> Vec<u8> {
        let picture = self.call("Page.captureScreenshot", json!({"format": "png"}));
        BASE64_STANDARD.decode(picture["data"].as_str().unwrap()).unwrap()
    }

    /// A picture of the whole page, a PNG.
    pub fn whole(&mut self) -> Vec<u8> {
        let size = self.value(
            "({ x: 0, y: 0, scale: 1, width: window.innerWidth,
                height: document.documentElement.scrollHeight })",
        );
        let picture = json!({"format": "png", "captureBeyondViewport": true, "clip": size});
        let picture = self.call("Page.captureScreenshot", picture);
        BASE64_STANDARD.decode(picture["data"].as_str().unwrap()).unwrap()
    }

    /// A picture of the top of the page, a PNG.
    pub fn picture(&mut self, width: u32, height: u32) -> Vec<u8> {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size);
        let picture = self.screenshot();
        self.call("Emulation.clearDeviceMetricsOverride", json!({}));
        picture
    }

    /// What the page asked for besides itself, and all that was said in its console:
    /// violations of the content security policy and exceptions are among it.
    pub fn complaints(&mut self, file: &Path) -> Vec<String> {
        let own = format!("file://{}", file.display());
        self.complaints_besides(|url| url.split('#').next() == Some(&own))
    }

    /// The same of a page whose own addresses are `is_own`.
    pub fn complaints_besides(&mut self, is_own: impl Fn(&str) -> bool) -> Vec<String> {
        // What has happened until now has arrived before the answer.
        self.value("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))");
        let is_complaint = |event: &&Value| match event["method"].as_str() {
            Some("Network.requestWillBeSent") => {
                let url = event["params"]["request"]["url"].as_str().unwrap_or_default();
                !is_own(url)
            }
            Some("Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded") => true,
            Some("Network.webSocketCreated" | "Page.javascriptDialogOpening") => true,
            _ => false,
        };
        self.events.iter().filter(is_complaint).map(Value::to_string).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.session.clear();
        self.number += 1;
        let close = json!({"id": self.number, "method": "Browser.close"});
        let _ = self.input.write_all(format!("{close}\0").as_bytes());
        // The answers end when all its processes have.
        while self.messages.recv_timeout(LONG).is_ok() {}
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
