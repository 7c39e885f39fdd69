//! Held mail on the desk: shown, released when an alarm is accepted, deleted where somebody says so, by
//! the daemon that may change a real Exim's queue.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use kit::{Process, until, write_script};
use serde_json::{Value, json};

use crate::desk::Desk;

/// An Exim whose mail from programs is held for habits, as the shipped ACL has it held.
fn exim(folder: &Path) -> std::path::PathBuf {
    let at = folder.display();
    let mark = "$tod_epoch\\noutbound\\nauth:$sender_address\\nthis message raises an alarm: 14 recipients";
    let text = format!(
        "spool_directory = {at}/queue\nlog_file_path = {at}/queue/%slog\nkeep_environment =\n\
         acl_not_smtp = hold\nbegin acl\nhold:\n  warn set acl_m_exirate_held = {mark}\n       \
         control = freeze/no_tell\n  accept\nbegin routers\nall:\n  driver = redirect\n  data = :blackhole:\n"
    );
    let (config, found) = (folder.join("exim.conf"), folder.join("found"));
    std::fs::write(&config, text).unwrap();
    for name in ["queue", "found"] {
        std::fs::create_dir(folder.join(name)).unwrap();
    }
    let user = kit::exim::USER;
    let owned =
        Command::new("chown").arg(format!("{user}:{user}")).arg(folder.join("queue")).status();
    assert!(owned.unwrap().success());
    // The daemon finds it as it finds that of a machine.
    let program =
        format!("#!/bin/sh\nexec {} -C {} \"$@\"\n", kit::exim::PROGRAM, config.display());
    std::fs::write(found.join("exim"), program).unwrap();
    let mode =
        |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode));
    mode(&found.join("exim"), 0o755).unwrap();
    mode(folder, 0o755).unwrap();
    found
}

