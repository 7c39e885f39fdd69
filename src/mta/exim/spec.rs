//! What is known of a spec before Exim expands it: its limit, what is wrong with
//! it, and whether a client could choose a part of it.

use schemars::JsonSchema;
use serde::Serialize;

use super::expansion::{Expansion, UNKNOWN, Variable};
use crate::spec::{Context, Lint, Spec};

/// What a spec limits, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub(crate) struct Limit {
    /// `100 / 1h`; `?` for what only Exim knows.
    pub(crate) limit: String,
    /// The mode and the update mode, defaults included: `per_addr, strict`.
    pub(crate) mode: String,
}

/// What a spec counts, as it is written.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    period: String,
    pub(super) mode: String,
    unique: Option<String>,
    /// `noupdate` or `readonly`
    pub(super) reads_only: bool,
    pub(super) key: String,
}

impl Shape {
    /// Of the spec `text` with `key` as an argument of its own.
    pub(super) fn of(text: &str, key: Option<&str>) -> Self {
        let options: Vec<String> =
            items(text).into_iter().skip(2).map(|item| item.to_ascii_lowercase()).collect();
        let starting = |start: &str| options.iter().find(|option| option.starts_with(start));
        let key = key.map_or_else(|| key_of(text), str::to_owned);
        let key = if key.is_empty() { "$sender_host_address".to_owned() } else { key };
        Self {
            period: items(text).into_iter().nth(1).unwrap_or_default(),
            mode: starting("per_").cloned().unwrap_or_else(|| "per_mail".to_owned()),
            unique: starting("unique=").cloned(),
            reads_only: options.iter().any(|one| matches!(&**one, "noupdate" | "readonly")),
            key,
        }
    }

    /// Whether Exim has one rate for both.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let of = |one: &Self| {
            (one.period.clone(), one.mode.clone(), one.unique.clone(), one.key.clone())
        };
        of(self) == of(other)
    }
}

/// What was found in a spec.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpecReport {
    pub(crate) limits: Vec<Limit>,
    /// What fails when Exim checks it.
    pub(crate) errors: Vec<String>,
    /// What is probably not meant, or not safe.
    pub(crate) warnings: Vec<String>,
}

/// Texts to try where only Exim knows what is there; the first is good as a
/// limit, as a period and as a key.
const SAMPLES: [&str; 3] = ["1", "1 / 1h", "x"];

impl SpecReport {
    /// Of the spec `text` with `key` as an argument of its own.
    pub(crate) fn of(text: &str, key: Option<&str>) -> Self {
        let mut report = Self::default();
        let expansion = Expansion::of(text);
        for outcome in expansion.outcomes() {
            let result = judge(&outcome.text);
            let from = outcome.row.map_or(String::new(), |row| format!("{row}: "));
            match result {
                Ok((limit, lints)) => {
                    report.limits.push(limit);
                    report.warnings.extend(lints.into_iter().map(|lint| format!("{from}{lint}")));
                }
                Err(error) => report.errors.push(format!("{from}{error}")),
            }
        }
        for list in [&mut report.errors, &mut report.warnings] {
            list.sort();
            list.dedup();
        }
        report.limits.sort();
        report.limits.dedup();
        report.warnings.extend(unsafe_key(text, key));
        report
    }
}

