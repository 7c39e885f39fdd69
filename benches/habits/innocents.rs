//! What owners do that looks like a theft: who alarms.

use exirate::rate::habits::Sensitivity;
use kit::habits::Message;
use kit::innocents::{INNOCENTS, Innocent};
use kit::table::{print, row};

use super::mail::{Mail, Moment, moments};

/// The share of the others that fail, in the last column.
const FAIL: f64 = 0.05;

/// Prints for each how many of the accounts alarm, and after how many recipients half of those do.
pub(crate) fn run(mail: &Mail) {
    let [low, normal, high] = Sensitivity::ALL.map(Sensitivity::word);
    let failing = format!("{normal}, {} % of others fail", 100.0 * FAIL);
    let mut rows = vec![row(["accounts that alarm; recipients until half of them do"])];
    rows[0].extend([low, normal, high, &failing].map(str::to_owned));
    rows.extend(INNOCENTS.iter().map(|one| row([one.name])));
    let plain = Sensitivity::ALL.map(|sensitivity| (sensitivity, 0.0));
    for (sensitivity, share) in plain.into_iter().chain([(Sensitivity::Normal, FAIL)]) {
        let moments = moments(mail, sensitivity, 0.0);
        for (innocent, row) in INNOCENTS.iter().zip(&mut rows[1..]) {
            let all = moments.iter().enumerate();
            let mut sent: Vec<usize> =
                all.filter_map(|(seed, one)| alarmed(innocent, one, seed, share)).collect();
            sent.sort_unstable();
            let half = sent.get(sent.len() / 2).map(|half| format!("; {half}")).unwrap_or_default();
            let part = 100.0 * sent.len() as f64 / moments.len() as f64;
            row.push(format!("{part:.0} %{half}"));
        }
    }
    print(&rows);
}

/// After how many recipients there is an alarm, if there is one.
fn alarmed(innocent: &Innocent, moment: &Moment<'_>, seed: usize, share: f64) -> Option<usize> {
    let Moment { mail, at, account } = moment;
    let mut account = match innocent.is_own_account {
        true => account.new_one(),
        false => account.clone(),
    };
    let known: Vec<u64> =
        mail[..=*at].iter().flat_map(|one| one.recipients.iter().copied()).collect();
    account.has_written_to(&known);
    let Message { at: start, network, .. } = mail[*at];
    let mut sent = 0;
    let all = innocent.messages(start + 60, network, &known, seed as u64);
    let alarmed = all.iter().any(|message| {
        let failed = account.fail_until(message.at);
        sent += message.recipients.len();
        let update = match innocent.is_marked {
            true => account.learn_marked(message),
            false => account.learn(message, share),
        };
        update.alarm.is_some() || failed > 0
    });
    alarmed.then_some(sent)
}
