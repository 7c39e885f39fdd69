//! What asks the store, as the agent does.

use std::time::{Duration, Instant};

use exirate::engine::{Algorithm, Check, Decision, RecordKey, Update};
use exirate::redis::{RedisStore, Server, Servers, Settings, Transport};
use tokio::runtime::{Builder, Runtime};

use kit::TIMEOUT;

/// How long a reply is waited for.
pub(crate) const DEADLINE: Duration = Duration::from_millis(200);
/// What a decision may take beyond the deadlines of its round trips: this machine may be
/// busy.
pub(crate) const MARGIN: Duration = Duration::from_secs(2);

pub(crate) fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

pub(crate) fn tcp(port: u16) -> Server {
    let transport = Transport::Tcp { host: "127.0.0.1".into(), port, tls: false };
    Server { transport, database: 0 }
}

pub(crate) fn settings(servers: Servers) -> Settings {
    Settings { servers, user: None, password: None, ca: None, deadline: DEADLINE }
}

/// A check whose rate is the number of events, as nothing leaks out of the bucket.
pub(crate) fn level(identity: &str) -> Check<'_> {
    let algorithm = Algorithm::Bucket { burst: 1e6, rate: 0.0 };
    let key = RecordKey { algorithm: algorithm.kind(), ..identity.into() };
    let (count, update) = (1.0, Update::Strict);
    Check { count, update, ..Check::new(key, algorithm) }
}

/// A check of a moving average, of which hardly anything decays while a test runs.
pub(crate) fn average(identity: &str) -> Check<'_> {
    let algorithm = Algorithm::MovingAverage { limit: 1e6, period: 1e4 };
    Check { key: identity.into(), algorithm, ..level(identity) }
}

/// A check that counts each of its unique events once.
pub(crate) fn unique<'a>(identity: &'a str, event: &'a str) -> Check<'a> {
    let algorithm = Algorithm::Bucket { burst: 1000.0, rate: 0.0 };
    Check { algorithm, event: Some(event.as_bytes()), ..level(identity) }
}

/// A number for an event.
pub(crate) fn fresh() -> u128 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(0).into()
}

/// One that asks, and connects whenever that is needed.
pub(crate) struct Asker {
    settings: Settings,
    store: Option<RedisStore>,
    /// When it looked last at what changes without a request.
    looked: Instant,
    /// How many events were decided.
    pub(crate) decided: u64,
    /// How many were asked and not decided: they may have been counted.
    pub(crate) undecided: u64,
}

impl Asker {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            settings: settings.clone(),
            store: None,
            looked: Instant::now(),
            decided: 0,
            undecided: 0,
        }
    }

    /// Asks once for a new event. The error is in words.
    pub(crate) async fn ask(&mut self, checks: &[Check<'_>]) -> Result<Vec<Decision>, String> {
        let store = match &self.store {
            Some(store) => store,
            None => {
                let connecting = RedisStore::connect(&self.settings);
                let connected = tokio::time::timeout(Duration::from_secs(3), connecting).await;
                let store = connected.map_err(|_| "not connected within 3 s".to_owned())?;
                self.store.insert(store.map_err(|error| error.to_string())?)
            }
        };
        // The agent does so each second, while others ask.
        if self.looked.elapsed() >= Duration::from_secs(1) {
            let _ = tokio::time::timeout(self.settings.deadline, store.refresh()).await;
            self.looked = Instant::now();
        }
        let mut decisions = Vec::new();
        let begun = Instant::now();
        let result = store.decide(fresh(), checks, &mut decisions).await;
        // A second round trip loads the script.
        let most = 2 * self.settings.deadline + MARGIN;
        assert!(begun.elapsed() < most, "{:?}: {result:?}", begun.elapsed());
        match result {
            Ok(()) => {
                self.decided += 1;
                Ok(decisions)
            }
            Err(error) => {
                self.undecided += 1;
                if error.is_lost() {
                    self.store = None;
                }
                Err(error.to_string())
            }
        }
    }

    /// Asks for new events until one is decided; how long that took.
    pub(crate) async fn until_decided(
        &mut self,
        checks: &[Check<'_>],
    ) -> (Duration, Vec<Decision>) {
        let begun = Instant::now();
        loop {
            match self.ask(checks).await {
                Ok(decisions) => return (begun.elapsed(), decisions),
                Err(why) => assert!(begun.elapsed() < TIMEOUT, "{why}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// How many events this check has counted; this counts one more.
    pub(crate) async fn sum(&mut self, check: Check<'_>) -> u64 {
        let (_, decisions) = self.until_decided(&[check]).await;
        decisions[0].rate.round() as u64 - 1
    }
}
