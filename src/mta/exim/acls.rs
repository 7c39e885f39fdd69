//! Which ACLs are in use: those that an option names, and those that these call.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::rc::Rc;

use super::calls::{braced, verb};
use super::expansion::{Expansion, UNKNOWN};
use super::source::{Line, Position, Source};

/// The ACLs in use, each with the options that lead to it, such as
/// `acl_smtp_rcpt`.
#[derive(Debug, Default)]
pub(crate) struct Acls {
    used: BTreeMap<Rc<str>, Uses>,
    /// Where each is named: an ACL and its line, or an option, `None`.
    sites: BTreeMap<Rc<str>, Vec<Site>>,
    /// All ACLs that are defined, and where.
    pub(crate) defined: BTreeMap<Rc<str>, Position>,
    /// Names that an option or a condition gives and that no ACL has.
    pub(crate) unknown: Vec<(Position, String)>,
    /// The lines of ACLs that stand in files of their own.
    pub(crate) from_files: Vec<Line>,
    /// The first line of each such file that Exim does not understand there.
    foreign: Vec<Line>,
}

/// The ACL and the line that names another; `None` for an option.
pub(super) type Site = Option<(Rc<str>, Position)>;

/// The options that lead to an ACL.
#[derive(Debug, Default)]
struct Uses {
    surely: Vec<String>,
    /// Only Exim knows the name that they lead to, and it may be this one.
    perhaps: Vec<String>,
}

/// A name of an ACL that is followed.
struct Lead {
    option: String,
    value: String,
    position: Position,
    /// The ACL that the position is in, if it is in one.
    acl: Option<Rc<str>>,
    /// Exim comes here, or may come here.
    surely: bool,
}

impl Acls {
    /// Finds those of a configuration.
    pub(crate) fn of(source: &Source) -> Self {
        let mut acls = Self::default();
        for line in &source.lines {
            if let Some(acl) = &line.acl {
                acls.defined.entry(acl.clone()).or_insert_with(|| line.position.clone());
            }
        }
        let lead = |option: &str, value: String, position: &Position| Lead {
            option: option.to_owned(),
            value,
            position: position.clone(),
            acl: None,
            surely: true,
        };
        let mut waiting: Vec<Lead> = source
            .main_options()
            .filter(|(name, ..)| is_acl_option(name))
            .map(|(name, value, at)| lead(name, value.into_owned(), at))
            .collect();
        // Routers, transports and authenticators may call an ACL in what they expand.
        for line in &source.lines {
            if line.acl.is_none() {
                for name in called_in(&line.text) {
                    let from = if line.section.is_empty() { "main" } else { &line.section };
                    waiting.push(lead(from, name, &line.position));
                }
            }
        }
        while let Some(Lead { option, value, position, acl, surely }) = waiting.pop() {
            for (name, is_sure) in acls.named_by(&value, &position, source) {
                let site = acl.clone().map(|acl| (acl, position.clone()));
                let sites = acls.sites.entry(name.clone()).or_default();
                if !sites.contains(&site) {
                    sites.push(site);
                }
                let surely = surely && is_sure;
                let uses = acls.used.entry(name.clone()).or_default();
                if uses.surely.contains(&option) || !surely && uses.perhaps.contains(&option) {
                    continue;
                }
                let options = if surely { &mut uses.surely } else { &mut uses.perhaps };
                options.push(option.clone());
                for line in acls.lines(source, &name) {
                    for value in called_by(&line.text) {
                        let (option, position) = (option.clone(), line.position.clone());
                        let acl = Some(name.clone());
                        waiting.push(Lead { option, value, position, acl, surely });
                    }
                }
            }
        }
        for Uses { surely, perhaps } in acls.used.values_mut() {
            surely.sort();
            perhaps.retain(|option| !surely.contains(option));
            perhaps.sort();
        }
        acls.unknown.sort();
        acls.unknown.dedup();
        acls
    }

