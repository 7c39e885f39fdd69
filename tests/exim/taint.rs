//! What Exim trusts of the library's answers, in a real Exim: text that a
//! client may have chosen must never become the name of a file.

use kit::Setup;

/// How Exim takes it that `name` becomes the name of a file, after a check
/// of `spec` for a message from `sender`: its words in the log.
fn named(sender: &str, spec: &str, name: &str) -> String {
    let acl = format!(
        "  warn local_parts = check\n       \
           condition = ${{dlfunc{{EXIRATE}}{{ratelimit}}{{{spec}}}}}\n  \
         accept local_parts = check\n  \
         accept logwrite = contents ${{readfile{{PRIVATE/files/{name}}}}}\n"
    );
    let mut exim = Setup::new().library().acl("acl_smtp_rcpt", &acl).build();
    exim.start();
    let mut client = exim.session();
    assert!(client.command(format!("MAIL FROM:<{sender}>")).is_ok());
    client.command("RCPT TO:<check@private.test>");
    let reply = client.command("RCPT TO:<look@private.test>");
    client.quit();
    assert_eq!(reply.code, 451, "there is no such file: {}", reply.text);
    // The refusal is in one log, its reason in the other.
    let said = exim.log("main") + &exim.log("panic");
    said.lines().filter(|l| l.contains("<look@") || l.contains("Tainted")).collect()
}

fn info(field: &str) -> String {
    format!("${{dlfunc{{EXIRATE}}{{ratelimit_info}}{{{field}}}}}")
}

fn assert_tainted(sender: &str, spec: &str, name: &str) {
    let said = named(sender, spec, name);
    assert!(said.contains("Tainted "), "{name} for {sender} and {spec}: {said}");
}

fn assert_clean(sender: &str, spec: &str, name: &str) {
    let said = named(sender, spec, name);
    let fits = said.contains("No such file") && !said.contains("Tainted ");
    assert!(fits, "{name} for {sender} and {spec}: {said}");
}

const KEYED: &str = "1.5 / 1h / per_cmd / strict / $sender_address";

#[test]
fn this_is_how_exim_takes_text_of_a_client_and_of_the_configuration() {
    assert_tainted("a@client.test", KEYED, "$sender_address");
    assert_clean("a@client.test", KEYED, "none");
}

#[test]
fn a_key_is_tainted() {
    assert_tainted("a@client.test", KEYED, &info("key"));
    // Also where it could do no harm.
    assert_tainted("a@client.test", "1.5 / 1h / per_cmd / k", &info("key"));
    assert_tainted("a@client.test", KEYED, &info("explain"));
}

#[test]
fn what_is_computed_or_a_number_is_clean() {
    for field in ["rate", "limit", "period", "mode", "over", "count", "remaining", "retry_after"] {
        assert_clean("a@client.test", KEYED, &info(field));
    }
    for name in ["$sender_rate", "$sender_rate_limit", "$sender_rate_period"] {
        assert_clean("a@client.test", KEYED, name);
    }
}

#[test]
fn a_limit_or_a_period_that_may_say_anything_is_tainted() {
    for (sender, spec, name) in [
        // No number, no time: shown as they are, as by native.
        ("../x@client.test", "$sender_address_local_part / 1h / k", "$sender_rate_limit"),
        ("x@client.test", "$sender_address_local_part / 1h / k", "$sender_rate_limit"),
        ("x@client.test", "1 / $sender_address_local_part / k", "$sender_rate_period"),
        // Numbers, but such as begin like an option or a hidden file.
        ("-0@client.test", "$sender_address_local_part / 1h / k", "$sender_rate_limit"),
        ("+5@client.test", "$sender_address_local_part / 1h / k", "$sender_rate_limit"),
        ("-0@client.test", "$sender_address_local_part / 1h / k", &info("limit")),
    ] {
        assert_tainted(sender, spec, name);
    }
}
