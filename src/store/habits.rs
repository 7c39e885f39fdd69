//! The habits of accounts, as stores keep them: see [`crate::rate::habits`].

use std::fmt;
use std::net::IpAddr;

use crate::engine::{AlgorithmKind, Block, BlockTime, Kind, Overridden, RecordKey};
use crate::identity::network::Cidr;
use crate::rate::Timestamp;
use crate::rate::habits::{Alarm, Habits, Rule, Sensitivity, Update, YOUNG};
use crate::text::{counted, duration};

/// What the name of a record of habits begins with, before the identity.
const PREFIX: &[u8] = b"habits/";

/// Writes the name of the record of an account's habits into `name`; `identity` is as in the
/// records of policies, such as `auth:alice@example.org`.
pub fn habits_key<'n>(identity: &[u8], name: &'n mut Vec<u8>) -> RecordKey<'n> {
    name.clear();
    name.extend_from_slice(PREFIX);
    name.extend_from_slice(identity);
    RecordKey {
        name,
        identity_start: PREFIX.len(),
        kind: Kind::Habits,
        algorithm: AlgorithmKind::MovingAverage,
    }
}

/// The network of a client, of which a thief has another one. A client on this machine is the web
/// mail, wherever its user is.
fn habits_network(client: IpAddr) -> Option<Cidr> {
    let client = client.to_canonical();
    let bits = if client.is_ipv4() { 24 } else { 64 };
    (!client.is_loopback()).then(|| Cidr::around(client, bits))
}

/// The hash of the network of a client, where it has one.
pub fn habits_network_hash(client: IpAddr, hash: impl Fn(&[u8]) -> u64) -> Option<u64> {
    habits_network(client).map(|network| match network.address() {
        IpAddr::V4(address) => hash(&address.octets()),
        IpAddr::V6(address) => hash(&address.octets()),
    })
}

/// A message that an account sends, or what became of it, with hashes by
/// [`Store::habits_hash`](super::Store::habits_hash).
#[derive(Clone, Copy, Debug)]
pub struct Sending<'a> {
    /// The record of the account, by [`habits_key`].
    pub key: RecordKey<'a>,
    /// The client's network, by [`habits_network_hash`], where it is known.
    pub network: Option<u64>,
    /// The recipients, folded, each once.
    pub recipients: &'a [u64],
    /// How early an alarm is raised.
    pub sensitivity: Sensitivity,
    /// What is known of it.
    pub stage: SendingStage,
    /// Whether the habits are updated.
    pub learn: Learn,
}

/// What is known of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendingStage {
    /// It is sent now.
    Sent,
    /// It is, and says of itself that a program wrote it or a list sends it: see
    /// [`Habits::marked_message`].
    Marked,
    /// It could not be delivered to the recipients: see [`Habits::failed`].
    Failed,
}

/// Whether habits are updated by a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learn {
    /// They are.
    Always,
    /// Not while the account is suspected: then the message is held or deferred, and only that is
    /// counted. An alarm blocks the account for this long.
    UnlessSuspected(BlockTime),
    /// They are only looked at.
    Never,
}

/// What the habits of an account say, after a message.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Judged {
    /// If the account is suspected: when the alarm was raised, and until when it is.
    pub suspected: Option<(i64, i64)>,
    /// The score, before an alarm sets it to 0.
    pub score: f64,
    /// The score at which an alarm is raised.
    pub threshold: f64,
    /// The alarm that this message has raised.
    pub alarm: Option<Alarm>,
    /// The override that decides instead.
    pub overridden: Option<Overridden>,
    /// The block that an earlier alarm has set, which no override lifts.
    pub blocked: Option<Block>,
}

