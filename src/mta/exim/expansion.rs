//! What can become of a text that Exim expands, as far as that can be known
//! without expanding it: expanding may run programs and count events.

use super::lookup_file::LookupFile;
use super::source::escaped;

/// Stands where only Exim knows what will be there.
pub(crate) const UNKNOWN: char = '\u{fffc}';
/// Texts that one text may become; more are left out.
const OUTCOMES_MAX: usize = 20_000;

/// A part of a text that Exim expands.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    Text(String),
    Variable(String),
    /// `${lc:…}`
    Operator(String, Vec<Node>),
    /// `${lookup{KEY}KIND{FILE}{YES}{NO}}`
    Lookup {
        key: Vec<Node>,
        kind: String,
        file: Vec<Node>,
        yes: Option<Vec<Node>>,
        no: Option<Vec<Node>>,
    },
    /// `${if …{YES}{NO}}`
    If(Vec<Vec<Node>>),
    /// `${NAME{…}{…}}` of any other name.
    Item(String, Vec<Vec<Node>>),
}

/// A text that is expanded, taken apart.
#[derive(Clone, Debug)]
pub(crate) struct Expansion(Vec<Node>);

/// What a text may become.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Expansions {
    /// With [`UNKNOWN`] for what only Exim knows.
    pub(crate) text: String,
    /// The line of a lookup file that a part of it is from, as `FILE:LINE`.
    pub(crate) row: Option<String>,
}

/// A variable in a text, and what is done to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Variable {
    /// Without the `$`.
    pub(crate) name: String,
    /// It is folded, as policies do, by our function `identity`.
    pub(crate) folded: bool,
    /// Only a digest of it, or what `quote_ratelimit` makes of it, is used.
    pub(crate) harmless: bool,
}

/// Variables that hold what the client says. A name that ends in `_` stands for
/// all names that begin with it.
const FROM_CLIENT: &[&str] = &[
    "authenticated_id",
    "authenticated_sender",
    "auth1",
    "auth2",
    "auth3",
    "domain",
    "local_part",
    "local_part_prefix",
    "local_part_suffix",
    "recipients",
    "reply_address",
    "sender_address",
    "sender_address_domain",
    "sender_address_local_part",
    "sender_fullhost",
    "sender_helo_name",
    "sender_host_name",
    "sender_ident",
    "sender_rcvhost",
    "smtp_command",
    "smtp_command_argument",
    "tls_in_peerdn",
    "tls_in_sni",
    "tls_peerdn",
    "tls_sni",
    "message_body",
    "message_body_end",
    "message_headers",
    "message_headers_raw",
    "parent_domain",
    "parent_local_part",
    "original_domain",
    "original_local_part",
    "return_path",
    "h_",
    "rh_",
    "bh_",
    "lh_",
    "header_",
    "rheader_",
    "bheader_",
    "lheader_",
    "mime_",
];
/// How the names of operators begin whose results a client cannot choose.
const DIGESTS: [&str; 8] =
    ["md5", "sha1", "sha2", "sha3", "hash", "nhash", "crc32", "quote_ratelimit"];

impl Variable {
    /// Whether the client chooses what it holds.
    pub(crate) fn is_from_client(&self) -> bool {
        FROM_CLIENT.iter().any(|name| match name.strip_suffix('_') {
            Some(start) => self.name.strip_prefix(start).is_some_and(|rest| rest.starts_with('_')),
            None => self.name == *name,
        })
    }
}

impl Expansion {
    /// Takes `text` apart. Text that Exim could not expand is kept as it is.
    pub(crate) fn of(text: &str) -> Self {
        let mut parser = Parser { text, at: 0 };
        let mut nodes = parser.nodes(false);
        if let Some(rest) = text.get(parser.at..).filter(|rest| !rest.is_empty()) {
            nodes.push(Node::Text(rest.to_owned()));
        }
        Self(nodes)
    }

    /// All texts that it may become.
    pub(crate) fn outcomes(&self) -> Vec<Expansions> {
        outcomes(&self.0, None)
    }

    /// The files that its lookups search line by line.
    pub(crate) fn lookup_files(&self) -> Vec<LookupFile> {
        let mut files = Vec::new();
        each_lookup(&self.0, &mut |kind, file| files.extend(lookup_file(kind, file)));
        files
    }

    /// The variables whose values get into what it becomes.
    pub(crate) fn variables(&self) -> Vec<Variable> {
        let mut found = Vec::new();
        variables(&self.0, false, false, &mut found);
        found
    }
}

