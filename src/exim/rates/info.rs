//! `ratelimit_info{FIELD}`: the latest decision of this process.

use super::session::CallError;
use crate::policy::check_info::{CHECK_FIELDS, CheckInfo};
use crate::policy::info::Field;
use crate::policy::reply::Fields;
use crate::rate::Timestamp;

/// The field `name` of the latest decision, as of `now`.
pub(in crate::exim) fn field<'a>(
    latest: Option<&'a CheckInfo>,
    asked: Option<&'a Fields>,
    name: &[u8],
    now: Timestamp,
) -> Result<Field<'a>, CallError> {
    let name = name.trim_ascii();
    let unknown = || unknown_field("ratelimit_info", name, CHECK_FIELDS);
    match latest {
        _ if asked.is_some() => asked.and_then(|asked| asked.field(name)).ok_or_else(unknown),
        Some(latest) => latest.field(name, now).ok_or_else(unknown),
        None if CHECK_FIELDS.split(", ").any(|field| field.as_bytes() == name) => {
            Err(CallError::Usage(
                "ratelimit_info: no rate has been computed in this process yet (it describes the \
                 latest call of ratelimit)"
                    .into(),
            ))
        }
        None => Err(unknown()),
    }
}

/// The error for a field that `function` does not have.
#[cold]
pub(in crate::exim) fn unknown_field(function: &str, name: &[u8], fields: &str) -> CallError {
    let name = name[..name.len().min(40)].escape_ascii();
    CallError::Usage(format!("{function}: unknown field \"{name}\" (one of: {fields})").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_fields() {
        let error =
            |name: &[u8]| field(None, None, name, Timestamp::default()).unwrap_err().to_string();
        assert_eq!(
            error(b"ra\nte"),
            "ratelimit_info: unknown field \"ra\\nte\" (one of: rate, limit, period, key, mode, \
             over, crossed, override, count, remaining, retry_after, explain)"
        );
        assert!(error(b"rate").contains("no rate has been computed in this process yet"));
    }
}
