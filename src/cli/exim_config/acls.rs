//! Which ACLs are in use: those that an option names, and those that these call.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::calls::{braced, verb};
use super::source::{Line, Position, Source};

/// The ACLs in use, each with the options that lead to it, such as
/// `acl_smtp_rcpt`.
#[derive(Debug, Default)]
pub(in crate::cli) struct Acls {
    used: BTreeMap<Rc<str>, Vec<String>>,
    /// All ACLs that are defined, and where.
    pub(in crate::cli) defined: BTreeMap<Rc<str>, Position>,
    /// Names that an option or a condition gives and that no ACL has.
    pub(in crate::cli) unknown: Vec<(Position, String)>,
    /// The lines of ACLs that stand in files of their own.
    pub(in crate::cli) from_files: Vec<Line>,
}

impl Acls {
    /// Finds those of a configuration.
    pub(in crate::cli) fn of(source: &Source) -> Self {
        let mut acls = Self::default();
        for line in &source.lines {
            if let Some(acl) = &line.acl {
                acls.defined.entry(acl.clone()).or_insert_with(|| line.position.clone());
            }
        }
        let options: Vec<_> = source
            .main_options()
            .filter(|(name, ..)| name.starts_with("acl_smtp_") || name.starts_with("acl_not_smtp"))
            .collect();
        let mut waiting: Vec<(String, String, Position)> = options
            .into_iter()
            .map(|(name, value, at)| (name.to_owned(), value.to_owned(), at.clone()))
            .collect();
        // Routers, transports and authenticators may call an ACL in what they expand.
        for line in &source.lines {
            if line.acl.is_none() {
                for name in called_in(&line.text) {
                    let from = if line.section.is_empty() { "main" } else { &line.section };
                    waiting.push((from.to_owned(), name, line.position.clone()));
                }
            }
        }
        while let Some((option, value, position)) = waiting.pop() {
            for name in acls.named_by(&value, &position) {
                let options = acls.used.entry(name.clone()).or_default();
                if options.contains(&option) {
                    continue;
                }
                options.push(option.clone());
                let lines = source.lines.iter().chain(&acls.from_files);
                for line in lines.filter(|line| line.acl.as_ref() == Some(&name)) {
                    for called in called_by(&line.text) {
                        waiting.push((option.clone(), called, line.position.clone()));
                    }
                }
            }
        }
        acls.used.values_mut().for_each(|options| options.sort());
        acls.unknown.sort();
        acls.unknown.dedup();
        acls
    }

    /// The options that lead to the ACL; none where it is not in use.
    pub(in crate::cli) fn used_by(&self, acl: &str) -> &[String] {
        self.used.get(acl).map_or(&[], Vec::as_slice)
    }

    /// The ACLs that the value of an option names.
    fn named_by(&mut self, value: &str, position: &Position) -> Vec<Rc<str>> {
        let value = value.trim();
        if value.contains('$') {
            // Only Exim knows which it is: all that are written there count.
            let words = value.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let known = words.filter_map(|word| self.defined.get_key_value(word));
            return known.map(|(name, _)| name.clone()).collect();
        }
        let name = value.split_whitespace().next().unwrap_or_default();
        if let Some((name, _)) = self.defined.get_key_value(name) {
            return vec![name.clone()];
        }
        if name.starts_with('/') {
            return self.file(name, position).into_iter().collect();
        }
        // Text that is no name is an ACL itself.
        if !name.is_empty() && verb(value).0.is_none() {
            self.unknown.push((position.clone(), name.to_owned()));
        }
        Vec::new()
    }

    /// Reads an ACL that stands in a file. Exim replaces no macros there.
    fn file(&mut self, name: &str, position: &Position) -> Option<Rc<str>> {
        let acl: Rc<str> = name.into();
        if self.defined.contains_key(&acl) {
            return Some(acl);
        }
        let Ok(read) = Source::read(std::path::Path::new(name), []) else {
            self.unknown.push((position.clone(), name.to_owned()));
            return None;
        };
        self.defined.insert(acl.clone(), position.clone());
        let lines = read.lines.into_iter();
        self.from_files.extend(lines.map(|line| Line {
            section: "acl".into(),
            acl: Some(acl.clone()),
            ..line
        }));
        Some(acl)
    }
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
             first:\n  deny !acl = third $domain\nsecond: accept\n\
             third:\n warn condition = ${{if acl{{{{fourth}}{{x}}}}}}\nfourth: accept\n\
             fifth: accept\nsixth: accept acl = seventh\nseventh: accept\neighth: accept\n\
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
