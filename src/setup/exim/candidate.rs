//! What Debian's Exim would read, made beside what it reads, and checked by Exim.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::mta::exim::debian::{Debian, ETC, LOCAL_MACROS, SECTIONS, SETTINGS};
use crate::mta::exim::{Exim, Rules};
use crate::setup::SetupError;
use crate::setup::files::{self, Contents, Temporary};
use crate::sys::{child, users};

/// What generates it.
pub(super) const UPDATE: &str = "/usr/sbin/update-exim4.conf";
/// Exim's group.
pub(super) const GROUP: &str = "Debian-exim";

/// A configuration beside the one in use.
#[derive(Debug)]
pub(super) struct Candidate(Temporary);

impl Candidate {
    /// What Exim would read if these files were so.
    pub(super) fn of(debian: &Debian, changed: &Contents) -> Result<Self, SetupError> {
        let directory = Temporary::make(0o700)?;
        // Exim reads what a configuration includes as its own user; nobody else may.
        let path = directory.path();
        chown(path, None, users::group_id_of(GROUP.as_ref()))
            .and_then(|()| fs::set_permissions(path, Permissions::from_mode(0o750)))
            .map_err(SetupError::file("change", path))?;
        let copy = path.join("etc");
        copy_sources(debian, &copy, changed)?;
        let candidate = Self(directory);
        let output = child::command(OsStr::new(UPDATE))
            .args(["--removecomments", "-d"])
            .arg(&copy)
            .arg("-o")
            .arg(candidate.config())
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

    /// Has it include the changed files in place of those in use.
    fn follow(&self, copy: &Path, changed: &Contents) -> Result<(), SetupError> {
        let config = self.config();
        let mut text = fs::read(&config).map_err(SetupError::file("read", &config))?;
        for (number, (path, bytes)) in changed.iter().enumerate() {
            let Some(bytes) = bytes else { continue };
            let file = copy.join(format!("changed{number}"));
            let (old, new) = (path.as_os_str().as_encoded_bytes(), file.as_os_str());
            if memchr::memmem::find(&text, old).is_some() {
                write(&file, bytes)?;
                text = replaced(&text, old, new.as_encoded_bytes());
            }
        }
        fs::write(&config, text).map_err(SetupError::file("write", &config))
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
        Ok(self.exim(exim).rules(&self.config())?)
    }

    /// Whether `text`, which Exim reads, says the same, but for comments.
    pub(super) fn is_same(&self, text: &[u8]) -> Result<bool, SetupError> {
        let config = self.config();
        let own = fs::read(&config).map_err(SetupError::file("read", &config))?;
        let lines = |text: &[u8]| {
            let lines = String::from_utf8_lossy(text);
            let lines =
                lines.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        Ok(lines(&own) == lines(text))
    }

    fn config(&self) -> PathBuf {
        self.0.path().join("exim.conf")
    }

    fn exim(&self, exim: &Exim) -> Exim {
        Exim { program: exim.program.clone(), config: Some(self.config()) }
    }
}

/// Copies the sources, with these changes.
fn copy_sources(debian: &Debian, copy: &Path, changed: &Contents) -> Result<(), SetupError> {
    for section in SECTIONS {
        let directory = copy.join("conf.d").join(section);
        fs::create_dir_all(&directory).map_err(SetupError::file("make", &directory))?;
    }
    let mut all: Contents = Contents::new();
    let settings = debian.etc.join(SETTINGS);
    let template = debian.split.then(|| debian.template());
    for path in debian.sources().into_iter().chain([settings]).chain(template) {
        let bytes = files::read(&path)?;
        all.insert(path, bytes);
    }
    all.extend(changed.clone());
    // Debian's script looks for that of the copy only where there is one in the real place.
    let macros = all.get(&debian.local_macros()).cloned().flatten();
    let is_found = Path::new(ETC).join(LOCAL_MACROS).exists();
    if let (Some(macros), false, false) = (macros, debian.split, is_found) {
        let template = all.entry(debian.template()).or_default();
        *template = Some([&*macros, template.as_deref().unwrap_or_default()].concat());
    }
    for (path, bytes) in &all {
        if let (Ok(below), Some(bytes)) = (path.strip_prefix(&debian.etc), bytes) {
            // What is read in the place of `NAME` is `NAME` in the copy.
            let is_rule = below.extension().is_some_and(|extension| extension == "rul");
            let below = if is_rule { below.with_extension("") } else { below.to_owned() };
            write(&copy.join(below), bytes)?;
        }
    }
    Ok(())
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), SetupError> {
    let parent = path.parent().map_or(Ok(()), fs::create_dir_all);
    parent.and_then(|()| fs::write(path, bytes)).map_err(SetupError::file("write", path))
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
