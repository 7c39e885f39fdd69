//! `exirate trace query`.

use super::{BOUNCE, LEAK, LUNCH, PLAN, Q3, answer, busy, ids, passed, pipe, trace};
use serde_json::Value;

use crate::{json, mail, stderr, stdout};

#[test]
fn a_text_is_found_in_every_message_that_carried_it() {
    let spool = passed();
    let spool = spool.path();
    // In one of them it is quoted, and broken into other lines.
    let text = "here are the figures you asked for. As we feared, the margin of the northern \
                branch fell to four percent in the third quarter";
    assert_eq!(ids(spool, &["--text", text]), [Q3, LEAK]);
    assert_eq!(ids(spool, &["--text", &text.to_uppercase()]), [Q3, LEAK]);
    assert_eq!(
        ids(spool, &["--text", "Not from me. And do look at the last line \u{2013}"]),
        [LEAK]
    );
    assert_eq!(
        ids(spool, &["--text", "From there it is a short way back to the office."]),
        [LUNCH]
    );
    assert_eq!(
        ids(spool, &["--text", "mail delivery failed: returning message to sender"]),
        [BOUNCE]
    );
    let none: [&str; 0] = [];
    let other = "The figures that you were promised will not be there before January, for the \
                 colleagues of the southern branch have been ill since the end of summer.";
    assert_eq!(ids(spool, &["--text", other]), none);

    let answer = answer(spool, &["--text", text]);
    let found = &answer["found"][0];
    assert_eq!(found["time"], "2026-11-18T09:12:04Z");
    assert_eq!(found["sender"], "alice@example.org");
    assert_eq!(found["recipients"], serde_json::json!(["bob@example.org"]));
    assert_eq!(found["client"], "192.0.2.7");
    assert_eq!((&answer["searched"], &answer["matches"]), (&5.into(), &2.into()));
    assert_eq!(answer["parts"][0]["text"], text.to_lowercase());
}

#[test]
fn the_probability_of_a_false_result_is_shown() {
    let spool = busy();
    let text = "As we feared, the margin of the northern branch fell to four percent in the third \
                quarter, while the southern one has held its ground. Please keep this among us \
                until the board has met in December.";
    let long = answer(spool.path(), &["--text", text]);
    assert_eq!((&long["searched"], &long["matches"]), (&405.into(), &2.into()));
    let chance = |answer: &Value| answer["found"][0]["chance"].as_f64().unwrap();
    assert!(chance(&long) > 0.0 && chance(&long) < 1e-4, "{long}");
    let expected = long["false_expected"].as_f64().unwrap();
    assert!(expected > 0.0 && expected < 0.02, "{long}");
    // Shorter texts give less certain results.
    let (mut seen, mut said) = (0.0, 0.0);
    for start in [0, 20, 50, 80, 110, 140] {
        let short = answer(spool.path(), &["--text", &text[start..start + 40]]);
        assert!(chance(&short) > 100.0 * chance(&long), "{short}");
        let found = short["found"].as_array().unwrap();
        let is_ours = |message: &&Value| [Q3, LEAK].contains(&message["id"].as_str().unwrap());
        assert_eq!(found.iter().filter(is_ours).count(), 2, "none is missed");
        seen += found.len() as f64 - 2.0;
        said += short["false_expected"].as_f64().unwrap();
    }
    assert!(seen > said / 4.0 && seen < 4.0 * said, "{seen} {said}");
}

#[test]
fn the_length_of_a_text_and_the_sufficient_length_are_shown() {
    let spool = busy();
    let last = |arguments: &[&str]| {
        let output = trace(spool.path(), &[&["query"], arguments].concat());
        stdout(&output).lines().last().unwrap().to_owned()
    };
    let text = "As we feared, the margin of the northern branch fell to four percent in the third \
                quarter, while the southern one has held its ground. Please keep this among us \
                until the board has met in December.";
    let said = last(&["--text", &text[..40]]);
    let start = "searched for 40 bytes of text; the minimum is 15, and with about ";
    let rest = said.strip_prefix(start).unwrap_or_else(|| panic!("{said}"));
    let (enough, rest) = rest.split_once(' ').unwrap();
    assert_eq!(rest, "one query in 100 has a false result");
    let enough: usize = enough.parse().unwrap();
    assert!((60..=300).contains(&enough), "{said}");
    // It is no promise, but not far from what there will be.
    let longer = answer(spool.path(), &["--text", &text[..enough.min(text.len())]]);
    assert!(longer["false_expected"].as_f64().unwrap() < 0.2, "{enough} {longer}");
    // What is long enough is not said to be too short.
    let said = last(&["--text", &text.repeat(3)]);
    assert!(said.ends_with("the minimum is 15"), "{said}");
    assert!(!last(&["--from", "alice@example.org"]).contains("bytes"));
}

