//! Where in the text of `main.cf` and `master.cf` a check of a list belongs.

use std::ops::Range;

/// A list of restrictions in a file, as the places of its words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct List {
    /// Where it begins: behind the `=`, and behind a blank if there is one.
    start: usize,
    words: Vec<Range<usize>>,
}

/// A service in `master.cf` that receives mail by SMTP.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ServiceText {
    /// As `postconf -P` has it: `submission/inet`.
    pub(super) name: String,
    /// The lists that it has in place of those of `main.cf`: the name of each.
    pub(super) lists: Vec<(String, List)>,
    /// The end of its last line that is not a comment.
    pub(super) end: usize,
}

impl List {
    /// Where a check belongs, and what is inserted: before what accepts mail or could accept
    /// it, and behind what only refuses for good, so that a recipient which is refused there is
    /// not counted. Without blanks where the file takes none.
    pub(super) fn insertion(&self, text: &str, check: &str, blanks: bool) -> (usize, String) {
        let comma = if blanks { ", " } else { "," };
        let mut words = self.words.iter();
        let mut before: Option<&Range<usize>> = None;
        while let Some(word) = words.next() {
            let name = &text[word.clone()];
            let (only_refuses, has_value) = refuses(name);
            if !only_refuses {
                return (word.start, format!("{check}{comma}"));
            }
            before = if has_value { words.next().or(before) } else { Some(word) };
        }
        match before {
            Some(last) => (last.end, format!("{comma}{check}")),
            None => (self.start, check.to_owned()),
        }
    }
}

/// Whether a restriction can only refuse mail, and for that recipient or client alone; and
/// whether a value follows it.
fn refuses(word: &str) -> (bool, bool) {
    let has_value = word == "reject_rbl_client" || word.starts_with("reject_rhsbl_");
    (word.starts_with("reject_"), has_value)
}

/// A setting of `main.cf`: where it is set last, as that counts.
pub(super) fn setting(text: &str, name: &str) -> Option<List> {
    let of = |line: Vec<Range<usize>>| {
        let first = line.first()?.clone();
        let (found, value) = text[first.clone()].split_once('=')?;
        (found.trim() == name).then(|| {
            let start = first.end - value.len();
            let parts = std::iter::once(start..first.end).chain(line.into_iter().skip(1));
            list(text, parts)
        })
    };
    logical_lines(text).into_iter().filter_map(of).next_back()
}

/// The services of `master.cf` that receive mail by SMTP, with those of `names` that they
/// have in place of the settings of `main.cf`.
pub(super) fn services(text: &str, names: &[&str]) -> Vec<ServiceText> {
    let of = |line: Vec<Range<usize>>| {
        let end = text[..line.last()?.end].trim_end().len();
        let words = words(text, line.into_iter(), char::is_whitespace);
        let [name, kind, _, _, _, _, _, program, arguments @ ..] = &words[..] else {
            return None;
        };
        if &text[program.clone()] != "smtpd" {
            return None;
        }
        let name = format!("{}/{}", &text[name.clone()], &text[kind.clone()]);
        let (mut lists, mut arguments) = (Vec::new(), arguments.iter());
        while let Some(argument) = arguments.next() {
            // `-o name=value`, or `-oname=value`.
            let setting = match text[argument.clone()].strip_prefix("-o") {
                None => continue,
                Some("") => arguments.next().cloned(),
                Some(_) => Some(argument.start + 2..argument.end),
            };
            lists.extend(setting.and_then(|place| own_list(text, place, names)));
        }
        Some(ServiceText { name, lists, end })
    };
    logical_lines(text).into_iter().filter_map(of).collect()
}

/// A list that a service has of its own: `name=value`, or `{ name = value }`.
fn own_list(text: &str, place: Range<usize>, names: &[&str]) -> Option<(String, List)> {
    let place = match text[place.clone()].strip_prefix('{') {
        Some(rest) => place.start + 1..place.end - usize::from(rest.ends_with('}')),
        None => place,
    };
    let (name, value) = text[place.clone()].split_once('=')?;
    let name = name.trim();
    let start = place.end - value.len();
    names.contains(&name).then(|| (name.to_owned(), list(text, std::iter::once(start..place.end))))
}

fn list(text: &str, parts: impl Iterator<Item = Range<usize>>) -> List {
    let mut parts = parts.peekable();
    let first = parts.peek().cloned().unwrap_or(0..0);
    let blank = usize::from(text[first.clone()].starts_with(' '));
    let words = words(text, parts, |c| c.is_whitespace() || c == ',');
    List { start: first.start + blank, words }
}

/// The logical lines, each as the places of its parts: a line that starts with a blank
/// continues the one before, and comments and empty lines in between do not end it.
fn logical_lines(text: &str) -> Vec<Vec<Range<usize>>> {
    let mut lines: Vec<Vec<Range<usize>>> = Vec::new();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let place = start..start + line.trim_end_matches(['\n', '\r']).len();
        start += line.len();
        let content = line.trim_start();
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        match lines.last_mut() {
            Some(last) if line.starts_with([' ', '\t']) => last.push(place),
            _ => lines.push(vec![place]),
        }
    }
    lines
}