    /// The lines of an ACL.
    pub(super) fn lines<'a>(
        &'a self,
        source: &'a Source,
        acl: &'a str,
    ) -> impl Iterator<Item = &'a Line> {
        let all = source.lines.iter().chain(&self.from_files);
        all.filter(move |line| line.acl.as_deref() == Some(acl))
    }

    /// The options that lead to the ACL; none where it is not in use.
    pub(crate) fn used_by(&self, acl: &str) -> &[String] {
        self.used.get(acl).map_or(&[], |uses| &uses.surely)
    }

    /// Where it is named.
    pub(super) fn sites(&self, acl: &str) -> &[Site] {
        self.sites.get(acl).map_or(&[], Vec::as_slice)
    }

    /// The options that lead to it if a name that only Exim knows is this one.
    pub(crate) fn perhaps_used_by(&self, acl: &str) -> &[String] {
        self.used.get(acl).map_or(&[], |uses| &uses.perhaps)
    }

    /// Whether Exim does not understand the ACL.
    pub(super) fn is_foreign(&self, acl: &str) -> bool {
        self.foreign.iter().any(|line| line.acl.as_deref() == Some(acl))
    }

    /// What is wrong with ACLs in files of their own.
    pub(crate) fn faults(&self) -> impl Iterator<Item = String> {
        self.foreign.iter().map(|Line { position, text, .. }| {
            format!(
                "{position}: `{text}`: Exim knows no .include, .ifdef or macros in an ACL that is a \
                 file of its own, and defers with 451 what the ACL is to decide; write its lines \
                 into the section of ACLs of Exim's configuration, below a name of their own such \
                 as `check_rcpt:`, and give the option that name"
            )
        })
    }

    /// The ACLs that the value of an option or condition names, each with whether it surely
    /// does: a name may be one that only Exim knows.
    fn named_by(
        &mut self,
        value: &str,
        position: &Position,
        source: &Source,
    ) -> Vec<(Rc<str>, bool)> {
        let value = value.trim();
        // Text that is no name is an ACL itself.
        if verb(value).0.is_some() {
            return Vec::new();
        }
        if !value.contains('$') {
            let name = value.split_whitespace().next().unwrap_or_default();
            let found = self.named(name, position, source);
            if found.is_none() && !name.is_empty() {
                self.unknown.push((position.clone(), name.to_owned()));
            }
            return found.map(|name| (name, true)).into_iter().collect();
        }
        let words = value.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let known = words.filter_map(|word| self.defined.get_key_value(word));
        let mut found: Vec<_> = known.map(|(name, _)| (name.clone(), true)).collect();
        for outcome in Expansion::of(value).outcomes() {
            let name = outcome.text.split_whitespace().next().unwrap_or_default();
            if name.contains(UNKNOWN) {
                let fitting = self.defined.keys().filter(|acl| fits(name, acl));
                found.extend(fitting.map(|acl| (acl.clone(), false)));
            } else if let Some(acl) = self.named(name, position, source) {
                // The row of a file may change.
                found.push((acl, outcome.row.is_none()));
            }
        }
        found
    }

    /// The ACL of this name, which may be that of a file.
    fn named(&mut self, name: &str, position: &Position, source: &Source) -> Option<Rc<str>> {
        if let Some((name, _)) = self.defined.get_key_value(name) {
            return Some(name.clone());
        }
        let acl: Rc<str> = name.into();
        let path = Path::new(name).is_absolute().then_some(Path::new(name))?;
        let lines = lines_of(path, &acl).ok()?;
        self.defined.insert(acl.clone(), position.clone());
        let is_macro = |word: &str| source.macro_named(word).is_some();
        let foreign = lines.iter().find(|line| {
            let mut words = line.text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            line.text.starts_with('.') || words.any(is_macro)
        });
        self.foreign.extend(foreign.cloned());
        self.from_files.extend(lines);
        Some(acl)
    }
}

/// Whether an option of the main section names an ACL.
fn is_acl_option(name: &str) -> bool {
    name.starts_with("acl_smtp_") || name.starts_with("acl_not_smtp")
}

