use super::*;

/// Berlin, where summer time ends on 25 October 2026 and begins on 28 March 2027.
const BERLIN: &str = "CET-1CEST,M3.5.0,M10.5.0/3";

/// A time there.
fn berlin(text: &str) -> Zoned {
    text.parse::<jiff::Timestamp>().unwrap().to_zoned(TimeZone::posix(BERLIN).unwrap())
}

fn seconds(text: &str) -> i64 {
    text.parse::<jiff::Timestamp>().unwrap().as_second()
}

/// `text` as start, end and length, seen from `now`.
fn meant(text: &str, direction: Direction, now: &str) -> Option<(i64, i64, i64)> {
    let found = moment(text, direction, &berlin(now))?;
    Some((found.start.seconds, found.end.seconds, found.seconds()))
}

/// Noon of a Tuesday.
const NOW: &str = "2026-11-24T11:00:00Z";

#[test]
fn a_time_of_the_clock_is_the_latest_or_the_next_such() {
    for (text, past, ahead, long) in [
        ("11:59", "2026-11-24T10:59:00Z", "2026-11-25T10:59:00Z", 60),
        ("14:05", "2026-11-23T13:05:00Z", "2026-11-24T13:05:00Z", 60),
        ("9:05", "2026-11-24T08:05:00Z", "2026-11-25T08:05:00Z", 60),
        ("14:05:12", "2026-11-23T13:05:12Z", "2026-11-24T13:05:12Z", 1),
        ("14:05:12.5", "2026-11-23T13:05:12Z", "2026-11-24T13:05:12Z", 1),
        ("Tue 14:05", "2026-11-17T13:05:00Z", "2026-11-24T13:05:00Z", 60),
        ("tuesday 11:05", "2026-11-24T10:05:00Z", "2026-12-01T10:05:00Z", 60),
        ("Wed  11:05", "2026-11-18T10:05:00Z", "2026-11-25T10:05:00Z", 60),
        ("yesterday 14:05", "2026-11-23T13:05:00Z", "2026-11-23T13:05:00Z", 60),
        ("Tomorrow 14:05", "2026-11-25T13:05:00Z", "2026-11-25T13:05:00Z", 60),
        ("today 14:05", "2026-11-24T13:05:00Z", "2026-11-24T13:05:00Z", 60),
        ("2026-11-20 11:50", "2026-11-20T10:50:00Z", "2026-11-20T10:50:00Z", 60),
        ("2026-11-20T11:50", "2026-11-20T10:50:00Z", "2026-11-20T10:50:00Z", 60),
        ("2026-11-20 11:50:37", "2026-11-20T10:50:37Z", "2026-11-20T10:50:37Z", 1),
        ("2026-11-20 11:50:37 CET", "2026-11-20T10:50:37Z", "2026-11-20T10:50:37Z", 1),
        ("2026-11-20 11:50:37 UTC", "2026-11-20T11:50:37Z", "2026-11-20T11:50:37Z", 1),
        ("2026-11-20 11:50:37 -0330", "2026-11-20T15:20:37Z", "2026-11-20T15:20:37Z", 1),
        ("2026-11-20 11:50:37 +02:00", "2026-11-20T09:50:37Z", "2026-11-20T09:50:37Z", 1),
        ("2026-11-20T10:50:37Z", "2026-11-20T10:50:37Z", "2026-11-20T10:50:37Z", 1),
        ("2026-11-20t11:50:37.25+01:00", "2026-11-20T10:50:37Z", "2026-11-20T10:50:37Z", 1),
        ("@1795171837.5", "2026-11-20T10:50:37Z", "2026-11-20T10:50:37Z", 1),
        ("now", NOW, NOW, 1),
        ("2h", "2026-11-24T09:00:00Z", "2026-11-24T13:00:00Z", 1),
        ("1d12h", "2026-11-22T23:00:00Z", "2026-11-25T23:00:00Z", 1),
        ("3600", "2026-11-24T10:00:00Z", "2026-11-24T12:00:00Z", 1),
        ("2h ago", "2026-11-24T09:00:00Z", "2026-11-24T09:00:00Z", 1),
        ("in 2h", "2026-11-24T13:00:00Z", "2026-11-24T13:00:00Z", 1),
    ] {
        let at = |at| Some((seconds(at), seconds(at), long));
        assert_eq!(meant(text, Direction::Past, NOW), at(past), "{text}");
        assert_eq!(meant(text, Direction::Ahead, NOW), at(ahead), "{text}");
    }
}

