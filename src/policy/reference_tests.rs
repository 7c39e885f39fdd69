//! What is written by hand about settings says what the tables say: the reference in
//! `docs/policy.md`, `IMAGE.md`, and the dictionary for fuzzing.

use std::collections::BTreeSet;
use std::path::Path;

use super::settings::{
    DeliverySettings, Group, HabitsSettings, Identity, OnCrossing, PolicySettings,
};
use super::source::TABLES;
use super::word::{
    Action, AfterWaiting, At, Counting, Field, OnError, OnHabits, Placeholder, Sensitivity, State,
    Unit, Verdict, Word,
};

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The settings of a group as a table in Markdown.
fn table<G: Group>() -> String {
    let mut text =
        "| setting | takes | default | meaning |\n| --- | --- | --- | --- |\n".to_owned();
    for setting in G::SETTINGS {
        let shown = (setting.show)(&G::default()).into_iter();
        let default: Vec<_> =
            shown.map(|(entry, value)| format!("`{}`", (entry + " " + &value).trim())).collect();
        let (name, takes, default, help) =
            (setting.name, (setting.takes)(), default.join(", "), setting.help.trim());
        text += &format!("| `{name}` | {takes} | {default} | {help} |\n").replace("|  |", "| |");
    }
    text
}

#[test]
fn the_reference_has_each_setting() {
    let document = read("docs/policy.md");
    let units: Vec<_> = Unit::ALL
        .iter()
        .map(|unit| format!("| `{}` | {} |\n", unit.word(), unit.about()))
        .collect();
    let units = format!("| unit | counts |\n| --- | --- |\n{}", units.concat());
    let settings = [table::<Identity>(), table::<OnCrossing>(), table::<PolicySettings>()];
    let more = [table::<DeliverySettings>(), table::<HabitsSettings>(), units];
    for table in settings.into_iter().chain(more) {
        assert!(document.contains(&table), "docs/policy.md has another table than\n{table}");
    }
}

#[test]
fn the_format_of_images_has_each_setting_in_its_place() {
    let document = read("src/policy/image/IMAGE.md");
    let document = document.split_whitespace().collect::<Vec<_>>().join(" ");
    fn named<G: Group>(document: &str, start: &str) {
        let (_, mut rest) = document.split_once(start).unwrap();
        for setting in G::SETTINGS {
            let name = format!("`{}`", setting.name);
            let at =
                rest.find(&name).unwrap_or_else(|| panic!("{name} is not after the one before"));
            rest = &rest[at..];
        }
    }
    named::<Identity>(&document, "* `[identity]`:");
    named::<OnCrossing>(&document, "* `[on.crossing]`:");
    named::<PolicySettings>(&document, "* A policy:");
    named::<DeliverySettings>(&document, "* Of delivery,");
    named::<HabitsSettings>(&document, "* Of habits,");
}

/// What a policy file is made of, as a dictionary of libFuzzer's.
fn dictionary() -> String {
    let mut entries = BTreeSet::new();
    let mut add = |text: String| {
        let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\x0a");
        entries.insert(format!("\"{escaped}\"\n"));
    };
    fn all_names<G: Group>() -> impl Iterator<Item = &'static str> {
        G::SETTINGS.iter().flat_map(|setting| setting.name.split('.'))
    }
    let names = all_names::<Identity>().chain(all_names::<OnCrossing>());
    let names = names.chain(all_names::<PolicySettings>());
    let names = names.chain(all_names::<DeliverySettings>());
    let names = names.chain(all_names::<HabitsSettings>());
    let others = ["burst", "rate", "unit", "limit", "of", "period", "least", "total", "match"]
        .into_iter()
        .chain(["recipients", "until", "reason", "domains"]);
    let tables = TABLES.iter().copied();
    names.chain(others).chain(tables).for_each(|name| add(format!("{name} = ")));
    fn words<T: Word>() -> Vec<String> {
        T::words().into_iter().map(|word| format!("\"{word}\"")).collect()
    }
    [
        words::<OnHabits>(),
        words::<Sensitivity>(),
        words::<Field>(),
        words::<State>(),
        words::<Action>(),
        words::<Counting>(),
    ]
    .into_iter()
    .chain([words::<OnError>(), words::<Verdict>(), words::<At>(), words::<AfterWaiting>()])
    .flatten()
    .for_each(&mut add);
    Placeholder::words().into_iter().for_each(|word| add(format!("{{{word}}}")));
    Unit::ALL.iter().for_each(|unit| add(unit.word().to_owned()));
    for text in [
        "version = 1\n",
        "[identity]\n",
        "[on.crossing]\n",
        "[destination.a]\n",
        "[policy.a]\n",
        "[[policy.a.exempt]]\n",
        "default.",
        "package.",
        "customer.",
        "domain.",
        "user.",
        "\"unlimited\"",
        "\"100/1h\"",
        "\"500 daily\"",
        "hourly",
        "weekly",
        "monthly",
        "timezone = \"Europe/Berlin\"\n",
        "usage = false\n",
        "\"1 / 1h\"",
        "\"80%\"",
        "{ client = [\"192.0.2.0/24\"] }",
        "2026-12-31T00:00:00Z",
        "user,package,customer,recipients\n",
    ] {
        add(text.to_owned());
    }
    entries.into_iter().collect()
}

#[test]
fn the_dictionary_for_fuzzing_has_each_word() {
    let dictionary = dictionary();
    assert!(read("fuzz/policy.dict") == dictionary, "fuzz/policy.dict should be\n{dictionary}");
}
