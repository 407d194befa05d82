//! Names that change between the look and the mount, and directories that a command only says it is in.

use serde_json::json;

use super::{
    hostile::{bash, beside, calls, python, reports, shows_no_canary, stop, wait_for_ready},
    picture,
};
use crate::place::Place;

/// How often a fence is put up while names are swapped. A fence that looks up names finds the link at the first or second time.
const TRIES: usize = 12;

/// Seen: a background command swapped `.vscode` between a directory and a link, and the next fence showed what the link named.
#[test]
fn a18_a_name_that_is_swapped_while_a_fence_is_put_up_shows_nothing() {
    // The link takes the directory's place as soon as somebody has looked at the project, until the command runs.
    let swapper = "
os.mkdir('looked'); os.symlink('../home', 'other'); os.mkdir('.vscode')
opened = Opened('looked'); ready()
while not stopped():
    # It is put aside when a command ends that found it absent.
    if not os.path.lexists('.vscode'): os.mkdir('.vscode')
    if opened.within(0.005) and exchange('.vscode', 'other'):
        limit = time.monotonic() + 0.3
        while not os.path.exists('runs') and time.monotonic() < limit and not stopped(): time.sleep(0.001)
        exchange('.vscode', 'other')
";
    let read = "
import os, time
open('runs', 'w').close()
for place in [os.path.expanduser('~'), '.vscode', 'other']:
    for at, _, files in os.walk(place):
        for name in files:
            try: print(at, name, open(os.path.join(at, name)).read())
            except OSError: pass
limit = time.monotonic() + 2
while os.path.islink('.vscode') and time.monotonic() < limit: time.sleep(0.001)
os.unlink('runs')";
    let place = Place::new(calls([]));
    place.env.write(place.env.home().join("notes"), "canary\n");
    place.env.write(place.repo.join(".env"), "SECRET\n");
    let tries = (0..TRIES).map(|_| bash(python(read)));
    place
        .server
        .set_script(calls([beside(swapper), wait_for_ready()].into_iter().chain(tries).chain([stop()])));
    let before = picture(&place.env.home());
    // With a rule about files the project is looked through, which the swapper hears.
    shows_no_canary(&place, "accept-edits", &["--deny", "Read(.env)"]);
    assert_eq!(picture(&place.env.home()), before);
}

/// Seen: a link in the worktree was taken for a directory inside, and the protected names behind it were shown.
#[test]
fn a18_a_reported_directory_shows_nothing_behind_a_link() {
    let place = Place::new(calls([]));
    let home = place.env.home();
    place.env.write(home.join(".zshrc"), "# canary\n");
    place.env.write(home.join(".config/systemd/user/x.service"), "canary\n");
    let read = python(
        "import os\nprint(os.getcwd())\nfor name in ['.zshrc', '.config/systemd/user/x.service']:\n for at in ['', 'link/']:\n  try: print(open(at + name).read())\n  except OSError as e: print(e)",
    );
    let steps = [
        bash("ln -s ../home link"),
        reports(&place.repo.join("link")),
        bash(read.clone()),
        bash("cat $(printf .zsh)rc"),
        reports(&home),
        bash(read),
    ];
    place.server.set_script(calls(steps));
    let before = picture(&home);
    shows_no_canary(&place, "accept-edits", &[]);
    assert_eq!(picture(&home), before);
}

/// Seen: in default mode a reading command named a directory, in which a command that a rule allows then ran as the user.
#[test]
fn a18_a_reported_directory_takes_no_allowed_command_elsewhere() {
    for outside in ["work/evil", "tmp/evil"] {
        let place = Place::new(calls([]));
        let evil = place.env.root().join(outside);
        place.env.write(evil.join("Makefile"), "all:\n\ttouch made\n");
        let lies = [
            format!("command() {{ printf '{}\\n\\0'; }}", evil.display()),
            format!("cd sub; trap \"printf '{}\\n\\0' >&\\$__caliban_cwd\" EXIT; exit 0", evil.display()),
        ];
        place.env.write(place.repo.join("sub/x"), "x\n");
        place.server.set_script(calls(lies.into_iter().flat_map(|lie| [bash(lie), bash("make")])));
        shows_no_canary(&place, "default", &["--allow", "Bash(make *) outside"]);
        assert!(!evil.join("made").exists(), "{outside}: {:#?}", super::results(&place));
    }
}

