//! A machine of its own for a mail server: a chroot of `scripts/chroots` with its own
//! network, processes and files, which end with the test.

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::Client;
use crate::network::within;
use crate::{Process, repository, until};

/// What a login shell of root has.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The address of the machine.
const MACHINE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// The address of a client that is not this machine, from outside.
pub const OUTSIDE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// The address of a client on this machine.
pub const INSIDE: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// What the documents use of systemd, which does not run there: the units' users,
/// directories and commands.
const SYSTEMCTL: &str = r#"#!/bin/bash
set -eu
unit=/usr/lib/systemd/system/exirate-mail.service
value() { sed -n "s/^$1=//p" $unit; }
case "$*" in
  "enable --now exirate-mail" | "start exirate-mail")
    user=$(value User)
    install -d -o "$user" -g "$user" -m "$(value StateDirectoryMode)" "/var/lib/$(value StateDirectory)"
    install -d -o "$user" -g "$user" -m "$(value RuntimeDirectoryMode)" "/run/$(value RuntimeDirectory)"
    umask "$(value UMask)"
    setsid setpriv --reuid="$user" --regid="$user" --init-groups --no-new-privs \
      -- $(value ExecStart) >>/var/log/exirate.log 2>&1 </dev/null &
    echo $! >/run/exirate-mail.pid ;;
  "enable --now exirate-alerts")
    unit=/usr/lib/systemd/system/exirate-alerts.service
    umask "$(value UMask)"
    setsid $(value ExecStart) >>/var/log/exirate-alerts.log 2>&1 </dev/null & ;;
  "reload exirate-mail") kill -HUP "$(cat /run/exirate-mail.pid)" ;;
  "stop exirate-mail") kill "$(cat /run/exirate-mail.pid)" ;;
  "kill --signal=KILL exirate-mail") kill -KILL "$(cat /run/exirate-mail.pid)" ;;
  "reload postfix") postfix reload ;;
  *) echo "systemctl $*: unknown here" >&2; exit 1 ;;
esac
"#;
const SYSUSERS: &str = r#"#!/bin/bash
set -eu
sed -n 's/^u \([^ ]*\) .*/\1/p' /usr/lib/sysusers.d/exirate.conf | while read -r user; do
  id "$user" >/dev/null 2>&1 || useradd --system --user-group --no-create-home "$user"
done
"#;

/// A machine.
pub struct Machine {
    process: Process,
    pid: u32,
}

impl Machine {
    /// One with the files of a chroot, and with exirate's program and units.
    pub fn start(chroot: &str) -> Self {
        let script = repository().join("scripts/chroots");
        let complete = Path::new("/var/cache/exirate-chroots").join(chroot).join(".complete");
        assert!(complete.exists(), "{chroot} is needed: scripts/chroots make {chroot}");
        // `cat` ends when this process ends, and everything there with it.
        let child = Command::new(script)
            .args(["apart", chroot, "cat"])
            .current_dir(repository())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let children = format!("/proc/{0}/task/{0}/children", child.id());
        let mut machine = Self { process: Process(child), pid: 0 };
        until("the machine starts", || {
            assert_eq!(
                machine.process.0.try_wait().unwrap(),
                None,
                "scripts/chroots apart {chroot}"
            );
            let child = fs::read_to_string(&children).ok();
            let Some(pid) = child.and_then(|text| text.trim().parse().ok()) else { return false };
            machine.pid = pid;
            fs::read(format!("/proc/{pid}/comm")).is_ok_and(|name| name == b"cat\n")
        });
        machine.install();
        machine
    }

    fn install(&self) {
        let maintenance = repository().join("scripts/maintenance");
        for unit in ["exirate-mail.service", "exirate-alerts.service"] {
            let text = fs::read_to_string(maintenance.join(unit)).unwrap();
            self.write(&format!("/usr/lib/systemd/system/{unit}"), &text);
        }
        let users = fs::read_to_string(maintenance.join("exirate.sysusers.conf")).unwrap();
        self.write("/usr/lib/sysusers.d/exirate.conf", &users);
        self.write("/usr/local/sbin/systemctl", SYSTEMCTL);
        self.write("/usr/local/sbin/systemd-sysusers", SYSUSERS);
        self.run("chmod 755 /usr/local/sbin/systemctl /usr/local/sbin/systemd-sysusers");
        // The directories above the program need not be open to others.
        let program = self.path("/usr/local/bin/exirate");
        fs::copy(crate::exirate(), program).unwrap();
    }

    /// A file there, as this process reaches it.
    pub fn path(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.pid))
    }

    /// Writes a file there, and the directories above it.
    pub fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A file's text; empty if there is none yet.
    pub fn read(&self, path: &str) -> String {
        let bytes = fs::read(self.path(path)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// A command of this machine, in the network of that one.
    pub fn beside(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.pid.to_string(), "--net", "--", program]);
        command
    }

    /// A command line there.
    pub fn command(&self, line: &str) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["--target", &self.pid.to_string()])
            .args(["--mount", "--net", "--uts", "--pid", "--root", "--wd", "--"])
            .args(["env", "-i", "-C", "/", &format!("PATH={PATH}"), "HOME=/root", "LC_ALL=C.UTF-8"])
            .args(["bash", "-c", line]);
        command
    }

    /// Runs a command line, whatever comes of it.
    pub fn tried(&self, line: &str) -> Output {
        self.command(line).stdin(Stdio::null()).output().unwrap()
    }

    /// Runs a command line that must succeed; returns its standard output.
    pub fn run(&self, line: &str) -> String {
        // A daemon that it starts must not hold the pipes.
        let output = self.tried(line);
        assert!(output.status.success(), "{line}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command line with this input.
    pub fn feed(&self, line: &str, input: &[u8]) -> Output {
        let mut command = self.command(line);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), input).unwrap();
        child.wait_with_output().unwrap()
    }

    /// A connection to a port there from one of its addresses.
    pub fn connect(&self, from: Ipv4Addr, port: u16) -> Option<TcpStream> {
        let to = if from.is_loopback() { from } else { MACHINE };
        let stream = within(self.pid, move || {
            let socket =
                socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
            socket.bind(&SocketAddrV4::new(from, 0).into()).unwrap();
            socket.connect(&SocketAddrV4::new(to, port).into()).ok()?;
            Some(TcpStream::from(socket))
        })?;
        stream.set_read_timeout(Some(crate::TIMEOUT)).unwrap();
        Some(stream)
    }

    /// Listens on a port of its loopback interface.
    pub fn listen(&self, port: u16) -> TcpListener {
        within(self.pid, move || TcpListener::bind((INSIDE, port)).unwrap())
    }

    /// An SMTP session with the mail server there; its greeting is read.
    pub fn session(&self, from: Ipv4Addr) -> Client {
        let mut client = Client::of(self.connect(from, 25).expect("the mail server listens"));
        assert_eq!(client.expect().code, 220);
        let greeting = client.command("EHLO client.test");
        assert!(greeting.is_ok(), "{greeting:?}");
        client
    }

    /// A session of a user.
    pub fn login(&self, user: &str) -> Client {
        use base64::Engine as _;
        let mut client = self.session(OUTSIDE);
        let secret = format!("\0{user}@mail.test\0secret");
        let secret = base64::engine::general_purpose::STANDARD.encode(secret);
        let reply = client.command(format!("AUTH PLAIN {secret}"));
        assert_eq!(reply.code, 235, "{reply:?}");
        client
    }
}
