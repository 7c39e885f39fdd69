//! What stands in `record{OPTIONS}`: how long and how much is kept, and by which
//! scheme.

use super::record_scheme::{SCHEMES, named};
use crate::spec::{NamedOption, options};
use crate::trace::{KEEP_MIN, Options, Settings, TRACE_BYTES_MIN};
use std::fmt;

/// The longest options that are read, in bytes: more than all that there are.
const LONGEST: usize = 1024;

/// What the administrator wants of the store. What is not written stays as the
/// store has it; but the scheme is either not written at all or, with the
/// defaults for what is left out, all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RecordOptions {
    /// For how many seconds; within, nothing for ever.
    pub(super) keep: Option<Option<u64>>,
    /// In how many bytes.
    pub(super) max_bytes: Option<u64>,
    pub(super) settings: Option<Settings>,
}

/// What is wrong with the options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum WrongOptions {
    /// They are too long to be read.
    TooLong,
    /// No option is called so.
    Unknown(String),
    /// One is written twice.
    Twice(String),
    /// A value is none of those that the option takes.
    Value { written: String, takes: &'static str },
    /// An option of the other scheme.
    OtherScheme { written: String, scheme: &'static str },
    /// More arguments than one.
    Arguments(usize),
}

impl fmt::Display for WrongOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("error in the options of \"record\": ")?;
        match self {
            Self::TooLong => {
                write!(f, "they are too long (at most {LONGEST} bytes)")
            }
            Self::Unknown(written) => write!(
                f,
                "\"{written}\" is no option (there are: keep=, max_size=, scheme=; of the scheme \
                 winnow: gram=, window=, bytes_gram=, bytes_window=, bits=; of hbf: block=, bits=, \
                 probes=, capacity=, counted=; with slashes between them)"
            ),
            Self::Twice(written) => {
                write!(f, "\"{written}\" is the second of its name (each may be written once)")
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

const KEEP: &str = "keep= takes a time such as 90d or 52w, with the units w d h m s, at least 1d, or \
                    the word forever";
const MAX_SIZE: &str = "max_size= takes a number of bytes such as 1G or 512M, with k, M or G for \
                        1024, 1024k or 1024M, at least 32M";
const SCHEME: &str = "scheme= takes winnow or hbf";

// As the texts above have it.
const _: () = assert!(KEEP_MIN == 24 * 60 * 60 && TRACE_BYTES_MIN == 32 << 20);

impl RecordOptions {
    /// Reads `text`: `keep=90d / max_size=10G / scheme=hbf`, in any order.
    pub(super) fn parse(text: &[u8]) -> Result<Self, WrongOptions> {
        let read = Some(text).filter(|text| text.len() <= LONGEST).and_then(options);
        let all = read.ok_or(WrongOptions::TooLong)?.collect::<Vec<_>>();
        for (n, option) in all.iter().enumerate() {
            let same = |before: &NamedOption<'_>| before.name().eq_ignore_ascii_case(option.name());
            if all.iter().take(n).any(same) {
                return Err(WrongOptions::Twice(option.to_string()));
            }
        }
        let mut wanted = Self::default();
        let mut scheme = None;
        let mut of_scheme = Vec::new();
        for option in &all {
            if option.is("keep") {
                let forever = option.is_word("forever").then_some(None);
                let seconds = option.seconds().filter(|seconds| *seconds >= KEEP_MIN);
                let keep = forever.or(seconds.map(Some));
                wanted.keep = Some(keep.ok_or_else(|| wrong(option, KEEP))?);
            } else if option.is("max_size") {
                let bytes = option.bytes().filter(|bytes| *bytes >= TRACE_BYTES_MIN);
                wanted.max_bytes = Some(bytes.ok_or_else(|| wrong(option, MAX_SIZE))?);
            } else if option.is("scheme") {
                scheme = Some(named(option).ok_or_else(|| wrong(option, SCHEME))?);
            } else {
                of_scheme.push(option);
            }
        }
        if scheme.is_some() || !of_scheme.is_empty() {
            let scheme = scheme.unwrap_or(&SCHEMES[0]);
            wanted.settings = Some(scheme.settings(&of_scheme)?);
        }
        Ok(wanted)
    }

    /// What becomes of `options` by these.
    pub(super) fn over(&self, options: &Options) -> Options {
        Options {
            settings: self.settings.unwrap_or(options.settings),
            keep: self.keep.unwrap_or(options.keep),
            max_bytes: self.max_bytes.unwrap_or(options.max_bytes),
        }
    }
}

/// The error of an option whose value is not what it `takes`.
pub(super) fn wrong(option: &NamedOption<'_>, takes: &'static str) -> WrongOptions {
    WrongOptions::Value { written: option.to_string(), takes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Counted, HbfSettings, WinnowSettings};

    fn parse(text: &str) -> Result<RecordOptions, String> {
        RecordOptions::parse(text.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_not_written_is_left_to_the_store() {
        for text in ["", " ", "\t\n"] {
            assert_eq!(parse(text), Ok(RecordOptions::default()), "{text:?}");
        }
        let keep = RecordOptions { keep: Some(Some(7_776_000)), ..RecordOptions::default() };
        assert_eq!(parse("keep=90d"), Ok(keep));
        let size = RecordOptions { max_bytes: Some(10 << 30), ..RecordOptions::default() };
        assert_eq!(parse("Max_Size = 10G"), Ok(size));
        let keep = RecordOptions { keep: Some(None), ..RecordOptions::default() };
        assert_eq!(parse("keep=forever /"), Ok(keep));
    }

    #[test]
    fn a_scheme_is_written_as_a_whole() {
        let settings = |text| parse(text).unwrap().settings.unwrap();
        assert_eq!(settings("scheme=winnow"), Settings::default());
        let winnow = WinnowSettings {
            gram: 6,
            window: 16,
            bytes_gram: 20,
            bytes_window: 128,
            centibits: 250,
        };
        let all = "gram=6/window=16/bytes_gram=20/bytes_window=128/bits=2.5/keep=1d";
        assert_eq!(settings(all), Settings::Winnow(winnow));
        assert_eq!(settings("scheme=HBF"), Settings::Hbf(HbfSettings::default()));
        let hbf = HbfSettings {
            block: 64,
            bits: 32_768,
            probes: 3,
            capacity: 2000,
            counted: Counted::Blocks,
        };
        let all = "block=64 / bits=32768 / probes=3 / capacity=2000 / counted=blocks / scheme=hbf";
        assert_eq!(settings(all), Settings::Hbf(hbf));
    }

    #[test]
    fn an_error_says_what_is_wrong_and_what_would_be_right() {
        for (text, said) in [
            ("keep=90x", "\"keep=90x\" is wrong (keep= takes a time such as 90d or 52w, with the"),
            ("keep=23h", "at least 1d, or the word forever)"),
            ("keep", "\"keep\" is wrong (keep= takes"),
            ("keep=1d / keep=2d", "\"keep=2d\" is the second of its name (each may be"),
            ("max_size=1k", "\"max_size=1k\" is wrong (max_size= takes a number of bytes such as"),
            ("max_size=31M", "at least 32M)"),
            ("scheme=bloom", "\"scheme=bloom\" is wrong (scheme= takes winnow or hbf)"),
            ("kept=90d", "\"kept=90d\" is no option (there are: keep=, max_size=, scheme=; of"),
            ("90d", "\"90d\" is no option"),
            ("keep=1d / / max_size=1G", "\"\" is no option"),
            ("gram=3", "\"gram=3\" is wrong (gram= takes how many bytes of text are hashed"),
            ("gram=8.5", "4 to 32)"),
            ("bytes_window=256", "1 to 255)"),
            ("bits=0.2", "0.25 to 32, such as 1.2)"),
            ("scheme=hbf / bits=1.2", "a multiple of 64 up to 134217728)"),
            ("scheme=hbf / bits=65000", "a multiple of 64 up to 134217728)"),
            ("scheme=hbf / bits=1024", "\"bits=1024\" is wrong (capacity= takes at how many"),
            ("block=32", "\"block=32\" is an option of the scheme hbf (write scheme=hbf, or leave"),
            ("scheme=hbf / gram=8", "an option of the scheme winnow (write scheme=winnow, or"),
            ("scheme=hbf / counted=all", "elements or blocks)"),
            ("a\nb=\u{e9}", "\"a\\nb=\\303\\251\" is no option"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with("error in the options of \"record\": "), "{error}");
            assert!(error.contains(said), "{text:?}: {error}");
        }
        let long = "keep=1d/".repeat(200);
        assert!(parse(&long).unwrap_err().contains("too long (at most 1024 bytes)"));
        assert!(WrongOptions::Arguments(3).to_string().contains("one argument or none, but 3"));
    }
}
