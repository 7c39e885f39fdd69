//! Header fields of a message or a part.

use mail_parser::parsers::MessageStream;
use mail_parser::{Address, ContentType, HeaderValue};

use super::encoded_words;
use super::transfer::Encoding;

/// The number of bytes of a field parsed at once; of fields that describe a
/// body, only this many are read.
const CHUNK: usize = 8192;

/// Types of messages, and of what is about a message, of which readers see what is decoded here. Some
/// programs open any other of `message/` as a message, or join it to one, as `message/partial`.
const MESSAGES: [&str; 9] = [
    "message/rfc822",
    "message/global",
    "message/global-headers",
    "message/delivery-status",
    "message/global-delivery-status",
    "message/disposition-notification",
    "message/global-disposition-notification",
    "message/feedback-report",
    "message/external-body",
];

/// The fields that describe the body.
#[derive(Default)]
pub(super) struct BodyFields<'a> {
    content_type: Option<&'a [u8]>,
    disposition: Option<&'a [u8]>,
    encoding: Option<&'a [u8]>,
    /// One of them is there twice with different values, or too long: mail programs differ in what
    /// they make of the body.
    is_doubtful: bool,
}

/// A field that readers see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Visible<'a> {
    Subject(&'a [u8]),
    /// Display names with addresses.
    People(&'a [u8]),
}

impl<'a> BodyFields<'a> {
    /// Adds a field. If a field is repeated, the first one is used. Fields that
    /// readers see are returned.
    pub(super) fn add(&mut self, name: &[u8], value: &'a [u8]) -> Option<Visible<'a>> {
        let mut keep = |slot: fn(&mut Self) -> &mut Option<&'a [u8]>| {
            let is_long = value.len() > CHUNK;
            let slot = slot(self);
            let first = slot.get_or_insert(&value[..value.len().min(CHUNK)]);
            let is_another = !first.trim_ascii().eq_ignore_ascii_case(value.trim_ascii());
            self.is_doubtful |= is_another || is_long;
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
            b"subject" => Some(Visible::Subject(value)),
            b"from" | b"to" | b"cc" | b"reply-to" => Some(Visible::People(value)),
            _ => None,
        }
    }

    /// Whether the body has an encoding: what comes before it would be decoded with it.
    pub(super) fn is_encoded(&self) -> bool {
        self.encoding.is_some_and(|value| Encoding::named(value) != Encoding::None)
    }

    /// The type and encoding of the body.
    pub(super) fn media(&self) -> Media {
        let mut media = Media {
            encoding: self.encoding.map(Encoding::named).unwrap_or_default(),
            is_typed: self.content_type.is_some(),
            is_doubtful: self.is_doubtful,
            ..Media::default()
        };
        media.is_doubtful |= media.encoding == Encoding::Unknown;
        if let Some(value) = self.content_type {
            parameters(value, "text/plain", |kind, content| {
                media.kind = String::from(kind);
                for (to, name) in [
                    (&mut media.charset, "charset"),
                    (&mut media.boundary, "boundary"),
                    (&mut media.named, "name"),
                ] {
                    *to = content
                        .attribute(name)
                        .map(|value| value.replace(encoded_words::APART, ""));
                }
                let joined = content.attribute("delsp");
                media.is_joined = joined.is_some_and(|value| value.eq_ignore_ascii_case("yes"));
            });
            media.is_doubtful |= is_name_unread(value, "name", media.named.as_deref());
            // What has parts, or may have, and is not understood so.
            let lower = value.to_ascii_lowercase();
            let says = |word: &str| memchr::memmem::find(&lower, word.as_bytes()).is_some();
            let kind = media.kind.as_str();
            let has_boundary = media.boundary.as_deref().is_some_and(|it| !it.trim().is_empty());
            media.is_doubtful |= match kind.starts_with("multipart/") {
                true => !has_boundary,
                false => {
                    let is_message = MESSAGES.contains(&kind) || kind == "text/rfc822-headers";
                    says("multipart")
                        || says("boundary")
                        || (says("rfc822") || kind.starts_with("message/")) && !is_message
                }
            };
        }
        if let Some(value) = self.disposition {
            parameters(value, "inline", |kind, content| {
                media.is_attached = kind == "attachment";
                media.filename = content.attribute("filename").map(String::from);
            });
            media.is_doubtful |= is_name_unread(value, "filename", media.filename.as_deref());
        }
        media
    }
}

/// Whether a field may name a file otherwise than `name`, which was read of the `attribute`: there is none, a quotation
/// begins or ends within a value, or its charset or an encoded word is malformed. Mail programs differ in what they read of these.
fn is_name_unread(field: &[u8], attribute: &str, name: Option<&str>) -> bool {
    let field = String::from_utf8_lossy(field).to_ascii_lowercase();
    if !field.contains(attribute) {
        return false;
    }
    // As in filename*=utf-8'en'name (RFC 2231).
    let has_odd_charset = field.contains("*=") && field.matches('\'').count() > 2;
    name.is_none() || has_odd_charset || has_odd_quotes(&field) || has_odd_words(&field)
}

fn has_odd_quotes(field: &str) -> bool {
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, c) in field.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' if !is_quoted && !field[..at].trim_end().ends_with('=') => return true,
            '"' if is_quoted && !field[at + 1..].starts_with([';', ' ', '\t', '\r', '\n', '(']) => {
                return at + 1 < field.len();
            }
            '"' => is_quoted = !is_quoted,
            _ => {}
        }
    }
    is_quoted
}

