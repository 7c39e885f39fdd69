//! Commands for people to paste, about the same rates.

use std::path::PathBuf;

use crate::store::{Override, Target};
use crate::text;

/// Writes commands for people that use the same database and the same rates.
#[derive(Clone, Debug)]
pub(crate) struct Commands {
    /// The spool directory, if it was named.
    pub(crate) spool: Option<PathBuf>,
    /// Whether they are about the rates of this server, not about shared ones.
    pub(crate) local: bool,
}

impl Commands {
    /// `words`, such as `allow`, and KEY as it is shown.
    pub(crate) fn about(&self, words: &str, key: &str) -> String {
        self.with(words, key, "")
    }

    /// As [`Self::about`], for a command that is always about this server.
    pub(crate) fn here(&self, words: &str, key: &str) -> String {
        Self { local: false, ..self.clone() }.about(words, key)
    }

    /// As [`Self::about`], with the KEY of an override, which means that one.
    pub(crate) fn about_override(&self, words: &str, one: &Override) -> String {
        match &one.target {
            Target::Exact { key, folding: None, .. } => {
                let literal = std::str::from_utf8(key).ok();
                match literal.filter(|key| !key.contains(char::is_control)) {
                    Some(key) => self.with(words, key, " --exact"),
                    None => self.about(words, &one.argument),
                }
            }
            _ => self.about(words, &one.argument),
        }
    }

    fn with(&self, words: &str, key: &str, options: &str) -> String {
        let mut options = options.to_owned();
        if self.local {
            options += " --local";
        }
        if let Some(directory) = &self.spool {
            options += &format!(" --spool {}", text::shell(&directory.display().to_string()));
        }
        let shown = text::shell(key);
        match key.starts_with('-') {
            false => format!("exirate {words} {shown}{options}"),
            true if words.contains(" --") => format!("exirate {words}={shown}{options}"),
            true => format!("exirate {words}{options} -- {shown}"),
        }
    }
}
