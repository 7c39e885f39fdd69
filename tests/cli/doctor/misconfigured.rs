//! Configurations of Exim that limit nothing, or defer all mail: Exim says
//! nothing of them before mail comes.

use std::path::Path;
use std::process::Command;

use super::{Diagnosis, configured};
use crate::{exirate, stderr, stdout};
use kit::{PrivateExim, Setup};

/// The macros of `exim/exirate.conf`, behind `lines`, and an ACL for RCPT.
fn with_macros(lines: &str, acl: &str) -> PrivateExim {
    let main = format!("{lines}\n.include {}/exim/exirate.conf\n", crate::prepared::ROOT);
    Setup::new().library().callers().main(&main).acl("acl_smtp_rcpt", acl).build()
}

const LIMIT: &str = "  defer condition = RATELIMIT_OVER{RATELIMIT_USER / strict / a}}\n  accept\n";

/// The doctor finds a problem with these words, and so does `exirate rules` have
/// its exit status.
fn is_problem(exim: &PrivateExim, words: &[&str]) {
    let found = Diagnosis::of(exim);
    found.finding("problem", words);
    let rules = exirate().args(["rules", "--config"]).arg(exim.config()).output().unwrap();
    let missing = words.iter().any(|word| word.contains("does not exist"));
    assert!(missing || rules.status.code() == Some(1), "{}", stdout(&rules));
}

/// All that Exim answers to a recipient.
fn reply(exim: &PrivateExim) -> u16 {
    let (mut client, _) = exim.pipe(&["-bs"]);
    client.expect();
    client.command("EHLO x.test");
    client.command("MAIL FROM:<a@x.test>");
    client.command("RCPT TO:<b@x.test>").code
}

#[test]
fn a_good_configuration_with_macros_is_well() {
    let exim = with_macros("", LIMIT);
    let found = Diagnosis::of(&exim);
    found.is_well();
    found.finding("ok", &["1 limit in use, from acl_smtp_rcpt"]);
    assert_eq!(reply(&exim), 250);
}

#[test]
fn a_macro_that_is_no_limit_is_a_problem() {
    let exim = with_macros("RATELIMIT_USER = 10 / 1x", LIMIT);
    is_problem(&exim, &["exim.conf:", "\"1x\" is not a time value"]);
    assert_eq!(reply(&exim), 451, "this is what the doctor is to find before");
    // Also where the key is known to Exim only.
    let acl = "  defer condition = RATELIMIT_OVER{RATELIMIT_USER / per_addr / strict / \
               $sender_host_address}}\n  accept\n";
    is_problem(&with_macros("RATELIMIT_USER = 10 / 1x", acl), &["\"1x\" is not a time value"]);
}

#[test]
fn a_comment_behind_a_macro_is_a_problem() {
    let exim = with_macros("RATELIMIT_USER = 10 / 1h   # for everyone", LIMIT);
    is_problem(&exim, &["no comments at the end of a line"]);
    assert_eq!(reply(&exim), 451);
}

#[test]
fn a_macro_name_that_is_misspelt_is_a_problem() {
    let acl = LIMIT.replace("RATELIMIT_OVER", "RATELIMTI_OVER");
    let exim = with_macros("", &acl);
    is_problem(&exim, &["RATELIMTI_OVER is not a macro", "is RATELIMIT_OVER meant?"]);
    assert_eq!(reply(&exim), 451);
    let acl = LIMIT.replace("RATELIMIT_USER", "RATELIMIT_USR");
    is_problem(
        &with_macros("", &acl),
        &["RATELIMIT_USR is not a macro", "is RATELIMIT_USER meant?"],
    );
    // A value that goes to nobody: the limit is the default one.
    let exim = with_macros("RATELIMIT_USR = 5 / 1h", LIMIT);
    Diagnosis::of(&exim)
        .finding("problem", &["nothing uses the macro RATELIMIT_USR", "is RATELIMIT_USER meant?"]);
}

#[test]
fn a_call_that_is_not_closed_is_a_problem() {
    let exim = with_macros("", "  defer condition = RATELIMIT_OVER{5 / 1h / a}\n  accept\n");
    is_problem(&exim, &["has no closing brace"]);
    assert_eq!(reply(&exim), 451);
}