#[test]
fn a_day_is_meant_from_its_beginning_to_its_end() {
    for (text, past, ahead) in [
        ("today", "2026-11-24", "2026-11-24"),
        ("yesterday", "2026-11-23", "2026-11-23"),
        ("tomorrow", "2026-11-25", "2026-11-25"),
        ("Tue", "2026-11-24", "2026-11-24"),
        ("monday", "2026-11-23", "2026-11-30"),
        ("2026-10-25", "2026-10-25", "2026-10-25"),
        ("2027-03-28", "2027-03-28", "2027-03-28"),
    ] {
        for (direction, day) in [(Direction::Past, past), (Direction::Ahead, ahead)] {
            let (start, end, long) = meant(text, direction, NOW).unwrap();
            let day: Date = day.parse().unwrap();
            let begins = |day: Date| day.to_zoned(TimeZone::posix(BERLIN).unwrap()).unwrap();
            assert_eq!(start, begins(day).timestamp().as_second(), "{text}");
            assert_eq!(end, begins(day.tomorrow().unwrap()).timestamp().as_second(), "{text}");
            let hours = match text {
                "2026-10-25" => 25,
                "2027-03-28" => 23,
                _ => 24,
            };
            assert_eq!(long, hours * 3600, "{text}");
        }
    }
    assert_eq!(until("2026-11-20").unwrap() - since("2026-11-20").unwrap(), 86_399);
    assert_eq!(until("@1795175437"), Ok(1_795_175_437));
}

#[test]
fn an_hour_that_the_clock_shows_twice_is_meant_from_the_first_to_the_second() {
    let (first, second) = (seconds("2026-10-25T00:30:00Z"), seconds("2026-10-25T01:30:00Z"));
    for (text, meant_is) in [
        ("2026-10-25 02:30", (first, second, 3660)),
        ("2026-10-25 02:30 CEST", (first, first, 60)),
        ("2026-10-25 02:30 cet", (second, second, 60)),
    ] {
        assert_eq!(meant(text, Direction::Past, NOW), Some(meant_is), "{text}");
    }
    // In the middle of it, the latest such time has come once.
    let (now, at) =
        ("2026-10-25T00:40:00Z", meant("02:30", Direction::Past, "2026-10-25T00:40:00Z"));
    assert_eq!(at.map(|(start, ..)| start), Some(first), "{now}");
    assert_eq!(meant("02:30", Direction::Ahead, now).map(|(_, end, _)| end), Some(second));
}

#[test]
fn a_time_that_the_clock_leaves_out_is_as_much_later() {
    let at = seconds("2027-03-28T01:30:00Z"); // 03:30 CEST
    assert_eq!(meant("2027-03-28 02:30", Direction::Past, NOW), Some((at, at, 60)));
}

#[test]
fn what_is_no_time_is_refused() {
    for text in [
        "",
        "soon",
        "@",
        "@x",
        "@-1",
        "@1.1234567",
        "@99999999999999",
        "Foo 14:05",
        "25:00",
        "1:2:3:4",
        "14:60",
        "2026-13-01",
        "2026-11-31",
        "20-11-2026",
        "2026-11-20 25:00",
        "2026-W47-5",
        "tomorrow 14",
        "today today",
        "14:05 today",
        "2026-11-20 11:50:37 EST",
        "2026-11-20 11:50:37 +1",
        "2026-11-20 11:50:37 +01:99",
        "2026-11-20 11:50:37 é1:0",
        "in",
        "ago",
        "inf",
        "in inf",
        "2h 3h",
        "é",
        "yesterday 14:05 CET CET",
        "t14:05",
        "-1d",
        "forever",
        "2026-11-20t",
        "T",
    ] {
        for direction in [Direction::Past, Direction::Ahead] {
            assert_eq!(meant(text, direction, NOW), None, "{text}");
        }
    }
    assert!(since("soon").unwrap_err().contains("'yesterday 14:05'"));
    assert!(end("soon").unwrap_err().contains("'tomorrow 18:00'"));
}

#[test]
fn what_is_printed_can_be_typed() {
    for at in ["2026-11-20T10:50:37Z", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"] {
        let zoned = berlin(at);
        let text = zoned.strftime(time::LOCAL).to_string();
        assert_eq!(meant(&text, Direction::Past, NOW).map(|(start, ..)| start), Some(seconds(at)));
    }
}

#[test]
fn an_end_is_yet_to_come() {
    assert!(end("1d").is_ok() && end("tomorrow").is_ok() && end("today").is_ok());
    assert_eq!(end("2999-12-31T00:00:00Z"), Ok(32_503_593_600));
    for text in ["0", "now", "yesterday", "2001-01-01", "@5"] {
        assert!(end(text).is_err(), "{text}");
    }
    assert!(end("yesterday 14:00").unwrap_err().contains(" is in the past; expected a time"));
}

kit::quickcheck! {
    fn no_text_panics(text: String) -> bool {
        meant(&text, Direction::Past, NOW).is_none() || meant(&text, Direction::Ahead, NOW).is_some()
    }
}

#[test]
fn an_end_is_a_duration_or_a_time_in_the_future_or_never() {
    let in_seconds = |text| end_or_forever(text).map(|second| second - time::now().seconds);
    assert!(in_seconds("1d").is_ok_and(|seconds| (86390..=86400).contains(&seconds)));
    assert!(in_seconds("2h30m").is_ok_and(|seconds| (8990..=9000).contains(&seconds)));
    assert_eq!(end_or_forever("forever"), Ok(FOREVER));
    assert_eq!(end_or_forever("2999-12-31T00:00:00Z"), Ok(32_503_593_600));
    for text in ["", "soon", "0", "-1d", "now", "2001-01-01", "@5", "never"] {
        assert!(end_or_forever(text).is_err(), "{text}");
    }
}
