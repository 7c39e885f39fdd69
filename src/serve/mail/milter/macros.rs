//! Macros: what the mail server knows besides the commands. They come before the command
//! that they belong to, and hold until the message, or the connection, ends.

use std::net::IpAddr;

use super::packet::{CONNECT, MAIL, RCPT, texts};
use crate::identity::written;

/// The longest value that is kept; the rest of a longer one is left out.
pub(super) const VALUE_MAX: usize = 1 << 10;

/// The macros that are used.
#[derive(Debug, Default)]
pub(super) struct Macros {
    /// `{if_addr}` or `{daemon_addr}`: the address that the client has connected to.
    pub(super) interface: Option<IpAddr>,
    /// `{auth_authen}`: the login. It comes at MAIL, and holds until the message ends.
    pub(super) login: Option<String>,
    /// `{auth_type}` or `{auth_authen}`: the client has used AUTH.
    pub(super) has_used_auth: bool,
    /// `i`: the queue id. Postfix knows it after the first recipient.
    pub(super) queue_id: Option<String>,
    /// `{rcpt_mailer}` is `error`: the mail server has refused the recipient.
    pub(super) is_refused: bool,
    /// `{rcpt_host}`: with which status.
    pub(super) refused_with: Option<String>,
}

impl Macros {
    /// Takes the data of a packet: the command that they belong to, and names and values.
    pub(super) fn take(&mut self, data: &[u8]) {
        let Some((&command, data)) = data.split_first() else { return };
        match command {
            CONNECT => *self = Self::default(),
            MAIL => self.end_message(),
            RCPT => self.end_recipient(),
            _ => {}
        }
        let mut texts = texts(data);
        while let (Some(name), Some(value)) = (texts.next(), texts.next()) {
            self.one(name, value);
        }
    }

    fn one(&mut self, name: &[u8], value: &[u8]) {
        let inner = name.strip_prefix(b"{").and_then(|name| name.strip_suffix(b"}"));
        let known = || Some(text(value)).filter(|value| !value.is_empty());
        match inner.unwrap_or(name) {
            b"if_addr" | b"daemon_addr" => self.interface = address(value).or(self.interface),
            b"auth_type" => self.has_used_auth |= !value.is_empty(),
            b"auth_authen" => {
                self.login = known();
                self.has_used_auth |= self.login.is_some();
            }
            b"i" => self.queue_id = known().or(self.queue_id.take()),
            b"rcpt_mailer" => self.is_refused = value == b"error",
            b"rcpt_host" => self.refused_with = known(),
            _ => {}
        }
    }

    /// The message ends.
    pub(super) fn end_message(&mut self) {
        let interface = self.interface;
        *self = Self { interface, ..Self::default() };
    }

    /// The command about a recipient ends.
    pub(super) fn end_recipient(&mut self) {
        (self.is_refused, self.refused_with) = (false, None);
    }
}

/// A value as text.
pub(super) fn text(value: &[u8]) -> String {
    written(value.get(..VALUE_MAX).unwrap_or(value).into()).into_owned()
}

/// An address as mail servers write it: `192.0.2.1`, `2001:db8::1` or `IPv6:2001:db8::1`. An
/// IPv4 address that is written as one of IPv6 is the former.
pub(super) fn address(value: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(value).ok()?;
    let text = match text.split_at_checked(5) {
        Some((start, rest)) if start.eq_ignore_ascii_case("IPv6:") => rest,
        _ => text,
    };
    let text = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address: IpAddr = text.split('%').next()?.parse().ok()?;
    Some(address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn macros_hold_until_what_they_belong_to_ends() {
        let mut macros = Macros::default();
        macros.take(b"Cj\0mx.example.org\0{if_addr}\0IPv6:2001:db8::25\0");
        macros.take(b"M{auth_authen}\0ann\0{auth_type}\0PLAIN\0");
        assert!(macros.has_used_auth);
        macros.take(b"Ri\0");
        macros.take(b"Ri\x004XYZ\0{rcpt_mailer}\0error\0{rcpt_host}\x005.1.1\0");
        assert_eq!(macros.interface, Some("2001:db8::25".parse().unwrap()));
        assert_eq!(macros.login.as_deref(), Some("ann"));
        assert_eq!(macros.queue_id.as_deref(), Some("4XYZ"));
        assert_eq!((macros.is_refused, macros.refused_with.as_deref()), (true, Some("5.1.1")));
        macros.take(b"R{rcpt_mailer}\0smtp\0");
        assert!(!macros.is_refused && macros.login.is_some());
        // Of a stage that is not known, and without any.
        macros.take(b"?i\0later\0");
        macros.take(b"");
        assert_eq!(macros.queue_id.as_deref(), Some("later"));
        macros.take(b"M");
        assert!(macros.login.is_none() && macros.queue_id.is_none());
        assert!(macros.interface.is_some());
        assert!(!macros.has_used_auth);
        macros.take(b"M{auth_type}\0EXTERNAL\0{auth_authen}\0\0");
        assert!(macros.has_used_auth && macros.login.is_none());
        macros.take(b"C");
        assert!(macros.interface.is_none());
    }

    #[test]
    fn values_may_be_empty_long_and_not_utf8() {
        let mut macros = Macros::default();
        let mut data = b"M{auth_authen}\0\xff".to_vec();
        data.extend_from_slice(&[b'x'; 5000]);
        macros.take(&data);
        let login = macros.login.as_ref().unwrap();
        assert!(login.starts_with("\\377xx") && login.len() < VALUE_MAX + 4);
        macros.take(b"M{auth_authen}\0\0");
        assert_eq!(macros.login, None);
    }

    #[test]
    fn addresses_are_read_as_mail_servers_write_them() {
        for (text, read) in [
            ("192.0.2.1", Some("192.0.2.1")),
            ("2001:db8::1", Some("2001:db8::1")),
            ("IPv6:2001:db8::1", Some("2001:db8::1")),
            ("ipv6:::ffff:192.0.2.1", Some("192.0.2.1")),
            ("fe80::1%eth0", Some("fe80::1")),
            ("[192.0.2.1]", Some("192.0.2.1")),
            ("unknown", None),
            ("", None),
        ] {
            let read: Option<IpAddr> = read.map(|text| text.parse().unwrap());
            assert_eq!(address(text.as_bytes()), read, "{text}");
        }
    }
}
