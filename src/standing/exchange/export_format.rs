//! The export format: records as lines of JSON, without loss.
//!
//! The first line says what this is, and holds the database's key, on which the
//! bits of all filters depend. Each other line is a record. A number that JSON
//! cannot express is a text: `"inf"`, `"-inf"`, `"nan"`, or `"0x"` and the bits
//! of any other NaN.
//!
//! A later exirate may add fields to a record, and an older one imports such a line
//! without them: this is how records survive a downgrade. What an older one could not
//! understand without a new field needs a new version of this format.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::engine::{AlgorithmKind, Kind};
use crate::rate::{Average, Timestamp, bloom};
use crate::standing::key_state;
use crate::store::{Entry, FilterEntry};
use crate::text::json;
use crate::versions::{USE_THE_LATER, Versions};

/// The version of the format that is written; older ones can be read.
const VERSION: u32 = 1;

/// The first line.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Header {
    /// The version of the format.
    exirate_export: u32,
    /// The database's key in hexadecimal; none where the filters were left out.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    key: Option<String>,
}

impl Header {
    pub(crate) fn new(key: Option<[u8; 16]>) -> Self {
        let key = key.map(|key| crate::text::hex(&key));
        Self { exirate_export: VERSION, key }
    }

    /// The first line as text.
    pub(crate) fn parse(line: &str) -> Result<Self, String> {
        let header: Self = serde_json::from_str(line).map_err(|_| {
            "it is neither a line of exim_dumpdb, such as `20-Nov-2026 11:50:37.000000 rate: …`, nor \
             the first line of an export: {\"exirate_export\":1,…}"
                .to_owned()
        })?;
        let known = Versions::only(VERSION).known().check(header.exirate_export);
        known.map_err(|other| format!("it {other}: {USE_THE_LATER}"))?;
        header.key()?;
        Ok(header)
    }

    /// The database's key.
    pub(crate) fn key(&self) -> Result<Option<[u8; 16]>, String> {
        let Some(text) = &self.key else { return Ok(None) };
        let wrong = || "its key must be 32 hexadecimal digits".to_owned();
        if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let key = u128::from_str_radix(text, 16).map_err(|_| wrong())?;
        Ok(Some(key.to_be_bytes()))
    }
}

/// A record.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordLine<'a> {
    /// The stored key where it is UTF-8, and its bytes in base64 where not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    key_base64: Option<String>,
    #[serde(serialize_with = "write_number", deserialize_with = "read_number")]
    rate: f64,
    #[serde(serialize_with = "write_number", deserialize_with = "read_number")]
    limit: f64,
    /// When the rate was computed: seconds since 1970, and microseconds.
    seconds: i64,
    micros: u32,
    over_since: u32,
    /// The latest over decision, and the number of crossings; 0 where there was
    /// none, as in files of before format 2.
    #[serde(skip_serializing_if = "is_zero", default)]
    last_over: u32,
    #[serde(skip_serializing_if = "is_zero", default)]
    crossings: u32,
    /// Where these are not what the key of a spec says.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "write_period",
        deserialize_with = "read_period",
        default
    )]
    period: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    start: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    identity_start: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    kind: Option<KindWord>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    algorithm: Option<AlgorithmKind>,
    #[serde(skip_serializing_if = "Option::is_none", default, borrow)]
    filter: Option<FilterLine<'a>>,
}

/// What a record belongs to, where that is no spec.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum KindWord {
    Policy,
    Habits,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FilterLine<'a> {
    /// The second since 1970 in which it was begun.
    since: i64,
    /// Its bits in base64.
    bits: std::borrow::Cow<'a, str>,
}

/// Whether records that are counted so have a start: see [`State::start`](crate::engine::State::start).
fn has_start(algorithm: AlgorithmKind) -> bool {
    matches!(algorithm, AlgorithmKind::Calendar | AlgorithmKind::Share)
}

