//! `exirate export` and `exirate import`.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use exirate::engine::AlgorithmKind;
use exirate::rate::{Average, Timestamp};
use exirate::spec::StoredKey;
use exirate::spool::{Options, Spool};
use exirate::store::{Entry, FilterEntry};

use crate::{json, list, run, stderr, stdout};

fn export(spool: &Path) -> Vec<u8> {
    let output = run(spool, &["export"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    output.stdout
}

/// A key, the bits of its rate and limit, the time, and a filter.
type Random = (Vec<u8>, u64, u64, (i32, u32, u32), Option<(i64, Vec<u8>)>);

/// A record of numbers and times as checks write them.
fn entry((key, rate, limit, (seconds, micros, over_since), filter): Random) -> Entry {
    let number = |bits| Some(f64::from_bits(bits).abs()).filter(|number| *number <= 1e18);
    let at = Timestamp { seconds: seconds.unsigned_abs().into(), micros: micros % 1_000_000 };
    let at = Timestamp { seconds: at.seconds.min(1_700_000_000), ..at };
    let over_since = over_since % 1_700_000_000;
    let filter = filter.filter(|(_, bits)| !bits.is_empty());
    let filter = filter.map(|(epoch, bits)| (epoch.rem_euclid(1_700_000_000), bits));
    let (identity_start, kind) = {
        let key = StoredKey::record_key(&key);
        (key.identity_start, key.kind)
    };
    Entry {
        identity_start,
        kind,
        algorithm: AlgorithmKind::MovingAverage,
        key,
        average: Average { at, rate: number(rate).unwrap_or(0.1) },
        limit: number(limit).unwrap_or(f64::INFINITY),
        over_since,
        period: f64::from(over_since),
        start: 0,
        last_over: over_since / 2,
        crossings: over_since % 7,
        apart: 0.0,
        filter: filter.map(|(epoch, bits)| FilterEntry { epoch, bits }),
    }
}

#[test]
fn what_is_exported_comes_back_byte_for_byte() {
    fn property(entries: Vec<Random>) -> bool {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut spool = Spool::open(from.path(), Options::default()).unwrap();
        for entry in entries.into_iter().map(entry) {
            spool.restore(&entry).unwrap();
        }
        let first = export(from.path());
        let file = from.path().join("export");
        std::fs::write(&file, &first).unwrap();
        let output = run(to.path(), &["import", file.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        // As records as well, and not only as they are printed.
        let mut copy = Spool::open_existing(to.path(), Options::default()).unwrap();
        let mut same = copy.key() == spool.key();
        spool
            .for_each(|entry| {
                let other = copy.get(entry.record_key()).unwrap().unwrap();
                same &= format!("{entry:?}") == format!("{other:?}");
            })
            .unwrap();
        same && export(to.path()) == first
    }
    kit::quick_check().tests(25).quickcheck(property as fn(Vec<Random>) -> bool);
}

fn prepared() -> tempfile::TempDir {
    let spool = tempfile::tempdir().unwrap();
    for to in ["a@x.test", "b@x.test"] {
        run(
            spool.path(),
            &["check", "--count", "9 / 1w / per_addr / strict / carol", "--recipient", to],
        );
    }
    run(spool.path(), &["check", "--count", "9 / 1w / strict / dave"]);
    spool
}

#[test]
fn events_that_were_seen_stay_seen_only_with_the_same_key() {
    let from = prepared();
    let file = from.path().join("export.jsonl");
    let path = file.to_str().unwrap();
    let output = run(from.path(), &["export", "--output", path]);
    assert!(stdout(&output).starts_with("wrote 2 records to "), "{}", stdout(&output));
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let spec = "9 / 1w / per_addr / strict / carol";
    let count = |spool: &Path| {
        let check = ["check", spec, "--recipient", "a@x.test", "--json"];
        json(&run(spool, &check))["count"].as_f64().unwrap()
    };

    let to = tempfile::tempdir().unwrap();
    assert_eq!(json(&run(to.path(), &["import", path, "--json"]))["filters_left_out"], 0);
    assert_eq!(count(to.path()), 0.0);

    let other = tempfile::tempdir().unwrap();
    run(other.path(), &["check", "--count", "9 / 1h / x"]);
    let output = run(other.path(), &["import", path]);
    assert_eq!(output.status.code(), Some(0));
    let said = stdout(&output);
    assert!(said.starts_with("imported 2 records\n1 filter of unique events left out"), "{said}");
    assert_eq!(count(other.path()), 1.0);
    assert_eq!(list(other.path()).len(), 3);

    // Without the secret, neither a key nor bits.
    let output = run(from.path(), &["export", "--no-filters", "carol"]);
    let text = stdout(&output);
    assert!(text.starts_with("{\"exirate_export\":1}\n{\"key\":\"1w/per_rcpt/unique/carol\""));
    assert_eq!((text.lines().count(), text.contains("filter")), (2, false));
}

#[test]
fn what_is_newer_stays() {
    let spool = prepared();
    let file = spool.path().join("export.jsonl");
    let path = file.to_str().unwrap();
    run(spool.path(), &["export", "--output", path]);
    run(spool.path(), &["check", "--count", "9 / 1w / strict / dave"]);
    let before = export(spool.path());
    for _ in 0..2 {
        let counts = json(&run(spool.path(), &["import", path, "--json"]));
        assert_eq!((&counts["added"], &counts["kept"]), (&0.into(), &2.into()));
    }
    assert_eq!(export(spool.path()), before);
    run(spool.path(), &["unblock", "carol"]);
    let counts = json(&run(spool.path(), &["import", path, "--json"]));
    assert_eq!((&counts["added"], &counts["kept"]), (&1.into(), &1.into()));
    run(spool.path(), &["set", "dave", "--rate", "5", "--at", "@1700000000"]);
    let counts = json(&run(spool.path(), &["import", path, "--json"]));
    assert_eq!((&counts["replaced"], &counts["kept"]), (&1.into(), &1.into()));
}

#[test]
fn wrong_lines_are_reported_and_all_others_imported() {
    let spool = tempfile::tempdir().unwrap();
    let file = spool.path().join("export.jsonl");
    let path = file.to_str().unwrap();
    let good = |key: &str| {
        format!(
            r#"{{"key":"{key}","rate":1,"limit":"inf","seconds":1795170000,"micros":0,"over_since":0}}"#
        )
    };
    let long = "x".repeat(70_000);
    let lines = [
        r#"{"exirate_export":1}"#.to_owned(),
        good("1h/per_mail/a"),
        "nonsense".to_owned(),
        String::new(),
        good("1h/per_mail/b").replace("\"micros\":0", "\"micros\":9999999"),
        good(&long),
        good("1h/per_mail/c"),
    ];
    std::fs::write(&file, lines.join("\n")).unwrap();
    let output = run(spool.path(), &["import", path]);
    assert_eq!(output.status.code(), Some(2));
    let said = stderr(&output);
    for words in [
        "export.jsonl, line 3: expected",
        "line 5: micros is 9999999",
        "line 6: key is too long: 70000 bytes",
        "3 of 7 lines were invalid and have been skipped; all others are imported",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert_eq!(stdout(&output), "imported 2 records\n");
    assert_eq!(list(spool.path()).len(), 2);

    // Many wrong lines give one error, and a line without an end takes bounded memory.
    let mut text = format!("{}\n{}", lines[0], "x\n".repeat(50)).into_bytes();
    text.extend(vec![b'y'; 6 << 20]);
    std::fs::write(&file, text).unwrap();
    let said = stderr(&run(spool.path(), &["import", path]));
    assert_eq!(said.matches(", line ").count(), 20);
    assert!(said.contains("and 31 more lines are invalid"), "{said}");
}

/// Also in a dump of Exim's own database.
#[test]
fn what_no_check_can_have_written_is_refused_with_its_line() {
    let spool = tempfile::tempdir().unwrap();
    let file = spool.path().join("import");
    let path = file.to_str().unwrap();
    let good = r#"{"key":"1h/per_mail/a","rate":1,"limit":2,"seconds":1795170000,"micros":0,"over_since":0}"#;
    for (from, to, words) in [
        (r#""rate":1"#, r#""rate":-9e18"#, "its rate: -9e18 is not a number from 0 to 1e18"),
        (r#""rate":1"#, r#""rate":1e308"#, "its rate: 1e308 is not"),
        (r#""rate":1"#, r#""rate":"nan""#, "its rate: NaN is not"),
        (r#""rate":1"#, r#""rate":"inf""#, "its rate: inf is not"),
        (r#""limit":2"#, r#""limit":-1"#, "its limit: -1.0 is not a number from 0 to 1e18, or inf"),
        (r#""limit":2"#, r#""limit":1e308"#, "its limit: 1e308 is not"),
        ("1795170000", "-5", "its time: -5 is a time before 1970"),
        ("1795170000", "253402300799", "its time: 253402300799 is a time more than a year ahead"),
        ("1795170000", "9000000000000", "its time: 9000000000000 is a time more than a year"),
        (r#""over_since":0"#, r#""over_since":-1"#, "expected u32"),
        (r#""over_since":0"#, r#""over_since":4294967295"#, "its over_since: 4294967295 is"),
        (r#""over_since":0"#, r#""over_since":0,"crossings":-1"#, "expected u32"),
        (
            r#""over_since":0"#,
            r#""over_since":0,"filter":{"since":-9000000000000000000,"bits":"AA=="}"#,
            "its filter: -9000000000000000000 is a time before 1970",
        ),
    ] {
        let lines = [r#"{"exirate_export":1}"#, &good.replace(from, to)];
        assert_ne!(lines[1], good, "{from}");
        std::fs::write(&file, lines.join("\n")).unwrap();
        let output = run(spool.path(), &["import", path]);
        assert_eq!(output.status.code(), Some(2), "{to}");
        let said = stderr(&output);
        assert!(said.contains("import, line 2: ") && said.contains(words), "{to}: {said}");
    }
    for (time, rate, words) in [
        ("20-Nov-2026 11:50:37.000000", "-9e18", "its rate: -9e18 is not"),
        ("20-Nov-2026 11:50:37.000000", "1e308", "its rate: 1e308 is not"),
        ("20-Nov-2026 11:50:37.000000", "nan", "its rate: NaN is not"),
        ("20-Nov-2026 11:50:37.000000", "inf", "its rate: inf is not"),
        ("20-Nov-9999 11:50:37.000000", "1", "a time more than a year ahead"),
        ("20-Nov-1960 11:50:37.000000", "1", "is a time before 1970"),
    ] {
        std::fs::write(&file, format!("{time} rate: {rate} key: 1h/per_mail/a\n")).unwrap();
        let output = run(spool.path(), &["import", path]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("import, line 1: ") && said.contains(words), "{said}");
    }
    assert_eq!(list(spool.path()).len(), 0);
}

#[test]
fn an_export_of_a_later_version_is_imported_without_its_new_fields() {
    let (from, to) = (prepared(), tempfile::tempdir().unwrap());
    let later = String::from_utf8(export(from.path())).unwrap();
    let later = later.replace(r#","rate":"#, r#","colour":"red","rate":"#);
    let file = to.path().join("export.jsonl");
    std::fs::write(&file, &later).unwrap();
    let output = run(to.path(), &["import", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let warning =
        "the export has fields that this version does not know, which were left out: colour\n";
    assert!(stdout(&output).ends_with(warning), "{}", stdout(&output));
    let sorted = |spool: &Path| {
        let mut lines: Vec<_> = export(spool).split(|&b| b == b'\n').map(<[u8]>::to_vec).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(to.path()), sorted(from.path()));
}

#[test]
fn a_file_of_another_kind_is_refused() {
    let spool = tempfile::tempdir().unwrap();
    let file = spool.path().join("file");
    let path = file.to_str().unwrap();
    for (text, words) in [
        ("", "is empty: expected the output of `exirate export`"),
        ("\n\n", "is empty"),
        ("[]\n", "line 1: it is neither a line of exim_dumpdb"),
        (
            "{\"exirate_export\":2}\n",
            "is of format version 2, and this exirate knows no version above 1: use the later",
        ),
        ("{\"exirate_export\":1,\"key\":\"12\"}\n", "32 hexadecimal digits"),
        ("** Failed to open database lock file x\n", "exim_dumpdb says: Failed to open"),
    ] {
        std::fs::write(&file, text).unwrap();
        let output = run(spool.path(), &["import", path]);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(stderr(&output).contains(words), "{text}: {}", stderr(&output));
        assert!(!spool.path().join("exirate").exists(), "{text}: it made a database");
    }
}
