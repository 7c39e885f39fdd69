//! Any local user can start Exim, which is setuid root, with any environment,
//! directory, open files, limits and signals. None of them changes what the
//! library does.

mod traced;
pub(crate) mod world;

use kit::exim::{USER, user};
use kit::{Process, counts, library};
use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::process::Output;
use world::{Start, World};

/// A check that changes nothing.
const READ_ONLY: &str =
    "${dlfunc{/exirate.so}{ratelimit}{100000 / 52w / per_mail / readonly / k}} $sender_rate";

/// Words in the libraries that could be names of variables.
fn names_in_the_library() -> Vec<String> {
    let mut bytes = std::fs::read(library::built()).unwrap();
    bytes.extend(std::fs::read(library::built_trace()).unwrap());
    let mut names = BTreeSet::new();
    for word in bytes.split(|b| !(b.is_ascii_uppercase() || b.is_ascii_digit() || *b == b'_')) {
        if (3..40).contains(&word.len()) && word[0].is_ascii_alphabetic() {
            names.insert(String::from_utf8(word.to_vec()).unwrap());
        }
    }
    assert!(names.len() > 10 && names.contains("RUST_BACKTRACE"), "{names:?}");
    names.into_iter().collect()
}

/// Environments that may matter to a loader, a C library, Rust, Exim or
/// exirate.
fn environments() -> Vec<Vec<String>> {
    let mut all: Vec<Vec<String>> = [
        "LD_PRELOAD=/home/libm.so.6",
        "LD_PRELOAD=/exirate.so",
        "LD_LIBRARY_PATH=/home",
        "LD_AUDIT=/exirate.so",
        "LD_DEBUG=all",
        "LD_BIND_NOW=1",
        "LD_BIND_NOT=1",
        "LD_PROFILE=exirate.so",
        "GLIBC_TUNABLES=glibc.malloc.check=3:glibc.malloc.perturb=165",
        "MALLOC_PERTURB_=165",
        "MALLOC_ARENA_MAX=1",
        "MALLOC_TRACE=/home/trace",
        "GCONV_PATH=/home",
        "NLSPATH=/home/%N",
        "LOCPATH=/home",
        "RUST_BACKTRACE=full",
        "RUST_LIB_BACKTRACE=1",
        "RUST_MIN_STACK=1",
        "RUST_LOG=trace",
        "RUSTFLAGS=-Cpanic=abort",
        "TMPDIR=/home",
        "TMP=/home",
        "TEMP=/home",
        "HOME=/home",
        "HOME=",
        "PWD=/spool",
        "OLDPWD=/home",
        "PATH=/home",
        "PATH=",
        "IFS=/",
        "SHELL=/home/shell",
        "TZ=:/home/exirate",
        "TZ=Asia/Tokyo",
        "TZDIR=/home",
        "LANG=tr_TR.UTF-8",
        "LC_ALL=de_DE.UTF-8",
        "LC_NUMERIC=de_DE",
        "LANGUAGE=xx",
        "EXIRATE=/home",
        "EXIRATE_SPOOL=/home",
        "EXIRATE_DATABASE=/home/database",
        "EXIRATE_CONFIG=/home/x",
        "EXIRATE_KEY=0000000000000000",
        "EXIRATE_DEBUG=1",
        "EXIRATE_LIMIT=0",
        "EXIRATE_DISABLE=1",
        "EXIM_SPOOL=/home",
        "EXIM_USER=root",
        "SPOOL=/home",
        "SPOOL_DIRECTORY=/home",
        "spool_directory=/home",
        "FAKETIME=-10y",
        "SOURCE_DATE_EPOCH=1",
        "NO_COLOR=1",
        "_RJEM_MALLOC_CONF=junk:true",
        "VALGRIND_LAUNCHER=1",
        "RANDOM=1",
    ]
    .iter()
    .map(|one| vec![(*one).to_owned()])
    .collect();
    // A long one, many variables, unusual ones.
    all.push(vec![format!("EXIRATE={}", "x".repeat(120_000))]);
    all.push((0..3000).map(|n| format!("V{n}={}", "y".repeat(200))).collect());
    all.push(vec!["\u{1b}[2J=%n%n%n%s".into(), "a b=c\nd".into(), "x==".into()]);
    for value in ["1", "0", "", "/home", "../../home/x", "%s%n", "full"] {
        all.push(names_in_the_library().iter().map(|name| format!("{name}={value}")).collect());
    }
    all
}

/// A start whose result must be as usual.
struct Counted {
    _daemon: Process,
    world: World,
    starts: u64,
    answered: usize,
}

