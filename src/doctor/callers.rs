//! The accounts of this machine that run Exim themselves: whether a daemon decides about them, and
//! which of them serve connections.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use super::finding::{Findings, quoted};
use super::units;
use crate::mta::exim::{Exim, EximSettings};
use crate::serve::config::CALLERS;
use crate::sys::users;

/// The daemon, as its unit and its init script are called.
const SCRIPT: &str = "exirate-mail";
/// Where super-servers are told what to run.
const INETD: &str = "/etc/inetd.conf";
const XINETD: &str = "/etc/xinetd.d";
const SYSTEMD: [&str; 4] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// Checks them, where `limits` says that lines of the configuration call the library.
pub(super) fn look(exim: &Exim, settings: &EximSettings, limits: bool, findings: &mut Findings) {
    findings.about("Local accounts");
    if limits {
        listens(settings, findings);
    }
    let exim_user = users::id_of(settings.who.user.as_ref());
    let output = exim.run(&["-bP", "+exirate_serving"]).ok();
    let serving = output.map_or_else(String::new, |output| output.stdout);
    let mut seen: Vec<u32> = Vec::new();
    for (file, user) in servers() {
        let Some(uid) = users::id_of(user.as_ref()).or_else(|| user.parse().ok()) else { continue };
        let is_named =
            serving.split(|c: char| !c.is_ascii_digit()).any(|one| one == uid.to_string());
        if uid == 0 || Some(uid) == exim_user || is_named || seen.contains(&uid) {
            continue;
        }
        seen.push(uid);
        findings.problem(format!(
            "{} starts Exim as {user} for connections, and all of them count for local_account:{user}: \
             set RATELIMIT_SERVING = {uid} above exirate.conf",
            file.display()
        ));
    }
}

/// Whether the daemon listens that the library asks about them.
fn listens(settings: &EximSettings, findings: &mut Findings) {
    let socket = settings.spool.join(CALLERS);
    match UnixStream::connect(&socket) {
        Ok(_) => findings.ok(format!("a daemon decides about them, on {}", socket.display())),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            findings.hidden(format!("whether a daemon listens on {}: {error}", socket.display()));
        }
        Err(error) => {
            let why = format!(
                "nobody decides about mail that an account hands over by starting Exim itself: \
                 it is held, or deferred in an SMTP dialogue, as no daemon listens on {}: {error}",
                socket.display()
            );
            findings.problem(why).fixes(starts(settings));
        }
    }
}

/// The commands that start the daemon.
fn starts(settings: &EximSettings) -> Vec<String> {
    let user = &settings.who.user;
    if units::has_systemd() || !Path::new("/etc/init.d").join(SCRIPT).exists() {
        return vec![units::start(&format!("{SCRIPT}@{user}.service"))];
    }
    // What the script reads; the last lines count.
    let file = Path::new("/etc/default").join(SCRIPT);
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    let is_set = |name: &str, value: &str| {
        let mut from_last = text.lines().rev();
        from_last.find_map(|line| line.strip_prefix(name)?.strip_prefix('=')) == Some(value)
    };
    let start = units::start(SCRIPT);
    if is_set("user", user) && is_set("callers", &settings.spool.to_string_lossy()) {
        return vec![start];
    }
    let spool = quoted(&settings.spool);
    vec![format!("printf '%s\\n' user={user} callers={spool} >>{}", file.display()), start]
}

/// The files that have Exim serve connections, and the user of each that names one.
fn servers() -> Vec<(PathBuf, String)> {
    let text = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    let files = |folder: &str| {
        let entries = Path::new(folder).read_dir().into_iter().flatten().flatten();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        files.sort();
        files
    };
    let inetd = PathBuf::from(INETD);
    let mut found: Vec<(PathBuf, String)> =
        of_inetd(&text(&inetd)).into_iter().map(|user| (inetd.clone(), user)).collect();
    for file in files(XINETD) {
        found.extend(of_xinetd(&text(&file)).map(|user| (file.clone(), user)));
    }
    for file in SYSTEMD.iter().flat_map(|folder| files(folder)) {
        if file.extension().is_some_and(|kind| kind == "service") {
            found.extend(of_unit(&text(&file)).map(|user| (file.clone(), user)));
        }
    }
    found
}

/// Whether a command has Exim speak SMTP on its standard input.
fn is_exim(command: &str) -> bool {
    let mut words = command.split_whitespace();
    let is_program = |word: &str| {
        let name = word.rsplit('/').next().unwrap_or_default();
        ["exim", "exim4", "sendmail"].contains(&name)
    };
    words.any(is_program) && words.any(|word| word == "-bs")
}

/// `smtp stream tcp nowait mail /usr/sbin/exim4 exim4 -bs`; the user may have a group behind it.
fn of_inetd(text: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#') && is_exim(line));
    let user = lines.filter_map(|line| line.split_whitespace().nth(4));
    user.map(|user| user.split(['.', ':', '/']).next().unwrap_or_default().to_owned()).collect()
}

/// `user = mail`, `server = /usr/sbin/exim4`, `server_args = -bs`
fn of_xinetd(text: &str) -> Option<String> {
    let value = |name: &str| {
        text.lines().find_map(|line| {
            let (key, value) = line.split_once('=')?;
            (key.trim() == name).then(|| value.trim())
        })
    };
    let command = format!("{} {}", value("server")?, value("server_args")?);
    (is_exim(&command) && value("disable") != Some("yes"))
        .then(|| value("user"))?
        .map(str::to_owned)
}

/// `User=mail`, `ExecStart=-/usr/sbin/exim4 -bs`
fn of_unit(text: &str) -> Option<String> {
    let values = |name: &'static str| {
        text.lines().filter_map(move |line| line.trim().strip_prefix(name)?.strip_prefix('='))
    };
    values("ExecStart").any(is_exim).then(|| values("User").next_back())?.map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_serves_connections_is_found() {
        let inetd = "#smtp stream tcp nowait mail /usr/sbin/exim4 exim4 -bs\n\
                     smtp stream tcp nowait mail.mail /usr/sbin/exim4 exim4 -bs\n\
                     25 stream tcp6 nowait nobody /usr/sbin/tcpd /usr/sbin/exim -bs -odq\n\
                     time stream tcp nowait root internal\n\
                     smtps stream tcp nowait mail /usr/sbin/exim4 exim4 -bS\n";
        assert_eq!(of_inetd(inetd), ["mail", "nobody"]);
        let xinetd =
            "service smtp\n{\n  user = smtpd\n  server = /usr/sbin/exim4\n  server_args = -bs\n}\n";
        assert_eq!(of_xinetd(xinetd).as_deref(), Some("smtpd"));
        assert_eq!(of_xinetd(&xinetd.replace("-bs", "-bd")), None);
        assert_eq!(of_xinetd(&format!("{xinetd}disable = yes\n")), None);
        let unit = "[Service]\nExecStart=-/usr/sbin/exim4 -bs\nStandardInput=socket\n";
        assert_eq!(of_unit(unit), None);
        assert_eq!(of_unit(&format!("{unit}User=smtpd\n")).as_deref(), Some("smtpd"));
        assert_eq!(of_unit("[Service]\nUser=x\nExecStart=/usr/sbin/exim4 -bdf -q30m\n"), None);
    }
}
