//! The policies in use, their file, and what calls them.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;

use super::finding::{Findings, quoted};
use super::{habits, units};
use crate::event::AclStage;
use crate::event::session::{AlreadyCounted, SessionFacts};
use crate::mta::exim::debian::include_files;
use crate::mta::exim::{Ending, Rule, Rules};
use crate::policy::changes::settings;
use crate::policy::image::{ImageError, PolicyFile};
use crate::policy::lint::lint;
use crate::policy::model::{Policies, Policy, When};
use crate::policy::needs::{self, FrontEnd, unheld, unseen};
use crate::policy::source::read;
use crate::policy::word::{Field, State, Unit};
use crate::serve::config::{self, Mail};
use crate::sys::secure_dir::DirError;
use crate::text::counted_or_no;
use crate::text::time::now;
use crate::toml_file::diagnostic::{Diagnostics, place, similar};

/// The policy file that is shipped.
const SHIPPED: &str = "policy.toml";

/// The ACL stage of each option of Exim that names an ACL in which policies count.
const STAGES: [(&str, AclStage); 13] = [
    ("acl_smtp_connect", AclStage::Connect),
    ("acl_smtp_helo", AclStage::Helo),
    ("acl_smtp_auth", AclStage::Auth),
    ("acl_smtp_mail", AclStage::Mail),
    ("acl_smtp_rcpt", AclStage::Rcpt),
    ("acl_smtp_predata", AclStage::Predata),
    ("acl_smtp_mime", AclStage::Mime),
    ("acl_smtp_dkim", AclStage::Dkim),
    ("acl_smtp_data", AclStage::Data),
    ("acl_smtp_data_prdr", AclStage::Prdr),
    ("acl_not_smtp", AclStage::NotSmtp),
    ("acl_smtp_quit", AclStage::Quit),
    ("acl_smtp_notquit", AclStage::NotQuit),
];

/// What evaluates policies.
#[derive(Debug)]
pub(super) struct Caller {
    /// Where: a line of Exim's configuration, or the daemon's.
    pub(super) at: String,
    /// Which; `None` for all of them.
    pub(super) names: Option<Vec<String>>,
    /// The options of Exim that lead there; empty for a daemon.
    options: Vec<String>,
    /// The daemon's ways to be asked.
    front_ends: Vec<FrontEnd>,
    /// It counts the recipient as a refused one.
    refused: bool,
    /// What accepts all authenticated users before.
    ending_of_users: Option<Ending>,
    /// It asks about recipients that are routed.
    at_delivery: bool,
}

impl Caller {
    /// The daemon for other mail servers.
    pub(super) fn daemon(file: &Path, mail: &Mail) -> Self {
        let ends = [
            mail.policy.as_ref().map(|_| FrontEnd::PolicyProtocol),
            mail.milter.as_ref().map(|_| FrontEnd::Milter),
        ];
        Self {
            at: format!("policies in [mail] of {}", file.display()),
            names: mail.policies.clone(),
            options: Vec::new(),
            front_ends: ends.into_iter().flatten().collect(),
            refused: false,
            ending_of_users: None,
            at_delivery: false,
        }
    }

    /// The lines of Exim's configuration that mail comes to.
    pub(super) fn of_exim(rules: &Rules) -> Vec<Self> {
        let evaluates = |rule: &&Rule| rule.call.policies().is_some();
        // Routers are no ACLs, of which it is known whether mail comes to them.
        let in_acls = rules.limiting().filter(|rule| !rule.call.is_at_delivery());
        let routers = rules.rules.iter().filter(|rule| rule.call.is_at_delivery());
        let calls = in_acls.chain(routers).filter(evaluates);
        let callers = calls.map(|rule| Self {
            at: rule.position.to_string(),
            names: rule.policies(),
            options: rule.used_by.iter().chain(&rule.perhaps_used_by).cloned().collect(),
            front_ends: Vec::new(),
            refused: rule.call.arguments.iter().any(|text| text.replace(' ', "") == "refused=yes"),
            ending_of_users: rule.ending_of_users.clone(),
            at_delivery: rule.call.is_at_delivery(),
        });
        callers.collect()
    }

    fn calls(&self, policy: &str) -> bool {
        self.names.as_ref().is_none_or(|names| names.iter().any(|name| name == policy))
    }
}

