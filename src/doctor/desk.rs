//! The web service and its broker, if somebody has been let in: whether they run, who reaches them, and
//! the tokens.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::net::sockopt::socket_peercred;

use super::finding::{Findings, quoted};
use super::{MAIL_USER, units, users};
use crate::serve::config::{Address, Web, read_web};
use crate::serve::web::role::Member;
use crate::serve::web::token::{self, Tokens};
use crate::standing::scope::Scope;
use crate::store::FOREVER;
use crate::sys::users::{group_name_of, id_of, name_of};
use crate::text::iso_second;
use crate::text::time::now;
use crate::toml_file::Word as _;

/// A token that ends within so many seconds is worth a warning.
const SOON: i64 = 14 * 86_400;

/// Checks the web service with the configuration at `file`, for the database in `spool`.
pub(super) fn look(spool: &Path, file: &Path, findings: &mut Findings) {
    // What cannot be read at all is reported for the daemons that need it.
    let Ok(checked) = read_web(file) else { return };
    let Some(web) = checked.config else {
        let text = format!("{} has errors: the web service does not start with it", file.display());
        let check = format!("exirate serve web --check --config {}", quoted(file));
        findings.warning(text).fix(check);
        return;
    };
    let tokens = token::read(&web.tokens);
    let nobody = tokens.as_ref().is_ok_and(|all| all.all().next().is_none());
    let is_named = !web.view.is_empty() || !web.help.is_empty();
    let listens = matches!(&web.listen, Address::Unix(path) if path.exists());
    if web.spool != spool || nobody && !is_named && !listens {
        return;
    }
    for one in checked.diagnostics.sorted() {
        findings.warning(format!("{}: {}", file.display(), one.message));
    }
    let owner = spool.metadata().ok().and_then(|info| name_of(info.uid()));
    let owner = owner.map_or_else(|| MAIL_USER.to_owned(), |name| name.display().to_string());
    if web.user.is_none() {
        let text = "there is no user exirate-web for the web service";
        findings.warning(text).fix("systemd-sysusers");
    }
    match tokens {
        Ok(tokens) => look_at_tokens(&tokens, findings),
        Err(why) => {
            let file = quoted(&web.tokens);
            findings
                .warning(format!("no token can be used: {why}"))
                .fix(format!("chown root: {file}"))
                .fix(format!("chmod 0644 {file}"));
        }
    }
    if let Some(open) = users::writable_for_all(&web.tokens) {
        let text = format!("everybody can replace {}", web.tokens.display());
        findings.warning(text).fix(format!("chmod o-w {}", quoted(open)));
    }
    let is_port = matches!(web.listen, Address::Inet(_));
    if nobody && (is_port || !is_named) {
        let text = match is_port {
            true => format!("a token is needed at {}, and there is none", web.listen),
            false => "nobody may ask the web service".to_owned(),
        };
        findings.warning(text).fix("exirate web token add desk --role help --until 90d");
    }
    names(&web, findings);
    service(&web, spool, &owner, findings);
    match UnixStream::connect(&web.broker) {
        Ok(_) => {
            findings.ok(format!("the broker listens on {}", web.broker.display()));
            look_at_held(&web, findings);
        }
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            findings.hidden("whether the broker listens was not checked");
        }
        Err(error) => {
            let text = format!("nothing can be changed: {}: {error}", web.broker.display());
            findings.warning(text).fix(units::start(&format!("exirate-broker@{owner}.service")));
        }
    }
}

/// Whether held mail can be shown and released, where anything can be changed.
fn look_at_held(web: &Web, findings: &mut Findings) {
    let Err(error) = UnixStream::connect(&web.held) else { return };
    if error.kind() == ErrorKind::PermissionDenied {
        findings.hidden("whether held mail can be released was not checked");
        return;
    }
    let held = web.held.display();
    let text = format!("the desk can neither show nor release held mail: {held}: {error}");
    findings.warning(text).fix(units::start("exirate-held.service"));
}

fn look_at_tokens(tokens: &Tokens, findings: &mut Findings) {
    let now = now().seconds;
    for token in tokens.all().filter(|one| one.until != FOREVER) {
        let (name, until) = (&token.name, iso_second(token.until));
        // Else the new one would be for all.
        let only = token.scope.as_ref().map_or_else(String::new, Scope::arguments);
        let again = format!(
            "exirate web token remove {name} && exirate web token add {name} --role {}{only} --until 90d",
            token.role.word()
        );
        if token.until <= now {
            findings.note(format!("the token {name} has ended, on {until}")).fix(again);
        } else if token.until - now < SOON {
            findings.warning(format!("the token {name} ends on {until}")).fix(again);
        }
    }
}

/// Names that nobody can have: without a proxy, they are those of users.
fn names(web: &Web, findings: &mut Findings) {
    if web.proxy.is_some() {
        return;
    }
    for (key, all) in [("web.view", &web.view), ("web.help", &web.help)] {
        for member in all {
            let Member::Person(name) = member else { continue };
            if id_of(name.as_ref()).is_some() {
                continue;
            }
            let text = format!(
                "{key} names {name}, who is not a user of this machine; web.proxy lets in people \
                 with other names"
            );
            findings.warning(text);
        }
    }
}