/// Whether not all that begins as an encoded word is one (RFC 2047, section 2); blanks in it are common.
fn has_odd_words(field: &str) -> bool {
    let mut rest = field;
    while let Some((before, word)) = rest.split_once("=?") {
        let mut parts = word.splitn(4, '?');
        let [charset, encoding, text, end] = [(); 4].map(|()| parts.next().unwrap_or_default());
        let is_base64 = |b: u8| b.is_ascii_alphanumeric() || b"+/=".contains(&b);
        let is_known = encoding == "q" || encoding == "b" && text.bytes().all(is_base64);
        let is_apart = before.is_empty() || before.ends_with([' ', '\t', '\n', '"', '=', '(']);
        let is_named = !charset.is_empty() && !charset.contains(char::is_whitespace);
        if !is_apart || !is_named || !is_known || !end.starts_with('=') {
            return true;
        }
        rest = &end[1..];
    }
    false
}

/// The type and encoding of a body.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Media {
    /// Type and subtype in lower case, as in `text/plain`; may be empty or
    /// invalid.
    pub(super) kind: String,
    /// Whether there is a `Content-Type` field.
    pub(super) is_typed: bool,
    pub(super) encoding: Encoding,
    pub(super) charset: Option<String>,
    pub(super) boundary: Option<String>,
    /// The names of the file: `name` of the type, `filename` of the
    /// disposition.
    pub(super) named: Option<String>,
    pub(super) filename: Option<String>,
    /// Whether its disposition is `attachment`.
    pub(super) is_attached: bool,
    /// Whether the space before a soft line break is removed with it (RFC
    /// 3676).
    pub(super) is_joined: bool,
    /// Whether its fields are not understood, or in more than one way: then what is found of the
    /// body may not be what a reader sees.
    pub(super) is_doubtful: bool,
}