#[test]
fn what_is_found_by_chance_does_not_bury_the_rest() {
    let spool = busy();
    // So short that it is in a good part of all messages by chance.
    let arguments = ["query", "--text", "the last line \u{2013} ok"];
    let said = stdout(&trace(spool.path(), &arguments));
    let answer = answer(spool.path(), &arguments[1..]);
    let matches = answer["matches"].as_u64().unwrap();
    let found = answer["found"].as_array().unwrap();
    assert_eq!(found.len() as u64, matches, "JSON has all");
    assert!(answer["false_expected"].as_f64().unwrap() >= 10.0, "{answer}");
    assert!(found.is_sorted_by_key(|message| message["chance"].as_f64()), "{answer}");
    if let Some(more) = matches.checked_sub(100).filter(|more| *more > 0) {
        assert!(said.contains(&format!("\nand {more} more, with --limit {matches}\n")), "{said}");
    }
    assert!(said.lines().count() <= 104, "{said}");
    let all = [&arguments[..], &["--limit", "1000"]].concat();
    assert_eq!(stdout(&trace(spool.path(), &all)).lines().count() as u64, matches + 3);
}

#[test]
fn a_file_can_be_queried_in_two_ways_at_once() {
    let spool = busy();
    let spool = spool.path();
    let file = spool.join("plan.pdf");
    std::fs::write(&file, mail::plan()).unwrap();
    let path = file.to_str().unwrap();
    let expected =
        |arguments: &[&str]| answer(spool, arguments)["false_expected"].as_f64().unwrap();
    let whole = expected(&["--attachment", path]);
    let both = expected(&["--attachment", path, "--bytes", path]);
    assert!(both < whole / 1e6, "{whole} {both}");
    // The hint is printed where it would help.
    let output = trace(spool, &["query", "--attachment", path]);
    assert_eq!(stderr(&output).contains("the same file by --bytes as well"), whole > 0.01);
    assert_eq!(stderr(&trace(spool, &["query", "--attachment", path, "--bytes", path])), "");
}

#[test]
fn what_is_no_address_is_doubted() {
    let spool = passed();
    let output = trace(spool.path(), &["query", "--from", "alice", "--to", "bob@example.org"]);
    assert_eq!(
        stderr(&output),
        "exirate: note: alice is not a whole address: 'alice@*' is that name at any domain, '*@alice' \
         all names at that domain\n"
    );
}

#[test]
fn parts_must_all_have_been_carried() {
    let spool = passed();
    let spool = spool.path();
    let one = "the figures you asked for. as we feared, the margin";
    let two = "keep this among us until the board has met in december";
    let none: [&str; 0] = [];
    for arguments in [&["--text", &format!("{one} * {two}")][..], &["--text", one, "--text", two]] {
        let mut found = ids(spool, arguments);
        found.sort();
        assert_eq!(found, [Q3, LEAK]);
    }
    let other = "The new place by the river has a table for three at half past twelve.";
    assert_eq!(ids(spool, &["--text", &format!("{one} * {other}")]), none);
    assert_eq!(ids(spool, &["--text", one, "--text", other]), none);
    // In a file it is an asterisk.
    let file = format!("{one} * {two}");
    let parts = &json(&pipe(spool, &["query", "--json", "--file", "-"], file.as_bytes()))["parts"];
    assert_eq!((parts.as_array().unwrap().len(), &parts[0]["text"]), (1, &file.into()));
}

#[test]
fn a_text_may_come_from_files() {
    let spool = passed();
    let spool = spool.path();
    let file = spool.join("page.txt");
    std::fs::write(&file, "As we feared, the margin of\r\nthe northern branch\r\n").unwrap();
    let mut found = ids(spool, &["--file", file.to_str().unwrap()]);
    found.sort();
    assert_eq!(found, [Q3, LEAK]);
    let output = pipe(spool, &["query", "--file", "-"], b"> here are\n> the figures you asked for");
    let said = stdout(&output);
    assert!(said.contains(Q3) && said.contains(LEAK), "{said}");
    let dash = b"look at the last line \x96";
    assert_eq!(pipe(spool, &["query", "--file", "-"], dash).status.code(), Some(2));
    let output = pipe(spool, &["query", "--file", "-", "--charset", "windows-1252"], dash);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let wide: Vec<u8> = std::iter::once(0xfeff)
        .chain("until the board has met in December".encode_utf16())
        .flat_map(u16::to_le_bytes)
        .collect();
    assert_eq!(pipe(spool, &["query", "--file", "-"], &wide).status.code(), Some(0));
}

