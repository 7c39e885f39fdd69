//! The kinds of values that settings take: each with what it may be, how it is read from a
//! policy file, and its words.

use std::ops::RangeInclusive;

use toml::de::DeValue;

use super::amount;
use crate::engine::BlockTime;
use crate::policy::network::Cidr;
use crate::policy::value::{DomainPattern, Grade, Template, UnitText, When, list};
use crate::policy::word::{Field, State, Unit, Verdict, Word};
use crate::text;
use crate::toml_file::diagnostic::{allowed_instead, similar};
use crate::toml_file::reader::{Reader, Value};

/// What is read before, and other settings depend on.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::policy) struct Context {
    /// `[identity]` says which clients are relays.
    pub(in crate::policy) has_relays: bool,
}

/// A setting in words: what follows its name, and its value. Nothing if it is not set; several
/// if each entry is a setting of its own.
pub(in crate::policy) type Shown = Vec<(String, String)>;

/// One value, in words.
fn one(value: impl ToString) -> Shown {
    vec![(String::new(), value.to_string())]
}

/// Entries of which each is set or not.
fn each(entries: impl Iterator<Item = String>) -> Shown {
    entries.map(|entry| (format!(" {entry}"), "true".to_owned())).collect()
}

/// A kind of setting whose value is a `T`.
pub(in crate::policy) trait Kind<T> {
    /// What a policy file may say, for the reference.
    #[cfg(test)]
    fn takes(&self) -> String;

    /// Reads it. Where it is wrong, that is reported.
    fn parse(&self, reader: &mut Reader<'_>, value: Value<'_>, context: Context) -> Option<T>;

    /// The value in words.
    fn show(&self, value: &T) -> Shown;
}

/// As [`Kind::takes`], for the kind of a field of `G`.
#[cfg(test)]
pub(in crate::policy) fn takes<G, T>(kind: &impl Kind<T>, _: fn(&G) -> &T) -> String {
    kind.takes()
}

/// What may be missing.
impl<T, K: Kind<T>> Kind<Option<T>> for K {
    #[cfg(test)]
    fn takes(&self) -> String {
        Kind::<T>::takes(self)
    }

    fn parse(
        &self,
        reader: &mut Reader<'_>,
        value: Value<'_>,
        context: Context,
    ) -> Option<Option<T>> {
        Kind::<T>::parse(self, reader, value, context).map(Some)
    }

    fn show(&self, value: &Option<T>) -> Shown {
        value.as_ref().map(|value| Kind::<T>::show(self, value)).unwrap_or_default()
    }
}

/// `true` or `false`.
pub(in crate::policy) struct Flag;

impl Kind<bool> for Flag {
    #[cfg(test)]
    fn takes(&self) -> String {
        "`true` or `false`".to_owned()
    }

    fn parse(&self, reader: &mut Reader<'_>, value: Value<'_>, _: Context) -> Option<bool> {
        reader.boolean(value)
    }

    fn show(&self, value: &bool) -> Shown {
        one(value)
    }
}

/// How many leading bits of an address count, at most so many.
pub(in crate::policy) struct Bits(pub(in crate::policy) u8);

impl Kind<u8> for Bits {
    #[cfg(test)]
    fn takes(&self) -> String {
        format!("a number from 0 to {}", self.0)
    }

    fn parse(&self, reader: &mut Reader<'_>, value: Value<'_>, _: Context) -> Option<u8> {
        reader.integer(value, 0..=self.0)
    }

    fn show(&self, value: &u8) -> Shown {
        one(value)
    }
}

/// A time, at most so many seconds.
pub(in crate::policy) struct Period {
    pub(in crate::policy) most: Option<f64>,
}

impl Kind<f64> for Period {
    #[cfg(test)]
    fn takes(&self) -> String {
        let most = self.most.map(|most| format!(" up to {}", text::period(most)));
        format!("a time{}, such as `\"30s\"`", most.unwrap_or_default())
    }

    fn parse(&self, reader: &mut Reader<'_>, value: Value<'_>, _: Context) -> Option<f64> {
        let text = reader.string(value, "\"30s\"")?;
        let period = amount::period(text).and_then(|period| match self.most {
            Some(most) if period > most => {
                Err(format!("{text:?} is too long: the longest is {:?}", text::period(most)))
            }
            _ => Ok(period),
        });
        period.map_err(|message| reader.error(value, message)).ok()
    }

    fn show(&self, value: &f64) -> Shown {
        one(text::period(*value))
    }
}