/// The words in some parts of the text; what is in braces is one word.
fn words(
    text: &str,
    parts: impl Iterator<Item = Range<usize>>,
    is_gap: impl Fn(char) -> bool,
) -> Vec<Range<usize>> {
    let mut words = Vec::new();
    let (mut word, mut depth): (Option<Range<usize>>, usize) = (None, 0);
    for part in parts {
        for (at, c) in text[part.clone()].char_indices() {
            let at = part.start + at;
            match c {
                '{' => depth += 1,
                '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 && is_gap(c) {
                words.extend(word.take());
            } else {
                word = Some(word.map_or(at, |word| word.start)..at + c.len_utf8());
            }
        }
        // A new line is a blank.
        if depth == 0 {
            words.extend(word.take());
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "smtpd_recipient_restrictions";

    /// `text` with the check in a setting of `main.cf`.
    fn with_check(text: &str) -> String {
        let (at, check) = setting(text, NAME).unwrap().insertion(text, "CHECK { u, t=1 }", true);
        format!("{}{check}{}", &text[..at], &text[at..])
    }

    #[test]
    fn a_check_is_before_what_accepts_and_behind_what_only_refuses() {
        for (before, after) in [
            ("permit_mynetworks, reject", "CHECK { u, t=1 }, permit_mynetworks, reject"),
            (
                "reject_unlisted_recipient,permit",
                "reject_unlisted_recipient,CHECK { u, t=1 }, permit",
            ),
            ("reject_rbl_client a.b permit", "reject_rbl_client a.b CHECK { u, t=1 }, permit"),
            ("reject_rbl_client a.b", "reject_rbl_client a.b, CHECK { u, t=1 }"),
            ("reject", "CHECK { u, t=1 }, reject"),
            ("warn_if_reject reject_x", "CHECK { u, t=1 }, warn_if_reject reject_x"),
            ("$mine", "CHECK { u, t=1 }, $mine"),
            ("check_client_access hash:/x", "CHECK { u, t=1 }, check_client_access hash:/x"),
            ("", "CHECK { u, t=1 }"),
        ] {
            for (start, end) in
                [("", ""), ("a = b\n", "\nc = d\n"), ("#smtpd_recipient_restrictions = x\n", "\n")]
            {
                let [before, after] =
                    [before, after].map(|list| format!("{start}{NAME} = {list}{end}"));
                assert_eq!(with_check(&before), after);
            }
        }
        assert_eq!(setting("smtpd_recipient_restrictions_x = a\n# y\n", NAME), None);
    }

    #[test]
    fn the_last_setting_counts_and_comments_end_no_line() {
        let text = "smtpd_recipient_restrictions=a\nsmtpd_recipient_restrictions\t=\n  # no\n\n\
                    \treject_unlisted_recipient,\n#x\n  permit_mynetworks,\n  é\nb=c";
        let expected = text.replace("permit_myn", "CHECK { u, t=1 }, permit_myn");
        assert_eq!(with_check(text), expected);
        assert_eq!(
            with_check("smtpd_recipient_restrictions ="),
            "smtpd_recipient_restrictions =CHECK { u, t=1 }"
        );
    }

    #[test]
    fn services_have_lists_of_their_own() {
        let text = "# smtp inet n - y - - smtpd\nsmtp inet n - y - - smtpd\n\
                    pickup unix n - y 60 1 pickup\n\
                    submission inet n - y - - smtpd\n  -o syslog_name=x\n# -o y\n  \
                    -o smtpd_recipient_restrictions=permit_sasl_authenticated,reject\n\n\
                    smtps inet n - y - - smtpd -o { smtpd_recipient_restrictions = permit }\n  \
                    -osmtpd_recipient_restrictions=\n";
        let services = services(text, &[NAME]);
        let found: Vec<(&str, usize, &str)> = services
            .iter()
            .map(|one| {
                (&*one.name, one.lists.len(), text[..one.end].lines().last().unwrap().trim())
            })
            .collect();
        assert_eq!(
            found,
            [
                ("smtp/inet", 0, "smtp inet n - y - - smtpd"),
                (
                    "submission/inet",
                    1,
                    "-o smtpd_recipient_restrictions=permit_sasl_authenticated,reject"
                ),
                ("smtps/inet", 2, "-osmtpd_recipient_restrictions="),
            ]
        );
        let mut changed = text.to_owned();
        for (_, list) in services.iter().rev().flat_map(|one| one.lists.iter().rev()) {
            let (at, check) = list.insertion(text, "CHECK,{u}", false);
            changed.insert_str(at, &check);
        }
        assert!(
            changed.contains("restrictions=CHECK,{u},permit_sasl_authenticated,reject"),
            "{changed}"
        );
        assert!(
            changed.contains("{ smtpd_recipient_restrictions = CHECK,{u},permit }"),
            "{changed}"
        );
        assert!(changed.contains("-osmtpd_recipient_restrictions=CHECK,{u}\n"), "{changed}");
    }

    kit::quickcheck! {
        fn any_text_is_read(text: String, lines: Vec<String>) -> bool {
            let main = format!("{NAME} = {text}\n{}\n{NAME}\t={text}", lines.join("\n"));
            let master = format!("smtp inet n - - - - smtpd -o {NAME}={text}\n {}", lines.join("\n"));
            let at = setting(&main, NAME).map(|list| list.insertion(&main, "c", true).0);
            let places = services(&master, &[NAME]);
            let places = places.iter().flat_map(|one| one.lists.iter());
            at.is_none_or(|at| main.is_char_boundary(at))
                && places.into_iter().all(|(_, list)| {
                    master.is_char_boundary(list.insertion(&master, "c", false).0)
                })
        }
    }
}
