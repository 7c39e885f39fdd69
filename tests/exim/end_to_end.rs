//! The library in a real Exim, end to end: what is not a comparison with
//! native (that is `native`).

use kit::exim::{USER, run, user};
use kit::{Client, EntryPoint, PrivateExim, Setup};
use std::net::Ipv4Addr;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

/// The condition of an ACL, on a spec.
fn ask(spec: &str) -> String {
    EntryPoint::chosen().ask(spec)
}

/// A field of the latest decision.
fn info(field: &str) -> String {
    format!("${{dlfunc{{EXIRATE}}{{ratelimit_info}}{{{field}}}}}")
}

/// All that is below a directory, and itself.
fn all_below(path: &Path) -> Vec<PathBuf> {
    let mut found = vec![path.to_owned()];
    if path.is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            found.extend(all_below(&entry.unwrap().path()));
        }
    }
    found
}

/// A daemon whose RCPT ACL refuses at the limit of `spec`, and shows `shown`.
fn daemon(spec: &str, shown: &str) -> PrivateExim {
    let acl = format!("  defer message = {shown}\n        condition = {}\n  accept\n", ask(spec));
    let mut exim = Setup::new().library().auth().acl("acl_smtp_rcpt", &acl).build();
    exim.start();
    exim
}

/// Replies to a MAIL and one RCPT, in a connection of its own.
fn recipient(exim: &PrivateExim, to: &str) -> kit::Reply {
    let mut client = exim.session();
    client.command("MAIL FROM:<a@client.test>");
    let reply = client.command(format!("RCPT TO:<{to}@private.test>"));
    client.quit();
    reply
}

#[test]
fn expanding_counts_and_spoils_no_ownership() {
    let exim = Setup::new().library().build();
    let check = ask("2.5 / 1h / per_cmd / strict / test")
        .replace("EXIRATE", &exim.library().display().to_string());
    let answers: Vec<String> =
        (0..4).map(|_| exim.expand(&check).stdout.trim().to_owned()).collect();
    assert_eq!(answers, ["no", "no", "yes", "yes"]);

    let owner = user(USER);
    let files = all_below(&exim.spool().join("exirate"));
    assert!(files.len() > 1, "{files:?}");
    for path in files {
        let of = std::fs::metadata(&path).unwrap();
        assert_eq!((of.uid(), of.gid()), owner, "{}", path.display());
        assert_eq!(of.permissions().mode() & 0o007, 0, "{} is open to all", path.display());
    }

    // Several evaluations in one string all count, and the variables are set.
    let text =
        format!("{0} {0} {0} $sender_rate_limit/$sender_rate_period", ask("9 / 1w / per_cmd / b"));
    assert_eq!(exim.expand(&text).stdout, "no no no 9/1w\n");
    assert_eq!(exim.expand(&format!("{check} $sender_rate")).stdout, "yes 5.0\n");
    assert_eq!(exim.log("panic"), "");
}

#[test]
fn an_ordinary_user_is_refused_clearly() {
    let exim = Setup::new().library().build();
    let check = ask("2.5 / 1h / per_cmd / strict / test")
        .replace("EXIRATE", &exim.library().display().to_string());
    let mut command = exim.command();
    let nobody = user("nobody");
    command.args(["-be", &check]).uid(nobody.0).gid(nobody.1);
    let ran = run(command, b"");
    let said = ran.stdout + &ran.stderr;
    assert!(said.contains("no decision by `exirate serve mail`"), "{said}");
    assert!(said.contains("Permission denied"), "{said}");
    assert!(said.contains("spool/exirate") || said.contains("/spool"), "{said}");
}

