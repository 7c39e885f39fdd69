//! Exim's daemon: what the machine allows it by resource limits, and by AppArmor and SELinux
//! if they are enforced; and whether it has read the configuration as it is now.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::finding::{Findings, quoted};
use super::installation::{Installation, is_same_program};
use super::reread::{has_read, main_log};
use crate::mta::command::is_only_roots;
use crate::spec;
use crate::text;

/// Open files that a check of any key needs: one a shard, the directory, and
/// what Exim has open besides.
const FILES_WANTED: u64 = 256 + 1 + 63;
/// Fewer are too few for Exim itself.
const FILES_NEEDED: u64 = 32;
/// A shard of the default size limit, and some more.
const SIZE_WANTED: u64 = 8 << 20;

/// Mail that is sent later is looked at too seldom, if not after so many seconds.
const SELDOM: f64 = 300.0;

/// What the kernel counts a process's start in: USER_HZ, the same on all machines.
const TICKS: u64 = 100;
/// The time at which the machine started is known to a second only.
const TOLERANCE: Duration = Duration::from_secs(1);

/// A running daemon.
#[derive(Debug, PartialEq)]
struct RunningDaemon {
    id: u32,
    parent: u32,
    program: PathBuf,
    /// The program was replaced since.
    replaced: bool,
    started: SystemTime,
    /// The file that it writes its number into, if its command line names one.
    pid_file: Option<PathBuf>,
    /// After how many seconds it runs the queue again, if it does.
    queue_runs: Option<f64>,
}

/// Checks the limits of the daemons that run with this Exim's configuration, which is in
/// `files`, and that it is this that they have read; and where `sends_later`, how often they run the
/// queue.
pub(super) fn daemon(
    installation: &Installation,
    files: &[PathBuf],
    sends_later: bool,
    findings: &mut Findings,
) {
    let exim = &installation.exim;
    let who = installation.settings.as_ref().map_or(0, |settings| settings.who.uid);
    let daemons = running(Path::new("/proc"), exim.config.as_deref(), who);
    let (ours, others): (Vec<_>, Vec<_>) =
        daemons.into_iter().partition(|daemon| is_same_program(exim, &daemon.program));
    for other in others {
        findings.note(format!(
            "the Exim that runs as process {} is {}, and {} is checked: use --exim {1}",
            other.id,
            other.program.display(),
            exim.program.display(),
        ));
    }
    if ours.is_empty() {
        findings.note("no Exim daemon runs with this configuration");
    }
    if sends_later && !ours.is_empty() {
        queue_runs(&ours, findings);
    }
    for daemon in ours {
        let path = format!("/proc/{}/limits", daemon.id);
        match std::fs::read_to_string(&path) {
            Ok(limits) => judge(daemon.id, &limits, findings),
            Err(error) => {
                findings.note(format!(
                    "the limits of Exim's daemon could not be read: {path}: {error}"
                ));
            }
        }
        is_current(installation, &daemon, files, findings);
    }
}

/// Checks how often mail that waits is looked at.
fn queue_runs(daemons: &[RunningDaemon], findings: &mut Findings) {
    const ADVICE: &str =
        "once a minute is usual: -q1m, on Debian in /etc/default/exim4 (docs/later.md)";
    let most_often = daemons.iter().filter_map(|daemon| daemon.queue_runs).reduce(f64::min);
    let Some(seconds) = most_often else {
        let what = "Exim's daemon does not run the queue: mail that is sent later waits until something \
                    else does";
        findings.warning(format!("{what}; {ADVICE}"));
        return;
    };
    let often = format!("Exim's daemon runs the queue every {}", text::duration(seconds));
    if seconds > SELDOM {
        findings.warning(format!("{often}: what is sent later leaves no more often; {ADVICE}"));
    } else {
        findings.ok(often);
    }
}

