//! The entry points for `${dlfunc{…/exirate.so}{FUNCTION}{ARGUMENT}…}`.

use super::info;
use super::session::{CallError, SESSION, Session};
use crate::exim::host::boundary::{FunctionReply, entry_point};
use crate::exim::host::exports::Host;
use crate::exim::host::text::Buffer;
use crate::policy::info::Field;
use crate::spec::SpecArguments;
use crate::sys::clock;

entry_point! {
    /// `${dlfunc{…}{ratelimit}{SPEC}{KEY}{UNIQUE}}`: `yes` where the sender is at or
    /// over the limit of SPEC, `no` where it is under.
    ///
    /// SPEC is `m / p / options`. KEY names what is counted, and UNIQUE is the text of
    /// an event that counts at most once a period, as `unique=` has it. Both are
    /// taken literally and never parsed, so text that a client sent is safe
    /// there. An empty KEY is `$sender_host_address`; an empty UNIQUE is an event like
    /// any other. UNIQUE may be left out, and so may KEY: then SPEC is `m / p / options
    /// / key`, as for Exim's own `ratelimit` condition. That form is for keys that no
    /// client can choose: within it a client's text may hold options, such as
    /// `noupdate`, and so switch the limit off.
    ///
    /// `$sender_rate`, `$sender_rate_limit` and `$sender_rate_period` are set. A
    /// wrong SPEC or an unusable database fails the expansion, so that Exim defers the
    /// client's command.
    ratelimit => SESSION.call(c"no", check)
}

entry_point! {
    /// `${dlfunc{…}{ratelimit_or_no}{SPEC}{KEY}{UNIQUE}}`: as [`ratelimit`], but `no`
    /// where that fails, for any reason; the reason is logged in the main log, once a
    /// process. For lines that only measure or log, and so must not defer mail.
    ratelimit_or_no => SESSION.call_or_no("ratelimit_or_no", check)
}

entry_point! {
    /// `${dlfunc{…}{ratelimit_all}{KEY}{SPEC}{SPEC}…}`: `yes` where the sender is at
    /// or over the limit of any of one to seven SPECs, `no` where it is under all.
    ///
    /// All are one event of KEY, which is taken literally; an empty one is
    /// `$sender_host_address`. The event is decided in one step: where any leaky SPEC
    /// is over, none of the leaky ones counts it; strict ones always do. Each SPEC has
    /// the record that it has alone. `$sender_rate` and its companions, and
    /// `ratelimit_info`, are those of the SPEC with the longest wait, of those that
    /// are over if any is.
    ratelimit_all => SESSION.call(c"no", |session, _, arguments| match arguments {
        [key, specs @ ..] if !specs.is_empty() => Ok(session.ratelimit_all(key, specs)?.into()),
        _ => Err(wants_specs(arguments.len())),
    })
}

/// One check of the arguments `{SPEC}{KEY}{UNIQUE}`.
fn check(
    session: &mut Session,
    _: &mut Buffer,
    arguments: &[&[u8]],
) -> Result<FunctionReply, CallError> {
    let (spec, key, unique) = match *arguments {
        [spec] => (spec, None, None),
        [spec, key] => (spec, Some(key), None),
        [spec, key, unique] => (spec, Some(key), Some(unique)),
        _ => return Err(wrong_count(arguments.len())),
    };
    Ok(session.ratelimit(SpecArguments { spec, key, unique })?.into())
}

entry_point! {
    /// `${dlfunc{…}{ratelimit_info}{FIELD}}`: one field of the latest decision in this
    /// process.
    ///
    /// | FIELD | text |
    /// |---|---|
    /// | `rate` | as `$sender_rate` |
    /// | `limit`, `period` | as written |
    /// | `key` | as written; tainted, because a client may have chosen it |
    /// | `mode` | `per_mail` and so on |
    /// | `over` | `yes` or `no` |
    /// | `crossed` | `yes` if this is the first over decision of its record for a period, else `no` |
    /// | `count` | what the event counted as |
    /// | `remaining` | how many more events would pass right now, or `unlimited` |
    /// | `retry_after` | whole seconds until one more would pass, or `never` |
    /// | `explain` | all that in a line for people; tainted |
    ratelimit_info => SESSION.call(c"0", |session, buffer, arguments| match arguments {
        [field] => {
            let (latest, asked) = (session.latest.as_ref(), session.asked.as_ref());
            let field = info::field(latest, asked, field, clock::now().into())?;
            present(&session.host, buffer, &field)
        }
        _ => Err(wants_one("ratelimit_info", "FIELD", arguments.len())),
    })
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

pub(in crate::exim) fn wants_one(function: &str, argument: &str, given: usize) -> CallError {
    let text = format!(
        "{function} takes exactly one argument, {argument}, but {given} were given \
         (write ${{dlfunc{{FILE}}{{{function}}}{{{argument}}}}})"
    );
    CallError::Usage(text.into())
}

/// Returns a field to Exim as text.
pub(in crate::exim) fn present(
    host: &Host,
    buffer: &mut Buffer,
    field: &Field<'_>,
) -> Result<FunctionReply, CallError> {
    match *field {
        Field::Made(ref text) => return present(host, buffer, &Field::Unchecked(text.as_bytes())),
        Field::Rate(rate) => buffer.keep_rate(rate),
        Field::Whole(number) => buffer.keep_some(&format!("{number:.0}")),
        Field::Size(number) => buffer.keep_some(&number.to_string()),
        Field::Score(score) => buffer.keep_some(&format!("{score:.3}")),
        Field::Checked(text) if buffer.keep(text) => {}
        Field::Checked(text) | Field::Unchecked(text) => {
            let copy = host.tainted_copy(text).map(FunctionReply::Exims);
            return copy.ok_or(CallError::Usage(
                "this program does not export store_get_3, so there is no \
                 memory for tainted text"
                    .into(),
            ));
        }
    }
    Ok(FunctionReply::Kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_without_its_argument_shows_how_to_write_it() {
        assert_eq!(
            wants_one("f", "A", 8).to_string(),
            "f takes exactly one argument, A, but 8 were given (write ${dlfunc{FILE}{f}{A}})"
        );
    }
}