#[test]
fn the_latest_decision_can_be_queried() {
    let shown =
        ["rate", "limit", "period", "key", "mode", "over", "count", "remaining", "retry_after"]
            .map(|field| format!("{field}={}", info(field)))
            .join(" ");
    let exim = daemon("2.5 / 1h / per_rcpt / strict / $sender_address", &shown);
    assert_eq!(recipient(&exim, "b").code, 250);
    assert_eq!(recipient(&exim, "b").code, 250);
    let text = recipient(&exim, "b").text;
    let field = |name: &str| {
        let start = text.split_once(&format!("{name}=")).unwrap_or_else(|| panic!("{text}")).1;
        start.split([' ', '\n']).next().unwrap().to_owned()
    };
    assert!(["2.9", "3.0"].contains(&&*field("rate")), "{text}");
    assert_eq!(field("limit"), "2.5");
    assert_eq!(field("period"), "1h");
    assert_eq!(field("key"), "a@client.test");
    assert_eq!(field("mode"), "per_rcpt");
    assert_eq!(field("over"), "yes");
    assert_eq!(field("count"), "1");
    assert_eq!(field("remaining"), "0");
    // One more event makes about 3·exp(-t) + 1 of three: 2.5 is reached when
    // exp(-t) is a half, but for what the event itself is spread over.
    let wait: u32 = field("retry_after").parse().unwrap();
    assert!((1000..4000).contains(&wait), "{text}");

    // Under the limit as well, and in a string of its own.
    let text = format!(
        "{} {} {} {}",
        ask("5.5 / 1h / per_cmd / leaky / k"),
        info("over"),
        info("remaining"),
        info("retry_after")
    );
    assert_eq!(exim.expand(&text).stdout, "no no 4 0\n");
    // An event as large as the limit never passes.
    let text = format!("{} {}", ask("2 / 1h / per_cmd / leaky / count=3 / l"), info("retry_after"));
    assert_eq!(exim.expand(&text).stdout, "yes never\n");
}

#[test]
fn a_wrong_call_says_what_would_be_right() {
    let exim = Setup::new().library().build();
    for (text, wanted) in [
        (
            info("rats"),
            "unknown field \"rats\" (one of: rate, limit, period, key, mode, over, crossed, override, count, remaining, retry_after, explain)",
        ),
        (info("rate"), "no rate has been computed in this process yet"),
        (
            "${dlfunc{EXIRATE}{ratelimit}}".into(),
            "ratelimit takes one to three arguments, SPEC, KEY and UNIQUE, but 0 were given",
        ),
        (
            "${dlfunc{EXIRATE}{ratelimit}{1 / 1h}{a}{b}{c}}".into(),
            "SPEC, KEY and UNIQUE, but 4 were given",
        ),
        (
            "${dlfunc{EXIRATE}{ratelimit}{1 / 1h / per_rcp}{key}}".into(),
            "the key is given twice (it is an argument of its own, and \"per_rcp\" in the spec is",
        ),
        (
            "${dlfunc{EXIRATE}{ratelimit}{1 / 1h / per_addr}{key}{event}}".into(),
            "the unique event is given twice (by per_addr in the spec and as an argument",
        ),
        (
            "${dlfunc{EXIRATE}{ratelimit_info}}".into(),
            "exactly one argument, FIELD, but 0 were given",
        ),
        (ask("1 / 1h / count=x"), "\"count=x\" is not a positive number"),
    ] {
        let ran = exim.expand(&text);
        // Exim quotes the message of a lookup.
        let said = (ran.stdout + &ran.stderr).replace("\\\"", "\"");
        assert!(said.contains(wanted), "{text}: {said}");
    }
    assert!(!exim.spool().join("exirate").exists(), "nothing was counted");
}

/// The lines of the main log about a RCPT that could not be answered: there
/// must be one, and nothing in the panic log.
fn the_fault(exim: &PrivateExim) -> String {
    let before = exim.log("main").len();
    let reply = recipient(exim, "b");
    assert_eq!(reply.code, 451, "{}", reply.text);
    assert_eq!(exim.log("panic"), "");
    let log = exim.log("main");
    let lines: Vec<&str> = log[before..].lines().filter(|l| !l.contains("@@")).collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("temporarily rejected RCPT <b@private.test>"), "{lines:?}");
    lines[0].to_owned()
}

#[test]
fn a_wrong_spec_defers_with_one_line() {
    let exim = daemon("many / 1h / per_rcpt", "over");
    let line = the_fault(&exim);
    assert!(
        line.contains(
            "error in arguments to \"ratelimit\" condition: \"many\" is not a positive number"
        ),
        "{line}"
    );
    assert_eq!(recipient(&exim, "b").text, "451 Temporary local problem - please try later");
}

