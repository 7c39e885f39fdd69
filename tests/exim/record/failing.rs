//! What goes wrong is logged, and concerns no message.

use super::{answers, exim, of_text, sentence, with_text};
use exirate::trace::{Access, Settings, TraceStore, trace_directory};
use kit::exim::{USER, user};
use kit::{PrivateExim, Setup};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

#[test]
fn everything_belongs_to_exims_user() {
    let exim = exim("");
    // As root, both: the directory by one, the rest by the other.
    exim.run(&["-odq", "-t"], b"To: b@private.test\n\nhello\n");
    let owner = user(USER);
    let mut files = vec![exim.spool().join("exirate"), exim.spool().join("exirate/trace")];
    for entry in std::fs::read_dir(&files[1]).unwrap() {
        files.push(entry.unwrap().path());
    }
    assert!(files.len() > 3, "{files:?}");
    for path in files {
        let of = std::fs::metadata(&path).unwrap();
        assert_eq!((of.uid(), of.gid()), owner, "{}", path.display());
        assert_eq!(of.permissions().mode() & 0o027, 0, "{}", path.display());
        if path.ends_with("key") {
            assert_eq!(of.permissions().mode() & 0o777, 0o600);
        }
    }
}

/// Sends a small message to an Exim that cannot record it; it is accepted.
fn accepted_all_the_same(exim: &PrivateExim, reason: &str) {
    let logged = exim.log("main").matches("exirate: not recorded").count();
    let mut client = exim.session();
    for _ in 0..2 {
        let reply = client.message("s@client.test", &["a@private.test"], "Subject: x\n\nbody\n");
        assert_eq!(reply.code, 250, "{}", exim.log("main"));
    }
    client.quit();
    let log = exim.log("main");
    assert_eq!(answers(exim).pop().as_deref(), Some("no"), "{log}");
    let lines: Vec<_> = log.lines().filter(|l| l.contains("exirate: not recorded")).collect();
    assert_eq!(lines.len(), logged + 2, "{log}");
    assert!(lines.iter().skip(logged).all(|l| l.contains(reason)), "{reason}: {lines:?}");
    assert_eq!(exim.log("panic"), "");
}

#[test]
fn what_cannot_be_recorded_is_logged_and_accepted() {
    let exim = exim("");
    let trace = exim.spool().join("exirate/trace");
    // A directory that Exim may not use.
    std::fs::create_dir_all(&trace).unwrap();
    accepted_all_the_same(&exim, "exirate");
    for path in [exim.spool().join("exirate"), trace.clone()] {
        let owner = user(USER);
        chown(&path, Some(owner.0), Some(owner.1)).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o750)).unwrap();
    }
    let mut client = exim.session();
    let text = format!("Subject: x\n\n{}\n", sentence(1));
    assert!(client.message("s@client.test", &["a@private.test"], &text).is_ok());
    client.quit();
    assert_eq!(answers(&exim).pop().unwrap(), "yes", "{}", exim.log("main"));
    // A key that is damaged.
    let key = std::fs::read(trace.join("key")).unwrap();
    std::fs::write(trace.join("key"), &key[..10]).unwrap();
    accepted_all_the_same(&exim, "key");
    std::fs::write(trace.join("key"), &key).unwrap();
    let mut client = exim.session();
    let text = format!("Subject: x\n\n{}\n", sentence(2));
    assert!(client.message("s@client.test", &["a@private.test"], &text).is_ok());
    client.quit();
    assert_eq!(of_text(&exim, &sentence(1)).sender, of_text(&exim, &sentence(2)).sender);
}

#[test]
fn a_damaged_log_costs_no_other_message() {
    let exim = exim("");
    let send = |n| {
        let mut client = exim.session();
        let text = format!("Subject: x\n\n{}\n", sentence(n));
        assert!(client.message("s@client.test", &["a@private.test"], &text).is_ok());
        client.quit();
    };
    send(1);
    let trace = trace_directory(&exim.spool());
    for entry in std::fs::read_dir(&trace).unwrap() {
        let path = entry.unwrap().path();
        if !path.ends_with("key") {
            std::fs::write(path, [0x5a; 5000]).unwrap();
        }
    }
    send(2);
    assert_eq!(answers(&exim), ["yes", "yes"], "{}", exim.log("main"));
    assert_eq!(of_text(&exim, &sentence(2)).sender, "s@client.test");
    assert_eq!((with_text(&exim, &sentence(1)), exim.log("panic")), (vec![], String::new()));
}

