//! What the mail front ends need on a machine before they start: a user, the directory of the
//! database, and sockets that mail servers reach.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::serve::config::{Address, Mail};
use crate::sys::users;

/// The user of exirate-mail.service.
pub const USER: &str = "exirate-mail";
/// The directory that exirate-mail.service makes when it starts.
const MADE_BY_UNIT: &str = "/run/exirate-mail";

/// Who runs, or connects.
struct Who {
    uid: u32,
    groups: Vec<u32>,
}

impl Who {
    /// Whether all of these permissions (of the last three bits) are given.
    fn may(&self, of: &Metadata, bits: u32) -> bool {
        let shift = match () {
            () if self.uid == 0 => return true,
            () if of.uid() == self.uid => 6,
            () if self.groups.contains(&of.gid()) => 3,
            () => 0,
        };
        of.mode() >> shift & bits == bits
    }
}

/// What is missing for the daemon to run as `user` with this configuration, each with what
/// helps.
#[must_use]
pub fn faults(mail: &Mail, user: &str) -> Vec<String> {
    let Some((uid, groups)) = users::ids_of(OsStr::new(user)) else {
        return vec![format!("there is no user {user}: systemd-sysusers makes it")];
    };
    let daemon = Who { uid, groups };
    let mut faults = Vec::new();
    faults.extend(spool(&mail.spool, user, &daemon));
    for (name, address) in [("policy", &mail.policy), ("milter", &mail.milter)] {
        if let Some(Address::Unix(path)) = address {
            let found = socket(mail, path, user, &daemon);
            faults.extend(found.map(|fault| format!("listen.{name}: {fault}")));
        }
    }
    faults
}

/// What is wrong with the directory of the database.
fn spool(directory: &Path, user: &str, daemon: &Who) -> Option<String> {
    let shown = directory.display();
    let make = format!("install -d -o {user} -g {user} -m 0755 {shown}");
    let info = match directory_at(directory) {
        Ok(info) => info,
        Err(why) => return Some(format!("mail.spool: {why}: {make}")),
    };
    // Its files belong to the owner of the directory.
    if daemon.uid != 0 && info.uid() != daemon.uid {
        let owner = name(info.uid());
        return Some(format!(
            "mail.spool: {shown} belongs to {owner}, not to {user}: name a directory of its own, \
             or run the daemon as {owner}"
        ));
    }
    if !daemon.may(&info, 0o7) {
        return Some(format!("mail.spool: {user} may not write in {shown}: chmod u+rwx {shown}"));
    }
    if let Some(closed) = closed(directory, daemon) {
        return Some(format!("mail.spool: {user} may not enter {closed}: chmod a+x {closed}"));
    }
    let database = directory.join("exirate");
    let other = database.metadata().ok().filter(|info| daemon.uid != 0 && info.uid() != daemon.uid);
    other.map(|_| {
        let database = database.display();
        format!("mail.spool: {database} does not belong to {user}: chown -R {user}: {database}")
    })
}

