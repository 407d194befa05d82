//! Files that rules deny: whatever name they get, whenever they move, and whoever shows them.

use std::path::{Path, PathBuf};

use super::{
    hostile::{bash, beside, calls, is_refused, python, shows_no_canary, stop, wait_for_ready},
    results,
};
use crate::place::Place;

const KEY: &str = "conf/secrets/key";
const DENIED: [&str; 4] = ["--deny", "Read(conf/secrets/**)", "--deny", "Read(.env)"];

fn with_secrets() -> Place {
    let place = Place::new(calls([]));
    place.env.write(place.repo.join(KEY), "canary\n");
    place.env.write(place.repo.join(".env"), "canary\n");
    place
}

/// Seen: `mv conf/secrets s2` in the edit fence, and `cat s2/key`.
#[test]
fn a18_a_denied_file_gets_no_other_name() {
    let moves = [
        "mv conf/secrets s2",
        "mv conf c2",
        "mkdir d; mv conf d/",
        "ln conf/secrets/k* k2",
        "cp -al conf c2",
    ];
    for line in moves {
        let place = with_secrets();
        let find = "import os\nfor at, _, files in os.walk('.'):\n for name in files:\n  try: print(at, name, open(os.path.join(at, name), errors='replace').read())\n  except OSError: pass";
        // In a program: the words are not what holds here.
        let program = python(&format!("import os; os.system({line:?})"));
        place.server.set_script(calls([
            bash(program),
            bash(python(find)),
            bash("cat s2/key c2/secrets/key d/conf/secrets/key k2"),
        ]));
        shows_no_canary(&place, "accept-edits", &DENIED);
        assert_eq!(place.env.read(place.repo.join(KEY)), "canary\n", "{line}: it is where it was");
    }
}

/// Seen: a parent was renamed to and fro while fences were put up, and a mask that found nothing was left out.
#[test]
fn a18_a_denied_file_stays_denied_while_its_parent_is_renamed() {
    let place = with_secrets();
    // Takes the directory away as soon as somebody has looked into it, and brings it back when the command runs.
    let mover = "
opened = Opened('conf'); ready()
while not stopped():
    if not opened.within(0.01): continue
    try: os.rename('conf', 'away')
    except OSError: continue
    limit = time.monotonic() + 2
    while not os.path.exists('runs') and time.monotonic() < limit and not stopped(): time.sleep(0.001)
    os.rename('away', 'conf')
";
    let read = "
import os, time
open('runs', 'w').close()
limit = time.monotonic() + 2
while time.monotonic() < limit and not os.path.exists('conf'): time.sleep(0.001)
for at in ['conf', 'away']:
    try: print(open(at + '/secrets/key').read())
    except OSError as error: print(error)
os.unlink('runs')";
    let tries = (0..8).map(|_| bash(python(read)));
    place
        .server
        .set_script(calls([beside(mover), wait_for_ready()].into_iter().chain(tries).chain([stop()])));
    shows_no_canary(&place, "accept-edits", &DENIED);
}

/// A mask belongs to the file that was seen, wherever the directory is when the mask is made.
#[test]
fn a18_a_denied_file_stays_denied_while_it_is_judged() {
    let place = Place::new(calls([]));
    // The file is the user's, and comes when the mover runs: nothing held its directory when that began.
    let make = "mkdir d && for n in $(seq 4000); do : > d/$n; done && echo canary > d/.env && for n in $(seq 4000); do : > d/x$n; done && touch made\n";
    let line = format!("sh {}", place.env.write("make.sh", make).display());
    let mover = "
ready()
while not os.path.exists('made') and not stopped(): time.sleep(0.001)
opened = Opened('d')
while not stopped():
    if not opened.within(0.01): continue
    try: os.rename('d', 'away')
    except OSError: continue
    limit = time.monotonic() + 3
    while not os.path.exists('runs') and time.monotonic() < limit and not stopped(): time.sleep(0.001)
    os.rename('away', 'd')
";
    let read = "
import os, time
open('runs', 'w').close()
limit = time.monotonic() + 2
while time.monotonic() < limit and not os.path.exists('d'): time.sleep(0.001)
for at in ['d', 'away']:
    try: print(open(at + '/.en' + 'v').read())
    except OSError as error: print(error)
os.unlink('runs')";
    let tries = (0..4).map(|_| bash(python(read)));
    let steps = [beside(mover), wait_for_ready(), bash(&line)].into_iter().chain(tries).chain([stop()]);
    place.server.set_script(calls(steps));
    let allow = format!("Bash({line}) outside");
    shows_no_canary(&place, "accept-edits", &["--allow", &allow, "--deny", "Read(.env)"]);
}

