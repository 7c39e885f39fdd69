//! Debian's layout: `update-exim4.conf` makes what Exim reads of the files in `/etc/exim4`.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::mta::exim::{Exim, Rules, RulesError};
use crate::setup::SetupError;
use crate::setup::files::{self, Contents};
use crate::sys::{child, users};

const UPDATE: &str = "/usr/sbin/update-exim4.conf";
const MACROS: &str = "/etc/exim4/exim4.conf.localmacros";
/// Exim's group.
pub(super) const GROUP: &str = "Debian-exim";
/// The directories of the split configuration, in the order in which they are read.
const SECTIONS: [&str; 7] = ["main", "acl", "router", "transport", "retry", "rewrite", "auth"];

/// Exim's configuration on Debian.
#[derive(Clone, Debug)]
pub(super) struct Debian {
    /// `/etc/exim4`
    pub(super) etc: PathBuf,
    /// Whether it is the split one.
    pub(super) split: bool,
}

impl Debian {
    /// Looks at the directory, which must be Debian's; `None` if it is not.
    pub(super) fn look(etc: &Path) -> Option<Self> {
        let settings = fs::read_to_string(etc.join("update-exim4.conf.conf")).ok()?;
        if !Path::new(UPDATE).exists() {
            return None;
        }
        let split = setting(&settings, "dc_use_split_config") == "true";
        Some(Self { etc: etc.to_owned(), split })
    }

    /// A setting of `update-exim4.conf.conf`.
    pub(super) fn setting(&self, name: &str) -> String {
        let text = fs::read_to_string(self.etc.join("update-exim4.conf.conf"));
        setting(&text.unwrap_or_default(), name)
    }

    pub(super) fn template(&self) -> PathBuf {
        self.etc.join("exim4.conf.template")
    }

    pub(super) fn local_macros(&self) -> PathBuf {
        self.etc.join("exim4.conf.localmacros")
    }

    /// The files that are read, in this order.
    pub(super) fn sources(&self) -> Vec<PathBuf> {
        if !self.split {
            return [self.local_macros(), self.template()]
                .into_iter()
                .filter(|f| f.exists())
                .collect();
        }
        let mut sources = Vec::new();
        for section in SECTIONS {
            let directory = self.etc.join("conf.d").join(section);
            let entries = directory.read_dir().into_iter().flatten().flatten();
            let mut names: Vec<String> =
                entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
            let is_read = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            names.retain(|name| name.chars().all(is_read));
            names.sort_unstable();
            sources.extend(names.iter().map(|name| directory.join(name)).filter(|f| f.is_file()));
        }
        sources
    }

    /// What Exim would read if these files were so.
    pub(super) fn candidate(&self, changed: &Contents) -> Result<Candidate, SetupError> {
        let candidate = Candidate::make()?;
        let copy = candidate.directory.join("etc");
        self.copy(&copy, changed)?;
        let output = child::command(OsStr::new(UPDATE))
            .args(["--removecomments", "-d"])
            .arg(&copy)
            .arg("-o")
            .arg(&candidate.config)
            .stdin(Stdio::null())
            .output();
        let output = output.map_err(SetupError::file("run", Path::new(UPDATE)))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(SetupError::Unfit(format!("update-exim4.conf fails: {}", said.trim())));
        }
        candidate.follow(&copy, changed)?;
        Ok(candidate)
    }

    /// Copies the sources, with these changes.
    fn copy(&self, copy: &Path, changed: &Contents) -> Result<(), SetupError> {
        for section in SECTIONS {
            let directory = copy.join("conf.d").join(section);
            fs::create_dir_all(&directory).map_err(SetupError::file("make", &directory))?;
        }
        let mut all: Contents = Contents::new();
        let settings = self.etc.join("update-exim4.conf.conf");
        for path in self.sources().into_iter().chain([settings, self.template()]) {
            let bytes = files::read(&path)?;
            all.insert(path, bytes);
        }
        all.extend(changed.clone());
        // Debian's script looks for that of the copy only where there is one in the real place.
        let macros = all.get(&self.local_macros()).cloned().flatten();
        if let (Some(macros), false, false) = (macros, self.split, Path::new(MACROS).exists()) {
            let template = all.entry(self.template()).or_default();
            *template = Some([&*macros, template.as_deref().unwrap_or_default()].concat());
        }
        for (path, bytes) in &all {
            if let (Ok(below), Some(bytes)) = (path.strip_prefix(&self.etc), bytes) {
                write(&copy.join(below), bytes)?;
            }
        }
        Ok(())
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), SetupError> {
    let parent = path.parent().map_or(Ok(()), fs::create_dir_all);
    parent.and_then(|()| fs::write(path, bytes)).map_err(SetupError::file("write", path))
}

