//! What a reader sees of the demonstration's page, and does on it.

use serde_json::{Value, json};

use crate::{answer, search, show_more, text};
use kit::browser::Browser;

/// How much wider than the window the page is.
const TOO_WIDE: &str =
    "document.documentElement.scrollWidth - document.documentElement.clientWidth";

fn strings(value: Value) -> Vec<String> {
    serde_json::from_value(value).unwrap()
}

/// The chart and the sentence are of the exact peaks, whatever they are shown as.
pub(crate) fn limits_are_compared_exactly(browser: &mut Browser) {
    let peaks = "JSON.parse(document.getElementById('data').textContent).log.peaks";
    let mut peaks: Vec<f64> = serde_json::from_value(browser.value(peaks)).unwrap();
    peaks.sort_by(f64::total_cmp);
    let (highest, second) = (peaks[peaks.len() - 1], peaks[peaks.len() - 2]);
    // `hit` and others among the bars, by their titles: `3 peaked at …`.
    let bars = |which: &str| {
        format!(
            "[...document.querySelectorAll('#limit rect.bar{which} > title')]
                 .reduce((sum, one) => sum + parseInt(one.textContent), 0)"
        )
    };
    for limit in
        [highest, highest.next_up(), highest.ceil(), second, second.next_up(), 100.0, 7.3, 2.0]
    {
        let hit = peaks.iter().filter(|peak| **peak >= limit).count();
        let said = answer(browser, limit);
        assert!(said.contains(&format!("hit {hit} of 62 logins")), "{limit}: {said}");
        assert_eq!(browser.value(&bars(".hit")), hit, "{limit}");
        assert_eq!(browser.value(&bars(":not(.hit)")), 62 - hit, "{limit}");
    }
    // Rates are rounded as commands do, but none is shown on the other side of the limit.
    let rounded = |peak: f64| format!("{peak:.1}").parse::<f64>().unwrap();
    let up = *peaks.iter().rev().find(|peak| rounded(**peak) > **peak).unwrap();
    show_more(browser, 62);
    for limit in [2.0, rounded(up)] {
        answer(browser, limit);
        let shown = strings(browser.value(
            "[...document.querySelectorAll('#identities tbody tr')].map((one) => one.querySelector('td.n').textContent)",
        ));
        assert_eq!(shown.len(), 50);
        for (shown, peak) in shown.iter().zip(peaks.iter().rev()) {
            let shown = shown.replace(',', "");
            let number: f64 = shown.parse().unwrap();
            assert_eq!(number >= limit, *peak >= limit, "{shown}, {peak}, {limit}");
            assert!(number != rounded(*peak) || shown == format!("{peak:.1}"), "{shown}, {peak}");
            assert!((rounded(*peak) >= limit) != (*peak >= limit) || number == rounded(*peak));
        }
    }
    assert!(answer(browser, 9999.0).contains("at about 0 of"));
}

/// What is no limit is said, and nothing else is.
pub(crate) fn what_is_no_limit_is_said(browser: &mut Browser) {
    for wrong in ["0", "-5", ""] {
        answer(browser, 95.0);
        let said = answer(browser, wrong);
        assert_eq!(said, "", "{wrong}");
        let fault = text(browser, "#fault");
        assert!(fault.contains("above 0") && fault.contains("limit of 95"), "{wrong}: {fault}");
        assert_eq!(browser.value("document.getElementById('exact').ariaInvalid"), "true");
    }
    assert!(answer(browser, 95.0).contains("A limit of 95 "));
    assert_eq!(text(browser, "#fault"), "");
    assert_eq!(browser.value("document.getElementById('exact').ariaInvalid"), Value::Null);
}

pub(crate) fn each_key_moves_the_slider(browser: &mut Browser) {
    answer(browser, 95.0);
    browser.value("document.getElementById('slider').focus()");
    let mut before = 95.0;
    for _ in 0..12 {
        browser.press("ArrowRight", 39);
        let now = browser.value("document.getElementById('exact').valueAsNumber").as_f64().unwrap();
        assert!(now > before && now <= before + 10.0, "{before} to {now}");
        before = now;
    }
    browser.press("ArrowLeft", 37);
    let text = browser.value("document.getElementById('slider').ariaValueText");
    assert_eq!(text, format!("{} recipients in 1h", before - 10.0));
}

