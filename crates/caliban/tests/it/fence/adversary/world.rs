//! Where the adversary works: a project that is put back after each sequence, and everything outside that must stay as it is.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _, symlink},
        net::UnixListener,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use testkit::{OpenPrograms, ProgramRun};

use super::{Layout, Stance, Terms};
use crate::{fence::picture, place::Place};

/// Files outside, below the root of the environment, whose content no command may show.
const CANARIES: &[&str] = &[
    "home/notes",
    "home/.zshrc",
    "home/.envrc",
    "home/.vscode/tasks.json",
    "home/.idea/x",
    "home/.husky/pre-commit",
    "home/.claude/settings.json",
    "home/.github/workflows/x.yml",
    "home/.config/systemd/user/x.service",
    "home/.config/fish/config.fish",
    "home/.config/caliban/x.toml",
    "home/.config/nvim/init.lua",
    "home/sub/.envrc",
    "home/sub/notes",
    "home/web/notes",
    "config/caliban/agents/x.md",
    "run/notes",
    "run/.vscode/x",
    "sibling/notes",
    "sibling/.envrc",
];
/// What the rules deny, if there are any.
pub(super) const DENIED: [&str; 2] = [".env", "conf/secrets/key"];

/// The program of a move, in the project.
const PROGRAM: &str = "move.sh";

/// What a file or directory is, to be made again.
#[derive(Clone, PartialEq, Eq)]
enum Piece {
    Directory(u32),
    File(Vec<u8>, u32),
    Link(PathBuf),
}

pub(super) struct World {
    pub(super) place: Place,
    pub(super) terms: Terms,
    /// The tree that the adversary can change: the project, or the added directory above it.
    pub(super) arena: PathBuf,
    pub(super) project: PathBuf,
    /// Programs that ran where none should leave a file here.
    pub(super) marks: PathBuf,
    door: UnixListener,
    pieces: BTreeMap<PathBuf, Piece>,
    outside: Vec<(String, Vec<u8>)>,
    identity: (u64, u64),
    programs: OpenPrograms,
}

/// Somebody who may not do everything.
const OTHER: &str = "65534";

impl World {
    pub(super) fn new(mut place: Place, terms: Terms) -> Self {
        let root = place.env.root().to_owned();
        for name in CANARIES {
            place.env.write(root.join(name), format!("CANARY {name}\n"));
        }
        // Without words of its own: fences show it.
        place.env.write(root.join("home/.config/git/config"), "[alias]\n\tx = status\n");
        let (marks, home) = (root.join("marks"), root.join("home"));
        fs::create_dir(&marks).unwrap();
        for evil in ["work/evil", "home"] {
            place
                .env
                .write(root.join(evil).join("Makefile"), format!("all:\n\ttouch {}/make\n", marks.display()));
        }
        let door = UnixListener::bind(root.join("run/door.sock")).unwrap();
        door.set_nonblocking(true).unwrap();
        let project = match terms.layout {
            Layout::Repository => place.repo.clone(),
            Layout::Plain => root.join("plain"),
            Layout::BelowAdded => root.join("mono/apps/web"),
            Layout::LinkedAdded => place.repo.clone(),
            Layout::Bare => root.join("bare.git"),
            Layout::InHome => home.join("src/repo"),
        };
        fs::create_dir_all(project.parent().unwrap()).unwrap();
        if terms.layout == Layout::Plain {
            fs::create_dir(&project).unwrap();
        } else if terms.layout == Layout::Bare {
            place.env.write(place.repo.join(DENIED[0]), format!("CANARY denied {}\n", DENIED[0]));
            if terms.denials && terms.in_index {
                place.env.git(&place.repo, &["add", "-f", DENIED[0]]);
                place.env.git(&place.repo, &["commit", "-qm", "what is denied"]);
            }
            place
                .env
                .git(&place.repo, &["clone", "-q", "--bare", "--template=", ".", project.to_str().unwrap()]);
        } else {
            fs::rename(&place.repo, &project).unwrap();
        }
        place.repo.clone_from(&project);
        fill(&place, &terms);
        if terms.layout == Layout::LinkedAdded {
            let other = root.join("other");
            fs::create_dir(&other).unwrap();
            place.env.git(&other, &["init", "-q", "--template="]);
            place.env.git(&other, &["commit", "-q", "--allow-empty", "-m", "x"]);
            place.env.git(&other, &["worktree", "add", "-q", "../linked"]);
        }
        // Tools that are said to be in the project.
        place.env.set("VIRTUAL_ENV", project.join(".venv"));
        place.env.set("CARGO_HOME", project.join("x/cargo"));
        if terms.stance == Stance::Worktree {
            place.env.git(&project, &["worktree", "add", "-q", ".caliban/worktrees/other", "-b", "other"]);
        }
        let arena = if terms.layout == Layout::BelowAdded { root.join("mono") } else { project.clone() };
        if terms.is_other {
            // Git asks whose a directory is.
            place.env.git(&project, &["config", "--global", "--add", "safe.directory", "*"]);
        }
        let caliban = PathBuf::from(place.env.cmd("caliban").get_program());
        let programs = OpenPrograms::new([caliban.as_path()]);
        let mut world = Self {
            place,
            terms,
            arena,
            project,
            marks,
            door,
            pieces: BTreeMap::new(),
            outside: Vec::new(),
            identity: (0, 0),
            programs,
        };
        world.give_away(world.root());
        world.remember();
        world
    }

