//! Writes `[identity]`, `[on.crossing]` and what a policy says apart from its tables.

use super::out::Out;
use crate::policy::model::{
    DomainPattern, Grade, Identity, Match, OnCrossing, Piece, PolicySettings, Template, When,
};

pub(super) fn identity(row: &mut Out, identity: &Identity) {
    let folding = &identity.folding;
    row.list(&identity.chain, |row, field| row.word(*field));
    row.flag(folding.case);
    row.flag(folding.plus);
    row.list(&folding.dots, |row, domain| row.text(domain));
    row.option(folding.qualify.as_deref(), Out::text);
    row.u8(folding.v4);
    row.u8(folding.v6);
    row.list(&identity.relay, |row, network| row.network(*network));
}

pub(super) fn on_crossing(row: &mut Out, on: &OnCrossing) {
    row.flag(on.log);
    row.list(&on.run, template);
    row.option(on.post.as_deref(), Out::text);
    row.option(on.mail.as_deref(), Out::text);
    row.option(on.repeat, Out::number);
    row.flag(on.observed);
}

pub(super) fn policy(row: &mut Out, settings: &PolicySettings) {
    row.list(&settings.when, when);
    row.word(settings.action);
    row.word(settings.update);
    row.word(settings.on_error);
    row.option(settings.text.as_ref(), template);
    row.list(&settings.key, |row, field| row.word(*field));
    row.list(&settings.verdicts, |row, Grade { from, verdict, at: _ }| {
        row.number(*from);
        row.word(*verdict);
    });
    row.number(settings.longest_delay);
}

fn when(row: &mut Out, when: &When) {
    match when {
        When::Is { state, not } => {
            row.u8(0);
            row.flag(*not);
            row.word(*state);
        }
        When::Client(networks) => {
            row.u8(1);
            row.list(networks, |row, network| row.network(*network));
        }
        When::SenderDomain(domains) => {
            row.u8(2);
            row.list(domains, pattern);
        }
        When::RecipientDomain(domains) => {
            row.u8(3);
            row.list(domains, pattern);
        }
    }
}

fn pattern(row: &mut Out, pattern: &DomainPattern) {
    row.flag(pattern.below);
    row.text(&pattern.domain);
}

fn template(row: &mut Out, template: &Template) {
    row.list(&template.0, |row, piece| match piece {
        Piece::Text(text) => {
            row.flag(false);
            row.text(text);
        }
        Piece::Value(value) => {
            row.flag(true);
            row.word(*value);
        }
    });
}

/// Writes what an entry of `exempt` lists.
pub(super) fn matched(row: &mut Out, one: &Match) {
    match one {
        Match::Identity(name) => {
            row.u8(0);
            row.text(name);
        }
        Match::Domain(domain) => {
            row.u8(1);
            pattern(row, domain);
        }
        Match::Client(network) => {
            row.u8(2);
            row.network(*network);
        }
    }
}