/// Whether a daemon has read what is in `files` now: it does so when it starts, and on HUP.
fn is_current(
    installation: &Installation,
    daemon: &RunningDaemon,
    files: &[PathBuf],
    findings: &mut Findings,
) {
    let id = daemon.id;
    let unit = std::fs::read_to_string(format!("/proc/{id}/cgroup")).ok();
    let unit = unit.as_deref().and_then(unit_of);
    let restart = |findings: &mut Findings, verb: &str| {
        if let Some(unit) = unit {
            findings.fix(format!("systemctl {verb} {unit}"));
        }
    };
    if daemon.replaced {
        findings.warning(format!(
            "{} was replaced after Exim's daemon (process {id}) was started, which runs the old \
             one until it is restarted",
            daemon.program.display()
        ));
        restart(findings, "restart");
    }
    // It writes its number at each start, and some write it again on HUP.
    let said = match &daemon.pid_file {
        Some(_) => None,
        None => pid_file(installation).and_then(|file| written_by(&file, id)),
    };
    let read = daemon.started.max(said.unwrap_or(SystemTime::UNIX_EPOCH));
    let changes = files.iter().filter_map(|file| Some((changed(file)?, file)));
    let Some((at, newer)) = changes.max().filter(|(at, _)| *at > read + TOLERANCE) else { return };
    let said = main_log(installation).and_then(|log| has_read(&log, id, at));
    let what =
        format!("{} was changed after Exim's daemon (process {id}) was started", newer.display());
    match said {
        Some(true) => {}
        Some(false) => {
            findings.warning(format!(
                "{what}, and it has not read the file since: mail that comes by SMTP is still \
                 decided by the old configuration"
            ));
            restart(findings, "reload");
        }
        None => {
            findings.note(format!(
                "{what}, and its main log does not say whether it has read the file since; until it does, \
                 mail that comes by SMTP is decided by the old configuration"
            ));
        }
    }
}

/// When a file, or the link to it, was changed or put in its place.
fn changed(path: &Path) -> Option<SystemTime> {
    let changed_at = |facts: std::fs::Metadata| {
        let seconds = Duration::from_secs(u64::try_from(facts.ctime()).ok()?);
        SystemTime::UNIX_EPOCH.checked_add(seconds)
    };
    path.metadata().ok().and_then(changed_at).max(path.symlink_metadata().ok().and_then(changed_at))
}

/// The file that a daemon writes its number into.
fn pid_file(installation: &Installation) -> Option<PathBuf> {
    let output = installation.exim.run(&["-bP", "pid_file_path"]).ok()?;
    let named = output.stdout.trim().strip_prefix("pid_file_path =").map(str::trim)?;
    match named {
        "" => Some(installation.settings.as_ref()?.spool.join("exim-daemon.pid")),
        named => Some(named.into()),
    }
}

/// When process `id` has written its number into `file`, if that is what is in it.
fn written_by(file: &Path, id: u32) -> Option<SystemTime> {
    let text = std::fs::read_to_string(file).ok()?;
    let is_this = text.trim() == id.to_string();
    file.metadata().ok().filter(|_| is_this)?.modified().ok()
}

/// The service that a process belongs to, by its `/proc/PID/cgroup`.
fn unit_of(cgroup: &str) -> Option<&str> {
    let paths = cgroup.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    paths.filter_map(|path| path.rsplit('/').next()).find(|unit| unit.ends_with(".service"))
}

/// Checks whether a daemon's limits are enough.
fn judge(id: u32, limits: &str, findings: &mut Findings) {
    let [files, most] = limit(limits, "Max open files");
    // The second one is raised only where it must be.
    let more = match most {
        Some(most) if most < FILES_WANTED => format!("{FILES_WANTED}:{FILES_WANTED}"),
        _ => format!("{FILES_WANTED}:"),
    };
    let more = format!("prlimit --pid {id} --nofile={more}");
    let lasting = "permanently: LimitNOFILE= in Exim's systemd unit";
    match files {
        Some(files) if files < FILES_NEEDED => {
            findings.problem(format!(
                "Exim's daemon (process {id}) may open {files} files, which is too few for it; \
                 {FILES_WANTED} are enough ({lasting})"
            ));
            findings.fix(more);
        }
        Some(files) if files < FILES_WANTED => {
            findings.note(format!(
                "Exim's daemon (process {id}) may open {files} files: a connection that checks \
                 very many keys has to reopen shards; {FILES_WANTED} are enough ({lasting})"
            ));
            findings.fix(more);
        }
        Some(files) => {
            findings.ok(format!("Exim's daemon (process {id}) may open {files} files"));
        }
        None => findings.ok(format!("Exim's daemon (process {id}) may open any number of files")),
    }
    let [size, _] = limit(limits, "Max file size");
    if let Some(size) = size.filter(|&size| size < SIZE_WANTED) {
        findings.problem(format!(
            "Exim's daemon (process {id}) may write files of at most {size} bytes: the database's \
             files may grow larger; permanently: LimitFSIZE= in Exim's systemd unit"
        ));
        findings.fix(format!("prlimit --pid {id} --fsize=unlimited:unlimited"));
    }
}

