//! The schemes and their parameters, as `record{OPTIONS}` has them.

use super::record_options::{WrongOptions, wrong};
use crate::spec::NamedOption;
use crate::trace::{Counted, HbfSettings, Settings, WinnowSettings};

/// A scheme as it is written, with its parameters.
pub(super) struct Scheme {
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
    /// Its parameters as they are `written`, the defaults for the others.
    pub(super) fn settings(&self, written: &[&NamedOption<'_>]) -> Result<Settings, WrongOptions> {
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
            (parameter.set)(&mut settings, option).ok_or_else(|| wrong(option, parameter.takes))?;
        }
        if settings.nearest() == settings {
            return Ok(settings);
        }
        // Each by itself is within its range: it is this one that hangs on
        // another.
        let at_fault = written.iter().find(|o| o.is("capacity")).or(written.first());
        let written = at_fault.map_or_else(String::new, ToString::to_string);
        Err(WrongOptions::Value { written, takes: CAPACITY })
    }
}

/// The scheme that is the value of `option`.
pub(super) fn named(option: &NamedOption<'_>) -> Option<&'static Scheme> {
    SCHEMES.iter().find(|scheme| option.is_word(scheme.name))
}

const CAPACITY: &str = "capacity= takes at how many insertions a filter is full, from a 64th of bits= \
                        up to bits=";

/// Both schemes, the default first.
pub(super) static SCHEMES: [Scheme; 2] = [
    Scheme {
        name: "winnow",
        default: || Settings::Winnow(WinnowSettings::default()),
        parameters: &[
            Parameter {
                name: "gram",
                takes: "gram= takes how many bytes of text are hashed together: 4 to 32",
                set: |settings, option| {
                    put(winnow(settings).map(|s| &mut s.gram), whole(option, 4, 32))
                },
            },
            Parameter {
                name: "window",
                takes: "window= takes of how many neighbouring grams one is kept: 1 to 64",
                set: |settings, option| {
                    put(winnow(settings).map(|s| &mut s.window), whole(option, 1, 64))
                },
            },
            Parameter {
                name: "bytes_gram",
                takes: "bytes_gram= takes how many bytes of an attachment are hashed together: 4 \
                        to 32",
                set: |settings, option| {
                    put(winnow(settings).map(|s| &mut s.bytes_gram), whole(option, 4, 32))
                },
            },
            Parameter {
                name: "bytes_window",
                takes: "bytes_window= takes of how many neighbouring grams of an attachment one \
                        is kept: 1 to 255",
                set: |settings, option| {
                    put(winnow(settings).map(|s| &mut s.bytes_window), whole(option, 1, 255))
                },
            },
            Parameter {
                name: "bits",
                takes: "bits= takes how many bits there are for each kept gram: 0.25 to 32, such \
                        as 1.2",
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
                takes: "block= takes how many bytes a block has: 4 to 1024",
                set: |settings, option| {
                    put(hbf(settings).map(|s| &mut s.block), whole(option, 4, 1024))
                },
            },
            Parameter {
                name: "bits",
                takes: "bits= takes how many bits a filter has: a multiple of 64 up to 134217728",
                set: |settings, option| {
                    let bits = whole(option, 64, 1 << 27).filter(|b: &u32| b.is_multiple_of(64));
                    put(hbf(settings).map(|s| &mut s.bits), bits)
                },
            },
            Parameter {
                name: "probes",
                takes: "probes= takes how many hash functions there are: 1 to 16",
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

/// Sets a parameter, where there is one and it has a value.
fn put<T>(parameter: Option<&mut T>, value: Option<T>) -> Option<()> {
    *parameter? = value?;
    Some(())
}

/// The value of `option`, where it is a whole number of this range.
fn whole<T: TryFrom<u64>>(option: &NamedOption<'_>, least: u64, most: u64) -> Option<T> {
    let number = option.number().filter(|number| number.fract() == 0.0)?;
    let range = least as f64..=most as f64;
    T::try_from(range.contains(&number).then_some(number as u64)?).ok()
}

#[cfg(test)]
mod tests {
    use super::super::record_options::RecordOptions;
    use super::*;

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
