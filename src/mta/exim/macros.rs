//! Names of macros that are almost those of macros.

use super::Rules;
use super::source::Position;

/// A name that stands where a macro was probably meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Misspelt {
    pub(crate) position: Position,
    pub(crate) name: String,
    /// The macro that was probably meant, if one is near.
    pub(crate) meant: Option<String>,
    /// It is defined, and nothing uses it; else it is used, and nothing defines
    /// it.
    pub(crate) defined: bool,
    /// Mail is limited wrongly or deferred; else a text is wrong.
    pub(crate) serious: bool,
}

/// The file that defines our macros.
const OUR_FILE: &str = include_str!("../../../exim/exirate.conf");
/// Changes that make one name of another.
const DISTANCE_MAX: usize = 2;
/// Shorter words are too alike.
const LENGTH_MIN: usize = 6;

impl Rules {
    /// Names that are not those of macros, and nearly are.
    pub(crate) fn misspelt(&self) -> Vec<Misspelt> {
        let mut found = Vec::new();
        let macros = &self.source.macros;
        let ours: Vec<&str> = our_macros().collect();
        let own: Vec<&str> =
            macros.iter().filter(|m| m.position.is_some()).map(|m| m.name.as_str()).collect();
        for line in self.source.lines.iter().chain(&self.acls.from_files) {
            for word in words(&line.text) {
                if self.source.macro_named(word).is_some() {
                    continue;
                }
                let like_ours =
                    ["EXIRATE", "RATELIMIT_", "TRACE_"].iter().any(|p| word.starts_with(p));
                let meant = near(word, own.iter().chain(&ours).copied());
                // A word of some other text may be near to a macro by chance.
                let is_call = line.text.contains(&format!("{word}{{"));
                let about_us = meant.as_deref().is_some_and(|meant| ours.contains(&meant));
                if !(like_ours || is_call && meant.is_some() || about_us) {
                    continue;
                }
                let text = line.text.split('=').next().unwrap_or_default();
                found.push(Misspelt {
                    position: line.position.clone(),
                    name: word.to_owned(),
                    meant,
                    defined: false,
                    serious: !text.ends_with("message ") && !text.contains("logwrite"),
                });
            }
        }
        for known in macros.iter().filter(|known| !known.used) {
            let Some(position) = &known.position else { continue };
            if self.source.tested.contains(&known.name) || ours.contains(&&*known.name) {
                continue;
            }
            let tested = self.source.tested.iter().map(String::as_str);
            let meant = near(&known.name, tested.chain(ours.iter().copied()));
            if meant.is_some() {
                found.push(Misspelt {
                    position: position.clone(),
                    name: known.name.clone(),
                    meant,
                    defined: true,
                    serious: true,
                });
            }
        }
        found
    }
}

/// The names of our macros.
fn our_macros() -> impl Iterator<Item = &'static str> {
    OUR_FILE.lines().filter_map(|line| line.strip_prefix(".ifndef ")).map(str::trim)
}

/// The macros that switch on what our file has ready: it tests them and does not define them.
pub(super) fn switches() -> impl Iterator<Item = &'static str> {
    OUR_FILE.lines().filter_map(|line| line.strip_prefix(".ifdef ")).map(str::trim)
}

/// The words of `text` that look like macros.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let parts = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    parts.filter(|word| {
        word.len() >= LENGTH_MIN
            && word.starts_with(|c: char| c.is_ascii_uppercase())
            && word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
    })
}

fn near<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    let near = names.filter(|name| name.len() >= LENGTH_MIN && *name != word);
    let near = near.map(|name| (strsim::damerau_levenshtein(name, word), name));
    near.min().filter(|&(distance, _)| distance <= DISTANCE_MAX).map(|(_, name)| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn macros_that_are_nearly_right_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let conf = folder.path().join("conf");
        let text = "RATELIMIT_USR = 5 / 1h\n.ifndef RATELIMIT_USER\nRATELIMIT_USER = 9 / 1h\n.endif\n\
                    MAIN_ACL_CHECK_RCTP = x\n.ifdef MAIN_ACL_CHECK_RCPT\n.endif\nOTHER_THING = 1\n\
                    RATELIMIT_OVER = ${dlfunc{/x.so}{ratelimit}\nacl_smtp_rcpt = check\n\
                    begin acl\ncheck:\n  defer condition = RATELIMTI_OVER{RATELIMIT_USER}}\n  \
                    message = RATELIMIT_MESAGE\n  condition = RATELIMIT_OVER{RATELIMIT_USER}}\n";
        std::fs::write(&conf, text).unwrap();
        let found = Rules::read(&conf, [], None).unwrap().misspelt();
        let found: Vec<_> = found
            .iter()
            .map(|found| {
                let meant = found.meant.as_deref().unwrap_or("-");
                (found.position.line, &*found.name, meant, found.defined, found.serious)
            })
            .collect();
        assert_eq!(
            found,
            [
                (13, "RATELIMTI_OVER", "RATELIMIT_OVER", false, true),
                (14, "RATELIMIT_MESAGE", "RATELIMIT_MESSAGE", false, false),
                (1, "RATELIMIT_USR", "RATELIMIT_USER", true, true),
                (5, "MAIN_ACL_CHECK_RCTP", "MAIN_ACL_CHECK_RCPT", true, true),
            ]
        );
    }
}
