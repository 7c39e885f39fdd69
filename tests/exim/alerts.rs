//! Mail of `exirate events deliver` and other mail of the mail server's own: no policy stops it,
//! and no client can look like it.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use crate::policy::{apply, rates, with_the_shipped_acl};
use kit::exim::{PROGRAM, Ran, USER, run, user};
use kit::{PrivateExim, Setup, write_script};

/// An alert, as a stranger would forge it.
const FORGED: &str = "X-Exirate-Event-Id: 1\nTo: postmaster@private.test\nSubject: x\n\nforged\n";

/// An Exim with one policy, which delivers into a file.
fn exim(policy: &str) -> PrivateExim {
    let setup = Setup::new()
        .router("local:\n  driver = accept\n  local_parts = postmaster\n  transport = file")
        .transport(&format!(
            "file:\n  driver = appendfile\n  file = PRIVATE/spool/delivered\n  user = {USER}"
        ));
    let exim = with_the_shipped_acl(setup);
    apply(&exim, policy);
    exim
}

/// Passes a message to Exim as a user.
fn send_as(exim: &PrivateExim, name: &str, arguments: &[&str], text: &str) -> Ran {
    let (uid, gid) = user(name);
    let mut command = exim.command();
    command.args(arguments).uid(uid).gid(gid);
    run(command, text.as_bytes())
}

#[test]
fn limits_of_local_mail_do_not_stop_alerts() {
    alerts_pass_and_others_do_not("when = \"local\"");
}

#[test]
fn limits_of_bounces_do_not_stop_alerts() {
    alerts_pass_and_others_do_not("when = \"null_sender\"");
}

#[test]
fn limits_of_everything_do_not_stop_alerts() {
    alerts_pass_and_others_do_not("");
}

/// Tries a policy whose limit the first message of each account or client reaches.
fn alerts_pass_and_others_do_not(when: &str) {
    let mut exim = exim(&format!(
        "[on.crossing]\nmail = \"postmaster@private.test\"\n[policy.p]\n{when}\n\
         update = \"strict\"\ndefault.messages = \"1/1w\"\n"
    ));
    exim.start();
    // A program that uses SMTP on this machine, and looks as much like an alert as it can.
    let forged = || {
        let reply = exim.session().message("", &["postmaster@private.test"], FORGED);
        assert_eq!(reply.code, 451, "{}", reply.text);
    };
    forged();
    let full = rates(&exim);
    assert_eq!(full.len(), 1, "{full:?}");

    let sendmail = exim.folder().join("sendmail");
    let config = exim.config().display().to_string();
    write_script(&sendmail, &format!("#!/bin/sh\nexec {PROGRAM} -C {config} \"$@\"\n"));
    let mut deliver = Command::new(env!("CARGO_BIN_EXE_exirate"));
    deliver.args(["events", "deliver", "--json", "--spool"]).arg(exim.spool());
    deliver.arg("--sendmail").arg(&sendmail).stdin(Stdio::null());
    let output = deliver.output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let sent = String::from_utf8(output.stdout).unwrap();
    assert!(sent.contains("\"receiver\":\"mail\",\"sent\":1,"), "{sent}");
    assert_eq!(rates(&exim), full, "it was counted");
    exim.run(&["-q"], b"");
    let delivered = std::fs::read_to_string(exim.spool().join("delivered")).unwrap();
    assert_eq!(delivered.matches("\nX-Exirate-Event-Id: ").count(), 1, "{delivered}");
    assert!(delivered.contains("\nAuto-Submitted: auto-generated\n"), "{delivered}");
    assert!(delivered.contains(" is over the limit on "), "{delivered}");
    assert!(
        delivered.contains(" is over the limit of 1 messages in 1w of the policy p on "),
        "{delivered}"
    );
    assert_eq!(exim.log("main").matches(" <= <> ").count(), 1, "{}", exim.log("main"));

    // Exim's own bounces and its other mail, and that of root, by whatever way without a client.
    let bounce = ["-f", "<>", "postmaster@private.test"];
    let own = ["-f", "a@private.test", "postmaster@private.test"];
    let batch = b"MAIL FROM:<>\nRCPT TO:<postmaster@private.test>\nDATA\nSubject: x\n\nx\n.\n";
    for by in [USER, "root"] {
        for arguments in [&bounce, &own] {
            let ran = send_as(&exim, by, arguments, "Subject: x\n\nx\n");
            assert_eq!(ran.code, 0, "{by}: {ran:?}");
        }
        assert_eq!(send_as(&exim, by, &["-bS"], str::from_utf8(batch).unwrap()).code, 0);
    }
    assert_eq!(rates(&exim), full, "they were counted");

    // A client's, of which Exim's user hands over what it has sent.
    if !when.contains("local") {
        let client = [&["-oMa", "192.0.2.7"], &bounce[..]].concat();
        assert_ne!(send_as(&exim, USER, &client, FORGED).code, 0);
    }
    forged();
    assert_ne!(rates(&exim), full, "they were not counted");
    let panics = exim.log("panic");
    assert!(panics.lines().all(|line| line.contains("lost privilege for using -C")), "{panics}");
}