    /// caliban, as who the adversary is.
    pub(super) fn caliban(&self) -> ProgramRun {
        let run = ProgramRun::new(self.of_user(self.programs.path("caliban").as_os_str()));
        run.args(self.place.server.args(self.place.protocol)).dir(&self.place.repo)
    }

    /// A program, as who the adversary is.
    fn of_user(&self, program: &OsStr) -> Command {
        if !self.terms.is_other {
            return self.place.env.program(program);
        }
        let mut command = self.place.env.program("setpriv");
        command.args(["--reuid", OTHER, "--regid", OTHER, "--clear-groups"]).arg(program);
        command
    }

    /// What we made is that user's, too.
    fn give_away(&self, top: &Path) {
        if self.terms.is_other {
            let done = Command::new("chown").args(["-hR", &format!("{OTHER}:{OTHER}")]).arg(top).status();
            assert!(done.unwrap().success());
        }
    }

    /// The worktree that is an added directory.
    pub(super) fn linked(&self) -> PathBuf {
        self.root().join("linked")
    }

    /// The agent works in this worktree: only that is put back.
    pub(super) fn moves_to(&mut self, worktree: PathBuf) {
        self.arena.clone_from(&worktree);
        self.project = worktree;
        self.remember();
    }

    fn remember(&mut self) {
        self.pieces = pieces(&self.arena);
        self.identity = identity(&self.project);
        self.outside = self.look_outside();
    }

    pub(super) fn root(&self) -> &Path {
        self.place.env.root()
    }

    /// Everything that no command may change. A project that nothing may be written to is a part of it.
    fn look_outside(&self) -> Vec<(String, Vec<u8>)> {
        let root = self.root();
        let mut found = Vec::new();
        if self.terms.stance != Stance::Unattended {
            for name in ["home", "config", "sibling", "work", "run", "gitconfig"] {
                found.extend(picture(&root.join(name)));
            }
            if self.terms.layout == Layout::LinkedAdded {
                found.extend(picture(&root.join("other")));
                found
                    .push(("linked/.git".to_owned(), fs::read(root.join("linked/.git")).unwrap_or_default()));
            }
            if self.terms.layout == Layout::Bare {
                for name in ["config", "config.worktree", "commondir"] {
                    found.push((name.to_owned(), fs::read(self.project.join(name)).unwrap_or_default()));
                }
                found.extend(picture(&self.project.join("hooks")));
            }
        }
        if self.terms.stance == Stance::Worktree {
            let main = &self.place.repo;
            for name in [
                ".git/hooks",
                ".git/info",
                ".git/modules",
                ".git/worktrees/other",
                ".caliban/worktrees/other",
                "sub",
                "conf",
            ] {
                found.extend(picture(&main.join(name)));
            }
            for name in [
                ".git/config",
                ".git/HEAD",
                ".git/index",
                ".git/refs/heads/main",
                "README.md",
                ".git/commondir",
            ] {
                found.push((name.to_owned(), fs::read(main.join(name)).unwrap_or_default()));
            }
        } else if self.terms.stance != Stance::Unattended {
            found.extend(picture(&self.project.join(".git")));
        }
        // The project can lie in the home. The daemon's own things come and go.
        let is_ours = |path: &str| {
            let path = Path::new(path);
            let moves = path.starts_with(&self.arena) && !path.starts_with(self.project.join(".git"));
            moves
                || path.extension().is_some_and(|end| end == "sock")
                || path.starts_with(root.join("run/caliban"))
        };
        found.retain(|(path, _)| !is_ours(path));
        if self.terms.stance.only_reads() {
            found.extend(picture(&self.project));
        }
        found
    }

