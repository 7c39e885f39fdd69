//! Marks: elements by which a message's digest shows in which of its parts others are.
//!
//! All elements of a message are in one filter, which does not show where they are from. So the
//! elements of some parts are there a second time, hashed in another way for each of these parts:
//! as a *mark*. A text whose marks of the subject are all there was in the subject. Texts and
//! HTML, which are nearly all of most messages, have no marks: it is known from the
//! [`Composition`] of a message whether it has a text, HTML or both. Display names have none
//! either, and are taken for text.
//!
//! | part | elements that have a mark |
//! |---|---|
//! | subject | all |
//! | texts and names of attachments | every eighth, by its hash |
//! | bytes and whole files of attachments, from the second one on | every fourth, by its hash |
//!
//! Whole files and bytes have other hashes than text, so what is found by them is in an
//! attachment. If it is in none of the others, it is in the first one.

use crate::trace::MessagePart;

use super::hashing::folded;

/// What the elements are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Material {
    Text,
    /// The bytes of an attachment, or a whole one.
    Bytes,
}

/// Makes the marks of a part for elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marker {
    numbers: (u64, u64),
    /// An element has a mark if these bits of its hash are 0.
    without: u64,
}

impl Marker {
    /// That of a part; `None` if its elements have no marks.
    pub(super) fn of(
        part: MessagePart,
        material: Material,
        numbers: impl Fn(MessagePart) -> (u64, u64),
    ) -> Option<Self> {
        let without = match (part, material) {
            (MessagePart::Subject, Material::Text) => 0,
            (MessagePart::Attachment(_), Material::Text) => 7,
            (MessagePart::Attachment(2..), Material::Bytes) => 3,
            _ => return None,
        };
        Some(Self { numbers: numbers(part), without })
    }

    /// The mark of an element, if it has one. The position in a filter depends on the highest
    /// bits of the hash, not on those that choose.
    #[inline]
    pub(super) fn mark(&self, element: u64) -> Option<u64> {
        (element & self.without == 0).then(|| folded(element, &self.numbers))
    }
}

/// Which parts a message has, in four bits: 1 a plain text, 2 one in HTML; and in the two higher
/// ones the number of attachments, 3 for three or more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Composition(u8);

impl Composition {
    /// The number of attachments that stands for all higher ones.
    const MANY: u8 = 3;

    /// The composition with this number.
    pub(super) fn numbered(number: u8) -> Option<Self> {
        (number < 16).then_some(Self(number))
    }

    pub(super) fn number(self) -> u8 {
        self.0
    }

    /// Adds a part.
    pub(super) fn add(&mut self, part: MessagePart) {
        match part {
            MessagePart::Text => self.0 |= 1,
            MessagePart::Html => self.0 |= 2,
            MessagePart::Attachment(number) => {
                let number = number.min(Self::MANY.into()) as u8;
                self.0 = self.0 & 3 | (self.0 >> 2).max(number) << 2;
            }
            MessagePart::Subject | MessagePart::Name => {}
        }
    }

    /// The texts it has that are not attachments, without the subject and names.
    pub(super) fn texts(self) -> impl Iterator<Item = MessagePart> {
        let all = [(1, MessagePart::Text), (2, MessagePart::Html)];
        all.into_iter().filter(move |(bit, _)| self.0 & bit != 0).map(|(_, part)| part)
    }

    /// The number of attachments it may have at most; `most` if that is not known.
    pub(super) fn attachments(self, most: u32) -> u32 {
        match self.0 >> 2 {
            Self::MANY => most,
            number => number.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compositions_are_four_bits() {
        let mut seen = Vec::new();
        for parts in 0..4_u32 {
            for attachments in [0, 1, 2, 3, 300] {
                let mut composition = Composition::default();
                (1..=attachments).for_each(|n| composition.add(MessagePart::Attachment(n)));
                if parts & 1 != 0 {
                    composition.add(MessagePart::Text);
                }
                if parts & 2 != 0 {
                    composition.add(MessagePart::Html);
                }
                composition.add(MessagePart::Subject);
                composition.add(MessagePart::Name);
                let expected = if attachments < 3 { attachments } else { 16 };
                assert_eq!(composition.attachments(16), expected);
                assert_eq!(composition.texts().count() as u32, parts.count_ones());
                assert_eq!(Composition::numbered(composition.number()), Some(composition));
                seen.push(composition.number());
            }
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, (0..16).collect::<Vec<_>>());
        assert_eq!(Composition::numbered(16), None);
    }
}
