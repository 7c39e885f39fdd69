//! The broker when something goes wrong: killed in the middle of changes, without room on the disk, and asked
//! by two at once.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::Barrier;

use exirate::spool::{Options, Spool};
use kit::mounts::{run_apart, tmpfs};
use kit::{Random, TIMEOUT};
use serde_json::{Value, json};

use super::desk::{Desk, broker};

fn deny(desk: &Desk, key: &str) -> Value {
    json!({ "who": { "token": desk.help }, "verb": "deny", "key": key, "seconds": 60 })
}

/// What is replied; `None` if the broker ends meanwhile.
fn ask(path: &Path, request: &Value) -> Option<Value> {
    let mut stream = UnixStream::connect(path).ok()?;
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(format!("{request}\n").as_bytes()).ok()?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).ok()?;
    serde_json::from_slice(&reply).ok()
}

/// The keys that are denied.
fn denied(desk: &Desk) -> BTreeSet<String> {
    let mut spool = Spool::open_existing(desk.folder.path(), Options::default()).unwrap();
    let list = spool.overrides().unwrap();
    assert!(list.iter().all(|one| one.who == "web=token:desk"), "{list:?}");
    list.into_iter().map(|one| one.argument).collect()
}

/// How many changes the broker remembers.
fn counted(desk: &Desk) -> usize {
    let text = std::fs::read_to_string(desk.path("state/changes")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("token:desk "));
    line.map_or(0, |count| count.parse().unwrap())
}

#[test]
fn a_kill_in_the_middle_of_a_change_leaves_nothing_half_done() {
    let desk = Desk::new("changes_a_day = 100000");
    let mut random = Random::new(36);
    let (mut asked, mut done) = (0, BTreeSet::new());
    let mut between = 0;
    for round in 0..25 {
        let mut process = desk.start("broker", Some("broker"));
        let path = desk.path("broker");
        let said = std::thread::scope(|scope| {
            let (desk, path) = (&desk, &path);
            let asking = scope.spawn(move || {
                let mut said = Vec::new();
                for number in 0.. {
                    let key = format!("{round}-{number}@example.org");
                    let Some(reply) = ask(path, &deny(desk, &key)) else {
                        return (said, number + 1);
                    };
                    assert!(reply["done"].is_object(), "{reply}");
                    said.push(key);
                }
                unreachable!("somebody counts to infinity")
            });
            // Some changes later, at any moment of one.
            let before = counted(desk);
            let changes = before + 1 + random.below(3);
            while counted(desk) < changes && !asking.is_finished() {
                std::thread::yield_now();
            }
            for _ in 0..random.below(40_000) {
                std::hint::spin_loop();
            }
            process.0.kill().unwrap();
            process.wait();
            asking.join().unwrap()
        });
        asked += said.1;
        done.extend(said.0);
        // What was said to be done is done, and at most the one that nobody was told of besides.
        let found = denied(&desk);
        assert!(done.is_subset(&found), "a change is lost");
        between += found.len() - done.len();
        done.extend(found);
        let count = counted(&desk);
        assert!(count >= done.len() && count <= asked, "{count} of {asked}, {} done", done.len());
        // The log has whole lines, and one for each change but those of which nobody was told.
        let log = desk.audit_log();
        assert!(log.is_empty() || log.ends_with('\n'), "{log:?}");
        let logged: BTreeSet<&str> =
            log.lines().filter_map(|line| line.split(" key=").nth(1)).collect();
        let unlogged = done.iter().filter(|key| !logged.contains(key.as_str())).count();
        assert!(unlogged <= between, "{unlogged} of {between}");
        let mut verify = Command::new(env!("CARGO_BIN_EXE_exirate"));
        let output = verify.args(["verify", "--spool"]).arg(desk.folder.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    // The next one goes on, with the same count.
    let _broker = desk.start("broker", Some("broker"));
    let before = counted(&desk);
    assert!(ask(&desk.path("broker"), &deny(&desk, "last@example.org")).is_some());
    assert_eq!(counted(&desk), before + 1);
}

#[test]
fn of_two_at_once_one_makes_the_last_change_of_the_day() {
    let desk = Desk::new("changes_a_day = 8");
    let _broker = desk.start("broker", Some("broker"));
    let start = Barrier::new(16);
    let replies: Vec<Value> = std::thread::scope(|scope| {
        let each = (0..16).map(|number| {
            let (desk, start) = (&desk, &start);
            scope.spawn(move || {
                start.wait();
                ask(&desk.path("broker"), &deny(desk, &format!("{number}@example.org"))).unwrap()
            })
        });
        let all: Vec<_> = each.collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let (done, refused): (Vec<_>, Vec<_>) = replies.iter().partition(|one| one["done"].is_object());
    assert_eq!(done.len(), 8, "{replies:?}");
    assert!(refused.iter().all(|one| one["refused"]["why"] == "bounds"), "{refused:?}");
    assert_eq!((denied(&desk).len(), counted(&desk)), (8, 8));
    assert_eq!(desk.audit_log().lines().count(), 8);
}

#[test]
fn without_room_on_the_disk_nothing_is_changed_in_silence() {
    run_apart(&["full disk of the broker"]);
}

/// In a mount namespace of its own.
pub(super) fn full_disk() {
    let desk = Desk::new("");
    let place = tmpfs(desk.folder.path(), 512);
    // The database and what the broker remembers, on a disk of their own.
    for name in ["state", "exirate"] {
        let (from, to) = (desk.path(name), place.join(name));
        std::fs::create_dir(&to).unwrap();
        for entry in std::fs::read_dir(&from).unwrap() {
            let path = entry.unwrap().path();
            std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
        }
        kit::mounts::run("mount", &["--bind", to.to_str().unwrap(), from.to_str().unwrap()]);
    }
    let _broker = desk.start("broker", Some("broker"));
    let path = desk.path("broker");
    assert!(ask(&path, &deny(&desk, "before@example.org")).unwrap()["done"].is_object());
    let mut filler = std::fs::File::create(place.join("filler")).unwrap();
    while filler.write(&[0; 512]).is_ok_and(|length| length > 0) {}
    let log = desk.audit_log();
    let unblock =
        json!({ "who": { "token": desk.help }, "verb": "unblock", "key": "alice@example.org" });
    for request in [deny(&desk, "full@example.org"), unblock.clone()] {
        let reply = ask(&path, &request).unwrap();
        // It is refused, or says that the log lacks it.
        let text = reply.to_string();
        let is_said =
            reply["refused"]["why"] == "database" || text.contains("the change is not logged");
        assert!(is_said, "{text}");
    }
    assert_eq!(desk.audit_log(), log);
    // With room again, all is as it was.
    std::fs::remove_file(place.join("filler")).unwrap();
    drop(filler);
    let reply = broker(&path, format!("{unblock}\n").as_bytes());
    assert!(String::from_utf8_lossy(&reply).contains("\"done\""), "{reply:?}");
    assert!(desk.audit_log().contains("unblock rate="), "{}", desk.audit_log());
}