impl Sending<'_> {
    /// Updates `habits` by the message, which was sent `at` this second since 1970, and for
    /// which there is this override. Also whether they have changed.
    pub fn judge(
        &self,
        habits: &mut Habits,
        at: i64,
        overridden: Option<Overridden>,
    ) -> (Judged, bool) {
        let blocked = habits.blocked(at).filter(|_| overridden.is_none());
        let learns = match self.learn {
            _ if overridden.is_some_and(Overridden::is_denial) => false,
            // Its messages are not known.
            _ if self.stage == SendingStage::Failed && habits.messages() == 0 => false,
            Learn::Always => true,
            Learn::UnlessSuspected(_) => {
                overridden == Some(Overridden::Allow) || !habits.is_suspected(at)
            }
            Learn::Never => false,
        };
        let is_held = matches!(self.learn, Learn::UnlessSuspected(_))
            // What is refused prolongs nothing.
            && blocked.is_none()
            // Anybody can have a program answer him.
            && self.stage == SendingStage::Sent
            && overridden.is_none()
            && !learns;
        if is_held {
            habits.hold(at);
        }
        let update = learns.then(|| {
            let recipients = self.recipients.iter().copied();
            match self.stage {
                SendingStage::Sent => {
                    Some(habits.message(at, self.network, recipients, self.sensitivity))
                }
                SendingStage::Marked => {
                    Some(habits.marked_message(at, recipients, self.sensitivity))
                }
                SendingStage::Failed => {
                    let updates = recipients.map(|one| habits.failed(at, one, self.sensitivity));
                    updates.reduce(|all, one| Update { alarm: all.alarm.or(one.alarm), ..one })
                }
            }
        });
        let mut update = update.flatten();
        if let Some(alarm) = update.as_mut().and_then(|update| update.alarm.as_mut())
            && let Learn::UnlessSuspected(time) = self.learn
            && overridden.is_none()
        {
            let block = time.begun(Timestamp { seconds: at, micros: 0 });
            alarm.blocked = block.map(|_| time);
            habits.block = block.map_or(0, Block::code);
        }
        if let Some(alarm) = update.and_then(|update| update.alarm)
            && overridden == Some(Overridden::Allow)
        {
            habits.allow(&alarm);
        }
        let score = update.map_or_else(|| habits.score(at), |update| update.score);
        let threshold =
            update.map_or_else(|| habits.threshold(at, self.sensitivity), |one| one.threshold);
        let judged = Judged {
            suspected: (habits.is_suspected(at))
                .then(|| Some((habits.alarm_at()?, habits.suspected_until()?)))
                .flatten(),
            score,
            threshold,
            alarm: update.and_then(|update| update.alarm),
            overridden,
            blocked,
        };
        (judged, learns || is_held)
    }
}

