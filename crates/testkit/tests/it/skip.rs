//! A skipped test: passes and is listed, and fails in CI without an excuse.

use std::fs;
use std::process::Command;

use testkit::{LIST_VARIABLE, Lack, skip};

/// What the inner test below lacks, by its place in [`Lack::ALL`].
const LACK_VARIABLE: &str = "TESTKIT_LACK";

#[test]
#[ignore = "run by a_skipped_test_is_listed_and_fails_in_ci_unless_it_is_excused"]
fn inner() {
    #[expect(clippy::disallowed_methods, reason = "the outer test tells what is missing")]
    let lack = std::env::var(LACK_VARIABLE).unwrap();
    skip(Lack::ALL[lack.parse::<usize>().unwrap()]);
}

#[test]
fn a_skipped_test_is_listed_and_fails_in_ci_unless_it_is_excused() {
    let dir = tempfile::tempdir().unwrap();
    let list = dir.path().join("list");
    for (at, lack) in Lack::ALL.into_iter().enumerate() {
        for (ci, passes) in [(None, true), (Some("false"), true), (Some("true"), lack.excuse().is_some())] {
            let mut inner = Command::new(std::env::current_exe().unwrap());
            inner.args(["--exact", "skip::inner", "--ignored"]);
            inner
                .env("CARGO_PKG_NAME", "testkit")
                .env(LIST_VARIABLE, &list)
                .env(LACK_VARIABLE, at.to_string());
            match ci {
                Some(ci) => inner.env("CI", ci),
                None => inner.env_remove("CI"),
            };
            let output = inner.output().unwrap();
            let said = String::from_utf8(output.stdout).unwrap();
            assert_eq!(output.status.success(), passes, "{lack:?} with CI={ci:?}: {said}");
            assert_eq!(said.contains("in CI a skipped test has failed"), !passes, "{said}");
            let listed = fs::read_to_string(&list).unwrap();
            assert_eq!(listed, format!("testkit skip::inner: {}\n", lack.words()));
            fs::remove_file(&list).unwrap();
        }
    }
}

#[test]
fn file_modes_count_for_root_too() {
    use std::os::unix::fs::PermissionsExt as _;
    if !testkit::file_modes_count() {
        return;
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::set_permissions(file.path(), fs::Permissions::from_mode(0o000)).unwrap();
    assert_eq!(fs::read(file.path()).unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
}
