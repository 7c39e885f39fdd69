//! Where in Exim a call stands.

use super::host::Host;
use super::variables::{Source, Text, Variables};
use crate::spec::{Context, Place, Surroundings};
use std::borrow::Cow;

/// The ACLs there are, and the options that name them. More than one option
/// may lead to the same [`Place`].
const ACLS: [(Place, &str); 20] = [
    (Place::NotSmtp, "acl_not_smtp"),
    (Place::NotSmtp, "acl_not_smtp_mime"),
    (Place::NotSmtpStart, "acl_not_smtp_start"),
    (Place::Auth, "acl_smtp_auth"),
    (Place::Connect, "acl_smtp_connect"),
    (Place::Data, "acl_smtp_data"),
    (Place::Data, "acl_smtp_dkim"),
    (Place::Data, "acl_smtp_mime"),
    (Place::Prdr, "acl_smtp_data_prdr"),
    (Place::Etrn, "acl_smtp_etrn"),
    (Place::Expn, "acl_smtp_expn"),
    (Place::Helo, "acl_smtp_helo"),
    (Place::Mail, "acl_smtp_mail"),
    (Place::MailAuth, "acl_smtp_mailauth"),
    (Place::NotQuit, "acl_smtp_notquit"),
    (Place::Predata, "acl_smtp_predata"),
    (Place::Quit, "acl_smtp_quit"),
    (Place::Rcpt, "acl_smtp_rcpt"),
    (Place::StartTls, "acl_smtp_starttls"),
    (Place::Vrfy, "acl_smtp_vrfy"),
];

/// Which ACLs this configuration has.
///
/// A call can come from an ACL only if there is one. Elsewhere Exim marks no end
/// of a run, and every evaluation has to count.
pub(super) struct Acls(Vec<Place>);

impl Acls {
    pub(super) fn find(source: &Source<'_>) -> Self {
        // What this host does not tell is taken to be configured, but for
        // AUTH: the doubt must not let anyone guess passwords uncounted.
        let configured = |(place, option): &&(Place, &str)| {
            source.option_is_set(option).unwrap_or(*place != Place::Auth)
        };
        Self(ACLS.iter().filter(configured).map(|(place, _)| *place).collect())
    }
}

/// What tells where a call stands.
#[derive(Debug, Default)]
struct Signs<'a> {
    /// Exim is receiving over SMTP, on a connection or standard input.
    interactive: bool,
    /// The connection is ending without a QUIT.
    notquit: bool,
    /// A router or a transport is at work.
    driver: bool,
    /// The SMTP command as it came; empty before the first.
    command: &'a [u8],
    has_domain: bool,
    has_message_id: bool,
    has_protocol: bool,
    has_sender: bool,
}

impl Signs<'_> {
    fn place(&self) -> Place {
        if self.driver {
            return Place::Outside;
        }
        if self.notquit {
            return Place::NotQuit;
        }
        if !self.interactive {
            return match (self.has_message_id, self.has_protocol) {
                (true, _) => Place::NotSmtp,
                (false, true) => Place::NotSmtpStart,
                // `exim -be`
                (false, false) => Place::Outside,
            };
        }
        let end = self.command.iter().position(|b| !b.is_ascii_alphabetic());
        let verb = &self.command[..end.unwrap_or(self.command.len())];
        let is = |name: &str| verb.eq_ignore_ascii_case(name.as_bytes());
        match () {
            () if self.command.is_empty() => Place::Connect,
            () if is("rcpt") => Place::Rcpt,
            // The MAILAUTH ACL runs before the sender's address is known.
            () if is("mail") && self.has_sender => Place::Mail,
            () if is("mail") => Place::MailAuth,
            () if (is("data") || is("bdat")) && !self.has_message_id => Place::Predata,
            // Only PRDR's ACL sees one recipient at a time here.
            () if (is("data") || is("bdat")) && self.has_domain => Place::Prdr,
            () if is("data") || is("bdat") => Place::Data,
            () if is("ehlo") || is("helo") => Place::Helo,
            () if is("auth") => Place::Auth,
            () if is("starttls") => Place::StartTls,
            () if is("vrfy") => Place::Vrfy,
            () if is("expn") => Place::Expn,
            () if is("etrn") => Place::Etrn,
            () if is("quit") => Place::Quit,
            () => Place::Outside,
        }
    }
}

