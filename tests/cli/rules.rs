//! `exirate rules`.

use serde_json::{Value, json};

use crate::common::{PrivateExim, Setup};
use crate::{exirate, stderr, stdout};

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
            "acl": "private_smtp_rcpt", "used_by": ["acl_smtp_rcpt"], "form": "dlfunc",
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
