//! Exim's ids as numbers: when, by which process, and in which part of a
//! second a message began.

/// The digits of Exim's ids.
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// What an id is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// It is empty.
    None,
    /// `1rABCD-0001x2-3Y`, as Exim made them until 4.96.
    Short,
    /// `1rABCD-00000001x2a-3YzQ`, as it makes them since 4.97.
    Long,
    /// Anything else, which is kept as it is.
    Text,
}

impl Form {
    /// Its number.
    pub(super) const fn number(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Short => 1,
            Self::Long => 2,
            Self::Text => 3,
        }
    }

    /// The form of this number.
    pub(super) const fn numbered(number: u32) -> Self {
        match number {
            0 => Self::None,
            1 => Self::Short,
            2 => Self::Long,
            _ => Self::Text,
        }
    }

    /// How many digits its three numbers have.
    const fn widths(self) -> [usize; 3] {
        match self {
            Self::Long => [6, 11, 4],
            _ => [6, 6, 2],
        }
    }
}

/// An id of Exim's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Id {
    /// Seconds since 1970.
    pub(super) time: i64,
    pub(super) process: i64,
    pub(super) fraction: u64,
}

/// What an id is like; its numbers, where it is one of Exim's.
pub(super) fn parse(id: &str) -> (Form, Id) {
    let form = match id.len() {
        0 => return (Form::None, Id::default()),
        16 => Form::Short,
        23 => Form::Long,
        _ => return (Form::Text, Id::default()),
    };
    let mut parts = id.split('-').zip(form.widths()).map(|(part, width)| number(part, width));
    let mut next = || parts.next().flatten();
    let (Some(time), Some(process), Some(fraction)) = (next(), next(), next()) else {
        return (Form::Text, Id::default());
    };
    let found = Id { time: time.cast_signed(), process: process.cast_signed(), fraction };
    // What does not come back the same is kept as it is.
    if write(form, found) == id { (form, found) } else { (Form::Text, Id::default()) }
}

/// The id that has these numbers.
pub(super) fn write(form: Form, id: Id) -> String {
    let [a, b, c] = form.widths();
    let part = |number: u64, width| digits(number, width);
    let (time, process) = (id.time.cast_unsigned(), id.process.cast_unsigned());
    format!("{}-{}-{}", part(time, a), part(process, b), part(id.fraction, c))
}

fn number(part: &str, width: usize) -> Option<u64> {
    if part.len() != width {
        return None;
    }
    part.bytes().try_fold(0_u64, |sum, byte| {
        let digit = DIGITS.iter().position(|&digit| digit == byte)?;
        sum.checked_mul(62)?.checked_add(digit as u64)
    })
}

fn digits(mut number: u64, width: usize) -> String {
    let mut text = vec![b'0'; width];
    for place in text.iter_mut().rev() {
        *place = DIGITS.get((number % 62) as usize).copied().unwrap_or(b'0');
        number /= 62;
    }
    text.into_iter().map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_exims_come_back() {
        // 1rABCD is 2023-12-05.
        for (id, form, process) in [
            ("1rABCD-0001x2-3Y", Form::Short, 62 * 62 + 59 * 62 + 2),
            ("1rABCD-00000001x2a-3YzQ", Form::Long, ((62 + 59) * 62 + 2) * 62 + 36),
        ] {
            let (found, numbers) = parse(id);
            assert_eq!((found, numbers.process), (form, process), "{id}");
            assert_eq!(numbers.time, 1_701_704_961);
            assert_eq!(write(form, numbers), id);
            assert_eq!(Form::numbered(form.number()), form);
        }
        assert_eq!(parse(""), (Form::None, Id::default()));
    }

    #[test]
    fn other_ids_are_texts() {
        for id in [
            "1rABCD-0001x2-3",
            "1rABCD+0001x2-3Y",
            "1rABC--0001x2-3Y",
            "1rABCD-0001x2-3Y-",
            "1rABCD-zzzzzzzzzzz-3YzQ",
            "<a@example.org>1",
            "ü234567-90123-56",
        ] {
            assert_eq!(parse(id).0, Form::Text, "{id}");
        }
    }
}
