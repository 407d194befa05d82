//! Files that git reads: which directories they name, and what the user's own git runs because of them afterwards.

use std::path::{Path, PathBuf};

use serde_json::json;
use testkit::{ProgramRun, tool};

use super::{
    hostile::{
        Doorbell, armed, bash, beside, calls, plain_directory, python, reads, shows_no_canary, stop,
        wait_for_ready,
    },
    picture, results,
};
use crate::place::Place;

/// Seen: `.git` with `gitdir: X` in a plain directory, and the next fence showed X.
#[test]
fn a18_a_git_file_that_a_command_writes_shows_nothing() {
    let mut place = Place::new(calls([]));
    plain_directory(&mut place);
    let runtime = place.env.runtime();
    place.env.write(runtime.join("notes"), "canary\n");
    let bell = Doorbell::new(&place);
    // What it makes there is put aside when it has ended; until then it is there.
    let writer = format!(
        "open('.git', 'w').write('gitdir: {}\\n'); ready()\nwhile not stopped(): time.sleep(0.01)",
        runtime.display()
    );
    let steps = [beside(&writer), wait_for_ready(), reads(&runtime.join("notes")), bell.ring(), stop()];
    place.server.set_script(calls(steps));
    shows_no_canary(&place, "accept-edits", &[]);
    bell.was_not_rung();
}

/// Seen: an unpacked directory with such a file, in default mode, by reading words only.
#[test]
fn a18_a_git_file_of_an_unpacked_directory_shows_nothing() {
    // What is in the directory; HOME is the user's.
    let directories: [&[(&str, &str)]; 5] = [
        &[(".git", "gitdir: HOME\n")],
        &[(".git", "gitdir: g\n"), ("g/HEAD", "ref: refs/heads/main\n"), ("g/commondir", "HOME\n")],
        &[
            (".git", "gitdir: g\n"),
            ("g/HEAD", "ref: refs/heads/main\n"),
            ("g/commondir", "../../home\n"),
            ("g/gitdir", "ROOT/plain/.git\n"),
        ],
        &[
            (".git/HEAD", "ref: refs/heads/main\n"),
            (".git/refs/x", ""),
            (".git/objects/info/alternates", "HOME\n"),
            (".git/commondir", "HOME\n"),
        ],
        &[(".git", "gitdir: ../home/made-to-look-like-git\n")],
    ];
    for files in directories {
        let mut place = Place::new(calls([]));
        let directory = plain_directory(&mut place);
        let (root, home) = (place.env.root().to_owned(), place.env.home());
        place.env.write(home.join("notes"), "canary\n");
        place.env.write(home.join("made-to-look-like-git/HEAD"), "canary\n");
        for (name, text) in files {
            let text = text.replace("HOME", home.to_str().unwrap()).replace("ROOT", root.to_str().unwrap());
            place.env.write(directory.join(name), text);
        }
        let line = "cat $(printf %s ../home)/notes; cat $(printf %s ../home)/made*/HEAD";
        place.server.set_script(calls([reads(&home.join("notes")), bash(line), bash("git status; git log")]));
        shows_no_canary(&place, "default", &[]);
        assert!(results(&place)[0].2.is_some(), "{files:?}: it ran and found nothing: {:?}", results(&place));
    }
}

/// Git as the user runs it, in all of these directories; what it runs leaves marks.
#[track_caller]
fn runs_nothing(place: &Place, directories: &[PathBuf], mark: &Path) {
    for directory in directories {
        for args in [["status"], ["diff"]] {
            let _may_fail = ProgramRun::new(place.env.program("git")).args(args).dir(directory).output();
            assert!(!mark.exists(), "git {args:?} in {} ran it: {:#?}", directory.display(), results(place));
        }
    }
}

fn with_submodule(place: &Place) -> PathBuf {
    let other = place.env.repo();
    let url = other.to_str().unwrap();
    place
        .env
        .git(&place.repo, &["-c", "protocol.file.allow=always", "submodule", "add", "-q", url, "vendor"]);
    place.env.git(&place.repo, &["commit", "-qm", "a submodule"]);
    place.repo.join("vendor")
}

/// Makes a repository at a place, with settings that run a program.
fn makes(at: &str, mark: &Path) -> String {
    format!(
        "import os\nos.makedirs('{at}/objects'); os.makedirs('{at}/refs')\nopen('{at}/HEAD', 'w').write('ref: refs/heads/main\\n')\n\
         open('{at}/config', 'w').write({})",
        armed(mark)
    )
}