#[test]
fn an_included_file_that_is_misspelt_is_a_problem() {
    let folder = tempfile::tempdir().unwrap();
    let files = folder.path().join("exirate");
    std::fs::create_dir(&files).unwrap();
    let name = "acl_check_rcpt.conf";
    std::fs::copy(Path::new(crate::prepared::ROOT).join("exim").join(name), files.join(name))
        .unwrap();
    let misspelt = files.join("acl_chek_rcpt.conf");
    let acl = format!("  .include_if_exists {}\n{LIMIT}", misspelt.display());
    let exim = with_macros("", &acl);
    let missing = format!("{} does not exist", misspelt.display());
    is_problem(&exim, &["exim.conf:", &missing, "acl_check_rcpt.conf meant?"]);
    assert_eq!(reply(&exim), 250, "Exim says nothing");
}

#[test]
fn an_acl_that_exim_does_not_use_is_a_problem() {
    let main = "acl_smtp_rcpt = other\n";
    let acls = "check:\n  defer condition = ${dlfunc{EXIRATE}{ratelimit}{9 / 1h / a}}\n  accept\n\
                other:\n  accept\n";
    let exim = Setup::new().library().callers().main(main).acls(acls).build();
    is_problem(
        &exim,
        &["nothing is limited", "the ACL check calls ratelimit", "acl_smtp_rcpt = check"],
    );
    // If another file is used as well, it is a warning.
    let acls = acls.replace(
        "other:\n",
        "other:\n  defer condition = \
                ${dlfunc{EXIRATE}{ratelimit}{9 / 1h / a}}\n",
    );
    let exim = Setup::new().library().callers().main(main).acls(&acls).build();
    let found = Diagnosis::of(&exim);
    found.is_well();
    found.finding("warning", &["the ACL check calls ratelimit, and Exim does not use this ACL"]);
    // What compared with Exim's own counts is to be deleted.
    let shadow =
        format!("{acls}exirate_shadow:\n  .include {}/exim/shadow.conf\n", crate::prepared::ROOT);
    let exim = Setup::new().library().callers().main(main).acls(&shadow).build();
    let found = Diagnosis::of(&exim);
    found.is_well();
    let words =
        ["nothing compares with Exim's own counts by the ACL exirate_shadow any more: delete its"];
    found.finding("note", &words);
    assert!(
        !found.texts("warning").iter().any(|text| text.contains("shadow")),
        "{:?}",
        found.findings
    );
    // An option that names an ACL which is not there.
    let exim = Setup::new().library().callers().main("acl_smtp_rcpt = chek\n").acls(&acls).build();
    is_problem(&exim, &["there is no ACL \"chek\""]);
    assert_eq!(reply(&exim), 451);
}

