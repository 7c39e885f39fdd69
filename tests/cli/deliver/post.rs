//! `post`: HTTP, HTTPS, and what goes wrong.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use kit::TIMEOUT;

use super::{Machine, code};
use crate::{exirate, stderr};

/// A web server: its URL, and the requests that it gets.
pub(super) fn server() -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let (requests, received) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            let (mut request, mut part) = (Vec::new(), [0; 4096]);
            while !is_whole(&request) {
                match stream.read(&mut part) {
                    Ok(0) | Err(_) => break,
                    Ok(read) => request.extend_from_slice(&part[..read]),
                }
            }
            let request = String::from_utf8(request).unwrap();
            let status = if request.contains("/wrong ") { "503 Busy" } else { "204 No Content" };
            let reply = format!("HTTP/1.1 {status}\r\nConnection: close\r\n\r\n");
            let _ = stream.write_all(reply.as_bytes());
            let _ = requests.send(request);
        }
    });
    (url, received)
}

/// Whether all of the body is there.
fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, _)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let length: usize = length.map_or(0, |length| length.parse().unwrap());
    request.len() >= head.len() + 4 + length
}

/// The command, with more in its environment.
fn deliver(machine: &Machine, environment: &[(&str, &str)]) -> std::process::Output {
    let mut command = exirate();
    command.args(["events", "deliver", "--spool"]).arg(machine.spool());
    command.envs(environment.iter().copied()).output().unwrap()
}

#[test]
fn a_failure_of_the_server_is_reported() {
    let (url, received) = server();
    let machine = Machine::new(&format!("post = \"{}\"", url.replace("/hook", "/wrong")));
    machine.cross("alice");
    let output = machine.deliver(&[]);
    assert_eq!(code(&output), Some(1));
    let said = stderr(&output);
    let fault = "exirate: post: curl failed (exit status 22): curl: (22) \
                 The requested URL returned error: 503; event ";
    assert!(said.starts_with(fault), "{said}");
    assert!(received.recv_timeout(TIMEOUT).unwrap().starts_with("POST /wrong "));
}

#[test]
fn a_machine_without_curl_says_so() {
    let machine = Machine::new("post = \"https://ops.example/hook\"");
    machine.cross("alice");
    let output = deliver(&machine, &[("PATH", "/nonexistent")]);
    assert_eq!(code(&output), Some(1));
    let said = stderr(&output);
    assert!(said.starts_with("exirate: post: cannot run curl: it is not installed; event "));
    let doctor = |path: &str| {
        let mut command = exirate();
        command.args(["doctor", "--json", "--spool"]).arg(machine.spool()).env("PATH", path);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let finding = "post in [on.crossing] needs curl, which is not installed";
    assert!(doctor("/nonexistent").contains(finding));
    assert!(!doctor("/usr/bin:/bin").contains(finding));
}

#[test]
fn other_users_do_not_see_the_url() {
    let machine = Machine::new("post = \"https://ops.example/secret\"");
    machine.program("curl", "echo \"$*\" >\"${0%/*}/arguments\"; cat >\"${0%/*}/input\"");
    machine.cross("quote\"back\\slash");
    let path = format!("{}:/usr/bin:/bin", machine.spool().display());
    assert_eq!(code(&deliver(&machine, &[("PATH", &path)])), Some(0));
    let arguments = machine.lines("arguments").remove(0);
    assert!(arguments.starts_with("--disable ") && !arguments.contains("secret"), "{arguments}");
    let input = machine.lines("input");
    assert_eq!(input[0], "url = \"https://ops.example/secret\"");
    let body = input.iter().find(|line| line.starts_with("data-raw = "));
    assert!(body.unwrap().starts_with("data-raw = \"{\\\"id\\\":"), "{input:?}");
}

/// A certificate for localhost, and that of its authority, in PEM files.
fn certificates(folder: &Path, name: &str) {
    let script = "
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 \
          -keyout ca.key -out ca.pem -subj '/CN=test authority'
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes \
          -keyout key.pem -out request.pem -subj /CN=localhost
        echo subjectAltName=DNS:NAME >extensions
        openssl x509 -req -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
          -extfile extensions -out certificate.pem";
    let output = Command::new("/bin/sh")
        .args(["-e", "-c", &script.replace("NAME", name)])
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
}

/// A web server with TLS, which takes one request.
struct Tls {
    process: Child,
    url: String,
    output: mpsc::Receiver<String>,
}

impl Tls {
    fn start(folder: &Path) -> Self {
        let mut process = Command::new("openssl")
            .args(["s_server", "-accept", "127.0.0.1:0", "-naccept", "1"])
            .args(["-cert", "certificate.pem", "-key", "key.pem"])
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let port = lines.find_map(|line| {
            let line = line.unwrap();
            line.strip_prefix("ACCEPT ")?.rsplit_once(':').map(|(_, port)| port.to_owned())
        });
        let mut stdin = process.stdin.take().unwrap();
        let (seen, output) = mpsc::channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                // The object has no line end after it: the headers must do.
                if line.starts_with("Content-Length: ") {
                    let _ =
                        stdin.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
                }
                let _ = seen.send(line);
            }
        });
        let url = format!("https://localhost:{}/hook", port.unwrap());
        Self { process, url, output }
    }
}

impl Drop for Tls {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn https_is_used_and_a_wrong_certificate_refused() {
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path(), "localhost");
    let authority = folder.path().join("ca.pem").display().to_string();
    let trusted = [("CURL_CA_BUNDLE", authority.as_str())];
    let server = Tls::start(folder.path());
    let machine = Machine::new(&format!("post = \"{}\"", server.url));
    machine.cross("alice");
    let output = deliver(&machine, &trusted);
    assert_eq!((code(&output), stderr(&output)), (Some(0), String::new()));
    let mut lines = server.output.iter();
    assert!(lines.any(|line| line.starts_with("POST /hook HTTP/1.1")));
    assert!(lines.any(|line| line.starts_with("X-Exirate-Event-Id: ")));
    drop(server);

    // Nobody has certified the first; the second is that of another host.
    let wrong = tempfile::tempdir().unwrap();
    certificates(wrong.path(), "other.example");
    let other = wrong.path().join("ca.pem").display().to_string();
    for (folder, trusted, fault) in [
        (folder.path(), &other, "SSL certificate problem: unable to get local issuer certificate"),
        (wrong.path(), &other, "no alternative certificate subject name matches target host name"),
    ] {
        let server = Tls::start(folder);
        let machine = Machine::new(&format!("post = \"{}\"", server.url));
        machine.cross("alice");
        let output = deliver(&machine, &[("CURL_CA_BUNDLE", trusted)]);
        assert_eq!(code(&output), Some(1));
        let said = stderr(&output);
        assert!(
            said.contains("exirate: post: curl failed (exit status 60): curl: (60) "),
            "{said}"
        );
        assert!(said.contains(fault), "{said}");
        assert!(!server.output.try_iter().any(|line| line.starts_with("POST ")));
    }
}
