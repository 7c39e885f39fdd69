//! The Redis store as the agent's.

use super::link::{Backend, Failed};
use crate::engine::{Check, Decision};
use crate::redis::{Announcement, KnownServers, RedisStore, Settings};

impl Backend for RedisStore {
    type Settings = Settings;

    async fn connect(settings: &Settings) -> Result<Self, String> {
        Self::connect(settings).await.map_err(|error| error.to_string())
    }

    async fn decide(
        &self,
        event: u128,
        checks: &[Check<'_>],
        decisions: &mut Vec<Decision>,
    ) -> Result<(), Failed> {
        Self::decide(self, event, checks, decisions).await.map_err(|error| {
            let why = error.to_string();
            if error.is_lost() { Failed::Lost(why) } else { Failed::Request(why) }
        })
    }

    async fn announce(&self, announcement: &Announcement<'_>) -> Result<bool, String> {
        Self::announce(self, announcement).await.map_err(|error| error.to_string())
    }

    async fn servers(&self) -> Result<KnownServers, String> {
        Self::servers(self).await.map_err(|error| error.to_string())
    }
}
