//! The parameters of the schemes: each is stated here, once.
//!
//! An entry of a table is a parameter: its name, unit, what it is, its range, and its place in
//! the encoded settings, which have the parameters in this order. The options of
//! `record{OPTIONS}` and of `exirate trace record` are read and explained by it.

use super::settings::{Counted, GramOrder, HbfSettings, Settings, WinnowSettings};

/// A parameter of a scheme.
#[derive(Debug)]
pub struct Parameter {
    /// Its name as an option of the program; `record{OPTIONS}` has `_` for `-`. Empty: it is no
    /// option.
    pub name: &'static str,
    /// What it is a number of, for people.
    pub unit: &'static str,
    /// What it is.
    pub what: &'static str,
    values: Values,
    /// How many bytes it takes when encoded.
    bytes: usize,
    get: fn(&Settings) -> u32,
    set: fn(&mut Settings, u32),
}

/// What values a parameter has.
#[derive(Clone, Copy, Debug)]
enum Values {
    /// Whole numbers.
    From(u32, u32),
    /// Hundredths.
    Hundredths(u32, u32),
    /// Multiples of the first.
    Multiples(u32, u32),
    /// From a 64th of the bits of a filter to all of them.
    OfBits,
    /// These, by their index.
    Words(&'static [&'static str]),
}

/// A scheme, with its parameters.
#[derive(Debug)]
pub struct SchemeTable {
    /// Its name.
    pub name: &'static str,
    /// Its first byte when encoded.
    code: u8,
    /// Its settings unless others are set.
    pub default: fn() -> Settings,
    /// Its parameters.
    pub parameters: &'static [Parameter],
}

/// The most bits of a filter of the scheme `hbf`.
const BITS_MAX: u32 = 1 << 27;

/// A parameter: the field of the settings of a scheme in which it is kept.
macro_rules! parameter {
    ($scheme:ident.$field:ident: $type:ty, $name:literal, $unit:literal, $what:literal, $values:expr) => {
        Parameter {
            name: $name,
            unit: $unit,
            what: $what,
            values: $values,
            bytes: size_of::<$type>(),
            get: |settings| match settings {
                Settings::$scheme(settings) => settings.$field.number(),
                _ => 0,
            },
            set: |settings, value| {
                if let Settings::$scheme(settings) = settings {
                    settings.$field = <$type>::of(value);
                }
            },
        }
    };
}

/// The schemes, the default first.
pub static SCHEMES: [SchemeTable; 2] = [
    SchemeTable {
        name: "winnow",
        code: 1,
        default: || Settings::Winnow(WinnowSettings::default()),
        parameters: &[
            parameter!(Winnow.gram: u8, "gram", "BYTES",
                "the number of bytes of text that are hashed together", Values::From(4, 32)),
            parameter!(Winnow.window: u8, "window", "GRAMS",
                "the number of neighbouring grams of which one is kept", Values::From(1, 64)),
            parameter!(Winnow.bytes_gram: u8, "bytes-gram", "BYTES",
                "the number of bytes of an attachment that are hashed together",
                Values::From(4, 32)),
            parameter!(Winnow.bytes_window: u8, "bytes-window", "GRAMS",
                "the number of neighbouring grams of an attachment of which one is kept",
                Values::From(1, 255)),
            parameter!(Winnow.centibits: u16, "bits", "BITS",
                "the number of bits for each kept gram", Values::Hundredths(25, 3200)),
            parameter!(Winnow.order: GramOrder, "", "", "the order of the grams of text",
                Values::Words(&["random", "open-closed"])),
        ],
    },
    SchemeTable {
        name: "hbf",
        code: 2,
        default: || Settings::Hbf(HbfSettings::default()),
        parameters: &[
            parameter!(Hbf.block: u16, "block", "BYTES", "the number of bytes of a block (s)",
                Values::From(4, 1024)),
            parameter!(Hbf.bits: u32, "bits", "BITS", "the number of bits of a filter (m)",
                Values::Multiples(64, BITS_MAX)),
            parameter!(Hbf.probes: u8, "probes", "FUNCTIONS", "the number of hash functions (k)",
                Values::From(1, 16)),
            parameter!(Hbf.capacity: u32, "capacity", "INSERTIONS",
                "the number of insertions after which a filter is full (n)", Values::OfBits),
            parameter!(Hbf.counted: Counted, "counted", "WHICH",
                "which insertions capacity counts", Values::Words(&["elements", "blocks"])),
        ],
    },
];

/// What a parameter is kept as.
trait Number: Copy {
    /// Its number.
    fn number(self) -> u32;

    /// The one of a number in the range of the parameter.
    fn of(number: u32) -> Self;
}

impl Number for u8 {
    fn number(self) -> u32 {
        self.into()
    }

    fn of(number: u32) -> Self {
        Self::try_from(number).unwrap_or(Self::MAX)
    }
}

