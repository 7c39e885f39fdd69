//! What is wrong with a file, and where.

use std::fmt;
use std::path::{Path, PathBuf};

use super::Location;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The file cannot be used.
    Error,
    /// It can, but does probably not do what was meant.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
        })
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Where.
    pub at: Location,
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong, and what would be right.
    pub message: String,
}

/// All that is wrong, in the order of the files and lines.
#[derive(Clone, Debug, Default)]
pub struct Diagnostics {
    /// The files that locations name.
    pub files: Vec<PathBuf>,
    list: Vec<Diagnostic>,
}

impl Diagnostics {
    /// None yet, of the file at `path`.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        Self { files: vec![path.into()], list: Vec::new() }
    }

    /// Adds an error.
    pub fn error(&mut self, at: Location, message: impl Into<String>) {
        self.list.push(Diagnostic { at, severity: Severity::Error, message: message.into() });
    }

    /// Adds a warning.
    pub fn warning(&mut self, at: Location, message: impl Into<String>) {
        self.list.push(Diagnostic { at, severity: Severity::Warning, message: message.into() });
    }

    /// What was read as the file `from` is shown as `to`, in the messages that name a place as well.
    pub fn rename(&mut self, from: &Path, to: &Path) {
        self.files.iter_mut().filter(|one| *one == from).for_each(|one| *one = to.into());
        let [from, to] = [from, to].map(|path| format!("first at {}:", path.display()));
        for one in &mut self.list {
            one.message = one.message.replace(&from, &to);
        }
    }

    /// Whether there is an error.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.list.iter().any(|one| one.severity == Severity::Error)
    }

    /// All of them, by file, line and column; errors before warnings.
    #[must_use]
    pub fn sorted(mut self) -> Vec<Diagnostic> {
        self.list.sort_by(|one, other| {
            (one.at, one.severity, &one.message).cmp(&(other.at, other.severity, &other.message))
        });
        self.list.dedup();
        self.list
    }
}

/// `FILE:LINE:COLUMN`; where nothing is known but the file, that alone.
#[must_use]
pub fn place(files: &[PathBuf], at: Location) -> String {
    let file = files.get(usize::from(at.file)).map_or(Path::new("-"), PathBuf::as_path).display();
    match at.line {
        0 => file.to_string(),
        line => format!("{file}:{line}:{}", at.column),
    }
}

/// The known word that `unknown` is probably a misspelling of.
#[must_use]
pub fn similar<'a>(unknown: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const THRESHOLD: f64 = 0.8;
    let unknown = unknown.to_lowercase();
    let similarity = |known: &str| {
        let known = known.to_lowercase();
        // Two letters exchanged in a short word.
        let slip = known.len() > 2 && strsim::osa_distance(&unknown, &known) == 1;
        strsim::jaro_winkler(&unknown, &known).max(if slip { 0.95 } else { 0.0 })
    };
    known
        .into_iter()
        .map(|known| (similarity(known), known))
        .filter(|(similarity, _)| *similarity >= THRESHOLD)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, known)| known)
}

/// `; did you mean "chain"? Allowed: …` for a word that is not among `allowed`.
#[must_use]
pub fn allowed_instead(unknown: &str, allowed: &[&str]) -> String {
    let list = allowed.join(", ");
    match similar(unknown, allowed.iter().copied()) {
        Some(known) => format!("did you mean {known:?}? Allowed: {list}"),
        None => format!("allowed: {list}"),
    }
}
