//! Tables of specs, and random bytes.

use super::{AclStage, Context, Fault, MAX_LEN, Mode, Scope, Spec, SpecRequest, Update, Variable};
use kit::quickcheck;
use quickcheck::{Arbitrary, Gen};

const STAGES: [AclStage; 20] = [
    AclStage::Rcpt,
    AclStage::Mail,
    AclStage::Predata,
    AclStage::Mime,
    AclStage::Dkim,
    AclStage::Data,
    AclStage::Prdr,
    AclStage::NotSmtp,
    AclStage::Auth,
    AclStage::Connect,
    AclStage::Etrn,
    AclStage::Expn,
    AclStage::Helo,
    AclStage::MailAuth,
    AclStage::NotSmtpStart,
    AclStage::NotQuit,
    AclStage::Quit,
    AclStage::StartTls,
    AclStage::Vrfy,
    AclStage::Outside,
];

/// A context at `stage` with everything known.
fn at(stage: AclStage) -> Context<'static> {
    Context {
        stage,
        host_address: Some(b"192.0.2.1"),
        recipients: 7,
        message_size: Some(4000),
        local_part: b"joe",
        domain: b"example.org",
    }
}

fn ask(text: &str, stage: AclStage) -> SpecRequest {
    Spec::parse(text.as_bytes()).and_then(|s| s.request(&at(stage))).expect(text)
}

fn error(text: &str, stage: AclStage) -> super::SpecError {
    Spec::parse(text.as_bytes()).and_then(|s| s.request(&at(stage))).expect_err(text)
}

#[test]
fn a_full_request() {
    assert_eq!(
        ask(" 2.5k / 1h30m / Per_Addr / STRICT / user@example.org ", AclStage::Rcpt),
        SpecRequest {
            key: b"1h30m/per_rcpt/unique/user@example.org".to_vec(),
            key_start: b"1h30m/per_rcpt/unique/".len(),
            limit: 2560.0,
            period: 5400.0,
            mode: Mode::PerAddr,
            update: Update::Strict,
            count: 1.0,
            unique: Some(b"joe@example.org".to_vec()),
            scope: Scope::Command,
        }
    );
}

#[test]
fn keys() {
    for (text, key) in [
        ("1/1h", "1h/per_mail/192.0.2.1"),
        ("1/3600", "3600/per_mail/192.0.2.1"),
        ("1 / 60m / k", "60m/per_mail/k"),
        ("1 / 1h / k / strict / l", "1h/per_mail/k/l"),
        ("1 / 1h / k//l", "1h/per_mail/k/l"),
        ("1 / 1h / / x", "1h/per_mail//x"),
        ("1 / 1h / x / / y", "1h/per_mail/x//y"),
        ("1 / 1h / /", "1h/per_mail/"),
        ("1 / 1h /", "1h/per_mail/192.0.2.1"),
        ("1 / 1h / per_cmd / leaky", "1h/per_cmd/192.0.2.1"),
        ("1 / 1h / per_conn", "1h/per_conn/192.0.2.1"),
        ("1 / 1h / per_byte", "1h/per_mail/192.0.2.1"),
        ("1 / 1h / per_rcpt", "1h/per_rcpt/192.0.2.1"),
        ("1 / 1h / per_addr", "1h/per_rcpt/unique/192.0.2.1"),
        ("1 / 1h / unique=x / k", "1h/per_mail/unique/k"),
        ("1 / 1h / unique=", "1h/per_mail/unique/192.0.2.1"),
        ("1 / 1h / key=x", "1h/per_mail/key=x"),
        ("1 / 1h / per_rcp", "1h/per_mail/per_rcp"),
        ("1 / 1h / count", "1h/per_mail/count"),
    ] {
        assert_eq!(String::from_utf8(ask(text, AclStage::Rcpt).key).unwrap(), key, "{text}");
    }
    let spec = Spec::parse(b"1/1h").unwrap();
    assert_eq!(spec.request(&Context::outside()).unwrap().key, b"1h/per_mail/");
}