/// Its evidence, after `ACCOUNT may be stolen: `.
impl fmt::Display for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            strangers,
            messages,
            seconds,
            is_put_back,
            networks,
            failures,
            usual,
            volume,
            record,
            ..
        } = *self;
        match self.rule {
            Rule::Volume => write!(
                f,
                "messages to recipients that it has never written to came to {volume:.0} in \
                 about a day, and to {record:.0} at most on earlier ones"
            )?,
            Rule::Score => {
                let strangers = counted(strangers, "recipient", "recipients");
                let messages = counted(messages, "message", "messages");
                write!(f, "{strangers} that it has never written to")?;
                if failures > 0 {
                    write!(f, ", of which {failures} could not be delivered to")?;
                }
                write!(f, ", in {messages}")?;
                if !is_put_back {
                    write!(f, " within {}", duration(seconds as f64))?;
                }
                if networks > 0 {
                    let networks = counted(networks, "network", "networks");
                    write!(f, ", from {networks} never seen")?;
                }
            }
        }
        match self.before {
            // Nothing is usual yet.
            0 => f.write_str("; none of its mail was known before")?,
            few @ 1..YOUNG => {
                let messages = counted(few, "message", "messages");
                write!(f, "; known before: only {messages}")?;
            }
            _ => write!(f, "; usual: {usual:.1} new ones a day")?,
        }
        if self.untold > 0 {
            let alarms = counted(self.untold, "more alarm", "more alarms");
            write!(f, "; {alarms} since the last alert")?;
        }
        match self.blocked {
            Some(BlockTime::Seconds(seconds)) => {
                write!(f, "; blocked for {}", duration(seconds.into()))?;
            }
            Some(BlockTime::UntilLifted) => f.write_str("; blocked until somebody answers")?,
            Some(BlockTime::Ignored | BlockTime::Kept) | None => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_while_an_override_allows_is_no_suspicion() {
        for (overridden, suspected) in [(None, true), (Some(Overridden::Allow), false)] {
            let (mut habits, mut name) = (Habits::default(), Vec::new());
            let alarm = (0..10).find_map(|n| {
                let strangers: Vec<u64> =
                    (0..10_000).map(|one: u64| one.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
                let recipients = &strangers[n * 1000..][..1000];
                let sending = Sending {
                    key: habits_key(b"auth:alice", &mut name),
                    network: None,
                    recipients,
                    sensitivity: Sensitivity::High,
                    stage: SendingStage::Sent,
                    learn: Learn::Always,
                };
                let at = 1_800_000_000 + n as i64;
                sending.judge(&mut habits, at, overridden).0.alarm.map(|_| at)
            });
            assert_eq!(habits.is_suspected(alarm.unwrap()), suspected);
        }
    }

    #[test]
    fn evidence_says_how_little_was_known() {
        let of = |before| Alarm {
            rule: Rule::Score,
            strangers: 30,
            messages: 3,
            seconds: 60,
            is_put_back: false,
            networks: 0,
            failures: 0,
            usual: 0.5,
            before,
            volume: 0.0,
            record: 0.0,
            is_told: true,
            untold: 0,
            blocked: None,
        };
        for (before, said) in [
            (0, "; none of its mail was known before"),
            (1, "; known before: only 1 message"),
            (YOUNG - 1, "; known before: only 19 messages"),
            (YOUNG, "; usual: 0.5 new ones a day"),
        ] {
            let text = of(before).to_string();
            assert!(text.ends_with(said), "{text}");
            assert_eq!(text.contains("usual"), before >= YOUNG, "{text}");
            assert!(text.contains(", in 3 messages within 1m; "), "{text}");
        }
        // After an alarm by volume, it is not known in which part of a day.
        let put_back = Alarm { seconds: 90_000, is_put_back: true, ..of(YOUNG) };
        assert!(put_back.to_string().contains(", in 3 messages; usual: "), "{put_back}");
    }

    /// How many messages of a thief leave on each day: one to a stranger each minute if he `sends`
    /// then, and held while the account is suspected.
    fn left(days: i64, sends: impl Fn(i64, &Judged) -> bool) -> Vec<u32> {
        let (mut habits, mut name) = (Habits::default(), Vec::new());
        let mut send = |at: i64, to: u64| {
            let sending = Sending {
                key: habits_key(b"auth:alice", &mut name),
                network: Some(7),
                recipients: &[to.wrapping_mul(0x9e37_79b9_7f4a_7c15)],
                sensitivity: Sensitivity::Normal,
                stage: SendingStage::Sent,
                learn: Learn::UnlessSuspected(BlockTime::Kept),
            };
            sending.judge(&mut habits, at, None).0
        };
        let mut at = 1_800_000_000;
        for n in 0..200 {
            at += 20_000;
            send(at, n % 9);
        }
        let (first, mut judged, mut left) = (at, Judged::default(), vec![0; days as usize]);
        while at + 60 < first + days * 86_400 {
            at += 60;
            if sends(at, &judged) {
                judged = send(at, at as u64);
                left[((at - first) / 86_400) as usize] += u32::from(judged.suspected.is_none());
            }
        }
        left
    }

    #[test]
    fn a_thief_who_goes_on_is_held_for_a_week_and_some_messages_leave_before_the_next_alarm() {
        // Nothing but what it takes to raise the next alarm, which takes more each time.
        for (days, most) in left(28, |_, _| true).chunks(7).zip([30, 100, 200, 400]) {
            assert!(days[0] > 5 && days[0] < most, "{days:?}");
            assert!(days[1..].iter().all(|&left| left == 0), "{days:?}");
        }
        // Who stops for a day is free again, as the owner would be.
        let stops = |at, judged: &Judged| judged.suspected.is_none_or(|(_, until)| until <= at);
        let days = left(3, stops);
        assert!(days.is_sorted() && days[0] < 30 && days[2] < 200, "{days:?}");
    }

    #[test]
    fn a_client_is_known_by_its_network() {
        for (client, network) in [
            ("192.0.2.7", Some("192.0.2.0/24")),
            ("::ffff:192.0.2.7", Some("192.0.2.0/24")),
            ("2001:db8::7:8", Some("2001:db8::/64")),
            ("127.0.0.1", None),
            ("::ffff:127.0.0.1", None),
            ("::1", None),
        ] {
            let found = habits_network(client.parse().unwrap()).map(|found| found.to_string());
            assert_eq!(found.as_deref(), network, "{client}");
        }
    }
}
