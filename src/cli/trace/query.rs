//! `exirate trace query`: which messages may have contained this?

use std::cell::Cell;
use std::io::Write as _;

use clap::Args;

use super::super::database::{Common, bar, traces_incomplete};
use super::super::screen::{Screen, note};
use super::super::{Failure, Outcome, text};
use super::answers::{First, Sort};
use super::conclusion::{self, Reply};
use super::envelope::JSON_HELP;
use super::excerpt::Excerpts;
use super::filters::{Name, Network};
use super::{id, span};
use crate::trace::{
    self, Accepts, Address, ContentQuery, Envelope, Part, QueryResult, QuerySummary, TraceError,
    TraceStore,
};

/// If a share of a text is enough, messages that are false with a greater
/// probability are left out.
const DOUBT: f64 = 0.01;

/// If so many false results are expected, only the best [`SHOWN`] are printed, unless
/// --limit is given.
const MANY: f64 = 10.0;
const SHOWN: usize = 100;

/// Find the messages that may have contained a text or a file
#[derive(Debug, Args)]
#[command(after_help = help())]
pub(super) struct Query {
    #[command(flatten)]
    excerpts: Excerpts,

    /// Only messages of this sender: an address, a glob such as
    /// '*@example.org', or <> for bounces
    #[arg(long, value_name = "ADDRESS")]
    from: Vec<Name>,

    /// Only messages to this recipient, an address or a glob
    #[arg(long, value_name = "ADDRESS")]
    to: Vec<Name>,

    /// Only the message with this id: Exim's, short or long, or the Message-ID
    /// of one that was recorded from a file; may be repeated
    #[arg(long, value_name = "ID", allow_hyphen_values = true)]
    id: Vec<String>,

    /// Only messages from this IP address or network, such as 192.0.2.0/24
    #[arg(long, value_name = "IP")]
    client: Vec<Network>,

    /// Only messages of clients authenticated as this, a name or a glob
    #[arg(long, value_name = "NAME")]
    auth: Vec<Name>,

    /// Only messages from this moment on; 7d is seven days ago
    #[arg(long, value_name = "TIME", value_parser = span::since)]
    since: Option<i64>,

    /// Only messages up to this moment; of a date, to its end
    #[arg(long, value_name = "TIME", value_parser = span::until)]
    until: Option<i64>,

    /// For a text that was edited: also messages that contain at least this share
    /// of it, such as 70%
    #[arg(long, value_name = "SHARE", value_parser = share, default_value = "100%", hide_default_value = true)]
    at_least: f64,

    /// With --at-least, also messages that may match by chance: those that one
    /// unrelated message in a hundred would match
    #[arg(long)]
    doubtful: bool,

    /// Show the text that is searched for, as it is after normalisation
    #[arg(long)]
    explain: bool,

    /// Sort order
    #[arg(long, value_name = "BY", default_value = "best")]
    sort: Sort,

    /// Show only the first N; the default is all, or 100 if ten or more false
    /// results are expected
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    limit: Option<usize>,

    #[command(flatten)]
    common: Common,
}

/// The help after the options.
fn help() -> String {
    format!(
        "Examples:
  Who sent this text, and who received it?
    exirate trace query --text 'the margin of the northern branch fell to four percent'
  Two sentences of one message, with anything between them:
    exirate trace query --text 'the margin of the northern branch * keep this among us'
  A page that was copied into a file and may have been edited:
    exirate trace query --file page.txt --at-least 60%
  Who received this file, or a part of it, since the first of November?
    exirate trace query --attachment plan.pdf --since 2026-11-01
  What did alice send to other domains, whatever was in it?
    exirate trace query --from alice@example.org --to '*@*.net'
  For scripts:
    exirate trace query --attachment - --json < plan.pdf | jq -r '.found[].id'

Only digests of the messages are kept, so a message may be listed that contained none of
the text. FALSE is the probability of that for any one message. The last lines show how
many false results are expected among all messages searched, and how long a text would
have fewer. A message that is not listed did not contain the text, unless the output says
that it is damaged, was not searched, or was not recorded whole; `exirate verify`
finds damage that a query does not notice.

A message must match all texts, files and options of different names; of an option that
is given more than once, such as --from, it must match one. Text is compared without regard to
case, line ends and runs of white space, marks of quotation at the beginning of lines,
forms of quotes and dashes, and invisible characters; --explain shows what remains.
An excerpt is found within one text: a body, an attachment, the subject, a name. If it
is too short, an error says how long it must be. In --text, * stands for anything
between two parts and \\* for an asterisk; in files, an asterisk is an asterisk.

--attachment searches for the whole file, byte for byte; with --at-least, for parts of it.
--bytes searches for an excerpt of an attachment that is not text. TIME is local time,
as in Exim's log. Addresses are compared without regard to case.

THERE is the share of the text that a message contains. Some six tenths of any text are
in a digest by chance, and messages with no more than that are left out: of an edited
text of 150 bytes about 90% must be there, of 500 bytes 80%, of 2000 bytes 70%.

The best come first: those with the largest share, of these those with a probability
below one in ten thousand, and of these the earliest.

Exit status: 0 found; 1 nothing was found; 2 an error, or not all could be searched.

JSON: an object. `found` is an array of messages, `matches` how many there are
without --limit; `chance` is that of a message that carried nothing to be among them,
`present` how many of `of` elements are there; all three are null if only envelopes
were searched. `searched` is how many messages were searched; `unanswered` how many of them
could not be searched for contents; `partial` how many of the others were not recorded
whole, and may have contained it without being in `found` (at most, if envelopes are
searched too). `false_expected` is how many messages are expected in `found` by chance
(at most, if envelopes are searched too or with --at-least; null if nothing was found, or
the scheme is hbf); with `enough` bytes it would be one in a hundred such queries (null:
it is less already, or is not known). `shortest` is the
length in bytes from which a text is found for certain; `parts` is what was searched
for. {JSON_HELP}"
    )
}