#[test]
fn counts_and_unique_events_depend_on_order() {
    for (text, stage, count, unique) in [
        ("1/1h", AclStage::Data, 1.0, None),
        ("1/1h/count=3", AclStage::Data, 3.0, None),
        ("1/1h/COUNT= 2.5e1/count=4", AclStage::Data, 4.0, None),
        ("1/1h/count=3/per_cmd", AclStage::Data, 3.0, None),
        ("1/1h/count=3/per_rcpt", AclStage::Rcpt, 3.0, None),
        ("1/1h/per_rcpt", AclStage::Rcpt, 1.0, None),
        ("1/1h/per_rcpt", AclStage::Data, 7.0, None),
        ("1/1h/per_rcpt", AclStage::Predata, 7.0, None),
        ("1/1h/per_rcpt", AclStage::NotSmtp, 7.0, None),
        ("1/1h/per_rcpt", AclStage::Outside, 1.0, None),
        ("1/1h/count=3/per_rcpt", AclStage::Data, 7.0, None),
        ("1/1h/per_rcpt/count=3", AclStage::Data, 3.0, None),
        ("1/1h/per_byte", AclStage::Mail, 4000.0, None),
        ("1/1h/count=3/per_byte", AclStage::Mail, 4000.0, None),
        ("1/1h/per_byte/count=3", AclStage::Mail, 3.0, None),
        ("1/1h/per_rcpt/readonly", AclStage::Data, 0.0, None),
        ("1/1h/count=3/noupdate", AclStage::Data, 0.0, None),
        ("1/1h/count=-0", AclStage::Data, 0.0, None),
        ("1/1h/count=", AclStage::Data, 0.0, None),
        ("1/1h/per_addr", AclStage::Rcpt, 1.0, Some("joe@example.org")),
        ("1/1h/per_addr", AclStage::Outside, 1.0, Some("joe@example.org")),
        ("1/1h/per_addr/count=2", AclStage::Rcpt, 2.0, Some("joe@example.org")),
        ("1/1h/per_addr/unique=x", AclStage::Rcpt, 1.0, Some("x")),
        ("1/1h/unique=x/per_addr", AclStage::Rcpt, 1.0, Some("joe@example.org")),
        ("1/1h/unique=x/UNIQUE= y//z", AclStage::Rcpt, 1.0, Some(" y/z")),
        ("1/1h/per_addr", AclStage::Data, 0.0, Some("*")),
        ("1/1h/unique=", AclStage::Data, 1.0, Some("")),
    ] {
        let request = ask(text, stage);
        assert_eq!(request.count.to_bits(), f64::to_bits(count), "{text} {stage:?}");
        assert_eq!(request.unique.as_deref(), unique.map(str::as_bytes), "{text} {stage:?}");
    }
    let unknown = Context { message_size: None, ..at(AclStage::Connect) };
    let spec = Spec::parse(b"1/1h/per_byte/count=9").unwrap();
    assert_eq!(spec.request(&unknown).unwrap().count, 0.0, "out of stage, so read only");
    let unknown = Context { stage: AclStage::Mail, ..unknown };
    assert_eq!(Spec::parse(b"1/1h/per_byte").unwrap().request(&unknown).unwrap().count, 0.0);
}

/// For each mode, where it counts ('+') and where it is only read ('-'), in the
/// order of [`STAGES`].
const WHERE: [(Mode, &[u8]); 6] = [
    (Mode::PerMail, b"++++++++-----------+"),
    (Mode::PerByte, b"++++++++-----------+"),
    (Mode::PerRcpt, b"+-++++++-----------+"),
    (Mode::PerAddr, b"+------------------+"),
    (Mode::PerConn, b"+++++++-++++++-+++++"),
    (Mode::PerCmd, b"++++++++++++++++++++"),
];