impl Number for u16 {
    fn number(self) -> u32 {
        self.into()
    }

    fn of(number: u32) -> Self {
        Self::try_from(number).unwrap_or(Self::MAX)
    }
}

impl Number for u32 {
    fn number(self) -> u32 {
        self
    }

    fn of(number: u32) -> Self {
        number
    }
}

impl Number for GramOrder {
    fn number(self) -> u32 {
        self as u32
    }

    fn of(number: u32) -> Self {
        if number == Self::Random as u32 { Self::Random } else { Self::OpenClosed }
    }
}

impl Number for Counted {
    fn number(self) -> u32 {
        self as u32
    }

    fn of(number: u32) -> Self {
        if number == Self::Elements as u32 { Self::Elements } else { Self::Blocks }
    }
}

impl WinnowSettings {
    /// With values out of range clamped.
    pub(super) fn nearest(self) -> Self {
        match Settings::Winnow(self).nearest() {
            Settings::Winnow(nearest) => nearest,
            Settings::Hbf(_) => self,
        }
    }
}

impl HbfSettings {
    /// With values out of range clamped.
    pub(super) fn nearest(self) -> Self {
        match Settings::Hbf(self).nearest() {
            Settings::Hbf(nearest) => nearest,
            Settings::Winnow(_) => self,
        }
    }
}

impl Parameter {
    /// Whether it is an option with this name.
    #[must_use]
    pub fn is_named(&self, name: &[u8]) -> bool {
        let alike = |(one, other): (&u8, u8)| match one {
            b'-' => matches!(other, b'-' | b'_'),
            one => one.eq_ignore_ascii_case(&other),
        };
        let ours = self.name.as_bytes();
        !ours.is_empty()
            && ours.len() == name.len()
            && ours.iter().zip(name.iter().copied()).all(alike)
    }

    /// What it is, and its range.
    #[must_use]
    pub fn takes(&self) -> String {
        let range = match self.values {
            Values::From(least, most) => format!("{least} to {most}"),
            Values::Hundredths(least, most) => {
                format!("{} to {}, such as 1.2", f64::from(least) / 100.0, f64::from(most) / 100.0)
            }
            Values::Multiples(step, most) => format!("a multiple of {step} up to {most}"),
            Values::OfBits => "bits / 64 to bits".to_owned(),
            Values::Words(words) => words.join(" or "),
        };
        format!("{}: {range}", self.what)
    }

    /// Its value as it is written.
    #[must_use]
    pub fn written(&self, settings: &Settings) -> String {
        let value = (self.get)(settings);
        match self.values {
            Values::Hundredths(..) => (f64::from(value) / 100.0).to_string(),
            Values::Words(words) => {
                words.get(value as usize).copied().unwrap_or_default().to_owned()
            }
            _ => value.to_string(),
        }
    }

    /// The value in its range that is the nearest to `value`.
    fn nearest(&self, value: u32, settings: &Settings) -> u32 {
        match self.values {
            Values::From(least, most) | Values::Hundredths(least, most) => value.clamp(least, most),
            Values::Multiples(step, most) => value.clamp(step, most).next_multiple_of(step),
            Values::OfBits => match settings {
                Settings::Hbf(HbfSettings { bits, .. }) => value.clamp(bits / 64, *bits),
                Settings::Winnow(_) => value,
            },
            Values::Words(words) => value.min(words.len().saturating_sub(1) as u32),
        }
    }

    /// The value that is written so, if it is in its range. The range of [`Values::OfBits`] is
    /// known when all is read.
    fn parse(&self, text: &[u8], settings: &Settings) -> Option<u32> {
        let number = if let Values::Words(words) = self.values {
            let named = |word: &&str| word.as_bytes().eq_ignore_ascii_case(text);
            words.iter().position(named)? as u32
        } else {
            let digits = text.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
            let number: f64 = std::str::from_utf8(text).ok().filter(|_| digits)?.parse().ok()?;
            let number = match self.values {
                Values::Hundredths(..) => (number * 100.0).round(),
                _ => Some(number).filter(|number| number.fract() == 0.0)?,
            };
            (0.0..=f64::from(u32::MAX)).contains(&number).then_some(number as u32)?
        };
        let is_of_bits = matches!(self.values, Values::OfBits);
        (is_of_bits || self.nearest(number, settings) == number).then_some(number)
    }
}