impl Query {
    pub(super) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let parts = self.excerpts.parts(self.is_graded())?;
        self.check(&parts)?;
        let json = self.common.json;
        if self.explain && !json && !parts.is_empty() {
            conclusion::explain(screen, &parts)?;
        }
        let question = (!parts.is_empty())
            .then(|| ContentQuery { parts: parts.clone(), min_share: self.at_least });
        let store = self.common.open_traces()?;
        let left_out = Cell::new(0);
        let found = self.search(&store, question, &left_out);
        let (mut first, summary) = found.map_err(|error| match error {
            TraceError::TooShort(short) => conclusion::too_short(short, &parts),
            error => error.into(),
        })?;
        let mut found = first.take();
        if !json && self.limit.is_none() && summary.expected.is_some_and(|many| many >= MANY) {
            found.truncate(SHOWN);
        }
        let reply = Reply {
            parts,
            least: self.at_least,
            settings: store.options().settings,
            limited: self.limit.is_some(),
            narrowed: self.asks_envelopes(),
            found,
            doubtful: left_out.get(),
            summary,
        };
        if json {
            reply.json(screen)?;
        } else {
            reply.print(screen)?;
        }
        if reply.summary.matches == 0 {
            self.doubt_id();
            self.doubt_addresses();
        }
        screen.flush()?;
        traces_incomplete(&reply.summary.damaged)?;
        Ok(Outcome::found_if(reply.summary.matches == 0))
    }

    /// If no message has the id, it may not be one.
    fn doubt_id(&self) {
        for wanted in self.id.iter().filter(|text| !id::is_exims(id::read(text))) {
            let shown = text::printable(wanted.as_bytes());
            note(format_args!(
                "{shown} does not have the form of an Exim message id, such as 1vM1aB-000000001Ab-1aBc or \
                 1vM1aB-0001Ab-1a"
            ));
        }
    }

    /// If no message is from or to an address, it may not be one.
    fn doubt_addresses(&self) {
        for name in self.from.iter().chain(&self.to) {
            if let Name::Exact(name) = name
                && !name.is_empty()
                && !name.contains('@')
            {
                let shown = text::printable(name.as_bytes());
                note(format_args!(
                    "{shown} is not a whole address: '{shown}@*' is that name at any domain, \
                     '*@{shown}' all names at that domain"
                ));
            }
        }
    }

    /// Refuses options that cannot work together.
    fn check(&self, parts: &[Part]) -> Result<(), Failure> {
        if parts.is_empty() && !self.asks_envelopes() {
            return Err(Failure::new(
                "nothing to search for: use --text, --file or --attachment, or select messages by \
                 --from, --to, --id and so on; `exirate trace export` writes all envelopes",
            ));
        }
        if parts.is_empty() && self.is_graded() {
            return Err(Failure::new(
                "--at-least is a share of a text or a file: use --text, --file or --attachment too",
            ));
        }
        if self.doubtful && !self.is_graded() {
            return Err(Failure::new(
                "--doubtful needs --at-least: without it, all matching messages are shown anyway",
            ));
        }
        if self.since.zip(self.until).is_some_and(|(since, until)| since > until) {
            return Err(Failure::new("--since is later than --until: no message is between them"));
        }
        Ok(())
    }

    /// Whether a share of the excerpts is enough.
    fn is_graded(&self) -> bool {
        self.at_least < 1.0
    }

    /// Whether envelopes are searched.
    fn asks_envelopes(&self) -> bool {
        let Self { from, to, id, client, auth, since, until, .. } = self;
        let names = [from, to, auth];
        names.iter().any(|names| !names.is_empty())
            || !client.is_empty()
            || !id.is_empty()
            || since.is_some()
            || until.is_some()
    }

    fn first(&self) -> First {
        First::new(self.sort, self.limit.unwrap_or(usize::MAX))
    }

    /// Searches only for the best results if no others will be printed: the
    /// envelopes of thousands that a short text finds by chance take long to read.
    /// Counts in `left_out` the messages that match no better than any message may.
    fn search(
        &self,
        store: &TraceStore,
        content: Option<ContentQuery>,
        left_out: &Cell<u64>,
    ) -> Result<(First, QuerySummary), TraceError> {
        let shown = self.limit.or((!self.common.json).then_some(SHOWN));
        let is_ranked = content.is_some() && self.sort == Sort::Best && !self.is_filtered();
        let best = shown.filter(|_| is_ranked);
        let mut query = self.query(content, best, left_out);
        let (first, summary) = self.run_query(store, &query)?;
        let are_false = summary.expected.is_some_and(|many| many >= MANY);
        if best.is_none_or(|best| summary.matches <= best as u64)
            || self.limit.is_some()
            || are_false
        {
            return Ok((first, summary));
        }
        // Many, and few of them false: all are printed.
        query.best = None;
        self.run_query(store, &query)
    }

    fn query<'a>(
        &'a self,
        content: Option<ContentQuery>,
        best: Option<usize>,
        left_out: &'a Cell<u64>,
    ) -> trace::Query<'a> {
        let accepts = move |result: &QueryResult| self.accepts(result, left_out);
        trace::Query {
            content,
            since: self.since,
            until: self.until,
            from: addresses(&self.from),
            to: addresses(&self.to),
            ids: self.id.iter().map(|text| id::read(text).to_owned()).collect(),
            limit: None,
            best,
            accepts: self.is_filtered().then(|| Accepts(Box::new(accepts))),
            deadline: None,
        }
    }

    fn run_query(
        &self,
        store: &TraceStore,
        query: &trace::Query<'_>,
    ) -> Result<(First, QuerySummary), TraceError> {
        let mut first = self.first();
        let summary = store.query(query, &mut bar("messages"), &mut |result| first.add(result))?;
        Ok((first, summary))
    }

    /// Whether a result is shown. One that any message may match as well is not, and is
    /// counted in `left_out`.
    fn accepts(&self, result: &QueryResult, left_out: &Cell<u64>) -> bool {
        if !self.matches_filters(&result.envelope) {
            return false;
        }
        let chance = result.hit.map_or(0.0, |hit| hit.chance);
        // What would be shown without --at-least is shown with it.
        let is_whole = result.hit.is_some_and(|hit| hit.present == hit.of);
        let is_doubtful = self.is_graded() && !self.doubtful && !is_whole && chance > DOUBT;
        left_out.set(left_out.get() + u64::from(is_doubtful));
        !is_doubtful
    }

    /// Whether results of the store are filtered here.
    fn is_filtered(&self) -> bool {
        self.is_graded() || !self.client.is_empty() || !self.auth.is_empty()
    }

    /// Whether an envelope matches the options that the store does not know.
    fn matches_filters(&self, envelope: &Envelope) -> bool {
        let Self { client, auth, .. } = self;
        let from = |ip| client.iter().any(|network| network.contains(ip));
        (client.is_empty() || envelope.client.is_some_and(from))
            && (auth.is_empty() || auth.iter().any(|name| name.is(&envelope.authenticated)))
    }
}

/// The addresses, for a query of the store.
fn addresses(names: &[Name]) -> Option<Address<'_>> {
    match names {
        [] => None,
        // The store has a list of these.
        [Name::Exact(name)] if name.is_ascii() => Some(Address::Is(name.clone())),
        _ => Some(Address::Test(Box::new(|address| names.iter().any(|name| name.is(address))))),
    }
}

/// A share: `70%` or `0.7`.
fn share(text: &str) -> Result<f64, String> {
    let number = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse().map(|percent: f64| percent / 100.0),
        None => text.parse(),
    };
    number.ok().filter(|share| *share > 0.0 && *share <= 1.0).ok_or_else(|| {
        "it takes a share of the text, such as 70% or 0.7, above 0 and up to 100%".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_parts_or_percentages() {
        for (text, value) in [("70%", 0.7), ("0.7", 0.7), ("100%", 1.0), ("1", 1.0), ("5 %", 0.05)]
        {
            assert_eq!(share(text), Ok(value));
        }
        for text in ["", "%", "0", "0%", "101%", "70", "-0.1", "nan", "some"] {
            assert!(share(text).is_err(), "{text}");
        }
    }
}
