//! The ACL stage, from what Exim's variables say of the dialogue.

use super::AclStage;

/// What the stage of a call is derived from.
#[derive(Clone, Copy, Debug, Default)]
pub struct Signs<'a> {
    /// Exim is receiving over SMTP, on a connection or standard input.
    pub interactive: bool,
    /// The connection is ending without a QUIT.
    pub notquit: bool,
    /// A router is at work.
    pub router: bool,
    /// A transport is at work, or has been: Exim leaves its name set after it has
    /// connected for cutthrough delivery, until the message ends.
    pub transport: bool,
    /// The SMTP command as the client sent it, at least its first word; empty before the first.
    pub command: &'a [u8],
    /// `$domain` is set.
    pub has_domain: bool,
    /// `$message_exim_id` is set.
    pub has_message_id: bool,
    /// `$received_protocol` is set.
    pub has_protocol: bool,
    /// `$sender_address` is set, also to the empty one.
    pub has_sender: bool,
}

impl Signs<'_> {
    /// Whether a router or a transport is at work. While Exim receives over SMTP, a
    /// transport has one recipient of a whole message.
    fn delivers(&self) -> bool {
        let is_past = self.interactive && !(self.has_message_id && self.has_domain);
        self.router || self.transport && !is_past
    }

    /// The ACL stage.
    #[must_use]
    pub fn stage(&self) -> AclStage {
        if self.delivers() {
            return AclStage::Outside;
        }
        if self.notquit {
            return AclStage::NotQuit;
        }
        if !self.interactive {
            return match (self.has_message_id, self.has_protocol) {
                (true, _) => AclStage::NotSmtp,
                (false, true) => AclStage::NotSmtpStart,
                // `exim -be`
                (false, false) => AclStage::Outside,
            };
        }
        let end = self.command.iter().position(|b| !b.is_ascii_alphabetic());
        let verb = &self.command[..end.unwrap_or(self.command.len())];
        let is = |name: &str| verb.eq_ignore_ascii_case(name.as_bytes());
        match () {
            () if self.command.is_empty() => AclStage::Connect,
            () if is("rcpt") => AclStage::Rcpt,
            // The MAILAUTH ACL runs before the sender's address is known.
            () if is("mail") && self.has_sender => AclStage::Mail,
            () if is("mail") => AclStage::MailAuth,
            () if (is("data") || is("bdat")) && !self.has_message_id => AclStage::Predata,
            // Only the PRDR ACL has a single recipient here.
            () if (is("data") || is("bdat")) && self.has_domain => AclStage::Prdr,
            () if is("data") || is("bdat") => AclStage::Data,
            () if is("ehlo") || is("helo") => AclStage::Helo,
            () if is("auth") => AclStage::Auth,
            () if is("starttls") => AclStage::StartTls,
            () if is("vrfy") => AclStage::Vrfy,
            () if is("expn") => AclStage::Expn,
            () if is("etrn") => AclStage::Etrn,
            () if is("quit") => AclStage::Quit,
            () => AclStage::Outside,
        }
    }
}

/// Whether a program's message comes, or came, in an SMTP dialogue, behind which anybody may be.
#[must_use]
pub fn is_of_dialogue(interactive: bool, protocol: &[u8]) -> bool {
    interactive || [&b"local-smtp"[..], b"local-esmtp"].iter().any(|p| protocol.starts_with(p))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_its_stage() {
        let smtp = |command: &'static str| Signs {
            interactive: true,
            command: command.as_bytes(),
            has_protocol: true,
            ..Signs::default()
        };
        for (command, place) in [
            ("", AclStage::Connect),
            ("EHLO there", AclStage::Helo),
            ("helo there", AclStage::Helo),
            ("AUTH PLAIN AGEAYg==", AclStage::Auth),
            ("STARTTLS", AclStage::StartTls),
            ("MAIL FROM:<> AUTH=<>", AclStage::MailAuth),
            ("rcpt to:<a@b.example>", AclStage::Rcpt),
            ("DATA", AclStage::Predata),
            ("VRFY a", AclStage::Vrfy),
            ("EXPN a", AclStage::Expn),
            ("ETRN b.example", AclStage::Etrn),
            ("QUIT", AclStage::Quit),
            ("NOOP", AclStage::Outside),
            ("RSET", AclStage::Outside),
            ("MAILX", AclStage::Outside),
        ] {
            assert_eq!(smtp(command).stage(), place, "{command:?}");
            assert_eq!(Signs { notquit: true, ..smtp(command) }.stage(), AclStage::NotQuit);
            assert_eq!(Signs { router: true, ..smtp(command) }.stage(), AclStage::Outside);
            // After cutthrough delivery has connected.
            assert_eq!(Signs { transport: true, ..smtp(command) }.stage(), place);
        }
        let sender = |command| Signs { has_sender: true, ..smtp(command) };
        assert_eq!(sender("MAIL FROM:<>").stage(), AclStage::Mail);
        let message = |command| Signs { has_message_id: true, ..sender(command) };
        assert_eq!(message("DATA").stage(), AclStage::Data);
        assert_eq!(message("BDAT 12 LAST").stage(), AclStage::Data);
        assert_eq!(Signs { transport: true, ..message("DATA") }.stage(), AclStage::Data);
        let one = || Signs { has_domain: true, ..message("DATA") };
        assert_eq!(one().stage(), AclStage::Prdr);
        assert_eq!(Signs { transport: true, ..one() }.stage(), AclStage::Outside);
    }

    #[test]
    fn without_smtp_the_message_id_decides() {
        let local = Signs { has_protocol: true, ..Signs::default() };
        assert_eq!(Signs::default().stage(), AclStage::Outside);
        assert_eq!(local.stage(), AclStage::NotSmtpStart);
        assert_eq!(Signs { transport: true, ..local }.stage(), AclStage::Outside);
        assert_eq!(Signs { has_message_id: true, ..local }.stage(), AclStage::NotSmtp);
    }
}
