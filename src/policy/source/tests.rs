//! Files that are accepted, and the exact errors of those that are not.

use std::path::Path;

use super::super::model::{Match, Member, MemberKind, Piece, When};
use super::super::network::Cidr;
use super::super::word::{
    Action, Counting, Field, OnHabits, Placeholder, Sensitivity, State, Unit,
};
use super::{Compiled, Load, compile, compile_long};
use crate::policy::lint::lint;
use crate::toml_file::diagnostic::{Severity, place};

/// A policy file with everything that an administrator is promised.
const EXAMPLE: &str = include_str!("example.toml");
/// In 2026.
const NOW: i64 = 1_790_000_000;

/// Compiles `text`; a file named `users.csv` has `users`.
fn compiled(text: &str, users: &str) -> Compiled {
    let load = |path: &Path| match path.to_str() {
        Some("dir/users.csv") => Ok(users.to_owned()),
        _ => Err(format!("cannot read {}: not found", path.display())),
    };
    compile(Path::new("dir/p.toml"), text, &load)
}

/// All diagnostics of `text`, one a line.
fn diagnostics_of(text: &str, users: &str) -> String {
    let mut compiled = compiled(text, users);
    if let Some(policies) = &compiled.policies {
        lint(policies, NOW, &mut compiled.diagnostics);
    }
    let files = compiled.diagnostics.files.clone();
    let lines = compiled.diagnostics.sorted().into_iter().map(|one| {
        assert_eq!(one.severity == Severity::Error, compiled.policies.is_none());
        format!("{}: {}\n", place(&files, one.at), one.message)
    });
    lines.collect()
}

#[test]
fn an_action_at_the_top_is_that_of_policies_without_one() {
    let policy = "[policy.a]\ndefault.recipients = \"1/1h\"\n\
                  [policy.b]\naction = \"enforce\"\ndefault.recipients = \"1/1h\"\n";
    let action = |top: &str, name: &str| {
        let policies = compiled(&format!("version = 1\n{top}{policy}"), "").policies.unwrap();
        policies.policies[name].settings.action
    };
    assert_eq!(action("", "a"), Action::Enforce);
    assert_eq!(action("action = \"observe\"\n", "a"), Action::Observe);
    assert_eq!(action("action = \"observe\"\n", "b"), Action::Enforce);
    let wrong = diagnostics_of("version = 1\naction = \"obserfe\"\n", "");
    assert!(wrong.contains("did you mean \"observe\"?"), "{wrong}");
}

/// `deny` blocks accounts alone: whoever chooses another key would have others blocked.
#[test]
fn deny_is_for_what_no_stranger_chooses() {
    let of = |deny: &str, policy: &str| {
        let limit = "default.messages = \"1/1h\"\n";
        let text = format!("version = 1\n[on.crossing]\n{deny}\n[policy.p]\n{policy}\n{limit}");
        diagnostics_of(&text, "")
    };
    let day = "deny = \"1d\"";
    for policy in [
        "when = \"authenticated\"",
        "key = \"auth\"",
        "key = [\"local_account\", \"script\"]",
        "key = [\"auth\", \"client\"]",
    ] {
        assert!(!of(day, policy).contains("deny"), "{policy}");
    }
    for (policy, chosen) in [
        ("", "client"),
        ("when = \"local\"", "client"),
        ("when = \"relay\"\nkey = \"client\"", "client"),
        ("when = \"relay\"\nkey = [\"sender\", \"client\"]", "sender"),
        ("when = \"relay\"\nkey = [\"recipient\", \"server\"]", "recipient"),
        ("key = \"auth\"\ndefault.auth_failures = \"5/1h\"", "failed logins"),
    ] {
        let found = of(day, policy);
        let error = format!(
            "dir/p.toml:4:9: deny in [on.crossing]: strangers could have others blocked by {chosen}, which \"p\" counts; "
        );
        assert!(found.contains(&error), "{policy}: {found}");
        // Where another policy alone blocks, it is as it was.
        let other = "deny = \"1d\"\ndeny_policies = [\"q\"]";
        let policy = format!("{policy}\n[policy.q]\nkey = \"auth\"");
        assert!(!of(other, &policy).contains("deny"), "{policy}");
    }
    for (deny, error) in [
        ("deny = \"10s\"", "too short or too long"),
        ("deny = \"never\"", "never"),
        ("deny_policies = [\"q\"]", "deny_policies: there is no policy \"q\"; allowed: p"),
        ("deny = \"1d\"\ndeny_reply = \"accept\"", "deny_reply"),
    ] {
        assert!(of(deny, "key = \"auth\"").contains(error), "{deny}");
    }
    // At delivery, mail waits, and nobody is blocked.
    let pace = "at = \"delivery\"\nkey = \"destination\"";
    assert!(!of("deny = \"1d\"", pace).contains("strangers"));
    let found = of("deny = \"1d\"\ndeny_policies = [\"p\"]", pace);
    assert!(found.contains("\"p\" is at delivery, where mail waits"), "{found}");
}

