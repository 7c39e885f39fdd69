//! A small system for `chroot`: Debian's Exim with its setuid bit, a
//! configuration that it trusts, and the library.

use kit::exim::{PROGRAM, USER, user};
use kit::{Process, library};
use std::collections::BTreeSet;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The user who starts Exim: nobody.
pub(crate) const UNTRUSTED: &str = "nobody";

/// Exim's configuration for messages that a user submits; the environment is
/// kept, so that the library could see it.
const CONFIGURATION: &str = "\
primary_hostname = private.test
qualify_domain = private.test
spool_directory = /spool
log_file_path = /log/%slog
acl_not_smtp = check
acl_smtp_rcpt = rcpt
queue_only = true
host_lookup =
keep_environment = *
add_environment = PATH=/usr/bin
begin acl
check:
  CHECK
  accept
rcpt:
  warn logwrite = answer ${dlfunc{/exirate.so}{ratelimit}{100000 / 52w / per_rcpt / strict}} $sender_rate
  warn logwrite = answer ${dlfunc{/exirate.so}{ratelimit}{2.5 / 52w / per_rcpt / leaky}{other}{$local_part}}
  accept
begin routers
counted:
  driver = redirect
  domains = routed.test
  allow_fail
  data = :fail: answer ${dlfunc{/exirate.so}{ratelimit}{100000 / 52w / per_rcpt / strict}{router}} $sender_rate
discard:
  driver = redirect
  data = :blackhole:
";

/// Counts and records each message, and logs the results.
pub(crate) const CHECK: &str = "warn logwrite = answer ${dlfunc{/exirate.so}{ratelimit}\
    {100000 / 52w / per_mail / strict / k}} $sender_rate/$sender_rate_limit/$sender_rate_period \
    ${dlfunc{/exirate.so}{ratelimit_info}{retry_after}} ${dlfunc{/exirate-trace.so}{record}{keep=7d}}";

pub(crate) struct World {
    folder: tempfile::TempDir,
}

/// How Exim is started.
#[derive(Clone, Default)]
pub(crate) struct Start<'a> {
    /// Shell commands to run first: limits, closed files.
    pub(crate) shell: &'a str,
    /// The arguments of `env`: its options, and the environment.
    pub(crate) environment: Vec<String>,
    /// The arguments of Exim; none means a message to be accepted.
    pub(crate) arguments: &'a [&'a str],
    /// Root starts it, not an untrusted user.
    pub(crate) by_root: bool,
    /// This user starts it, if it is neither root nor the untrusted user.
    pub(crate) by: Option<(u32, u32)>,
    /// Its standard input, if it is not a message.
    pub(crate) input: &'a str,
    /// A program that runs all of it, such as `strace`.
    pub(crate) wrapper: &'a [&'a str],
}