/// The value of a variable of the shell.
fn setting(text: &str, name: &str) -> String {
    let mut lines =
        text.lines().filter_map(|line| line.trim().strip_prefix(name)?.strip_prefix('='));
    lines.next_back().unwrap_or_default().trim_matches(['\'', '"', ' ']).to_owned()
}

/// A configuration beside the one in use; it is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Candidate {
    directory: PathBuf,
    pub(super) config: PathBuf,
}

impl Candidate {
    fn make() -> Result<Self, SetupError> {
        let name = format!("exirate-setup-{:016x}", rand::random::<u64>());
        let directory = std::env::temp_dir().join(name);
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&directory)
            .map_err(SetupError::file("make the directory", &directory))?;
        // Exim reads what a configuration includes as its own user; nobody else may.
        let group = users::group_id_of(GROUP.as_ref());
        chown(&directory, None, group)
            .and_then(|()| fs::set_permissions(&directory, Permissions::from_mode(0o750)))
            .map_err(SetupError::file("change", &directory))?;
        let config = directory.join("exim.conf");
        Ok(Self { directory, config })
    }

    /// Has it include the changed files in place of those in use.
    fn follow(&self, copy: &Path, changed: &Contents) -> Result<(), SetupError> {
        let mut text = fs::read(&self.config).map_err(SetupError::file("read", &self.config))?;
        for (number, (path, bytes)) in changed.iter().enumerate() {
            let Some(bytes) = bytes else { continue };
            let file = copy.join(format!("changed{number}"));
            let (old, new) = (path.as_os_str().as_encoded_bytes(), file.as_os_str());
            if memchr::memmem::find(&text, old).is_some() {
                write(&file, bytes)?;
                text = replaced(&text, old, new.as_encoded_bytes());
            }
        }
        fs::write(&self.config, text).map_err(SetupError::file("write", &self.config))
    }

    /// Has Exim check it.
    pub(super) fn check(&self, exim: &Exim) -> Result<(), SetupError> {
        let output = self.exim(exim).run(&["-bV"]).map_err(SetupError::Unfit)?;
        if output.success {
            return Ok(());
        }
        let said = output.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        Err(SetupError::Unfit(format!("Exim does not accept the configuration: {said}")))
    }

    /// What it limits.
    pub(super) fn rules(&self, exim: &Exim) -> Result<Rules, SetupError> {
        self.exim(exim).rules(&self.config).map_err(|error| match error {
            RulesError::Hidden(text) | RulesError::Failed(text) => SetupError::Unfit(text),
        })
    }

    /// Whether `text`, which Exim reads, says the same, but for comments.
    pub(super) fn is_same(&self, text: &[u8]) -> Result<bool, SetupError> {
        let own = fs::read(&self.config).map_err(SetupError::file("read", &self.config))?;
        let lines = |text: &[u8]| {
            let lines = String::from_utf8_lossy(text);
            let lines =
                lines.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        Ok(lines(&own) == lines(text))
    }

    fn exim(&self, exim: &Exim) -> Exim {
        Exim { program: exim.program.clone(), config: Some(self.config.clone()) }
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn replaced(text: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some(at) = memchr::memmem::find(rest, old) {
        out.extend(rest.get(..at).unwrap_or_default());
        out.extend(new);
        rest = rest.get(at + old.len()..).unwrap_or_default();
    }
    out.extend(rest);
    out
}