/// What is wrong with a socket that is to be at `path`.
fn socket(mail: &Mail, path: &Path, user: &str, daemon: &Who) -> Option<String> {
    let directory = path.parent()?;
    let shown = directory.display();
    let info = match directory_at(directory) {
        Ok(info) => info,
        Err(_) if directory == Path::new(MADE_BY_UNIT) && !directory.exists() => return None,
        Err(why) => {
            let make = format!("install -d -o {user} -g GROUP -m 2750 {shown}");
            return Some(format!("{why}: {make}, with the group of the mail server"));
        }
    };
    if !daemon.may(&info, 0o3) {
        return Some(format!("{user} may not write in {shown}: chown {user} {shown}"));
    }
    if let Some(closed) = closed(directory, daemon) {
        return Some(format!("{user} may not enter {closed}: chmod a+x {closed}"));
    }
    let inherited = (info.mode() & 0o2000 != 0).then(|| info.gid());
    let own = daemon.groups.first().copied().unwrap_or(daemon.uid);
    if let Some(group) = mail.access.group
        && daemon.uid != 0
        && inherited != Some(group)
        && !daemon.groups.contains(&group)
    {
        let group = group_name(group);
        return Some(format!(
            "{user} is not in the group {group}, and cannot give the socket that group: chgrp \
             {group} {shown} && chmod g+s {shown}"
        ));
    }
    // Root, as Sendmail connects, needs no permission.
    if mail.access.mode & 0o020 == 0 || mail.access.mode & 0o002 != 0 {
        return None;
    }
    let group = mail.access.group.or(inherited).unwrap_or(own);
    let named = group_name(group);
    if group == own && !has_other_members(group, user) {
        return Some(format!(
            "nobody but root and {user} could connect, as the socket has the group {named}: set \
             socket_group to that of the mail server, or chgrp it to {shown} and chmod g+s {shown}"
        ));
    }
    let server = Who { uid: u32::MAX, groups: vec![group] };
    let closed = closed(directory, &server)?;
    Some(format!("the group {named} may not enter {closed}: chmod g+x {closed}"))
}

/// The directory at `path`; or why there is none, in words.
pub(in crate::serve) fn directory_at(path: &Path) -> Result<Metadata, String> {
    let shown = path.display();
    match path.metadata() {
        Ok(info) if info.is_dir() => Ok(info),
        Ok(_) => Err(format!("{shown} is no directory")),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(format!("the directory {shown} does not exist"))
        }
        Err(error) => Err(format!("cannot look at {shown}: {error}")),
    }
}

/// The first directory on the way to `directory`, and itself, that may not be entered.
fn closed(directory: &Path, who: &Who) -> Option<String> {
    let mut way: Vec<&Path> = directory.ancestors().collect();
    way.reverse();
    let closed = |path: &&&Path| path.metadata().is_ok_and(|info| !who.may(&info, 0o1));
    way.iter().find(closed).map(|path| path.display().to_string())
}

/// Whether anybody but `user` is in a group, by the system's files.
fn has_other_members(gid: u32, user: &str) -> bool {
    let text = |path| std::fs::read_to_string(path).unwrap_or_default();
    let number = gid.to_string();
    let listed = text("/etc/group").lines().any(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let members = fields.get(3).map_or("", |members| members);
        let mut members = members.split(',').filter(|name| !name.is_empty());
        fields.get(2) == Some(&&*number) && members.any(|name| name != user)
    });
    listed
        || text("/etc/passwd").lines().any(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            fields.get(3) == Some(&&*number) && fields.first() != Some(&user)
        })
}

fn name(uid: u32) -> String {
    users::name_of(uid).map_or_else(|| uid.to_string(), |name| name.display().to_string())
}

