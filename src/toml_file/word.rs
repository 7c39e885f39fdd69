//! Words of a closed set.

/// A closed set of words.
pub trait Word: Copy + Sized + 'static {
    /// All of them, in the order in which they are listed to people.
    const ALL: &'static [Self];

    /// How it is written.
    fn word(self) -> &'static str;

    /// How all of them are written.
    #[must_use]
    fn words() -> Vec<&'static str> {
        Self::ALL.iter().map(|word| word.word()).collect()
    }

    /// The one that is written so.
    #[must_use]
    fn of(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|known| known.word() == text)
    }
}
