//! What a hit is worth.
//!
//! An element is present in a filter either because the message carried it, or
//! because another element set its bit. The share of bits set tells the latter.
//! How common an element is in the mail that is asked is found out by counting:
//! of some thousands of messages all elements are looked up, not only as many as
//! it takes to tell that one is missing.
//!
//! Elements are not carried independently: a message that has one of a phrase
//! has more of it, and a long message has more of everything. So those counts
//! scatter more than those of independent elements would, and what they scatter
//! more tells how much the elements depend on each other. With `n` elements, a
//! filter of fill `f` that has `k` of them, and so about `c = (k - nf) / (1 - f)`
//! that were carried:
//!
//! * the counts `c` have the variance `V`. Of that, `(n - c) f / (1 - f)` is due
//!   to bits that are set all the same, and the sum of `cᵢ (1 - cᵢ)` to elements
//!   that are each carried by a share `cᵢ` of messages. What is left is that of
//!   `n (n - 1)` pairs, `κ` each: the covariance of two elements;
//! * in a filter of fill `f`, an element is present with a chance of
//!   `p = f + (1 - f) cᵢ`, and two of them have the covariance `(1 - f)² κ`, which
//!   is a correlation of `ρ = (1 - f)² κ / (p (1 - p))`;
//! * how many are present is then taken to be distributed as those of `n` draws
//!   whose chance is itself drawn from a beta distribution with the mean `p` and
//!   that correlation (Skellam, "A probability distribution derived from the
//!   binomial distribution by regarding the probability of success as variable
//!   between the sets of trials", 1948).
//!
//! Filters are not equally full, and false hits are those of the fullest. What is
//! told is the chance of any message, not of one whose filter is as full as that
//! of the hit: the mean over the fills of all messages that were looked at. Where
//! the hit is in a segment that was folded more often or less often than those,
//! their fills are first brought to what they would be there: folding doubles
//! `-ln (1 - f)`, the bits that were set for each that there is.

use std::cell::RefCell;
use std::collections::BTreeMap;

/// How many messages are looked at: then the share of an element is off by less
/// than a hundredth.
const ENOUGH: u64 = 4096;
/// As long as few messages were looked at, elements are taken to be as common,
/// and to depend as much on each other, as in mail of all sorts…
const USUALLY_CARRIED: f64 = 0.05;
const USUAL_COVARIANCE: f64 = 0.003;
/// … and filters to be as unequally full: what folding doubles, as a multiple of
/// the mean, and the share of messages…
const USUAL_LOADS: [(f64, f64); 5] = [(0.7, 0.1), (0.9, 0.25), (1.0, 0.3), (1.1, 0.25), (1.3, 0.1)];
/// … which counts as much as so many messages.
const USUAL_WEIGHT: f64 = 64.0;
/// Filters that are fuller tell nothing.
const FULLEST: f64 = 0.999;

/// What has been found out of the elements of a question.
pub(super) struct Commonness {
    messages: u64,
    /// The shares of bits set in their filters: the sum, how many there are of
    /// each, in 255ths, and the sum of what folding doubles.
    fills: f64,
    levels: [u32; 256],
    loads: f64,
    /// In how many of them each element is present.
    present: Vec<u64>,
    /// About how many elements they carried, the squares of that, and how much
    /// of their variance is due to bits that are set all the same: the sums.
    carried: f64,
    squares: f64,
    noise: f64,
    /// Chances that have been worked out.
    known: RefCell<BTreeMap<(u32, u32, i32), f64>>,
}

impl Commonness {
    pub(super) fn new(elements: usize) -> Self {
        Self {
            messages: 0,
            fills: 0.0,
            levels: [0; 256],
            loads: 0.0,
            present: vec![0; elements],
            carried: 0.0,
            squares: 0.0,
            noise: 0.0,
            known: RefCell::default(),
        }
    }

    /// Whether more messages should be looked at.
    pub(super) fn is_wanting(&self) -> bool {
        self.messages < ENOUGH
    }

    /// Takes in a message by the share of bits set in its filter, and how many
    /// elements are present in it. Those that carried what is asked are not
    /// among them.
    pub(super) fn add(&mut self, fill: f64, present: u32) {
        self.known.get_mut().clear();
        let fill = fill.clamp(0.0, FULLEST);
        if let Some(level) = self.levels.get_mut((fill * 255.0).round() as usize) {
            *level += 1;
        }
        self.loads += load(fill);
        let elements = self.present.len() as f64;
        let carried = (f64::from(present) - elements * fill) / (1.0 - fill);
        self.messages += 1;
        self.fills += fill;
        self.carried += carried;
        self.squares += carried * carried;
        self.noise += (elements - carried).max(0.0) * fill / (1.0 - fill);
    }

    /// Takes in how many of these messages have each element.
    pub(super) fn add_present(&mut self, present: impl IntoIterator<Item = u64>) {
        self.present.iter_mut().zip(present).for_each(|(sum, present)| *sum += present);
    }

    /// In how many messages that were looked at each element is present.
    pub(super) fn present(&self) -> &[u64] {
        &self.present
    }

    /// By which share of messages each element is carried.
    fn shares(&self) -> impl Iterator<Item = f64> {
        let messages = self.messages as f64;
        let mean = self.fills / messages.max(1.0);
        self.present.iter().map(move |&present| {
            let carried = (present as f64 - messages * mean) / (1.0 - mean);
            let usual = USUALLY_CARRIED * USUAL_WEIGHT;
            ((carried.max(0.0) + usual) / (messages + USUAL_WEIGHT)).min(1.0)
        })
    }

