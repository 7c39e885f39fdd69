//! Sessions in a real Exim, with and without a check.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use exirate::policy::image;
use exirate::policy::source::compile as compile_policy;
use kit::exim::{PROGRAM, open_to_all};
use kit::{PrivateExim, Setup};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

/// The check in the RCPT ACL before `accept`.
#[derive(Clone, Debug)]
pub(crate) enum Check {
    /// Nothing.
    None,
    /// A dlfunc that does nothing.
    Nothing,
    /// A dlfunc that locks and unlocks a file.
    Lock,
    /// Exim's own condition, with these specs one after another.
    Native(Vec<String>),
    /// exirate's condition, likewise.
    Ours(Vec<String>),
    /// The condition of another build of exirate, in this file, with these specs.
    Before(PathBuf, Vec<String>),
    /// exirate's `ratelimit_all` with this key and all of these specs.
    All(&'static str, Vec<String>),
    /// exirate's condition, with this expansion as KEY.
    Keyed(&'static str),
    /// exirate's `policy_over` with the policy `p` of this file.
    Policy(String),
}

impl Check {
    fn acl(&self) -> String {
        let conditions: Vec<String> = match self {
            Check::None => vec![],
            Check::Nothing => vec!["condition = ${dlfunc{PRIVATE/floor.so}{nothing}}".to_owned()],
            Check::Lock => {
                vec!["condition = ${dlfunc{PRIVATE/floor.so}{lock}{PRIVATE/spool/lock}}".to_owned()]
            }
            Check::Native(specs) => specs.iter().map(|s| format!("ratelimit = {s}")).collect(),
            Check::Ours(specs) | Check::Before(_, specs) => specs
                .iter()
                .map(|s| format!("condition = ${{dlfunc{{EXIRATE}}{{ratelimit}}{{{s}}}}}"))
                .collect(),
            Check::All(key, specs) => {
                let specs: String = specs.iter().map(|s| format!("{{{s}}}")).collect();
                let call = format!("{{EXIRATE}}{{ratelimit_all}}{{{key}}}{specs}");
                vec![format!("condition = ${{dlfunc{call}}}")]
            }
            Check::Keyed(key) => {
                let spec = "1000000 / 1h / per_rcpt / strict";
                vec![format!("condition = ${{dlfunc{{EXIRATE}}{{ratelimit}}{{{spec}}}{{{key}}}}}")]
            }
            Check::Policy(_) => {
                vec!["condition = ${dlfunc{EXIRATE}{policy_over}{p}}".to_owned()]
            }
        };
        let mut acl = String::new();
        for condition in conditions {
            acl.push_str(&format!("  warn {condition}\n"));
        }
        acl + "  accept\n"
    }

    /// An Exim with this check in its RCPT ACL.
    pub(crate) fn exim(&self) -> PrivateExim {
        let setup = Setup::new().acl("acl_smtp_rcpt", &self.acl());
        let ours = !matches!(self, Check::None | Check::Nothing | Check::Lock | Check::Native(_));
        let setup = if ours { setup.library() } else { setup };
        let exim = setup.build();
        if let Check::Policy(policy) = self {
            let none = |_: &Path| Err(String::new());
            let policies = compile_policy(Path::new("policy.toml"), policy, &none).policies;
            let policies = policies.expect("the policy is sound");
            let installed = image::install(&exim.spool(), &image::build(&policies));
            installed.expect("the image can be installed");
        }
        if let Check::Before(library, _) = self {
            let copy = exim.folder().join("exirate.so");
            std::fs::copy(library, &copy).expect("the library of --before can be read");
            open_to_all(&copy);
        }
        if matches!(self, Check::Nothing | Check::Lock) {
            let library = exim.folder().join("floor.so");
            compile("floor.c", &library, &["-shared", "-fPIC"]);
            open_to_all(&library);
        }
        exim
    }
}

/// Compiles one of the C files in this folder.
pub(crate) fn compile(source: &str, to: &Path, options: &[&str]) {
    let status = Command::new("cc")
        .args(["-O2", "-o"])
        .arg(to)
        .arg(format!("{}/benches/cost/{source}", env!("CARGO_MANIFEST_DIR")))
        .args(options)
        .status()
        .expect("a C compiler is needed");
    assert!(status.success(), "{source} could not be compiled");
}

/// `exim -bs` without extra costs.
pub(crate) fn dash_bs(exim: &PrivateExim) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg("-C").arg(exim.config()).arg("-bs");
    command.env_clear().env("PATH", "/usr/bin:/bin").stderr(Stdio::null());
    command
}

/// The client's side of a session: `recipients` RCPT commands to addresses that
/// occur in no other `round`, from a client with the HELO name `name`.
pub(crate) fn script(name: &str, round: usize, recipients: usize) -> String {
    let mut text = format!("EHLO {name}\r\nMAIL FROM:<sender@client.test>\r\n");
    for n in 0..recipients {
        text.push_str(&format!("RCPT TO:<user{n}.{round}.{name}@private.test>\r\n"));
    }
    text + "QUIT\r\n"
}

/// What sessions took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    /// The time until all have ended.
    pub(crate) time: Duration,
    /// The processor time of Exim, of all of them together.
    pub(crate) processor: Duration,
}

/// The processor time that a process of one thread, as Exim's are, has taken, also after its end
/// until it is waited for: that of other threads is not in schedstat.
pub(crate) fn processor_time(process: u32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{process}/schedstat")).unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

/// Waits for the end of a process; the processor time that it took.
pub(crate) fn wait_for_end(child: &Child) -> Duration {
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(Pid::from_child(child)), ended).unwrap();
    processor_time(child.id())
}

/// Runs one session for each of `names` at the same time. Every recipient must have been
/// accepted.
pub(crate) fn sessions(
    exim: &PrivateExim,
    names: &[String],
    round: usize,
    recipients: usize,
) -> Taken {
    let files: Vec<(PathBuf, PathBuf)> = names
        .iter()
        .enumerate()
        .map(|(n, name)| {
            let input = exim.folder().join(format!("input.{n}"));
            std::fs::write(&input, script(name, round, recipients)).unwrap();
            (input, exim.folder().join(format!("output.{n}")))
        })
        .collect();
    let mut commands: Vec<Command> = files
        .iter()
        .map(|(input, output)| {
            let mut command = dash_bs(exim);
            command.stdin(File::open(input).unwrap()).stdout(File::create(output).unwrap());
            command
        })
        .collect();
    let start = Instant::now();
    let children: Vec<Child> = commands.iter_mut().map(|c| c.spawn().unwrap()).collect();
    let processor = children.iter().map(wait_for_end).sum();
    let time = start.elapsed();
    for mut child in children {
        let status = child.wait().unwrap();
        assert!(status.success(), "Exim ended with {status}: {}", exim.log("panic"));
    }
    for (_, output) in files {
        let replies = std::fs::read_to_string(output).unwrap();
        let accepted = replies.lines().filter(|l| *l == "250 Accepted").count();
        assert_eq!(accepted, recipients, "not all was accepted: {replies:.600}");
    }
    Taken { time, processor }
}
