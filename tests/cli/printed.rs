//! Who is blocked, and why: every command says the same, and every command that is printed
//! works in the state that printed it.

use std::path::Path;
use std::process::{Command, Output};

use exirate::event::{Event, Origin};
use exirate::policy::image::PolicyFile;
use exirate::policy::replay::{Recipients, Replay, ReplayEvent};
use exirate::spool::{EventDetails, Options, Spool};
use serde_json::Value;

use crate::{exirate, run, stderr, stdout};

/// The commands in a text: what is between backticks and begins with `exirate`.
pub(crate) fn commands(text: &str) -> Vec<&str> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted.filter(|text| text.starts_with("exirate ")).collect()
}

/// Runs each command that `text` shows, in a copy of the spool directory `spool` each; `check`
/// is called with what it printed, and the copy. Returns how many there were.
pub(crate) fn run_all(spool: &Path, text: &str, check: impl Fn(&str, &Output, &Path)) -> usize {
    let commands = commands(text);
    for command in &commands {
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("copy");
        let copied = Command::new("cp").arg("-a").arg(spool).arg(&copy).status().unwrap();
        assert!(copied.success());
        let own = spool.display().to_string();
        let mut line = command.replace(&own, &copy.display().to_string());
        if !line.contains(" --spool ") {
            line = line.replacen(' ', &format!(" --spool {} ", copy.display()), 1);
            let (program, rest) = line.split_once(' ').unwrap();
            let (option, rest) = rest.split_at("--spool ".len() + copy.display().to_string().len());
            line = format!("{program}{rest} {option}");
        }
        let program = kit::shell_quoted(env!("CARGO_BIN_EXE_exirate"));
        let line = format!("{program}{}", line.strip_prefix("exirate").unwrap());
        let output = Command::new("sh").args(["-c", &line]).output().unwrap();
        let (code, said) = (output.status.code(), stderr(&output));
        // Of several denials it ends one, and says what ends the others.
        let is_denied =
            said.contains(" is still denied by ") && said.contains("overrides --remove");
        // It acts, and says that nobody of this name was seen.
        let expected = i32::from(is_denied || said.contains(" has not been seen yet"));
        let expected = Some(expected);
        assert_eq!(code, expected, "`{command}`: {said}\nshown by:\n{text}");
        check(command, &output, &copy);
    }
    commands.len()
}

const POLICY: &str = r#"version = 1
[policy.out]
update = "strict"
default.recipients = ["5/1h", "8/1d"]
default.total = { recipients = "6/1h" }
[[policy.out.exempt]]
match = ["ceo@example.org"]
reason = "year-end letter"
[policy.try]
action = "observe"
default.messages = "2/1h"
[policy.note]
verdicts = { "100%" = "log" }
key = ["sender"]
default.messages = "2/1h"
[policy.pail]
key = ["client"]
bucket = { burst = 2, rate = "1 / 1h", unit = "messages" }
"#;

/// Runs a command about a key, whatever that begins with.
fn about(spool: &Path, words: &[&str], key: &str) -> Output {
    let mut command = exirate();
    command.args(words).arg("--spool").arg(spool).args(["--exact", "--", key]);
    command.output().unwrap()
}

