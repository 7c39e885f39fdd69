//! The compiled policies in process: compiling, opening and searching them.

use std::fmt::Write as _;
use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use exirate::policy::image::{PolicyFile, build, install};
use exirate::policy::limit::Subject;
use exirate::policy::source::compile;
use exirate::spool::{Options, Spool};

use crate::effort::Effort;
use kit::table::{head, micros, print, row};

/// A policy file with so many users: every other one has a package, the others limits.
fn file(users: usize) -> String {
    let mut text = "version = 1\n[policy.p]\ndefault.recipients = [\"100/1h\", \"500/1d\"]\n\
                    package.gold.recipients = \"1000/1h\"\n[policy.p.user]\n"
        .to_owned();
    for n in 0..users {
        let what = if n % 2 == 0 { "package = \"gold\"" } else { "recipients = \"50/1h\"" };
        let _ = writeln!(text, "\"user{n}@example.org\" = {{ {what} }}");
    }
    text
}

/// The same users in a file of their own.
fn users_file(users: usize) -> String {
    let mut text = "user,package,recipients\n".to_owned();
    for n in 0..users {
        let what = if n % 2 == 0 { "gold," } else { ",50/1h" };
        let _ = writeln!(text, "user{n}@example.org,{what}");
    }
    text
}

/// Runs a command; its time, its processor time and its memory.
pub(crate) fn measured(spool: &Path, arguments: &[&str]) -> [String; 3] {
    let figures = spool.join("figures");
    let mut command = Command::new("/usr/bin/time");
    command.args(["-f", "%e %U %S %M", "-o"]).arg(&figures).arg(env!("CARGO_BIN_EXE_exirate"));
    let output = command.args(arguments).arg("--spool").arg(spool).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let figures = std::fs::read_to_string(figures).unwrap();
    let figures: Vec<f64> = figures.split_whitespace().map(|n| n.parse().unwrap()).collect();
    let [time, user, system, kilobytes] = figures[..] else { panic!("{figures:?}") };
    let processor = user + system;
    [format!("{time:.1} s"), format!("{processor:.1} s"), format!("{:.0} MB", kilobytes / 1024.0)]
}

/// Prints the time and the memory of whole commands for very many users.
fn commands(effort: Effort) {
    let users = effort.many_users;
    head(&format!("Commands for {users} users: time and memory"));
    let mut rows = vec![row(["", "time", "processor", "memory"])];
    let table = "default.recipients = [\"100/1h\", \"500/1d\"]\n\
                 package.gold.recipients = \"1000/1h\"\nusers = \"users.csv\"\n";
    let csv = [
        ("policy.toml", format!("version = 1\n[policy.p]\n{table}")),
        ("users.csv", users_file(users)),
    ];
    let user = format!("user{}@example.org", users / 2 + 1);
    for (form, files) in
        [("TOML", vec![("policy.toml", file(users))]), ("CSV", csv.into_iter().collect())]
    {
        let spool = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(spool.path().join(name), text).unwrap();
        }
        let file = spool.path().join("policy.toml");
        let apply = ["policy", "apply", file.to_str().unwrap()];
        for (what, arguments) in [
            ("policy apply, the first", &apply[..]),
            ("policy apply, again", &apply),
            ("policy show --user", &["policy", "show", "--user", &user]),
        ] {
            let [time, processor, memory] = measured(spool.path(), arguments);
            rows.push(row([&format!("{form}: {what}"), &time, &processor, &memory]));
        }
    }
    print(&rows);
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let begun = Instant::now();
    let result = work();
    (result, begun.elapsed())
}

/// Applies the file in another process, where it is in use already: the whole command.
fn applied(spool: &Path, text: &str) {
    let file = spool.join("policy.toml");
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_exirate"));
    command.args(["policy", "apply", "--spool"]).args([spool, &file]);
    assert!(command.output().unwrap().status.success());
}

fn median(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    micros(times[times.len() / 2].as_secs_f64() * 1e6)
}

/// The times of so many rounds.
fn rounds(rounds: usize, mut work: impl FnMut()) -> String {
    median((0..rounds).map(|_| timed(&mut work).1).collect())
}

/// Prints the costs by the number of users.
pub(crate) fn run(effort: Effort) {
    head("Policies in process, by the number of users");
    let titles =
        ["users", "compile", "install", "apply", "bytes", "open", "open the database", "search"];
    let mut rows = vec![row(titles)];
    for users in [10, effort.users] {
        let spool = tempfile::tempdir().unwrap();
        drop(Spool::open(spool.path(), Options::default()).unwrap());
        let text = file(users);
        let none = |_: &Path| Err(String::new());
        let (image, compiled) =
            timed(|| build(&compile(Path::new("policy.toml"), &text, &none).policies.unwrap()));
        let (_, installed) = timed(|| install(spool.path(), &image).unwrap());
        let apply = rounds(effort.applied_rounds, || applied(spool.path(), &text));
        let open = Spool::open_existing(spool.path(), Options::default()).unwrap();
        let opened = rounds(effort.short_rounds, || {
            // As in Exim, where the database is open.
            assert!(PolicyFile::beside(&open, black_box(spool.path())).image().is_ok());
        });
        let database = rounds(effort.short_rounds, || {
            assert!(Spool::open_existing(black_box(spool.path()), Options::default()).is_ok());
        });
        let mut opened_file = PolicyFile::open(spool.path());
        let image_of = opened_file.refresh().unwrap();
        let policy = image_of.policy("p").unwrap().unwrap();
        // All over the table, half of them in it.
        let names: Vec<String> =
            (0..1000).map(|n| format!("user{}@example.org", n * users / 500)).collect();
        let searched = rounds(effort.short_rounds, || {
            let mut limits = Vec::with_capacity(16);
            for name in &names {
                let subject = Subject { identity: name, ..Subject::default() };
                policy.limits(&subject, &mut limits).unwrap();
                assert!(!black_box(&limits).is_empty());
                assert!(policy.exemption(&subject, 0).unwrap().is_none());
            }
        });
        rows.push(row([
            &users.to_string(),
            &median(vec![compiled]),
            &median(vec![installed]),
            &apply,
            &image.len().to_string(),
            &opened,
            &database,
            &format!("{searched} / 1000"),
        ]));
    }
    print(&rows);
    commands(effort);
}
