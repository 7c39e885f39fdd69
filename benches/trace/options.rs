//! The parts and the amount of the measurements.

use std::path::PathBuf;

use exirate::trace::WinnowSettings;

/// The lengths of excerpts, in bytes of normalised text.
pub(crate) const LENGTHS: [usize; 9] = [20, 32, 48, 64, 96, 128, 256, 512, 1_000];

/// Excerpts shorter than this have so many false hits that fewer of them are measured.
const SHORT: usize = 48;

const PARTS: [&str; 9] =
    ["size", "hits", "curves", "read", "fold", "hbf", "record", "million", "exim"];

#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Real mail, unless it is generated.
    pub(crate) corpus: Option<PathBuf>,
    /// Messages that are searched for excerpts.
    pub(crate) messages: usize,
    /// Messages of the timed queries.
    pub(crate) million: usize,
    /// The spool directory of a store for them, which is filled if it does not exist, and kept.
    pub(crate) store: Option<PathBuf>,
    /// Excerpts of each length that no message contains.
    pub(crate) absent: usize,
    /// Excerpts of each length that some message contains.
    pub(crate) present: usize,
    /// Messages of which excerpts of what a reader sees are searched for.
    pub(crate) read: usize,
    /// Messages for the hierarchical Bloom filters, which are slow.
    pub(crate) hbf: usize,
    /// Seconds for their queries, for each length and each reading.
    pub(crate) hbf_seconds: f64,
    /// Rounds of which the median is taken.
    pub(crate) rounds: usize,
    /// Excerpts of each length whose query is timed.
    pub(crate) timed: usize,
    /// Messages in a session with Exim.
    pub(crate) session: usize,
    /// Settings of winnow to compare with the default, instead of the usual
    /// ones.
    pub(crate) settings: Vec<WinnowSettings>,
    parts: Vec<String>,
}

const FULL: Options = Options {
    corpus: None,
    messages: 50_000,
    million: 1_000_000,
    store: None,
    absent: 2_500,
    present: 500,
    read: 10_000,
    hbf: 16_000,
    hbf_seconds: 3.0,
    rounds: 5,
    timed: 25,
    session: 50,
    settings: Vec::new(),
    parts: Vec::new(),
};
const QUICK: Options = Options {
    messages: 6_000,
    million: 30_000,
    store: None,
    absent: 500,
    present: 100,
    read: 1_000,
    hbf: 2_000,
    hbf_seconds: 0.3,
    rounds: 3,
    timed: 5,
    session: 20,
    corpus: None,
    settings: Vec::new(),
    parts: Vec::new(),
};
const SMOKE: Options = Options {
    messages: 150,
    million: 200,
    store: None,
    absent: 5,
    present: 5,
    read: 20,
    hbf: 50,
    hbf_seconds: 0.01,
    rounds: 1,
    timed: 2,
    session: 2,
    corpus: None,
    settings: Vec::new(),
    parts: Vec::new(),
};

impl Options {
    pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let arguments: Vec<String> = arguments.collect();
        // Cargo passes `--bench` for benchmarks, and not for tests.
        let has = |flag: &str| arguments.iter().any(|a| a == flag);
        let mut options = match () {
            () if !has("--bench") => SMOKE,
            () if has("--quick") => QUICK,
            () => FULL,
        };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} wants a value"));
            let number = |text: &String| {
                text.parse::<usize>().ok().filter(|&n| n > 0).ok_or(format!("not a number: {text}"))
            };
            match argument.as_str() {
                "--corpus" => options.corpus = Some(value()?.into()),
                "--messages" => options.messages = number(value()?)?,
                "--million" => options.million = number(value()?)?,
                "--store" => options.store = Some(value()?.into()),
                "--settings" => options.settings.push(settings(value()?)?),
                "--bench" | "--quick" => {}
                part if PARTS.contains(&part) => options.parts.push(part.to_owned()),
                other => {
                    return Err(format!(
                        "unknown part {other:?}; the parts are {}",
                        PARTS.join(", ")
                    ));
                }
            }
        }
        options.hbf = options.hbf.min(options.messages);
        Ok(options)
    }

    /// How many excerpts of some length, where there are `count` of most.
    pub(crate) fn excerpts(length: usize, count: usize) -> usize {
        if length < SHORT { count.div_ceil(8) } else { count }
    }

    pub(crate) fn wanted(&self, part: &str) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|p| p == part)
    }
}

/// The parameters of winnow in the order of their declaration.
fn settings(text: &str) -> Result<WinnowSettings, String> {
    let wrong = || format!("{text}: five numbers are wanted: gram,window,gram,window,centibits");
    let numbers = text.split(',').map(|n| n.parse::<u16>()).collect::<Result<Vec<_>, _>>();
    let numbers = numbers.map_err(|_| wrong())?;
    let &[gram, window, bytes_gram, bytes_window, centibits] = &numbers[..] else {
        return Err(wrong());
    };
    let byte = |n: u16| u8::try_from(n).map_err(|_| wrong());
    Ok(WinnowSettings {
        gram: byte(gram)?,
        window: byte(window)?,
        bytes_gram: byte(bytes_gram)?,
        bytes_window: byte(bytes_window)?,
        centibits,
        ..WinnowSettings::default()
    })
}
