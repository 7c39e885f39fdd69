//! The four tasks of who answers the phone, at each width, light and dark, and by keys alone.

use std::sync::{Arc, Mutex};

use kit::browser::Browser;
use serde_json::json;

use super::{
    Office, card, card_button, click_in_list, fits, go, is_accessible, keep, of_text, shown,
    sign_in,
};
use crate::customer::queue;

#[test]
fn whoever_answers_the_phone_does_it_at_every_width_light_and_dark() {
    let office = Office::new();
    office.steal("dora@example.org");
    office.send("ceo@example.org", 1, 100);
    let mut browser = Browser::start();
    browser.open_url(&office.url());
    // A token that is none is no way in.
    browser.wait("document.activeElement.id === 'token'");
    is_accessible(&mut browser, "sign in");
    browser.type_text("exirate_nothing");
    browser.press("Enter", 13);
    browser.wait("document.getElementById('sign-in-problem').textContent");
    assert_eq!(shown(&mut browser, "#sign-in-problem"), "there is no such token");
    sign_in(&mut browser, &office.desk.help);
    browser.wait("document.querySelector('.count')?.textContent === 'Nobody is blocked.'");
    for (number, (width, scheme)) in [
        (360, "light"),
        (360, "dark"),
        (768, "light"),
        (768, "dark"),
        (1440, "light"),
        (1440, "dark"),
    ]
    .into_iter()
    .enumerate()
    {
        let what = format!("{width}-{scheme}");
        browser.resize(width, 800, scheme);
        go(&mut browser, "", ".count");
        let login = format!("user{number}@example.org");
        tasks(&office, &mut browser, &login, &what);
        views(&mut browser, &login, &what, ["360-dark", "1440-light"].contains(&&*what));
    }
    assert_eq!(office.complaints(&mut browser), Vec::<String>::new());
    let log = office.desk.audit_log();
    assert_eq!(log.matches("web=token:desk allow").count(), 6, "{log}");
}

/// The tasks, with the pointer.
fn tasks(office: &Office, browser: &mut Browser, login: &str, what: &str) {
    // A flood as it arrives, without a reload.
    browser.value("window.same = true");
    office.send(login, 2, 900);
    browser.wait(&card(login));
    assert_eq!(browser.value("window.same"), true, "{what}");
    // Who is blocked, why, and until when?
    let text = browser.value(&format!("{}.innerText", card(login)));
    let text = text.as_str().unwrap();
    let why = "recipients in the last hour; the limit of outbound is 1,000.";
    assert!(text.contains("Wrote to 1,") && text.contains(why), "{text}");
    assert!(text.contains("Free in ") && text.contains("minute"), "{text}");
    keep(browser, &format!("blocked-{what}"));
    // The account that a complaint is about: a part of it is typed, and Enter opens it.
    browser.click("document.getElementById('query')");
    browser.type_text(login.split('@').next().unwrap());
    browser.wait("document.querySelector('#found [role=option] bdi')");
    keep(browser, &format!("search-{what}"));
    browser.press("Enter", 13);
    browser.wait("document.querySelector('.rates')");
    assert!(shown(browser, "h1").starts_with(login), "{what}");
    assert!(shown(browser, ".verdict").starts_with("Blocked. Free in"), "{what}");
    let rates = shown(browser, ".rates li");
    assert!(rates.contains(" of 1,000") && rates.contains("of 5,000"), "{rates}");
    // What it has sent by day and by hour.
    browser.wait("document.querySelectorAll('figure svg rect.bar.hit').length == 35 + 24");
    let sent = shown(browser, "main div:has(> figure)");
    let known = sent.contains("The last 35 days (UTC): 900 recipients");
    assert!(known && sent.contains("The last 24 hours"), "{sent}");
    let log = shown(browser, "main table");
    assert!(log.contains("192.0.2.7") && log.contains(" of 1,000"), "{log}");
    keep(browser, &format!("identity-{what}"));
    // Unblock for two hours.
    go(browser, "", ".card");
    click_in_list(browser, &card_button(login, "Allow for"));
    browser.wait("document.getElementById('ask').open");
    browser.click(&of_text("label", "#ask", "2 hours"));
    browser.click("document.getElementById('reason')");
    browser.type_text("newsletter, ticket 4711");
    keep(browser, &format!("allow-{what}"));
    browser.click(&of_text("button", "#ask", "Allow"));
    browser.wait("!document.getElementById('ask').open");
    let said = shown(browser, "#said");
    assert!(said.contains(login) && said.contains("allowed until"), "{said}");
    // Below what it covers, the page goes on.
    let room = "parseFloat(getComputedStyle(document.body).paddingBottom) - document.querySelector('#said p').offsetHeight";
    assert!(browser.value(room).as_f64() > Some(0.0), "{what}");
    // What is gone goes when the pointer does.
    browser.point("document.querySelector('.brand')");
    browser.wait(&format!("!({})", card(login)));
    browser.click(&of_text("button", "#said", "Dismiss"));
}

