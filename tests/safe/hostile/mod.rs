//! Test programs that load the library as Exim does: small Exims in C, built
//! from the files in this folder.

#![allow(unreachable_pub, missing_docs)]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

/// A built program.
pub struct Program {
    path: PathBuf,
}

/// Common to all programs.
const COMMON: &[&str] = &["exim.c", "variables.c", "state.c"];

impl Program {
    /// Compiles `sources` from this folder together with the common files. Only
    /// marked symbols are exported, as in Debian's builds; `flags` are added.
    ///
    /// # Panics
    /// If there is no C compiler, or it prints anything.
    pub fn build(name: &str, sources: &[&str], flags: &[&str]) -> Self {
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/safe/hostile");
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hostile");
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join(name);
        let output = Command::new("cc")
            .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"])
            .args(["-fvisibility=hidden", "-rdynamic", "-o"])
            .arg(&path)
            .args(flags)
            .args(COMMON.iter().chain(sources).map(|file| here.join(file)))
            .args(["-ldl", "-lm"])
            .output()
            .expect("cc is needed: apt-get install gcc libc6-dev");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{name}: {said}");
        Self { path }
    }

    /// Runs it, by `wrapper` if that is not empty.
    pub fn run<A: AsRef<OsStr>>(&self, wrapper: &[&str], arguments: &[A]) -> Ran {
        let mut command = match wrapper {
            [] => Command::new(&self.path),
            [program, rest @ ..] => {
                let mut command = Command::new(program);
                command.args(rest).arg(&self.path);
                command
            }
        };
        let output = command.args(arguments).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ran { status: output.status, stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }
}

/// The result of a program.
#[derive(Debug)]
pub struct Ran {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// The number after `name: ` on a separate line.
    ///
    /// # Panics
    /// If there is none, or the program failed.
    pub fn number(&self, name: &str) -> i64 {
        assert!(self.status.success(), "{self:?}");
        let after = |line: &str| line.strip_prefix(name)?.strip_prefix(": ")?.parse().ok();
        self.stdout.lines().find_map(after).unwrap_or_else(|| panic!("no {name}: {self:?}"))
    }
}
