//! The reaper of setup commands for the tests: what the `caliban` binary is in its hidden mode.

fn main() -> std::process::ExitCode {
    caliban_keeper::reaper_main()
}
