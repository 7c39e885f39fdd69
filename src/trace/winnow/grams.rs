//! The selection of grams.
//!
//! Winnowing: of every `window` consecutive grams the first in some order is
//! selected (Schleimer, Wilkerson and Aiken, "Winnowing: local algorithms for
//! document fingerprinting", 2003). A window selects the same gram wherever it
//! occurs. So if two texts share a part of at least `gram + window - 1` bytes,
//! the same grams of that part are selected in both, except those selected only
//! by windows that extend beyond it. If several are first, all of them are
//! selected: they are equal, except in one of a thousand windows.
//!
//! Orders differ in how many grams are selected. A random order selects about 2
//! of `window + 1`. The open-closed order (Groot Koerkamp, Liu and Pibiri, "The
//! open-closed mod-minimizer algorithm", 2025) selects a sixth fewer in windows
//! about as wide as a gram. It looks at the pairs of bytes within a gram, which
//! have a random order of their own. A gram is an open syncmer if the first of
//! its pairs is the middle one, and a closed syncmer if it is at either end.
//! Open syncmers come before closed ones, and these before the rest; among the
//! grams of one kind the order is random. Of two neighbouring grams, hardly ever
//! both are open syncmers: so those selected have larger distances than at
//! random. And every window about as wide as a gram has a closed one, so that
//! the rest is hardly ever selected.

use crate::sys::vectors::{self, Work};
use crate::trace::GramOrder;
use crate::trace::filter::packed;

/// How many grams are processed at once.
const CHUNK: usize = 2048;

/// How many of them are processed as the bits of one number.
const BITS: usize = 64;

/// The number of grams from which a window counts as wide.
const WIDE: usize = 32;

/// The number of bytes whose order within a gram decides its kind. With 2, the
/// fewest grams of text are selected; single bytes repeat too often.
const PAIR: usize = 2;

/// The number of pairs of bytes that the order of the longest gram depends on.
const PAIRS_MAX: usize = 16;

/// Selects grams.
#[derive(Clone, Debug)]
pub(super) struct Winnower {
    gram: usize,
    window: usize,
    order: GramOrder,
    /// Odd multipliers that determine the order of pairs of bytes…
    pair: [u16; 2],
    /// … and of grams.
    multipliers: [u16; PAIRS_MAX],
}

impl Winnower {
    /// Selects the first of every `window` grams of `gram` bytes. They are 1
    /// to 255 and 4 to 32.
    pub(super) fn new(gram: u8, window: u8, order: GramOrder, random: [u64; 5]) -> Self {
        let mut odd =
            random.iter().flat_map(|word| [0, 16, 32, 48].map(|shift| (word >> shift) as u16 | 1));
        let mut next = || odd.next().unwrap_or(1);
        Self {
            gram: usize::from(gram.clamp(4, 32)),
            window: usize::from(window.max(1)),
            order,
            pair: std::array::from_fn(|_| next()),
            multipliers: std::array::from_fn(|_| next()),
        }
    }

    /// The length in bytes from which a text contains a whole window.
    pub(super) fn shortest(&self) -> usize {
        self.gram + self.window - 1
    }

    /// Passes the selected grams of `text` to `keep`, in order, with
    /// duplicates. From a text shorter than a window, but not shorter than a
    /// gram, the first gram is selected.
    pub(super) fn select<'t>(
        &self,
        text: &'t [u8],
        scratch: &mut Scratch,
        mut keep: impl FnMut(&'t [u8]),
    ) {
        let Some(grams) = (text.len() + 1).checked_sub(self.gram).filter(|&n| n > 0) else {
            return;
        };
        let window = self.window.min(grams);
        scratch.make_room(self.gram, self.window);
        let mut last: (i16, &[u8]) = (0, &[]);
        let mut first = 0;
        loop {
            let count = (grams - first).min(CHUNK);
            let part = &text[first..first + count + self.gram - 1];
            let found = vectors::wide(Chunk { winnower: self, part, count, window, scratch });
            for i in 0..found {
                let at = usize::from(scratch.selected[i]);
                let (order, gram) = (scratch.orders[at], &part[at..at + self.gram]);
                // Avoids hashing repeated text again and again.
                if order != last.0 || gram != last.1 {
                    keep(gram);
                    last = (order, gram);
                }
            }
            if first + count == grams {
                break;
            }
            first += count - window + 1;
        }
    }