/// The limit of this name in `/proc/PID/limits`, and up to where a process may
/// raise it; `None` for no limit.
fn limit(limits: &str, name: &str) -> [Option<u64>; 2] {
    let values = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    let mut values = values.split_whitespace().map(|value| value.parse().ok());
    [values.next().flatten(), values.next().flatten()]
}

/// The Exim daemons that run with this configuration, or with their usual one. They belong to
/// root or to `who`, Exim's user, and nobody but root can change their program: any user's
/// process can have the name of Exim.
fn running(proc: &Path, config: Option<&Path>, who: u32) -> Vec<RunningDaemon> {
    let mut found = Vec::new();
    let boot = std::fs::read_to_string(proc.join("stat")).unwrap_or_default();
    let boot = boot.lines().find_map(|line| line.strip_prefix("btime "));
    let boot = boot.and_then(|seconds| seconds.trim().parse().ok()).unwrap_or_default();
    for entry in proc.read_dir().into_iter().flatten().flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(line) = std::fs::read(entry.path().join("cmdline")) else { continue };
        let words: Vec<&[u8]> = line.split(|&b| b == 0).collect();
        let Ok(program) = entry.path().join("exe").read_link() else { continue };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let (Some((parent, ticks)), Ok(facts)) = (parent_and_start(&stat), entry.metadata()) else {
            continue;
        };
        // So does the kernel mark a file that is no longer there.
        let text = program.display().to_string();
        let (program, replaced) = match text.strip_suffix(" (deleted)") {
            Some(program) => (PathBuf::from(program), true),
            None => (program, false),
        };
        let is_trusted = (facts.uid() == 0 || facts.uid() == who) && is_only_roots(&program);
        if is_daemon(&words, config) && is_trusted {
            let started = Duration::from_secs(boot) + Duration::from_millis(ticks * 1000 / TICKS);
            let named = words.iter().position(|&word| word == b"-oP");
            let pid_file = named.and_then(|at| words.get(at + 1));
            found.push(RunningDaemon {
                id,
                parent,
                program,
                replaced,
                started: SystemTime::UNIX_EPOCH + started,
                pid_file: pid_file.map(|path| OsStr::from_bytes(path).into()),
                queue_runs: interval(&words),
            });
        }
    }
    // A daemon's connections have its command line.
    let ids: Vec<u32> = found.iter().map(|daemon: &RunningDaemon| daemon.id).collect();
    found.retain(|daemon| !ids.contains(&daemon.parent));
    found.sort_by_key(|daemon| daemon.id);
    found
}

/// The parent of a process and when it was started, by its `/proc/PID/stat`.
fn parent_and_start(stat: &str) -> Option<(u32, u64)> {
    // The name before may have anything in it.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    Some((fields.get(1)?.parse().ok()?, fields.get(19)?.parse().ok()?))
}

/// Whether this is the command line of an Exim daemon with this configuration.
fn is_daemon(words: &[&[u8]], config: Option<&Path>) -> bool {
    let [name, arguments @ ..] = words else { return false };
    let name = name.rsplit(|&b| b == b'/').next().unwrap_or_default();
    let named = arguments.iter().position(|&word| word == b"-C");
    let named = named.and_then(|at| arguments.get(at + 1).copied());
    name.starts_with(b"exim")
        && arguments.iter().any(|&word| word == b"-bd" || word == b"-bdf")
        && named == config.map(|config| config.as_os_str().as_encoded_bytes())
}

/// After how many seconds the daemon with this command line runs the queue again: `-q30m`, `-qff1h`.
fn interval(words: &[&[u8]]) -> Option<f64> {
    words.iter().find_map(|word| {
        let flags = word.strip_prefix(b"-q")?;
        let digits = flags.iter().position(u8::is_ascii_digit)?;
        spec::period(&flags[digits..]).ok()
    })
}