/// Parses a field like `Content-Type`, in which a type is taken for `absent` if there are parameters
/// alone.
fn parameters(value: &[u8], absent: &str, mut found: impl FnMut(&str, &ContentType<'_>)) {
    let unfolded = unfold(&encoded_words::prepare(value));
    let value = unfolded.trim_start_matches([';', ' ', '\t']);
    let first = value.split(';').next().and_then(|first| first.split_once('='));
    let has_type = first.is_none_or(|(name, _)| name.trim().contains([' ', '\t', '/', '(']));
    let value = match has_type {
        true => value.to_owned(),
        false => format!("{absent}; {value}"),
    };
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

/// A prepared field with parameters in one line: at the end of a line, the parser would take an
/// attribute without its value, a type without its subtype, and a comment for their ends. Between
/// parameters, the end of a line is taken as the `;` that some programs omit.
fn unfold(value: &str) -> String {
    let mut out = String::with_capacity(value.len() + 4);
    let (mut is_quoted, mut is_escaped, mut comments) = (false, false, 0_usize);
    for (at, c) in value.char_indices() {
        match c {
            '\r' | '\n' => {}
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' if comments == 0 => is_quoted = !is_quoted,
            '(' if !is_quoted => comments += 1,
            ')' if !is_quoted => comments = comments.saturating_sub(1),
            _ => {}
        }
        if !matches!(c, '\r' | '\n') {
            out.push(c);
            continue;
        }
        let rest = value[at..].trim_start();
        let is_within = is_quoted || comments > 0 || out.trim_end().ends_with(['=', '/', ';', '*']);
        let is_parameter = rest.split_once('=').is_some_and(|(name, _)| {
            let name = name.trim_end();
            !name.is_empty()
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-*".contains(&b))
        });
        if c == '\n' && !is_within && is_parameter {
            out.push(';');
        }
    }
    out.push('\n');
    out
}

impl Visible<'_> {
    /// Its length in bytes.
    pub(super) fn len(self) -> usize {
        let (Self::Subject(value) | Self::People(value)) = self;
        value.len()
    }

    /// Passes the subject, or each name, to `give`. Long fields are parsed in
    /// chunks to limit memory.
    pub(super) fn names(self, give: &mut impl FnMut(&str)) {
        let mut people = match self {
            Self::Subject(value) => return give(&subject(value)),
            Self::People(value) => value,
        };
        while !people.is_empty() {
            let (chunk, rest) = people.split_at(chunk_end(people));
            let chunk = encoded_words::prepare(chunk);
            let mut stream = MessageStream::new(chunk.as_bytes());
            if let HeaderValue::Address(people) = stream.parse_address() {
                each_name(&people, give);
            }
            people = rest;
        }
    }
}

/// The whole subject as one text, so that excerpts across chunks are found.
fn subject(value: &[u8]) -> String {
    let value = encoded_words::prepare(value);
    let mut subject = String::new();
    for (chunk, continues) in encoded_words::chunks(&value, CHUNK) {
        let chunk = format!("{}\n", chunk.trim_ascii());
        let mut stream = MessageStream::new(chunk.as_bytes());
        if let HeaderValue::Text(text) = stream.parse_unstructured() {
            subject.push_str(if continues { "" } else { " " });
            subject.push_str(&text);
        }
    }
    subject
}

/// Where to split a value so that the first chunk is not too long: after a line
/// that ends in a comma, else after a comma between names, else after a line,
/// else anywhere.
fn chunk_end(value: &[u8]) -> usize {
    let Some(head) = value.get(..CHUNK) else { return value.len() };
    let after =
        |end: &[u8]| head.windows(end.len()).rposition(|line| line == end).map(|at| at + end.len());
    let lists = after(b",\n").max(after(b",\r\n")).or_else(|| after_comma(head));
    lists.or_else(|| after(b"\n")).unwrap_or(CHUNK)
}

/// The offset after the last unquoted comma that is followed by white space.
fn after_comma(head: &[u8]) -> Option<usize> {
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
    fn a_long_list_is_split_between_names() {
        for line_end in ["\n", "\r\n"] {
            let one = |n: usize| format!(" \"Name, {n}\"{line_end}\t<n{n}@example.org>,{line_end}");
            let list: String = (0..1000).map(one).collect();
            let chunk = chunk_end(list.as_bytes());
            assert!((CHUNK - 100..=CHUNK).contains(&chunk));
            assert!(list[..chunk].ends_with(&format!(",{line_end}")));
            let mut names = Vec::new();
            Visible::People(list.as_bytes()).names(&mut |name| names.push(String::from(name)));
            assert!(names.iter().eq(&(0..1000).map(|n| format!("Name, {n}")).collect::<Vec<_>>()));
            // The whole list on one line.
            let list = list.replace(line_end, "");
            names.clear();
            Visible::People(list.as_bytes()).names(&mut |name| names.push(String::from(name)));
            assert!(names.iter().eq(&(0..1000).map(|n| format!("Name, {n}")).collect::<Vec<_>>()));
        }
        assert_eq!(chunk_end(b"a,\nb"), 4);
        assert_eq!(chunk_end(&b"a \n".repeat(CHUNK)), CHUNK / 3 * 3);
        assert_eq!(chunk_end(&[b'a'; 2 * CHUNK]), CHUNK);
    }

    #[test]
    fn a_long_subject_is_one_text() {
        let read = |value: &str| {
            let mut all = Vec::new();
            Visible::Subject(value.as_bytes()).names(&mut |text| all.push(String::from(text)));
            assert_eq!(all.len(), 1);
            all.concat().split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let numbers: Vec<String> = (0..20_000).map(|n| format!("n{n}")).collect();
        for space in [" ", "\n ", "\r\n\t"] {
            assert_eq!(read(&numbers.join(space)), numbers.join(" "));
        }
        let all: String = numbers.concat();
        assert_eq!(read(&all), all);
        // Encoded words that are joined, and some that are not.
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
        let mut head = BodyFields::default();
        assert_eq!(head.add(b"Content-Type", content_type.as_bytes()), None);
        assert_eq!(head.add(b"CONTENT-DISPOSITION", disposition.as_bytes()), None);
        head.media()
    }

    /// Each was hidden from a search, while Python's email reads a name.
    #[test]
    fn names_of_files_that_programs_read_differently() {
        let is_doubtful = |disposition: &str| media("application/pdf", disposition).is_doubtful;
        for odd in [
            "attachm(nt; filename=name.pdf; size=12",
            "atta(chment;\r\n filename*0=na;\r\n filename*1=me.pdf",
            "attachment;\r\n filename=\"=?utf-8?b?bmF)tZQ==?=\"",
            "attachment; filename=\"=?\n utf-8?b?bmFtZQ==?=\"",
            "attachment; filename=\"a=\"name.pdf\"",
            "attachment; filename=\"a\"name.pdf\"",
            "attachment; filename*=a\"\"utf-8''name.pdf",
            "attachment; filename*=utf-8''name'.pdf",
            "attachment; filename=\"name.pdf",
        ] {
            assert!(is_doubtful(odd), "{odd:?}");
        }
        for usual in [
            "attachment; filename=name.pdf; size=12",
            "attachment; filename = \"a name.pdf\" ; size=12\r\n",
            "attachment; filename=a name's.pdf",
            "attachment;\r\n\tfilename=\"=?utf-8?B?bmFtZQ==?=\r\n =?iso-8859-1?Q?_a b.pdf?=\"",
            "attachment; filename*0*=utf-8'en'a%20;\r\n filename*1=\"name.pdf\" (a comment)",
            "attachment; filename=\"an \\\"a\\\".pdf\"",
            "inline",
        ] {
            assert!(!is_doubtful(usual), "{usual:?}");
        }
    }

    #[test]
    fn the_type_of_a_body() {
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
            // A boundary of what has no parts.
            is_doubtful: true,
            ..Media::default()
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn a_field_may_be_folded_anywhere() {
        for fold in ["\n ", "\r\n\t", "\n  \n "] {
            for folded in [
                "multipart/mixed;# boundary=#\"a b\"",
                "multipart/#mixed; boundary=\"a b\"",
                "multipart#/mixed; boundary#=\"a b\"#",
                "multipart/mixed; (x#y) boundary=#(z)#\"a b\"; charset=#utf-8",
                "multipart/mixed# boundary*0=#\"a \";# boundary*1#=b",
                "multipart/mixed; charset=utf-8# boundary*=#utf-8''a%20b",
            ] {
                let value = format!(" {}\n", folded.replace('#', fold));
                let found = media(&value, "inline");
                assert_eq!(found.kind, "multipart/mixed", "{value:?}");
                assert_eq!(found.boundary.as_deref(), Some("a b"), "{value:?}");
                assert!(!found.is_doubtful, "{value:?}");
            }
            let value = format!("attachment;{fold}filename={fold}a.txt");
            assert_eq!(media("text/plain", &value).filename.as_deref(), Some("a.txt"));
            let found = media(&format!("text/plain; charset={fold}koi8-r"), "inline");
            assert_eq!(found.charset.as_deref(), Some("koi8-r"));
        }
        for doubtful in [
            "multipart/mixed",
            "multipart; boundary=a",
            "text/plain; boundary=a",
            "x rfc822",
            "message/rcf822",
            "message/partial; number=1",
        ] {
            assert!(media(doubtful, "inline").is_doubtful, "{doubtful}");
        }
        for sure in ["text/plain", "message/rfc822", "text/rfc822-headers", "text", ""] {
            assert!(!media(sure, "inline").is_doubtful, "{sure}");
        }
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
        for field in [
            "; name=a.txt; filename=a.txt",
            "name=a.txt; filename=a.txt",
            ";; x/y; name=a.txt; filename=a.txt",
        ] {
            let media = media(field, field);
            let names = [media.named.as_deref(), media.filename.as_deref()];
            assert_eq!(names, [Some("a.txt"); 2], "{field}");
            assert_eq!(media.kind, if field.starts_with(";;") { "x/y" } else { "text/plain" });
        }
    }
}