/// The details are a dialog: where the reader is, and gone by Escape.
pub(crate) fn details_come_and_go(browser: &mut Browser) {
    search(browser, "carl");
    browser.value("document.querySelector('#identities tbody button').focus()");
    browser.press("Enter", 13);
    assert_eq!(browser.value("document.activeElement.closest('dialog').id"), "detail");
    let is_seen =
        "{ const { top, bottom } = document.getElementById('detail').getBoundingClientRect();
        top >= 0 && bottom <= innerHeight }";
    assert_eq!(browser.value(is_seen), true);
    let detail = text(browser, "#detail");
    for part in [
        "on Sat 2026-10-24",
        "The first 60 of 2,",
        // From where it came: 250 addresses of one network.
        "203.0.113.0/24900Sat 2026-10-24",
        "counted by the key auth:carl@example.org",
    ] {
        assert!(detail.contains(part), "{part}: {detail}");
    }
    // The hours around the peak can be read.
    let texts = strings(browser.value(
        "[...document.querySelector('#detail figure').querySelectorAll('text')].map((one) => one.textContent)",
    ));
    assert!(texts.iter().any(|text| text == "Sat 06:00"), "{texts:?}");
    browser.press("Escape", 27);
    assert_eq!(browser.value("document.getElementById('detail').open"), false);
    assert_eq!(browser.value("document.activeElement.textContent"), "carl@example.org");
    search(browser, "");
    // The title of a chart opens them as well.
    browser.value("document.querySelector('#busiest figcaption button').click()");
    assert_eq!(text(browser, "#detail-title"), "carl@example.org");
    browser.value("document.querySelector('#detail .bar button').click()");
    assert_eq!(browser.value("document.getElementById('detail').open"), false);
}

pub(crate) fn tables_say_what_they_show(browser: &mut Browser) {
    let status = "#identities [role=status]";
    search(browser, "nobody");
    assert_eq!(text(browser, status), "Nothing found with “nobody”, of 62 in all");
    search(browser, "user00001");
    assert_eq!(text(browser, status), "10 found with “user00001”, of 62 in all");
    search(browser, "");
    assert_eq!(text(browser, status), "1 to 50 of 62");
    // At the last page the button keeps the focus.
    browser.value(
        "[...document.querySelectorAll('#identities button')].find((one) => one.textContent === 'Next').focus()",
    );
    for _ in 0..2 {
        browser.press("Enter", 13);
        assert_eq!(text(browser, status), "51 to 62 of 62");
        let focus = "document.activeElement.textContent + document.activeElement.ariaDisabled";
        assert_eq!(browser.value(focus), "Nexttrue");
    }
    search(browser, "");
    let facts = text(browser, "#refused .facts");
    assert!(facts.contains("attempts decided") && facts.contains("of the attempts"), "{facts}");
    for (part, first) in [
        ("#refused", &["Key", "Refused ▼", "First"][..]),
        ("#identities", &["Login", "Peak ▼", "Refused", "Peaked at"]),
    ] {
        let titles = strings(browser.value(&format!(
            "[...document.querySelectorAll('{part} th')].map((one) => one.textContent.replace('\\u00a0', ' '))"
        )));
        assert_eq!(titles[..first.len()], *first);
    }
    let peaked = text(browser, "#identities tbody td:nth-child(4)");
    assert!(peaked.starts_with("Sat 2026-10-24"), "{peaked}");
}

fn narrow(browser: &mut Browser, width: u32) {
    let size = json!({"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": false});
    browser.call("Emulation.setDeviceMetricsOverride", size);
    // What is drawn again for the width is drawn in the next frame.
    browser.value(
        "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))",
    );
}

/// Nothing but tables is wider than the window, and of these it is said; texts of charts are
/// as large as they are meant to be.
pub(crate) fn every_width_is_used(browser: &mut Browser) {
    for width in [360, 768, 1440] {
        narrow(browser, width);
        assert_eq!(browser.value(TOO_WIDE), 0, "{width}");
        let scales = browser
            .value("[...document.querySelectorAll('svg')].map((one) => one.getScreenCTM().a)");
        for scale in scales.as_array().unwrap() {
            let scale = scale.as_f64().unwrap();
            assert!((scale - 1.0).abs() < 0.02, "{width}: {scales}");
        }
        let hints = browser.value(
            "[...document.querySelectorAll('.scroll')].every((one) =>
                 one.previousSibling.hidden === (one.scrollWidth <= one.clientWidth + 1) &&
                 one.classList.contains('more') === (one.scrollWidth > one.clientWidth + 1) &&
                 one.parentElement.firstChild.getBoundingClientRect().right <= innerWidth)",
        );
        assert_eq!(hints, true, "{width}");
        let wide = browser.value("document.querySelector('#hours .hint').hidden");
        assert_eq!(wide, width == 1440, "{width}");
    }
    // At the end nothing fades.
    narrow(browser, 360);
    browser.value("document.querySelector('#hours .scroll').scrollLeft = 9999");
    narrow(browser, 360);
    assert_eq!(browser.value("document.querySelector('#hours .more') === null"), true);
}