/// The limit of a spec in which [`UNKNOWN`] stands for what only Exim knows.
fn judge(text: &str) -> Result<(Limit, Vec<String>), String> {
    let unknown = text.contains(UNKNOWN);
    let mut first_error = None;
    let second = text.split('/').nth(1).unwrap_or_default().trim_start();
    for sample in SAMPLES {
        // What looks like a period is one.
        if sample.contains('/') && second.starts_with(|c: char| c.is_ascii_digit()) {
            continue;
        }
        let tried = text.replace(UNKNOWN, sample);
        match parse(&tried) {
            Ok((limit, mode, lints)) => {
                let mut items = text.split('/').map(str::trim);
                let of_two: Vec<&str> = items.by_ref().take(2).collect();
                let known = !of_two.iter().any(|item| item.contains(UNKNOWN));
                let shown = if known { limit } else { of_two.join(" / ") };
                let limit = Limit { limit: shown.replace(UNKNOWN, "?"), mode };
                // A lint may be about the sample.
                let is_known = |lint: &Lint| match lint {
                    Lint::ZeroLimit | Lint::EmptyLimit { .. } => {
                        of_two.first().is_some_and(|item| !item.contains(UNKNOWN))
                    }
                    _ => !unknown,
                };
                let lints = lints.iter().filter(|lint| is_known(lint));
                return Ok((limit, lints.map(ToString::to_string).collect()));
            }
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    Err(comment(text).unwrap_or_else(|| first_error.unwrap_or_default()))
}

fn parse(text: &str) -> Result<(String, String, Vec<Lint>), String> {
    let spec = Spec::parse(text.as_bytes()).map_err(|error| error.to_string())?;
    let request = spec.request(&Context::outside()).map_err(|error| error.to_string())?;
    let written = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
    Ok((
        format!("{} / {}", written(spec.limit_text()), written(spec.period_text())),
        format!("{}, {}", request.mode.word(), request.update.word()),
        spec.lints(),
    ))
}

/// A comment in a spec, which is one for nobody but the person who wrote it.
fn comment(text: &str) -> Option<String> {
    text.contains(" #").then(|| {
        format!(
            "in {:?}: Exim has no comments at the end of a line, so what follows the # is part of \
             the value: give the comment a line of its own",
            text.replace(UNKNOWN, "?")
        )
    })
}

/// Warnings of a key that a client can choose: text of a client in a spec may
/// hold options, such as `noupdate`, and switch the limit off; and a user whose login may
/// be written in several ways has as many keys.
fn unsafe_key(text: &str, key: Option<&str>) -> Vec<String> {
    let mut warnings = Vec::new();
    let in_spec: Vec<Variable> = Expansion::of(text)
        .variables()
        .into_iter()
        .filter(|variable| variable.is_from_client() && !variable.harmless)
        .collect();
    if !in_spec.is_empty() {
        let mut names: Vec<String> =
            in_spec.iter().map(|variable| format!("${}", variable.name)).collect();
        names.dedup();
        let safe = match key {
            None => safe_form(text),
            Some(_) => "write nothing of it in the spec".to_owned(),
        };
        warnings.push(format!(
            "the client chooses {}, and the spec is taken apart after that is filled in: \
             \"noupdate\" there switches the limit off; {safe}",
            names.join(" and ")
        ));
    }
    let in_key = key.map(|key| Expansion::of(key).variables()).unwrap_or_default();
    let unfolded = in_spec.iter().chain(&in_key).find(|variable| {
        matches!(&*variable.name, "authenticated_id" | "authenticated_sender") && !variable.folded
    });
    if let Some(variable) = unfolded {
        warnings.push(format!(
            "${} is counted as the client writes it, so ALICE, alice and `alice.` have separate \
             limits: write {}",
            variable.name,
            FOLDED_LOGIN.replace("authenticated_id", &variable.name)
        ));
    }
    warnings
}

/// A login as policies count it.
const FOLDED_LOGIN: &str = "${dlfunc{EXIRATE}{identity}{auth}{$authenticated_id}}";

/// What to write in place of a spec with a key in it.
fn safe_form(text: &str) -> String {
    let (spec, key) = split_key(text);
    let key = key.replace("${lc:$authenticated_id}", "$authenticated_id");
    let key = key.replace(FOLDED_LOGIN, "$authenticated_id");
    let key = key.replace("$authenticated_id", FOLDED_LOGIN);
    if key.is_empty() {
        return "write none of it into limit, period and options".to_owned();
    }
    format!("give the key as an argument of its own: {{{spec}}}{{{key}}}")
}

/// The key in a spec, as written.
pub(super) fn key_of(spec: &str) -> String {
    split_key(spec).1
}

/// A spec before its key, and the key.
fn split_key(text: &str) -> (String, String) {
    let items = items(text);
    let is_option = |item: &str| {
        let item = item.to_ascii_lowercase();
        let word = item.split('=').next().unwrap_or_default();
        matches!(word, "leaky" | "strict" | "noupdate" | "readonly" | "count" | "unique")
            || item.strip_prefix("per_").is_some_and(|rest| {
                matches!(rest, "mail" | "rcpt" | "addr" | "conn" | "cmd" | "byte")
            })
    };
    // Limit and period may come as one from a lookup.
    let first = items
        .iter()
        .skip(1)
        .position(|item| !is_option(item) && !item.starts_with(|c: char| c.is_ascii_digit()));
    let (mut spec, mut key) = (Vec::new(), Vec::new());
    for (n, item) in items.iter().enumerate() {
        let is_key = first.is_some_and(|first| n > first) && !is_option(item);
        if is_key { key.push(item.as_str()) } else { spec.push(item.as_str()) }
    }
    (spec.join(" / "), key.join("/"))
}

/// The items of a slash list, with what is in braces kept whole.
fn items(text: &str) -> Vec<String> {
    let (mut items, mut depth, mut item) = (Vec::new(), 0_usize, String::new());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            '/' if depth == 0 && chars.next_if_eq(&'/').is_none() => {
                items.push(std::mem::take(&mut item).trim().to_owned());
                continue;
            }
            _ => {}
        }
        item.push(c);
    }
    items.push(item.trim().to_owned());
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(text: &str) -> Vec<String> {
        let report = SpecReport::of(text, None);
        assert_eq!(report.errors, Vec::<String>::new(), "{text}");
        report.limits.iter().map(|limit| format!("{} {}", limit.limit, limit.mode)).collect()
    }

    #[test]
    fn limits_are_known_where_they_can_be() {
        assert_eq!(limits("10 / 1h / $domain"), ["10 / 1h per_mail, leaky"]);
        assert_eq!(limits("10 / 1h / per_addr / strict / $x"), ["10 / 1h per_addr, strict"]);
        assert_eq!(limits("$acl_m_limit / 1h / $x"), ["? / 1h per_mail, leaky"]);
        assert_eq!(
            limits("${if bool{$x}{10 / 1h}{20 / 1d}} / strict"),
            ["10 / 1h per_mail, strict", "20 / 1d per_mail, strict"]
        );
    }

    #[test]
    fn errors_are_found_beside_what_only_exim_knows() {
        for (text, words) in [
            ("10 / 1x / per_addr / strict / $authenticated_id", "\"1x\" is not a time value"),
            ("$limit / 1x / $id", "\"1x\" is not a time value"),
            ("RATELIMIT_USR / per_addr / $id", "RATELIMIT_USR"),
            ("10 / 1h # for all / $id", "Exim has no comments at the end of a line"),
            ("10 / 1h / strict / leaky / $id", "conflicting update modes"),
        ] {
            let report = SpecReport::of(text, None);
            assert_eq!(report.errors.len(), 1, "{text}: {report:?}");
            assert!(report.errors[0].contains(words), "{text}: {report:?}");
        }
    }

    #[test]
    fn a_limit_of_zero_is_warned_of_also_in_a_file_of_limits() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "alice: 0 / 1h\nbob: 5 / 1h\n").unwrap();
        let lookup =
            format!("${{lookup{{$x}}lsearch{{{}}}{{$value}}{{9 / 1h}}}}", file.path().display());
        for (text, from) in
            [("0 / 1h / $x", String::new()), (&*lookup, format!("{}:1: ", file.path().display()))]
        {
            let warnings = SpecReport::of(text, Some("x")).warnings;
            let [warning] = &warnings[..] else { panic!("{text}: {warnings:?}") };
            let start = format!("{from}the limit is 0, which blocks everything");
            assert!(warning.starts_with(&start), "{warning}");
        }
        assert!(SpecReport::of("$x / 1h / key", None).warnings.is_empty());
    }

    #[test]
    fn what_a_client_chooses_in_a_spec_is_warned_of_with_the_safe_form() {
        for (text, safe) in [
            ("9 / 1h / strict / $sender_address", "{9 / 1h / strict}{$sender_address}"),
            (
                "9 / 1h / per_addr / strict / x:$authenticated_id",
                "{x:${dlfunc{EXIRATE}{identity}{auth}{$authenticated_id}}}",
            ),
            (
                "${lookup{$authenticated_id}lsearch{/nonexistent}{$value}{9 / 1h}} / strict / $local_part",
                "{${lookup{$authenticated_id}lsearch{/nonexistent}{$value}{9 / 1h}} / strict}{$local_part}",
            ),
        ] {
            let warnings = SpecReport::of(text, None).warnings;
            assert!(warnings.iter().any(|w| w.contains(safe)), "{text}: {warnings:?}");
        }
        for text in ["9 / 1h / $sender_host_address", "9 / 1h / ${sha256:$h_subject:}", "9 / 1h"] {
            assert_eq!(SpecReport::of(text, None).warnings, Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn an_id_that_is_not_folded_is_warned_of() {
        let warned = |text, key| {
            let warnings = SpecReport::of(text, key).warnings;
            warnings.iter().any(|warning| warning.contains("have separate limits"))
        };
        assert!(warned("9 / 1h", Some("$authenticated_id")));
        assert!(warned("9 / 1h / $authenticated_id", None));
        assert!(warned("9 / 1h", Some("${lc:$authenticated_id}")));
        assert!(!warned("9 / 1h", Some(FOLDED_LOGIN)));
        assert!(!warned("9 / 1h", Some("$sender_address")));
    }
}
