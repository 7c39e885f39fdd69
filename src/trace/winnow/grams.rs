//! The selection of grams.
//!
//! Winnowing: of every `window` consecutive grams the smallest is selected, in
//! a pseudo-random order (Schleimer, Wilkerson and Aiken, "Winnowing: local
//! algorithms for document fingerprinting", 2003). A window selects the same
//! gram wherever it occurs. So if two texts share a part of at least `gram +
//! window - 1` bytes, the same grams of that part are selected in both, except
//! those selected only by windows that extend beyond it. About 2 of `window +
//! 1` grams are selected. If several are smallest, all of them are selected:
//! they are equal, except in one of several thousand windows.

use super::words;

/// How many grams are processed at once.
const CHUNK: usize = 2048;

/// The number of grams from which a window counts as wide.
const WIDE: usize = 32;

/// Selects grams.
#[derive(Clone, Debug)]
pub(super) struct Winnower {
    gram: usize,
    window: usize,
    /// Odd multipliers that determine the order.
    order: [u64; 4],
}

impl Winnower {
    /// Selects the smallest of every `window` grams of `gram` bytes. They are 1
    /// to 255 and 4 to 32.
    pub(super) fn new(gram: u8, window: u8, order: [u64; 4]) -> Self {
        Self {
            gram: usize::from(gram.clamp(4, 32)),
            window: usize::from(window.max(1)),
            order: order.map(|multiplier| multiplier | 1),
        }
    }

    /// The length in bytes from which a text contains a whole window.
    pub(super) fn shortest(&self) -> usize {
        self.gram + self.window - 1
    }

    /// Passes the selected grams of `text` to `keep`, in order, with
    /// duplicates. From a text shorter than a window, but not shorter than a
    /// gram, the smallest gram is selected.
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
        scratch.make_room(grams.min(CHUNK), window);
        let mut last: (i16, &[u8]) = (0, &[]);
        let mut first = 0;
        loop {
            let count = (grams - first).min(CHUNK);
            let part = &text[first..first + count + self.gram - 1];
            self.orders(part, &mut scratch.orders[..count]);
            for i in 0..scratch.minima(count, window) {
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

    /// Computes the order of each gram of `text`.
    fn orders(&self, text: &[u8], orders: &mut [i16]) {
        let [a, b, c, d] = self.order;
        let sum = |parts: &[(u64, u64)]| {
            let products = parts.iter().map(|(word, multiplier)| word.wrapping_mul(*multiplier));
            high(products.fold(0, u64::wrapping_add))
        };
        let grams = text.windows(self.gram).zip(&mut *orders);
        match self.gram {
            // A constant length is faster.
            8 => text.windows(8).zip(orders).for_each(|(gram, order)| {
                *order = high(words::u64_at(gram, 0).wrapping_mul(a));
            }),
            ..8 => grams.for_each(|(gram, order)| *order = sum(&[(words::short(gram), a)])),
            9..=16 => grams.for_each(|(gram, order)| {
                let [one, two] = words::medium(gram);
                *order = sum(&[(one, a), (two, b)]);
            }),
            _ => grams.for_each(|(gram, order)| {
                let [one, two, three, four] = words::long(gram);
                *order = sum(&[(one, a), (two, b), (three, c), (four, d)]);
            }),
        }
    }
}

/// The high bits of a hash. They are signed because the minimum of signed
/// 16-bit numbers is fast on every x86-64.
#[inline]
fn high(hash: u64) -> i16 {
    (hash >> 48) as i16
}

/// Buffers for one chunk, reused. They are on the heap because Exim may have
/// little stack left.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    orders: Vec<i16>,
    selected: Vec<u16>,
    one: Vec<i16>,
    other: Vec<i16>,
    around: Vec<i16>,
}

impl Scratch {
    /// Makes room for chunks of `count` grams, and for an edge on both sides.
    fn make_room(&mut self, count: usize, window: usize) {
        if self.orders.len() < count {
            self.orders.resize(count, 0);
            self.selected.resize(count, 0);
        }
        let edged = count + 2 * (window - 1);
        if self.one.len() < edged {
            for numbers in [&mut self.one, &mut self.other, &mut self.around] {
                numbers.resize(edged, 0);
            }
        }
    }

    /// Finds the indices of those of the first `count` orders that are smallest
    /// in any window; returns how many there are.
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
    fn minima_of_narrow(&mut self, count: usize, window: usize) -> usize {
        let Self { orders, selected, one, other, around } = self;
        let orders = &orders[..count];
        one[..count].copy_from_slice(orders);
        let minima = slide(&mut one[..count], other, window, i16::min);
        // There are no windows before the first and after the last.
        let (edge, end) = (window - 1, window - 1 + minima.len());
        around[..edge].fill(i16::MIN);
        around[edge..end].copy_from_slice(minima);
        around[end..end + edge].fill(i16::MIN);
        let around = slide(&mut around[..end + edge], one, window, i16::max);
        for (around, order) in around.iter_mut().zip(orders) {
            *around = i16::from(around == order);
        }
        let mut found = 0;
        for (is_least, at) in around.iter().zip(0..) {
            // There are never more than `count`.
            selected[found.min(count - 1)] = at;
            found += *is_least as usize;
        }
        found
    }
}

/// The index of the first order that is not larger than `min`.
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
    use super::*;
    use quickcheck::quickcheck;
    use std::collections::BTreeSet;

    fn winnower(gram: u8, window: u8) -> Winnower {
        Winnower::new(gram, window, [0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03, 77, 1 << 60])
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
        for window in grams.windows(winnower.window.min(grams.len())) {
            let orders = window.iter().map(|gram| {
                let mut order = [0];
                winnower.orders(gram, &mut order);
                order[0]
            });
            let min = orders.clone().min();
            let all = window.iter().zip(orders).filter(|(_, order)| Some(*order) == min);
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

    #[test]
    fn as_many_grams_are_selected_as_in_a_random_order() {
        let words = ["the ", "message ", "of ", "a ", "mailing ", "list ", "was ", "never "];
        let mut seed = 1_u32;
        let text: String = (0..40_000)
            .map(|_| {
                seed = seed.wrapping_mul(1_103_515_245).wrapping_add(12345);
                words[seed as usize >> 16 & 7]
            })
            .collect();
        for (gram, window) in
            [(4, 4), (6, 12), (8, 8), (8, 12), (12, 6), (16, 16), (24, 8), (32, 64)]
        {
            let mut count = 0;
            winnower(gram, window).select(text.as_bytes(), &mut Scratch::default(), |_| count += 1);
            let ratio = count as f64 / text.len() as f64 * (f64::from(window) + 1.0) / 2.0;
            assert!((0.8..1.2).contains(&ratio), "{gram} {window}: {ratio}");
        }
    }
}