/// A contact is of a user, and another mailbox than the account.
#[test]
fn a_contact_is_another_mailbox_of_one_user() {
    let of = |on: &str, table: &str, users: &str| {
        let text = format!(
            "version = 1\n[identity]\nfold.plus = true\nqualify = \"x.test\"\n[on.crossing]\n{on}\n\
             [policy.p]\nusers = \"users.csv\"\nwhen = \"authenticated\"\nkey = \"auth\"\n\
             default.messages = \"1/1h\"\n{table}"
        );
        diagnostics_of(&text, users)
    };
    let (on, head) = ("contact = true", "user,contact\n");
    let csv = format!("{head}ann,ann@y.test\nbob@x.test,\n");
    assert_eq!(of(on, "", &csv), "");
    let compiled =
        compiled("version = 1\n[policy.p]\nusers = \"users.csv\"\n", &csv).policies.unwrap();
    let ann = compiled.policies["p"].users.iter().next().unwrap().1;
    assert_eq!(ann.limits.habits.contact.as_deref(), Some("ann@y.test"));
    assert_eq!(of(on, "[policy.p.user.\"ann@x.test\"]\ncontact = \"a@y.test\"\n", head), "");
    for own in ["ann@x.test", "ANN@X.test", "ann+tag@x.test"] {
        let found = of(on, "", &format!("{head}ann,{own}\n"));
        assert!(found.contains(&format!("{own} is the mailbox of ann@x.test itself")), "{found}");
    }
    assert!(of(on, "", &format!("{head}ann,nobody\n")).contains("not one mail address"));
    for table in ["default.contact", "domain.\"x.test\".contact", "package.gold.contact"] {
        let found = of(on, &format!("{table} = \"a@y.test\"\n"), head);
        assert!(found.contains("contact is of one account"), "{table}: {found}");
    }
    // What is allowed in a table is accepted there.
    for (table, is_allowed) in [
        ("", false),
        ("default.", false),
        ("domain.\"x.test\".", false),
        ("user.\"a@x.test\".", true),
    ] {
        let found = of(on, &format!("{table}wrong = 1\n"), head);
        let allowed = found.lines().find_map(|line| line.split_once("allowed: ")).unwrap().1;
        assert!(allowed.contains("sensitivity"), "{table}: {found}");
        assert_eq!(allowed.split(", ").any(|key| key == "contact"), is_allowed, "{table}: {found}");
    }
    assert!(of(on, "", head).contains("no user has a contact"));
    assert!(of("log = true", "", &csv).contains("without contact = true in [on.crossing]"));
}

#[test]
fn the_example_is_accepted_as_it_stands() {
    assert_eq!(diagnostics_of(EXAMPLE, ""), "");
    let policies = compiled(EXAMPLE, "").policies.unwrap();
    let identity = &policies.identity;
    assert_eq!(identity.chain, [Field::Auth, Field::LocalAccount, Field::Client]);
    assert!(identity.folding.case && identity.folding.plus);
    assert_eq!(identity.folding.dots, ["gmail.com"]);
    assert_eq!((identity.folding.v4, identity.folding.v6), (32, 64));
    let on = &policies.on_crossing;
    assert_eq!((on.log, on.run.len()), (true, 3));
    assert_eq!(on.run[2].0, [Piece::Value(Placeholder::Key)]);
    assert_eq!(on.post.as_deref(), Some("https://ops.example/hook"));
    assert_eq!(on.mail.as_deref(), Some("postmaster@example.org"));

    let outbound = &policies.policies["outbound"];
    assert_eq!(outbound.settings.when, [When::Is { state: State::Authenticated, not: false }]);
    assert_eq!(
        (outbound.settings.action, outbound.settings.update),
        (Action::Enforce, Counting::Strict)
    );
    let windows = |amount: &super::super::model::Amount| {
        amount.windows.iter().map(|w| (w.limit, w.period)).collect::<Vec<_>>()
    };
    let each = &outbound.default.each;
    assert_eq!(windows(each.get(&Unit::Recipients).unwrap()), [(100.0, 3600.0), (500.0, 86400.0)]);
    assert_eq!(windows(each.get(&Unit::UniqueRecipients).unwrap()), [(60.0, 3600.0)]);
    assert_eq!(windows(each.get(&Unit::Bytes).unwrap()), [(500.0 * 1048576.0, 86400.0)]);
    let gold = outbound.packages["gold"].each.get(&Unit::Recipients).unwrap();
    assert_eq!(windows(gold), [(1000.0, 3600.0), (5000.0, 86400.0)]);
    let domain = outbound.domains.get("example.org").unwrap();
    assert_eq!(domain.package.as_deref(), Some("gold"));
    assert_eq!(windows(domain.limits.total.get(&Unit::Recipients).unwrap()), [(3000.0, 3600.0)]);
    assert_eq!(
        windows(
            outbound
                .users
                .get("news@example.org")
                .unwrap()
                .limits
                .each
                .get(&Unit::Recipients)
                .unwrap()
        ),
        []
    );
    let exempt = &outbound.exempt[0];
    let network = Match::Client(Cidr::parse("192.0.2.0/24").unwrap());
    assert_eq!(exempt.matches, [Match::Identity("ceo@example.org".into()), network]);
    assert_eq!(exempt.until, Some(1_798_675_200));
    assert_eq!(exempt.reason.as_deref(), Some("year-end letter"));

    let bounces = &policies.policies["bounces"];
    assert_eq!(bounces.settings.key, [Field::Recipient, Field::Client]);
    let bucket = &bounces.default.buckets.as_ref().unwrap().buckets[0];
    assert_eq!((bucket.burst, bucket.leak, bucket.unit), (5.0, 1.0 / 3600.0, Unit::Recipients));
}