#[test]
fn an_unusable_database_defers_with_one_line() {
    type Spoil = fn(&Path);
    let cases: [(&str, Spoil); 4] = [
        ("a file in its place", |path| std::fs::write(path, "x").unwrap()),
        ("a directory of another's", |path| {
            std::fs::create_dir(path).unwrap();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).unwrap();
        }),
        ("a directory that cannot be written", |path| {
            std::fs::create_dir(path).unwrap();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }),
        ("a directory that anyone can write", |path| {
            std::fs::create_dir(path).unwrap();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
        }),
    ];
    for (what, spoil) in cases {
        let exim = daemon("2.5 / 1h / per_rcpt / strict / k", "over at $sender_rate");
        let path = exim.spool().join("exirate");
        spoil(&path);
        let line = the_fault(&exim);
        assert!(line.contains("ratelimit database not available: "), "{what}: {line}");
        assert!(line.contains(&*path.to_string_lossy()), "{what}: {line}");
        // Once it is put right, the same daemon counts.
        std::fs::remove_dir(&path).or_else(|_| std::fs::remove_file(&path)).unwrap();
        assert_eq!(recipient(&exim, "b").code, 250, "{what}");
    }
}

#[test]
fn a_database_that_was_made_by_root_is_usable_by_the_daemon() {
    let exim = daemon("3.5 / 1h / per_cmd / strict / shared", "over");
    assert_eq!(exim.expand(&ask("3.5 / 1h / per_cmd / strict / shared")).stdout, "no\n");
    assert_eq!(recipient(&exim, "b").code, 250);
    assert_eq!(exim.expand(&ask("3.5 / 1h / per_cmd / strict / shared")).stdout, "no\n");
    assert_eq!(recipient(&exim, "b").code, 451);
}

#[test]
fn connections_at_the_same_time_add_up() {
    const CLIENTS: u8 = 8;
    const RECIPIENTS: u16 = 50;
    let exim = daemon("1000000 / 1w / per_rcpt / strict / all", "over");
    std::thread::scope(|scope| {
        for n in 1..=CLIENTS {
            let port = exim.port();
            scope.spawn(move || {
                let mut client = Client::connect(port, Ipv4Addr::new(127, 0, 0, n));
                client.expect();
                client.command("EHLO client.test");
                client.command("MAIL FROM:<a@client.test>");
                for r in 0..RECIPIENTS {
                    assert_eq!(client.command(format!("RCPT TO:<r{r}@private.test>")).code, 250);
                }
                client.quit();
            });
        }
    });
    // What the clock takes off 400 events of a week in a minute is 0.04.
    let text = format!("{} $sender_rate", ask("1 / 1w / per_rcpt / readonly / all"));
    let rate = exim.expand(&text).stdout;
    let rate: f64 =
        rate.trim().strip_prefix("yes ").unwrap_or_else(|| panic!("{rate}")).parse().unwrap();
    assert!((f64::from(CLIENTS) * f64::from(RECIPIENTS) - rate).abs() < 0.2, "{rate}");
}

/// How many of ten RCPT commands are accepted, of a client who says who it is.
fn accepted(exim: &PrivateExim, helo: &str, login: &str, sender: &str) -> usize {
    let mut client = exim.connect(Ipv4Addr::LOCALHOST);
    client.expect();
    assert_eq!(client.command(format!("EHLO {helo}")).code, 250);
    assert_eq!(client.command(format!("AUTH PLAIN {login}")).code, 235);
    assert_eq!(client.command(format!("MAIL FROM:<{sender}>")).code, 250);
    (0..10).filter(|n| client.command(format!("RCPT TO:<r{n}@private.test>")).is_ok()).count()
}

