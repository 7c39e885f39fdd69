//! Read Exim's configuration as Exim does: `.include`, conditionals, macros and
//! continued lines, with the file and the line of everything that remains.
//!
//! `exim -bP config` prints the same without line numbers, and without the files
//! that `.include_if_exists` did not find.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Files that may include one another, one inside the other.
const DEPTH_MAX: usize = 32;
/// Lines that are read: a configuration that includes itself has an end.
const LINES_MAX: usize = 1_000_000;

/// Where something stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) file: Rc<Path>,
    pub(crate) line: usize,
    /// The piece of Debian's split configuration that the line was copied from,
    /// below `/etc/exim4/conf.d`.
    pub(crate) piece: Option<Rc<str>>,
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
    /// All lines as Exim keeps them, definitions of macros and `begin` as well.
    texts: Vec<(Position, String)>,
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

impl Source {
    /// Reads `file` and what it includes. `predefined` are Exim's own macros.
    pub(crate) fn read(
        file: &Path,
        predefined: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ReadError> {
        let mut reader = Reader::default();
        reader.source.macros.extend(predefined.into_iter().map(|(name, value)| Macro {
            name,
            value,
            position: None,
            used: false,
        }));
        reader.file(file, None, 0)?;
        if let Some(last) = reader.unfinished.take() {
            reader.logical(last);
        }
        Ok(reader.source)
    }

    /// Puts the lines that Exim read, as `exim -bP config` prints them in `printed`, in place
    /// of those that were read here. Returns whether they differ.
    pub(crate) fn settle(&mut self, printed: &str) -> bool {
        let theirs =
            printed.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
        let theirs: Vec<&str> = theirs.collect();
        // Exim prints several blanks as one.
        let is_same =
            |ours: &str, theirs: &str| ours.split_whitespace().eq(theirs.split_whitespace());
        let mut pairs = self.texts.iter().zip(&theirs);
        if self.texts.len() == theirs.len() && pairs.all(|((_, ours), text)| is_same(ours, text)) {
            return false;
        }
        let Some((first, _)) = self.texts.first().cloned() else { return false };
        let mut reader = Reader { source: std::mem::take(self), ..Reader::default() };
        reader.source.lines.clear();
        let texts = std::mem::take(&mut reader.source.texts);
        let (mut texts, mut position) = (texts.iter(), first);
        for text in theirs {
            if definition(text).is_some_and(|(name, _)| reader.source.macro_named(name).is_some()) {
                continue;
            }
            // Where it stands, or near: what was read here only is passed over.
            let mut ahead = texts.clone();
            if let Some((at, _)) = ahead.find(|(_, known)| is_same(known, text)) {
                (position, texts) = (at.clone(), ahead);
            }
            let line =
                Line { position: position.clone(), text: text.to_owned(), ..Line::default() };
            reader.logical(line);
        }
        *self = reader.source;
        true
    }

    /// The value of a macro.
    pub(crate) fn macro_named(&self, name: &str) -> Option<&Macro> {
        self.macros.iter().find(|known| known.name == name)
    }

    /// The value of an option of the main section, such as `acl_smtp_rcpt`, and
    /// where it is set.
    pub(crate) fn main_options(&self) -> impl Iterator<Item = (&str, Cow<'_, str>, &Position)> {
        self.lines.iter().filter(|line| line.section.is_empty()).filter_map(|line| {
            let (name, value) = line.text.split_once('=')?;
            let name = name.split_whitespace().find(|word| *word != "hide")?;
            Some((name, unquoted(value.trim()), &line.position))
        })
    }
}

/// A value as Exim takes it, which may be in double quotes.
fn unquoted(value: &str) -> Cow<'_, str> {
    let Some(inside) = value.strip_prefix('"') else { return Cow::Borrowed(value) };
    let (mut text, mut chars) = (String::new(), inside.chars());
    while let Some(c) = chars.next() {
        match c {
            '"' => break,
            '\\' => match chars.next() {
                Some('n') => text.push('\n'),
                Some('r') => text.push('\r'),
                Some('t') => text.push('\t'),
                other => text.extend(other),
            },
            _ => text.push(c),
        }
    }
    Cow::Owned(text)
}

/// One `.ifdef` … `.endif`.
#[derive(Clone, Copy, Debug)]
struct Conditional {
    /// The lines that follow count.
    active: bool,
    /// One of its branches was taken, or must not be, as the whole is skipped.
    decided: bool,
}

