use super::super::super::finding::Level;
use super::*;

const CHECK: &str =
    "check_policy_service { unix:exirate/policy, timeout=10s, default_action=DUNNO }";

fn policy() -> Address {
    Address::Unix("/var/spool/postfix/exirate/policy".into())
}

fn milter() -> Address {
    Address::Inet("127.0.0.1:8893".parse().unwrap())
}

/// What is found, without what is well; and the commands that fix it.
fn found(main: &str, master: &str) -> (Vec<(Level, String)>, Vec<String>) {
    let (policy, milter) = (policy(), milter());
    let sockets = Sockets { policy: Some(&policy), milter: Some(&milter) };
    let mut findings = Findings::default();
    look(&Postfix::new(main, master), sockets, &mut findings);
    let list = findings.list.into_iter().filter(|one| one.level != Level::Ok);
    let (texts, fixes): (Vec<_>, Vec<_>) = list.map(|one| ((one.level, one.text), one.fix)).unzip();
    (texts, fixes.concat())
}

fn by_policy(recipient: &str) -> String {
    format!("{RECIPIENT} = {recipient}\n{END_OF_DATA} = {CHECK}\n")
}

/// The commands that fix it, applied: nothing is found any more.
fn is_repaired(main: &str, fixes: &[String]) {
    let mut main = main.to_owned();
    for fix in fixes {
        let setting = shlex::split(fix).unwrap();
        let ["postconf", "-e", setting] =
            &setting.iter().map(String::as_str).collect::<Vec<_>>()[..]
        else {
            panic!("{fix}")
        };
        main += &format!("{setting}\n");
    }
    assert_eq!(found(&main, "").0, [], "{main}");
}

