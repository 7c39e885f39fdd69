//! What the machine allows Exim: the resource limits of its daemon, and AppArmor
//! and SELinux if they are enforced.

use std::path::{Path, PathBuf};

use super::command::Exim;
use super::finding::{Findings, quoted};
use super::installation::is_same_program;

/// Open files that a check of any key needs: one a shard, the directory, and
/// what Exim has open besides.
const FILES_WANTED: u64 = 256 + 1 + 63;
/// Fewer are too few for Exim itself.
const FILES_NEEDED: u64 = 32;
/// A shard of the default size limit, and some more.
const SIZE_WANTED: u64 = 8 << 20;

/// A running daemon.
#[derive(Debug, PartialEq, Eq)]
struct Daemon {
    id: u32,
    program: PathBuf,
}

/// Checks the limits of the daemons that run with this Exim's configuration.
pub(super) fn daemon(exim: &Exim, findings: &mut Findings) {
    let daemons = running(Path::new("/proc"), exim.config.as_deref());
    let (ours, others): (Vec<_>, Vec<_>) =
        daemons.into_iter().partition(|daemon| is_same_program(exim, &daemon.program));
    for other in others {
        findings.note(format!(
            "the Exim that runs as process {} is {}, and this is about {}: use --exim {1}",
            other.id,
            other.program.display(),
            exim.program.display(),
        ));
    }
    if ours.is_empty() {
        findings.note("no Exim daemon runs with this configuration");
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
    }
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

/// The Exim daemons that run with this configuration, or with their usual one.
fn running(proc: &Path, config: Option<&Path>) -> Vec<Daemon> {
    let mut found = Vec::new();
    for entry in proc.read_dir().into_iter().flatten().flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(line) = std::fs::read(entry.path().join("cmdline")) else { continue };
        let words: Vec<&[u8]> = line.split(|&b| b == 0).collect();
        let Ok(program) = entry.path().join("exe").read_link() else { continue };
        if is_daemon(&words, config) {
            found.push(Daemon { id, program });
        }
    }
    found.sort_by_key(|daemon| daemon.id);
    // A daemon's connections have its command line: the first one stands for all.
    found.dedup_by(|later, first| later.program == first.program);
    found
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
        assert!(is("exim -C /x -bdf", Some("/x")));
        assert!(!is("exim -C /x -bdf", None));
        assert!(!is("exim -bdf", Some("/x")));
        assert!(!is("exim -bs", None));
        assert!(!is("vi -bd", None));
        assert!(!is("", None));
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
