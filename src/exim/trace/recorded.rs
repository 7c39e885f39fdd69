//! `recorded{TEXT}{OPTIONS}`: whether a recorded message carried a text.

use crate::exim::host::directory::NoDirectory;
use crate::spec::{NamedOption, options};
use crate::sys::clock;
use crate::trace::{ContentQuery, Part, Query, QuerySummary, TraceError, TraceStore, decode};
use std::time::{Duration, Instant};

/// How long a search may take. A million messages take a tenth of it.
const TIMEOUT: Duration = Duration::from_millis(200);

/// The largest acceptable chance that a `yes` is wrong, by default.
const DOUBT: f64 = 0.01;

/// How many matching messages are looked at, the newest: if all of these may match by
/// accident, more would not help.
const HITS_MAX: usize = 64;

/// Why `recorded` fails.
#[derive(Debug, thiserror::Error)]
pub(in crate::exim) enum RecordedError {
    /// Not one or two arguments.
    #[error(
        "recorded: it takes one or two arguments, but {0} were given (write \
         ${{dlfunc{{FILE}}{{recorded}}{{TEXT}}{{OPTIONS}}}})"
    )]
    Arguments(usize),
    /// An unknown option, or a wrong value.
    #[error(
        "recorded: \"{0}\" is not an option (the options are: since= with a time such as 1h or 7d; \
         doubt= with the largest acceptable chance, 0 to 1, that a yes is wrong; short= with the \
         result for a text that is too short: yes, no or error)"
    )]
    Option(String),
    /// The text is too short to be found by digests.
    #[error(
        "recorded: the text is too short: it has {bytes} bytes, and must have at least {needed} \
         (with short=no the result is \"no\" instead)"
    )]
    TooShort { bytes: usize, needed: usize },
    /// It took too long.
    #[error("recorded: the search took longer than {} ms", TIMEOUT.as_millis())]
    Late,
    /// The directory of the store is unknown.
    #[error("recorded: trace store not available: {0}")]
    Directory(NoDirectory),
    /// The store cannot be used.
    #[error("recorded: trace store not available: {0}")]
    Trace(TraceError),
}

/// The options.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::exim) struct RecordedOptions {
    /// Search only messages of the last so many seconds.
    since: Option<u64>,
    /// The largest acceptable chance that a `yes` is wrong: that any of the messages
    /// that were searched matches by accident.
    doubt: f64,
    /// The result for a text that is too short; `None` is an error.
    short: Option<bool>,
}

impl Default for RecordedOptions {
    fn default() -> Self {
        Self { since: None, doubt: DOUBT, short: None }
    }
}

impl RecordedOptions {
    pub(in crate::exim) fn parse(text: &[u8]) -> Result<Self, RecordedError> {
        let mut parsed = Self::default();
        let all = options(text).ok_or_else(|| RecordedError::Option("...".to_owned()))?;
        for option in all {
            let wrong = |option: &NamedOption<'_>| RecordedError::Option(option.to_string());
            if option.is("since") {
                parsed.since = Some(option.seconds().ok_or_else(|| wrong(&option))?);
            } else if option.is("doubt") {
                let doubt = option.number().filter(|doubt| *doubt <= 1.0);
                parsed.doubt = doubt.ok_or_else(|| wrong(&option))?;
            } else if option.is("short") {
                parsed.short = match () {
                    () if option.is_word("yes") => Some(true),
                    () if option.is_word("no") => Some(false),
                    () if option.is_word("error") => None,
                    () => return Err(wrong(&option)),
                };
            } else {
                return Err(wrong(&option));
            }
        }
        Ok(parsed)
    }

    /// Whether a message of the store carried `text`, and what of the store could not
    /// be searched.
    pub(in crate::exim) fn search(
        &self,
        trace: &TraceStore,
        text: &[u8],
    ) -> Result<(bool, Option<String>), RecordedError> {
        let deadline = Some(Instant::now() + TIMEOUT);
        let text = decode::excerpt(&decode::text(text));
        let bytes = text.len();
        let query = Query {
            content: Some(ContentQuery { parts: vec![Part::Text(text)], min_share: 1.0 }),
            since: self.since.map(|seconds| clock::now().0.saturating_sub_unsigned(seconds)),
            limit: Some(HITS_MAX),
            deadline,
            ..Query::default()
        };
        let mut chance = f64::INFINITY;
        let summary = trace.query(&query, &mut |_, _| {}, &mut |answer| {
            chance = answer.hit.map_or(chance, |hit| chance.min(hit.chance));
        });
        let too_short = |needed| self.short.ok_or(RecordedError::TooShort { bytes, needed });
        let summary = match summary {
            Err(TraceError::TooShort(short)) => return Ok((too_short(short.needed)?, None)),
            summary => summary.map_err(RecordedError::Trace)?,
        };
        let damage = damage(&summary);
        let found = match () {
            // Matches that may be accidental do not count: they become more as the
            // store grows, and a line that refuses repeated texts must not.
            () if chance * summary.messages as f64 <= self.doubt => true,
            () if summary.late => return Err(RecordedError::Late),
            // Messages that were digested by another scheme.
            () if summary.unanswered > 0 => too_short(summary.shortest)?,
            () => false,
        };
        Ok((found, damage))
    }
}

/// What of the store could not be searched.
fn damage(summary: &QuerySummary) -> Option<String> {
    if let Some(problem) = summary.damaged.first() {
        let more = summary.damaged.len() - 1;
        return Some(format!("{problem} ({more} more like it): see `exirate verify`"));
    }
    (summary.other_key > 0).then(|| {
        let files = if summary.other_key == 1 { "file" } else { "files" };
        format!(
            "{} {files} of another key cannot be searched: see `exirate stats`",
            summary.other_key
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_or_refused() {
        let parse =
            |text: &str| RecordedOptions::parse(text.as_bytes()).map_err(|error| error.to_string());
        assert_eq!(parse(""), Ok(RecordedOptions::default()));
        let all = RecordedOptions { since: Some(604_800), doubt: 1e-6, short: Some(false) };
        assert_eq!(parse("since=7d / short=no / doubt=1e-6"), Ok(all));
        assert_eq!(parse("short=YES").unwrap().short, Some(true));
        assert_eq!(parse("short=error").unwrap().short, None);
        for text in ["since=x", "since", "short=maybe", "doubt=2", "doubt=", "until=7d", "7d"] {
            let error = parse(text).unwrap_err();
            assert!(
                error.starts_with(&format!("recorded: \"{text}\" is not an option (")),
                "{error}"
            );
        }
    }
}
