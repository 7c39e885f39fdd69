//! Reading those of Exim's variables that a decision needs.

use super::abi::{D_ACL, Uschar};
use super::exports::Host;
use super::table::Tables;
use std::borrow::Cow;
use std::ffi::{CStr, c_int, c_uint};
use std::ptr::NonNull;

/// A string variable of Exim's: a `uschar *`.
pub(in crate::exim) struct Text {
    address: Option<NonNull<*const Uschar>>,
    /// The expansion to use if its address is unknown.
    expansion: &'static CStr,
}

impl Text {
    /// Its current text; `None` if it is unset or empty.
    pub(in crate::exim) fn read(&self, host: &Host) -> Option<Cow<'_, [u8]>> {
        let Some(address) = self.address else {
            return host.expand(self.expansion).filter(|t| !t.is_empty()).map(Cow::Owned);
        };
        // SAFETY: the address is that of a `uschar *` of Exim's, by its symbol
        // or by its entry in a table that was checked; Exim keeps it NULL or
        // at a NUL-terminated string, and does not change it before we return.
        let text = unsafe {
            let text = address.read();
            if text.is_null() || *text == 0 {
                return None;
            }
            CStr::from_ptr(text)
        };
        Some(Cow::Borrowed(text.to_bytes()))
    }

    /// Whether it is set, and not empty.
    pub(in crate::exim) fn is_there(&self, host: &Host) -> bool {
        match self.address {
            // SAFETY: as for `read`.
            Some(address) => unsafe {
                let text = address.read();
                !text.is_null() && *text != 0
            },
            None => self.read(host).is_some(),
        }
    }

    /// Whether it is set, even if empty; `false` if its address is unknown.
    pub(in crate::exim) fn is_set(&self) -> bool {
        // SAFETY: as for `read`.
        self.address.is_some_and(|address| !unsafe { address.read() }.is_null())
    }
}

/// A number of Exim's: an `int`.
pub(in crate::exim) struct Number {
    address: Option<NonNull<c_int>>,
    expansion: &'static CStr,
}

impl Number {
    /// Its current value; `None` if it cannot be read.
    pub(in crate::exim) fn read(&self, host: &Host) -> Option<i64> {
        match self.address {
            // SAFETY: as for `Text::read`, of an `int`.
            Some(address) => Some(i64::from(unsafe { address.read() })),
            None => std::str::from_utf8(&host.expand(self.expansion)?).ok()?.trim().parse().ok(),
        }
    }
}

/// A flag of Exim's: a `BOOL`, an `int` in some versions and a byte in others; its
/// first byte has the value in both.
pub(in crate::exim) struct Flag(Option<NonNull<u8>>);

impl Flag {
    /// The exported flag `name`.
    pub(in crate::exim) fn find(source: &VariableSource<'_>, name: &CStr) -> Self {
        Self(source.symbol(name))
    }

    /// Whether it is set; `false` if it is not exported.
    pub(in crate::exim) fn read(&self) -> bool {
        // SAFETY: the address is that of an exported BOOL of Exim's.
        self.0.is_some_and(|flag| unsafe { flag.read() } != 0)
    }
}

/// The variables that are read.
pub(in crate::exim) struct Variables {
    pub(in crate::exim) domain: Text,
    pub(in crate::exim) local_part: Text,
    pub(in crate::exim) message_id: Text,
    pub(in crate::exim) notquit_reason: Text,
    pub(in crate::exim) received_protocol: Text,
    pub(in crate::exim) router_name: Text,
    pub(in crate::exim) sender_address: Text,
    pub(in crate::exim) sender_host_address: Text,
    pub(in crate::exim) smtp_command: Text,
    pub(in crate::exim) spool_directory: Text,
    pub(in crate::exim) transport_name: Text,
    pub(in crate::exim) message_size: Number,
    pub(in crate::exim) rcpt_count: Number,
    pub(in crate::exim) recipients_count: Number,
    pub(in crate::exim) smtp_batched_input: Flag,
    pub(in crate::exim) smtp_input: Flag,
    debug_selector: Option<NonNull<c_uint>>,
}

impl Variables {
    /// Finds them in the running program.
    pub(in crate::exim) fn find(source: &VariableSource<'_>) -> Self {
        Self {
            domain: source.text(c"deliver_domain", c"$domain"),
            local_part: source.text(c"deliver_localpart", c"$local_part"),
            message_id: source.text(c"message_id", c"$message_exim_id"),
            notquit_reason: source.text(c"smtp_notquit_reason", c"$smtp_notquit_reason"),
            received_protocol: source.text(c"received_protocol", c"$received_protocol"),
            router_name: source.text(c"router_name", c"$router_name"),
            sender_address: source.text(c"sender_address", c"$sender_address"),
            sender_host_address: source.text(c"sender_host_address", c"$sender_host_address"),
            smtp_command: source.text(c"smtp_cmd_buffer", c"$smtp_command"),
            spool_directory: source.text(c"spool_directory", c"$spool_directory"),
            transport_name: source.text(c"transport_name", c"$transport_name"),
            message_size: source.number(c"message_size", c"$message_size"),
            rcpt_count: source.number(c"rcpt_count", c"$rcpt_count"),
            recipients_count: source.number(c"recipients_count", c"$recipients_count"),
            smtp_batched_input: Flag::find(source, c"smtp_batched_input"),
            smtp_input: Flag::find(source, c"smtp_input"),
            debug_selector: source.symbol(c"debug_selector"),
        }
    }