/// Seen: in a home directory that is the project, `.config` was renamed, and the keys in it were there for the next command.
#[test]
fn a18_keys_in_a_home_that_is_the_project_get_no_other_name() {
    let mut place = Place::new(calls([]));
    let home = place.env.home();
    for name in [
        ".config/gh/hosts.yml",
        ".config/gcloud/x",
        ".local/share/keyrings/x",
        ".cargo/credentials.toml",
        ".aws/x",
        ".ssh/id",
    ] {
        place.env.write(home.join(name), "canary\n");
    }
    let rename = "import os\nfor name in ['.config', '.local/share', '.local', '.cargo', '.aws', '.ssh']:\n try: os.rename(name, name.replace('.', 'x').replace('/', '-'))\n except OSError as error: print(error)";
    let find = "import os\nfor at, _, files in os.walk('.'):\n for name in files:\n  try: print(at, name, open(os.path.join(at, name), errors='replace').read())\n  except OSError: pass";
    place.server.set_script(calls([bash(python(rename)), bash(python(find)), bash("grep -rhs c.nary .")]));
    place.repo.clone_from(&home);
    shows_no_canary(&place, "accept-edits", &[]);
}

/// Seen: `git show :0:.env` showed a denied file in every mode.
#[test]
fn a18_git_shows_no_denied_file_in_any_mode() {
    let lines = [
        "git show :0:.env",
        "git show :.env",
        "git show HEAD:./.env",
        "git show main~0:.env",
        "git cat-file -p $(git rev-parse :0:.env)",
        "git cat-file blob :0:.env",
        "git show $(git ls-files -s .e* | cut -c8-47)",
        "git grep --cached -h c.nary",
        "git diff --cached 4b825dc642cb6eb9a060e54bf8d69288fbee4904",
        "git archive HEAD | cat",
        "git log -p -1",
        "git ls-tree -r HEAD; git cat-file --batch-all-objects --batch",
    ];
    for is_committed in [true, false] {
        for mode in ["default", "accept-edits", "plan", "unattended"] {
            let place = with_secrets();
            place.env.git(&place.repo, &["add", "-A"]);
            if is_committed {
                place.env.git(&place.repo, &["commit", "-qm", "with secrets"]);
            }
            let more = python(
                "import os, subprocess\nfor line in open('lines').read().splitlines(): print(subprocess.run(line, shell=True, capture_output=True, text=True).stdout)",
            );
            place.env.write(place.repo.join("lines"), lines.join("\n"));
            place.server.set_script(calls(lines.map(bash).into_iter().chain([bash(more)])));
            shows_no_canary(&place, mode, &DENIED);
        }
    }
}

/// The other store is `from`.
const BORROWED: [&str; 3] = [
    "git show HEAD:.env",
    "GIT_OBJECT_DIRECTORY=$PWD/../from/.git/objects git cat-file --batch-all-objects --batch",
    "git --git-dir ../from/.git cat-file --batch-all-objects --batch",
];
const OBJECTS_OF_A_STORE: [&str; 3] = ["git show HEAD:.env", "git log -p", "git cat-file -p HEAD:.env"];

