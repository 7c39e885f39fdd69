//! `users = "users.csv"`: users in a file of their own.
//!
//! The first row names the columns: `user`, `package`, `customer`, `habits`, `sensitivity`, and units. An empty cell
//! says nothing; several windows are separated by blanks: `100/1h 500 daily`.

use super::super::model::{Amount, Location, Member};
use super::super::word::{Unit, Word};
use super::amount::{self, UNLIMITED};
use super::kind::mail_address;
use super::tables::NamedTables;
use crate::csv::{Cell, row};
use crate::toml_file::diagnostic::allowed_instead;
use crate::toml_file::reader::{LineStarts, Reader, Value};
use crate::toml_file::text::{Load, beside};

/// What a column says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    User,
    Package,
    Customer,
    Habits,
    Sensitivity,
    Contact,
    Unit(Unit),
}

/// The columns that are no units.
const NAMED: [(&str, Column); 6] = [
    ("user", Column::User),
    ("package", Column::Package),
    ("customer", Column::Customer),
    ("habits", Column::Habits),
    ("sensitivity", Column::Sensitivity),
    ("contact", Column::Contact),
];

impl Column {
    fn of(name: &str) -> Option<Self> {
        let named = NAMED.iter().find(|(known, _)| *known == name).map(|(_, column)| *column);
        named.or_else(|| Unit::of(name).map(Self::Unit))
    }
}

/// Reads the files that `value` names into `named`.
pub(super) fn read(
    reader: &mut Reader<'_>,
    value: Value<'_>,
    load: Load<'_>,
    named: &mut NamedTables<'_>,
) {
    for (name, at) in reader.strings(value, "\"users.csv\"").unwrap_or_default() {
        let path = beside(reader.diagnostics.files.first(), name);
        let text = match load(&path) {
            Ok(text) => text,
            Err(message) => {
                reader.error(at, message);
                continue;
            }
        };
        let files = &mut reader.diagnostics.files;
        let Ok(file) = u16::try_from(files.len()) else {
            reader.error(at, "more than 65,535 files");
            return;
        };
        files.push(path);
        UsersFile { reader, lines: LineStarts::of(&text), file, named }.read(&text);
    }
}

/// A file of users that is being read.
struct UsersFile<'t, 'r, 'n> {
    reader: &'t mut Reader<'r>,
    lines: LineStarts<'t>,
    file: u16,
    named: &'t mut NamedTables<'n>,
}

impl UsersFile<'_, '_, '_> {
    fn at(&self, offset: usize) -> Location {
        self.lines.locate(self.file, offset)
    }

    fn error(&mut self, offset: usize, message: impl Into<String>) {
        let at = self.at(offset);
        self.reader.diagnostics.error(at, message);
    }

    fn read(mut self, text: &str) {
        let mut at = if text.starts_with('\u{feff}') { 3 } else { 0 };
        let Some(head) = row(text, &mut at) else {
            self.error(
                0,
                "the file is empty; its first line names the columns: user,package,recipients",
            );
            return;
        };
        let Some(columns) = self.columns(head) else { return };
        while let Some(row) = row(text, &mut at) {
            match row {
                Ok(cells) => self.user(&columns, cells),
                Err((offset, message)) => self.error(offset, message),
            }
        }
    }

    /// The columns that the first row names.
    fn columns(&mut self, head: Result<Vec<Cell>, (usize, &'static str)>) -> Option<Vec<Column>> {
        let head = head.map_err(|(offset, message)| self.error(offset, message)).ok()?;
        let mut columns = Vec::new();
        let mut sound = true;
        for (offset, name) in &head {
            match Column::of(name) {
                Some(column) if columns.contains(&column) => {
                    self.error(*offset, format!("the column {name:?} is there twice"));
                    sound = false;
                }
                Some(column) => columns.push(column),
                None => {
                    let allowed = [&NAMED.map(|(name, _)| name)[..], &Unit::words()].concat();
                    let instead = allowed_instead(name, &allowed);
                    self.error(*offset, format!("unknown column {name:?}; {instead}"));
                    sound = false;
                }
            }
        }
        if sound && !columns.contains(&Column::User) {
            let offset = head.first().map_or(0, |(offset, _)| *offset);
            self.error(offset, "no column is named user; the first line names the columns");
            sound = false;
        }
        sound.then_some(columns)
    }

    fn user(&mut self, columns: &[Column], cells: Vec<Cell>) {
        let start = cells.first().map_or(0, |(offset, _)| *offset);
        if cells.len() != columns.len() {
            let (found, wanted) = (cells.len(), columns.len());
            self.error(start, format!("{found} fields where the first line has {wanted}"));
            return;
        }
        let mut member = Member::default();
        let mut user = None;
        for (column, (offset, text)) in columns.iter().zip(cells) {
            let at = self.at(offset);
            match column {
                Column::User => {
                    member.limits.at = at;
                    user = Some(text);
                }
                _ if text.is_empty() => {}
                Column::Package => {
                    member.package = Some(self.named.packages.add(&text, at));
                }
                Column::Customer => {
                    member.customer = Some(self.named.customers.add(&text, at));
                }
                Column::Habits => {
                    member.limits.habits.habits = self.word(offset, "habits", &text);
                }
                Column::Sensitivity => {
                    member.limits.habits.sensitivity = self.word(offset, "sensitivity", &text);
                }
                Column::Contact => match mail_address(&text) {
                    Ok(()) => member.limits.habits.contact = Some(text),
                    Err(message) => self.reader.diagnostics.error(at, message),
                },
                Column::Unit(unit) => {
                    let amount = self.amount(*unit, offset, at, &text);
                    member.limits.each.insert(*unit, amount);
                }
            }
        }
        let Some(user) = user else { return };
        match self.named.naming.user(&user) {
            Ok(names) => self.named.users.add(self.reader, "user", &user, names, member),
            Err(message) => self.reader.diagnostics.error(member.limits.at, message),
        }
    }

    fn word<W: Word>(&mut self, offset: usize, what: &str, text: &str) -> Option<W> {
        let word = W::of(text);
        if word.is_none() {
            let instead = allowed_instead(text, &W::words());
            self.error(offset, format!("unknown {what} {text:?}; {instead}"));
        }
        word
    }

    fn amount(&mut self, unit: Unit, offset: usize, at: Location, text: &str) -> Amount {
        let mut windows = Vec::new();
        if text != UNLIMITED {
            let mut any = false;
            for one in amount::several(text) {
                any = true;
                match amount::limit(unit, &one) {
                    Ok(window) => windows.push(window),
                    Err(message) => self.error(offset, message),
                }
            }
            if !any {
                self.error(offset, format!("{text:?} has no limit; expected such as 100/1h"));
            }
        }
        Amount { at, windows: windows.into() }
    }
}
