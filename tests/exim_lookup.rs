//! The lookup, in an Exim that loads lookup modules. The machine's own Exim may
//! not; `scripts/exims` runs this with one that does. That the lookup decides
//! as native does is tested by `native`, which also runs with it.

#![allow(missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::process::Command;
use std::sync::{PoisonError, RwLock};

use exirate::policy::{image, source::compile};
use kit::{EntryPoint, PrivateExim, Setup};

/// Held by tests that need the links in the directory of lookups, or change them.
static LINKS: RwLock<()> = RwLock::new(());

/// The result of the lookup for a spec, in separate words.
fn look(spec: &str) -> String {
    format!("${{lookup ratelimit {{{spec}}}{{over: $value}}{{under}}}}")
}

/// The result of expanding this string: its text, or the error.
fn expanded(exim: &PrivateExim, text: &str) -> String {
    let ran = exim.expand(text);
    (ran.stdout + &ran.stderr).trim().to_owned()
}

#[test]
fn exim_lists_it() {
    let _guard = LINKS.read().unwrap_or_else(PoisonError::into_inner);
    let ran = Setup::new().build().run(&["-bV"], b"");
    let dynamic = ran.stdout.lines().find(|l| l.starts_with("Lookups (dynamic):"));
    for name in ["ratelimit", "policy"] {
        let listed = dynamic.is_some_and(|l| l.split_whitespace().any(|word| word == name));
        assert!(listed, "{name}: {}", ran.stdout);
    }
}

#[test]
fn it_succeeds_when_over_the_limit_with_the_rate_as_value() {
    let exim = Setup::new().library().build();
    let shown = "$sender_rate $sender_rate_limit $sender_rate_period";
    for (spec, wanted) in [
        ("2.5 / 1h / per_cmd / strict / k", "under 1.0 2.5 1h"),
        ("2.5 / 1h / per_cmd / strict / k", "under 2.0 2.5 1h"),
        ("2.5 / 1h / per_cmd / strict / k", "over: 3.0 3.0 2.5 1h"),
        ("9 / 1h / per_cmd / readonly / k", "under 3.0 9 1h"),
        ("0 / 1w / readonly / nobody", "over: 0.0 0.0 0 1w"),
    ] {
        assert_eq!(expanded(&exim, &format!("{} {shown}", look(spec))), wanted, "{spec}");
    }
    // The value does not change if another lookup is made before it is used.
    let (outer, inner) = ("1 / 1h / per_cmd / readonly / k", "0 / 1h / readonly / other");
    let text = format!("${{lookup ratelimit {{{outer}}}{{{} $value}}}}", look(inner));
    assert_eq!(expanded(&exim, &text), "over: 0.0 3.0");
    assert_eq!(exim.log("panic"), "");
}

#[test]
fn the_lookup_of_a_policy_returns_its_verdict() {
    let _guard = LINKS.read().unwrap_or_else(PoisonError::into_inner);
    let exim = Setup::new().library().build();
    let none = |_: &Path| Err(String::new());
    let text = "version = 1\n[policy.p]\nupdate = \"strict\"\ndefault.recipients = \"2.5/1w\"\n\
                package.gold.recipients = \"9/1w\"\n";
    let policies = compile(Path::new("policy.toml"), text, &none).policies.unwrap();
    image::install(&exim.spool(), &image::build(&policies)).unwrap();
    let look = |query: &str| format!("${{lookup policy {{{query}}}}}");
    // The lookup and the dlfunc count in the same record.
    let dlfunc = format!("${{dlfunc{{{}}}{{policy}}{{p}}}}", exim.library().display());
    let three = [&look("p"), &*dlfunc, &look("p")].join(" ");
    assert_eq!(expanded(&exim, &three), "accept accept defer");
    assert_eq!(expanded(&exim, &look("p / package=gold")), "accept");
    let none = expanded(&exim, &look("nobody"));
    assert!(
        none.starts_with("accept\n") && none.contains("there is no policy \"nobody\""),
        "{none}"
    );
    for (query, error) in [
        ("p / gold", "\"gold\" is not an attribute"),
        ("p / on_error=x", "on_error= is fail-open or fail-closed, not \"x\""),
    ] {
        // Exim escapes the quotes.
        let failed = expanded(&exim, &look(query)).replace('\\', "");
        assert!(failed.contains(error), "{query}: {failed}");
    }
    assert_eq!(exim.log("panic"), "");
}

