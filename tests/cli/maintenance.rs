//! The files in `scripts/maintenance`: systemd accepts the units as they are, and
//! their commands, and those for cron, work.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use kit::exim::USER;
use kit::{PrivateExim, Setup, copy_program};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/maintenance");
const SERVICES: [&str; 2] = ["exirate-stats.service", "exirate-verify.service"];
const TIMERS: [&str; 2] = ["exirate-stats.timer", "exirate-verify.timer"];
const DELIVERER: &str = "exirate-alerts.service";
const AGENT: &str = "exirate-agent.service";
const MAIL: &str = "exirate-mail.service";
/// A template: its instance is the user.
const FOLLOW: &str = "exirate-follow@.service";
/// A template as well.
const BROKER: &str = "exirate-broker@.service";
const HELD: &str = "exirate-held.service";
const WEB: &str = "exirate-web@.service";
/// A template as well.
const CALLERS: &str = "exirate-mail@.service";
/// What Exim holds until it is decided: started by the daemons that decide.
const UNDECIDED: [&str; 2] = ["exirate-undecided.service", "exirate-undecided.timer"];
/// What waits in Postfix and Sendmail: likewise.
const WAITING: [&str; 2] = ["exirate-waiting.service", "exirate-waiting.timer"];
/// Those that run all the time, and what they start.
const DAEMONS: [&str; 12] = [
    AGENT,
    MAIL,
    CALLERS,
    DELIVERER,
    FOLLOW,
    BROKER,
    WEB,
    HELD,
    UNDECIDED[0],
    UNDECIDED[1],
    WAITING[0],
    WAITING[1],
];
const AGENT_CONFIGURATION: &str = "exirate.toml";
const USERS: &str = "exirate.sysusers.conf";
const DIRECTORIES: &str = "exirate.tmpfiles.conf";
const INIT: &str = "exirate-mail.init";
const DELIVERER_INIT: &str = "exirate-alerts.init";
const CRON: &str = "exirate.cron";
const ALERTS: &str = "exirate.rules.yml";
const FAIL2BAN: [&str; 2] = ["exirate.filter.conf", "exirate.jail.conf"];

/// A file as scripts/install writes it, but for the paths of the program.
fn shipped(name: &str) -> String {
    let mut text = std::fs::read_to_string(Path::new(FOLDER).join(name)).unwrap();
    for word in ["@SPOOLS@", "@DATABASES@", "@TRACES@"] {
        text = text.replace(word, "-/nonexistent/exirate");
    }
    text
}

const POSTFIX_PAGE: &str = include_str!("../../docs/postfix.md");

/// The blocks of a page that are settings of systemd.
fn settings(page: &str) -> impl Iterator<Item = &str> {
    page.split("```ini\n").skip(1).map(|block| block.split("```").next().unwrap())
}

/// The values of an option in a unit.
fn values<'a>(unit: &'a str, option: &str) -> Vec<&'a str> {
    unit.lines().filter_map(|line| line.strip_prefix(option)?.strip_prefix('=')).collect()
}

/// A machine with its own places for the program, the spool directory and the
/// figures for Prometheus.
struct Machine {
    exim: PrivateExim,
}

impl Machine {
    /// One with a key in its database.
    fn new() -> Self {
        let machine = Self { exim: Setup::new().library().build() };
        let program = machine.exim.folder().join("exirate");
        copy_program(env!("CARGO_BIN_EXE_exirate"), program);
        let library = machine.exim.library();
        let spec = "9 / 1h / strict / alice@example.org";
        let check = format!("${{dlfunc{{{}}}{{ratelimit}}{{{spec}}}}}", library.display());
        assert_eq!(machine.exim.expand(&check).stdout, "no\n");
        // What `exirate where` asks.
        let config = machine.exim.config().display();
        let exim = format!("#!/bin/sh\nexec {} -C {config} \"$@\"\n", kit::exim::PROGRAM);
        kit::write_script(machine.exim.folder().join("exim4"), &exim);
        machine
    }

