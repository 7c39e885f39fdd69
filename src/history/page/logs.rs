//! What the page shows of logs.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;

use super::{Evaluation, Log, Networks, Page, Policy, RatesOfLog, Who};
use crate::history::measure::{By, Count, MeasuredBy, Period};
use crate::history::simulate::{Attempt, Input, SimulateError};
use crate::logs::files::LogFiles;
use crate::logs::notes::notes;
use crate::policy::image::Image;
use crate::policy::source::FILE;
use crate::text::counted;

/// Of so many identities with the highest peaks, and so many with the most refusals, the page
/// has the networks of their clients.
const DETAILS_MAX: usize = 1000;

/// Which rates are wanted.
#[derive(Clone, Copy, Debug)]
pub struct WantedLog<'a> {
    /// Those of these identities.
    pub by: By,
    /// What is counted.
    pub count: Count,
    /// In this period.
    pub period: &'a Period,
    /// The limit to begin with.
    pub limit: Option<f64>,
}

impl Page {
    /// Adds what the logs show, and what the policies of a file would have refused; `progress` is
    /// called with how many bytes have been read. Returns the cursor of a journal.
    ///
    /// # Errors
    /// Why there is no such page, in words.
    pub fn read_logs(
        &mut self,
        files: &LogFiles,
        wanted: &WantedLog<'_>,
        policy: Option<(Rc<Image>, &Path)>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Option<String>, String> {
        let said = |error: SimulateError| error.to_string();
        let (image, file) = policy.unzip();
        let by = MeasuredBy::new(wanted.by, image.clone()).map_err(|error| error.to_string())?;
        let who = Who::new(by.clone());
        let mut evaluation = match (&image, &file) {
            (Some(image), Some(file)) => {
                Some(Evaluation::new(image, file, who.clone()).map_err(said)?)
            }
            _ => None,
        };
        let mut rates = RatesOfLog::new(by, wanted.count, wanted.period.clone());
        // A client's own network says nothing more of it.
        let mut networks = (wanted.by != By::Host).then(|| Networks::new(who));
        let mut input = Input::default();
        let decide = &mut |attempt: &Attempt| {
            if let Some(networks) = &mut networks {
                networks.add(attempt);
            }
            evaluation.as_mut().map_or(Ok(()), |evaluation| evaluation.decide(attempt))
        };
        input.read(files, &mut |line| rates.add(line), decide, progress).map_err(said)?;
        self.notes.extend(notes(&input.read, &input.counts.unused));
        let mut log =
            rates.finish(wanted.limit, &mut self.notes).map_err(|error| error.to_string())?;
        if log.names.is_empty() {
            return Err(format!(
                "the log shows no {}: give another --by (sender, host, auth, user, domain, customer or all) or \
                 --count (messages, bytes, recipients or different)",
                log.who
            ));
        }
        if let Some(evaluation) = evaluation {
            self.policy = Some(evaluation.finish(&log.names).map_err(said)?);
        } else {
            self.notes.push(format!(
                "No policy was evaluated: {FILE} is not there, and --policy was not given."
            ));
        }
        if let Some(networks) = networks {
            if networks.omitted() > 0 {
                self.notes.push(format!(
                    "{} are not counted by their clients, as there are too many.",
                    counted(networks.omitted(), "message", "messages")
                ));
            }
            let of = shown_in_detail(&log, self.policy.as_ref());
            log.networks = networks.of(of.iter().map(|&id| (id, &*log.names[id])));
        }
        self.log = Some(log);
        Ok(input.read.cursor)
    }
}

/// The numbers of the identities with the highest peaks, and of those with the most refusals.
fn shown_in_detail(log: &Log, policy: Option<&Policy>) -> BTreeSet<usize> {
    let mut numbers: Vec<usize> = (0..log.names.len()).collect();
    numbers.sort_by(|&a, &b| log.peaks[b].total_cmp(&log.peaks[a]).then(a.cmp(&b)));
    let busiest = numbers.iter().copied().take(DETAILS_MAX).collect::<Vec<_>>();
    let refused = |number: usize| policy.and_then(|policy| *policy.of.get(number)?).unwrap_or(0);
    numbers.sort_by_key(|&number| Reverse(refused(number)));
    let refused = numbers.into_iter().filter(|&number| refused(number) > 0).take(DETAILS_MAX);
    busiest.into_iter().chain(refused).collect()
}
