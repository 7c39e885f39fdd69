//! Exim's own tables, found in the running program.
//!
//! Stock builds do not export `sender_rate`, but their table of expansion
//! variables has its address, and the table of main options has the configured
//! ACLs. Both are arrays of `{const char *name; int type; void *value}`, sorted by
//! name, in the main program's writable data. They are trusted only in exactly this
//! form: names are read only from the program's read-only segments, and a table
//! counts only if it has certain entries.

use super::abi::Uschar;
use super::program::Program;
use std::cmp::Ordering;
use std::ops::Range;

/// Words in one entry: name, type (and padding), value.
const ENTRY: usize = 3;
/// Both tables have far more entries than this, so that looking at one place in
/// `STRIDE` words cannot miss them.
const STRIDE: usize = 128 * ENTRY;
/// Types are small numbers, with flags above them in the table of options.
const TYPES_MAX: usize = 1 << 16;
/// So many entries are skipped at once where that finds both tables. Names are spread
/// over the whole program: to read all of them takes longer than anything else in the
/// first call.
const STEP: usize = 32;

/// The two tables, in the main program's memory.
pub(in crate::exim) struct Tables {
    program: Program,
    variables: Option<TableRange>,
    options: Option<TableRange>,
}

/// The position of a table: the segment, and its words there.
struct TableRange {
    segment: usize,
    entries: Range<usize>,
}

/// One entry: the type and the address of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::exim) struct TableEntry {
    /// Exim's number of the type; only good for comparison with another.
    pub(in crate::exim) kind: usize,
    /// The address of the value, in the program's writable memory.
    pub(in crate::exim) value: usize,
}

impl Tables {
    /// Searches the main program.
    pub(in crate::exim) fn find() -> Self {
        let program = Program::main().unwrap_or_default();
        let mut tables = Self { program, variables: None, options: None };
        let program = &tables.program;
        let text_at = |address| program.text(address);
        for step in [STEP, 1] {
            for segment in 0..program.segments() {
                let (variables, options) = (&mut tables.variables, &mut tables.options);
                search(program.words(segment), step, &text_at, &mut |words, run| {
                    let table = || Some(TableRange { segment, entries: run.clone() });
                    if variables.is_none() && holds_sender_rate(words, run, &text_at) {
                        *variables = table();
                    } else if options.is_none() && holds_acl_options(words, run, &text_at) {
                        *options = table();
                    }
                    variables.is_some() && options.is_some()
                });
            }
            if tables.variables.is_some() && tables.options.is_some() {
                break;
            }
        }
        tables
    }

    /// The expansion variable `name`, if it has room for `size` bytes.
    pub(in crate::exim) fn variable(&self, name: &[u8], size: usize) -> Option<TableEntry> {
        self.entry(self.variables.as_ref()?, name, size)
    }

    /// The main option `name`, if it has room for `size` bytes.
    fn option(&self, name: &[u8], size: usize) -> Option<TableEntry> {
        self.entry(self.options.as_ref()?, name, size)
    }

    /// Whether the main option `name`, a string, is set; `None` if it cannot be read.
    pub(in crate::exim) fn option_is_set(&self, name: &str) -> Option<bool> {
        let entry = self.option(name.as_bytes(), size_of::<usize>())?;
        let address: *const *const Uschar = std::ptr::with_exposed_provenance(entry.value);
        // SAFETY: the address is aligned and in the program's writable memory, and a
        // pointer is read there, not followed.
        Some(!unsafe { address.read() }.is_null())
    }

    /// Whether a variable of `size` bytes may be at `address`: it is aligned, and in
    /// the program's writable memory.
    pub(in crate::exim) fn lets_write(&self, address: usize, size: usize) -> bool {
        self.program.lets_write(address, size)
    }

    fn entry(&self, place: &TableRange, name: &[u8], size: usize) -> Option<TableEntry> {
        let words = self.program.words(place.segment);
        let found = look_up(words, &place.entries, &|a| self.program.text(a), name)?;
        self.program.lets_write(found.value, size).then_some(found)
    }
}

type TextAt<'a> = &'a dyn Fn(usize) -> Option<&'static [u8]>;

/// The name at the start of a text: that of a variable or an option, which ends in NUL.
fn name_in(text: &[u8]) -> Option<&[u8]> {
    let in_name = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'_';
    let end = text.iter().position(|b| !in_name(b))?;
    (end > 0 && text.get(end) == Some(&0)).then(|| &text[..end])
}

/// How the text, up to its NUL, compares with `name`.
fn compare(text: &[u8], name: &[u8]) -> Ordering {
    let ended_name = name.iter().copied().chain([0]);
    text.iter().copied().take(name.len() + 1).cmp(ended_name)
}

/// The name of the entry at word `at`, if there can be one.
fn name_of(words: &[usize], at: usize, text_at: TextAt) -> Option<&'static [u8]> {
    let entry = words.get(at..at + ENTRY)?;
    if entry[1] >= TYPES_MAX {
        return None;
    }
    name_in(text_at(entry[0])?)
}