/// Somebody has the passwords of these accounts, and writes to strangers.
fn steal(desk: &Desk, logins: &[&str]) {
    let (now, mut log, mut number) = (exirate::sys::clock::now().0, String::new(), 0);
    for login in logins {
        let mut line = |at: i64, client: &str, to: &str| {
            number += 1;
            let at = jiff::Timestamp::from_second(at).unwrap().strftime("%F %T");
            log += &format!(
                "{at} 1vM2a0-{number:011}-1aBc <= {login} H=(pc) [{client}] P=esmtpsa A=plain:{login} \
                 S=2048 for {to}\n"
            );
        };
        for day in 0..90 {
            let to = ["erin@a.test", "frank@a.test"][day as usize % 2];
            line(now - 1800 - (90 - day) * 28_000, "192.0.2.40", to);
        }
        for stranger in 0..20 {
            line(now - 1800 + stranger * 60, "203.0.113.9", &format!("r{stranger}@b.test"));
        }
    }
    let file = desk.path("month.log");
    std::fs::write(&file, log).unwrap();
    let mut learn = Command::new(env!("CARGO_BIN_EXE_exirate"));
    learn.args(["habits", "learn"]).arg(&file).arg("--spool").arg(desk.folder.path());
    let output = learn.env("TZ", "UTC").output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

/// `setup --undo` and the removal of the package, on a machine of their own, refuse while mail is held.
fn undo_names_what_is_held(found: &Path) {
    let prerm = kit::repository().join("debian/exirate.prerm");
    let prerm = std::fs::read_to_string(prerm).unwrap();
    // As a package installs it, in the PATH.
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_exirate"), found.join("exirate")).unwrap();
    let postrm = kit::repository().join("debian/exirate.postrm");
    // What follows the question is not for this machine.
    write_script(&found.join("update-rc.d"), "#!/bin/sh\nexit 9\n");
    let script = format!(
        "mount -t tmpfs none /var/lib; mount -t tmpfs none /run; exirate setup --undo; echo \"none $?\"\n\
         mkdir /var/lib/exirate-setup; cat >/tmp/prerm$$ <<'END'\n{prerm}\nEND\n\
         sh /tmp/prerm$$ remove; echo \"prerm $?\"; EXIRATE_REMOVE_ANYWAY=yes sh /tmp/prerm$$ remove\n\
         echo \"anyway $?\"; rm /tmp/prerm$$\n\
         mount -t tmpfs none /var/spool/exim4; mkdir /var/spool/exim4/input\n\
         printf '%s\\n' '-frozen 1' '-aclm _exirate_held 1' x >/var/spool/exim4/input/1abc-H\n\
         sh {0} purge; echo \"purge $?\"; EXIRATE_REMOVE_ANYWAY=yes sh {0} purge; echo \"purged $?\"\n\
         umount /var/spool/exim4\n\
         echo '{{\"version\":1,\"finished\":true,\"entries\":[]}}' >/var/lib/exirate-setup/manifest.json\n\
         exirate setup --undo; echo \"undo $?\"; exirate setup --undo --yes; echo \"yes $?\"\n",
        kit::shell_quoted(&postrm)
    );
    let path = std::env::var("PATH").unwrap();
    let mut machine = Command::new("unshare");
    machine.args(["--mount", "sh", "-c", &script]);
    machine.env("PATH", format!("{}:{path}", found.display()));
    let ran = kit::exim::run(machine, b"");
    for said in ["none 0", "prerm 1", "anyway 0", "purge 1", "purged 9", "undo 2", "yes 0"] {
        assert!(ran.stdout.lines().any(|line| line == said), "{said}: {ran:?}");
    }
    assert!(ran.stdout.contains("2 messages of auth:carol@a.test are held, since "), "{ran:?}");
    assert!(ran.stderr.contains("To have them delivered: exirate held release KEY"), "{ran:?}");
    let by_hand = "\n    exim4 -Mt 1abc && exim4 -M 1abc\nTo purge exirate all the same";
    assert!(ran.stderr.contains(by_hand), "{ran:?}");
    assert!(ran.stderr.contains("with --yes it stays held"), "{ran:?}");
}

#[test]
fn held_mail_is_shown_released_and_deleted() {
    let desk = Desk::empty("");
    let found = exim(desk.folder.path());
    steal(&desk, &["carol@a.test", "dave@a.test"]);
    for (sender, to) in [("carol", "x"), ("carol", "y"), ("dave", "z"), ("erin", "u")] {
        let mut send = Command::new(found.join("exim"));
        send.args(["-f", &format!("{sender}@a.test"), &format!("{to}@b.test")]);
        let ran = kit::exim::run(send, b"Subject: x\n\nx\n");
        assert_eq!(ran.code, 0, "{ran:?}");
    }
    let (_broker, _web) = desk.both();
    // Without the daemon nothing is shown, and an answer says what stays and who can help.
    let unknown = desk.get("/api/v1/held").json();
    let why = unknown["unread"][0].as_str().unwrap();
    assert!(unknown["messages"].is_null() && why.contains("exirate serve held"), "{unknown}");
    let mut command = desk.command("held");
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}", found.display()));
    let _held = Process(command.spawn().unwrap());
    until("it listens", || desk.get("/api/v1/held").json()["messages"] == 4);

    let held = |query: &str| desk.get(&format!("/api/v1/held{query}")).json();
    assert_eq!(held("")["messages"], 4);
    let of_carol = held("?key=carol%40a.test");
    assert_eq!(
        (&of_carol["messages"], &of_carol["held"][0]["key"]),
        (&json!(2), &json!("auth:carol@a.test"))
    );
    assert_eq!(held("?key=nobody%40a.test")["messages"], 0);

    undo_names_what_is_held(&found);
    let accepted = desk.change("/api/v1/accept", json!({ "key": "carol@a.test" })).json();
    assert_eq!(accepted["messages"], 2, "{accepted}");
    let stolen = json!({ "key": "dave@a.test", "held": "delete" });
    let stolen = desk.change("/api/v1/stolen", stolen).json();
    assert_eq!(stolen["messages"], 1, "{stolen}");
    // What is held of somebody else is touched by nobody.
    let left = held("");
    assert_eq!((&left["messages"], &left["held"][0]["sender"]), (&json!(1), &json!("erin@a.test")));
    let log = || std::fs::read_to_string(desk.path("queue/mainlog")).unwrap_or_default();
    until("it is delivered", || {
        ["x", "y"].iter().all(|to| log().contains(&format!("=> :blackhole: <{to}@b.test>")))
    });
    assert!(!log().contains("<z@b.test>"), "{}", log());
    let nothing: Value = json!({ "key": "carol@a.test" });
    assert_eq!(desk.change("/api/v1/release", nothing).problem(), "nothing");
    let released = desk.change("/api/v1/release", json!({ "key": "erin@a.test" })).json();
    assert_eq!(released["said"], json!(["released: 1 held message"]));
    let audit = desk.audit_log();
    for (verb, who, count) in
        [("release", "carol", 2), ("delete", "dave", 1), ("release", "erin", 1)]
    {
        let of = |line: &&str| {
            line.contains(&format!("web=token:desk held {verb} id="))
                && line.ends_with(&format!("key=auth:{who}@a.test"))
        };
        assert_eq!(audit.lines().filter(of).count(), count, "{audit}");
    }
}
