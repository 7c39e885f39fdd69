//! Exim with the shipped files, started by an account of the machine, and the daemon that it asks.

use crate::starts::world::World;
use exirate::engine::Kind;
use exirate::spool::{Options, Spool};
use exirate::store::{Entry, Inspect};
use kit::Process;
use kit::exim::{USER, user};
use kit::front_ends::serve_callers;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;

/// The account that starts Exim.
pub(super) const ACCOUNT: &str = "www-data";

/// How Exim asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asks {
    /// By the shipped files, which use the library for others.
    Library,
    /// By the shipped files, without the library.
    Socket,
    /// By an own line that calls the library, `policy` in each ACL.
    OwnPolicy,
    /// By an own line that calls the library, `ratelimit` in each ACL.
    OwnSpec,
    /// By the shipped file for specs.
    NotSmtp,
}

impl Asks {
    pub(super) const ALL: [Self; 5] =
        [Self::Library, Self::Socket, Self::OwnPolicy, Self::OwnSpec, Self::NotSmtp];

    /// Whether it is a line that is in no shipped file.
    pub(super) fn is_own(self) -> bool {
        matches!(self, Self::OwnPolicy | Self::OwnSpec)
    }

    fn acl(self) -> &'static str {
        match self {
            Self::Library | Self::Socket => ".include /exim/acl_policy.conf",
            Self::OwnPolicy => "defer condition = ${dlfunc{EXIRATE}{policy_over}{*}}",
            Self::OwnSpec => {
                "defer condition = ${dlfunc{EXIRATE}{ratelimit}{LIMIT / 52w / per_rcpt / strict}{own}}"
            }
            Self::NotSmtp => ".include /exim/acl_not_smtp.conf",
        }
    }
}

/// The limit that no run comes to, and the one over which the account is.
pub(super) const LIMITS: [&str; 2] = ["100M", "1"];

/// The machine.
pub(super) struct Bed {
    pub(super) world: World,
    pub(super) daemon: Option<Process>,
}

impl Bed {
    pub(super) fn new(is_over: bool) -> Self {
        let world = World::new();
        let bed = Self { world, daemon: None };
        // Where Exim logs before it has read its configuration, as when it cannot raise a limit.
        let log = bed.path("var/log/exim4");
        fs::create_dir_all(&log).unwrap();
        chown(&log, Some(user(USER).0), Some(user(USER).1)).unwrap();
        let shipped = kit::repository().join("exim");
        fs::create_dir(bed.path("exim")).unwrap();
        for file in fs::read_dir(shipped).unwrap().map(|file| file.unwrap().path()) {
            fs::copy(&file, bed.path("exim").join(file.file_name().unwrap())).unwrap();
        }
        let limit = LIMITS[usize::from(is_over)];
        let policy = format!(
            "version = 1\n[identity]\nchain = [\"local_account\", \"client\"]\n[policy.all]\n\
             update = \"strict\"\ntext = \"no more\"\ndefault.recipients = \"{limit}/52w\"\n"
        );
        fs::write(bed.path("policy.toml"), policy).unwrap();
        let mut apply = Command::new(kit::exirate());
        apply.args(["policy", "apply", "--spool"]).arg(bed.path("spool"));
        assert!(apply.arg(bed.path("policy.toml")).output().unwrap().status.success());
        bed
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.world.path(name)
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.path("spool/exirate/callers")
    }

    /// Starts the daemon, and waits until it listens.
    pub(super) fn start(&mut self) {
        self.daemon = Some(serve_callers(self.world.root()));
    }

