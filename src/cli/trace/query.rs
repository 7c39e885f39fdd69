//! `exirate trace query`: which messages may have contained this?

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;

use super::super::{Failure, Json, Outcome};
use super::conclusion;
use super::export::Format;
use super::options::Filters;
use crate::cli::shared::database::{Common, traces_incomplete};
use crate::cli::shared::screen::{Screen, Terminal, complain, note};
use crate::text::{self, Voice as _, exim_id, is_exim_id};
use crate::trace::answer::{
    self, AnswerJson, Excerpts, First, Name, Passages, QueryReply, ReplyFacts, Sort, group,
};
use crate::trace::{
    self, Accepts, ContentQuery, Part, Problem, QueryResult, QuerySummary, TooShort, TraceError,
    TraceStore,
};

/// If a share of a text is enough, messages that are false with a greater
/// probability are left out.
const DOUBT: f64 = 0.01;

/// If so many false results are expected, only the best [`SHOWN`] are printed, unless
/// --limit is given.
const MANY: f64 = 10.0;
const SHOWN: usize = 100;

/// The results of a query, or that its content is too short.
type QueryOutcome = Result<(First, QuerySummary), TooShort>;

/// Find the messages that may have contained a text or a file
#[derive(Debug, Args)]
#[command(after_help = HELP)]
#[command(add = Json::of::<ReplyFacts<'_>>()
    .or::<Vec<Option<ReplyFacts<'_>>>>("With --questions")
    .or::<AnswerJson<'_>>("With --format jsonl, for each message"))]
pub(super) struct Query {
    #[command(flatten)]
    excerpts: Excerpts,

    #[command(flatten)]
    filters: Filters,

    /// For a text that was edited: also messages that contain at least this share
    /// of it, such as 70%; auto chooses the share for each message, as much as
    /// unrelated ones hardly ever have
    #[arg(long, value_name = "SHARE", value_parser = share)]
    at_least: Option<f64>,

    /// A passage of each text of 300 bytes or more is enough; the default for --file without
    /// --at-least
    #[arg(long, conflicts_with = "at_least")]
    any_passage: bool,

    /// With --at-least and a share, also messages that may match by chance: more than
    /// one unrelated message in a hundred would
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

    /// Show near-identical messages once, the first of them, and how many there are; if there are
    /// more than 1000 messages, among the first 1000
    #[arg(long, conflicts_with = "count")]
    group: bool,

    /// Search for each line of a file by itself, as by --text, all in one pass over
    /// the store; - is standard input
    #[arg(long, value_name = "FILE",
          conflicts_with_all = ["text", "file", "attachment", "attachment_sha256", "bytes", "format", "explain"])]
    questions: Option<PathBuf>,

    /// Print only how many messages match
    #[arg(long, conflicts_with_all = ["json", "format", "limit", "explain"])]
    count: bool,

    /// Print the messages as lines of JSON or CSV, and nothing else
    #[arg(long, value_name = "FORM", conflicts_with_all = ["json", "explain"])]
    format: Option<Format>,

    #[command(flatten)]
    common: Common,
}

/// The help after the options.
const HELP: &str = "Examples:
  Who sent this text, and who received it?
    exirate trace query --text 'the margin of the northern branch fell to four percent'
  Two sentences that one message contains, wherever in it:
    exirate trace query --text 'the margin of the northern branch * keep this among us'
  A document, of which any passage may have been copied into a message:
    exirate trace query --file page.txt
  A page that was copied and edited:
    exirate trace query --file page.txt --at-least auto
  Who received this file, or a part of it, since the first of November?
    exirate trace query --attachment plan.pdf --since 2026-11-01
  What did alice send to other domains, whatever was in it?
    exirate trace query --from alice@example.org --to '*@*.net'
  For scripts:
    exirate trace query --attachment - --json < plan.pdf | jq -r '.found[].id'

Only digests are kept, so a message may be listed that contained none of the text: FALSE is the
probability of that. A message must match all texts, files and options of different names. At an
asterisk, --text is split into parts that are searched for separately. With --file, a message is
also found if it contains only a passage of the text.

Exit status: 0 found; 1 nothing was found; 2 an error, or not all could be searched.

Only digests of the messages are kept, so a message may be listed that contained none of
the text. FALSE is the probability of that for any one message. The last lines show how
many false results are expected among all messages searched, and how long a text would
have fewer. A message that is not listed did not contain the text, unless the output says
that it is damaged, was not searched, or was not recorded whole; `exirate verify`
finds damage that a query does not notice.