#[test]
fn every_mode_counts_at_its_stages() {
    for (mode, table) in WHERE {
        for (stage, mark) in STAGES.into_iter().zip(table) {
            let counts = *mark == b'+';
            let word = mode.word();
            for (option, update) in [("leaky", Update::Leaky), ("strict", Update::Strict)] {
                let text = format!("1 / 1h / {option} / {word}");
                if counts {
                    assert_eq!(ask(&text, stage).update, update, "{text} {stage:?}");
                } else {
                    let fault = error(&text, stage).fault().clone();
                    assert_eq!(fault, Fault::WrongStage { mode, stage }, "{text}");
                }
                let request = ask(&format!("{text} / noupdate"), stage);
                assert_eq!(request.update, Update::ReadOnly, "{text} {stage:?}");
            }
            let request = ask(&format!("1 / 1h / {word}"), stage);
            let expected = if counts { Update::Leaky } else { Update::ReadOnly };
            assert_eq!(request.update, expected, "{word} {stage:?}");
            assert_eq!(request.mode, mode);
            assert_eq!(ask(&format!("1/1h/{word}/readonly"), stage).update, Update::ReadOnly);
        }
    }
    for stage in STAGES {
        // The default is per_mail, but an unwritten mode is allowed at every
        // stage.
        let request = ask("1 / 1h / strict", stage);
        assert_eq!((request.mode, request.update), (Mode::PerMail, Update::Strict), "{stage:?}");
    }
}

#[test]
fn scopes() {
    for (text, stage, scope) in [
        ("1/1h", AclStage::Rcpt, Scope::Message),
        ("1/1h/per_mail", AclStage::Data, Scope::Message),
        ("1/1h/per_byte", AclStage::Data, Scope::Message),
        ("1/1h/per_rcpt", AclStage::Rcpt, Scope::Command),
        ("1/1h/per_rcpt", AclStage::Data, Scope::Message),
        ("1/1h/per_rcpt", AclStage::Mail, Scope::Command),
        ("1/1h/per_addr", AclStage::Rcpt, Scope::Command),
        ("1/1h/per_cmd", AclStage::Rcpt, Scope::Command),
        ("1/1h/per_conn", AclStage::Rcpt, Scope::Connection),
        ("1/1h/per_conn/readonly", AclStage::Rcpt, Scope::Command),
        ("1/1h/noupdate", AclStage::Rcpt, Scope::Command),
        ("1/1h/per_conn", AclStage::Outside, Scope::Evaluation),
        ("1/1h/readonly", AclStage::Outside, Scope::Evaluation),
    ] {
        assert_eq!(ask(text, stage).scope, scope, "{text} {stage:?}");
    }
}