/// The line of a record, without its end.
pub(crate) fn write(entry: &Entry, filters: bool) -> Result<String, serde_json::Error> {
    let text = std::str::from_utf8(&entry.key).ok();
    let filter = entry.filter.as_ref().filter(|_| filters);
    let plain = key_state::entry(entry.key.clone(), entry.average, entry.limit);
    json(&RecordLine {
        key: text.map(str::to_owned),
        key_base64: text.is_none().then(|| STANDARD.encode(&entry.key)),
        rate: entry.average.rate,
        limit: entry.limit,
        seconds: entry.average.at.seconds,
        micros: entry.average.at.micros,
        over_since: entry.over_since,
        last_over: entry.last_over,
        crossings: entry.crossings,
        period: (entry.period != plain.period).then_some(entry.period),
        start: has_start(entry.algorithm).then_some(entry.start),
        identity_start: (entry.identity_start != plain.identity_start)
            .then_some(entry.identity_start),
        kind: match entry.kind {
            // What accounts send is in no export.
            Kind::Spec | Kind::Usage => None,
            Kind::Policy => Some(KindWord::Policy),
            Kind::Habits => Some(KindWord::Habits),
        },
        algorithm: Some(entry.algorithm).filter(|algorithm| *algorithm != AlgorithmKind::default()),
        filter: filter.map(|filter| FilterLine {
            since: filter.epoch,
            bits: STANDARD.encode(&filter.bits).into(),
        }),
    })
}

/// The most unknown fields of one line.
const UNKNOWN_MAX: usize = 16;

/// The record of a line, and the names of its fields that this version does not know.
///
/// # Errors
/// What is wrong with the line.
pub(crate) fn read(line: &str) -> Result<(Entry, Vec<String>), String> {
    match serde_json::from_str(line) {
        Ok(line) => Ok((entry(line)?, Vec::new())),
        Err(error) => {
            let (line, unknown) = without_unknown(line).ok_or_else(|| {
                // The position counts from the line's start; the caller adds its number.
                let what = error.to_string();
                let what = what.split(" at line ").next().unwrap_or_default();
                format!("{what}, at character {}", error.column())
            })?;
            let line = serde_json::from_str(&line).map_err(|error| error.to_string())?;
            Ok((entry(line)?, unknown))
        }
    }
}

/// A line without the fields that this version does not know, and their names. `None`
/// if there are none or too many, or something else is wrong with it.
fn without_unknown(line: &str) -> Option<(String, Vec<String>)> {
    let mut fields: serde_json::Map<String, serde_json::Value> = serde_json::from_str(line).ok()?;
    let mut unknown = Vec::new();
    while unknown.len() <= UNKNOWN_MAX {
        let line = json(&fields).ok()?;
        match serde_json::from_str::<RecordLine<'_>>(&line) {
            Ok(_) => return (!unknown.is_empty()).then_some((line, unknown)),
            Err(error) => {
                let what = error.to_string();
                let (name, _) = what.strip_prefix("unknown field `")?.split_once('`')?;
                fields.remove(name)?;
                unknown.push(name.to_owned());
            }
        }
    }
    None
}

/// The record of a line.
fn entry(line: RecordLine<'_>) -> Result<Entry, String> {
    let key = match (line.key, line.key_base64) {
        (Some(text), None) => text.into_bytes(),
        (None, Some(text)) => {
            STANDARD.decode(text).map_err(|error| format!("key_base64: {error}"))?
        }
        _ => return Err("it must have either key or key_base64".to_owned()),
    };
    if line.micros >= 1_000_000 {
        return Err(format!("micros is {}: it must be less than 1000000", line.micros));
    }
    // What the database's own clock can hold.
    if line.seconds.unsigned_abs() > i64::MAX as u64 / 1_000_000 - 1 {
        return Err(format!("seconds is {}: out of range", line.seconds));
    }
    let filter = line.filter.map(filter).transpose()?;
    let at = Timestamp { seconds: line.seconds, micros: line.micros };
    let plain = key_state::entry(key, Average { at, rate: line.rate }, line.limit);
    let identity_start = line.identity_start.unwrap_or(plain.identity_start);
    if identity_start > plain.key.len() {
        return Err(format!("identity_start is {identity_start}: the key is shorter"));
    }
    let period = line.period.unwrap_or(plain.period);
    let algorithm = line.algorithm.unwrap_or(plain.algorithm);
    let bucket = algorithm == AlgorithmKind::Bucket;
    let start = line.start.unwrap_or(0);
    if line.start.is_some() != has_start(algorithm) || !(0..=i64::from(u32::MAX)).contains(&start) {
        return Err(format!(
            "start: a calendar window begins in a second from 0 to {}, a share has the least there",
            u32::MAX
        ));
    }
    if bucket && !(0.0..=f64::INFINITY).contains(&period) {
        return Err(format!("period is {period}: it must be 0 or more, or \"inf\""));
    }
    if !bucket && !(0.0..=f64::from(u32::MAX)).contains(&period) {
        return Err(format!("period is {period}: it must be 0 to {}", u32::MAX));
    }
    Ok(Entry {
        identity_start,
        kind: line.kind.map_or(plain.kind, |word| match word {
            KindWord::Policy => Kind::Policy,
            KindWord::Habits => Kind::Habits,
        }),
        algorithm,
        period,
        start,
        over_since: line.over_since,
        last_over: line.last_over,
        crossings: line.crossings,
        filter,
        ..plain
    })
}