#[test]
fn debians_split_configuration_without_its_line_is_a_problem() {
    let folder = tempfile::tempdir().unwrap();
    kit::exim::open_to_all(folder.path());
    let confdir = folder.path().join("exim4");
    let sources = Path::new(crate::prepared::ROOT);
    let shell = |line: &str| {
        let output = Command::new("/bin/sh").args(["-c", line]).output().unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
    };
    shell(&format!("cp -a /etc/exim4 {}", confdir.display()));
    shell(&format!(
        "cp -r {}/debian/conf.d/. {}/conf.d && cp -r {0}/exim {1}/exirate",
        kit::shell_quoted(sources),
        confdir.display()
    ));
    shell(&format!(
        "sed -i \"s/^dc_use_split_config=.*/dc_use_split_config='true'/\" \
         {}/update-exim4.conf.conf",
        confdir.display()
    ));
    let built = Setup::new().library().callers().build();
    // The files of the package, where they are now, and its library.
    shell(&format!(
        "sed -i s,/etc/exim4/exirate,{0}/exirate, {0}/conf.d/*/*exirate {0}/exirate/*.conf && \
         printf 'EXIRATE = {1}\nSPOOLDIR = {2}\\n' > {0}/conf.d/main/000_local && chmod -R go+rX {0}",
        confdir.display(),
        built.library().display(),
        built.spool().display()
    ));
    let config = folder.path().join("config.autogenerated");
    let generate = || {
        shell(&format!(
            "rm -f {1}; update-exim4.conf --keepcomments -d {0} -o {1}",
            confdir.display(),
            config.display()
        ));
    };
    let doctor = || {
        let mut doctor = exirate();
        let output = doctor.args(["doctor", "--json", "--config"]).arg(&config).output().unwrap();
        let found: serde_json::Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)));
        let of_configuration = found["findings"].as_array().unwrap().clone();
        of_configuration
            .into_iter()
            .filter(|finding| finding["about"] == "The configuration")
            .collect::<Vec<_>>()
    };
    generate();
    let found = doctor();
    let problem = found.iter().find(|finding| finding["level"] == "problem").unwrap();
    let text = problem["text"].as_str().unwrap();
    assert!(text.contains("nothing is limited"), "{text}");
    assert!(
        text.contains("(from conf.d/acl/25_exirate)") || text.contains("exirate/acl_"),
        "{text}"
    );
    let fix = problem["fix"][0].as_str().unwrap();
    assert_eq!(fix, "echo 'RATELIMIT_CHECK_RCPT = yes' >> /etc/exim4/conf.d/main/000_local");
    // It does what it says, in the copy.
    shell(&fix.replace("/etc/exim4", &confdir.to_string_lossy()));
    generate();
    let found = doctor();
    assert!(found.iter().all(|finding| finding["level"] != "problem"), "{found:#?}");
    let limited = |finding: &&serde_json::Value| {
        finding["text"].as_str().unwrap().contains("2 limits in use, from acl_smtp_rcpt")
    };
    assert!(found.iter().any(|finding| limited(&finding)), "{found:#?}");
    // Debian's hook for lines of one's own comes after what accepts users.
    shell(&format!(
        "sed -i '/^MAIN_ACL_CHECK_RCPT/d' {0}/conf.d/main/000_local && echo \
         'CHECK_RCPT_LOCAL_ACL_FILE = {0}/exirate/acl_check_rcpt.conf' >> {0}/conf.d/main/000_local",
        confdir.display()
    ));
    generate();
    let words =
        ["no mail of an authenticated user reaches this line", "`accept authenticated = *`"];
    let found = doctor();
    let is_that = |f: &&serde_json::Value| {
        f["level"] == "problem"
            && words.iter().all(|word| f["text"].as_str().unwrap().contains(word))
    };
    assert!(found.iter().any(|f| is_that(&f)), "{found:#?}");
    shell(&format!(
        "sed -i 's/^CHECK_RCPT_LOCAL_ACL_FILE.*/MAIN_ACL_CHECK_RCPT = acl_exirate_check_rcpt/' \
         {}/conf.d/main/000_local",
        confdir.display()
    ));
    // The same line misspelt.
    shell(&format!(
        "sed -i s/RATELIMIT_CHECK_RCPT/RATELIMIT_CHEK_RCPT/ {}/conf.d/main/000_local",
        confdir.display()
    ));
    generate();
    let words = "nothing uses the macro RATELIMIT_CHEK_RCPT; is RATELIMIT_CHECK_RCPT meant?";
    let found = doctor();
    assert!(found.iter().any(|f| f["text"].as_str().unwrap().contains(words)), "{found:#?}");
}

