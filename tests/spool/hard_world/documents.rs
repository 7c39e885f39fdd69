//! The messages and tests named in `docs/when-things-fail.md`.

use std::path::Path;

/// The document.
const DOCUMENT: &str = include_str!("../../../docs/when-things-fail.md");

/// Asserts that the document quotes an error, where `SPOOL` stands for the
/// spool directory, `NN` for a shard's number, and each of `others` for the
/// given text.
pub(crate) fn assert_documented(text: &str, spool: &Path, others: &[(&str, &str)]) {
    let mut text = text.replace(spool.to_str().unwrap(), "SPOOL");
    if let Some(at) = text.find(".shard").or(text.find(".new")) {
        let number = at - 2..at;
        if text[number.clone()].bytes().all(|byte| byte.is_ascii_hexdigit()) {
            text.replace_range(number, "NN");
        }
    }
    for (name, value) in others {
        text = text.replace(value, name);
    }
    // A text that contains backquotes is enclosed in double ones.
    let quoted = [format!("`{text}`"), format!("`` {text} ``")];
    let found = quoted.iter().any(|quoted| DOCUMENT.contains(quoted));
    assert!(found, "docs/when-things-fail.md has no\n{text}");
}

#[test]
fn every_test_that_is_named_exists() {
    let mut named = 0;
    let is_row = |line: &&str| line.starts_with("| ") && !line.starts_with("| ---");
    for row in DOCUMENT.lines().filter(is_row).filter(|row| !row.starts_with("| situation ")) {
        let tests = row.trim_end_matches('|').rsplit('|').next().unwrap();
        for test in tests.split('`').skip(1).step_by(2) {
            let (file, name) = test.split_once("::").unwrap_or_else(|| panic!("{test}"));
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
            let source = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{file}: {e}"));
            // One beside the code is in a module of its own.
            let is_there = ["", "    "]
                .iter()
                .any(|indent| source.contains(&format!("\n{indent}#[test]\n{indent}fn {name}(")));
            assert!(is_there, "{file} has no test {name}");
            named += 1;
        }
        assert!(tests.contains('`'), "no test is named in {row}");
    }
    assert!(named >= 20, "{named}");
}
