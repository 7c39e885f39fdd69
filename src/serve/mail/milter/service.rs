//! The milter of this process.

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;

use tokio::sync::watch;
use tokio::task::spawn_local;

use super::connection::{Decide, Settings, Shared, serve};
use super::needs::Needs;
use super::negotiate::Wants;
use crate::policy::evaluator::PolicySession;
use crate::serve::config::{EarlyStage, Mail};
use crate::serve::listen::{Acceptor, Peers};
use crate::serve::log::Log;
use crate::serve::mail::decider::Decider;
use crate::serve::mail::event::{MailEvent, MailVerdict};
use crate::trace::Envelope;

impl Decide for Decider {
    fn decide(
        &self,
        session: PolicySession,
        event: MailEvent,
    ) -> impl Future<Output = (PolicySession, MailVerdict)> {
        Decider::decide(self, session, event)
    }

    fn record(&self, envelope: Envelope, message: Vec<u8>) -> impl Future<Output = ()> {
        Decider::record(self, envelope, message)
    }
}

/// Serves mail servers by the milter protocol.
pub struct Milter {
    shared: Rc<Shared<Decider>>,
    inner: RefCell<Inner>,
}

/// What connections need that begin from now on.
struct Inner {
    needs: Needs,
    configured: Wants,
    policies: Option<Vec<String>>,
}

impl Milter {
    /// One with this configuration.
    #[must_use]
    pub fn new(mail: &Mail, decider: Rc<Decider>, log: Rc<Log>) -> Rc<Self> {
        let shared = Rc::new(Shared::new(decider, settings(mail), log));
        let inner = Inner {
            needs: Needs::new(&mail.spool),
            configured: configured(mail),
            policies: mail.policies.clone(),
        };
        Rc::new(Self { shared, inner: RefCell::new(inner) })
    }

    /// Uses another configuration for connections that begin from now on.
    pub fn set(&self, mail: &Mail) {
        self.shared.set(settings(mail));
        let mut inner = self.inner.borrow_mut();
        inner.needs.forget();
        inner.configured = configured(mail);
        inner.policies = mail.policies.clone();
    }

    /// Serves the mail servers that connect until `stop` is set.
    pub async fn serve(
        self: Rc<Self>,
        acceptor: Acceptor,
        peers: Rc<Peers>,
        stop: watch::Receiver<bool>,
    ) {
        let stopped = stop.clone();
        let begin = |stream, peer| {
            let (shared, stop) = (Rc::clone(&self.shared), stopped.clone());
            spawn_local(serve(shared, self.wants(), stream, stop, peer));
        };
        peers.accept(acceptor, stop, begin).await;
    }

    /// Waits until all accepted messages are recorded.
    pub async fn recorded(&self) {
        self.shared.recorded().await;
    }

    fn wants(&self) -> Wants {
        let Inner { needs, configured, policies } = &mut *self.inner.borrow_mut();
        needs.of(policies.as_deref(), *configured)
    }
}

fn settings(mail: &Mail) -> Settings {
    let Mail { max_message, max_buffered, idle_timeout, .. } = *mail;
    Settings { max_message, max_buffered, idle_timeout }
}

fn configured(mail: &Mail) -> Wants {
    let has = |stage| mail.early_stages.contains(&stage);
    Wants {
        record: mail.record,
        connect: has(EarlyStage::Connect),
        helo: has(EarlyStage::Helo),
        mail: has(EarlyStage::Mail),
        ..Wants::default()
    }
}