    /// Computes the order of each of the `count` grams of `text`, as numbers.
    /// The compiler vectorises all loops: they have no multiplication wider than
    /// 16 bits, which every x86-64 has for eight numbers at once.
    #[inline(always)]
    fn orders(&self, text: &[u8], count: usize, scratch: &mut Scratch) {
        let Scratch { orders, pairs, one, other, .. } = scratch;
        let (orders, pairs) = (&mut orders[..count], &mut pairs[..text.len() - 1]);
        let [a, b] = self.pair;
        for ((pair, first), second) in pairs.iter_mut().zip(text).zip(&text[1..]) {
            let word = (u16::from(*first) | u16::from(*second) << 8).wrapping_mul(a);
            *pair = (word ^ word >> 7).wrapping_mul(b) as i16;
        }
        match (self.gram, self.order) {
            (6, GramOrder::OpenClosed) => return self.orders_of_6(orders, pairs),
            (8, GramOrder::OpenClosed) => return self.orders_of_8(orders, pairs),
            _ => {}
        }
        // All pairs that begin at an even number, and the last.
        let last = self.gram - PAIR;
        let even = (0..last).step_by(2).chain([last]);
        orders.fill(0);
        for (at, multiplier) in even.zip(self.multipliers) {
            for (order, pair) in orders.iter_mut().zip(&pairs[at..]) {
                *order = order.wrapping_add(pair.wrapping_mul(multiplier as i16));
            }
        }
        if self.order == GramOrder::OpenClosed {
            self.prefer(orders, pairs, one, other);
        }
    }

    /// The open-closed order of grams of 6 bytes: the same as below, in one pass. The compiler
    /// vectorises it only if no slice or array is looked through in the loop.
    #[inline(always)]
    fn orders_of_6(&self, orders: &mut [i16], pairs: &[i16]) {
        let count = orders.len();
        let [a, b, c, d, e] = std::array::from_fn(|at| &pairs[at..][..count]);
        let [ma, mc, me, ..] = self.multipliers.map(|multiplier| multiplier as i16);
        for (at, order) in orders.iter_mut().enumerate() {
            let (a, b, c, d, e) = (a[at], b[at], c[at], d[at], e[at]);
            let before = a.min(b);
            let min = before.min(c).min(d).min(e);
            let hash = (a.wrapping_mul(ma).wrapping_add(c.wrapping_mul(mc)))
                .wrapping_add(e.wrapping_mul(me));
            *order = ordered(hash, (before > c) & (c == min), (a == min) | (e == min));
        }
    }

    /// The same of grams of 8 bytes.
    #[inline(always)]
    fn orders_of_8(&self, orders: &mut [i16], pairs: &[i16]) {
        let count = orders.len();
        let [a, b, c, d, e, f, g] = std::array::from_fn(|at| &pairs[at..][..count]);
        let [ma, mc, me, mg, ..] = self.multipliers.map(|multiplier| multiplier as i16);
        for (at, order) in orders.iter_mut().enumerate() {
            let (a, b, c, d, e, f, g) = (a[at], b[at], c[at], d[at], e[at], f[at], g[at]);
            let before = a.min(b).min(c);
            let min = before.min(d).min(e).min(f).min(g);
            let hash = (a.wrapping_mul(ma).wrapping_add(c.wrapping_mul(mc)))
                .wrapping_add(e.wrapping_mul(me).wrapping_add(g.wrapping_mul(mg)));
            *order = ordered(hash, (before > d) & (d == min), (a == min) | (g == min));
        }
    }

