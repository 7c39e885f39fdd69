//! Limits by the calendar in a real Exim.

use exirate::sys::clock;
use kit::Setup;

use crate::acl_files::login;
use crate::policy::{OVER, apply, rates};

/// A zone in which it is noon now: no day ends while a test runs.
fn noon() -> String {
    format!("Etc/GMT{:+}", clock::now().0 / 3600 % 24 - 12)
}

#[test]
fn five_a_day_and_no_more() {
    let mut exim = Setup::new().library().auth().acl("acl_smtp_rcpt", OVER).build();
    let policy = format!(
        "timezone = \"{}\"\n[policy.p]\ndefault.recipients = [\"5 daily\", \"100/1h\"]\n\
         text = \"Over {{limit}} in {{period}}; again in {{retry_after}}\"\n",
        noon()
    );
    apply(&exim, &policy);
    exim.start();
    let recipients = |login_name: &str, count: u32| {
        let mut client = exim.session();
        login(&mut client, login_name);
        client.command("MAIL FROM:<a@client.test>");
        let to = |n| client.command(format!("RCPT TO:<u{n}@private.test>"));
        let replies: Vec<_> = (0..count).map(to).collect();
        client.quit();
        replies
    };
    let replies = recipients("Alice", 7);
    let accepted = replies.iter().filter(|reply| reply.is_ok()).count();
    assert_eq!(accepted, 5, "{replies:?}");
    for reply in &replies[5..] {
        assert_eq!(reply.code, 451, "{}", reply.text);
        // Between 11 and 12 hours are left of the day.
        assert!(reply.text.contains("Over 5 in one day; again in 1"), "{}", reply.text);
    }
    // Another process knows it, and another login has a day of its own.
    assert!(!recipients("Alice", 1)[0].is_ok());
    assert!(recipients("Bob", 1)[0].is_ok());
    let rates = rates(&exim);
    let of = |login: &str| rates.get(&format!("recipients/daily/auth:{login}")).copied();
    assert_eq!((of("alice"), of("bob")), (Some(5), Some(1)), "{rates:?}");
    assert_eq!(exim.log("panic"), "");
}