    /// Whether the user id that this expands to is root's or that of Exim's own user, which only
    /// Exim knows: it no longer runs as root here.
    #[cold]
    pub(in crate::exim) fn is_system(host: &Host, user: &CStr) -> bool {
        host.expand(user).is_some_and(|user| {
            user == b"0" || (!user.is_empty() && Some(user) == host.expand(c"$exim_uid"))
        })
    }

    /// Whether Exim runs with `-d+acl`.
    pub(in crate::exim) fn debugs_acls(&self, host: &Host) -> bool {
        let selected = |selector: NonNull<c_uint>| {
            // SAFETY: the address is that of an exported `unsigned int` of
            // Exim's, as in every version without `is_debug`.
            unsafe { selector.read() & D_ACL != 0 }
        };
        host.debugs(c"acl").unwrap_or_else(|| self.debug_selector.is_some_and(selected))
    }
}

/// Finds the addresses of Exim's variables: by symbol in a build that exports them,
/// else in its tables.
pub(in crate::exim) struct VariableSource<'a> {
    pub(in crate::exim) host: &'a Host,
    tables: &'a Tables,
    /// This build exports its variables.
    exports: bool,
    /// The types of strings and numbers in the table of variables; `None` if that
    /// table is not trusted.
    kinds: Option<Kinds>,
}

/// The table's numbers of the two types that are read.
struct Kinds {
    text: usize,
    number: usize,
}

impl Kinds {
    /// By variables that every build exports: the table is trusted if it has the
    /// addresses of their symbols.
    fn find(host: &Host, tables: &Tables) -> Option<Self> {
        let text = Self::agreed::<*const Uschar>(host, tables, c"sender_address")?;
        let other = Self::agreed::<*const Uschar>(host, tables, c"sender_host_address")?;
        let number = Self::agreed::<c_int>(host, tables, c"recipients_count")?;
        (text == other && text != number).then_some(Self { text, number })
    }

    /// The type of a variable whose symbol and entry have the same address.
    fn agreed<T>(host: &Host, tables: &Tables, name: &CStr) -> Option<usize> {
        let entry = tables.variable(name.to_bytes(), size_of::<T>())?;
        let symbol = host.variable::<T>(name)?;
        (symbol.addr() == entry.value).then_some(entry.kind)
    }
}

impl<'a> VariableSource<'a> {
    pub(in crate::exim) fn new(host: &'a Host, tables: &'a Tables) -> Self {
        let exports = host.variable::<*const Uschar>(c"sender_rate").is_some();
        Self { host, tables, exports, kinds: Kinds::find(host, tables) }
    }

    /// The exported variable `name`, if it is in the main program.
    pub(in crate::exim) fn symbol<T>(&self, name: &CStr) -> Option<NonNull<T>> {
        let address = NonNull::new(self.host.variable::<T>(name)?)?;
        self.tables.lets_write(address.addr().get(), size_of::<T>()).then_some(address)
    }

    /// The address of a string variable, by its name in C or in expansions.
    pub(in crate::exim) fn pointer(
        &self,
        symbol: &CStr,
        expansion: &CStr,
    ) -> Option<NonNull<*const Uschar>> {
        self.address(symbol, expansion, |kinds| kinds.text)
    }

    pub(in crate::exim) fn text(&self, symbol: &CStr, expansion: &'static CStr) -> Text {
        Text { address: self.pointer(symbol, expansion), expansion }
    }

    pub(in crate::exim) fn number(&self, symbol: &CStr, expansion: &'static CStr) -> Number {
        Number { address: self.address(symbol, expansion, |kinds| kinds.number), expansion }
    }

    /// Stock builds export a few of them too, but looking up a missing symbol is slow,
    /// and each connection would pay for it.
    fn address<T>(
        &self,
        symbol: &CStr,
        expansion: &CStr,
        kind: fn(&Kinds) -> usize,
    ) -> Option<NonNull<T>> {
        if self.exports {
            return self.symbol(symbol).or_else(|| self.tabled(expansion, kind));
        }
        self.tabled(expansion, kind).or_else(|| self.symbol(symbol))
    }

    /// The address of `expansion` in the table of variables, if its type there is
    /// that of a `T`.
    fn tabled<T>(&self, expansion: &CStr, kind: fn(&Kinds) -> usize) -> Option<NonNull<T>> {
        let name = expansion.to_bytes().strip_prefix(b"$")?;
        let found = self.tables.variable(name, size_of::<T>())?;
        let address = std::ptr::with_exposed_provenance_mut(found.value);
        NonNull::new(address).filter(|_| self.kinds.as_ref().map(kind) == Some(found.kind))
    }

    /// Whether Exim has an expansion variable of this name, whatever its type.
    pub(in crate::exim) fn knows(&self, name: &str) -> bool {
        self.tables.variable(name.as_bytes(), 1).is_some()
    }
}