impl Counted {
    fn new() -> Self {
        let world = World::new();
        Self { _daemon: world.serve(), world, starts: 0, answered: 0 }
    }

    /// Starts it; it must not crash.
    fn start(&mut self, start: &Start<'_>) -> Output {
        self.starts += 1;
        let output = self.world.start(start);
        let what = (start.shell, &start.environment.first(), start.arguments);
        let code = output.status.code();
        let crashed = output.status.signal().is_some() || code.is_none_or(|c| c >= 124);
        assert!(!crashed, "{what:?}: {output:?}\n{}", self.world.log("mainlog"));
        let panics = self.world.log("paniclog");
        for word in ["internal error", "signal 11", "SIGSEGV", "SIGABRT"] {
            assert!(!panics.contains(word), "{what:?}: {panics}");
        }
        output
    }

    /// Starts it; exactly one more message must be counted.
    fn start_and_count(&mut self, start: &Start<'_>) {
        let output = self.start(start);
        self.answered += 1;
        let answers = self.world.answers();
        let what = (start.shell, start.environment.first(), &output, self.world.log("mainlog"));
        assert_eq!(answers.len(), self.answered, "{what:?}");
        let expected = format!("no {}.0/100000/52w 0 yes", self.answered);
        assert_eq!(answers.last(), Some(&expected), "{what:?}");
    }

    /// As many events as results are counted, and no unexpected file exists.
    fn finish(self, before: &BTreeSet<String>) {
        assert_eq!(&self.world.files(), before);
        let owner = user(USER);
        let database = self.world.database();
        // The database and one shard, and the directory of the trace store.
        let names: Vec<_> = database.iter().map(|(path, ..)| path.file_name().unwrap()).collect();
        let of_rates = names.iter().filter(|name| {
            name.to_str().is_some_and(|name| name == "database" || name.ends_with(".shard"))
        });
        assert_eq!(of_rates.count(), 2, "{names:?}");
        // A limit that is reached adds the files of events.
        let others = names.iter().filter(|name| **name != "crossings" && **name != "refusals");
        assert_eq!(
            others.count(),
            6,
            "two files of the rates, and the directory, key, log and settings of the trace store: {names:?}"
        );
        for (path, uid, gid, mode, _) in &database {
            let right = match path.file_name().and_then(|name| name.to_str()) {
                Some("trace") => 0o750,
                Some("key") => 0o600,
                _ => 0o640,
            };
            assert_eq!(((*uid, *gid), *mode), (owner, right), "{}", path.display());
        }
        counts::record("hostile starts", self.starts);
    }
}

#[test]
fn no_environment_changes_anything() {
    let mut counted = Counted::new();
    let before = counted.world.files();
    let arguments = &["-be", READ_ONLY][..];
    for environment in environments() {
        counted.start_and_count(&Start { environment: environment.clone(), ..Start::default() });
        // The loader's variables are root's responsibility.
        if environment.iter().any(|v| v.starts_with("LD_") || v.starts_with("GLIBC_")) {
            continue;
        }
        let output =
            counted.start(&Start { environment, arguments, by_root: true, ..Start::default() });
        let said = String::from_utf8_lossy(&output.stdout);
        let expected = format!("no {}.0\n", counted.answered);
        assert_eq!(said, expected, "{output:?}");
    }
    counted.finish(&before);
}

#[test]
fn no_directory_files_limits_or_signals_change_anything() {
    let mut counted = Counted::new();
    let before = counted.world.files();
    let chdir = |to: &str| vec![format!("--chdir={to}")];
    for directory in ["/home", "/tmp", "/", "/dev", "/etc/exim4"] {
        counted.start_and_count(&Start { environment: chdir(directory), ..Start::default() });
    }
    for shell in [
        "exec 1>&-",
        "exec 2>&-",
        "exec 1>&- 2>&-",
        "exec 3</dev/null 4</dev/null 9</dev/null",
        "umask 0",
        "umask 777",
        "ulimit -c 0",
        "ulimit -Sn 64",
        // Exim itself needs more than 512.
        "ulimit -s 1024",
        "ulimit -v 400000",
        "ulimit -t 20",
        "ulimit -l 0",
        "ulimit -q 0",
        "ulimit -i 1",
        "trap '' HUP INT QUIT PIPE TERM USR1 USR2 XFSZ XCPU ALRM CHLD",
    ] {
        counted.start_and_count(&Start { shell, ..Start::default() });
    }
    for option in ["--ignore-signal", "--block-signal", "--default-signal"] {
        let environment = vec![option.to_owned()];
        counted.start_and_count(&Start { environment, ..Start::default() });
    }
    counted.finish(&before);
}

