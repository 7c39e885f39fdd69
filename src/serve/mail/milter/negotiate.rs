//! Negotiation: which commands the mail server sends, to which it wants replies, and what
//! may be done with a message. The mail server offers; nothing is asked for that it did not
//! offer, or that is not needed.

/// The newest version of the protocol.
pub const VERSION: u32 = 6;
/// The oldest one that can be used.
pub const VERSION_MIN: u32 = 2;

/// `SMFIF_QUARANTINE`: a message may be held.
pub const QUARANTINE: u32 = 0x20;

/// Steps of the protocol, by their names in Sendmail's `mfdef.h`.
pub mod step {
    /// No bodies.
    pub const NOBODY: u32 = 0x10;
    /// No headers.
    pub const NOHDRS: u32 = 0x20;
    /// Nothing at the end of the headers.
    pub const NOEOH: u32 = 0x40;
    /// No reply to a header.
    pub const NR_HDR: u32 = 0x80;
    /// No unknown commands.
    pub const NOUNKNOWN: u32 = 0x100;
    /// Nothing at DATA.
    pub const NODATA: u32 = 0x200;
    /// The reply may be that the rest of the body is not needed.
    pub const SKIP: u32 = 0x400;
    /// Also recipients that the mail server has refused.
    pub const RCPT_REJ: u32 = 0x800;
    /// No reply to CONNECT.
    pub const NR_CONN: u32 = 0x1000;
    /// No reply to HELO.
    pub const NR_HELO: u32 = 0x2000;
    /// No reply to MAIL.
    pub const NR_MAIL: u32 = 0x4000;
    /// No reply to RCPT.
    pub const NR_RCPT: u32 = 0x8000;
    /// No reply to DATA.
    pub const NR_DATA: u32 = 0x1_0000;
    /// No reply to unknown commands.
    pub const NR_UNKN: u32 = 0x2_0000;
    /// No reply at the end of the headers.
    pub const NR_EOH: u32 = 0x4_0000;
    /// No reply to a part of a body.
    pub const NR_BODY: u32 = 0x8_0000;
    /// Headers with the blanks after the colon.
    pub const HDR_LEADSPC: u32 = 0x10_0000;

    /// What version 2 knows.
    pub(super) const V2: u32 = 0x7f;
    /// What version 3 knows.
    pub(super) const V3: u32 = V2 | NOUNKNOWN;
    /// What versions 4 and 5 know.
    pub(super) const V4: u32 = V3 | NODATA;
}

/// What is needed of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// Messages are recorded.
    pub record: bool,
    /// The sizes of messages are counted.
    pub bytes: bool,
    /// Headers that show that a program wrote a message or a list sends it.
    pub marks: bool,
    /// Recipients that the mail server has refused.
    pub rejected_recipients: bool,
    /// A verdict at CONNECT.
    pub connect: bool,
    /// A verdict at HELO.
    pub helo: bool,
    /// A verdict at MAIL.
    pub mail: bool,
}

/// What both sides have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// The version of the protocol.
    pub version: u32,
    /// What may be done with messages.
    pub actions: u32,
    /// The steps.
    pub steps: u32,
}

/// Why there is no agreement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAgreement {
    /// The offer is too short.
    #[error("a negotiation that is too short")]
    Short,
    /// The mail server speaks a version that is too old.
    #[error(
        "the mail server speaks version {0} of the milter protocol; it must be {VERSION_MIN} to \
         {VERSION} or newer"
    )]
    Version(u32),
}

impl Agreed {
    /// Agrees to what of `offer`, the data of the mail server's packet, is needed.
    ///
    /// # Errors
    /// There is no agreement.
    pub fn to(offer: &[u8], wants: Wants) -> Result<Self, NoAgreement> {
        let mut words = offer.as_chunks::<4>().0.iter().map(|word| u32::from_be_bytes(*word));
        let mut word = || words.next().ok_or(NoAgreement::Short);
        let (offered, actions, steps) = (word()?, word()?, word()?);
        if offered < VERSION_MIN {
            return Err(NoAgreement::Version(offered));
        }
        let version = offered.min(VERSION);
        let known = match version {
            2 => step::V2,
            3 => step::V3,
            4 | 5 => step::V4,
            _ => u32::MAX,
        };
        Ok(Self { version, actions: QUARANTINE & actions, steps: wants.steps() & steps & known })
    }

    /// Whether all of these steps are agreed on.
    #[must_use]
    pub fn has(&self, steps: u32) -> bool {
        self.steps & steps == steps
    }

