//! Tables for people: no borders, numbers flush right, no wider than the
//! terminal.

use std::io::{self, Write as _};

use anstyle::Style;
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Width, presets};

use super::screen::Screen;

/// Rows that are laid out at a time, so that a long table takes little memory.
const BATCH: usize = 1000;
/// Blanks between columns.
const GAP: u16 = 2;
/// The last column gets at least this much, if others can make room for it.
const LAST_MIN: u16 = 24;
/// What most lines have at most.
const PLAIN_BYTES: usize = 120;

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub(in crate::cli) struct Column {
    head: &'static str,
    right: bool,
    spare: u8,
}

impl Column {
    /// A column of words, flush left.
    pub(in crate::cli) const fn words(head: &'static str) -> Self {
        Self { head, right: false, spare: 0 }
    }

    /// A column of numbers, flush right.
    pub(in crate::cli) const fn numbers(head: &'static str) -> Self {
        Self { head, right: true, spare: 0 }
    }

    /// The column may be left out where the terminal is too narrow: the
    /// highest `rank` first, 0 never.
    pub(in crate::cli) const fn spare(self, rank: u8) -> Self {
        Self { spare: rank, ..self }
    }
}

/// Rows of `N` cells, each made once: all of their text is one.
pub(in crate::cli) struct Rows<const N: usize> {
    text: String,
    /// How long each cell is.
    lengths: Vec<[u32; N]>,
}

impl<const N: usize> Rows<N> {
    pub(in crate::cli) fn new() -> Self {
        Self { text: String::new(), lengths: Vec::new() }
    }

    pub(in crate::cli) fn add(&mut self, row: &[String; N]) {
        row.iter().for_each(|cell| self.text.push_str(cell));
        self.lengths.push(row.each_ref().map(|cell| cell.len() as u32)); // a key is shorter
    }

    /// The cells of each row.
    pub(in crate::cli) fn iter(&self) -> impl Iterator<Item = [&str; N]> {
        let mut rest = self.text.as_str();
        self.lengths.iter().map(move |lengths| {
            lengths.map(|length| {
                let cell;
                (cell, rest) = rest.split_at(length as usize);
                cell
            })
        })
    }
}

/// How rows of `N` cells are laid out.
pub(in crate::cli) struct Layout<const N: usize> {
    columns: [Column; N],
    /// The columns that are shown, and how wide their contents are.
    shown: Vec<(usize, u16)>,
}

impl<const N: usize> Layout<N> {
    /// Finds the widths for `rows` on `screen`. A column in which no row says
    /// anything is left out. In the last one, what is too long for the
    /// terminal goes on in the next line.
    pub(in crate::cli) fn of<S: AsRef<str>>(
        screen: &Screen<'_>,
        columns: [Column; N],
        rows: impl Iterator<Item = [S; N]>,
    ) -> Self {
        let heads = columns.map(|column| column.head.chars().count() as u16); // short
        let (mut widths, mut said) = ([0; N], [false; N]);
        let mut widen = |longest: &mut dyn Iterator<Item = u16>| {
            widths.iter_mut().zip(longest).for_each(|(width, one)| *width = one.max(*width));
        };
        for row in rows {
            let row = row.each_ref().map(AsRef::as_ref);
            said.iter_mut().zip(&row).for_each(|(said, cell)| *said |= !cell.is_empty());
            match row.map(plain_width) {
                all if all.contains(&None) => {
                    let mut table = comfy_table::Table::new();
                    table.add_row(row);
                    widen(&mut table.column_max_content_widths().into_iter());
                }
                all => widen(&mut all.into_iter().flatten()),
            }
        }
        let heads = heads.into_iter().zip(widths).map(|(head, width)| head.max(width));
        let shown = (0..).zip(heads).zip(said).filter(|&(_, said)| said).map(|(at, _)| at);
        let shown = shown.collect();
        let mut layout = Self { columns, shown };
        layout.fit(screen.width().unwrap_or(u16::MAX));
        layout
    }

    /// Makes it no wider than `width`, if that is possible.
    fn fit(&mut self, width: u16) {
        loop {
            let Some(((_, last), others)) = self.shown.split_last_mut() else { return };
            let taken: u32 = others.iter().map(|&(_, w)| u32::from(w) + u32::from(GAP)).sum();
            let room = u32::from(width).saturating_sub(taken);
            let rank = |at: usize| self.columns.get(at).map_or(0, |column| column.spare);
            let most_spare = others.iter().map(|&(at, _)| rank(at)).max().unwrap_or(0);
            if room >= u32::from((*last).min(LAST_MIN)) || most_spare == 0 {
                *last = (*last).min(room.max(1) as u16); // less than `width`
                return;
            }
            let columns = self.columns;
            self.shown
                .retain(|&(at, _)| columns.get(at).is_none_or(|column| column.spare != most_spare));
        }
    }