#[test]
fn bad_lines_in_the_file_of_limits_are_problems() {
    let folder = tempfile::tempdir().unwrap();
    kit::exim::open_to_all(folder.path());
    let limits = folder.path().join("limits");
    let shipped = crate::prepared::source("exim/limits");
    let macros = format!("RATELIMIT_FILE = {}", limits.display());
    let acl = "  defer condition = RATELIMIT_OVER{${lookup{$local_part}lsearch{RATELIMIT_FILE}\
               {$value}{RATELIMIT_USER}} / per_mail / strict / a}}\n  accept\n";
    let write = |text: &str| {
        std::fs::write(&limits, text).unwrap();
        super::set_mode(&limits, 0o644);
    };
    write(&shipped);
    let exim = with_macros(&macros, acl);
    Diagnosis::of(&exim).is_well();
    for (line, words) in [
        ("b: 20 / 1x", "\"1x\" is not a time value"),
        ("b: many / 1h", "\"many\" is not a positive number"),
        ("b:", "is not a time value"),
        ("b: 20 / 1h # new", "no comments at the end of a line"),
    ] {
        write(&format!("{shipped}{line}\n"));
        let at = format!("{}:{}", limits.display(), shipped.lines().count() + 1);
        is_problem(&exim, &[&at, words]);
        assert_eq!(reply(&exim), 451, "{line}");
    }
    write(&format!("{shipped}intern: 1 / 1h\n"));
    Diagnosis::of(&exim).finding("warning", &["\"intern\" is in the file already"]);
    write(&shipped);
    super::set_mode(&limits, 0o600);
    let found = Diagnosis::of(&exim);
    found.fix("problem", &["Exim's user Debian-exim may not read it"]);
    Diagnosis::of(&exim).is_well();
    std::fs::remove_file(&limits).unwrap();
    let words = [limits.to_str().unwrap(), "which cannot be read, so Exim defers with 451"];
    Diagnosis::of(&exim).finding("problem", &words);
    assert_eq!(reply(&exim), 451);
}

#[test]
fn two_libraries_are_a_problem() {
    let exim = configured("${dlfunc{EXIRATE}{ratelimit}{9 / 1h / a}}");
    let other = exim.folder().join("exirate-2.so");
    std::fs::copy(exim.library(), &other).unwrap();
    let config = std::fs::read_to_string(exim.config()).unwrap();
    let line =
        format!("  defer condition = ${{dlfunc{{{}}}{{ratelimit}}{{9 / 1h}}}}\n", other.display());
    std::fs::write(exim.config(), config.replacen("  accept", &format!("{line}  accept"), 1))
        .unwrap();
    let words = ["exirate-2.so", "is called here", "two libraries in one process"];
    Diagnosis::of(&exim).finding("problem", &words);
    // By another name it is the same.
    std::fs::remove_file(&other).unwrap();
    std::os::unix::fs::symlink(exim.library(), &other).unwrap();
    Diagnosis::of(&exim).is_well();
}

#[test]
fn functions_called_in_the_wrong_library_are_problems() {
    let exim = configured("${dlfunc{EXIRATE}{recorded}{a text}}");
    is_problem(&exim, &["exim.conf:", "in exirate.so", "${dlfunc{EXIRATE_TRACE}{recorded}…}"]);
    assert_eq!(reply(&exim), 250);
    let exim = configured("${dlfunc{EXIRATE_TRACE}{ratelimit}{9 / 1h / a}}");
    is_problem(&exim, &["exim.conf:", "in exirate-trace.so", "${dlfunc{EXIRATE}{ratelimit}…}"]);
    assert_eq!(reply(&exim), 451);
}

#[test]
fn the_macro_of_the_trace_store_that_is_missing_or_too_late_is_a_problem() {
    let exim = configured("${dlfunc{EXIRATE_TRACE}{recorded}{a text}{short=no}}");
    let good = std::fs::read_to_string(exim.config()).unwrap();
    let is_macro = |line: &&str| line.starts_with("EXIRATE_TRACE =");
    let line = good.lines().find(is_macro).unwrap();
    let without = good.replace(&format!("{line}\n"), "");
    std::fs::write(exim.config(), &without).unwrap();
    let trace = exim.library().with_file_name("exirate-trace.so");
    let right = format!("`EXIRATE_TRACE = {}` above the line", trace.display());
    is_problem(&exim, &["exirate.so_TRACE", &right]);
    assert_eq!(reply(&exim), 451);

    let late = format!("{without}{line}\n");
    std::fs::write(exim.config(), &late).unwrap();
    let at = |macro_: &str| {
        let at = late.lines().position(|line| line.starts_with(&format!("{macro_} ="))).unwrap();
        format!("exim.conf:{}", at + 1)
    };
    Diagnosis::of(&exim).finding(
        "problem",
        &[
            "Exim cannot read its configuration",
            &format!("{}: move that line above", at("EXIRATE_TRACE")),
            &format!("defines EXIRATE ({}/{})", exim.folder().display(), at("EXIRATE")),
        ],
    );

    std::fs::write(exim.config(), &good).unwrap();
    Diagnosis::of(&exim).texts("problem").iter().for_each(|text| {
        assert!(text.contains("nothing is limited"), "{text}");
    });
}

