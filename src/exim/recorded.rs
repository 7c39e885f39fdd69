//! Asking the trace store inside Exim: was this text seen before?

use super::directory::NoDirectory;
use crate::spec::{NamedOption, options};
use crate::sys::clock;
use crate::trace::{ContentQuery, Part, Query, QuerySummary, TraceError, TraceStore, decode};
use std::fmt;
use std::time::{Duration, Instant};

/// How long an answer may take. A million messages take a tenth of it.
const TIMEOUT: Duration = Duration::from_millis(200);

/// The chance that a `yes` may have to be wrong, unless it is said.
const DOUBT: f64 = 0.01;

/// How many messages that may have carried the text are looked at, the newest:
/// if there is doubt in all of these, more would not help.
const MOST_HITS: usize = 64;

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum NoAnswer {
    /// Neither one argument nor two.
    Arguments(usize),
    /// An option that there is not, or with a wrong value.
    Option(String),
    /// The text is too short for the digests to tell.
    TooShort { bytes: usize, needed: usize },
    /// It took too long.
    Late,
    /// There is no telling where the store is.
    Directory(NoDirectory),
    /// The store cannot be used.
    Trace(TraceError),
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("recorded: ")?;
        match self {
            Self::Arguments(given) => write!(
                f,
                "it takes one argument or two, but {given} were given (write \
                 ${{dlfunc{{FILE}}{{recorded}}{{TEXT}}{{OPTIONS}}}})"
            ),
            Self::Option(written) => write!(
                f,
                "\"{written}\" is no option (there are: since= with a time such as 1h or 7d; doubt= \
                 with the chance, 0 to 1, that a yes may have to be wrong; short= with what to \
                 answer for a text that is too short: yes, no or error)"
            ),
            Self::TooShort { bytes, needed } => write!(
                f,
                "the text is too short: it has {bytes} bytes, and the shortest that can be asked \
                 for has {needed} (short=no answers no instead)"
            ),
            Self::Late => write!(f, "no answer within {} ms", TIMEOUT.as_millis()),
            Self::Directory(error) => write!(f, "trace store not available: {error}"),
            Self::Trace(error) => write!(f, "trace store not available: {error}"),
        }
    }
}

/// What stands in `recorded{TEXT}{OPTIONS}`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Asking {
    /// Only messages of the last so many seconds.
    since: Option<u64>,
    /// The chance that a `yes` may have to be wrong: that any of the messages
    /// that were asked looks by chance as if it had carried the text.
    doubt: f64,
    /// What to answer where the text is too short; an error, if not this.
    short: Option<bool>,
}

impl Default for Asking {
    fn default() -> Self {
        Self { since: None, doubt: DOUBT, short: None }
    }
}

impl Asking {
    pub(super) fn parse(text: &[u8]) -> Result<Self, NoAnswer> {
        let mut asking = Self::default();
        let all = options(text).ok_or_else(|| NoAnswer::Option("...".to_owned()))?;
        for option in all {
            let wrong = |option: &NamedOption<'_>| NoAnswer::Option(option.to_string());
            if option.is("since") {
                asking.since = Some(option.seconds().ok_or_else(|| wrong(&option))?);
            } else if option.is("doubt") {
                let doubt = option.number().filter(|doubt| *doubt <= 1.0);
                asking.doubt = doubt.ok_or_else(|| wrong(&option))?;
            } else if option.is("short") {
                asking.short = match () {
                    () if option.is_word("yes") => Some(true),
                    () if option.is_word("no") => Some(false),
                    () if option.is_word("error") => None,
                    () => return Err(wrong(&option)),
                };
            } else {
                return Err(wrong(&option));
            }
        }
        Ok(asking)
    }

    /// Whether a message of the store carried `text`, as sure as can be, and what
    /// of the store could not answer.
    pub(super) fn ask(
        &self,
        trace: &TraceStore,
        text: &[u8],
    ) -> Result<(bool, Option<String>), NoAnswer> {
        let deadline = Some(Instant::now() + TIMEOUT);
        let text = decode::excerpt(&decode::text(text));
        let bytes = text.len();
        let query = Query {
            content: Some(ContentQuery { parts: vec![Part::Text(text)], min_share: 1.0 }),
            since: self.since.map(|seconds| clock::now().0.saturating_sub_unsigned(seconds)),
            limit: Some(MOST_HITS),
            deadline,
            ..Query::default()
        };
        let mut chance = f64::INFINITY;
        let asked = trace.query(&query, &mut |_, _| {}, &mut |answer| {
            chance = answer.hit.map_or(chance, |hit| chance.min(hit.chance));
        });
        let too_short = |needed| self.short.ok_or(NoAnswer::TooShort { bytes, needed });
        let asked = match asked {
            Err(TraceError::TooShort(short)) => return Ok((too_short(short.needed)?, None)),
            asked => asked.map_err(NoAnswer::Trace)?,
        };
        let damage = damage(&asked);
        let answer = match () {
            // In doubt it is as if nothing had been seen: who refuses what was
            // seen must not refuse more and more as the store grows.
            () if chance * asked.messages as f64 <= self.doubt => true,
            () if asked.late => return Err(NoAnswer::Late),
            // Messages that were digested in another way than now.
            () if asked.unanswered > 0 => too_short(asked.shortest)?,
            () => false,
        };
        Ok((answer, damage))
    }
}

/// What of the store could not answer.
fn damage(asked: &QuerySummary) -> Option<String> {
    if let Some(problem) = asked.damaged.first() {
        let more = asked.damaged.len() - 1;
        return Some(format!("{problem} ({more} more like it): see `exirate trace verify`"));
    }
    (asked.other_key > 0).then(|| {
        format!(
            "{} file(s) of another key cannot answer: see `exirate trace stats`",
            asked.other_key
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_or_refused() {
        let parse = |text: &str| Asking::parse(text.as_bytes()).map_err(|error| error.to_string());
        assert_eq!(parse(""), Ok(Asking::default()));
        let all = Asking { since: Some(604_800), doubt: 1e-6, short: Some(false) };
        assert_eq!(parse("since=7d / short=no / doubt=1e-6"), Ok(all));
        assert_eq!(parse("short=YES").unwrap().short, Some(true));
        assert_eq!(parse("short=error").unwrap().short, None);
        for text in ["since=x", "since", "short=maybe", "doubt=2", "doubt=", "until=7d", "7d"] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(&format!("recorded: \"{text}\" is no option (")), "{error}");
        }
    }
}