A message must match all texts, files and options of different names; of an option that is given
more than once, such as --from, it must match one. Text is compared without regard to case, line
ends and runs of white space, `>` at the beginning of quoted lines, forms of quotes and dashes,
and invisible characters; --explain shows what remains. An excerpt is found within one text: a
body, an attachment, the subject, a name. If it is too short, an error says how long it must be.
At an asterisk, --text is split into parts that are searched for separately. A message must
contain them all, but a digest does not know where: they may be in any order, and in different
texts of the message. \\* is an asterisk; in files, an asterisk is an asterisk.

With --file, a message is also found if it contains only a passage of the text: in most
stores, of 250 bytes or more. The list after the table shows the longest passage in each
message; a few bytes at its ends may be there by chance. THERE is its share of the text, and
FALSE is the probability that a message which shares nothing with the text has so long a
passage of it. --any-passage does the same for --text, and --at-least 100% requires all.

IN is the part of the message that contains the text, as far as the digest knows; if several
are named, it is in one of them at least. A plain text and its copy in HTML are not told apart,
and display names count as text.

--attachment searches for the whole file, byte for byte; with --at-least, for parts of it.
--bytes searches for an excerpt of an attachment. If the excerpt is text, it is searched for
as text as well, since attachments such as CSV, JSON and RTF are digested as text; a note
says which matched. Addresses are compared without regard to case.

THERE is the share of the text that a message contains. More than half of any text is in a
digest by chance, and messages with no more than that are left out: of an edited text
of 150 bytes about 95% must be there, of 500 bytes 77%, of 2000 bytes 66%. With
--at-least auto, what must be there depends on the length of the text and on how full each
message's digest is: as much as one unrelated message in a thousand has.

The best come first: those with all of the text, of these those with a probability below
one in ten thousand, and of these the earliest; then the others, those with the smallest
probability first.";