const CUSTOMERS: &str = r#"version = 1
[identity]
qualify = "own.test"
[policy.out]
users = "users.csv"
package.gold.messages = "9/1h"
domain."a.test".messages = "1/1h"
user.ann.messages = "2/1h"
[policy.out.customer.acme]
domains = ["A.test.", "b.test"]
users = ["Ann"]
package = "gold"
bytes = "1k/1h"
total = { recipients = "5000/1h" }
[policy.out.customer."b, c"]
"#;

#[test]
fn customers_have_domains_and_users() {
    let users = "user,customer,messages\nbob,\"b, c\",\ncarl,,3/1h\n";
    assert_eq!(diagnostics_of(CUSTOMERS, users), "");
    let policies = compiled(CUSTOMERS, users).policies.unwrap();
    let policy = &policies.policies["out"];
    let acme = policy.customers.get("acme").unwrap();
    assert_eq!((acme.package.as_deref(), acme.limits.each.len()), (Some("gold"), 1));
    assert!(acme.limits.total.contains_key(&Unit::Recipients));
    for (kind, name, customer, limits) in [
        (MemberKind::Domain, "a.test", Some("acme"), 1),
        (MemberKind::Domain, "b.test", Some("acme"), 0),
        (MemberKind::User, "ann@own.test", Some("acme"), 1),
        (MemberKind::User, "bob@own.test", Some("b, c"), 0),
        (MemberKind::User, "carl@own.test", None, 1),
    ] {
        let member = policy.members(kind).get(name).unwrap();
        assert_eq!((member.customer.as_deref(), member.limits.each.len()), (customer, limits));
    }
}

#[test]
fn nobody_is_of_two_customers() {
    let text = CUSTOMERS.replace("\"b, c\"]", "\"b, c\"]\ndomains = [\"B.TEST\", \"c.test\", \"c.test\", \"*.x\"]\nusers = [\"ann\", \"dora\"]");
    let users = "user,customer,messages\nbob,acmee,\ndora,acme,\n";
    let text = text + "[policy.out.customer.\" x\"]\n";
    assert_eq!(
        diagnostics_of(&text, users),
        "dir/p.toml:16:12: domain \"B.TEST\", folded to \"b.test\", is of two customers, \"acme\" and \"b, c\"; first at dir/p.toml:10:23\n\
         dir/p.toml:16:32: domain \"c.test\" is listed twice; first at dir/p.toml:16:22\n\
         dir/p.toml:16:42: \"*.x\" stands for many domains; a table is for one\n\
         dir/p.toml:17:10: user \"ann\", folded to \"ann@own.test\", is of two customers, \"acme\" and \"b, c\"; first at dir/p.toml:11:10\n\
         dir/p.toml:17:17: user \"dora\", folded to \"dora@own.test\", is of two customers, \"acme\" and \"b, c\"; first at dir/users.csv:3:1\n\
         dir/p.toml:18:22: \" x\" is not a name of a customer; it may not be empty, and have no blanks around it and no control characters\n\
         dir/users.csv:2:5: unknown customer \"acmee\"; did you mean \"acme\"?\n"
    );
}