#[test]
fn limits_too_low_for_exim_itself_do_no_harm() {
    let mut counted = Counted::new();
    counted.start_and_count(&Start::default());
    let (mut accepted, mut too_little) = (0, 0);
    let mut shells: Vec<String> =
        ["exec 0<&-", "exec 0<&- 1>&- 2>&-", "exec 0<&- 2>&-"].map(str::to_owned).into();
    shells.extend([3, 4, 5, 6, 7, 8, 9, 10, 12, 16].map(|n| format!("ulimit -n {n}")));
    shells.extend([0, 1, 4, 8, 16, 64].map(|n| format!("ulimit -f {n}")));
    shells.extend([64, 96, 128, 192].map(|n| format!("ulimit -s {n}")));
    shells.extend([20, 40, 60, 70, 80, 90, 100, 120].map(|n| format!("ulimit -v {n}000")));
    for shell in &shells {
        let fresh = World::new();
        let _daemon = fresh.serve();
        for world in [&counted.world, &fresh] {
            // The shell, timeout, chroot and env may fail as well; what matters
            // is that the database is sound, and its owner, and that mail which is
            // accepted has been counted.
            let before = world.answers().len();
            let is_accepted = world.start(&Start { shell, ..Start::default() }).status.success();
            counted.starts += 1;
            accepted += usize::from(is_accepted);
            let answers = world.answers();
            assert!(!is_accepted || answers.len() > before, "{shell}: {}", world.log("mainlog"));
            // The daemon counts, whose limits are its own: none is too low for the rates alone.
            for answer in &answers[before..] {
                let rate = answer.strip_prefix("no ").and_then(|it| it.split_once("/100000/52w "));
                let rate: f64 =
                    rate.unwrap_or_else(|| panic!("{shell}: {answer}")).0.parse().unwrap();
                assert!(rate >= before as f64 + 1.0, "{shell}: {answer} after {before}");
            }
            let owner = user(USER);
            for (path, uid, gid, ..) in world.database() {
                assert_eq!((uid, gid), owner, "{shell}: {}", path.display());
            }
            let log = world.log("mainlog");
            assert!(!log.contains("damage"), "{shell}: {log}");
            let rate = |world: &World| world.answers().last().cloned();
            let before = world.answers().len();
            world.start(&Start::default());
            counted.starts += 1;
            let after = world.answers().len();
            assert_eq!(after, before + 1, "{shell}: {}", world.log("mainlog"));
            assert!(rate(world).unwrap().starts_with("no "), "{shell}: {:?}", rate(world));
            assert!(!world.log("mainlog").contains("damage"), "{shell}");
        }
        too_little += usize::from(fresh.log("mainlog").contains("exirate: not recorded: "));
    }
    assert!(accepted > 0, "all of the limits were too little for Exim");
    assert!(too_little > 0, "none of the limits was too little for a library alone");
    counts::record("hostile starts", counted.starts);
}

#[test]
fn a_test_session_counts_for_the_client_by_root_and_exim_and_for_any_other_account_itself() {
    let world = World::new();
    let _daemon = world.serve();
    let session = "EHLO there\r\nMAIL FROM:<a@b.example>\r\nRCPT TO:<c@private.test>\r\n\
                   RCPT TO:<d@private.test>\r\nQUIT\r\n";
    let mut started = 0;
    // The result of `exim -bh` for a client, by the user who starts it.
    let mut ask = |by: (u32, u32), client: &str| {
        let arguments = &["-bh", client][..];
        let start = Start { arguments, by: Some(by), input: session, ..Start::default() };
        let output = world.start(&start);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(said.matches("\n250 Accepted").count(), 2, "{said}");
        // A test session logs to standard error, not to the log.
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let logged = said.lines().filter(|line| line.starts_with("LOG: "));
        let answers = logged.filter_map(|l| Some(l.split_once(" answer ")?.1.to_owned()));
        started += 1;
        answers.collect::<Vec<_>>()
    };
    let (root, exim, nobody) = ((0, 0), user(USER), user("nobody"));
    assert_eq!(ask(root, "192.0.2.1"), ["no 1.0", "no", "no 2.0", "no"]);
    assert_eq!(ask(exim, "192.0.2.1"), ["no 3.0", "no", "no 4.0", "no"]);
    // No variable of Exim's proves that it is a test: it is the account's own, whichever client it
    // names, and whatever the line's key is.
    assert_eq!(ask(nobody, "192.0.2.1"), ["no 1.0", "no", "no 2.0", "no"]);
    assert_eq!(ask(user("games"), "192.0.2.1"), ["no 1.0", "no", "no 2.0", "no"]);
    assert_eq!(ask(nobody, "198.51.100.7"), ["no 3.0", "no", "no 4.0", "no"]);
    assert_eq!(ask(root, "192.0.2.1"), ["no 5.0", "no", "no 6.0", "no"]);
    counts::record("hostile starts", started);
}