impl World {
    pub(crate) fn new() -> Self {
        let uid = std::fs::metadata("/proc/self").unwrap().uid();
        assert_eq!(uid, 0, "these tests use chroot, so they must run as root");
        let world =
            Self { folder: tempfile::Builder::new().prefix("exim-world-").tempdir().unwrap() };
        std::fs::set_permissions(world.root(), std::fs::Permissions::from_mode(0o755)).unwrap();
        for program in [PROGRAM, "/usr/bin/env"] {
            world.copy_program(program);
        }
        for file in ["/etc/passwd", "/etc/group", "/etc/nsswitch.conf"] {
            world.copy(Path::new(file));
        }
        let owner = user(USER);
        for (name, owner, mode) in [
            ("spool", owner, 0o750),
            ("log", owner, 0o750),
            ("tmp", (0, 0), 0o1777),
            ("home", user(UNTRUSTED), 0o755),
            ("dev", (0, 0), 0o755),
        ] {
            let path = world.path(name);
            std::fs::create_dir_all(&path).unwrap();
            chown(&path, Some(owner.0), Some(owner.1)).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let made = Command::new("mknod")
            .args(["-m", "666"])
            .arg(world.path("dev/null"))
            .args(["c", "1", "3"])
            .status();
        assert!(made.unwrap().success(), "mknod: these tests need a root that may make devices");
        std::fs::copy(library::built(), world.path("exirate.so")).unwrap();
        std::fs::copy(library::built_trace(), world.path("exirate-trace.so")).unwrap();
        world.configure(CHECK);
        // Traps, in the directory from which the untrusted user starts it.
        for trap in ["exirate", "exirate.so", "spool", "database", "libc.so.6", "libm.so.6"] {
            std::os::unix::fs::symlink("/etc/passwd", world.path("home").join(trap)).unwrap();
        }
        world
    }

    /// Starts the daemon that decides about accounts that start Exim.
    pub(crate) fn serve(&self) -> Process {
        kit::front_ends::serve_callers(self.root())
    }

    pub(crate) fn root(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root().join(name.trim_start_matches('/'))
    }

    /// Sets the line of the ACL that checks.
    pub(crate) fn configure(&self, check: &str) {
        std::fs::create_dir_all(self.path("etc/exim4")).unwrap();
        let text = CONFIGURATION.replace("CHECK", check);
        std::fs::write(self.path("etc/exim4/exim4.conf"), text).unwrap();
    }

    fn copy(&self, path: &Path) {
        let to = self.path(path.to_str().unwrap());
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        kit::copy_program(path, to);
    }

    /// A program and the libraries that it needs. `copy` keeps the mode,
    /// including the setuid bit.
    fn copy_program(&self, program: &str) {
        self.copy(Path::new(program));
        let listed = Command::new("ldd").arg(program).output().unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        listed
            .split_whitespace()
            .filter(|w| w.starts_with('/'))
            .for_each(|l| self.copy(Path::new(l)));
    }

    /// Starts Exim once, and waits for its end.
    pub(crate) fn start(&self, start: &Start<'_>) -> Output {
        let untrusted = user(UNTRUSTED);
        let who = start.by.unwrap_or(if start.by_root { (0, 0) } else { untrusted });
        let script = format!("{}\nexec \"$@\"", start.shell);
        let mut command = match start.wrapper {
            [] => Command::new("/bin/bash"),
            [program, rest @ ..] => {
                let mut command = Command::new(program);
                command.args(rest).arg("/bin/bash");
                command
            }
        };
        command.args(["-c", &script, "bash", "/usr/bin/timeout", "--foreground"]);
        // An untrusted user may have it ignore the first signal.
        command.args(["--kill-after=5", "60", "/usr/sbin/chroot"]);
        command.args([&format!("--userspec={}:{}", who.0, who.1), "--groups="]);
        command.arg(self.root()).args(["/usr/bin/env", "-i"]);
        command.args(&start.environment).arg(PROGRAM);
        if start.arguments.is_empty() {
            command.args(["-odq", "-oep", "someone@private.test"]);
        } else {
            command.args(start.arguments);
        }
        let input = tempfile::NamedTempFile::new().unwrap();
        let text = if start.input.is_empty() { "Subject: x\n\nbody\n" } else { start.input };
        std::fs::write(input.path(), text).unwrap();
        command.env_clear().env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin");
        command.stdin(Stdio::from(std::fs::File::open(input.path()).unwrap()));
        command.output().unwrap()
    }

    /// The results in the main log so far, and the errors.
    pub(crate) fn answers(&self) -> Vec<String> {
        let log = std::fs::read(self.path("log/mainlog")).unwrap_or_default();
        let text = String::from_utf8_lossy(&log).into_owned();
        text.lines().filter_map(|l| Some(l.split_once(" answer ")?.1.to_owned())).collect()
    }

    /// The contents of a log.
    pub(crate) fn log(&self, name: &str) -> String {
        let log = std::fs::read(self.path("log").join(name)).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// Every file that is neither Exim's own nor in its spool, with owner, mode
    /// and size.
    pub(crate) fn files(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let mut folders = vec![self.root().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path == self.path("spool") || path == self.path("log") {
                    continue;
                }
                let facts = std::fs::symlink_metadata(&path).unwrap();
                let size = if facts.is_file() { facts.size() } else { 0 };
                let (uid, gid, mode) = (facts.uid(), facts.gid(), facts.mode());
                found.insert(format!("{} {uid}:{gid} {mode:o} {size}", path.display()));
                if facts.is_dir() {
                    folders.push(path);
                }
            }
        }
        found
    }

    /// The contents, owners and modes of the database and of the trace store,
    /// whose directory has no contents.
    pub(crate) fn database(&self) -> Vec<(PathBuf, u32, u32, u32, Vec<u8>)> {
        let mut files = Vec::new();
        for directory in ["spool/exirate", "spool/exirate/trace"] {
            let Ok(entries) = std::fs::read_dir(self.path(directory)) else { continue };
            files.extend(entries.map(|e| e.unwrap().path()));
        }
        // The socket of the daemon that decides about accounts, and its lock.
        files.retain(|path| !path.file_name().unwrap().to_str().unwrap().starts_with("callers"));
        files.sort();
        let read = |path: PathBuf| {
            let facts = std::fs::metadata(&path).unwrap();
            let bytes = if facts.is_dir() { Vec::new() } else { std::fs::read(&path).unwrap() };
            (path, facts.uid(), facts.gid(), facts.mode() & 0o7777, bytes)
        };
        files.into_iter().map(read).collect()
    }
}