/// The same without a lie: the directory that a command stands in becomes a link, and what a rule allows runs there next.
#[test]
fn a18_a_directory_that_became_a_link_takes_no_allowed_command_elsewhere() {
    for swap in
        ["mv ../sub ../old; ln -s ../work/evil ../sub", "cd ..; mv sub old; ln -s ../work/evil sub; cd old"]
    {
        let place = Place::new(calls([]));
        let evil = place.env.root().join("work/evil");
        place.env.write(evil.join("Makefile"), "all:\n\ttouch made\n");
        place.env.write(place.repo.join("sub/Makefile"), "all:\n\ttrue\n");
        let program = python(&format!("import os; os.system({swap:?})"));
        place.server.set_script(calls([bash("cd sub"), bash(program), bash("make"), bash("cat Makefile")]));
        shows_no_canary(&place, "accept-edits", &["--allow", "Bash(make *) outside in sub"]);
        assert!(!evil.join("made").exists(), "{swap}: {:#?}", super::results(&place));
    }
}

/// A command beside it swaps the directory when the rules have seen it.
#[test]
fn a18_a_directory_that_is_swapped_takes_no_allowed_command_elsewhere() {
    let place = Place::new(calls([]));
    let evil = place.env.root().join("work/evil");
    place.env.write(evil.join("Makefile"), "all:\n\ttouch made\n");
    place.env.write(place.repo.join("sub/Makefile"), "all:\n\ttrue\n");
    // While the next command starts, that is: not before the last one has said where it went.
    let swapper = "
os.symlink('../work/evil', 'other'); ready(); turn = 0
while not stopped():
    if not os.path.exists('go'): time.sleep(0.001); continue
    turn += 1
    time.sleep(0.004 + 0.003 * (turn % 5))
    limit = time.monotonic() + 0.15
    while time.monotonic() < limit:
        exchange('sub', 'other'); time.sleep(0.003)
        exchange('sub', 'other'); time.sleep(0.003)
    os.unlink('go')
";
    let calm = "until test ! -e go; do sleep 0.01; done";
    let one = || {
        [bash("cd sub && touch ../go"), bash("make"), bash(format!("{calm}; cd {}", place.repo.display()))]
    };
    let tries = (0..2 * TRIES).flat_map(|_| one());
    let steps = [beside(swapper), wait_for_ready()].into_iter().chain(tries).chain([stop()]);
    place.server.set_script(calls(steps));
    shows_no_canary(&place, "accept-edits", &["--allow", "Bash(make *) outside in sub"]);
    assert!(!evil.join("made").exists(), "{:#?}", super::results(&place));
}

/// A report of a directory of the project counts, as does that of an added one.
#[test]
fn a18_a_reported_directory_counts_inside() {
    let place = Place::new(calls([]));
    let added = place.env.root().join("added");
    place.env.write(added.join("here"), "x\n");
    place.env.write(place.repo.join("sub/deep/x"), "x\n");
    let steps = ["cd sub/deep", "ls; cd ..", "ls; cd ../../added", "ls"].map(bash);
    place.server.set_script(calls(steps));
    super::go(&place, "accept-edits", &["--add-dir", added.to_str().unwrap()]);
    let texts: Vec<String> = super::results(&place).into_iter().map(|(_, text, _)| text).collect();
    let expected = ["sub/deep", "x", "deep", "here"];
    for (text, word) in texts.iter().zip(expected) {
        assert!(text.contains(word), "{}: {texts:#?}", json!(word));
    }
}
