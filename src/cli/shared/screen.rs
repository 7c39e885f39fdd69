//! Where a command writes: standard output, and what it can show.
//!
//! Results go to the [`Screen`]; notes and errors go to standard error, by
//! [`complain`] and [`note`], and so do progress bars.

use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write};
use std::time::{Duration, Instant};

use anstyle::Style;
use clap::ColorChoice;
use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;

use crate::cli::Failure;

/// Standard output, or what stands in for it.
pub(in crate::cli) struct Screen<'a> {
    out: Box<dyn Write + 'a>,
    color: bool,
    width: Option<u16>,
}

impl Screen<'_> {
    /// Standard output. Where `color` is `auto`, a terminal gets colours unless
    /// the environment forbids it (`NO_COLOR`, `CLICOLOR`, `TERM=dumb`).
    pub(in crate::cli) fn stdout(color: ColorChoice) -> Screen<'static> {
        let stdout = io::stdout();
        let color = match color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => {
                anstream::AutoStream::choice(&stdout) != anstream::ColorChoice::Never
            }
        };
        let width = if stdout.is_terminal() { terminal_width() } else { None };
        Screen { out: Box::new(io::BufWriter::new(stdout.lock())), color, width }
    }

    /// What is written to `out`, without colours.
    pub(in crate::cli) fn of(out: &mut Vec<u8>) -> Screen<'_> {
        Screen { out: Box::new(out), color: false, width: None }
    }

    /// A screen like this one, `width` columns wide, that writes to `out`.
    pub(in crate::cli) fn page<'a>(&self, out: &'a mut Vec<u8>, width: u16) -> Screen<'a> {
        Screen { out: Box::new(out), color: self.color, width: Some(width) }
    }

    /// The terminal's width in columns; `None` where this is no terminal.
    pub(in crate::cli) fn width(&self) -> Option<u16> {
        self.width
    }

    /// `text` in `style`, where colours are on.
    pub(in crate::cli) fn paint(&self, style: Style, text: impl Display) -> String {
        let style = if self.color { style } else { Style::new() };
        format!("{style}{text}{style:#}")
    }

    /// Writes `value` as one line of JSON.
    pub(in crate::cli) fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let mut written = Serializer::with_formatter(&mut self.out, Printable);
        value.serialize(&mut written).map_err(io::Error::from)?;
        Ok(writeln!(self.out)?)
    }
}

/// JSON that cannot drive a terminal: what is not printable is escaped.
struct Printable;

impl Formatter for Printable {
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let is_plain = |c: char| c == '\'' || c.escape_debug().len() == 1;
        let mut rest = fragment;
        while let Some((at, c)) = rest.char_indices().find(|(_, c)| !is_plain(*c)) {
            let (plain, from) = rest.split_at(at);
            writer.write_all(plain.as_bytes())?;
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(writer, "\\u{unit:04x}")?;
            }
            rest = from.get(c.len_utf8()..).unwrap_or_default();
        }
        writer.write_all(rest.as_bytes())
    }
}

#[cfg(test)]
impl<'a> Screen<'a> {
    /// A screen that writes to `out`, without colours; `width` columns wide
    /// as a terminal is, or as wide as it takes.
    pub(in crate::cli) fn plain(out: &'a mut Vec<u8>, width: Option<u16>) -> Self {
        Self { out: Box::new(out), color: false, width }
    }
}

impl Write for Screen<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The width of this process's terminal, if it is known.
fn terminal_width() -> Option<u16> {
    crossterm::terminal::size().ok().map(|(width, _)| width).filter(|&width| width > 0)
}

/// Prints an error on standard error.
pub(in crate::cli) fn complain(what: impl Display) {
    // If standard error cannot be written, there is nowhere to report it.
    let _ = writeln!(io::stderr(), "exirate: {what}");
}

/// Says on standard error what is worth knowing but is no error.
pub(in crate::cli) fn note(what: impl Display) {
    complain(format_args!("note: {what}"));
}