/// Each view fits, and has nothing that an assistant could not use.
fn views(browser: &mut Browser, login: &str, what: &str, is_checked: bool) {
    let identity = format!("key/auth%3A{}", login.replace('@', "%40"));
    for (name, view, ready) in [
        ("suspected", "suspected", "main .card"),
        ("exempt", "exempt", "main .card"),
        ("denied", "denied", ".count"),
        ("policies", "policies", "main table"),
        ("domain", "key/domain%3Aexample.org", "main figure svg"),
        ("allowed", &*identity, "main table"),
    ] {
        go(browser, view, ready);
        fits(browser, &format!("{name}-{what}"));
        keep(browser, &format!("{name}-{what}"));
        if is_checked {
            is_accessible(browser, &format!("{name}-{what}"));
        }
        if name == "policies" {
            let text = shown(browser, "main");
            for said in [
                "what is over a limit is refused",
                "3/1d recipients, all users of it together",
                "1 user has limits or a package of their own",
            ] {
                assert!(text.contains(said), "{said}: {text}");
            }
        }
    }
    assert!(shown(browser, ".verdict").starts_with("Allowed until"), "{what}");
    assert!(shown(browser, "main").contains("newsletter, ticket 4711"), "{what}");
    go(browser, "suspected", "main .card");
    let card = shown(browser, "main .card");
    assert!(card.starts_with("dora@example.org"), "{card}");
    assert!(card.contains("recipients that it has never written to"), "{card}");
    // What is asked before an account is denied for good.
    click_in_list(browser, &of_text("button", "main", "Stolen"));
    browser.wait("document.getElementById('ask').open");
    assert!(shown(browser, "#ask").contains("everything that it sends is refused"), "{what}");
    if is_checked {
        is_accessible(browser, &format!("stolen-{what}"));
    }
    browser.press("Escape", 27);
    browser.wait("!document.getElementById('ask').open");
}

fn tab_to(browser: &mut Browser, text: &str) {
    for _ in 0..60 {
        browser.press("Tab", 9);
        let focus =
            browser.value("document.activeElement.textContent.trim() || document.activeElement.id");
        let outline = browser.value("getComputedStyle(document.activeElement).outlineStyle");
        let is_body = browser.value("document.activeElement === document.body") == true;
        if !is_body && focus.as_str().unwrap().starts_with(text) {
            assert_eq!(outline, "solid", "the focus on {focus} is not seen");
            return;
        }
    }
    panic!("{text} is not reached: {}", shown(browser, "body"));
}