/// Checks the image in `spool`, that it is what `file` says, and that `callers`, if they are
/// known, evaluate it where it counts.
pub(super) fn look(spool: &Path, file: &Path, callers: Option<&[Caller]>, findings: &mut Findings) {
    let apply = || format!("exirate policy apply --spool {} {}", quoted(spool), quoted(file));
    let in_use = PolicyFile::open(spool);
    let policies = match in_use.image().map(|image| image.policies()) {
        Ok(Ok(policies)) => policies,
        Err(ImageError::Absent { .. }) => {
            return absent(file, callers.unwrap_or_default(), &apply(), findings);
        }
        Ok(Err(error)) => return cannot_read(&error, &apply(), findings),
        Err(error) => return cannot_read(error, &apply(), findings),
    };
    if policies.policies.values().any(Policy::uses_habits) {
        habits::look(spool, findings);
    }
    let written = written(&policies, file, &apply(), findings);
    let Some(callers) = callers else { return };
    unknown(&policies, written.as_ref(), callers, &apply(), findings);
    at_delivery(&policies, callers, findings);
    let callers: Vec<&Caller> = callers.iter().filter(|one| !one.at_delivery).collect();
    outcomes(&policies, &callers, findings);
    super::follower::look(&policies, spool, Path::new(config::FILE), findings);
    for caller in &callers {
        let is_used = |(name, policy): &(&String, &Policy)| {
            caller.calls(name) && !policy.delivery.is_at_delivery()
        };
        let used = policies.policies.iter().filter(is_used);
        for what in unseen(used, &caller.front_ends) {
            findings.warning(what);
        }
    }
    let at_acceptance = |(_, policy): &(&String, &Policy)| !policy.delivery.is_at_delivery();
    for (name, policy) in policies.policies.iter().filter(at_acceptance) {
        let callers: Vec<&Caller> =
            callers.iter().copied().filter(|caller| caller.calls(name)).collect();
        if callers.iter().any(|caller| caller.options.is_empty()) {
            continue;
        }
        if callers.is_empty() {
            findings.warning(format!("nothing evaluates the policy {name}"));
            continue;
        }
        uncounted(name, policy, &callers, findings);
        if let Some(Ending { position, text, .. }) = is_ended(&policies, policy, &callers) {
            let at = callers.iter().map(|caller| caller.at.as_str()).collect::<Vec<_>>().join(", ");
            findings.problem(format!(
                "{at}: no authenticated user is limited by the policy {name}: `{text}` \
                 ({position}) accepts their mail before; move the line, or the .include of its \
                 file, above that statement"
            ));
        }
    }
}

/// Compares the policies in use with their file, and warns of what makes little sense of them; the
/// policies of the file, if they are others.
fn written(
    policies: &Policies,
    file: &Path,
    apply: &str,
    findings: &mut Findings,
) -> Option<Policies> {
    let count = counted_or_no(policies.policies.len(), "policy", "policies");
    let shown = file.display();
    let (mut lints, mut written) = (Diagnostics::of(file), None);
    let mut same = None;
    match read(file) {
        Ok(compiled) => match compiled.policies {
            Some(read) if settings(&read) == settings(policies) => {
                findings.ok(format!("{count} in use, as {shown} says"));
                lints = compiled.diagnostics;
                same = Some(read);
            }
            Some(other) => {
                let text = format!("{shown} differs from the policies in use: it was not applied");
                findings.problem(text).fix(apply.to_owned());
                written = Some(other);
            }
            None => {
                findings
                    .problem(format!("{shown} has errors: the policies in use are older"))
                    .fix(format!("exirate policy lint {}", quoted(file)));
            }
        },
        Err(error) => {
            findings.note(format!("{count} in use, and their file is not at hand: {error}"));
        }
    }
    lint(same.as_ref().unwrap_or(policies), now().seconds, &mut lints);
    let files = lints.files.clone();
    for one in lints.sorted() {
        findings.warning(format!("{}: {}", place(&files, one.at), one.message));
    }
    written
}