#[test]
fn errors_in_words() {
    let prefix = "error in arguments to \"ratelimit\" condition: ";
    for (text, stage, expected) in [
        ("", AclStage::Rcpt, "sender rate limit not set ("),
        (" \t", AclStage::Rcpt, "sender rate limit not set ("),
        ("abc", AclStage::Rcpt, "\"abc\" is not a positive number (the limit is a number such as"),
        ("-1/1h", AclStage::Rcpt, "\"-1\" is not a positive number ("),
        ("nan/1h", AclStage::Rcpt, "\"nan\" is not a positive number ("),
        ("1\n/1h", AclStage::Rcpt, ""),
        ("1\n2/1h", AclStage::Rcpt, "\"1\\n2\" is not a positive number ("),
        ("\u{e9}/1h", AclStage::Rcpt, "\"\\303\\251\" is not a positive number ("),
        ("100", AclStage::Rcpt, "\"NULL\" is not a time value (the period is missing"),
        ("100 / ", AclStage::Rcpt, "\"NULL\" is not a time value ("),
        ("100 / / x", AclStage::Rcpt, "\"\" is not a time value ("),
        ("100 / 1y", AclStage::Rcpt, "\"1y\" is not a time value ("),
        ("100 / 0s", AclStage::Rcpt, "\"0s\" is not a time value ("),
        ("100 / 9999w", AclStage::Rcpt, "\"9999w\" is not a time value (the period is too long: "),
        ("1/1h/count=-1", AclStage::Rcpt, "\"count=-1\" is not a positive number (after count="),
        ("1/1h/count=5k", AclStage::Rcpt, "\"count=5k\" is not a positive number ("),
        ("1/1h/Count=nan", AclStage::Rcpt, "\"Count=nan\" is not a positive number ("),
        (
            "1/1h/per_mail/per_rcpt",
            AclStage::Rcpt,
            "conflicting per_* options (per_mail and per_rcpt; ",
        ),
        (
            "1/1h/per_mail/x/PER_MAIL",
            AclStage::Rcpt,
            "conflicting per_* options (per_mail is written twice; ",
        ),
        ("1/1h/per_cmd/per_cmd/leaky/strict", AclStage::Rcpt, "conflicting per_* options ("),
        ("1/1h/per_cmd/per_cmd/count=x", AclStage::Rcpt, "\"count=x\" is not a positive number ("),
        ("1/1h/leaky/strict", AclStage::Rcpt, "conflicting update modes (leaky and strict; "),
        ("1/1h/readonly/leaky", AclStage::Rcpt, "conflicting update modes (readonly and leaky; "),
        (
            "1/1h/strict/strict/readonly/noupdate",
            AclStage::Rcpt,
            "conflicting update modes (strict and readonly; ",
        ),
        ("1/1h/strict/strict/noupdate", AclStage::Rcpt, ""),
        (
            "1/1h/per_mail/strict",
            AclStage::Helo,
            "\"per_mail\" must not have /leaky or /strict option, or cannot be used in EHLO or HELO \
             ACL (per_mail can count in the RCPT, MAIL",
        ),
        (
            "1/1h/per_addr/leaky",
            AclStage::Data,
            "\"per_rcpt\" must not have /leaky or /strict option, or cannot be used in DATA ACL \
             (per_addr can count in the RCPT ACL; ",
        ),
        (
            "1/1h/per_byte/leaky",
            AclStage::Connect,
            "\"per_mail\" must not have /leaky or /strict option, or cannot be used in connection \
             ACL (per_byte can count in ",
        ),
        ("1/1h/\0", AclStage::Rcpt, "it contains a NUL byte ("),
    ] {
        match Spec::parse(text.as_bytes()).and_then(|s| s.request(&at(stage))) {
            Ok(_) => assert_eq!("", expected, "{text:?} is no error"),
            Err(error) => {
                let message = error.to_string();
                assert!(!expected.is_empty(), "{text:?}: {message}");
                assert!(message.starts_with(&format!("{prefix}{expected}")), "{message}");
                assert_eq!(message.matches(prefix).count(), 1);
                assert!(message.ends_with(')'), "{message}");
                assert!(message.bytes().all(|b| (b' '..=b'~').contains(&b)), "{message}");
                assert!(message.len() < 500, "{message}");
            }
        }
    }
}

#[test]
fn errors_contain_the_values_of_the_variables() {
    let (untouched, unset) = (Variable::Untouched, Variable::Unset);
    for (text, limit, period) in [
        ("", None, untouched),
        ("abc / 1h", Some("abc"), untouched),
        ("1 / 1y", Some("1"), Variable::Set(b"1y")),
        ("1", Some("1"), unset),
        ("1k / 1h / leaky / strict", Some("1k"), Variable::Set(b"1h")),
        ("1k / 1h / count=x", Some("1k"), Variable::Set(b"1h")),
        ("/ / x", Some(""), Variable::Set(b"")),
        ("1 / 3h / per_mail / strict", Some("1"), Variable::Set(b"3h")),
    ] {
        let error = error(text, AclStage::Connect);
        assert_eq!(error.limit_text(), limit.map(str::as_bytes), "{text}");
        assert_eq!(error.period_text(), period, "{text}");
    }
}

#[test]
fn the_period_can_be_read_back_from_a_key() {
    let SpecRequest { key, period, .. } = ask("1 / 1d12h / per_cmd / a//b", AclStage::Rcpt);
    let written = key.split(|&b| b == b'/').next().unwrap();
    assert_eq!(super::interval::seconds(written), Ok(period));
    assert!(super::interval::seconds(b"1y").is_err());
}

#[test]
fn limit_and_period_are_kept_as_written() {
    let spec = Spec::parse(b" 1.50K /\t60m ").unwrap();
    assert_eq!((spec.limit_text(), spec.period_text()), (&b"1.50K"[..], &b"60m"[..]));
}