/// Wrong files, and all of their errors.
const WRONG: &[(&str, &str)] = &[
    ("", "dir/p.toml:1:1: the version is missing; start with: version = 1\n"),
    (
        "version = 2",
        "dir/p.toml:1:11: the file is of format version 2, and this exirate knows no version above 1: \
         use the later exirate that wrote it, or write: version = 1\n",
    ),
    (
        "version = 1\n[identity]\nchian = [\"auth\"]\nchain = [\"auht\"]\n",
        "dir/p.toml:3:1: unknown key \"chian\" in [identity]; did you mean \"chain\"? Allowed: chain, fold, qualify, mask, relay\n\
         dir/p.toml:4:10: unknown identity \"auht\"; did you mean \"auth\"? Allowed: auth, local_account, script, client, client_56, client_48, sender, sender_domain, recipient, recipient_domain, destination, helo, server\n",
    ),
    (
        "version = 1\n[policy.out]\nwhen = \"autenticated\"\naction = 5\nbucket = { burst = 5 }\n",
        "dir/p.toml:3:8: unknown condition \"autenticated\"; did you mean \"authenticated\"? Allowed: always, authenticated, local, relay, null_sender, system\n\
         dir/p.toml:4:10: expected a string such as \"enforce\", found an integer\n\
         dir/p.toml:5:10: the bucket has no rate; expected such as { burst = 5, rate = \"1 / 1h\" }\n",
    ),
    (
        "version = 1\n[policy.out.default]\nrecipients = [\"100/1h\", \"x/1d\", \"5\"]\nrecipient = \"1/1h\"\n",
        "dir/p.toml:3:25: \"x\" is not a limit; expected a number such as 100, 1.5k or 500M\n\
         dir/p.toml:3:33: \"5\" has no period; expected such as \"100/1h\" or \"500 daily\"\n\
         dir/p.toml:4:1: unknown key \"recipient\" in [policy.out.default]; did you mean \"recipients\"? Allowed: messages, recipients, unique_recipients, unique_senders, unique_clients, bytes, connections, rejected_recipients, auth_failures, recipients_per_message, failed_recipients, unknown_recipients, message_size, failed_share, unknown_share, throttled_recipients, habits, sensitivity, bucket, total\n",
    ),
    (
        "version = 1\n[policy.out.package.gold]\nmessages = \"1/1h\"\n[policy.out.user.\"é@x.org\"]\npackage = \"glod\"\n[policy.out.user.\"É@X.org\"]\n",
        "dir/p.toml:5:11: unknown package \"glod\"; did you mean \"gold\"?\n\
         dir/p.toml:6:18: user \"É@X.org\", folded to \"é@x.org\", is listed twice; first at dir/p.toml:4:18\n",
    ),
    (
        "version = 1\n[policy.out.default]\nmessages = \"1/1h\"\n[[policy.out.exempt]]\nreason = \"x\"\nuntil = 2026-12-31\n[[policy.out.exempt]]\nmatch = [\"192.0.2.1/24\", \"a b\"]\n",
        "dir/p.toml:4:1: who is exempt is missing; expected such as match = [\"ceo@example.org\", \"192.0.2.0/24\"]\n\
         dir/p.toml:6:9: 2026-12-31 is not a moment with its time zone; expected such as 2026-12-31T00:00:00Z\n\
         dir/p.toml:8:10: \"192.0.2.1/24\" is an address within a network; write \"192.0.2.0/24\" for all of it\n\
         dir/p.toml:8:26: \"a b\" matches nobody; expected an address, a login, a domain or a network\n",
    ),
    (
        "version = 1\n[policy.out]\ntext = \"Over {limits}\"\nwhen = \"relay\"\nverdicts = { \"80%\" = \"log\", 3 = \"reject\", \"100%\" = \"refuse\" }\n",
        "dir/p.toml:3:8: unknown placeholder {limits}; did you mean \"limit\"? Allowed: policy, key, rule, unit, rate, limit, period, remaining, retry_after, auth, client, sender, recipient, script, message_id, time\n\
         dir/p.toml:4:8: which clients are relays is missing: [identity] relay = [\"192.0.2.0/24\"]\n\
         dir/p.toml:5:29: \"3\" is not a part of the limit; expected such as \"80%\", \"100%\" or \"300%\"\n\
         dir/p.toml:5:52: unknown verdict \"refuse\"; allowed: accept, log, delay, hold, defer, reject\n",
    ),
    (
        "version = 1\n[on.crossing]\nrun = [\"over\", \"{kye}\"]\npost = \"ftp://x\"\nmail = \"root\"\nrepeat = \"soon\"\n",
        "dir/p.toml:3:8: \"over\" is not the absolute path of a program\n\
         dir/p.toml:3:16: unknown placeholder {kye}; did you mean \"key\"? Allowed: policy, key, rule, unit, rate, limit, period, remaining, retry_after, auth, client, sender, recipient, script, message_id, time\n\
         dir/p.toml:4:8: not a URL; expected such as https://ops.example/hook\n\
         dir/p.toml:5:8: not one mail address; expected such as postmaster@example.org\n\
         dir/p.toml:6:10: \"soon\" is not a period; expected such as 30s, 15m, 1h, 1d or 1d12h\n",
    ),
    (
        "version = 1\n[on.crossing]\nmail = \"post master@example.org\"\n",
        "dir/p.toml:3:8: not one mail address; expected such as postmaster@example.org\n",
    ),
    (
        "version = 1\n[policy.out]\nlongest_delay = \"301s\"\n[policy.in]\nlongest_delay = \"5m\"\n",
        "dir/p.toml:3:17: \"301s\" is too long: the longest is \"5m\"\n",
    ),
    (
        "version = 1\n[policy.out.default]\nfailed_share = { limit = \"30\", period = \"1d\", of = \"all\", last = 5 }\nunknown_share = \"130%/1d\"\nmessages = \"5%/1h\"\n",
        "dir/p.toml:3:16: \"30\" is not a share; expected a percentage up to 100%, such as \"30%\"\n\
         dir/p.toml:3:52: unknown share \"all\"; allowed: recipients, unknown\n\
         dir/p.toml:3:59: unknown key \"last\" in a share; did you mean \"least\"? Allowed: limit, of, period, least\n\
         dir/p.toml:4:17: \"130%\" is not a share; expected a percentage up to 100%, such as \"30%\"\n\
         dir/p.toml:5:12: \"5%\" is not a limit; expected a number such as 100, 1.5k or 500M\n",
    ),
    (
        "version = 1\n[policy.out.default]\nfailed_share = [{ limit = \"30%\", of = \"deferred\" }, { limit = \"9%\", period = \"1h\", least = 0 }]\nbucket = { burst = 5, rate = 1, unit = \"failed_share\" }\n",
        "dir/p.toml:3:17: the share has no period; expected such as { limit = \"30%\", of = \"recipients\", period = \"1d\", least = 50 }\n\
         dir/p.toml:3:39: deferred recipients are not counted: receivers defer new mail by greylisting, whoever sends it; write \"recipients\" or \"unknown\"\n\
         dir/p.toml:3:92: 0 is not a number from 1 to 1000000\n\
         dir/p.toml:4:40: failed_share fills no bucket\n",
    ),
    (
        "version = 1\n[policy.out]\nusers = \"users.csv\"\n",
        "dir/users.csv:1:6: unknown column \"recipient\"; did you mean \"recipients\"? Allowed: user, package, customer, habits, sensitivity, contact, messages, recipients, unique_recipients, unique_senders, unique_clients, bytes, connections, rejected_recipients, auth_failures, recipients_per_message, failed_recipients, unknown_recipients, message_size, failed_share, unknown_share, throttled_recipients\n",
    ),
    (
        "version = 1\n[policy.out]\nusers = \"other.csv\"\n",
        "dir/p.toml:3:9: cannot read dir/other.csv: not found\n",
    ),
];