    /// Moves open syncmers to the front of the order, and closed ones after them.
    #[inline(always)]
    fn prefer(&self, orders: &mut [i16], pairs: &[i16], one: &mut [i16], other: &mut [i16]) {
        let (middle, last) = ((self.gram - PAIR) / 2, self.gram - PAIR);
        let all = pairs.len();
        one[..all].copy_from_slice(pairs);
        let before = slide(&mut one[..all], &mut other[..all], middle, i16::min);
        // What is before the middle must be larger, so that of repeated text few
        // grams are open.
        let middles = before.iter().zip(&pairs[middle..]);
        for (order, (before, middle)) in orders.iter_mut().zip(middles) {
            *order = (*order as u16 >> 2) as i16 | i16::from(before > middle) << 14;
        }
        one[..all].copy_from_slice(pairs);
        let min = slide(&mut one[..all], &mut other[..all], last + 1, i16::min);
        let ends = pairs.iter().zip(&pairs[middle..]).zip(&pairs[last..]);
        for ((order, min), ((first, middle), last)) in orders.iter_mut().zip(min).zip(ends) {
            let is_open = (*order >> 14 == 1) & (middle == min);
            *order = ordered(*order << 2, is_open, (first == min) | (last == min));
        }
    }
}

/// The order of a gram by its kind, in the two highest bits, and then by its
/// hash.
#[inline(always)]
fn ordered(hash: i16, is_open: bool, is_closed: bool) -> i16 {
    let kind = i16::from(!is_open) * (2 - i16::from(is_closed));
    ((hash as u16 >> 2) as i16 | kind << 14) ^ i16::MIN
}

/// The grams of a text that are processed at once.
struct Chunk<'a> {
    winnower: &'a Winnower,
    part: &'a [u8],
    count: usize,
    window: usize,
    scratch: &'a mut Scratch,
}

impl Work for Chunk<'_> {
    type Output = usize;

    /// Finds the indices of those that are selected; returns how many there are.
    #[inline(always)]
    fn run(self) -> usize {
        self.winnower.orders(self.part, self.count, self.scratch);
        self.scratch.minima(self.count, self.window)
    }
}

/// Buffers for one chunk, reused. They are on the heap because Exim may have
/// little stack left.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    orders: Vec<i16>,
    pairs: Vec<i16>,
    selected: Vec<u16>,
    one: Vec<i16>,
    other: Vec<i16>,
    around: Vec<i16>,
    /// Whether each order is smallest in some window: 1 or 0.
    least: Vec<u8>,
}

impl Scratch {
    /// Makes room for chunks of grams of `gram` bytes, for the pairs in them, and for an edge of a
    /// window on both sides.
    fn make_room(&mut self, gram: usize, window: usize) {
        if self.orders.is_empty() {
            self.orders.resize(CHUNK, 0);
            self.selected.resize(CHUNK, 0);
            self.least.resize(CHUNK.next_multiple_of(BITS), 0);
        }
        let pairs = CHUNK + gram - PAIR;
        if self.pairs.len() < pairs {
            self.pairs.resize(pairs, 0);
        }
        let room = pairs.max(CHUNK + 2 * (window - 1));
        if self.one.len() < room {
            for numbers in [&mut self.one, &mut self.other, &mut self.around] {
                numbers.resize(room, 0);
            }
        }
    }

    /// Finds the indices of those of the first `count` orders that are smallest
    /// in any window; returns how many there are.
    #[inline(always)]
    fn minima(&mut self, count: usize, window: usize) -> usize {
        if window >= WIDE {
            self.minima_of_wide(count, window)
        } else {
            self.minima_of_narrow(count, window)
        }
    }

    /// In wide windows few orders are smallest. The search goes from one to the
    /// next: the next order that is not larger, or, if there is none before the
    /// window has passed the last one, the smallest of the window then.
    #[inline(always)]
    fn minima_of_wide(&mut self, count: usize, window: usize) -> usize {
        let Self { orders, selected, .. } = self;
        let orders = &orders[..count];
        let (mut found, mut first) = (0, 0);
        while first + window <= count {
            let (mut next, mut end) = (first, first + window);
            let mut min = orders[next..end].iter().copied().fold(i16::MAX, i16::min);
            while let Some(by) = not_larger(&orders[next..end], min) {
                let at = next + by;
                selected[found] = at as u16;
                min = orders[at];
                (found, next, end) = (found + 1, at + 1, count.min(at + window));
            }
            first = next;
        }
        found
    }

