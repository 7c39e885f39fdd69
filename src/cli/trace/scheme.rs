//! How messages are digested: the options of `exirate trace record`.

use clap::{Args, ValueEnum};

use super::super::Failure;
use crate::trace::{Counted, HbfSettings, Settings, WinnowSettings};

/// The schemes by their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Name {
    /// Winnowed grams in a filter for each message: the default
    Winnow,
    /// Hierarchical Bloom filters
    Hbf,
}

/// What `n` of the scheme hbf counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Count {
    /// Insertions on all levels
    Elements,
    /// Those on the lowest
    Blocks,
}

/// How messages are digested from now on.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Digests, from now on also those that Exim records")]
pub(super) struct Scheme {
    /// The scheme
    #[arg(long, value_name = "NAME")]
    scheme: Option<Name>,

    /// winnow: bytes of a gram of text, 4 to 32 [first: 6]
    #[arg(long, value_name = "BYTES")]
    gram: Option<u8>,

    /// winnow: of how many grams of text one at least is kept, 1 to 64 [first: 10]
    #[arg(long, value_name = "GRAMS")]
    window: Option<u8>,

    /// winnow: bytes of a gram of an attachment that is not text, 4 to 32 [first: 16]
    #[arg(long, value_name = "BYTES")]
    bytes_gram: Option<u8>,

    /// winnow: of how many such grams one at least is kept, 1 to 255 [first: 255]
    #[arg(long, value_name = "GRAMS")]
    bytes_window: Option<u8>,

    /// winnow: bits of a filter for each gram that is kept, 0.25 to 32 [first: 1.22];
    /// with 1.5, a store takes a sixth more disk and has little more than a third of
    /// the false hits of 64 bytes; for fewer than that, set --gram 8 --window 8 too.
    /// hbf: bits of a filter (m) [first: 65536]
    #[arg(long, value_name = "BITS")]
    bits: Option<f64>,

    /// hbf: bytes of a block (s) [first: 32]
    #[arg(long, value_name = "BYTES")]
    block: Option<u16>,

    /// hbf: hash functions (k) [first: 4]
    #[arg(long, value_name = "FUNCTIONS")]
    probes: Option<u8>,

    /// hbf: at how many insertions a filter is full (n) [first: 4369]
    #[arg(long, value_name = "INSERTIONS")]
    capacity: Option<u32>,

    /// hbf: which insertions n counts [first: elements]
    #[arg(long, value_name = "WHICH")]
    counted: Option<Count>,
}

impl Scheme {
    /// The settings after `before`.
    ///
    /// # Errors
    /// An option belongs to the other scheme, or is out of range.
    pub(super) fn settings(&self, before: Settings) -> Result<Settings, Failure> {
        let settings = match (self.scheme, before) {
            (None, before) => before,
            (Some(Name::Winnow), before @ Settings::Winnow(_)) => before,
            (Some(Name::Hbf), before @ Settings::Hbf(_)) => before,
            (Some(Name::Winnow), Settings::Hbf(_)) => Settings::Winnow(WinnowSettings::default()),
            (Some(Name::Hbf), Settings::Winnow(_)) => Settings::Hbf(HbfSettings::default()),
        };
        let settings = match settings {
            Settings::Winnow(settings) => self.winnow(settings)?,
            Settings::Hbf(settings) => self.hbf(settings)?,
        };
        match settings.nearest() {
            nearest if nearest == settings => Ok(settings),
            nearest => Err(Failure::new(format!(
                "these settings of the digests are out of range: {}; the nearest are {}",
                described(settings),
                described(nearest)
            ))),
        }
    }

    fn winnow(&self, before: WinnowSettings) -> Result<Settings, Failure> {
        let others = [
            ("--block", self.block.is_some()),
            ("--probes", self.probes.is_some()),
            ("--capacity", self.capacity.is_some()),
            ("--counted", self.counted.is_some()),
        ];
        none_of(&others, "hbf", "winnow")?;
        // Saturates; a value that is too large is reported below.
        let centibits = self.bits.map(|bits| (bits * 100.0).round() as u16);
        Ok(Settings::Winnow(WinnowSettings {
            gram: self.gram.unwrap_or(before.gram),
            window: self.window.unwrap_or(before.window),
            bytes_gram: self.bytes_gram.unwrap_or(before.bytes_gram),
            bytes_window: self.bytes_window.unwrap_or(before.bytes_window),
            centibits: centibits.unwrap_or(before.centibits),
            order: before.order,
        }))
    }

