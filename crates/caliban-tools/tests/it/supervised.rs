//! Commands of the user's (hooks, setup commands) under a reaper.

use std::{fs, path::Path, time::Duration};

use caliban_keeper::{CommandEnd, KeptOutput, Launch, LaunchEnvironment, Streams, Supervised, SupervisedEnd};
use tokio_util::sync::CancellationToken;

use crate::bench::helper;

const LONG: Duration = Duration::from_secs(60);

fn command(root: &Path, line: &str, limit: Duration) -> Supervised {
    let env = vec![("PATH".into(), "/usr/bin:/bin".into()), ("GIVEN".into(), "x".into())];
    let streams = Streams::Apart { input: "{\"a\":1}\n".into() };
    Supervised {
        helper: helper(),
        launch: Launch::shell(line, root.to_owned(), env, streams),
        limit,
        keep: KeptOutput::First(64 << 10),
    }
}

async fn run(root: &Path, line: &str, limit: Duration) -> SupervisedEnd {
    command(root, line, limit).run(&CancellationToken::new()).await.unwrap()
}

fn end(why: CommandEnd, code: i32, stdout: &str, stderr: &str) -> SupervisedEnd {
    SupervisedEnd { why, code: Some(code), stdout: stdout.into(), stderr: stderr.into() }
}

#[tokio::test]
async fn it_reads_its_input_and_its_outputs_stay_apart() {
    let dir = tempfile::tempdir().unwrap();
    let line = "cat; echo \"$# $GIVEN\" >&2; exit 7";
    assert_eq!(run(dir.path(), line, LONG).await, end(CommandEnd::Itself, 7, "{\"a\":1}\n", "0 x\n"));
    // Who does not read its input, however long it is, is not waited for.
    let mut deaf = command(dir.path(), "echo said", LONG);
    deaf.launch.streams = Streams::Apart { input: "x".repeat(4 << 20).into() };
    assert_eq!(deaf.run(&CancellationToken::new()).await.unwrap(), end(CommandEnd::Itself, 0, "said\n", ""));
    let mut much = command(dir.path(), "yes | head -c 1000000", LONG);
    much.keep = KeptOutput::First(10);
    assert_eq!(
        much.run(&CancellationToken::new()).await.unwrap(),
        end(CommandEnd::Itself, 0, "y\ny\ny\ny\ny\n", "")
    );
    let mut both = command(dir.path(), "cat; echo $#; echo one; echo two >&2; echo three; exit 7", LONG);
    both.launch.streams = Streams::Joined;
    both.launch.environment = LaunchEnvironment::Exactly(Vec::new());
    both.keep = KeptOutput::Last(10);
    // It reads nothing, gets no further argument, and what it printed last is kept, in order.
    assert_eq!(
        both.run(&CancellationToken::new()).await.unwrap(),
        end(CommandEnd::Itself, 7, "two\nthree\n", "")
    );
    let mut nowhere = command(dir.path(), "", LONG);
    nowhere.launch.program = "/no/such/program".into();
    let ended = nowhere.run(&CancellationToken::new()).await.unwrap();
    assert_eq!((ended.code, ended.stdout), (Some(125), Vec::new()));
    assert!(String::from_utf8(ended.stderr).unwrap().contains("No such file"));
}

#[tokio::test]
async fn r06_what_it_leaves_running_is_ended_and_its_own_code_counts() {
    let dir = tempfile::tempdir().unwrap();
    let line = "setsid sh -c 'trap \"\" TERM; echo $$ > pid; while :; do sleep 1000; done' & \
                while [ ! -s pid ]; do sleep 0.01; done; echo no >&2; exit 2";
    let ended = run(dir.path(), line, LONG).await;
    assert_eq!(ended, end(CommandEnd::Itself, 2, "", "no\n"));
    let pid = fs::read_to_string(dir.path().join("pid")).unwrap();
    assert!(!Path::new(&format!("/proc/{}", pid.trim())).exists());
}

#[tokio::test]
async fn r06_time_and_cancellation_end_all_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let line = "echo begun; echo $$ > pid; exec sleep 1000";
    let gone = || {
        let pid = fs::read_to_string(dir.path().join("pid")).unwrap();
        !Path::new(&format!("/proc/{}", pid.trim())).exists()
    };
    let ended = run(dir.path(), line, Duration::from_secs(3)).await;
    assert_eq!(ended, end(CommandEnd::Timeout, 128 + 15, "begun\n", ""));
    assert!(gone());
    fs::remove_file(dir.path().join("pid")).unwrap();
    let cancel = CancellationToken::new();
    let (ended, ()) = tokio::join!(command(dir.path(), line, LONG).run(&cancel), async {
        while !fs::read_to_string(dir.path().join("pid")).is_ok_and(|pid| pid.ends_with('\n')) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        cancel.cancel();
    });
    assert_eq!(ended.unwrap(), end(CommandEnd::Cancelled, 128 + 15, "begun\n", ""));
    assert!(gone());
}