/// Calls `visit` with each table in `words` until it returns `true`; `step` is that of
/// [`run_around`].
fn search(
    words: &[usize],
    step: usize,
    text_at: TextAt,
    visit: &mut dyn FnMut(&[usize], &Range<usize>) -> bool,
) {
    let mut at = 0;
    while at < words.len() {
        match (at..at + ENTRY).find_map(|start| run_around(words, start, step, text_at)) {
            Some(run) if visit(words, &run) => return,
            Some(run) => at = run.end.max(at + 1),
            None => at += STRIDE,
        }
    }
}

/// The longest run of entries around `start` with ascending names, if there are at
/// least three. It is extended by `step` entries at a time, of which only the last is
/// looked at, then by fewer, and in the end by single ones.
fn run_around(words: &[usize], start: usize, step: usize, text_at: TextAt) -> Option<Range<usize>> {
    // The types of three entries first: names cost more to look at.
    if (0..3).any(|n| words.get(start + n * ENTRY + 1).is_none_or(|kind| *kind >= TYPES_MAX)) {
        return None;
    }
    let name = name_of(words, start, text_at)?;
    let (mut first, mut last) = (name, name);
    let mut run = start..start + ENTRY;
    let steps = || [step, step / 4, step / 16, 1].map(|step| step.max(1) * ENTRY);
    for step in steps() {
        let next = |end| name_of(words, end + step - ENTRY, text_at);
        while let Some(next) = next(run.end).filter(|next| last < *next) {
            (last, run.end) = (next, run.end + step);
        }
    }
    if run.len() < 3 * ENTRY {
        return None;
    }
    for step in steps() {
        while let Some(before) = run.start.checked_sub(step) {
            match name_of(words, before, text_at).filter(|previous| *previous < first) {
                Some(previous) => (first, run.start) = (previous, before),
                None => break,
            }
        }
    }
    Some(run)
}

fn holds_sender_rate(words: &[usize], run: &Range<usize>, text_at: TextAt) -> bool {
    let Some(at) = position(words, run, text_at, b"sender_rate") else { return false };
    let named = |n: usize, name: &[u8]| name_of(words, at + n * ENTRY, text_at) == Some(name);
    let same_kind = |n: usize| words.get(at + n * ENTRY + 1) == words.get(at + 1);
    at + 3 * ENTRY <= run.end
        && named(1, b"sender_rate_limit")
        && named(2, b"sender_rate_period")
        && same_kind(1)
        && same_kind(2)
}

fn holds_acl_options(words: &[usize], run: &Range<usize>, text_at: TextAt) -> bool {
    [&b"acl_not_smtp"[..], b"acl_smtp_mail", b"acl_smtp_rcpt", b"spool_directory"]
        .iter()
        .all(|name| position(words, run, text_at, name).is_some())
}

fn look_up(
    words: &[usize],
    run: &Range<usize>,
    text_at: TextAt,
    name: &[u8],
) -> Option<TableEntry> {
    let at = position(words, run, text_at, name)?;
    Some(TableEntry { kind: *words.get(at + 1)?, value: *words.get(at + 2)? })
}

