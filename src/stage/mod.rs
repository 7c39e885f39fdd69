//! Where in the SMTP dialogue a check stands, what the mail server knows there,
//! and for how long its decision holds. For front ends: specs and policies are
//! written against it.

mod decisions;

pub use decisions::DecisionCache;

/// Where in the SMTP dialogue a check stands: which ACL of Exim runs.
///
/// The names printed in errors are Exim's own (`acl_wherenames`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AclStage {
    /// `acl_smtp_rcpt`
    Rcpt,
    /// `acl_smtp_mail`
    Mail,
    /// `acl_smtp_predata`
    Predata,
    /// `acl_smtp_mime`
    Mime,
    /// `acl_smtp_dkim`
    Dkim,
    /// `acl_smtp_data`
    Data,
    /// `acl_smtp_data_prdr`
    Prdr,
    /// `acl_not_smtp`
    NotSmtp,
    /// `acl_smtp_auth`
    Auth,
    /// `acl_smtp_connect`
    Connect,
    /// `acl_smtp_etrn`
    Etrn,
    /// `acl_smtp_expn`
    Expn,
    /// `acl_smtp_helo`
    Helo,
    /// `acl_smtp_mailauth`
    MailAuth,
    /// `acl_not_smtp_start`
    NotSmtpStart,
    /// `acl_smtp_notquit`
    NotQuit,
    /// `acl_smtp_quit`
    Quit,
    /// `acl_smtp_starttls`
    StartTls,
    /// `acl_smtp_vrfy`
    Vrfy,
    /// No ACL: a router, a transport, `exim -be`, the program. Every mode
    /// makes sense here and every evaluation counts.
    Outside,
}

/// For how long a decision is used again from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Once an SMTP connection.
    Connection,
    /// Once a message.
    Message,
    /// Once a command, that is, once a run of an ACL.
    Command,
    /// Every evaluation is computed again.
    Evaluation,
}

/// What the mail server knows at the moment of a check.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// Where the check stands.
    pub place: AclStage,
    /// `$sender_host_address`: the default key.
    pub host_address: Option<&'a [u8]>,
    /// `$recipients_count`: recipients accepted so far.
    pub recipients: u32,
    /// `$message_size` in bytes, where it is known.
    pub message_size: Option<u64>,
    /// `$local_part`, empty where unset.
    pub local_part: &'a [u8],
    /// `$domain`, empty where unset.
    pub domain: &'a [u8],
}

impl Context<'_> {
    /// Outside Exim's ACLs, with nothing known.
    #[must_use]
    pub fn outside() -> Self {
        Context {
            place: AclStage::Outside,
            host_address: None,
            recipients: 0,
            message_size: None,
            local_part: b"",
            domain: b"",
        }
    }
}

/// Something that holds what a [`Context`] borrows.
pub trait ContextSource {
    /// What is known, at `place`.
    fn context(&self, place: AclStage) -> Context<'_>;
}

impl AclStage {
    /// Whether all recipients of the message are known here, so that they are
    /// counted in one batch.
    #[must_use]
    pub fn has_all_recipients(self) -> bool {
        matches!(
            self,
            Self::Predata | Self::Mime | Self::Dkim | Self::Data | Self::Prdr | Self::NotSmtp
        )
    }
}
