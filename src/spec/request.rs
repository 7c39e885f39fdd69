//! What a check needs to know, and where in Exim it was asked.

/// Where in Exim a check stands.
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

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Messages (the default).
    PerMail,
    /// Recipients.
    PerRcpt,
    /// Different recipient addresses.
    PerAddr,
    /// Connections.
    PerConn,
    /// Evaluations.
    PerCmd,
    /// Bytes of message.
    PerByte,
}

/// When a check is written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// Only while under the limit: what succeeded is measured.
    Leaky,
    /// Always: what was attempted is measured.
    Strict,
    /// Never, and nothing is counted.
    ReadOnly,
}

/// For how long an answer is given again from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Once an SMTP connection.
    Connection,
    /// Once a message.
    Message,
    /// Once a command, that is, once a run of an ACL.
    Command,
    /// Every evaluation is computed anew.
    Evaluation,
}

/// What Exim knows at the moment of a check.
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

/// A validated request for one decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The stored key text: `p/mode/[unique/]key`, with `p` as written and
    /// `mode` as Exim files it (`per_byte` is filed under `per_mail`,
    /// `per_addr` under `per_rcpt/unique`).
    pub key: Vec<u8>,
    /// Where in [`Request::key`] the key begins that the administrator wrote.
    pub key_start: usize,
    /// The limit: the most events per period. Not negative, not NaN; may be
    /// infinite.
    pub limit: f64,
    /// The period in seconds; greater than zero.
    pub period: f64,
    /// What is counted, as the administrator wrote it.
    pub mode: Mode,
    /// When it is written back.
    pub update: Update,
    /// The size of this event; 0 in [`Update::ReadOnly`]. Not negative, not
    /// NaN.
    pub count: f64,
    /// The text of a unique event, counted at most once a period.
    pub unique: Option<Vec<u8>>,
    /// For how long the answer may be given again from memory.
    pub scope: Scope,
}

impl Request {
    /// The key as the administrator wrote it, or the default key.
    #[must_use]
    pub fn written_key(&self) -> &[u8] {
        self.key.get(self.key_start..).unwrap_or_default()
    }
}

impl Update {
    /// The option that asks for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Leaky => "leaky",
            Self::Strict => "strict",
            Self::ReadOnly => "readonly",
        }
    }
}

impl AclStage {
    /// Whether `mode` makes sense here, so that a check may count and write.
    pub(super) fn lets_count(self, mode: Mode) -> bool {
        match mode {
            _ if self == Self::Outside => true,
            Mode::PerCmd => true,
            Mode::PerConn => !matches!(self, Self::NotSmtp | Self::NotSmtpStart),
            Mode::PerMail | Mode::PerByte => {
                matches!(self, Self::Rcpt | Self::Mail) || self.has_all_recipients()
            }
            Mode::PerRcpt => self == Self::Rcpt || self.has_all_recipients(),
            Mode::PerAddr => self == Self::Rcpt,
        }
    }

    /// Whether all recipients of the message are known here, so that they are
    /// counted in one batch.
    pub(super) fn has_all_recipients(self) -> bool {
        matches!(
            self,
            Self::Predata | Self::Mime | Self::Dkim | Self::Data | Self::Prdr | Self::NotSmtp
        )
    }
}
