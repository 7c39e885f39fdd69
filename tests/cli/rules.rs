//! `exirate rules`.

use serde_json::{Value, json};

use crate::{exirate, stderr, stdout};
use kit::{PrivateExim, Setup};

fn rules(exim: &PrivateExim, arguments: &[&str]) -> std::process::Output {
    exirate().args(["rules", "--config"]).arg(exim.config()).args(arguments).output().unwrap()
}

fn exim() -> PrivateExim {
    let acl = "  defer condition = ${dlfunc{EXIRATE}{ratelimit}{BASE / per_addr / strict}\
               {${dlfunc{EXIRATE}{identity}{auth}{$authenticated_id}}}}\n  message = ${dlfunc{EXIRATE}{ratelimit_info}{rate}}\n  \
               warn acl = below\n  warn ratelimit = 5 / 1h / strict\n  accept\n";
    let acls = "below:\n  defer condition = ${dlfunc{EXIRATE}{ratelimit}{7 / 1d / x}}\n  accept\n\
                unused:\n  accept condition = ${dlfunc{EXIRATE}{ratelimit}{8 / 1w}}\n";
    Setup::new().library().main("BASE = 9 / 1h").acl("acl_smtp_rcpt", acl).acls(acls).build()
}

#[test]
fn every_call_has_its_place_and_its_limit() {
    let exim = exim();
    let output = rules(&exim, &["--json"]);
    assert_eq!((output.status.code(), &*stderr(&output)), (Some(0), ""));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let config = std::fs::read_to_string(exim.config()).unwrap();
    let line = |text: &str| config.lines().position(|line| line.contains(text)).unwrap() + 1;
    let library = exim.library();
    let key =
        format!("${{dlfunc{{{}}}{{identity}}{{auth}}{{$authenticated_id}}}}", library.display());
    let [first, second, third] = &found["rules"].as_array().unwrap()[..] else {
        panic!("{found:#}");
    };
    assert_eq!(
        *first,
        json!({
            "file": exim.config(), "line": line("BASE / per_addr"), "section": "acl",
            "acl": "private_smtp_rcpt", "used_by": ["acl_smtp_rcpt"], "perhaps_used_by": [],
            "form": "dlfunc",
            "library": library, "function": "ratelimit",
            "arguments": ["9 / 1h / per_addr / strict", key],
            "key": key,
            "limits": [{"limit": "9 / 1h", "mode": "per_addr, strict"}],
            "errors": [], "warnings": [],
        })
    );
    assert_eq!((&second["acl"], &second["used_by"]), (&json!("below"), &json!(["acl_smtp_rcpt"])));
    assert_eq!(second["line"], line("7 / 1d"));
    assert_eq!((&third["acl"], &third["used_by"]), (&json!("unused"), &json!([])));
    let native = json!([{
        "file": exim.config(), "line": line("warn ratelimit"),
        "text": "warn ratelimit = 5 / 1h / strict",
    }]);
    assert_eq!(found["native"], native);

    let output = rules(&exim, &["--color", "never"]);
    let shown = stdout(&output);
    let row =
        |words: &[&str]| shown.lines().any(|line| words.iter().all(|word| line.contains(word)));
    assert!(
        row(&["9 / 1h", "per_addr, strict", "{identity}{auth}{$authent", "acl_smtp_rcpt"]),
        "{shown}"
    );
    assert!(row(&["8 / 1w", "unused", "nothing"]), "{shown}");
    assert!(row(&["counted apart", "ratelimit = 5 / 1h / strict"]), "{shown}");
    assert!(!row(&["ratelimit_info"]), "{shown}");
    assert!(stdout(&rules(&exim, &["--all"])).contains("ratelimit_info"));
}

