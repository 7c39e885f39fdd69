//! The subcommands of a command.

/// An enum of commands, each with its options, which runs the one that was given; `= run` is what
/// runs it where that is not its own `run`.
macro_rules! commands {
    ($(#[$meta:meta])* enum $name:ident {
        $($(#[$of:meta])* $command:ident($options:ty) $(= $run:path)?,)*
    }) => {
        $(#[$meta])*
        #[derive(Debug, clap::Subcommand)]
        enum $name { $($(#[$of])* $command($options),)* }

        impl $name {
            fn run(
                &self,
                screen: &mut $crate::cli::shared::screen::Screen<'_>,
            ) -> Result<$crate::cli::Outcome, $crate::cli::Failure> {
                match self {
                    $(Self::$command(it) => commands!(@run it screen $($run)?),)*
                }
            }
        }
    };
    (@run $it:ident $screen:ident) => { $it.run($screen) };
    (@run $it:ident $screen:ident $run:path) => { $run($it, $screen) };
}

pub(in crate::cli) use commands;
