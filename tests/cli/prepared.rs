//! A machine with an Exim and a database in which something has happened, for
//! the commands that documentation shows.
//!
//! `exirate` and `exim4` are commands there, as on a real machine; the second
//! is the real Exim with a configuration of its own. The clock stands still at
//! [`NOW`], so whatever is shown is the same each time.

use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use crate::mail;
use exirate::rate::Timestamp;
use exirate::rate::usage::Sent;
use exirate::spool::{Options, Spool};
use exirate::store::{Counting, Store as _};
use kit::exim::{PROGRAM, USER, open_to_all, user};
use kit::{FakeClock, library, write_script};

/// The time there, in UTC.
pub(crate) const NOW: &str = "2026-11-20 11:50:37";

/// Where the spool directory is on a real machine.
const USUAL_SPOOL: &str = "/var/spool/exim4";
/// Where the library is on a real machine.
const USUAL_LIBRARY: &str = "/usr/lib/exim4/exirate.so";

/// What has happened before: when, which check, and how large the event was.
const PAST: [(&str, &str, &str); 10] = [
    ("2026-11-20 09:15:00", "20 / 10m / per_conn / strict / 2001:db8::1", "3"),
    ("2026-11-20 10:02:10", "10M / 1d / per_byte / leaky / web", "2500000"),
    ("2026-11-20 11:31:07", "100 / 1h / per_rcpt / leaky / bob@example.net", "42"),
    ("2026-11-20 11:38:40", "100 / 1h / per_addr / strict / carol@example.org", "1"),
    ("2026-11-20 11:38:41", "100 / 1h / per_addr / strict / carol@example.org", "1"),
    ("2026-11-20 11:38:42", "100 / 1h / per_addr / strict / carol@example.org", "1"),
    ("2026-11-20 11:42:05", "100 / 1h / per_rcpt / strict / alice@example.org", "130"),
    ("2026-11-20 11:42:05", "1000 / 1d / per_rcpt / strict / alice@example.org", "130"),
    ("2026-11-20 11:48:19", "20 / 10m / per_conn / strict / 192.0.2.7", "24"),
    ("2026-11-20 11:50:30", "100 / 1h / per_rcpt / strict / alice", "1"),
];

/// What accounts have sent, where that is known: how many days ago, messages, recipients, and how many
/// were refused.
const SENT: [(&str, i64, u64, u64, u64); 5] = [
    ("auth:alice@example.org", 2, 14, 21, 0),
    ("auth:alice@example.org", 0, 120, 130, 44),
    ("auth:carol@example.org", 1, 3, 3, 0),
    ("auth:carol@example.org", 0, 2, 5, 0),
    ("local_account:www-data", 0, 31, 31, 2),
];

/// Directories of a real machine that are in the folder there.
const PLACES: [&str; 5] = [
    "/var/log/exim4",
    "/var/backups",
    "/var/lib/prometheus/node-exporter",
    "/var/mail",
    "/etc/exirate",
];

/// What `exim_dumpdb` prints there.
const DUMP: &str = "\
20-Nov-2026 11:49:12.250000 rate:     17.250 key: 1h/per_rcpt/dora@example.org
20-Nov-2026 11:50:02.125000 rate:      3.000 epoch: 20-Nov-2026 11:05:40 size: 200 key: 1h/per_rcpt/unique/emil@example.org
";

/// The policy file that somebody is about to install there.
const POLICY: &str = include_str!("../../src/policy/source/example.toml");

/// Events to try that file with.
const EVENTS: &str = r#"{"time": "2026-11-20T10:00:00Z", "auth": "alice", "recipient": "a@example.net", "size": 2500}
{"time": "2026-11-20T10:00:05Z", "auth": "alice", "recipients": 120, "size": 2500}
{"time": "2026-11-20T10:00:10Z", "auth": "alice", "recipient": "b@example.net", "size": 2500}
"#;

/// The main log there.
const MAIN_LOG: &str = "\
2026-11-20 11:31:07 1vM1aB-000000001Ab-1aBc <= bob@example.net H=(pc) [192.0.2.9] P=esmtpsa A=plain:bob S=2048 for r1@example.net
2026-11-20 11:31:08 1vM1aB-000000001Ab-1aBc => r1@example.net R=dnslookup T=remote_smtp H=mx.example.net [192.0.2.80]
2026-11-20 11:38:40 1vM1aC-000000001Ac-1aBc <= alice@example.org H=(laptop) [192.0.2.7] P=esmtpsa A=plain:alice S=120000 for r2@example.net
2026-11-20 11:38:52 1vM1aD-000000001Ad-1aBc <= alice@example.org H=(laptop) [192.0.2.7] P=esmtpsa A=plain:alice S=110000 for r3@example.net
2026-11-20 11:39:30 1vM1aE-000000001Ae-1aBc <= alice@example.org H=(laptop) [192.0.2.7] P=esmtpsa A=plain:alice S=99000000 for r4@example.net
";

