//! What a hit is worth.
//!
//! An element is present in a filter either because the message carried it, or
//! because another element set its bit. The share of bits set tells the latter.
//! How common an element is in the mail that is asked is found out by counting:
//! of some thousands of messages all elements are looked up, not only as many as
//! it takes to tell that one is missing.

/// How many messages are looked at: then the share of an element is off by less
/// than a hundredth.
const ENOUGH: u64 = 4096;

/// What has been found out of the elements of a question.
pub(super) struct Commonness {
    messages: u64,
    /// The sum of the shares of bits set in their filters.
    fills: f64,
    /// In how many of them each element is present.
    present: Vec<u64>,
}

impl Commonness {
    pub(super) fn new(elements: usize) -> Self {
        Self { messages: 0, fills: 0.0, present: vec![0; elements] }
    }

    /// Whether more messages should be looked at.
    pub(super) fn is_wanting(&self) -> bool {
        self.messages < ENOUGH
    }

    /// Takes in messages, with the sum of the shares of bits set in their
    /// filters. Those that carried what is asked are not among them.
    pub(super) fn add(
        &mut self,
        messages: u64,
        fills: f64,
        present: impl IntoIterator<Item = u64>,
    ) {
        self.messages += messages;
        self.fills += fills;
        self.present.iter_mut().zip(present).for_each(|(sum, present)| *sum += present);
    }

    /// How likely each element is present in a filter with such a fill: it was
    /// carried, or else its bit is set all the same.
    fn shares(&self, fill: f64) -> impl Iterator<Item = f64> {
        let messages = self.messages.max(1) as f64;
        let mean = (self.fills / messages).min(0.999);
        self.present.iter().map(move |&present| {
            let carried = ((present as f64 / messages - mean) / (1.0 - mean)).clamp(0.0, 1.0);
            fill + (1.0 - fill) * carried
        })
    }

    /// The chance that at least `present` of the `of` different bits that the
    /// elements fall on are set in a filter with such a fill, of a message that
    /// has nothing to do with the question.
    ///
    /// Bits are taken to be independent. Where not all are set, all are taken to
    /// be equally likely, which only makes it more likely (Hoeffding, 1956); the
    /// tail of that distribution is approximated as by Bahadur and Rao, 1960.
    pub(super) fn chance(&self, present: u32, of: u32, fill: f64) -> f64 {
        let elements = self.present.len().max(1) as f64;
        let of = f64::from(of);
        let all = (self.shares(fill).map(f64::ln).sum::<f64>() * of / elements).exp();
        if f64::from(present) >= of {
            return all;
        }
        let mean = self.shares(fill).sum::<f64>() / elements;
        let share = f64::from(present) / of;
        if share <= mean {
            return 1.0;
        }
        let rest = 1.0 - share;
        let exponent = share * (share / mean).ln() + rest * (rest / (1.0 - mean)).ln();
        let ratio = mean * rest / (share * (1.0 - mean));
        let spread = (std::f64::consts::TAU * of * share * rest).sqrt() * (1.0 - ratio);
        ((-of * exponent).exp() / spread).clamp(all, 1.0)
    }
}
