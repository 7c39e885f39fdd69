//! The entry point for `${dlfunc{…/exirate.so}{shadow}{VERDICT}{RATE}{SPEC}}`.

use super::session::{CallError, SESSION, Session};
use crate::engine::Decision;
use crate::exim::host::boundary::entry_point;
use crate::shadow::{Answer, Difference, LimitName, ShadowCounters, compare};
use crate::spec::SpecArguments;
use crate::sys::{clock, fork};
use std::str::from_utf8;

entry_point! {
    /// `${dlfunc{…}{shadow}{VERDICT}{RATE}{SPEC}}`: compares Exim's own `ratelimit = SPEC` with
    /// ours, and returns Exim's verdict: `yes` where VERDICT is `over`, `no` where it is `under`.
    ///
    /// RATE is `$sender_rate` as Exim's condition has set it, and SPEC is that condition's,
    /// `m / p / options / key`. Our check is counted in our database. A difference is counted,
    /// and logged in the main log; `$sender_rate` and its companions stay as they were. Nothing
    /// that goes wrong on our side changes the verdict; it is logged once a process, and counted.
    shadow => SESSION.call(c"no", |session, _, arguments| {
        let [verdict, rate, spec] = *arguments else {
            return Err(usage(&format!("{} were given", arguments.len())));
        };
        let over = match verdict {
            b"over" => true,
            b"under" => false,
            _ => return Err(usage("the first one is neither over nor under")),
        };
        let rate = from_utf8(rate).ok().and_then(|rate| rate.parse().ok());
        let rate = rate.ok_or_else(|| usage("the second one is not a number"))?;
        session.shadow(Answer { over, rate }, spec);
        Ok(session.refuses(over).into())
    })
}

fn usage(wrong: &str) -> CallError {
    let text = format!(
        "shadow takes exactly three arguments, VERDICT (over or under), RATE and SPEC, but \
         {wrong} (use shadow.conf, which calls it)"
    );
    CallError::Usage(text.into())
}

impl Session {
    /// Makes our own check of `spec` and compares it with `native`.
    fn shadow(&mut self, native: Answer, spec: &[u8]) {
        let variables = self.rate_variables.save();
        let decided = self.ratelimit(SpecArguments { spec, key: None, unique: None });
        self.rate_variables.restore(variables);
        match decided {
            Ok(_) => self.compare(native, spec),
            Err(error) => self.shadow_failed(&error),
        }
    }

    /// Compares `native` with the latest decision.
    fn compare(&mut self, native: Answer, spec: &[u8]) {
        let Some(latest) = &self.latest else { return };
        let Decision { over, rate, next_count, period, overridden, .. } = latest.decision;
        // Ours is no answer then.
        if overridden.is_some() || self.stop.is_active(&self.host, &self.variables) {
            return;
        }
        let now = u64::try_from(clock::now().0).unwrap_or(0);
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let (limit, period_text) = (text(&latest.limit_text), text(&latest.period_text));
        let name = LimitName {
            limit: &limit,
            period: &period_text,
            mode: latest.mode.word(),
            update: latest.update.word(),
        };
        let Some(counters) = self.shadow_counters() else { return };
        let Some(since) = counters.since(&name, now) else { return counters.count_failed() };
        let ours = Answer { over, rate };
        let age = now.saturating_sub(since) as f64;
        let difference = compare(native, ours, next_count, period, age);
        counters.count(&name, now, [native, ours], difference);
        if matches!(difference, Difference::Rate { .. } | Difference::Verdict { .. }) {
            self.host.log(&format!(
                "exirate shadow: native {}, exirate {}: {}",
                words(native),
                words(ours),
                spec[..spec.len().min(SPEC_SHOWN)].escape_ascii()
            ));
        }
    }

    #[cold]
    fn shadow_failed(&mut self, error: &CallError) {
        if let Some(counters) = self.shadow_counters() {
            counters.count_failed();
        }
        let process = fork::process();
        if self.shadow.logged.replace(process) != Some(process) {
            self.host.log(&format!("exirate shadow: not compared: {error}"));
        }
    }

    fn shadow_counters(&mut self) -> Option<&mut ShadowCounters> {
        if self.shadow.counters.is_none() {
            let directory =
                crate::exim::host::directory::spool(&self.host, &self.variables).ok()?;
            self.shadow.counters = Some(ShadowCounters::new(&directory));
        }
        self.shadow.counters.as_mut()
    }
}

/// How many bytes of a spec are logged.
const SPEC_SHOWN: usize = 500;

fn words(answer: Answer) -> String {
    format!("{} {:.1}", if answer.over { "over" } else { "under" }, answer.rate)
}
