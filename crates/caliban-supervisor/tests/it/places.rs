//! Where things are, and who may be there.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use caliban_contract::{PlaceSources, Places, SOCKET_PATH_LIMIT, repo_hash, repo_root};
use caliban_fleet::Client;

use crate::fleet::Fleet;

fn sources(daemon: Option<&str>, xdg: Option<&str>, tmp: Option<&str>) -> PlaceSources {
    let path = |text: Option<&str>| text.map(PathBuf::from);
    PlaceSources {
        daemon_runtime_dir: path(daemon),
        xdg_runtime_dir: path(xdg),
        tmpdir: path(tmp),
        data: "/data/caliban".into(),
    }
}

#[test]
fn f04_the_socket_is_in_the_first_directory_that_is_set() {
    let check = |sources: &PlaceSources, expected: &str| {
        let places = Places::of("/repo".into(), sources).unwrap();
        assert_eq!(
            places.socket(),
            Path::new(expected).join(format!("{}.sock", repo_hash(Path::new("/repo"))))
        );
    };
    check(&sources(Some("/own"), Some("/run/user/1"), Some("/t")), "/own");
    check(&sources(None, Some("/run/user/1"), Some("/t")), "/run/user/1/caliban");
    check(&sources(None, None, Some("/t")), "/t/caliban-daemon");
    check(&sources(None, None, None), "/tmp/caliban-daemon");
    // XDG: a path that is not absolute counts as not set.
    check(&sources(None, Some("run"), Some("/t")), "/t/caliban-daemon");
    assert!(Places::of("/repo".into(), &sources(Some("own"), None, None)).is_err());
}

#[test]
fn f04_a_temporary_directory_that_another_user_has_taken_locks_nobody_out() {
    let temp = tempfile::tempdir().unwrap();
    let taken = temp.path().join("caliban-daemon");
    fs::create_dir(&taken).unwrap();
    let places = || Places::of("/repo".into(), &sources(None, None, temp.path().to_str())).unwrap();
    assert_eq!((places().runtime(), places().elsewhere()), (taken.as_path(), None));
    if std::os::unix::fs::chown(&taken, Some(65_534), None).is_err() {
        return testkit::skip(testkit::Lack::OtherUsers);
    }
    let own = places();
    let parent = format!("/tmp/caliban-{}", rustix::process::getuid().as_raw());
    assert_eq!(own.runtime().parent(), Some(Path::new(&parent)));
    own.prepare_runtime().unwrap();
    assert_eq!(own.elsewhere(), Some(&*format!("{} belongs to another user", taken.display())));
}

#[test]
fn f05_hash_is_sixteen_hex_of_the_root_path() {
    // printf /home/me/project | sha256sum
    assert_eq!(repo_hash(Path::new("/home/me/project")), SHA);
    let places = Places::of("/home/me/project".into(), &sources(Some("/own"), None, None)).unwrap();
    assert_eq!(places.base(), Path::new("/data/caliban/repos").join(SHA));
}

const SHA: &str = "225df3094012a213";

#[test]
fn f03_all_worktrees_of_a_repo_have_its_root() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().canonicalize().unwrap();
    let repo = root.join("repo");
    let git = |args: &[&str]| {
        let done = std::process::Command::new("git")
            .args(["-c", "user.name=x", "-c", "user.email=x@x", "-C"])
            .arg(&root)
            .args(args)
            .env("HOME", &root)
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    git(&["init", "-q", "repo"]);
    git(&["-C", "repo", "commit", "-q", "--allow-empty", "-m", "x"]);
    git(&["-C", "repo", "worktree", "add", "-q", "../linked"]);
    fs::create_dir_all(repo.join("a/b")).unwrap();
    fs::create_dir_all(root.join("linked/c")).unwrap();
    fs::create_dir(root.join("plain")).unwrap();
    for (start, expected) in
        [("repo", "repo"), ("repo/a/b", "repo"), ("linked", "repo"), ("linked/c", "repo"), ("plain", "plain")]
    {
        assert_eq!(repo_root(&root.join(start)).unwrap(), root.join(expected), "{start}");
    }
}

#[test]
fn a01_a_runtime_directory_that_is_not_ours_alone_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path();
    let check = |dir: &Path, expected: &str| {
        let sources =
            PlaceSources { data: root.join("data"), ..sources(Some(dir.to_str().unwrap()), None, None) };
        let places = Places::of("/repo".into(), &sources).unwrap();
        let refused = places.prepare().map_err(|error| error.to_string());
        assert_eq!(refused, Err(format!("the directory {} is refused: {expected}", dir.display())));
    };
    let open = root.join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o770)).unwrap();
    check(&open, "others can write in it");
    let link = root.join("link");
    fs::create_dir(root.join("target")).unwrap();
    std::os::unix::fs::symlink(root.join("target"), &link).unwrap();
    check(&link, "it is a symbolic link");
    fs::write(root.join("file"), "").unwrap();
    check(&root.join("file"), "it is not a directory");
    if rustix::process::getuid().is_root() {
        let theirs = root.join("theirs");
        fs::create_dir(&theirs).unwrap();
        std::os::unix::fs::chown(&theirs, Some(65534), None).unwrap();
        check(&theirs, "it belongs to somebody else");
    }
}

#[tokio::test]
async fn a01_everything_is_for_our_eyes_only() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let id = fleet.spawn_up(&mut client, "serve").await;
    let places = &fleet.places;
    let mode = |path: &Path| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
    let dirs =
        [places.runtime(), places.base(), &places.sockets_dir(), &places.agents_dir(), &places.agent_dir(id)];
    assert_eq!(dirs.map(mode), [0o700; 5]);
    let files = [places.socket(), places.database(), places.log(), places.agent_dir(id).join("spec.json")];
    assert_eq!(files.map(|file| mode(&file)), [0o600; 4]);
}