#[test]
fn every_error_is_reported_with_its_place() {
    for (text, errors) in WRONG {
        let found = diagnostics_of(text, "user,recipient\nalice,1/1h\n");
        assert_eq!(&found, errors, "{text}");
    }
}

#[test]
fn what_is_no_toml_is_reported_alone() {
    let found = diagnostics_of("version = 1\nversion = \n[policy\n", "");
    assert!(found.starts_with("dir/p.toml:2:"), "{found}");
    assert!(
        found.lines().count() >= 2 && found.lines().all(|l| l.contains(": not TOML: ")),
        "{found}"
    );
}

#[test]
fn a_name_that_needs_quotes_is_said_to_need_them() {
    let found = diagnostics_of("version = 1\n[policy.out]\nuser.alice@example.org = {}\n", "");
    let quotes = "; write it in quotes, as in \"alice@example.org\"";
    let mut lines = found.lines();
    let first = lines.next().unwrap();
    assert!(
        first.starts_with("dir/p.toml:3:")
            && first.contains(": not TOML: ")
            && first.ends_with(quotes),
        "{found}"
    );
}

#[test]
fn users_come_from_a_file_too() {
    let policy = "version = 1\n[policy.out]\nusers = \"users.csv\"\n\
                  [policy.out.package.gold]\nmessages = \"9/1h\"\n[policy.out.user.bob]\n";
    let users =
        "user,package,recipients\n# comment\nAlice@X.org,gold,100/1h 500/1d\ncarl,,unlimited\n";
    assert_eq!(diagnostics_of(policy, users), "");
    let policies = compiled(policy, users).policies.unwrap();
    assert_eq!(policies.files.len(), 2);
    let users = &policies.policies["out"].users;
    assert_eq!(users.keys().collect::<Vec<_>>(), ["alice@x.org", "bob", "carl"]);
    let alice = users.get("alice@x.org").unwrap();
    assert_eq!(alice.package.as_deref(), Some("gold"));
    assert_eq!(alice.limits.each.get(&Unit::Recipients).unwrap().windows.len(), 2);
    assert_eq!(
        users.get("carl").unwrap().limits.each.get(&Unit::Recipients).unwrap().windows[..],
        []
    );

    let said = "user,habits,sensitivity\nalice,observe,high\ncarl,,low\n";
    assert_eq!(diagnostics_of(policy, said), "");
    let policies = compiled(policy, said).policies.unwrap();
    let habits = ["alice", "carl"].map(|user| {
        let habits = &policies.policies["out"].users.get(user).unwrap().limits.habits;
        (habits.habits, habits.sensitivity)
    });
    let (low, high) = (Some(Sensitivity::Low), Some(Sensitivity::High));
    assert_eq!(habits, [(Some(OnHabits::Observe), high), (None, low)]);
    assert_eq!(
        diagnostics_of(policy, "user,habits\nalice,hols\n"),
        "dir/users.csv:2:7: unknown habits \"hols\"; did you mean \"hold\"? Allowed: off, observe, hold, defer\n"
    );

    let wrong = "user,package,recipients\nBOB,,1/1h\nalice,silver,1/1h\ndora,gold\n,,1/1h\neve,gold, 1/1h x/1h\n";
    assert_eq!(
        diagnostics_of(policy, wrong),
        "dir/users.csv:2:1: user \"BOB\", folded to \"bob\", is listed twice; first at dir/p.toml:6:18\n\
         dir/users.csv:3:7: unknown package \"silver\"; its packages: gold\n\
         dir/users.csv:4:1: 2 fields where the first line has 3\n\
         dir/users.csv:5:1: \"\" is not a user: nothing is left of it after folding\n\
         dir/users.csv:6:11: \"x\" is not a limit; expected a number such as 100, 1.5k or 500M\n"
    );
}

