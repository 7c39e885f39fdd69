//! The example of docs/database.md, with a PostgreSQL of its own: what the page has is what runs.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use exirate::policy::image::Image;
use exirate::policy::model::Policy;
use kit::copy_program;
use kit::exim::USER;

use crate::{stderr, stdout};

const PAGE: &str = include_str!("../../docs/database.md");

/// The blocks of the page in a language.
fn blocks(language: &str) -> Vec<&'static str> {
    let start = format!("```{language}\n");
    PAGE.split(&start).skip(1).map(|block| block.split("```").next().unwrap()).collect()
}

fn ran(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

fn as_user(user: &str, program: &Path) -> Command {
    let mut command = Command::new("runuser");
    command.args(["-u", user, "--"]).arg(program).current_dir("/");
    command
}

/// A PostgreSQL that listens on a socket in a directory.
struct Server {
    directory: PathBuf,
    programs: PathBuf,
}

impl Server {
    fn start(directory: PathBuf) -> Self {
        // The package postgresql has a directory for each version.
        let versions = std::fs::read_dir("/usr/lib/postgresql").unwrap();
        let programs = versions.map(|version| version.unwrap().path().join("bin")).max().unwrap();
        ran(Command::new("install").args(["-d", "-o", "postgres", "-m", "755"]).arg(&directory));
        let server = Self { directory, programs };
        let data = server.directory.join("data");
        let mut make = server.program("initdb");
        ran(make
            .args(["--auth=trust", "--no-locale", "--encoding=UTF8", "--no-sync", "-D"])
            .arg(data));
        server.control(&["start", "-w", "-s", "-l", "/dev/null"]);
        ran(server.program("createdb").arg("hosting"));
        ran(server.program("createuser").arg("exirate"));
        server
    }

    fn program(&self, name: &str) -> Command {
        let mut command = as_user("postgres", &self.programs.join(name));
        command.env("PGHOST", &self.directory);
        command
    }

    fn control(&self, arguments: &[&str]) {
        let options = format!("-k {} -c listen_addresses= -c fsync=off", self.directory.display());
        let mut control = self.program("pg_ctl");
        control.arg("-D").arg(self.directory.join("data")).args(["-o", &options]).args(arguments);
        ran(&mut control);
    }

    fn sql(&self, text: &str) {
        ran(self.program("psql").args([
            "-q",
            "-v",
            "ON_ERROR_STOP=1",
            "-d",
            "hosting",
            "-c",
            text,
        ]));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let data = self.directory.join("data");
        let _ =
            self.program("pg_ctl").args(["stop", "-s", "-m", "immediate", "-D"]).arg(data).output();
    }
}

/// A machine with what the page says, in a directory.
struct Machine {
    folder: tempfile::TempDir,
    server: Server,
}

impl Machine {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let all = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.path(), all).unwrap();
        let server = Server::start(folder.path().join("db"));
        let machine = Self { folder, server };
        copy_program(env!("CARGO_BIN_EXE_exirate"), machine.at("exirate"));
        std::fs::create_dir(machine.at("etc")).unwrap();
        for directory in ["spool", "lib", "run"] {
            let mut make = Command::new("install");
            ran(make.args(["-d", "-o", USER, "-g", USER]).arg(machine.at(directory)));
        }
        let sql = blocks("sql");
        machine.server.sql(sql[0]);
        machine.server.sql(
            "INSERT INTO customers VALUES (1, 'acme', 'gold'), (2, 'other', 'basic');
             INSERT INTO mailboxes SELECT 'u' || n || '@example.org', 1 + n % 2 FROM generate_series(1, 40) n;
             INSERT INTO mailboxes VALUES ('U1@Example.org', 2);
             UPDATE mailboxes SET hourly = 700 WHERE address = 'u2@example.org';
             GRANT SELECT ON customers, mailboxes TO exirate;",
        );
        machine.write("etc/users.sql", sql[1]);
        machine.write("etc/policy.toml", blocks("toml")[0]);
        machine.write("etc/pg_service.conf", blocks("ini")[0]);
        machine
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The text with the places of this machine.
    fn local(&self, text: &str) -> String {
        let at = |name: &str| self.at(name).display().to_string();
        text.replace("/etc/exirate", &at("etc"))
            .replace("/var/lib/exirate-users", &at("lib"))
            .replace("/run/exirate-users", &at("run"))
            .replace(
                "/usr/bin/exirate policy apply",
                &format!(
                    "{} policy apply --spool {} {}",
                    at("exirate"),
                    at("spool"),
                    at("etc/policy.toml")
                ),
            )
            .replace("db.example.org", &at("db"))
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.at(name), self.local(text)).unwrap();
    }

    /// Runs the commands of the unit as its user, one after the other, until one fails: what the
    /// last one printed.
    fn unit(&self, more: &str) -> Output {
        let unit = blocks("ini")[1];
        let values = |option: &str| -> Vec<&str> {
            unit.lines().filter_map(|line| line.strip_prefix(option)?.strip_prefix('=')).collect()
        };
        let mut last = None;
        for command in [values("ExecStartPre"), values("ExecStart")].concat() {
            let mut shell = as_user(values("User")[0], Path::new("/bin/sh"));
            let command = self.local(command);
            let more = if command.contains(" policy apply ") { more } else { "" };
            shell
                .args(["-c", &format!("exec {command} {more}")])
                .env_clear()
                .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
            for (name, value) in values("Environment").iter().filter_map(|one| one.split_once('='))
            {
                shell.env(name, self.local(value));
            }
            let output = shell.output().unwrap();
            let failed = !output.status.success();
            last = Some(output);
            if failed {
                break;
            }
        }
        last.unwrap()
    }

    fn image(&self) -> PathBuf {
        self.at("spool/exirate/policy.image")
    }

    /// The policy in use.
    fn in_use(&self) -> Policy {
        let mut policies = Image::open(&self.image()).unwrap().policies().unwrap();
        policies.policies.remove("outbound").unwrap()
    }
}