#[derive(Default)]
struct Reader {
    source: Source,
    section: Rc<str>,
    acl: Option<Rc<str>>,
    conditionals: Vec<Conditional>,
    lines_read: usize,
    /// A line that ends in a backslash, and goes on in another file as well.
    unfinished: Option<Line>,
}

impl Default for Line {
    fn default() -> Self {
        let position = Position { file: Path::new("").into(), line: 0, piece: None };
        Self { position, section: "".into(), acl: None, text: String::new() }
    }
}

impl Reader {
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
            if let Some((optional, name)) = included_by(expanded) {
                self.include(optional, name, position, depth)?;
                continue;
            }
            // An empty line ends one that is continued.
            let mut logical =
                self.unfinished.take().unwrap_or(Line { position, ..Line::default() });
            logical.text.push_str(expanded);
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
        position: Position,
        depth: usize,
    ) -> Result<(), ReadError> {
        let path = position.file.parent().unwrap_or(Path::new("/")).join(name);
        if optional && path.metadata().is_err() {
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

    fn logical(&mut self, mut line: Line) {
        self.source.texts.push((line.position.clone(), line.text.clone()));
        if let Some((name, at)) = definition(&line.text) {
            let value = line.text.get(at..).unwrap_or_default();
            let value = value.trim_start_matches('=').trim().to_owned();
            let name = name.to_owned();
            let is_part = |known: &&Macro| known.name != name && name.contains(&known.name);
            if let Some(known) = self.source.macros.iter().find(is_part) {
                self.source.refused.push(Refused {
                    position: line.position.clone(),
                    name: name.clone(),
                    earlier: known.name.clone(),
                    earlier_position: known.position.clone(),
                });
            }
            match self.source.macros.iter_mut().find(|known| known.name == name) {
                Some(known) => known.value = value,
                None => self.source.macros.push(Macro {
                    name,
                    value,
                    position: Some(line.position),
                    used: false,
                }),
            }
            return;
        }
        if let Some((begin, name)) = line.text.split_once(' ')
            && begin.eq_ignore_ascii_case("begin")
        {
            self.section = section(name);
            self.acl = None;
            return;
        }
        if &*self.section == "acl" {
            let end = line.text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let (name, rest) = line.text.split_at(end.unwrap_or(line.text.len()));
            if !name.is_empty() && rest.trim_start().starts_with(':') {
                self.acl = Some(name.into());
                // Exim ignores the rest of the line.
                line.text.clear();
            }
        }
        line.section = self.section.clone();
        line.acl = self.acl.clone();
        self.source.lines.push(line);
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

/// The name of a section: Exim takes it in any case, and with or without an `s` at its end.
fn section(name: &str) -> Rc<str> {
    let name = name.trim().to_ascii_lowercase();
    match name.strip_suffix('s').unwrap_or(&name) {
        one @ ("authenticator" | "router" | "transport") => format!("{one}s").into(),
        one => one.into(),
    }
}

/// The name that a line defines as a macro, and where its `=` stands.
fn definition(line: &str) -> Option<(&str, usize)> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn read(files: &[(&str, &str)]) -> (tempfile::TempDir, Source) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let text = text.replace("DIR", &folder.path().to_string_lossy());
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let first = folder.path().join(files[0].0);
        let source = Source::read(&first, [("_HAVE_X".to_owned(), "y".to_owned())]).unwrap();
        (folder, source)
    }

    fn texts(source: &Source) -> Vec<String> {
        let line = |line: &Line| {
            let acl = line.acl.as_deref().unwrap_or("-");
            let name = line.position.file.file_name().unwrap().to_string_lossy();
            format!("{name}:{} {} {acl} {}", line.position.line, line.section, line.text)
        };
        source.lines.iter().map(line).collect()
    }

    fn options(source: &Source) -> Vec<String> {
        source.main_options().map(|(name, value, _)| format!("{name} = {value}")).collect()
    }

    #[test]
    fn options_and_sections_are_written_in_several_ways() {
        let text = "a = \"b\\\"c\\\\d\" \nhide\te = f\nhide g=\nBegin ACL\ncheck:\n accept\n\
                    BEGIN  router\nr:\n";
        let (_folder, source) = read(&[("conf", text)]);
        assert_eq!(options(&source), ["a = b\"c\\d", "e = f", "g = "]);
        assert_eq!(
            texts(&source)[3..],
            ["conf:5 acl check ", "conf:6 acl check accept", "conf:8 routers - r:"]
        );
    }

    #[test]
    fn what_exim_reads_comes_first() {
        let text = "A = b\na = 1\nbegin acl\ncheck:\n  accept\n";
        let (_folder, mut source) = read(&[("conf", text)]);
        let printed = "# Exim Configuration (4.96)\n# 1 \"conf\"\nA = b\na = 1\n\nbegin acl\n\n  \
                       check:\n    accept\n";
        assert!(!source.settle(printed));
        assert!(!source.settle(&printed.replace("A = b", "A  =\tb")));
        assert!(source.settle(&printed.replace("  accept", "  deny hosts = x\n    accept")));
        assert_eq!(
            texts(&source),
            [
                "conf:2  - a = 1",
                "conf:4 acl check ",
                "conf:4 acl check deny hosts = x",
                "conf:5 acl check accept",
            ]
        );
        assert!(source.macro_named("A").is_some() && source.refused.is_empty());
    }

    #[test]
    fn includes_conditionals_macros_and_continuations_are_those_of_exim() {
        let (_folder, source) = read(&[
            (
                "conf",
                "A_LIMIT = 10 / 1h\nB_LIMIT = A_LIMIT / strict\n.ifdef _HAVE_X\nacl_smtp_rcpt = check\n\
                 .else\nacl_smtp_rcpt = other\n.endif\n.ifndef A_LIMIT\nx = 1\n.elifdef B_LIMIT\ny = 2\n\
                 .else\nz = 3\n.endif\n.include_if_exists DIR/none\nbegin acl\n\ncheck:\n\
                 \x20 .include DIR/rcpt\n  accept\nother: accept\n",
            ),
            (
                "rcpt",
                "# a comment\n  defer condition = B_LIMIT{ \\\n   # another\n    B_LIMIT } \\\n     end\n",
            ),
        ]);
        assert_eq!(
            texts(&source),
            [
                "conf:4  - acl_smtp_rcpt = check",
                "conf:11  - y = 2",
                "conf:18 acl check ",
                "rcpt:2 acl check defer condition = 10 / 1h / strict{ 10 / 1h / strict } end",
                "conf:20 acl check accept",
                "conf:21 acl other ",
            ]
        );
        let [absent] = &source.absent[..] else { panic!("{:?}", source.absent) };
        assert_eq!((absent.position.line, absent.path.file_name().unwrap()), (15, "none".as_ref()));
        let unused = source.macros.iter().filter(|known| !known.used);
        assert_eq!(unused.count(), 0);
        assert!(source.tested.contains("A_LIMIT"));
        assert_eq!(options(&source), ["acl_smtp_rcpt = check", "y = 2"]);
    }

    #[test]
    fn a_macro_whose_name_has_that_of_an_earlier_one_in_it_is_refused() {
        let (_folder, source) = read(&[("conf", "A_B = 1\nA = 2\nA = 3\nX_A_Y = 4\n")]);
        let [refused] = &source.refused[..] else { panic!("{:?}", source.refused) };
        let before = refused.earlier_position.as_ref().unwrap();
        assert_eq!((&*refused.name, refused.position.line), ("X_A_Y", 4));
        assert_eq!((&*refused.earlier, before.line), ("A", 2));
    }

    #[test]
    fn nested_conditionals_are_skipped_as_one() {
        let (_folder, source) = read(&[(
            "conf",
            ".ifdef NONE\n.ifdef _HAVE_X\na = 1\n.else\nb = 2\n.endif\n.else\nc = 3\n.endif\n",
        )]);
        assert_eq!(texts(&source), ["conf:8  - c = 3"]);
    }

    #[test]
    fn pieces_of_debians_split_configuration_are_named() {
        let (_folder, source) = read(&[(
            "conf",
            "#####\n### main/000_local\n#####\na = 1\n#####\n### end main/000_local\n#####\nb = 2\n",
        )]);
        let pieces: Vec<_> = source.lines.iter().map(|line| line.position.piece.clone()).collect();
        assert_eq!(pieces, [Some("main/000_local".into()), None]);
        assert!(source.lines[0].position.to_string().ends_with(":4 (from conf.d/main/000_local)"));
    }

    #[test]
    fn an_endless_configuration_has_an_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("conf");
        std::fs::write(&path, format!(".include {}\n", path.display())).unwrap();
        let error = Source::read(&path, []).unwrap_err().to_string();
        assert!(error.contains("conf:1: cannot read") && error.contains("too many"), "{error}");
    }
}
