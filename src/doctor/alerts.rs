//! The receivers in `[on.crossing]`: what they need, and whether they get something.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::finding::Findings;
use super::units::{self, UnitState};
use crate::alerts::{self, CURL, Delivered};
use crate::mta::command;
use crate::policy::image::PolicyFile;
use crate::policy::model::{OnCrossing, Piece};
use crate::spool::{EventKind, EventReader, LoggedEvent, Options, Spool, SpoolError};
use crate::standing::key_state::second;
use crate::text::time::now;
use crate::text::{counted, local, rough_age};

/// So long ago, in seconds, is lately.
const LATELY: i64 = 600;
/// In so many seconds, the daemon has sent what has crossed.
const SOON: i64 = 120;

/// Checks the receivers of the policies in use. That these can be read is checked with
/// them.
pub(super) fn look(spool: &Path, units: &[UnitState], findings: &mut Findings) {
    let in_use = PolicyFile::open(spool);
    let Some(on) = in_use.image().ok().and_then(|image| image.on_crossing().ok()) else { return };
    let OnCrossing { log, run, post, mail, contact, .. } = &on;
    let words = run.first().map(|word| &word.0[..]);
    if let Some([Piece::Text(program)]) = words
        && let Some(fault) = fault_of(Path::new(program))
    {
        findings.warning(format!("run in [on.crossing] needs {program}, which {fault}"));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    if post.is_some() && command::named(Path::new(CURL), &path).is_none() {
        findings
            .warning(format!("post in [on.crossing] needs {CURL}, which is not installed"))
            .fix("apt-get install curl");
    }
    let is_any = *log || !run.is_empty() || post.is_some() || mail.is_some() || *contact;
    if is_any && spool.join("exirate").read_dir().is_ok() {
        sending(spool, &on, units, findings);
    }
}

/// Whether alerts are sent: the daemon runs, or something else sends now and then, and who has not
/// got what.
fn sending(spool: &Path, on: &OnCrossing, units: &[UnitState], findings: &mut Findings) {
    let crossings = Spool::open_existing(spool, Options::default()).and_then(|mut database| {
        database.read_events(&mut EventReader::new(EventKind::Crossings), now(), true)
    });
    let crossings = match crossings {
        Ok(crossings) => crossings,
        Err(SpoolError::Absent { .. }) => Vec::new(),
        Err(error) => return findings.hidden(format!("whether alerts were sent: {error}")),
    };
    let receivers = match alerts::delivered(spool, on, &crossings) {
        Ok(receivers) => receivers,
        Err(error) => return findings.hidden(format!("whether alerts were sent: {error}")),
    };
    let names = receivers.iter().map(|one| one.name).collect::<Vec<_>>().join(", ");
    let runs = units.iter().any(|one| one.name == units::ALERTS && one.active);
    // Each run writes a file for each receiver.
    let ran = receivers.iter().filter_map(|one| one.ran).min();
    let is_sent_now_and_then = ran.is_some_and(|ran| now().seconds - ran < LATELY)
        && receivers.iter().all(|one| one.ran.is_some());
    if !runs && !is_sent_now_and_then {
        let last = match ran {
            Some(ran) => format!("something last did so {}", rough_age(second(ran), now())),
            None => "nothing ever did so".to_owned(),
        };
        let text = format!("nothing sends the alerts of [on.crossing] ({names}): {last}");
        findings.warning(text).fix(units::start(units::ALERTS));
    }
    // What has just crossed is about to be sent.
    let has_alert = |event: &&LoggedEvent| alerts::has_alert(event, on.observed);
    let is_late = |one: &&Delivered| {
        let first = crossings.iter().skip(one.done).find(has_alert);
        let age = first.map_or(0, |first| now().seconds.saturating_sub(first.at.seconds));
        one.waiting > 0 && (one.failing || !runs || age > SOON)
    };
    for one in receivers.iter().filter(is_late) {
        let alerts = counted(one.waiting, "alert waits", "alerts wait");
        let failing = if one.failing { ", and the last attempt has failed" } else { "" };
        findings.warning(format!("{}: {alerts} to be sent{failing}", one.name));
        if one.failing {
            findings.fix("exirate events deliver --test");
        }
    }
    if receivers.iter().all(|one| one.waiting == 0) && (runs || is_sent_now_and_then) {
        let last = crossings.iter().rev().find(has_alert);
        findings.ok(match last {
            Some(last) => format!("alerts: {names} got all, the last of {}", local(last.at)),
            None => format!("alerts go to {names}: there was nothing to send yet"),
        });
    }
}

/// Why a program cannot be run.
fn fault_of(program: &Path) -> Option<&'static str> {
    match program.metadata() {
        Ok(info) if !info.is_file() => Some("is no file"),
        Ok(info) if info.permissions().mode() & 0o111 == 0 => Some("is not executable"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some("does not exist"),
        // What this user may not see, another one may.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;
    use crate::engine::{Algorithm, Check, Update};
    use crate::policy::image::{build, install};
    use crate::policy::source::compile;
    use crate::rate::Timestamp;
    use crate::store::Store as _;

    /// The warnings about this `[on.crossing]`.
    fn found(spool: &Path, on: &str) -> Vec<String> {
        let text = format!("version = 1\n[on.crossing]\n{on}\n");
        let none = |_: &Path| Err("no file".to_owned());
        let policies = compile(Path::new("policy.toml"), &text, &none).policies.unwrap();
        install(spool, &build(&policies)).unwrap();
        let mut findings = Findings::default();
        look(spool, &[], &mut findings);
        let warnings = findings.list.into_iter().filter(|one| one.level == Level::Warning);
        warnings.map(|one| one.text).collect()
    }

    #[test]
    fn an_alert_that_waits_is_reported_once_it_is_late() {
        for (ago, is_late) in [(10, false), (SOON + 10, true)] {
            let spool = tempfile::tempdir().unwrap();
            let dir = spool.path();
            found(dir, "log = true");
            let algorithm = Algorithm::MovingAverage { limit: 1.0, period: 3600.0 };
            let check =
                Check { update: Update::Strict, ..Check::new("1h/per_rcpt/alice", algorithm) };
            let at = Timestamp { seconds: now().seconds - ago, micros: 0 };
            Spool::open(dir, Options::default()).unwrap().decide_one(&check, || at).unwrap();
            let runs =
                UnitState { name: units::ALERTS.to_owned(), active: true, ..UnitState::default() };
            let said = |units: &[UnitState]| {
                let mut findings = Findings::default();
                look(dir, units, &mut findings);
                findings.list.into_iter().map(|one| one.text).collect::<Vec<_>>()
            };
            let late = "log: 1 alert waits to be sent";
            // The daemon is about to send it, and nothing else does.
            let expected: &[&str] = if is_late { &[late] } else { &[] };
            assert_eq!(said(&[runs]), expected, "{ago}");
            assert_eq!(said(&[])[1..], [late], "{ago}");
        }
    }

    #[test]
    fn what_receivers_lack_is_reported() {
        let spool = tempfile::tempdir().unwrap();
        let dir = spool.path();
        let mut findings = Findings::default();
        look(dir, &[], &mut findings);
        assert!(findings.list.is_empty(), "there is no policy");
        assert_eq!(found(dir, "log = false"), [""; 0]);
        let never = |names: &str| {
            format!("nothing sends the alerts of [on.crossing] ({names}): nothing ever did so")
        };
        assert_eq!(found(dir, "log = true\nmail = \"a@example.org\""), [never("log, mail")]);
        // A unit that is active does, if it is this one.
        let unit =
            |name: &str| UnitState { name: name.to_owned(), active: true, ..UnitState::default() };
        let said = |units: &[UnitState]| {
            let mut findings = Findings::default();
            look(dir, units, &mut findings);
            findings.list.remove(0).text
        };
        let nothing = "alerts go to log, mail: there was nothing to send yet";
        assert_eq!(said(&[unit(units::ALERTS)]), nothing);
        assert_eq!(said(&[unit("exirate-mail")]), never("log, mail"));
        // Something else has sent lately, to one of them.
        std::fs::write(dir.join("exirate/delivery.log"), "").unwrap();
        assert!(found(dir, "log = true").is_empty());
        let lately = "nothing sends the alerts of [on.crossing] (log, mail): something last did so";
        assert!(found(dir, "log = true\nmail = \"a@example.org\"")[0].starts_with(lately));
        std::fs::write(dir.join("exirate/delivery.run"), "").unwrap();
        let (program, on) = (dir.join("over"), format!("run = [\"{}/over\"]", dir.display()));
        let lacks = |what: &str| {
            [format!("run in [on.crossing] needs {}, which {what}", program.display())]
        };
        assert_eq!(found(dir, &on), lacks("does not exist"));
        std::fs::write(&program, "").unwrap();
        assert_eq!(found(dir, &on), lacks("is not executable"));
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(found(dir, &on), [""; 0]);
    }
}
