//! Exim's message ids as numbers: the second, the process, and the fraction of
//! a second in which a message was started.

/// The digits of Exim's ids.
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The form of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// It is empty.
    None,
    /// `1rABCD-0001x2-3Y`, as created by Exim until 4.96.
    Short,
    /// `1rABCD-00000001x2a-3YzQ`, as created since 4.97.
    Long,
    /// Any other text.
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

    /// The form with this number.
    pub(super) const fn numbered(number: u32) -> Self {
        match number {
            0 => Self::None,
            1 => Self::Short,
            2 => Self::Long,
            _ => Self::Text,
        }
    }

    /// The number of digits of its three numbers.
    const fn widths(self) -> [usize; 3] {
        match self {
            Self::Long => [6, 11, 4],
            _ => [6, 6, 2],
        }
    }
}

/// One of Exim's ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Id {
    /// Seconds since 1970.
    pub(super) time: i64,
    pub(super) process: i64,
    pub(super) fraction: u64,
}

/// The form of an id, and its numbers if it is one of Exim's.
pub(super) fn parse(id: &str) -> (Form, Id) {
    let form = match id.len() {
        0 => return (Form::None, Id::default()),
        16 => Form::Short,
        23 => Form::Long,
        _ => return (Form::Text, Id::default()),
    };
    let [a, b, c] = form.widths();
    let part = |start: usize, width: usize| {
        let is_apart = start == 0 || id.as_bytes().get(start - 1) == Some(&b'-');
        number(id.as_bytes().get(start..start + width).filter(|_| is_apart)?)
    };
    // As many digits as an id has are those of one number only, so it is written as it was.
    match (part(0, a), part(a + 1, b), part(a + b + 2, c)) {
        (Some(time), Some(process), Some(fraction)) => {
            let [time, process] = [time, process].map(u64::cast_signed);
            (form, Id { time, process, fraction })
        }
        _ => (Form::Text, Id::default()),
    }
}

/// The id with these numbers.
pub(super) fn write(form: Form, id: Id) -> String {
    let [a, b, c] = form.widths();
    let mut text = String::with_capacity(a + b + c + 2);
    put(id.time.cast_unsigned(), a, &mut text);
    text.push('-');
    put(id.process.cast_unsigned(), b, &mut text);
    text.push('-');
    put(id.fraction, c, &mut text);
    text
}

/// The value of each digit; [`NONE`] for other bytes.
static VALUES: [u8; 256] = {
    let mut values = [NONE; 256];
    let mut value = 0;
    while value < DIGITS.len() {
        values[DIGITS[value] as usize] = value as u8;
        value += 1;
    }
    values
};
const NONE: u8 = 255;

fn number(part: &[u8]) -> Option<u64> {
    part.iter().try_fold(0_u64, |sum, &byte| {
        let value = VALUES.get(usize::from(byte)).copied().filter(|&value| value != NONE)?;
        sum.checked_mul(62)?.checked_add(value.into())
    })
}

/// Appends a number in so many digits, at most [`WIDTH_MAX`].
fn put(mut number: u64, width: usize, text: &mut String) {
    let mut digits = [b'0'; WIDTH_MAX];
    let digits = digits.get_mut(..width).unwrap_or_default();
    for digit in digits.iter_mut().rev() {
        *digit = DIGITS.get((number % 62) as usize).copied().unwrap_or(b'0');
        number /= 62;
    }
    text.extend(digits.iter().copied().map(char::from));
}

/// The number of digits of the longest number.
const WIDTH_MAX: usize = 11;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exims_ids_round_trip() {
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