/// For how long somebody is blocked.
pub(in crate::policy) struct BlockFor;

/// Until somebody ends it.
const UNTIL_LIFTED: &str = "until-lifted";
/// The shortest block and the longest one with an end, in seconds.
const BLOCKED: RangeInclusive<f64> = 60.0..=315_360_000.0;

impl Kind<BlockTime> for BlockFor {
    #[cfg(test)]
    fn takes(&self) -> String {
        format!("a time from `1m` to `3650d`, such as `\"1d\"`, or `\"{UNTIL_LIFTED}\"`")
    }

    fn parse(&self, reader: &mut Reader<'_>, value: Value<'_>, _: Context) -> Option<BlockTime> {
        let text = reader.string(value, "\"1d\"")?;
        if text == UNTIL_LIFTED {
            return Some(BlockTime::UntilLifted);
        }
        let period = amount::period(text).and_then(|period| match BLOCKED.contains(&period) {
            true => Ok(period),
            false => Err(format!(
                "{text:?} is too short or too long: write a time from 1m to 3650d, or {UNTIL_LIFTED:?}"
            )),
        });
        period
            .map(|seconds| BlockTime::Seconds(seconds as u32))
            .map_err(|message| reader.error(value, message))
            .ok()
    }

    fn show(&self, value: &BlockTime) -> Shown {
        match value {
            BlockTime::Ignored | BlockTime::Kept => Shown::new(),
            BlockTime::Seconds(seconds) => one(text::period((*seconds).into())),
            BlockTime::UntilLifted => one(UNTIL_LIFTED),
        }
    }
}

/// Names of policies.
pub(in crate::policy) struct PolicyNames;

impl Kind<Vec<String>> for PolicyNames {
    #[cfg(test)]
    fn takes(&self) -> String {
        "an array of policies such as `\"outbound\"`".to_owned()
    }

    fn parse(&self, reader: &mut Reader<'_>, value: Value<'_>, _: Context) -> Option<Vec<String>> {
        reader.each(value, "[\"outbound\"]", |name| Ok::<_, String>(name.to_owned()))
    }

    fn show(&self, value: &Vec<String>) -> Shown {
        each(value.iter().map(|name| format!("{name:?}")))
    }
}

/// The text of a number, or a string.
pub(super) fn number_text(
    reader: &mut Reader<'_>,
    value: Value<'_>,
    example: &str,
) -> Option<String> {
    match value.get_ref() {
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().to_owned()),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        _ => reader.string(value, example).map(str::to_owned),
    }
}

/// How many leave at once.
pub(in crate::policy) struct Burst;

impl Kind<f64> for Burst {
    #[cfg(test)]
    fn takes(&self) -> String {
        "a number such as `10`".to_owned()
    }

    fn parse(&self, reader: &mut Reader<'_>, value: Value<'_>, _: Context) -> Option<f64> {
        let text = number_text(reader, value, "10")?;
        amount::burst(&text).map_err(|message| reader.error(value, message)).ok()
    }

    fn show(&self, value: &f64) -> Shown {
        one(value)
    }
}

/// A word of a closed set, which has this name in messages.
pub(in crate::policy) struct OneOf(pub(in crate::policy) &'static str);

/// Words, each as code.
#[cfg(test)]
fn code(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| format!("`{word}`")).collect()
}

impl<W: Word> Kind<W> for OneOf {
    #[cfg(test)]
    fn takes(&self) -> String {
        code(&W::words()).join(" or ")
    }

    fn parse(&self, reader: &mut Reader<'_>, value: Value<'_>, _: Context) -> Option<W> {
        reader.word(value, self.0)
    }

    fn show(&self, value: &W) -> Shown {
        one(value.word())
    }
}

/// The identity chain.
pub(in crate::policy) struct Chain;

impl Kind<Vec<Field>> for Chain {
    #[cfg(test)]
    fn takes(&self) -> String {
        let words: Vec<&str> =
            Field::ALL.iter().filter(|field| !field.is_of_recipient()).map(|f| f.word()).collect();
        format!("an array of {}", list(code(&words)))
    }

    fn parse(&self, reader: &mut Reader<'_>, value: Value<'_>, _: Context) -> Option<Vec<Field>> {
        let chain: Vec<Field> = reader.words(value, "identity")?;
        if chain.iter().any(|field| field.is_of_recipient()) {
            reader.error(value, "a recipient is not who sends; name it in the key of a policy: key = [\"recipient\"]");
        }
        Some(chain)
    }

