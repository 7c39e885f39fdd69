//! The emergency stop: `exirate bypass` in a real Exim, whatever it was that refused.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use crate::policy::apply;
use kit::{Client, PrivateExim, Setup, until_another_second};

fn exirate(exim: &PrivateExim, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_exirate"));
    command.args(arguments).arg("--spool").arg(exim.spool()).output().unwrap()
}

fn succeeds(exim: &PrivateExim, arguments: &[&str]) -> String {
    let output = exirate(exim, arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// `exirate bypass`, until the processes that run have noticed it.
fn bypass(exim: &PrivateExim, arguments: &[&str]) {
    succeeds(exim, &[&["bypass"], arguments].concat());
    until_another_second();
}

const POLICIES: &str = "
[policy.defer]
default.messages = \"0.5/1h\"
[policy.reject]
update = \"strict\"
verdicts = { \"100%\" = \"reject\" }
default.messages = \"0.5/1h\"
[policy.hold]
verdicts = { \"100%\" = \"hold\" }
default.messages = \"0.5/1h\"
[policy.delay]
verdicts = { \"100%\" = \"delay\" }
default.messages = \"0.5/1h\"
[policy.closed]
on_error = \"fail-closed\"
default.messages = \"100/1h\"
[policy.low]
verdicts = { \"50%\" = \"defer\" }
default.messages = \"1.5/1h\"
";

/// What refuses or fails, by the first part of the sender.
const LINES: [(&str, &str); 15] = [
    ("strict", "${dlfunc{EXIRATE}{ratelimit}{0 / 1h / per_mail / strict}{$sender_address}}"),
    ("leaky", "${dlfunc{EXIRATE}{ratelimit}{0 / 1h / per_mail}{$sender_address}}"),
    (
        "all",
        "${dlfunc{EXIRATE}{ratelimit_all}{$sender_address}{0 / 1h / per_mail}{9 / 1d / per_mail}}",
    ),
    ("denied", "${dlfunc{EXIRATE}{ratelimit}{100 / 1h / per_mail}{denied@x.test}}"),
    ("spec", "${dlfunc{EXIRATE}{ratelimit}{many / often}{$sender_address}}"),
    ("usage", "${dlfunc{EXIRATE}{policy_over}{defer}{nonsense}}"),
    ("info", "${if eq{${dlfunc{EXIRATE}{ratelimit_info}{nonsense}}}{0}{no}{yes}}"),
    ("shadow", "${dlfunc{EXIRATE}{shadow}{over}{9.0}{5 / 1h / per_mail / $sender_address}}"),
    ("over", "${dlfunc{EXIRATE}{policy_over}{defer}}"),
    ("defer", "${if match{${dlfunc{EXIRATE}{policy}{defer}}}{accept|log}{no}{yes}}"),
    ("reject", "${if match{${dlfunc{EXIRATE}{policy}{reject}}}{accept|log}{no}{yes}}"),
    ("hold", "${if match{${dlfunc{EXIRATE}{policy}{hold}}}{accept|log}{no}{yes}}"),
    ("delay", "${if match{${dlfunc{EXIRATE}{policy}{delay}}}{accept|log}{no}{yes}}"),
    (
        "low",
        "${if match{${dlfunc{EXIRATE}{policy}{low}}${dlfunc{EXIRATE}{policy_info}{verdict}}}{^(accept|log)+\\$}{no}{yes}}",
    ),
    ("trace", "${dlfunc{EXIRATE_TRACE}{recorded}{a text}{nonsense}}"),
];

fn build() -> PrivateExim {
    let line = |(name, condition): &(&str, &str)| {
        format!(
            "  defer condition = ${{if eq{{$sender_address_local_part}}{{{name}}}}}\n        \
             condition = {condition}\n"
        )
    };
    let closed = ("closed", "${dlfunc{EXIRATE}{policy_over}{closed}}");
    let sound = ("sound", "${dlfunc{EXIRATE}{ratelimit}{1k / 1h / per_mail}{sound}}");
    let lines: String = LINES.iter().chain([&closed, &sound]).map(line).collect();
    let mut exim =
        Setup::new().library().acl("acl_smtp_mail", &format!("{lines}  accept\n")).build();
    apply(&exim, POLICIES);
    exim.start();
    exim
}

/// Whether MAIL of a new message is refused.
fn is_refused(client: &mut Client, name: &str) -> bool {
    client.command("RSET");
    !client.command(format!("MAIL FROM:<{name}@x.test>")).is_ok()
}

#[test]
fn nothing_is_refused_whatever_specs_policies_and_overrides_say() {
    let exim = build();
    let mut running = exim.session();
    assert!(!is_refused(&mut running, "sound"));
    succeeds(&exim, &["deny", "denied@x.test"]);
    let refused = |client: &mut Client| -> Vec<&str> {
        LINES.iter().map(|(name, _)| *name).filter(|name| is_refused(client, name)).collect()
    };
    let all = LINES.map(|(name, _)| name);
    assert_eq!(refused(&mut running), all);
    let counted = || {
        let list = exirate(&exim, &["list", "--json"]).stdout;
        let list: serde_json::Value = serde_json::from_slice(&list).unwrap();
        let rates = list.as_array().unwrap().iter().filter(|one| one["key"] == "leaky@x.test");
        rates.map(|one| one["rate"].as_f64().unwrap()).sum::<f64>()
    };
    assert_eq!(counted(), 0.0);

    bypass(&exim, &["--reason", "wrong limits"]);
    let mut new = exim.session();
    for client in [&mut running, &mut new] {
        assert_eq!(refused(client), [""; 0]);
        assert_eq!(refused(client), [""; 0]);
    }
    // Each library logs it once in each of the two processes.
    let log = exim.log("main");
    assert_eq!(log.matches("exirate: bypass for another ").count(), 2 * 2, "{log}");
    assert!(log.contains(": wrong limits): nothing is refused, although "), "{log}");
    // Events are counted on, also those that a leaky spec would not have counted.
    assert!(counted() > 1.5, "{}", counted());
    for command in [
        &["list"][..],
        &["show", "leaky@x.test"],
        &["policy", "show", "--user", "leaky@x.test"],
        &["top", "--once"],
    ] {
        let said = String::from_utf8(exirate(&exim, command).stderr).unwrap();
        assert!(said.contains("exirate: BYPASS until ") && said.contains("wrong limits"), "{said}");
    }

    bypass(&exim, &["--end"]);
    assert_eq!(refused(&mut new), all);
    assert_eq!(refused(&mut exim.session()), all);
    assert_eq!(exirate(&exim, &["bypass", "--end"]).status.code(), Some(1));
    assert_eq!(String::from_utf8(exirate(&exim, &["list"]).stderr).unwrap(), "");
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn nothing_is_refused_whatever_state_the_database_is_in() {
    type Break = fn(&Path);
    let states: [(&str, Break, Break); 5] = [
        (
            "a file instead of the directory",
            |dir| fs::write(dir, "x").unwrap(),
            |dir| {
                fs::remove_file(dir).unwrap();
            },
        ),
        (
            "no permission",
            |dir| {
                fs::create_dir(dir).unwrap();
                mode(dir, 0)
            },
            |dir| {
                mode(dir, 0o700);
                fs::remove_dir_all(dir).unwrap();
            },
        ),
        (
            "everyone may write",
            |dir| {
                fs::create_dir(dir).unwrap();
                mode(dir, 0o777)
            },
            |dir| {
                fs::remove_dir_all(dir).unwrap();
            },
        ),
        (
            "a database that cannot be opened",
            |dir| {
                fs::create_dir_all(dir.join("database")).unwrap();
            },
            |dir| fs::remove_dir_all(dir).unwrap(),
        ),
        (
            "shared limits that cannot be reached",
            |dir| {
                fs::create_dir(dir).unwrap();
                let settings = "servers 2\naway closed\nsocket /nonexistent\nagent_user 0\n";
                fs::write(dir.join("cluster"), settings).unwrap();
                mode(dir, 0o755);
                mode(&dir.join("cluster"), 0o644);
            },
            |dir| fs::remove_dir_all(dir).unwrap(),
        ),
    ];
    let exim = build();
    let directory = exim.spool().join("exirate");
    let sound = exim.spool().join("sound");
    for (what, spoil, clear) in states {
        fs::rename(&directory, &sound).unwrap();
        spoil(&directory);
        let owner = fs::metadata(exim.spool()).unwrap();
        let owner = std::os::unix::fs::MetadataExt::uid(&owner);
        if what != "no permission" {
            std::os::unix::fs::chown(&directory, Some(owner), None).unwrap();
        }
        if what == "a database that cannot be opened" || what.starts_with("shared") {
            // The policies are sound; only the database is not.
            let image = directory.join("policy.image");
            fs::copy(sound.join("policy.image"), &image).unwrap();
            std::os::unix::fs::chown(&image, Some(owner), None).unwrap();
            assert!(is_refused(&mut exim.session(), "closed"), "{what}");
        }
        assert!(is_refused(&mut exim.session(), "sound"), "{what}");
        succeeds(&exim, &["bypass"]);
        for name in ["sound", "closed", "spec"] {
            assert!(!is_refused(&mut exim.session(), name), "{what}: {name}");
        }
        succeeds(&exim, &["bypass", "--end"]);
        assert!(is_refused(&mut exim.session(), "sound"), "{what}");
        clear(&directory);
        fs::rename(&sound, &directory).unwrap();
    }
    assert!(!is_refused(&mut exim.session(), "sound"));
}

#[test]
fn a_file_that_is_damaged_or_that_everybody_may_write_stops_nothing_and_is_reported() {
    let exim = build();
    let file = exim.spool().join("exirate.bypass");
    // A process that starts looks for it at once.
    let refused = || is_refused(&mut exim.session(), "strict");
    succeeds(&exim, &["bypass"]);
    assert!(!refused());
    mode(&file, 0o666);
    assert!(refused());
    mode(&file, 0o644);
    assert!(!refused());
    fs::write(&file, "exirate bypass 1\n").unwrap();
    assert!(refused());
    let log = exim.log("main");
    assert!(log.contains("exirate: no bypass: ") && log.contains("it is damaged"), "{log}");
    let said = String::from_utf8(exirate(&exim, &["list"]).stderr).unwrap();
    assert!(said.contains("there is no bypass: ") && said.contains("it is damaged"), "{said}");
    succeeds(&exim, &["bypass"]);
    assert!(!refused());
}
