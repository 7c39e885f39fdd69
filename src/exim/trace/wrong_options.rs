//! The errors in `record{OPTIONS}`.

use crate::spec::NamedOption;
use crate::trace::SCHEMES;
use std::borrow::Cow;
use std::fmt;

/// The longest options that are read, in bytes: longer than all options together.
pub(in crate::exim) const LENGTH_MAX: usize = 1024;

/// What is wrong with the options of `record`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::exim) enum WrongOptions {
    /// They are too long.
    TooLong,
    /// There is no such option.
    Unknown(String),
    /// One is written twice.
    Twice(String),
    /// The option does not take this value.
    Value { written: String, takes: Cow<'static, str> },
    /// An option of the other scheme.
    OtherScheme { written: String, scheme: &'static str },
    /// More than one argument.
    Arguments(usize),
}

impl WrongOptions {
    /// `option` has a value that it does not take.
    pub(in crate::exim) fn value(option: &NamedOption<'_>, takes: &'static str) -> Self {
        Self::Value { written: option.to_string(), takes: takes.into() }
    }
}

impl fmt::Display for WrongOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("error in the options of \"record\": ")?;
        match self {
            Self::TooLong => {
                write!(f, "they are too long (at most {LENGTH_MAX} bytes)")
            }
            Self::Unknown(written) => {
                let options = "the options are: keep=, max_size=, scheme=";
                write!(f, "\"{written}\" is not an option ({options}")?;
                for scheme in &SCHEMES {
                    let options = scheme.parameters.iter().filter(|p| !p.name.is_empty());
                    let names: Vec<_> =
                        options.map(|p| format!("{}=", p.name.replace('-', "_"))).collect();
                    write!(f, "; of the scheme {}: {}", scheme.name, names.join(", "))?;
                }
                f.write_str("; with slashes between them)")
            }
            Self::Twice(written) => {
                write!(f, "\"{written}\" is written a second time (each may be written once)")
            }
            Self::Value { written, takes } => write!(f, "\"{written}\" is wrong ({takes})"),
            Self::OtherScheme { written, scheme } => write!(
                f,
                "\"{written}\" is an option of the scheme {scheme} (write scheme={scheme}, or leave \
                 it out)"
            ),
            Self::Arguments(given) => write!(
                f,
                "record takes one argument or none, but {given} were given (write \
                 ${{dlfunc{{FILE}}{{record}}{{keep=90d / max_size=1G}}}})"
            ),
        }
    }
}