/// Files that are sound but probably not meant, and all warnings.
const DOUBTFUL: &[(&str, &str)] = &[
    (
        "version = 1",
        "dir/p.toml:1:1: no policy: nothing is limited; expected such as [policy.outbound]\n",
    ),
    ("version = 1\n[policy.out]\n", "dir/p.toml:2:9: the policy \"out\" has no limit\n"),
    (
        "version = 1\n[identity]\nchain = [\"auth\", \"sender_domain\"]\n[policy.out.default]\nmessages = \"9/1h\"\n[policy.user]\nwhen = \"authenticated\"\ndefault.messages = \"9/1h\"\n",
        "dir/p.toml:3:9: any client can claim the sender_domain in the chain, which \"out\" counts, so strangers can use up the limit of a customer; use it only with when = \"relay\" or \"local\"\n",
    ),
    (
        "version = 1\nidentity.relay = \"10.0.0.0/8\"\n[policy.out]\nkey = \"sender_domain\"\ndefault.messages = \"9/1h\"\n[policy.in]\nwhen = \"relay\"\nkey = \"sender_domain\"\ndefault.messages = \"9/1h\"\n",
        "dir/p.toml:3:9: any client can claim the sender_domain that \"out\" counts, so strangers can use up the limit of a customer; use it only with when = \"relay\" or \"local\"\n",
    ),
    (
        "version = 1\nidentity.relay = \"10.0.0.0/8\"\n[policy.a]\nwhen = \"relay\"\nkey = \"sender_domain\"\ndefault.unknown_recipients = \"9/1h\"\n[policy.b]\nwhen = \"relay\"\nkey = [\"sender_domain\", \"client\"]\ndefault.failed_recipients = \"9/1h\"\n",
        "dir/p.toml:3:9: whoever may send mail chooses the sender_domain for which \"a\" counts failed deliveries, and so has the mail of others refused; write key = \"auth\", or add client to the key\n",
    ),
    (
        "version = 1\nidentity.relay = \"10.0.0.0/8\"\n[policy.a]\nwhen = \"null_sender\"\nkey = \"recipient\"\ndefault.messages = \"9/1h\"\n[policy.b]\nkey = [\"recipient_domain\", \"helo\"]\ndefault.messages = \"9/1h\"\n[policy.c]\nkey = [\"recipient\", \"client\"]\ndefault.messages = \"9/1h\"\n[policy.d]\naction = \"observe\"\nkey = \"recipient\"\ndefault.messages = \"9/1h\"\n[policy.e]\nwhen = \"authenticated\"\nkey = \"recipient\"\ndefault.messages = \"9/1h\"\n[policy.f]\nwhen = \"relay\"\nkey = \"recipient\"\ndefault.messages = \"9/1h\"\n",
        "dir/p.toml:3:9: any client can choose the recipient that \"a\" counts, so strangers can keep its mail from a recipient; write action = \"observe\", or add client to the key\n\
         dir/p.toml:7:9: any client can choose the recipient_domain that \"b\" counts, so strangers can keep its mail from a recipient; write action = \"observe\", or add client to the key\n",
    ),
    (
        "version = 1\n[on.crossing]\nmail = \"postmaster@example.org\"\nobserved = true\n[policy.a]\naction = \"observe\"\nkey = \"recipient\"\ndefault.messages = \"9/1h\"\n",
        "dir/p.toml:5:9: any client can choose the recipient that \"a\" counts, so they choose how many alerts [on.crossing] sends; add client to the key\n",
    ),
    (
        "version = 1\n[policy.a]\nwhen = [\"local\", \"system\"]\ndefault.messages = \"9/1h\"\n[policy.b]\nwhen = \"system\"\naction = \"observe\"\ndefault.messages = \"9/1h\"\n[policy.c]\nwhen = [\"local\", \"!system\"]\ndefault.messages = \"9/1h\"\n",
        "dir/p.toml:2:9: what \"a\" refuses is lost: bounces and warnings of the mail server, and mail of root; write action = \"observe\"\n",
    ),
    (
        "version = 1\n[identity]\nchain = [\"auth\", \"script\", \"local_account\"]\n[policy.a]\nwhen = \"local\"\ndefault.messages = \"9/1h\"\n[policy.b]\nwhen = \"authenticated\"\ndefault.messages = \"9/1h\"\n[policy.c]\nwhen = \"!local\"\ndefault.messages = \"9/1h\"\n",
        "dir/p.toml:3:9: any local program can call itself another script each time, so what \"a\" counts by it limits nobody; write local_account before script in the chain, or leave script out\n",
    ),
    (
        "version = 1\nidentity.chain = [\"auth\", \"local_account\", \"script\"]\n[policy.a]\nwhen = \"local\"\ndefault.messages = \"9/1h\"\n[policy.b]\nwhen = \"local\"\nkey = [\"local_account\", \"script\"]\ndefault.messages = \"9/1h\"\n",
        "",
    ),
    (
        "version = 1\n[policy.a]\nwhen = \"local\"\nkey = \"script\"\ndefault.messages = \"9/1h\"\n[policy.b]\nwhen = { client = \"192.0.2.0/24\" }\nkey = \"local_account\"\ndefault.messages = \"9/1h\"\n[policy.c]\naction = \"observe\"\nkey = \"local_account\"\ndefault.messages = \"9/1h\"\n",
        "dir/p.toml:2:9: any local program can call itself another script each time, so what \"a\" counts by it limits nobody; add a policy with the same `when` and key = \"local_account\"\n",
    ),
    (
        "version = 1\n[policy.a]\nwhen = \"local\"\nkey = [\"local_account\", \"script\"]\ndefault.messages = \"9/1h\"\n[policy.b]\nwhen = \"local\"\nkey = \"local_account\"\ndefault.message_size = \"9M\"\n[policy.c]\nwhen = \"local\"\nkey = \"local_account\"\nverdicts = { \"100%\" = \"log\" }\ndefault.messages = \"9/1h\"\n",
        "dir/p.toml:2:9: any local program can call itself another script each time, so what \"a\" counts by it limits nobody; add a policy with the same `when` and key = \"local_account\"\n",
    ),
    (
        "version = 1\n[policy.a]\nkey = \"server\"\ndefault.messages = \"9/1h\"\n[policy.b]\nkey = \"server\"\nwhen = \"relay\"\ndefault.messages = \"9/1h\"\n[policy.c]\nkey = \"server\"\naction = \"observe\"\ndefault.messages = \"9/1h\"\n[policy.d]\nkey = [\"server\", \"client\"]\ndefault.messages = \"9/1h\"\n[policy.e]\nkey = [\"server\", \"sender\"]\ndefault.messages = \"9/1h\"\n[identity]\nrelay = [\"192.0.2.0/24\"]\n",
        "dir/p.toml:2:9: \"a\" counts what any client tries, also what is refused, so strangers can stop all mail; add when = \"authenticated\", \"relay\" or \"local\", or write action = \"observe\"\n\
         dir/p.toml:16:9: any client can claim the sender that \"e\" counts, so strangers can use up the limit of a customer; use it only with when = \"relay\" or \"local\"\n",
    ),
    (
        "version = 1\n[policy.a]\nwhen = \"local\"\naction = \"observe\"\nkey = [\"local_account\", \"script\"]\ndefault.messages = \"9/1h\"\n[policy.b]\nwhen = \"always\"\naction = \"observe\"\nkey = \"local_account\"\ndefault.messages = \"9/1h\"\n",
        "",
    ),
    (
        "version = 1\n[policy.out.default]\nmessages = [\"100/1h\", \"50/1d\"]\nbytes = [\"1/1h\", \"1/60m\"]\nrecipients = [\"9/1m\", \"90/1h\"]\n",
        "dir/p.toml:3:12: \"100/1h\" never matters: \"50/1d\" is reached before it\n\
         dir/p.toml:4:9: \"1/60m\" never matters: \"1/1h\" is reached before it\n",
    ),
    (
        "version = 1\n[policy.out]\ndefault.messages = \"9/1h\"\nuser.a.messages = \"9 / 1h\"\nuser.b.messages = \"8/1h\"\nverdicts = { \"50%\" = \"defer\", \"100%\" = \"log\", \"300%\" = \"reject\" }\n",
        "dir/p.toml:4:19: messages of user \"a\" has no effect: it is as inherited\n\
         dir/p.toml:6:14: \"defer\" at 50% refuses mail below the limit; write a smaller limit, or log or delay\n\
         dir/p.toml:6:31: \"log\" from 100% on is milder than \"defer\", which applies below it\n\
         dir/p.toml:6:47: 300% is hardly ever reached: what is refused does not count with update = \"leaky\"; write update = \"strict\"\n",
    ),
    (
        "version = 1\n[policy.out]\ndefault.messages = [\"0/1h\", \"9/1d\"]\ndefault.total.bytes = \"0k/1d\"\nbucket = { burst = 0, rate = 1 }\npackage.gold.messages = \"unlimited\"\n",
        "dir/p.toml:3:20: \"0/1h\" blocks everything: 0 is no event at all; for no limit, write \"unlimited\"\n\
         dir/p.toml:4:23: \"0k/1d\" blocks everything: 0 is no event at all; for no limit, write \"unlimited\"\n\
         dir/p.toml:5:10: a burst of 0 blocks all but the first event of an empty bucket; for no limit, write \"unlimited\"\n",
    ),
    (
        "version = 1\n[policy.out]\ndefault.recipients = [\"1.000/1h\", \"12.500 daily\", \"1.500k/1w\", \"0.125/1m\"]\nbucket = { burst = 5, rate = \"1.000 / 1h\" }\n",
        "dir/p.toml:3:22: \"1.000/1h\" is a limit of 1: the point is that of a decimal number; for thousands, write \"1000/1h\"\n\
         dir/p.toml:3:22: \"12.500 daily\" is a limit of 12.5: the point is that of a decimal number; for thousands, write \"12500 daily\"\n\
         dir/p.toml:4:10: \"1.000/1h\" is a limit of 1: the point is that of a decimal number; for thousands, write \"1000/1h\"\n",
    ),
    (
        "version = 1\n[policy.out]\ndefault.messages = \"9/1h\"\nuser.\"own.example\".messages = \"8/1h\"\n\
         [policy.out.customer.acme]\nusers = [\"acme.example\", \"own.example\", \"192.0.2.7\", \"a@x.org\"]\n",
        "dir/p.toml:6:10: the user \"acme.example\" of the customer \"acme\" is written like a domain; did you mean domains?\n",
    ),
    (
        "version = 1\nidentity.relay = \"192.0.2.0/24\"\n[policy.out]\ndefault.messages = \"9/1h\"\n[policy.out.customer.acme]\nusers = [\"john.doe\", \"jane\"]\n\
         [policy.by]\nkey = \"sender_domain\"\nwhen = \"relay\"\ndefault.messages = \"9/1h\"\n[policy.by.customer.acme]\nusers = [\"acme.example\"]\n",
        "",
    ),
    (
        "version = 1\n[policy.out]\nwhen = \"authenticated\"\ndefault.auth_failures = \"9/1h\"\n[[policy.out.exempt]]\nmatch = \"a@x.org\"\nuntil = 2020-01-01T00:00:00Z\n[[policy.out.exempt]]\nmatch = [\"b@x.org\", \"192.0.2.7\"]\n[[policy.out.exempt]]\nmatch = [\"@x.org\", \"192.0.2.0/24\"]\n",
        "dir/p.toml:4:25: auth_failures are never counted: they come before the client is authenticated, and this policy is for authenticated clients\n\
         dir/p.toml:5:1: expired at 2020-01-01T00:00:00Z: nobody is exempt by it\n\
         dir/p.toml:8:1: has no effect: the entry at dir/p.toml:10:1 exempts the same and more\n",
    ),
];

