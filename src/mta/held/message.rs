//! What is known of a held message, and what can be done with it.

/// A message that a policy holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeldMessage {
    /// Its name in the queue.
    pub(crate) id: String,
    /// Since when it is held, in seconds since 1970.
    pub(crate) at: i64,
    /// The policy that holds it.
    pub(crate) policy: String,
    /// Who was counted, as in `auth:alice@example.org`.
    pub(crate) key: Vec<u8>,
    /// Why it is held.
    pub(crate) why: String,
    /// The envelope's sender.
    pub(crate) sender: String,
    /// How many recipients it has.
    pub(crate) recipients: u64,
    /// Its size in bytes.
    pub(crate) size: u64,
}

/// The held messages of a queue.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pub(crate) messages: Vec<HeldMessage>,
    /// What could not be read, and why.
    pub(crate) unread: Vec<String>,
}

/// What else is known of a message.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Details {
    /// Its recipients, without those that have got it.
    pub(crate) recipients: Vec<String>,
    /// The lines of its headers.
    pub(crate) headers: Vec<String>,
}

/// A queue of a mail server in which policies hold messages.
pub(crate) trait HoldQueue {
    /// The messages that policies hold.
    ///
    /// # Errors
    /// The queue cannot be read.
    fn held(&self) -> Result<Held, String>;

    /// The recipients and headers of a held message.
    ///
    /// # Errors
    /// It cannot be read, or is gone.
    fn details(&self, id: &str) -> Result<Details, String>;

    /// Has these messages delivered, from now on, as others are: the outcome of each, in order.
    fn release(&self, ids: &[&str]) -> Vec<Result<(), String>>;

    /// Removes these messages, so that nobody gets them: the outcome of each, in order.
    fn delete(&self, ids: &[&str]) -> Vec<Result<(), String>>;
}