#[test]
fn keys_that_a_client_chooses_are_warned_of() {
    let exim = configured("${dlfunc{EXIRATE}{ratelimit}{9 / 1h / per_addr / $sender_address}}");
    let found = Diagnosis::of(&exim);
    found.is_well();
    found.finding(
        "warning",
        &["$sender_address", "noupdate", "{9 / 1h / per_addr}{$sender_address}"],
    );
    let exim = configured("${dlfunc{EXIRATE}{ratelimit}{9 / 1h}{$authenticated_id}}");
    Diagnosis::of(&exim).finding("warning", &["ALICE", "{identity}{auth}{$authenticated_id}"]);
    let exim = configured(
        "${dlfunc{EXIRATE}{ratelimit}{9 / \
         1h}{${dlfunc{EXIRATE}{identity}{auth}{$authenticated_id}}}}",
    );
    assert_eq!(Diagnosis::of(&exim).texts("warning"), Vec::<&str>::new());
}

#[test]
fn a_limit_below_what_accepts_everybody_is_a_problem() {
    let limit = "  defer authenticated = *\n        condition = \
                 ${dlfunc{EXIRATE}{ratelimit}{1 / 1h / per_rcpt / strict}{${lc:$authenticated_id}}}\n";
    let exim =
        |acl: &str| Setup::new().library().callers().auth().acl("acl_smtp_rcpt", acl).build();
    let reply = |exim: &PrivateExim| {
        let (mut client, _) = exim.pipe(&["-bs"]);
        client.expect();
        client.command("EHLO x.test");
        assert_eq!(client.command("AUTH PLAIN AGFsaWNlAGdvb2Q=").code, 235);
        client.command("MAIL FROM:<a@x.test>");
        client.command("RCPT TO:<b@x.test>").code
    };
    let wrong = exim(&format!("  accept authenticated = *\n{limit}  accept\n"));
    is_problem(&wrong, &["`accept authenticated = *` (", "ends the ACL before"]);
    assert_eq!(reply(&wrong), 250);
    let right = exim(&format!("{limit}  accept authenticated = *\n"));
    Diagnosis::of(&right).is_well();
    assert_eq!(reply(&right), 451);
    // Others are limited.
    let part =
        exim(&format!("  accept hosts = 192.0.2.0/24\n  authenticated = *\n{limit}  accept\n"));
    Diagnosis::of(&part).is_well();
    assert_eq!(reply(&part), 451);
}

#[test]
fn lines_that_an_acl_of_its_own_does_not_know_are_a_problem() {
    let exim = Setup::new().library().callers().main("acl_smtp_rcpt = PRIVATE/own\n").build();
    let own = exim.folder().join("own");
    let shipped = crate::prepared::source("exim/acl_check_rcpt.conf");
    std::fs::write(&own, format!("{shipped}accept\n")).unwrap();
    let line = shipped.lines().position(|line| line.starts_with(".ifdef")).unwrap() + 1;
    is_problem(&exim, &[&format!("{}:{line}", own.display()), "and defers with 451"]);
    let found = Diagnosis::of(&exim);
    assert!(found.texts("problem").iter().all(|text| !text.contains("include a file such as")));
    assert_eq!(reply(&exim), 451);
}

