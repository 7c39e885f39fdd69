//! Lines that no mail comes to, by what the Exim of this machine does: random ACLs, each line
//! of which is marked, in dry sessions (`exim -bh`) of clients with and without a login.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use kit::exim::PROGRAM;
use kit::random::Random;

use super::{Ending, Exim, Rules};

const CONDITIONS: [&str; 36] = [
    "hosts = 0.0.0.0/0 : ::/0",
    "hosts = <; 0.0.0.0/0 ; ::/0",
    "hosts = 128.0.0.0/1 : 0.0.0.0/1 : ::::/0",
    "hosts = +v4",
    "hosts = +every",
    "!hosts = +every",
    "hosts = !192.0.2.9 : *",
    "senders = *",
    "senders = * : :",
    "sender_domains = *",
    "recipients = *",
    "domains = +any",
    "domains = !o.test : *",
    "condition = 2",
    "condition = -0",
    "condition = \"yes\"",
    "condition = yes # x",
    "condition = ${if eq{a}{${lc:A}}}",
    "hosts = *",
    "!hosts = *",
    "hosts = 192.0.2.9",
    "!hosts = 192.0.2.9",
    "authenticated = *",
    "!authenticated = *",
    "condition = yes",
    "condition = no",
    "condition = ${if def:authenticated_id}",
    "!condition = ${if eq{$authenticated_id}{}}",
    "condition = ${if eq{$authenticated_id}{}{no}{yes}}",
    "domains = l.test",
    "!domains = l.test",
    "sender_domains = x.test",
    "condition = $acl_m_x",
    "set acl_m_x = yes",
    "set acl_m_x = no",
    "endpass",
];
const VERBS: [&str; 6] = ["accept", "deny", "warn", "require", "defer", "discard"];
const SESSION: &str = "EHLO c.test\r\nMAIL FROM:<a@x.test>\r\nRCPT TO:<b@l.test>\r\n\
    RCPT TO:<b@o.test>\r\nRSET\r\nMAIL FROM:<a@y.test>\r\nRCPT TO:<b@l.test>\r\nRSET\r\n\
    MAIL FROM:<>\r\nRCPT TO:<b@l.test>\r\nQUIT\r\n";
const LISTS: &str = "hostlist v4 = 0.0.0.0/0\nhostlist every = +v4 : ::::/0\n\
    domainlist any = x.test : *\n";

/// The statements of an ACL, with a line `MARK` in each; an ACL that they may call.
fn acl(random: &mut Random, count: usize, called: Option<&str>) -> String {
    let mut text = String::new();
    for _ in 0..count {
        let verb = VERBS[random.below(VERBS.len())];
        let mut lines = vec!["MARK".to_owned()];
        for _ in 0..random.below(3) {
            let line = match called {
                Some(acl) if random.chance(20) => format!("acl = {acl}"),
                _ => CONDITIONS[random.below(CONDITIONS.len())].to_owned(),
            };
            if line != "endpass" || matches!(verb, "accept" | "discard") {
                let at = random.within(0, lines.len());
                lines.insert(at, line);
            }
        }
        text.push_str(&format!("  {verb} {}\n", lines.join("\n    ")));
    }
    text
}

/// The marks that a dry session comes to.
fn reached(config: &Path, client: &str, login: &[&str]) -> BTreeSet<usize> {
    let mut command = Command::new(PROGRAM);
    command.arg("-C").arg(config).args(login).args(["-bh", client]).current_dir("/");
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(SESSION.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("using ACL \"check\""), "{said}");
    let marks = said.lines().filter_map(|line| line.trim().strip_prefix("LOG: MARK "));
    marks.map(|mark| mark.trim().parse().unwrap()).collect()
}

