//! Windows, buckets, networks, domains and templates as they are written.

use super::super::fold::lower;
use super::super::model::Window;
use super::super::network::{Cidr, NoCidr};
use super::super::value::{DomainPattern, Piece, Template};
use super::super::word::{Every, Placeholder, Unit, Word as _};
use crate::rate::Share;
use crate::spec;
use crate::toml_file::diagnostic::allowed_instead;

/// What lifts a limit.
pub(super) const UNLIMITED: &str = "unlimited";

/// The largest number: more events or bytes are never counted.
const MOST: f64 = 1e18;

/// A decimal number that is not negative, with an optional suffix k, M or G.
fn number(text: &str) -> Option<f64> {
    any_number(text).filter(|number| *number <= MOST)
}

/// As [`number`], however large.
fn any_number(text: &str) -> Option<f64> {
    let digits = text.strip_suffix(['k', 'K', 'm', 'M', 'g', 'G']).unwrap_or(text);
    let decimal = digits.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let any = digits.bytes().any(|b| b.is_ascii_digit());
    spec::limit(text.as_bytes()).filter(|_| decimal && any)
}

/// A period in seconds.
///
/// # Errors
/// What is wrong with it.
pub(super) fn period(text: &str) -> Result<f64, String> {
    spec::period(text.as_bytes()).map_err(|reason| match reason {
        _ if text.is_empty() => "the period is missing; expected such as 1h".to_owned(),
        spec::NoPeriod::Malformed => {
            format!("{text:?} is not a period; expected such as 30s, 15m, 1h, 1d or 1d12h")
        }
        spec::NoPeriod::TooLong => format!("the period {text:?} is longer than 68 years"),
    })
}

/// `limit / period`: the text without blanks, and both as numbers.
fn ratio(text: &str, example: &str) -> Result<(String, f64, f64), String> {
    let Some((limit, time)) = text.split_once('/') else {
        let or = if example.contains(' ') { "" } else { " or \"500 daily\"" };
        return Err(format!("{text:?} has no period; expected such as {example:?}{or}"));
    };
    let (limit, time) = (limit.trim(), time.trim());
    if time.contains('/') {
        return Err(format!(
            "{text:?} has more than a limit and a period; expected such as {example:?}"
        ));
    }
    let most = most(limit)?;
    if let Some(every) = like_a_period(time) {
        let (noun, word) = (every.noun(), every.word());
        return Err(format!(
            "{time:?} is not a period; write \"{limit}/{}\" for a rate, in which what was sent \
             counts less and less over the {noun}, or \"{limit} {word}\" for a count that starts \
             again with each {noun}",
            match every {
                Every::Hour => "1h",
                Every::Day => "1d",
                Every::Week => "1w",
                Every::Month => "30d",
            }
        ));
    }
    Ok((format!("{limit}/{time}"), most, period(time)?))
}

/// The most events.
fn most(limit: &str) -> Result<f64, String> {
    if any_number(limit).is_some_and(|number| number > MOST) {
        return Err(format!("the limit {limit:?} is too large: the largest is 1e18"));
    }
    number(limit).ok_or_else(|| {
        format!("{limit:?} is not a limit; expected a number such as 100, 1.5k or 500M")
    })
}

/// What is like a period and none.
fn like_a_period(text: &str) -> Option<Every> {
    let is = |every: &Every| [every.noun(), every.word()].contains(&text);
    Every::ALL.iter().copied().find(is)
}

/// A limit by the calendar: the number, and how often it starts again; `None` if it is none.
fn by_calendar(text: &str) -> Option<(&str, Every)> {
    let (limit, word) = text.trim().split_once(char::is_whitespace)?;
    Some((limit, Every::of(word.trim())?))
}

