//! `exirate policy apply`, and `policy show` of what is in use.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use exirate::policy::counters::{self, Checked, Counters, RuleName};
use exirate::policy::image::{Image, PolicyFile};
use exirate::policy::limit::{Per, Subject};
use exirate::policy::word::{Unit, Verdict};

use crate::{exirate, json, stderr, stdout};

/// The file of the documentation's first example.
const EXAMPLE: &str = include_str!("../../src/policy/source/example.toml");

/// A spool directory and a policy file.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("spool")).unwrap();
        let machine = Self(dir);
        machine.write("p.toml", EXAMPLE);
        machine
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.path().join(name), text).unwrap();
    }

    fn spool(&self) -> PathBuf {
        self.0.path().join("spool")
    }

    fn image(&self) -> PathBuf {
        self.spool().join("exirate/policy.image")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = exirate();
        command.arg("policy").args(arguments).args(["--spool", "spool"]).current_dir(&self.0);
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }
}

/// The lines without the size, which differs from image to image.
fn lines(output: &Output) -> Vec<String> {
    let size = |line: &str| match line.split_once("KiB") {
        Some((before, after)) => {
            format!("{}#{after}", before.trim_end_matches(|c: char| " .0123456789".contains(c)))
        }
        None => line.to_owned(),
    };
    stdout(output).lines().map(size).collect()
}

#[test]
fn apply_frees_the_counters_of_rules_that_no_longer_exist() {
    let machine = Machine::new();
    let text = "version = 1\n[policy.a]\ndefault.recipients = [\"1/1h\", \"2/1d\"]\n\
                user.\"x@y.test\".recipients = \"3/2d\"\n\
                domain.\"y.test\".total.messages = \"9/1h\"\n\
                [policy.b]\nbucket = { burst = 5, rate = \"1 / 1h\" }\n";
    machine.write("p.toml", text);
    assert_eq!(stderr(&machine.run(&["apply", "p.toml"])), "");
    let mut counters = Counters::new(&machine.spool());
    let mut count = |policy, unit, bucket, text, per| {
        let rule = RuleName::new(unit, bucket, text, per);
        counters.count(&Checked { policy, rule, observed: false, verdict: Verdict::Defer });
    };
    count("a", Unit::Recipients, false, "100/1h", Per::Key);
    count("a", Unit::Recipients, false, "1/1d", Per::Key);
    count("a", Unit::Recipients, false, "1/2d", Per::Key);
    count("a", Unit::Messages, false, "1/1h", Per::Domain);
    count("b", Unit::Recipients, true, "1/1h", Per::Key);
    let left = || {
        let found = counters::read(&machine.spool()).unwrap().unwrap().rules;
        found.iter().map(|rule| format!("{} {}", rule.policy, rule.rule)).collect::<Vec<_>>()
    };
    let all = [
        "a messages/1h (total)",
        "a recipients/1d",
        "a recipients/1h",
        "a recipients/2d",
        "b recipients/bucket 1/1h",
    ];
    machine.run(&["apply", "p.toml"]);
    assert_eq!(left(), all);
    machine.write("p.toml", &text.replace("\"1/1h\", ", "").replace("policy.b", "policy.c"));
    machine.run(&["apply", "--dry-run", "p.toml"]);
    assert_eq!(left(), all);
    assert_eq!(stderr(&machine.run(&["apply", "p.toml"])), "");
    assert_eq!(left(), [all[0], all[1], all[3]]);
}