#[test]
fn no_mail_comes_to_a_line_that_is_called_unreached() {
    let rounds = std::env::var("ROUNDS").map_or(40, |rounds| rounds.parse().unwrap());
    let (mut ended, mut ended_for_users, mut tried) = (0, 0, 0);
    for seed in 1..=rounds {
        let mut random = Random::new(seed);
        let (count, below) = (random.within(3, 7), random.within(1, 3));
        let text = format!(
            "{LISTS}acl_smtp_rcpt = check\nprimary_hostname = h.test\nbegin acl\ncheck:\n{}below:\n{}",
            acl(&mut random, count, Some("below")),
            acl(&mut random, below, None)
        );
        let filled = |line: &dyn Fn(usize) -> String| {
            let mut parts = text.split("MARK");
            let first = parts.next().unwrap().to_owned();
            parts.enumerate().fold(first, |text, (n, part)| text + &line(n) + part)
        };
        let folder = tempfile::tempdir().unwrap();
        let (theirs, ours) = (folder.path().join("exim"), folder.path().join("ours"));
        fs::write(&theirs, filled(&|n| format!("logwrite = MARK {n}"))).unwrap();
        let call =
            |n| format!("set acl_c_{n} = ${{dlfunc{{/exirate.so}}{{ratelimit}}{{9 / 1h}}{{k}}}}");
        fs::write(&ours, filled(&call)).unwrap();
        let rules = Rules::read(&ours, [], None).unwrap();
        let exim = Exim { program: PROGRAM.into(), config: Some(ours) };
        let dry = exim.dry(&rules).unwrap();
        let login = ["-oMaa", "plain", "-oMai", "u"];
        let (mut by_all, mut by_users) = (BTreeSet::new(), BTreeSet::new());
        let mut by_ipv6 = reached(&theirs, "2001:db8::1", &[]);
        let users_by_ipv6 = reached(&theirs, "2001:db8::1", &login);
        for client in ["192.0.2.1", "192.0.2.9"] {
            by_users.extend(reached(&theirs, client, &login));
            by_all.extend(reached(&theirs, client, &[]));
        }
        by_all.extend(&by_users);
        by_ipv6.extend(&users_by_ipv6);
        assert_eq!(rules.rules.len(), count + below, "{text}");
        for (n, rule) in rules.rules.iter().enumerate() {
            let (all, users) = (&rule.ending, &rule.ending_of_users);
            // What is marked in the copy is what is marked here.
            let comes = dry.comes_to(&rules, n);
            tried += usize::from(comes.is_some());
            assert!(comes != Some(false) || !by_all.contains(&n), "{seed}: {n} {dry:?}\n{text}");
            let is_of = |ending: &Option<Ending>, marks: &BTreeSet<usize>| {
                ending.as_ref().is_some_and(|one| one.except.is_none()) && marks.contains(&n)
            };
            assert!(!is_of(all, &by_ipv6), "{seed}: IPv6, mark {n}, {all:?}\n{text}");
            assert!(!is_of(users, &users_by_ipv6), "{seed}: IPv6, mark {n}, {users:?}\n{text}");
            ended += usize::from(all.is_some());
            ended_for_users += usize::from(users.is_some());
            assert!(all.is_none() || !by_all.contains(&n), "{seed}: mark {n}, {all:?}\n{text}");
            assert!(users.is_none() || !by_users.contains(&n), "{seed}: {n}, {users:?}\n{text}");
        }
    }
    assert!(ended * 2 > rounds as usize && ended_for_users > ended, "{ended}, {ended_for_users}");
    assert!(tried > rounds as usize, "{tried}");
}

#[test]
fn a_file_in_two_acls_and_lines_for_programs_are_not_doubted() {
    let folder = tempfile::tempdir().unwrap();
    let (conf, both) = (folder.path().join("exim"), folder.path().join("both"));
    let call = "${dlfunc{/exirate.so}{ratelimit}{9 / 1h}{k}}";
    let lines = format!(
        "  warn !condition = ${{if def:sender_host_address}}\n    set acl_m_a = {call}\n  \
         warn set acl_m_b = {call}{call}\n"
    );
    fs::write(&both, lines).unwrap();
    let include = format!(".include {}\n", both.display());
    let acls = format!("begin acl\none:\n{include}  accept\ntwo:\n{include}  accept\n");
    let main = "acl_smtp_rcpt = one\nacl_smtp_data = two\nprimary_hostname = h.test\n";
    fs::write(&conf, format!("{main}{acls}")).unwrap();
    let rules = Rules::read(&conf, [], None).unwrap();
    let exim = Exim { program: PROGRAM.into(), config: Some(conf) };
    let dry = exim.dry(&rules).unwrap();
    let comes: Vec<Option<bool>> = (0..6).map(|n| dry.comes_to(&rules, n)).collect();
    let expected = [None, Some(true), Some(true)];
    assert_eq!(comes, [expected, expected].concat(), "{dry:?}");
}