    /// What has happened that must not happen.
    pub(super) fn holes(&self) -> Vec<String> {
        let mut holes = Vec::new();
        let now = self.look_outside();
        if now != self.outside {
            let (gone, made) = (lacks(&now, &self.outside), lacks(&self.outside, &now));
            holes.push(format!("changed outside: was {gone:?}, is {made:?}"));
        }
        for mark in self.marks.read_dir().unwrap().flatten() {
            holes.push(format!("a program ran: {}", mark.file_name().display()));
        }
        if self.door.accept().is_ok() {
            holes.push("somebody came to the socket".to_owned());
        }
        // The way to a place cannot be moved; who is not fenced in may.
        if self.terms.stance != Stance::Unattended && identity(&self.project) != self.identity {
            holes.push("the project is another directory now".to_owned());
        }
        if self.terms.denials {
            for name in DENIED {
                let there = fs::read_to_string(self.place.repo.join(name)).unwrap_or_default();
                if !there.starts_with("CANARY") {
                    holes.push(format!("{name} was moved or written"));
                }
            }
        }
        holes
    }

    /// Git as the user runs it at the top and wherever there is a repository that was not there before.
    pub(super) fn user_looks(&self) {
        let mut tops = vec![self.project.clone()];
        if self.terms.stance == Stance::Worktree {
            tops.push(self.place.repo.clone());
        }
        if self.terms.layout == Layout::LinkedAdded {
            tops.extend([self.linked(), self.root().join("other")]);
        }
        let now = pieces(&self.arena);
        let is_git = |path: &&PathBuf| path.file_name().is_some_and(|name| name.eq_ignore_ascii_case(".git"));
        let changed = now.iter().filter(|(path, piece)| self.pieces.get(*path) != Some(piece));
        for path in changed.map(|(path, _)| path) {
            let within = path.ancestors().find(|step| is_git(&&step.to_path_buf()));
            tops.extend(within.and_then(Path::parent).map(|top| self.arena.join(top)));
        }
        tops.sort();
        tops.dedup();
        for top in tops {
            let mut status = self.of_user(OsStr::new("git"));
            status.args(["status", "--short"]).current_dir(&top).env("GIT_OPTIONAL_LOCKS", "0");
            let _may_fail = status.stdin(Stdio::null()).output();
            if self.is_own_repository(&top) {
                for args in [&["commit", "-q", "--allow-empty", "-m", "x"][..], &["fetch", "-q", ".", "HEAD"]]
                {
                    let mut git = self.git_at(&top);
                    let _may_fail = git.args(["-c", "gc.auto=0"]).args(args).stdin(Stdio::null()).output();
                }
            }
        }
    }

    /// Git as the user runs it in a directory, for the repository there and none around it.
    fn git_at(&self, top: &Path) -> Command {
        let mut git = self.of_user(OsStr::new("git"));
        git.current_dir(top).env("GIT_CEILING_DIRECTORIES", top.parent().unwrap());
        git
    }

    /// Whether the repository of a directory lies in the tree, beside the one that must not change.
    fn is_own_repository(&self, top: &Path) -> bool {
        let found = self.git_at(top).args(["rev-parse", "--absolute-git-dir"]).stdin(Stdio::null()).output();
        let Some(git) = found.ok().filter(|found| found.status.success()) else { return false };
        let git = PathBuf::from(String::from_utf8_lossy(&git.stdout).trim_end());
        git.starts_with(&self.arena) && top != self.project && !git.starts_with(self.project.join(".git"))
    }

    /// Whether the tree has anything of git's that was not there.
    pub(super) fn has_new_git(&self) -> bool {
        let is_gits =
            |path: &Path| path.components().any(|part| part.as_os_str().eq_ignore_ascii_case(".git"));
        let now = pieces(&self.arena);
        let old = self.pieces.iter().filter(|(path, _)| is_gits(path)).collect::<Vec<_>>();
        old != now.iter().filter(|(path, _)| is_gits(path)).collect::<Vec<_>>()
    }

    /// Puts the tree back. Directories that are still there stay the same ones.
    pub(super) fn restore(&self) {
        let _the_top_may_be_closed = fs::set_permissions(&self.arena, fs::Permissions::from_mode(0o755));
        let now = pieces(&self.arena);
        for (path, piece) in now.iter().rev() {
            let at = self.arena.join(path);
            match (self.pieces.get(path), piece) {
                (Some(wanted), _) if wanted == piece => {}
                (Some(Piece::Directory(mode)), Piece::Directory(_)) => {
                    drop(fs::set_permissions(&at, fs::Permissions::from_mode(*mode)));
                }
                (_, Piece::Directory(_)) => drop(fs::remove_dir_all(&at)),
                _ => drop(fs::remove_file(&at)),
            }
        }
        for (path, piece) in &self.pieces {
            if now.get(path) == Some(piece) && self.arena.join(path).symlink_metadata().is_ok() {
                continue;
            }
            let at = self.arena.join(path);
            match piece {
                Piece::Directory(mode) => {
                    let _there = fs::create_dir(&at);
                    fs::set_permissions(&at, fs::Permissions::from_mode(*mode)).unwrap();
                }
                Piece::Link(to) => symlink(to, &at).unwrap(),
                Piece::File(content, mode) => {
                    fs::write(&at, content).unwrap();
                    fs::set_permissions(&at, fs::Permissions::from_mode(*mode)).unwrap();
                }
            }
        }
        self.give_away(&self.arena);
    }

