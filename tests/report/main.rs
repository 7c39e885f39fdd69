//! The page of `exirate report` in a real browser.

#![cfg(feature = "cli")]
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod display;
mod joined;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use kit::browser::Browser;
use kit::demonstration;
use serde_json::Value;

/// Logins that would be markup, that would drive a terminal, or that hide what they are.
fn hostile() -> Vec<String> {
    let texts = [
        "</script><script>document.title='owned'</script>",
        "<img/src='http://192.0.2.1/x'/onerror=\"document.title='owned'\">",
        "<!--<script>",
        "javascript:document.title='owned'",
        "&lt;b&gt;&amp;",
        "__proto__",
        "constructor",
        "\u{1b}]0;owned\u{7}\u{1b}[2J",
        "\u{202e}gro.elpmaxe@ecila\u{2066}\u{200f}",
        "\u{2028}\u{2029}\u{feff}x",
        "'`${document.title='owned'}",
    ];
    let long = format!("{}@example.org", "w".repeat(10_000));
    texts.iter().map(|text| (*text).to_owned()).chain([long]).collect()
}

fn exirate(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_exirate"));
    command.args(arguments).current_dir(folder).output().unwrap()
}

/// A folder with `page.html` of this log and the demonstration's policy.
fn page(log: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("spool")).unwrap();
    std::fs::write(folder.path().join("mainlog"), log).unwrap();
    std::fs::write(folder.path().join("policy.toml"), demonstration::POLICY).unwrap();
    let page = folder.path().join("page.html");
    let arguments = ["report", "mainlog", "--policy", "policy.toml", "--output", "page.html"];
    let output = exirate(folder.path(), &[&arguments[..], &["--spool", "spool"]].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    (folder, page)
}

/// The texts of the first cells of the rows that the table of identities shows.
fn rows(browser: &mut Browser) -> Vec<String> {
    let rows = browser.value(
        "[...document.querySelectorAll('#identities tbody')].slice(0, 1)
             .flatMap((body) => [...body.rows].map((row) => row.cells[0].textContent))",
    );
    rows.as_array().unwrap().iter().map(|row| row.as_str().unwrap().to_owned()).collect()
}

fn search(browser: &mut Browser, text: &str) -> Vec<String> {
    let text = Value::from(text);
    browser.value(&format!(
        "{{ const box = document.querySelector('#identities input[type=search]');
            box.value = {text}; box.dispatchEvent(new Event('input')); }}"
    ));
    rows(browser)
}

/// Opens the table of so many logins, which begins with its first rows.
fn show_more(browser: &mut Browser, logins: usize) {
    let first = format!("The first 10 of {logins}");
    assert_eq!(text(browser, "#identities [role=status]"), first);
    assert_eq!(rows(browser).len(), 10);
    let more = if logins <= 50 { "Show all" } else { "Show more" };
    browser.value(&format!(
        "[...document.querySelectorAll('#identities button')]
             .find((button) => button.textContent === '{more}').click()"
    ));
    assert_eq!(rows(browser).len(), logins.min(50));
}

/// What the slider says for a limit.
fn answer(browser: &mut Browser, limit: impl Into<Value>) -> String {
    let limit = limit.into();
    browser.value(&format!(
        "{{ const box = document.getElementById('exact');
            box.value = {limit}; box.dispatchEvent(new Event('input')); }}"
    ));
    text(browser, "#answer")
}

/// The text of the first element; its spaces break everywhere.
fn text(browser: &mut Browser, selector: &str) -> String {
    let text = browser.value(&format!("document.querySelector('{selector}').textContent"));
    text.as_str().unwrap().replace('\u{a0}', " ")
}