/// The same for every other store that a command can get at.
#[test]
fn a18_git_shows_no_denied_file_of_any_store() {
    let layouts: [Layout; 5] = [
        (
            "an added directory",
            |place| {
                let added = repository(place, "added");
                vec!["--add-dir".to_owned(), added.display().to_string(), deny(&added)]
            },
            &["git -C ../added show :0:.env", "git -C ../added show HEAD:.env", "git -C ../added log -p"],
        ),
        (
            "a bare repository",
            |place| {
                let (from, bare) = (repository(place, "from"), place.env.root().join("work/bare.git"));
                place.env.git(&from, &["clone", "-q", "--bare", ".", bare.to_str().unwrap()]);
                place.repo.clone_from(&bare);
                vec![deny(&bare)]
            },
            &["git show HEAD:.env", "git log -p", "git cat-file -p HEAD:.env"],
        ),
        (
            "a tag of a file",
            |place| {
                place.env.write(place.repo.join(".env"), "canary\n");
                let made = place
                    .env
                    .program("git")
                    .args(["hash-object", "-w", ".env"])
                    .current_dir(&place.repo)
                    .output();
                let id = String::from_utf8(made.unwrap().stdout).unwrap();
                place.env.git(&place.repo, &["tag", "secret", id.trim()]);
                vec![deny(&place.repo)]
            },
            &["git cat-file -p secret", "git show secret"],
        ),
        (
            "a worktree without a branch",
            |place| {
                let (from, linked) = (repository(place, "from"), place.env.root().join("work/linked"));
                place.env.git(&from, &["worktree", "add", "-q", "--detach", linked.to_str().unwrap()]);
                place.env.git(&from, &["reset", "-q", "--hard", "HEAD~1"]);
                place.env.git(&linked, &["rm", "-q", "--cached", ".env"]);
                place.repo.clone_from(&linked);
                vec![deny(&linked)]
            },
            &["git show HEAD:.env", "git log -p", "git cat-file -p HEAD:.env"],
        ),
        (
            "a nested repository",
            |place| {
                let nested = repository(place, "repo/third");
                vec![deny(&nested)]
            },
            &["git -C third show :0:.env", "git -C third cat-file -p HEAD:.env", "git -C third log -p"],
        ),
    ];
    shows_none_of(layouts);
}

/// The same where git follows a file, a link or a list to the store.
#[test]
fn a18_git_shows_no_denied_file_of_a_store_elsewhere() {
    let layouts: [Layout; 7] = [
        (
            "objects of another store",
            |place| {
                let (from, clone) = (repository(place, "from"), place.env.root().join("work/clone"));
                let middle = place.env.root().join("work/middle");
                place.env.git(&from, &["clone", "-q", "--shared", ".", middle.to_str().unwrap()]);
                place.env.git(&middle, &["clone", "-q", "--shared", ".", clone.to_str().unwrap()]);
                place.repo.clone_from(&clone);
                vec![deny(&clone)]
            },
            &BORROWED,
        ),
        (
            "objects of another store that a person has accepted",
            |place| {
                let (from, clone) = (repository(place, "from"), place.env.root().join("work/clone"));
                place.env.git(&from, &["clone", "-q", "--shared", ".", clone.to_str().unwrap()]);
                place.repo.clone_from(&clone);
                place.verb(["trust"]).ok();
                vec![deny(&clone)]
            },
            &BORROWED,
        ),
        (
            "a separate git directory",
            |place| {
                let (from, store) = (repository(place, "from"), place.env.root().join("work/store"));
                place.env.git(&from, &["init", "-q", "--separate-git-dir", store.to_str().unwrap()]);
                place.repo.clone_from(&from);
                vec![deny(&from)]
            },
            &OBJECTS_OF_A_STORE,
        ),
        (
            "a git directory behind a link",
            |place| {
                let (from, store) = (repository(place, "from"), place.env.root().join("work/store"));
                std::fs::rename(from.join(".git"), &store).unwrap();
                std::os::unix::fs::symlink("../store", from.join(".git")).unwrap();
                place.repo.clone_from(&from);
                vec![deny(&from)]
            },
            &OBJECTS_OF_A_STORE,
        ),
        (
            "a worktree that was moved",
            |place| {
                let (from, linked) = (repository(place, "from"), place.env.root().join("work/linked"));
                place.env.git(&from, &["worktree", "add", "-q", linked.to_str().unwrap()]);
                let moved = linked.with_file_name("moved");
                std::fs::rename(&linked, &moved).unwrap();
                place.repo.clone_from(&moved);
                vec![deny(&moved)]
            },
            &OBJECTS_OF_A_STORE,
        ),
        (
            "a store beside the file that names it",
            |place| {
                let from = repository(place, "from");
                std::fs::rename(from.join(".git"), from.join(".bare")).unwrap();
                place.env.write(from.join(".git"), "gitdir: ./.bare\n");
                place.repo.clone_from(&from);
                vec![deny(&from)]
            },
            &OBJECTS_OF_A_STORE,
        ),
        (
            "a nested store beside the file that names it",
            |place| {
                let nested = repository(place, "repo/third");
                std::fs::rename(nested.join(".git"), nested.join(".bare")).unwrap();
                place.env.write(nested.join(".git"), "gitdir: ./.bare\n");
                vec![deny(&nested)]
            },
            &["git -C third show :0:.env", "git -C third cat-file -p HEAD:.env", "git -C third log -p"],
        ),
    ];
    shows_none_of(layouts);
}

