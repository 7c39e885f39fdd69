//! Comma-separated values, as RFC 4180 has them: fields may be in quotes, within
//! which a quote is doubled.
//!
//! A spreadsheet takes a cell that begins with `=`, `+`, `-`, `@`, a tab or a carriage return
//! for a formula, and what is in it may be chosen by strangers. So an apostrophe is written
//! before it, which spreadsheets do not show as part of the text, and left out again when it
//! is read; before one or more apostrophes and such a character as well, so that each text is
//! read as it was. Numbers stay numbers.

/// What begins a formula.
const FORMULA: [char; 6] = ['=', '+', '-', '@', '\t', '\r'];

/// Whether an apostrophe is before what begins a formula, or would be.
fn is_formula(text: &str) -> bool {
    text.trim_start_matches('\'').starts_with(FORMULA)
}

/// A row, without its end.
pub(crate) fn line<T: AsRef<str>>(cells: impl IntoIterator<Item = T>) -> String {
    let mut line = String::new();
    for (n, cell) in cells.into_iter().enumerate() {
        line.push_str(if n == 0 { "" } else { "," });
        add(&mut line, cell.as_ref());
    }
    line
}

fn add(line: &mut String, cell: &str) {
    let is_number = cell.chars().all(|c| c.is_ascii_digit() || "+-.eE".contains(c))
        && cell.parse::<f64>().is_ok();
    let mark = if is_formula(cell) && !is_number { "'" } else { "" };
    let blanks = cell.starts_with(char::is_whitespace) || cell.ends_with(char::is_whitespace);
    if blanks || cell.contains(['"', ',', '\n', '\r']) || cell.starts_with('#') {
        line.push('"');
        line.push_str(mark);
        line.push_str(&cell.replace('"', "\"\""));
        line.push('"');
    } else {
        line.push_str(mark);
        line.push_str(cell);
    }
}

/// A field and the byte at which it starts.
pub(crate) type Cell = (usize, String);

