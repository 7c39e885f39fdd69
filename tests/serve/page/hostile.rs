//! What strangers write stays text.

use super::{Office, card, go, is_accessible, keep, shown};

#[test]
fn hostile_names_stay_text() {
    let office = Office::new();
    let owned = "document.title='owned'";
    let logins = [
        format!("<img/src=x/onerror=\"{owned}\">@x"),
        format!("</script><script>{owned}</script>"),
        format!("javascript:{owned}"),
        "__proto__".to_owned(),
        "\u{202e}gro.elpmaxe@ecila\u{2066}\u{200f}".to_owned(),
        "a/b#c?d&e=%2F%00;f\\u{41}".to_owned(),
        format!("{}@example.org", "w".repeat(400)),
    ];
    for login in &logins {
        // Of the recipient that crosses the limit, all is logged.
        office.send(login, 1, 999);
        let (sender, state) =
            (format!("<b>s</b>{login}"), format!("RCPT\nrecipient=<u onclick={owned}>@x"));
        for _ in 0..40 {
            office.count(login, &sender, &state);
        }
        office.send(login, 1, 900);
    }
    let mut browser = office.visitor(&office.desk.help);
    browser.resize(360, 800, "light");
    browser.wait(&format!("document.querySelectorAll('main .card').length === {}", logins.len()));
    let all = shown(&mut browser, "main");
    for hidden in ['\u{202e}', '\u{2066}', '\u{200f}', '\0'] {
        assert!(!all.contains(hidden), "{hidden:?}");
    }
    for login in &logins[..4] {
        assert_eq!(browser.value(&format!("Boolean({})", card(login))), true, "{login}: {all}");
    }
    is_accessible(&mut browser, "hostile names");
    keep(&mut browser, "hostile-360");
    // The page of each is its own.
    let links =
        browser.value("[...document.querySelectorAll('main .card a')].map((one) => one.hash)");
    for (number, link) in links.as_array().unwrap().iter().enumerate() {
        let path = link.as_str().unwrap().trim_start_matches("#/").replace('\'', "%27");
        go(&mut browser, &path, ".rates");
        browser.wait("document.querySelector('main table')");
        let text = shown(&mut browser, "main");
        assert!(text.contains(" of 1,000"), "{path}: {text}");
        assert!(text.contains("<u onclick=") && text.contains("<b>s</b>"), "{path}: {text}");
        super::fits(&mut browser, &path);
        go(&mut browser, "policies", "main table");
        let made = "document.querySelectorAll('img, iframe, script:not([src]), u, i, [onerror], [onclick]').length + document.title.replace(/^[(]7[)] /, '')";
        assert_eq!(browser.value(made), "0Policies in use · exirate desk", "{number}");
    }
    assert_eq!(office.complaints(&mut browser), Vec::<String>::new());
}
