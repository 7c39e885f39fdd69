//! Which grams are kept.
//!
//! Winnowing: of each `window` neighbouring grams the least is kept, by
//! an order that looks random (Schleimer, Wilkerson and Aiken, "Winnowing:
//! local algorithms for document fingerprinting", 2003). A window keeps the
//! same gram wherever it stands, so that of two texts with a part in common of
//! at least `gram + window - 1` bytes the same grams are kept of that part, but
//! for those that only windows reaching beyond it keep. About 2 of `window + 1`
//! grams are kept. Where several are least, all of them are kept: they are
//! equal, but for one window in thousands.

use super::words;

/// How many grams are looked at together.
const CHUNK: usize = 2048;

/// From how many grams on a window is wide.
const WIDE: usize = 32;

/// What keeps grams.
#[derive(Clone, Debug)]
pub(super) struct Winnower {
    gram: usize,
    window: usize,
    /// Odd multipliers that decide the order.
    order: [u64; 4],
}

impl Winnower {
    /// One that keeps the least of each `window` grams of `gram` bytes. They
    /// are 1 to 255 and 4 to 32.
    pub(super) fn new(gram: u8, window: u8, order: [u64; 4]) -> Self {
        Self {
            gram: usize::from(gram.clamp(4, 32)),
            window: usize::from(window.max(1)),
            order: order.map(|multiplier| multiplier | 1),
        }
    }

    /// The length from which on a text has a whole window, in bytes.
    pub(super) fn shortest(&self) -> usize {
        self.gram + self.window - 1
    }