/// Binary search for the entry `name`.
fn position(words: &[usize], run: &Range<usize>, text_at: TextAt, name: &[u8]) -> Option<usize> {
    let (mut low, mut high) = (0, run.len() / ENTRY);
    while low < high {
        let middle = usize::midpoint(low, high);
        let at = run.start + middle * ENTRY;
        let text = words.get(at).and_then(|address| text_at(*address))?;
        match compare(text, name) {
            Ordering::Equal => return name_of(words, at, text_at).map(|_| at),
            Ordering::Less => low = middle + 1,
            Ordering::Greater => high = middle,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program whose read-only segment holds `NAMES`, one at each address.
    const NAMES: [&[u8]; 8] = [
        b"acl_arg1\0",
        b"domain\0",
        b"rcpt_count\0",
        b"sender_rate\0",
        b"sender_rate_limit\0",
        b"sender_rate_period\0",
        b"smtp_command\0",
        b"value\0",
    ];

    fn text_at(address: usize) -> Option<&'static [u8]> {
        NAMES.get(address.checked_sub(1000)?).copied()
    }

    fn memory(order: &[usize], padding: usize) -> Vec<usize> {
        let mut words = vec![7; padding];
        for name in order {
            words.extend([1000 + name, 4, 5000 + name]);
        }
        words.extend(vec![7; 500]);
        words
    }

    #[test]
    fn finds_the_table_at_any_position() {
        // The stride needs a longer table than this: try each start.
        for padding in 0..STRIDE * 2 {
            let words = memory(&[0, 1, 2, 3, 4, 5, 6, 7], padding);
            for step in [STEP, 3, 1] {
                let run = |at| run_around(&words, at, step, &text_at);
                let found = (0..words.len()).find_map(run).unwrap();
                assert_eq!(found, padding..padding + 8 * ENTRY);
                assert!(holds_sender_rate(&words, &found, &text_at));
                let entry = look_up(&words, &found, &text_at, b"smtp_command").unwrap();
                assert_eq!(entry, TableEntry { kind: 4, value: 5006 });
                assert_eq!(look_up(&words, &found, &text_at, b"nothing"), None);
            }
        }
    }

    /// The first table in `words` that holds the `sender_rate` variables. With the
    /// larger step it is the same one or, if tables follow one another, none.
    fn variables(words: &[usize], text_at: TextAt) -> Option<Range<usize>> {
        let [quick, careful] = [STEP, 1].map(|step| {
            let mut found = None;
            search(words, step, text_at, &mut |words, run| {
                found = holds_sender_rate(words, run, text_at).then(|| run.clone());
                found.is_some()
            });
            found
        });
        assert!(quick.is_none() || quick == careful, "{quick:?} {careful:?}");
        careful
    }

    #[test]
    fn search_skips_other_memory() {
        let names: Vec<&'static [u8]> = (0..200)
            .map(|n| format!("aa_{n:03}\0").leak().as_bytes())
            .chain([&b"sender_rate\0"[..], b"sender_rate_limit\0", b"sender_rate_period\0"])
            .collect();
        let text_at = |address: usize| names.get(address.checked_sub(9000)?).copied();
        for padding in [0, 1, 2, 3, STRIDE - 1, STRIDE, STRIDE + 1, 1000] {
            let mut words = vec![7; padding];
            (0..names.len()).for_each(|n| words.extend([9000 + n, 4, n]));
            let whole = padding..padding + names.len() * ENTRY;
            assert_eq!(variables(&words, &text_at), Some(whole.clone()));
            let found = (0..ENTRY).find_map(|n| run_around(&words, padding + n, STEP, &text_at));
            assert_eq!(found, Some(whole), "without reading each name");
            // A partial table: the last of the three is cut off.
            words.truncate(words.len() - 1);
            assert_eq!(variables(&words, &text_at), None);
        }
    }

    #[test]
    fn tables_without_a_gap_between_them_are_found() {
        let others: Vec<&'static [u8]> =
            (0..200).map(|n| format!("b_{n:03}\0").leak().as_bytes()).collect();
        let names: Vec<&'static [u8]> = others.iter().copied().chain(NAMES).collect();
        let text_at = |address: usize| names.get(address.checked_sub(9000)?).copied();
        let after: Vec<usize> = (0..names.len()).chain(0..200).collect();
        let before: Vec<usize> = (0..200).chain(0..names.len()).collect();
        for (order, start) in [(after, 0), (before, 200)] {
            let words: Vec<usize> = order.iter().flat_map(|n| [9000 + n, 4, *n]).collect();
            // The first of NAMES is less than those of the other table.
            let [first, count] = [start + 200, NAMES.len()].map(|n| n * ENTRY);
            assert_eq!(variables(&words, &text_at), Some(first..first + count));
        }
    }

    #[test]
    fn refuses_other_arrays() {
        for order in [
            &[0, 1, 2, 3, 4][..],   // no sender_rate_period
            &[3, 5, 4, 6, 7],       // out of order
            &[0, 1, 2, 6, 7],       // none of the three
            &[0, 1, 2, 3, 5, 6, 7], // no sender_rate_limit
        ] {
            assert_eq!(variables(&memory(order, 0), &text_at), None, "{order:?}");
        }
        let whole = memory(&[1, 2, 3, 4, 5], 0);
        assert_eq!(variables(&whole, &text_at), Some(0..5 * ENTRY));
        let mut other_kinds = whole;
        other_kinds[3 * ENTRY + 1] = 5;
        assert_eq!(variables(&other_kinds, &text_at), None);
        assert_eq!(variables(&[], &text_at), None);
    }

    #[test]
    fn texts_compare_with_names_up_to_their_ends() {
        for (text, order) in [
            (&b"domain\0x"[..], Ordering::Equal),
            (b"domain_data\0", Ordering::Greater),
            (b"doma\0in", Ordering::Less),
            (b"domain", Ordering::Less),
            (b"", Ordering::Less),
            (b"e", Ordering::Greater),
        ] {
            assert_eq!(compare(text, b"domain"), order, "{text:?}");
        }
        assert_eq!(name_in(b"domain\0x"), Some(&b"domain"[..]));
        for text in [&b""[..], b"\0", b"domain", b"Domain\0", b"do main\0"] {
            assert_eq!(name_in(text), None, "{text:?}");
        }
    }

    #[test]
    fn this_program_is_not_exim() {
        let tables = Tables::find();
        assert!(tables.variables.is_none() && tables.options.is_none());
        assert_eq!(tables.variable(b"sender_rate", 8), None);
        assert_eq!(tables.option_is_set("acl_not_smtp"), None);
    }
}