fn lookup_file(kind: &str, file: &[Node]) -> Option<LookupFile> {
    let [Expansions { text, row: None }] = &outcomes(file, None)[..] else { return None };
    (!text.contains(UNKNOWN)).then(|| LookupFile::new(kind, text.trim()))
}

fn each_lookup(nodes: &[Node], visit: &mut impl FnMut(&str, &[Node])) {
    for node in nodes {
        match node {
            Node::Lookup { key, kind, file, yes, no } => {
                visit(kind, file);
                for nodes in [Some(key), yes.as_ref(), no.as_ref()].into_iter().flatten() {
                    each_lookup(nodes, visit);
                }
            }
            Node::Operator(_, nodes) => each_lookup(nodes, visit),
            Node::If(parts) | Node::Item(_, parts) => {
                parts.iter().for_each(|nodes| each_lookup(nodes, visit));
            }
            Node::Text(_) | Node::Variable(_) => {}
        }
    }
}

fn variables(nodes: &[Node], folded: bool, harmless: bool, found: &mut Vec<Variable>) {
    for node in nodes {
        match node {
            Node::Text(_) => {}
            Node::Variable(name) => {
                found.push(Variable { name: name.clone(), folded, harmless });
            }
            Node::Operator(name, nodes) => {
                let harmless = harmless || DIGESTS.iter().any(|digest| name.starts_with(digest));
                variables(nodes, folded, harmless, found);
            }
            // What is looked up does not get into the text by that.
            Node::Lookup { yes, no, .. } => {
                for nodes in [yes, no].into_iter().flatten() {
                    variables(nodes, folded, harmless, found);
                }
                found.retain(|variable| variable.name != "value");
            }
            Node::If(parts) => {
                parts.iter().for_each(|nodes| variables(nodes, folded, harmless, found));
            }
            Node::Item(name, parts) => {
                let harmless = harmless || name == "hmac";
                let function = parts.get(1).map(Vec::as_slice);
                let is_ours = matches!(function, Some([Node::Text(name)]) if name == "identity");
                let folded = folded || name == "dlfunc" && is_ours;
                parts.iter().for_each(|nodes| variables(nodes, folded, harmless, found));
            }
        }
    }
}

/// What `nodes` may become, where `$value` is `value`.
fn outcomes(nodes: &[Node], value: Option<&str>) -> Vec<Expansions> {
    let mut all = vec![Expansions::default()];
    for node in nodes {
        let parts = outcomes_of(node, value);
        if let [part] = &parts[..] {
            for outcome in &mut all {
                outcome.text.push_str(&part.text);
                outcome.row = outcome.row.take().or_else(|| part.row.clone());
            }
            continue;
        }
        let mut longer = Vec::new();
        for outcome in &all {
            for part in &parts {
                longer.push(Expansions {
                    text: format!("{}{}", outcome.text, part.text),
                    row: outcome.row.clone().or_else(|| part.row.clone()),
                });
                if longer.len() >= OUTCOMES_MAX {
                    return longer;
                }
            }
        }
        all = longer;
    }
    all
}