#[test]
fn the_doctor_finds_a_link_that_is_missing() {
    let acl = "  defer condition = ${if eq{${lookup policy {outbound}}}{defer}}\n  accept\n";
    let exim = Setup::new().acl("acl_smtp_rcpt", acl).build();
    let doctor = || {
        let mut doctor = Command::new(env!("CARGO_BIN_EXE_exirate"));
        let ran = doctor.args(["doctor", "--config"]).arg(exim.config()).output().unwrap();
        String::from_utf8(ran.stdout).unwrap()
    };
    let [ratelimit, policy] = ["ratelimit", "policy"]
        .map(|name| EntryPoint::module().with_file_name(format!("{name}_lookup.so")));
    let before = doctor();
    for path in [&ratelimit, &policy] {
        let fine = format!("{} is exirate {}", path.display(), env!("CARGO_PKG_VERSION"));
        assert!(before.contains(&fine), "{before}");
    }
    // In the chroot's directory of lookups, which is this process's own copy.
    let _guard = LINKS.write().unwrap_or_else(PoisonError::into_inner);
    let kept = policy.with_extension("kept");
    std::fs::rename(&policy, &kept).unwrap();
    let without = doctor();
    let fix = format!("ln -sfT {} {}", ratelimit.display(), policy.display());
    let fixed = Command::new("sh").args(["-c", &fix]).status().unwrap().success();
    let after = doctor();
    std::fs::rename(&kept, &policy).unwrap();
    let missing = "Exim looks for the lookup policy in ";
    assert!(without.contains(missing) && without.contains(&fix), "{without}");
    assert!(fixed && !after.contains(missing), "{after}");
}

#[test]
fn each_of_two_equal_lookups_counts() {
    let exim = Setup::new().library().build();
    let spec = "9 / 1w / per_cmd / strict /";
    let twice = |entry: EntryPoint, key: &str| {
        let ask = entry.ask(&format!("{spec} {key}"));
        expanded(&exim, &format!("{ask} {ask} {ask} $sender_rate"))
    };
    assert_eq!(twice(EntryPoint::Lookup, "a"), "no no no 3.0");
    assert_eq!(twice(EntryPoint::Dlfunc, "b"), "no no no 3.0");
}

#[test]
fn dlfunc_and_lookup_share_one_database() {
    let exim = Setup::new().library().build();
    let spec = "9 / 1w / per_cmd / strict / shared";
    let ask = |entry: EntryPoint| expanded(&exim, &format!("{} $sender_rate", entry.ask(spec)));
    assert_eq!(ask(EntryPoint::Lookup), "no 1.0");
    assert_eq!(ask(EntryPoint::Dlfunc), "no 2.0");
    assert_eq!(ask(EntryPoint::Lookup), "no 3.0");
    // In one process too: their locks do not exclude each other.
    let both =
        format!("{} {} $sender_rate", EntryPoint::Lookup.ask(spec), EntryPoint::Dlfunc.ask(spec));
    assert_eq!(expanded(&exim, &both), "no no 5.0");
}

#[test]
fn errors_defer_with_the_text_of_the_dlfunc() {
    let exim = Setup::new().library().build();
    // Exim shows the text as in a string.
    let by_lookup = |spec: &str| {
        let said = expanded(&exim, &EntryPoint::Lookup.ask(spec)).replace("\\\"", "\"");
        let start = format!("Failed: lookup of \"{spec}\" gave DEFER: \"");
        let text = said.strip_prefix(&start).and_then(|text| text.strip_suffix('"'));
        text.unwrap_or_else(|| panic!("{said}")).to_owned()
    };
    let by_dlfunc = |spec: &str| {
        let said = expanded(&exim, &EntryPoint::Dlfunc.ask(spec));
        said.strip_prefix("Failed: ").unwrap_or_else(|| panic!("{said}")).to_owned()
    };
    for spec in ["many / 1h", "5 / 1y", "5 / 1h / per_mail / per_cmd", "5 / 1h / count=x", "1"] {
        let text = by_lookup(spec);
        assert!(text.starts_with("error in arguments to \"ratelimit\" condition: "), "{text}");
        assert!(by_dlfunc(spec).contains(&text), "{text}\n{}", by_dlfunc(spec));
    }
    std::fs::write(exim.spool().join("exirate"), "in its place").unwrap();
    let text = by_lookup("5 / 1h / per_cmd / k");
    assert!(text.starts_with("ratelimit database not available: "), "{text}");
    assert!(by_dlfunc("5 / 1h / per_cmd / k").contains(&text), "{text}");
}