#[test]
fn policies_that_are_evaluated_and_limit_nothing_are_problems() {
    let exim = configured("${dlfunc{EXIRATE}{policy_over}{outbound}}");
    let at = format!("{}:", exim.config().display());
    let found = Diagnosis::of(&exim);
    let words = [&*at, "policies are evaluated, and none is in use"];
    assert_eq!(found.finding("problem", &words)["fix"], serde_json::json!([]));
    let policy = exim.folder().join("policy.toml");
    let apply = |name: &str, unit: &str| {
        let text = format!("version = 1\n[policy.{name}]\ndefault.{unit} = \"1/1h\"\n");
        std::fs::write(&policy, text).unwrap();
        let mut apply = exirate();
        apply.args(["policy", "apply", "--spool"]).arg(exim.spool()).arg(&policy);
        assert!(apply.output().unwrap().status.success());
    };
    apply("outbuond", "recipients");
    let found = Diagnosis::of(&exim);
    found.finding("problem", &[&at, "there is no policy \"outbound\"", "is outbuond meant?"]);
    assert_eq!(reply(&exim), 250);
    apply("outbound", "bytes");
    Diagnosis::of(&exim).finding("problem", &["the policy outbound limits bytes", "acl_smtp_data"]);
    assert_eq!(reply(&exim), 250);
    apply("outbound", "recipients");
    Diagnosis::of(&exim).is_well();
    // The name may be one that only Exim knows.
    let exim = configured("${dlfunc{EXIRATE}{policy_over}{$acl_m_name}}");
    Diagnosis::of(&exim).finding("problem", &["none is in use"]);
}

#[test]
fn what_exim_does_with_held_messages_is_named() {
    let hold = "[policy.p]\nhabits = \"hold\"\n";
    for (lines, policy, level, words) in [
        ("auto_thaw = 1h", hold, "warning", "auto_thaw = 1h: it delivers"),
        ("timeout_frozen_after = 7d", hold, "note", "timeout_frozen_after = 1w: what a policy"),
        (
            "auto_thaw = 2h",
            "[policy.p]\nverdicts = { \"100%\" = \"hold\" }\ndefault.messages = \"9/1h\"\n",
            "warning",
            "auto_thaw = 2h",
        ),
        (
            "auto_thaw = 1h",
            "[policy.p]\nhabits = \"observe\"\n",
            "warning",
            "auto_thaw = 1h: it delivers what is held undecided",
        ),
        (
            "auto_thaw = 1h\nRATELIMIT_UNDECIDED = defer",
            "[policy.p]\nhabits = \"observe\"\n",
            "",
            "auto_thaw",
        ),
        ("", hold, "", "auto_thaw"),
    ] {
        let exim = with_macros(lines, LIMIT);
        let file = exim.folder().join("policy.toml");
        std::fs::write(&file, format!("version = 1\n{policy}")).unwrap();
        let mut apply = exirate();
        apply.args(["policy", "apply", "--spool"]).arg(exim.spool()).arg(&file);
        assert!(apply.output().unwrap().status.success());
        let found = Diagnosis::of(&exim);
        if level.is_empty() {
            let texts = [found.texts("warning"), found.texts("note")].concat();
            assert!(!texts.iter().any(|text| text.contains(words)), "{texts:?}");
        } else {
            found.finding(level, &[words]);
        }
    }
}

#[test]
fn a_daemon_that_may_have_an_older_configuration_is_named() {
    let mut exim = super::exim();
    exim.start();
    Diagnosis::of(&exim).is_well();
    // The times of files and processes are known to a second.
    let text = std::fs::read(exim.config()).unwrap();
    let words =
        ["exim.conf was changed after Exim's daemon (process ", "has not read the file since"];
    let is_found = || {
        std::fs::write(exim.config(), &text).unwrap();
        let texts = Diagnosis::of(&exim);
        texts.texts("warning").iter().any(|text| words.iter().all(|word| text.contains(word)))
    };
    assert!((0..1000).any(|_| is_found()));
    // Another start reads it.
    exim.stop();
    exim.start();
    Diagnosis::of(&exim).is_well();
}

/// An ACL at RCPT with a limit in the library behind `before`, in a configuration with `main`.
fn behind(main: &str, before: &str) -> PrivateExim {
    let limit = "  defer condition = ${dlfunc{EXIRATE}{ratelimit}{100 / 1h / per_rcpt / strict}\
                 {$sender_host_address}}\n  accept\n";
    Setup::new()
        .library()
        .callers()
        .main(main)
        .acl("acl_smtp_rcpt", &format!("{before}{limit}"))
        .build()
}

