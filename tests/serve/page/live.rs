//! What changes while somebody looks: by others, under the pointer, and without a connection.

use kit::browser::Browser;
use rustix::process::Signal;
use serde_json::json;

use super::{Office, card, card_button, click_in_list, exirate, go, of_text, shown};

#[test]
fn two_people_see_the_same() {
    let mut office = Office::new();
    for (login, each) in [("alice@example.org", 700), ("bob@example.org", 600)] {
        office.send(login, 2, each);
    }
    let (mut one, mut other) =
        (office.visitor(&office.desk.help), office.visitor(&office.desk.view));
    for browser in [&mut one, &mut other] {
        browser.wait(&card("alice@example.org"));
        browser.wait(&card("bob@example.org"));
    }
    let tabs = shown(&mut one, "#sections");
    assert!(tabs.contains("Near") && !tabs.contains("Close"), "{tabs}");
    // Who may only look has nothing to press.
    assert_eq!(other.value("document.querySelectorAll('main button').length"), 2, "the pages");
    assert!(shown(&mut other, "#who").contains("who may look only"));
    // A change of one is seen by the other.
    click_in_list(&mut one, &card_button("alice@example.org", "Unblock"));
    one.wait("document.getElementById('said').textContent.includes('can send again now')");
    let said = shown(&mut one, "#said");
    assert!(!said.contains("reset ") && !said.contains("per_rcpt"), "{said}");
    other.wait(&format!("!({})", card("alice@example.org")));
    // Under the pointer nothing moves: the row stays, and is no longer to be pressed.
    one.wait(&format!("{}.classList.contains('gone')", card("alice@example.org")));
    assert_eq!(
        one.value(&format!("{}.querySelectorAll('a').length", card("alice@example.org"))),
        1
    );
    let place = format!(
        "[...document.querySelectorAll('main .card')].indexOf({})",
        card("bob@example.org")
    );
    assert_eq!(one.value(&place), 1);
    // One that is worse than all others comes last, until the pointer leaves.
    office.send("carol@example.org", 3, 900);
    one.wait(&card("carol@example.org"));
    let names = "[...document.querySelectorAll('main .card bdi')].map((one) => one.textContent.split('@')[0]).join()";
    assert_eq!(one.value(names), "alice,bob,carol");
    one.value("document.activeElement.blur()");
    one.point("document.querySelector('.brand')");
    one.wait(&format!("{names} === 'carol,bob'"));
    assert_eq!(other.value(names), "carol,bob");
    a_click_on_what_has_just_moved_does_nothing(&office, &mut one);
    the_focus_stays(&office, &mut one);
    what_an_administrator_has_denied_stays(&office, &mut one);
    what_a_total_stops_is_unblocked_by_that(&office, &mut one);
    a_connection_that_is_lost(&mut office, &mut one);
    a_token_that_is_removed(&office, &mut other);
    assert_eq!(office.complaints(&mut one), Vec::<String>::new());
}

fn a_click_on_what_has_just_moved_does_nothing(office: &Office, browser: &mut Browser) {
    // Pressed in the moment in which another row comes where the first one was.
    browser.value(
        "new MutationObserver((_, observer) => {
             observer.disconnect();
             const click = new MouseEvent('click', { bubbles: true, cancelable: true, detail: 1 });
             document.querySelector('main .card button').dispatchEvent(click);
         }).observe(document.querySelector('.cards'), { childList: true });",
    );
    let before = office.desk.audit_log();
    office.send("dave@example.org", 4, 900);
    browser.wait(
        "document.getElementById('said').textContent.startsWith('The list has just changed')",
    );
    browser.wait(&format!("document.querySelector('main .card') === {}", card("dave@example.org")));
    assert_eq!(office.desk.audit_log(), before);
}

