//! User names and ids, from the system's name service.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

/// The largest entry that is read; a typical one takes less than 200 bytes.
const ENTRY_MAX: usize = 64 << 10;

/// The name of the user with this id.
#[must_use]
pub fn name_of(uid: u32) -> Option<OsString> {
    entry(|entry, buffer, length, found| {
        // SAFETY: `entry` below passes pointers to live values, and the length
        // of the buffer.
        unsafe { libc::getpwuid_r(uid, entry, buffer, length, found) }
    })
    .map(|user| user.name)
}

/// The id of the user with this name.
#[must_use]
pub fn id_of(name: &OsStr) -> Option<u32> {
    named(name).map(|user| user.uid)
}

/// The primary group of the user with this id.
#[must_use]
pub fn group_of(uid: u32) -> Option<u32> {
    entry(|entry, buffer, length, found| {
        // SAFETY: as above.
        unsafe { libc::getpwuid_r(uid, entry, buffer, length, found) }
    })
    .map(|user| user.gid)
}

/// The user and all groups of the user with this name, the primary one first.
#[must_use]
pub fn ids_of(name: &OsStr) -> Option<(u32, Vec<u32>)> {
    let user = named(name)?;
    let text = CString::new(name.as_bytes()).ok()?;
    let mut count = 64;
    loop {
        let mut groups = vec![0; usize::try_from(count).ok()?];
        // SAFETY: `text` ends in a zero byte, and there is room for `count` groups.
        let status = unsafe {
            libc::getgrouplist(text.as_ptr(), user.gid, groups.as_mut_ptr(), &raw mut count)
        };
        if status >= 0 {
            groups.truncate(usize::try_from(count).unwrap_or(0));
            return Some((user.uid, groups));
        }
        // As many as there are.
        if usize::try_from(count).ok()? <= groups.len() {
            return None;
        }
    }
}

/// Has this process go on as the user `uid` with the primary group `gid` and the groups that the
/// user is in, without a way back to root.
///
/// # Errors
/// This process is not root's, or may not change its user.
pub fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    let groups = name_of(uid).and_then(|name| ids_of(&name)).map(|(_, groups)| groups);
    let groups: Vec<libc::gid_t> = groups.unwrap_or_default();
    let of = |status: libc::c_int| match status {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    };
    // SAFETY: the pointer and the number are those of a slice that outlives the call.
    of(unsafe { libc::setgroups(groups.len(), groups.as_ptr()) })?;
    // SAFETY: it takes numbers. All three ids are set: none is left to return to.
    of(unsafe { libc::setresgid(gid, gid, gid) })?;
    // SAFETY: as above.
    of(unsafe { libc::setresuid(uid, uid, uid) })
}

/// The name of the group with this id, as the system's file has it.
#[must_use]
pub fn group_name_of(gid: u32) -> Option<String> {
    let groups = std::fs::read_to_string("/etc/group").ok()?;
    let mut lines = groups.lines().map(|line| line.split(':'));
    lines.find_map(|mut fields| {
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(gid)).then(|| name.to_owned())
    })
}

fn named(name: &OsStr) -> Option<User> {
    let name = CString::new(name.as_bytes()).ok()?;
    entry(|entry, buffer, length, found| {
        // SAFETY: as above; `name` ends in a zero byte and outlives the call.
        unsafe { libc::getpwnam_r(name.as_ptr(), entry, buffer, length, found) }
    })
}

/// The id of the group with this name.
#[must_use]
pub fn group_id_of(name: &OsStr) -> Option<u32> {
    let name = CString::new(name.as_bytes()).ok()?;
    let mut buffer = vec![0; 1024];
    loop {
        // SAFETY: a group is made of pointers and integers, for which zero is valid.
        let mut entry: libc::group = unsafe { std::mem::zeroed() };
        let mut found = std::ptr::null_mut();
        // SAFETY: all pointers are to live values, `name` ends in a zero byte, and the length
        // is that of the buffer.
        let status = unsafe {
            let (text, length) = (buffer.as_mut_ptr(), buffer.len());
            libc::getgrnam_r(name.as_ptr(), &raw mut entry, text, length, &raw mut found)
        };
        if status == libc::ERANGE && buffer.len() < ENTRY_MAX {
            buffer.resize(buffer.len() * 4, 0);
            continue;
        }
        return (status == 0 && !found.is_null()).then_some(entry.gr_gid);
    }
}

/// What is used of an entry.
struct User {
    name: OsString,
    uid: u32,
    gid: u32,
}

/// The entry that `look_up` finds.
fn entry(
    look_up: impl Fn(
        *mut libc::passwd,
        *mut libc::c_char,
        libc::size_t,
        *mut *mut libc::passwd,
    ) -> libc::c_int,
) -> Option<User> {
    let mut buffer = vec![0; 1024];
    loop {
        // SAFETY: a passwd is made of pointers and integers, for which zero is
        // valid.
        let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
        let mut found = std::ptr::null_mut();
        let status = look_up(&raw mut entry, buffer.as_mut_ptr(), buffer.len(), &raw mut found);
        if status == libc::ERANGE && buffer.len() < ENTRY_MAX {
            buffer.resize(buffer.len() * 4, 0);
            continue;
        }
        if status != 0 || found.is_null() || entry.pw_name.is_null() {
            return None;
        }
        // SAFETY: the C library has set it to a string in `buffer`, which is
        // alive and no longer written to.
        let name = unsafe { CStr::from_ptr(entry.pw_name) };
        let name = OsString::from_vec(name.to_bytes().to_vec());
        return Some(User { name, uid: entry.pw_uid, gid: entry.pw_gid });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_names_and_numbers() {
        assert_eq!(name_of(0).as_deref(), Some(OsStr::new("root")));
        assert_eq!(id_of(OsStr::new("root")), Some(0));
        assert_eq!(name_of(3_999_999_999), None);
        assert_eq!(id_of(OsStr::new("no such user")), None);
        assert_eq!(id_of(OsStr::from_bytes(b"a\0b")), None);
        assert_eq!(group_id_of(OsStr::new("root")), Some(0));
        assert_eq!((group_of(0), group_of(3_999_999_999)), (Some(0), None));
        assert_eq!(ids_of(OsStr::new("root")).map(|(uid, all)| (uid, all[0])), Some((0, 0)));
        assert_eq!(ids_of(OsStr::new("no such user")), None);
        assert_eq!(group_name_of(0).as_deref(), Some("root"));
        assert_eq!(group_id_of(OsStr::new("no such group")), None);
    }
}