    /// Gives the grams kept of `text`, in order of their places, some more than
    /// once. Of one that is shorter than a window, but no shorter than a gram,
    /// the least gram is kept.
    pub(super) fn kept<'t>(
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
            for i in 0..scratch.least(count, window) {
                let place = usize::from(scratch.places[i]);
                let (order, gram) = (scratch.orders[place], &part[place..place + self.gram]);
                // Text that repeats itself is not hashed over and over.
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

    /// The order of each gram of `text`.
    fn orders(&self, text: &[u8], orders: &mut [i16]) {
        let [a, b, c, d] = self.order;
        let sum = |parts: &[(u64, u64)]| {
            let products = parts.iter().map(|(word, multiplier)| word.wrapping_mul(*multiplier));
            high(products.fold(0, u64::wrapping_add))
        };
        let grams = text.windows(self.gram).zip(&mut *orders);
        match self.gram {
            // Its length is known to the compiler here.
            8 => text.windows(8).zip(orders).for_each(|(gram, order)| {
                *order = high(words::word(gram, 0).wrapping_mul(a));
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

/// The high bits of a hash: signed, as the least of two such numbers is quickly
/// found on any x86-64.
#[inline]
fn high(hash: u64) -> i16 {
    (hash >> 48) as i16
}

/// What is worked out of a chunk, kept to be used again. It lies on the heap, as
/// Exim may have little stack left.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    orders: Vec<i16>,
    places: Vec<u16>,
    one: Vec<i16>,
    other: Vec<i16>,
    around: Vec<i16>,
}

impl Scratch {
    /// Makes room for chunks of `count` grams, and for an edge on both sides.
    fn make_room(&mut self, count: usize, window: usize) {
        if self.orders.len() < count {
            self.orders.resize(count, 0);
            self.places.resize(count, 0);
        }
        let edged = count + 2 * (window - 1);
        if self.one.len() < edged {
            for numbers in [&mut self.one, &mut self.other, &mut self.around] {
                numbers.resize(edged, 0);
            }
        }
    }

    /// Finds the places of those of the first `count` orders that are least in
    /// any window, and how many there are.
    fn least(&mut self, count: usize, window: usize) -> usize {
        if window >= WIDE {
            self.least_of_wide(count, window)
        } else {
            self.least_of_narrow(count, window)
        }
    }

    /// Of wide windows few orders are the least. The next one is sought from one
    /// to the next: one that is no larger, or, where there is none before the
    /// window has left the last behind, the least of the window then.
    fn least_of_wide(&mut self, count: usize, window: usize) -> usize {
        let Self { orders, places, .. } = self;
        let orders = &orders[..count];
        let (mut found, mut first) = (0, 0);
        while first + window <= count {
            let (mut next, mut end) = (first, first + window);
            let mut least = orders[next..end].iter().copied().fold(i16::MAX, i16::min);
            while let Some(by) = no_larger(&orders[next..end], least) {
                let place = next + by;
                places[found] = place as u16;
                least = orders[place];
                (found, next, end) = (found + 1, place + 1, count.min(place + window));
            }
            first = next;
        }
        found
    }

    /// Of narrow windows, those are the least that are as large as the largest
    /// of the least orders of the windows around them. There are no branches in
    /// this, and the compiler makes much of it work on 8 orders at once.
    fn least_of_narrow(&mut self, count: usize, window: usize) -> usize {
        let Self { orders, places, one, other, around } = self;
        let orders = &orders[..count];
        one[..count].copy_from_slice(orders);
        let least = slide(&mut one[..count], other, window, i16::min);
        // Beyond the first and the last window there are none.
        let (edge, end) = (window - 1, window - 1 + least.len());
        around[..edge].fill(i16::MIN);
        around[edge..end].copy_from_slice(least);
        around[end..end + edge].fill(i16::MIN);
        let around = slide(&mut around[..end + edge], one, window, i16::max);
        for (around, order) in around.iter_mut().zip(orders) {
            *around = i16::from(around == order);
        }
        let mut found = 0;
        for (is_least, place) in around.iter().zip(0..) {
            // Never more than there are places.
            places[found.min(count - 1)] = place;
            found += *is_least as usize;
        }
        found
    }
}

/// The place of the first order that is no larger than `least`.
fn no_larger(orders: &[i16], least: i16) -> Option<usize> {
    // The compiler looks at all of a block at once.
    let (blocks, _) = orders.as_chunks::<32>();
    let is_far = |block: &[i16; 32]| block.iter().fold(true, |far, order| far & (*order > least));
    let start = blocks.iter().take_while(|block| is_far(block)).count() * 32;
    orders[start..].iter().position(|order| *order <= least).map(|by| start + by)
}

/// The `best` of each `width` neighbours, by doubling: that of two ranges side by
/// side, or one over the other. They end up in one of the two slices.
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

    fn kept(winnower: &Winnower, text: &[u8]) -> BTreeSet<Vec<u8>> {
        let mut kept = BTreeSet::new();
        winnower.kept(text, &mut Scratch::default(), |gram| {
            kept.insert(gram.to_vec());
        });
        kept
    }

    /// The same, window by window.
    fn plainly(winnower: &Winnower, text: &[u8]) -> BTreeSet<Vec<u8>> {
        let grams: Vec<&[u8]> = text.windows(winnower.gram).collect();
        let mut kept = BTreeSet::new();
        if grams.is_empty() {
            return kept;
        }
        for window in grams.windows(winnower.window.min(grams.len())) {
            let orders = window.iter().map(|gram| {
                let mut order = [0];
                winnower.orders(gram, &mut order);
                order[0]
            });
            let least = orders.clone().min();
            let all = window.iter().zip(orders).filter(|(_, order)| Some(*order) == least);
            kept.extend(all.map(|(gram, _)| gram.to_vec()));
        }
        kept
    }

    quickcheck! {
        fn the_least_of_each_window_is_kept(gram: u8, window: u8, text: Vec<u8>, few: bool) -> bool {
            // Of few different bytes many grams are equal.
            let text: Vec<u8> = text.iter().map(|byte| if few { byte % 2 } else { *byte }).collect();
            let winnower = winnower(4 + gram % 29, 1 + window % 90);
            kept(&winnower, &text) == plainly(&winnower, &text)
        }

        fn what_is_kept_of_a_part_is_kept_of_the_whole(gram: u8, window: u8, text: Vec<u8>, from: u16, length: u16) -> bool {
            let winnower = winnower(4 + gram % 29, 1 + window % 64);
            let text = text.repeat(60);
            let from = usize::from(from) % (text.len() + 1);
            let end = (from + winnower.shortest() + usize::from(length)).min(text.len());
            let part = &text[from..end];
            part.len() < winnower.shortest() || kept(&winnower, part).is_subset(&kept(&winnower, &text))
        }
    }

    #[test]
    fn chunks_are_no_borders() {
        let text: Vec<u8> = (0..3 * CHUNK as u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
        for (gram, window) in [(8, 8), (4, 1), (6, 255), (13, 3), (32, 64)] {
            let winnower = winnower(gram, window);
            for length in [CHUNK - 1, 2 * CHUNK, 3 * CHUNK] {
                for length in length..(length + 34).min(text.len() + 1) {
                    let text = &text[..length];
                    assert_eq!(
                        kept(&winnower, text),
                        plainly(&winnower, text),
                        "{gram} {window} {length}"
                    );
                }
            }
        }
    }

    #[test]
    fn as_many_are_kept_as_of_a_random_order() {
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
            winnower(gram, window).kept(text.as_bytes(), &mut Scratch::default(), |_| count += 1);
            let ratio = count as f64 / text.len() as f64 * (f64::from(window) + 1.0) / 2.0;
            assert!((0.8..1.2).contains(&ratio), "{gram} {window}: {ratio}");
        }
    }
}
