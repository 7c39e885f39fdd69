//! An independent implementation of the rules of a spec, written from the
//! manual instead of the code, one byte at a time.

use exirate::spec::{AclStage, Context, Mode, Scope, SpecRequest, Update};

/// A parsed spec.
pub struct Reading {
    limit: Number,
    period_text: Vec<u8>,
    period: f64,
    mode: Option<Mode>,
    update: Option<Update>,
    noupdate: bool,
    count: Option<Number>,
    /// Whether the value of an earlier `count=` may be invalid.
    count_is_uncertain: bool,
    count_is_last: bool,
    unique: Option<Option<Vec<u8>>>,
    key: Option<Vec<u8>>,
}

/// A number in plain notation; C accepts more notations than this.
#[derive(Clone, Copy)]
enum Number {
    CachedSpec(f64),
    Unknown,
}

impl Number {
    fn of(text: &[u8], suffixes: bool) -> Self {
        let text = String::from_utf8_lossy(text);
        let (digits, factor) = match text.char_indices().next_back() {
            Some((at, 'k' | 'K')) if suffixes => (&text[..at], 1024.0),
            Some((at, 'm' | 'M')) if suffixes => (&text[..at], 1024.0 * 1024.0),
            Some((at, 'g' | 'G')) if suffixes => (&text[..at], 1024.0 * 1024.0 * 1024.0),
            _ => (&*text, 1.0),
        };
        let plain = digits.bytes().all(|b| b.is_ascii_digit() || b == b'.')
            && digits.bytes().any(|b| b.is_ascii_digit());
        match digits.parse::<f64>() {
            Ok(number) if plain => Self::CachedSpec(number * factor),
            _ => Self::Unknown,
        }
    }

    fn or(self, other: f64) -> f64 {
        match self {
            Self::CachedSpec(number) => number,
            Self::Unknown => other,
        }
    }
}

impl Reading {
    /// Parses `text`; `None` if it is certainly invalid.
    pub fn of(text: &[u8]) -> Option<Self> {
        if text.len() > exirate::spec::MAX_LEN {
            return None;
        }
        let mut items = items(text).into_iter();
        let limit = Number::of(&items.next()?, true);
        let period_text = items.next()?;
        let period = period(&period_text)?;
        let mut reading = Self {
            limit,
            period_text,
            period,
            mode: None,
            update: None,
            noupdate: false,
            count: None,
            count_is_uncertain: false,
            count_is_last: false,
            unique: None,
            key: None,
        };
        items.try_for_each(|item| reading.option(item))?;
        Some(reading)
    }

    fn option(&mut self, item: Vec<u8>) -> Option<()> {
        let word = item.to_ascii_lowercase();
        let mode = match &*word {
            b"per_mail" => Some(Mode::PerMail),
            b"per_rcpt" => Some(Mode::PerRcpt),
            b"per_addr" => Some(Mode::PerAddr),
            b"per_conn" => Some(Mode::PerConn),
            b"per_cmd" => Some(Mode::PerCmd),
            b"per_byte" => Some(Mode::PerByte),
            _ => None,
        };
        let update = match &*word {
            b"leaky" => Some(Update::Leaky),
            b"strict" => Some(Update::Strict),
            b"readonly" => Some(Update::ReadOnly),
            _ => None,
        };
        if mode.is_some() {
            if self.mode.is_some() {
                return None;
            }
            self.mode = mode;
            self.count_is_last = false;
            if mode == Some(Mode::PerAddr) {
                self.unique = Some(None);
            }
        } else if update.is_some() {
            if self.update.is_some() && self.update != update {
                return None;
            }
            self.update = update;
        } else if word == b"noupdate" {
            self.noupdate = true;
        } else if word.starts_with(b"count=") {
            let count = Number::of(&item[6..], false);
            self.count_is_uncertain |= matches!(count, Number::Unknown);
            self.count = Some(count);
            self.count_is_last = true;
        } else if word.starts_with(b"unique=") {
            self.unique = Some(Some(item[7..].to_vec()));
        } else if let Some(key) = &mut self.key {
            key.push(b'/');
            key.extend(item);
        } else {
            self.key = Some(item);
        }
        Some(())
    }

    pub fn limit_is_known(&self) -> bool {
        matches!(self.limit, Number::CachedSpec(_))
    }

    pub fn count_is_known(&self) -> bool {
        !matches!(self.count, Some(Number::Unknown))
    }

    /// Whether a number is in a notation that this does not support, so that it
    /// may be invalid.
    pub fn is_uncertain(&self) -> bool {
        !self.limit_is_known() || self.count_is_uncertain
    }