fn filter(line: FilterLine<'_>) -> Result<FilterEntry, String> {
    let bits =
        STANDARD.decode(&*line.bits).map_err(|error| format!("the filter's bits: {error}"))?;
    if !(1..=bloom::MAX_BYTES).contains(&bits.len()) {
        return Err(format!(
            "the filter has {} bytes: it must have 1 to {}",
            bits.len(),
            bloom::MAX_BYTES
        ));
    }
    Ok(FilterEntry { epoch: line.since, bits })
}

fn write_number<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if number.is_finite() {
        serializer.serialize_f64(*number)
    } else if number.is_infinite() {
        serializer.serialize_str(if *number > 0.0 { "inf" } else { "-inf" })
    } else if number.to_bits() == f64::NAN.to_bits() {
        serializer.serialize_str("nan")
    } else {
        serializer.collect_str(&format_args!("0x{:016x}", number.to_bits()))
    }
}

fn write_period<S: Serializer>(period: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    match period {
        Some(period) => write_number(period, serializer),
        None => serializer.serialize_none(),
    }
}

fn read_period<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    read_number(deserializer).map(Some)
}

fn read_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a number, \"inf\", \"-inf\" or \"nan\"")]
    enum Number {
        Finite(f64),
        Text(String),
    }
    let text = match Number::deserialize(deserializer)? {
        Number::Finite(number) => return Ok(number),
        Number::Text(text) => text,
    };
    let bits = text.strip_prefix("0x").filter(|digits| digits.len() == 16);
    let number = match &*text {
        "inf" => Some(f64::INFINITY),
        "-inf" => Some(f64::NEG_INFINITY),
        "nan" => Some(f64::NAN),
        _ => bits.and_then(|bits| u64::from_str_radix(bits, 16).ok()).map(f64::from_bits),
    };
    number
        .ok_or_else(|| serde::de::Error::custom("expected a number, \"inf\", \"-inf\" or \"nan\""))
}

#[cfg(test)]
mod tests {
    use kit::quickcheck;

    use super::*;

    fn same(a: &Entry, b: &Entry) -> bool {
        a.key == b.key
            && a.average.at == b.average.at
            && a.average.rate.to_bits() == b.average.rate.to_bits()
            && a.limit.to_bits() == b.limit.to_bits()
            && (a.over_since, a.last_over, a.crossings) == (b.over_since, b.last_over, b.crossings)
            && (a.period, a.start, a.record_key()) == (b.period, b.start, b.record_key())
            && a.filter == b.filter
    }

