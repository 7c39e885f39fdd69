//! Folding: what different spellings of one identity become.
//!
//! `Alice+shop@Example.org` is counted as, and finds the limits of, `alice@example.org`.
//! So is what a client appends to a login that authenticators often leave out, blanks,
//! control characters and dots at the end; and the notation in which Exim hands over
//! logins, `\303\244` for bytes that are not ASCII, is what it stands for. Bytes that are not
//! UTF-8 are all one character, U+FFFD; what is counted once, such as a recipient, tells them apart.
//!
//! A folded identity is folded again wherever it is named, so folding it changes nothing: the
//! rules are applied until they change nothing ([`Folding::fold_into`]), as what one of them
//! leaves out may join what another one reads.
//!
//! The domain of an address has one spelling in ASCII, its A-labels: `münchen.example` is
//! `xn--mnchen-3ya.example`. The program takes composed and decomposed letters of a domain for one,
//! as UTS 46 does; the libraries, which have no tables for that, encode the letters as they come.
//!
//! Not folded, as no authenticator takes them for one login: composed and decomposed
//! letters (NFC and NFD), letters that only look alike, blanks and control characters within
//! a login, and the encodings of headers (RFC 2047).

use std::borrow::Cow;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};

use super::field::{Field, first_field};
use super::mailbox;
use super::network::Cidr;
use super::punycode;

/// The longest value of a field in a key. The rest of a longer one is replaced by
/// its hash, so that no client can make a key that is too long to be counted.
pub const LONGEST: usize = 255;

/// How identities are folded: `fold` and `mask` of `[identity]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folding {
    /// Upper case is lower case in local parts and logins. In domains it always is.
    pub case: bool,
    /// What follows the first `+` of a local part is left out.
    pub plus: bool,
    /// Dots in the local part are left out in these domains.
    pub dots: Vec<String>,
    /// The domain of a login without one; of no other identity.
    pub qualify: Option<String>,
    /// Leading bits of IPv4 addresses that count.
    pub v4: u8,
    /// Leading bits of IPv6 addresses that count.
    pub v6: u8,
}

impl Default for Folding {
    fn default() -> Self {
        Self { case: true, plus: false, dots: Vec::new(), qualify: None, v4: 32, v6: 64 }
    }
}

impl Folding {
    /// A client's address, masked. All loopback addresses are one, as whoever has one has all.
    #[must_use]
    pub fn client(&self, address: IpAddr) -> Cidr {
        let address = match address.to_canonical() {
            address if address.is_loopback() => Ipv4Addr::LOCALHOST.into(),
            address => address,
        };
        Cidr::around(address, if address.is_ipv4() { self.v4 } else { self.v6 })
    }

    /// The same folding without masks: every address is an identity of its own.
    #[must_use]
    pub fn without_masks(&self) -> Self {
        Self { v4: 32, v6: 128, ..self.clone() }
    }

    /// An identity as text: a login, an account or an address is folded, an IP
    /// address or network is masked. `None` where nothing is left of it: an empty
    /// identity is none.
    #[must_use]
    pub fn identity(&self, text: &str) -> Option<String> {
        let mut folded = String::new();
        self.fold_into(text, &mut folded).then_some(folded)
    }

    /// As [`Folding::identity`], into `out`, which is cleared before. Returns false, and
    /// leaves `out` empty, where nothing is left. Allocates only where `out` is too short,
    /// or `text` is made of more than ASCII letters, digits and `+-=_.@`.
    #[must_use]
    pub fn fold_into(&self, text: &str, out: &mut String) -> bool {
        let _ = self.settle(text, out, Self::apply);
        !out.is_empty()
    }

    /// Replaces `out` by what `rules` make of `text`, applied until they change nothing: dots
    /// that are left out of `\.n` make it a line's end, and so on. `rules` returns true of a result
    /// that is surely final. What changes something makes it shorter, decodes it, or adds the
    /// domain, so three or four passes are the most. Returns what `rules` returned last.
    fn settle(
        &self,
        text: &str,
        out: &mut String,
        rules: fn(&Self, &str, &mut String) -> bool,
    ) -> bool {
        out.clear();
        let mut is_final = rules(self, text, out);
        for _ in 0..16 {
            if is_final || out.is_empty() || self.is_folded(out) {
                break;
            }
            let before = std::mem::replace(out, String::with_capacity(out.len()));
            is_final = rules(self, &before, out);
            if *out == before {
                break;
            }
        }
        is_final
    }