/// What it is called, how it is made (the flags), and lines that try to see the file.
type Layout = (&'static str, fn(&mut Place) -> Vec<String>, &'static [&'static str]);

#[track_caller]
fn shows_none_of(layouts: impl IntoIterator<Item = Layout>) {
    for (what, make, lines) in layouts {
        for mode in ["default", "accept-edits", "unattended"] {
            let mut place = Place::new(calls([]));
            let flags = make(&mut place);
            let flags: Vec<&str> = flags.iter().flat_map(|flag| flag.split('\t')).collect();
            let more = lines.iter().map(|line| bash(python(&format!("import os; os.system({line:?})"))));
            place.server.set_script(calls(lines.iter().map(|line| bash(*line)).chain(more)));
            super::go(&place, mode, &flags);
            let found = results(&place);
            assert!(found.iter().all(|(_, text, _)| !text.contains("canary")), "{what}, {mode}: {found:#?}");
        }
    }
}

/// Takes away what leads to objects.
const FORGET: &str = "
import os
for top in ('third/.git', 'third.git'):
    for name in ('index', 'packed-refs', 'refs/heads/main', 'refs/heads/master', 'logs/HEAD'):
        try: os.unlink(top + '/' + name)
        except OSError as error: print(error)
    if os.path.isdir(top): open(top + '/HEAD', 'w').write('ref: refs/heads/new')
";

/// A command can write index and refs of a repository in the tree: what it takes out of them stays in the objects.
#[test]
fn a18_git_shows_no_denied_file_of_a_nested_repository_that_a_command_forgets() {
    type Nested = (&'static str, &'static str, fn(&Place) -> PathBuf);
    let nested: [Nested; 3] = [
        ("of a worktree", "-C third", |place| repository(place, "repo/third")),
        ("at a tip only", "-C third", |place| {
            let third = repository(place, "repo/third");
            place.env.git(&third, &["rm", "-q", "--cached", ".env"]);
            third
        }),
        ("of a bare one", "--git-dir third.git", |place| {
            let (from, bare) = (repository(place, "from"), place.repo.join("third.git"));
            place.env.git(&from, &["clone", "-q", "--bare", ".", bare.to_str().unwrap()]);
            bare
        }),
    ];
    for (what, at, make) in nested {
        for mode in ["accept-edits", "unattended"] {
            let place = Place::new(calls([]));
            let top = make(&place);
            // The working tree may be gone; git keeps it.
            let _there_may_be_none = std::fs::remove_file(top.join(".env"));
            let show = format!(
                "import os; os.system('git {at} show HEAD:.env; git {at} cat-file --batch-all-objects --batch')"
            );
            let steps = [python(&show), python(FORGET), python(&show), "ls".to_owned()];
            place.server.set_script(calls(steps.into_iter().map(bash)));
            super::go(&place, mode, &["--deny", "Read(.env)"]);
            let found = results(&place);
            assert!(found.iter().all(|(_, text, _)| !text.contains("canary")), "{what}, {mode}: {found:#?}");
            // Whoever goes on with the conversation knows it, too.
            place.server.set_script(calls([bash(python(&show))]));
            let more = ["--continue", "--permission-mode", mode, "--deny", "Read(.env)"];
            place.ask("go on", more);
            let found = results(&place);
            assert!(found.iter().all(|(_, text, _)| !text.contains("canary")), "{what}, {mode}: {found:#?}");
        }
    }
}

/// A repository beside the project that keeps a file to be denied.
fn repository(place: &Place, name: &str) -> PathBuf {
    let top = if let Some(below) = name.strip_prefix("repo/") {
        place.repo.join(below)
    } else {
        place.env.root().join("work").join(name)
    };
    std::fs::create_dir_all(&top).unwrap();
    place.env.git(&top, &["init", "-q"]);
    place.env.git(&top, &["commit", "-q", "--allow-empty", "-m", "one"]);
    place.env.write(top.join(".env"), "canary\n");
    place.env.git(&top, &["add", "-f", ".env"]);
    place.env.git(&top, &["commit", "-qm", "two"]);
    top
}

fn deny(top: &Path) -> String {
    format!("--deny\tRead({}/.env)", top.display())
}

/// Where nobody is asked, rules are all there is.
#[test]
fn a18_denials_hold_in_unattended_mode() {
    let place = with_secrets();
    place.env.write(place.repo.join("fixed.txt"), "kept\n");
    let outside = place.env.root().join("work/made");
    let attempts = [
        "print(open('.en' + 'v').read())".to_owned(),
        "import os; print(os.popen('cat .e*; cat conf/*/*').read())".to_owned(),
        "import os; os.rename('conf', 'c2'); print(open('c2/secrets/key').read())".to_owned(),
        "open('.en' + 'v', 'a').write('x')".to_owned(),
        "open('fix' + 'ed.txt', 'a').write('x')".to_owned(),
        "import os; os.rename('README.md', 'fix' + 'ed.txt')".to_owned(),
    ];
    let works = format!(
        "open('{}', 'w').write('x'); print(open('{}').read())",
        outside.display(),
        place.env.home().join("notes").display()
    );
    place.env.write(place.env.home().join("notes"), "of the home\n");
    let steps = attempts.iter().chain([&works]).map(|program| bash(python(program)));
    place.server.set_script(calls(steps));
    let flags: Vec<&str> = DENIED.into_iter().chain(["--deny", "Edit(./fixed.txt)"]).collect();
    let found = shows_no_canary(&place, "unattended", &flags);
    for name in [".env", KEY] {
        assert_eq!(place.env.read(place.repo.join(name)), "canary\n", "{found:#?}");
    }
    assert_eq!(place.env.read(place.repo.join("fixed.txt")), "kept\n", "{found:#?}");
    // The rest of the machine is as open as this mode says.
    let (_, text, code) = found.last().unwrap();
    assert_eq!((*code, outside.exists()), (Some(0), true), "{found:#?}");
    assert!(text.contains("of the home"), "{text}");
}

/// What is denied may be a link to somewhere else, which only an open fence shows.
#[test]
fn a18_a_denied_link_out_of_the_project_stays_denied_in_unattended_mode() {
    let place = Place::new(calls([]));
    let shared = place.env.write(place.env.root().join("shared/.env"), "canary\n");
    place.env.write(place.env.root().join("shared/fixed"), "kept\n");
    for name in [".env", "fixed"] {
        let to = place.env.root().join("shared").join(name);
        std::os::unix::fs::symlink(to, place.repo.join(name)).unwrap();
    }
    let attempts = [
        "print(open('.en' + 'v').read())".to_owned(),
        format!("print(open('{}').read())", shared.display()),
        "open('fix' + 'ed', 'a').write('x')".to_owned(),
    ];
    place.server.set_script(calls(attempts.iter().map(|program| bash(python(program)))));
    let flags = ["--deny", "Read(./.env)", "--deny", "Edit(./fixed)"];
    shows_no_canary(&place, "unattended", &flags);
    assert_eq!(place.env.read(place.env.root().join("shared/fixed")), "kept\n");
}

/// An editor saves by renaming: the next commands go on, and find the new file masked.
#[test]
fn a18_a_denied_file_that_the_user_saves_anew_stays_denied() {
    let place = with_secrets();
    let save = place.env.write("save.sh", "echo canary2 > .env.new && mv .env.new .env\n");
    let line = format!("sh {}", save.display());
    let read = bash(python("print(open('.en' + 'v').read())"));
    let goes_on = bash(python("print('it goes on')"));
    place.server.set_script(calls([read.clone(), bash(&line), read, goes_on]));
    let allow = format!("Bash({line}) outside");
    let flags: Vec<&str> = DENIED.into_iter().chain(["--allow", &allow]).collect();
    let found = shows_no_canary(&place, "accept-edits", &flags);
    assert_eq!(place.env.read(place.repo.join(".env")), "canary2\n", "{found:#?}");
    assert!(found.last().unwrap().1.contains("it goes on"), "{found:#?}");
    assert!(!is_refused(&results(&place)[0]), "{found:#?}");
}