    fn show(&self, value: &Vec<Field>) -> Shown {
        one(list(value.iter().map(|field| field.word())))
    }
}

/// What a policy counts instead of the identity.
pub(in crate::policy) struct Key;

impl Kind<Vec<Field>> for Key {
    #[cfg(test)]
    fn takes(&self) -> String {
        format!("an array of {}", list(code(&Field::words())))
    }

    fn parse(&self, reader: &mut Reader<'_>, value: Value<'_>, _: Context) -> Option<Vec<Field>> {
        reader.words(value, "field")
    }

    fn show(&self, value: &Vec<Field>) -> Shown {
        if value.is_empty() { Shown::new() } else { Chain.show(value) }
    }
}

/// Networks, one or several.
pub(in crate::policy) struct Networks;

impl Kind<Vec<Cidr>> for Networks {
    #[cfg(test)]
    fn takes(&self) -> String {
        "an array of networks such as `\"192.0.2.0/24\"`".to_owned()
    }

    fn parse(&self, reader: &mut Reader<'_>, value: Value<'_>, _: Context) -> Option<Vec<Cidr>> {
        reader.each(value, "[\"192.0.2.0/24\"]", amount::network)
    }

    fn show(&self, value: &Vec<Cidr>) -> Shown {
        each(value.iter().map(ToString::to_string))
    }
}

/// A domain.
pub(in crate::policy) struct Domain;

impl Kind<String> for Domain {
    #[cfg(test)]
    fn takes(&self) -> String {
        "a domain such as `\"example.org\"`".to_owned()
    }

    fn parse(&self, reader: &mut Reader<'_>, value: Value<'_>, _: Context) -> Option<String> {
        let text = reader.string(value, "\"example.org\"")?;
        amount::one_domain(text).map_err(|message| reader.error(value, message)).ok()
    }

    fn show(&self, value: &String) -> Shown {
        one(value)
    }
}

/// Domains, one or several.
pub(in crate::policy) struct Domains;

impl Kind<Vec<String>> for Domains {
    #[cfg(test)]
    fn takes(&self) -> String {
        "an array of domains such as `\"example.org\"`".to_owned()
    }

    fn parse(&self, reader: &mut Reader<'_>, value: Value<'_>, _: Context) -> Option<Vec<String>> {
        reader.each(value, "[\"example.org\"]", amount::one_domain)
    }

    fn show(&self, value: &Vec<String>) -> Shown {
        each(value.iter().map(|domain| format!("{domain:?}")))
    }
}

/// A URL.
pub(in crate::policy) struct Url;

impl Kind<String> for Url {
    #[cfg(test)]
    fn takes(&self) -> String {
        "a URL such as `\"https://ops.example/hook\"`".to_owned()
    }

    fn parse(&self, reader: &mut Reader<'_>, value: Value<'_>, _: Context) -> Option<String> {
        let url = reader.string(value, "\"https://ops.example/hook\"")?;
        let host = ["https://", "http://"].iter().find_map(|scheme| url.strip_prefix(scheme));
        let is_host = |host: &str| {
            !host.is_empty() && !host.starts_with('/') && !host.contains(char::is_whitespace)
        };
        if !host.is_some_and(is_host) {
            reader.error(value, "not a URL; expected such as https://ops.example/hook");
        }
        Some(url.to_owned())
    }

    fn show(&self, value: &String) -> Shown {
        one(value)
    }
}

/// A mail address.
pub(in crate::policy) struct MailAddress;

impl Kind<String> for MailAddress {
    #[cfg(test)]
    fn takes(&self) -> String {
        "an address such as `\"postmaster@example.org\"`".to_owned()
    }

    fn parse(&self, reader: &mut Reader<'_>, value: Value<'_>, _: Context) -> Option<String> {
        let address = reader.string(value, "\"postmaster@example.org\"")?;
        if let Err(message) = mail_address(address) {
            reader.error(value, message);
        }
        Some(address.to_owned())
    }

    fn show(&self, value: &String) -> Shown {
        one(value)
    }
}

/// Whether it is one mail address.
pub(super) fn mail_address(address: &str) -> Result<(), &'static str> {
    let is_one = address
        .split_once('@')
        .is_some_and(|(local, domain)| !local.is_empty() && amount::one_domain(domain).is_ok());
    let is_one = is_one && !address.contains(char::is_whitespace);
    is_one.then_some(()).ok_or("not one mail address; expected such as postmaster@example.org")
}

