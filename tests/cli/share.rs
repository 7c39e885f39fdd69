//! `failed_share`: what goes out, what the follower finds of it in the log, and what is said of it.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use exirate::event::{Event, Origin};
use exirate::policy::image::{Image, build};
use exirate::policy::replay::{Recipients, Replay, ReplayEvent, Stage};
use exirate::policy::source::compile;
use exirate::rate::Timestamp;
use exirate::spool::{Options, Spool};
use kit::{Process, until};

use crate::{exirate, json, list, run, stderr, stdout};

const POLICY: &str = "version = 1\n[policy.out]\nkey = \"auth\"\n\
    default.failed_share = { limit = \"30%\", period = \"1d\", least = 40 }\n\
    default.unknown_share = { limit = \"90%\", period = \"1d\", least = 40 }\n";

/// A time of the log: so many seconds after 2026-11-20 10:00:00.
fn at(seconds: u64) -> String {
    let (minutes, second) = (seconds / 60, seconds % 60);
    format!("2026-11-20 {:02}:{:02}:{second:02}", 10 + minutes / 60, minutes % 60)
}

fn id(n: u64) -> String {
    format!("1vM1{n:02}-000000001Ac-1aBc")
}

fn arrival(when: &str, n: u64) -> String {
    format!(
        "{when} {} <= s@x.test H=(h.test) [192.0.2.7]:7001 P=esmtpsa A=plain:alice S=900 for u{n}@y.test\n",
        id(n)
    )
}

fn failure(when: &str, n: u64, text: &str) -> String {
    format!(
        "{when} {} ** u{n}@y.test R=dnslookup T=remote_smtp H=mx.y.test [192.0.2.9]: SMTP error \
         from remote mail server after RCPT TO:<u{n}@y.test>: {text}\n",
        id(n)
    )
}

#[test]
fn a_log_is_simulated_with_failures_that_are_known_hours_later() {
    let folder = tempfile::tempdir().unwrap();
    let mut log: String = (0..40).map(|n| arrival(&at(n), n)).collect();
    // Greylisted, and a limit of this server's own panel: no failures.
    log += &format!(
        "{} {} == u0@y.test R=dnslookup T=remote_smtp defer (-44): 450 4.7.1 later\n",
        at(50),
        id(0)
    );
    log += &format!(
        "{} {} ** u39@y.test R=limits: has exceeded the max emails per hour\n",
        at(51),
        id(39)
    );
    log.extend((1..=12).map(|n| arrival(&at(4 * 3600 + n), 50 + n)));
    log.extend((1..=12).map(|n| failure(&at(5 * 3600 + n), n, "550 5.7.1 spam")));
    log += &arrival(&at(6 * 3600), 70);
    log += &arrival(&at(7 * 3600), 71);
    std::fs::write(folder.path().join("policy.toml"), POLICY).unwrap();
    std::fs::write(folder.path().join("mainlog"), log).unwrap();
    let simulate = |more: &[&str]| {
        let mut command = exirate();
        command.args(["simulate", "--policy", "policy.toml", "mainlog"]).args(more);
        command.current_dir(folder.path()).output().unwrap()
    };
    // Another 12 went out meanwhile.
    let output = simulate(&["--json"]);
    assert_eq!((output.status.code(), json(&output)["refused"].as_u64()), (Some(0), Some(0)));
    let stricter = POLICY.replace("30%", "23%");
    std::fs::write(folder.path().join("policy.toml"), stricter).unwrap();
    let text = stdout(&simulate(&["--events"]));
    assert!(text.contains("12 of 52 recipients failed (23%), limit 23% in 1d"), "{text}");
    assert_eq!(json(&simulate(&["--json"]))["refused"].as_u64(), Some(2), "{text}");
}