/// Checks that a router asks about the recipients of policies that are evaluated at delivery.
fn at_delivery(policies: &Policies, callers: &[Caller], findings: &mut Findings) {
    let names: Vec<&str> = policies.at_delivery().map(|(name, _)| name).collect();
    if names.is_empty() {
        return;
    }
    let names = names.join(", ");
    if callers.iter().any(|caller| caller.at_delivery) {
        findings.ok(format!("a router asks about each recipient: {names}"));
    } else if callers.iter().any(|caller| !caller.front_ends.is_empty()) {
        for (name, why) in policies.at_delivery().filter_map(|(n, one)| Some((n, unheld(one)?))) {
            findings.problem(format!("{name}: this mail server cannot send later for it: {why}"));
        }
        match units::without_release() {
            None => {
                findings.ok(format!("what is over these limits is held, and released: {names}"))
            }
            Some(fix) => drop(
                findings
                    .problem(format!(
                        "{names}: `exirate held decide` is not run each minute, or fails, so mail waits forever"
                    ))
                    .fix(fix),
            ),
        }
    } else {
        let text = format!(
            "{names}: evaluated when mail is delivered, and no router asks, so it limits nothing: \
             router_later.conf in {} (docs/later.md)",
            include_files()
        );
        findings.problem(text).fix("exirate setup");
    }
}

/// There is no image.
fn absent(file: &Path, callers: &[Caller], apply: &str, findings: &mut Findings) {
    let shown = file.display();
    let called = callers.first().map(|caller| &caller.at);
    match (called, file.exists()) {
        (None, false) => {}
        (None, true) => {
            findings.problem(format!("{shown} is not in use: it was never applied")).fix(apply);
        }
        (Some(at), true) => {
            findings
                .problem(format!(
                    "{at}: policies are evaluated, and none is in use, so they limit nothing: \
                     {shown} was never applied"
                ))
                .fix(apply);
        }
        (Some(at), false) => {
            findings.problem(format!(
                "{at}: policies are evaluated, and none is in use, so they limit nothing: there \
                 is no {shown} (docs/policy.md says what it holds)"
            ));
            let shipped = Path::new(include_files()).join(SHIPPED);
            if shipped.exists() {
                let (shipped, file) = (quoted(&shipped), quoted(file));
                findings.fix(format!("install -D -m 0644 {shipped} {file}")).fix(apply);
            }
        }
    }
}

/// Names that are called and that no policy has.
fn unknown(
    policies: &Policies,
    written: Option<&Policies>,
    callers: &[Caller],
    apply: &str,
    findings: &mut Findings,
) {
    for Caller { at, names, .. } in callers {
        let names = names.iter().flatten();
        for name in names.filter(|name| !policies.policies.contains_key(*name)) {
            let known: Vec<&str> = policies.policies.keys().map(String::as_str).collect();
            let meant = similar(name, known.iter().copied());
            let meant = meant.map_or(String::new(), |meant| format!("; is {meant} meant?"));
            findings.problem(format!(
                "{at}: there is no policy {name:?}, so it limits nothing; those in use are: \
                 {}{meant}",
                known.join(", ")
            ));
            if written.is_some_and(|written| written.policies.contains_key(name)) {
                findings.fix(apply);
            }
        }
    }
}

/// What a policy limits and no ACL that evaluates it counts.
fn uncounted(name: &str, policy: &Policy, callers: &[&Caller], findings: &mut Findings) {
    let stage = |option: &String| STAGES.iter().find(|(known, _)| known == option);
    let options = callers.iter().flat_map(|caller| &caller.options);
    let stages: Vec<AclStage> = options
        .map(|option| stage(option).map_or(AclStage::Outside, |(_, stage)| *stage))
        .collect();
    let counted: BTreeSet<Unit> = stages.iter().flat_map(|stage| counted_in(*stage)).collect();
    for unit in Unit::ALL.iter().filter(|unit| needs::acls(**unit).is_empty()) {
        if unit.is_of_delivery() || !limits(policy, *unit) || counted.contains(unit) {
            continue;
        }
        let options = STAGES.iter().filter(|(_, stage)| counted_in(*stage).contains(unit));
        let options: Vec<&str> = options.map(|(option, _)| *option).collect();
        findings.problem(format!(
            "the policy {name} limits {}, which no ACL that evaluates it counts: evaluate it also \
             in the ACL of one of {}",
            unit.word(),
            options.join(", ")
        ));
    }
    let is_local = policy.settings.requires(State::Local);
    let comes_locally = |stage: &AclStage| matches!(stage, AclStage::NotSmtp | AclStage::Outside);
    if is_local && !stages.iter().any(comes_locally) {
        findings.problem(format!(
            "the policy {name} is for local mail, and the ACL that acl_not_smtp names does not \
             evaluate it: what programs hand over to sendmail is not limited"
        ));
    }
}

