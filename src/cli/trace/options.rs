//! What is searched for: by the contents of messages, and by their envelopes: `--from`, `--to`, `--id`,
//! `--client`, `--auth`, `--since`, `--until`, `--partial`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgMatches, Args, Command, FromArgMatches};

use crate::cli::shared::times;
use crate::text::exim_id;
use crate::trace::answer::{ExcerptSource, Excerpts, Name, Network, addresses, sha256};
use crate::trace::{Accepts, Envelope, FileHash, Query, QueryResult};

/// The options that select messages by their envelopes. A message must match all options of
/// different names, and one of those of one name.
#[derive(Debug, Args)]
pub(super) struct Filters {
    /// Only messages of this sender: an address, a glob such as
    /// '*@example.org', or <> for bounces
    #[arg(long, value_name = "ADDRESS")]
    pub(super) from: Vec<Name>,

    /// Only messages to this recipient, an address or a glob
    #[arg(long, value_name = "ADDRESS")]
    pub(super) to: Vec<Name>,

    /// Only the message with this id: Exim's, short or long, or the Message-ID
    /// of one that was recorded from a file; may be repeated
    #[arg(long, value_name = "ID", allow_hyphen_values = true)]
    pub(super) id: Vec<String>,

    /// Only messages from this IP address or network, such as 192.0.2.0/24
    #[arg(long, value_name = "IP")]
    client: Vec<Network>,

    /// Only messages of clients authenticated as this, a name or a glob
    #[arg(long, value_name = "NAME")]
    auth: Vec<Name>,

    /// Only messages since this time
    #[arg(long, value_name = "TIME", value_parser = times::since)]
    since: Option<i64>,

    /// Only messages until this time
    #[arg(long, value_name = "TIME", value_parser = times::until)]
    until: Option<i64>,

    /// Only messages that were not recorded whole
    #[arg(long)]
    partial: bool,
}

impl Filters {
    /// Whether one is given.
    pub(super) fn any(&self) -> bool {
        let Self { from, to, id, client, auth, since, until, partial } = self;
        let names = [from, to, auth];
        names.iter().any(|names| !names.is_empty())
            || !client.is_empty()
            || !id.is_empty()
            || since.is_some()
            || until.is_some()
            || *partial
    }

    /// Whether no message can be between the times.
    pub(super) fn contradict(&self) -> bool {
        self.since.zip(self.until).is_some_and(|(since, until)| since > until)
    }

    /// Whether some must be tested by [`Self::accept`], as the store does not know them.
    pub(super) fn need_tests(&self) -> bool {
        !self.client.is_empty() || self.partial
    }

    /// Whether an envelope matches the options that the store does not know.
    pub(super) fn accept(&self, envelope: &Envelope) -> bool {
        let from = |ip| self.client.iter().any(|network| network.contains(ip));
        (self.client.is_empty() || envelope.client.is_some_and(from))
            && (!self.partial || envelope.partial)
    }

    /// A query for the messages that they select.
    pub(super) fn query(&self) -> Query<'_> {
        let accepts = |result: &QueryResult| self.accept(&result.envelope);
        Query {
            since: self.since,
            until: self.until,
            from: addresses(&self.from),
            to: addresses(&self.to),
            auth: addresses(&self.auth),
            ids: self.id.iter().map(|text| exim_id(text).to_owned()).collect(),
            accepts: self.need_tests().then(|| Accepts(Box::new(accepts))),
            ..Query::default()
        }
    }
}

/// The options for what the message contained.
#[derive(Debug, Args)]
struct ContentOptions {
    /// A text of the message; at * it is split into parts, which a message must all
    /// contain, in any order and place; \* is an asterisk
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    text: Vec<OsString>,

    /// Read the text from a file, as one part in which * is an asterisk; - is standard input. Any
    /// passage of a text of 300 bytes or more is found if it is long enough, unless --at-least is
    /// given
    #[arg(long, value_name = "FILE")]
    file: Vec<PathBuf>,

    /// The charset of the files of --file
    #[arg(long, value_name = "NAME", requires = "file", hide = true)]
    charset: Option<String>,

    /// An attached file, byte for byte
    #[arg(long, value_name = "FILE")]
    attachment: Vec<PathBuf>,

    /// An attached file of which only the SHA-256 is known, in hexadecimal
    #[arg(long, value_name = "HEX", value_parser = sha256)]
    attachment_sha256: Vec<FileHash>,

    /// An excerpt of an attachment that is not text
    #[arg(long, value_name = "FILE")]
    bytes: Vec<PathBuf>,
}

impl Args for Excerpts {
    fn augment_args(command: Command) -> Command {
        ContentOptions::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        ContentOptions::augment_args_for_update(command)
    }
}

impl FromArgMatches for Excerpts {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let options = ContentOptions::from_arg_matches(matches)?;
        let mut sources = Vec::new();
        let mut add = |name: &str, these: Vec<ExcerptSource>| {
            sources.extend(matches.indices_of(name).into_iter().flatten().zip(these));
        };
        add("text", options.text.into_iter().map(ExcerptSource::Text).collect());
        add("file", options.file.into_iter().map(ExcerptSource::File).collect());
        add("attachment", options.attachment.into_iter().map(ExcerptSource::Attachment).collect());
        let hashes = options.attachment_sha256.into_iter();
        add("attachment_sha256", hashes.map(ExcerptSource::Hash).collect());
        add("bytes", options.bytes.into_iter().map(ExcerptSource::Bytes).collect());
        // A scheme may know the order of the parts in the message.
        sources.sort_by_key(|(at, _)| *at);
        let sources = sources.into_iter().map(|(_, source)| source).collect();
        Ok(Self { sources, charset: options.charset })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpts_stay_in_the_order_they_were_written_in() {
        let command = Excerpts::augment_args(Command::new("x"));
        let line = ["x", "--file", "a", "--text", "b", "--bytes", "c", "--file", "d"];
        let matches = command.try_get_matches_from(line).unwrap();
        let excerpts = Excerpts::from_arg_matches(&matches).unwrap();
        let shown = format!("{:?}", excerpts.sources);
        assert_eq!(shown, r#"[File("a"), Text("b"), Bytes("c"), File("d")]"#);
    }
}
