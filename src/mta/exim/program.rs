//! The Exim of this machine: its program, its features, its configuration and its user.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Rules;
use super::debian::GENERATED;
use super::references::references;
use super::source::Position;
use crate::mta::Account;
use crate::mta::command::{self, Output};

/// The names of Exim; Debian's has both.
const NAMES: [&str; 2] = ["exim4", "exim"];
/// Where Exim is installed, besides directories in `PATH`: administrators' paths
/// often lack the first.
const PLACES: [&str; 4] = ["/usr/sbin", "/usr/local/sbin", "/usr/local/bin", "/usr/exim/bin"];

/// An Exim, with the configuration that it is to read.
#[derive(Clone, Debug)]
pub(crate) struct Exim {
    /// The program.
    pub(crate) program: PathBuf,
    /// The configuration file, if not the default.
    pub(crate) config: Option<PathBuf>,
}

impl Exim {
    /// Runs it.
    pub(crate) fn run(&self, arguments: &[&str]) -> Result<Output, String> {
        command::run(self.command(arguments))
    }

    /// Runs it with `input` on standard input.
    pub(super) fn run_with(&self, arguments: &[&str], input: &[u8]) -> Result<Output, String> {
        command::run_with(self.command(arguments), input.to_owned())
    }

    /// Starts it, and does not wait for its end.
    pub(crate) fn start(&self, arguments: &[&str]) -> Result<(), String> {
        command::start(self.command(arguments))
    }

    /// Runs it as this user and group, if this process may change to them.
    ///
    /// With another configuration file it runs as the user of this process: Exim's
    /// user may not name one, and Exim would log the attempt.
    pub(crate) fn run_as(
        &self,
        (user, group): (u32, u32),
        arguments: &[&str],
    ) -> Result<Output, String> {
        let mut command = self.command(arguments);
        if self.config.is_none() && rustix::process::geteuid().is_root() {
            command.uid(user).gid(group);
        }
        command::run(command)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        if let Some(config) = &self.config {
            command.arg("-C").arg(config);
        }
        command.args(arguments).current_dir("/");
        command
    }

    /// Expands each of `texts` in one process, to a line each.
    pub(crate) fn expand(&self, texts: &[&str]) -> Result<Vec<String>, String> {
        let arguments: Vec<&str> = std::iter::once("-be").chain(texts.iter().copied()).collect();
        let output = self.run(&arguments)?;
        let lines: Vec<String> = output.stdout.lines().map(str::to_owned).collect();
        if output.success && lines.len() == texts.len() {
            Ok(lines)
        } else {
            Err(format!("{} -be fails: {}", self.program.display(), output.complaint()))
        }
    }
    /// Its name and version, and whether it can load libraries.
    pub(crate) fn version(&self) -> Result<Version, String> {
        let output = self.run(&["-bV"])?;
        let name = output.stdout.lines().next().filter(|l| l.starts_with("Exim version "));
        let Some(name) = name else {
            return Err(format!(
                "{} -bV does not print what Exim prints: {}",
                self.program.display(),
                output.complaint()
            ));
        };
        Ok(Version {
            name: name.to_owned(),
            dlfunc: supports_dlfunc(&output.stdout),
            complaint: (!output.success)
                .then(|| output.stderr.split_whitespace().collect::<Vec<_>>().join(" ")),
        })
    }

    /// What its configuration sets.
    pub(crate) fn settings(&self) -> Result<EximSettings, String> {
        let variables = ["$config_file", "$spool_directory", "$exim_uid", "$exim_gid"];
        let said = self.expand(&variables)?;
        let [config, spool, uid, gid] = &said[..] else {
            return Err("Exim does not print its spool directory and user".to_owned());
        };
        let id = |text: &str| text.parse::<u32>().map_err(|_| format!("Exim has no user {text:?}"));
        let who = Account::of(id(uid)?, id(gid)?);
        Ok(EximSettings { config: config.into(), spool: spool.into(), who })
    }

    /// What the configuration in `file`, which is the one that it reads, limits.
    pub(crate) fn rules(&self, file: &Path) -> Result<Rules, RulesError> {
        let output = self.run(&["-bP", "macros"]).map_err(RulesError::Failed)?;
        if !output.success || output.stdout.contains("<value not displayable>") {
            return Err(RulesError::Hidden(format!(
                "only root may read all of {}: its limits were not checked",
                file.display()
            )));
        }
        let own = built_in(&output.stdout);
        let printed = self.run(&["-bP", "config"]).map_err(RulesError::Failed)?;
        let printed =
            Some(&*printed.stdout).filter(|text| printed.success && text.starts_with('#'));
        Rules::read(file, own, printed).map_err(|error| {
            let denied = error.error.kind() == std::io::ErrorKind::PermissionDenied;
            if denied && !rustix::process::geteuid().is_root() {
                RulesError::Hidden(format!("the limits were not checked: {error}"))
            } else {
                RulesError::Failed(error.to_string())
            }
        })
    }