    /// The same folding of names that are no logins: no domain is added.
    #[must_use]
    pub fn without_qualify(&self) -> Self {
        Self { qualify: None, ..self.clone() }
    }

    /// Appends what all rules make of `text`, each applied once; nothing if nothing is left.
    /// Returns whether it is a network.
    fn apply(&self, text: &str, out: &mut String) -> bool {
        let qualify = self.qualify.as_deref().filter(|domain| !domain.is_empty());
        self.apply_with(qualify, text, out)
    }

    /// As [`Folding::apply`], of what is no login.
    fn apply_to_address(&self, text: &str, out: &mut String) -> bool {
        self.apply_with(None, text, out)
    }

    fn apply_with(&self, qualify: Option<&str>, text: &str, out: &mut String) -> bool {
        let decoded = unescaped(text);
        let text = decoded.as_deref().unwrap_or(text);
        let (mut local, domain) = split(text);
        if domain.is_none() {
            local = trimmed(local, false, true);
            if self.network_into(local, out) {
                return true;
            }
        }
        let dots = domain.or(qualify).is_some_and(|domain| self.is_dotless(domain));
        // Nothing would be left of `+shop@example.org`.
        let is_cut = |before: &str| !trimmed(before, dots, dots).is_empty();
        let local = match local.split_once('+') {
            Some((before, _)) if self.plus && is_cut(before) => before,
            _ => local,
        };
        let local = trimmed(local, dots, dots || domain.is_none());
        if local.is_empty() {
            return false;
        }
        // `192.0.2.7+x`
        if domain.is_none() && qualify.is_none() && self.network_into(local, out) {
            return true;
        }
        if dots {
            local.split('.').for_each(|part| push(out, part, self.case));
        } else {
            push(out, local, self.case);
        }
        if let Some(domain) = domain.or(qualify) {
            out.push('@');
            push_domain(out, domain);
        }
        false
    }

    /// Whether dots in the local part are left out in `domain`.
    fn is_dotless(&self, domain: &str) -> bool {
        if domain.is_ascii() {
            self.dots.iter().any(|known| known.eq_ignore_ascii_case(domain))
        } else {
            !self.dots.is_empty() && self.dots.contains(&lower(domain))
        }
    }

    /// An address that strangers choose, folded, into `out`, which is cleared before. One that is
    /// [ambiguous](mailbox) is its text. Returns false, and leaves `out` empty, if there is nothing
    /// but blanks.
    #[must_use]
    pub fn address_into(&self, text: &str, out: &mut String) -> bool {
        let plain = mailbox::plain(text);
        let fold = |address: &str, out: &mut String| {
            let _ = self.settle(address, out, Self::apply_to_address);
            !out.is_empty()
        };
        if !plain.is_some_and(|address| fold(&address, out)) {
            out.clear();
            push(out, text.trim(), self.case);
        }
        !out.is_empty()
    }

    /// Whether `text` is surely folded, as most are: then there is nothing to write.
    #[must_use]
    pub fn is_folded(&self, text: &str) -> bool {
        let (mut letters, mut ats) = (0, 0);
        for byte in text.bytes() {
            match byte {
                b'a'..=b'z' => letters += 1,
                b'0'..=b'9' | b'-' | b'_' | b'=' | b'.' => {}
                b'+' if !self.plus => {}
                b'@' => ats += 1,
                _ => return false,
            }
        }
        // Without letters it may be an IP address.
        letters > 0
            && text.len() <= LONGEST
            && (self.dots.is_empty() || domain(text).is_some_and(|domain| !self.is_dotless(domain)))
            && (ats == 1 || ats == 0 && self.qualify.is_none())
            && !text.starts_with('@')
            && !text.ends_with(['@', '.'])
    }

    /// What an event has in `field`, folded, into `out`, which is cleared before. Returns
    /// false, and leaves `out` empty, where nothing is left.
    #[must_use]
    pub fn field_into(&self, field: Field, text: &str, out: &mut String) -> bool {
        out.clear();
        match field {
            Field::Auth => return self.fold_into(text, out),
            Field::Sender | Field::Recipient => return self.address_into(text, out),
            Field::Client if self.network_into(text.trim(), out) => {}
            Field::Client56 | Field::Client48 => {
                let network = text.trim().split('/').next().and_then(self::address);
                match network.and_then(|address| field.wider_network(address)) {
                    // Writing to a String cannot fail.
                    Some(network) => write!(out, "{network}").unwrap_or_default(),
                    None => out.push_str(text.trim()),
                }
            }
            Field::Client | Field::LocalAccount | Field::Script => out.push_str(text.trim()),
            Field::SenderDomain
            | Field::RecipientDomain
            | Field::Destination
            | Field::Helo
            | Field::Server => out.push_str(&lower(text)),
        }
        !out.is_empty()
    }