/// Notes what AppArmor or SELinux has to allow.
pub(super) fn confinement(spool: &Path, libraries: &[PathBuf], findings: &mut Findings) {
    let profiles = std::fs::read_to_string("/sys/kernel/security/apparmor/profiles");
    if let Some(profile) = profiles.ok().as_deref().and_then(enforced) {
        let mut rules = format!("{}/exirate/** rwlk", spool.display());
        for library in libraries {
            rules.push_str(&format!(", {} mr", library.display()));
        }
        findings.note(format!(
            "AppArmor's profile {profile} confines Exim: it has to allow {rules}; refusals are in \
             the kernel's log"
        ));
        findings.fix("journalctl -k --grep 'apparmor=\"DENIED\".*exim'");
    }
    let enforcing = std::fs::read_to_string("/sys/fs/selinux/enforce");
    if enforcing.is_ok_and(|text| text.trim() == "1") {
        findings.note(
            "SELinux is enforcing: the library and the database need the labels that its policy \
             has for their paths",
        );
        for path in libraries.iter().chain([&spool.join("exirate")]) {
            findings.fix(format!("restorecon -Rv {}", quoted(path)));
        }
    }
}

/// The profile for Exim that is enforced, in the kernel's list of lines such as
/// `/usr/sbin/exim4 (enforce)`.
fn enforced(profiles: &str) -> Option<&str> {
    profiles.lines().find_map(|line| {
        let name = line.strip_suffix(" (enforce)")?;
        name.to_ascii_lowercase().contains("exim").then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn a_daemon_is_known_by_its_command_line() {
        let is = |line: &str, config: Option<&str>| {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            is_daemon(&words, config.map(Path::new))
        };
        assert!(is("/usr/sbin/exim4 -bd -q30m", None));
        let runs = |line: &str| interval(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>());
        assert_eq!(runs("/usr/sbin/exim4 -bd -q30m"), Some(1800.0));
        assert_eq!(runs("exim -bdf -qqff1h30m -C /x"), Some(5400.0));
        assert_eq!(runs("exim -bdf"), None);
        assert!(is("exim -C /x -bdf", Some("/x")));
        assert!(!is("exim -C /x -bdf", None));
        assert!(!is("exim -bdf", Some("/x")));
        assert!(!is("exim -bs", None));
        assert!(!is("vi -bd", None));
        assert!(!is("", None));
    }

    #[test]
    fn processes_of_others_are_no_daemons() {
        // This process is neither root's program alone nor called exim.
        assert_eq!(running(Path::new("/proc"), Some(Path::new("/nonexistent")), 0), []);
        let stat = "12 (a) b) S 7 1 1 0 -1 4194560 1 0 0 0 3 4 0 0 20 0 1 0 55102 1 1";
        assert_eq!(parent_and_start(stat), Some((7, 55_102)));
        assert_eq!(unit_of("0::/system.slice/exim4.service\n"), Some("exim4.service"));
        assert_eq!(unit_of("1:name=systemd:/system.slice/exim4.service\n"), Some("exim4.service"));
        assert_eq!(unit_of("0::/\n"), None);
    }

    #[test]
    fn what_a_process_wrote_is_known_by_its_number() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "77\n").unwrap();
        let now = file.path().metadata().unwrap().modified().unwrap();
        assert_eq!(written_by(file.path(), 77), Some(now));
        assert_eq!(written_by(file.path(), 7), None);
        // The link to a file counts as well: it may be another one now.
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/proc/version", &link).unwrap();
        let made = link.symlink_metadata().unwrap();
        assert!(
            changed(&link).unwrap()
                >= SystemTime::UNIX_EPOCH + Duration::from_secs(made.ctime().try_into().unwrap())
        );
    }

    #[test]
    fn limits_are_judged() {
        let judged = |files: &str, size: &str| {
            let limits = format!(
                "Limit                     Soft Limit           Hard Limit           Units\n\
                 Max file size             {size}            unlimited            bytes\n\
                 Max open files            {files}                 1048576              files\n"
            );
            let mut findings = Findings::default();
            judge(7, &limits, &mut findings);
            findings.list.iter().map(|finding| finding.level).collect::<Vec<_>>()
        };
        assert_eq!(judged("1024", "unlimited"), [Level::Ok]);
        assert_eq!(judged("unlimited", "unlimited"), [Level::Ok]);
        assert_eq!(judged("100", "unlimited"), [Level::Note]);
        assert_eq!(judged("20", "1000"), [Level::Problem, Level::Problem]);
    }

    #[test]
    fn only_a_profile_of_exim_that_is_enforced_counts() {
        assert_eq!(enforced("lsb_release (enforce)\n/usr/sbin/exim4 (complain)\n"), None);
        assert_eq!(enforced("x (enforce)\n/usr/sbin/exim4 (enforce)\n"), Some("/usr/sbin/exim4"));
        assert_eq!(enforced(""), None);
    }
}
