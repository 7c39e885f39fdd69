//! The significance of a hit.
//!
//! An element is present in a filter either because the message contained it,
//! or because another element set its bit. The share of set bits gives the
//! probability of the latter. How common an element is in the searched mail is
//! measured: in some thousands of messages all elements are looked up, not only
//! enough of them to show that one is missing.
//!
//! Elements do not occur independently: a message that has one element of a
//! phrase has more of it, and a long message has more of everything. So the
//! counts vary more than those of independent elements would, and the excess
//! variance measures the dependence. With `n` elements, a filter of fill `f`
//! that has `k` of them set, and so contains about `c = (k - nf) / (1 - f)` of
//! them:
//!
//! * the counts `c` have the variance `V`. Of that, `(n - c) f / (1 - f)` is
//!   due to bits that other elements set, and the sum of `cᵢ (1 - cᵢ)` to
//!   elements that are each contained in a share `cᵢ` of messages. The rest is
//!   that of `n (n - 1)` pairs, `κ` each: the covariance of two elements;
//! * in a filter of fill `f`, an element is present with a probability of `p =
//!   f + (1 - f) cᵢ`, and two of them have the covariance `(1 - f)² κ`, which
//!   is a correlation of `ρ = (1 - f)² κ / (p (1 - p))`;
//! * the number of elements present is then modelled as that of `n` draws whose
//!   probability is itself drawn from a beta distribution with the mean `p` and
//!   that correlation (Skellam, "A probability distribution derived from the
//!   binomial distribution by regarding the probability of success as variable
//!   between the sets of trials", 1948).
//!
//! Filters are not equally full, and false hits come from the fullest. So the
//! result is the probability for any message, not for one whose filter is as
//! full as that of the hit: the mean over the fills of all messages examined.
//! If the hit is in a segment that was folded more or less often than those,
//! their fills are first converted to that segment: folding doubles `-ln (1 -
//! f)`, the number of insertions per bit.

use std::cell::RefCell;
use std::collections::BTreeMap;

/// How many messages are examined: then the share of an element is accurate to
/// a hundredth.
pub(super) const SAMPLE: u64 = 4096;
/// Until enough messages are examined, elements are assumed to be as common and
/// as dependent as in typical mail…
const TYPICAL_SHARE: f64 = 0.05;
const TYPICAL_COVARIANCE: f64 = 0.003;
/// … and filters to be as unequally full: the load as a multiple of the mean,
/// and the share of messages…
const TYPICAL_LOADS: [(f64, f64); 5] =
    [(0.7, 0.1), (0.9, 0.25), (1.0, 0.3), (1.1, 0.25), (1.3, 0.1)];
/// … which has the weight of this many messages.
const TYPICAL_WEIGHT: f64 = 64.0;
/// The maximum fill: fuller filters contain no information.
const FILL_MAX: f64 = 0.999;

/// How common the elements of a query are in the messages examined.
pub(super) struct ElementFrequencies {
    messages: u64,
    /// The fills of their filters: the sum, a histogram in 255ths, and the sum
    /// of the loads.
    fills: f64,
    levels: [u32; 256],
    loads: f64,
    /// In how many of them each element is present.
    present: Vec<u64>,
    /// Estimated numbers of elements contained: the sum, the sum of squares,
    /// and the sum of the variance due to bits set by other elements.
    carried: f64,
    squares: f64,
    noise: f64,
    /// Cached results.
    cached: RefCell<BTreeMap<(u32, u32, i32), f64>>,
}

