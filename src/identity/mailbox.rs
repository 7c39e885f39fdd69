//! Which mailbox an address names, where every mail server reads it the same way.
//!
//! `v%victim.example@example.org` is a mailbox of example.org for Exim, and for Postfix, which
//! rewrites it, one of victim.example. So an address that could be read in two ways is ambiguous: it is
//! counted under its text as it is written, exempts nobody, and whatever depends on its domain
//! holds. What is not ambiguous is listed here, and not what is.

use std::borrow::Cow;

/// The address in `text`, without quotes that it does not need; `None` if it is ambiguous.
/// Blanks around it are no part of it. What is empty is plain: the sender of a bounce.
#[must_use]
pub fn plain(text: &str) -> Option<Cow<'_, str>> {
    let text = text.trim();
    let (local, domain) = match text.rsplit_once('@') {
        Some((local, domain)) => (local, Some(domain)),
        None => (text, None),
    };
    if !domain.is_none_or(is_domain) || local.is_empty() && domain.is_some() {
        return None;
    }
    let inner = local.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let Some(quoted) = inner else { return is_local(local).then_some(Cow::Borrowed(text)) };
    let mut local = String::with_capacity(text.len());
    let mut letters = quoted.chars();
    while let Some(letter) = letters.next() {
        local.push(if letter == '\\' { letters.next()? } else { letter });
    }
    if local.is_empty() || !is_local(&local) {
        return None;
    }
    if let Some(domain) = domain {
        local.push('@');
        local.push_str(domain);
    }
    Some(Cow::Owned(local))
}

/// Whether mail servers may read `text` in different ways.
#[must_use]
pub fn is_ambiguous(text: &str) -> bool {
    plain(text).is_none()
}

/// Whether a local part means the same to all: dots, and what RFC 5321 allows in an atom, without `%`
/// and `!`, by which it may name another host.
fn is_local(local: &str) -> bool {
    local.chars().all(|c| match c {
        '.' | '#' | '$' | '&' | '\'' | '*' | '+' | '-' | '/' => true,
        '=' | '?' | '^' | '_' | '`' | '{' | '|' | '}' | '~' => true,
        c => is_letter(c),
    })
}

/// Whether a domain means the same to all: a name, or an address in brackets.
fn is_domain(domain: &str) -> bool {
    let literal = domain.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    match literal {
        Some(literal) => literal.chars().all(|c| is_letter(c) || matches!(c, '.' | ':' | '-')),
        None => domain.chars().all(|c| is_letter(c) || matches!(c, '.' | '-' | '_')),
    }
}

fn is_letter(c: char) -> bool {
    match c.is_ascii() {
        true => c.is_ascii_alphanumeric(),
        false => !c.is_whitespace() && !c.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_servers_may_read_differently_is_ambiguous() {
        for text in [
            "v%victim.example@example.org",
            "victim.example!v@example.org",
            "\"v@victim.example\"@example.org",
            "v@victim.example@example.org",
            "<v@victim.example>@example.org",
            "<v@victim.example> <w@example.org>",
            "@victim.example:v@example.org",
            "@victim.example,@b.example:v@example.org",
            "v@example.org(comment)",
            "(c)v@example.org",
            "\"v%victim.example\"@example.org",
            "\"\\v%victim.example\"@example.org",
            "\"a b\"@example.org",
            "\"\"@example.org",
            "\"\\",
            "v\\@victim.example@example.org",
            "host::v@example.org",
            "v;w@example.org",
            "v\0w@example.org",
            "v\u{a0}w@example.org",
            "v,w@example.org",
            "@example.org",
            "v@example.org@",
            "v+%victim.example@example.org",
            "v@example.org%victim.example",
            "v%victim.example",
            "v@[192.0.2.7]%x",
            "v@exa mple.org",
        ] {
            assert_eq!(plain(text), None, "{text:?}");
        }
        for text in [
            "",
            "v",
            "v@",
            "v@example.org",
            "V.W@Example.Org.",
            "SRS0=HHH=TT=victim.example=v@example.org",
            "SRS1=HHH=forwarder.example==HHH=TT=victim.example=v@example.org",
            "bounce-17-v=victim.example@example.org",
            "list+v=victim.example@example.org",
            "prvs=0123456789=v@example.org",
            "=?utf-8?q?v?=@example.org",
            "v@[192.0.2.7]",
            "v@[IPv6:2001:db8::7]",
            "välter@mail.example",
        ] {
            assert_eq!(plain(text), Some(text.into()), "{text:?}");
        }
        assert_eq!(plain(" \"v.w\"@example.org "), Some("v.w@example.org".into()));
        assert_eq!(plain(r#""\v\w""#), Some("vw".into()));
    }
}