#[test]
fn length_limits() {
    let mut text = b"1 / 1h / ".to_vec();
    text.resize(MAX_LEN, b'k');
    assert!(Spec::parse(&text).is_ok());
    text.push(b'k');
    let error = Spec::parse(&text).unwrap_err();
    assert_eq!(*error.fault(), Fault::TooLong { length: MAX_LEN + 1 });
    assert!(error.to_string().contains("16385 bytes are too long (at most 16384 bytes"));

    let spec = Spec::parse(b"1/1h").unwrap();
    let host = vec![b'x'; 65535 - b"1h/per_mail/".len()];
    let context = Context { host_address: Some(&host), ..at(AclStage::Rcpt) };
    assert_eq!(spec.request(&context).unwrap().key.len(), 65535);
    let host = [&host[..], b"x"].concat();
    let context = Context { host_address: Some(&host), ..context };
    let fault = spec.request(&context).unwrap_err().fault().clone();
    assert_eq!(fault, Fault::LongKey { length: 65536 });

    let long = format!("{} / 1h", "x".repeat(5000));
    let message = Spec::parse(long.as_bytes()).unwrap_err().to_string();
    assert!(message.contains("xxx... [5000 bytes]\" is not a positive number"), "{message}");
    assert!(message.len() < 400);
}

/// A spec made of likely pieces, in mixed case, with varying blanks.
#[derive(Clone, Debug)]
struct Pieces(Vec<String>);

impl Arbitrary for Pieces {
    fn arbitrary(g: &mut Gen) -> Self {
        let mut pieces = vec![
            g.choose(&["1", "2.5k", "0x10", "", "inf", "1e3", "-1"]).unwrap().to_string(),
            g.choose(&["1h", "1d2h", "3600", "1s", "0", ""]).unwrap().to_string(),
        ];
        for _ in 0..u8::arbitrary(g) % 6 {
            let piece = g.choose(&[
                "leaky",
                "STRICT",
                "noupdate",
                "readonly",
                "per_cmd",
                "Per_Conn",
                "per_mail",
                "per_rcpt",
                "per_byte",
                "per_addr",
                "count=3",
                "count=x",
                "unique=u/v",
                "unique=",
                "key",
                "k/l",
                "",
                "a b",
                "/",
                "x\\y",
            ]);
            pieces.push(piece.unwrap().to_string());
        }
        Self(pieces)
    }

    fn shrink(&self) -> Box<dyn Iterator<Item = Self>> {
        Box::new(self.0.shrink().map(Self))
    }
}

impl Pieces {
    fn written(&self, before: &str, after: &str) -> String {
        self.0.iter().map(|p| format!("{before}{}{after}/", p.replace('/', "//"))).collect()
    }
}

#[derive(Clone, Copy, Debug)]
struct AnyStage(AclStage);

impl Arbitrary for AnyStage {
    fn arbitrary(g: &mut Gen) -> Self {
        Self(*g.choose(&STAGES).unwrap())
    }
}

quickcheck! {
    fn arbitrary_bytes_never_panic(text: Vec<u8>, stage: AnyStage) -> bool {
        match Spec::parse(&text) {
            Ok(spec) => {
                let _ = spec.lints();
                spec.request(&at(stage.0)).is_ok_and(|r| r.key.len() <= 65535)
            }
            Err(error) => error.to_string().bytes().all(|b| (b' '..=b'~').contains(&b)),
        }
    }

    fn bytes_after_a_valid_start_never_panic(tail: Vec<u8>, stage: AnyStage) -> bool {
        let text = [b"1 / 1h / ", &tail[..]].concat();
        match Spec::parse(&text) {
            Ok(spec) => spec.lints().iter().all(|d| !d.to_string().contains('\n')),
            Err(error) => !error.to_string().contains('\n'),
        }
    }

    fn blanks_change_nothing(pieces: Pieces, stage: AnyStage) -> bool {
        let (tight, wide) = (pieces.written(" ", ""), pieces.written("\t ", "  "));
        let ask = |text: &str| {
            Spec::parse(text.as_bytes())
                .and_then(|s| s.request(&at(stage.0)))
                .map_err(|e| e.fault().clone())
        };
        ask(&tight) == ask(&wide)
    }

    fn requests_are_in_range(pieces: Pieces, stage: AnyStage) -> bool {
        let text = pieces.written(" ", " ");
        let request = Spec::parse(text.as_bytes()).and_then(|s| s.request(&at(stage.0)));
        request.map_or(true, |r| {
            r.limit >= 0.0
                && r.period > 0.0
                && r.count >= 0.0
                && (r.update != Update::ReadOnly || r.count == 0.0)
        })
    }

    fn a_literal_key_and_the_same_text_in_the_spec_are_one_record(key: Vec<u8>, stage: AnyStage) -> bool {
        let written: Vec<u8> =
            key.iter().flat_map(|&b| if b == b'/' { vec![b; 2] } else { vec![b] }).collect();
        let text = [b"7 / 1h / per_rcpt / ", &written[..]].concat();
        let parsed = Spec::parse(&text);
        let literal = Spec::parse(b"7 / 1h / per_rcpt").unwrap().with_literal(&key, None);
        match (parsed, literal) {
            // A spec cannot contain a key with blanks at its ends, or the name
            // of an option.
            (Ok(parsed), Ok(literal)) if parsed.key.as_deref() == Some(&key[..]) => {
                parsed.request(&at(stage.0)) == literal.request(&at(stage.0))
            }
            (_, Ok(literal)) => literal.key.as_deref() == Some(&key[..]).filter(|key| !key.is_empty()),
            (parsed, Err(_)) => parsed.is_err() && key.contains(&0),
        }
    }
}