#[test]
fn limits_follow_the_database_and_stay_when_it_is_away() {
    let machine = Machine::new();
    let output = machine.unit("");
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
    let policy = machine.in_use();
    assert_eq!(policy.users.len(), 40);
    for (user, package, customer, own) in [
        ("u1@example.org", "basic", None, None),
        ("u2@example.org", "gold", Some("acme"), Some("700/1h")),
    ] {
        let found = policy.users.get(user).unwrap();
        assert_eq!(
            (found.package.as_deref(), found.customer.as_deref()),
            (Some(package), customer)
        );
        let window = found.limits.each.values().next().map(|amount| &*amount.windows[0].text);
        assert_eq!(window, own, "{user}");
    }

    // Nothing has changed.
    let inode = || std::fs::metadata(machine.image()).unwrap().ino();
    let before = inode();
    let output = machine.unit("");
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), ""));
    assert_eq!(inode(), before);

    machine.server.sql("UPDATE mailboxes SET hourly = 800 WHERE address = 'u2@example.org'");
    let output = machine.unit("");
    assert!(stdout(&output).starts_with("policy.outbound: 1 setting changed\n"), "{output:?}");

    // A part of the answer, and a package that the policy file does not have.
    machine.server.sql(
        "CREATE TABLE kept AS SELECT * FROM mailboxes; DELETE FROM mailboxes WHERE customer = 2",
    );
    let output = machine.unit("");
    let said = format!(
        "{} has 40 users, and {} has 20, less than 90 %",
        machine.at("lib/users.csv").display(),
        machine.at("run/users.csv").display()
    );
    assert!(output.status.code() == Some(2) && stderr(&output).contains(&said), "{output:?}");
    machine.server.sql("INSERT INTO mailboxes SELECT * FROM kept WHERE customer = 2; UPDATE customers SET package = 'iron' WHERE id = 2");
    let output = machine.unit("");
    assert!(stderr(&output).contains("run/users.csv:3:17: unknown package \"iron\""), "{output:?}");
    assert_eq!(machine.in_use().users.len(), 40);

    // It is away: psql fails, and nothing comes through a pipe.
    machine.server.control(&["stop", "-s", "-m", "fast"]);
    let in_force = std::fs::read(machine.image()).unwrap();
    let output = machine.unit("");
    assert!(!output.status.success() && stderr(&output).contains("psql: error"), "{output:?}");
    let pipe = machine.local(
        "psql --csv service=hosting -c 'SELECT 1' | /usr/bin/exirate policy apply --if-changed --users -",
    );
    let mut shell = Command::new("sh");
    let shell = shell.args(["-c", &pipe]).env("PGSERVICEFILE", machine.at("etc/pg_service.conf"));
    let output = shell.output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(stderr(&output).contains("standard input is empty: nothing has changed"), "{output:?}");
    assert!(
        std::fs::read(machine.image()).unwrap() == in_force,
        "the limits in force have changed"
    );

    // It is back.
    machine.server.control(&["start", "-w", "-s", "-l", "/dev/null"]);
    machine.server.sql("UPDATE customers SET package = 'basic' WHERE id = 2; UPDATE mailboxes SET active = customer = 1");
    let output = machine.unit("--allow-shrink");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(machine.in_use().users.len(), 20);
}

#[test]
fn systemd_accepts_the_unit_and_its_timer() {
    let folder = tempfile::tempdir().unwrap();
    let [_, service, timer] = blocks("ini")[..] else { panic!("the page has three blocks") };
    // The program's own path may have a blank.
    let program = folder.path().join("exirate");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_exirate"), &program).unwrap();
    let program = program.to_str().unwrap();
    // A machine may have no psql in /usr/bin; /bin/true is there.
    let service =
        service.replace("/usr/bin/exirate", program).replace("/usr/bin/psql", "/bin/true");
    for (name, text) in
        [("exirate-users.service", service.as_str()), ("exirate-users.timer", timer)]
    {
        assert!(PAGE.contains(&format!("/etc/systemd/system/{name}`")), "{name}");
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let units = ["verify", "--man=no", "./exirate-users.service", "./exirate-users.timer"];
    let mut verify = Command::new("systemd-analyze");
    let output = ran(verify.args(units).current_dir(folder.path()));
    assert_eq!((stdout(&output), stderr(&output)), (String::new(), String::new()));
    let calendar = timer.lines().find_map(|line| line.strip_prefix("OnCalendar=")).unwrap();
    ran(Command::new("systemd-analyze").args(["calendar", calendar]));
}