fn group_name(gid: u32) -> String {
    users::group_name_of(gid).unwrap_or_else(|| gid.to_string())
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, create_dir, set_permissions, write};
    use std::os::unix::fs::{PermissionsExt as _, chown};

    use super::*;
    use crate::serve::config::check_mail;

    fn mail(folder: &Path, more: &str) -> Mail {
        let folder = folder.display();
        let text = format!(
            "[listen]\npolicy = \"unix:{folder}/sockets/p\"\n[mail]\nspool = \"{folder}/spool\"\n{more}\n"
        );
        check_mail(Path::new("f"), &text).config.unwrap()
    }

    /// What is found for this user, without the name of the folder.
    fn found(folder: &Path, more: &str, user: &str) -> Vec<String> {
        let found = faults(&mail(folder, more), user);
        found.iter().map(|text| text.replace(&*folder.to_string_lossy(), "DIR")).collect()
    }

    #[test]
    fn what_the_daemon_cannot_do_is_found_before_it_starts() {
        assert_eq!(rustix::process::geteuid().as_raw(), 0, "this test changes owners");
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        set_permissions(dir, Permissions::from_mode(0o755)).unwrap();
        let (spool, sockets) = (dir.join("spool"), dir.join("sockets"));
        let of = |more: &str| found(dir, more, "games");
        let (games, _) = users::ids_of(OsStr::new("games")).unwrap();
        let mail_group = users::group_id_of(OsStr::new("mail")).unwrap();
        assert_eq!(
            found(dir, "", "no-such-user"),
            ["there is no user no-such-user: systemd-sysusers makes it"]
        );
        assert_eq!(
            of(""),
            [
                "mail.spool: the directory DIR/spool does not exist: install -d -o games -g \
                 games -m 0755 DIR/spool",
                "listen.policy: the directory DIR/sockets does not exist: install -d -o games -g \
                 GROUP -m 2750 DIR/sockets, with the group of the mail server",
            ]
        );
        write(&spool, "").unwrap();
        create_dir(&sockets).unwrap();
        assert_eq!(
            of(""),
            [
                "mail.spool: DIR/spool is no directory: install -d -o games -g games -m 0755 \
                 DIR/spool",
                "listen.policy: games may not write in DIR/sockets: chown games DIR/sockets",
            ]
        );
        std::fs::remove_file(&spool).unwrap();
        create_dir(&spool).unwrap();
        chown(&sockets, Some(games), None).unwrap();
        let own = "listen.policy: nobody but root and games could connect";
        let all = of("");
        assert!(all[0].starts_with("mail.spool: DIR/spool belongs to root, not to games: "));
        assert!(all[1].starts_with(own), "{all:?}");
        chown(&spool, Some(games), None).unwrap();
        set_permissions(&spool, Permissions::from_mode(0o555)).unwrap();
        assert_eq!(
            of("socket_mode = \"0600\""),
            ["mail.spool: games may not write in DIR/spool: chmod u+rwx DIR/spool"]
        );
        set_permissions(&spool, Permissions::from_mode(0o755)).unwrap();
        assert_eq!(of("socket_mode = \"0600\""), [""; 0]);
        assert_eq!(of("socket_mode = \"0666\""), [""; 0]);
        let foreign = "listen.policy: games is not in the group mail, and cannot give the socket \
                       that group: chgrp mail DIR/sockets && chmod g+s DIR/sockets";
        assert_eq!(of("socket_group = \"mail\""), [foreign]);
        chown(&sockets, None, Some(mail_group)).unwrap();
        set_permissions(&sockets, Permissions::from_mode(0o2750)).unwrap();
        assert_eq!(of("socket_group = \"mail\""), [""; 0]);
        assert_eq!(of(""), [""; 0]);
        set_permissions(&sockets, Permissions::from_mode(0o2700)).unwrap();
        assert_eq!(
            of(""),
            ["listen.policy: the group mail may not enter DIR/sockets: chmod g+x DIR/sockets"]
        );
        set_permissions(&sockets, Permissions::from_mode(0o2750)).unwrap();
        // What another user has left there.
        create_dir(spool.join("exirate")).unwrap();
        assert_eq!(
            of(""),
            ["mail.spool: DIR/spool/exirate does not belong to games: chown -R games: \
              DIR/spool/exirate"]
        );
        set_permissions(dir, Permissions::from_mode(0o700)).unwrap();
        assert_eq!(of("").len(), 2);
        assert!(of("")[0].contains("games may not enter DIR: chmod a+x DIR"), "{:?}", of(""));
    }

    #[test]
    fn the_directory_that_the_unit_makes_need_not_be_there() {
        let folder = tempfile::tempdir().unwrap();
        create_dir(folder.path().join("spool")).unwrap();
        let mut mail = mail(folder.path(), "socket_mode = \"0600\"");
        mail.policy = Some(Address::Unix(Path::new(MADE_BY_UNIT).join("policy")));
        let found = faults(&mail, "root");
        assert!(found.is_empty() || Path::new(MADE_BY_UNIT).exists(), "{found:?}");
    }
}
