//! The replies of the daemon to Exim's ACLs and to the library: fields as `name="value"`, which
//! `${extract{name}{…}}` reads, and [`Fields`].

use std::fmt::Write as _;

use super::check_info::{CHECK_FIELDS, CheckInfo};
use super::info::{Field, POLICY_FIELDS, PolicyInfo};
use crate::rate::Timestamp;

/// All fields of `policy_info`.
#[must_use]
pub fn policy(info: &PolicyInfo<'_>, now: Timestamp) -> Vec<u8> {
    fields(POLICY_FIELDS, |name| info.field(name, now))
}

/// All fields of `ratelimit_info`, or why there are none.
#[must_use]
pub fn check(checked: Result<&CheckInfo, &str>, now: Timestamp) -> Vec<u8> {
    match checked {
        Ok(info) => fields(CHECK_FIELDS, |name| info.field(name, now)),
        Err(error) => fields("error", |_| Some(Field::Unchecked(error.as_bytes()))),
    }
}

fn fields<'a>(names: &str, field: impl Fn(&[u8]) -> Option<Field<'a>>) -> Vec<u8> {
    let mut reply = String::new();
    for name in names.split(", ").map(str::trim) {
        let Some(value) = field(name.as_bytes()) else { continue };
        let _ = write!(reply, "{name}=");
        quote(&value.to_string(), &mut reply);
        reply.push(' ');
    }
    reply.truncate(reply.trim_end().len());
    reply.into_bytes()
}

/// As a string in quotes, which Exim reads with its usual escapes. Control characters cannot
/// break a line that it becomes part of.
fn quote(text: &str, quoted: &mut String) {
    quoted.push('"');
    for c in text.chars() {
        // Writing to a String cannot fail.
        let _ = match c {
            '"' | '\\' => write!(quoted, "\\{c}"),
            '\0' => Ok(()),
            c if c.is_ascii_control() => write!(quoted, "\\{:03o}", u32::from(c)),
            c => write!(quoted, "{c}"),
        };
    }
    quoted.push('"');
}

/// The fields of a reply.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Fields(Vec<(Vec<u8>, Vec<u8>)>);

impl Fields {
    /// Reads `name="value" name="value"`, with the escapes that Exim reads.
    #[must_use]
    pub fn parse(reply: &[u8]) -> Self {
        let (mut fields, mut rest) = (Vec::new(), reply);
        while let Some(end) = rest.iter().position(|&byte| byte == b'=') {
            let name = rest.get(..end).unwrap_or_default().trim_ascii().to_vec();
            let Some(b'"') = rest.get(end + 1) else { break };
            rest = rest.get(end + 2..).unwrap_or_default();
            let mut value = Vec::new();
            loop {
                let Some((&byte, after)) = rest.split_first() else { return Self(fields) };
                rest = after;
                match (byte, rest) {
                    (b'"', _) => break,
                    (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                        value.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                        rest = after;
                    }
                    (b'\\', [byte, after @ ..]) => {
                        value.push(*byte);
                        rest = after;
                    }
                    _ => value.push(byte),
                }
            }
            fields.push((name, value));
        }
        Self(fields)
    }

    /// The value of a field.
    #[must_use]
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.0.iter().find(|(of, _)| of == name).map(|(_, value)| &**value)
    }

    /// The value, as Exim gets it.
    #[must_use]
    pub fn field(&self, name: &[u8]) -> Option<Field<'_>> {
        self.get(name).map(Field::Checked)
    }

    /// `rate`, as a number.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        str::from_utf8(self.get(b"rate")?).ok()?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_keeps_to_its_field() {
        let mut quoted = String::new();
        quote("100% \"of\" $a ${b} \\x\n\0\u{e9} policy=\"z\"", &mut quoted);
        assert_eq!(quoted, "\"100% \\\"of\\\" $a ${b} \\\\x\\012\u{e9} policy=\\\"z\\\"\"");
        assert_eq!(
            String::from_utf8(check(Err("no \"spec\""), Timestamp::default())).unwrap(),
            "error=\"no \\\"spec\\\"\""
        );
    }

    #[test]
    fn a_reply_is_read_as_exim_reads_it() {
        let reply = br#"verdict="defer" text="100% \"of\" \\ \012x" rate="2.0" key="""#;
        let fields = Fields::parse(reply);
        assert_eq!(fields.get(b"verdict"), Some(&b"defer"[..]));
        assert_eq!(fields.get(b"text"), Some(&b"100% \"of\" \\ \nx"[..]));
        assert_eq!((fields.rate(), fields.get(b"key")), (Some(2.0), Some(&b""[..])));
        assert_eq!(fields.get(b"none"), None);
        for broken in [&b"verdict"[..], b"verdict=", b"a=\"b", b"=\"\\", b"a=b"] {
            assert_eq!(Fields::parse(broken).0, [], "{broken:?}");
        }
    }
}
