//! The options of `record{OPTIONS}`: how long and how much is kept, and by which
//! scheme.

use super::wrong_options::{LENGTH_MAX, WrongOptions};
use crate::spec::{NamedOption, options};
use crate::trace::{KEEP_MIN, Options, SCHEMES, Settings, TRACE_BYTES_MIN, WrongParameter};

/// The options as written. An option that is not written does not change that of the
/// store; parameters of a scheme that are not written have their defaults if any other
/// is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::exim) struct RecordOptions {
    /// For how many seconds; the inner `None` is forever.
    pub(in crate::exim) keep: Option<Option<u64>>,
    /// In how many bytes.
    pub(in crate::exim) max_bytes: Option<u64>,
    pub(in crate::exim) settings: Option<Settings>,
}

const KEEP: &str = "keep= takes a time such as 90d or 52w, with the units w d h m s, at least 1d, or \
                    the word forever";
const MAX_SIZE: &str = "max_size= takes a number of bytes such as 1G or 512M, with its unit (B, k, \
                        M, G or T, 1024-based), at least 32M";
const SCHEME: &str = "scheme= takes winnow or hbf";

// The minimums in the texts above.
const _: () = assert!(KEEP_MIN == 24 * 60 * 60 && TRACE_BYTES_MIN == 32 << 20);

impl RecordOptions {
    /// Reads `text`: `keep=90d / max_size=10G / scheme=hbf`, in any order.
    pub(in crate::exim) fn parse(text: &[u8]) -> Result<Self, WrongOptions> {
        let read = Some(text).filter(|text| text.len() <= LENGTH_MAX).and_then(options);
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
                wanted.keep = Some(keep.ok_or_else(|| WrongOptions::value(option, KEEP))?);
            } else if option.is("max_size") {
                let bytes = option.bytes().filter(|bytes| *bytes >= TRACE_BYTES_MIN);
                wanted.max_bytes =
                    Some(bytes.ok_or_else(|| WrongOptions::value(option, MAX_SIZE))?);
            } else if option.is("scheme") {
                let named = SCHEMES.iter().find(|scheme| option.is_word(scheme.name));
                scheme = Some(named.ok_or_else(|| WrongOptions::value(option, SCHEME))?);
            } else {
                of_scheme.push(option);
            }
        }
        if scheme.is_some() || !of_scheme.is_empty() {
            let [default, _] = &SCHEMES;
            let settings = (scheme.unwrap_or(default).default)();
            wanted.settings = Some(with(settings, &of_scheme)?);
        }
        Ok(wanted)
    }

    /// The options of the store after these are applied to `options`.
    pub(in crate::exim) fn over(&self, options: &Options) -> Options {
        Options {
            settings: self.settings.unwrap_or(options.settings),
            keep: self.keep.unwrap_or(options.keep),
            max_bytes: self.max_bytes.unwrap_or(options.max_bytes),
        }
    }
}

/// `settings` with these parameters.
fn with(settings: Settings, options: &[&NamedOption<'_>]) -> Result<Settings, WrongOptions> {
    let written: Vec<_> =
        options.iter().map(|option| (option.name(), option.value().unwrap_or_default())).collect();
    settings.with(&written).map_err(|(index, wrong)| {
        let written = options.get(index).map(ToString::to_string).unwrap_or_default();
        match wrong {
            WrongParameter::Unknown => WrongOptions::Unknown(written),
            WrongParameter::OtherScheme(scheme) => WrongOptions::OtherScheme { written, scheme },
            WrongParameter::Value(parameter) => {
                let name = parameter.name.replace('-', "_");
                let takes = format!("{name}= takes {}", parameter.takes()).into();
                WrongOptions::Value { written, takes }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Counted, HbfSettings, WinnowSettings};

    fn parse(text: &str) -> Result<RecordOptions, String> {
        RecordOptions::parse(text.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn options_that_are_not_written_are_those_of_the_store() {
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
    fn a_written_parameter_sets_the_whole_scheme() {
        let settings = |text| parse(text).unwrap().settings.unwrap();
        assert_eq!(settings("scheme=winnow"), Settings::default());
        let winnow = WinnowSettings {
            gram: 6,
            window: 16,
            bytes_gram: 20,
            bytes_window: 128,
            centibits: 250,
            ..WinnowSettings::default()
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
            ("keep=1d / keep=2d", "\"keep=2d\" is written a second time (each may be"),
            ("max_size=1k", "\"max_size=1k\" is wrong (max_size= takes a number of bytes such as"),
            ("max_size=31M", "at least 32M)"),
            ("scheme=bloom", "\"scheme=bloom\" is wrong (scheme= takes winnow or hbf)"),
            (
                "kept=90d",
                "\"kept=90d\" is not an option (the options are: keep=, max_size=, scheme=; of",
            ),
            ("90d", "\"90d\" is not an option"),
            ("keep=1d / / max_size=1G", "\"\" is not an option"),
            ("gram=3", "\"gram=3\" is wrong (gram= takes the number of bytes of text that are"),
            ("gram=8.5", "4 to 32)"),
            ("bytes_window=256", "1 to 255)"),
            ("bits=0.2", "0.25 to 32, such as 1.2)"),
            ("scheme=hbf / bits=1.2", "a multiple of 64 up to 134217728)"),
            ("scheme=hbf / bits=65000", "a multiple of 64 up to 134217728)"),
            ("scheme=hbf / bits=1024", "\"bits=1024\" is wrong (capacity= takes the number of"),
            ("block=32", "\"block=32\" is an option of the scheme hbf (write scheme=hbf, or leave"),
            ("scheme=hbf / gram=8", "an option of the scheme winnow (write scheme=winnow, or"),
            ("scheme=hbf / counted=all", "elements or blocks)"),
            ("a\nb=\u{e9}", "\"a\\nb=\\303\\251\" is not an option"),
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
