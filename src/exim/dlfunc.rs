//! The entry points for `${dlfunc{…/exirate.so}{FUNCTION}{ARGUMENT}…}`.

use super::abi::Uschar;
use super::boundary::{Answer, answer, answer_or_no};
use super::host::Host;
use super::info::{self, Field};
use super::session::{CallError, Session};
use super::text::Buffer;
use crate::spec::SpecArguments;
use crate::sys::clock;
use std::ffi::c_int;

/// `${dlfunc{…}{ratelimit}{SPEC}{KEY}{UNIQUE}}`: `yes` where the sender is at or
/// over the limit of SPEC, `no` where it is under.
///
/// SPEC is `m / p / options`. KEY names what is counted, and UNIQUE is the text of
/// an event that counts at most once a period, as `unique=` has it. Both are
/// taken as they are and never parsed, so text that a client sent is safe
/// there. An empty KEY is `$sender_host_address`; an empty UNIQUE is an event like
/// any other. UNIQUE may be left out, and so may KEY: then SPEC is `m / p / options
/// / key`, as for Exim's own `ratelimit` condition. That form is for keys that no
/// client can choose: within it a client's text may hold options, such as
/// `noupdate`, and so switch the limit off.
///
/// `$sender_rate`, `$sender_rate_limit` and `$sender_rate_period` are set. A
/// wrong SPEC or an unusable database fails the expansion, and so defers the
/// command that Exim is answering.
///
/// # Safety
/// To be called by Exim as a dlfunc: `yield_` and `argv` as `local_scan.h`
/// describes them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ratelimit(
    yield_: *mut *const Uschar,
    argc: c_int,
    argv: *const *const Uschar,
) -> c_int {
    // SAFETY: what Exim hands over is passed on.
    unsafe { answer(yield_, argc, argv, check) }
}

/// `${dlfunc{…}{ratelimit_or_no}{SPEC}{KEY}{UNIQUE}}`: as [`ratelimit`], but `no`
/// where that would fail, whatever the reason; the main log has the reason, once
/// a process. For lines that only measure or log, and so must not defer mail.
///
/// # Safety
/// As for [`ratelimit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ratelimit_or_no(
    yield_: *mut *const Uschar,
    argc: c_int,
    argv: *const *const Uschar,
) -> c_int {
    // SAFETY: what Exim hands over is passed on.
    unsafe { answer_or_no("ratelimit_or_no", yield_, argc, argv, check) }
}

/// `${dlfunc{…}{ratelimit_all}{KEY}{SPEC}{SPEC}…}`: `yes` where the sender is at
/// or over the limit of any of one to seven SPECs, `no` where it is under all.
///
/// All are one event of KEY, which is taken as it is; an empty one is
/// `$sender_host_address`. The event is decided in one step: where any leaky SPEC
/// is over, none of the leaky ones counts it; strict ones always do. Each SPEC has
/// the record that it has alone. `$sender_rate` and its companions, and
/// `ratelimit_info`, are those of the SPEC with the longest wait, of those that
/// are over if any is.
///
/// # Safety
/// As for [`ratelimit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ratelimit_all(
    yield_: *mut *const Uschar,
    argc: c_int,
    argv: *const *const Uschar,
) -> c_int {
    // SAFETY: what Exim hands over is passed on.
    unsafe {
        answer(yield_, argc, argv, |session, _, arguments| match arguments {
            [key, specs @ ..] if !specs.is_empty() => Ok(session.ratelimit_all(key, specs)?.into()),
            _ => Err(wants_specs(arguments.len())),
        })
    }
}

/// One check, as written.
fn check(session: &mut Session, _: &mut Buffer, arguments: &[&[u8]]) -> Result<Answer, CallError> {
    let (spec, key, unique) = match *arguments {
        [spec] => (spec, None, None),
        [spec, key] => (spec, Some(key), None),
        [spec, key, unique] => (spec, Some(key), Some(unique)),
        _ => return Err(wrong_count(arguments.len())),
    };
    Ok(session.ratelimit(SpecArguments { spec, key, unique })?.into())
}

/// `${dlfunc{…}{ratelimit_info}{FIELD}}`: about the latest decision in this
/// process.
///
/// | FIELD | text |
/// |---|---|
/// | `rate` | as `$sender_rate` |
/// | `limit`, `period` | as written |
/// | `key` | as written; tainted, as a client may have chosen it |
/// | `mode` | `per_mail` and so on |
/// | `over` | `yes` or `no` |
/// | `count` | what the event counted as |
/// | `remaining` | how many more events would pass right now, or `unlimited` |
/// | `retry_after` | whole seconds until one more would pass, or `never` |
///
/// # Safety
/// As for [`ratelimit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ratelimit_info(
    yield_: *mut *const Uschar,
    argc: c_int,
    argv: *const *const Uschar,
) -> c_int {
    // SAFETY: what Exim hands over is passed on.
    unsafe {
        answer(yield_, argc, argv, |session, buffer, arguments| match arguments {
            [field] => {
                let field = info::field(session.latest.as_ref(), field, clock::now().into())?;
                present(&session.host, buffer, &field)
            }
            _ => Err(wants_one("ratelimit_info", "FIELD", arguments.len())),
        })
    }
}

