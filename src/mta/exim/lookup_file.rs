//! Files that Exim's `lsearch` lookups read, such as `exim/limits`.

use std::io;
use std::path::PathBuf;

/// A file of a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LookupFile {
    pub(crate) path: PathBuf,
    /// Whether it is read line by line.
    by_lines: bool,
}

/// A line of such a file, with those that continue it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LookupRow {
    pub(crate) key: String,
    pub(crate) value: String,
    /// `FILE:LINE`.
    pub(crate) position: String,
}

impl LookupFile {
    /// The file of a lookup of this kind, such as `lsearch` or `partial-lsearch*@`.
    pub(super) fn new(kind: &str, path: &str) -> Self {
        let kind = kind.split([',', '*']).next().unwrap_or_default();
        let kind = kind.rsplit(['-', ')']).next().unwrap_or_default();
        let by_lines = matches!(kind, "lsearch" | "wildlsearch" | "nwildlsearch" | "iplsearch");
        Self { path: path.into(), by_lines }
    }

    /// Its rows.
    ///
    /// # Errors
    /// It cannot be read, or is no file of lines.
    pub(crate) fn rows(&self) -> io::Result<Vec<LookupRow>> {
        if !self.by_lines {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let text = String::from_utf8_lossy(&std::fs::read(&self.path)?).into_owned();
        let mut rows: Vec<LookupRow> = Vec::new();
        for (n, line) in text.lines().enumerate() {
            if line.starts_with('#') || line.trim().is_empty() {
                continue;
            }
            if line.starts_with(char::is_whitespace) {
                if let Some(row) = rows.last_mut() {
                    row.value = format!("{} {}", row.value, line.trim()).trim().to_owned();
                }
                continue;
            }
            let (key, value) = split(line);
            let position = format!("{}:{}", self.path.display(), n + 1);
            rows.push(LookupRow { key, value, position });
        }
        Ok(rows)
    }

    /// What is wrong with the file as a whole: lines that no lookup finds.
    pub(crate) fn faults(&self) -> Vec<String> {
        match self.rows() {
            Ok(rows) => {
                let mut faults = Vec::new();
                let mut seen = std::collections::HashMap::new();
                for row in &rows {
                    let key = row.key.to_lowercase();
                    if let Some(first) = seen.insert(key, &row.position) {
                        faults.push(format!(
                            "{}: {:?} is in the file already, at {first}: Exim takes the first",
                            row.position, row.key
                        ));
                    }
                }
                faults
            }
            Err(_) => Vec::new(),
        }
    }

    /// Why Exim cannot read it, if it is not there or not readable even here.
    pub(crate) fn unreadable(&self) -> Option<io::Error> {
        if self.path.is_absolute() { std::fs::File::open(&self.path).err() } else { None }
    }
}

/// A line's key, which may be in quotes, and what follows it: behind a colon,
/// blanks, or both.
fn split(line: &str) -> (String, String) {
    let (key, rest) = match line.strip_prefix('"').and_then(|rest| rest.split_once('"')) {
        Some((key, rest)) => (key, rest),
        None => {
            let end = line.find(|c: char| c == ':' || c.is_whitespace()).unwrap_or(line.len());
            line.split_at(end)
        }
    };
    let rest = rest.trim_start();
    (key.to_owned(), rest.strip_prefix(':').unwrap_or(rest).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str) -> Vec<(String, String, usize)> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let found = LookupFile::new("lsearch", file.path().to_str().unwrap()).rows().unwrap();
        let line = |row: &LookupRow| row.position.rsplit(':').next().unwrap().parse().unwrap();
        found.iter().map(|row| (row.key.clone(), row.value.clone(), line(row))).collect()
    }

    #[test]
    fn rows_are_those_of_lsearch() {
        let text = "# comment\na: 5 / 1h\n\nb 6 / 1h\n\"c d\" : 7\n   / 1h\n:\n";
        let row = |key: &str, value: &str, line| (key.to_owned(), value.to_owned(), line);
        assert_eq!(
            rows(text),
            [row("a", "5 / 1h", 2), row("b", "6 / 1h", 4), row("c d", "7 / 1h", 5), row("", "", 7)]
        );
    }

    #[test]
    fn only_files_of_lines_are_read() {
        for (kind, lines) in [
            ("lsearch", true),
            ("partial-lsearch*@", true),
            ("partial2(x)wildlsearch", true),
            ("iplsearch,ret=full", true),
            ("cdb", false),
            ("dbm", false),
        ] {
            assert_eq!(LookupFile::new(kind, "/x").by_lines, lines, "{kind}");
        }
    }
}
