//! `exirate held` with a real Exim: what policies hold is told from what others freeze, and is
//! released or deleted.

use kit::exim::Ran;
use kit::{PrivateExim, Setup};
use serde_json::Value;

use crate::acl_files::login;
use crate::policy::{apply, shipped_acl_before};

const POLICY: &str = "[policy.out]\nverdicts = { \"100%\" = \"hold\" }\nupdate = \"strict\"\n\
    [policy.out.default]\nmessages = \"2.5/1w\"\n";

/// One in which another message is frozen by a line of the administrator's own.
fn exim() -> PrivateExim {
    let own = "  warn sender_domains = admin.test\n       control = freeze/no_tell\n  accept\n";
    let exim = shipped_acl_before(Setup::new(), own);
    apply(&exim, POLICY);
    exim
}

fn held(exim: &PrivateExim, arguments: &[&str]) -> Ran {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_exirate"));
    command.arg("held").args(arguments).arg("--exim").arg(kit::exim::PROGRAM);
    command.arg("--config").arg(exim.config()).arg("--spool").arg(exim.spool());
    kit::exim::run(command, b"")
}

fn ids(exim: &PrivateExim, arguments: &[&str]) -> Vec<String> {
    let ran = held(exim, &[arguments, &["--json"]].concat());
    let all: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
    all.as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
}

fn send(exim: &PrivateExim, name: &str, sender: &str, to: &[&str]) {
    let mut client = exim.session();
    login(&mut client, name);
    // A header cannot claim to be held, nor a sender.
    let text = "Subject: x\nX-exirate-held: 1\nAcl_m_exirate_held: 1\n\n--aclm _exirate_held 1\n";
    assert_eq!(client.message(sender, to, text).code, 250);
    client.quit();
}

#[test]
fn what_policies_hold_is_shown_released_and_deleted() {
    let mut exim = exim();
    exim.start();
    assert_eq!((held(&exim, &[]).code, ids(&exim, &[]).len()), (0, 0));
    for n in 0..5 {
        send(&exim, "alice", &format!("a{n}@client.test"), &["x@private.test", "y@private.test"]);
    }
    send(&exim, "bob", "b@client.test", &["x@private.test"]);
    send(&exim, "dora", "d@admin.test", &["x@private.test"]);
    let all = held(&exim, &[]);
    assert_eq!(all.code, 1, "{all:?}");
    let of_alice = ids(&exim, &["alice"]);
    assert_eq!(of_alice.len(), 3, "{all:?}\n{}", exim.log("main"));
    assert_eq!(ids(&exim, &["auth:a*"]), of_alice);
    // What only Exim's user can put there is no option of its program.
    let input = exim.spool().join("input");
    for end in ["H", "D"] {
        let copied = input.join(format!("-be-{end}"));
        std::fs::copy(input.join(format!("{}-{end}", of_alice[0])), copied).unwrap();
    }
    // What an administrator's line has frozen is left to the administrator.
    assert_eq!(exim.run(&["-bp"], b"").stdout.matches("*** frozen ***").count(), 4);
    assert_eq!(ids(&exim, &[]), of_alice, "{}", exim.run(&["-bp"], b"").stdout);
    let shown = held(&exim, &["show", &of_alice[0]]);
    assert_eq!(shown.code, 0, "{shown:?}");
    for text in [
        "by policy out",
        "key:    auth:alice",
        "why:    3.0 messages, limit 2.5/1w",
        "sender: <a2@client.test>",
        "to:     x@private.test\nto:     y@private.test",
        "  Subject: x\n",
    ] {
        assert!(shown.stdout.contains(text), "{text}: {}", shown.stdout);
    }
    let asked = held(&exim, &["release", "alice"]);
    assert!(asked.code == 2 && asked.stderr.contains("--yes"), "{asked:?}");
    let gone = held(&exim, &["delete", &of_alice[2], "--yes"]);
    assert_eq!((gone.code, &*gone.stderr), (0, ""), "{gone:?}");
    let released = held(&exim, &["release", &of_alice[0]]);
    assert_eq!((released.code, &*released.stderr), (0, ""), "{released:?}");
    exim.wait_for_log(&format!("{} Completed", of_alice[0]), 1);
    let log = exim.log("main");
    assert!(log.contains(&format!("{} => :blackhole: <x@private.test>", of_alice[0])), "{log}");
    assert!(!log.contains(&format!("{} =>", of_alice[2])), "{log}");
    assert_eq!(ids(&exim, &[]), of_alice[1..2]);
    assert_eq!(held(&exim, &["release", &of_alice[0]]).code, 1);
    // What an administrator thaws is no longer held, whatever becomes of it.
    assert_eq!(exim.run(&["-Mt", &of_alice[1]], b"").code, 0);
    assert_eq!(ids(&exim, &[]).len(), 0);
    let audit = std::fs::read_to_string(exim.spool().join("exirate/audit.log")).unwrap();
    for (verb, id) in [("delete", &of_alice[2]), ("release", &of_alice[0])] {
        let line = format!("held {verb} id={id} policy=out recipients=2 key=auth:alice\n");
        assert!(audit.contains(&line), "{audit}");
    }
    assert_eq!(exim.log("panic"), "");
}