/// The messages that Exim has frozen there, as their envelopes and headers are in its spool: two by a
/// policy, and a bounce.
const FROZEN: [(&str, &str); 3] = [
    (
        "1vM1aF-0000Af-1a",
        "alice 1000 1000\n<alice@example.org>\n1795174801 0\n-auth_id alice@example.org\n\
         --aclm _exirate_held 73\n1795174801\noutbound\nauth:alice@example.org\n\
         131.0 recipients, limit 100/1h\n-frozen 1795174801\nXX\n2\nann@example.net\n\
         ben@example.net\n\n026F From: <alice@example.org>\n017  Subject: Invoice\n",
    ),
    (
        "1vM1aG-0000Ag-1a",
        "alice 1000 1000\n<alice@example.org>\n1795175040 0\n-auth_id alice@example.org\n\
         --aclm _exirate_held 73\n1795175040\noutbound\nauth:alice@example.org\n\
         140.2 recipients, limit 100/1h\n-frozen 1795175040\nXX\n1\ncleo@example.net\n\n\
         026F From: <alice@example.org>\n017  Subject: Invoice\n",
    ),
    (
        "1vM1aH-0000Ah-1a",
        "Debian-exim 101 104\n<>\n1795175100 0\n-frozen 1795175101\nXX\n1\nzoe@example.net\n\n\
         017  Subject: failure\n",
    ),
];

/// The log of another month, at the end of which somebody has alice's password.
fn month_log() -> String {
    let mut log = String::new();
    let mut line = |at: i64, n: i64, client: &str, to: &str| {
        let at = jiff::Timestamp::from_second(at).unwrap().strftime("%F %T");
        writeln!(
            log,
            "{at} 1vM2a0-{n:011}-1aBc <= alice@example.org H=(pc) [{client}] P=esmtpsa A=plain:alice@example.org \
             S=2048 for {to}"
        )
        .unwrap();
    };
    let end = jiff::civil::date(2026, 11, 20).at(11, 20, 0, 0).in_tz("UTC").unwrap();
    let end = end.timestamp().as_second();
    for n in 0..90 {
        let to = ["erin", "frank", "grace", "heidi"][(n as usize * 7 + n as usize / 5) % 4];
        line(end - (90 - n) * 28_000, n, "192.0.2.40", &format!("{to}@example.net"));
    }
    for n in 0..16 {
        line(end + n * 75, 90 + n, "203.0.113.9", &format!("r{n}@example.com"));
    }
    log
}

/// The machine; it is gone when this is dropped.
pub(crate) struct Prepared {
    // It ends before the directory is removed.
    callers: Option<kit::Process>,
    folder: tempfile::TempDir,
    clock: FakeClock,
}

impl Prepared {
    /// One in which all of that has happened: the first is made, and the others are copies of it.
    pub(crate) fn new() -> Self {
        static FIRST: OnceLock<Vec<u8>> = OnceLock::new();
        Self::copy_of(FIRST.get_or_init(|| Self::made().archive()))
    }

    /// A copy of one: see [`Prepared::archive`].
    pub(crate) fn copy_of(archive: &[u8]) -> Self {
        let prepared = Self::empty();
        let mut tar = Command::new("tar")
            .args(["--extract", "--preserve-permissions", "--same-owner", "--directory"])
            .arg(prepared.folder.path())
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        tar.stdin.take().unwrap().write_all(archive).unwrap();
        assert!(tar.wait().unwrap().success());
        // They name the folder.
        prepared.configure();
        prepared.clock.freeze(NOW);
        prepared
    }

    /// All of its files.
    pub(crate) fn archive(&self) -> Vec<u8> {
        let mut tar = Command::new("tar");
        tar.args(["--create", "--sparse", "--directory"]).arg(self.folder.path()).arg(".");
        let output = tar.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        output.stdout
    }

