//! exirate.so and exirate-trace.so: what each contains, and both in one process.

use std::path::Path;

use kit::setup::install;
use kit::{Setup, library};

/// Texts that are in the files of the trace store, and nowhere else.
const OF_THE_TRACE_STORE: &[&str] = &["EXIRATEK", "EXIRATEL", "exirate trace digest key"];

fn contains(library: &Path, text: &str) -> bool {
    let bytes = std::fs::read(library).unwrap();
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn the_library_of_the_rates_has_nothing_of_the_trace_store() {
    for text in OF_THE_TRACE_STORE {
        assert!(!contains(library::built(), text), "{text}");
        assert!(contains(library::built_trace(), text), "{text}");
    }
    // A character set of the mail parser.
    assert!(!contains(library::built(), "shift_jis"));
    // Nor anything as large that these texts would not show. As installed, the rates have 1381 KiB
    // and the trace store 1910. Until the library asked a daemon about accounts that start Exim
    // themselves, and told addresses that are read differently, it had 1204, less than two thirds, and
    // until it counted usage, blocked accounts and limited deliveries 1313: the trace store has none of
    // these.
    let size = |path: &Path| std::fs::metadata(path).unwrap().len();
    let (rates, trace) = (size(library::built()), size(library::built_trace()));
    assert!(rates * 4 < trace * 3, "{rates} bytes, and {trace} for the trace store");
}

#[test]
fn functions_of_the_trace_store_called_in_the_other_library_return_no() {
    let acl = "  warn logwrite = wrong: ${dlfunc{EXIRATE}{recorded}{a text}} \
               ${dlfunc{EXIRATE}{record}{keep=9d}} ${dlfunc{EXIRATE}{recorded_or_no}{a}{b}{c}}\n  \
               accept\n";
    let mut exim = Setup::new().library().acl("acl_smtp_data", acl).build();
    exim.start();
    let mut client = exim.session();
    for _ in 0..2 {
        assert_eq!(client.message("a@client.test", &["b@private.test"], "\nbody\n").code, 250);
    }
    client.quit();
    let log = exim.log("main");
    assert_eq!(log.matches(" wrong: no no no\n").count(), 2, "{log}");
    let said = "exirate: recorded is in exirate-trace.so; called in exirate.so, it does nothing \
                and returns \"no\" (write ${dlfunc{EXIRATE_TRACE}{recorded}{TEXT}}; exirate.conf \
                defines the macro EXIRATE_TRACE)";
    assert_eq!(log.matches(said).count(), 1, "{log}");
    assert_eq!(log.matches("exirate:").count(), 1, "{log}");
    assert_eq!(exim.log("panic"), "");
    assert!(!exim.spool().join("exirate").exists(), "a database was made");
}

#[test]
fn the_library_of_the_trace_store_limits_nothing() {
    let exim = Setup::new().library().build();
    let ran = exim.expand("${dlfunc{EXIRATE_TRACE}{ratelimit}{9 / 1h / a}}");
    let said = ran.stdout + &ran.stderr;
    assert!(said.contains("Failed: dlsym") && said.contains("ratelimit"), "{said}");
}

/// What the once-a-message cache of the rates holds by is marked in Exim's variables,
/// where a call of the other library changes nothing.
#[test]
fn both_libraries_work_in_one_process() {
    let check = "${dlfunc{EXIRATE}{ratelimit}{9 / 1h / per_mail / strict}{k}} $sender_rate / \
                 $sender_rate_period of $sender_rate_limit";
    let rcpt = format!("  warn logwrite = at RCPT: {check}\n  accept\n");
    let data = format!(
        "  warn logwrite = before: {check}\n  \
         warn logwrite = seen: ${{dlfunc{{EXIRATE_TRACE}}{{recorded}}{{$h_subject:}}{{short=no}}}} \
         $sender_rate / $sender_rate_period of $sender_rate_limit\n  \
         warn logwrite = kept: ${{dlfunc{{EXIRATE_TRACE}}{{record}}}} \
         $sender_rate / $sender_rate_period of $sender_rate_limit\n  \
         warn logwrite = after: {check}\n  accept\n"
    );
    let mut exim =
        Setup::new().library().acl("acl_smtp_rcpt", &rcpt).acl("acl_smtp_data", &data).build();
    exim.start();
    let mut client = exim.session();
    let subject = "the quarterly figures of the northern branch before they were published, again";
    let text = format!("Subject: {subject}\n\nbody\n");
    for (n, seen) in [(1, "no"), (2, "yes")] {
        let to = ["b@private.test", "c@private.test"];
        assert_eq!(client.message("a@client.test", &to, &text).code, 250);
        let log = exim.log("main");
        let last: Vec<&str> = log
            .lines()
            .rev()
            .take(7)
            .filter_map(|l| Some(l.split_once(&format!("{n}.0 / 1h of 9"))?.0))
            .collect();
        for (of, answer) in
            [("at RCPT", "no"), ("before", "no"), ("seen", seen), ("kept", "yes"), ("after", "no")]
        {
            let line = format!("{of}: {answer} ");
            assert!(last.iter().any(|l| l.ends_with(&line)), "{n}, {line}: {log}");
        }
    }
    client.quit();
    assert_eq!(exim.log("panic"), "");
}

/// The rates after two checks in one command that count once a command, with `other`
/// called before each.
fn rates_after(other: &str) -> Vec<String> {
    let check = "${dlfunc{EXIRATE}{ratelimit}{9 / 1h / per_cmd / strict}{k}}";
    let line = |name: &str| format!("  warn logwrite = {name} {other} {check}: $sender_rate\n");
    let acl = line("first") + &line("again") + "  accept\n";
    let mut exim = Setup::new().library().acl("acl_smtp_data", &acl).build();
    install(library::built(), &exim.folder().join("copy.so"));
    exim.start();
    let mut client = exim.session();
    assert_eq!(client.message("a@client.test", &["b@private.test"], "\nbody\n").code, 250);
    client.quit();
    assert_eq!(exim.log("panic"), "");
    let log = exim.log("main");
    let lines = log.lines().filter(|l| l.contains(" first ") || l.contains(" again "));
    lines.map(|l| l.rsplit(' ').next().unwrap().to_owned()).collect()
}

/// exirate.so finds its marks in Exim's variables again where exirate-trace.so was called
/// before it, and so recognizes the command. Where another library of ours marked the
/// same variables, here a second exirate.so, it does not.
#[test]
fn only_the_library_of_the_rates_marks_exims_variables() {
    let traced = "${dlfunc{EXIRATE_TRACE}{recorded}{a text}{short=no}}";
    assert_eq!(rates_after(traced), ["1.0", "1.0"]);
    assert_eq!(rates_after("${dlfunc{EXIRATE_TRACE}{record}}"), ["1.0", "1.0"]);
    let marked = "${dlfunc{PRIVATE/copy.so}{ratelimit}{9 / 1h / readonly}{other}}";
    assert_eq!(rates_after(marked), ["1.0", "2.0"]);
}
