//! Which ACLs are in use: those that an option names, and those that these call.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::rc::Rc;

use super::calls::{braced, verb};
use super::expansion::{Expansion, UNKNOWN};
use super::source::{Line, Position, Source, unquoted};

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
    /// The lines of ACLs that stand in files of their own, or are the value of an option.
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
        while let Some(lead) = waiting.pop() {
            let Lead { option, position, acl, surely, .. } = &lead;
            for (name, is_sure) in acls.named_by(&lead, source) {
                let site = acl.clone().map(|acl| (acl, position.clone()));
                let sites = acls.sites.entry(name.clone()).or_default();
                if !sites.contains(&site) {
                    sites.push(site);
                }
                let surely = *surely && is_sure;
                let uses = acls.used.entry(name.clone()).or_default();
                if uses.surely.contains(option) || !surely && uses.perhaps.contains(option) {
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
    fn named_by(&mut self, lead: &Lead, source: &Source) -> Vec<(Rc<str>, bool)> {
        let Lead { option, value, position, acl, .. } = lead;
        if value.matches('{').count() > value.matches('}').count() {
            self.unknown.push((position.clone(), value.clone()));
            return Vec::new();
        }
        let outcomes = Expansion::of(value).outcomes();
        let mut found = Vec::new();
        // Text with a blank in it is an ACL itself, whatever its variables are.
        let is_acl = |text: &str| text.contains(char::is_whitespace) && verb(text).0.is_some();
        let is_name = |text: &str| text.contains(UNKNOWN) && !is_acl(text.trim_start());
        if outcomes.iter().any(|outcome| is_name(&outcome.text)) {
            let words = value.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let known = words.filter_map(|word| self.defined.get_key_value(word));
            found.extend(known.map(|(name, _)| (name.clone(), true)));
        }
        for outcome in outcomes {
            let text = outcome.text.trim_start();
            // The row of a file may change.
            let is_sure = outcome.row.is_none();
            if is_acl(text) {
                let place = acl.as_deref().unwrap_or(option);
                found.push((self.inline(text, place, position), is_sure));
            } else if text.contains(UNKNOWN) {
                let fitting = self.defined.keys().filter(|acl| fits(text.trim_end(), acl));
                found.extend(fitting.map(|acl| (acl.clone(), false)));
            } else if let Some(acl) = self.named(text, position, source) {
                found.push((acl, is_sure));
            } else if is_sure && !text.is_empty() && verb(text).0.is_none() {
                self.unknown.push((position.clone(), text.to_owned()));
            }
        }
        found
    }

    /// The ACL that is the value of an option.
    fn inline(&mut self, text: &str, place: &str, position: &Position) -> Rc<str> {
        let acl: Rc<str> = format!("{INLINE}{place}").into();
        if self.from_files.iter().any(|line| line.acl.as_ref() == Some(&acl)) {
            return acl;
        }
        self.from_files.extend(lines_in(text, &acl, |_| position.clone()));
        acl
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

/// The lines of an ACL in a file of its own.
fn lines_of(path: &Path, acl: &Rc<str>) -> io::Result<Vec<Line>> {
    let text = String::from_utf8_lossy(&std::fs::read(path)?).into_owned();
    let first = Position { file: path.into(), line: 1, piece: None };
    Ok(lines_in(&text, acl, |n| Position { line: n + 1, ..first.clone() }))
}

/// The lines of an ACL that is not in the section of ACLs, where Exim knows comments and
/// continued lines, and nothing else.
fn lines_in(text: &str, acl: &Rc<str>, position: impl Fn(usize) -> Position) -> Vec<Line> {
    let (mut lines, mut unfinished): (Vec<Line>, Option<Line>) = (Vec::new(), None);
    for (n, line) in text.lines().map(str::trim).enumerate() {
        if line.starts_with('#') || line.is_empty() && unfinished.is_none() {
            continue;
        }
        let mut logical = unfinished.take().unwrap_or_else(|| Line {
            position: position(n),
            section: "acl".into(),
            acl: Some(acl.clone()),
            ..Line::default()
        });
        logical.written.push((position(n), line.to_owned()));
        logical.text.push_str(line.strip_suffix('\\').unwrap_or(line));
        if line.ends_with('\\') { unfinished = Some(logical) } else { lines.push(logical) }
    }
    lines.extend(unfinished);
    lines
}

/// How the names of ACLs begin that are the value of an option.
const INLINE: &str = "inline ACL of ";

/// Whether the line is of an ACL that is the value of an option or condition.
pub(super) fn is_inline(line: &Line) -> bool {
    line.acl.as_deref().is_some_and(|acl| acl.starts_with(INLINE))
}

/// The ACLs that a line of an ACL calls.
fn called_by(line: &str) -> Vec<String> {
    let (_, condition) = verb(line);
    let condition = condition.trim_start_matches(['!', ' ', '\t']);
    let value = condition.strip_prefix("acl").map(str::trim_start);
    let value = value.and_then(|rest| rest.strip_prefix('='));
    // Behind the name are arguments.
    let name = value.map(|value| first_word(value.trim()));
    name.into_iter().chain(called_in(line)).collect()
}

/// The first word, which may be in double quotes: Exim takes the words of a condition apart
/// before it expands them, so that `${if` alone is one.
fn first_word(value: &str) -> String {
    match value.starts_with('"') {
        true => unquoted(value).into_owned(),
        false => value.split_whitespace().next().unwrap_or_default().to_owned(),
    }
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
    use super::super::Rules;
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
        let acls = Acls::of(&Source::read(&conf, [], None).unwrap());
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
    /// The names that no ACL has, and Exim's own `ratelimit` conditions, with these options and
    /// the ACLs `a` and `b`.
    fn found(text: &str) -> (Vec<String>, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let conf = folder.path().join("conf");
        let acls = "begin acl\na:\n  accept\nb:\n  accept\n";
        std::fs::write(&conf, format!("{text}\n{acls}")).unwrap();
        let rules = Rules::read(&conf, [], None).unwrap();
        let native = rules.native.into_iter().map(|(at, text)| format!("{} {text}", at.line));
        let unknown = rules.acls.unknown.into_iter().map(|(_, name)| name);
        (unknown.collect(), native.collect())
    }

    #[test]
    fn an_acl_may_be_the_value_of_an_option() {
        let text = "primary_hostname = x\nacl_smtp_predata = \\\n    defer ratelimit = 500/1h/k\\n\\\n\
                    \x20       message = no\\n    accept acl = a\nacl_smtp_rcpt = \"accept acl = c\\n\"";
        let (unknown, native) = found(text);
        assert_eq!(
            (unknown, native),
            (vec!["c".into()], vec!["2 defer ratelimit = 500/1h/k".into()])
        );
    }

    /// Exim expands them before it reads the ACL; a word of the text is no name of another ACL.
    #[test]
    fn an_acl_that_is_a_value_may_contain_variables() {
        let text = "acl_smtp_rcpt = defer ratelimit = 5/1h/$sender_host_address\\n\\\n\
                    message = b at $sender_rate\\n accept";
        let (unknown, native) = found(text);
        assert!(unknown.is_empty(), "{unknown:?}");
        assert_eq!(native, ["1 defer ratelimit = 5/1h/?"]);
    }

    /// Names of which Exim says `unknown ACL verb`, or that it cannot expand.
    #[test]
    fn what_is_no_name_is_found() {
        for (value, expected) in [
            ("acl_smtp_rcpt = a # mine", Some("a # mine")),
            ("acl_smtp_rcpt = \"a \"", Some("a ")),
            ("acl_smtp_rcpt = a\\tb", Some("a\tb")),
            ("acl_smtp_rcpt = ${if eq{1}{1}{ a }{b}}", Some("a ")),
            ("acl_smtp_rcpt = ${if eq{1}{1} {a} { b}}", None),
            ("acl_smtp_rcpt = \"a\"", None),
            ("acl_smtp_rcpt = accept acl = ${if eq{1}{1}{a}{b}}", None),
            ("acl_smtp_rcpt = a\nbegin acl\na:\n  accept acl = ${if eq{1}{1}{a}{b}}", Some("${if")),
            ("acl_smtp_rcpt = a\nbegin acl\na:\n  accept acl = \"${if eq{1}{1}{a}{b}}\"", None),
            ("acl_smtp_rcpt = accept acl = a # mine", None),
        ] {
            let (unknown, _) = found(value);
            assert_eq!(unknown.first().map(String::as_str), expected, "{value}");
        }
    }
}