#[test]
fn the_page_answers_without_the_network_or_a_complaint() {
    let (_folder, file) = page(&demonstration::log(60));
    let mut browser = Browser::start();
    browser.open(&file);
    assert_eq!(browser.value("document.documentElement.dataset.ready"), "yes");
    // The picture in the README: WRITE_PICTURES=1 cargo test --test report
    let picture = browser.picture(1100, 625);
    assert!(picture.starts_with(b"\x89PNG") && picture.len() < 200_000, "{}", picture.len());
    if std::env::var_os("WRITE_PICTURES").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/report.png"), picture).unwrap();
    }

    // Whose account was stolen? The table begins with the highest peak.
    // It begins with what it is opened for, and a table with its first rows.
    assert_eq!(browser.value("document.querySelector('main').firstElementChild.id"), "limit");
    show_more(&mut browser, 62);
    let first = rows(&mut browser);
    assert_eq!(first[..2], ["carl@example.org", "alice@example.org"]);
    // Which limit hits nobody honest?
    assert!(answer(&mut browser, 500.0).contains("hit 1 of 62 logins"));
    assert!(answer(&mut browser, 100.0).contains("hit 2 of 62 logins"));
    assert!(answer(&mut browser, 9999.0).contains("hit 0 of 62 logins"));
    // The slider does the same by keys.
    browser.value("document.getElementById('slider').focus()");
    browser.press("Home", 36);
    let all = text(&mut browser, "#answer");
    browser.press("End", 35);
    assert!(text(&mut browser, "#answer").contains("hit 0 of 62 logins"), "{all}");
    assert!(!all.contains("hit 0 of"), "{all}");

    // Why was Alice refused on Tuesday? Found by search, chosen by a key.
    assert_eq!(search(&mut browser, "ALICE"), ["alice@example.org"]);
    browser.value("document.querySelector('#identities tbody button').focus()");
    browser.press("Enter", 13);
    let detail = text(&mut browser, "#detail");
    for part in ["recipients", "100/1h", "users", "2026-10-20 10:0", "Tue", "member"] {
        assert!(detail.contains(part), "{part}: {detail}");
    }
    browser.press("Escape", 27);

    // By another column, up and down.
    search(&mut browser, "");
    let sort = "document.querySelector('#identities thead button').click();
        document.querySelector('#identities thead th').getAttribute('aria-sort')";
    assert_eq!(browser.value(sort), "ascending");
    assert_eq!(rows(&mut browser)[0], "alice@example.org");
    assert_eq!(browser.value(sort), "descending");
    assert_eq!(rows(&mut browser)[0], "user000059@example.org");
    assert_eq!(browser.complaints(&file), Vec::<String>::new());

    // All controls have names, tables captions and charts titles.
    for unnamed in [
        "input:not(label input)",
        "table:not([aria-labelledby])",
        "svg:not(:has(> title))",
        "th:not([scope]):not(:empty)",
        "button:empty",
    ] {
        let found = browser.value(&format!("document.querySelectorAll('{unnamed}').length"));
        assert_eq!(found, 0, "{unnamed}");
    }
    // As it is opened.
    browser.open(&file);
    display::limits_are_compared_exactly(&mut browser);
    display::what_is_no_limit_is_said(&mut browser);
    display::each_key_moves_the_slider(&mut browser);
    display::details_come_and_go(&mut browser);
    display::tables_say_what_they_show(&mut browser);
    display::every_text_has_contrast(&mut browser);
    display::all_is_printed(&mut browser);
    display::every_width_is_used(&mut browser);
    display::addresses_break_at_their_parts(&mut browser);
    assert_eq!(browser.complaints(&file), Vec::<String>::new());

    // What is not the page's own script does not run: the policy is there, and complaints are
    // found.
    browser.value(
        "document.body.append(Object.assign(document.createElement('script'),
             { textContent: 'document.title = \"owned\"' }));
         new Image().src = 'http://192.0.2.1/x';",
    );
    assert_eq!(browser.value("document.title === 'owned'"), false);
    let complaints = browser.complaints(&file).join("\n");
    assert!(complaints.contains("script-src"), "{complaints}");
    assert!(complaints.contains("192.0.2.1"), "{complaints}");

    hostile_texts_stay_texts(&mut browser);
    a_database_is_shown(&mut browser);
    joined::shared_keys_are_said(&mut browser);
}