#[test]
fn an_attachment_is_found_whole_in_part_and_by_name() {
    let spool = busy();
    let spool = spool.path();
    let (file, none): (_, [&str; 0]) = (spool.join("plan.pdf"), []);
    let path = file.to_str().unwrap();
    std::fs::write(&file, mail::plan()).unwrap();
    assert_eq!(ids(spool, &["--attachment", path]), [PLAN]);
    assert_eq!(ids(spool, &["--attachment", path, "--bytes", path]), [PLAN]);
    // So long that it is in no other by chance.
    std::fs::write(&file, &mail::plan()[1000..9000]).unwrap();
    assert_eq!(ids(spool, &["--attachment", path]), none);
    assert_eq!(ids(spool, &["--bytes", path]), [PLAN]);
    // A part of it is of another plan.
    let mut other = mail::plan();
    other[17_000..].reverse();
    std::fs::write(&file, &other).unwrap();
    assert_eq!(ids(spool, &["--attachment", path]), none);
    assert_eq!(ids(spool, &["--bytes", path]), none);
    assert_eq!(ids(spool, &["--attachment", path, "--at-least", "75%"]), [PLAN]);
    let text = "Here is the plan of the second floor, as it was approved.";
    assert!(ids(spool, &["--text", text]).contains(&PLAN.to_owned()));
}

#[test]
fn edited_text_is_found_by_what_is_left_of_it() {
    let spool = busy();
    let spool = spool.path();
    let text = "here are the figures you asked for. As we feared, the margin of the northern \
                branch fell to 4.2 percent in the third quarter, while the southern one has held its \
                ground. Please keep this among us until the board has met in December.";
    let none: [&str; 0] = [];
    assert_eq!(ids(spool, &["--text", text]), none);
    // Which of them has more of it depends on what is there by chance.
    let mut found = ids(spool, &["--text", text, "--at-least", "0.7"]);
    found.sort();
    assert_eq!(found, [Q3, LEAK]);
    assert_eq!(ids(spool, &["--text", text, "--at-least", "99%"]), none);
    // The shorter it is, the more of it it takes to tell it from chance.
    for (length, share) in [(40, "100%"), (200, "8")] {
        let nobody = ["--at-least", "50%", "--to", "nobody@example.org"];
        let output = trace(spool, &[&["query", "--text", &text[..length]][..], &nobody].concat());
        let said = stderr(&output);
        let expected = format!("for a text of {length} bytes, a share below about {share}");
        assert!(output.status.code() == Some(1) && said.contains(&expected), "{said}");
    }
    let found = &answer(spool, &["--text", text, "--at-least", "70%"])["found"][0];
    let share = found["present"].as_f64().unwrap() / found["of"].as_f64().unwrap();
    assert!((0.7..1.0).contains(&share), "{found}");
    let output = trace(spool, &["query", "--text", text, "--at-least", "70%"]);
    let head = stdout(&output).lines().next().unwrap().to_owned();
    assert!(head.contains("THERE"), "{head}");
}