impl ElementFrequencies {
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
            cached: RefCell::default(),
        }
    }

    /// Whether more messages should be examined.
    pub(super) fn needs_more(&self) -> bool {
        self.messages < SAMPLE
    }

    /// Adds a message by the fill of its filter and the number of elements
    /// present in it. Hits are not added.
    pub(super) fn add(&mut self, fill: f64, present: u32) {
        self.cached.get_mut().clear();
        let fill = fill.clamp(0.0, FILL_MAX);
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

    /// Adds how many of these messages have each element.
    pub(super) fn add_present(&mut self, present: impl IntoIterator<Item = u64>) {
        self.present.iter_mut().zip(present).for_each(|(sum, present)| *sum += present);
    }

    /// In how many examined messages each element is present.
    pub(super) fn present(&self) -> &[u64] {
        &self.present
    }

    /// The share of messages that contain each element.
    fn shares(&self) -> impl Iterator<Item = f64> {
        let messages = self.messages as f64;
        let mean = self.fills / messages.max(1.0);
        self.present.iter().map(move |&present| {
            let carried = (present as f64 - messages * mean) / (1.0 - mean);
            let typical = TYPICAL_SHARE * TYPICAL_WEIGHT;
            ((carried.max(0.0) + typical) / (messages + TYPICAL_WEIGHT)).min(1.0)
        })
    }

    /// The covariance of two elements, estimated on the high side.
    fn covariance(&self) -> f64 {
        let (messages, elements) = (self.messages as f64, self.present.len() as f64);
        let mut sum = TYPICAL_COVARIANCE * TYPICAL_WEIGHT;
        if messages > 1.0 && elements > 1.0 {
            let mean = self.carried / messages;
            let variance = (self.squares / messages - mean * mean).max(0.0);
            // Increased by its standard error.
            let variance = variance * (1.0 + (2.0 / messages).sqrt());
            let own: f64 = self.shares().map(|share| share * (1.0 - share)).sum();
            let pairs = elements * (elements - 1.0);
            sum += ((variance - self.noise / messages - own) / pairs).max(0.0) * messages;
        }
        sum / (messages + TYPICAL_WEIGHT)
    }

    /// The probability that at least `present` of the `of` distinct bits of the
    /// elements are set in the filter of an unrelated message, in a segment in
    /// which one filter has this fill.
    pub(super) fn chance(&self, present: u32, of: u32, fill: f64) -> f64 {
        let fill = fill.clamp(0.0, FILL_MAX);
        // Without samples, its own fill is taken as typical.
        let typical =
            if self.messages > 0 { self.loads / self.messages as f64 } else { load(fill) };
        // How much more often it was folded than those examined.
        let folds = (load(fill) / typical.max(1e-3)).log2().round().clamp(-4.0, 4.0);
        let like = if self.messages > 0 { folds as i32 } else { (fill * 255.0) as i32 };
        let key = (present, of, like);
        if let Some(&cached) = self.cached.borrow().get(&key) {
            return cached;
        }
        let (shares, covariance) = (self.shares().collect::<Vec<_>>(), self.covariance());
        let one = |load: f64| {
            let fill = (1.0 - (-load * folds.exp2()).exp()).min(FILL_MAX);
            chance_at(fill, &shares, covariance, present.min(of), of)
        };
        let typical =
            TYPICAL_LOADS.map(|(load, weight)| one(load * typical) * weight * TYPICAL_WEIGHT);
        let mut sum: f64 = typical.into_iter().sum();
        for (level, &messages) in (0_u32..).zip(&self.levels).filter(|(_, messages)| **messages > 0)
        {
            sum += one(load(f64::from(level) / 255.0)) * f64::from(messages);
        }
        let chance = (sum / (self.messages as f64 + TYPICAL_WEIGHT)).min(1.0);
        self.cached.borrow_mut().insert(key, chance);
        chance
    }
}

impl ElementFrequencies {
    /// The probability that at least `present` of the `of` distinct bits of the elements are set
    /// in one filter of this fill.
    pub(super) fn chance_in(&self, present: u32, of: u32, fill: f64) -> f64 {
        let shares: Vec<f64> = self.shares().collect();
        chance_at(fill.min(FILL_MAX), &shares, self.covariance(), present.min(of), of)
    }
}

/// The load of a filter: insertions per bit, some on the same bit.
fn load(fill: f64) -> f64 {
    -(1.0 - fill.min(FILL_MAX)).ln()
}

/// The probability at one fill. If not all bits must be set, all are assumed to
/// be equally likely, which can only increase the probability (Hoeffding,
/// 1956).
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

/// The probability that at least `min` of `of` draws succeed, each with a
/// probability of `mean`, equal for all of them and with this correlation.
fn tail(of: u32, min: u32, mean: f64, correlation: f64) -> f64 {
    let step = correlation / (1.0 - correlation);
    let number = f64::from;
    // The probability that all succeed, then that of one fewer, and so on.
    let all = (0..of).map(|n| ((mean + number(n) * step) / (1.0 + number(n) * step)).ln()).sum();
    let mut term: f64 = all;
    let mut sum = term.exp();
    for n in (min..of).rev() {
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
    fn without_correlation_tails_are_binomial() {
        for (of, min, expected) in
            [(10, 10, 1.0 / 1024.0), (10, 9, 11.0 / 1024.0), (10, 0, 1.0), (3, 2, 0.5)]
        {
            let found = tail(of, min, 0.5, 0.0);
            assert!((found / expected - 1.0).abs() < 1e-9, "{of} {min}: {found}");
        }
    }

    #[test]
    fn with_a_common_probability_tails_are_those_of_its_distribution() {
        // With a correlation of a third and a mean of a half, that probability
        // is uniformly distributed, and so is the number of successes.
        for min in 0..=20 {
            let expected = f64::from(21 - min) / 21.0;
            let found = tail(20, min, 0.5, 1.0 / 3.0);
            assert!((found / expected - 1.0).abs() < 1e-9, "{min}: {found}");
        }
    }

    #[test]
    fn few_messages_give_no_tiny_chances() {
        let mut common = ElementFrequencies::new(20);
        let before = common.chance(20, 20, 0.6);
        // For independent elements it is 0.6^20.
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