/// In the same browser, as its start takes longest.
fn hostile_texts_stay_texts(browser: &mut Browser) {
    let logins = hostile();
    let (_folder, file) = page(&demonstration::lines_of(&logins));
    browser.open(&file);
    show_more(browser, logins.len());
    let shown = rows(browser);
    for login in ["</script><script>document.title='owned'</script>", "__proto__", "&lt;b&gt;&amp;"]
    {
        assert!(shown.iter().any(|one| one == login), "{login}: {shown:?}");
    }
    let all = shown.concat();
    for hidden in ['\u{1b}', '\u{7}', '\u{202e}', '\u{2066}', '\u{200f}', '\u{2028}', '\u{feff}'] {
        assert!(!all.contains(hidden), "{hidden:?}");
    }
    // Its domain is shown as the DNS has it.
    assert!(all.contains(r"\u{202e}gro.elpmaxe@xn--ecila-eu3b6y"), "{all}");
    assert!(shown.iter().all(|one| one.chars().count() < 200), "a long name is cut");
    // Each can be chosen, and is in the details as text.
    let chosen = "[...document.querySelectorAll('#identities tbody button')].map((one) => {
            one.click();
            const detail = document.getElementById('detail');
            return detail.scrollWidth - detail.clientWidth;
        })";
    let too_wide = browser.value(chosen);
    assert_eq!(too_wide, serde_json::json!(vec![0; logins.len()]), "at the width of a telephone");
    browser.value("document.getElementById('detail').close()");
    let made = "document.querySelectorAll('img, iframe, [onerror]').length
        + document.scripts.length + ' ' + document.title";
    assert_eq!(browser.value(made), "2 exirate: sending rates");
    assert_eq!(browser.complaints(&file), Vec::<String>::new());
}

/// Who is over a limit, who is close to it, and the crossing.
fn a_database_is_shown(browser: &mut Browser) {
    let folder = tempfile::tempdir().unwrap();
    let spool = folder.path().to_str().unwrap();
    // Two of one text came before the crossing.
    let words: Vec<String> = (0..60).map(|n| format!("word{}", n * 7919 % 1000)).collect();
    let message = format!("From: a@x.test\nSubject: x\n\n{}\n", words.join(" "));
    for name in ["one", "other"] {
        std::fs::write(folder.path().join(name), &message).unwrap();
    }
    let envelope = ["--auth", "alice<b>", "--client", "192.0.2.7", "--to", "a@x.test,b@y.test"];
    let record = [&["trace", "record", "one", "other", "--spool", spool][..], &envelope].concat();
    let recorded = exirate(folder.path(), &record);
    assert_eq!(recorded.status.code(), Some(0), "{recorded:?}");
    for (key, cost) in [("alice<b>", "130"), ("bob", "85"), ("carol", "5")] {
        let check =
            ["check", "--count", "100 / 1w / per_rcpt / strict", "--key", key, "--cost", cost];
        exirate(folder.path(), &[&check[..], &["--spool", spool]].concat());
    }
    let page = folder.path().join("page.html");
    let output = exirate(folder.path(), &["report", "--output", "page.html", "--spool", spool]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    browser.open(&page);
    let tables = browser.value(
        "[...document.querySelectorAll('#now tbody')].map((body) =>
             [...body.rows].map((row) => [...row.cells].map((cell) => cell.textContent).join(' ')).join())",
    );
    let tables: Vec<&str> =
        tables.as_array().unwrap().iter().map(|table| table.as_str().unwrap()).collect();
    let [over, close, crossings, ..] = tables[..] else { panic!("{tables:?}") };
    assert!(over.contains("alice<b>") && over.contains("130\u{a0}%"), "{over}");
    assert!(close.contains("bob") && close.contains("85\u{a0}%"), "{close}");
    assert!(crossings.contains("alice<b>") && crossings.contains("100 in 1w"), "{crossings}");
    let judgement = "one text, sent again and again: 2 messages, to 2 recipients in 2 domains";
    assert!(crossings.contains(judgement), "{crossings}");
    assert!(!tables.concat().contains("carol"), "{tables:?}");
    assert_eq!(browser.complaints(&page), Vec::<String>::new());
}

