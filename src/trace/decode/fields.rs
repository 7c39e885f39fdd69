//! The header of a message or a part: its fields, and what is kept of them.

use mail_parser::parsers::MessageStream;
use mail_parser::{Address, ContentType, HeaderValue};

use super::transfer::Encoding;
use super::words;

/// So many bytes of a field are looked at at once, or at all where only the
/// first of them count.
const MOST: usize = 8192;

/// What a header says of the body behind it.
#[derive(Default)]
pub(super) struct Head<'a> {
    content_type: Option<&'a [u8]>,
    disposition: Option<&'a [u8]>,
    encoding: Option<&'a [u8]>,
}

/// A field that people read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spoken<'a> {
    Subject(&'a [u8]),
    /// People and their addresses.
    People(&'a [u8]),
}

impl<'a> Head<'a> {
    /// Takes in a field. The first of a name counts; those that people read are
    /// returned.
    pub(super) fn add(&mut self, name: &[u8], value: &'a [u8]) -> Option<Spoken<'a>> {
        let mut keep = |place: fn(&mut Self) -> &mut Option<&'a [u8]>| {
            let place = place(self);
            *place = place.or(Some(&value[..value.len().min(MOST)]));
            None
        };
        let mut lower = [0; 25];
        let lower = lower.get_mut(..name.len())?;
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        match &*lower {
            b"content-type" => keep(|head| &mut head.content_type),
            b"content-disposition" => keep(|head| &mut head.disposition),
            b"content-transfer-encoding" => keep(|head| &mut head.encoding),
            b"subject" => Some(Spoken::Subject(value)),
            b"from" | b"to" | b"cc" | b"reply-to" => Some(Spoken::People(value)),
            _ => None,
        }
    }

    /// What the body is.
    pub(super) fn media(&self) -> Media {
        let mut media = Media {
            encoding: self.encoding.map(Encoding::named).unwrap_or_default(),
            is_typed: self.content_type.is_some(),
            ..Media::default()
        };
        if let Some(value) = self.content_type {
            parameters(value, |kind, content| {
                media.kind = String::from(kind);
                for (to, name) in [
                    (&mut media.charset, "charset"),
                    (&mut media.boundary, "boundary"),
                    (&mut media.named, "name"),
                ] {
                    *to = content.attribute(name).map(|value| value.replace(words::APART, ""));
                }
                let joined = content.attribute("delsp");
                media.is_joined = joined.is_some_and(|value| value.eq_ignore_ascii_case("yes"));
            });
        }
        if let Some(value) = self.disposition {
            parameters(value, |kind, content| {
                media.is_attached = kind == "attachment";
                media.filename = content.attribute("filename").map(String::from);
            });
        }
        media
    }
}

/// What a body is, and how it is written.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Media {
    /// Type and subtype in lower case, as in `text/plain`; may be empty or
    /// anything else.
    pub(super) kind: String,
    /// Whether there is a field that says what it is.
    pub(super) is_typed: bool,
    pub(super) encoding: Encoding,
    pub(super) charset: Option<String>,
    pub(super) boundary: Option<String>,
    /// The names of the file, from both fields that may have one.
    pub(super) named: Option<String>,
    pub(super) filename: Option<String>,
    /// Whether it is to be shown as an attachment only.
    pub(super) is_attached: bool,
    /// Whether the space before a soft line break goes with it (RFC 3676).
    pub(super) is_joined: bool,
}

/// Reads a field like `Content-Type`.
fn parameters(value: &[u8], mut found: impl FnMut(&str, &ContentType<'_>)) {
    let value = words::prepare(value);
    if let HeaderValue::ContentType(content) =
        MessageStream::new(value.as_bytes()).parse_content_type()
    {
        let kind = match content.subtype() {
            Some(subtype) => format!("{}/{subtype}", content.ctype()),
            None => String::from(content.ctype()),
        };
        found(kind.trim().to_ascii_lowercase().as_str(), &content);
    }
}

impl Spoken<'_> {
    /// How many bytes it has.
    pub(super) fn len(self) -> usize {
        let (Self::Subject(value) | Self::People(value)) = self;
        value.len()
    }

    /// Gives the subject, or each name. What is long is read in turns, so that no
    /// more memory is needed than for what it says.
    pub(super) fn names(self, give: &mut impl FnMut(&str)) {
        let mut people = match self {
            Self::Subject(value) => return give(&subject(value)),
            Self::People(value) => value,
        };
        while !people.is_empty() {
            let (turn, rest) = people.split_at(turn(people));
            let turn = words::prepare(turn);
            let mut stream = MessageStream::new(turn.as_bytes());
            if let HeaderValue::Address(people) = stream.parse_address() {
                each_name(&people, give);
            }
            people = rest;
        }
    }
}

/// The whole subject as one text: an excerpt may stand anywhere in it.
fn subject(value: &[u8]) -> String {
    let value = words::prepare(value);
    let mut subject = String::new();
    for (turn, goes_on) in words::turns(&value, MOST) {
        let turn = format!("{}\n", turn.trim_ascii());
        let mut stream = MessageStream::new(turn.as_bytes());
        if let HeaderValue::Text(text) = stream.parse_unstructured() {
            subject.push_str(if goes_on { "" } else { " " });
            subject.push_str(&text);
        }
    }
    subject
}

/// Where to part a value so that what is before is not too long: behind a
/// line that ends in a comma if there is one, else between two people, else behind
/// a line, else anywhere.
fn turn(value: &[u8]) -> usize {
    let Some(head) = value.get(..MOST) else { return value.len() };
    let behind =
        |end: &[u8]| head.windows(end.len()).rposition(|line| line == end).map(|at| at + end.len());
    let lists = behind(b",\n").max(behind(b",\r\n")).or_else(|| behind_comma(head));
    lists.or_else(|| behind(b"\n")).unwrap_or(MOST)
}

