//! The mail of real accounts, and when attacks that are put into it are noticed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read};

use exirate::rate::habits::Sensitivity;
use flate2::read::MultiGzDecoder;
use kit::habits::{Message, mix};

use super::account::Account;
use super::attacks::{Attack, Shape};
use super::python::Random;

/// The test period of an account begins after so many messages.
const WARM_MESSAGES: usize = 30;
/// And after so many seconds.
const WARM_SECONDS: i64 = 14 * DAY;
/// So many attacks of each shape.
const STATES: usize = 150;
pub(crate) const DAY: i64 = 86_400;

/// The mail of a file: by account, in the order of time; recipients are hashed already.
pub(crate) type Mail = BTreeMap<u64, Vec<Message>>;

/// Reads a file.
pub(crate) fn load(file: &str) -> Mail {
    let open = || File::open(file).unwrap_or_else(|error| panic!("{file}: {error}"));
    let plain: Box<dyn Read> = match file.ends_with(".gz") {
        true => Box::new(MultiGzDecoder::new(open())),
        false => Box::new(open()),
    };
    let mut mail = Mail::new();
    for (line, text) in BufReader::new(plain).lines().enumerate() {
        let text = text.unwrap_or_else(|error| panic!("{file}: {error}"));
        let mut words = text.split_ascii_whitespace().map(|word| {
            let number = word.split('@').next().unwrap_or("").parse::<u64>();
            number.unwrap_or_else(|_| panic!("{file}:{}: {word} is no number", line + 1))
        });
        let mut next = || words.next().unwrap_or_else(|| panic!("{file}:{}: too short", line + 1));
        let (at, account, network) = (next() as i64, next(), next());
        let recipients = words.map(mix).collect();
        mail.entry(account).or_default().push(Message { at, network, recipients });
    }
    mail
}

/// Where the test period of an account begins.
pub(crate) fn warm(mail: &[Message]) -> Option<usize> {
    (WARM_MESSAGES..mail.len()).find(|&n| mail[n].at - mail[0].at >= WARM_SECONDS)
}

/// How many alarms the mail as it is raises, and of how many accounts, if this share of the
/// strangers of an account fails.
pub(crate) fn alarms(
    mail: &Mail,
    sensitivity: Sensitivity,
    share: impl Fn(u64) -> f64,
) -> (u32, usize) {
    let (mut alarms, mut hit) = (0, HashSet::new());
    for (&number, messages) in mail {
        let (first, mut account) = (warm(messages), Account::new(number, sensitivity));
        for (n, message) in messages.iter().enumerate() {
            let failed = account.fail_until(message.at);
            let of_it = account.learn(message, share(number)).alarm;
            let count = failed + u32::from(of_it.is_some());
            if count > 0 && first.is_some_and(|first| n >= first) {
                alarms += count;
                hit.insert(number);
            }
        }
    }
    (alarms, hit.len())
}

/// An account at a random message of its test period, and what it remembers after it.
pub(crate) struct Moment<'a> {
    pub(crate) mail: &'a [Message],
    pub(crate) at: usize,
    pub(crate) account: Account,
}

/// The same moments for each sensitivity: they are chosen before anything is learned. This share of
/// the owners' strangers fails.
pub(crate) fn moments(mail: &Mail, sensitivity: Sensitivity, share: f64) -> Vec<Moment<'_>> {
    let mut random = Random::of_number(1);
    let mut able: Vec<_> =
        mail.iter().filter_map(|(&account, one)| Some((account, warm(one)?))).collect();
    random.shuffle(&mut able);
    let (mut order, mut wanted) = (Vec::new(), HashMap::<u64, Vec<usize>>::new());
    for n in (0..STATES).filter(|_| !able.is_empty()) {
        let (account, first) = able[n % able.len()];
        let place = first + random.below(mail[&account].len() - first);
        let of = wanted.entry(account).or_insert_with(|| {
            order.push(account);
            Vec::new()
        });
        of.push(place);
    }
    let mut all = Vec::new();
    for number in order {
        let (mail, places) = (&mail[&number], &wanted[&number]);
        let mut account = Account::new(number, sensitivity);
        for (at, message) in mail.iter().enumerate().take(places.iter().max().unwrap() + 1) {
            account.fail_until(message.at);
            account.learn(message, share);
            let count = places.iter().filter(|&&place| place == at).count();
            all.extend((0..count).map(|_| Moment { mail, at, account: account.clone() }));
        }
    }
    all
}

/// How many recipients an attack has reached when it is noticed; `None` if it is missed. The
/// owner's own mail goes on in between. These shares of the owner's strangers and of the thief's
/// fail.
pub(crate) fn caught(
    moment: &Moment<'_>,
    shape: &Shape,
    seed: usize,
    [own_share, share]: [f64; 2],
) -> Option<usize> {
    let Moment { mail, at, .. } = *moment;
    let (mut account, mut reached) = (moment.account.clone(), 0);
    let earlier = &mail[at.saturating_sub(50)..=at];
    let known: Vec<u64> = earlier.iter().flat_map(|one| one.recipients.iter().copied()).collect();
    let has_networks = mail.iter().any(|one| one.network != 0);
    let mut own = mail[at + 1..].iter().peekable();
    for (mut message, sent) in Attack::new(shape, mail[at].at + 60, &known, seed) {
        while let Some(one) = own.next_if(|one| one.at <= message.at) {
            if account.fail_until(one.at) > 0 {
                return Some(reached);
            }
            if account.learn(one, own_share).alarm.is_some() {
                return Some(sent);
            }
        }
        if account.fail_until(message.at) > 0 {
            return Some(reached);
        }
        if !has_networks {
            message.network = 0;
        }
        if account.learn(&message, share).alarm.is_some() {
            return Some(sent);
        }
        reached = sent;
    }
    None
}

/// The median and the 95th percentile; those missed are infinitely late.
pub(crate) fn summary(sent: Vec<Option<usize>>) -> String {
    let sent = sent.into_iter().map(|sent| sent.unwrap_or(usize::MAX));
    let mut sent: Vec<usize> = sent.collect();
    if sent.is_empty() {
        return "no account is tested".into();
    }
    sent.sort_unstable();
    let shown = |place: usize| match sent[place] {
        usize::MAX => "-".to_owned(),
        count => count.to_string(),
    };
    let (half, most) = (shown(sent.len() / 2), shown((0.95 * sent.len() as f64) as usize));
    let missed = sent.iter().filter(|&&count| count == usize::MAX).count();
    match missed {
        0 => format!("{half} / {most}"),
        _ => format!("{half} / {most}, {:.1} % missed", 100.0 * missed as f64 / sent.len() as f64),
    }
}