/// Where the call stands that is being answered now.
pub(super) fn place(host: &Host, variables: &Variables, acls: &Acls) -> Place {
    let is_there = |text: &Text| text.is_there(host);
    let command = variables.smtp_command.read(host).unwrap_or(Cow::Borrowed(b""));
    let place = Signs {
        interactive: variables.smtp_input.read() && !variables.smtp_batched_input.read(),
        notquit: is_there(&variables.notquit_reason),
        driver: is_there(&variables.router_name) || is_there(&variables.transport_name),
        command: &command,
        has_domain: is_there(&variables.domain),
        has_message_id: is_there(&variables.message_id),
        has_protocol: is_there(&variables.received_protocol),
        has_sender: variables.sender_address.is_set(),
    }
    .place();
    // An authenticator works during AUTH too, after the ACL if there is one.
    // Only while it does are these set: to what the client has sent.
    let authenticates = || host.expand(c"$auth1$auth2$auth3").is_some_and(|sent| !sent.is_empty());
    match place {
        Place::Auth if authenticates() => Place::Outside,
        place if acls.0.contains(&place) => place,
        _ => Place::Outside,
    }
}

/// What a spec may ask for, besides the place.
pub(super) struct Facts<'a> {
    host_address: Option<Cow<'a, [u8]>>,
    local_part: Option<Cow<'a, [u8]>>,
    domain: Option<Cow<'a, [u8]>>,
    recipients: Option<i64>,
    message_size: Option<i64>,
}

impl<'a> Facts<'a> {
    /// As they are now.
    pub(super) fn read(host: &Host, variables: &'a Variables) -> Self {
        Self {
            host_address: variables.sender_host_address.read(host),
            local_part: variables.local_part.read(host),
            domain: variables.domain.read(host),
            recipients: variables.recipients_count.read(host),
            message_size: variables.message_size.read(host),
        }
    }
}

impl Surroundings for Facts<'_> {
    fn context(&self, place: Place) -> Context<'_> {
        Context {
            place,
            host_address: self.host_address.as_deref(),
            recipients: self.recipients.and_then(|n| u32::try_from(n).ok()).unwrap_or(0),
            // Negative where it is not known.
            message_size: self.message_size.and_then(|bytes| u64::try_from(bytes).ok()),
            local_part: self.local_part.as_deref().unwrap_or_default(),
            domain: self.domain.as_deref().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_leads_to_its_acl() {
        let smtp = |command: &'static str| Signs {
            interactive: true,
            command: command.as_bytes(),
            has_protocol: true,
            ..Signs::default()
        };
        for (command, place) in [
            ("", Place::Connect),
            ("EHLO there", Place::Helo),
            ("helo there", Place::Helo),
            ("AUTH PLAIN AGEAYg==", Place::Auth),
            ("STARTTLS", Place::StartTls),
            ("MAIL FROM:<> AUTH=<>", Place::MailAuth),
            ("rcpt to:<a@b.example>", Place::Rcpt),
            ("DATA", Place::Predata),
            ("VRFY a", Place::Vrfy),
            ("EXPN a", Place::Expn),
            ("ETRN b.example", Place::Etrn),
            ("QUIT", Place::Quit),
            ("NOOP", Place::Outside),
            ("RSET", Place::Outside),
            ("MAILX", Place::Outside),
        ] {
            assert_eq!(smtp(command).place(), place, "{command:?}");
            assert_eq!(Signs { notquit: true, ..smtp(command) }.place(), Place::NotQuit);
            assert_eq!(Signs { driver: true, ..smtp(command) }.place(), Place::Outside);
        }
        let sender = |command| Signs { has_sender: true, ..smtp(command) };
        assert_eq!(sender("MAIL FROM:<>").place(), Place::Mail);
        let message = |command| Signs { has_message_id: true, ..sender(command) };
        assert_eq!(message("DATA").place(), Place::Data);
        assert_eq!(message("BDAT 12 LAST").place(), Place::Data);
        assert_eq!(Signs { has_domain: true, ..message("DATA") }.place(), Place::Prdr);
    }

    #[test]
    fn without_smtp_the_message_id_tells() {
        let local = Signs { has_protocol: true, ..Signs::default() };
        assert_eq!(Signs::default().place(), Place::Outside);
        assert_eq!(local.place(), Place::NotSmtpStart);
        assert_eq!(Signs { has_message_id: true, ..local }.place(), Place::NotSmtp);
    }
}
