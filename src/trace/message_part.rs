//! The parts of a message in which a query's content may be.

use std::fmt;

/// A part of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MessagePart {
    /// The subject.
    Subject,
    /// The display names of senders and recipients.
    Name,
    /// A plain text.
    Text,
    /// A text in HTML, its title, and the targets of its links.
    Html,
    /// The attachment with this number, from 1 on, in the order of the message: its name, its
    /// contents, and all that is attached to an attached message. Images within a text count.
    Attachment(u32),
}

/// The number from which on attachments are no longer told apart.
pub(super) const ATTACHMENTS_MAX: u32 = 16;

/// Parts of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct MessageParts(u32);

impl MessagePart {
    const FIRST: [Self; 4] = [Self::Subject, Self::Name, Self::Text, Self::Html];

    /// A number for each that is told apart, from 0 on.
    pub(super) fn number(self) -> u32 {
        match self {
            Self::Subject => 0,
            Self::Name => 1,
            Self::Text => 2,
            Self::Html => 3,
            Self::Attachment(number) => 3 + number.clamp(1, ATTACHMENTS_MAX),
        }
    }

    /// The number of numbers.
    pub(super) const NUMBERS: usize = 4 + ATTACHMENTS_MAX as usize;
}

impl fmt::Display for MessagePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Subject => f.write_str("subject"),
            Self::Name => f.write_str("name"),
            Self::Text => f.write_str("text"),
            Self::Html => f.write_str("HTML"),
            Self::Attachment(number) if *number < ATTACHMENTS_MAX => {
                write!(f, "attachment {number}")
            }
            Self::Attachment(_) => write!(f, "attachment {ATTACHMENTS_MAX} or a later one"),
        }
    }
}

impl MessageParts {
    /// Adds a part.
    pub(super) fn insert(&mut self, part: MessagePart) {
        self.0 |= 1 << part.number();
    }

    /// These and others.
    #[must_use]
    pub(super) fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Each of them: the subject first, attachments last.
    pub fn iter(self) -> impl Iterator<Item = MessagePart> {
        let attachments = (1..=ATTACHMENTS_MAX).map(MessagePart::Attachment);
        let all = MessagePart::FIRST.into_iter().chain(attachments);
        all.filter(move |part| self.0 >> part.number() & 1 == 1)
    }
}

impl FromIterator<MessagePart> for MessageParts {
    fn from_iter<I: IntoIterator<Item = MessagePart>>(parts: I) -> Self {
        let mut all = Self::default();
        parts.into_iter().for_each(|part| all.insert(part));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kit::quickcheck;

    quickcheck! {
        fn all_parts_are_kept_once(numbers: Vec<u8>) -> bool {
            let parts = numbers.iter().map(|&number| match number {
                first @ ..4 => MessagePart::FIRST[usize::from(first)],
                number => MessagePart::Attachment(u32::from(number % ATTACHMENTS_MAX as u8) + 1),
            });
            let mut parts: Vec<MessagePart> = parts.collect();
            let found: Vec<MessagePart> = parts.iter().copied().collect::<MessageParts>().iter().collect();
            parts.sort();
            parts.dedup();
            found == parts && parts.is_empty() == MessageParts::from_iter(parts).is_empty()
        }
    }

    #[test]
    fn later_attachments_are_one_part() {
        let parts: MessageParts =
            [16, 17, 4_000_000_000].map(MessagePart::Attachment).into_iter().collect();
        let names: Vec<String> = parts.iter().map(|part| part.to_string()).collect();
        assert_eq!(names, ["attachment 16 or a later one"]);
        assert_eq!(MessagePart::Attachment(15).to_string(), "attachment 15");
        assert_eq!(MessagePart::NUMBERS as u32, MessagePart::Attachment(99).number() + 1);
    }
}