#[test]
fn a_client_cannot_switch_a_limit_off() {
    // The accounts `noupdate` and `joe`, as base64 of NUL, name, NUL, `good`.
    let (noupdate, joe) = ("AG5vdXBkYXRlAGdvb2Q=", "AGpvZQBnb29k");
    let hostile = "\"a/noupdate/b\"@b.c";
    for (key, helo, login, sender) in [
        ("$sender_address", "there", joe, hostile),
        ("$sender_helo_name", "noupdate", joe, "a@b.c"),
        ("$authenticated_id", "there", noupdate, "a@b.c"),
    ] {
        let daemon = |condition: String| {
            let acl = format!("  defer condition = {condition}\n  accept\n");
            let mut exim = Setup::new().library().auth().acl("acl_smtp_rcpt", &acl).build();
            exim.start();
            exim
        };
        let spec = "3.5 / 1h / per_rcpt / strict";
        // Within the spec it is an option, as for Exim's own condition.
        let exim = daemon(ask(&format!("{spec} / {key}")));
        assert_eq!(accepted(&exim, helo, login, sender), 10, "{key}");
        // As an argument of its own it is a key.
        let exim = daemon(EntryPoint::chosen().ask_key(spec, key));
        assert_eq!(accepted(&exim, helo, login, sender), 3, "{key}");
        assert_eq!(accepted(&exim, helo, login, sender), 0, "{key}");
        assert_eq!(exim.log("panic"), "");
    }
}

#[test]
fn a_key_is_the_same_record_however_it_is_given() {
    let exim = Setup::new().library().build();
    let spec = "9 / 1w / per_cmd / strict";
    let rate = |check: &str| exim.expand(&format!("{check} $sender_rate")).stdout;
    assert_eq!(rate(&ask(&format!("{spec} / a//b"))), "no 1.0\n");
    assert_eq!(rate(&EntryPoint::chosen().ask_key(spec, "a/b")), "no 2.0\n");
    assert_eq!(rate(&EntryPoint::chosen().ask_key(spec, "a//b")), "no 1.0\n");
    // No key is the default key: there is no client here, so an empty one.
    assert_eq!(rate(&ask(spec)), "no 1.0\n");
    assert_eq!(rate(&EntryPoint::chosen().ask_key(spec, "")), "no 2.0\n");
    if EntryPoint::chosen() == EntryPoint::Dlfunc {
        let unique = |key: &str, event: &str| {
            rate(&format!("${{dlfunc{{EXIRATE}}{{ratelimit}}{{{spec}}}{{{key}}}{{{event}}}}}"))
        };
        assert_eq!(rate(&ask(&format!("{spec} / unique=a//b / k"))), "no 1.0\n");
        assert_eq!(unique("k", "a/b"), "no 1.0\n");
        assert_eq!(unique("k", " noupdate "), "no 2.0\n");
        // The empty text is an event, which counts once as any other.
        assert_eq!(unique("k", ""), "no 3.0\n");
        assert_eq!(rate(&ask(&format!("{spec} / unique= / k"))), "no 3.0\n");
        // Nor is it the record of events that all count.
        assert_eq!(rate(&EntryPoint::chosen().ask_key(spec, "k")), "no 1.0\n");
    }
}

/// `ratelimit_all`, of a key and specs.
fn all(key: &str, specs: &[&str]) -> String {
    let specs: String = specs.iter().map(|spec| format!("{{{spec}}}")).collect();
    format!("${{dlfunc{{EXIRATE}}{{ratelimit_all}}{{{key}}}{specs}}}")
}