/// `${dlfunc{…}{record}{OPTIONS}}`, in the ACL of `acl_smtp_data` or
/// `acl_not_smtp`: keeps a digest of the message in the trace store; `yes` where
/// it is kept, `no` where it is not.
///
/// OPTIONS is a slash list such as `keep=90d / max_size=10G / scheme=hbf`; it may
/// be empty or left out. A message is kept once, however often this is called
/// for it. This never fails the expansion: what goes wrong is written to the main
/// log, once a message, and `exim -be` shows it.
///
/// # Safety
/// As for [`ratelimit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn record(
    yield_: *mut *const Uschar,
    argc: c_int,
    argv: *const *const Uschar,
) -> c_int {
    // SAFETY: what Exim hands over is passed on.
    unsafe { answer(yield_, argc, argv, |session, _, options| Ok(session.record(options).into())) }
}

/// `${dlfunc{…}{recorded}{TEXT}{OPTIONS}}`: `yes` where a message in the trace
/// store carried TEXT, `no` where none did.
///
/// OPTIONS, which may be left out, is a slash list: `since=7d` asks only about the
/// last seven days, `short=no` (or `yes`) answers so where TEXT is too short to
/// be told from others, which else is an error. So is an answer that would take
/// too long. The message that passes is found once it is recorded.
///
/// # Safety
/// As for [`ratelimit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recorded(
    yield_: *mut *const Uschar,
    argc: c_int,
    argv: *const *const Uschar,
) -> c_int {
    // SAFETY: what Exim hands over is passed on.
    unsafe { answer(yield_, argc, argv, |session, _, asked| Ok(session.recorded(asked)?.into())) }
}

/// `${dlfunc{…}{recorded_or_no}{TEXT}{OPTIONS}}`: as [`recorded`], but `no` where
/// that would fail, whatever the reason; the main log has the reason, once a
/// process. For lines that only log, and so must not defer mail.
///
/// # Safety
/// As for [`ratelimit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recorded_or_no(
    yield_: *mut *const Uschar,
    argc: c_int,
    argv: *const *const Uschar,
) -> c_int {
    // SAFETY: what Exim hands over is passed on.
    unsafe {
        answer_or_no("recorded_or_no", yield_, argc, argv, |session, _, asked| {
            Ok(session.recorded(asked)?.into())
        })
    }
}

fn wants_specs(given: usize) -> CallError {
    let text = format!(
        "ratelimit_all takes two to eight arguments, KEY and one to seven SPECs, but {given} were \
         given (write ${{dlfunc{{FILE}}{{ratelimit_all}}{{KEY}}{{SPEC}}{{SPEC}}}})"
    );
    CallError::Usage(text.into())
}

fn wrong_count(given: usize) -> CallError {
    let text = format!(
        "ratelimit takes one to three arguments, SPEC, KEY and UNIQUE, but {given} were given \
         (write ${{dlfunc{{FILE}}{{ratelimit}}{{SPEC}}{{KEY}}}})"
    );
    CallError::Usage(text.into())
}

fn wants_one(function: &str, argument: &str, given: usize) -> CallError {
    let text = format!(
        "{function} takes exactly one argument, {argument}, but {given} were given \
         (write ${{dlfunc{{FILE}}{{{function}}}{{{argument}}}}})"
    );
    CallError::Usage(text.into())
}

/// Puts a field into words.
fn present(host: &Host, buffer: &mut Buffer, field: &Field<'_>) -> Result<Answer, CallError> {
    match *field {
        Field::Rate(rate) => buffer.keep_rate(rate),
        Field::Whole(number) => buffer.keep_some(&format!("{number:.0}")),
        Field::Size(number) => buffer.keep_some(&number.to_string()),
        Field::Checked(text) if buffer.keep(text) => {}
        Field::Checked(text) | Field::Unchecked(text) => {
            let copy = host.tainted_copy(text).map(Answer::Exims);
            return copy.ok_or(CallError::Usage(
                "ratelimit_info: this program has no memory for text that a client may have \
                 chosen (store_get_3)"
                    .into(),
            ));
        }
    }
    Ok(Answer::Kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_without_its_argument_says_how_it_is_written() {
        assert_eq!(
            wants_one("f", "A", 8).to_string(),
            "f takes exactly one argument, A, but 8 were given (write ${dlfunc{FILE}{f}{A}})"
        );
    }
}