    fn hbf(&self, before: HbfSettings) -> Result<Settings, Failure> {
        let others = [
            ("--gram", self.gram.is_some()),
            ("--window", self.window.is_some()),
            ("--bytes-gram", self.bytes_gram.is_some()),
            ("--bytes-window", self.bytes_window.is_some()),
        ];
        none_of(&others, "winnow", "hbf")?;
        let counted = match self.counted {
            None => before.counted,
            Some(Count::Elements) => Counted::Elements,
            Some(Count::Blocks) => Counted::Blocks,
        };
        Ok(Settings::Hbf(HbfSettings {
            block: self.block.unwrap_or(before.block),
            // As above; a part of a bit is none.
            bits: self.bits.map_or(before.bits, |bits| bits as u32),
            probes: self.probes.unwrap_or(before.probes),
            capacity: self.capacity.unwrap_or(before.capacity),
            counted,
        }))
    }
}

/// Refuses options of another scheme.
fn none_of(others: &[(&str, bool)], theirs: &str, ours: &str) -> Result<(), Failure> {
    match others.iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((option, _)) => Err(Failure::new(format!(
            "{option} belongs to the scheme {theirs}, and the store's is {ours}: use --scheme \
             {theirs} as well"
        ))),
    }
}

/// Settings for people: as the options that make them.
pub(in crate::cli) fn described(settings: Settings) -> String {
    match settings {
        Settings::Winnow(s) => format!(
            "--scheme winnow --gram {} --window {} --bytes-gram {} --bytes-window {} --bits {}",
            s.gram,
            s.window,
            s.bytes_gram,
            s.bytes_window,
            f64::from(s.centibits) / 100.0
        ),
        Settings::Hbf(s) => format!(
            "--scheme hbf --block {} --bits {} --probes {} --capacity {} --counted {}",
            s.block,
            s.bits,
            s.probes,
            s.capacity,
            match s.counted {
                Counted::Elements => "elements",
                Counted::Blocks => "blocks",
            }
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(scheme: &Scheme, before: Settings) -> String {
        let Err(Failure::Said(why)) = scheme.settings(before) else { panic!() };
        why
    }

    #[test]
    fn settings_that_are_not_given_stay() {
        let before = Settings::default();
        assert_eq!(Scheme::default().settings(before).unwrap(), before);
        let window = Scheme { window: Some(16), ..Scheme::default() };
        let expected = WinnowSettings { window: 16, ..WinnowSettings::default() };
        assert_eq!(window.settings(before).unwrap(), Settings::Winnow(expected));
        let hbf = Scheme { scheme: Some(Name::Hbf), block: Some(64), ..Scheme::default() };
        let expected = Settings::Hbf(HbfSettings { block: 64, ..HbfSettings::default() });
        assert_eq!(hbf.settings(before).unwrap(), expected);
        assert_eq!(Scheme::default().settings(expected).unwrap(), expected);
    }

    #[test]
    fn settings_out_of_range_are_refused_with_the_nearest() {
        let winnow = Settings::default();
        let block = Scheme { block: Some(64), ..Scheme::default() };
        assert!(error_of(&block, winnow).starts_with("--block belongs to the scheme hbf"));
        let gram = Scheme { gram: Some(8), scheme: Some(Name::Hbf), ..Scheme::default() };
        assert!(error_of(&gram, winnow).starts_with("--gram belongs to the scheme winnow"));
        for bits in [0.0, -1.0, f64::NAN, 1e9] {
            let why = error_of(&Scheme { bits: Some(bits), ..Scheme::default() }, winnow);
            assert!(why.contains("the nearest are --scheme winnow --gram 6"), "{why}");
        }
        assert!(error_of(&Scheme { gram: Some(200), ..Scheme::default() }, winnow).ends_with(
            "--scheme winnow --gram 32 --window 10 --bytes-gram 16 --bytes-window 255 --bits 1.22"
        ));
    }
    #[test]
    fn the_help_has_the_defaults() {
        let command = Scheme::augment_args(clap::Command::new("x"));
        for settings in [Settings::default(), Settings::Hbf(HbfSettings::default())] {
            let described = described(settings);
            let words: Vec<&str> = described.split(' ').collect();
            for pair in words.chunks(2).skip(1) {
                let option = pair[0].trim_start_matches('-');
                let argument = command.get_arguments().find(|a| a.get_long() == Some(option));
                let help = argument.unwrap().get_help().unwrap().to_string();
                assert!(help.contains(&format!("[first: {}]", pair[1])), "{option}: {help}");
            }
        }
    }
}
