//! Any text as a spec, at any ACL stage: no panic, and the request equals that
//! of an independent implementation of the rules.
//!
//! The input is a text, or several separated by a 1 byte; after the first 0
//! byte, if any, comes the context (see [`FuzzContext`]). A spec with a 0 byte
//! is tried separately.
#![no_main]

mod oracle;

use exirate::spec::{
    AclStage, Context, MAX_LEN, Spec, SpecCache, SpecError, SpecRequest, StoredKey,
};
use libfuzzer_sys::fuzz_target;
use oracle::Reading;

/// Every ACL stage.
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

/// The context: four numbers, then the client, the local part and the domain,
/// separated by a 1 byte.
struct FuzzContext<'a>(Context<'a>);

impl<'a> FuzzContext<'a> {
    fn read(bytes: &'a [u8]) -> Self {
        let number = |at: usize| bytes.get(at).copied().unwrap_or(0);
        let mut texts = bytes.get(4..).unwrap_or_default().split(|&byte| byte == 1);
        let mut text = || texts.next().unwrap_or_default();
        Self(Context {
            stage: STAGES[usize::from(number(0)) % STAGES.len()],
            host_address: (number(1) & 1 == 0).then(&mut text),
            recipients: u32::from(number(2)),
            message_size: (number(1) & 2 == 0).then(|| u64::from(number(3)) * 1000),
            local_part: text(),
            domain: text(),
        })
    }
}

impl exirate::spec::ContextSource for FuzzContext<'_> {
    fn context(&self, stage: AclStage) -> Context<'_> {
        Context { stage, ..self.0 }
    }
}

fuzz_target!(|data: &[u8]| {
    let end = data.iter().position(|&byte| byte == 0).unwrap_or(data.len());
    let (texts, known) = data.split_at(end);
    let known = known.get(1..).unwrap_or_default();
    if end < data.len() {
        assert!(Spec::parse(data).is_err(), "a NUL byte was accepted");
    }
    let texts: Vec<&[u8]> = texts.split(|&byte| byte == 1).collect();
    let mut memo = SpecCache::default();
    for round in 0..3 {
        for text in &texts {
            let plain = Spec::parse(text);
            if round == 0 {
                consistent(text, &plain);
            }
            for step in 0..2 {
                let mut context = FuzzContext::read(known);
                // Two stages alternately, with other recipients each time.
                let stage = STAGES[(stage_of(&context) + step) % STAGES.len()];
                context.0.stage = stage;
                context.0.recipients += round;
                let expected = match &plain {
                    Ok(spec) => spec.request(&context.0),
                    Err(error) => Err(error.clone()),
                };
                if round == 0 {
                    as_read_again(text, &context.0, &expected);
                }
                remembered(&mut memo, text, context, &expected);
            }
        }
    }
});

fn stage_of(context: &FuzzContext<'_>) -> usize {
    STAGES.iter().position(|&stage| stage == context.0.stage).unwrap()
}

/// Properties of a spec at every stage.
fn consistent(text: &[u8], plain: &Result<Spec<'_>, SpecError>) {
    match plain {
        Ok(spec) => {
            assert!(text.len() <= MAX_LEN);
            assert_eq!(spec.clone().into_owned(), *spec);
            assert_eq!(spec.lints(), spec.clone().into_owned().lints());
            for lint in spec.lints() {
                one_line(&lint.to_string());
            }
        }
        Err(error) => one_line(&error.to_string()),
    }
}

/// Log lines are printable and of limited length.
fn one_line(text: &str) {
    assert!(text.len() < 2000, "{} bytes of text", text.len());
    assert!(text.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{text:?}");
}

/// The request equals that of the [`oracle`].
fn as_read_again(text: &[u8], context: &Context<'_>, found: &Result<SpecRequest, SpecError>) {
    let reading = Reading::of(text);
    let expected = reading.as_ref().and_then(|reading| reading.request(context));
    match (found, expected) {
        (Ok(found), Some(mut expected)) => {
            let reading = reading.unwrap();
            assert!(found.limit >= 0.0 && found.count >= 0.0 && found.period > 0.0);
            // If the oracle cannot read a number, any number is accepted.
            if !reading.limit_is_known() {
                expected.limit = found.limit;
            }
            if !reading.count_is_known() {
                expected.count = found.count;
            }
            assert_eq!(*found, expected, "{}", text.escape_ascii());
            // A stored key can be parsed.
            let filed = StoredKey::parse(&found.key).unwrap();
            assert_eq!(filed.period_seconds(), Some(found.period));
            assert!(found.key.ends_with(filed.key));
        }
        (Err(error), Some(_)) => {
            assert!(reading.unwrap().is_uncertain(), "{}: {error}", text.escape_ascii());
        }
        (Ok(found), None) => panic!("{}: {found:?}", text.escape_ascii()),
        (Err(_), None) => {}
    }
}

/// A cache returns the same as without it, also while an earlier request is in
/// use.
fn remembered(
    memo: &mut SpecCache,
    text: &[u8],
    context: FuzzContext<'_>,
    expected: &Result<SpecRequest, SpecError>,
) {
    let stage = context.0.stage;
    let found = memo.parse(text).and_then(|known| memo.request(&known, stage, || context));
    match (found, expected) {
        (Ok(found), Ok(expected)) => assert_eq!(*found, *expected),
        (Err(found), Err(expected)) => assert_eq!(found, *expected),
        (found, expected) => panic!("{}: {found:?}, {expected:?}", text.escape_ascii()),
    }
}