/// What a policy counts that is evaluated at this stage.
fn counted_in(stage: AclStage) -> BTreeSet<Unit> {
    let facts =
        SessionFacts { recipients: 1, message_size: 1, has_message: true, ..Default::default() };
    let (mut counted, mut all) = (AlreadyCounted::default(), Vec::new());
    let each = counted.wants_each_recipient(stage);
    counted.occurrences(stage, &facts, &mut all);
    let units = all.iter().filter(|one| one.count > 0.0).map(|one| one.unit);
    units.chain(each.then_some(Unit::UniqueRecipients)).collect()
}

fn limits(policy: &Policy, unit: Unit) -> bool {
    policy.tables().any(|limits| {
        let buckets = limits.buckets.iter().flat_map(|buckets| &buckets.buckets);
        let amounts = limits.each.get(&unit).into_iter().chain(limits.total.get(&unit));
        buckets.into_iter().any(|bucket| bucket.unit == unit)
            || amounts.into_iter().any(|amount| !amount.windows.is_empty())
    })
}

/// If a policy counts logins, and nobody who has authenticated comes to a call of it, why.
fn is_ended<'a>(
    policies: &Policies,
    policy: &Policy,
    callers: &[&'a Caller],
) -> Option<&'a Ending> {
    let is = |state, not| policy.settings.when.contains(&When::Is { state, not });
    let key = match &policy.settings.key[..] {
        [] => &policies.identity.chain,
        _ => &policy.settings.key,
    };
    if !key.contains(&Field::Auth) || is(State::Authenticated, true) || is(State::Local, false) {
        return None;
    }
    // Not at stages without a login.
    let mut with_login = callers.iter().filter(|caller| {
        caller.options.iter().any(|option| {
            !["acl_smtp_connect", "acl_smtp_helo", "acl_smtp_auth", "acl_not_smtp"]
                .contains(&option.as_str())
        })
    });
    let first = with_login.next()?.ending_of_users.as_ref()?;
    with_login.all(|caller| caller.ending_of_users.is_some()).then_some(first)
}

fn cannot_read(error: &ImageError, apply: &str, findings: &mut Findings) {
    match error {
        ImageError::Directory(DirError::Io { source, .. })
            if source.kind() == ErrorKind::PermissionDenied
                && !rustix::process::geteuid().is_root() =>
        {
            findings.hidden(format!("the policies in use were not read: {error}"));
        }
        // Reported with the files, and with the spool directory.
        ImageError::Directory(DirError::Unsafe { .. } | DirError::WrongKind { .. }) => {}
        ImageError::Directory(DirError::Io { source, .. })
            if source.kind() == ErrorKind::NotFound => {}
        _ => {
            findings.problem(error.to_string()).fix(apply);
        }
    }
}

