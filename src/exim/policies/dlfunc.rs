//! The entry points for `${dlfunc{…/exirate.so}{policy}{NAME}{ATTRIBUTE}…}`.

use super::call;
use crate::exim::host::boundary::{FunctionReply, entry_point};
use crate::exim::rates::dlfunc::{present, wants_one};
use crate::exim::rates::session::{CallError, SESSION, Session};
use crate::policy::word::Verdict;
use crate::sys::clock;
use std::ffi::CStr;

entry_point! {
    /// `${dlfunc{…}{policy}{NAME}{ATTRIBUTE}…}`: what the policy NAME makes of this
    /// event: `accept`, `log`, `delay`, `hold`, `defer` or `reject`. NAME may be several
    /// names with commas between them, or `*` for all policies: they are evaluated in that
    /// order (all of them by name) until one refuses the event, and the strictest verdict
    /// is returned.
    ///
    /// Login, client, sender, recipient and size are read from Exim. The event is
    /// counted as the stage has it: a recipient in the ACL for RCPT, a message once, and
    /// so on. An ATTRIBUTE is `package=TEXT`, `script=TEXT`, `on_error=WORD`, `refused=yes`,
    /// `at=delivery` or `age=SECONDS`; the text is taken literally. With `refused=yes`, the recipient
    /// of this RCPT has been refused. With `at=delivery`, in a router, the policies are evaluated that
    /// are `at = "delivery"`, of a message that is so many seconds old; without, all others.
    ///
    /// Where the policy cannot be evaluated (there is no such policy, no image, or no
    /// database), the policy's `on_error` decides, or that of the call: `fail-open` returns
    /// `accept`, which is the default, and `fail-closed` returns `defer`. The error is logged in the main
    /// log, once a process, and `policy_info` has it. A wrong ATTRIBUTE fails the
    /// expansion, so that Exim defers the client's command.
    policy => SESSION.call(c"accept", |session, _, arguments| {
        Ok(FunctionReply::Word(word(verdict(session, "policy", arguments)?)))
    })
}

/// The word that Exim reads.
pub(in crate::exim) fn word(verdict: Verdict) -> &'static CStr {
    match verdict {
        Verdict::Accept => c"accept",
        Verdict::Log => c"log",
        Verdict::Delay => c"delay",
        Verdict::Hold => c"hold",
        Verdict::Defer => c"defer",
        Verdict::Reject => c"reject",
    }
}

entry_point! {
    /// `${dlfunc{…}{policy_over}{NAME}{ATTRIBUTE}…}`: `yes` where [`policy`] returns
    /// `defer` or `reject`, else `no`; for `condition =`.
    policy_over => SESSION.call(c"no", |session, _, arguments| {
        Ok((verdict(session, "policy_over", arguments)? >= Verdict::Defer).into())
    })
}

entry_point! {
    /// `${dlfunc{…}{policy_info}{FIELD}}`: one field of the latest call of [`policy`] or
    /// [`policy_over`] in this process.
    ///
    /// | FIELD | text |
    /// |---|---|
    /// | `verdict` | what [`policy`] returned |
    /// | `text` | the reply to the client; empty if the verdict is `accept`; tainted |
    /// | `policy`, `rule` | the policy; the table that the limit is from, such as `user news@example.org` |
    /// | `window`, `unit` | the limit that decided, as written (of a bucket, its rate); what it counts |
    /// | `key` | who is counted, such as `auth:alice@example.org`; tainted |
    /// | `rate`, `limit` | the rate (of a bucket, the level) and the limit (the burst) |
    /// | `remaining` | how many more would pass right now, or `unlimited` |
    /// | `retry_after` | whole seconds until one more would pass, or `never` |
    /// | `delay` | seconds to wait if the verdict is `delay`, else 0 |
    /// | `score` | `2·tanh(rate/(2·limit))`: 0 to 2, with three decimals |
    /// | `crossed` | `yes` if a record was over its limit for the first time in a period |
    /// | `observed`, `exempt` | whether the event was only measured; whether an exemption is why |
    /// | `measured` | the verdict without exemptions, of a policy that is enforced |
    /// | `explain` | the verdict and its reason in a line for people; tainted |
    /// | `error` | why the policy could not be evaluated; empty if it could |
    /// | `route` | of a call with `at=delivery`: `defer: …` or `fail: …` if the recipient is not to be routed on, else empty; tainted |
    policy_info => SESSION.call(c"0", |session, buffer, arguments| match arguments {
        [field] => {
            let field = call::field(&session.policies, field, clock::now().into())?;
            present(&session.host, buffer, &field)
        }
        _ => Err(wants_one("policy_info", "FIELD", arguments.len())),
    })
}

fn verdict(
    session: &mut Session,
    function: &str,
    arguments: &[&[u8]],
) -> Result<Verdict, CallError> {
    match arguments {
        [name, attributes @ ..] => session.policy(name, attributes),
        [] => {
            let text = format!(
                "{function} takes the name of a policy, and attributes, but no argument was given \
                 (write ${{dlfunc{{FILE}}{{{function}}}{{NAME}}{{package=TEXT}}}})"
            );
            Err(CallError::Usage(text.into()))
        }
    }
}
