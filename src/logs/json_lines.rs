//! Lines that are JSON: of `journalctl --output=json`, and of the files in which docker keeps
//! what containers write. They are read as what syslog would have written.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;

use crate::rate::Timestamp;
use crate::text;

/// What is read of such a line.
#[derive(Deserialize)]
struct LineFields<'a> {
    /// docker's.
    #[serde(borrow)]
    log: Option<Cow<'a, str>>,
    #[serde(borrow)]
    time: Option<Cow<'a, str>>,
    /// The journal's.
    #[serde(rename = "MESSAGE")]
    message: Option<Value>,
    #[serde(rename = "__REALTIME_TIMESTAMP", borrow)]
    micros: Option<Cow<'a, str>>,
    #[serde(rename = "__CURSOR", borrow)]
    cursor: Option<Cow<'a, str>>,
    #[serde(rename = "_HOSTNAME")]
    host: Option<Value>,
    #[serde(rename = "SYSLOG_IDENTIFIER")]
    program: Option<Value>,
    #[serde(rename = "SYSLOG_PID")]
    syslog_pid: Option<Value>,
    #[serde(rename = "_PID")]
    pid: Option<Value>,
    /// Of a container.
    #[serde(rename = "CONTAINER_NAME")]
    container: Option<Value>,
}

/// A line as syslog would have written it, and the cursor of an entry of the journal.
pub(super) struct JsonLine {
    /// The line.
    pub(super) text: String,
    /// The entry's.
    pub(super) cursor: Option<String>,
}

/// Reads a line that begins with `{`. `None` if it is none of these.
pub(super) fn read(line: &str) -> Option<JsonLine> {
    let entry: LineFields<'_> = serde_json::from_str(line).ok()?;
    let cursor = entry.cursor.map(Cow::into_owned);
    if let (Some(log), Some(time)) = (&entry.log, &entry.time) {
        return Some(JsonLine { text: format!("{time} {}", log.trim_end()), cursor });
    }
    let micros: i64 = entry.micros?.parse().ok()?;
    let at = text::iso_exact(Timestamp::from_micros(micros));
    let message = value(&entry.message?)?.replace(['\n', '\r'], " ");
    // What a container writes has a name and a process of its own, or the time of Exim.
    if entry.container.is_some() {
        return Some(JsonLine { text: format!("{at} {message}"), cursor });
    }
    let word = |one: &Option<Value>| {
        let text = one.as_ref().and_then(value)?;
        (!text.is_empty()).then(|| text.replace(char::is_whitespace, "_"))
    };
    let host = word(&entry.host).unwrap_or_else(|| "-".to_owned());
    let program = word(&entry.program).unwrap_or_else(|| "-".to_owned());
    let pid = word(&entry.syslog_pid).or_else(|| word(&entry.pid));
    let pid = pid.map_or_else(String::new, |pid| format!("[{pid}]"));
    Some(JsonLine { text: format!("{at} {host} {program}{pid}: {message}"), cursor })
}

/// A text; of one that is not UTF-8, the journal has its bytes.
fn value(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(bytes) => {
            let byte = |one: &Value| one.as_u64().and_then(|byte| u8::try_from(byte).ok());
            let bytes: Option<Vec<u8>> = bytes.iter().map(byte).collect();
            Some(String::from_utf8_lossy(&bytes?).into_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_journal_and_of_docker_become_lines_of_syslog() {
        for (json, expected) in [
            (
                r#"{"__CURSOR":"s=1","__REALTIME_TIMESTAMP":"1795175437250123","_HOSTNAME":"mx","SYSLOG_IDENTIFIER":"postfix/smtpd","_PID":"7","MESSAGE":"x y"}"#,
                Some("2026-11-20T11:50:37.250123Z mx postfix/smtpd[7]: x y"),
            ),
            (
                r#"{"__REALTIME_TIMESTAMP":"1795175437250123","_HOSTNAME":"mx","SYSLOG_IDENTIFIER":"exim","SYSLOG_PID":"8","_PID":"7","MESSAGE":[120,10,255]}"#,
                Some("2026-11-20T11:50:37.250123Z mx exim[8]: x \u{fffd}"),
            ),
            (
                r#"{"log":"Nov 20 11:50:37 mx postfix/smtpd[7]: x\n","stream":"stdout","time":"2026-11-20T11:50:37.25Z"}"#,
                Some("2026-11-20T11:50:37.25Z Nov 20 11:50:37 mx postfix/smtpd[7]: x"),
            ),
            (r#"{"MESSAGE":"x"}"#, None),
            (r#"{"x":1}"#, None),
            ("{", None),
        ] {
            assert_eq!(read(json).map(|line| line.text).as_deref(), expected, "{json}");
        }
    }
}
