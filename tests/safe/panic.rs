//! A panic in the library becomes one Exim error with its text, and the next
//! call works. A special build of the library panics on demand; the released
//! one does not contain that code.

use crate::hostile::Program;
use kit::{Setup, library};
use std::path::PathBuf;

/// The library of a feature, built to panic if a spec, or the options of
/// `record`, begin with `panic `.
fn panicking(feature: &str) -> PathBuf {
    let folder = format!("panicking-{feature}");
    library::build(&folder, feature, "--cfg exirate_test_panics")
}

#[test]
fn a_panic_is_one_error_in_exim_and_the_next_check_works() {
    let check = |spec: &str| format!("condition = ${{dlfunc{{EXIRATE}}{{ratelimit}}{{{spec}}}}}");
    let acl = format!(
        "  defer local_parts = bad\n        {}\n  \
         defer message = over at $sender_rate\n        {}\n  accept\n",
        check("panic over $local_part"),
        check("2.5 / 1h / per_cmd / strict / k")
    );
    let mut exim = Setup::new().library().acl("acl_smtp_rcpt", &acl).build();
    std::fs::copy(panicking("rates"), exim.library()).unwrap();
    exim.start();
    let mut client = exim.session();
    assert!(client.command("MAIL FROM:<a@client.test>").is_ok());
    let mut reply = |name: &str| client.command(format!("RCPT TO:<{name}@private.test>"));
    assert_eq!(reply("good").code, 250);
    assert_eq!(reply("bad").text, "451 Temporary local problem - please try later");
    let logged = "exirate: internal error: over bad";
    let panics = exim.log("panic");
    assert_eq!(panics.matches(&logged).count(), 1, "{panics}");
    assert_eq!(panics.lines().count(), 1, "{panics}");
    // The events before and after it are both counted.
    assert_eq!(reply("good").code, 250);
    assert!(reply("good").text.starts_with("451 over at "), "{}", exim.log("main"));
    client.quit();
    assert_eq!(exim.log("panic"), panics);
}

#[test]
fn a_panic_while_a_message_is_recorded_is_a_line_in_the_log() {
    let acl = "  warn logwrite = answer: ${dlfunc{EXIRATE_TRACE}{record}{${if eq{$h_subject:}{bad}\
               {panic over\\n$h_subject:}}}}\n  accept\n";
    let mut exim = Setup::new().library().acl("acl_smtp_data", acl).build();
    std::fs::copy(panicking("trace"), exim.folder().join("exirate-trace.so")).unwrap();
    exim.start();
    let mut client = exim.session();
    for (subject, answer) in [("good", "yes"), ("bad", "no"), ("good", "yes")] {
        let text = format!("Subject: {subject}\n\nbody\n");
        assert_eq!(client.message("a@client.test", &["b@private.test"], &text).code, 250);
        let log = exim.log("main");
        let last = log.lines().rfind(|l| l.contains("answer: ")).unwrap();
        assert!(last.ends_with(&format!(" answer: {answer}")), "{log}");
    }
    client.quit();
    let logged = "exirate: not recorded: internal error: over\\nbad";
    assert_eq!(exim.log("main").matches(logged).count(), 1, "{}", exim.log("main"));
    assert_eq!(exim.log("panic"), "");
}

#[test]
fn many_panics_leak_nothing() {
    let program = Program::build("panics", &["panics.c"], &[]);
    let spool = tempfile::tempdir().unwrap();
    let ran = program.run(&[], &[panicking("rates").as_os_str(), spool.path().as_os_str()]);
    assert!(ran.status.success() && ran.stderr.is_empty(), "{ran:?}");
    assert_eq!(ran.number("panics"), 500);
    // Memory that Exim's variables may point to is kept: a few kilobytes each
    // time.
    assert!(ran.number("memory grew") < 250 * 8_192, "{ran:?}");
}

#[test]
fn the_released_library_does_not_panic_on_demand() {
    let exim = Setup::new().library().build();
    let ran = exim.expand("${dlfunc{EXIRATE}{ratelimit}{panic now}}");
    let said = ran.stdout + &ran.stderr;
    assert!(said.contains("\"panic now\" is not a positive number"), "{said}");
}