#[test]
fn keys_alone_do_all_of_it() {
    let office = Office::new();
    office.steal("dora@example.org");
    office.send("alice@example.org", 2, 900);
    office.send("bob@example.org", 2, 800);
    office.send("news@example.net", 3, 700);
    let mut browser = office.visitor(&office.desk.help);
    browser.wait("document.querySelectorAll('main .card').length === 3");
    // The picture in docs/desk.md: WRITE_PICTURES=1 cargo test --test serve keys_alone
    let picture = browser.picture(900, 660);
    assert!(picture.starts_with(b"\x89PNG") && picture.len() < 100_000, "{}", picture.len());
    if std::env::var_os("WRITE_PICTURES").is_some() {
        std::fs::write(kit::repository().join("docs/desk.png"), picture).unwrap();
    }
    assert_eq!(office.change("/api/v1/unblock", &json!({ "key": "auth:news@example.net" })), 200);
    browser.wait(&format!("!({})", card("news@example.net")));
    // Past what is on every page.
    browser.value("document.activeElement.blur()");
    tab_to(&mut browser, "Skip to the content");
    browser.press("Enter", 13);
    assert_eq!(browser.value("document.activeElement.id"), "main");
    tab_to(&mut browser, "alice@example.org");
    tab_to(&mut browser, "Allow for… alice@example.org");
    browser.press("Enter", 13);
    browser.wait("document.activeElement.type === 'radio'");
    // Two hours are chosen; an hour less, and back.
    browser.press("ArrowUp", 38);
    browser.press("ArrowDown", 40);
    assert_eq!(
        browser.value("document.activeElement.closest('label').textContent.slice(0, 7)"),
        "2 hours"
    );
    tab_to(&mut browser, "reason");
    browser.type_text("invoices");
    browser.press("Enter", 13);
    browser.wait("!document.getElementById('ask').open");
    // The focus is where it was, though the row is no longer one of the list.
    let focus = browser.value("document.activeElement.textContent");
    assert_eq!(focus, "Allow for… alice@example.org");
    // Others move around it.
    tab_to(&mut browser, "bob@example.org");
    tab_to(&mut browser, "Unblock bob@example.org");
    browser.press("Enter", 13);
    browser.wait("document.getElementById('said').textContent.includes('bob@example.org')");
    browser.wait("document.querySelector('.count')?.textContent === 'Nobody is blocked.'");
    // A search, and the first found.
    browser.value("window.scrollTo(0, 0); document.getElementById('query').focus()");
    browser.type_text("ali");
    browser.wait("document.querySelector('#found [role=option] bdi')");
    browser.press("ArrowDown", 40);
    let chosen = "document.getElementById(document.activeElement.getAttribute('aria-activedescendant')).textContent";
    assert!(browser.value(chosen).as_str().unwrap().starts_with("alice@example.org"));
    browser.press("Enter", 13);
    browser.wait("document.querySelector('.verdict .big')");
    assert_eq!(browser.value("document.activeElement.tagName"), "H1");
    tab_to(&mut browser, "End the permission alice@example.org");
    browser.press("Enter", 13);
    browser.wait("document.querySelector('.verdict').textContent.startsWith('Blocked. Free in')");
    let orders = held_mail_is_released(&office, &mut browser);
    // An account that is stolen.
    go(&mut browser, "suspected", "main .card");
    tab_to(&mut browser, "Stolen dora@example.org");
    browser.press("Enter", 13);
    browser.wait("document.activeElement.textContent === 'Cancel'");
    browser.press("Escape", 27);
    tab_to(&mut browser, "Stolen dora@example.org");
    browser.press("Enter", 13);
    browser.wait("document.activeElement.textContent === 'Cancel'");
    // What is held of it is kept unless somebody says otherwise.
    assert_eq!(browser.value("document.querySelector('#ask [value=keep]').checked"), true);
    browser.value("document.querySelector('#ask [value=keep]').focus()");
    browser.press("ArrowUp", 38);
    tab_to(&mut browser, "Yes, it is stolen");
    browser.press("Enter", 13);
    browser
        .wait("document.getElementById('ask-title').textContent === 'dora@example.org is denied'");
    // The people to warn.
    let people = browser.value("document.querySelector('#ask textarea').value.split('\\n')");
    let people: Vec<String> = serde_json::from_value(people).unwrap();
    assert!(people.len() == 20 && people.contains(&"r19@example.com".to_owned()), "{people:?}");
    assert!(shown(&mut browser, "#ask").contains("from 203.0.113.9"), "the client");
    is_accessible(&mut browser, "the people to warn");
    keep(&mut browser, "stolen");
    browser.press("Escape", 27);
    browser.wait("document.querySelector('.count')?.textContent === 'No account is suspected.'");
    assert_eq!(office.complaints(&mut browser), Vec::<String>::new());
    let log = office.desk.audit_log();
    for done in ["allow", "allow --end", "unblock", "habits stolen", "deny"] {
        assert!(log.contains(&format!("web=token:desk {done}")), "{done}: {log}");
    }
    let done = orders.lock().unwrap().clone();
    let [release, delete] = ["release", "delete"].map(|verb| json!({ "do": [verb, ["id0"]] }));
    assert_eq!(done, format!("{release}\n{delete}\n"));
}

/// A message is held of dora. Returns what the queue is ordered to do.
fn held_mail_is_released(office: &Office, browser: &mut Browser) -> Arc<Mutex<String>> {
    let held = Arc::new(Mutex::new(vec!["auth:dora@example.org"]));
    let orders = queue(&office.desk, &held);
    go(browser, "held", "main table");
    let text = shown(browser, "main");
    assert!(
        text.contains("1 message that the mail server keeps") && text.contains("if released"),
        "{text}"
    );
    is_accessible(browser, "held mail");
    tab_to(browser, "Release dora@example.org");
    browser.press("Enter", 13);
    browser.wait("document.getElementById('said').textContent.startsWith('released: 1 held')");
    go(browser, "key/auth%3Adora%40example.org", "main table");
    let verdict = "document.querySelector('.verdict').textContent";
    browser.wait(&format!("{verdict} === 'Suspected: its mail is held'"));
    browser.wait(&of_text("button", "main", "Release 1 message"));
    assert!(shown(browser, "main h2").contains("Held and waiting mail"));
    orders
}
