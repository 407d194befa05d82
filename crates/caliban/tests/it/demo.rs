//! `caliban demo`, from outside: it must do what it shows, and leave nothing.

use testkit::Env;

#[test]
fn the_demo_shows_a_fleet_that_outlives_its_daemon_and_leaves_nothing() {
    let env = Env::new();
    let output = env.start("caliban", ["demo"]).limit(std::time::Duration::from_secs(300)).output().ok();
    let said = &output.stdout;
    for part in [
        "FAILED  tests/sum.sh",
        "$ kill -9 ",
        "asks: Bash sh release-notes.sh 'sum adds again'",
        "allowed for ",
        "+        total=$((total + number))",
        "ok      tests/shout.sh\nok      tests/sum.sh\n",
        "refs/caliban/rescue/",
        "Restored worktree ",
        "+    printf '%s\\n' \"$@\" | awk ",
        "The daemon has left",
        "No process is left",
    ] {
        assert!(said.contains(part), "{part:?} is not in\n{said}\n{}", output.stderr);
    }
    assert_eq!(said.matches("merged caliban/").count(), 2, "{said}");
    // The third merge was refused before anything was touched.
    assert!(output.stderr.contains("conflicts in lib/sum.sh"), "{}", output.stderr);
    assert_eq!(env.processes(), []);
    let left: Vec<_> = std::fs::read_dir(env.tmp()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(left, Vec::<std::path::PathBuf>::new());
    // Nothing of it is in the person's own places.
    assert!(!env.data().join("caliban").exists() && !env.config().join("caliban").exists());
}
