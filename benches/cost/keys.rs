//! Requests for many keys, and a database for them.

use std::path::Path;

use exirate::rate::Timestamp;
use exirate::spec::{Context, Spec, SpecRequest};
use exirate::spool::{Options, Spool};
use exirate::store::Store as _;
use exirate::sys::clock;

pub(crate) fn open(folder: &Path) -> Spool {
    Spool::open(folder, Options::default()).unwrap()
}

pub(crate) fn decide(spool: &mut Spool, request: &SpecRequest) {
    let now = || Timestamp::from(clock::now());
    std::hint::black_box(spool.decide_one(&request.check(), now).unwrap());
}

pub(crate) fn spec(n: usize) -> String {
    format!("100 / 1w / per_rcpt / strict / user{n:08}@example.org")
}

pub(crate) fn parse(spec: &str) -> SpecRequest {
    Spec::parse(spec.as_bytes()).unwrap().request(&Context::outside()).unwrap()
}

/// Sets the key of `request` to that of [`spec`] `n`.
///
/// The key of one request is overwritten each time, as in Exim: a million
/// requests would cause additional cache misses.
pub(crate) fn number(request: &mut SpecRequest, mut n: usize) {
    let digits = request.key_start + "user".len();
    for digit in request.key[digits..digits + 8].iter_mut().rev() {
        *digit = b'0' + (n % 10) as u8;
        n /= 10;
    }
}

/// Reproducible numbers below `below`.
pub(crate) fn random(below: usize) -> impl Iterator<Item = usize> {
    let mut random = kit::Random::new(1);
    std::iter::repeat_with(move || random.below(below))
}