#[test]
fn envelopes_narrow_a_query_or_are_the_whole_query() {
    let spool = passed();
    let spool = spool.path();
    let none: [&str; 0] = [];
    let text = ["--text", "until the board has met"];
    assert_eq!(ids(spool, &[&text[..], &["--to", "*@press.example.com"]].concat()), [LEAK]);
    assert_eq!(ids(spool, &["--from", "ALICE@example.org"]), [Q3, LUNCH]);
    assert_eq!(ids(spool, &["--from", "*@example.org", "--to", "*@*.com"]), [LEAK]);
    assert_eq!(
        ids(spool, &["--from", "alice@example.org", "--from", "carol@*"]),
        [Q3, PLAN, LUNCH]
    );
    assert_eq!(ids(spool, &["--from", "<>"]), [BOUNCE]);
    assert_eq!(ids(spool, &["--to", "dora@example.net"]), [LUNCH]);
    assert_eq!(ids(spool, &["--client", "192.0.2.0/24"]), [Q3, PLAN, LUNCH]);
    assert_eq!(ids(spool, &["--client", "192.0.2.31"]), [PLAN]);
    for id in [LUNCH, &format!("{LUNCH}-H"), &format!("<E{LUNCH}@mail.example.org>")] {
        assert_eq!(ids(spool, &["--id", id]), [LUNCH]);
        assert_eq!(ids(spool, &["--id", id, "--id", Q3, "--id", "1vM1aB-0001Ab-1a"]), [Q3, LUNCH]);
    }
    assert_eq!(ids(spool, &["--since", "2026-11-20T11:02:33Z"]), [LUNCH, BOUNCE]);
    assert_eq!(ids(spool, &["--until", "2026-11-20T11:02:32Z"]), [Q3, LEAK, PLAN]);
    assert_eq!(ids(spool, &["--until", "2026-11-19T10:55:30Z"]), [Q3, LEAK]);
    assert_eq!(ids(spool, &["--since", "2027-01-01"]), none);
    let output = trace(spool, &["query", "--from", "alice@example.org"]);
    let said = stdout(&output);
    assert!(said.ends_with("\n2 of 5 messages\n") && !said.contains("FALSE"), "{said}");
}

