//! Links that a command makes, and links that a repo brings along: nothing is renamed, shown or written behind them.

use std::os::unix::fs::symlink;

use serde_json::json;
use testkit::{tool, wait_until};

use super::{
    hostile::{bash, calls, is_refused, python, reads, shows_no_canary},
    picture, result, settings,
};
use crate::{fleet::Fleet, place::Place};

const OF_THE_USER: [&str; 4] =
    ["caliban/settings.toml", "git/config", "fish/config.fish", "systemd/user/x.service"];

fn user_settings(place: &Place) {
    for name in OF_THE_USER {
        place.env.write(place.env.home().join(".config").join(name), "the user's\n");
    }
}

/// Seen: `.config` became a link to `~/.config`, and the user's own settings were put aside.
#[test]
fn a18_what_is_put_aside_is_not_behind_a_link() {
    for link in ["../home/.config", "HOME/.config"] {
        let place = Place::new(calls([]));
        user_settings(&place);
        let link = link.replace("HOME", place.env.home().to_str().unwrap());
        let program =
            format!("import os; os.symlink('{link}', '.config'); os.symlink('../home/.config', 'x')");
        place.server.set_script(calls([bash(python(&program))]));
        let before = picture(&place.env.home());
        shows_no_canary(&place, "accept-edits", &[]);
        assert_eq!(picture(&place.env.home()), before, "{link}: {:?}", result(&place));
    }
}

/// The same for a link further up, and for one that was there when the command began.
#[test]
fn a18_what_is_put_aside_is_not_behind_a_link_to_a_parent() {
    let place = Place::new(calls([]));
    user_settings(&place);
    place.env.write(place.env.home().join("tools/.envrc"), "the user's\n");
    place.env.write(place.repo.join("sub/x"), "x\n");
    // The working directory is the one whose protected places are looked for.
    let swap = "import os; os.rename('../sub', '../old'); os.symlink('../home/tools', '../sub')";
    let again = "import os; os.unlink('.config'); os.symlink('../home/.config', '.config')";
    symlink("nowhere", place.repo.join(".config")).unwrap();
    place.server.set_script(calls([bash("cd sub"), bash(python(swap)), bash("cd .."), bash(python(again))]));
    let before = picture(&place.env.home());
    shows_no_canary(&place, "accept-edits", &[]);
    assert_eq!(picture(&place.env.home()), before);
}

#[test]
fn a18_what_is_put_aside_for_an_agent_in_its_worktree_is_not_behind_a_link() {
    let fleet = Fleet { place: Place::new(calls([])) };
    user_settings(&fleet.place);
    let link = fleet.place.env.home().join(".config");
    let program = format!("import os; os.symlink('{}', '.config')", link.display());
    fleet.place.server.set_script(calls([bash(python(&program))]));
    let before = picture(&fleet.place.env.home());
    let id = fleet.bg("the task", []);
    wait_until("it is done", || fleet.state(&id) == "done");
    assert_eq!(picture(&fleet.place.env.home()), before, "{}", fleet.run(["logs", &id]).ok().stdout);
}

/// Seen: a cloned repo with `.config -> ../../.config` showed the home's directories; without them no fence could be put up.
#[test]
fn a18_a_link_of_a_repo_shows_nothing_of_the_home() {
    for has_tools in [true, false] {
        let mut place = Place::new(calls([]));
        let env = &place.env;
        let repo = env.home().join("src/repo");
        std::fs::create_dir_all(repo.parent().unwrap()).unwrap();
        std::fs::rename(&place.repo, &repo).unwrap();
        symlink("../../.config", repo.join(".config")).unwrap();
        env.git(&repo, &["add", ".config"]);
        env.git(&repo, &["commit", "-qm", "a link"]);
        env.write(env.home().join(".config/systemd/user/x.service"), "canary\n");
        env.write(env.home().join(".config/caliban/settings.toml"), "# canary\n");
        if has_tools {
            // Fences show this one, and with it there is a directory `.config`.
            env.write(env.home().join(".config/git/config"), "");
        }
        let read = "import os\nfor at, _, files in os.walk('.config', followlinks=True):\n for name in files:\n  print(name, open(os.path.join(at, name)).read())";
        place.server.set_script(calls([
            bash(python(read)),
            bash("cat $(echo .config/systemd/user)/x.service"),
            bash(python("import os; open('made', 'w'); print(os.readlink('.config'))")),
        ]));
        place.repo.clone_from(&repo);
        let before = picture(&place.env.home().join(".config"));
        let results = shows_no_canary(&place, "accept-edits", &[]);
        assert_eq!(picture(&place.env.home().join(".config")), before);
        // The link is there as what it is, and it keeps nobody from working.
        let (_, text, code) = results.last().unwrap();
        assert_eq!((*code, repo.join("made").exists()), (Some(0), true), "{results:#?}");
        assert!(text.contains("../../.config"), "{text}");
    }
}