#[test]
fn several_limits_are_one_event() {
    let exim = Setup::new().library().main(&format!("INFO = {}", info("limit"))).build();
    let expand = |text: String| exim.expand(&text).stdout.trim_end().to_owned();
    let rates = "$sender_rate $sender_rate_limit $sender_rate_period INFO";
    let (hour, week) = ("3.5 / 1h / per_cmd / leaky", "5.5 / 1w / per_cmd / leaky");
    let both = |key: &str| expand(format!("{} {rates}", all(key, &[hour, week])));
    // None is over: the first of those with the longest wait, none.
    assert_eq!(both("a/noupdate/b"), "no 1.0 3.5 1h 3.5");
    assert_eq!(both("a/noupdate/b"), "no 2.0 3.5 1h 3.5");
    // Now the third is still let through, the next would be over the hour's.
    assert!(both("a/noupdate/b").starts_with("no 3.0 3.5 1h"));
    // Over the hour's: leaky, so neither counts it.
    for _ in 0..3 {
        assert_eq!(both("a/noupdate/b"), "yes 4.0 3.5 1h 3.5");
    }
    let alone = |spec: &str| {
        expand(format!("{} $sender_rate", EntryPoint::Dlfunc.ask_key(spec, "a/noupdate/b")))
    };
    // Each spec has the record that it has alone.
    assert_eq!(alone("3.5 / 1h / per_cmd / readonly"), "no 3.0");
    assert_eq!(alone("5.5 / 1w / per_cmd / readonly"), "no 3.0");
    // A strict one counts what another refuses; the week's wait is the longer.
    let strict = ["1.5 / 1h / per_cmd / leaky", "1.5 / 1w / per_cmd / strict"];
    assert_eq!(expand(format!("{} $sender_rate", all("s", &strict))), "no 1.0");
    assert_eq!(expand(format!("{} {rates}", all("s", &strict))), "yes 2.0 1.5 1w 1.5");
    assert_eq!(expand(format!("{} {rates}", all("s", &strict))), "yes 3.0 1.5 1w 1.5");
    let alone =
        |spec: &str| expand(format!("{} $sender_rate", EntryPoint::Dlfunc.ask_key(spec, "s")));
    assert_eq!(alone("1.5 / 1h / per_cmd / readonly"), "no 1.0");
    // Seven, of which two are of one record: it counts the event once.
    let seven = [
        "9 / 1h / per_cmd",
        "8 / 1h / per_cmd",
        "9 / 2h / per_cmd",
        "9 / 3h / per_cmd",
        "9 / 4h / per_cmd",
        "9 / 5h / per_cmd",
        "9 / 6h / per_cmd",
    ];
    assert_eq!(expand(format!("{} $sender_rate", all("", &seven))), "no 1.0");
    assert_eq!(expand(format!("{} $sender_rate", ask("9 / 1h / per_cmd"))), "no 2.0");
    for (call, wanted) in [
        (
            all("k", &[]),
            "ratelimit_all takes two to eight arguments, KEY and one to seven SPECs, but 1",
        ),
        (all("k", &["1 / 1h", "1 / 1w / k"]), "the key is given twice"),
        (all("k", &["1 / 1h", "many / 1w"]), "\"many\" is not a positive number"),
    ] {
        let ran = exim.expand(&call);
        assert!((ran.stdout + &ran.stderr).contains(wanted), "{call}");
    }
    assert_eq!(alone("1 / 1h / per_cmd / readonly").split(' ').nth(1), Some("1.0"));
}

#[test]
fn several_limits_are_remembered_as_single_ones_are() {
    // The message's limit is counted once a message, the recipients' each time.
    let both = ["2.5 / 1w / per_mail / leaky", "4.5 / 1w / per_rcpt / leaky"];
    let acl = format!(
        "  defer condition = {}\n  warn logwrite = rates ${{dlfunc{{EXIRATE}}{{ratelimit}}{{9 / 1w / \
         per_mail / readonly}}{{k}}}} $sender_rate ${{dlfunc{{EXIRATE}}{{ratelimit}}{{9 / 1w / per_rcpt \
         / strict}}{{k}}}} $sender_rate\n  accept\n",
        all("k", &both)
    );
    let mut exim = Setup::new().library().acl("acl_smtp_rcpt", &acl).build();
    exim.start();
    let mut client = exim.session();
    let mut codes = Vec::new();
    for recipients in [2, 2, 1] {
        client.command("MAIL FROM:<a@client.test>");
        let to = |n: u32| client.command(format!("RCPT TO:<r{n}@private.test>")).code;
        codes.extend((0..recipients).map(to));
        client.command("RSET");
    }
    // Two messages of two recipients; the third message is one too many.
    assert_eq!(codes, [250, 250, 250, 250, 451]);
    let log = exim.log("main");
    let rates: Vec<&str> = log.lines().filter_map(|l| Some(l.split_once("rates ")?.1)).collect();
    assert_eq!(
        rates,
        ["no 1.0 no 1.0", "no 1.0 no 2.0", "no 2.0 no 3.0", "no 2.0 no 4.0"],
        "{log}"
    );
    // The refused recipient was counted by neither.
    let rate = |spec: &str| exim.expand(&format!("{} $sender_rate", ask(spec))).stdout;
    assert_eq!(rate("9 / 1w / per_rcpt / readonly / k"), "no 4.0\n");
    assert_eq!(rate("9 / 1w / per_mail / readonly / k"), "no 2.0\n");
    assert_eq!(exim.log("panic"), "");
}