/// A spool directory with policies, and what was counted by some of them.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        let file = place.path().join("policy.toml");
        std::fs::write(&file, POLICY).unwrap();
        place.fine(&["policy", "apply", file.to_str().unwrap()]);
        place
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn fine(&self, arguments: &[&str]) -> String {
        let output = run(self.path(), arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
        stdout(&output)
    }

    /// What is printed on both outputs, whatever the exit status.
    fn said(&self, arguments: &[&str]) -> String {
        let output = run(self.path(), arguments);
        stdout(&output) + &stderr(&output)
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.fine(arguments)).unwrap()
    }

    /// Sends a message by these policies to so many recipients, as a front end does.
    fn mail(&self, policies: &str, login: &str, recipients: usize) {
        let file = PolicyFile::open(self.path());
        let mut replay = Replay::new(file.image().unwrap(), policies).unwrap();
        let mut spool = Spool::open(self.path(), Options::default()).unwrap();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let time = exirate::rate::Timestamp {
            seconds: now.as_secs().cast_signed(),
            micros: now.subsec_micros(),
        };
        let to = (0..recipients).map(|n| format!("r{n}@example.net")).collect();
        let event = ReplayEvent {
            time,
            event: Event {
                auth: Some(login.to_owned()),
                sender: Some(login.to_owned()),
                client: Origin::Client([192, 0, 2, 7].into()),
                ..Event::default()
            },
            recipients: Recipients::Addresses(to),
            ..ReplayEvent::default()
        };
        let decided = replay.decide(&event, &mut spool).unwrap();
        let enforcement = decided.outcome.enforcement();
        let login = login.as_bytes();
        spool.describe(&EventDetails { login, enforcement, ..EventDetails::default() });
    }

    /// Counts by a spec.
    fn count(&self, spec: &str, key: &str, cost: &str) {
        let key = format!("--key={key}");
        let output = run(self.path(), &["check", "--count", spec, &key, "--cost", cost]);
        assert!(output.status.code() < Some(2), "{}", stderr(&output));
    }

    /// The keys of records that are blocked, as all commands say.
    fn blocked(&self) -> Vec<String> {
        let listed = self.json(&["list", "--over", "--sort", "key", "--json"]);
        let keys: Vec<String> = listed
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["key"].as_str().unwrap().to_owned())
            .collect();
        let count = keys.len();
        assert_eq!(self.json(&["stats", "--json"])["over"], count);
        assert_eq!(self.json(&["top", "--json"])["over"], count);
        let metrics = self.fine(&["stats", "--prometheus"]);
        let sum: f64 = metrics
            .lines()
            .filter(|line| line.starts_with("exirate_keys_over_limit{"))
            .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
            .sum();
        assert_eq!(sum, count as f64, "{metrics}");
        for one in self.json(&["list", "--json"]).as_array().unwrap() {
            let key = one["key"].as_str().unwrap();
            let shown = about(self.path(), &["show", "--json"], key);
            let shown: Value = serde_json::from_str(&stdout(&shown)).unwrap();
            let shown = shown.as_array().unwrap();
            let shown = shown.iter().find(|other| other["stored"] == one["stored"]).unwrap();
            for field in ["over", "over_limit", "decided_by"] {
                assert_eq!(shown[field], one[field], "{field} of {key}");
            }
            assert_eq!(shown["next"]["over"], one["over"], "{key}");
        }
        let page = self.path().join("page.html");
        self.fine(&["report", "--output", page.to_str().unwrap()]);
        let html = std::fs::read_to_string(page).unwrap();
        let data = html.split_once(r#"id="data">"#).unwrap().1.split_once("</script>").unwrap().0;
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!(data["live"]["over"].as_array().unwrap().len(), count);
        keys
    }
}

/// Runs what `explain` prints of a key, after which it is not refused by what refused it, and
/// returns what it printed.
fn explained(place: &Place, key: &str) -> String {
    let mut all = String::new();
    for more in [&["--now"][..], &[]] {
        let output = about(place.path(), &[&["explain"][..], more].concat(), key);
        let said = stdout(&output) + &stderr(&output);
        run_all(place.path(), &said, |command, _, copy| {
            if command.contains("exirate explain") {
                return;
            }
            // What is said of a total is about that one.
            let total = command.split(' ').find(|word| word.starts_with("domain:"));
            let shown = about(copy, &["show", "--json"], total.unwrap_or(key));
            // A record that was reset is gone.
            let shown: Value = serde_json::from_str(&stdout(&shown)).unwrap_or_default();
            for one in shown.as_array().into_iter().flatten() {
                let denied = one["decided_by"] == "deny";
                let removes = command.contains("--remove");
                assert!(!denied && (removes || one["over"] == false), "{command}: {one}");
            }
        });
        all += &said;
    }
    all
}