    fn empty() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { callers: None, folder, clock: FakeClock::new() }
    }

    fn made() -> Self {
        let prepared = Self::empty();
        for name in ["bin", "log", "spool", "work"] {
            std::fs::create_dir(prepared.path(name)).unwrap();
        }
        symlink(env!("CARGO_BIN_EXE_exirate"), prepared.path("bin/exirate")).unwrap();
        prepared.configure();
        prepared.install_more();
        prepared.freeze_messages();
        prepared.clock.freeze(PAST[0].0);
        // A key that is known, so that all is in the same shards each time.
        let key = r#"echo '{"exirate_export":1,"key":"2b7e151628aed2a6abf7158809cf4f3c"}' "#;
        let output = prepared.run(&format!("{key} | exirate import -"));
        assert!(output.status.success(), "{output:?}");
        for (n, (moment, spec, count)) in PAST.into_iter().enumerate() {
            prepared.clock.freeze(moment);
            let check = format!(
                "exirate check --count '{spec}' --cost {count} --recipient r{n}@example.net"
            );
            let output = prepared.run(&check);
            assert!(output.stderr.is_empty(), "{check}: {output:?}");
            assert!(matches!(output.status.code(), Some(0 | 1)), "{check}: {output:?}");
        }
        prepared.clock.freeze("2026-11-20 11:40:00");
        mail::put(&prepared.path("work"), &prepared.place("/var/mail"));
        assert!(prepared.run("exirate trace record --mbox /dev/null").status.success());
        mail::settle_key(&prepared.spool());
        let output = prepared.run("exirate trace record --mbox passed.mbox && rm passed.mbox");
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        prepared.clock.freeze(NOW);
        let allow = "exirate allow news@example.org --until 12h --reason newsletter";
        // Nobody has that name yet.
        assert_eq!(prepared.run(allow).status.code(), Some(1));
        prepared
    }

    /// One with the daemon that decides about accounts that start Exim, as on a machine that is set up.
    pub(crate) fn with_callers() -> Self {
        let mut prepared = Self::new();
        prepared.callers = Some(kit::front_ends::serve_callers(prepared.folder.path()));
        prepared
    }

    /// Counts what accounts have sent until [`NOW`].
    pub(crate) fn count_usage(&self) {
        let mut spool = Spool::open(&self.spool(), Options::default()).unwrap();
        let now: jiff::Timestamp = format!("{}Z", NOW.replace(' ', "T")).parse().unwrap();
        for (account, days, messages, recipients, refused) in SENT {
            let seconds = now.as_second() - days * 86_400;
            let bytes = 24_000 * messages;
            let sent = Sent { messages, recipients, bytes, refused, failed: refused / 4 };
            let identity = account.as_bytes();
            let counting = Counting { identity, sent, day: &|at| at.div_euclid(86_400) };
            spool.count_usage(&counting, || Timestamp { seconds, micros: 0 }).unwrap();
        }
    }

    /// Makes what Exim needs: a spool directory of its user's, the library, and
    /// a configuration that calls it.
    fn configure(&self) {
        open_to_all(self.folder.path());
        let (uid, gid) = user(USER);
        chown(self.spool(), Some(uid), Some(gid)).unwrap();
        let (config, so) = (self.path("exim.conf"), self.path("exirate.so"));
        std::fs::copy(library::built(), &so).unwrap();
        std::fs::set_permissions(&so, std::fs::Permissions::from_mode(0o644)).unwrap();
        let text = format!(
            "spool_directory = {}\nexim_user = {USER}\nexim_group = {USER}\n\
             keep_environment = LD_PRELOAD : FAKE_CLOCK\nacl_smtp_rcpt = check\nbegin acl\ncheck:\n  \
             defer condition = ${{dlfunc{{{}}}{{ratelimit}}{{100 / 1h / per_rcpt}}}}\n  accept\n",
            self.spool().display(),
            so.display()
        );
        std::fs::write(&config, text).unwrap();
        let exim = format!("#!/bin/sh\nexec {PROGRAM} -C {} \"$@\"\n", config.display());
        write_script(self.path("bin").join("exim4"), &exim);
    }

    /// Puts [`FROZEN`] into Exim's queue.
    fn freeze_messages(&self) {
        let (uid, gid) = user(USER);
        let own = |path: &Path| chown(path, Some(uid), Some(gid)).unwrap();
        let input = self.spool().join("input");
        std::fs::create_dir(&input).unwrap();
        own(&input);
        for (id, text) in FROZEN {
            for (end, text) in [("H", text), ("D", "The invoice is at https://x.example/\n")] {
                let path = input.join(format!("{id}-{end}"));
                std::fs::write(&path, format!("{id}-{end}\n{text}")).unwrap();
                own(&path);
            }
        }
    }

    /// Exim's other programs, its log, and files of ours.
    fn install_more(&self) {
        let bin = self.path("bin");
        let dump = format!("#!/bin/sh\ncat <<'END'\n{DUMP}END\n");
        let grep = "#!/bin/sh\nexec grep -e \"$1\" \"$2\"\n".to_owned();
        for (name, script) in [("exim_dumpdb", dump), ("exigrep", grep)] {
            write_script(bin.join(name), &script);
        }
        for place in PLACES {
            std::fs::create_dir_all(self.place(place)).unwrap();
        }
        std::fs::write(self.place("/var/log/exim4").join("mainlog"), MAIN_LOG).unwrap();
        std::fs::write(self.place("/var/log/exim4").join("month.log"), month_log()).unwrap();
        std::fs::write(self.path("work").join("dump.txt"), DUMP).unwrap();
        std::fs::write(self.path("work").join("policy.toml"), POLICY).unwrap();
        std::fs::write(self.path("work").join("events.jsonl"), EVENTS).unwrap();
        let installed = POLICY.replace("500/1d", "400/1d").replace("year-end", "autumn");
        // Nothing there sends mail or calls other machines.
        let receivers = ["run = ", "post = ", "mail = "];
        let is_harmless = |line: &&str| !receivers.iter().any(|start| line.starts_with(start));
        let installed: Vec<&str> = installed.lines().filter(is_harmless).collect();
        let agent = include_str!("../../scripts/maintenance/exirate.toml");
        for path in [self.place("/etc/exirate"), self.path("work")] {
            std::fs::write(path.join("exirate.toml"), agent).unwrap();
        }
        let path = self.place("/etc/exirate").join("policy.toml");
        std::fs::write(path, installed.join("\n") + "\n").unwrap();
        let line = r#"{"key":"1h/per_mail/x","rate":1,"limit":9,"seconds":1795170000,"micros":0,"over_since":0}"#;
        let export = format!("{{\"exirate_export\":1}}\n{line}\n");
        std::fs::write(self.path("work").join("exirate.jsonl"), export).unwrap();
    }

    /// Where a directory of [`PLACES`] is.
    fn place(&self, place: &str) -> PathBuf {
        self.path(place.trim_start_matches('/'))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Exim's spool directory.
    pub(crate) fn spool(&self) -> PathBuf {
        self.path("spool")
    }

    /// From now on it is `time` there, in UTC.
    pub(crate) fn at(&self, time: &str) {
        self.clock.freeze(time);
    }

    /// Runs a line of shell there.
    pub(crate) fn run(&self, line: &str) -> Output {
        let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", self.path("bin").display());
        let mut line = line.replace(USUAL_SPOOL, &self.spool().to_string_lossy());
        line = line.replace(USUAL_LIBRARY, &self.path("exirate.so").to_string_lossy());
        for place in PLACES {
            line = line.replace(place, &self.place(place).to_string_lossy());
        }
        Command::new("/bin/sh")
            .args(["-c", &line])
            .env_clear()
            .env("PATH", path)
            .env("LC_ALL", "C.UTF-8")
            .env("TZ", "UTC")
            .envs(self.clock.environment())
            .current_dir(self.path("work"))
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// What `line` prints on both outputs, as on a machine whose spool
    /// directory is the usual one.
    pub(crate) fn show(&self, line: &str) -> String {
        let spool = self.spool().display().to_string();
        let output = self.run(&format!("{{ {line}\n}} 2>&1"));
        let text = String::from_utf8(output.stdout).unwrap();
        let config = self.path("exim.conf").display().to_string();
        let mut text = text.replace(&spool, USUAL_SPOOL).replace(&config, "/etc/exim4/exim4.conf");
        for place in PLACES {
            text = text.replace(&*self.place(place).to_string_lossy(), place);
        }
        text
    }
}

/// The root of the sources.
pub(crate) const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The commands of the program, with those of commands: `list`, `trace query`.
pub(crate) fn commands() -> Vec<String> {
    let mut names = top_commands();
    let mut at = 0;
    while let Some(name) = names.get(at).cloned() {
        let words: Vec<&str> = name.split(' ').collect();
        let below = commands_of(&words).into_iter().map(|below| format!("{name} {below}"));
        at += 1;
        names.splice(at..at, below);
    }
    for name in ["list", "trace", "trace query", "web token add"] {
        assert!(names.contains(&name.to_owned()), "{names:?}");
    }
    names
}

/// The commands in the groups of the program's help; of a command of a command, the first word.
fn top_commands() -> Vec<String> {
    let help = crate::stdout(&crate::exirate().arg("--help").output().unwrap());
    let (_, groups) = help.split_once("\n\n").unwrap().1.split_once("\n\n").unwrap();
    let (groups, _) = groups.split_once("\nOptions:\n").unwrap();
    let lines = groups.lines().filter_map(|line| line.strip_prefix("  "));
    let mut names: Vec<String> =
        lines.map(|line| line.split_whitespace().next().unwrap().to_owned()).collect();
    names.sort();
    names.dedup();
    names
}

/// The commands that the help of a command lists.
fn commands_of(command: &[&str]) -> Vec<String> {
    let output = crate::exirate().args(command).arg("--help").output().unwrap();
    let help = crate::stdout(&output);
    let Some((_, list)) = help.split_once("\nCommands:\n") else { return Vec::new() };
    let list = list.split("\n\n").next().unwrap();
    let names = list.lines().filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

/// The text of a file of the sources.
pub(crate) fn source(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(Path::new(ROOT).join(path)).unwrap()
}