    /// What names an identity, folded, into `out`, which is cleared before: a value such as
    /// `Alice`, or fields as in the key of a policy, `auth:Alice,client:192.0.2.7`. Where
    /// nothing would be left, the case and what is around it are folded.
    pub fn name_into(&self, text: &str, out: &mut String) {
        let _ = self.settle(text, out, |folding, text, out| {
            if folding.fields_into(text, out) {
                return true;
            }
            let is_network = folding.settle(text, out, Self::apply);
            if out.is_empty() {
                literal(text, folding.case, out);
            }
            if let Cow::Owned(short) = shortened(out) {
                *out = short;
            }
            is_network
        });
    }

    /// As [`Folding::name_into`], of bytes. What is surely folded is not written.
    pub fn folded_bytes<'a>(&self, name: &'a [u8], out: &'a mut String) -> &'a [u8] {
        match str::from_utf8(name) {
            Ok(text) if self.is_folded(text) => return name,
            Ok(text) => self.name_into(text, out),
            Err(_) => self.name_into(&String::from_utf8_lossy(name), out),
        }
        out.as_bytes()
    }

    /// Writes `text` if it consists of fields; else returns false.
    fn fields_into(&self, text: &str, out: &mut String) -> bool {
        let is_field = |text: &[u8]| split_field(text).is_some();
        if !is_field(text.as_bytes()) {
            return false;
        }
        out.clear();
        let (mut rest, mut value) = (Some(text.as_bytes()), String::new());
        while let Some(field) = first_field(&mut rest) {
            let Some((name, text)) = split_field(&field) else { return false };
            let text = str::from_utf8(text).unwrap_or_default();
            let known = match Field::of(name) {
                Some(field) => self.field_into(field, text, &mut value),
                None if name == CUSTOMER.as_bytes() => {
                    value.clear();
                    value.push_str(text.trim());
                    !value.is_empty()
                }
                None => self.field_into(Field::SenderDomain, text, &mut value),
            };
            if !known {
                value.push_str(text);
            }
            if !out.is_empty() {
                out.push(',');
            }
            out.push_str(str::from_utf8(name).unwrap_or_default());
            out.push(':');
            out.push_str(&escaped(&shortened(&value)));
        }
        true
    }

    /// Writes an IP address or network, masked; false if `text` is neither.
    fn network_into(&self, text: &str, out: &mut String) -> bool {
        // What no address begins with: spares most logins the attempts to parse them.
        if !text.starts_with(|c: char| c.is_ascii_hexdigit() || c == ':') {
            return false;
        }
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, bits.parse().ok()),
            None => (text, None),
        };
        let Some(address) = self::address(address) else { return false };
        let masked = self.client(address);
        let wider = Cidr::around(address, bits.unwrap_or(u8::MAX));
        // Writing to a String cannot fail.
        let _ = write!(out, "{}", if wider.covers(masked) { wider } else { masked });
        true
    }
}

/// What the totals of a domain are named by, beside the fields.
pub const DOMAIN: &str = "domain";
/// What the totals of a customer are named by. Its name is as it is written.
pub const CUSTOMER: &str = "customer";
/// What totals are named by.
pub const TOTALS: [&str; 2] = [DOMAIN, CUSTOMER];

/// `auth:alice` as a field's name and its value, if there is such a field.
pub(crate) fn split_field(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let (name, value) = text.split_at(text.iter().position(|&byte| byte == b':')?);
    let is_known = Field::of(name).is_some() || TOTALS.iter().any(|total| total.as_bytes() == name);
    is_known.then(|| (name, value.get(1..).unwrap_or_default()))
}

/// The address in `text`, perhaps with a zone.
#[must_use]
pub fn address(text: &str) -> Option<IpAddr> {
    text.split('%').next()?.trim().parse().ok()
}

