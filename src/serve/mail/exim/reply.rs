//! The replies to Exim: fields as `name="value"`, which `${extract{name}{…}}` reads.

use std::fmt::Write as _;

use crate::policy::check_info::{CHECK_FIELDS, CheckInfo};
use crate::policy::info::{Field, POLICY_FIELDS, PolicyInfo};
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
}
