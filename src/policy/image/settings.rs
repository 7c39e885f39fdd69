//! `[identity]`, `[on.crossing]` and what a policy says apart from its tables, as rows.

use super::fields::{Fields, What};
use crate::policy::fold::Folding;
use crate::policy::model::{
    DomainPattern, Grade, Identity, Location, OnCrossing, Piece, PolicySettings, Template, When,
};

/// `[identity]`
pub(super) fn identity(row: &mut Fields<'_>) -> Result<Identity, What> {
    let chain = row.list(Fields::word)?;
    let (case, plus) = (row.flag()?, row.flag()?);
    let dots = row.list(string)?;
    let qualify = row.option(string)?;
    let (v4, v6) = (row.u8()?, row.u8()?);
    let relay = row.list(Fields::network)?;
    let folding = Folding { case, plus, dots, qualify, v4, v6 };
    Ok(Identity { chain, folding, relay, at: None })
}

/// `[on.crossing]`
pub(super) fn on_crossing(row: &mut Fields<'_>) -> Result<OnCrossing, What> {
    Ok(OnCrossing {
        log: row.flag()?,
        run: row.list(template)?,
        post: row.option(string)?,
        mail: row.option(string)?,
        repeat: row.option(Fields::number)?,
        observed: row.flag()?,
    })
}

/// What a policy says apart from its tables.
pub(super) fn policy(row: &mut Fields<'_>) -> Result<PolicySettings, What> {
    Ok(PolicySettings {
        when: row.list(when)?,
        action: row.word()?,
        update: row.word()?,
        on_error: row.word()?,
        text: row.option(template)?,
        key: row.list(Fields::word)?,
        verdicts: row.list(grade)?,
        longest_delay: row.number()?,
    })
}

fn when(row: &mut Fields<'_>) -> Result<When, What> {
    match row.u8()? {
        0 => Ok(When::Is { not: row.flag()?, state: row.word()? }),
        1 => row.list(Fields::network).map(When::Client),
        2 => row.list(pattern).map(When::SenderDomain),
        3 => row.list(pattern).map(When::RecipientDomain),
        _ => Err("a condition is unknown"),
    }
}

/// A domain, or all below one.
pub(super) fn pattern(row: &mut Fields<'_>) -> Result<DomainPattern, What> {
    Ok(DomainPattern { below: row.flag()?, domain: string(row)? })
}

fn grade(row: &mut Fields<'_>) -> Result<Grade, What> {
    Ok(Grade { from: row.number()?, verdict: row.word()?, at: Location::default() })
}

fn template(row: &mut Fields<'_>) -> Result<Template, What> {
    row.list(piece).map(Template)
}

fn piece(row: &mut Fields<'_>) -> Result<Piece, What> {
    if row.flag()? { row.word().map(Piece::Value) } else { string(row).map(Piece::Text) }
}

/// A text of its own.
pub(super) fn string(row: &mut Fields<'_>) -> Result<String, What> {
    row.text().map(str::to_owned)
}
