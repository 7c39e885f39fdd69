//! The limits in the rows of tables, and which of them apply.

use super::fields::{Fields, What};
use super::layout::{BUCKETS, EACH, TOTAL, UNITS, unit_code, unit_of};
use crate::engine::Algorithm;
use crate::policy::limit::{Limit, Per, Rule};
use crate::policy::word::Unit;

/// The windows or buckets of a unit, the table they are from, and the position of its row.
type Amount<'a> = Option<(Rule<'a>, &'a [u8], u32)>;

/// The limits that apply: of each unit the first that was added.
#[derive(Debug, Default)]
pub(super) struct Chosen<'a> {
    each: [Amount<'a>; UNITS],
    total: [Amount<'a>; UNITS],
    buckets: Amount<'a>,
}

/// Which limits of a table apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// Those of each key.
    Keys,
    /// Those of all users of a domain together.
    Totals,
}

impl<'a> Chosen<'a> {
    /// Adds the limits of a less special table.
    pub(super) fn add(
        &mut self,
        rule: Rule<'a>,
        limits: &'a [u8],
        scope: Scope,
        row: u32,
    ) -> Result<(), What> {
        let mut fields = Fields(limits);
        while !fields.is_empty() {
            let (per, unit, content) = amount(&mut fields)?;
            let place = match (per, scope) {
                (EACH, Scope::Keys) => self.each.get_mut(usize::from(unit)),
                (TOTAL, Scope::Totals) => self.total.get_mut(usize::from(unit)),
                (BUCKETS, Scope::Keys) => Some(&mut self.buckets),
                (EACH | TOTAL | BUCKETS, _) => continue,
                _ => None,
            };
            place.ok_or("a limit is of an unknown kind")?.get_or_insert((rule, content, row));
        }
        Ok(())
    }

    /// Appends them all to `limits`. An error has the position of the row.
    pub(super) fn append_to(&self, limits: &mut Vec<Limit<'a>>) -> Result<(), (u32, What)> {
        for (per, amounts) in [(Per::Key, &self.each), (Per::Domain, &self.total)] {
            for &unit in Unit::ALL {
                let amount = amounts.get(usize::from(unit_code(unit)));
                let Some(Some((rule, content, row))) = amount else { continue };
                let mut fields = Fields(content);
                while !fields.is_empty() {
                    let Numbers { first: limit, second: period, text, .. } =
                        numbers(&mut fields).map_err(|what| (*row, what))?;
                    let algorithm = Algorithm::MovingAverage { limit, period };
                    limits.push(Limit { unit, per, algorithm, text, rule: *rule });
                }
            }
        }
        let Some((rule, content, row)) = self.buckets else { return Ok(()) };
        let mut fields = Fields(content);
        while !fields.is_empty() {
            let Numbers { unit, first: burst, second: rate, text } =
                numbers(&mut fields).map_err(|what| (row, what))?;
            let algorithm = Algorithm::Bucket { burst, rate };
            limits.push(Limit { unit, per: Per::Key, algorithm, text, rule });
        }
        Ok(())
    }
}

/// The windows or buckets of a unit: their kind, the unit's code, and themselves.
#[inline]
pub(super) fn amount<'a>(fields: &mut Fields<'a>) -> Result<(u8, u8, &'a [u8]), What> {
    let (per, unit, length) = (fields.u8()?, fields.u8()?, fields.u32()?);
    Ok((per, unit, fields.bytes(length)?))
}

/// A window or a bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers<'a> {
    /// What is counted.
    pub(super) unit: Unit,
    /// The limit or the burst.
    pub(super) first: f64,
    /// The period, or what leaks in a second.
    pub(super) second: f64,
    /// As written.
    pub(super) text: &'a str,
}

/// The next window or bucket.
#[inline]
pub(super) fn numbers<'a>(fields: &mut Fields<'a>) -> Result<Numbers<'a>, What> {
    let unit = unit_of(fields.u8()?).ok_or("a unit is unknown")?;
    let (first, second) = (fields.number()?, fields.number()?);
    if second <= 0.0 {
        return Err("a period is not greater than zero");
    }
    Ok(Numbers { unit, first, second, text: fields.text()? })
}
