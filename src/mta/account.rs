//! Users and groups by their names.

use std::process::Command;

use super::command;
use crate::sys::users::{group_id_of, id_of};

/// Exim's user and group, or other ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// The user's name, or its number.
    pub(crate) user: String,
    /// The group's name, or its number.
    pub(crate) group: String,
}

impl Account {
    /// With the names that this machine knows for them.
    pub(crate) fn of(uid: u32, gid: u32) -> Self {
        Self { uid, gid, user: name("passwd", uid), group: name("group", gid) }
    }

    /// The user of this name with the group of this name; `None` if there is none.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let (uid, gid) = (id_of(name.as_ref())?, group_id_of(name.as_ref())?);
        Some(Self { uid, gid, user: name.to_owned(), group: name.to_owned() })
    }

    /// `user:group`, as chown takes it.
    pub(crate) fn both(&self) -> String {
        format!("{}:{}", self.user, self.group)
    }
}

/// The name of a user (`passwd`) or group (`group`), or its number.
pub(crate) fn name(kind: &str, id: u32) -> String {
    let mut command = Command::new("/usr/bin/getent");
    command.args([kind, &id.to_string()]);
    let output = command::run(command).ok().filter(|output| output.success);
    let name = output.and_then(|output| {
        output.stdout.split_once(':').map(|(name, _)| name.to_owned()).filter(|n| !n.is_empty())
    });
    name.unwrap_or_else(|| id.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_without_a_name_has_a_number() {
        assert_eq!(Account::of(0, 0).both(), "root:root");
        assert_eq!(name("passwd", 3_999_999_999), "3999999999");
    }
}