/// A fault: the byte, and what is wrong.
pub(crate) type CsvFault = (usize, &'static str);

/// Reads the row at `*at`, and goes on to the next. `None` at the end. Rows that are
/// empty, and those that start with `#`, are left out.
pub(crate) fn row(text: &str, at: &mut usize) -> Option<Result<Vec<Cell>, CsvFault>> {
    loop {
        let rest = text.get(*at..).filter(|rest| !rest.is_empty())?;
        let line = rest.split_inclusive('\n').next().unwrap_or(rest);
        if !line.starts_with('#') && !line.trim().is_empty() {
            return Some(cells(text, at));
        }
        *at += line.len();
    }
}

/// The cells of the row at `*at`.
fn cells(text: &str, at: &mut usize) -> Result<Vec<Cell>, CsvFault> {
    let mut cells = Vec::new();
    loop {
        let rest = text.get(*at..).unwrap_or_default();
        let blanks = rest.len() - rest.trim_start_matches([' ', '\t']).len();
        *at += blanks;
        let start = *at;
        let rest = text.get(start..).unwrap_or_default();
        let cell = if rest.starts_with('"') { quoted(rest) } else { plain(rest) };
        let (cell, length) = match cell {
            Ok(cell) => cell,
            Err((within, what)) => {
                // The rest of the line is lost.
                let end = rest.find('\n').map_or(rest.len(), |end| end + 1);
                *at = start + end;
                return Err((start + within, what));
            }
        };
        let cell = match cell.strip_prefix('\'') {
            Some(text) if is_formula(text) => text.to_owned(),
            _ => cell,
        };
        cells.push((start, cell));
        *at = start + length;
        match text.as_bytes().get(*at) {
            Some(b',') => *at += 1,
            Some(b'\n') => {
                *at += 1;
                return Ok(cells);
            }
            _ => return Ok(cells),
        }
    }
}

/// A cell without quotes: it and its length.
fn plain(rest: &str) -> Result<(String, usize), CsvFault> {
    let end = rest.find([',', '\n']).unwrap_or(rest.len());
    let cell = rest.get(..end).unwrap_or_default().trim_end();
    match cell.find('"') {
        Some(at) => {
            Err((at, "a quote within a field; put the field in quotes and double this one"))
        }
        None => Ok((cell.to_owned(), end)),
    }
}

/// A cell in quotes: it and its length.
fn quoted(rest: &str) -> Result<(String, usize), CsvFault> {
    let mut cell = String::new();
    let mut at = 1;
    loop {
        let Some((part, after)) = rest.get(at..).and_then(|rest| rest.split_once('"')) else {
            return Err((0, "the quote has no end"));
        };
        cell.push_str(part);
        at += part.len() + 1;
        if after.starts_with('"') {
            cell.push('"');
            at += 1;
            continue;
        }
        let end = after.find([',', '\n']).unwrap_or(after.len());
        if !after.get(..end).unwrap_or_default().trim().is_empty() {
            return Err((at, "text after the closing quote; expected a comma"));
        }
        return Ok((cell, at + end));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<Result<Vec<Cell>, CsvFault>> {
        let mut at = 0;
        std::iter::from_fn(|| row(text, &mut at)).collect()
    }

    #[test]
    fn rows_and_cells() {
        let text = "# users\na, b ,\"c,\"\"d\"\"\"\r\n\n,\n\"x\" ,y";
        let cells = |cells: &[(usize, &str)]| {
            Ok(cells.iter().map(|&(at, cell)| (at, cell.to_owned())).collect::<Vec<_>>())
        };
        assert_eq!(
            all(text),
            [
                cells(&[(8, "a"), (11, "b"), (14, "c,\"d\"")]),
                cells(&[(26, ""), (27, "")]),
                cells(&[(28, "x"), (33, "y")]),
            ]
        );
        assert_eq!(all(""), []);
    }

    #[test]
    fn a_fault_costs_a_line() {
        let text = "a,b\"c\nd\n\"e\"f\ng\n\"h";
        let found = all(text);
        assert_eq!(found.len(), 5, "{found:?}");
        assert!(found[0].as_ref().is_err_and(|(at, _)| *at == 3));
        assert_eq!(found[1], Ok(vec![(6, "d".into())]));
        assert!(found[2].as_ref().is_err_and(|(at, _)| *at == 11));
        assert!(found[4].as_ref().is_err_and(|(at, _)| *at == 15));
    }

    #[test]
    fn formulas_are_texts_and_numbers_stay_numbers() {
        for (cell, written) in [
            ("alice@example.org", "alice@example.org"),
            ("", ""),
            ("\"a,b\"@c.test", "\"\"\"a,b\"\"@c.test\""),
            ("a\nb", "\"a\nb\""),
            ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
            ("=1,2", "\"'=1,2\""),
            ("+1+1@x.test", "'+1+1@x.test"),
            ("-x", "'-x"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("\t=1", "\"'\t=1\""),
            ("\r=1", "\"'\r=1\""),
            ("'=1", "''=1"),
            ("'alice'", "'alice'"),
            ("-5", "-5"),
            ("-1.5e-3", "-1.5e-3"),
            ("-inf", "'-inf"),
            ("-1-1", "'-1-1"),
            ("#x", "\"#x\""),
            (" x", "\" x\""),
        ] {
            assert_eq!(line([cell]), written);
            let read = if cell.is_empty() { vec![] } else { all(written) };
            let expected = Ok(vec![(0, cell.to_owned())]);
            assert!(cell.is_empty() || read == [expected], "{cell:?}: {read:?}");
        }
        assert_eq!(line(["-5", "=a", "b,c"]), "-5,'=a,\"b,c\"");
    }

    kit::quickcheck! {
        fn what_is_written_is_read_back(rows: Vec<Vec<String>>, formulas: Vec<(u8, String)>) -> bool {
            let formula = |(n, text): (u8, String)| {
                vec![format!("{}{}{text}", "'".repeat(n as usize % 3), FORMULA[n as usize % 6]), text]
            };
            let rows: Vec<Vec<String>> =
                rows.into_iter().chain(formulas.into_iter().map(formula)).collect();
            // A row that is empty or has one empty cell is none.
            let rows: Vec<Vec<String>> =
                rows.into_iter().filter(|row| row.len() > 1 || row.iter().any(|c| !c.is_empty())).collect();
            let text = rows.iter().map(line).collect::<Vec<_>>().join("\r\n");
            let read = all(&text).into_iter().map(|row| {
                row.map(|row| row.into_iter().map(|(_, cell)| cell).collect::<Vec<_>>())
            });
            read.eq(rows.into_iter().map(Ok))
        }

        fn any_text_comes_to_an_end(text: String) -> bool {
            all(&text).len() <= text.matches('\n').count() + 1
        }
    }
}