/// Seen: `vendor/.git` of a submodule was written anew, and the user's `git status` at the top ran its `core.fsmonitor`.
#[test]
fn a18_a_submodule_that_a_command_rewrites_runs_nothing() {
    let rewrites = [
        "import os; os.rename('vendor/.git', 'vendor/old')\n{MAKE vendor/.git}",
        "import os; os.rename('vendor/.git', 'vendor/old')\n{MAKE g}\nopen('vendor/.git', 'w').write('gitdir: ../g\\n')",
        "import os; open('vendor/.git', 'w').write('gitdir: ../g\\n')\n{MAKE g}",
        "import os; os.rename('vendor', 'old'); os.mkdir('vendor')\n{MAKE vendor/.git}",
        "import os; os.rename('vendor', 'old'); os.mkdir('other'); os.symlink('other', 'vendor')\n{MAKE other/.git}",
        "import os; open('.git/modules/vendor/config', 'a').write(CONFIG)",
    ];
    for rewrite in rewrites {
        let place = Place::new(calls([]));
        let mark = place.env.root().join("mark");
        let vendor = with_submodule(&place);
        let mut program = rewrite.replace("CONFIG", &armed(&mark).to_string());
        for at in ["vendor/.git", "g", "other/.git"] {
            program = program.replace(&format!("{{MAKE {at}}}"), &makes(at, &mark));
        }
        place.server.set_script(calls([bash(python(&program))]));
        shows_no_canary(&place, "accept-edits", &[]);
        runs_nothing(&place, &[place.repo.clone(), vendor], &mark);
    }
}

/// A submodule that was never fetched has an empty directory, and git looks for a repository there all the same.
#[test]
fn a18_a_repository_at_a_submodules_place_is_put_aside() {
    let place = Place::new(calls([]));
    let mark = place.env.root().join("mark");
    let vendor = with_submodule(&place);
    place.env.git(&place.repo, &["submodule", "--quiet", "deinit", "-f", "vendor"]);
    place.server.set_script(calls([bash(python(&makes("vendor/.git", &mark)))]));
    shows_no_canary(&place, "accept-edits", &[]);
    runs_nothing(&place, &[place.repo.clone(), vendor.clone()], &mark);
    assert!(!vendor.join(".git").exists(), "{:?}", results(&place));
}

/// Of a nested repository that was there before, what git runs or believes does not change.
#[test]
fn a18_a_nested_repository_keeps_its_settings() {
    let place = Place::new(calls([]));
    let mark = place.env.root().join("mark");
    let nested = place.repo.join("third/party");
    std::fs::create_dir_all(&nested).unwrap();
    place.env.git(&nested, &["init", "-q"]);
    let armed = armed(&mark);
    let attempts = [
        format!("open('third/party/.git/config', 'a').write({armed})"),
        format!("open('third/party/.git/x', 'w').write({armed})\nimport os; os.rename('third/party/.git/x', 'third/party/.git/config')"),
        "h = 'third/party/.git/hooks/post-index-change'\nimport os; open(h, 'w').write('#!/bin/sh\\ntouch MARK\\n'); os.chmod(h, 0o755)".replace("MARK", mark.to_str().unwrap()),
        "open('third/party/.git/commondir', 'w').write('../../../g')".to_owned(),
        makes("g", &mark),
        "import os; os.rename('third/party/.git', 'third/party/o'); os.rename('g', 'third/party/.git')".to_owned(),
        "import os; os.rename('third', 'o'); os.makedirs('third/party'); os.rename('g', 'third/party/.git')".to_owned(),
    ];
    place.server.set_script(calls(attempts.iter().map(|program| bash(python(program)))));
    let before = picture(&nested.join(".git"));
    shows_no_canary(&place, "accept-edits", &[]);
    runs_nothing(&place, &[place.repo.clone(), nested.clone()], &mark);
    // What a command adds beside it decides nothing.
    let after = picture(&nested.join(".git"));
    let lost: Vec<_> = before.iter().filter(|part| !after.contains(part)).collect();
    assert!(lost.is_empty() && !nested.join(".git/commondir").exists(), "{lost:?} {:#?}", results(&place));
}