#[test]
fn every_command_knows_who_is_exempt_observed_or_overridden() {
    let place = Place::new();
    place.mail("out", "ceo@example.org", 9);
    place.mail("out", "carl@example.com", 9);
    for _ in 0..3 {
        place.mail("try,note", "try@example.org", 1);
    }
    place.count("3 / 1w / strict", "bulk", "9");
    place.count("3 / 1w / strict", "script", "9");
    place.count("3 / 1w / strict", "quiet", "1");
    place.fine(&["allow", "bulk"]);
    place.fine(&["deny", "quiet"]);
    let blocked = place.blocked();
    // carl has two windows in one record each. What they refuse counts against no total.
    let expected = ["auth:carl@example.com", "auth:carl@example.com", "quiet", "script"];
    // The total of the domain of the exempt one counts as well.
    let others: Vec<&String> = blocked.iter().filter(|key| **key != "domain:example.org").collect();
    assert_eq!(others, expected);

    let listed = place.json(&["list", "--json"]);
    let of = |key: &str, mode: &str| {
        let found = listed.as_array().unwrap().iter();
        let mut found = found.filter(|one| one["key"] == key && one["mode"] == mode);
        let one = found.next().unwrap_or_else(|| panic!("{key} {mode}"));
        (one["decided_by"].clone(), one["over"].clone(), one["over_limit"].clone())
    };
    let is = |by: &str, over: bool, limit: bool| (by.into(), over.into(), limit.into());
    assert_eq!(of("auth:ceo@example.org", "out/recipients"), is("exempt", false, true));
    assert_eq!(of("auth:try@example.org", "try/messages"), is("observe", false, true));
    assert_eq!(of("sender:try@example.org", "note/messages"), is("log", false, true));
    assert_eq!(of("bulk", "per_mail"), is("allow", false, true));
    assert_eq!(of("quiet", "per_mail"), is("deny", true, false));
    assert_eq!(of("script", "per_mail"), is("rate", true, true));

    let table = place.fine(&["list"]);
    for row in
        ["auth:ceo@example.org (exempt)", "auth:try@example.org (observed)", "bulk (allowed)"]
    {
        assert!(table.contains(row), "{row}: {table}");
    }
    let shown = place.fine(&["show", "auth:ceo@example.org", "auth:try@example.org"]);
    for part in [
        "auth:ceo@example.org: over the limit, and exempt by the policy\n",
        "the policy out exempts the key (year-end letter)\n",
        "  next event    passes; by the rate alone: refused: rate ",
        "auth:try@example.org: over the limit, and only observed by the policy\n",
        "  policy        the policy try only observes\n",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(!shown.contains("free again"), "{shown}");

    // What is reset for being blocked is what its rate blocks.
    let reset = place.json(&["unblock", "--over", "--yes", "--json"]);
    let reset = reset["reset"].as_array().unwrap().len();
    assert_eq!(place.blocked(), ["quiet"]);
    assert_eq!(reset, blocked.len() - 1);
}

#[test]
fn crossings_say_whether_they_were_enforced_and_alert_by_that() {
    let place = Place::new();
    place.mail("out", "ceo@example.org", 9);
    place.mail("out", "carl@example.com", 9);
    for _ in 0..3 {
        place.mail("try", "try@example.org", 1);
    }
    let of = |key: &str| -> Value {
        let events = place.fine(&["events", "--json"]);
        let found = events.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        found.filter(|one| one["key"] == key).map(|one| one["enforcement"].clone()).collect()
    };
    assert_eq!(of("auth:ceo@example.org"), serde_json::json!(["exempt", "exempt"]));
    assert_eq!(of("auth:try@example.org"), serde_json::json!(["observed"]));
    assert_eq!(of("auth:carl@example.com"), serde_json::json!(["enforced", "enforced"]));
    assert!(place.fine(&["events"]).contains("auth:try@example.org (observed)\n"));

    let policy = place.path().join("policy.toml");
    let alerts = |observed: bool| {
        let on = format!("[on.crossing]\nlog = true\nobserved = {observed}\n");
        std::fs::write(&policy, format!("{POLICY}{on}")).unwrap();
        place.fine(&["policy", "apply", policy.to_str().unwrap()]);
        for file in std::fs::read_dir(place.path().join("exirate")).unwrap() {
            let file = file.unwrap();
            if file.file_name().to_str().unwrap().starts_with("delivery.log") {
                std::fs::remove_file(file.path()).unwrap();
            }
        }
        place.fine(&["events", "deliver"])
    };
    let enforced = alerts(false);
    assert!(enforced.contains(" carl@example.com is over the limit: "), "{enforced}");
    assert!(!enforced.contains("ceo@") && !enforced.contains("try@"), "{enforced}");
    let all = alerts(true);
    assert!(all.contains(" try@example.org is over the limit, which is only observed: "), "{all}");
    assert!(all.contains("carl@") && !all.contains("ceo@"), "{all}");
    assert_eq!(stdout(&run(place.path(), &["events", "deliver"])), "", "each once");

    for (key, why) in [
        ("auth:ceo@example.org", "the policy exempted the key"),
        ("auth:try@example.org", "the policy only observed"),
    ] {
        let said = explained(&place, key);
        assert!(said.contains("over its limit, not refused,") && said.contains(why), "{said}");
        assert!(said.contains("; passes: the policy ") && commands(&said).is_empty(), "{said}");
    }
}

#[test]
fn what_explain_prints_works_in_every_state() {
    let spec = "3 / 1w / strict";
    let odd = ["-x", "*", "it's", "[a]", "local:root", "a b", "$HOME", r"back\slash", "<x>"];
    for key in [&["alice@example.org"][..], &odd].concat() {
        let place = Place::new();
        place.count(spec, key, "9");
        let said = explained(&place, key);
        assert_eq!(commands(&said).len(), 4, "unblock and allow, twice:");
        assert!(about(place.path(), &["deny"], key).status.success());
        let said = explained(&place, key);
        assert!(said.contains("`exirate unblock") && said.contains("`exirate overrides --remove"));
        assert_eq!(place.blocked().len(), 1);
    }

    // By policies: two windows, a total, a bucket.
    let place = Place::new();
    place.mail("out", "carl@example.com", 9);
    place.mail("out", "dora@example.com", 9);
    for _ in 0..4 {
        place.mail("pail", "x@example.org", 1);
    }
    for key in ["auth:carl@example.com", "domain:example.com", "client:192.0.2.7"] {
        let said = explained(&place, key);
        assert!(commands(&said).len() >= 4, "{said}");
        assert!(said.contains("an entry of exempt in the policy"), "{said}");
    }
    // Denied by the name without the field, by a glob, and by both.
    for denials in
        [&["carl@example.com"][..], &["*@example.com"], &["*@example.com", "carl@example.com"]]
    {
        let place = Place::new();
        place.mail("out", "carl@example.com", 1);
        denials.iter().for_each(|one| drop(place.fine(&["deny", one, "--yes"])));
        let said = place.said(&["explain", "auth:carl@example.com", "--now"]);
        assert!(said.starts_with("auth:carl@example.com cannot send now: denied "), "{said}");
        let count = run_all(place.path(), &said, |_, _, _| {});
        assert!(count >= 2, "{said}");
    }
    let place = Place::new();
    place.mail("out", "carl@example.com", 1);
    place.fine(&["deny", "carl@example.com"]);
    explained(&place, "auth:carl@example.com");

    // A limit that one event reaches: no reset helps.
    let place = Place::new();
    place.count("0.5 / 1w / strict", "none", "1");
    let said = explained(&place, "none");
    assert!(!said.contains("exirate unblock") && said.contains("exirate allow"), "{said}");

    // Nothing is known of it, or only an override.
    let place = Place::new();
    place.count(spec, "bob", "1");
    for key in ["nobody", "bob"] {
        explained(&place, key);
    }
    // Nobody of that name was seen, so that it is 1.
    assert_eq!(run(place.path(), &["allow", "new"]).status.code(), Some(1));
    explained(&place, "new");
}

#[test]
fn what_others_print_works_as_well() {
    let place = Place::new();
    place.count("3 / 1w / strict", "bob", "9");
    place.fine(&["deny", "*", "--yes"]);
    let mut count = 0;
    for arguments in [
        &["unblock", "bob"][..],
        &["unblock", "carol"],
        &["overrides", "--remove", "nobody"],
        &["show", "nobody"],
        &["explain", "bob", "--crossing"],
        &["set", "bob"],
        &["unblock", "b*"],
        &["list", "--over"],
        &["events"],
    ] {
        let said = place.said(arguments);
        count += run_all(place.path(), &said, |_, _, _| {});
    }
    assert!(count >= 6, "{count}");
    // One that is stronger keeps it without effect.
    place.fine(&["deny", "bob", "--exact"]);
    let said = place.said(&["allow", "bob"]);
    assert_eq!(run_all(place.path(), &said, |_, _, _| {}), 1, "{said}");
}

#[test]
fn a_glob_is_confirmed_before_it_denies_or_allows() {
    let place = Place::new();
    place.count("3 / 1w / strict", "bob", "1");
    for command in ["deny", "allow"] {
        let output = run(place.path(), &[command, "*"]);
        assert_eq!(output.status.code(), Some(2));
        let said =
            format!("this would {command} every key that * matches, now 1 record, and there is");
        assert!(stderr(&output).contains(&said), "{}", stderr(&output));
    }
    assert_eq!(place.json(&["overrides", "--json"]), serde_json::json!([]));
    place.fine(&["deny", "bob"]);
    place.fine(&["deny", "*", "--yes"]);
    assert_eq!(place.json(&["overrides", "--json"]).as_array().unwrap().len(), 2);
}