#[test]
fn a_line_that_no_client_comes_to_is_a_problem() {
    let lists = "hostlist everybody = 0.0.0.0/0 : ::::/0\nhostlist all = <; 0.0.0.0/0 ; ::/0";
    for hosts in ["0.0.0.0/0 : ::/0", "+everybody", "+all", "*"] {
        let exim = behind(lists, &format!("  accept hosts = {hosts}\n"));
        is_problem(&exim, &["no mail reaches this line", "ends the ACL before"]);
    }
    // Who has no sender comes to the limit.
    let found = Diagnosis::of(&behind("", "  accept senders = *\n"));
    found.is_well();
    found.finding("ok", &["1 limit in use, from acl_smtp_rcpt"]);
}

#[test]
fn what_exim_does_not_understand_in_an_acl_is_a_problem() {
    let check = "check:\n  defer condition = ${dlfunc{EXIRATE}{ratelimit}{9 / 1h / a}}\n  accept\n";
    for (option, acls, words) in [
        (
            "check # mine",
            check.to_owned(),
            &["there is no ACL \"check # mine\"", "no comments"][..],
        ),
        ("${if eq{1}{1}{ check }{}}", check.to_owned(), &["there is no ACL \"check \""]),
        (
            "first",
            format!(
                "first:\n  warn acl = ${{if eq{{1}}{{1}}{{check}}{{check}}}}\n  accept\n{check}"
            ),
            &["there is no ACL \"${if\"", "double quotes"],
        ),
        (
            "check",
            check.replace("${dlfunc", "\"${dlfunc").replace("/ a}}", "/ a}}\""),
            &["answers 451", "takes the quotes for a part of it"],
        ),
        // What only Exim knows.
        (
            "check",
            check.replace("  defer", "  deny condition = ${if eq{1}{1}{perhaps}}\n  defer"),
            &["answers 451, in a dry session", "invalid \"condition\" value \"perhaps\""],
        ),
        (
            "check",
            check.replace("  defer", "  deny condition = ${nosuch:a}\n  defer"),
            &["answers 451, in a dry session", "unknown expansion operator \"nosuch\""],
        ),
    ] {
        let main = format!("acl_smtp_rcpt = {option}");
        let exim = Setup::new().library().callers().main(&main).acls(&acls).build();
        is_problem(&exim, words);
        assert_eq!(reply(&exim), 451, "{words:?}");
    }
}

#[test]
fn what_no_dry_session_comes_to_cannot_be_known() {
    // Only Exim knows that it holds.
    let before = "  accept condition = ${if eq{a}{${lc:A}}}\n";
    let exim = behind("", before);
    let found = Diagnosis::of(&exim);
    found.finding("note", &["whether mail comes to this line cannot be known", "dry sessions"]);
    let rules = exirate().args(["rules", "--config"]).arg(exim.config()).output().unwrap();
    assert!(stdout(&rules).contains("acl_smtp_rcpt?"), "{}", stdout(&rules));
    // A network and a domain of the configuration are tried.
    let main = "hostlist inside = 10.1.0.0/16\ndomainlist ours = l.test";
    for before in ["  accept !hosts = +inside\n", "  accept !domains = +ours\n"] {
        let found = Diagnosis::of(&behind(main, before));
        found.is_well();
        found.finding("ok", &["1 limit in use"]);
    }
}

#[test]
fn dry_sessions_count_and_run_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("ran");
    let before = format!(
        "  warn condition = ${{run{{/usr/bin/touch {}}}{{yes}}{{no}}}}\n  warn ratelimit = 9 / 1h / strict\n",
        trace.display()
    );
    let exim = behind("", &before);
    Diagnosis::of(&exim).finding("ok", &["1 limit in use"]);
    assert!(!trace.exists());
    assert!(!exim.spool().join("db/ratelimit").exists());
    let keys = exirate().args(["list", "--json", "--spool"]).arg(exim.spool()).output().unwrap();
    assert_eq!(stdout(&keys).matches("per_rcpt").count(), 0, "{}", stdout(&keys));
}