/// Seen: with an added directory above the project, the project's place became a link to the home, which the next fence showed as
/// the project, to be written.
#[test]
fn a18_a_project_below_an_added_directory_stays_what_it_was() {
    let moves = [
        "(cd ../.. && mv apps x && mkdir apps && ln -s ../../home apps/web)",
        "(cd ../.. && mv apps/web y && ln -s ../../home apps/web)",
        "(cd ../.. && mv apps x && ln -s ../home apps)",
    ];
    for line in moves {
        let mut place = Place::new(calls([]));
        let above = place.env.root().join("mono");
        let project = above.join("apps/web");
        std::fs::create_dir_all(above.join("apps")).unwrap();
        std::fs::rename(&place.repo, &project).unwrap();
        place.repo.clone_from(&project);
        place.env.write(place.env.home().join("notes"), "canary\n");
        place.env.write(place.env.home().join("web/notes"), "canary\n");
        let use_it = "import os\nprint(os.listdir('.'))\nfor name in ['notes', 'web/notes']:\n try: print(open(name).read()); open(name, 'a').write('x')\n except OSError as e: print(e)";
        place.server.set_script(calls([
            bash(line),
            bash(python(use_it)),
            bash(format!("cd {} && cat notes", project.display())),
        ]));
        let before = picture(&place.env.home());
        shows_no_canary(&place, "accept-edits", &["--add-dir", above.to_str().unwrap()]);
        assert_eq!(picture(&place.env.home()), before, "{line}");
    }
}

/// Seen: an added directory that was not there when the agent began became a link to the home, which the next fence showed, to be
/// written. A link that one agent leaves leads the next one nowhere either.
#[test]
fn a18_an_added_directory_that_comes_later_is_no_link_of_an_agent() {
    for name in ["gen", "sub/gen", "../other/gen"] {
        let place = Place::new(calls([]));
        place.env.write(place.env.home().join("notes"), "canary\n");
        place.env.write(place.repo.join("sub/x"), "x\n");
        let other = place.repo.join("../other");
        std::fs::create_dir(&other).unwrap();
        let (added, other) = (place.repo.join(name).display().to_string(), other.display().to_string());
        let link = format!("import os; os.symlink('{}', '{name}')", place.env.home().display());
        let use_it = format!(
            "import os\ntry:\n open('got', 'w').write(open('{0}/notes').read())\n open('{0}/notes', 'a').write('x')\nexcept OSError as e: print(e)",
            place.env.home().display()
        );
        let before = picture(&place.env.home());
        settings(&place, &format!("[permissions]\nadd_dirs = [\"{added}\", \"{other}\"]\n"));
        // The second time it is there from the start.
        for _ in 0..2 {
            let write = tool("Write", json!({"file_path": format!("{added}/made"), "content": "x"}));
            place.server.set_script(calls([bash(python(&link)), bash(python(&use_it)), write]));
            let output = place.ask("go", ["--permission-mode", "accept-edits"]);
            let got = std::fs::read_to_string(place.repo.join("got")).unwrap_or_default();
            assert!(!got.contains("canary"), "{name}: {output:?}");
            assert_eq!(picture(&place.env.home()), before, "{name}: {output:?}");
            assert!(place.repo.join(name).is_symlink(), "{name}: {output:?}");
            assert!(output.stderr.contains("gen is left out: "), "{output:?}");
        }
    }
}