/// A value that is not too long. An address keeps its domain, which has totals and limits of
/// its own, so that both of its parts may be replaced.
#[must_use]
pub fn shortened(value: &str) -> Cow<'_, str> {
    if value.len() <= LONGEST {
        return Cow::Borrowed(value);
    }
    Cow::Owned(match value.rsplit_once('@') {
        Some((local, domain)) => {
            let domain = cut(domain, LONGEST / 2);
            let local = cut(local, LONGEST - 1 - domain.len());
            format!("{local}@{domain}")
        }
        None => cut(value, LONGEST).into_owned(),
    })
}

/// `text` of at most `longest` bytes: its start and its hash if it is longer.
fn cut(text: &str, longest: usize) -> Cow<'_, str> {
    if text.len() <= longest {
        return Cow::Borrowed(text);
    }
    let start = &text[..text.floor_char_boundary(longest - 17)];
    // The key of the hash may be known: equal hashes only share a limit.
    let hash = siphasher::sip::SipHasher13::new().hash(text.as_bytes());
    Cow::Owned(format!("{start}~{hash:016x}"))
}

/// A value as it is in a key, where a comma separates two.
#[must_use]
pub fn escaped(value: &str) -> Cow<'_, str> {
    if value.contains(',') { value.replace(',', ",,").into() } else { value.into() }
}

/// `text` with the bytes that Exim has written as `\303`; `None` if there are none. Others that
/// it writes so, control characters, matter at the ends only: see [`trimmed`].
fn unescaped(text: &str) -> Option<String> {
    let mut rest = text.as_bytes();
    let mut bytes = Vec::new();
    while let Some(at) = rest.iter().position(|&byte| byte == b'\\') {
        let (before, escape) = rest.split_at(at);
        if let Some(byte) = octal(escape).filter(|byte| !byte.is_ascii()) {
            bytes.extend_from_slice(before);
            bytes.push(byte);
            rest = escape.get(4..).unwrap_or_default();
        } else if bytes.is_empty() && !escape.windows(4).any(|four| octal(four).is_some()) {
            return None;
        } else {
            bytes.extend_from_slice(rest.get(..=at).unwrap_or_default());
            rest = rest.get(at + 1..).unwrap_or_default();
        }
    }
    if bytes.is_empty() {
        return None;
    }
    bytes.extend_from_slice(rest);
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The byte that `\303` stands for, at the start of `text`.
fn octal(text: &[u8]) -> Option<u8> {
    let digit = |byte: u8| matches!(byte, b'0'..=b'7').then(|| byte - b'0');
    match *text {
        [b'\\', high @ b'0'..=b'3', middle, low, ..] => {
            Some((high - b'0') << 6 | digit(middle)? << 3 | digit(low)?)
        }
        _ => None,
    }
}

/// The length of what Exim has written for a control character, if `text` is that alone.
fn is_control(text: &[u8]) -> bool {
    match text {
        [b'\\', letter] => b"bfnrtv".contains(&letter.to_ascii_lowercase()),
        [b'\\', _, _, _] => octal(text).is_some_and(|byte| byte.is_ascii_control() || byte == b' '),
        _ => false,
    }
}

/// `text` without the blanks and control characters around it, also as Exim writes them,
/// `\n`; and without dots before or after it.
fn trimmed(text: &str, dots_before: bool, dots_after: bool) -> &str {
    let is_blank = |c: char| c.is_whitespace() || c.is_control();
    let mut rest = text;
    loop {
        let mut next = rest.trim_start_matches(|c| is_blank(c) || dots_before && c == '.');
        next = next.trim_end_matches(|c| is_blank(c) || dots_after && c == '.');
        for length in [2, 4] {
            if next.as_bytes().get(..length).is_some_and(is_control) {
                next = &next[length..];
            }
            let end = next.len().saturating_sub(length);
            if next.as_bytes().get(end..).is_some_and(is_control) {
                next = &next[..end];
            }
        }
        if next.len() == rest.len() {
            return rest;
        }
        rest = next;
    }
}

/// Appends what stands for `text` where nothing is left of it: all of it, without what is
/// around it, if there is more.
fn literal(text: &str, lower: bool, out: &mut String) {
    let decoded = unescaped(text);
    let text = decoded.as_deref().unwrap_or(text).trim();
    let inner = trimmed(text, false, false);
    push(out, if inner.is_empty() { text } else { inner }, lower);
}

/// Appends `text`, in lower case if `lower`.
fn push(out: &mut String, text: &str, lower: bool) {
    if !lower {
        out.push_str(text);
    } else if text.is_ascii() {
        let start = out.len();
        out.push_str(text);
        if let Some(added) = out.get_mut(start..) {
            added.make_ascii_lowercase();
        }
    } else {
        // Letter by letter, whatever is around it: Σ has two lower-case letters.
        for letter in text.chars() {
            match letter {
                'ς' => out.push('σ'),
                letter => out.extend(letter.to_lowercase()),
            }
        }
    }
}

/// `text` in lower case, as folding makes it.
#[must_use]
pub fn lower_case(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    push(&mut out, text, true);
    out
}

/// A domain as it is compared: in lower case and ASCII, without dots at its end.
#[must_use]
pub fn lower(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    push_domain(&mut out, trimmed(text, false, true));
    out
}

/// Appends a domain in lower case, each label that is not ASCII as an A-label.
fn push_domain(out: &mut String, domain: &str) {
    let start = out.len();
    push(out, domain, true);
    if domain.is_ascii() {
        return;
    }
    let lower = out.split_off(start);
    match ascii_domain(&lower) {
        Some(ascii) => out.push_str(&ascii),
        None => push_labels(out, &lower),
    }
}

/// As UTS 46 has it; `None` if it is no domain name.
#[cfg(feature = "cli")]
fn ascii_domain(lower: &str) -> Option<String> {
    let is_label = |label: &str| label.chars().nth(punycode::LONGEST).is_none();
    let is_domain = lower.split('.').all(is_label);
    is_domain.then(|| idna::domain_to_ascii(lower).ok()).flatten().filter(|name| !name.is_empty())
}

/// The tables of UTS 46 are too large for a library that each process of Exim loads.
#[cfg(not(feature = "cli"))]
fn ascii_domain(_: &str) -> Option<String> {
    None
}

/// Appends each label that is not ASCII as what Punycode makes of it.
fn push_labels(out: &mut String, lower: &str) {
    for (n, label) in lower.split('.').enumerate() {
        if n > 0 {
            out.push('.');
        }
        let start = out.len();
        out.push_str("xn--");
        if label.is_ascii() || !punycode::encode(label, out) {
            out.truncate(start);
            out.push_str(label);
        }
    }
}

/// A glob whose domain is in ASCII, as those that it is compared with: the labels behind the last
/// `@` that have nothing of a glob in them.
#[must_use]
pub fn with_ascii_domain(glob: &str) -> Cow<'_, str> {
    match glob.rsplit_once('@') {
        Some((local, domain)) if !domain.is_ascii() => {
            let is_plain = |label: &str| !label.contains(['*', '?', '[', ']', '{', '}', ',', '\\']);
            let mut out = format!("{local}@");
            for (n, label) in domain.split('.').enumerate() {
                if n > 0 {
                    out.push('.');
                }
                if is_plain(label) { push_domain(&mut out, label) } else { out.push_str(label) }
            }
            Cow::Owned(out)
        }
        _ => Cow::Borrowed(glob),
    }
}