#[tokio::test]
async fn a02_a_runtime_directory_that_is_too_deep_gets_a_short_stand_in() {
    let mut fleet = Fleet::new();
    let deep = fleet.temp.path().join("d".repeat(120));
    let sources = PlaceSources { data: fleet.temp.path().join("data"), ..sources(deep.to_str(), None, None) };
    fleet.places = Places::of(fleet.places.repo().to_owned(), &sources).unwrap();
    let id = "0123abcd".parse().unwrap();
    assert!(fleet.places.agent_socket(id).as_os_str().len() < SOCKET_PATH_LIMIT);
    let uid = rustix::process::getuid().as_raw();
    assert!(fleet.places.socket().starts_with(format!("/tmp/caliban-{uid}")));
    assert!(fleet.places.elsewhere().unwrap().ends_with("is too long for a socket"));
    let mut client = fleet.client().await;
    let id = fleet.spawn_up(&mut client, "serve").await;
    assert_eq!(client.wake(&id.to_string()).await.unwrap().socket, fleet.places.agent_socket(id));
    client.kill(&id.to_string(), &crate::fleet::quick()).await.unwrap();
    client.shutdown().await.unwrap();
    fs::remove_dir_all(fleet.places.runtime()).unwrap();
}

#[tokio::test]
async fn a02_places_given_to_the_daemon_are_refused_when_too_long() {
    let fleet = Fleet::new();
    let long = format!("/tmp/{}", "d".repeat(120));
    let out = std::process::Command::new(crate::fleet::caliband())
        .args(["--repo", "/repo", "--base", "/tmp/base", "--runtime", &long])
        .output()
        .unwrap();
    let said = String::from_utf8(out.stdout).unwrap();
    assert_eq!(out.status.code(), Some(2));
    assert!(
        said.starts_with("the socket path /tmp/ddd") && said.ends_with("the system takes less than 104\n"),
        "{said}"
    );
    drop(fleet);
}

#[tokio::test]
async fn a_read_only_place_is_said_in_words() {
    let fleet = Fleet::new();
    let sources =
        PlaceSources { data: "/proc/nowhere".into(), ..sources(fleet.places.runtime().to_str(), None, None) };
    let places = Places::of("/repo".into(), &sources).unwrap();
    let error = Client::connect_or_start(&places, fleet.start.clone()).await.unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("the directory /proc/nowhere/repos/") && text.contains("cannot be made"),
        "{text}"
    );
    assert!(error.hint().unwrap().contains("XDG_DATA_HOME"));
}

#[tokio::test]
async fn f03_caliband_by_hand_serves_the_repo_of_the_current_directory() {
    let fleet = Fleet::new();
    let run = fleet.temp.path().join("run");
    fs::create_dir(&run).unwrap();
    let mut daemon = std::process::Command::new(crate::fleet::caliband())
        .current_dir(fleet.places.repo())
        .env_clear()
        .env("HOME", fleet.temp.path())
        .env("XDG_RUNTIME_DIR", &run)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let root = fleet.places.repo().canonicalize().unwrap();
    let socket = run.join("caliban").join(format!("{}.sock", repo_hash(&root)));
    crate::fleet::wait_until("it listens", || std::os::unix::net::UnixStream::connect(&socket).is_ok());
    let base = fleet.temp.path().join(".local/share/caliban/repos").join(repo_hash(&root));
    assert_eq!(fs::read_to_string(base.join("repo")).unwrap(), format!("{}\n", root.display()));
    crate::fleet::signal(i32::try_from(daemon.id()).unwrap(), rustix::process::Signal::TERM);
    assert!(daemon.wait().unwrap().success());
    assert!(!socket.exists());
    let out = |arg: &str| {
        let done = std::process::Command::new(crate::fleet::caliband()).arg(arg).output().unwrap();
        (done.status.code(), String::from_utf8(done.stdout).unwrap())
    };
    assert_eq!(out("--version"), (Some(0), format!("caliband {}\n", env!("CARGO_PKG_VERSION"))));
    assert!(out("--help").1.starts_with("caliband: the supervisor"));
    assert_eq!(out("--nonsense").0, Some(2));
    let homeless = std::process::Command::new(crate::fleet::caliband())
        .current_dir(fleet.places.repo())
        .env_clear()
        .output()
        .unwrap();
    let said = String::from_utf8(homeless.stderr).unwrap();
    assert_eq!(said, "caliband: neither XDG_DATA_HOME nor HOME is set; there is no place for data\n");
}

#[tokio::test]
async fn a01_another_user_who_gets_as_far_as_the_socket_is_refused() {
    let fleet = Fleet::new();
    if !rustix::process::getuid().is_root() {
        return testkit::skip(testkit::Lack::OtherUsers);
    }
    let mut client = fleet.client().await;
    let mode = |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    for dir in [fleet.temp.path(), fleet.places.runtime()] {
        mode(dir, 0o755);
    }
    mode(&fleet.places.socket(), 0o666);
    let ask = |as_whom: &[&str]| {
        let mut command = std::process::Command::new("setpriv");
        command.args(as_whom).args(["curl", "-s", "--unix-socket"]).arg(fleet.places.socket());
        command.arg("http://x/v1/agents").output().unwrap()
    };
    let other = ask(&["--reuid=65534", "--regid=65534", "--clear-groups"]);
    assert!(!other.status.success());
    assert_eq!(String::from_utf8_lossy(&other.stdout), "");
    assert!(fleet.log().contains("a connection of another user was refused"), "{}", fleet.log());
    assert_eq!(String::from_utf8_lossy(&ask(&[]).stdout), "{\"agents\":[]}");
    assert_eq!(client.list().await.unwrap(), []);
}
