//! What is read: lines, macros, and where they stand.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

/// Where something stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub(crate) struct Position {
    #[serde(serialize_with = "shown")]
    pub(crate) file: Rc<Path>,
    pub(crate) line: usize,
    /// The piece of Debian's split configuration that the line was copied from,
    /// below `/etc/exim4/conf.d`.
    #[serde(skip)]
    pub(crate) piece: Option<Rc<str>>,
}

fn shown<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)?;
        match &self.piece {
            Some(piece) => write!(f, " (from conf.d/{piece})"),
            None => Ok(()),
        }
    }
}

/// A line of the configuration after includes, conditionals, macros and
/// continuations.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) position: Position,
    /// The section: empty for the main one, else what stands behind `begin`.
    pub(crate) section: Rc<str>,
    /// The ACL that the line belongs to, in the section of ACLs.
    pub(crate) acl: Option<Rc<str>>,
    pub(crate) text: String,
    /// The lines of files that it is made of, as they stand there.
    pub(crate) written: Vec<(Position, String)>,
}

/// An `.include` or `.include_if_exists`.
#[derive(Clone, Debug)]
pub(crate) struct Include {
    pub(crate) position: Position,
    /// As it is written.
    pub(crate) written: String,
    /// What it includes.
    pub(crate) path: PathBuf,
}

/// A macro of the configuration.
#[derive(Clone, Debug)]
pub(crate) struct Macro {
    pub(crate) name: String,
    pub(crate) value: String,
    /// Where it is defined; `None` for those that Exim has by itself.
    pub(crate) position: Option<Position>,
    /// Whether its name was replaced anywhere, or tested by `.ifdef`.
    pub(crate) used: bool,
}

/// A file that `.include_if_exists` names and that does not exist.
#[derive(Clone, Debug)]
pub(crate) struct Absent {
    pub(crate) position: Position,
    pub(crate) path: PathBuf,
}

/// A macro that Exim refuses, and its whole configuration with it: its name has that
/// of an earlier macro in it.
#[derive(Clone, Debug)]
pub(crate) struct Refused {
    pub(crate) position: Position,
    pub(crate) name: String,
    pub(crate) earlier: String,
    /// Where the earlier one is defined; `None` for those that Exim has by itself.
    pub(crate) earlier_position: Option<Position>,
}

/// All of a configuration.
#[derive(Debug, Default)]
pub(crate) struct Source {
    pub(crate) lines: Vec<Line>,
    pub(crate) macros: Vec<Macro>,
    pub(crate) absent: Vec<Absent>,
    pub(crate) refused: Vec<Refused>,
    /// The words that `.ifdef` and its like test.
    pub(crate) tested: BTreeSet<String>,
    /// The files that were read, in this order.
    pub(crate) files: Vec<PathBuf>,
    pub(crate) includes: Vec<Include>,
    /// All lines as Exim keeps them, definitions of macros and `begin` as well.
    pub(crate) texts: Vec<Line>,
    /// Exim prints lines that are not found in the files: their positions are nearby ones.
    pub(crate) unplaced: bool,
}

/// A file of the configuration that could not be read.
#[derive(Debug)]
pub(crate) struct ReadError {
    /// The line that includes it, if it is not the first file.
    pub(crate) included: Option<Position>,
    pub(crate) path: PathBuf,
    pub(crate) error: io::Error,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(position) = &self.included {
            write!(f, "{position}: ")?;
        }
        write!(f, "cannot read {}: {}", self.path.display(), self.error)
    }
}

impl Default for Line {
    fn default() -> Self {
        let position = Position { file: Path::new("").into(), line: 0, piece: None };
        Self { position, section: "".into(), acl: None, text: String::new(), written: Vec::new() }
    }
}