/// A program and its arguments.
pub(in crate::policy) struct Program;

/// A program and its arguments, as they are written.
const PROGRAM: &str = "[\"/usr/local/sbin/over\", \"{policy}\", \"{key}\"]";

impl Kind<Vec<Template>> for Program {
    #[cfg(test)]
    fn takes(&self) -> String {
        format!("an array such as `{PROGRAM}`")
    }

    fn parse(
        &self,
        reader: &mut Reader<'_>,
        value: Value<'_>,
        _: Context,
    ) -> Option<Vec<Template>> {
        let mut run = Vec::new();
        let words = reader.array(value, PROGRAM)?;
        if words.is_empty() {
            reader.error(value, format!("the array is empty; expected such as {PROGRAM}"));
        }
        for word in words.iter() {
            let Some(text) = reader.string(word, "\"{key}\"") else { continue };
            if run.is_empty() && (!text.starts_with('/') || text.contains('{')) {
                reader.error(word, format!("{text:?} is not the absolute path of a program"));
            }
            run.extend(template(reader, word, text));
        }
        Some(run)
    }

    fn show(&self, value: &Vec<Template>) -> Shown {
        let words: Vec<String> = value.iter().map(ToString::to_string).collect();
        if words.is_empty() { Shown::new() } else { one(format!("{words:?}")) }
    }
}

/// The reply to a client.
pub(in crate::policy) struct ReplyText;

impl Kind<Template> for ReplyText {
    #[cfg(test)]
    fn takes(&self) -> String {
        "a text such as `\"Over {limit} {unit} in {period}\"`".to_owned()
    }

    fn parse(&self, reader: &mut Reader<'_>, value: Value<'_>, _: Context) -> Option<Template> {
        let text = reader.string(value, "\"Over {limit} {unit} in {period}\"")?;
        if text.contains(['\r', '\n', '\0']) {
            reader.error(value, "a reply to the client is one line");
        }
        template(reader, value, text)
    }

    fn show(&self, value: &Template) -> Shown {
        one(value)
    }
}

/// Replies, each for the limits of one unit.
pub(in crate::policy) struct Replies;

impl Kind<Vec<UnitText>> for Replies {
    #[cfg(test)]
    fn takes(&self) -> String {
        "a table such as `{ message_size = \"At most {limit} bytes\" }`, of units".to_owned()
    }

    fn parse(
        &self,
        reader: &mut Reader<'_>,
        value: Value<'_>,
        context: Context,
    ) -> Option<Vec<UnitText>> {
        let table = reader.table(value, "{ message_size = \"At most {limit} bytes\" }")?;
        let mut texts = Vec::new();
        for (key, value) in table {
            match Unit::of(key.get_ref()) {
                Some(unit) => {
                    let text = ReplyText.parse(reader, value, context);
                    texts.extend(text.map(|text| UnitText { unit, text }));
                }
                None => reader.unknown_key(key, "in texts", &Unit::words()),
            }
        }
        Some(texts)
    }

    fn show(&self, value: &Vec<UnitText>) -> Shown {
        let entry = |one: &UnitText| (format!(" {}", one.unit.word()), one.text.to_string());
        value.iter().map(entry).collect()
    }
}

/// A text with placeholders, at `value`.
fn template(reader: &mut Reader<'_>, value: Value<'_>, text: &str) -> Option<Template> {
    amount::template(text).map_err(|message| reader.error(value, message)).ok()
}

/// A condition, or an array of which all must hold.
pub(in crate::policy) struct Conditions;

impl Kind<Vec<When>> for Conditions {
    #[cfg(test)]
    fn takes(&self) -> String {
        format!(
            "{}, or its opposite such as `!local`; or a table of {}; or an array of these",
            list(code(&State::words())),
            list(code(&When::WITH_VALUE))
        )
    }

    fn parse(
        &self,
        reader: &mut Reader<'_>,
        value: Value<'_>,
        context: Context,
    ) -> Option<Vec<When>> {
        let mut all = Vec::new();
        match value.get_ref() {
            DeValue::Array(array) => {
                array.iter().for_each(|value| condition(reader, value, context, &mut all));
            }
            _ => condition(reader, value, context, &mut all),
        }
        for (at, one) in all.iter().enumerate() {
            let When::Is { state, not } = *one else { continue };
            let opposite = When::Is { state, not: !not };
            if all.iter().skip(at + 1).any(|other| *other == opposite) {
                let [word, opposite] = [false, true].map(|not| When::Is { state, not }.to_string());
                reader.error(value, format!("{word:?} and {opposite:?} never hold together"));
            }
        }
        Some(all)
    }

