//! The entry point for `${dlfunc{…/exirate.so}{identity}{FIELD}{TEXT}}`.

use crate::exim::host::boundary::{FunctionReply, entry_point};
use crate::exim::host::directory;
use crate::exim::rates::session::{CallError, SESSION, Session};
use crate::identity::Field;

entry_point! {
    /// `${dlfunc{…}{identity}{FIELD}{TEXT}}`: TEXT as the policies in use count it in FIELD, for
    /// the KEY of [`super::dlfunc::ratelimit`]: without policies, in lower case, without blanks and
    /// dots at its end, and for `client` the network of an IPv6 address.
    ///
    /// FIELD is `auth` for a login, `client` for an address, or another field of policies. It
    /// is tainted if TEXT is. Where nothing would be left, TEXT is returned.
    identity => SESSION.call(c"", |session, _, arguments| match arguments {
        [field, text] => session.identity(field, text),
        _ => Err(wrong_count(arguments.len())),
    })
}

fn wrong_count(given: usize) -> CallError {
    let text = format!(
        "identity takes two arguments, FIELD and TEXT, but {given} were given (write \
         ${{dlfunc{{FILE}}{{identity}}{{auth}}{{$authenticated_id}}}})"
    );
    CallError::Usage(text.into())
}

impl Session {
    fn identity(&mut self, field: &[u8], text: &[u8]) -> Result<FunctionReply, CallError> {
        let field = field.trim_ascii();
        let field = Field::of(field).ok_or_else(|| {
            let known: Vec<&str> = Field::ALL.iter().map(|field| field.word()).collect();
            let field = field[..field.len().min(40)].escape_ascii();
            let known = known.join(", ");
            CallError::Usage(format!("identity: \"{field}\" is not one of {known}").into())
        })?;
        let Self { host, variables, identities, .. } = self;
        // Without a directory there are no policies.
        identities.look_for_policies(|| directory::spool(host, variables).ok());
        let lossy = String::from_utf8_lossy(text);
        let folded = self.identities.fold(field, &lossy);
        // Most are folded: Exim copies its own text then, which is followed by a NUL.
        if folded.as_bytes() == text {
            return Ok(FunctionReply::Exims(text.as_ptr().cast()));
        }
        let copy = self.host.tainted_copy(folded.as_bytes()).map(FunctionReply::Exims);
        copy.ok_or(CallError::Usage(
            "this program does not export store_get_3, so there is no memory for tainted text"
                .into(),
        ))
    }
}
