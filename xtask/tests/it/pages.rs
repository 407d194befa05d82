//! The dashboard's files: vendored libraries as they were taken, and the view models' own tests, which node runs.

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the root")
}

#[test]
fn vendored_files_are_as_they_were_taken() {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask")).arg("vendor").output().expect("xtask runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Grouping, folding, windowing, when an ask may be answered, contrast, size: `crates/caliban-web/tests/view/`.
#[test]
fn view_models_of_the_pages() {
    let output = Command::new("node")
        .args(["--test", "tests/view/"])
        .current_dir(root().join("crates/caliban-web"))
        .output()
        .expect("node (Debian: apt-get install nodejs)");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && told.contains("# fail 0"), "{told}");
}
