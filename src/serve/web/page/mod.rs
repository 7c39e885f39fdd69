//! The page: files that anybody may have who reaches the service, as there is nothing of the
//! database in them. What they show, they ask the API for.

use crate::page_parts::{script, style};

/// A file.
pub(super) struct File {
    pub(super) path: &'static str,
    /// Its media type.
    pub(super) kind: &'static str,
    pub(super) text: &'static str,
}

/// All of them.
pub(super) const FILES: [File; 4] = [
    File { path: "/", kind: "text/html; charset=utf-8", text: include_str!("desk.html") },
    File { path: "/desk.css", kind: "text/css", text: style!("style.css") },
    File { path: "/desk.js", kind: "text/javascript", text: SCRIPT },
    File { path: "/desk.svg", kind: "image/svg+xml", text: include_str!("desk.svg") },
];

const SCRIPT: &str = script!(
    "script/api.js",
    "script/words.js",
    "script/list.js",
    "script/act.js",
    "script/blocked.js",
    "script/search.js",
    "script/held.js",
    "script/identity.js",
    "script/policies.js",
    "script/live.js",
    "script/main.js",
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_makes_no_markup_of_data() {
        for forbidden in
            ["innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "://"]
        {
            let found = SCRIPT.replace("http://www.w3.org/2000/svg", "").contains(forbidden);
            assert!(!found, "{forbidden}");
        }
    }

    /// Of two functions of one name, the first would be lost without a word.
    #[test]
    fn each_name_of_the_script_is_there_once() {
        let mut seen = std::collections::HashSet::new();
        for line in SCRIPT.lines() {
            let line = line.strip_prefix("async ").unwrap_or(line);
            let words = ["function ", "const ", "let ", "class "];
            let Some(rest) = words.iter().find_map(|word| line.strip_prefix(word)) else {
                continue;
            };
            let end = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
            assert!(end == 0 || seen.insert(&rest[..end]), "{line}");
        }
        assert!(seen.len() > 100, "{seen:?}");
    }

    #[test]
    fn nothing_of_it_is_within_the_markup_or_from_elsewhere() {
        let [html, ..] = FILES;
        for forbidden in ["<style", "style=", " on", "http", "<script>", "javascript:"] {
            assert!(!html.text.contains(forbidden), "{forbidden}");
        }
        for path in ["/desk.css", "/desk.js", "/desk.svg"] {
            assert!(html.text.contains(&format!("\"{path}\"")), "{path}");
        }
    }
}