#[test]
fn a_configuration_without_limits_is_found() {
    let exim = Setup::new().library().build();
    let output = rules(&exim, &[]);
    assert_eq!((output.status.code(), &*stdout(&output)), (Some(1), ""));
    assert!(stderr(&output).contains("nothing is limited"), "{}", stderr(&output));
    // An ACL that is the value of an option has Exim's own.
    let main = "acl_smtp_predata = \\\n    defer ratelimit = 500/1h/per_rcpt/xx-global\\n\\\n        \
                message = 450 4.7.0 too fast\\n\\\n    accept\n";
    let output = rules(&Setup::new().library().main(main).build(), &[]);
    let own = "Exim's own ratelimit, counted apart: defer ratelimit = 500/1h/per_rcpt/xx-global (";
    assert!(stdout(&output).contains(own), "{output:?}");
    let output = exirate().args(["rules", "--config", "/nonexistent"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn what_exim_reads_is_what_is_read() {
    // Each file that is shipped, with all macros.
    let root = crate::prepared::ROOT;
    let mut acl = String::new();
    let mut calls = 0;
    for entry in std::fs::read_dir(format!("{root}/exim")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name.starts_with("acl_check_rcpt") {
            acl.push_str(&format!("  .include {}\n", path.display()));
            calls += 1;
        }
    }
    assert!(calls >= 4);
    acl.push_str("  accept\n");
    let main =
        format!(".include {root}/exim/exirate.conf\nhostlist relay_from_hosts = 127.0.0.1\n");
    let exim = Setup::new().library().main(&main).acl("acl_smtp_rcpt", &acl).build();
    let output = rules(&exim, &["--json", "--all"]);
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let ours = found["rules"].as_array().unwrap();
    let theirs = exim.run(&["-bP", "config"], b"").stdout;
    let lines = theirs.lines().map(str::trim_start);
    let lines = lines.filter(|line| !line.starts_with(|c: char| c.is_ascii_uppercase()));
    let text: String = lines.collect();
    assert_eq!(ours.len(), text.matches("${dlfunc").count());
    for rule in ours {
        let call = format!(
            "{{{}}}{{{}}}",
            rule["function"].as_str().unwrap(),
            rule["arguments"][0].as_str().unwrap()
        );
        assert!(text.contains(&call), "{call} is not in\n{text}");
    }
}

/// A configuration as others write them, and what is right: `EXIRATE`, `PRIVATE` and `LIMIT`
/// (a limit that every recipient is over) can be used.
struct Odd {
    main: &'static str,
    acls: &'static str,
    /// Files beside the configuration.
    files: &'static [(&'static str, &'static str)],
    /// The options that lead to each call, and those that may.
    used_by: &'static [(&'static str, &'static str)],
    /// Exim's reply to a recipient; 0 where that is not the point.
    reply: u16,
}

const LIMIT: &str =
    "defer condition = ${dlfunc{EXIRATE}{ratelimit}{1 / 1h / per_rcpt / strict}{a}}";
const RCPT: &str = "acl_smtp_rcpt";
const CHECK: &str = "check:\n  LIMIT\n  accept\n";

const ODD: [Odd; 22] = [
    // `.include`: relative, and again from there; quoted; of a macro.
    Odd {
        main: "acl_smtp_rcpt = check",
        acls: ".include inc/acl",
        files: &[("inc/acl", "check:\n.include more\n  accept\n"), ("inc/more", "  LIMIT\n")],
        used_by: &[(RCPT, "")],
        reply: 451,
    },
    Odd {
        main: "DIR = PRIVATE/inc\nacl_smtp_rcpt = check",
        acls: ".include \"DIR/acl\"",
        files: &[("inc/acl", CHECK)],
        used_by: &[(RCPT, "")],
        reply: 451,
    },
    // Within a continued line, and a file that ends in a backslash.
    Odd {
        main: "acl_smtp_rcpt = check",
        acls: "check:\n  defer \\\n.include PRIVATE/condition\n  accept\n",
        files: &[(
            "condition",
            "  condition = ${dlfunc{EXIRATE}{ratelimit}{1 / 1h / per_rcpt / strict}{a}}\n",
        )],
        used_by: &[(RCPT, "")],
        reply: 451,
    },
    Odd {
        main: "acl_smtp_rcpt = \\\n.include PRIVATE/half\n check",
        acls: CHECK,
        files: &[("half", "\\")],
        used_by: &[(RCPT, "")],
        reply: 451,
    },
    // An empty line ends a continued line; a comment and a condition do not.
    Odd {
        main: "acl_smtp_rcpt = check\nhostlist relays = 127.0.0.1 : \\\n",
        acls: CHECK,
        files: &[],
        used_by: &[(RCPT, "")],
        reply: 451,
    },
    Odd {
        main: "acl_smtp_rcpt = \\\n# so\n.ifdef NONE\nno\n.else\n check\n.endif",
        acls: CHECK,
        files: &[],
        used_by: &[(RCPT, "")],
        reply: 451,
    },
    // Macros that are comments, in upper case within names, or nothing.
    Odd {
        main: "OFF = #\nacl_smtp_rcpt = check",
        acls: "check:\nOFF  LIMIT\n  accept\n",
        files: &[],
        used_by: &[],
        reply: 250,
    },
    Odd {
        main: "ON =\nacl_smtp_rcpt = check",
        acls: "check:\nON  LIMIT\n  accept\n",
        files: &[],
        used_by: &[(RCPT, "")],
        reply: 451,
    },
    // Options in quotes, and hidden.
    Odd {
        main: "acl_smtp_rcpt = \"check\"",
        acls: CHECK,
        files: &[],
        used_by: &[(RCPT, "")],
        reply: 451,
    },
    Odd {
        main: "acl_smtp_rcpt = accept\nhide\tacl_smtp_predata = check",
        acls: CHECK,
        files: &[],
        used_by: &[("acl_smtp_predata", "")],
        reply: 0,
    },
    // What stands behind a label is nothing.
    Odd {
        main: "acl_smtp_rcpt = check",
        acls: "check: LIMIT\n  accept\n",
        files: &[],
        used_by: &[],
        reply: 250,
    },
    // Names that only Exim knows.
    Odd {
        main: "acl_smtp_rcpt = ${lookup{$received_port}lsearch{PRIVATE/ports}{$value}{check}}",
        acls: "check:\n  accept\nsubmit:\n  LIMIT\n  accept\n",
        files: &[("ports", "587: submit\n")],
        used_by: &[("", RCPT)],
        reply: 250,
    },
    Odd {
        main: "acl_smtp_rcpt = check",
        acls: "check:\n  warn set acl_m_class = client\n  accept acl = limit_$acl_m_class\n\
               limit_client:\n  LIMIT\n  accept\nlimit_user:\n  accept\nother:\n  LIMIT\n",
        files: &[],
        used_by: &[("", RCPT), ("", "")],
        reply: 451,
    },
    Odd {
        main: "acl_smtp_rcpt = ${if eq{$received_port}{25}{PRIVATE/own}{check}}",
        acls: "check:\n  accept\n",
        files: &[("own", "# of its own\nLIBRARY\n\naccept\n")],
        used_by: &[(RCPT, "")],
        reply: 250,
    },
    // Every value is Exim's alone.
    Odd {
        main: "acl_smtp_rcpt = $tod_epoch_l",
        acls: CHECK,
        files: &[],
        used_by: &[("", RCPT)],
        reply: 0,
    },
    // An ACL of its own knows comments and continued lines only.
    Odd {
        main: "acl_smtp_rcpt = PRIVATE/own",
        acls: "",
        files: &[("own", ".ifdef EXIRATE\n  LIMIT\n.endif\naccept\n")],
        used_by: &[(RCPT, "")],
        reply: 451,
    },
    Odd {
        main: "acl_smtp_rcpt = PRIVATE/own",
        acls: "",
        files: &[("own", "LIBRARY\naccept\n")],
        used_by: &[(RCPT, "")],
        reply: 451,
    },
    // An inline ACL.
    Odd {
        main: "acl_smtp_rcpt = accept hosts = $sender_host_address",
        acls: CHECK,
        files: &[],
        used_by: &[("", "")],
        reply: 0,
    },
    // What comes first ends the ACL.
    Odd {
        main: "acl_smtp_rcpt = check",
        acls: "check:\n  accept hosts = *\n  LIMIT\n",
        files: &[],
        used_by: &[(RCPT, "")],
        reply: 250,
    },
    Odd {
        main: "acl_smtp_rcpt = check",
        acls: "check:\n  accept domains = other.test\n  LIMIT\n",
        files: &[],
        used_by: &[(RCPT, "")],
        reply: 451,
    },
    Odd {
        main: "acl_smtp_rcpt = check",
        acls: "check:\n  accept acl = below\n  LIMIT\n\nbelow:\n  deny condition = no\n",
        files: &[],
        used_by: &[(RCPT, "")],
        reply: 451,
    },
    Odd {
        main: "acl_smtp_rcpt = check",
        acls: "check:\n  accept sender_domains = x.test\n  warn sender_domains = x.test\n    \
               acl = below\n  accept\nbelow:\n  LIMIT\n",
        files: &[],
        used_by: &[(RCPT, "")],
        reply: 250,
    },
];

#[test]
fn configurations_are_read_as_exim_reads_them() {
    for (n, Odd { main, acls, files, used_by, reply }) in ODD.iter().enumerate() {
        for begin in ["begin acl", "Begin  ACL", "BEGIN acls"] {
            let filled = |text: &str| text.replace("LIMIT", LIMIT);
            let exim = Setup::new().library().main(main).acls(&filled(acls)).build();
            let config = std::fs::read_to_string(exim.config()).unwrap();
            std::fs::write(exim.config(), config.replacen("begin acl", begin, 1)).unwrap();
            // Exim replaces no macros in an ACL of its own.
            let library = LIMIT.replace("EXIRATE", &exim.library().to_string_lossy());
            for (name, text) in *files {
                let path = exim.folder().join(name);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(&path, filled(text).replace("LIBRARY", &library)).unwrap();
            }
            let what = format!("{n}: {main} {acls} {begin}");
            let output = rules(&exim, &["--json", "--all"]);
            let found: Value = serde_json::from_slice(&output.stdout)
                .unwrap_or_else(|error| panic!("{what}: {error}: {}", stderr(&output)));
            let options = |value: &Value| {
                let each = value.as_array().unwrap().iter().map(|one| one.as_str().unwrap());
                each.collect::<Vec<_>>().join(" ")
            };
            let list = found["rules"].as_array().unwrap().iter();
            let list: Vec<_> = list
                .map(|rule| (options(&rule["used_by"]), options(&rule["perhaps_used_by"])))
                .collect();
            let expected =
                used_by.iter().map(|(sure, perhaps)| ((*sure).into(), (*perhaps).into()));
            assert_eq!(list, expected.collect::<Vec<(String, String)>>(), "{what}");
            // The reader agrees with Exim by itself.
            let mut doctor = exirate();
            doctor.args(["doctor", "--json", "--config"]).arg(exim.config());
            let said = stdout(&doctor.output().unwrap());
            assert!(!said.contains("reads its configuration differently"), "{what}: {said}");
            if *reply != 0 {
                let (mut client, _) = exim.pipe(&["-bs"]);
                client.expect();
                client.command("EHLO x.test");
                client.command("MAIL FROM:<a@x.test>");
                let said = client.command("RCPT TO:<b@y.test>");
                assert_eq!(said.code, *reply, "{what}: {}\n{}", said.text, exim.log("main"));
            }
            // What limits is in use, and what does not is not.
            let limits = output.status.code() == Some(0);
            let ended = said.contains("ends the ACL before");
            let foreign = said.contains("Exim knows no .include");
            assert!(
                !limits
                    || *reply != 250
                    || used_by.iter().any(|(sure, _)| sure.is_empty())
                    || n == 13,
                "{what}: {said}"
            );
            assert!(limits || *reply != 451 || foreign, "{what}: {said}");
            assert_eq!(ended, matches!(n, 18 | 21), "{what}: {said}");
        }
    }
}