#[test]
fn a_literal_key_is_never_parsed() {
    for key in
        ["noupdate", "a/noupdate/b", "per_byte", " strict ", "count=0", "unique=x", "/", "a//b"]
    {
        let spec = Spec::parse(b"7 / 1h / per_rcpt / strict").unwrap();
        let request = spec.with_literal(key.as_bytes(), Some(b"leaky/")).unwrap();
        let request = request.request(&at(AclStage::Rcpt)).unwrap();
        assert_eq!(request.written_key(), key.as_bytes());
        assert_eq!((request.update, request.count), (Update::Strict, 1.0), "{key}");
        assert_eq!(request.unique.as_deref(), Some(&b"leaky/"[..]));
    }
    // An empty key is the default key; an empty unique event is an event.
    let spec = Spec::parse(b"7 / 1h / per_rcpt").unwrap().with_literal(b"", Some(b"")).unwrap();
    let request = spec.request(&at(AclStage::Rcpt)).unwrap();
    let native = Spec::parse(b"7 / 1h / per_rcpt / unique=").unwrap();
    assert_eq!(request, native.request(&at(AclStage::Rcpt)).unwrap());
}

#[test]
fn a_key_that_begins_with_unique_has_the_identity_of_its_unique_events() {
    for (plain, unique) in
        [("unique//x", "x"), ("unique//unique//x", "unique//x"), ("unique//a / b", "a / b")]
    {
        let [plain, unique] =
            [format!("1 / 1h / {plain}"), format!("1 / 1h / unique=e / {unique}")]
                .map(|spec| ask(&spec, AclStage::Rcpt));
        assert_eq!(plain.check().key, unique.check().key);
    }
}

#[test]
fn a_key_or_a_unique_event_is_given_once() {
    for (spec, unique, wanted) in [
        (
            "7 / 1h / per_rcp",
            None,
            "the key is given twice (it is an argument of its own, and \"per_rcp\" in",
        ),
        ("7 / 1h / a / b", None, "\"a/b\" in the spec is not an option"),
        ("7 / 1h / /", None, "the key is given twice"),
        (
            "7 / 1h / per_addr",
            Some(&b"x"[..]),
            "the unique event is given twice (by per_addr in the spec",
        ),
        ("7 / 1h / unique=", Some(b""), "the unique event is given twice (by unique= in the spec"),
    ] {
        for key in [&b"k"[..], b""] {
            let error =
                Spec::parse(spec.as_bytes()).unwrap().with_literal(key, unique).unwrap_err();
            assert!(error.to_string().contains(wanted), "{spec}: {error}");
            assert_eq!(error.limit_text(), Some(&b"7"[..]));
            assert_eq!(error.period_text(), Variable::Set(b"1h"));
        }
    }
    let nul = Spec::parse(b"7 / 1h").unwrap().with_literal(b"a\0b", None).unwrap_err();
    assert_eq!(*nul.fault(), Fault::Nul);
}