#[test]
fn a_store_that_is_locked_holds_no_message_up_for_long() {
    let exim = exim("");
    exim.run(&["-odq", "-t"], b"To: b@private.test\n\nhello\n");
    let trace = std::fs::File::open(trace_directory(&exim.spool())).unwrap();
    rustix::fs::flock(&trace, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let mut client = exim.session();
    // Without a bound no reply would come.
    assert!(client.message("s@client.test", &["a@private.test"], "Subject: x\n\nbody\n").is_ok());
    assert_eq!(answers(&exim), ["yes", "no"], "{}", exim.log("main"));
    assert!(exim.log("main").contains("exirate: not recorded: "), "{}", exim.log("main"));
}

#[test]
fn where_there_is_no_message_it_says_so_once_and_refuses_nothing() {
    let ask = "  accept logwrite = asked: ${dlfunc{EXIRATE_TRACE}{record}}\n";
    let mut setup = Setup::new().library();
    for option in [
        "acl_smtp_connect",
        "acl_smtp_helo",
        "acl_smtp_mail",
        "acl_smtp_rcpt",
        "acl_smtp_predata",
        "acl_smtp_quit",
    ] {
        setup = setup.acl(option, ask);
    }
    let mut exim = setup.build();
    exim.start();
    let mut client = exim.session();
    assert!(client.message("s@client.test", &["a@private.test"], "Subject: x\n\nbody\n").is_ok());
    client.quit();
    exim.wait_for_log("asked: no", 6);
    let log = exim.log("main");
    let lines: Vec<_> = log.lines().filter(|l| l.contains("exirate: ")).collect();
    assert_eq!(lines.len(), 1, "{log}");
    assert!(
        lines[0].ends_with(
            "exirate: not recorded: there is no message yet in the connection \
        ACL (call record in the ACL of acl_smtp_data or acl_not_smtp)"
        ),
        "{log}"
    );
    assert!(!exim.spool().join("exirate").exists());

    // `exim -be` shows why, on standard error.
    let shown = |options: &str| {
        let ran = exim.expand(&format!("${{dlfunc{{EXIRATE_TRACE}}{{record}}{options}}}"));
        assert_eq!((ran.code, &*ran.stdout), (0, "no\n"), "{ran:?}");
        ran.stderr
    };
    assert!(shown("").contains("not recorded: there is no message here, as no ACL for one"));
    assert!(shown("{keep=90x}").contains(
        "not recorded: error in the options of \"record\": \
        \"keep=90x\" is wrong (keep= takes a time such as 90d or 52w"
    ));
    assert!(shown("{keep=90d}{x}").contains("record takes one argument or none, but 2 were given"));
    // Nor is there one where Exim only pretends.
    let exim = super::exim("");
    let (mut client, stderr) = exim.pipe(&["-bh", "192.0.2.1"]);
    while client.expect().code != 220 {}
    client.command("EHLO client.test");
    assert!(client.message("s@client.test", &["a@private.test"], "Subject: x\n\nbody\n").is_ok());
    client.close();
    let said = std::fs::read_to_string(stderr).unwrap();
    assert!(said.contains("not recorded: this session is a test (exim -bh)"), "{said}");
}

#[test]
fn a_message_is_recorded_once_and_the_last_options_hold() {
    let line = |options: &str| {
        format!("  warn logwrite = answer: ${{dlfunc{{EXIRATE_TRACE}}{{record}}{{{options}}}}}\n")
    };
    let acl = [
        line("keep=90x"),
        line("keep=7d / max_size=64M"),
        line("scheme=hbf"),
        line(""),
        "  accept\n".to_owned(),
    ];
    let mut exim = Setup::new().library().acl("acl_smtp_data", &acl.concat()).build();
    exim.start();
    let mut client = exim.session();
    for n in [1, 2] {
        let text = format!("Subject: x\n\n{}\n", sentence(n));
        assert!(client.message("s@client.test", &["a@private.test"], &text).is_ok());
        of_text(&exim, &sentence(n));
    }
    client.quit();
    assert_eq!(answers(&exim), ["no", "yes", "yes", "yes", "no", "yes", "yes", "yes"]);
    let wrong =
        exim.log("main").matches("not recorded: error in the options of \"record\"").count();
    assert_eq!(wrong, 2, "{}", exim.log("main"));
    let trace = TraceStore::open(&trace_directory(&exim.spool()), Access::Read).unwrap();
    let options = *trace.options();
    assert_eq!((options.keep, options.max_bytes), (Some(604_800), 64 << 20));
    // The third line came when there was nothing to do any more.
    assert_eq!(options.settings, Settings::default());
    assert_eq!(exim.log("panic"), "");
}