#[test]
fn short_ids_are_ids_as_well() {
    let spool = tempfile::tempdir().unwrap();
    let message = b"Subject: x\n\nnothing of note";
    pipe(spool.path(), &["record", "--id", "1vM1aB-0001Ab-1a", "-"], message);
    assert_eq!(ids(spool.path(), &["--id", "1vM1aB-0001Ab-1a-D"]), ["1vM1aB-0001Ab-1a"]);
    let output = trace(spool.path(), &["query", "--id", "1vM1aB-0001Ab"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("does not have the form of an Exim message id"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn what_is_looked_for_can_be_seen() {
    let spool = passed();
    let text = "\u{201c}The  MARGIN\nof\u{201d} * the northern\u{200b} branch";
    let output = trace(spool.path(), &["query", "--explain", "--text", text]);
    let said = stdout(&output);
    assert!(said.contains("part 1, 15 bytes of text: \"the margin of\"\n"), "{said}");
    assert!(said.contains("part 2, 19 bytes of text: the northern branch\n"), "{said}");
}

#[test]
fn only_the_first_are_shown_if_that_is_wanted() {
    let spool = passed();
    let output = trace(spool.path(), &["query", "--since", "@0", "--limit", "2", "--sort", "time"]);
    let said = stdout(&output);
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[1].contains(Q3) && lines[2].contains(LEAK), "{said}");
    assert_eq!(lines[3..], ["and 3 more, without --limit", "5 of 5 messages"], "{said}");
}

#[test]
fn what_was_not_recorded_whole_may_have_carried_it_too() {
    let spool = passed();
    let spool = spool.path();
    let text = "what leaked is in the part after so many that nobody has counted them";
    let parts = "--b\n\n".repeat(10_001);
    let message = format!(
        "Subject: the minutes of the meeting\nContent-Type: multipart/mixed; boundary=b\n\n{parts}--b\n\n{text}\n--b--\n"
    );
    let id = "1vM1aB-000000001Ab-1aBc";
    pipe(spool, &["record", "--id", id, "-"], message.as_bytes());
    let said = |arguments: &[&str]| stderr(&trace(spool, &[&["query"], arguments].concat()));
    let whole =
        "1 message that is not listed was not recorded whole, and may have contained it too";
    assert_eq!(said(&["--text", text]), format!("exirate: note: {whole}\n"));
    let answer = answer(spool, &["--text", text]);
    assert_eq!((&answer["matches"], &answer["partial"]), (&0.into(), &1.into()), "{answer}");
    // Perhaps it is of none that is meant.
    let narrow = said(&["--text", text, "--to", "nobody@example.org"]);
    assert_eq!(narrow, format!("exirate: note: at most {whole}\n"));
    // Where it is found itself, and where nothing is asked that it may hide.
    let found = said(&["--text", "the minutes of the meeting", "--id", id]);
    assert!(!found.contains("not shown"), "{found}");
    let found = said(&["--id", id]);
    assert_eq!(found, "exirate: note: 1 of these messages was not recorded whole\n");
}

/// A sentence of two messages.
const KEPT: &str = "please keep this among us until the board has met in december";

/// A document of other text in which `passage` is.
fn document(passage: &str) -> String {
    let other = |from: u64| -> String {
        (from..from + 12).map(|n| format!("order {:016x}; ", kit::Random::new(n).bits())).collect()
    };
    format!("{}{passage}{}", other(0), other(500))
}

#[test]
fn a_passage_of_a_document_is_found_and_shown() {
    let spool = busy();
    let spool = spool.path();
    let passage = "here are the figures you asked for. As we feared, the margin of the northern \
                   branch fell to four percent in the third quarter, while the southern one has \
                   held its ground. Please keep this among us until the board has met in December.";
    let file = spool.join("document.txt");
    std::fs::write(&file, document(passage)).unwrap();
    let file = file.to_str().unwrap();
    let answer = answer(spool, &["--file", file]);
    let found = answer["found"].as_array().unwrap();
    let mut ids: Vec<&str> = found.iter().map(|found| found["id"].as_str().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, [Q3, LEAK], "{answer}");
    for found in found {
        let text = found["passage"]["text"].as_str().unwrap();
        assert!(text.contains("margin of the northern branch fell to four"), "{text}");
        assert!(text.len() < passage.len() + 60, "{text}");
        assert_eq!(found["passage"]["part"], 1);
        assert!(found["chance"].as_f64().unwrap() < 1e-6, "{found}");
    }
    assert_eq!(answer["false_expected"], Value::Null);
    assert_eq!(answer["parts"][0]["kind"], "passage");
    // The whole document is in none.
    let none: [&str; 0] = [];
    assert_eq!(super::ids(spool, &["--file", file, "--at-least", "100%"]), none);
    let output = trace(spool, &["query", "--text", &document(passage), "--any-passage"]);
    let said = stdout(&output);
    assert!(said.contains("The longest passage in each:") && said.contains(Q3), "{said}");
    let output = trace(spool, &["query", "--file", file, "--format", "csv"]);
    let lines = stdout(&output);
    let columns = |line: &str| line.split(',').count();
    assert!(lines.lines().all(|line| columns(line) == 13), "{lines}");
    assert_eq!(lines.lines().count(), 3);
    // Without the passage, nothing is found.
    let output = trace(spool, &["query", "--text", &document(""), "--any-passage", "--count"]);
    assert_eq!(stdout(&output), "0\n");
}

#[test]
fn how_much_of_an_edited_text_is_evidence_can_be_left_to_the_program() {
    let spool = busy();
    let text = "here are the figures you asked for. As we feared, the margin of the northern \
                branch fell to roughly 4.2 % in the third quarter, while the southern one has \
                held its ground. Please keep that among us until the board has met in December.";
    let answer = answer(spool.path(), &["--text", text, "--at-least", "auto"]);
    let mut first: Vec<&str> = answer["found"].as_array().unwrap()[..2]
        .iter()
        .map(|found| found["id"].as_str().unwrap())
        .collect();
    first.sort_unstable();
    assert_eq!(first, [Q3, LEAK], "{answer}");
    assert_eq!(answer["false_expected"], Value::Null);
}

#[test]
fn results_are_counted_and_written_as_lines() {
    let spool = passed();
    let spool = spool.path();
    let out = |arguments: &[&str]| stdout(&trace(spool, &[&["query"], arguments].concat()));
    assert_eq!(out(&["--from", "alice@example.org", "--count"]), "2\n");
    assert_eq!(out(&["--text", KEPT, "--count"]), "2\n");
    assert_eq!(out(&["--from", "nobody@example.org", "--count"]), "0\n");
    let lines = out(&["--from", "alice@example.org", "--format", "jsonl"]);
    let ids: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["id"].clone())
        .collect();
    assert_eq!(ids, [Q3, LUNCH]);
    let lines = out(&["--id", Q3, "--format", "csv"]);
    assert_eq!(
        lines,
        format!(
            "time,id,sender,recipients,client,authenticated,partial,chance,present,of,\
             passage_start,passage_bytes,in\n2026-11-18T09:12:04Z,{Q3},alice@example.org,\
             bob@example.org,192.0.2.7,,no,,,,,,\n"
        )
    );
    let out = |arguments: &[&str]| stdout(&trace(spool, &[&["export"], arguments].concat()));
    assert_eq!(out(&["--from", "alice@example.org"]).lines().count(), 2);
    assert_eq!(out(&["--client", "192.0.2.31"]).lines().count(), 1);
    assert_eq!(out(&["--partial"]), "");
}

#[test]
fn an_attachment_is_found_by_its_hash() {
    let spool = busy();
    let hash: String =
        exirate::trace::file_hash(&mail::plan()).iter().map(|byte| format!("{byte:02X}")).collect();
    assert_eq!(ids(spool.path(), &["--attachment-sha256", &hash]), [PLAN]);
    let other = hash.replace(&hash[..1], if hash.starts_with('0') { "1" } else { "0" });
    let none: [&str; 0] = [];
    assert_eq!(ids(spool.path(), &["--attachment-sha256", &other]), none);
    let output = trace(spool.path(), &["query", "--attachment-sha256", &hash[1..]]);
    assert!(stderr(&output).contains("64 hexadecimal digits"), "{}", stderr(&output));
}

/// As published: of the exact bytes, also where they have line ends of either kind, or end in
/// one. Without a binary encoding, the line ends are those of the path.
#[test]
fn the_hash_of_a_file_is_that_of_its_bytes() {
    let spool = passed();
    let spool = spool.path();
    let message = |number: usize, part: &str| {
        let id = format!("1vM1aB-00000000{number}Ab-1aBc");
        let message = format!(
            "Subject: a file\nMIME-Version: 1.0\n\
             Content-Type: multipart/mixed; boundary=b\n\n--b\n{part}\n--b--\n"
        );
        pipe(spool, &["record", "--id", &id, "-"], message.as_bytes());
        id
    };
    let pdf = "%PDF-1.4\n1 0 obj<</Type/Catalog>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n";
    let base64 = "JVBERi0xLjQKMSAwIG9iajw8L1R5cGUvQ2F0YWxvZz4+ZW5kb2JqCnRyYWlsZXI8PC9Sb290IDEgMCBSPj4K\n\
                  JSVFT0YK\n";
    let of_pdf = message(
        1,
        &format!("Content-Type: application/pdf\nContent-Transfer-Encoding: base64\n\n{base64}"),
    );
    let rows = "one;two\nthree;four\n";
    let of_rows = message(2, &format!("Content-Type: text/csv; name=a.csv\n\n{rows}"));
    let uu = "begin 644 a.png\n(B5!.1PT*&@H \n`\nend\n";
    let of_png = message(
        3,
        &format!("Content-Type: image/png\nContent-Transfer-Encoding: x-uuencode\n\n{uu}"),
    );
    let file = spool.join("file");
    for (content, id) in [
        (pdf.as_bytes(), Some(&of_pdf)),
        (pdf.trim_end().as_bytes(), None),
        (pdf.replace('\n', "\r\n").as_bytes(), None),
        (rows.as_bytes(), Some(&of_rows)),
        (rows.replace('\n', "\r\n").as_bytes(), Some(&of_rows)),
        (b"\x89PNG\r\n\x1a\n", Some(&of_png)),
        (b"\x89PNG\n\x1a\n", None),
    ] {
        std::fs::write(&file, content).unwrap();
        let hash: String =
            exirate::trace::file_hash(content).iter().map(|byte| format!("{byte:02x}")).collect();
        let expected: Vec<String> = id.into_iter().cloned().collect();
        assert_eq!(
            ids(spool, &["--attachment-sha256", &hash]),
            expected,
            "{}",
            content.escape_ascii()
        );
        assert_eq!(ids(spool, &["--attachment", file.to_str().unwrap()]), expected);
    }
}

/// Programs write it into the header, and mail programs decode it, although MIME has no such
/// encoding.
#[test]
fn a_uuencoded_text_is_found() {
    let spool = passed();
    let text = "The margin of the northern branch fell to four percent in the third quarter";
    let message = "From: alice@example.org\nTo: bob@example.net\nSubject: notes\nMIME-Version: 1.0\n\
         Content-Type: text/plain; charset=\"us-ascii\"; name=\"notes.txt\"\n\
         Content-Transfer-Encoding: x-uuencode\n\n\
         begin 644 notes.txt\n\
         M5&AE(&UA<F=I;B!O9B!T:&4@;F]R=&AE<FX@8G)A;F-H(&9E;&P@=&\\@9F]U\n\
         @<B!P97)C96YT(&EN('1H92!T:&ER9\"!Q=6%R=&5R+@H \n`\nend\n";
    let id = "1vM1aB-000000001Ab-1aBc";
    pipe(spool.path(), &["record", "--id", id, "-"], message.as_bytes());
    assert!(ids(spool.path(), &["--text", text]).contains(&id.to_owned()));
}

#[test]
fn an_excerpt_of_an_attachment_that_is_text_is_found_as_text() {
    let spool = passed();
    let spool = spool.path();
    let rows: String = (0..400).map(|n| format!("{n};part {};{}.50\n", n * n, n * 31)).collect();
    let message = format!(
        "Subject: the list\nContent-Type: text/csv; name=list.csv\n\
         Content-Disposition: attachment\n\n{rows}"
    );
    let id = "1vM1aB-000000001Ab-1aBc";
    pipe(spool, &["record", "--id", id, "-"], message.as_bytes());
    let file = spool.join("piece");
    std::fs::write(&file, &rows[100..5000]).unwrap();
    let output = trace(spool, &["query", "--bytes", file.to_str().unwrap()]);
    assert!(stdout(&output).contains(id), "{}", stderr(&output));
    let said = stderr(&output);
    assert!(said.contains("1 message matches it as text, and 0 as bytes"), "{said}");
}

#[test]
fn a_message_that_matches_as_bytes_and_as_text_counts_once() {
    let spool = passed();
    let spool = spool.path();
    let rows: String = (0..400).map(|n| format!("{n};part {};{}.50\n", n * n, n * 31)).collect();
    let with = |number: usize, binary: bool| {
        let end = if binary { "--b\nContent-Type: application/x; name=list\n\n" } else { "" };
        let more = if binary { format!("\u{1}\0{rows}\0\n") } else { String::new() };
        let message = format!(
            "Subject: the list {number}\nContent-Type: multipart/mixed; boundary=b\n\n\
             --b\nContent-Type: text/csv; name=list.csv\n\n{rows}\n{end}{more}--b--\n"
        );
        let id = format!("1vM1aB-00000000{number}Ab-1aBc");
        let output = pipe(spool, &["record", "--id", &id, "-"], message.as_bytes());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    };
    (1..=5).for_each(|number| with(number, number < 4));
    let file = spool.join("piece");
    std::fs::write(&file, &rows[100..5000]).unwrap();
    let ask = |arguments: &[&str]| {
        let file = ["query", "--bytes", file.to_str().unwrap()];
        let output = trace(spool, &[&file, arguments].concat());
        let said = stderr(&output);
        assert!(said.contains("5 messages match it as text, and 3 as bytes"), "{said}");
        stdout(&output)
    };
    assert_eq!(ask(&["--count"]), "5\n");
    let limited = ask(&["--limit", "1"]);
    assert!(limited.contains("\nand 4 more, without --limit\n5 of 10 messages"), "{limited}");
    assert!(ask(&[]).contains("\n5 of 10 messages"));
}

#[test]
fn the_part_of_a_message_is_shown() {
    let spool = busy();
    let spool = spool.path();
    let parts = |arguments: &[&str]| answer(spool, arguments)["found"][0]["in"].clone();
    let text = "the margin of the northern branch fell to four percent in the third quarter";
    assert_eq!(parts(&["--text", text]), serde_json::json!(["text"]));
    let subject = "mail delivery failed: returning message to sender";
    // Others may match by chance.
    let bounce = ["--text", subject, "--id", BOUNCE];
    assert_eq!(parts(&bounce), serde_json::json!(["subject"]));
    assert_eq!(parts(&["--id", Q3]), Value::Null);
    let file = spool.join("plan.pdf");
    std::fs::write(&file, mail::plan()).unwrap();
    let file = file.to_str().unwrap();
    assert_eq!(parts(&["--attachment", file]), serde_json::json!(["attachment 1"]));
    let out = |arguments: &[&str]| stdout(&trace(spool, &[&["query"], arguments].concat()));
    let shown = out(&["--attachment", file]);
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[0].contains("  IN  ") && lines[1].contains("  attachment 1  "), "{shown}");
    let csv = out(&[&bounce[..], &["--format", "csv"]].concat());
    let lines: Vec<&str> = csv.lines().collect();
    assert!(lines[0].ends_with(",in") && lines[1].ends_with(",subject"), "{csv}");
    // A text with the same in HTML.
    let both = format!(
        "Subject: both\nContent-Type: multipart/alternative; boundary=b\n\n--b\n\n{text}s\n\
         --b\nContent-Type: text/html\n\n<p>{text}s</p>\n--b--\n"
    );
    let id = "1vM1aB-000000001Ab-1aBc";
    pipe(spool, &["record", "--id", id, "-"], both.as_bytes());
    assert_eq!(
        parts(&["--text", &format!("{text}s"), "--id", id]),
        serde_json::json!(["text", "HTML"])
    );
    let shown = out(&["--text", text, "--id", id]);
    assert!(shown.contains("  text or HTML  "), "{shown}");
}

#[test]
fn every_field_of_json_is_documented() {
    let spool = busy();
    let manual = crate::prepared::source("docs/trace.md");
    let passage = "As we feared, the margin of the northern branch fell to four percent in the \
                   third quarter, while the southern one has held its ground. Please keep this \
                   among us until the board has met in December.";
    let text = document(&format!("here are the figures you asked for. {passage}"));
    let answer = answer(spool.path(), &["--text", &text, "--any-passage"]);
    let found = answer["found"][0].as_object().unwrap();
    for field in answer.as_object().unwrap().keys().chain(found.keys()) {
        assert!(manual.contains(&format!("\n| `{field}` | ")), "{field} is not in docs/trace.md");
    }
    let parts = [&answer["parts"][0], &found["passage"]];
    for field in parts.iter().flat_map(|part| part.as_object().unwrap().keys()) {
        assert!(manual.contains(&format!("`{field}`")), "{field} is not in docs/trace.md");
    }
}

#[test]
fn near_identical_messages_are_shown_once() {
    let spool = passed();
    let spool = spool.path();
    let letter = |name: &str| {
        format!(
            "Subject: your ticket\n\nDear {name}, the concert of the northern choir that you have \
             a ticket for begins an hour later than printed, for the bridge is closed on that \
             evening. The doors are open from seven on, and coats can be left at the entrance.\n\n{}\n",
            document("")
        )
    };
    for (n, name) in ["Ada", "Berthold", "Cleo"].into_iter().enumerate() {
        let id = format!("1vM1aB-00000000{n}Ab-1aBc");
        pipe(spool, &["record", "--id", &id, "-"], letter(name).as_bytes());
    }
    let text = "begins an hour later than printed, for the bridge is closed on that evening";
    let all = answer(spool, &["--text", text]);
    assert_eq!((&all["matches"], &all["found"][0]["alike"]), (&3.into(), &Value::Null));
    let grouped = answer(spool, &["--text", text, "--group"]);
    assert_eq!(grouped["found"].as_array().unwrap().len(), 1);
    assert_eq!((&grouped["matches"], &grouped["found"][0]["alike"]), (&3.into(), &3.into()));
    let said = stdout(&trace(spool, &["query", "--since", "@0", "--group"]));
    assert!(said.contains("ALIKE") && said.ends_with("8 of 8 messages\n"), "{said}");
}

#[test]
fn many_questions_are_answered_in_one_run() {
    let spool = passed();
    let lines = format!("{KEPT}\n\nnobody has ever written this line here, and nobody will\n");
    let output = pipe(spool.path(), &["query", "--questions", "-", "--count"], lines.as_bytes());
    assert_eq!(
        stdout(&output),
        format!("2\t{KEPT}\n0\tnobody has ever written this line here, and nobody will\n")
    );
    let output = pipe(spool.path(), &["query", "--questions", "-", "--json"], lines.as_bytes());
    let answers = json(&output);
    assert_eq!((&answers[0]["matches"], &answers[1]["matches"]), (&2.into(), &0.into()));
    let output = pipe(spool.path(), &["query", "--questions", "-"], lines.as_bytes());
    let said = stdout(&output);
    assert!(said.contains(&format!("> {KEPT}\nTIME")) && said.contains("none of 5"), "{said}");
    // The others are answered.
    let lines = format!("too short\n{KEPT}\n");
    let output = pipe(spool.path(), &["query", "--questions", "-", "--count"], lines.as_bytes());
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(stdout(&output), format!("2\t{KEPT}\n"));
    let said = stderr(&output);
    assert!(said.contains("(\"too short\"), and the minimum is 15"), "{said}");
    assert!(said.ends_with("exirate: 1 line was not searched for\n"), "{said}");
    let output = pipe(spool.path(), &["query", "--questions", "-", "--json"], lines.as_bytes());
    let answers: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&answers[0], &answers[1]["matches"]), (&Value::Null, &2.into()));
    let output = pipe(spool.path(), &["query", "--questions", "-"], b" \n");
    assert!(stderr(&output).contains("has no line to search for"), "{}", stderr(&output));
}