    /// The path that a shipped one stands for.
    fn local(&self, text: &str) -> String {
        let at = |name: &str| self.exim.folder().join(name).display().to_string();
        text.replace("/usr/local/bin/exirate", &at("exirate"))
            .replace("/usr/local/bin", &at(""))
            .replace("/var/lib/exirate-metrics", &at("metrics"))
    }

    /// Makes the folder for Prometheus, as the head of the cron file says.
    fn prepare(&self) {
        let cron = shipped(CRON);
        let install = cron.lines().find_map(|line| line.strip_prefix("#     ")).unwrap();
        assert!(install.starts_with("install -d "), "{install}");
        let output = self.run("root", install);
        assert!(output.status.success(), "{output:?}");
    }

    /// Runs a line of shell as a user, with `PATH` as the cron file sets it.
    fn run(&self, user: &str, line: &str) -> Output {
        let path = self.local(values(&shipped(CRON), "PATH")[0]);
        Command::new("runuser")
            .args(["-u", user, "--", "/bin/sh", "-c", &self.local(line)])
            .env_clear()
            .env("PATH", format!("{path}:/usr/sbin:/sbin"))
            .current_dir("/")
            .output()
            .unwrap()
    }

    /// Runs what a service starts, as its user, if its condition holds.
    fn start(&self, service: &str) -> Output {
        let unit = shipped(service);
        let user = values(&unit, "User").pop().unwrap_or("root");
        let condition = self.run(user, values(&unit, "ExecCondition")[0]);
        assert!(condition.stdout.is_empty() && condition.stderr.is_empty(), "{condition:?}");
        match condition.status.success() {
            true => self.run(user, values(&unit, "ExecStart")[0]),
            false => condition,
        }
    }

    /// Runs the lines for cron, each as its user.
    fn cron(&self) -> Vec<Output> {
        let cron = shipped(CRON);
        let lines = cron.lines().filter(|line| line.starts_with(['*', '1']));
        let outputs: Vec<Output> = lines
            .map(|line| {
                // Five fields of time, the user, and the command.
                let user = line.split_whitespace().nth(5).unwrap();
                let command = line.split_once(&format!(" {user} ")).unwrap().1;
                // To cron, a % is the end of the line.
                assert!(!command.contains('%'), "{command}");
                self.run(user, command)
            })
            .collect();
        assert_eq!(outputs.len(), 4);
        outputs
    }

    /// Runs the program as root, on a spool directory.
    fn exirate(&self, spool: &Path, arguments: &[&str]) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_exirate"));
        let output = command.args(arguments).arg("--spool").arg(spool).output().unwrap();
        assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    }

    /// Puts policies in use that send crossings to the log.
    fn log_crossings(&self, spool: &Path) {
        let policy = self.exim.folder().join("policy.toml");
        std::fs::write(&policy, "version = 1\n[on.crossing]\nlog = true\n").unwrap();
        self.exirate(spool, &["policy", "apply", policy.to_str().unwrap()]);
    }

    /// A key crosses its limit.
    fn cross(&self, spool: &Path, key: &str) {
        self.exirate(spool, &["check", "--count", "1 / 1h / strict", "--key", key]);
        assert!(spool.join("exirate/crossings").exists());
    }

    fn figures(&self) -> PathBuf {
        self.exim.folder().join("metrics/exirate.prom")
    }

    /// Damages the one record that is there.
    fn damage(&self) {
        let files = self.exim.spool().join("exirate").read_dir().unwrap();
        let mut paths = files.map(|entry| entry.unwrap().path());
        let path = paths.find(|path| path.extension().is_some_and(|e| e == "shard")).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        let at = bytes.windows(5).position(|window| window == b"alice").unwrap();
        bytes[at] ^= 1;
        std::fs::write(&path, bytes).unwrap();
    }
}

/// It succeeded and printed nothing.
fn quiet(output: &Output) {
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
}

/// The service for alerts, with the lines that docs/alerts.md has for it.
const CONFINED: &str = "exirate-confined.service";

fn confinement() -> String {
    let mut blocks = settings(include_str!("../../docs/alerts.md"));
    let block = blocks.next().unwrap();
    assert!(block.starts_with("[Service]\n") && blocks.next().is_none());
    block.to_owned()
}