    /// In narrow windows, an order is smallest in some window if it equals the
    /// largest of the minima of the windows around it. This is branch-free, and
    /// the compiler vectorises most of it.
    #[inline(always)]
    fn minima_of_narrow(&mut self, count: usize, window: usize) -> usize {
        let Self { orders, selected, one, other, around, least, .. } = self;
        let orders = &orders[..count];
        one[..count].copy_from_slice(orders);
        let minima = slide(&mut one[..count], other, window, i16::min);
        // There are no windows before the first and after the last.
        let (edge, end) = (window - 1, window - 1 + minima.len());
        around[..edge].fill(i16::MIN);
        around[edge..end].copy_from_slice(minima);
        around[end..end + edge].fill(i16::MIN);
        let around = slide(&mut around[..end + edge], one, window, i16::max);
        for ((least, around), order) in least.iter_mut().zip(&*around).zip(orders) {
            *least = u8::from(around == order);
        }
        let blocks = count.next_multiple_of(BITS);
        least[count..blocks].fill(0);
        let mut found = 0;
        for (block, first) in least[..blocks].as_chunks::<BITS>().0.iter().zip((0..).step_by(BITS))
        {
            // As bits: a step for each order would take several times as long.
            let (eights, _) = block.as_chunks::<8>();
            let mut bits =
                eights.iter().rev().fold(0_u64, |bits, eight| bits << 8 | u64::from(packed(eight)));
            while bits != 0 {
                // There are never more than `count`.
                selected[found] = first + bits.trailing_zeros() as u16;
                bits &= bits - 1;
                found += 1;
            }
        }
        found
    }
}

/// The index of the first order that is not larger than `min`.
#[inline(always)]
fn not_larger(orders: &[i16], min: i16) -> Option<usize> {
    // The compiler vectorises the comparison of a block.
    let (blocks, _) = orders.as_chunks::<32>();
    let is_far = |block: &[i16; 32]| block.iter().fold(true, |far, order| far & (*order > min));
    let start = blocks.iter().take_while(|block| is_far(block)).count() * 32;
    orders[start..].iter().position(|order| *order <= min).map(|by| start + by)
}

/// The `best` of every `width` consecutive numbers, by doubling: combines that
/// of two adjacent or overlapping ranges. The result is in one of the two
/// slices.
#[inline(always)]
fn slide<'a>(
    mut from: &'a mut [i16],
    mut into: &'a mut [i16],
    width: usize,
    best: impl Fn(i16, i16) -> i16,
) -> &'a mut [i16] {
    let mut done = 1;
    while done < width {
        let by = done.min(width - done);
        let length = from.len() - by;
        for ((into, a), b) in into.iter_mut().zip(&*from).zip(&from[by..]) {
            *into = best(*a, *b);
        }
        (from, into) = (&mut into[..length], from);
        done += by;
    }
    from
}

#[cfg(test)]
mod tests {
    use super::super::hashing::Hashing;
    use super::*;
    use kit::quickcheck;
    use std::collections::BTreeSet;

    fn ordered(gram: u8, window: u8, order: GramOrder) -> Winnower {
        Winnower::new(gram, window, order, Hashing::new(&[7; 32]).order)
    }

    fn winnower(gram: u8, window: u8) -> Winnower {
        let order = if gram.is_multiple_of(2) { GramOrder::OpenClosed } else { GramOrder::Random };
        ordered(gram, window, order)
    }

    fn selected(winnower: &Winnower, text: &[u8]) -> BTreeSet<Vec<u8>> {
        let mut selected = BTreeSet::new();
        winnower.select(text, &mut Scratch::default(), |gram| {
            selected.insert(gram.to_vec());
        });
        selected
    }

    /// The same, window by window.
    fn selected_plainly(winnower: &Winnower, text: &[u8]) -> BTreeSet<Vec<u8>> {
        let grams: Vec<&[u8]> = text.windows(winnower.gram).collect();
        let mut selected = BTreeSet::new();
        if grams.is_empty() {
            return selected;
        }
        let mut scratch = Scratch::default();
        scratch.make_room(winnower.gram, 1);
        let order_of = |gram: &&[u8]| {
            winnower.orders(gram, 1, &mut scratch);
            scratch.orders[0]
        };
        let orders: Vec<i16> = grams.iter().map(order_of).collect();
        let window = winnower.window.min(grams.len());
        for (grams, orders) in grams.windows(window).zip(orders.windows(window)) {
            let min = orders.iter().min();
            let all = grams.iter().zip(orders).filter(|(_, order)| Some(*order) == min);
            selected.extend(all.map(|(gram, _)| gram.to_vec()));
        }
        selected
    }