    /// The request in this context; `None` if it is not allowed.
    pub fn request(&self, context: &Context<'_>) -> Option<SpecRequest> {
        let stage = context.stage;
        let mode = self.mode.unwrap_or(Mode::PerMail);
        let in_place = self.mode.is_none() || counts(stage, mode);
        let update = match (self.noupdate, in_place, self.update) {
            (true, ..) => Update::ReadOnly,
            (false, false, Some(Update::Leaky | Update::Strict)) => return None,
            (false, false, _) => Update::ReadOnly,
            (false, true, update) => update.unwrap_or(Update::Leaky),
        };
        let readonly = update == Update::ReadOnly;
        let batch = mode == Mode::PerRcpt && has_recipients(stage);
        let written = self.count.map_or(1.0, |number| number.or(1.0));
        let count = if readonly {
            0.0
        } else if self.count_is_last {
            written
        } else if batch {
            f64::from(context.recipients)
        } else if mode == Mode::PerByte {
            context.message_size.unwrap_or(0) as f64
        } else {
            written
        };
        let address = [context.local_part, context.domain].join(&b'@');
        let unique = self.unique.as_ref().map(|text| match text {
            Some(text) => text.clone(),
            None if in_place => address,
            None => b"*".to_vec(),
        });
        let scope = if stage == AclStage::Outside {
            Scope::Evaluation
        } else if readonly || matches!(mode, Mode::PerAddr | Mode::PerCmd) {
            Scope::Command
        } else if mode == Mode::PerConn {
            Scope::Connection
        } else if mode == Mode::PerRcpt && !batch {
            Scope::Command
        } else {
            Scope::Message
        };
        let filed: &[u8] = match mode {
            Mode::PerMail | Mode::PerByte => b"per_mail",
            Mode::PerRcpt | Mode::PerAddr => b"per_rcpt",
            Mode::PerConn => b"per_conn",
            Mode::PerCmd => b"per_cmd",
        };
        let mut parts = vec![&*self.period_text, filed];
        parts.extend(unique.is_some().then_some(&b"unique"[..]));
        let key_start = parts.iter().map(|part| part.len() + 1).sum();
        parts.push(self.key.as_deref().or(context.host_address).unwrap_or_default());
        let key = parts.join(&b'/');
        if key.len() > 65_535 {
            return None;
        }
        let (limit, period) = (self.limit.or(0.0), self.period);
        Some(SpecRequest { key, key_start, limit, period, mode, update, count, unique, scope })
    }
}

/// The stages at which all recipients are known.
fn has_recipients(stage: AclStage) -> bool {
    [
        AclStage::Predata,
        AclStage::Mime,
        AclStage::Dkim,
        AclStage::Data,
        AclStage::Prdr,
        AclStage::NotSmtp,
    ]
    .contains(&stage)
}

/// The stages at which an explicit mode can count.
fn counts(stage: AclStage, mode: Mode) -> bool {
    if stage == AclStage::Outside {
        return true;
    }
    match mode {
        Mode::PerCmd => true,
        Mode::PerAddr => stage == AclStage::Rcpt,
        Mode::PerConn => stage != AclStage::NotSmtp && stage != AclStage::NotSmtpStart,
        Mode::PerRcpt => stage == AclStage::Rcpt || has_recipients(stage),
        Mode::PerMail | Mode::PerByte => {
            stage == AclStage::Rcpt || stage == AclStage::Mail || has_recipients(stage)
        }
    }
}

fn blank(byte: u8) -> bool {
    b" \t\n\x0b\x0c\r".contains(&byte)
}

/// The items of a slash list, by index.
fn items(text: &[u8]) -> Vec<Vec<u8>> {
    let slash = |at: usize| text.get(at) == Some(&b'/');
    let (mut found, mut at) = (Vec::new(), 0);
    loop {
        while text.get(at).is_some_and(|&byte| blank(byte)) {
            at += 1;
        }
        if at >= text.len() {
            return found;
        }
        let mut item = Vec::new();
        while at < text.len() {
            if slash(at) {
                at += 1;
                if !slash(at) {
                    break;
                }
            }
            item.push(text[at]);
            at += 1;
        }
        while item.last().is_some_and(|&byte| blank(byte))
            && !(item.len() > 1 && item[item.len() - 2] == b'\\')
        {
            item.pop();
        }
        found.push(item);
    }
}

/// The seconds of an interval; a bare number means seconds.
fn period(text: &[u8]) -> Option<f64> {
    let (mut total, mut value) = (0_u128, None);
    for &byte in text {
        let unit = match byte {
            b'0'..=b'9' => {
                let digit = u128::from(byte - b'0');
                value = Some((value.unwrap_or(0) * 10 + digit).min(1 << 40));
                continue;
            }
            b'w' => 604_800,
            b'd' => 86_400,
            b'h' => 3600,
            b'm' => 60,
            b's' => 1,
            _ => return None,
        };
        total += value.take()? * unit;
    }
    if let Some(value) = value {
        if !text.iter().all(u8::is_ascii_digit) {
            return None;
        }
        total = value;
    }
    (1..=0x7fff_ffff).contains(&total).then_some(total as f64)
}