    /// The covariance of two elements, rather too large than too small.
    fn covariance(&self) -> f64 {
        let (messages, elements) = (self.messages as f64, self.present.len() as f64);
        let mut sum = USUAL_COVARIANCE * USUAL_WEIGHT;
        if messages > 1.0 && elements > 1.0 {
            let mean = self.carried / messages;
            let variance = (self.squares / messages - mean * mean).max(0.0);
            // By as much as it may be off.
            let variance = variance * (1.0 + (2.0 / messages).sqrt());
            let own: f64 = self.shares().map(|share| share * (1.0 - share)).sum();
            let pairs = elements * (elements - 1.0);
            sum += ((variance - self.noise / messages - own) / pairs).max(0.0) * messages;
        }
        sum / (messages + USUAL_WEIGHT)
    }

    /// The chance that at least `present` of the `of` different bits that the
    /// elements fall on are set in the filter of a message that has nothing to do
    /// with the question, in a segment in which one has such a fill.
    pub(super) fn chance(&self, present: u32, of: u32, fill: f64) -> f64 {
        let fill = fill.clamp(0.0, FULLEST);
        // Where nothing is known, its own fill is the usual one.
        let usual = if self.messages > 0 { self.loads / self.messages as f64 } else { load(fill) };
        // How often it was folded more than those that were looked at.
        let folds = (load(fill) / usual.max(1e-3)).log2().round().clamp(-4.0, 4.0);
        let like = if self.messages > 0 { folds as i32 } else { (fill * 255.0) as i32 };
        let key = (present, of, like);
        if let Some(&known) = self.known.borrow().get(&key) {
            return known;
        }
        let (shares, covariance) = (self.shares().collect::<Vec<_>>(), self.covariance());
        let one = |load: f64| {
            let fill = (1.0 - (-load * folds.exp2()).exp()).min(FULLEST);
            chance_at(fill, &shares, covariance, present.min(of), of)
        };
        let usually = USUAL_LOADS.map(|(load, weight)| one(load * usual) * weight * USUAL_WEIGHT);
        let mut sum: f64 = usually.into_iter().sum();
        for (level, &messages) in (0_u32..).zip(&self.levels).filter(|(_, messages)| **messages > 0)
        {
            sum += one(load(f64::from(level) / 255.0)) * f64::from(messages);
        }
        let chance = (sum / (self.messages as f64 + USUAL_WEIGHT)).min(1.0);
        self.known.borrow_mut().insert(key, chance);
        chance
    }
}

/// How many bits were set for each that there is, some of them more than once.
fn load(fill: f64) -> f64 {
    -(1.0 - fill.min(FULLEST)).ln()
}

/// The chance at a fill. Where not all bits are set, all are taken to be equally
/// likely, which only makes it more likely (Hoeffding, 1956).
fn chance_at(fill: f64, shares: &[f64], covariance: f64, present: u32, of: u32) -> f64 {
    let elements = shares.len().max(1) as f64;
    let shares = shares.iter().map(|share| fill + (1.0 - fill) * share);
    let mean = if present == of {
        (shares.map(f64::ln).sum::<f64>() / elements).exp()
    } else {
        shares.sum::<f64>() / elements
    };
    let mean = mean.clamp(1e-9, 1.0 - 1e-9);
    let correlation = (1.0 - fill).powi(2) * covariance / (mean * (1.0 - mean));
    tail(of, present, mean, correlation.min(0.9))
}

/// The chance that at least `least` of `of` draws succeed, with a chance of
/// `mean` each that is the same for all of them and of this correlation.
fn tail(of: u32, least: u32, mean: f64, correlation: f64) -> f64 {
    let step = correlation / (1.0 - correlation);
    let number = f64::from;
    // That all succeed, and then one fewer again and again.
    let all = (0..of).map(|n| ((mean + number(n) * step) / (1.0 + number(n) * step)).ln()).sum();
    let mut term: f64 = all;
    let mut sum = term.exp();
    for n in (least..of).rev() {
        // From n + 1 to n.
        let missing = number(of - n);
        let ratio = number(n + 1) / missing * (1.0 - mean + (missing - 1.0) * step)
            / (mean + number(n) * step);
        term += ratio.ln();
        sum += term.exp();
    }
    sum.min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_are_those_of_the_binomial_distribution_where_nothing_depends() {
        for (of, least, expected) in
            [(10, 10, 1.0 / 1024.0), (10, 9, 11.0 / 1024.0), (10, 0, 1.0), (3, 2, 0.5)]
        {
            let found = tail(of, least, 0.5, 0.0);
            assert!((found / expected - 1.0).abs() < 1e-9, "{of} {least}: {found}");
        }
    }

    #[test]
    fn tails_are_those_of_draws_with_a_common_chance() {
        // With a correlation of a third and a mean of a half, that chance is
        // equally likely anywhere, and so is any number of successes.
        for least in 0..=20 {
            let expected = f64::from(21 - least) / 21.0;
            let found = tail(20, least, 0.5, 1.0 / 3.0);
            assert!((found / expected - 1.0).abs() < 1e-9, "{least}: {found}");
        }
    }

    #[test]
    fn little_mail_tells_no_tiny_chances() {
        let mut common = Commonness::new(20);
        let before = common.chance(20, 20, 0.6);
        // Independently, it is 0.6 to the 20th.
        assert!((7e-5..1e-3).contains(&before), "{before}");
        for _ in 0..3 {
            common.add(0.6, 12);
        }
        common.add_present([2; 20]);
        let few = common.chance(20, 20, 0.6);
        assert!((7e-5..1e-3).contains(&few), "{few}");
        for _ in 0..5000 {
            common.add(0.6, 12);
        }
        common.add_present([3000; 20]);
        let many = common.chance(20, 20, 0.6);
        assert!((3.6e-5..4.5e-5).contains(&many), "{many}");
    }
}
