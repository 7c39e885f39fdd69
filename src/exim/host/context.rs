//! At which ACL stage a call is made, and the facts that a spec needs.

use super::exports::Host;
use super::table::Tables;
use super::variables::{Text, Variables};
use crate::event::{AclStage, Context, ContextSource, Signs};
use std::borrow::Cow;
use std::cell::Cell;

/// All ACLs, and the options that name them. Several options may lead to the same
/// [`AclStage`].
const ACLS: [(AclStage, &str); 20] = [
    (AclStage::NotSmtp, "acl_not_smtp"),
    (AclStage::NotSmtp, "acl_not_smtp_mime"),
    (AclStage::NotSmtpStart, "acl_not_smtp_start"),
    (AclStage::Auth, "acl_smtp_auth"),
    (AclStage::Connect, "acl_smtp_connect"),
    (AclStage::Data, "acl_smtp_data"),
    (AclStage::Data, "acl_smtp_dkim"),
    (AclStage::Data, "acl_smtp_mime"),
    (AclStage::Prdr, "acl_smtp_data_prdr"),
    (AclStage::Etrn, "acl_smtp_etrn"),
    (AclStage::Expn, "acl_smtp_expn"),
    (AclStage::Helo, "acl_smtp_helo"),
    (AclStage::Mail, "acl_smtp_mail"),
    (AclStage::MailAuth, "acl_smtp_mailauth"),
    (AclStage::NotQuit, "acl_smtp_notquit"),
    (AclStage::Predata, "acl_smtp_predata"),
    (AclStage::Quit, "acl_smtp_quit"),
    (AclStage::Rcpt, "acl_smtp_rcpt"),
    (AclStage::StartTls, "acl_smtp_starttls"),
    (AclStage::Vrfy, "acl_smtp_vrfy"),
];

/// Which ACLs this configuration has.
///
/// A call can come from an ACL only if it is configured. Outside of ACLs there is no
/// sign that an ACL run has ended, so every evaluation counts.
pub(in crate::exim) struct Acls {
    tables: Tables,
    /// Whether each of [`ACLS`] is configured, as far as that has been asked for: to
    /// find out takes time, and few are used in one connection.
    configured: [Cell<Option<bool>>; ACLS.len()],
}

impl Acls {
    pub(in crate::exim) fn new(tables: Tables) -> Self {
        Self { tables, configured: [const { Cell::new(None) }; ACLS.len()] }
    }

    /// The tables of the program.
    pub(in crate::exim) fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Whether there is an ACL for `stage`.
    fn has(&self, stage: AclStage) -> bool {
        ACLS.iter().zip(&self.configured).filter(|((of, _), _)| *of == stage).any(
            |((_, option), configured)| {
                configured.get().unwrap_or_else(|| {
                    // An option that cannot be read counts as configured, except for
                    // AUTH: otherwise attempts to guess a password could go uncounted.
                    let is_set = self.tables.option_is_set(option);
                    let is_set = is_set.unwrap_or(stage != AclStage::Auth);
                    configured.set(Some(is_set));
                    is_set
                })
            },
        )
    }
}

/// The ACL stage of the call that is being made.
pub(in crate::exim) fn stage(host: &Host, variables: &Variables, acls: &Acls) -> AclStage {
    let is_there = |text: &Text| text.is_there(host);
    let command = variables.smtp_command.read(host).unwrap_or(Cow::Borrowed(b""));
    let stage = Signs {
        interactive: variables.smtp_input.read() && !variables.smtp_batched_input.read(),
        notquit: is_there(&variables.notquit_reason),
        router: is_there(&variables.router_name),
        transport: is_there(&variables.transport_name),
        command: &command,
        has_domain: is_there(&variables.domain),
        has_message_id: is_there(&variables.message_id),
        has_protocol: is_there(&variables.received_protocol),
        has_sender: variables.sender_address.is_set(),
    }
    .stage();
    // An authenticator runs during AUTH too, after the ACL if there is one. These are
    // set only then, to what the client sent.
    let authenticates = || host.expand(c"$auth1$auth2$auth3").is_some_and(|sent| !sent.is_empty());
    match stage {
        AclStage::Auth if authenticates() => AclStage::Outside,
        stage if acls.has(stage) => stage,
        _ => AclStage::Outside,
    }
}

/// What a spec may need, besides the stage.
pub(in crate::exim) struct CallFacts<'a> {
    host_address: Option<Cow<'a, [u8]>>,
    local_part: Option<Cow<'a, [u8]>>,
    domain: Option<Cow<'a, [u8]>>,
    recipients: Option<i64>,
    message_size: Option<i64>,
}

impl<'a> CallFacts<'a> {
    /// Reads the current values.
    pub(in crate::exim) fn read(host: &Host, variables: &'a Variables) -> Self {
        Self {
            host_address: variables.sender_host_address.read(host),
            local_part: variables.local_part.read(host),
            domain: variables.domain.read(host),
            recipients: variables.recipients_count.read(host),
            message_size: variables.message_size.read(host),
        }
    }
}

impl ContextSource for CallFacts<'_> {
    fn context(&self, stage: AclStage) -> Context<'_> {
        Context {
            stage,
            host_address: self.host_address.as_deref(),
            recipients: self.recipients.and_then(|n| u32::try_from(n).ok()).unwrap_or(0),
            // Negative where it is unknown.
            message_size: self.message_size.and_then(|bytes| u64::try_from(bytes).ok()),
            local_part: self.local_part.as_deref().unwrap_or_default(),
            domain: self.domain.as_deref().unwrap_or_default(),
        }
    }
}