#[test]
fn apply_puts_a_file_in_use() {
    let machine = Machine::new();
    let output = machine.run(&["apply", "p.toml"]);
    assert_eq!(stderr(&output), "");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(
        lines(&output),
        [
            "identity: 6 settings added",
            "on.crossing: 7 settings added",
            "policy.bounces: 9 settings added",
            "policy.outbound: 17 settings added",
            "spool/exirate/policy.image: 2 policies, 1 user,#: in use",
        ]
    );
    let mut running = PolicyFile::open(&machine.spool());
    let names = |file: &PolicyFile| -> Vec<String> {
        file.image().unwrap().names().map(str::to_owned).collect()
    };
    assert_eq!(names(&running), ["bounces", "outbound"]);

    // What is no change is no change.
    let output = machine.run(&["apply", "p.toml"]);
    assert_eq!(lines(&output).first().map(String::as_str), Some("nothing changes"));
    assert_eq!(output.status.code(), Some(0));

    let other = EXAMPLE.replace("policy.bounces", "policy.returned").replace("100/1h", "50/1h");
    machine.write("p.toml", &other);
    let output = machine.run(&["apply", "--dry-run", "p.toml"]);
    let changes = [
        "policy.bounces: 9 settings removed",
        "policy.outbound: 1 setting changed",
        "policy.returned: 9 settings added",
    ];
    assert_eq!(lines(&output)[..3], changes);
    assert!(lines(&output)[3].ends_with(": would be in use"));
    running.refresh().unwrap();
    assert_eq!(names(&running), ["bounces", "outbound"]);
    let output = machine.run(&["apply", "--json", "p.toml"]);
    let found = json(&output);
    assert_eq!(found["applied"], true);
    assert_eq!((&found["policies"], &found["users"]), (&2.into(), &1.into()));
    assert_eq!(found["changes"][1]["part"], "policy.outbound");
    assert_eq!(found["changes"][1]["changed"], 1);
    assert_eq!(found["bytes"], fs::metadata(machine.image()).unwrap().len());
    running.refresh().unwrap();
    assert_eq!(names(&running), ["outbound", "returned"]);
}

#[test]
fn only_a_sound_file_is_put_in_use() {
    let machine = Machine::new();
    machine.run(&["apply", "p.toml"]);
    let before = fs::read(machine.image()).unwrap();
    for wrong in [
        EXAMPLE.replace("action", "acton"),
        EXAMPLE.replace("[policy.bounces]", "users = \"none.csv\"\n[policy.bounces]"),
        EXAMPLE.replace("version = 1", "version = 2"),
        EXAMPLE[..60].to_owned(),
        String::new(),
    ] {
        machine.write("wrong.toml", &wrong);
        let output = machine.run(&["apply", "wrong.toml"]);
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(2), ""), "{wrong}");
        let said = stderr(&output);
        assert!(said.contains("exirate: wrong.toml:"), "{said}");
        assert!(said.ends_with("exirate: wrong.toml cannot be used: see above\n"), "{said}");
        assert!(fs::read(machine.image()).unwrap() == before);
    }
    let output = machine.run(&["apply", "none.toml"]);
    assert!(stderr(&output).contains("cannot read none.toml: No such file"));
    assert!(fs::read(machine.image()).unwrap() == before);

    // A warning is no error.
    machine.write("p.toml", &EXAMPLE.replace("2026-12-31", "2020-12-31"));
    let output = machine.run(&["apply", "p.toml"]);
    let warning = "exirate: p.toml:27:1: warning: expired at 2020-12-31T00:00:00Z: nobody is \
                   exempt by it\n";
    assert_eq!((stderr(&output).as_str(), output.status.code()), (warning, Some(0)));
    assert!(fs::read(machine.image()).unwrap() != before);
}