#[test]
fn what_is_probably_not_meant_is_a_warning() {
    for (text, warnings) in DOUBTFUL {
        assert_eq!(&diagnostics_of(text, ""), warnings, "{text}");
    }
}

#[test]
fn limits_of_zero_in_a_file_of_users_are_warned_of_and_counted() {
    let text = "version = 1\n[policy.out]\nusers = \"users.csv\"\n";
    let users: String = (0..9).map(|n| format!("u{n}@example.org,0/1h\n")).collect();
    let found = diagnostics_of(text, &format!("user,messages\n{users}"));
    let lines: Vec<&str> = found.lines().collect();
    assert_eq!(lines.len(), 5, "{found}");
    assert!(lines[0].starts_with("dir/users.csv:2:"), "{found}");
    assert!(
        lines[4].ends_with("for no limit, write \"unlimited\"; 4 more limits are like it"),
        "{found}"
    );
}

#[test]
fn any_text_is_read_without_a_panic() {
    // Every part of the example, and the example with each byte left out.
    for (at, _) in EXAMPLE.char_indices() {
        let (before, after) = EXAMPLE.split_at(at);
        for text in [before.to_owned(), after.to_owned(), before.to_owned() + &after[1..]] {
            let compiled = compiled(&text, before);
            assert_eq!(compiled.policies.is_none(), compiled.diagnostics.has_errors());
        }
    }
}