#[test]
fn the_data_is_what_measure_and_simulate_say() {
    let (folder, _) = page(&demonstration::log(60));
    let json = |arguments: &[&str]| -> Value {
        let output = exirate(folder.path(), arguments);
        assert!(output.stderr.is_empty(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let policy = ["--policy", "policy.toml", "mainlog", "--json"];
    let page = ["report", "--output", "-", "--spool", "spool"];
    let page = json(&[&page[..], &policy].concat());
    let measured =
        json(&["measure", "1h", "mainlog", "--by", "auth", "--count", "recipients", "--json"]);
    let (log, rates) = (&page["log"], measured["rates"].as_array().unwrap());
    let names = log["names"].as_array().unwrap();
    assert_eq!((names.len(), rates.len()), (62, 62));
    for rate in rates {
        let number = names.iter().position(|name| *name == rate["key"]).unwrap();
        let (peak, shown) = (rate["peak"].as_f64().unwrap(), &log["peaks"][number]);
        // Limits are compared with it: it is not rounded.
        assert_eq!(shown.as_f64(), Some(peak), "{rate}");
        assert_eq!(rate["events"], log["messages"][number]);
    }
    let numbers = |all: &Value| all.as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum();
    let heat: u64 = log["heat"].as_array().unwrap().iter().map(numbers).sum();
    assert_eq!((heat, numbers(&log["messages"])), (log["total"].as_u64().unwrap(), heat));
    // Of the night from Friday to Saturday are all messages of the stolen account.
    assert_eq!(log["heat"][5][3].as_u64().unwrap() + log["heat"][5][4].as_u64().unwrap(), 900);

    let simulated = json(&[&["simulate"][..], &policy].concat());
    let fields = |all: &Value, key: fn(&Value) -> &Value| -> Vec<Value> {
        let limits = key(all)["limits"].as_array().unwrap().iter();
        limits.map(|one| serde_json::json!([one["key"], one["window"], one["refused"]])).collect()
    };
    let limits = fields(&simulated, |all| all);
    assert_eq!(fields(&page, |all| &all["policy"]), limits);
    assert_eq!(limits.len(), 2, "{limits:?}");
    assert_eq!(page["policy"]["refused"], simulated["refused"]);
}

#[test]
fn what_is_wrong_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let log = "2026-11-20 11:31:07 1vM1aB-000000001Ab-1aBc <= bob@x.test H=(pc) [192.0.2.9] \
               P=esmtp S=2048\n";
    std::fs::write(folder.path().join("mainlog"), log).unwrap();
    for (arguments, message) in [
        (&["mainlog"][..], "--output <FILE>"),
        (&["mainlog", "-o", "p.html"], "the log shows no logins: give another --by"),
        (&["absent", "-o", "p.html"], "absent"),
        (&["mainlog", "-o", "p.html", "--limit", "0"], "expected a number above 0"),
        (&["mainlog", "-o", "p.html", "--period", "1h,1d"], "expected one period"),
        (&["mainlog", "-o", "p.html", "--policy", "absent.toml"], "absent.toml"),
        (
            &["mainlog", "-o", "no/such/p.html", "--by", "host", "--count", "messages"],
            "cannot write no/such/p.html",
        ),
    ] {
        let output = exirate(folder.path(), &[&["report"][..], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(errors.contains(message), "{errors}");
    }
    assert!(!folder.path().join("p.html").exists());
}

/// On a terminal, which `script` makes.
#[test]
fn a_progress_bar_is_shown_and_wiped_away() {
    let (folder, _) = page(&demonstration::log(60));
    let command = format!(
        "stty rows 24 cols 100; {} report mainlog --output page.html --spool spool",
        kit::shell_quoted(env!("CARGO_BIN_EXE_exirate"))
    );
    let output = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .envs([("TERM", "xterm-256color"), ("SHELL", "/bin/sh")])
        .env_remove("NO_COLOR")
        .current_dir(folder.path())
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let shown = String::from_utf8(output.stdout).unwrap().replace(',', "");
    let size = std::fs::metadata(folder.path().join("mainlog")).unwrap().len();
    let (bar, rest) = shown.rsplit_once(" left").unwrap_or_else(|| panic!("{shown:?}"));
    assert!(bar.contains("bytes ") && bar.contains(&format!("/{size} ")), "{shown:?}");
    // The line is erased before the result is written.
    let (_, result) = rest.split_once("\u{1b}[2K").unwrap_or_else(|| panic!("{shown:?}"));
    assert!(result.contains("page.html: ") && !result.contains("bytes"), "{shown:?}");
}

/// Writes the demonstration's log, policy and page to a folder, to look at them:
/// `EXIRATE_DEMONSTRATION=DIR cargo test --test report demonstration -- --ignored`.
#[test]
#[ignore = "writes files to look at"]
fn write_the_demonstration() {
    let target = std::env::var_os("EXIRATE_DEMONSTRATION").expect("EXIRATE_DEMONSTRATION=DIR");
    let (folder, _) = page(&demonstration::log(400));
    std::fs::create_dir_all(&target).unwrap();
    for name in ["mainlog", "policy.toml", "page.html"] {
        std::fs::copy(folder.path().join(name), Path::new(&target).join(name)).unwrap();
    }
}
