//! Time zones of this machine.

use std::path::Path;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::Zone;

/// The changes of a zone are kept from 1970 until the year 2100, in seconds.
const KEPT: std::ops::Range<i64> = 0..4_102_444_800;
/// Where the zone of the server is stated.
const LOCAL: &str = "/etc/localtime";

/// Why a zone cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NoZone {
    /// The machine has none of this name.
    #[error(
        "unknown time zone {0:?}; expected such as \"Europe/Berlin\" or \"UTC\"; zones are in the \
         package tzdata"
    )]
    Unknown(String),
    /// `/etc/localtime` cannot be used.
    #[error(
        "the time zone of this server is not known: {LOCAL}: {0}; write timezone = \"UTC\", or \
         another one, at the top of the policy file"
    )]
    Local(String),
}

/// The zone of this name, or that of the server: whatever the environment says, all processes
/// must have the same.
///
/// # Errors
/// There is none.
pub fn load(name: Option<&str>) -> Result<Zone, NoZone> {
    match name {
        Some(name) => {
            let zone = TimeZone::get(name).map_err(|_| NoZone::Unknown(name.to_owned()))?;
            Ok(changes(&zone, zone.iana_name().unwrap_or(name)))
        }
        None => local(Path::new(LOCAL)),
    }
}

/// The zone that a file states, as `/etc/localtime` does.
fn local(path: &Path) -> Result<Zone, NoZone> {
    let failed = |why: String| NoZone::Local(why);
    let bytes = match std::fs::read(path) {
        // A server without it is on UTC: localtime(5).
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Zone { name: "UTC".into(), ..Zone::default() });
        }
        read => read.map_err(|error| failed(error.to_string()))?,
    };
    let link = std::fs::canonicalize(path).unwrap_or_default();
    let link = link.to_string_lossy();
    let name = link.split_once("/zoneinfo/").map_or("local", |(_, name)| name);
    let zone = TimeZone::tzif(name, &bytes).map_err(|error| failed(error.to_string()))?;
    Ok(changes(&zone, name))
}

/// What a zone is made of.
fn changes(zone: &TimeZone, name: &str) -> Zone {
    let start = Timestamp::from_second(KEPT.start).unwrap_or_default();
    let ahead = |at| zone.to_offset(at).seconds();
    let mut last = ahead(start);
    let first = last;
    let changes = zone
        .following(start)
        .map(|change| (change.timestamp(), change.offset().seconds()))
        .take_while(|(at, _)| KEPT.contains(&at.as_second()))
        // Where only the name of the time changes, its clock does not.
        .filter(|(_, ahead)| std::mem::replace(&mut last, *ahead) != *ahead)
        .map(|(at, ahead)| (at.as_second(), ahead))
        .collect();
    Zone { name: name.into(), first, changes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_has_its_changes() {
        let berlin = load(Some("Europe/Berlin")).unwrap();
        assert_eq!((&*berlin.name, berlin.first), ("Europe/Berlin", 3600));
        assert!((200..260).contains(&berlin.changes.len()), "{}", berlin.changes.len());
        assert_eq!(berlin.changes.last().map(|(_, ahead)| *ahead), Some(3600));
        let utc = load(Some("UTC")).unwrap();
        assert_eq!((utc.first, utc.changes.len()), (0, 0));
        let unknown = load(Some("Europe/Atlantis")).unwrap_err().to_string();
        assert!(
            unknown.starts_with("unknown time zone \"Europe/Atlantis\"; expected"),
            "{unknown}"
        );
    }

    #[test]
    fn the_server_is_where_its_file_says() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("localtime");
        assert_eq!(local(&path).unwrap(), load(Some("UTC")).unwrap());
        std::os::unix::fs::symlink("/usr/share/zoneinfo/Asia/Kathmandu", &path).unwrap();
        assert_eq!(local(&path).unwrap(), load(Some("Asia/Kathmandu")).unwrap());
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "no zone").unwrap();
        let error = local(&path).unwrap_err().to_string();
        assert!(error.contains("write timezone = \"UTC\""), "{error}");
    }
}