/// Behind the last comma, with white space after it, that is not quoted.
fn behind_comma(head: &[u8]) -> Option<usize> {
    let (mut is_quoted, mut is_escaped, mut last) = (false, false, None);
    for (at, pair) in head.windows(2).enumerate() {
        match pair[0] {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            b',' if !is_quoted && matches!(pair[1], b' ' | b'\t') => last = Some(at + 1),
            _ => {}
        }
    }
    last
}

fn each_name(people: &Address<'_>, give: &mut impl FnMut(&str)) {
    match people {
        Address::List(people) => people.iter().filter_map(|one| one.name()).for_each(give),
        Address::Group(groups) => {
            for group in groups {
                group.name.as_deref().into_iter().for_each(&mut *give);
                group.addresses.iter().filter_map(|one| one.name()).for_each(&mut *give);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_is_parted_between_names() {
        for line_end in ["\n", "\r\n"] {
            let one = |n: usize| format!(" \"Name, {n}\"{line_end}\t<n{n}@example.org>,{line_end}");
            let list: String = (0..1000).map(one).collect();
            let turn = turn(list.as_bytes());
            assert!((MOST - 100..=MOST).contains(&turn));
            assert!(list[..turn].ends_with(&format!(",{line_end}")));
            let mut names = Vec::new();
            Spoken::People(list.as_bytes()).names(&mut |name| names.push(String::from(name)));
            assert!(names.iter().eq(&(0..1000).map(|n| format!("Name, {n}")).collect::<Vec<_>>()));
            // All of it on one line.
            let list = list.replace(line_end, "");
            names.clear();
            Spoken::People(list.as_bytes()).names(&mut |name| names.push(String::from(name)));
            assert!(names.iter().eq(&(0..1000).map(|n| format!("Name, {n}")).collect::<Vec<_>>()));
        }
        assert_eq!(turn(b"a,\nb"), 4);
        assert_eq!(turn(&b"a \n".repeat(MOST)), MOST / 3 * 3);
        assert_eq!(turn(&[b'a'; 2 * MOST]), MOST);
    }

    #[test]
    fn a_long_subject_is_one_text() {
        let read = |value: &str| {
            let mut all = Vec::new();
            Spoken::Subject(value.as_bytes()).names(&mut |text| all.push(String::from(text)));
            assert_eq!(all.len(), 1);
            all.concat().split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let numbers: Vec<String> = (0..20_000).map(|n| format!("n{n}")).collect();
        for space in [" ", "\n ", "\r\n\t"] {
            assert_eq!(read(&numbers.join(space)), numbers.join(" "));
        }
        let all: String = numbers.concat();
        assert_eq!(read(&all), all);
        // Encoded words that become one, and some that stay.
        let word = |number: &String| format!("=?utf-8?q?{number}_?=");
        let words: Vec<String> = numbers.iter().map(word).collect();
        assert_eq!(read(&words.join("\n ")), numbers.join(" "));
        let both: Vec<String> = numbers
            .iter()
            .zip(["q", "Q", "b", "-"].iter().cycle())
            .map(|(number, kind)| match *kind {
                "b" => String::from("=?utf-8?b?YcOpIA==?="),
                "-" => number.clone(),
                kind => format!("=?utf-8?{kind}?=C3=A9{number}_?="),
            })
            .collect();
        let expected: Vec<String> = numbers
            .iter()
            .zip(0_usize..)
            .map(|(number, at)| match at % 4 {
                2 => String::from("aé"),
                3 => number.clone(),
                _ => format!("é{number}"),
            })
            .collect();
        assert_eq!(read(&both.join(" ")), expected.join(" "));
    }

    fn media(content_type: &str, disposition: &str) -> Media {
        let mut head = Head::default();
        assert_eq!(head.add(b"Content-Type", content_type.as_bytes()), None);
        assert_eq!(head.add(b"CONTENT-DISPOSITION", disposition.as_bytes()), None);
        head.media()
    }

    #[test]
    fn what_a_body_is() {
        let found = media(
            " TEXT/Plain; Charset=\"UTF-8\"; format=flowed; DelSp=Yes;\r\n\tboundary=\"=?b c?=\"\r\n",
            " attachment; filename=a.txt\r\n",
        );
        let expected = Media {
            kind: String::from("text/plain"),
            is_typed: true,
            charset: Some(String::from("UTF-8")),
            boundary: Some(String::from("=?b c?=")),
            filename: Some(String::from("a.txt")),
            is_attached: true,
            is_joined: true,
            ..Media::default()
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn names_of_files() {
        for (parameter, name) in [
            ("filename=a.txt", "a.txt"),
            ("filename=\"a b.txt\"", "a b.txt"),
            ("filename=\"a \\\"b\\\".txt\"", "a \"b\".txt"),
            ("filename*=utf-8'en'caf%C3%A9", "café"),
            ("filename*=iso-8859-1''caf%E9", "café"),
            ("filename*0=a;\r\n filename*1=b.txt", "ab.txt"),
            ("filename*1=b.txt; filename*0=a", "ab.txt"),
            ("filename*0*=utf-8''%C3%A9; filename*1*=%C3%A9; filename*2=\"%C3\"", "éé%C3"),
            ("filename=\"=?utf-8?b?Y2Fmw6k=?=\"", "café"),
            ("filename==?iso-8859-1?q?caf=E9?=", "café"),
            ("filename=\"=?utf-8?q?a_?=\r\n =?utf-8?q?b?=\"", "a b"),
            ("filename=café", "café"),
        ] {
            let media = media("application/x", &format!("attachment; {parameter}"));
            assert_eq!(media.filename.as_deref(), Some(name), "{parameter}");
        }
    }
}