#[test]
fn everything_after_key_is_the_key() {
    let exim = Setup::new().library().build();
    let rate = |query: &str| {
        expanded(&exim, &format!("${{lookup ratelimit {{{query}}}{{over}}{{under}}}} $sender_rate"))
    };
    let spec = "9 / 1w / per_cmd / strict";
    assert_eq!(rate(&format!("{spec} / key=a/noupdate/b")), "under 1.0");
    assert_eq!(rate(&format!("{spec} / a//noupdate//b")), "under 2.0");
    assert_eq!(rate(&format!("{spec}/KEY=noupdate")), "under 1.0");
    assert_eq!(rate(&format!("{spec} / key=noupdate")), "under 2.0");
    assert_eq!(rate(&format!("{spec} / key= noupdate")), "under 1.0");
    assert_eq!(rate(&format!("{spec} / key=x / key=y")), "under 1.0");
    assert_eq!(rate(&format!("{spec} / key=x / key=y")), "under 2.0");
    // An empty key is the default key.
    assert_eq!(rate(spec), "under 1.0");
    assert_eq!(rate(&format!("{spec} / key=")), "under 2.0");
    // A digest keeps a client's text out of the spec.
    let event = format!("{spec} / unique=${{sha256:a/noupdate}} / key=events");
    assert_eq!(rate(&event), "under 1.0");
    assert_eq!(rate(&event), "under 1.0");
    let said = rate(&format!("{spec} / a / key=b")).replace("\\\"", "\"");
    assert!(said.contains("DEFER") && said.contains("the key is given twice"), "{said}");
}

#[test]
fn options_are_refused_and_an_empty_query_is_not_found() {
    let exim = Setup::new().library().build();
    for options in ["file=/etc/passwd", "strict"] {
        let said = expanded(&exim, &format!("${{lookup ratelimit,{options}{{1 / 1h}}{{a}}{{b}}}}"));
        let said = said.replace("\\\"", "\"");
        let wanted = format!("the ratelimit lookup has no options, but \"{options}\" was given");
        assert!(said.contains("gave DEFER") && said.contains(&wanted), "{said}");
    }
    // Exim does not call a lookup in this case.
    assert_eq!(expanded(&exim, &look("")), "under");
    assert!(!exim.spool().join("exirate").exists(), "nothing was counted");
    // Exim's own option, about its cache.
    let text = "${lookup ratelimit,cache=no_rd{2 / 1h / strict / k}{a}{b}}";
    assert_eq!(expanded(&exim, text), "b");
}

#[test]
fn a_wrong_spec_defers_the_command() {
    let acl = "  defer condition = ${lookup ratelimit{many / 1h / per_rcpt}{yes}{no}}\n  accept\n";
    let mut exim = Setup::new().acl("acl_smtp_rcpt", acl).build();
    exim.start();
    let mut client = exim.session();
    client.command("MAIL FROM:<a@client.test>");
    let reply = client.command("RCPT TO:<b@private.test>");
    assert_eq!(reply.text, "451 Temporary local problem - please try later");
    client.quit();
    let log = exim.log("main");
    assert!(log.contains("temporarily rejected RCPT <b@private.test>"), "{log}");
    assert!(log.contains(": error in arguments to \"ratelimit\" condition: \"many\""), "{log}");
    assert_eq!(exim.log("panic"), "");
}

#[test]
fn the_texts_of_a_spec_live_as_long_as_the_message() {
    // Exim empties the pool of its lookups before it reads the message; the next
    // lookup writes over what was there.
    let shown = "logwrite = $sender_rate_limit, $sender_rate_period";
    for (spec, wanted) in
        [("+2.5 / +1h / per_cmd", "+2.5, "), ("1x / 1h", "1x, "), ("-0.5k / 1h", "-0.5k, ")]
    {
        let ask = EntryPoint::Lookup.ask(spec);
        let other = "set acl_m0 = ${lookup{primary_hostname}lsearch{PRIVATE/exim.conf}}";
        let exim = Setup::new()
            .library()
            .acl("acl_not_smtp_start", &format!("  warn {shown}\n  defer condition = {ask}\n"))
            .acl("acl_not_smtp", &format!("  warn {other}\n  warn {shown}\n  accept\n"))
            .build();
        exim.run(&["-oi", "-f", "a@client.test", "a@private.test"], b"Subject: s\n\nText.\n");
        let log = exim.log("main");
        let line = log.lines().filter_map(|l| l.split_once(wanted)).count();
        assert_eq!(line, 1, "{spec}: {log}");
    }
}