    quickcheck! {
        fn the_smallest_gram_of_each_window_is_selected(gram: u8, window: u8, text: Vec<u8>, few: bool) -> bool {
            // With few distinct bytes, many grams are equal.
            let text: Vec<u8> = text.iter().map(|byte| if few { byte % 2 } else { *byte }).collect();
            let winnower = winnower(4 + gram % 29, 1 + window % 90);
            selected(&winnower, &text) == selected_plainly(&winnower, &text)
        }

        fn grams_selected_in_a_part_are_selected_in_the_whole(gram: u8, window: u8, text: Vec<u8>, from: u16, length: u16) -> bool {
            let winnower = winnower(4 + gram % 29, 1 + window % 64);
            let text = text.repeat(60);
            let from = usize::from(from) % (text.len() + 1);
            let end = (from + winnower.shortest() + usize::from(length)).min(text.len());
            let part = &text[from..end];
            part.len() < winnower.shortest() || selected(&winnower, part).is_subset(&selected(&winnower, &text))
        }
    }

    #[test]
    fn chunk_boundaries_have_no_effect() {
        let text: Vec<u8> = (0..3 * CHUNK as u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
        for (gram, window) in [(8, 8), (4, 1), (6, 255), (13, 3), (32, 64)] {
            let winnower = winnower(gram, window);
            for length in [CHUNK - 1, 2 * CHUNK, 3 * CHUNK] {
                for length in length..(length + 34).min(text.len() + 1) {
                    let text = &text[..length];
                    assert_eq!(
                        selected(&winnower, text),
                        selected_plainly(&winnower, text),
                        "{gram} {window} {length}"
                    );
                }
            }
        }
    }

    /// Text like that of mail.
    fn prose() -> Vec<u8> {
        let words = ["the ", "message ", "of ", "a ", "mailing ", "list ", "was ", "never "];
        let mut random = kit::Random::new(1);
        (0..40_000).flat_map(|_| random.pick(&words).bytes()).collect()
    }

    /// Random bytes, below a limit.
    fn random(limit: u8) -> Vec<u8> {
        let mut random = kit::Random::new(1);
        (0..400_000).map(|_| random.below(limit.into()) as u8).collect()
    }

    /// The share of grams that are selected.
    fn density(winnower: &Winnower, text: &[u8]) -> f64 {
        let mut count = 0;
        winnower.select(text, &mut Scratch::default(), |_| count += 1);
        f64::from(count) / (text.len() - winnower.gram + 1) as f64
    }

    #[test]
    fn as_many_grams_are_selected_as_in_a_random_order() {
        for (gram, window) in
            [(4, 4), (6, 12), (8, 8), (8, 12), (12, 6), (16, 16), (24, 8), (32, 64)]
        {
            for text in [prose(), random(255), random(4)] {
                let winnower = ordered(gram, window, GramOrder::Random);
                let ratio = density(&winnower, &text) * (f64::from(window) + 1.0) / 2.0;
                assert!((0.8..1.2).contains(&ratio), "{gram} {window}: {ratio}");
            }
        }
    }

    /// As many as a program of few lines computes that sorts tuples of a kind and a hash.
    #[test]
    fn a_sixth_fewer_grams_are_selected_in_the_open_closed_order() {
        for (gram, window, text, expected) in [
            (8, 8, random(255), 0.1837),
            (8, 8, random(4), 0.1851),
            (8, 12, random(255), 0.1302),
            (8, 16, random(255), 0.1030),
            (6, 8, random(255), 0.1903),
            (6, 10, random(255), 0.1589),
            (6, 10, random(4), 0.1592),
            (12, 8, random(255), 0.1825),
            (16, 8, random(255), 0.1730),
        ] {
            let found = density(&ordered(gram, window, GramOrder::OpenClosed), &text);
            assert!((found / expected - 1.0).abs() < 0.01, "{gram} {window}: {found} {expected}");
        }
        let prose = prose();
        let [random, open_closed] = [GramOrder::Random, GramOrder::OpenClosed]
            .map(|order| density(&ordered(8, 8, order), &prose));
        assert!(open_closed < random * 0.87, "{open_closed} {random}");
    }
}
