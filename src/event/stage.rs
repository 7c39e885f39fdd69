//! ACL stages, the state of the mail server in one, and how long a decision stays valid. Specs
//! and policies are written against it.

/// The ACL stage: which ACL of Exim runs.
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
    /// No ACL: a router, where policies are evaluated that are `at = "delivery"`.
    Route,
    /// No ACL: the log says what became of a recipient of mail that was accepted.
    Delivery,
    /// No ACL: a router, a transport, `exim -be`, the program. Every mode can
    /// count here and every evaluation counts.
    Outside,
}

/// How long a decision is reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One decision for each SMTP connection.
    Connection,
    /// One decision for each message.
    Message,
    /// One decision for each command, that is, for each run of an ACL.
    Command,
    /// One decision for each evaluation.
    Evaluation,
}

/// The state of the mail server at the time of a check.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The ACL stage.
    pub stage: AclStage,
    /// `$sender_host_address`: the default key.
    pub host_address: Option<&'a [u8]>,
    /// `$recipients_count`: recipients accepted so far.
    pub recipients: u32,
    /// `$message_size` in bytes, if known.
    pub message_size: Option<u64>,
    /// `$local_part`; empty if unset.
    pub local_part: &'a [u8],
    /// `$domain`; empty if unset.
    pub domain: &'a [u8],
}

impl Context<'_> {
    /// Outside ACLs, with nothing known.
    #[must_use]
    pub fn outside() -> Self {
        Context {
            stage: AclStage::Outside,
            host_address: None,
            recipients: 0,
            message_size: None,
            local_part: b"",
            domain: b"",
        }
    }
}

/// A value that a [`Context`] can borrow from.
pub trait ContextSource {
    /// The context at `stage`.
    fn context(&self, stage: AclStage) -> Context<'_>;
}

impl AclStage {
    /// Whether all recipients of the message are known, so that they are
    /// counted in one batch.
    #[must_use]
    pub fn has_all_recipients(self) -> bool {
        matches!(
            self,
            Self::Predata | Self::Mime | Self::Dkim | Self::Data | Self::Prdr | Self::NotSmtp
        )
    }
}
