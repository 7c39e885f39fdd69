//! What `exirate measure --suggest` shows.

use std::collections::BTreeSet;
use std::io::{self, Write as _};

use crate::cli::shared::screen::Screen;
use crate::cli::shared::table::{self, Column};
use crate::history::measure::{KeyPeak, Limit, Suggestion};
use crate::text;
use crate::text::{counted, counted_or_no};

/// Shows what is suggested for a count and a period.
/// `suspected` accounts are not proposed for an exemption.
pub(super) fn print(
    suggestion: &Suggestion,
    suspected: &BTreeSet<String>,
    screen: &mut Screen<'_>,
) -> io::Result<()> {
    let period = &suggestion.of.text;
    let keys = counted_or_no(suggestion.keys, "key", "keys");
    let events = counted_or_no(suggestion.events as usize, "event", "events");
    let count = suggestion.count.map(|count| format!("{}, ", count.word())).unwrap_or_default();
    writeln!(screen, "{count}period {period}: {keys}, {events}")?;
    let peaks: Vec<String> = suggestion
        .peaks
        .iter()
        .map(|of| match of.share {
            1.0 => format!("highest {:.1}", of.peak),
            share => format!("{} % at most {:.1}", text::number(share * 100.0), of.peak),
        })
        .collect();
    writeln!(screen, "peaks: {}", peaks.join(", "))?;
    let rates: Vec<String> = suggestion
        .message_rates
        .iter()
        .map(|of| format!("{} % at most {:.1}", text::number(of.share * 100.0), of.rate))
        .collect();
    let messages = counted_or_no(suggestion.messages as usize, "message", "messages");
    writeln!(screen, "rates at {messages}: {}\n", rates.join(", "))?;
    // Of most counts, an event is a message.
    let shows_messages = suggestion.messages != suggestion.events;
    let columns: [table::Shows<'_, Limit>; 4] = [
        (Column::numbers("LIMIT"), &|limit| text::number(limit.limit)),
        (Column::numbers("KEYS HIT"), &|limit| limit.keys.to_string()),
        (Column::numbers("EVENTS HIT"), &|limit| limit.events.to_string()),
        (Column::numbers("MESSAGES HIT"), &|limit| match shows_messages {
            true => limit.messages.to_string(),
            false => String::new(),
        }),
    ];
    table::print(screen, &suggestion.limits, columns)?;
    let Suggestion { suggested, mode, reason, hits, .. } = suggestion;
    let limit = text::number(*suggested);
    // By the calendar, it is a limit of a policy.
    let (limit, mode) = match suggestion.every {
        None => (format!("{limit} / {period}"), *mode),
        Some(every) => (format!("{limit} {every}"), ""),
    };
    writeln!(screen, "\nsuggested: {limit}{mode}")?;
    writeln!(screen, "  {reason}")?;
    let hit = suggestion.limits.iter().find(|limit| limit.limit == *suggested);
    let others = hit.map_or(0, |limit| limit.keys).saturating_sub(hits.len());
    if hits.is_empty() {
        return Ok(());
    }
    let (stolen, hits): (Vec<&KeyPeak>, Vec<&KeyPeak>) =
        hits.iter().partition(|hit| suspected.contains(&hit.key));
    let named = |all: &[&KeyPeak]| {
        all.iter().map(|hit| text::printable(hit.key.as_bytes())).collect::<Vec<_>>().join(", ")
    };
    if !stolen.is_empty() {
        let names = named(&stolen);
        writeln!(screen, "  do not exempt {names}: may be stolen, see `exirate habits`")?;
    }
    if hits.is_empty() {
        return Ok(());
    }
    let others = match others {
        0 => String::new(),
        count => format!(" and {}", counted(count as u64, "other", "others")),
    };
    writeln!(
        screen,
        "  exempt {}{others}: then {limit} hits {}",
        named(&hits),
        if stolen.is_empty() { "nobody" } else { "nobody else" }
    )
}