#[test]
fn a_test_of_an_address_counts_for_root_and_exims_user_alone() {
    let world = World::new();
    let _daemon = world.serve();
    let mut started = 0;
    // What a router decides, by the user who starts a test of an address.
    let mut ask = |by: (u32, u32), options: &[&str]| {
        let arguments = [options, &["someone@routed.test"]].concat();
        let start = Start { arguments: &arguments, by: Some(by), ..Start::default() };
        let output = world.start(&start);
        started += 1;
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        // The router has decided; why, Exim does not say to everybody.
        let has_failed = ["is undeliverable", "failed to verify"].iter().any(|f| said.contains(f));
        assert!(has_failed, "{options:?}: {said}");
        let answer = said.split_once("answer ").map_or("", |(_, answer)| answer);
        answer.lines().next().unwrap_or_default().to_owned()
    };
    let (root, exim, nobody) = ((0, 0), user(USER), user("nobody"));
    assert_eq!(ask(root, &["-bt"]), "no 1.0");
    assert_eq!(ask(root, &["-bv"]), "no 2.0");
    assert_eq!(ask(exim, &["-bt"]), "no 3.0");
    let before = world.database();
    for mode in ["-bt", "-bv", "-bvs"] {
        for more in [
            &[][..],
            &["-oMr", "esmtp"],
            &["-oMa", "192.0.2.1", "-oMr", "esmtpa", "-oMai", "alice", "-oMaa", "plain"],
            &["-oMs", "host.example", "-oMt", "ident", "-f", "alice@private.test"],
        ] {
            let options = [more, &[mode]].concat();
            let answer = ask(nobody, &options);
            assert!(["", "no 3.0", "no 0.0"].contains(&answer.as_str()), "{options:?}: {answer}");
        }
    }
    // Without its bytes in the message: they are megabytes of numbers. A shard that was never used
    // is created empty.
    let after = world.database();
    let changed: Vec<_> =
        before.iter().filter(|file| !after.contains(file)).map(|file| &file.0).collect();
    assert!(changed.is_empty(), "{changed:?} was written");
    assert_eq!(ask(root, &["-bv"]), "no 4.0");
    // Mail counts, whoever hands it over: Exim does not route it before its delivery.
    let start = Start { arguments: &["-odi", "someone@routed.test"], ..Start::default() };
    world.start(&start);
    assert_eq!(ask(root, &["-bt"]), "no 6.0", "{}", world.log("mainlog"));
    counts::record("hostile starts", started);
}

#[test]
fn no_user_reaches_the_database_by_a_configuration_of_their_own() {
    let mut counted = Counted::new();
    counted.start_and_count(&Start::default());
    let own = std::fs::read_to_string(counted.world.path("etc/exim4/exim4.conf")).unwrap();
    std::fs::write(counted.world.path("tmp/own.conf"), own).unwrap();
    let before = (counted.world.database(), counted.world.files());
    let check = "${dlfunc{/exirate.so}{ratelimit}{1 / 52w / per_mail / strict / k}} $sender_rate";
    for arguments in [
        &["-C", "/tmp/own.conf", "-odq", "someone@private.test"][..],
        &["-C", "/tmp/own.conf", "-be", check],
        &["-C", "/etc/exim4/exim4.conf:/tmp/own.conf", "-DX=y", "-be", check],
        &["-DSPOOL=/home", "-be", check],
        &["-DSPOOL=/home", "-odq", "someone@private.test"],
        &["-be", check],
    ] {
        let start = Start { arguments, ..Start::default() };
        let output = counted.start(&start);
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        let refused = ["Permission denied", "not permitted", "permission denied"];
        assert!(refused.iter().any(|text| said.contains(text)), "{arguments:?}: {said}");
        if arguments.contains(&"-be") && said.contains("ratelimit") {
            assert!(said.contains("no decision by `exirate serve mail`"), "{said}");
        }
        assert!((counted.world.database(), counted.world.files()) == before, "{arguments:?}");
    }
    // Root may, and everything keeps its owner.
    let start = Start { arguments: &["-be", check], by_root: true, ..Start::default() };
    let output = counted.start(&start);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "yes 2.0\n", "{output:?}");
    counted.finish(&before.1);
}