    /// Writes the line of heads.
    pub(in crate::cli) fn head(&self, screen: &mut Screen<'_>) -> io::Result<()> {
        let heads = self.columns.map(|column| column.head.to_owned());
        self.write(screen, Style::new().bold(), std::iter::once(heads), None)
    }

    /// Writes rows in `style`. With `lines`, a row takes at most so many, and
    /// what is cut off ends in `…`.
    pub(in crate::cli) fn write<S: AsRef<str>>(
        &self,
        screen: &mut Screen<'_>,
        style: Style,
        rows: impl Iterator<Item = [S; N]>,
        lines: Option<usize>,
    ) -> io::Result<()> {
        let mut others = Vec::new();
        for row in rows {
            let line = self.plain(&row);
            if line.is_none() {
                others.push(row);
            }
            if line.is_some() || others.len() >= BATCH {
                self.write_others(screen, style, &mut others, lines)?;
            }
            if let Some(line) = line {
                let line = screen.paint(style, line.trim_end());
                writeln!(screen, "{line}")?;
            }
        }
        self.write_others(screen, style, &mut others, lines)
    }

    /// Writes those rows, of a few, that are not [`Layout::plain`].
    fn write_others<S: AsRef<str>>(
        &self,
        screen: &mut Screen<'_>,
        style: Style,
        others: &mut Vec<[S; N]>,
        lines: Option<usize>,
    ) -> io::Result<()> {
        if others.is_empty() {
            return Ok(());
        }
        for line in self.lay_out(others.drain(..), lines).lines() {
            let line = screen.paint(style, line.trim_end());
            writeln!(screen, "{line}")?;
        }
        Ok(())
    }

    /// The line of a row of ASCII that fits, as nearly all do: at a tenth of the cost of a table.
    fn plain<S: AsRef<str>>(&self, row: &[S; N]) -> Option<String> {
        let mut line = String::with_capacity(PLAIN_BYTES);
        for (place, &(at, width)) in self.shown.iter().enumerate() {
            let (cell, column) = (row.get(at)?.as_ref(), self.columns.get(at)?);
            if plain_width(cell)? > width {
                return None;
            }
            let gap = if place == 0 { 0 } else { usize::from(GAP) };
            let blanks = usize::from(width).saturating_sub(cell.len());
            let (before, after) = if column.right { (gap + blanks, 0) } else { (gap, blanks) };
            line.extend(std::iter::repeat_n(' ', before));
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', after));
        }
        Some(line)
    }

    /// The table of `rows`, which are few.
    fn lay_out<S: AsRef<str>>(
        &self,
        rows: impl Iterator<Item = [S; N]>,
        lines: Option<usize>,
    ) -> comfy_table::Table {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
        table.set_width(u16::MAX).set_truncation_indicator("…");
        for row in rows {
            let cells = self.shown.iter().filter_map(|&(at, _)| row.get(at).map(AsRef::as_ref));
            let mut cells = comfy_table::Row::from(cells.collect::<Vec<&str>>());
            if let Some(lines) = lines {
                cells.max_height(lines);
            }
            table.add_row(cells);
        }
        let last = self.shown.len().saturating_sub(1);
        for (place, (column, &(at, width))) in table.column_iter_mut().zip(&self.shown).enumerate()
        {
            let gap = if place == last { 0 } else { GAP };
            column.set_padding((0, gap));
            column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(
                width.saturating_add(gap),
            )));
            if self.columns.get(at).is_some_and(|column| column.right) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table
    }
}

/// A column, and what it shows of a row.
pub(in crate::cli) type Shows<'a, T> = (Column, &'a dyn Fn(&T) -> String);