/// The limits of a text that are separated by blanks or semicolons.
pub(super) fn several(text: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for word in text.split([' ', ';']).filter(|word| !word.is_empty()) {
        match all.last_mut() {
            Some(number) if Every::of(word).is_some() && by_calendar(number).is_none() => {
                *number = format!("{number} {word}");
            }
            _ => all.push(word.to_owned()),
        }
    }
    all
}

/// How many must have gone out before a share counts, where that is not written.
pub(super) const LEAST: u32 = 50;

/// A share: so large a part of what went out in a period, if at least so many did.
///
/// # Errors
/// What is wrong with it.
pub(super) fn share(limit: &str, time: &str, least: u32) -> Result<Window, String> {
    let (limit, time) = (limit.trim(), time.trim());
    let percent = limit.strip_suffix('%').and_then(|text| number(text.trim()));
    let percent = percent.filter(|part| *part > 0.0 && *part <= 100.0);
    let percent = percent.ok_or_else(|| {
        format!("{limit:?} is not a share; expected a percentage up to 100%, such as \"30%\"")
    })?;
    let period = period(time)?;
    let limit = Share { limit: percent, least, period }.packed();
    let text = format!("{percent}%/{time}").into();
    Ok(Window { text, limit, period, every: None })
}

/// A limit of `unit`: a window, as in `100/1h` or `500 daily`, or a cap, as in `100`.
///
/// # Errors
/// What is wrong with it.
pub(super) fn limit(unit: Unit, text: &str) -> Result<Window, String> {
    if unit.is_cap() {
        let limit = number(text.trim()).filter(|limit| *limit >= 1.0);
        let limit = limit.ok_or_else(|| {
            format!("{text:?} is not a cap; expected a number from 1 on, such as 100")
        })?;
        let text = text.trim().into();
        return Ok(Window { text, limit, period: Window::NO_PERIOD, every: None });
    }
    if unit.is_share() {
        let Some((limit, time)) = text.split_once('/') else {
            return Err(format!("{text:?} is not a share and a period, such as \"30%/1d\""));
        };
        return share(limit, time, LEAST);
    }
    if let Some((number, every)) = by_calendar(text) {
        let text = format!("{number} {}", every.word()).into();
        return Ok(Window {
            text,
            limit: most(number)?,
            period: every.seconds(),
            every: Some(every),
        });
    }
    if text.trim() == UNLIMITED {
        return Err("\"unlimited\" stands alone, not among windows".to_owned());
    }
    let (text, limit, period) = ratio(text, "100/1h")?;
    Ok(Window { text: text.into(), limit, period, every: None })
}

/// A bucket's rate, as in `1 / 1h`, or as a number a second: the text and the leak.
///
/// # Errors
/// What is wrong with it.
pub(super) fn leak(text: &str) -> Result<(String, f64), String> {
    if let Some(second) = number(text.trim()).filter(|_| !text.contains('/')) {
        return Ok((format!("{}/1s", text.trim()), second)).and_then(positive);
    }
    let (text, number, period) = ratio(text, "1 / 1h")?;
    positive((text, number / period))
}

fn positive((text, leak): (String, f64)) -> Result<(String, f64), String> {
    if leak > 0.0 {
        Ok((text, leak))
    } else {
        Err(format!("the rate {text:?} never empties the bucket; expected such as \"1 / 1h\""))
    }
}

/// A bucket's burst.
///
/// # Errors
/// What is wrong with it.
pub(super) fn burst(text: &str) -> Result<f64, String> {
    number(text).ok_or_else(|| format!("{text:?} is not a burst; expected a number such as 5"))
}

/// A network or an address.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn network(text: &str) -> Result<Cidr, String> {
    Cidr::parse(text).map_err(|reason| match reason {
        NoCidr::Malformed => format!(
            "{text:?} is not a network; expected such as 192.0.2.0/24, 192.0.2.7 or 2001:db8::/32"
        ),
        NoCidr::TooManyBits(most) => format!("{text:?} has more than {most} bits"),
        NoCidr::HostBits(network) => {
            format!("{text:?} is an address within a network; write \"{network}\" for all of it")
        }
    })
}

