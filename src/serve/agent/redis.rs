//! The Redis store as the agent's.

use super::link::{Backend, Failed};
use crate::engine::{Check, Decision};
use crate::redis::{Announcement, KnownServers, RedisError, RedisStore, Settings};

impl Backend for RedisStore {
    type Settings = Settings;

    async fn connect(settings: &Settings, old: Option<&Self>) -> Result<Self, String> {
        Self::connect_again(settings, old).await.map_err(|error| error.to_string())
    }

    async fn decide(
        &self,
        event: u128,
        checks: &[Check<'_>],
        decisions: &mut Vec<Decision>,
    ) -> Result<(), Failed> {
        Self::decide(self, event, checks, decisions).await.map_err(|error| {
            let why = error.to_string();
            match error.is_lost() {
                false if matches!(error, RedisError::Version(_)) => Failed::Keys(why),
                false => Failed::Request(why),
                true if Self::has_parts(self) && !Self::is_away(self) => Failed::Part(why),
                true => Failed::Lost(why),
            }
        })
    }

    fn has_parts(&self) -> bool {
        Self::has_parts(self)
    }

    fn is_away(&self) -> bool {
        Self::is_away(self)
    }

    fn parts_away(&self) -> Vec<(String, String)> {
        self.nodes_away()
    }

    fn take_incidents(&self) -> Vec<String> {
        Self::take_incidents(self)
    }

    async fn watch(&self) -> String {
        Self::watch(self).await
    }

    async fn announce(&self, announcement: &Announcement<'_>) -> Result<bool, Failed> {
        Self::announce(self, announcement).await.map_err(|error| {
            let why = error.to_string();
            match error.is_broken() && !Self::has_parts(self) {
                true => Failed::Lost(why),
                false => Failed::Request(why),
            }
        })
    }

    async fn servers(&self) -> Result<KnownServers, String> {
        Self::servers(self).await.map_err(|error| error.to_string())
    }
}