/// A new one stays, without settings that run a program, and the model is told.
#[test]
fn a18_a_new_nested_repository_runs_nothing() {
    let place = Place::new(calls([]));
    let mark = place.env.root().join("mark");
    let make = "mkdir -p lib/new; cd lib/new; env -u GIT_CONFIG_COUNT git init -q . && echo x > x && git add x && git commit -qm new";
    let arm = format!("open('lib/new/.git/config', 'a').write({})", armed(&mark));
    let steps = [format!("sh -c '{make}'"), python(&arm), "ls lib/new".to_owned()];
    let wrapped = |line: &String| {
        if line.starts_with("sh -c") {
            python(&format!("import os; os.system({line:?})"))
        } else {
            line.clone()
        }
    };
    place.server.set_script(calls(steps.iter().map(|line| bash(wrapped(line)))));
    shows_no_canary(&place, "accept-edits", &[]);
    let nested = place.repo.join("lib/new");
    runs_nothing(&place, &[place.repo.clone(), nested.clone()], &mark);
    assert_eq!(place.env.git(&nested, &["log", "-1", "--format=%s"]), "new", "{:#?}", results(&place));
    let told = results(&place).into_iter().any(|(_, text, _)| text.contains("lib/new/.git"));
    assert!(told, "{:#?}", results(&place));
}

/// The look ends before the run does, also after the last command: then the person is told.
#[test]
fn a18_a_nested_repository_of_the_last_command_runs_nothing_and_is_told() {
    let place = Place::new(calls([]));
    let mark = place.env.root().join("mark");
    let make = "import os; [os.makedirs('lib/last/.git/' + name) for name in ('objects', 'refs')]";
    let write = format!(
        "open('lib/last/.git/HEAD', 'w').write('ref: refs/heads/main'); open('lib/last/.git/config', 'w').write({})",
        armed(&mark)
    );
    place.server.set_script(calls([bash(python(&format!("{make}; {write}")))]));
    let run = place.ask("go", ["--permission-mode", "accept-edits"]);
    assert!(run.stderr.contains("lib/last/.git is a new repository"), "{}", run.stderr);
    runs_nothing(&place, &[place.repo.clone(), place.repo.join("lib/last")], &mark);
    assert!(place.repo.join("lib/last/.git/config.not-used").exists());
}

/// Seen: links in a nested repository, through which the user's next commit and fetch wrote into the files of a shell.
#[test]
fn a18_git_of_the_user_writes_through_no_link_that_a_command_leaves() {
    let place = Place::new(calls([]));
    let home = place.env.home();
    for name in [".zshenv", ".bash_profile"] {
        place.env.write(home.join(name), "the user's\n");
    }
    for top in ["third", "own"] {
        std::fs::create_dir_all(place.repo.join(top)).unwrap();
    }
    place.env.git(place.repo.join("third"), &["init", "-q"]);
    place.env.git(place.repo.join("third"), &["commit", "-q", "--allow-empty", "-m", "one"]);
    // One of the user's own stays.
    place.env.git(place.repo.join("own"), &["init", "-q"]);
    std::os::unix::fs::symlink("/nowhere", place.repo.join("own/.git/description.old")).unwrap();
    let link = format!(
        "import os, shutil\nos.system('env -u GIT_CONFIG_COUNT git init -q new')\n\
         for top in ['third', 'new']:\n os.makedirs(top + '/.git/logs', exist_ok=True)\n\
         \x20for name in ['logs/HEAD', 'FETCH_HEAD', 'COMMIT_EDITMSG']:\n  at = top + '/.git/' + name\n\
         \x20 if os.path.exists(at): os.unlink(at)\n\
         \x20 os.symlink('{}/' + ('.zshenv' if name == 'FETCH_HEAD' else '.bash_profile'), at)\n\
         open('new/.git/config', 'a').write('[user]\\n\\tname = $(touch x)\\n')",
        home.display()
    );
    place.server.set_script(calls([bash(python(&link)), bash(python("print('next')"))]));
    let before = picture(&home);
    shows_no_canary(&place, "accept-edits", &[]);
    for top in ["third", "new"] {
        let top = place.repo.join(top);
        place.env.git(&top, &["commit", "-q", "--allow-empty", "-m", "the user's"]);
        place.env.git(&top, &["fetch", "-q", ".", "HEAD"]);
    }
    assert_eq!(picture(&home), before, "{:#?}", results(&place));
    assert!(place.repo.join("own/.git/description.old").is_symlink());
    let told =
        results(&place).into_iter().any(|(_, text, _)| text.contains("third/.git/logs/HEAD was a new link"));
    assert!(told, "{:#?}", results(&place));
}