/// Prints `rows` as a table with heads.
pub(in crate::cli) fn print<T, const N: usize>(
    screen: &mut Screen<'_>,
    rows: &[T],
    columns: [Shows<'_, T>; N],
) -> io::Result<()> {
    let row = |row: &T| columns.each_ref().map(|(_, cell)| cell(row));
    cells(screen, columns.map(|(column, _)| column), || rows.iter().map(row))
}

/// Prints rows of cells with the heads of the columns.
pub(in crate::cli) fn cells<const N: usize, I: Iterator<Item = [String; N]>>(
    screen: &mut Screen<'_>,
    columns: [Column; N],
    rows: impl Fn() -> I,
) -> io::Result<()> {
    let layout = Layout::of(screen, columns, rows());
    layout.head(screen)?;
    layout.write(screen, Style::new(), rows(), None)
}

/// Prints rows of cells, each in its style, with the heads of the columns.
pub(in crate::cli) fn styled<const N: usize>(
    screen: &mut Screen<'_>,
    columns: [Column; N],
    rows: &[(Style, [String; N])],
) -> io::Result<()> {
    let cells = |rows: &[(Style, [String; N])]| {
        rows.iter().map(|(_, cells)| cells.clone()).collect::<Vec<_>>().into_iter()
    };
    let layout = Layout::of(screen, columns, cells(rows));
    layout.head(screen)?;
    for alike in rows.chunk_by(|(one, _), (other, _)| one == other) {
        let style = alike.first().map_or(Style::new(), |(style, _)| *style);
        layout.write(screen, style, cells(alike), None)?;
    }
    Ok(())
}

/// How wide a text of ASCII is; `None` of another one, or one that is wider than any terminal.
fn plain_width(cell: &str) -> Option<u16> {
    let is_plain = cell.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    u16::try_from(cell.len()).ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    use kit::quickcheck;

    use super::*;

    const COLUMNS: [Column; 4] = [
        Column::numbers("RATE"),
        Column::words("MODE").spare(1),
        Column::words("NOTE").spare(2),
        Column::words("KEY"),
    ];

    fn row(rate: &str, note: &str, key: &str) -> [String; 4] {
        [rate, "per_mail", note, key].map(str::to_owned)
    }

    fn table(rows: &[[String; 4]], width: Option<u16>, lines: Option<usize>) -> String {
        let mut out = Vec::new();
        let mut screen = Screen::of(&mut out, width);
        let mut all = Rows::new();
        rows.iter().for_each(|row| all.add(row));
        let layout = Layout::of(&screen, COLUMNS, all.iter());
        layout.head(&mut screen).unwrap();
        layout.write(&mut screen, Style::new(), all.iter(), lines).unwrap();
        drop(screen);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_are_flush_right_and_nothing_trails() {
        let rows = [row("1.0", "x", "alice"), row("100.0", "", "日本 語")];
        assert_eq!(
            table(&rows, None, None),
            " RATE  MODE      NOTE  KEY\n  1.0  per_mail  x     alice\n100.0  per_mail        日本 語\n"
        );
        assert_eq!(
            table(&[row("1", "", "a  b")], None, None),
            "RATE  MODE      KEY\n   1  per_mail  a  b\n"
        );
    }

    #[test]
    fn a_long_table_is_laid_out_as_one() {
        let mut rows = vec![row("1", "", "a"); 2 * BATCH];
        rows.push(row("123456", "", "b"));
        let text = table(&rows, None, None);
        assert_eq!(text.lines().count(), rows.len() + 1);
        assert!(text.starts_with("  RATE  MODE      KEY\n     1  per_mail  a\n"), "{text}");
        assert!(text.ends_with("\n123456  per_mail  b\n"));
    }

    quickcheck! {
        /// Whatever the rows, they are laid out as one table would be.
        fn a_row_that_fits_is_written_as_in_a_table(some: Vec<(u8, u8, u8)>, width: u8) -> bool {
            let texts = ["", "a", "1.0", " x ", "a  b", "日本", "ü", "a-b c d-e f", "x\u{301}", "\t"];
            let text = |n: u8| texts[usize::from(n) % texts.len()];
            let rows: Vec<[String; 4]> =
                some.iter().map(|&(a, b, c)| row(text(a), text(b), &text(c).repeat(1 + usize::from(c % 5)))).collect();
            let width = Some(u16::from(width)).filter(|width| *width > 8);
            let mut out = Vec::new();
            let screen = Screen::of(&mut out, width);
            let layout = Layout::of(&screen, COLUMNS, rows.iter().cloned());
            rows.iter().all(|row| {
                let Some(line) = layout.plain(row) else { return true };
                let table = layout.lay_out(std::iter::once(row.clone()), None);
                let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
                lines == [line.trim_end()]
            })
        }
    }

    #[test]
    fn a_narrow_terminal_gets_fewer_columns_and_then_more_lines() {
        let key = "a-key-of-forty-characters-0123456789.test";
        let rows = [row("1", "note", key)];
        assert!(table(&rows, Some(80), None).contains(key));
        for (width, heads) in [(44, "RATE  MODE      KEY"), (32, "RATE  KEY"), (10, "RATE  KEY")] {
            let text = table(&rows, Some(width), None);
            assert_eq!(text.lines().next(), Some(heads), "{text}");
            assert!(text.lines().all(|line| line.len() <= usize::from(width)), "{text}");
            let whole: String =
                text.lines().skip(1).map(|l| l.rsplit(' ').next().unwrap()).collect();
            assert_eq!(whole, key, "nothing is lost");
        }
        let text = table(&rows, Some(32), Some(1));
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.ends_with("…\n"), "{text}");
    }

    #[test]
    fn a_key_wider_than_any_terminal_is_whole_where_there_is_none() {
        let key = "k".repeat(60_000);
        assert!(table(&[row("1", "", &key)], None, None).contains(&key));
    }
}