#[test]
fn the_lines_of_the_manual_work_as_they_stand() {
    // The first example that anyone will try, in a connection that says who
    // it is.
    let acl = "  defer  message   = Sender rate $sender_rate / $sender_rate_period is over \
               $sender_rate_limit; try again in ${dlfunc{EXIRATE}{ratelimit_info}{retry_after}}s\n         \
               condition = ${dlfunc{EXIRATE}{ratelimit}{3 / 1h / per_addr / strict}{${lc:$authenticated_id}}}\n  \
               accept\n";
    let mut exim = Setup::new().library().auth().acl("acl_smtp_rcpt", acl).build();
    exim.start();
    let mut client = exim.session();
    assert_eq!(client.command("AUTH PLAIN AGFsaWNlAGdvb2Q=").code, 235);
    client.command("MAIL FROM:<alice@private.test>");
    for _ in 0..5 {
        // The same address is one address.
        assert_eq!(client.command("RCPT TO:<b@private.test>").code, 250);
    }
    assert_eq!(client.command("RCPT TO:<c@private.test>").code, 250);
    let mut last = client.command("RCPT TO:<d@private.test>");
    if last.code == 250 {
        // A whole limit is met exactly: rounding may let one more pass.
        last = client.command("RCPT TO:<e@private.test>");
    }
    assert_eq!(last.code, 451, "{}", last.text);
    assert!(last.text.contains(" / 1h is over 3; try again in "), "{}", last.text);
    assert!(
        last.text.starts_with("451 Sender rate 3.0 ")
            || last.text.starts_with("451 Sender rate 4.0 "),
        "{}",
        last.text
    );
    assert!(last.text.ends_with('s'), "{}", last.text);
    // Another user is another key.
    let mut other = exim.session();
    assert_eq!(other.command("AUTH PLAIN AGJvYgBnb29k").code, 235);
    other.command("MAIL FROM:<bob@private.test>");
    assert_eq!(other.command("RCPT TO:<d@private.test>").code, 250);
}

#[test]
fn keys_are_bytes() {
    let exim = daemon(
        "1.5 / 1h / per_cmd / strict / $authenticated_id",
        "over for ${length_3:$authenticated_id}",
    );
    let mut client = exim.session();
    // \xe8 is no UTF-8.
    assert_eq!(client.command("AUTH PLAIN AOgAZ29vZA==").code, 235);
    client.command("MAIL FROM:<a@client.test>");
    assert_eq!(client.command("RCPT TO:<b@private.test>").code, 250);
    assert_eq!(client.command("RCPT TO:<b@private.test>").code, 451);
    client.quit();
}

#[test]
fn the_database_is_only_in_its_own_directory() {
    let exim = daemon("1.5 / 1h / per_addr / strict", "over");
    recipient(&exim, "b");
    let db = std::fs::read_dir(exim.spool().join("db")).map(Iterator::count).unwrap_or(0);
    assert_eq!(db, 0, "none of Exim's own databases");
    assert!(exim.spool().join("exirate").is_dir());
    let owner = user(USER);
    for path in all_below(&exim.spool().join("exirate")) {
        let of = std::fs::metadata(&path).unwrap();
        assert_eq!((of.uid(), of.gid()), owner);
    }
    // The owner is that of the spool directory, also if that is another user.
    let other = Setup::new().library().build();
    let games = user("games");
    chown(other.spool(), Some(games.0), Some(games.1)).unwrap();
    assert_eq!(other.expand(&ask("1.5 / 1h / per_cmd / strict / k")).stdout, "no\n");
    for path in all_below(&other.spool().join("exirate")) {
        let of = std::fs::metadata(&path).unwrap();
        assert_eq!((of.uid(), of.gid()), games, "{}", path.display());
    }
}
