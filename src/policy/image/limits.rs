//! The limits in the rows of tables, and which of them apply.

use super::fields::{Fields, What};
use super::layout::{BUCKETS, EACH, HABITS, TOTAL, UNITS, window_of};
use crate::calendar::Every;
use crate::engine::Algorithm;
use crate::policy::limit::{Limit, Per, Rule};
use crate::policy::settings::{Group as _, HabitsSettings};
use crate::policy::word::Unit;

/// The windows or buckets of a unit, the table they are from, and the position of its row.
type Amount<'a> = Option<(Rule<'a>, &'a [u8], u32)>;

/// The limits that apply: of each unit the first that was added.
#[derive(Debug, Default)]
pub(super) struct Chosen<'a> {
    each: [Amount<'a>; UNITS],
    total: [Amount<'a>; UNITS],
    customer: [Amount<'a>; UNITS],
    buckets: Amount<'a>,
}

/// Which limits of a table apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// Those of each key.
    Keys,
    /// Those of all users of a domain together.
    Domain,
    /// Those of all users of a customer together.
    Customer,
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
                (TOTAL, Scope::Domain) => self.total.get_mut(usize::from(unit)),
                (TOTAL, Scope::Customer) => self.customer.get_mut(usize::from(unit)),
                (BUCKETS, Scope::Keys) => Some(&mut self.buckets),
                (EACH | TOTAL | BUCKETS | HABITS, _) => continue,
                _ => None,
            };
            place.ok_or("a limit is of an unknown kind")?.get_or_insert((rule, content, row));
        }
        Ok(())
    }

    /// Appends them all to `limits`. An error has the position of the row.
    pub(super) fn append_to(&self, limits: &mut Vec<Limit<'a>>) -> Result<(), (u32, What)> {
        self.each(|unit, per, amount| append(unit, per, amount, limits))
    }

    /// Visits the windows of each unit, and who is counted by them; then the buckets, which have a
    /// unit each. A loop, as each evaluation of a policy runs through it.
    #[inline]
    fn each<E>(
        &self,
        mut visit: impl FnMut(Option<Unit>, Per, &(Rule<'a>, &'a [u8], u32)) -> Result<(), E>,
    ) -> Result<(), E> {
        for (per, amounts) in
            [(Per::Key, &self.each), (Per::Domain, &self.total), (Per::Customer, &self.customer)]
        {
            for (unit, amount) in Unit::ALL.iter().zip(amounts) {
                if let Some(amount) = amount {
                    visit(Some(*unit), per, amount)?;
                }
            }
        }
        self.buckets.as_ref().map_or(Ok(()), |amount| visit(None, Per::Key, amount))
    }

    /// The same, with the limits of each; none: unlimited.
    #[cfg(feature = "cli")]
    pub(super) fn applied(&self) -> Result<Vec<Applied<'a>>, (u32, What)> {
        let mut applied = Vec::new();
        self.each(|unit, per, amount| {
            let mut limits = Vec::new();
            append(unit, per, amount, &mut limits)?;
            applied.push(Applied { unit, per, rule: amount.0, limits });
            Ok(())
        })?;
        Ok(applied)
    }
}

/// Appends the windows of a unit, or buckets.
#[inline]
fn append<'a>(
    unit: Option<Unit>,
    per: Per,
    (rule, content, row): &(Rule<'a>, &'a [u8], u32),
    limits: &mut Vec<Limit<'a>>,
) -> Result<(), (u32, What)> {
    let mut fields = Fields(content);
    while !fields.is_empty() {
        let Numbers { unit: own, every, first, second, text } =
            numbers(&mut fields).map_err(|what| (*row, what))?;
        let algorithm = match unit {
            Some(unit) => Limit::algorithm(unit, first, second, every),
            None => Algorithm::Bucket { burst: first, rate: second },
        };
        let unit = unit.unwrap_or(own);
        limits.push(Limit { unit, per, algorithm, every, text, rule: *rule });
    }
    Ok(())
}

/// Limits that apply to a subject: those of a unit, or the buckets.
#[cfg(feature = "cli")]
#[derive(Clone, Debug, PartialEq)]
pub struct Applied<'a> {
    /// The unit; `None` for buckets.
    pub unit: Option<Unit>,
    /// Who is counted together.
    pub per: Per,
    /// The table that they are from.
    pub rule: Rule<'a>,
    /// Themselves; none: unlimited.
    pub limits: Vec<Limit<'a>>,
}

/// What the limits of a table say of habits.
pub(super) fn habits(limits: &[u8]) -> Result<HabitsSettings, What> {
    let mut fields = Fields(limits);
    while !fields.is_empty() {
        if let (HABITS, _, content) = amount(&mut fields)? {
            let mut content = Fields(content);
            let habits = HabitsSettings::read(&mut content)?;
            return content.end().map(|()| habits);
        }
    }
    Ok(HabitsSettings::default())
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
    /// How often it starts again, if it counts by the calendar.
    pub(super) every: Option<Every>,
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
    let (unit, every) = window_of(fields.u8()?).ok_or("a unit is unknown")?;
    let (first, second) = (fields.number()?, fields.number()?);
    if second <= 0.0 {
        return Err("a period is not greater than zero");
    }
    Ok(Numbers { unit, every, first, second, text: fields.text()? })
}