/// Whether `name` is what `pattern` may become, with [`UNKNOWN`] for any text.
fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split(UNKNOWN);
    let Some(mut rest) = name.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

/// The lines of an ACL in a file of its own, where Exim knows comments and continued lines,
/// and nothing else.
fn lines_of(path: &Path, acl: &Rc<str>) -> io::Result<Vec<Line>> {
    let text = String::from_utf8_lossy(&std::fs::read(path)?).into_owned();
    let file: Rc<Path> = path.into();
    let (mut lines, mut unfinished): (Vec<Line>, Option<Line>) = (Vec::new(), None);
    for (n, line) in text.lines().map(str::trim).enumerate() {
        if line.starts_with('#') || line.is_empty() && unfinished.is_none() {
            continue;
        }
        let mut logical = unfinished.take().unwrap_or_else(|| Line {
            position: Position { file: file.clone(), line: n + 1, piece: None },
            section: "acl".into(),
            acl: Some(acl.clone()),
            ..Line::default()
        });
        let position = Position { line: n + 1, ..logical.position.clone() };
        logical.written.push((position, line.to_owned()));
        logical.text.push_str(line.strip_suffix('\\').unwrap_or(line));
        if line.ends_with('\\') { unfinished = Some(logical) } else { lines.push(logical) }
    }
    lines.extend(unfinished);
    Ok(lines)
}

/// The ACLs that a line of an ACL calls.
fn called_by(line: &str) -> Vec<String> {
    let (_, condition) = verb(line);
    let condition = condition.trim_start_matches(['!', ' ', '\t']);
    let value = condition.strip_prefix("acl").map(str::trim_start);
    let value = value.and_then(|rest| rest.strip_prefix('='));
    value.map(|value| value.trim().to_owned()).into_iter().chain(called_in(line)).collect()
}

/// The ACLs that `${acl{NAME}…}` and the condition `acl {{NAME}…}` call.
fn called_in(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for (at, _) in text.match_indices("acl") {
        let before = text.get(..at).unwrap_or_default().chars().next_back();
        let rest = text.get(at + 3..).unwrap_or_default();
        if before.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_') {
            continue;
        }
        let Some((inside, _)) = braced(rest) else { continue };
        let name = braced(inside).map_or(inside, |(name, _)| name);
        names.push(name.to_owned());
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_option_leads_to_is_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("acl");
        std::fs::write(&file, "warn acl = fifth\naccept\n").unwrap();
        let conf = folder.path().join("conf");
        let text = format!(
            "acl_smtp_rcpt = ${{if eq{{a}}{{b}}{{first}}{{second}}}}\nacl_smtp_data = {}\n\
             acl_smtp_mail = misspelt\nacl_smtp_helo = accept hosts = *\nbegin acl\n\
             first:\n  deny !acl = third $domain\nsecond:\n accept\n\
             third:\n warn condition = ${{if acl{{{{fourth}}{{x}}}}}}\nfourth:\n accept\n\
             fifth:\nsixth:\n accept acl = seventh\nseventh:\neighth:\n\
             begin routers\nr:\n  condition = ${{acl {{eighth}}}}\n",
            file.display()
        );
        std::fs::write(&conf, text).unwrap();
        let acls = Acls::of(&Source::read(&conf, []).unwrap());
        for (acl, options) in [
            ("first", &["acl_smtp_rcpt"][..]),
            ("second", &["acl_smtp_rcpt"]),
            ("third", &["acl_smtp_rcpt"]),
            ("fourth", &["acl_smtp_rcpt"]),
            ("fifth", &["acl_smtp_data"]),
            ("sixth", &[]),
            ("seventh", &[]),
            ("eighth", &["routers"]),
        ] {
            assert_eq!(acls.used_by(acl), options, "{acl}");
        }
        let unknown: Vec<_> = acls.unknown.iter().map(|(_, name)| &**name).collect();
        assert_eq!(unknown, ["misspelt"]);
    }
}
