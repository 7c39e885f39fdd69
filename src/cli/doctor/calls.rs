//! The lines of Exim's configuration that call the library.

/// Functions of the library that a configuration may call.
pub(super) const FUNCTIONS: [&str; 4] = ["ratelimit", "ratelimit_info", "record", "recorded"];

/// A `${dlfunc{LIBRARY}{FUNCTION}{ARGUMENT}}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    /// The file of the configuration.
    pub(super) file: String,
    /// As written, after macros; Exim may expand it further.
    pub(super) library: String,
    pub(super) function: String,
    /// The first argument, as written; empty where there is none.
    pub(super) argument: String,
}

/// What a configuration has to say about limits.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Calls {
    /// All calls of the library.
    pub(super) calls: Vec<Call>,
    /// Exim's own `ratelimit` conditions, as written.
    pub(super) native: Vec<String>,
}

impl Calls {
    /// Reads what `exim -bP config` prints: the configuration with its macros
    /// replaced, one option a line, without comments, and with lines such as
    /// `# 12 "FILE"` that say where the next ones are from.
    pub(super) fn read(config: &str) -> Self {
        let mut calls = Self::default();
        let (mut file, mut section) = ("", "");
        for line in config.lines().map(str::trim) {
            if let Some(mark) = line.strip_prefix("# ") {
                let name = mark.split_once(" \"").and_then(|(_, name)| name.strip_suffix('"'));
                file = name.unwrap_or(file);
                continue;
            }
            if let Some(name) = line.strip_prefix("begin ") {
                section = name.trim();
                continue;
            }
            // Macros count where they are used.
            if section.is_empty() && line.starts_with(|c: char| c.is_ascii_uppercase()) {
                continue;
            }
            calls.read_dlfuncs(line, file);
            if section == "acl" && is_native(line) {
                calls.native.push(line.to_owned());
            }
        }
        calls
    }

    fn read_dlfuncs(&mut self, line: &str, file: &str) {
        for rest in line.split("${dlfunc").skip(1) {
            let Some((library, rest)) = braced(rest) else { continue };
            let Some((function, rest)) = braced(rest) else { continue };
            let argument = braced(rest).map_or("", |(argument, _)| argument);
            if FUNCTIONS.contains(&function) || library.contains("exirate") {
                self.calls.push(Call {
                    file: file.to_owned(),
                    library: library.to_owned(),
                    function: function.to_owned(),
                    argument: argument.to_owned(),
                });
            }
        }
    }
}

/// What stands between the brace at the start of `text` and the one that closes
/// it, and what follows.
fn braced(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start().strip_prefix('{')?;
    let mut depth = 1;
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            let (inside, rest) = text.split_at_checked(at)?;
            return Some((inside.trim(), rest.get(1..)?));
        }
    }
    None
}

/// Whether the line of an ACL is Exim's own `ratelimit = …`.
fn is_native(line: &str) -> bool {
    const VERBS: [&str; 7] = ["accept", "defer", "deny", "discard", "drop", "require", "warn"];
    let verb = VERBS.iter().find_map(|verb| {
        let rest = line.strip_prefix(verb)?;
        rest.starts_with([' ', '\t', '!']).then(|| rest.trim_start())
    });
    let condition = verb.unwrap_or(line).trim_start_matches(['!', ' ', '\t']);
    let value = condition.strip_prefix("ratelimit").map(str::trim_start);
    value.is_some_and(|value| value.starts_with('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_found_where_they_are_used() {
        let config = r#"# Exim Configuration (4.96)
# 1 "/etc/exim4/exim4.conf"
EXIRATE = /lib/exirate.so
RATELIMIT_OVER = ${dlfunc{/lib/exirate.so}{ratelimit}
acl_smtp_rcpt = check

begin acl

  check:
# 3 "/etc/exim4/rcpt.conf"
    defer condition = ${dlfunc{/lib/exirate.so}{ratelimit}{1 / 1h / strict / ${lc:$domain}}}
    message = ${if eq{${dlfunc {/lib/exirate.so} {ratelimit_info} {rate}}}{1}} ${dlfunc{/x.so}{y}}
    warn condition = ${dlfunc{$config_dir/exirate.so}{rate}}
    defer !ratelimit = 1 / 1h
    ratelimit= 2 / 1h
    message = ratelimit = 3
"#;
        let call = |library: &str, function: &str, argument: &str| Call {
            file: "/etc/exim4/rcpt.conf".into(),
            library: library.into(),
            function: function.into(),
            argument: argument.into(),
        };
        let read = Calls::read(config);
        assert_eq!(
            read.calls,
            [
                call("/lib/exirate.so", "ratelimit", "1 / 1h / strict / ${lc:$domain}"),
                call("/lib/exirate.so", "ratelimit_info", "rate"),
                call("$config_dir/exirate.so", "rate", ""),
            ]
        );
        assert_eq!(read.native, ["defer !ratelimit = 1 / 1h", "ratelimit= 2 / 1h"]);
    }

    #[test]
    fn what_is_no_call_is_left_alone() {
        for line in ["${dlfunc", "${dlfunc{/lib/exirate.so", "${dlfunc{a}{b}{c}", "accept", ""] {
            assert_eq!(Calls::read(&format!("begin acl\n{line}")), Calls::default(), "{line}");
        }
        assert!(!is_native("deny message = ratelimit = x"));
        assert!(!is_native("accepts ratelimit = x"));
        assert!(is_native("deny!ratelimit=x"));
    }
}