#[test]
fn systemd_accepts_the_units() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("exirate");
    copy_program(env!("CARGO_BIN_EXE_exirate"), &program);
    for name in SERVICES.iter().chain(&TIMERS).chain(&[CONFINED]).chain(&DAEMONS) {
        let unit = match *name {
            CONFINED => shipped(DELIVERER) + &confinement(),
            name => shipped(name),
        };
        let unit = unit.replace("/usr/local/bin/exirate", &program.display().to_string());
        std::fs::write(folder.path().join(name), unit).unwrap();
    }
    let analyze = |arguments: &[&str]| {
        let mut analyze = Command::new("systemd-analyze");
        let output = analyze.args(arguments).current_dir(folder.path()).output();
        output.expect("systemd-analyze is needed: apt-get install systemd")
    };
    let units = SERVICES.iter().chain(&TIMERS).chain(&[CONFINED]).chain(&DAEMONS);
    let units: Vec<String> = units.map(|n| format!("./{n}")).collect();
    let mut verify = vec!["verify", "--man=no"];
    verify.extend(units.iter().map(String::as_str));
    quiet(&analyze(&verify));
    let others = [
        (&CONFINED, 35),
        (&DELIVERER, 80),
        (&AGENT, 16),
        (&MAIL, 16),
        (&CALLERS, 16),
        (&FOLLOW, 16),
        (&BROKER, 10),
        (&WEB, 10),
    ];
    for (service, threshold) in SERVICES.iter().zip([25, 25]).chain(others) {
        // In tenths of 10.0 (dangerous); 1.0 is not reached by accident.
        let output = analyze(&[
            "security",
            "--offline=true",
            "--no-pager",
            &format!("--threshold={threshold}"),
            &format!("./{service}"),
        ]);
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{printed}");
        assert!(printed.contains("Overall exposure level for exirate-"), "{printed}");
    }
    // A wrong unit is reported.
    std::fs::write(folder.path().join("wrong.service"), "[Service]\nNoSuch=1\n").unwrap();
    assert!(!analyze(&["verify", "--man=no", "./wrong.service"]).stderr.is_empty());
}

/// Shipped files and documents ask where the database is; none says it, but those that make
/// exirate's own directory, and these lines.
#[test]
fn no_shipped_file_says_where_the_database_is() {
    let allowed = [
        // They make it, and its user, or say what a purge keeps, when the program is gone.
        ("scripts/maintenance/exirate.sysusers.conf", "/var/lib/exirate"),
        ("scripts/maintenance/exirate.tmpfiles.conf", "/var/lib/exirate"),
        ("debian/exirate.postrm", "/var/lib/exirate"),
        ("debian/exirate-exim.postrm", "spool=/var/spool/exim4/exirate"),
        ("docs/postfix.md", "install -d -o exirate-mail -g exirate-mail -m 0755 /var/lib/exirate"),
        ("docs/sendmail.md", "install -d -o exirate-mail -g exirate-mail -m 0755 /var/lib/exirate"),
        // The one place, for whoever configures the daemon by hand.
        ("docs/postfix.md", "spool = \"/var/lib/exirate\""),
        ("docs/sendmail.md", "spool = \"/var/lib/exirate\""),
        ("docs/serve-mail.md", "spool = \"/var/lib/exirate\""),
        ("docs/serve-mail.md", "| `mail.spool` |"),
        // In the image nobody chooses.
        ("docs/containers.md", "/var/lib/exirate"),
    ];
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // What commands print on one machine is in docs/transcripts.
    let mut folders = vec!["scripts/maintenance", "debian", "docs", "exim"];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            for line in text.lines().filter(|line| says_where(line)) {
                let is_allowed = |one: &&(&str, &str)| one.0 == name && line.contains(one.1);
                if !allowed.iter().any(|one| is_allowed(&one)) {
                    found.push(format!("{name}: {line}"));
                }
            }
        }
    }
    assert_eq!(found, [""; 0]);
}