/// A domain, or all below one.
///
/// # Errors
/// What is wrong with it.
pub(super) fn domain(text: &str) -> Result<DomainPattern, String> {
    let (name, below) = match text.strip_prefix("*.") {
        Some(name) => (name, true),
        None => (text, false),
    };
    let domain = lower(name);
    let label = |label: &str| {
        !label.is_empty() && label.chars().all(|c| c.is_alphanumeric() || c == '-' || c == '_')
    };
    let literal = domain.starts_with('[') && domain.ends_with(']');
    if literal && !below || domain.split('.').all(label) {
        Ok(DomainPattern { domain, below })
    } else {
        Err(format!("{text:?} is not a domain; expected such as example.org or *.example.org"))
    }
}

/// One domain, in lower case.
///
/// # Errors
/// It is not one, or means many.
pub(super) fn one_domain(text: &str) -> Result<String, String> {
    let one = domain(text).ok().filter(|pattern| !pattern.below).map(|pattern| pattern.domain);
    one.ok_or_else(|| format!("{text:?} is not a domain; expected such as example.org"))
}

/// A text with placeholders in braces; `{{` and `}}` are braces.
///
/// # Errors
/// What is wrong with it.
pub(super) fn template(text: &str) -> Result<Template, String> {
    let mut pieces = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        let (before, from) = rest.split_at(at);
        plain.push_str(before);
        if let Some(after) = from.strip_prefix("{{") {
            plain.push('{');
            rest = after;
        } else if let Some(after) = from.strip_prefix("}}") {
            plain.push('}');
            rest = after;
        } else if let Some((name, after)) = from.strip_prefix('{').and_then(|f| f.split_once('}')) {
            let Some(value) = Placeholder::of(name) else {
                let instead = allowed_instead(name, &Placeholder::words());
                return Err(format!("unknown placeholder {{{name}}}; {instead}"));
            };
            if !plain.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
            }
            pieces.push(Piece::Value(value));
            rest = after;
        } else {
            let brace = if from.starts_with('{') { "{" } else { "}" };
            return Err(format!(
                "a {brace:?} without its other half; write {brace}{brace} for a brace, {{limit}} for a value"
            ));
        }
    }
    plain.push_str(rest);
    if !plain.is_empty() {
        pieces.push(Piece::Text(plain));
    }
    Ok(Template(pieces))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_limits_and_periods() {
        let sound = |text| limit(Unit::Messages, text).map(|w| (w.text, w.limit, w.period));
        assert_eq!(sound("100/1h"), Ok(("100/1h".into(), 100.0, 3600.0)));
        assert_eq!(sound(" 500M / 1d "), Ok(("500M/1d".into(), 500.0 * 1048576.0, 86400.0)));
        assert_eq!(sound("0/1h"), Ok(("0/1h".into(), 0.0, 3600.0)));
        assert_eq!(sound("1.5k/90"), Ok(("1.5k/90".into(), 1536.0, 90.0)));
        for (text, error) in [
            ("100", "\"100\" has no period; expected such as \"100/1h\" or \"500 daily\""),
            ("100/", "the period is missing; expected such as 1h"),
            (
                "100/1h/x",
                "\"100/1h/x\" has more than a limit and a period; expected such as \"100/1h\"",
            ),
            ("/1h", "\"\" is not a limit; expected a number such as 100, 1.5k or 500M"),
            ("k/1h", "\"k\" is not a limit; expected a number such as 100, 1.5k or 500M"),
            ("-1/1h", "\"-1\" is not a limit; expected a number such as 100, 1.5k or 500M"),
            ("inf/1h", "\"inf\" is not a limit; expected a number such as 100, 1.5k or 500M"),
            ("1000000000G/1h", "the limit \"1000000000G\" is too large: the largest is 1e18"),
            ("1e308/1h", "\"1e308\" is not a limit; expected a number such as 100, 1.5k or 500M"),
            ("1/0", "\"0\" is not a period; expected such as 30s, 15m, 1h, 1d or 1d12h"),
            ("1/99999w", "the period \"99999w\" is longer than 68 years"),
            ("x daily", "\"x\" is not a limit; expected a number such as 100, 1.5k or 500M"),
            ("5 often", "\"5 often\" has no period; expected such as \"100/1h\" or \"500 daily\""),
            ("unlimited", "\"unlimited\" stands alone, not among windows"),
        ] {
            assert_eq!(limit(Unit::Messages, text), Err(error.to_owned()), "{text}");
        }
        let endless = limit(Unit::Messages, &format!("{}/1h", "9".repeat(400)));
        assert!(endless.is_err_and(|error| error.ends_with("the largest is 1e18")));
    }

    #[test]
    fn windows_are_of_the_calendar() {
        let sound = |text| limit(Unit::Bytes, text).map(|w| (w.text, w.limit, w.every));
        assert_eq!(sound("500 daily"), Ok(("500 daily".into(), 500.0, Some(Every::Day))));
        assert_eq!(sound(" 1k   monthly"), Ok(("1k monthly".into(), 1024.0, Some(Every::Month))));
        for (text, instead) in [
            (
                "500/day",
                "write \"500/1d\" for a rate, in which what was sent counts less and less over the day, or \"500 daily\" for a count that starts again with each day",
            ),
            ("9 / weekly", "write \"9/1w\" for"),
            ("9/month", "or \"9 monthly\" for"),
        ] {
            let error = limit(Unit::Messages, text).unwrap_err();
            assert!(error.contains(instead), "{error}");
        }
        assert_eq!(several("100/1h;500 daily  9 weekly"), ["100/1h", "500 daily", "9 weekly"]);
        assert_eq!(several("daily 500 daily daily"), ["daily", "500 daily", "daily"]);
    }

    #[test]
    fn rates_of_buckets_are_by_second_or_by_period() {
        assert_eq!(leak("1 / 1h"), Ok(("1/1h".into(), 1.0 / 3600.0)));
        assert_eq!(leak("0.5"), Ok(("0.5/1s".into(), 0.5)));
        assert!(leak("0").is_err_and(|e| e.contains("never empties")));
        assert!(leak("0/1h").is_err_and(|e| e.contains("never empties")));
        assert!(leak("fast").is_err_and(|e| e.contains("no period")));
    }

    #[test]
    fn braces_hold_placeholders() {
        let value = |p| Piece::Value(p);
        let text = |t: &str| Piece::Text(t.into());
        let pieces = template("{{{limit}}} {unit}{period}!").unwrap().0;
        let wanted = [
            text("{"),
            value(Placeholder::Limit),
            text("} "),
            value(Placeholder::Unit),
            value(Placeholder::Period),
            text("!"),
        ];
        assert_eq!(pieces, wanted);
        assert_eq!(template("").unwrap().0, []);
        let error = template("Over {limits}").unwrap_err();
        assert!(
            error.starts_with(
                "unknown placeholder {limits}; did you mean \"limit\"? Allowed: policy,"
            )
        );
        for text in ["{", "a {limit", "a } b", "{}"] {
            assert!(template(text).is_err(), "{text}");
        }
    }

    #[test]
    fn domains_may_be_all_below_one() {
        let below = domain("*.Example.ORG").unwrap();
        assert!(below.matches("a.example.org") && below.matches("a.b.example.org"));
        assert!(!below.matches("example.org") && !below.matches("badexample.org"));
        assert!(domain("example.org.").unwrap().matches("example.org"));
        assert!(domain("[192.0.2.1]").is_ok());
        for text in ["", "*", "a..b", "*.*.org", "a b", "x@example.org"] {
            assert!(domain(text).is_err(), "{text}");
        }
    }
}
