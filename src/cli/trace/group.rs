//! `exirate trace query --group`: near-identical messages, shown once.

use crate::trace::{self, QueryResult, TraceError, TraceStore};

/// So many messages are compared with each other.
const GROUPED: usize = 1000;

/// Keeps one of near-identical messages; returns how many there are of each.
pub(super) fn group(
    store: &TraceStore,
    found: &mut Vec<QueryResult>,
) -> Result<Vec<u64>, TraceError> {
    let some = found.iter().take(GROUPED);
    let query = trace::Query {
        ids: some.map(|answer| answer.envelope.id.clone()).collect(),
        ..trace::Query::default()
    };
    let sample = if found.is_empty() {
        trace::Sample::default()
    } else {
        store.sample(&query, usize::MAX, GROUPED)?
    };
    // In the order of the results, so that the best of a group is shown.
    let sketch_of = |answer: &QueryResult| {
        let is_it = |(at, _): &&(usize, trace::Sketch)| {
            sample.messages.get(*at).is_some_and(|message| *message == answer.envelope)
        };
        sample.sketches.iter().find(is_it).map(|(_, sketch)| sketch)
    };
    let compared: Vec<(usize, &trace::Sketch)> = (0..)
        .zip(found.iter().take(GROUPED))
        .filter_map(|(number, answer)| Some((number, sketch_of(answer)?)))
        .collect();
    let sketches: Vec<&trace::Sketch> = compared.iter().map(|(_, sketch)| *sketch).collect();
    let mut alike = vec![1_u64; found.len()];
    for (this, first) in trace::grouped(&sketches).into_iter().enumerate() {
        let (Some((this, _)), Some((first, _))) = (compared.get(this), compared.get(first)) else {
            continue;
        };
        if this != first {
            alike.get_mut(*first).into_iter().for_each(|count| *count += 1);
            alike.get_mut(*this).into_iter().for_each(|count| *count = 0);
        }
    }
    let mut counts = alike.iter();
    found.retain(|_| counts.next().is_some_and(|count| *count > 0));
    alike.retain(|count| *count > 0);
    Ok(alike)
}