/// A git directory elsewhere that does not say whose it is counts only by a person's word, for that very directory.
#[test]
fn a18_a_separate_git_directory_counts_after_trust() {
    let log = |prepare: fn(&Place, &std::path::Path)| {
        let place = Place::new(calls([bash("git log --oneline")]));
        let store = place.env.root().join("elsewhere/store");
        std::fs::create_dir_all(store.parent().unwrap()).unwrap();
        place.env.git(&place.repo, &["init", "-q", "--separate-git-dir", store.to_str().unwrap()]);
        prepare(&place, &store);
        super::go(&place, "default", &[]);
        let (_, text, code) = super::result(&place);
        (code == Some(0) && text.contains("first commit"), text)
    };
    let trust: fn(&Place, &std::path::Path) = |place, store| {
        let said = place.verb(["trust"]).ok();
        assert!(said.stdout.contains(&format!("git uses: {}", store.display())), "{said:?}");
    };
    let untrusted = log(|_, _| {});
    assert!(!untrusted.0, "{untrusted:?}");
    let trusted = log(trust);
    assert!(trusted.0, "{trusted:?}");
    // Another directory in its place is not what was accepted.
    let replaced = log(|place, store| {
        place.verb(["trust"]).ok();
        let away = store.with_file_name("away");
        std::fs::rename(store, &away).unwrap();
        let copied = std::process::Command::new("cp").arg("-r").arg(&away).arg(store).status().unwrap();
        assert!(copied.success());
    });
    assert!(!replaced.0, "{replaced:?}");
}

/// A command that began before there was the repository has no fence around its settings.
#[test]
fn a18_a_command_beside_arms_no_repository_that_another_one_makes() {
    let place = Place::new(calls([]));
    let mark = place.env.root().join("mark");
    let armer = format!(
        "ready()\nwhile not os.path.exists('go') and not stopped(): time.sleep(0.001)\n\
         try: open('x/.git/config', 'a').write({})\nexcept OSError as error: print(error)\nopen('armed', 'w').close()",
        armed(&mark)
    );
    let init = "import os; os.system('env -u GIT_CONFIG_COUNT git init -q x')";
    let steps = [
        beside(&armer),
        wait_for_ready(),
        bash(python(init)),
        // The repository is known from here on.
        bash(python("print('next')")),
        bash(python("open('go', 'w').close()")),
        bash("until test -e armed; do sleep 0.05; done"),
        stop(),
        bash(python("print('the last one')")),
    ];
    place.server.set_script(calls(steps));
    shows_no_canary(&place, "accept-edits", &[]);
    assert!(place.repo.join("armed").exists(), "{:#?}", results(&place));
    runs_nothing(&place, &[place.repo.clone(), place.repo.join("x")], &mark);
}

/// Whoever packed a tree does not choose the repository in which worktrees are made: not in the background, and not for a sub-agent.
#[test]
fn a18_a_worktree_is_made_in_no_repository_that_a_packed_tree_names() {
    let trees: [&[(&str, &str)]; 3] = [
        &[(".git", "gitdir: MAIN/.git\n")],
        &[(".git/HEAD", "ref: refs/heads/main\n"), (".git/refs/x", ""), (".git/commondir", "MAIN/.git\n")],
        &[
            (".git", "gitdir: g\n"),
            ("g/HEAD", "ref: refs/heads/main\n"),
            ("g/commondir", "MAIN/.git\n"),
            ("g/gitdir", "ROOT/plain/.git\n"),
        ],
    ];
    for files in trees {
        let apart = json!({"prompt": "look", "isolation": "worktree"});
        let mut place = Place::new(calls([tool("AgentTool", apart)]));
        let main = place.repo.clone();
        let directory = plain_directory(&mut place);
        for (name, text) in files {
            let text = text.replace("MAIN", main.to_str().unwrap());
            let text = text.replace("ROOT", place.env.root().to_str().unwrap());
            place.env.write(directory.join(name), text);
        }
        let refs = || picture(&main.join(".git/refs"));
        let before = (refs(), main.join(".caliban").exists());
        super::go(&place, "accept-edits", &[]);
        let told = format!("{:#?}", results(&place));
        assert!(told.contains("caliban trust"), "{files:?}: {told}");
        let refused = place.caliban().args(["--bg", "the task"]).output();
        assert_ne!(refused.code, 0, "{files:?}: {refused:?}");
        assert!(refused.stderr.contains("caliban trust"), "{files:?}: {refused:?}");
        assert_eq!((refs(), main.join(".caliban").exists()), before, "{files:?}");
    }
}