/// Sends messages of alice's by the policies, which count in `spool`.
fn send(spool: &Path, policy: &Path, count: u32, time: i64) -> Vec<String> {
    let text = std::fs::read_to_string(policy).unwrap();
    let compiled = compile(policy, &text, &|_: &Path| Err(String::new()));
    let image = Image::from_bytes(build(&compiled.policies.unwrap())).unwrap();
    let mut replay = Replay::new(&image, "*").unwrap();
    let mut spool = Spool::open(spool, Options::default()).unwrap();
    let send = |n| {
        let client = Origin::Client([192, 0, 2, 7].into());
        let auth = Some("alice".to_owned());
        let event = ReplayEvent {
            time: Timestamp { seconds: time, micros: 0 },
            stage: Stage::Message,
            event: Event { client, auth, sender: Some("s@x.test".into()), ..Event::default() },
            recipients: Recipients::Addresses(vec![format!("u{n}@y.test")]),
            ..ReplayEvent::default()
        };
        replay.decide(&event, &mut spool).unwrap().outcome.why()
    };
    (0..count).map(send).collect()
}

#[test]
fn the_follower_counts_what_has_failed_of_what_went_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["spool", "state"] {
        std::fs::create_dir(path(name)).unwrap();
    }
    std::fs::write(path("policy.toml"), POLICY).unwrap();
    let applied = run(&path("spool"), &["policy", "apply", path("policy.toml").to_str().unwrap()]);
    assert!(applied.status.success(), "{}", stderr(&applied));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    // Two hours ago.
    send(&path("spool"), &path("policy.toml"), 40, now - 7200);
    let local = |seconds: i64| {
        let time = jiff::Timestamp::from_second(seconds).unwrap();
        time.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string()
    };
    let mut log: String = (0..40).map(|n| arrival(&local(now - 7200), n)).collect();
    std::fs::write(path("mainlog"), &log).unwrap();
    let (spool, mainlog, state) = (path("spool"), path("mainlog"), path("state"));
    let config =
        format!("[mail]\nspool = {spool:?}\n[follow]\nlog = {mainlog:?}\nstate = {state:?}\n");
    std::fs::write(path("exirate.toml"), config).unwrap();
    let said = std::fs::File::create(path("said")).unwrap();
    let mut command = exirate();
    command.args(["serve", "follow", "--config"]).arg(path("exirate.toml")).stderr(said);
    let _follower = Process(command.spawn().unwrap());
    until("it follows", || std::fs::read_to_string(path("said")).unwrap().contains("following"));
    for n in 1..=12 {
        log += &failure(&local(now + 1), n, "550 5.7.1 spam");
    }
    std::fs::write(&mainlog, &log).unwrap();
    let explained = || stdout(&run(&spool, &["explain", "alice"]));
    let text = "12 of 40 recipients failed (30%), limit 30% in 1d: over the limit";
    until("all are counted", || explained().contains(text));
    // Each of them counts in the other share as well, if it does not exist: none does here.
    let shares: Vec<f64> = list(&spool).iter().map(|key| key["rate"].as_f64().unwrap()).collect();
    assert_eq!(shares.iter().filter(|rate| **rate == 30.0).count(), 1, "{shares:?}");
    assert!(shares.contains(&0.0), "{shares:?}");
    let shown = stdout(&run(&spool, &["show", "alice"]));
    assert!(shown.contains("12 of 40 recipients failed (30%), limit 30% in 1d"), "{shown}");
    let why = send(&spool, &path("policy.toml"), 1, now + 10);
    assert_eq!(why, ["12 of 40 recipients failed (30%), limit 30%/1d".replace("/1d", " in 1d")]);
    let crossings = stdout(&run(&spool, &["events"]));
    assert!(crossings.contains("alice"), "{crossings}");
    // A copy of the database says the same.
    let exported = run(&spool, &["export"]);
    std::fs::write(path("exported"), &exported.stdout).unwrap();
    std::fs::create_dir(path("other")).unwrap();
    let imported = run(&path("other"), &["import", path("exported").to_str().unwrap()]);
    assert!(imported.status.success(), "{}", stderr(&imported));
    let shown = stdout(&run(&path("other"), &["show", "alice"]));
    assert!(shown.contains("12 of 40 recipients failed (30%)"), "{shown}");
    assert!(run(&spool, &["unblock", "alice"]).status.success());
    assert!(!send(&spool, &path("policy.toml"), 1, now + 20)[0].contains("30%)"));
}
