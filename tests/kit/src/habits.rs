//! Generated mail of some accounts, for the arithmetic of habits.

use std::fmt::Write as _;

use crate::random::Random;

/// A message.
#[derive(Clone, Debug)]
pub struct Message {
    /// Seconds since 1970.
    pub at: i64,
    /// The number of the client's network; 0 is unknown.
    pub network: u64,
    /// The numbers of the recipients.
    pub recipients: Vec<u64>,
}

/// The keyed hash of the reference, which the arithmetic gets from its caller.
pub fn mix(number: u64) -> u64 {
    let mut x = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x123_4567);
    x ^= x >> 29;
    x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^ x >> 32
}

const DAY: i64 = 86_400;
/// Midnight of a day in 2026.
const START: i64 = 20_500 * DAY;

/// So many accounts.
pub const ACCOUNTS: usize = 6;

/// The mail of an account, always the same: months of an owner's, some days of a thief's, and the
/// owner's again. Each account has other habits, and another thief.
pub fn stream(account: usize) -> Vec<Message> {
    let mut random = Random::new(account as u64);
    let (people, gap, zone) = (20 << account, 30_000 >> account, account as i64 * 4);
    let mut all = Vec::new();
    let mut at = START;
    for _ in 0..160 {
        at = awake(at + random.within(1, 2 * gap) as i64, zone, &mut random);
        all.push(owner(&mut random, at, people, account));
        // A run: several in a few seconds, or a message twice in the same one.
        if random.chance(15) {
            for _ in 0..random.within(1, 12) {
                at += random.below(4) as i64;
                all.push(owner(&mut random, at, people, account));
            }
        }
    }
    for _ in 0..40 {
        at += match account {
            0 => 1,
            1 => 600,
            2 => random.within(1800, 5400) as i64,
            3 => 14_400,
            // Once a clock was set back.
            4 => random.within(0, 20) as i64 - 5,
            _ => 60,
        };
        // The last thief hides each stranger among recipients that are known.
        let recipients = match account {
            5 => vec![0, 1, random.bits()],
            4 => (0..20).map(|_| random.bits()).collect(),
            _ => vec![random.bits()],
        };
        all.push(Message { at, network: 900 + random.below(3) as u64, recipients });
    }
    for _ in 0..60 {
        at = awake(at + random.within(1, 2 * gap) as i64, zone, &mut random);
        all.push(owner(&mut random, at, people, account));
    }
    all
}

/// The hours at which the owner writes, mostly.
fn awake(at: i64, zone: i64, random: &mut Random) -> i64 {
    let hour = (at / 3600 + zone) % 24;
    if hour < 8 && !random.chance(3) { at + (8 - hour) * 3600 } else { at }
}

fn owner(random: &mut Random, at: i64, people: usize, account: usize) -> Message {
    let count = if random.chance(80) { 1 } else { random.within(2, 9) };
    let recipients = (0..count).map(|_| random.zipf(people) as u64).collect();
    let network = if account == 3 { 0 } else { random.zipf(4) as u64 };
    Message { at, network, recipients }
}

/// All accounts, in the format of the reference's data: `time account network recipient ...`.
pub fn streams() -> String {
    let mut text = String::new();
    for account in 0..ACCOUNTS {
        for Message { at, network, recipients } in stream(account) {
            let _ = write!(text, "{at} {account} {network}");
            recipients.iter().for_each(|one| _ = write!(text, " {one}"));
            text.push('\n');
        }
    }
    text
}
