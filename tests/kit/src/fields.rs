//! The tables of a document that lays down a format: shared by the tests that
//! hold the code to it.

use std::collections::BTreeMap;

/// Every field in the tables of `document`: offset and size.
pub fn documented(document: &str) -> BTreeMap<String, (usize, usize)> {
    let mut fields = BTreeMap::new();
    for line in document.lines() {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let [_, offset, size, field, _, _] = cells[..] else { continue };
        let (Ok(offset), Ok(size)) = (offset.parse(), size.parse()) else { continue };
        let field = field.trim_matches('`').to_owned();
        assert_eq!(fields.insert(field.clone(), (offset, size)), None, "{field} twice");
    }
    fields
}
