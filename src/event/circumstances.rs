//! What follows from the fields of an event, the same for all who describe one.

use std::net::IpAddr;

use super::fields::Event;
use super::origin::{Local, Origin};

/// Whether what the local account `name` hands over is [`Event::system`], where nothing but
/// the name is known: root, or the mail server's user by a name that distributions give it.
#[must_use]
pub fn is_system_account(name: &str) -> bool {
    ["root", "Debian-exim", "exim", "mail", "mailnull"].contains(&name)
}

/// What whoever describes an event knows besides its fields.
#[derive(Clone, Copy)]
pub struct Circumstances<'s> {
    /// The client has used AUTH.
    pub has_used_auth: bool,
    /// Finds the address of the server that the client is connected to; called where it
    /// matters.
    pub server: &'s dyn Fn() -> Option<IpAddr>,
    /// How a program hands the message over.
    pub handed_over: HandedOver<'s>,
    /// A router runs, after the message has been received.
    pub in_router: bool,
}

/// How a program hands a message over, for [`Event::system`].
#[derive(Clone, Copy)]
pub enum HandedOver<'s> {
    /// In an SMTP dialogue, behind which anybody may be.
    Dialogue,
    /// On standard input, by a process; whether it is one of the mail server's user or of
    /// root.
    ByProcess(&'s dyn Fn() -> bool),
    /// On standard input, by the local account, of which only the name is known.
    ByAccount,
    /// Whoever describes the event says whether it is the mail server's own or root's.
    Said(bool),
}

impl Default for Circumstances<'_> {
    fn default() -> Self {
        Self {
            has_used_auth: false,
            server: &|| None,
            handed_over: HandedOver::Dialogue,
            in_router: false,
        }
    }
}

impl<T: AsRef<str>> Event<T> {
    /// The event, of which the fields are what is said of it, with what follows from them:
    /// whether it is [`local`](Self::local), [`system`](Self::system) and counted
    /// [once a message](Self::once_a_message). What counts for nothing is taken away: a login
    /// of a client that has not used AUTH, and the account that a client on the network says
    /// is its user's.
    #[must_use]
    #[inline]
    pub fn complete(mut self, circumstances: &Circumstances<'_>) -> Self {
        let Circumstances { has_used_auth, server, handed_over, in_router } = *circumstances;
        let is_program = self.client == Origin::Program;
        self.local = Local::of(has_used_auth, self.client, server);
        if !has_used_auth {
            self.auth = None;
        }
        if !is_program {
            self.local_account = None;
        }
        self.system = match handed_over {
            HandedOver::Said(system) => system,
            HandedOver::Dialogue => false,
            HandedOver::ByProcess(is_systems) => is_program && is_systems(),
            HandedOver::ByAccount => self.is_of_a_system_account(),
        };
        self.once_a_message = in_router && self.message_id.is_some();
        self
    }

    /// Whether the local account is root or one of a mail server.
    #[must_use]
    pub fn is_of_a_system_account(&self) -> bool {
        self.local_account.as_ref().is_some_and(|name| is_system_account(name.as_ref()))
    }