    /// Writes down the next program, for a line that only names it.
    pub(super) fn note(&self, program: &str) -> String {
        let at = self.project.join(PROGRAM);
        let _a_link_may_be_there = fs::remove_file(&at);
        let _the_project_may_be_gone = fs::write(&at, format!("#!/bin/bash\n{program}\n"))
            .and_then(|()| fs::set_permissions(&at, fs::Permissions::from_mode(0o755)));
        at.display().to_string()
    }

    /// A part of a hostile tree that the user unpacks: a link, or a file.
    pub(super) fn unpack(&self, name: &str, text: &str, is_link: bool) {
        let at = self.project.join(name);
        let _there = fs::create_dir_all(at.parent().unwrap());
        if at.symlink_metadata().is_ok_and(|found| !found.is_dir()) {
            fs::remove_file(&at).unwrap();
        }
        let _may_be_a_directory = if is_link { symlink(text, &at) } else { fs::write(&at, text) };
    }

    /// After that it is the user's, too.
    pub(super) fn begin(&mut self) {
        self.give_away(&self.project);
        self.outside = self.look_outside();
    }
}

/// What of these files another picture does not have.
fn lacks(picture: &[(String, Vec<u8>)], files: &[(String, Vec<u8>)]) -> Vec<String> {
    files.iter().filter(|file| !picture.contains(file)).map(|(path, _)| path.clone()).collect()
}

fn identity(path: &Path) -> (u64, u64) {
    fs::symlink_metadata(path).map_or((0, 0), |found| (found.dev(), found.ino()))
}

/// The project's own files.
fn fill(place: &Place, terms: &Terms) {
    let (env, project) = (&place.env, &place.repo);
    // Examples only cost time.
    for example in project.join(".git/hooks").read_dir().into_iter().flatten().flatten() {
        fs::remove_file(example.path()).unwrap();
    }
    for name in ["sub/deep/x", "sub/notes", "conf/x", "Makefile", "sub/Makefile"] {
        env.write(project.join(name), if name.ends_with("Makefile") { "all:\n\ttrue\n" } else { "x\n" });
    }
    if !matches!(terms.layout, Layout::Plain | Layout::Bare) {
        let library = env.root().join("library");
        fs::create_dir(&library).unwrap();
        env.git(&library, &["init", "-q", "--template="]);
        env.git(&library, &["commit", "-q", "--allow-empty", "-m", "x"]);
        let url = library.to_str().unwrap();
        env.git(
            project,
            &[
                "-c",
                "protocol.file.allow=always",
                "-c",
                "init.templateDir=",
                "submodule",
                "--quiet",
                "add",
                url,
                "vendor",
            ],
        );
        env.git(project, &["add", "-A"]);
        env.git(project, &["commit", "-qm", "more"]);
    }
    let nested = project.join("third/party");
    fs::create_dir_all(&nested).unwrap();
    env.git(&nested, &["init", "-q", "--template="]);
    if terms.denials {
        for name in DENIED {
            env.write(project.join(name), format!("CANARY denied {name}\n"));
        }
        if terms.in_index && !matches!(terms.layout, Layout::Plain | Layout::Bare) {
            env.git(project, &["add", "-f", DENIED[0]]);
            env.git(project, &["commit", "-qm", "what is denied"]);
        }
    }
}

/// All that is in a directory, but for the objects of git.
fn pieces(top: &Path) -> BTreeMap<PathBuf, Piece> {
    let mut found = BTreeMap::new();
    let mut open = vec![PathBuf::new()];
    while let Some(below) = open.pop() {
        for entry in top.join(&below).read_dir().into_iter().flatten().flatten() {
            let name = below.join(entry.file_name());
            let Ok(about) = entry.metadata() else { continue };
            let is_object = below.ends_with("objects") && entry.file_name().len() == 2;
            if is_object || name.ends_with(".git/caliban") {
                continue;
            }
            let piece = if about.is_symlink() {
                fs::read_link(entry.path()).map(Piece::Link).ok()
            } else if about.is_dir() {
                open.push(name.clone());
                Some(Piece::Directory(about.mode() & 0o7777))
            } else if about.is_file() {
                fs::read(entry.path()).ok().map(|content| Piece::File(content, about.mode() & 0o7777))
            } else {
                Some(Piece::File(Vec::new(), 0))
            };
            found.extend(piece.map(|piece| (name, piece)));
        }
    }
    found
}
