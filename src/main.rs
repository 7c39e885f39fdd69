//! The program `exirate`.

fn main() -> std::process::ExitCode {
    exirate::cli::run()
}