#[test]
fn lines_of_the_document_are_well() {
    let page = include_str!("../../../../docs/postfix.md");
    let mut blocks = page.split("```cf\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    assert_eq!(found(blocks.next().unwrap(), "").0, []);
    let lines = blocks.next().unwrap().replace("unix:exirate/milter", "inet:127.0.0.1:8893");
    assert_eq!(found(&lines, "").0, []);
    assert!(blocks.next().is_none());
    // Where more is in the lists, and a service has its own.
    let main = by_policy(&format!("reject_unauth_pipelining, {CHECK}, permit_mynetworks"));
    assert_eq!(found(&main, "").0, []);
}

#[test]
fn a_postfix_that_asks_nothing_is_a_problem() {
    let main = "smtpd_recipient_restrictions = check_client_access hash:/x, permit_mynetworks\n";
    let (texts, fixes) = found(main, "");
    let [(Level::Problem, text)] = &texts[..] else { panic!("{texts:?}") };
    assert!(
        text.starts_with("Postfix does not ask exirate: its mail is not limited; `exirate setup`"),
        "{text}"
    );
    assert!(fixes[0].contains(&format!("hash:/x, {CHECK}, permit_mynetworks")), "{fixes:?}");
    is_repaired(main, &fixes);
    // With a milter alone.
    let (milter, mut findings) = (milter(), Findings::default());
    let sockets = Sockets { policy: None, milter: Some(&milter) };
    look(&Postfix::new("smtpd_milters = inet:localhost:11332\n", ""), sockets, &mut findings);
    let fix = "postconf -e 'smtpd_milters = { inet:127.0.0.1:8893, command_timeout=10s, \
               default_action=accept }, inet:localhost:11332'";
    assert_eq!(findings.list[0].fix, [fix]);
}

#[test]
fn what_permits_before_the_check_is_a_problem() {
    let main = by_policy(&format!("permit_sasl_authenticated, {CHECK}"));
    let (texts, fixes) = found(&main, "");
    let [(Level::Problem, text)] = &texts[..] else { panic!("{texts:?}") };
    assert!(text.contains("permit_sasl_authenticated is before the check"), "{text}");
    assert!(fixes[0].contains(&format!("{CHECK}, permit_sasl_authenticated'")), "{fixes:?}");
    is_repaired(&main, &fixes);
}

#[test]
fn a_list_without_the_check_is_reported() {
    let (texts, fixes) = found(&format!("{RECIPIENT} = {CHECK}\n"), "");
    let [(Level::Warning, text)] = &texts[..] else { panic!("{texts:?}") };
    assert!(text.contains("bytes and messages are not counted"), "{text}");
    is_repaired(&format!("{RECIPIENT} = {CHECK}\n"), &fixes);
    // They are evaluated for each recipient, unless that is switched off.
    for list in ["smtpd_sender_restrictions", "smtpd_relay_restrictions"] {
        let main = format!("{list} = {CHECK}, permit\n{END_OF_DATA} = {CHECK}\n");
        assert_eq!(found(&main, "").0, [], "{list}");
    }
    let main = format!(
        "smtpd_delay_reject = no\nsmtpd_sender_restrictions = {CHECK}\n{END_OF_DATA} = {CHECK}\n"
    );
    let (texts, _) = found(&main, "");
    let [(Level::Problem, text)] = &texts[..] else { panic!("{texts:?}") };
    assert!(text.contains("recipients are not refused one by one"), "{text}");
}

#[test]
fn mail_must_go_on_without_the_daemon() {
    let check = "check_policy_service unix:exirate/policy";
    let main = format!("{RECIPIENT} = {check}\n{END_OF_DATA} = {check}\n");
    let (texts, fixes) = found(&main, "");
    let levels: Vec<Level> = texts.iter().map(|(level, _)| *level).collect();
    assert_eq!(levels, [Level::Warning, Level::Note, Level::Warning, Level::Note]);
    assert!(texts[0].1.contains("451 4.3.5"), "{texts:?}");
    assert!(texts[1].1.contains("up to 100s"), "{texts:?}");
    is_repaired(&main, &fixes);
    let main = "smtpd_milters = inet:127.0.0.1:8893\n";
    let (texts, fixes) = found(main, "");
    assert!(texts[0].1.contains("is tempfail"), "{texts:?}");
    assert!(texts[1].1.contains("the sendmail command"), "{texts:?}");
    is_repaired(main, &fixes);
}

#[test]
fn two_ways_at_once_are_a_problem() {
    let both = "smtpd_milters = { inet:localhost:8893, default_action=accept }\n\
                non_smtpd_milters = $smtpd_milters\n";
    let (texts, fixes) = found(&(by_policy(CHECK) + both), "");
    let [(Level::Problem, text)] = &texts[..] else { panic!("{texts:?}") };
    assert!(text.contains("everything counts twice"), "{text}");
    is_repaired(&(by_policy(CHECK) + both), &fixes);
}

#[test]
fn another_socket_than_the_daemons_is_a_problem() {
    let main = by_policy(CHECK).replace("exirate/policy", "private/exirate");
    let (texts, _) = found(&main, "");
    let (Level::Problem, text) = &texts[0] else { panic!("{texts:?}") };
    assert!(
        text.contains("unix:private/exirate (unix:/var/spool/postfix/private/exirate), and policy")
    );
    assert!(text.ends_with(" in [listen] is unix:/var/spool/postfix/exirate/policy"), "{text}");
    let (right, other) = (by_policy(CHECK), CHECK.replace("exirate/policy", "private/exirate"));
    for wrong in [
        main.clone(),
        // The right one is there as well, or the wrong one is in another list.
        by_policy(&format!("{other}, {CHECK}")),
        format!("{right}smtpd_sender_restrictions = check_policy_service unix:private/exirate\n"),
    ] {
        let (_, fixes) = found(&wrong, "");
        assert!(fixes.iter().all(|fix| !fix.contains("private/exirate")), "{fixes:?}");
        is_repaired(&wrong, &fixes);
    }
    let (texts, fixes) = found("smtpd_milters = unix:/run/exirate/milter, inet:localhost:1\n", "");
    assert!(texts[0].1.contains("milter in [listen] is inet:127.0.0.1:8893"), "{texts:?}");
    assert!(!fixes.concat().contains("/run/exirate/milter"), "{fixes:?}");
    assert!(fixes.concat().contains("inet:localhost:1"), "{fixes:?}");
}

#[test]
fn a_service_may_have_lists_of_its_own() {
    let master = "smtp inet n - y - - smtpd\nsubmission inet n - y - - smtpd\n  -o \
                  smtpd_recipient_restrictions=permit_sasl_authenticated,reject\n";
    let (texts, fixes) = found(&by_policy(CHECK), master);
    let [(Level::Problem, text)] = &texts[..] else { panic!("{texts:?}") };
    let place = "the check is not in smtpd_recipient_restrictions of submission/inet in master.cf";
    assert!(text.starts_with(place), "{text}");
    // postconf takes no blanks there.
    let fix = "postconf -P 'submission/inet/smtpd_recipient_restrictions=check_policy_service,\
               {unix:exirate/policy,timeout=10s,default_action=DUNNO},\
               permit_sasl_authenticated,reject'";
    assert_eq!(fixes, [fix]);
    // A text keeps its blanks.
    let master = master.replace(
        "  -o smtpd_recipient_restrictions=permit_sasl_authenticated,reject",
        "  -o { smtpd_recipient_restrictions = check_policy_service { unix:other, \
         default_action={450 later} }, reject }",
    );
    let (_, fixes) = found(&by_policy(CHECK), &master);
    let own = "exirate_submission_inet_smtpd_recipient_restrictions";
    assert!(fixes[0].starts_with(&format!("postconf -e '{own} = ")), "{fixes:?}");
    assert!(fixes[0].contains("{450 later}"), "{fixes:?}");
    let refers = format!("postconf -P 'submission/inet/smtpd_recipient_restrictions=${own}'");
    assert_eq!(fixes[1..], [refers]);
}

#[test]
fn a_check_in_a_class_counts() {
    let classes = format!("smtpd_restriction_classes = limited\nlimited = {CHECK}\n");
    let main = |list: &str| by_policy(list) + &classes;
    assert_eq!(found(&main("limited, permit_mynetworks"), "").0, []);
    let behind = main("permit_mynetworks, limited, reject");
    let (texts, fixes) = found(&behind, "");
    assert!(texts[0].1.contains("permit_mynetworks is before the check"), "{texts:?}");
    let moved = format!("postconf -e '{RECIPIENT} = limited, permit_mynetworks, reject'");
    assert_eq!(fixes, [moved]);
    is_repaired(&behind, &fixes);
}

#[test]
fn a_check_behind_a_plain_reject_is_a_problem() {
    let main = by_policy(&format!("reject_unauth_destination, reject, {CHECK}"));
    let (texts, fixes) = found(&main, "");
    assert!(texts[0].1.contains("reject is before the check: no mail reaches it"), "{texts:?}");
    is_repaired(&main, &fixes);
}

#[test]
fn mail_that_a_filter_gives_back_is_counted_once() {
    let main = by_policy(CHECK) + "content_filter = scan:[127.0.0.1]:10024\n";
    let smtp = "smtp inet n - n - - smtpd\n";
    let back = "127.0.0.1:10025 inet n - n - - smtpd\n -o content_filter=\n \
                -o smtpd_recipient_restrictions=permit_mynetworks,reject\n";
    let once = format!("{smtp}{back} -o smtpd_end_of_data_restrictions=\n");
    assert_eq!(found(&main, &once).0, []);
    let (texts, fixes) = found(&main, &format!("{smtp}{back}"));
    let [(Level::Problem, text)] = &texts[..] else { panic!("{texts:?}") };
    assert!(text.contains("each message counts twice"), "{text}");
    assert_eq!(fixes, ["postconf -P '127.0.0.1:10025/inet/smtpd_end_of_data_restrictions='"]);
}

#[test]
fn a_socket_outside_the_chroot_is_a_problem() {
    let (policy, master) =
        (Address::Unix("/run/exirate-mail/policy".into()), "smtp inet n - y - - smtpd\n");
    let sockets = Sockets { policy: Some(&policy), milter: None };
    let main = by_policy(CHECK).replace("exirate/policy", "/run/exirate-mail/policy");
    let found = |master: &str| {
        let mut findings = Findings::default();
        look(&Postfix::new(&main, master), sockets, &mut findings);
        findings.list.pop().unwrap()
    };
    assert!(found(master).text.contains("smtp/inet of master.cf runs in the chroot"));
    assert_eq!(found(&master.replace(" y ", " n ")).level, Level::Ok);
}

#[test]
fn macros_of_postfix_must_have_the_login() {
    let main = "smtpd_milters = { inet:localhost:8893, default_action=accept }\n\
                non_smtpd_milters = $smtpd_milters\nmilter_mail_macros = i\n";
    let (texts, fixes) = found(main, "");
    let [(Level::Problem, text)] = &texts[..] else { panic!("{texts:?}") };
    assert!(text.contains("lacks {auth_authen}"), "{text}");
    is_repaired(main, &fixes);
}

#[test]
fn times_are_postfixs() {
    assert_eq!(
        [seconds("100s"), seconds("10"), seconds("2m"), seconds("x")],
        [Some(100), Some(10), Some(120), None]
    );
}

#[test]
fn names_are_in_any_case_and_arguments_are_none() {
    // What only warns, and what a restriction takes, ends nothing.
    for before in [
        "warn_if_reject reject",
        "reject_rbl_client permit.dnsbl.test",
        "check_client_access permit",
        "sleep 1",
        "WARN_IF_REJECT reject_rhsbl_sender reject",
    ] {
        let main = by_policy(&format!("{before}, {}", CHECK.replace("check_", "Check_")));
        assert_eq!(found(&main, "").0, [], "{before}");
        let broken = by_policy(&format!("{before}, Permit_MyNetworks, {CHECK}"));
        let (texts, fixes) = found(&broken, "");
        assert!(texts[0].1.contains("Permit_MyNetworks is before the check"), "{texts:?}");
        let before = before.replace("WARN_IF_REJECT", "warn_if_reject");
        assert!(fixes[0].contains(&format!("{before}, {CHECK}, Permit_MyNetworks")), "{fixes:?}");
        is_repaired(&broken, &fixes);
    }
}

#[test]
fn what_ends_a_list_within_a_class_or_a_table_is_known() {
    let classes = format!(
        "smtpd_restriction_classes = outer, inner, late, warned\nouter = inner\n\
         inner = permit_mynetworks\nlate = permit_mynetworks, {CHECK}\nwarned = reject\n"
    );
    let list = |list: &str| by_policy(list) + &classes;
    for (before, words, repaired) in [
        ("outer", "permit_mynetworks is before the check", format!("{CHECK}, outer")),
        ("late", "permit_mynetworks is before the check", format!("{CHECK}, permit_mynetworks")),
        (
            "check_client_access static:ok",
            "check_client_access static:ok is before the check: what it permits",
            format!("{CHECK}, check_client_access static:ok"),
        ),
        ("warned", "reject is before the check: no mail", format!("{CHECK}, warned")),
    ] {
        let behind = if before == "late" { String::new() } else { format!(", {CHECK}") };
        let main = list(&format!("reject_unlisted_recipient, {before}{behind}"));
        let (texts, fixes) = found(&main, "");
        assert!(texts[0].1.contains(words), "{before}: {texts:?}");
        assert!(fixes[0].contains(&repaired), "{before}: {fixes:?}");
        is_repaired(&main, &fixes);
    }
    // A class that only refuses some, and one that is only warned of.
    for before in ["warn_if_reject warned", "check_client_access static:dunno"] {
        assert_eq!(found(&list(&format!("{before}, {CHECK}")), "").0, [], "{before}");
    }
    // The check itself is only warned of, there or in a class.
    let warns = format!("warn_if_reject {CHECK}, permit_mynetworks");
    for warned in [
        list(&warns),
        list("warn_if_reject only")
            + &format!("smtpd_restriction_classes = only\nonly = {CHECK}\n"),
    ] {
        let (texts, fixes) = found(&warned, "");
        assert!(texts[0].1.contains("only logged, and accepted"), "{texts:?}");
        is_repaired(&warned, &fixes);
    }
    // The end of DATA as well.
    let main = format!("{RECIPIENT} = {CHECK}\n{END_OF_DATA} = permit_mynetworks, {CHECK}\n");
    let (texts, fixes) = found(&main, "");
    assert!(
        texts[0].1.contains("in smtpd_end_of_data_restrictions in main.cf, permit_myn"),
        "{texts:?}"
    );
    is_repaired(&main, &fixes);
}