/// Seen: directories of tools that lie in the project (`node_modules/.bin` in `PATH`, `VIRTUAL_ENV`) are shown by name, and a
/// command had made them links.
#[test]
fn a18_a_tools_directory_in_the_project_shows_nothing_behind_a_link() {
    for is_there in [true, false] {
        let mut place = Place::new(calls([]));
        let (repo, home) = (place.repo.clone(), place.env.home());
        place.env.write(home.join("notes"), "canary\n");
        let path = place.env.var("PATH").unwrap().to_owned();
        let own = [repo.join("node_modules/.bin"), repo.join("bin")];
        place
            .env
            .set("PATH", std::env::join_paths(own.into_iter().chain(std::env::split_paths(&path))).unwrap());
        place.env.set("VIRTUAL_ENV", repo.join(".venv"));
        place.env.set("CARGO_HOME", repo.join("sub/cargo"));
        settings(&place, &format!("[fence]\nshow = [\"{}\"]\n", repo.join("shown").display()));
        let names = ["node_modules/.bin", "bin", ".venv", "sub/cargo", "shown"];
        for name in names.iter().filter(|_| is_there) {
            place.env.write(repo.join(name).join("tool"), "x\n");
        }
        let link = format!(
            "import os, shutil\nfor name in {names:?}:\n os.makedirs(os.path.dirname('./' + name), exist_ok=True)\n \
             if os.path.exists(name): shutil.rmtree(name)\n os.symlink('{}', name)",
            home.display()
        );
        let relative =
            link.replace(&format!("'{}'", home.display()), "'../' * (1 + name.count('/')) + 'home'");
        let read = "cat $(echo node_modules/.bin/notes) $(echo .venv/notes) $(echo bin/notes) $(echo sub/cargo/notes) $(echo shown/notes)";
        let again = link.replace("shutil.rmtree(name)", "os.unlink(name)");
        place.server.set_script(calls([
            bash(python(&relative)),
            bash(read),
            reads(&home.join("notes")),
            bash(python(&again)),
            bash(read),
            reads(&home.join("notes")),
        ]));
        let before = picture(&home);
        shows_no_canary(&place, "accept-edits", &[]);
        assert_eq!(picture(&home), before);
    }
}

/// The same in modes without an edit fence: nothing is writable then, and the link is there all the same, by whoever made it.
#[test]
fn a18_a_tools_directory_in_the_project_shows_nothing_behind_a_link_to_those_who_read() {
    for mode in ["default", "plan"] {
        let mut place = Place::new(calls([]));
        let (repo, home) = (place.repo.clone(), place.env.home());
        place.env.write(home.join("notes"), "canary\n");
        place.env.write(home.join("tools/x/notes"), "canary\n");
        place.env.set("VIRTUAL_ENV", repo.join(".venv"));
        place.env.set("CARGO_HOME", repo.join("cargo"));
        symlink(&home, repo.join(".venv")).unwrap();
        symlink("../home/tools/x", repo.join("cargo")).unwrap();
        // One of the user's own, elsewhere: it leads to the home, which is no tool.
        place.env.set("GOPATH", place.env.root().join("go"));
        symlink(&home, place.env.root().join("go")).unwrap();
        place.server.set_script(calls([
            bash("head -3 .ven?/notes"),
            bash("head -3 carg?/notes"),
            bash("cat $(printf %s .venv)/notes"),
            reads(&home.join("notes")),
            reads(&home.join("tools/x/notes")),
        ]));
        let results = shows_no_canary(&place, mode, &[]);
        assert!(results.iter().any(|(fence, ..)| fence == "read"), "{mode}: {results:#?}");
    }
}

/// A project that was replaced while the agent runs: no command runs there, and none runs elsewhere instead.
#[test]
fn a18_a_project_that_was_replaced_is_not_shown() {
    let place = Place::new(calls([]));
    let (repo, away) = (place.repo.clone(), place.env.root().join("away"));
    place.env.write(place.env.home().join("notes"), "canary\n");
    // By a command that the user has allowed: it runs as the user, who may do that.
    let replace = format!(
        "sh {}",
        place
            .env
            .write("replace.sh", format!("mv {0} {1}; ln -s home {0}\n", repo.display(), away.display()))
            .display()
    );
    let allow = format!("Bash({replace}) outside");
    place.server.set_script(calls([
        bash(&replace),
        bash("cat notes"),
        bash(python("print(open('notes').read()); open('notes', 'a').write('x')")),
    ]));
    let before = picture(&place.env.home());
    let results = shows_no_canary(&place, "accept-edits", &["--allow", &allow]);
    assert_eq!(picture(&place.env.home()), before);
    assert!(results[1..].iter().all(is_refused), "{results:#?}");
}

