//! Where work says what it meets, and how far it is: standard error of a command, or the log of a
//! daemon.

use std::fmt::Arguments;

/// Where work says what it meets, and how far it is.
pub(crate) trait Voice: Sync {
    /// Something does not work.
    fn complain(&self, what: Arguments<'_>);

    /// Something to know.
    fn note(&self, what: Arguments<'_>);

    /// How far it is: to be called with how many of these are done, and of how many.
    fn progress(&self, _what: &'static str) -> Box<dyn FnMut(u64, u64)> {
        Box::new(|_, _| {})
    }

    /// How far it is, where nobody knows how many there are: to be called for each.
    fn tally(&self, _what: &'static str) -> Box<dyn FnMut()> {
        Box::new(|| {})
    }
}

impl dyn Voice + '_ {
    /// Notes each of these.
    pub(crate) fn notes(&self, all: &[String]) {
        all.iter().for_each(|one| self.note(format_args!("{one}")));
    }

    /// Complains of each of these.
    pub(crate) fn complaints<T: std::fmt::Display>(&self, all: &[T]) {
        all.iter().for_each(|one| self.complain(format_args!("{one}")));
    }

    /// Notes each problem; what was found with them.
    pub(crate) fn noted<T>(&self, (found, problems): (T, Vec<String>)) -> T {
        self.notes(&problems);
        found
    }

    /// How many of the shards of a database are done.
    pub(crate) fn shards(&self) -> impl FnMut(usize) + use<> {
        let mut progress = self.progress("shards");
        move |done| progress(done as u64, 256)
    }
}
