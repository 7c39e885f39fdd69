//! Programs of our own that load the library as Exim does: small Exims in C,
//! built from the files beside this one.

#![allow(dead_code, unreachable_pub, missing_docs)]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A built program.
pub struct Program {
    path: PathBuf,
}

/// What every program consists of.
const COMMON: &[&str] = &["exim.c", "variables.c", "state.c"];

impl Program {
    /// Compiles `sources`, which lie here, and what is common to all. Only what
    /// is marked so is exported, as in Debian's builds; `flags` come on top.
    ///
    /// # Panics
    /// Where there is no C compiler, or it has anything to say.
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

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs it, by way of `wrapper` where that is not empty.
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
        Ran {
            ended: output.status.to_string(),
            well: output.status.success(),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        }
    }
}

/// What a program left behind.
#[derive(Debug)]
pub struct Ran {
    pub ended: String,
    pub well: bool,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// The number behind `name: ` on a line of its own.
    ///
    /// # Panics
    /// Where there is none, or the program did not end well.
    pub fn number(&self, name: &str) -> i64 {
        assert!(self.well, "{self:?}");
        let after = |line: &str| line.strip_prefix(name)?.strip_prefix(": ")?.parse().ok();
        self.stdout.lines().find_map(after).unwrap_or_else(|| panic!("no {name}: {self:?}"))
    }
}