/// Whether a line names the database, or the spool directory for a command of exirate's.
fn says_where(line: &str) -> bool {
    let is_own = line.match_indices("/var/lib/exirate").any(|(at, name)| {
        let rest = &line[at + name.len()..];
        // Other directories of daemons, and the socket that an Exim asks at.
        !rest.starts_with(['-', '/']) || rest.starts_with("/exirate")
    });
    let of_exim =
        ["/var/spool/exim4/exirate", "/var/spool/exim/exirate", "--spool /var/spool/exim"];
    is_own || of_exim.iter().any(|path| line.contains(path))
}

#[test]
fn each_timer_has_its_service() {
    for (service, timer) in SERVICES.iter().zip(TIMERS) {
        assert_eq!(service.strip_suffix(".service"), timer.strip_suffix(".timer"));
        let calendar = shipped(timer);
        let calendar = values(&calendar, "OnCalendar")[0];
        let output = Command::new("systemd-analyze").args(["calendar", calendar]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

#[test]
fn a_state_directory_belongs_to_one_user() {
    // systemd gives what is in it to the user of the unit that starts.
    let mut owners = std::collections::BTreeMap::new();
    for unit in [&SERVICES[..], &DAEMONS].concat() {
        let text = shipped(unit);
        for directory in values(&text, "StateDirectory") {
            let user = values(&text, "User").pop();
            assert_eq!(
                *owners.entry(directory.to_owned()).or_insert(user.map(str::to_owned)),
                user.map(str::to_owned),
                "{unit}"
            );
        }
    }
    assert!(owners.len() > 1, "{owners:?}");
}

#[test]
fn the_figures_are_written_for_prometheus() {
    let machine = Machine::new();
    machine.prepare();
    quiet(&machine.start("exirate-stats.service"));
    let figures = std::fs::read_to_string(machine.figures()).unwrap();
    assert!(figures.contains("# TYPE exirate_"), "{figures}");
    std::fs::remove_file(machine.figures()).unwrap();
    machine.cron().iter().for_each(quiet);
    // Prometheus is another user.
    let read = machine.run("nobody", &format!("cat {}", machine.figures().display()));
    assert!(String::from_utf8_lossy(&read.stdout).contains("# TYPE exirate_"), "{read:?}");
}

#[test]
fn damage_makes_the_service_fail_and_cron_write() {
    let machine = Machine::new();
    machine.prepare();
    let sound = machine.start("exirate-verify.service");
    assert!(sound.status.success(), "{sound:?}");
    machine.damage();
    let damaged = machine.start("exirate-verify.service");
    assert_eq!(damaged.status.code(), Some(1), "{damaged:?}");
    let written: Vec<Output> = machine.cron();
    let said: String =
        written.iter().map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).collect();
    assert!(said.contains("is damaged"), "{written:?}");
}

#[test]
fn alerts_are_sent_by_the_daemon_as_the_owner_of_the_database() {
    let machine = Machine::new();
    let spool = machine.exim.spool();
    machine.log_crossings(&spool);
    machine.cross(&spool, "bob");
    let unit = shipped(DELIVERER);
    assert!(values(&unit, "User").is_empty() && values(&unit, "WantedBy") == ["multi-user.target"]);
    let start = machine.local(values(&unit, "ExecStart")[0]);
    let folder = machine.exim.folder().display().to_string();
    let mut daemon = Command::new("/bin/sh")
        .args(["-c", &format!("exec {start}")])
        .env_clear()
        .env("PATH", format!("{folder}:/usr/bin:/bin"))
        .current_dir("/")
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(daemon.stdout.take().unwrap()).lines();
    let sent = lines.next().unwrap().unwrap();
    assert!(sent.contains(" bob is over the limit: "), "{sent}");
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.id())).unwrap();
    let owner = spool.metadata().unwrap();
    for (name, id) in [("Uid", owner.uid()), ("Gid", owner.gid())] {
        let line = format!("{name}:\t{id}\t{id}\t{id}\t{id}");
        assert!(status.lines().any(|one| one == line), "{line}: {status}");
    }
    // What crosses while it runs.
    machine.cross(&spool, "carl");
    let sent = lines.next().unwrap().unwrap();
    assert!(sent.contains(" carl is over the limit: "), "{sent}");
    // Each is sent once, whoever sends.
    machine.exirate(&spool, &["events", "deliver"]);
    quiet(&Command::new("kill").arg(daemon.id().to_string()).output().unwrap());
    let output = daemon.wait_with_output().unwrap();
    assert!(output.status.success() && lines.next().is_none(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains(&format!("as {USER}\n")) && said.contains("stopped"), "{said}");
}

#[test]
fn cron_is_silent_where_there_is_no_database() {
    let machine = Machine::new();
    machine.prepare();
    std::fs::remove_dir_all(machine.exim.spool().join("exirate")).unwrap();
    machine.cron().iter().for_each(quiet);
    assert!(!machine.figures().exists());
}

#[test]
fn the_documentation_installs_what_there_is() {
    let page = include_str!("../../docs/monitoring.md");
    let mut files: Vec<String> = std::fs::read_dir(FOLDER)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    let units = SERVICES.into_iter().chain(TIMERS).chain([
        AGENT_CONFIGURATION,
        USERS,
        DIRECTORIES,
        INIT,
        DELIVERER_INIT,
    ]);
    let units = units.chain(DAEMONS);
    let mut known: Vec<&str> = units.chain([CRON, ALERTS]).chain(FAIL2BAN).collect();
    known.sort_unstable();
    assert_eq!(files, known);
    let install = |what: &str| page.lines().any(|l| l.starts_with("install ") && l.contains(what));
    // Where scripts/install puts the units is for tests/cli/install.rs to know.
    assert!(install("/usr/share/doc/exirate/examples/exirate.cron"));
    assert!(page.contains("`exirate.rules.yml`"));
    for file in FAIL2BAN {
        assert!(install(&format!("/usr/share/doc/exirate/examples/{file}")), "{file}");
    }
    for timer in &TIMERS {
        assert!(page.contains(timer), "{timer}");
    }
    for page in [include_str!("../../docs/alerts.md"), include_str!("../../docs/cluster.md")] {
        assert!(page.contains("systemctl enable --now exirate-alerts"));
    }
    let cron = shipped(CRON);
    let folder = cron.lines().find_map(|line| line.strip_prefix("#     ")).unwrap();
    assert!(install(folder), "{folder}");
}

#[test]
fn the_daemons_have_users_of_their_own() {
    let root = tempfile::tempdir().unwrap();
    for folder in ["etc", "usr/lib/sysusers.d"] {
        std::fs::create_dir_all(root.path().join(folder)).unwrap();
    }
    std::fs::write(root.path().join("usr/lib/sysusers.d/exirate.conf"), shipped(USERS)).unwrap();
    let mut command = Command::new("systemd-sysusers");
    let output = command.arg("--root").arg(root.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let users = std::fs::read_to_string(root.path().join("etc/passwd")).unwrap();
    let pages = [include_str!("../../docs/cluster.md"), POSTFIX_PAGE];
    for (unit, page) in [AGENT, MAIL].into_iter().zip(pages) {
        let user = values(&shipped(unit), "User")[0].to_owned();
        let start = format!("{user}:");
        let line = users.lines().find(|line| line.starts_with(&start)).unwrap();
        assert!(line.contains("nologin"), "{users}");
        assert_ne!(user, USER);
        assert!(page.contains(&format!("systemctl enable --now {user}\n")), "{user}");
    }
}

/// The directory that the unit would make, for its user.
#[test]
fn the_directory_of_the_mail_front_ends_is_made_for_their_user() {
    let root = tempfile::tempdir().unwrap();
    for (folder, name) in [("sysusers.d", USERS), ("tmpfiles.d", DIRECTORIES)] {
        let folder = root.path().join("usr/lib").join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("exirate.conf"), shipped(name)).unwrap();
    }
    let run = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        let output = command.arg("--root").arg(root.path()).args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    std::fs::create_dir_all(root.path().join("etc")).unwrap();
    run("systemd-sysusers", &[]);
    run("systemd-tmpfiles", &["--create", "exirate.conf"]);
    let users = std::fs::read_to_string(root.path().join("etc/passwd")).unwrap();
    let unit = shipped(MAIL);
    let user = values(&unit, "User")[0];
    let line = users.lines().find(|line| line.starts_with(&format!("{user}:"))).unwrap();
    let fields: Vec<&str> = line.split(':').collect();
    let directory = format!("/var/lib/{}", values(&unit, "StateDirectory")[0]);
    assert_eq!(fields[5], directory);
    let made = root.path().join(&directory[1..]).metadata().unwrap();
    assert_eq!(
        (made.uid().to_string(), made.gid().to_string()),
        (fields[2].into(), fields[3].into())
    );
    let mode = u32::from_str_radix(values(&unit, "StateDirectoryMode")[0], 8).unwrap();
    assert_eq!(made.mode() & 0o7777, mode);

    // Another owner keeps it: its files are his.
    std::os::unix::fs::chown(root.path().join(&directory[1..]), Some(4321), Some(4321)).unwrap();
    run("systemd-tmpfiles", &["--create", "exirate.conf"]);
    assert_eq!(root.path().join(&directory[1..]).metadata().unwrap().uid(), 4321);
}

#[test]
fn the_init_script_starts_the_daemon_as_the_unit_does() {
    let (script, unit) = (shipped(INIT), shipped(MAIL));
    let of = |option: &str| values(&unit, option)[0];
    let start = of("ExecStart").replace("/etc/exirate/exirate.toml", "$configuration");
    let (program, arguments) = start.split_once(' ').unwrap();
    // Its own function for starting takes an option more.
    let arguments = arguments.replacen("serve mail ", "serve mail $* ", 1);
    for line in [
        format!("\nuser={}\n", of("User")),
        format!("\nprogram={program}\n"),
        format!("exec $program {arguments} "),
        format!("--umask {} ", of("UMask")),
        format!("\n  ulimit -n {} ", of("LimitNOFILE")),
        format!("--retry TERM/{}/", of("TimeoutStopSec")),
        format!("\nname={}\n", of("RuntimeDirectory")),
        format!("-m {} /run/$name\n", of("RuntimeDirectoryMode")),
    ] {
        assert!(script.contains(&line), "{line:?}");
    }
    let (alerts, unit) = (shipped(DELIVERER_INIT), shipped(DELIVERER));
    let start = values(&unit, "ExecStart")[0];
    let (program, arguments) = start.split_once(' ').unwrap();
    assert!(alerts.contains(&format!("\nprogram={program}\n")), "{alerts}");
    assert!(alerts.contains(&format!("exec $program {arguments} >")), "{alerts}");
    assert!(alerts.contains(&format!("--umask {} ", values(&unit, "UMask")[0])), "{alerts}");
    for init in [INIT, DELIVERER_INIT] {
        let output = Command::new("sh").arg("-n").arg(Path::new(FOLDER).join(init)).output();
        assert!(output.as_ref().unwrap().status.success(), "{output:?}");
    }
}

#[test]
fn the_example_of_the_agents_configuration_is_sound_and_names_every_setting() {
    let check = |daemon: &str, text: &str| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(AGENT_CONFIGURATION);
        std::fs::write(&path, text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_exirate"));
        command.args(["serve", daemon, "--check", "--config"]).arg(path).output().unwrap()
    };
    let example = shipped(AGENT_CONFIGURATION);
    let output = check("agent", &example);
    assert!(output.status.success(), "{output:?}");
    let page = include_str!("../../docs/cluster.md");
    let block = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    assert!(check("agent", block).status.success(), "{block}");
    // Each setting that an error message lists.
    let pages = page.to_owned() + include_str!("../../docs/serve-mail.md");
    for (daemon, section) in
        [("agent", "listen"), ("agent", "redis"), ("agent", "agent"), ("mail", "mail")]
    {
        let output = check(daemon, &format!("[{section}]\nx = 1\n"));
        let said = String::from_utf8(output.stdout).unwrap();
        let list = said.split("llowed: ").nth(1).unwrap().lines().next().unwrap();
        for setting in list.split(", ") {
            let line = |line: &str| {
                let line = line.strip_prefix("# ").unwrap_or(line);
                line.starts_with(&format!("{setting} = "))
            };
            assert!(example.lines().any(line), "{setting}");
            assert!(pages.contains(&format!("`{section}.{setting}`")), "{setting}");
        }
    }
}