    /// Whether it is from another mail server, as far as is known: one that tries again
    /// later. Users and local programs do not.
    #[must_use]
    pub fn is_of_a_server(&self) -> bool {
        self.auth.is_none()
            && self.local_account.is_none()
            && self.client.address().is_some()
            && !self.local.is()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(text: &str) -> Origin {
        Origin::Client(text.parse().unwrap())
    }

    #[test]
    fn local_is_what_has_no_client_or_a_client_of_this_machine_without_a_login() {
        let server = || "2001:db8::25".parse().ok();
        for (origin, is_local) in [
            (Origin::Program, true),
            (Origin::Unknown, false),
            (client("127.0.0.1"), true),
            (client("127.8.0.1"), true),
            (client("::ffff:127.0.0.1"), true),
            (client("::1"), true),
            (client("2001:db8::25"), true),
            (client("2001:db8::26"), false),
            (client("192.0.2.1"), false),
        ] {
            assert_eq!(Local::of(false, origin, server).is(), is_local, "{origin:?}");
            assert!(!Local::of(true, origin, server).is(), "{origin:?}");
            for has_used_auth in [false, true] {
                let source =
                    Circumstances { has_used_auth, server: &server, ..Circumstances::default() };
                let event = Event::<&str> { client: origin, ..Event::default() }.complete(&source);
                assert_eq!(event.local.is(), is_local && !has_used_auth, "{origin:?}");
            }
        }
        let mapped = || "::ffff:192.0.2.1".parse().ok();
        assert!(Local::of(false, client("192.0.2.1"), mapped).is());
    }

    #[test]
    fn what_a_client_cannot_know_of_its_user_counts_for_nothing() {
        for (client, has_used_auth, auth, account) in [
            (Origin::Program, false, None, Some("www")),
            (Origin::Program, true, Some("ann"), Some("www")),
            (client("127.0.0.1"), false, None, None),
            (client("192.0.2.1"), true, Some("ann"), None),
            (Origin::Unknown, true, Some("ann"), None),
        ] {
            let said =
                Event { auth: Some("ann"), local_account: Some("www"), client, ..Event::default() };
            let event = said.complete(&Circumstances { has_used_auth, ..Circumstances::default() });
            assert_eq!((event.auth, event.local_account), (auth, account), "{client:?}");
        }
    }

    #[test]
    fn system_is_what_the_mail_server_or_root_hands_over_outside_a_dialogue() {
        let of = |client, account, handed_over| {
            let said = Event { client, local_account: Some(account), ..Event::default() };
            said.complete(&Circumstances { handed_over, ..Circumstances::default() }).system
        };
        let (yes, no) = (|| true, || false);
        for account in ["root", "Debian-exim", "exim", "mail", "mailnull"] {
            assert!(of(Origin::Program, account, HandedOver::ByAccount), "{account}");
            assert!(!of(client("127.0.0.1"), account, HandedOver::ByAccount), "{account}");
            assert!(!of(Origin::Unknown, account, HandedOver::ByAccount), "{account}");
            assert!(!of(Origin::Program, account, HandedOver::Dialogue), "{account}");
            assert!(!of(Origin::Program, account, HandedOver::ByProcess(&no)), "{account}");
        }
        assert!(!of(Origin::Program, "www-data", HandedOver::ByAccount));
        assert!(of(Origin::Program, "www-data", HandedOver::ByProcess(&yes)));
        assert!(!of(client("127.0.0.1"), "root", HandedOver::ByProcess(&yes)));
        assert!(of(client("127.0.0.1"), "x", HandedOver::Said(true)));
        assert!(!of(Origin::Program, "root", HandedOver::Said(false)));
    }

    #[test]
    fn a_router_counts_a_message_once_where_it_has_an_id() {
        for (message_id, in_router, once) in
            [(Some("1"), true, true), (None, true, false), (Some("1"), false, false)]
        {
            let said = Event { message_id, ..Event::default() };
            let event = said.complete(&Circumstances { in_router, ..Circumstances::default() });
            assert_eq!(event.once_a_message, once);
        }
    }

    #[test]
    fn servers_try_again_and_users_and_programs_do_not() {
        let server = Event { client: client("192.0.2.1"), ..Event::<&str>::default() };
        let has_login = Circumstances { has_used_auth: true, ..Circumstances::default() };
        assert!(server.complete(&Circumstances::default()).is_of_a_server());
        let user = Event { auth: Some("ann"), ..server };
        assert!(!user.complete(&has_login).is_of_a_server());
        for client in [Origin::Program, Origin::Unknown, client("127.0.0.1")] {
            let event = Event { client, ..server }.complete(&Circumstances::default());
            assert!(!event.is_of_a_server(), "{client:?}");
        }
    }
}