    /// Has Exim ask so.
    pub(super) fn configure(&self, asks: Asks, is_over: bool) {
        let by = match asks {
            Asks::Socket => "RATELIMIT_SOCKET = /spool/exirate/callers",
            _ => "EXIRATE_TRACE = /exirate-trace.so\nEXIRATE = /exirate.so",
        };
        let limit = LIMITS[usize::from(is_over)];
        let acls = ["smtp_connect", "smtp_helo", "smtp_mail", "smtp_rcpt", "smtp_data", "not_smtp"];
        let acls = acls.map(|acl| format!("acl_{acl} = check\n")).concat();
        let acls = match asks {
            Asks::NotSmtp => "acl_not_smtp = check\nacl_smtp_rcpt = deny\n".to_owned(),
            Asks::OwnSpec => "acl_not_smtp = check\nacl_smtp_rcpt = check\n".to_owned(),
            _ => acls,
        };
        let acl = asks.acl().replace("LIMIT", limit);
        let text = format!(
            "primary_hostname = private.test\nqualify_domain = private.test\n\
             spool_directory = /spool\nlog_file_path = /log/%slog\nqueue_only = true\nhost_lookup =\n\
             rfc1413_query_timeout = 0s\nkeep_environment =\nsmtp_enforce_sync = false\n\
             untrusted_set_sender = *\n\
             {by}\nRATELIMIT_DEADLINE = 1s\nRATELIMIT_LOCAL = {limit} / 52w\n{acls}\
             .include /exim/exirate.conf\n\
             begin acl\ncheck:\n  {acl}\n  accept\nbegin routers\ndiscard:\n  driver = redirect\n  \
             data = :blackhole:\n"
        );
        fs::write(self.path("etc/exim4/exim4.conf"), text).unwrap();
    }

    /// Sets a macro of the shipped file.
    pub(super) fn set(&self, name: &str, value: &str) {
        let path = self.path("etc/exim4/exim4.conf");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(path, format!("{name} = {value}\n{text}")).unwrap();
    }

    /// The sum of all rates, and that of clients.
    pub(super) fn counted(&self) -> (f64, f64) {
        let mut spool = Spool::open(&self.path("spool"), Options::default()).unwrap();
        let (mut all, mut clients) = (0.0, 0.0);
        let mut visit = |entry: Entry| {
            // The policy counts all; specs of other runs have keys of their own.
            all += entry.average.rate;
            if entry.kind == Kind::Policy && entry.key.windows(7).any(|part| part == b"client:") {
                clients += entry.average.rate;
            }
        };
        Inspect::for_each(&mut spool, &mut visit).unwrap();
        (all, clients)
    }

    /// The messages in the queue, which is then empty.
    pub(super) fn take_queue(&self) -> Vec<Queued> {
        let mut queued = Vec::new();
        let Ok(entries) = fs::read_dir(self.path("spool/input")) else { return queued };
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        for path in files {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let is_whole = name
                .strip_suffix("-H")
                .is_some_and(|id| path.with_file_name(format!("{id}-D")).exists());
            if is_whole || name.ends_with("-H") {
                queued.extend(Queued::read(&path));
            }
        }
        // A process that was killed may have begun one.
        let _ = fs::remove_dir_all(self.path("spool/input"));
        queued
    }

    /// Whether the daemon decides about somebody else now.
    pub(super) fn decides_for_others(&self) -> bool {
        let mut stream = UnixStream::connect(self.socket()).unwrap();
        let asked = "request=exirate_policy\nprotocol=c210cA==\ncommand=UkNQVA==\naddress=203.0.113.9\n\
                     look=1\ncaller=0\nexim=1\n\n";
        std::io::Write::write_all(&mut stream, asked.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply.starts_with("verdict=\"accept\"")
    }

    /// Makes a file for the account.
    pub(super) fn input(&self, text: &str) -> File {
        let path = self.path("home/input");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        chown(&path, Some(user(ACCOUNT).0), None).unwrap();
        File::open(path).unwrap()
    }
}

/// A message in the queue.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) sender: String,
    pub(super) is_held: bool,
    pub(super) has_request: bool,
    pub(super) recipients: u32,
}

impl Queued {
    /// What its file says; nothing of one that was not finished.
    fn read(path: &std::path::Path) -> Option<Self> {
        let text = fs::read(path).unwrap();
        let text = String::from_utf8_lossy(&text);
        let mut lines = text.lines();
        let sender = lines.nth(2)?.to_owned();
        let is_held = text.contains("\n-frozen ");
        let has_request = text.contains("exirate_request ");
        let tree = lines.find(|line| *line == "XX");
        tree?;
        let recipients = lines.next()?.parse().ok()?;
        Some(Self { sender, is_held, has_request, recipients })
    }
}
