//! User names and ids, from the system's name service.

use std::ffi::{CStr, CString, OsStr, OsString};
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
    .map(|(name, _)| name)
}

/// The id of the user with this name.
#[must_use]
pub fn id_of(name: &OsStr) -> Option<u32> {
    let name = CString::new(name.as_bytes()).ok()?;
    entry(|entry, buffer, length, found| {
        // SAFETY: as above; `name` ends in a zero byte and outlives the call.
        unsafe { libc::getpwnam_r(name.as_ptr(), entry, buffer, length, found) }
    })
    .map(|(_, uid)| uid)
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

/// The name and id in the entry that `look_up` finds.
fn entry(
    look_up: impl Fn(
        *mut libc::passwd,
        *mut libc::c_char,
        libc::size_t,
        *mut *mut libc::passwd,
    ) -> libc::c_int,
) -> Option<(OsString, u32)> {
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
        return Some((OsString::from_vec(name.to_bytes().to_vec()), entry.pw_uid));
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
        assert_eq!(group_id_of(OsStr::new("no such group")), None);
    }
}
