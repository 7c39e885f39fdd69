//! Reads the files of a configuration line by line, as Exim does.

use std::io;
use std::path::Path;
use std::rc::Rc;

use super::line::{Absent, Include, Line, Macro, Position, ReadError, Refused, Source};

/// Files that may include one another, one inside the other.
const DEPTH_MAX: usize = 32;
/// Lines that are read: a configuration that includes itself has an end.
const LINES_MAX: usize = 1_000_000;

/// One `.ifdef` … `.endif`.
#[derive(Clone, Copy, Debug)]
struct Conditional {
    /// The lines that follow count.
    active: bool,
    /// One of its branches was taken, or must not be, as the whole is skipped.
    decided: bool,
}

/// Reads files line by line.
#[derive(Default)]
pub(super) struct Reader {
    source: Source,
    conditionals: Vec<Conditional>,
    lines_read: usize,
    /// Goes on where a file that is included does not exist.
    lenient: bool,
    /// A line that ends in a backslash, and goes on in another file as well.
    unfinished: Option<Line>,
}

impl Reader {
    /// Reads `files`, one after the other. `lenient` goes on where one that is included does not
    /// exist.
    pub(super) fn read(
        files: &[&Path],
        predefined: impl IntoIterator<Item = (String, String)>,
        lenient: bool,
    ) -> Result<Source, ReadError> {
        let mut reader = Self { lenient, ..Self::default() };
        let own = |(name, value)| Macro { name, value, position: None, used: false };
        reader.source.macros.extend(predefined.into_iter().map(own));
        for file in files {
            reader.file(file, None, 0)?;
        }
        if let Some(last) = reader.unfinished.take() {
            reader.logical(last);
        }
        Ok(reader.source)
    }

    fn file(
        &mut self,
        path: &Path,
        included: Option<Position>,
        depth: usize,
    ) -> Result<(), ReadError> {
        let wrong = |error| ReadError { included: included.clone(), path: path.into(), error };
        let bytes = std::fs::read(path).map_err(wrong)?;
        let text = String::from_utf8_lossy(&bytes);
        let file: Rc<Path> = path.into();
        let mut pieces = Pieces::default();
        self.source.files.push(path.to_owned());
        for (n, raw) in text.lines().enumerate() {
            self.lines_read += 1;
            if self.lines_read > LINES_MAX {
                return Err(wrong(io::Error::other("the configuration has too many lines")));
            }
            let line = raw.trim_start();
            if line.starts_with('#') {
                pieces.comment(line);
                continue;
            }
            let directive = line.starts_with('.').then(|| line.split_whitespace().next()).flatten();
            if let Some(directive @ (".ifdef" | ".ifndef" | ".elifdef" | ".elifndef")) = directive {
                self.condition(directive, line);
                continue;
            }
            if let Some(".else" | ".endif") = directive {
                self.end_of_branch(line.starts_with(".endif"));
                continue;
            }
            if !self.is_active() {
                continue;
            }
            let (expanded, _) = self.expand(line, self.unfinished.is_none());
            let expanded = expanded.trim_start();
            // A macro may stand for a comment.
            if expanded.starts_with('#') {
                continue;
            }
            let position =
                Position { file: file.clone(), line: n + 1, piece: pieces.current.clone() };
            let written = (position.clone(), raw.trim().to_owned());
            if let Some((optional, name)) = included_by(expanded) {
                self.include(optional, name, written, depth)?;
                continue;
            }
            // An empty line ends one that is continued.
            let mut logical =
                self.unfinished.take().unwrap_or(Line { position, ..Line::default() });
            logical.text.push_str(expanded);
            logical.written.push(written);
            logical.text.truncate(logical.text.trim_end().len());
            let goes_on = logical.text.ends_with('\\');
            if goes_on {
                logical.text.pop();
            }
            match (logical.text.is_empty(), goes_on) {
                (true, _) => {}
                (false, true) => self.unfinished = Some(logical),
                (false, false) => self.logical(logical),
            }
        }
        Ok(())
    }

    /// `.include FILE`, or `.include_if_exists FILE`. What is relative is in the directory of
    /// the file that includes it.
    fn include(
        &mut self,
        optional: bool,
        name: &str,
        (position, written): (Position, String),
        depth: usize,
    ) -> Result<(), ReadError> {
        let path = position.file.parent().unwrap_or(Path::new("/")).join(name);
        let include = Include { position: position.clone(), written, path: path.clone() };
        self.source.includes.push(include);
        if (optional || self.lenient) && path.metadata().is_err() {
            self.source.absent.push(Absent { position, path });
            return Ok(());
        }
        if depth >= DEPTH_MAX {
            let error = io::Error::other("too many files include one another");
            return Err(ReadError { included: Some(position), path, error });
        }
        self.file(&path, Some(position), depth + 1)
    }