/// A policy file with so many users that they are read in pieces, the line of one of them
/// replaced; each is a line.
fn many(replaced: usize, by: &str) -> String {
    let mut text = "version = 1\n[policy.p]\ndefault.recipients = \"100/1h\"\n\
                    package.gold.recipients = \"1000/1h\"\n[policy.p.user] # many\n"
        .to_owned();
    for n in 0..20_000 {
        let line = format!("\"user{n}@example.org\" = {{ package = \"gold\" }}");
        text += if n == replaced { by } else { &line };
        text += "\n";
    }
    text + "[policy.p.domain]\n\"x.org\" = { total.recipients = \"5/1h\" }\n[on.crossing]\nlog = true\n"
}

fn whole(text: &str) -> Compiled {
    // A comment within the brackets of the header keeps them together.
    let text = text.replace("[policy.p.user] #", "[policy.p. user] #");
    assert!(compile_long(Path::new("p.toml"), &text, &|_| Err(String::new())).is_none());
    compile(Path::new("p.toml"), &text, &|_| Err(String::new()))
}

#[test]
fn a_table_that_is_read_in_pieces_is_as_one_that_is_not() {
    let load: Load<'_> = &|_| Err(String::new());
    let none = usize::MAX;
    for (replaced, by) in [
        (none, ""),
        // Several lines; a limit as it is inherited, of which lint warns.
        (5_000, "\"b\" = { recipients = [\n  \"1/1h\",\n\"2/1d\", # a = b\n] }"),
        (19_999, "\"b\" = { recipients = \"100/1h\" }"),
        (9_000, "\"b\".recipients = \"1/1h\"\n\"b\".package = \"gold\""),
    ] {
        let text = many(replaced, by);
        let long = compile_long(Path::new("p.toml"), &text, load).expect("it is long");
        let whole = whole(&text);
        let places = |compiled: &Compiled| -> Vec<_> {
            let users = &compiled.policies.as_ref().unwrap().policies["p"].users;
            let limit = |member: &Member| member.limits.each.values().map(|a| a.at).next();
            users
                .iter()
                .map(|(name, user)| (name.to_owned(), user.limits.at, limit(user)))
                .collect()
        };
        assert_eq!(places(&long), places(&whole), "{by}");
        let [long, whole] = [long, whole].map(|one| one.policies.unwrap());
        assert!(long.policies["p"].users.len() >= 19_999 && long.on_crossing.log);
        assert_eq!(long.policies["p"].domains, whole.policies["p"].domains);
        assert!(
            crate::policy::changes::settings(&long) == crate::policy::changes::settings(&whole)
        );
    }
    // What is wrong is found by reading all of it.
    for by in [
        "\"user9@example.org\" = {}",
        "\"user4999@example.org\".recipients = \"1/1h\"",
        "\"x\" = { package = \"silver\" }",
        "\"x\" = { recipients = \"many\" }",
        "\"x\" = {",
        "x",
        "[policy.p.user]",
        "[policy]",
    ] {
        let text = many(5_000, by);
        assert!(compile_long(Path::new("p.toml"), &text, load).is_none(), "{by}");
        let found = compile(Path::new("p.toml"), &text, load).diagnostics.sorted();
        assert!(!found.is_empty() && found[0].at.line >= 14, "{by}: {found:?}");
    }
    // A header within a text, and one that is no table.
    for (header, instead) in
        [("[policy.p.user]", "on.x = \"\"\"\n[policy.p.user]"), ("user]", "user]]")]
    {
        let text = many(none, "").replacen(header, instead, 1);
        assert!(compile_long(Path::new("p.toml"), &text, load).is_none());
        assert!(compile(Path::new("p.toml"), &text, load).diagnostics.has_errors());
    }
}