/// Why written parameters are no settings.
#[derive(Clone, Copy, Debug)]
pub enum WrongParameter {
    /// No scheme has it.
    Unknown,
    /// It is one of this scheme.
    OtherScheme(&'static str),
    /// It does not take this value.
    Value(&'static Parameter),
}

/// The number of bytes that [`Settings::encode`] returns.
const BYTES: usize = 16;

impl Settings {
    /// The scheme.
    #[must_use]
    pub fn table(&self) -> &'static SchemeTable {
        let [winnow, hbf] = &SCHEMES;
        match self {
            Self::Winnow(_) => winnow,
            Self::Hbf(_) => hbf,
        }
    }

    /// These settings, with the parameters that are `written`: names and values.
    ///
    /// # Errors
    /// Which of them is wrong, and how.
    pub fn with(mut self, written: &[(&[u8], &[u8])]) -> Result<Self, (usize, WrongParameter)> {
        let table = self.table();
        for (index, (name, value)) in written.iter().enumerate() {
            let named = |table: &&SchemeTable| table.parameters.iter().any(|p| p.is_named(name));
            let Some(parameter) = table.parameters.iter().find(|p| p.is_named(name)) else {
                let other = SCHEMES.iter().find(named);
                let wrong = other.map(|other| WrongParameter::OtherScheme(other.name));
                return Err((index, wrong.unwrap_or(WrongParameter::Unknown)));
            };
            let value = parameter.parse(value, &self);
            (parameter.set)(&mut self, value.ok_or((index, WrongParameter::Value(parameter)))?);
        }
        // Only the range of one depends on another.
        let nearest = self.nearest();
        let differs = |p: &&Parameter| (p.get)(&self) != (p.get)(&nearest);
        match table.parameters.iter().find(differs) {
            None => Ok(self),
            Some(parameter) => {
                let at = written.iter().position(|(name, _)| parameter.is_named(name));
                Err((at.unwrap_or(0), WrongParameter::Value(parameter)))
            }
        }
    }

    /// These parameters, with values out of range clamped.
    #[must_use]
    pub fn nearest(mut self) -> Self {
        for parameter in self.table().parameters {
            let value = parameter.nearest((parameter.get)(&self), &self);
            (parameter.set)(&mut self, value);
        }
        self
    }

    /// Encodes the scheme, its parameters in the order of the table without gaps, and zeros;
    /// numbers are little-endian.
    #[must_use]
    pub fn encode(&self) -> [u8; BYTES] {
        let SchemeTable { code, parameters, .. } = self.table();
        let mut bytes = [0; BYTES];
        let parameters = parameters.iter().flat_map(|parameter| {
            (parameter.get)(self).to_le_bytes().into_iter().take(parameter.bytes)
        });
        bytes
            .iter_mut()
            .zip([*code].into_iter().chain(parameters))
            .for_each(|(to, from)| *to = from);
        bytes
    }

    /// Decodes the output of [`Self::encode`]; `None` for anything else,
    /// including parameters out of range.
    #[must_use]
    pub fn decode(bytes: &[u8; BYTES]) -> Option<Self> {
        let [code, rest @ ..] = bytes;
        let table = SCHEMES.iter().find(|table| table.code == *code)?;
        let mut settings = (table.default)();
        let mut rest = &rest[..];
        for parameter in table.parameters {
            let (own, after) = rest.split_at_checked(parameter.bytes)?;
            let mut value = [0; 4];
            value.iter_mut().zip(own).for_each(|(to, from)| *to = *from);
            (parameter.set)(&mut settings, u32::from_le_bytes(value));
            rest = after;
        }
        (settings.nearest() == settings && settings.encode() == *bytes).then_some(settings)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn documents_have_each_parameter_and_its_default() {
        let read = |path| {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
            std::fs::read_to_string(path).unwrap()
        };
        let (recording, manual) = (read("docs/recording.md"), read("docs/man/exirate-functions.7"));
        for table in &SCHEMES {
            let settings = (table.default)();
            let options = table.parameters.iter().filter(|parameter| !parameter.name.is_empty());
            let names: Vec<_> = options.clone().map(|p| p.name.replace('-', "_")).collect();
            let written: Vec<_> = (names.iter().zip(options))
                .map(|(name, parameter)| format!("`{name}={}`", parameter.written(&settings)))
                .collect();
            let row = format!("| {} |", written.join(" "));
            assert!(recording.contains(&row), "docs/recording.md has no {row}");
            for name in names {
                assert!(manual.contains(&format!("{name}= ")), "exirate-functions.7: {name}");
            }
        }
    }

    #[test]
    fn written_parameters_are_read() {
        for table in &SCHEMES {
            let settings = (table.default)();
            for parameter in table.parameters.iter().filter(|p| !p.name.is_empty()) {
                let value = parameter.written(&settings);
                let name = parameter.name.replace('-', "_").to_uppercase();
                let read = settings.with(&[(name.as_bytes(), value.as_bytes())]);
                assert_eq!(read.unwrap(), settings, "{name}");
                for wrong in ["", "x", "-1", "1e1", "99999999999", "."] {
                    let read = settings.with(&[(name.as_bytes(), wrong.as_bytes())]);
                    assert!(matches!(read, Err((0, WrongParameter::Value(_)))), "{name} {wrong}");
                }
            }
        }
    }
}
