//! Random logs of Postfix and Exim on several servers, of which it is known who attempted what:
//! each attempt is given to whoever made it, or counted as unknown, and none vanishes or comes
//! twice.

mod generator;

use std::collections::HashMap;

use exirate::history::simulate::{Attempt, AttemptPart, Converter, InLog};
use exirate::logs::files::LogFiles;
use exirate::logs::messages::{JoinSettings, Joiner};
use kit::Random;

use self::generator::{Made, generate};

/// So many lines are read, and with `EXIRATE_TEST_LONG` a million.
const LINES: usize = 20_000;
const LINES_LONG: usize = 1_000_000;
/// So many lines are in one log.
const LINES_OF_A_LOG: usize = 5_000;

/// What a log shows of an attempt.
#[derive(Debug, Default)]
struct Found {
    times: u32,
    auth: Option<String>,
    client: Option<String>,
    accepted: bool,
}

#[test]
fn each_attempt_is_its_senders_or_unknown() {
    let long = std::env::var_os("EXIRATE_TEST_LONG").is_some();
    let mut random = Random::new(0x1095);
    let (mut lines, mut logs, mut known, mut unknown) = (0, 0, 0, 0);
    while lines < if long { LINES_LONG } else { LINES } {
        let mut one = Random::new(random.bits());
        let made = generate(&mut one, LINES_OF_A_LOG);
        let (given, not) = compare(&made, logs);
        lines += made.log.lines().count();
        (logs, known, unknown) = (logs + 1, known + given, unknown + not);
    }
    println!("{lines} lines in {logs} logs: {known} attempts, {unknown} of them unknown");
    assert!(known > lines / 10 && unknown > 0 && unknown < known / 4);
}

/// How many attempts the log shows, and of how many it does not show the login.
fn compare(made: &Made, number: usize) -> (usize, usize) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mail.log");
    std::fs::write(&path, &made.log).unwrap();
    let kept = || {
        let name = format!("exirate-log-truth-{number}.log");
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, &made.log).unwrap();
        path.display().to_string()
    };
    let mut joiner = Joiner::new(JoinSettings::default());
    let mut converter = Converter::default();
    let mut recipients: HashMap<String, Found> = HashMap::new();
    let mut failed: HashMap<String, usize> = HashMap::new();
    let mut visit = |attempt: &Attempt| {
        let client = attempt.event.client.address().map(|client| client.to_string());
        let auth = attempt.event.auth.as_deref().map(str::to_owned);
        let to = match &attempt.part {
            AttemptPart::Rcpt { recipient } => vec![recipient.to_string()],
            AttemptPart::NotSmtp { recipients, .. } => {
                recipients.iter().map(ToString::to_string).collect()
            }
            AttemptPart::Auth if attempt.in_log == InLog::Rejected => {
                *failed.entry(client.clone().unwrap_or_default()).or_default() += 1;
                return;
            }
            _ => return,
        };
        for to in to {
            let found = recipients.entry(to).or_default();
            found.times += 1;
            (found.auth, found.client) = (auth.clone(), client.clone());
            found.accepted = attempt.in_log == InLog::Accepted;
        }
    };
    let files = LogFiles::find(&[path]).unwrap();
    let read = files
        .read(|line| joiner.line(&line, &mut |item| converter.add(item, &mut visit)), |_| {})
        .unwrap();
    joiner.finish(&mut |item| converter.add(item, &mut visit));
    converter.finish(&mut visit);

    let mut not_given = 0;
    for (to, truth) in &made.recipients {
        let found = recipients.remove(to);
        assert!(found.is_some(), "{to} is missing: {truth:?} in {}", kept());
        let found = found.unwrap_or_default();
        let is_right = found.times == 1
            && (found.auth == truth.login || found.auth.is_none())
            && (found.client == truth.client || found.client.is_none())
            && found.accepted == truth.is_accepted;
        assert!(is_right, "{to}: {found:?}, but {truth:?} in {}", kept());
        if found.auth != truth.login {
            assert!(truth.may_be_unknown, "{to}: {found:?}, but {truth:?} in {}", kept());
            not_given += 1;
        }
    }
    assert!(recipients.is_empty(), "{recipients:?} in {}", kept());
    assert_eq!(failed, made.failed_logins, "in {}", kept());
    // What is not known is counted.
    let counts = joiner.counts();
    let unknown = converter.unshown().without_login + counts.without_origin;
    assert!(not_given as u64 <= unknown, "{not_given} of {unknown} in {}", kept());
    // And each line is used or has a reason.
    let unused: u64 = counts.unused.all().map(|(_, _, lines)| lines.count).sum();
    let repeated = made.repeated as u64;
    assert_eq!(counts.used + unused, read.lines + repeated, "in {}", kept());
    assert_eq!(read.unused.all().map(|(_, _, lines)| lines.count).sum::<u64>(), 0);
    (made.recipients.len(), not_given)
}