    /// Whether messages can be held.
    #[must_use]
    pub fn can_hold(&self) -> bool {
        self.actions & QUARANTINE != 0
    }

    /// The data of the reply.
    #[must_use]
    pub fn data(&self) -> Vec<u8> {
        [self.version, self.actions, self.steps]
            .iter()
            .flat_map(|word| word.to_be_bytes())
            .collect()
    }
}

impl Wants {
    fn steps(self) -> u32 {
        let unless = |wanted: bool, step: u32| if wanted { 0 } else { step };
        // Where a step cannot be left out, at least its reply may be.
        let mut steps = step::NOUNKNOWN | step::NODATA | step::NOEOH;
        steps |= step::NR_UNKN | step::NR_DATA | step::NR_EOH | step::NR_HDR | step::NR_BODY;
        steps |= step::SKIP;
        steps |= unless(self.connect, step::NR_CONN);
        steps |= unless(self.helo, step::NR_HELO) | unless(self.mail, step::NR_MAIL);
        let content = self.record || self.bytes;
        steps |= unless(content, step::NOBODY) | unless(content || self.marks, step::NOHDRS);
        steps |= unless(!content, step::HDR_LEADSPC);
        steps | unless(!self.rejected_recipients, step::RCPT_REJ)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that Sendmail 8.17 and Postfix 3.7 offer.
    const ALL: u32 = 0x1f_ffff;

    fn offer(version: u32, actions: u32, steps: u32) -> Vec<u8> {
        Agreed { version, actions, steps }.data()
    }

    #[test]
    fn no_more_is_asked_for_than_is_needed() {
        let wants = Wants::default();
        let agreed = Agreed::to(&offer(6, 0x1ff, ALL), wants).unwrap();
        assert_eq!((agreed.version, agreed.actions), (6, QUARANTINE));
        use step::*;
        assert!(agreed.has(NOBODY | NOHDRS | NOEOH | NODATA | NOUNKNOWN));
        assert!(agreed.has(NR_CONN | NR_HELO | NR_MAIL));
        // The verdict on a recipient is a reply.
        assert!(!agreed.has(NR_RCPT) && !agreed.has(RCPT_REJ) && !agreed.has(HDR_LEADSPC));
        let all = Wants {
            record: true,
            bytes: true,
            marks: true,
            rejected_recipients: true,
            connect: true,
            helo: true,
            mail: true,
        };
        let agreed = Agreed::to(&offer(6, 0x1ff, ALL), all).unwrap();
        for step in [NOBODY, NOHDRS, NR_CONN, NR_HELO, NR_MAIL, NR_RCPT] {
            assert!(!agreed.has(step), "{step:x}");
        }
        assert!(agreed.has(RCPT_REJ | HDR_LEADSPC | NR_BODY | NR_HDR | NOEOH));
        let wants = Wants { marks: true, ..wants };
        let agreed = Agreed::to(&offer(6, 0x1ff, ALL), wants).unwrap();
        assert!(agreed.has(NOBODY) && !agreed.has(NOHDRS));
    }

    #[test]
    fn nothing_is_asked_for_that_is_not_offered() {
        let wants = Wants { rejected_recipients: true, ..Wants::default() };
        for version in [2, 3, 4, 5, 6, 7, 600] {
            for steps in [0, 0x7f, 0x3ff, ALL, u32::MAX] {
                let agreed = Agreed::to(&offer(version, 0x1f, steps), wants).unwrap();
                assert_eq!(agreed.steps & !steps, 0, "{version} {steps:x}");
                assert!(!agreed.can_hold());
                assert_eq!(agreed.version, version.min(6));
                let known = [0x7f, 0x17f, 0x37f, 0x37f].get(version as usize - 2);
                assert_eq!(agreed.steps & !known.unwrap_or(&u32::MAX), 0, "{version} {steps:x}");
            }
        }
    }

    #[test]
    fn an_offer_that_cannot_be_used_is_refused() {
        let wants = Wants::default();
        assert_eq!(Agreed::to(&offer(1, 0x1f, 0x7f), wants), Err(NoAgreement::Version(1)));
        assert_eq!(Agreed::to(&offer(6, 0x1f, 0x7f)[..11], wants), Err(NoAgreement::Short));
        // An offer may have more.
        let mut long = offer(6, 0x3f, 0x7f);
        long.extend_from_slice(b"more");
        assert!(Agreed::to(&long, wants).unwrap().can_hold());
    }
}