impl Query {
    pub(super) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        if let Some(path) = &self.questions {
            return self.run_all(path, screen);
        }
        let parts = self.excerpts.parts(self.is_graded(), self.passages(), &Terminal);
        let parts = parts.map_err(Failure::new)?;
        self.check(&parts)?;
        let json = self.common.json;
        if self.explain && !json && !parts.is_empty() {
            conclusion::explain(screen, &parts)?;
        }
        let store = self.common.open_traces()?;
        let mut reply = self.reply(&store, parts)?;
        if let Some(texts) = answer::bytes_as_text(&reply.parts) {
            let other = self.reply(&store, texts)?;
            let are_whole = reply.is_whole() && other.is_whole();
            let matches = match are_whole || reply.summary.matches == 0 {
                true => None,
                false => Some(self.count_either(&store, [&reply.parts, &other.parts])?),
            };
            let (both, said) = reply.or_as_text(other, matches, self.limit);
            note(said);
            reply = both;
        }
        self.group(&store, &mut reply)?;
        if self.count {
            writeln!(screen, "{}", reply.summary.matches)?;
        } else if let Some(format) = self.format {
            reply.lines(format, screen)?;
        } else if json {
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

    /// Searches for each line of a file, in one pass.
    fn run_all(&self, path: &Path, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let questions =
            answer::questions(path, self.passages(), &Terminal).map_err(Failure::new)?;
        let (lines, questions): (Vec<String>, Vec<Vec<Part>>) = questions.into_iter().unzip();
        questions.iter().try_for_each(|parts| self.check(parts))?;
        let store = self.common.open_traces()?;
        let mut replies = self.replies(&store, questions)?;
        for reply in replies.iter_mut().flatten() {
            self.group(&store, reply)?;
        }
        let mut too_short = 0_u64;
        for reply in &replies {
            if let Err(Failure::Said(short)) = reply {
                complain(short);
                too_short += 1;
            }
        }
        let answered = || {
            replies
                .iter()
                .zip(&lines)
                .filter_map(|(reply, line)| Some((reply.as_ref().ok()?, line)))
        };
        if self.common.json {
            QueryReply::json_of_all(&replies, screen)?;
        } else {
            for (reply, line) in answered() {
                let line = text::printable(line.as_bytes());
                if self.count {
                    writeln!(screen, "{}\t{line}", reply.summary.matches)?;
                } else {
                    writeln!(screen, "> {line}")?;
                    reply.print(screen)?;
                    writeln!(screen)?;
                }
            }
        }
        screen.flush()?;
        // All searched the same files, but not the same parts of them.
        let mut damaged: Vec<Problem> = Vec::new();
        for problem in answered().flat_map(|(reply, _)| &reply.summary.damaged) {
            if !damaged.contains(problem) {
                damaged.push(problem.clone());
            }
        }
        traces_incomplete(&damaged)?;
        if too_short > 0 {
            let lines = text::counted(too_short, "line was", "lines were");
            return Err(Failure::new(format!("{lines} not searched for")));
        }
        Ok(Outcome::found_if(answered().all(|(reply, _)| reply.summary.matches == 0)))
    }

    /// Searches for these parts.
    fn reply(&self, store: &TraceStore, parts: Vec<Part>) -> Result<QueryReply, Failure> {
        let replies = self.replies(store, vec![parts])?;
        replies.into_iter().next().unwrap_or_else(|| Err(Failure::new("nothing to search for")))
    }

    /// Searches for each of these in one pass. A failure is that it is too short.
    fn replies(
        &self,
        store: &TraceStore,
        questions: Vec<Vec<Part>>,
    ) -> Result<Vec<Result<QueryReply, Failure>>, Failure> {
        let left_out = vec![Cell::new(0); questions.len()];
        let contents = questions.iter().map(|parts| {
            (!parts.is_empty())
                .then(|| ContentQuery { parts: parts.clone(), min_share: self.least() })
        });
        let found = self.search(store, contents.zip(&left_out))?;
        let replies = found.into_iter().zip(questions).zip(&left_out);
        let replies = replies.map(|((found, parts), left_out)| {
            let (mut first, summary) =
                found.map_err(|short| Failure::new(answer::too_short(short, &parts)))?;
            let mut found = first.take();
            let all = self.common.json || self.format.is_some();
            if !all && self.limit.is_none() && summary.expected.is_some_and(|many| many >= MANY) {
                found.truncate(SHOWN);
            }
            Ok(QueryReply {
                alike: None,
                parts,
                least: self.least(),
                settings: store.options().settings,
                limited: self.limit.is_some(),
                narrowed: self.filters.any(),
                found,
                doubtful: left_out.get(),
                summary,
            })
        });
        Ok(replies.collect())
    }

    /// Shows near-identical messages once, if that is wanted.
    fn group(&self, store: &TraceStore, reply: &mut QueryReply) -> Result<(), Failure> {
        if self.group {
            reply.alike = Some(group(store, &mut reply.found)?);
        }
        Ok(())
    }

    /// If no message has the id, it may not be one.
    fn doubt_id(&self) {
        for wanted in self.filters.id.iter().filter(|text| !is_exim_id(exim_id(text))) {
            let shown = text::printable(wanted.as_bytes());
            note(format_args!(
                "{shown} does not have the form of an Exim message id, such as 1vM1aB-000000001Ab-1aBc or \
                 1vM1aB-0001Ab-1a"
            ));
        }
    }

    /// If no message is from or to an address, it may not be one.
    fn doubt_addresses(&self) {
        for name in self.filters.from.iter().chain(&self.filters.to) {
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
        if parts.is_empty() && !self.filters.any() {
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
        if parts.is_empty() && self.any_passage {
            return Err(Failure::new("--any-passage needs --text or --file"));
        }
        if self.doubtful && !self.is_graded() {
            return Err(Failure::new(
                "--doubtful needs --at-least: without it, all matching messages are shown anyway",
            ));
        }
        if self.doubtful && self.least() <= 0.0 {
            return Err(Failure::new(
                "--doubtful needs a share, such as --at-least 70%: auto chooses what is doubtful",
            ));
        }
        if self.filters.contradict() {
            return Err(Failure::new("--since is later than --until: no message is between them"));
        }
        Ok(())
    }

    /// Whether a share of the excerpts is enough.
    fn is_graded(&self) -> bool {
        self.least() < 1.0
    }

    /// The share of the excerpts that is enough; 0 if it is chosen for each message.
    fn least(&self) -> f64 {
        self.at_least.unwrap_or(1.0)
    }

    /// Of which texts a passage is enough.
    fn passages(&self) -> Passages {
        match self.at_least {
            _ if self.any_passage => Passages::OfAll,
            None => Passages::OfFiles,
            Some(_) => Passages::None,
        }
    }

    fn first(&self) -> First {
        let most = if self.count { 0 } else { self.limit.unwrap_or(usize::MAX) };
        First::new(self.sort, most)
    }

    /// Searches only for the best results if no others will be printed: the
    /// envelopes of thousands that a short text finds by chance take long to read.
    /// Counts in the cells the messages that match no better than any message may.
    fn search<'a>(
        &'a self,
        store: &TraceStore,
        questions: impl Iterator<Item = (Option<ContentQuery>, &'a Cell<u64>)>,
    ) -> Result<Vec<QueryOutcome>, TraceError> {
        let all = self.common.json || self.format.is_some();
        let shown = if self.count { Some(0) } else { self.limit.or((!all).then_some(SHOWN)) };
        let mut queries: Vec<trace::Query<'_>> = questions
            .map(|(content, left_out)| {
                let is_ranked = content.is_some() && self.sort == Sort::Best && !self.is_filtered();
                self.query(content, shown.filter(|_| is_ranked), left_out)
            })
            .collect();
        let mut found = self.run_queries(store, &queries)?;
        // Many, and few of them false: all are printed.
        let are_cut = |(query, found): &(&mut trace::Query<'_>, &mut QueryOutcome)| {
            let Ok((_, summary)) = found else { return false };
            self.limit.is_none()
                && !self.count
                && query.best.is_some_and(|best| summary.matches > best as u64)
                && summary.expected.is_none_or(|many| many < MANY)
        };
        let (again, cut): (Vec<_>, Vec<_>) = queries
            .iter_mut()
            .zip(&mut found)
            .filter(are_cut)
            .map(|(query, found)| (trace::Query { best: None, ..std::mem::take(query) }, found))
            .unzip();
        if !again.is_empty() {
            let all = self.run_queries(store, &again)?;
            cut.into_iter().zip(all).for_each(|(cut, all)| *cut = all);
        }
        Ok(found)
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
            best,
            locate: !self.count,
            accepts: self.is_filtered().then(|| Accepts(Box::new(accepts))),
            ..self.filters.query()
        }
    }

    /// How many messages match one of two queries.
    fn count_either(&self, store: &TraceStore, parts: [&[Part]; 2]) -> Result<u64, TraceError> {
        let left_out = Cell::new(0);
        let queries = parts.map(|parts| {
            let content = ContentQuery { parts: parts.to_vec(), min_share: self.least() };
            trace::Query { locate: false, ..self.query(Some(content), None, &left_out) }
        });
        // Of messages with the same envelope, it is not known which are the same.
        let mut matches: HashMap<u64, [u64; 2]> = HashMap::new();
        let hashing = RandomState::new();
        store.query_all(&queries, &mut Terminal.progress("messages"), &mut |query, result| {
            let of_envelope = matches.entry(hashing.hash_one(&result.envelope)).or_default();
            if let Some(matches) = of_envelope.get_mut(query) {
                *matches += 1;
            }
        })?;
        Ok(matches.into_values().map(|[one, other]| one.max(other)).sum())
    }

    fn run_queries(
        &self,
        store: &TraceStore,
        queries: &[trace::Query<'_>],
    ) -> Result<Vec<QueryOutcome>, TraceError> {
        let mut firsts: Vec<First> = queries.iter().map(|_| self.first()).collect();
        let summaries = store.query_all(
            queries,
            &mut Terminal.progress("messages"),
            &mut |query, result| {
                if let Some(first) = firsts.get_mut(query) {
                    first.add(result);
                }
            },
        )?;
        let found = firsts.into_iter().zip(summaries);
        Ok(found.map(|(first, summary)| Ok((first, summary?))).collect())
    }

    /// Whether a result is shown. One that any message may match as well is not, and is
    /// counted in `left_out`.
    fn accepts(&self, result: &QueryResult, left_out: &Cell<u64>) -> bool {
        if !self.filters.accept(&result.envelope) {
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
        self.is_graded() || self.filters.need_tests()
    }
}

/// A share: `70%` or `0.7`; 0 for `auto`.
fn share(text: &str) -> Result<f64, String> {
    if text == "auto" {
        return Ok(0.0);
    }
    let number = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse().map(|percent: f64| percent / 100.0),
        None => text.parse(),
    };
    number.ok().filter(|share| *share > 0.0 && *share <= 1.0).ok_or_else(|| {
        "it takes a share of the text, such as 70% or 0.7, above 0 and up to 100%, or auto"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_parts_or_percentages() {
        for (text, value) in
            [("70%", 0.7), ("0.7", 0.7), ("100%", 1.0), ("1", 1.0), ("5 %", 0.05), ("auto", 0.0)]
        {
            assert_eq!(share(text), Ok(value));
        }
        for text in ["", "%", "0", "0%", "101%", "70", "-0.1", "nan", "some"] {
            assert!(share(text).is_err(), "{text}");
        }
    }
}
