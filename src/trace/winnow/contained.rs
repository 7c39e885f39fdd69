//! How many of a query's elements the messages contain that were searched.
//!
//! A message that contains `c` of `n` elements has each of the others set by chance, with a
//! probability equal to the fill `f` of its filter. So it has at least `k` of them set with the
//! probability that of `n - c` draws at least `k - c` succeed. Messages contain very different
//! numbers of elements: most of them nearly none, those about the same subject, or with the same
//! phrases, many. These numbers cannot be seen, but how many elements are set can; the
//! distribution of `c` under which what is seen is the most likely is found by expectation
//! maximization (Dempster, Laird, Rubin, "Maximum likelihood from incomplete data via the EM
//! algorithm", 1977; for mixing distributions Laird, "Nonparametric maximum likelihood
//! estimation of a mixing distribution", 1978). Until enough messages were examined, typical
//! mail has a part in it.

use std::collections::BTreeMap;

/// The number of shares of a query's elements that are distinguished.
const SHARES: usize = 40;
/// The number of iterations: more change the result by less than a tenth.
const ITERATIONS: usize = 40;
/// Of typical mail: the mean share of elements that a message contains, the correlation of two
/// of them, and of how many messages it has the weight.
const TYPICAL_SHARE: f64 = 0.05;
const TYPICAL_CORRELATION: f64 = 0.06;
const TYPICAL_WEIGHT: f64 = 32.0;
/// The maximum fill: fuller filters contain no information.
const FILL_MAX: f64 = 0.999;

/// The number of fills that are distinguished.
const FILLS: f64 = 32.0;
/// How much less likely a share is than the likeliest to be left out, for numbers that are so
/// small that processors take long for them.
const LIKELY_MIN: f64 = 1e-14;
/// So many sums are made at once.
const LANES: usize = 8;

/// What was seen in the messages examined, of which those that are about alike are taken
/// together: by the number of distinct bits of the elements in their filters, by how many more
/// of them are set than there would be by chance, and by the fill.
#[derive(Default)]
pub(super) struct Examined(BTreeMap<(u32, i32, u8), Alike>);

/// Messages that are about alike: their number, and the sums of what was seen.
#[derive(Clone, Copy, Default)]
struct Alike {
    messages: u32,
    of: u32,
    present: u32,
    fills: f64,
}

impl Examined {
    /// Adds a message, of which `present` of `of` bits are set.
    pub(super) fn add(&mut self, of: u32, present: u32, fill: f64) {
        // About the standard deviation of the number that is set by chance.
        let step = (f64::from(of).sqrt() / 2.0).max(1.0);
        let more = (f64::from(present) - f64::from(of) * fill) / step;
        let about = of / (of.next_power_of_two() / 16).max(1);
        let key = (about, more.round() as i32, (fill * FILLS) as u8);
        let alike = self.0.entry(key).or_default();
        alike.messages += 1;
        alike.of += of;
        alike.present += present;
        alike.fills += fill;
    }

