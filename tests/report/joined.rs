//! Whose attempts were refused: a policy's key is another text than an identity of the log,
//! and may be of several.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::{exirate, rows, search, text};
use kit::browser::Browser;

/// A message with one recipient each 10 seconds, in turn of these logins, clients and senders.
fn log_of(who: &[(&str, &str, &str)], messages: u32) -> String {
    let mut log = String::new();
    for n in 0..messages {
        let (login, client, sender) = who[n as usize % who.len()];
        let auth = if login.is_empty() { String::new() } else { format!(" A=plain:{login}") };
        let (hour, minute, second) = (10 + n / 360, n / 6 % 60, n % 6 * 10);
        writeln!(
            log,
            "2026-10-20 {hour:02}:{minute:02}:{second:02} 1v{n:04}-00000000001-1aBc <= {sender} \
             H=(pc.test) [{client}] P=esmtpsa{auth} S=900 for r{n}@example.net"
        )
        .unwrap();
    }
    log
}

/// The page's data of this log and policy, and of the refused attempts how many each value of
/// a field has, as `exirate simulate` shows them one by one.
fn data(
    log: &str,
    policy: &str,
    by: &str,
    field: &str,
) -> (tempfile::TempDir, Value, BTreeMap<String, u64>) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("mainlog"), log).unwrap();
    std::fs::write(folder.path().join("policy.toml"), policy).unwrap();
    let run = |arguments: &[&str]| {
        let arguments = [arguments, &["--policy", "policy.toml", "mainlog", "--json"]].concat();
        String::from_utf8(exirate(folder.path(), &arguments).stdout).unwrap()
    };
    let page = serde_json::from_str(&run(&["report", "--output", "-", "--by", by])).unwrap();
    let mut counts = BTreeMap::new();
    for line in run(&["simulate", "--events"]).lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        if event["retry"] == 0 {
            // The page folds them as the shipped ACLs do.
            *counts.entry(event[field].as_str().unwrap().to_lowercase()).or_default() += 1;
        }
    }
    (folder, page, counts)
}

#[test]
fn refusals_are_of_those_whose_attempts_they_were() {
    let identity = "[identity]\nfold = { case = true, plus = true, dots = [\"x.test\"] }\n\
                    mask = { v4 = 24 }\nqualify = \"x.test\"\n";
    let policy =
        |what: &str| format!("version = 1\n{identity}[policy.p]\nwhen = \"authenticated\"\n{what}");
    let each = policy("default.recipients = \"20/1h\"\n");
    let total = policy("default.total = { recipients = \"20/1h\" }\n");
    let client = policy("key = [\"client\", \"auth\"]\ndefault.recipients = \"20/1h\"\n");
    let who = [
        ("rupert", "192.0.2.7", "a@x.test"),
        ("R.upert+shop@X.test", "192.0.2.9", "b@x.test"),
        ("other@x.test", "198.51.100.1", "a@x.test"),
    ];
    for (policy, who, by, field, key, identities) in [
        // A domain is added, capitals, dots and what follows a plus are left out.
        (&each, &who[..1], "auth", "auth", "auth:rupert@x.test", 1),
        (&each, &who, "auth", "auth", "auth:rupert@x.test", 2),
        // By what the policy does not count by.
        (&each, &who, "sender", "sender", "auth:rupert@x.test", 2),
        (&each, &who, "host", "client", "auth:rupert@x.test", 2),
        // All users of a domain together; a network; several fields, with a comma.
        (&total, &who, "auth", "auth", "domain:x.test", 3),
        (&client, &who, "host", "client", "client:192.0.2.0/24,auth:rupert@x.test", 2),
    ] {
        let (_folder, page, counts) = data(&log_of(who, 150), policy, by, field);
        let (log, policy) = (&page["log"], &page["policy"]);
        let names = log["names"].as_array().unwrap();
        let of = policy["of"].as_array().unwrap();
        let found: BTreeMap<String, u64> = names
            .iter()
            .zip(of)
            .map(|(name, count)| (name.as_str().unwrap().to_owned(), count.as_u64().unwrap()))
            .filter(|(_, count)| *count > 0)
            .collect();
        assert_eq!(found, counts, "{by} {key}");
        let place = policy["limits"].as_array().unwrap().iter().position(|one| one["key"] == key);
        let place = place.unwrap_or_else(|| panic!("{key}: {}", policy["limits"]));
        let shares = policy["shares"].as_array().unwrap().iter();
        let shares: Vec<u64> =
            shares.filter(|one| one[0] == place).map(|one| one[2].as_u64().unwrap()).collect();
        assert_eq!(shares.len(), identities, "{by} {key}: {shares:?}");
        assert_eq!(shares.iter().sum::<u64>(), policy["limits"][place]["refused"], "{key}");
        let row = &policy["refusals"][0];
        assert!(found.contains_key(names[row[5].as_u64().unwrap() as usize].as_str().unwrap()));
    }
}