/// A conversation goes on where it stood, if that is still a directory of the work: what is allowed outside of the fence would run there.
#[test]
fn a18_a_resumed_agent_stands_in_no_directory_behind_a_link() {
    let place = Place::new(calls([bash("cd sub"), bash("pwd")]));
    let (evil, mark) = (place.env.root().join("evil"), place.env.root().join("mark"));
    place.env.write(place.repo.join("sub/Makefile"), "all:\n\ttrue\n");
    place.env.write(place.repo.join("Makefile"), "all:\n\ttrue\n");
    place.env.write(evil.join("Makefile"), format!("all:\n\ttouch {}\n", mark.display()));
    let flags = ["--permission-mode", "accept-edits", "--allow", "Bash(make) outside in sub"];
    place.ask("go", flags.iter().copied().chain(["--allow", "Bash(make) outside"]));
    std::fs::rename(place.repo.join("sub"), place.repo.join("old")).unwrap();
    symlink(&evil, place.repo.join("sub")).unwrap();
    place.server.set_script(calls([bash("make")]));
    let again = ["--continue"].into_iter().chain(flags).chain(["--allow", "Bash(make) outside"]);
    place.ask("go on", again);
    let found = super::results(&place);
    let told = place
        .server
        .requests()
        .iter()
        .any(|request| request.body.to_string().contains("repo/sub is gone; it is now"));
    assert!(told && !mark.exists() && found.len() == 3, "{found:#?}");
}

/// The same for the other roots: an added directory, and the git directory that a worktree shares.
#[test]
fn a18_a_root_that_was_replaced_while_the_agent_runs_stops_all_commands() {
    for what in ["added", "main/.git"] {
        let mut place = Place::new(calls([]));
        let work = place.env.root().join("work");
        let root = work.join(what);
        place.env.write(place.env.home().join("notes"), "canary\n");
        let mut flags = Vec::new();
        if what == "added" {
            std::fs::create_dir_all(&root).unwrap();
            flags.extend(["--add-dir".to_owned(), root.display().to_string()]);
        } else {
            std::fs::rename(&place.repo, work.join("main")).unwrap();
            place.env.git(work.join("main"), &["worktree", "add", "-q", "../linked"]);
            place.repo = work.join("linked");
        }
        // Something that looks the same is another one.
        let text = format!(
            "mv {0} {0}.away; cp -a {0}.away {0}; cp {1}/notes {0}/\n",
            root.display(),
            place.env.home().display()
        );
        let replace = format!("sh {}", place.env.write("replace.sh", text).display());
        flags.extend(["--allow".to_owned(), format!("Bash({replace}) outside")]);
        let read = format!("print(open('{}/notes').read())", root.display());
        place.server.set_script(calls([
            bash(python("open('made', 'w')")),
            bash("head -1 made"),
            bash(&replace),
            bash("cat made"),
            bash(python(&read)),
        ]));
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let results = shows_no_canary(&place, "accept-edits", &flags);
        assert!(!results[..2].iter().any(is_refused), "{what}: {results:#?}");
        assert!(results[3..].iter().all(is_refused), "{what}: {results:#?}");
        assert!(results[3].1.contains("replaced"), "{what}: {results:#?}");
    }
}

/// What holds the roots stays with the agent.
#[test]
fn a18_no_descriptor_of_a_root_reaches_a_command() {
    let list = "import os\nfor fd in os.listdir('/proc/self/fd'):\n try: print('fd', fd, os.readlink('/proc/self/fd/' + fd))\n except OSError: pass";
    let place = super::run("accept-edits", &[&python(list)]);
    let (fence, text, code) = result(&place);
    assert_eq!((fence.as_str(), code), ("edit", Some(0)), "{text}");
    let found: Vec<&str> = text.lines().filter(|line| line.starts_with("fd ")).collect();
    assert!(found.len() >= 3, "{text}");
    // Streams, the heredoc, and the directory that is being listed.
    let is_known = |line: &&str| {
        ["pipe:", "/dev/null", "/proc/", "/tmp/sh-thd", "socket:"].iter().any(|known| line.contains(known))
    };
    assert!(found.iter().all(is_known), "{text}");
}