/// The domain of a folded identity.
#[must_use]
pub fn domain(identity: &str) -> Option<&str> {
    identity.rsplit_once('@').map(|(_, domain)| domain)
}

/// The domain of an address that is not folded, as folding makes it.
#[must_use]
pub fn domain_of(address: &str) -> Option<String> {
    let decoded = unescaped(address);
    let domain = split(decoded.as_deref().unwrap_or(address)).1;
    domain.map(lower)
}

/// An address without blanks around it, and its local part and its domain. `alice@` has no
/// domain.
fn split(text: &str) -> (&str, Option<&str>) {
    let mut local = trimmed(text, false, false);
    while let Some((before, after)) = local.rsplit_once('@') {
        let domain = trimmed(after, false, true);
        if !domain.is_empty() {
            return (before, Some(domain));
        }
        local = trimmed(before, false, false);
    }
    (local, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_has_one_spelling_in_ascii() {
        let folding = Folding { dots: vec![lower("köln.example")], ..Folding::default() };
        for (text, folded) in [
            ("A@MÜNCHEN.example.", "a@xn--mnchen-3ya.example"),
            ("a@XN--mnchen-3YA.example", "a@xn--mnchen-3ya.example"),
            ("a@\\155\\303\\274nchen.example", "a@\\155ünchen.example"),
            ("b.c@Köln.example", "bc@xn--kln-sna.example"),
            ("b.c@xn--kln-sna.example", "bc@xn--kln-sna.example"),
            ("ä.b@ΒΌΛΟΣ.example", "ä.b@xn--nxasmq6b.example"),
            // Taken for one by UTS 46: decomposed, full width, an ideographic full stop.
            ("a@mu\u{308}nchen.example", "a@xn--mnchen-3ya.example"),
            ("a@ｍünchen。example", "a@xn--mnchen-3ya.example"),
        ] {
            let identity = folding.identity(text).unwrap();
            if !text.contains("155") {
                assert_eq!(identity, folded, "{text}");
            }
            assert_eq!(folding.identity(&identity).as_ref(), Some(&identity), "{text}");
        }
        assert_eq!(lower("*.MÜNCHEN.Example"), "*.xn--mnchen-3ya.example");
        for (glob, ascii) in [
            ("*@münchen.example", "*@xn--mnchen-3ya.example"),
            ("*@*.köln.example", "*@*.xn--kln-sna.example"),
            ("ä*@{köln,x}.example", "ä*@{köln,x}.example"),
            ("*@example.org", "*@example.org"),
            ("ä", "ä"),
        ] {
            assert_eq!(with_ascii_domain(glob), ascii);
        }
    }

    /// What the libraries make of a domain is what the program does, of letters as they are typed.
    #[test]
    fn the_libraries_have_the_a_labels_of_the_program() {
        let alphabets = [
            "abcdefghijklmnopqrstuvwxyz0123456789-äöüßéèçñåøæžšłőαβγδεζηικλμνξοπρστυφχψω",
            "абвгдежзийклмнопрстуфхцчшщъыьэюяіїєґ",
            "你好世界中文域名例子测试日本語ひらがなカタカナ한국어도메인",
        ];
        let mut numbers = kit::Random::new(0x1095);
        for n in 0..3000 {
            let alphabet: Vec<char> = alphabets[n % 3].chars().collect();
            let length = 1 + numbers.below(12);
            let label: String =
                (0..length).map(|_| alphabet[numbers.below(alphabet.len())]).collect();
            let Some(ascii) = ascii_domain(&lower_case(&label)) else { continue };
            let mut out = String::new();
            push_labels(&mut out, &lower_case(&label));
            assert_eq!(out, ascii, "{label}");
        }
    }

    #[test]
    fn spellings_of_one_identity_are_one() {
        let all = Folding { plus: true, dots: vec!["gmail.com".into()], ..Folding::default() };
        for (text, folded) in [
            ("Alice+shop@Example.ORG", "alice@example.org"),
            ("a.l.i.c.e+x+y@GMail.com", "alice@gmail.com"),
            ("a.l@example.org", "a.l@example.org"),
            ("+shop@example.org", "+shop@example.org"),
            ("ALICE", "alice"),
            ("alice@", "alice"),
            ("alice@ . ", "alice"),
            ("a@b@@", "a@b"),
            ("192.0.2.7@", "192.0.2.7"),
            ("192.0.2.7+x", "192.0.2.7"),
            ("192.0.2.7/8@example.org", "192.0.2.7/8@example.org"),
            (" alice ", "alice"),
            ("alice\t\u{a0}\0", "alice"),
            ("alice\n", "alice"),
            (r"alice \n\t", "alice"),
            (r"\r\nalice\012\177", "alice"),
            (r"alice\n@Example.org.\n", "alice@example.org"),
            ("alice.", "alice"),
            ("alice. .", "alice"),
            ("alice.@example.org", "alice.@example.org"),
            (r"\303\204LICE", "älice"),
            ("ÄLICE@x.org", "älice@x.org"),
            (r"al\344ice\n", "al\u{fffd}ice"),
            (r"alice\302\240", "alice"),
            (r"CORP\Bob", r"corp\bob"),
            (r"a\001b\\303x", "a\\001b\\\u{fffd}x"),
            ("=?utf-8?q?alice?=", "=?utf-8?q?alice?="),
            ("2001:db8::1%eth0", "2001:db8::/64"),
            ("\"a@b\"@example.org.", "\"a@b\"@example.org"),
            ("192.0.2.7", "192.0.2.7"),
            ("2001:DB8:0:0:1::7", "2001:db8::/64"),
            ("2001:db8::/32", "2001:db8::/32"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("127.0.0.2", "127.0.0.1"),
            ("127.255.255.254", "127.0.0.1"),
            ("::ffff:127.0.0.2", "127.0.0.1"),
            ("::1", "127.0.0.1"),
            ("::1%lo", "127.0.0.1"),
        ] {
            assert_eq!(all.identity(text).as_deref(), Some(folded), "{text}");
            assert_eq!(all.identity(folded).as_deref(), Some(folded), "{folded} again");
        }
        for text in ["", " ", "@", "@@", "@ . ", "@example.org", "...@gmail.com", "..", r"\n"] {
            assert_eq!(all.identity(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_switched_off_is_kept() {
        let none = Folding { case: false, ..Folding::default() };
        assert_eq!(none.identity("Al.Ice+x@GMail.com").as_deref(), Some("Al.Ice+x@gmail.com"));
        let qualify = Some("example.org".to_owned());
        let qualified = Folding { qualify, v4: 24, ..Folding::default() };
        assert_eq!(qualified.identity("Alice").as_deref(), Some("alice@example.org"));
        assert_eq!(qualified.identity("Alice@").as_deref(), Some("alice@example.org"));
        assert_eq!(qualified.identity("bob@x.test").as_deref(), Some("bob@x.test"));
        for address in ["192.0.2.7", "::ffff:192.0.2.7"] {
            assert_eq!(qualified.identity(address).as_deref(), Some("192.0.2.0/24"));
        }
    }

    #[test]
    fn a_buffer_is_used_again() {
        let folding = Folding { plus: true, ..Folding::default() };
        let mut out = String::with_capacity(100);
        let place = out.as_ptr();
        out.push_str("what was there");
        for (text, folded) in
            [("Bob+x@EXAMPLE.org", "bob@example.org"), ("", ""), ("192.0.2.7", "192.0.2.7")]
        {
            assert_eq!(folding.fold_into(text, &mut out), !folded.is_empty());
            assert_eq!(out, folded);
            assert_eq!(out.as_ptr(), place, "{text}");
        }
    }

    #[test]
    fn composed_and_decomposed_letters_are_two_logins() {
        let folding = Folding::default();
        assert_ne!(folding.identity("\u{e4}lice"), folding.identity("a\u{308}lice"));
    }

    #[test]
    fn names_are_folded_field_by_field() {
        let folding = Folding::default();
        let name = |text: &str| {
            let mut out = "what was there".to_owned();
            folding.name_into(text, &mut out);
            let mut again = String::new();
            folding.name_into(&out, &mut again);
            assert_eq!(out, again, "{text}");
            out
        };
        for (text, folded) in [
            ("Paula@Example.org", "paula@example.org"),
            ("auth:Paula@Example.org ", "auth:paula@example.org"),
            ("client:2001:DB8::7", "client:2001:db8::/64"),
            ("2001:DB8::7", "2001:db8::/64"),
            ("client:::1", "client:127.0.0.1"),
            ("client_48:2001:DB8:1:2::7", "client_48:2001:db8:1::/48"),
            ("client_56:2001:db8:1:2ff::/64", "client_56:2001:db8:1:200::/56"),
            ("client_48:192.0.2.7", "client_48:192.0.2.7"),
            ("auth:A,client:::ffff:192.0.2.7", "auth:a,client:192.0.2.7"),
            ("auth:A,,B,sender:C@D.", "auth:a,,b,sender:c@d"),
            ("auth:A,B", "auth:a,b"),
            ("local_account:WWW", "local_account:WWW"),
            ("helo:Mail.Example.", "helo:mail.example"),
            ("domain:Example.ORG", "domain:example.org"),
            ("customer: Acme Inc ", "customer:Acme Inc"),
            ("customer:Acme,, Inc", "customer:Acme,, Inc"),
            ("server:Mail1", "server:mail1"),
            ("bytes:ALICE", "bytes:alice"),
            ("@Example.ORG", "@example.org"),
            ("", ""),
        ] {
            assert_eq!(name(text), folded, "{text}");
        }
        let long = "A".repeat(1000);
        assert_eq!(name(&long), shortened(&"a".repeat(1000)));
        assert_eq!(name(&format!("auth:{long}")), format!("auth:{}", name(&long)));
    }

    /// Texts of what is special.
    #[derive(Clone, Debug)]
    struct Special(String);

    impl quickcheck::Arbitrary for Special {
        fn arbitrary(g: &mut quickcheck::Gen) -> Self {
            const PIECES: [&str; 24] = [
                "a",
                "B",
                "@",
                "+",
                ".",
                " ",
                "/",
                "8",
                "192.0.2.7",
                "2001:DB8::1",
                ":",
                "x.org",
                "X.ORG",
                "É",
                "ΑΣ",
                "\u{a0}",
                "İ",
                "\"",
                "::ffff:",
                "\u{212a}",
                r"\n",
                r"\303",
                r"\244",
                r"\001",
            ];
            let pieces = Vec::<u8>::arbitrary(g);
            let piece = |at: u8| PIECES[usize::from(at) % PIECES.len()];
            Self(pieces.into_iter().take(8).map(piece).collect())
        }
    }

    /// How one spelling of `text` becomes another, and its folding by each of the ways.
    fn is_stable(folding: &Folding, text: &str) -> bool {
        let mut out = String::from("x");
        let once = folding.identity(text);
        assert_eq!(folding.fold_into(text, &mut out), once.is_some());
        assert_eq!(out, once.clone().unwrap_or_default());
        let name = |text: &str| {
            let mut out = String::new();
            folding.name_into(text, &mut out);
            out
        };
        let named = name(text);
        let of_field = |&field: &Field| {
            let fold = |text: &str| {
                let mut out = String::new();
                folding.field_into(field, text, &mut out).then_some(out)
            };
            fold(text).is_none_or(|once| fold(&once).as_ref() == Some(&once))
        };
        once.as_deref().is_none_or(|once| folding.identity(once).as_deref() == Some(once))
            && name(&named) == named
            && Field::ALL.iter().all(of_field)
    }

    fn folding(flags: u8) -> Folding {
        let flag = |bit: u8| flags & 1 << bit != 0;
        Folding {
            case: flag(0),
            plus: flag(1),
            dots: if flag(2) { vec!["x.org".into(), "é".into()] } else { Vec::new() },
            qualify: flag(3).then(|| "x.org".to_owned()),
            v4: if flag(4) { 24 } else { 32 },
            v6: if flag(5) { 0 } else { 64 },
        }
    }

    /// What was found by chance.
    #[test]
    fn what_one_rule_leaves_is_folded_by_the_others() {
        for text in [
            r"\\.R",
            r"\.n@x.org",
            r"\30.3\244@x.org",
            r"\30.2\240a@x.org",
            "192.0.2.7+x",
            ".192.0.2.7",
            "ΑΣ.Β@x.org",
            "\\303İÉ192.0.2.7x.org\u{a0}B\u{a0}",
            "@ X",
            "\0",
        ] {
            for flags in 0..64 {
                assert!(is_stable(&folding(flags), text), "{text} {:?}", folding(flags));
            }
        }
        let long = "x.".repeat(300);
        for text in
            [long.clone(), format!("{long}@x.org"), format!("a@{long}"), format!("+{long}@x.org")]
        {
            for flags in 0..64 {
                assert!(is_stable(&folding(flags), &text), "{text} {:?}", folding(flags));
            }
        }
        let all = folding(0b1111);
        for (one, other) in [("ΑΣ.Β@x.org", "ας.β"), ("ΑΣ", "ας"), (r"\.nAl.ice", "alice")]
        {
            assert_eq!(all.identity(one), all.identity(other), "{one} {other}");
        }
        assert_eq!(all.identity(r"\.R"), None);
    }

    #[test]
    fn what_is_too_long_keeps_its_domain() {
        let local = "a".repeat(300);
        for domain in ["example.org".to_owned(), "d".repeat(200)] {
            let short = shortened(&format!("{local}@{domain}")).into_owned();
            assert!(short.len() <= LONGEST);
            assert_eq!(shortened(&short), short);
            let kept = super::domain(&short).unwrap();
            assert_eq!(kept == domain, domain.len() < 100, "{kept}");
        }
    }

    #[test]
    fn folding_twice_changes_nothing() {
        fn holds(special: Special, any: String, flags: u8) -> bool {
            let folding = folding(flags);
            let texts = [
                special.0.clone(),
                any.clone(),
                format!("{any}@x"),
                format!("{any}+{any}@x"),
                special.0.repeat(20),
                format!("{}@{}", special.0.repeat(20), any.repeat(10)),
                format!("auth:{},sender:{any}", special.0),
            ];
            texts.iter().all(|text| is_stable(&folding, text) || panic!("{text:?} {folding:?}"))
        }
        let check: fn(Special, String, u8) -> bool = holds;
        kit::quick_check().tests(1000).quickcheck(check);
    }
}
