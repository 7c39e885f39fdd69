//! The library in a real Exim, end to end.

#![allow(missing_docs)]

mod common;

use common::Setup;

#[test]
fn the_private_exim_receives_mail() {
    let mut exim = Setup::new()
        .acl("acl_smtp_rcpt", "  defer local_parts = busy\n        message = not now\n  accept\n")
        .build();
    exim.start();
    let mut client = exim.session();
    let reply = client.message("a@client.test", &["b@private.test"], "Subject: x\n\n.dot\n");
    assert_eq!(reply.code, 250, "{}", reply.text);
    let reply = client.message("a@client.test", &["busy@private.test"], "");
    assert_eq!(reply.text, "451 not now");
    assert_eq!(client.quit().unwrap().code, 221);
    assert_eq!(exim.log("panic"), "");
    assert_eq!(exim.expand("${eval:1+1}").stdout, "2\n");

    let (mut client, _) = exim.pipe(&["-bs"]);
    assert_eq!(client.expect().code, 220);
    assert_eq!(client.quit().unwrap().code, 221);
}