#[test]
fn a_damaged_image_is_replaced() {
    let machine = Machine::new();
    machine.run(&["apply", "p.toml"]);
    fs::write(machine.image(), b"EXIRATEP and then nothing").unwrap();
    let output = machine.run(&["show", "--user", "x"]);
    assert_eq!(output.status.code(), Some(2));
    let said = stderr(&output);
    assert!(
        said.contains("policy.image is damaged at byte 0: ") && said.contains("policy apply"),
        "{said}"
    );
    let output = machine.run(&["apply", "p.toml"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(
        stderr(&output).starts_with("exirate: note: what changes is not known: the policy image")
    );
    assert!(Image::open(&machine.image()).is_ok());
}

#[test]
fn applying_is_logged_where_there_is_a_database() {
    let machine = Machine::new();
    let log = machine.spool().join("exirate/audit.log");
    machine.run(&["apply", "p.toml"]);
    assert!(!log.exists());
    // The image alone is no database.
    let output = exirate().args(["list", "--spool"]).arg(machine.spool()).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
    assert!(stderr(&output).contains("no rate database"), "{}", stderr(&output));
    let reset = exirate().args(["unblock", "x", "--spool"]).arg(machine.spool()).output().unwrap();
    // To change something, it is made: policies are in use.
    assert!(stderr(&reset).contains("no key matches x"), "{}", stderr(&reset));

    let check = ["check", "--count", "1 / 1h / x", "--spool"];
    exirate().args(check).arg(machine.spool()).output().unwrap();
    machine.run(&["apply", "--dry-run", "p.toml"]);
    assert!(!log.exists());
    machine.run(&["apply", "p.toml"]);
    assert!(fs::read_to_string(&log).unwrap().ends_with(" policy apply p.toml\n"));
}

#[test]
fn show_shows_what_is_in_use() {
    let machine = Machine::new();
    let words = |output: &Output| -> Vec<String> {
        let text = stdout(output);
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    };
    machine.run(&["apply", "p.toml"]);
    // The file has changed, but is not in use.
    machine.write("p.toml", &EXAMPLE.replace("60/1h", "70/1h"));
    let of = ["show", "--policy", "outbound", "--user", "News+x@Example.org"];
    let output = machine.run(&of);
    assert_eq!(stderr(&output), "exirate: note: the policies in use, spool/exirate/policy.image\n");
    let image = "spool/exirate/policy.image";
    assert_eq!(
        words(&output),
        [
            "POLICY LIMIT UNIT PER RULE WHEN WHERE".to_owned(),
            format!(
                "outbound unlimited recipients news@example.org user news@example.org \
                 authenticated {image}"
            ),
            format!(
                "outbound 60/1h unique_recipients news@example.org default authenticated {image}"
            ),
            format!("outbound 500M/1d bytes news@example.org default authenticated {image}"),
            format!(
                "outbound 3000/1h recipients all of example.org domain example.org authenticated \
                 {image}"
            ),
            "outbound: package gold, from domain example.org".to_owned(),
        ]
    );
    let of = ["show", "--json", "--policy", "outbound", "--user", "ceo@example.org"];
    let found = json(&machine.run(&[&of[..], &["--at", "2026-12-30T00:00:00Z"]].concat()));
    assert_eq!(found["file"], image);
    assert_eq!(found["policies"][0]["exempt"]["reason"], "year-end letter");
    assert!(found["policies"][0]["limits"][0]["line"].is_null());
    // Without a user, of each of them.
    for name in ["list", "show"] {
        let all = words(&machine.run(&[name]));
        let line =
            format!("outbound 60/1h unique_recipients each user default authenticated {image}");
        assert!(all.contains(&line), "{name}: {all:#?}");
    }
    let output = machine.run(&["show", "--user", "x", "--file", "p.toml"]);
    assert!(stderr(&output).contains("cannot be used with"), "{}", stderr(&output));
}

#[test]
fn a_copy_has_the_policies_in_use() {
    let machine = Machine::new();
    let check = ["check", "--count", "1 / 1h / x", "--spool"];
    exirate().args(check).arg(machine.spool()).output().unwrap();
    machine.run(&["apply", "p.toml"]);
    let copy = |name: &str| {
        let to = machine.0.path().join(name);
        (exirate().arg("copy").arg(&to).arg("--spool").arg(machine.spool()).output().unwrap(), to)
    };
    let (output, to) = copy("one");
    assert!(stdout(&output).contains("\ncopied 2 policies to "), "{}", stdout(&output));
    assert_eq!(output.status.code(), Some(0));
    let copied = Image::open(&to.join("exirate/policy.image")).unwrap();
    assert!(!copied.is_superseded());
    let own = Image::open(&machine.image()).unwrap();
    assert_eq!(copied.policies().unwrap().policies, own.policies().unwrap().policies);

    fs::write(machine.image(), b"EXIRATEP and then nothing").unwrap();
    let (output, to) = copy("two");
    assert!(stdout(&output).contains("policy.image is damaged"), "{}", stdout(&output));
    assert_eq!(output.status.code(), Some(1));
    assert!(!to.join("exirate/policy.image").exists());
}

/// A file whose only policy has `users` users, each with this limit.
fn many_users(limit: u32, users: u32) -> String {
    let rows =
        (0..users).map(|user| format!("user.\"u{user}@example.org\".messages = \"{limit}/1h\"\n"));
    format!("version = 1\n[policy.p]\n{}", rows.collect::<String>())
}

/// The limit that all users have.
fn limit(file: &PolicyFile, users: u32) -> u32 {
    let image = file.image().unwrap();
    image.policies().unwrap();
    let policy = image.policy("p").unwrap().unwrap();
    let mut all = Vec::new();
    for user in 0..users {
        let identity = format!("u{user}@example.org");
        let mut limits = Vec::new();
        policy.limits(&Subject { identity: &identity, ..Subject::default() }, &mut limits).unwrap();
        assert_eq!(limits.len(), 1);
        all.push(limits[0].text.strip_suffix("/1h").unwrap().parse().unwrap());
    }
    all.dedup();
    assert_eq!(all.len(), 1, "{all:?}");
    all[0]
}

fn start(machine: &Machine, file: &str) -> Child {
    machine.command(&["apply", file]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Kills `apply` at random moments.
#[test]
fn a_killed_apply_leaves_the_old_policies_or_the_new_ones() {
    const USERS: u32 = 500;
    let machine = Machine::new();
    machine.write("1.toml", &many_users(1, USERS));
    machine.write("2.toml", &many_users(2, USERS));
    let begun = std::time::Instant::now();
    assert!(machine.run(&["apply", "1.toml"]).status.success());
    let whole = begun.elapsed();
    let mut running = PolicyFile::open(&machine.spool());
    let mut before = 1;
    for round in 0..40 {
        let new = 3 - before;
        let mut child = start(&machine, &format!("{new}.toml"));
        std::thread::sleep(whole * (round % 20) / 16);
        child.kill().unwrap();
        let done = child.wait().unwrap().success();
        running.refresh().unwrap();
        let found = limit(&PolicyFile::open(&machine.spool()), USERS);
        assert!(found == before || found == new, "{found}");
        assert!(found == new || !done, "it was applied");
        assert_eq!(limit(&running, USERS), found);
        before = found;
    }
    // What was left behind is in nobody's way.
    let last = 3 - before;
    assert!(machine.run(&["apply", &format!("{last}.toml")]).status.success());
    running.refresh().unwrap();
    assert_eq!(limit(&running, USERS), last);
    assert!(!Path::new(&machine.spool()).join("exirate/policy.image.new").exists());
}

#[test]
fn several_applies_at_once_leave_one_of_them() {
    const USERS: u32 = 200;
    let machine = Machine::new();
    for limit in 1..=4 {
        machine.write(&format!("{limit}.toml"), &many_users(limit, USERS));
    }
    machine.run(&["apply", "1.toml"]);
    let mut running = PolicyFile::open(&machine.spool());
    for _ in 0..5 {
        let mut children: Vec<Child> =
            (1..=4).map(|limit| start(&machine, &format!("{limit}.toml"))).collect();
        while children.iter_mut().any(|child| child.try_wait().unwrap().is_none()) {
            running.refresh().unwrap();
            assert!((1..=4).contains(&limit(&running, USERS)));
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(children.iter_mut().all(|child| child.wait().unwrap().success()));
        running.refresh().unwrap();
        assert_eq!(limit(&running, USERS), limit(&PolicyFile::open(&machine.spool()), USERS));
    }
}

/// Who applies waits for others before the files are read: what was read first would else replace
/// what was written and applied meanwhile.
#[test]
fn who_waits_applies_the_newest_file() {
    let machine = Machine::new();
    machine.write("p.toml", &many_users(1, 3));
    assert!(machine.run(&["apply", "p.toml"]).status.success());
    let path = machine.spool().join("exirate/policy.lock");
    let lock = fs::File::options().write(true).open(&path).unwrap();
    lock.lock().unwrap();
    machine.write("p.toml", &many_users(2, 3));
    let mut waiting = start(&machine, "p.toml");
    let files = format!("/proc/{}/fd", waiting.id());
    kit::until("it waits", || {
        let files = fs::read_dir(&files).unwrap().flatten();
        files.filter_map(|one| fs::read_link(one.path()).ok()).any(|one| one == path)
    });
    machine.write("p.toml", &many_users(3, 3));
    // To look needs no lock.
    assert!(machine.run(&["apply", "--dry-run", "p.toml"]).status.success());
    lock.unlock().unwrap();
    assert!(waiting.wait().unwrap().success());
    assert_eq!(limit(&PolicyFile::open(&machine.spool()), 3), 3);
}

/// A machine whose policy names a file of users, and the CSV of so many users.
fn with_users() -> (Machine, impl Fn(usize) -> String) {
    let machine = Machine::new();
    machine.write(
        "p.toml",
        "version = 1\n[policy.a]\nusers = \"users.csv\"\ndefault.bytes = \"1M/1h\"\n",
    );
    let users = |count: usize| {
        let users = (0..count).map(|n| format!("u{n},{}/1h\n", n + 1));
        format!("user,messages\n{}", users.collect::<String>())
    };
    (machine, users)
}

impl Machine {
    /// Applies the policy file with these users on standard input.
    fn pipe(&self, csv: &str, more: &[&str]) -> Output {
        let arguments = [&["apply", "p.toml", "--users", "-"], more].concat();
        let mut command = self.command(&arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let _ = std::io::Write::write_all(&mut child.stdin.take().unwrap(), csv.as_bytes());
        child.wait_with_output().unwrap()
    }

    /// How many users the policy in use has.
    fn users_in_use(&self) -> usize {
        let image = Image::open(&self.image()).unwrap();
        image.policies().unwrap().policies["a"].users.len()
    }
}

#[test]
fn users_come_from_elsewhere_and_stay() {
    let (machine, users) = with_users();
    let file = machine.0.path().join("users.csv");
    let output = machine.pipe(&users(3), &["--dry-run"]);
    assert_eq!((output.status.code(), file.exists()), (Some(0), false), "{}", stderr(&output));
    let output = machine.pipe(&users(3), &["--if-changed"]);
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
    assert!(stdout(&output).contains(": 1 policy, 3 users, "), "{}", stdout(&output));
    assert_eq!(fs::read_to_string(&file).unwrap(), users(3));
    // They are there when the policy file is applied next.
    let output = machine.run(&["apply", "p.toml"]);
    assert_eq!(lines(&output).first().map(String::as_str), Some("nothing changes"));

    // Where nothing changes, nothing is said or written, whatever lint warns of.
    machine.write("p.toml", "version = 1\n[policy.a]\nusers = \"users.csv\"\n[policy.b]\n");
    assert!(stderr(&machine.run(&["apply", "p.toml"])).contains("has no limit"));
    let inodes = || {
        [machine.image(), file.clone()]
            .map(|path| std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).unwrap()))
    };
    let before = inodes();
    for output in [
        machine.pipe(&users(3), &["--if-changed"]),
        machine.run(&["apply", "p.toml", "--if-changed"]),
    ] {
        assert_eq!(output.status.code(), Some(0));
        assert_eq!((stdout(&output), stderr(&output)), (String::new(), String::new()));
    }
    assert!(before == inodes());
    let other = users(3).replace(",2/1h", ",5/1h");
    let output = machine.pipe(&other, &["--if-changed"]);
    assert!(stdout(&output).starts_with("policy.a: 1 setting changed\n"), "{}", stdout(&output));
    assert_eq!(fs::read_to_string(&file).unwrap(), other);
}

#[test]
fn what_may_be_a_part_of_an_answer_never_becomes_the_limits() {
    let (machine, users) = with_users();
    assert_eq!(machine.pipe(&users(20), &[]).status.code(), Some(0));
    let cut = users(20);
    let cut = cut.trim_end();
    let (file, input) = ("users.csv", "standard input");
    for (csv, said) in [
        ("", format!("{input} is empty: nothing has changed")),
        (
            cut,
            format!(
                "{input} may be cut off, as it does not end with a newline: nothing has changed"
            ),
        ),
        ("u1,5/1h\n", format!("{input}:1:1: unknown column \"u1\"")),
        ("user,messages\nu1,x\n", format!("{input}:2:4: \"x\" has no period")),
        (
            "user,messages\n",
            format!("{file} has 20 users, and {input} has no user: nothing has changed"),
        ),
        (
            &users(17),
            format!("{file} has 20 users, and {input} has 17, less than 90 %: nothing has changed"),
        ),
    ] {
        let output = machine.pipe(csv, &["--if-changed"]);
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(2), ""), "{csv}");
        assert!(stderr(&output).contains(&said), "{said}: {}", stderr(&output));
        assert_eq!(machine.users_in_use(), 20, "{csv}");
        assert_eq!(fs::read_to_string(machine.0.path().join(file)).unwrap(), users(20));
    }
    for (count, more, in_use) in [
        (18, &[][..], 18),
        (1, &[], 1), // Of 18, that may be.
        (100, &[], 100),
        (89, &[], 100),
        (89, &["--allow-shrink"], 89),
        (0, &["--allow-shrink"], 0),
        (0, &[], 0),
    ] {
        machine.pipe(&users(count), more);
        assert_eq!(machine.users_in_use(), in_use, "{count}");
    }
}

#[test]
fn the_file_of_users_keeps_its_owner_and_is_as_before_where_nothing_is_applied() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
    let (machine, users) = with_users();
    let file = machine.0.path().join("users.csv");
    assert_eq!(machine.pipe(&users(3), &[]).status.code(), Some(0));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    // Only root can give it to another user.
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    let owner = if is_root { 65_534 } else { fs::metadata(&file).unwrap().uid() };
    chown(&file, Some(owner), None).unwrap();
    assert_eq!(machine.pipe(&users(4), &[]).status.code(), Some(0));
    let found = fs::metadata(&file).unwrap();
    assert_eq!((found.uid(), found.mode() & 0o777), (owner, 0o600));
    assert_eq!(fs::read_to_string(&file).unwrap(), users(4));

    // An error names what was handed over, twice.
    let output = machine.pipe("user,messages\nu1,5/1h\nU1,6/1h\n", &[]);
    let said = "is listed twice; first at standard input:2:1";
    assert!(stderr(&output).contains(said), "{}", stderr(&output));

    // The image cannot be replaced.
    fs::remove_file(machine.image()).unwrap();
    fs::create_dir(machine.image()).unwrap();
    let output = machine.pipe(&users(5), &[]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert_eq!(fs::read_to_string(&file).unwrap(), users(4));
    assert_eq!(fs::metadata(&file).unwrap().uid(), owner);
    fs::remove_file(&file).unwrap();
    assert_eq!(machine.pipe(&users(5), &[]).status.code(), Some(2));
    assert!(!file.exists());
    // A new one gets the owner of its directory.
    fs::remove_dir(machine.image()).unwrap();
    chown(machine.0.path(), Some(owner), None).unwrap();
    assert_eq!(machine.pipe(&users(5), &[]).status.code(), Some(0));
    assert_eq!(fs::metadata(&file).unwrap().uid(), owner);
}

#[test]
fn the_policy_file_names_one_file_of_users() {
    let (machine, users) = with_users();
    for (text, said) in [
        (
            "",
            "p.toml names no file that --users could replace: write users = \"users.csv\" in a \
             policy",
        ),
        (
            "users = [\"a.csv\", \"b.csv\"]",
            "p.toml names several files of users, and --users is for one: a.csv, b.csv",
        ),
    ] {
        machine.write(
            "p.toml",
            &format!("version = 1\n[policy.a]\n{text}\ndefault.bytes = \"1M/1h\"\n"),
        );
        let output = machine.pipe(&users(3), &[]);
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(stderr(&output), format!("exirate: {said}\n"));
        assert!(!machine.image().exists());
    }
}

/// `identity.qualify` is brought in: logins keep what is known of them, and denials hold.
#[test]
fn a_limit_that_is_removed_blocks_nobody() {
    use exirate::engine::{Algorithm, AlgorithmKind, Check, Kind, RecordKey};
    use exirate::rate::Timestamp;
    use exirate::spool::{Options, Spool};
    use exirate::store::Store as _;

    let machine = Machine::new();
    let run = |arguments: &[&str]| {
        let mut command = exirate();
        command.args(arguments).args(["--spool", "spool"]).current_dir(&machine.0);
        stdout(&command.output().unwrap())
    };
    let blocked = || {
        let keys: serde_json::Value = serde_json::from_str(&run(&["list", "--json"])).unwrap();
        let key = &keys[0];
        (key["over"].as_bool().unwrap(), key["decided_by"].as_str().unwrap().to_owned())
    };
    for (then, decides) in [
        ("[policy.out]\nkey = \"auth\"\ndefault.messages = \"9/1h\"\n", "removed"),
        ("[policy.other]\nkey = \"auth\"\ndefault.recipients = \"1/1w\"\n", "removed"),
        // A front end may hand over the package that has it.
        ("[policy.out]\nkey = \"auth\"\npackage.small.recipients = \"1/1w\"\n", "rate"),
    ] {
        let limited = "[policy.out]\nkey = \"auth\"\ndefault.recipients = \"1/1w\"\n";
        machine.write("p.toml", &format!("version = 1\n{limited}"));
        assert_eq!(machine.run(&["apply", "p.toml"]).status.code(), Some(0));
        let seconds = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() as i64;
        let (name, kind) = (b"out/recipients/1w/auth:alice", Kind::Policy);
        let algorithm = AlgorithmKind::MovingAverage;
        let key = RecordKey { name, identity_start: 18, kind, algorithm };
        let limit = Algorithm::MovingAverage { limit: 1.0, period: 604_800.0 };
        let mut spool = Spool::open(&machine.spool(), Options::default()).unwrap();
        let now = || Timestamp { seconds, micros: 0 };
        spool.decide_one(&Check { count: 5.0, ..Check::new(key, limit) }, now).unwrap();
        drop(spool);
        assert_eq!(blocked(), (true, "rate".to_owned()));
        machine.write("p.toml", &format!("version = 1\n{then}"));
        assert_eq!(machine.run(&["apply", "p.toml"]).status.code(), Some(0));
        assert_eq!(blocked(), (decides == "rate", decides.to_owned()), "{then}");
        let shown = run(&["show", "alice"]);
        let says = shown.contains("no policy in use has this limit any more");
        assert_eq!(says, decides == "removed", "{shown}");
    }
}

#[test]
fn logins_keep_their_rates_habits_and_overrides_when_they_get_a_domain() {
    use exirate::engine::{Algorithm, AlgorithmKind, Check, Kind, RecordKey};
    use exirate::rate::Timestamp;
    use exirate::rate::habits::Sensitivity;
    use exirate::spool::habits::{SentMessage, habits_key};
    use exirate::spool::{Options, Spool};
    use exirate::store::Store as _;

    let machine = Machine::new();
    let policies = |identity: &str| {
        format!(
            "version = 1\n{identity}[policy.out]\nkey = \"auth\"\ndefault.messages = \"100/1h\"\n\
             [policy.web]\nkey = \"local_account\"\ndefault.messages = \"100/1h\"\n"
        )
    };
    machine.write("p.toml", &policies(""));
    assert_eq!(machine.run(&["apply", "p.toml"]).status.code(), Some(0));
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() as i64;
    let now = Timestamp { seconds: now, micros: 0 };
    let mut spool = Spool::open(&machine.spool(), Options::default()).unwrap();
    let start = "out/messages/1h/";
    for (identity, count) in [
        ("auth:alice", 30.0),
        ("auth:alice@example.org", 20.0),
        ("auth:bob", 5.0),
        ("auth:alice@virtual.example", 7.0),
        ("local_account:alice", 9.0),
    ] {
        let name = format!("{start}{identity}");
        let (kind, algorithm) = (Kind::Policy, AlgorithmKind::MovingAverage);
        let (name, identity_start) = (name.as_bytes(), start.len());
        let key = RecordKey { name, identity_start, kind, algorithm };
        let algorithm = Algorithm::MovingAverage { limit: 100.0, period: 3600.0 };
        spool.decide_one(&Check { count, ..Check::new(key, algorithm) }, || now).unwrap();
    }
    let mut name = Vec::new();
    for _ in 0..3 {
        let key = habits_key(b"auth:alice", &mut name);
        let recipients = [&b"x@y.test"[..]];
        let message = SentMessage { at: now.seconds, client: None, recipients };
        spool.learn_habits(key, message, Sensitivity::default()).unwrap();
    }
    drop(spool);
    let run = |arguments: &[&str]| {
        exirate()
            .args(arguments)
            .args(["--spool", "spool"])
            .current_dir(&machine.0)
            .output()
            .unwrap()
    };
    assert_eq!(run(&["deny", "bob"]).status.code(), Some(0));
    machine.write("p.toml", &policies("[identity]\nqualify = \"example.org\"\n"));
    // Where what others count cannot be moved, nothing is.
    let mut join = exirate();
    join.args(["cluster", "join", "--servers", "2", "--agent-user", "daemon", "--config"]);
    join.arg(machine.0.path().join("agent.toml")).args(["--spool", "spool"]);
    assert_eq!(join.current_dir(&machine.0).output().unwrap().status.code(), Some(1));
    let before = fs::read(machine.image()).unwrap();
    let refused = machine.run(&["apply", "p.toml"]);
    let why = "nothing has changed, as the rates of logins could not be moved to their new names: ";
    assert!(stderr(&refused).contains(why), "{refused:?}");
    assert_eq!((refused.status.code(), fs::read(machine.image()).unwrap()), (Some(2), before));
    assert_eq!(run(&["cluster", "leave"]).status.code(), Some(0));
    let rates = "2 rates and 1 account's habits";
    for (more, says) in [(&["--dry-run"][..], "would get"), (&[], "have"), (&[], "nothing changes")]
    {
        let applied = machine.run(&[&["apply", "p.toml"][..], more].concat());
        let said = stdout(&applied);
        assert_eq!((applied.status.code(), stderr(&applied)), (Some(0), String::new()));
        let is_said = said.contains(&format!("{rates} {says} the new names of their logins\n"));
        assert!(is_said || says == "nothing changes" && said.contains(says), "{said}");
    }
    let listed = json(&run(&["list", "--json"]));
    let mut rates: Vec<(&str, f64)> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["key"].as_str().unwrap(), one["rate"].as_f64().unwrap().round()))
        .collect();
    rates.sort_by(|one, other| one.0.cmp(other.0));
    assert_eq!(
        rates,
        [
            ("auth:alice@example.org", 50.0),
            ("auth:alice@virtual.example", 7.0),
            ("auth:bob@example.org", 5.0),
            ("local_account:alice", 9.0),
        ]
    );
    let habits = json(&run(&["habits", "--json"]));
    assert_eq!(habits[0]["key"], "auth:alice@example.org");
    // Each of its names is denied, and found.
    for name in ["bob", "BOB@Example.org"] {
        let explained = stdout(&run(&["explain", name, "--now"]));
        assert!(
            explained.starts_with(&format!("{name} cannot send now: denied until ")),
            "{explained}"
        );
        let check = json(&run(&["check", "out", "--auth", name, "--json"]));
        assert_eq!(check["verdict"], "defer");
    }
    let unblocked = stdout(&run(&["unblock", "bob@example.org"]));
    assert!(unblocked.contains("bob"), "{unblocked}");
    let check = json(&run(&["check", "out", "--auth", "bob", "--json"]));
    assert_eq!(check["verdict"], "accept");
}