    fn is_active(&self) -> bool {
        self.conditionals.iter().all(|conditional| conditional.active)
    }

    /// `.ifdef TEXT` holds where TEXT has a macro in it.
    fn condition(&mut self, directive: &str, line: &str) {
        let text = line.strip_prefix(directive).unwrap_or_default();
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        self.source.tested.extend(words.filter(|word| !word.is_empty()).map(str::to_owned));
        let (_, found) = self.expand(text, false);
        let holds = found != directive.ends_with("ifndef");
        if directive.starts_with(".el") {
            if let Some(current) = self.conditionals.last_mut() {
                current.active = !current.decided && holds;
                current.decided |= holds;
            }
        } else {
            let outer = self.is_active();
            self.conditionals.push(Conditional { active: holds, decided: holds || !outer });
        }
    }

    fn end_of_branch(&mut self, last: bool) {
        if last {
            self.conditionals.pop();
        } else if let Some(current) = self.conditionals.last_mut() {
            current.active = !current.decided;
            current.decided = true;
        }
    }

    /// `line` with its macros replaced, and whether there were any. Each macro
    /// is looked for once, in the order of their definitions, so that a later
    /// one is found in what an earlier one stands for.
    fn expand(&mut self, line: &str, first: bool) -> (String, bool) {
        let start = definition(line).filter(|_| first).map_or(0, |(_, at)| at);
        let (head, rest) = line.split_at_checked(start).unwrap_or((line, ""));
        let (mut text, mut found) = (rest.to_owned(), false);
        for known in &mut self.source.macros {
            if !known.name.is_empty() && text.contains(&known.name) {
                text = text.replace(&known.name, &known.value);
                known.used = true;
                found = true;
            }
        }
        (format!("{head}{text}"), found)
    }

    fn logical(&mut self, line: Line) {
        if let Some((name, at)) = definition(&line.text) {
            let value = line.text.get(at..).unwrap_or_default();
            let value = value.trim_start_matches('=').trim().to_owned();
            self.define(name.to_owned(), value, &line.position);
        }
        self.source.texts.push(line);
    }

    fn define(&mut self, name: String, value: String, position: &Position) {
        let macros = &mut self.source.macros;
        let is_part = |known: &&Macro| known.name != name && name.contains(&known.name);
        if let Some(known) = macros.iter().find(is_part) {
            self.source.refused.push(Refused {
                position: position.clone(),
                name: name.clone(),
                earlier: known.name.clone(),
                earlier_position: known.position.clone(),
            });
        }
        match macros.iter_mut().find(|known| known.name == name) {
            Some(known) => known.value = value,
            None => {
                let position = Some(position.clone());
                macros.push(Macro { name, value, position, used: false });
            }
        }
    }
}

/// Whether the file of an `.include` may be missing, and its name.
fn included_by(line: &str) -> Option<(bool, &str)> {
    let rest = line.strip_prefix(".include")?;
    let (optional, name) = match rest.strip_prefix("_if_exists") {
        Some(name) => (true, name),
        None => (false, rest),
    };
    if !name.starts_with(char::is_whitespace) {
        return None;
    }
    let name = name.trim();
    let inside = name.strip_prefix('"').and_then(|name| name.strip_suffix('"'));
    Some((optional, inside.unwrap_or(name)))
}

/// The name that a line defines as a macro, and where its `=` stands.
pub(in crate::mta::exim) fn definition(line: &str) -> Option<(&str, usize)> {
    if !line.starts_with(|c: char| c.is_ascii_uppercase()) {
        return None;
    }
    let end = line.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
    let (name, rest) = line.split_at(end);
    let blanks = rest.len() - rest.trim_start().len();
    rest.trim_start().starts_with('=').then_some((name, end + blanks))
}

/// The comments by which Debian's `update-exim4.conf` marks the pieces of a
/// split configuration.
#[derive(Default)]
struct Pieces {
    unsplit: bool,
    current: Option<Rc<str>>,
}

impl Pieces {
    fn comment(&mut self, line: &str) {
        const FOLDERS: [&str; 7] =
            ["main", "acl", "router", "transport", "retry", "rewrite", "auth"];
        self.unsplit |= line.starts_with("# non-split config");
        let Some(name) = line.strip_prefix("### ").filter(|_| !self.unsplit) else { return };
        let name = name.trim();
        if name.starts_with("end ") {
            self.current = None;
        } else if let Some((folder, file)) = name.split_once('/')
            && FOLDERS.contains(&folder)
            && !file.contains([' ', '/'])
        {
            self.current = Some(name.into());
        }
    }
}
