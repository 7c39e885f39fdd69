//! The schemes and their parameters, as options of `record{OPTIONS}`.

use super::wrong_options::WrongOptions;
use crate::spec::NamedOption;
use crate::trace::{Counted, HbfSettings, Settings, WinnowSettings};

/// A scheme, with its parameters.
pub(in crate::exim) struct Scheme {
    name: &'static str,
    default: fn() -> Settings,
    parameters: &'static [Parameter],
}

/// One parameter of a scheme.
struct Parameter {
    name: &'static str,
    takes: &'static str,
    set: fn(&mut Settings, &NamedOption<'_>) -> Option<()>,
}

impl Scheme {
    /// Its settings: parameters as `written`, the defaults for the others.
    pub(in crate::exim) fn settings(
        &self,
        written: &[&NamedOption<'_>],
    ) -> Result<Settings, WrongOptions> {
        let mut settings = (self.default)();
        for option in written {
            let named = |scheme: &&Self| scheme.parameters.iter().find(|p| option.is(p.name));
            let Some(parameter) = named(&self) else {
                let other = SCHEMES.iter().find(|scheme| named(scheme).is_some());
                let written = option.to_string();
                return Err(match other {
                    Some(Self { name: scheme, .. }) => {
                        WrongOptions::OtherScheme { written, scheme }
                    }
                    None => WrongOptions::Unknown(written),
                });
            };
            (parameter.set)(&mut settings, option)
                .ok_or_else(|| WrongOptions::value(option, parameter.takes))?;
        }
        if settings.nearest() == settings {
            return Ok(settings);
        }
        // Each is within its range: capacity is the one whose range depends on another.
        let at_fault = written.iter().find(|o| o.is("capacity")).or(written.first());
        let written = at_fault.map_or_else(String::new, ToString::to_string);
        Err(WrongOptions::Value { written, takes: CAPACITY })
    }
}

/// The scheme that is the value of `option`.
pub(in crate::exim) fn named(option: &NamedOption<'_>) -> Option<&'static Scheme> {
    SCHEMES.iter().find(|scheme| option.is_word(scheme.name))
}

const CAPACITY: &str = "capacity= takes the number of insertions after which a filter is full, from \
                        bits= / 64 to bits=";

/// Both schemes, the default first.
pub(in crate::exim) static SCHEMES: [Scheme; 2] = [
    Scheme {
        name: "winnow",
        default: || Settings::Winnow(WinnowSettings::default()),
        parameters: &[
            Parameter {
                name: "gram",
                takes: "gram= takes the number of bytes of text that are hashed together: 4 to 32",
                set: |settings, option| {
                    put(winnow(settings).map(|s| &mut s.gram), whole(option, 4, 32))
                },
            },
            Parameter {
                name: "window",
                takes: "window= takes the number of neighbouring grams of which one is kept: 1 to 64",
                set: |settings, option| {
                    put(winnow(settings).map(|s| &mut s.window), whole(option, 1, 64))
                },
            },
            Parameter {
                name: "bytes_gram",
                takes: "bytes_gram= takes the number of bytes of an attachment that are hashed \
                        together: 4 to 32",
                set: |settings, option| {
                    put(winnow(settings).map(|s| &mut s.bytes_gram), whole(option, 4, 32))
                },
            },
            Parameter {
                name: "bytes_window",
                takes: "bytes_window= takes the number of neighbouring grams of an attachment of \
                        which one is kept: 1 to 255",
                set: |settings, option| {
                    put(winnow(settings).map(|s| &mut s.bytes_window), whole(option, 1, 255))
                },
            },
            Parameter {
                name: "bits",
                takes: "bits= takes the number of bits for each kept gram: 0.25 to 32, such as 1.2",
                set: |settings, option| {
                    let bits = option.number().filter(|bits| (0.25..=32.0).contains(bits));
                    let centibits = bits.map(|bits| (bits * 100.0).round() as u16);
                    put(winnow(settings).map(|s| &mut s.centibits), centibits)
                },
            },
        ],
    },
    Scheme {
        name: "hbf",
        default: || Settings::Hbf(HbfSettings::default()),
        parameters: &[
            Parameter {
                name: "block",
                takes: "block= takes the number of bytes of a block: 4 to 1024",
                set: |settings, option| {
                    put(hbf(settings).map(|s| &mut s.block), whole(option, 4, 1024))
                },
            },
            Parameter {
                name: "bits",
                takes: "bits= takes the number of bits of a filter: a multiple of 64 up to 134217728",
                set: |settings, option| {
                    let bits = whole(option, 64, 1 << 27).filter(|b: &u32| b.is_multiple_of(64));
                    put(hbf(settings).map(|s| &mut s.bits), bits)
                },
            },
            Parameter {
                name: "probes",
                takes: "probes= takes the number of hash functions: 1 to 16",
                set: |settings, option| {
                    put(hbf(settings).map(|s| &mut s.probes), whole(option, 1, 16))
                },
            },
            Parameter {
                name: "capacity",
                takes: CAPACITY,
                set: |settings, option| {
                    put(hbf(settings).map(|s| &mut s.capacity), whole(option, 1, 1 << 27))
                },
            },
            Parameter {
                name: "counted",
                takes: "counted= takes which insertions capacity= counts: elements or blocks",
                set: |settings, option| {
                    let words = [("elements", Counted::Elements), ("blocks", Counted::Blocks)];
                    let counted = words.into_iter().find(|(word, _)| option.is_word(word));
                    put(hbf(settings).map(|s| &mut s.counted), counted.map(|(_, counted)| counted))
                },
            },
        ],
    },
];

fn winnow(settings: &mut Settings) -> Option<&mut WinnowSettings> {
    match settings {
        Settings::Winnow(settings) => Some(settings),
        Settings::Hbf(_) => None,
    }
}

fn hbf(settings: &mut Settings) -> Option<&mut HbfSettings> {
    match settings {
        Settings::Hbf(settings) => Some(settings),
        Settings::Winnow(_) => None,
    }
}

/// Sets a parameter, if this scheme has it and the value is valid.
fn put<T>(parameter: Option<&mut T>, value: Option<T>) -> Option<()> {
    *parameter? = value?;
    Some(())
}

/// The value of `option`, if it is a whole number in this range.
fn whole<T: TryFrom<u64>>(option: &NamedOption<'_>, min: u64, max: u64) -> Option<T> {
    let number = option.number().filter(|number| number.fract() == 0.0)?;
    let range = min as f64..=max as f64;
    T::try_from(range.contains(&number).then_some(number as u64)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exim::trace::record_options::RecordOptions;

    #[test]
    fn every_parameter_is_named_where_options_are_listed() {
        let unknown = RecordOptions::parse(b"x").unwrap_err().to_string();
        for scheme in &SCHEMES {
            let (_, of_it) = unknown.split_once(&format!("{}: ", scheme.name)).unwrap();
            for parameter in scheme.parameters {
                assert!(of_it.contains(&format!("{}=", parameter.name)), "{}", parameter.name);
                assert!(parameter.takes.starts_with(&format!("{}= takes ", parameter.name)));
            }
        }
    }
}