    /// The distribution of the share of the elements that messages contain.
    pub(super) fn distribution(&self) -> Contained {
        let most = self.0.values().map(|alike| alike.of / alike.messages.max(1) + 1).max();
        let factorials = LnFactorials::up_to(most.unwrap_or(0));
        let shares = shares();
        let seen: Vec<(f32, Shares)> = self
            .0
            .values()
            .map(|alike| {
                let messages = f64::from(alike.messages);
                let mean = |sum: u32| (f64::from(sum) / messages).round() as u32;
                let (of, present) = (mean(alike.of), mean(alike.present));
                let fill = (alike.fills / messages).clamp(1.0 - FILL_MAX, FILL_MAX);
                let lns = [fill.ln(), (1.0 - fill).ln()];
                let likely = shares.map(|share| {
                    let contained = (share * f64::from(of)).round() as u32;
                    match present.checked_sub(contained) {
                        Some(set) => factorials.ln_binomial(of - contained, set, lns),
                        None => f64::NEG_INFINITY,
                    }
                });
                let most = likely.into_iter().fold(f64::NEG_INFINITY, f64::max);
                // Several shares of a few elements are equally many of them.
                let mut last = (f64::NEG_INFINITY, 0.0);
                let likely = likely.map(|ln| {
                    if ln != last.0 {
                        last = (ln, ((ln - most) as f32).exp());
                    }
                    f64::from(last.1)
                });
                (
                    messages as f32,
                    lanes(&likely.map(|one| if one < LIKELY_MIN { 0.0 } else { one })),
                )
            })
            .collect();
        let messages: f32 = seen.iter().map(|(messages, _)| messages).sum();
        let typical = lanes(&typical());
        let mut weights = typical;
        for _ in 0..ITERATIONS {
            let mut next = typical.map(|lane| lane.map(|weight| weight * TYPICAL_WEIGHT as f32));
            for (messages, likely) in &seen {
                let (mut parts, mut sums) = (*likely, [0.0; LANES]);
                for (parts, weights) in parts.iter_mut().zip(&weights) {
                    for ((part, weight), sum) in parts.iter_mut().zip(weights).zip(&mut sums) {
                        *part *= weight;
                        *sum += *part;
                    }
                }
                let sum: f32 = sums.iter().sum();
                // So unlikely that it cannot be computed: it says nothing.
                let scale = if sum > 0.0 { messages / sum } else { 0.0 };
                for (next, parts) in next.iter_mut().zip(&parts) {
                    for (next, part) in next.iter_mut().zip(parts) {
                        *next += part * scale;
                    }
                }
            }
            weights =
                next.map(|lane| lane.map(|weight| weight / (messages + TYPICAL_WEIGHT as f32)));
        }
        let mut all = [0.0; SHARES];
        all.iter_mut().zip(weights.as_flattened()).for_each(|(to, from)| *to = f64::from(*from));
        Contained { weights: all }
    }
}

/// A number for each share, [`LANES`] of which are computed at once.
type Shares = [[f32; LANES]; SHARES / LANES];

/// The same numbers in that form.
fn lanes(numbers: &[f64; SHARES]) -> Shares {
    let mut all = Shares::default();
    all.as_flattened_mut().iter_mut().zip(numbers).for_each(|(to, from)| *to = *from as f32);
    all
}

const _: () = assert!(SHARES.is_multiple_of(LANES));

/// The distribution of the share of a query's elements that messages contain.
pub(super) struct Contained {
    weights: [f64; SHARES],
}

impl Contained {
    /// The probability that at least `present` of `of` bits are set in a filter of this fill.
    pub(super) fn chance(
        &self,
        fill: f64,
        present: u32,
        of: u32,
        factorials: &LnFactorials,
    ) -> f64 {
        let fill = fill.clamp(1.0 - FILL_MAX, FILL_MAX);
        let each = shares().into_iter().zip(self.weights).filter(|(_, weight)| *weight > 0.0);
        each.map(|(share, weight)| {
            let contained = (share * f64::from(of)).round() as u32;
            let (draws, min) = (of - contained.min(of), present.saturating_sub(contained));
            weight * factorials.tail(draws, min, fill)
        })
        .sum()
    }
}

/// The shares that are distinguished: closer to each other near 0, where most messages are.
fn shares() -> [f64; SHARES] {
    std::array::from_fn(|at| (at as f64 / (SHARES - 1) as f64).powi(2))
}

/// The distribution in typical mail: a beta distribution.
fn typical() -> [f64; SHARES] {
    let spread = (1.0 - TYPICAL_CORRELATION) / TYPICAL_CORRELATION;
    let (a, b) = (TYPICAL_SHARE * spread, (1.0 - TYPICAL_SHARE) * spread);
    let edges: Vec<f64> = {
        let shares = shares();
        let middles = shares.windows(2).map(|pair| pair.iter().sum::<f64>() / 2.0);
        [0.0].into_iter().chain(middles).chain([1.0]).collect()
    };
    let mut weights = [0.0; SHARES];
    for (weight, edges) in weights.iter_mut().zip(edges.windows(2)) {
        // The density is infinite at 0, so it is integrated over the powers of the share.
        let power = |edge: f64| edge.powf(a);
        let (Some(from), Some(to)) = (edges.first(), edges.last()) else { continue };
        let middle = ((power(*from) + power(*to)) / 2.0).powf(1.0 / a);
        *weight = (power(*to) - power(*from)) * (1.0 - middle).powf(b - 1.0);
    }
    let sum: f64 = weights.iter().sum();
    weights.map(|weight| weight / sum)
}