fn the_focus_stays(office: &Office, browser: &mut Browser) {
    browser.value(&format!("{}.querySelector('a').focus()", card("bob@example.org")));
    browser.press("Tab", 9);
    browser.press("Tab", 9);
    let body = json!({ "key": "auth:dave@example.org" });
    assert_eq!(office.change("/api/v1/unblock", &body), 200);
    browser.wait(&format!("!({})", card("dave@example.org")));
    assert_eq!(browser.value("document.activeElement.textContent"), "Allow for… bob@example.org");
    // A dialog stays open while its row goes.
    browser.press("Enter", 13);
    browser.wait("document.getElementById('ask').open");
    browser.value("document.getElementById('reason').focus()");
    browser.type_text("in the mid");
    let body = json!({ "key": "auth:bob@example.org" });
    assert_eq!(office.change("/api/v1/unblock", &body), 200);
    browser.wait(&format!("{}.classList.contains('gone')", card("bob@example.org")));
    browser.type_text("dle");
    assert_eq!(browser.value("document.getElementById('reason').value"), "in the middle");
    browser.press("Escape", 27);
    browser.value("document.activeElement.blur()");
    browser.wait(&format!("!({})", card("bob@example.org")));
}

fn what_an_administrator_has_denied_stays(office: &Office, browser: &mut Browser) {
    let at = office.desk.folder.path().to_str().unwrap();
    let deny = ["deny", "mallory@example.org", "--reason", "phishing", "--spool", at];
    exirate(&deny, 0);
    go(browser, "denied", ".card");
    let text = shown(browser, "main .card");
    assert!(text.contains("Denied until ") && text.contains("phishing"), "{text}");
    assert!(text.contains("by root") && !text.contains("uid="), "{text}");
    click_in_list(browser, "document.querySelector('main .card button')");
    browser.wait("document.querySelector('#said .problem')");
    let said = shown(browser, "#said");
    assert!(said.starts_with("mallory@example.org is not changed: "), "{said}");
    assert!(said.contains("phishing"), "{said}");
    go(browser, "", ".card");
}

fn what_a_total_stops_is_unblocked_by_that(office: &Office, browser: &mut Browser) {
    for login in ["ann", "ann", "ann", "ben"] {
        office.send(&format!("{login}@acme.test"), 1, 1);
    }
    go(browser, "key/auth%3Aben%40acme.test", ".rates");
    let verdict = shown(browser, ".verdict");
    let why =
        "All of acme together wrote to 3 recipients in the last day; the limit of outbound is 3.";
    assert!(verdict.starts_with("Blocked. Free in ") && verdict.contains(why), "{verdict}");
    let button = of_text("button", "main", "Unblock all of acme");
    browser.click(&button);
    browser.wait("document.querySelector('.verdict').textContent === 'Not blocked'");
    browser.wait("document.getElementById('said').textContent.includes('can send again now')");
    assert_eq!(browser.value(&format!("Boolean({button})")), false);
    assert!(shown(browser, ".rates li").contains("1 of 1,000"), "its own is not reset");
    let log = office.desk.audit_log();
    assert!(log.contains(" web=token:desk unblock ") && log.contains("customer:acme"), "{log}");
    go(browser, "", ".card");
}

fn a_connection_that_is_lost(office: &mut Office, browser: &mut Browser) {
    let mut web = office.web.take().unwrap();
    web.signal(Signal::TERM);
    assert!(web.wait().success());
    browser.wait("document.getElementById('lost').textContent.includes('connection is lost')");
    click_in_list(browser, &card_button("carol@example.org", "Unblock"));
    browser.wait("document.getElementById('said').textContent.includes('cannot be reached')");
    office.open();
    browser.wait("!document.getElementById('lost').textContent");
    // The token against forged requests is that of the new process.
    click_in_list(browser, &card_button("carol@example.org", "Unblock"));
    browser.point("document.querySelector('.brand')");
    browser.value("document.activeElement.blur()");
    browser.wait(&format!("!({})", card("carol@example.org")));
}

fn a_token_that_is_removed(office: &Office, browser: &mut Browser) {
    let tokens = office.desk.path("tokens");
    exirate::serve::web::token::change(&tokens, |all| Ok(all.remove("panel"))).unwrap();
    go(browser, "policies", "#token");
    assert!(shown(browser, "#sign-in-problem").contains("no longer signed in"));
    assert_eq!(browser.value("document.querySelectorAll('.card, main table').length"), 0);
}
