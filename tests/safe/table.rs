//! `$sender_rate` and its companions are set at their real addresses, and
//! nothing else is written: the library in programs with a misleading table of
//! variables, or with other exports.

use crate::hostile::Program;
use kit::library;

/// Misleading tables, named as in `tests/safe/hostile/tables.c`.
const WRONG: &[&str] = &[
    "none",
    "no rate",
    "no limit",
    "no period",
    "cut short",
    "unsorted",
    "names on the heap",
    "moved by one",
    "moved by a page",
    "one of another kind",
    "all of another kind",
    "numbers",
    "nothing but strings",
    "taken",
    "zeros",
    "one word",
    "unaligned",
    "constants",
    "sealed",
    "code",
    "heap",
    "a library's",
    "null",
    "nowhere",
    "the last byte",
    "no memory",
];

/// Whether the variables are set in a program built with `flags` with the table
/// `case`; the program checks every word itself.
fn sets(program: &Program, case: &str) -> bool {
    let spool = tempfile::tempdir().unwrap();
    let arguments = [library::built().as_os_str(), spool.path().as_os_str(), case.as_ref()];
    let ran = program.run(&[], &arguments);
    assert!(ran.status.success(), "{case}: {ran:?}");
    ran.number("set") == 1
}

#[test]
fn only_the_right_table_is_used() {
    // Sealed and not, as programs may be linked in both ways.
    for (name, flags) in
        [("tables", &["-Wl,-z,relro,-z,now"][..]), ("tables-fixed", &["-no-pie", "-Wl,-z,norelro"])]
    {
        let program = Program::build(name, &["tables.c"], flags);
        assert!(sets(&program, "right"), "{name}");
        for case in WRONG {
            assert!(!sets(&program, case), "{name}: {case}");
        }
    }
}

#[test]
fn exported_variables_need_no_table() {
    let program = Program::build("tables-exported", &["tables.c"], &["-DEXPORTED=1"]);
    for case in ["right", "none", "moved by one", "zeros", "nowhere"] {
        assert!(sets(&program, case), "{case}");
    }
}

#[test]
fn read_only_exports_are_not_written() {
    for (name, flag) in [("tables-constant", "-DEXPORTED=2"), ("tables-code", "-DEXPORTED=3")] {
        let program = Program::build(name, &["tables.c"], &[flag]);
        for case in ["none", "no period", "moved by one", "nowhere"] {
            assert!(!sets(&program, case), "{name}: {case}");
        }
        // If the table is right, it leads to the real ones.
        assert!(sets(&program, "right"), "{name}");
    }
}