    fn show(&self, value: &Vec<When>) -> Shown {
        let all: Vec<String> = value.iter().map(ToString::to_string).collect();
        one(if all.is_empty() { "always".to_owned() } else { all.join(" and ") })
    }
}

fn domains(reader: &mut Reader<'_>, value: Value<'_>) -> Vec<DomainPattern> {
    reader.each(value, "[\"example.org\"]", amount::domain).unwrap_or_default()
}

fn condition(reader: &mut Reader<'_>, value: Value<'_>, context: Context, all: &mut Vec<When>) {
    const CONDITIONS: &[&str] = &When::WITH_VALUE;
    let DeValue::Table(table) = value.get_ref() else {
        let example =
            "\"authenticated\", \"!local\" or a table such as { client = [\"192.0.2.0/24\"] }";
        let Some(text) = reader.string(value, example) else { return };
        let (word, not) = match text.strip_prefix('!') {
            Some(word) => (word, true),
            None => (text, false),
        };
        let Some(state) = State::of(word) else {
            let table = match similar(word, CONDITIONS.iter().copied()) {
                Some(known) => {
                    format!("; a condition with a value is a table: {{ {known} = [\"...\"] }}")
                }
                None => String::new(),
            };
            let instead = allowed_instead(word, &State::words());
            reader.error(value, format!("unknown condition {word:?}; {instead}{table}"));
            return;
        };
        if state == State::Relay && !context.has_relays {
            reader.error(
                value,
                "which clients are relays is missing: [identity] relay = [\"192.0.2.0/24\"]",
            );
        }
        if state == State::Always && not {
            reader.error(value, "\"!always\" never holds");
        }
        all.push(When::Is { state, not });
        return;
    };
    if table.is_empty() {
        reader.error(value, format!("no condition; allowed: {}", CONDITIONS.join(", ")));
    }
    for (key, value) in table {
        all.push(match key.get_ref().as_ref() {
            "client" => When::Client(Networks.parse(reader, value, context).unwrap_or_default()),
            "sender_domain" => When::SenderDomain(domains(reader, value)),
            "recipient_domain" => When::RecipientDomain(domains(reader, value)),
            _ => {
                reader.unknown_key(key, "in when", CONDITIONS);
                continue;
            }
        });
    }
}

/// `{ "80%" = "log", "100%" = "defer", "300%" = "reject" }`
pub(in crate::policy) struct Grades;

impl Kind<Vec<Grade>> for Grades {
    #[cfg(test)]
    fn takes(&self) -> String {
        format!("a table such as `{{ \"80%\" = \"log\" }}`, of {}", list(code(&Verdict::words())))
    }

    fn parse(&self, reader: &mut Reader<'_>, value: Value<'_>, _: Context) -> Option<Vec<Grade>> {
        let mut grades: Vec<Grade> = Vec::new();
        let table = reader.table(value, "{ \"80%\" = \"log\", \"100%\" = \"defer\" }")?;
        for (key, value) in table {
            let text = key.get_ref().trim();
            let percent = text.strip_suffix('%').map(str::trim_end);
            let percent = percent.filter(|p| p.bytes().all(|b| b.is_ascii_digit() || b == b'.'));
            let from = percent.and_then(|p| p.parse::<f64>().ok());
            let from = from.filter(|percent| (1.0..=1e6).contains(percent));
            let Some(from) = from.map(|percent| percent / 100.0) else {
                reader.error(key, format!("{text:?} is not a part of the limit; expected such as \"80%\", \"100%\" or \"300%\""));
                continue;
            };
            let at = reader.at(key);
            let Some(verdict) = reader.word::<Verdict>(value, "verdict") else { continue };
            if grades.iter().any(|grade| grade.from == from) {
                reader.error(key, format!("{text:?} is listed twice"));
            }
            grades.push(Grade { from, verdict, at });
        }
        grades.sort_by(|one, other| one.from.total_cmp(&other.from));
        if table.is_empty() {
            reader.error(value, "no verdict; expected such as { \"100%\" = \"defer\" }");
        }
        Some(grades)
    }

    fn show(&self, value: &Vec<Grade>) -> Shown {
        let percent = |grade: &Grade| format!(" {}%", grade.from * 100.0);
        value.iter().map(|grade| (percent(grade), grade.verdict.word().to_owned())).collect()
    }
}
