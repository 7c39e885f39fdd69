//! Where a command writes: standard output, and what it can show.
//!
//! Results go to the [`Screen`]; notes and errors go to standard error, by
//! [`complain`] and [`note`], and so do progress bars.

use std::fmt::{Arguments, Display};
use std::io::{self, IsTerminal as _, Write};
use std::time::{Duration, Instant};

use anstyle::Style;
use clap::ColorChoice;
use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use serde::Serialize;

use crate::cli::Failure;
use crate::logs::files::LogFiles;
use crate::text::{Voice, write_json};

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

    /// What is written to `out`, without colours; `width` columns wide, or as wide as it takes.
    pub(in crate::cli) fn of(out: &mut Vec<u8>, width: Option<u16>) -> Screen<'_> {
        Screen { out: Box::new(out), color: false, width }
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

    /// Shows `value`: as JSON, or as `print` does it for people.
    pub(in crate::cli) fn show<T: Serialize, E: Into<Failure>>(
        &mut self,
        json: bool,
        value: &T,
        print: impl FnOnce(&mut Self, &T) -> Result<(), E>,
    ) -> Result<(), Failure> {
        match json {
            true => self.json(value),
            false => print(self, value).map_err(Into::into),
        }
    }

    /// Writes `value` as one line of JSON.
    pub(in crate::cli) fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        write_json(&mut self.out, value).map_err(io::Error::from)?;
        Ok(writeln!(self.out)?)
    }

    /// Writes `values` as one list, each as it comes.
    pub(in crate::cli) fn json_seq(
        &mut self,
        values: impl IntoIterator<Item = impl Serialize>,
    ) -> Result<(), Failure> {
        write!(self.out, "[")?;
        for (n, value) in values.into_iter().enumerate() {
            self.out.write_all(if n == 0 { b"" } else { b"," })?;
            write_json(&mut self.out, &value).map_err(io::Error::from)?;
        }
        Ok(writeln!(self.out, "]")?)
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

/// Prints an error on standard error. What it quotes, such as the reply of a server, cannot drive
/// the terminal.
pub(in crate::cli) fn complain(what: impl Display) {
    let mut text = String::new();
    for c in what.to_string().chars() {
        if c.is_control() && c != '\n' { text.extend(c.escape_default()) } else { text.push(c) }
    }
    // If standard error cannot be written, there is nowhere to report it.
    let _ = writeln!(io::stderr(), "exirate: {text}");
}

/// Says on standard error what is worth knowing but is no error.
pub(in crate::cli) fn note(what: impl Display) {
    complain(format_args!("note: {what}"));
}

/// Standard error.
pub(in crate::cli) struct Terminal;
/// The same.
pub(in crate::cli) const TERMINAL: &dyn Voice = &Terminal;

impl Voice for Terminal {
    fn complain(&self, what: Arguments<'_>) {
        complain(what);
    }

    fn note(&self, what: Arguments<'_>) {
        note(what);
    }

    fn progress(&self, what: &'static str) -> Box<dyn FnMut(u64, u64)> {
        let mut bar: Option<ProgressBar> = None;
        Box::new(move |done, of| {
            bar.get_or_insert_with(|| progress(of, what)).set_position(done);
        })
    }

    fn tally(&self, what: &'static str) -> Box<dyn FnMut()> {
        let mut tally = Tally::of(what);
        Box::new(move || tally.add())
    }
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

/// A progress bar of the bytes of logs: to be called with how many are read.
pub(in crate::cli) fn bytes_read(files: &LogFiles) -> impl FnMut(u64) + use<> {
    let bar = progress(files.size(), "bytes");
    move |bytes| bar.set_position(bytes)
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
    fn styles_are_written_only_where_colours_are_on() {
        let style = Style::new().bold();
        let mut out = Vec::new();
        let mut screen = Screen::of(&mut out, None);
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