/// Whether the web service runs, who reaches it, and whether it may read the database.
fn service(web: &Web, spool: &Path, owner: &str, findings: &mut Findings) {
    let unit = format!("exirate-web@{owner}.service");
    let connected = match &web.listen {
        Address::Unix(path) => UnixStream::connect(path).map(Some),
        Address::Inet(address) => TcpStream::connect(address).map(|_| None),
    };
    let stream = match connected {
        Ok(stream) => stream,
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            findings.hidden("whether the web service listens was not checked");
            return;
        }
        Err(error) => {
            let text = format!("the web service does not listen on {}: {error}", web.listen);
            findings.warning(text).fix(units::start(&unit));
            return;
        }
    };
    let (Some(stream), Address::Unix(path)) = (stream, &web.listen) else {
        findings.ok(format!("the web service listens on {}", web.listen));
        return;
    };
    let group = path.metadata().ok().and_then(|info| group_name_of(info.gid()));
    let group = group.map_or_else(String::new, |name| format!(", for the group {name}"));
    findings.ok(format!("the web service listens on {}{group}", web.listen));
    let Some(groups) = groups_of_peer(&stream) else { return };
    let Ok(info) = spool.join("exirate").metadata() else { return };
    if !groups.contains(&info.gid()) {
        let text = format!(
            "the web service may not read {}/exirate: it is not in the group {}",
            spool.display(),
            group_name_of(info.gid()).unwrap_or_else(|| info.gid().to_string())
        );
        findings.warning(text).fix(format!("systemctl enable --now {unit}"));
    }
}

/// The groups of the process at the other end; `None` if they do not matter, as it is root's, or are
/// not known.
fn groups_of_peer(stream: &impl AsFd) -> Option<Vec<u32>> {
    let peer = socket_peercred(stream).ok()?;
    if peer.uid.is_root() {
        return None;
    }
    let path = format!("/proc/{}/status", peer.pid.as_raw_nonzero());
    let status = std::fs::read_to_string(path).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:"))?;
    let groups = line.split_whitespace().filter_map(|group| group.parse().ok());
    Some(std::iter::once(peer.gid.as_raw()).chain(groups).collect())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixListener;

    use super::super::finding::Level;
    use super::*;
    use crate::serve::web::role::Role;

    /// What is found with this `[web]`, but for what works.
    fn found(at: &Path, web: &str) -> Vec<String> {
        let file = at.join("exirate.toml");
        let here = at.display();
        let text = format!(
            "[mail]\nspool = \"{here}\"\n[web]\nuser = \"root\"\nlisten = \"unix:{here}/web\"\n\
             broker = \"{here}/broker\"\nheld = \"{here}/held\"\ntokens = \"{here}/tokens\"\n{web}\n"
        );
        std::fs::write(&file, text).unwrap();
        let mut findings = Findings::default();
        look(at, &file, &mut findings);
        let bad = findings.list.into_iter().filter(|one| one.level != Level::Ok);
        bad.map(|one| one.text.replace(&format!("{here}/"), "")).collect()
    }

    #[test]
    fn what_keeps_the_desk_out_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        assert_eq!(found(at, ""), [""; 0], "nobody has asked for it");
        let none = "No such file or directory (os error 2)";
        let (web, broker) = (
            format!("the web service does not listen on unix:web: {none}"),
            format!("nothing can be changed: broker: {none}"),
        );
        assert_eq!(found(at, "help = [\"root\"]"), [&*web, &broker]);
        let nobody = "web.help names nobody-here, who is not a user of this machine; web.proxy \
                      lets in people with other names";
        assert_eq!(found(at, "help = [\"nobody-here\"]"), [nobody, &web, &broker]);
        let proxied = "proxy = \"root\"\nhelp = [\"nobody-here\"]";
        assert_eq!(found(at, proxied), [&*web, &broker]);
        let wrong = found(at, "help = 1");
        assert!(wrong[0].contains("has errors: the web service does not start"), "{wrong:?}");
        let _others = ["web", "broker"].map(|name| UnixListener::bind(at.join(name)).unwrap());
        let held = format!("the desk can neither show nor release held mail: held: {none}");
        assert_eq!(found(at, ""), ["nobody may ask the web service", &held]);
        let _listeners = ["held"].map(|name| UnixListener::bind(at.join(name)).unwrap());
        assert_eq!(found(at, ""), ["nobody may ask the web service"]);
        let tokens = at.join("tokens");
        let day = 86_400;
        let now = now().seconds;
        for (name, until) in [("old", 86_400), ("soon", now + 13 * day), ("later", now + 15 * day)]
        {
            let add = token::change(&tokens, |all| all.add(name, Role::View, 0, until, None));
            assert!(add.is_ok());
        }
        let soon = format!("the token soon ends on {}", iso_second(now + 13 * day));
        let old = "the token old has ended, on 1970-01-02T00:00:00Z";
        assert_eq!(found(at, ""), [old, &soon]);
        std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(0o666)).unwrap();
        let why = found(at, "");
        assert!(
            why[0].starts_with("no token can be used: tokens: must be a file of root"),
            "{why:?}"
        );
    }
}