/// The logarithms of factorials.
pub(super) struct LnFactorials(Vec<f64>);

impl LnFactorials {
    /// Those of all numbers up to `most`.
    pub(super) fn up_to(most: u32) -> Self {
        let mut sum = 0.0;
        let logarithm = |n: u32| {
            sum += f64::from(n.max(1)).ln();
            sum
        };
        Self((0..=most).map(logarithm).collect())
    }

    fn of(&self, n: u32) -> f64 {
        self.0.get(n as usize).copied().unwrap_or(f64::INFINITY)
    }

    /// The probability that exactly `k` of `n` draws succeed, each with the probability `p`
    /// between 0 and 1.
    fn binomial(&self, n: u32, k: u32, p: f64) -> f64 {
        self.ln_binomial(n, k, [p.ln(), (1.0 - p).ln()]).exp()
    }

    /// The logarithm of the same, with those of `p` and `1 - p`.
    fn ln_binomial(&self, n: u32, k: u32, [ln, ln_rest]: [f64; 2]) -> f64 {
        if k > n {
            return f64::NEG_INFINITY;
        }
        let ways = self.of(n) - self.of(k) - self.of(n - k);
        ways + f64::from(k) * ln + f64::from(n - k) * ln_rest
    }

    /// The probability that at least `min` of `n` draws succeed.
    pub(super) fn tail(&self, n: u32, min: u32, p: f64) -> f64 {
        if min == 0 {
            return 1.0;
        }
        let mut sum = 0.0;
        for k in min..=n {
            let one = self.binomial(n, k, p);
            sum += one;
            // From the mean on, they fall.
            if f64::from(k) > f64::from(n) * p && one < sum * 1e-4 {
                break;
            }
        }
        sum.min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_are_binomial() {
        let factorials = LnFactorials::up_to(10);
        for (of, min, expected) in
            [(10, 10, 1.0 / 1024.0), (10, 9, 11.0 / 1024.0), (10, 0, 1.0), (3, 2, 0.5), (3, 4, 0.0)]
        {
            let found = factorials.tail(of, min, 0.5);
            assert!((found - expected).abs() < 1e-9, "{of} {min}: {found}");
        }
    }

    #[test]
    fn typical_mail_contains_few_elements() {
        let mean: f64 =
            shares().into_iter().zip(typical()).map(|(share, weight)| share * weight).sum();
        assert!((mean / TYPICAL_SHARE - 1.0).abs() < 0.1, "{mean}");
    }

    #[test]
    fn what_messages_contain_is_found_behind_what_is_set() {
        // Nine of ten messages contain nothing, the others half of 40 elements; 0.6 of the other
        // bits are set.
        let factorials = LnFactorials::up_to(40);
        let mut examined = Examined::default();
        for (contained, messages) in [(0, 9000.0), (20, 1000.0)] {
            for set in 0..=40 - contained {
                let number = messages * factorials.binomial(40 - contained, set, 0.6);
                (0..number.round() as u32).for_each(|_| examined.add(40, contained + set, 0.6));
            }
        }
        let contained = examined.distribution();
        for (fill, present) in [(0.6, 40), (0.6, 36), (0.84, 40)] {
            let found = contained.chance(fill, present, 40, &factorials);
            let all = 0.9 * factorials.tail(40, present, fill)
                + 0.1 * factorials.tail(20, present - 20, fill);
            assert!((0.5..3.0).contains(&(found / all)), "{fill} {present}: {found} {all}");
        }
    }
}