    /// The lines of its configuration that use exirate, also where the configuration is not
    /// valid; none where there is no configuration.
    pub(crate) fn references(&self) -> Result<Vec<(Position, String)>, String> {
        let config = self.config.clone().or_else(|| self.settings().ok().map(|one| one.config));
        let Some(config) = config.or_else(|| usual_configuration().map(Path::to_owned)) else {
            return Ok(Vec::new());
        };
        let none = Self { config: Some("/dev/null".into()), ..self.clone() };
        let output = none.run(&["-bP", "macros"])?;
        references(&config, built_in(&output.stdout)).map_err(|error| error.to_string())
    }
}

/// Those macros in what `exim -bP macros` prints that are built in; the others are read where
/// they are set.
fn built_in(printed: &str) -> Vec<(String, String)> {
    let own = printed.lines().filter(|line| line.starts_with('_'));
    let own = own.filter_map(|line| line.split_once('='));
    own.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Where Exim reads its configuration by default.
const CONFIGURATIONS: [&str; 5] = [
    "/etc/exim4/exim4.conf",
    GENERATED,
    "/etc/exim/exim.conf",
    "/etc/exim.conf",
    "/usr/exim/configure",
];

/// The first of these that there is: an Exim whose configuration is invalid does not say where
/// it is.
pub(crate) fn usual_configuration() -> Option<&'static Path> {
    CONFIGURATIONS.iter().map(Path::new).find(|path| path.exists())
}

/// What `exim -bV` prints.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    /// `Exim version 4.96 #2 built …`
    pub(crate) name: String,
    /// It can load libraries.
    pub(crate) dlfunc: bool,
    /// What it says of a configuration that it cannot read.
    pub(crate) complaint: Option<String>,
}

/// What Exim's configuration sets.
#[derive(Clone, Debug)]
pub(crate) struct EximSettings {
    pub(crate) config: PathBuf,
    pub(crate) spool: PathBuf,
    /// The user that Exim becomes.
    pub(crate) who: Account,
}

/// Why the rules could not be read.
#[derive(Debug)]
pub(crate) enum RulesError {
    /// Only root may read the configuration.
    Hidden(String),
    /// Anything else.
    Failed(String),
}

/// Finds an Exim: the one that is `given`, or the preferred one of this machine, with the
/// others. It is to read `config`, or the usual configuration.
pub(crate) fn find(
    given: Option<&Path>,
    config: Option<&Path>,
) -> Result<(Exim, Vec<PathBuf>), String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut others = installed(&path);
    if rustix::process::geteuid().is_root() {
        others.retain(|program| command::is_only_roots(program));
    }
    let program = match given {
        Some(given) => command::named(given, &path).ok_or_else(|| {
            format!(
                "--exim {}: there is no such program; expected the path of Exim, such as \
                 /usr/sbin/exim4",
                given.display()
            )
        })?,
        None => others.first().cloned().ok_or(
            "cannot find Exim: neither exim4 nor exim is in PATH or in /usr/sbin; \
             use --exim PROGRAM",
        )?,
    };
    let config = match config {
        None => None,
        Some(config) => {
            Some(config.canonicalize().map_err(|e| format!("--config {}: {e}", config.display()))?)
        }
    };
    let others = if given.is_none() { others.split_off(1) } else { Vec::new() };
    Ok((Exim { program, config }, others))
}

/// The Exims on this machine, each once, the preferred one first.
pub(crate) fn installed(path: &OsStr) -> Vec<PathBuf> {
    let mut found: Vec<(PathBuf, PathBuf)> = Vec::new();
    let places = std::env::split_paths(path).chain(PLACES.iter().map(PathBuf::from));
    for place in places.filter(|place| place.is_absolute()) {
        for name in NAMES {
            let program = place.join(name);
            let Ok(real) = program.canonicalize() else { continue };
            if command::is_program(&real) && !found.iter().any(|(_, known)| *known == real) {
                found.push((program, real));
            }
        }
    }
    found.into_iter().map(|(program, _)| program).collect()
}

/// What `exim -bV` says of dlfunc.
fn supports_dlfunc(version: &str) -> bool {
    let support = version.lines().filter_map(|line| line.strip_prefix("Support for:"));
    support.flat_map(str::split_whitespace).any(|word| word == "Expand_dlfunc")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mta::command::named;

    #[test]
    fn each_program_is_found_once() {
        let folder = tempfile::tempdir().unwrap();
        let exim = folder.path().join("exim4");
        std::fs::copy("/bin/true", &exim).unwrap();
        std::os::unix::fs::symlink("exim4", folder.path().join("exim")).unwrap();
        let found = installed(folder.path().as_os_str());
        assert_eq!(found.iter().filter(|p| p.starts_with(folder.path())).count(), 1);
        assert_eq!(found.first(), Some(&exim));
        assert_eq!(named(Path::new("exim4"), folder.path().as_os_str()), Some(exim));
        assert_eq!(named(Path::new("exim5"), folder.path().as_os_str()), None);
    }

    #[test]
    fn dlfunc_is_a_word_of_its_own() {
        assert!(supports_dlfunc("Exim version 4.96\nSupport for: IPv6 Expand_dlfunc PAM\n"));
        assert!(!supports_dlfunc("Exim version 4.96\nSupport for: IPv6 PAM\n"));
        assert!(!supports_dlfunc("Exim version 4.96\nRouters: Expand_dlfunc\n"));
    }
}