/// An address is broken after an `@` or a dot, and nowhere else.
pub(crate) fn addresses_break_at_their_parts(browser: &mut Browser) {
    for width in [360, 768, 1440] {
        narrow(browser, width);
        // More than one box is more than one line.
        let broken = strings(browser.value(
            "[...document.querySelectorAll('bdi > .part')]
                 .filter((one) => one.getClientRects().length > 1).map((one) => one.textContent)",
        ));
        assert_eq!(broken, [""; 0], "{width}");
        let parts = strings(browser.value(
            "[...document.querySelectorAll('#identities bdi')].map((one) =>
                 [...one.children].map((part) => part.tagName === 'WBR' ? '|' : part.textContent).join(''))",
        ));
        assert!(parts.iter().any(|parts| parts == "carl@|example.|org"), "{parts:?}");
    }
}

/// The least contrast of a text with what is behind it, and the text.
const CONTRAST: &str = "(() => {
    const parts = (color) => color.match(/[\\d.]+/g).map(Number);
    const onTop = ([r, g, b, a = 1], under) => [r, g, b].map((c, n) => c * a + under[n] * (1 - a));
    const light = (color) => {
        const [r, g, b] = color.map((c) => (c <= 10 ? c / 3294 : ((c / 255 + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
    };
    const behind = (one) => {
        const under = one.parentElement ? behind(one.parentElement) : [128, 128, 128];
        return onTop(parts(getComputedStyle(one).backgroundColor), under);
    };
    let worst = [99, ''];
    for (const one of document.querySelectorAll('body :not(script, option)')) {
        const isText = [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
        if (!isText || !one.getClientRects().length || one.ariaDisabled === 'true' || one.matches('svg title, .skip')) continue;
        const style = getComputedStyle(one), ground = behind(one);
        const [a, b] = [light(onTop(parts(one.closest('svg') ? style.fill : style.color), ground)), light(ground)];
        const contrast = Math.max(a, b) / Math.min(a, b);
        if (contrast < worst[0]) worst = [contrast, one.textContent];
    }
    return worst;
})()";

fn media(browser: &mut Browser, media: &str, scheme: &str) {
    let scheme = json!([{"name": "prefers-color-scheme", "value": scheme}]);
    browser.call("Emulation.setEmulatedMedia", json!({"media": media, "features": scheme}));
}

/// Light, dark and on paper, also where the screen is dark, all texts can be read.
pub(crate) fn every_text_has_contrast(browser: &mut Browser) {
    let mut papers = Vec::new();
    for (kind, scheme) in [("", "light"), ("", "dark"), ("print", "light"), ("print", "dark")] {
        media(browser, kind, scheme);
        let worst = browser.value(CONTRAST);
        assert!(worst[0].as_f64().unwrap() >= 4.5, "{kind} {scheme}: {worst}");
        papers.push(browser.value("getComputedStyle(document.body).backgroundColor"));
    }
    let white = "rgb(255, 255, 255)";
    assert!(papers[0] == white && papers[2] == white && papers[3] == white, "{papers:?}");
    assert_ne!(papers[1], white);
    media(browser, "", "light");
}

/// On paper are all rows and columns, and no controls.
pub(crate) fn all_is_printed(browser: &mut Browser) {
    let rows = "document.querySelectorAll('#identities tbody tr').length";
    browser.value(&format!(
        "window.printed = 0; addEventListener('beforeprint', () => {{ window.printed = {rows}; }})"
    ));
    let pdf = browser.call("Page.printToPDF", json!({}));
    assert!(pdf["data"].as_str().unwrap().starts_with("JVBERi"), "{:.99}", pdf.to_string());
    assert_eq!(browser.value("window.printed"), 62);
    assert_eq!(browser.value(rows), 50, "the page is as it was");
    media(browser, "print", "light");
    // The width of A4 without its margins.
    narrow(browser, 718);
    assert_eq!(browser.value(TOO_WIDE), 0);
    let cut = browser.value(
        "[...document.querySelectorAll('.scroll')].filter((one) => one.scrollWidth > one.clientWidth + 1).length",
    );
    assert_eq!(cut, 0);
    let shown = "[...document.querySelectorAll('input, nav, .controls button, .hint')].filter((one) => one.getClientRects().length).length";
    assert_eq!(browser.value(shown), 0);
    // Of open details, all of them and nothing else.
    browser.value("document.querySelector('#identities tbody button').click()");
    let alone = "[...document.body.children].filter((one) => one.getClientRects().length).map((one) => one.id).join()";
    assert_eq!(browser.value(alone), "detail");
    let place = "{ const one = document.getElementById('detail');
        [one.getBoundingClientRect().top + scrollY, one.scrollHeight - one.clientHeight] }";
    assert_eq!(browser.value(place), json!([0, 0]), "it begins at the top, and is not cut");
    browser.value("document.getElementById('detail').close()");
    media(browser, "", "light");
}