/// What was read; notes what could not be.
pub(in crate::cli) fn noted<T>((found, problems): (T, Vec<String>)) -> T {
    problems.iter().for_each(note);
    found
}

/// Notes that the command `word` has another name now, for who knows the older one.
pub(in crate::cli) fn note_older_word(word: &str, name: &str) {
    note(format_args!("`exirate {word}` is an older word for `exirate {name}`"));
}

/// A progress bar on standard error, of `total` steps, named `what`; shown only
/// where standard error is a terminal, and wiped away when it is dropped.
/// `inc` and `set_position` move it; they are cheap.
pub(in crate::cli) fn progress(total: u64, what: &'static str) -> ProgressBar {
    // Hides itself where standard error is no terminal.
    let bar = ProgressBar::new(total).with_finish(ProgressFinish::AndClear).with_message(what);
    match ProgressStyle::with_template(PROGRESS) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// A progress bar of the shards of the rate database: to be called with how many are done.
pub(in crate::cli) fn shards() -> impl FnMut(usize) {
    let bar = progress(256, "shards");
    move |done| bar.set_position(done as u64)
}

/// A count of what was read, on standard error where that is a terminal, for
/// when nobody knows how much there is; shown only once it takes long.
pub(in crate::cli) struct Tally {
    what: &'static str,
    started: Instant,
    count: u64,
    bar: Option<ProgressBar>,
}

impl Tally {
    /// A tally of `what`: `keys read`.
    pub(in crate::cli) fn of(what: &'static str) -> Self {
        Self { what, started: Instant::now(), count: 0, bar: None }
    }

    /// One more was read.
    pub(in crate::cli) fn add(&mut self) {
        self.count += 1;
        // Reading the clock each time would take longer than reading a record.
        if self.count.is_multiple_of(4096) {
            if self.bar.is_none() && self.started.elapsed() >= Duration::from_secs(1) {
                self.bar = Some(self.bar());
            }
            if let Some(bar) = &self.bar {
                bar.set_position(self.count);
            }
        }
    }

    fn bar(&self) -> ProgressBar {
        let bar = ProgressBar::new_spinner().with_finish(ProgressFinish::AndClear);
        // A thread writes it: a terminal that stops must not stop who counts, perhaps with a lock.
        bar.enable_steady_tick(Duration::from_millis(200));
        match ProgressStyle::with_template(TALLY) {
            Ok(style) => bar.with_style(style).with_message(self.what),
            Err(_) => bar,
        }
    }
}

/// How a tally looks.
const TALLY: &str = "{human_pos} {msg}";
/// How a progress bar looks.
const PROGRESS: &str = "{msg} {bar:30} {human_pos}/{human_len}, {eta} left";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_cannot_drive_a_terminal() {
        let text = "it's ä\n\"\\ \u{9b}31m\u{202e}\u{7f}\x1b\u{e0001}";
        let mut out = Vec::new();
        Screen::plain(&mut out, None).json(&text).unwrap();
        let written = String::from_utf8(out).unwrap();
        let expected = r#""it's ä\n\"\\ \u009b31m\u202e\u007f\u001b\udb40\udc01""#;
        assert_eq!(written.trim_end(), expected);
        assert_eq!(serde_json::from_str::<String>(&written).unwrap(), text);
    }

    #[test]
    fn styles_are_written_only_where_colours_are_on() {
        let style = Style::new().bold();
        let mut out = Vec::new();
        let mut screen = Screen::plain(&mut out, None);
        assert_eq!(screen.paint(style, "x"), "x");
        screen.color = true;
        assert_eq!(screen.paint(style, "x"), "\x1b[1mx\x1b[0m");
    }

    #[test]
    fn what_shows_progress_is_well_formed() {
        for template in [PROGRESS, TALLY] {
            assert!(ProgressStyle::with_template(template).is_ok(), "{template}");
        }
    }
}