fn outcomes_of(node: &Node, value: Option<&str>) -> Vec<Expansions> {
    let known = |text: &str| vec![Expansions { text: text.to_owned(), row: None }];
    let unknown = || known(&UNKNOWN.to_string());
    match node {
        Node::Text(text) => known(text),
        Node::Variable(name) if name == "value" => value.map_or_else(unknown, known),
        Node::Variable(_) | Node::Operator(..) | Node::Item(..) => unknown(),
        Node::If(branches) => branches.iter().flat_map(|nodes| outcomes(nodes, value)).collect(),
        Node::Lookup { kind, file, yes, no, .. } => {
            let value_itself = [Node::Variable("value".to_owned())];
            let found = yes.as_deref().unwrap_or(&value_itself);
            let mut all = match lookup_file(kind, file).and_then(|file| file.rows().ok()) {
                None => outcomes(found, None),
                Some(rows) => {
                    let mut all = Vec::new();
                    for row in rows {
                        all.extend(outcomes(found, Some(&row.value)).into_iter().map(|outcome| {
                            Expansions { row: Some(row.position.clone()), ..outcome }
                        }));
                    }
                    all
                }
            };
            // `fail` and nothing written leave a text that is no spec by itself.
            all.extend(no.iter().flat_map(|no| outcomes(no, value)));
            all
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn take(&mut self, c: char) -> bool {
        let found = self.peek() == Some(c);
        if found {
            self.at += c.len_utf8();
        }
        found
    }

    fn blanks(&mut self) {
        while self.peek().is_some_and(char::is_whitespace) {
            self.next();
        }
    }

    fn word(&mut self, is_part: impl Fn(char) -> bool) -> String {
        let rest = self.rest();
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let word = rest.get(..end).unwrap_or_default().to_owned();
        self.at += end;
        word
    }

    /// What stands up to the end or, inside braces, up to the closing one, which
    /// is taken.
    fn nodes(&mut self, braced: bool) -> Vec<Node> {
        let (mut nodes, mut text) = (Vec::new(), String::new());
        while let Some(c) = self.next() {
            match c {
                '}' if braced => break,
                '\\' if self.take('N') => {
                    let rest = self.rest();
                    let end = rest.find("\\N").unwrap_or(rest.len());
                    text.push_str(rest.get(..end).unwrap_or_default());
                    self.at = (self.at + end + 2).min(self.text.len());
                }
                '\\' => self.escape(&mut text),
                '$' => {
                    let node = if self.take('{') { self.item() } else { self.variable() };
                    if !text.is_empty() {
                        nodes.push(Node::Text(std::mem::take(&mut text)));
                    }
                    nodes.push(node);
                }
                _ => text.push(c),
            }
        }
        if !text.is_empty() {
            nodes.push(Node::Text(text));
        }
        nodes
    }

    /// What stands behind a backslash.
    fn escape(&mut self, text: &mut String) {
        let mut bytes = Vec::new();
        let left = escaped(self.rest().as_bytes(), &mut bytes).len();
        match std::str::from_utf8(&bytes) {
            Ok(escaped) if self.text.is_char_boundary(self.text.len() - left) => {
                text.push_str(escaped);
                self.at = self.text.len() - left;
            }
            _ => text.extend(self.next()),
        }
    }

    /// `$name`, or a header `$h_name:`.
    fn variable(&mut self) -> Node {
        let name = self.word(|c| c.is_ascii_alphanumeric() || c == '_');
        if is_header(&name) {
            let rest = self.word(|c| !c.is_whitespace() && !":{}".contains(c));
            self.take(':');
            return Node::Variable(name + &rest);
        }
        Node::Variable(name)
    }

    /// What follows `${`, with the closing brace.
    fn item(&mut self) -> Node {
        self.blanks();
        let name = self.word(|c| c.is_ascii_alphanumeric() || c == '_');
        if is_header(&name) {
            self.word(|c| c != '}');
            self.take('}');
            return Node::Variable(name);
        }
        if self.take(':') {
            return Node::Operator(name, self.nodes(true));
        }
        self.blanks();
        if self.take('}') {
            return Node::Variable(name);
        }
        match &*name {
            "lookup" => self.lookup(),
            "if" => self.condition(),
            _ => Node::Item(name, self.arguments()),
        }
    }

    /// `{…}{…}` up to the closing brace; words in between, as `fail`, are left
    /// out.
    fn arguments(&mut self) -> Vec<Vec<Node>> {
        let mut arguments = Vec::new();
        while let Some(c) = self.next() {
            match c {
                '{' => arguments.push(self.nodes(true)),
                '}' => break,
                _ => {}
            }
        }
        arguments
    }

    fn lookup(&mut self) -> Node {
        let key = if self.take('{') { self.nodes(true) } else { Vec::new() };
        self.blanks();
        let kind = self.word(|c| !c.is_whitespace() && c != '{' && c != '}');
        self.blanks();
        let mut arguments = self.arguments().into_iter();
        Node::Lookup {
            key,
            kind,
            file: arguments.next().unwrap_or_default(),
            yes: arguments.next(),
            no: arguments.next(),
        }
    }

    /// Skips `{…}` whatever stands in it: conditions nest without a `$`.
    fn skip_braced(&mut self) {
        let mut depth = 0_usize;
        while let Some(c) = self.peek() {
            match c {
                '}' if depth == 0 => return,
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            self.next();
            if c == '\\' {
                self.next();
            } else if c == '}' && depth == 0 {
                return;
            }
        }
    }

    fn condition(&mut self) -> Node {
        const ONE: &[&str] = &[
            "acl",
            "and",
            "bool",
            "bool_lax",
            "exists",
            "isip",
            "isip4",
            "isip6",
            "ldapauth",
            "or",
            "pam",
            "pwcheck",
            "radius",
            "saslauthd",
        ];
        while self.peek().is_some_and(|c| c.is_whitespace() || c == '!') {
            self.next();
        }
        let name = self.word(|c| !c.is_whitespace() && !"{}:".contains(c));
        let count = match &*name {
            "def" => {
                self.word(|c| c != '{' && c != '}');
                0
            }
            "first_delivery" | "queue_running" => 0,
            name if ONE.contains(&name) => 1,
            _ => 2,
        };
        for _ in 0..count {
            self.skip_braced();
        }
        let mut branches = self.arguments();
        if branches.len() < 2 {
            branches.push(Vec::new());
        }
        Node::If(branches)
    }
}

fn is_header(name: &str) -> bool {
    ["h_", "rh_", "bh_", "lh_", "header_", "rheader_", "bheader_", "lheader_"]
        .iter()
        .any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<String> {
        let outcomes = Expansion::of(text).outcomes();
        outcomes.into_iter().map(|outcome| outcome.text.replace(UNKNOWN, "?")).collect()
    }

    #[test]
    fn what_is_known_stays_and_the_rest_is_unknown() {
        for (text, expected) in [
            ("10 / 1h / strict / a", &["10 / 1h / strict / a"][..]),
            ("10 / 1h / $domain", &["10 / 1h / ?"]),
            ("10 / 1h / ${lc:$authenticated_id}x", &["10 / 1h / ?x"]),
            ("10 / 1h / $h_subject: / y", &["10 / 1h / ? / y"]),
            ("${if eq{$domain}{x}{10}{20}} / 1h", &["10 / 1h", "20 / 1h"]),
            ("${if !def:h_x: {10}{20}} / 1h", &["10 / 1h", "20 / 1h"]),
            ("${if and{{eq{a}{b}}{bool{c}}}{10}} / 1h", &["10 / 1h", " / 1h"]),
            ("${lookup{a}cdb{/nonexistent}{$value}{5 / 1h}} / x", &["? / x", "5 / 1h / x"]),
            ("\\N$x\\N\\$y", &["$x$y"]),
            ("${extract{1}{,}{a,b}}", &["?"]),
            ("${dlfunc", &["?"]),
            ("a}b", &["a}b"]),
            ("a\\n\\x41\\101\\{\\é", &["a\nAA{é"]),
        ] {
            assert_eq!(texts(text), expected, "{text}");
        }
    }

    #[test]
    fn the_rows_of_a_lookup_file_are_all_tried() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "a: 5 / 1h\nb: 6 / 1x\n").unwrap();
        let text = format!(
            "${{lookup{{$x}}lsearch{{{}}}{{$value}}{{7 / 1h}}}} / k",
            file.path().display()
        );
        let outcomes = Expansion::of(&text).outcomes();
        let texts: Vec<_> = outcomes.iter().map(|outcome| &*outcome.text).collect();
        assert_eq!(texts, ["5 / 1h / k", "6 / 1x / k", "7 / 1h / k"]);
        let row = |line: usize| Some(format!("{}:{line}", file.path().display()));
        let rows: Vec<_> = outcomes.iter().map(|outcome| outcome.row.clone()).collect();
        assert_eq!(rows, [row(1), row(2), None]);
    }

    #[test]
    fn variables_of_the_client_are_known() {
        let found = |text: &str| {
            let variables = Expansion::of(text).variables();
            variables
                .into_iter()
                .filter(|variable| variable.is_from_client() && !variable.harmless)
                .map(|variable| {
                    format!("{}{}", variable.name, if variable.folded { "~" } else { "" })
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(found("1 / 1h / $sender_host_address"), Vec::<String>::new());
        assert_eq!(found("1 / 1h / $sender_address"), ["sender_address"]);
        assert_eq!(
            found("1 / 1h / ${dlfunc{/x}{identity}{auth}{$authenticated_id}}"),
            ["authenticated_id~"]
        );
        assert_eq!(found("1 / 1h / ${sha256:$h_subject:}"), Vec::<String>::new());
        assert_eq!(found("1 / 1h / ${quote_ratelimit:$local_part}"), Vec::<String>::new());
        assert_eq!(found("1 / 1h / $h_subject:"), ["h_subject"]);
        assert_eq!(found("1 / 1h / ${header_from:}"), ["header_from"]);
        assert_eq!(found("1 / 1h / ${sg{$domain}{a}{b}}"), ["domain"]);
        assert_eq!(
            found("${lookup{$authenticated_id}lsearch{/f}{$value}{1 / 1h}} / x"),
            Vec::<String>::new()
        );
        assert_eq!(found("1 / 1h / ${if eq{$domain}{a}{b}{$local_part}}"), ["local_part"]);
    }
}
