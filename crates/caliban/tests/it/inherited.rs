//! What a script has open is the script's: neither the daemon that it had to start nor its agents hold it.

use testkit::{script, text, wait_until};

use crate::fleet::Fleet;

#[test]
fn a_lock_of_the_script_that_started_the_daemon_is_free_when_the_script_has_ended() {
    let fleet = Fleet::new(script![text("done")]);
    fleet.place.server.hold();
    let lock = fleet.place.env.work().join("lock");
    let program = std::env::current_exe().unwrap();
    let program = program.ancestors().nth(2).unwrap().join("caliban");
    // 255 is more than one digit, and the last that shells use.
    let script = format!(
        "exec 9>'{lock}' 42>'{lock}.2' 255>'{lock}.3' && flock 9 && flock 42 && flock 255 && '{}' \"$@\"",
        program.display(),
        lock = lock.display(),
    );
    let bash = testkit::ProgramRun::new(fleet.place.env.program("bash")).args(["-c", &script, "bash"]);
    let args = fleet.place.server.args(fleet.place.protocol);
    bash.args(args).args(["--bg", "the task"]).dir(&fleet.place.repo).output().ok();
    // The daemon, the shim and the worker live.
    fleet.place.server.wait_for_requests(1);
    for name in ["lock", "lock.2", "lock.3"] {
        let file = std::fs::File::open(lock.with_file_name(name)).unwrap();
        file.try_lock().unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    fleet.place.server.release();
    let id = fleet.rows()[0]["id"].as_str().unwrap().to_owned();
    wait_until("it is done", || fleet.state(&id) == "done");
}