    quickcheck! {
        fn a_record_survives_to_the_last_bit(
            key: Vec<u8>, rate: u64, limit: u64, at: (i32, u32), over: u32,
            filter: Option<(i64, Vec<u8>)>
        ) -> bool {
            let filter = filter.filter(|(_, bits)| !bits.is_empty());
            let at = Timestamp { seconds: at.0.into(), micros: at.1 % 1_000_000 };
            let average = Average { at, rate: f64::from_bits(rate) };
            let plain = key_state::entry(key, average, f64::from_bits(limit));
            let (policy, bucket) = (over % 2 == 1, over % 3 == 1);
            let entry = Entry {
                over_since: over,
                last_over: over / 3,
                crossings: over % 5,
                algorithm: match over % 3 {
                    1 => AlgorithmKind::Bucket,
                    2 => AlgorithmKind::Calendar,
                    3 => AlgorithmKind::Share,
                    _ => AlgorithmKind::MovingAverage,
                },
                start: if over % 3 == 2 { over.into() } else { 0 },
                period: match (policy, bucket) {
                    (true, true) => f64::INFINITY,
                    (false, false) => plain.period,
                    _ => 0.5,
                },
                identity_start: if policy { plain.key.len() } else { plain.identity_start },
                kind: if policy { Kind::Policy } else { Kind::Spec },
                filter: filter.map(|(epoch, bits)| FilterEntry { epoch, bits }),
                ..plain
            };
            same(&entry, &read(&write(&entry, true).unwrap()).unwrap().0)
        }
    }

    #[test]
    fn numbers_that_json_lacks_survive() {
        let odd = f64::from_bits(f64::NAN.to_bits() | 1);
        for rate in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, odd, -0.0, 5e-324, f64::MAX] {
            let average = Average { at: Timestamp { seconds: -5, micros: 999_999 }, rate };
            let entry = key_state::entry(b"\xff".to_vec(), average, rate);
            let line = write(&entry, true).unwrap();
            assert!(same(&entry, &read(&line).unwrap().0), "{line}");
        }
    }

    #[test]
    fn wrong_lines_are_distinguished_from_valid_ones() {
        let right = r#"{"key":"a","rate":1,"limit":2,"seconds":3,"micros":4,"over_since":0}"#;
        assert!(read(right).is_ok());
        for (from, to, words) in [
            (r#""micros":4"#, r#""micros":1000000"#, "micros"),
            (r#""rate":1"#, r#""rate":"many""#, "number"),
            (r#""seconds":3"#, r#""seconds":-9223372036854775808"#, "out of range"),
            (r#""key":"a","#, "", "either key or key_base64"),
            (r#""key":"a""#, r#""key_base64":"?""#, "key_base64"),
            (r#""over_since":0"#, r#""over_since":0,"filter":{"since":0,"bits":""}"#, "0 bytes"),
            (r#""over_since":0"#, r#""over_since":0,"over_since":1"#, "duplicate"),
            (r#""over_since":0"#, r#""more":1"#, "unknown field `more`"),
            ("}", "", "EOF"),
        ] {
            let line = right.replace(from, to);
            let error = read(&line).unwrap_err();
            assert!(error.contains(words), "{line}: {error}");
        }
    }

    #[test]
    fn fields_of_a_later_version_are_left_out() {
        let line = r#"{"key":"a","rate":1.5,"limit":2,"seconds":3,"micros":4,"over_since":0}"#;
        let (known, none) = read(line).unwrap();
        assert_eq!(none, [""; 0]);
        let later = line.replace(r#""limit""#, r#""colour":{"red":[1]},"limit""#);
        let (entry, unknown) = read(&later).unwrap();
        assert!(same(&entry, &known), "{entry:?}");
        assert_eq!(unknown, ["colour"]);
        // What a filter's unknown field means for its bits is not known.
        let filter = r#""over_since":0,"filter":{"since":0,"bits":"AA==","hash":2}"#;
        assert!(read(&line.replace(r#""over_since":0"#, filter)).is_err());
        let many: String = (0..100).map(|n| format!("\"field{n}\":0,")).collect();
        assert!(read(&line.replacen('{', &format!("{{{many}"), 1)).is_err());
    }

    #[test]
    fn the_first_line_says_what_this_is() {
        let header = Header::new(Some([0xab; 16]));
        let line = json(&header).unwrap();
        let parsed = Header::parse(&line).unwrap();
        assert_eq!(parsed, header);
        assert_eq!(parsed.key(), Ok(Some([0xab; 16])));
        assert_eq!(Header::parse(r#"{"exirate_export":1}"#).unwrap().key(), Ok(None));
        for line in [r#"{"exirate_export":2}"#, r#"{"exirate_export":1,"key":"ab"}"#, "{}", "x"] {
            assert!(Header::parse(line).is_err(), "{line}");
        }
    }
}