/// On the page: one login by another key, two with the same key, and what is not known.
pub(crate) fn shared_keys_are_said(browser: &mut Browser) {
    let policy = "version = 1\n[identity]\nfold = { case = true, plus = true }\n\
                  qualify = \"example.org\"\n[policy.p]\nwhen = \"authenticated\"\n\
                  default.recipients = \"20/1h\"\n";
    let (folder, page, _) = data(
        &log_of(
            &[
                ("rupert", "192.0.2.7", "a@x.test"),
                ("Rupert+x@example.org", "192.0.2.9", "a@x.test"),
                ("alone", "192.0.2.9", "a@x.test"),
            ],
            150,
        ),
        policy,
        "auth",
        "auth",
    );
    let open = |browser: &mut Browser, by: &str| {
        let arguments = ["report", "mainlog", "--policy", "policy.toml", "-o", "p.html"];
        let output = exirate(folder.path(), &[&arguments[..], &["--by", by]].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        browser.open(&folder.path().join("p.html"));
    };
    open(browser, "auth");
    let names = page["log"]["names"].as_array().unwrap();
    let of = |name: &str| {
        page["policy"]["of"][names.iter().position(|one| one == name).unwrap()].to_string()
    };
    for login in ["rupert", "rupert+x@example.org", "alone"] {
        let row = row_of(browser, login);
        assert_eq!(row[2], of(login), "{row:?}");
    }
    let all: u64 =
        of("rupert").parse::<u64>().unwrap() + of("rupert+x@example.org").parse::<u64>().unwrap();
    choose(browser, "#identities", "rupert");
    let detail = text(browser, "#detail");
    assert!(!detail.contains("No limit"), "{detail}");
    let shared = format!(
        "{} attempts of this one refused; {all} of all that are counted together by the key auth:rupert@example.org.",
        of("rupert")
    );
    assert!(detail.contains(&shared), "{detail}");
    // The key shows both; a name in it leads to one, and back.
    choose(browser, "#refused", "rupert@example.org");
    let detail = text(browser, "#detail");
    assert!(detail.contains("Refused were attempts of 2 logins: "), "{detail}");
    assert!(detail.contains(&format!("rupert ({})", of("rupert"))), "{detail}");
    browser.value("document.querySelector('#detail p button').click()");
    assert!(text(browser, "#detail").contains("of this one refused"));
    browser.value("document.querySelector('#detail .bar button').click()");
    assert!(text(browser, "#detail").contains("Refused were attempts of 2 logins: "));
    // The key of one login is that login.
    choose(browser, "#refused", "alone@example.org");
    assert_eq!(text(browser, "#detail-title"), "alone");

    // Half of the messages have no login.
    let log = log_of(&[("", "192.0.2.7", "a@x.test"), ("alone", "192.0.2.7", "a@x.test")], 60)
        .replace(" P=", " U=ident P=");
    std::fs::write(folder.path().join("mainlog"), log).unwrap();
    let policy = "version = 1\n[policy.p]\nwhen = \"always\"\nkey = [\"client\"]\n\
                  default.recipients = \"20/1h\"\n";
    std::fs::write(folder.path().join("policy.toml"), policy).unwrap();
    open(browser, "auth");
    let own: u64 = row_of(browser, "alone")[2].parse().unwrap();
    let all = browser
        .value("JSON.parse(document.getElementById('data').textContent).policy.refused")
        .as_u64()
        .unwrap();
    assert!(0 < own && own < all, "{own} of {all}");
    let caption = text(browser, "#identities .caption");
    let rest = format!(" {} refused attempts are of none of these.", all - own);
    assert!(caption.ends_with(&rest), "{rest}: {caption}");
    // What a client says of its user is nothing that policies know.
    open(browser, "user");
    assert_eq!(row_of(browser, "ident")[2], "not known");
    choose(browser, "#identities", "ident");
    let detail = text(browser, "#detail");
    assert!(detail.contains("not known") && !detail.contains("No limit"), "{detail}");
}

/// The cells of an identity's row.
fn row_of(browser: &mut Browser, name: &str) -> Vec<String> {
    let shown = search(browser, name);
    let place = shown.iter().position(|one| one == name);
    let place = place.unwrap_or_else(|| panic!("{name}: {shown:?}"));
    let cells = browser.value(&format!(
        "[...document.querySelectorAll('#identities tbody tr')[{place}].cells].map((cell) => cell.textContent)"
    ));
    assert_eq!(rows(browser), shown);
    search(browser, "");
    serde_json::from_value(cells).unwrap()
}

/// Opens the details by the button with this text in a part of the page.
pub(crate) fn choose(browser: &mut Browser, part: &str, name: &str) {
    let (part, name) = (json!(part), json!(name));
    browser.value(&format!(
        "document.getElementById('detail').close();
         [...document.querySelectorAll({part} + ' td button')].find((one) => one.textContent === {name}).click()"
    ));
}