/// Checks that Exim evaluates the policies wherever an outcome that they limit becomes known.
fn outcomes(policies: &Policies, callers: &[&Caller], findings: &mut Findings) {
    let callers: Vec<&Caller> =
        callers.iter().copied().filter(|one| !one.options.is_empty()).collect();
    if callers.is_empty() {
        return;
    }
    let calls_in = |acl: &&str| callers.iter().any(|one| one.options.iter().any(|by| by == acl));
    let refused = callers.iter().any(|caller| caller.refused);
    for (unit, names) in needs::outcomes(policies) {
        let is_exact = unit == Unit::RejectedRecipients && refused;
        let (names, word) = (names.join(", "), unit.word());
        let missing: Vec<&str> =
            needs::acls(unit).iter().copied().filter(|acl| !calls_in(acl)).collect();
        if !is_exact && !missing.is_empty() {
            findings.problem(format!(
                "{word} of {names} are not all counted: {} must evaluate the policies too; see \
                 acl_policy.conf and acl_policy_end.conf in {}",
                missing.join(", "),
                include_files()
            ));
        } else if !is_exact && unit == Unit::RejectedRecipients {
            findings.note(format!(
                "{word} of {names} do not count recipients that are followed by RSET, of which \
                 Exim knows nothing later; acl_policy_refused.conf in {} counts them",
                include_files()
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;
    use crate::policy::image::{build, install};

    const TEXT: &str = "version = 1\n[policy.p]\ndefault.messages = \"1/1h\"\n";

    /// What is found, as level and text, and the commands that fix it.
    fn found(spool: &Path, file: &Path) -> Vec<(Level, String, Vec<String>)> {
        let mut findings = Findings::default();
        look(spool, file, None, &mut findings);
        findings.list.into_iter().map(|one| (one.level, one.text, one.fix)).collect()
    }

    fn problems(spool: &Path, file: &Path) -> Vec<(Level, String, Vec<String>)> {
        found(spool, file).into_iter().filter(|(level, ..)| *level == Level::Problem).collect()
    }

    #[test]
    fn a_file_that_is_not_in_use_is_reported() {
        let spool = tempfile::tempdir().unwrap();
        let (dir, file) = (spool.path(), spool.path().join("policy.toml"));
        let apply = |file: &Path| {
            install(dir, &build(&read(file).unwrap().policies.unwrap())).unwrap();
        };
        let fix = format!("exirate policy apply --spool {} {}", dir.display(), file.display());
        assert_eq!(found(dir, &file), []);

        std::fs::write(&file, TEXT).unwrap();
        let [(level, text, fixes)] = &problems(dir, &file)[..] else { panic!() };
        assert_eq!((level, fixes), (&Level::Problem, &vec![fix.clone()]));
        assert!(text.ends_with("policy.toml is not in use: it was never applied"), "{text}");

        apply(&file);
        let [(level, text, _)] = &found(dir, &file)[..] else { panic!() };
        assert_eq!(*level, Level::Ok);
        assert_eq!(*text, format!("1 policy in use, as {} says", file.display()));

        // What means the same is the same.
        std::fs::write(&file, TEXT.replace("1/1h", "1 / 60m")).unwrap();
        assert_eq!(found(dir, &file)[0].0, Level::Ok);
        std::fs::write(&file, TEXT.replace("1/1h", "2/1h")).unwrap();
        let [(level, text, fixes)] = &problems(dir, &file)[..] else { panic!() };
        assert_eq!((level, fixes), (&Level::Problem, &vec![fix.clone()]));
        assert!(text.contains("differs from the policies in use"), "{text}");

        std::fs::write(&file, TEXT.replace("1/1h", "1")).unwrap();
        let [(level, text, fixes)] = &problems(dir, &file)[..] else { panic!() };
        assert_eq!((level, fixes.len()), (&Level::Problem, 1));
        assert!(text.contains("has errors") && fixes[0].contains("policy lint"), "{text}");

        std::fs::remove_file(&file).unwrap();
        assert_eq!(found(dir, &file)[0].0, Level::Note);
    }

    #[test]
    fn acls_in_which_outcomes_become_known_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let (spool, file) = (folder.path(), folder.path().join("policy.toml"));
        let text = "version = 1\n[policy.p]\ndefault.auth_failures = \"1/1h\"\n[policy.q]\n\
                    default.rejected_recipients = \"1/1h\"\n[policy.r]\ndefault.bytes = \"1M/1h\"\n";
        std::fs::write(&file, text).unwrap();
        install(spool, &build(&read(&file).unwrap().policies.unwrap())).unwrap();
        let found = |options: &[&str], attribute: &str| {
            let conf = spool.join("exim.conf");
            let options = options.iter().map(|option| format!("{option} = a\n"));
            let options: String = options.collect();
            let acl = format!(
                "begin acl\na:\n  warn condition = ${{dlfunc{{/l/exirate.so}}{{policy_over}}{{*}}\
                 {attribute}}}\n  accept\n"
            );
            std::fs::write(&conf, options + &acl).unwrap();
            let mut findings = Findings::default();
            let policies = read(&file).unwrap().policies.unwrap();
            let callers = Caller::of_exim(&Rules::read(&conf, [], None).unwrap());
            outcomes(&policies, &callers.iter().collect::<Vec<_>>(), &mut findings);
            findings.list.into_iter().map(|one| (one.level, one.text)).collect::<Vec<_>>()
        };
        // The policies are not used at all, which is reported elsewhere.
        assert_eq!(found(&[], ""), []);
        let all = ["acl_smtp_auth", "acl_smtp_rcpt", "acl_smtp_quit", "acl_smtp_notquit"];
        for (options, missing) in [
            (
                &all[1..2],
                [
                    "acl_smtp_auth, acl_smtp_quit, acl_smtp_notquit",
                    "acl_smtp_quit, acl_smtp_notquit",
                ],
            ),
            (&all[..3], ["acl_smtp_notquit"; 2]),
        ] {
            let found = found(options, "");
            let units = ["auth_failures of p", "rejected_recipients of q"];
            assert_eq!(found.len(), 2, "{found:?}");
            for (((level, text), unit), missing) in found.iter().zip(units).zip(missing) {
                assert_eq!(*level, Level::Problem);
                let start = format!("{unit} are not all counted: {missing} must evaluate ");
                assert!(text.starts_with(&start), "{text}");
            }
        }
        let [(level, text)] = &found(&all, "")[..] else { panic!() };
        assert_eq!(*level, Level::Note);
        assert!(text.contains("followed by RSET") && text.contains("acl_policy_refused.conf"));
        assert_eq!(found(&all, "{refused=yes}"), []);
    }

    #[test]
    fn a_damaged_image_is_reported() {
        let spool = tempfile::tempdir().unwrap();
        let (dir, file) = (spool.path(), spool.path().join("policy.toml"));
        std::fs::write(&file, TEXT).unwrap();
        let image = build(&read(&file).unwrap().policies.unwrap());
        let path = install(dir, &image).unwrap();
        let rows = 72..image.len();
        for at in [0, 8, 20, rows.start + 8, rows.end - 1] {
            let mut damaged = image.clone();
            damaged[at] ^= 1;
            std::fs::write(&path, damaged).unwrap();
            let [(level, text, fixes)] = &found(dir, &file)[..] else { panic!("byte {at}") };
            assert_eq!((level, fixes.len()), (&Level::Problem, 1), "{text}");
            assert!(text.contains("policy.image is damaged at byte "), "{text}");
        }
    }

    fn applied(text: &str) -> tempfile::TempDir {
        let spool = tempfile::tempdir().unwrap();
        let file = spool.path().join("policy.toml");
        std::fs::write(&file, format!("version = 1\n{text}")).unwrap();
        install(spool.path(), &build(&read(&file).unwrap().policies.unwrap())).unwrap();
        spool
    }

    fn caller(names: Option<&[&str]>, options: &[&str]) -> Caller {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Caller {
            at: "conf:7".into(),
            names: names.map(owned),
            options: owned(options),
            front_ends: Vec::new(),
            refused: false,
            ending_of_users: None,
            at_delivery: false,
        }
    }

    /// What is found with these callers, but what is well.
    fn with(spool: &tempfile::TempDir, callers: &[Caller]) -> Vec<(Level, String)> {
        let mut findings = Findings::default();
        look(spool.path(), &spool.path().join("policy.toml"), Some(callers), &mut findings);
        let list = findings.list.into_iter().filter(|one| one.level != Level::Ok);
        list.map(|one| (one.level, one.text)).collect()
    }

    #[test]
    fn policies_that_are_called_and_not_there_are_problems() {
        let empty = tempfile::tempdir().unwrap();
        let [(Level::Problem, text)] = &with(&empty, &[caller(None, &["acl_smtp_rcpt"])])[..]
        else {
            panic!()
        };
        assert!(text.starts_with("conf:7: policies are evaluated, and none is in use"), "{text}");
        let spool = applied("[policy.outbound]\ndefault.recipients = \"5/1h\"\n");
        let rcpt = &["acl_smtp_rcpt"];
        assert_eq!(with(&spool, &[caller(None, rcpt)]), []);
        assert_eq!(with(&spool, &[caller(Some(&["outbound"]), rcpt)]), []);
        let found = with(&spool, &[caller(None, rcpt), caller(Some(&["outbuond"]), rcpt)]);
        let [(Level::Problem, text)] = &found[..] else { panic!("{found:?}") };
        assert!(text.contains("there is no policy \"outbuond\""), "{text}");
        assert!(text.ends_with("those in use are: outbound; is outbound meant?"), "{text}");
        // The daemon's list as well.
        let daemon = |front_ends: &[FrontEnd], names: &[&str]| Caller {
            at: "policies in [mail] of /etc/exirate/exirate.toml".into(),
            front_ends: front_ends.to_vec(),
            ..caller(Some(names), &[])
        };
        let found = with(&spool, &[daemon(&[FrontEnd::Milter], &["nosuch"])]);
        assert!(found[0].1.starts_with("policies in [mail] of /etc/exirate/"), "{found:?}");
        let spool = applied("[policy.p]\ndefault.auth_failures = \"5/1h\"\n");
        let found = with(&spool, &[daemon(&[FrontEnd::Milter], &["p"])]);
        assert!(found[0].1.contains("the milter cannot see auth_failures"), "{found:?}");
    }

    #[test]
    fn what_no_acl_counts_is_a_problem() {
        let found = |limits: &str, options: &[&str]| {
            let spool = applied(&format!("[policy.p]\n{limits}\n"));
            with(&spool, &[caller(None, options)])
        };
        for (limits, wrong, right) in [
            ("default.bytes = \"1M/1h\"", &["acl_smtp_rcpt"][..], &["acl_smtp_data"][..]),
            ("default.bytes = \"1M/1h\"", &["acl_smtp_auth"], &["acl_smtp_rcpt", "acl_smtp_mime"]),
            ("default.recipients = \"9/1h\"", &["acl_smtp_mail"], &["acl_smtp_rcpt"]),
            ("default.recipients = \"9/1h\"", &["acl_smtp_connect"], &["acl_smtp_data"]),
            ("default.unique_recipients = \"9/1h\"", &["acl_smtp_mail"], &["acl_not_smtp"]),
            ("default.messages = \"9/1h\"", &["acl_smtp_connect"], &["acl_smtp_mail"]),
            ("user.a.messages = \"9/1h\"", &["acl_smtp_auth"], &["routers"]),
            ("default.connections = \"9/1h\"", &["acl_not_smtp"], &["acl_smtp_connect"]),
            (
                "when = \"local\"\ndefault.messages = \"9/1h\"",
                &["acl_smtp_mail"],
                &["acl_not_smtp"],
            ),
        ] {
            let list = found(limits, wrong);
            let [(Level::Problem, text)] = &list[..] else {
                panic!("{limits} {wrong:?}: {list:?}")
            };
            assert!(text.contains("the policy p "), "{text}");
            let list = found(limits, right);
            assert!(list.iter().all(|(level, _)| *level != Level::Problem), "{limits}: {list:?}");
        }
    }

    #[test]
    fn lints_of_the_policies_in_use_are_warnings() {
        let spool = applied("[policy.p]\nwhen = \"authenticated\"\n");
        let found = with(&spool, &[]);
        assert!(found.iter().any(|(_, text)| text == "nothing evaluates the policy p"));
        let lint = found.iter().find(|(level, _)| *level == Level::Warning).unwrap();
        assert!(lint.1.contains("policy.toml:2:9: "), "{found:?}");
        assert!(lint.1.contains("has no limit"), "{found:?}");
        // Without the file, too.
        std::fs::remove_file(spool.path().join("policy.toml")).unwrap();
        assert!(with(&spool, &[]).iter().any(|(_, text)| text.contains("has no limit")));
    }

    #[test]
    fn users_who_are_accepted_before_are_a_problem() {
        let spool = applied("[policy.p]\ndefault.recipients = \"9/1h\"\n");
        let position = || crate::mta::exim::Position {
            file: Path::new("/etc/exim4/conf").into(),
            line: 5,
            piece: None,
        };
        let ended = |options: &[&str]| Caller {
            ending_of_users: Some(Ending {
                position: position(),
                text: "accept x".into(),
                except: None,
            }),
            ..caller(None, options)
        };
        let [(Level::Problem, text)] = &with(&spool, &[ended(&["acl_smtp_rcpt"])])[..] else {
            panic!()
        };
        assert!(text.contains("no authenticated user is limited by the policy p: `accept x`"));
        // Another line counts them.
        let other = caller(None, &["acl_smtp_data"]);
        assert_eq!(with(&spool, &[ended(&["acl_smtp_rcpt"]), other]), []);
        let spool = applied("[policy.p]\nkey = \"client\"\ndefault.recipients = \"9/1h\"\n");
        assert_eq!(with(&spool, &[ended(&["acl_smtp_rcpt"])]), []);
    }
}
