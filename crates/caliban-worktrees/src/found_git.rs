//! Where git keeps what belongs to a directory, when that is somewhere else.
//!
//! A `.git` *file* names any directory that its writer likes, and an agent, or whoever packed a tree, may have written it. So it
//! counts only if the directory that it names says so, too: a linked worktree's record lies in the store that it names and points
//! back; a submodule's lies beneath its superproject's `.git/modules`. Anything else counts only when a person has accepted that
//! very directory.

use std::{
    ffi::OsStr,
    fs::File,
    io::Read as _,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use caliban_rooted::{Below, FoundEntry, Identity, Root};
use rustix::fs::OFlags;

/// The largest file that is read: one path.
const CAP: u64 = 16 * 1024;
/// Superprojects in superprojects.
const DEPTH: usize = 8;

/// Git directories of a directory, held open.
#[derive(Debug)]
pub struct FoundGit {
    /// Its own: the record of a linked worktree, the store of a submodule.
    pub own: Root,
    /// The store that a linked worktree shares with others.
    pub common: Option<Root>,
}

/// What is known of a `.git` that is no directory.
#[derive(Debug)]
pub enum GitFile {
    /// There is none, or it is a directory.
    None,
    /// It names a git directory that says so, too.
    Found(FoundGit),
    /// It names this directory, which does not say so: it counts only when a person accepts it.
    Doubtful(Root),
}

impl FoundGit {
    /// Where objects, refs and configuration are.
    pub fn store(&self) -> &Root {
        self.common.as_ref().unwrap_or(&self.own)
    }

    /// Both.
    pub fn places(&self) -> impl Iterator<Item = &Root> {
        [&self.own].into_iter().chain(&self.common)
    }
}

/// Directories that git would use for this one although nothing in them says so: where a `.git` file or link leads that does not
/// point back, and stores that objects are taken from (`objects/info/alternates`). They count only when a person accepts them.
pub fn doubtful_places(top: &Root) -> Vec<Root> {
    let (store, mut places) = match git_file(top, &|_, _| false) {
        GitFile::Found(found) => (Root::plain(found.store().path()).ok(), Vec::new()),
        GitFile::Doubtful(own) => (Root::plain(own.path()).ok(), vec![own]),
        GitFile::None => {
            let store = Root::plain(&top.path().join(".git")).ok();
            let own = store.as_ref().filter(|store| leads_elsewhere(store));
            (
                store.as_ref().and_then(|store| Root::plain(store.path()).ok()),
                own.into_iter().flat_map(|own| Root::plain(own.path())).collect(),
            )
        }
    };
    places.extend(store.iter().flat_map(alternates));
    places
}

/// The stores of objects that a repository takes objects from, directly or not.
pub fn alternates(store: &Root) -> Vec<Root> {
    let stores = crate::alternates::alternates(&store.path().join("objects"));
    stores.iter().filter_map(|place| Root::plain(place).ok()).collect()
}

/// The git directories that git uses for a directory with a `.git`, whoever says that it may: to hide what they keep, never to show
/// them.
pub fn followed_by_git(top: &Root) -> Option<FoundGit> {
    let own = match git_file(top, &|_, _| true) {
        GitFile::Found(FoundGit { own, .. }) | GitFile::Doubtful(own) => own,
        GitFile::None => Root::plain(&top.path().join(".git")).ok()?,
    };
    let common = text_of(&own, "commondir").and_then(|text| Root::pin(&own.path().join(text)).ok());
    Some(FoundGit { own, common })
}

/// Looks at the `.git` of a directory. `is_accepted` says which directories a person has accepted.
pub fn git_file(top: &Root, is_accepted: &dyn Fn(&Path, Identity) -> bool) -> GitFile {
    found(top, is_accepted, 0)
}

fn found(top: &Root, is_accepted: &dyn Fn(&Path, Identity) -> bool, depth: usize) -> GitFile {
    let name = Below::new(".git").unwrap_or_default();
    let named = match top.look(&name) {
        Ok(FoundEntry::File { .. }) => {
            text_of(top, ".git").and_then(|text| Some(PathBuf::from(text.strip_prefix("gitdir: ")?)))
        }
        Ok(FoundEntry::Link { .. }) => Some(PathBuf::from(".git")),
        _ => None,
    };
    let Some(named) = named else { return GitFile::None };
    let Ok(own) = Root::pin(&top.path().join(named)) else { return GitFile::None };
    if !matches!(FoundEntry::of(&own), Ok(FoundEntry::Directory(_))) {
        return GitFile::None;
    }
    if let Some(common) = common_of(&own) {
        let is_its = points_back(&own, top);
        return if is_its || is_accepted(own.path(), own.identity()) {
            GitFile::Found(FoundGit { own, common: Some(common) })
        } else {
            GitFile::Doubtful(own)
        };
    }
    if is_submodule_of_a_parent(&own, top, is_accepted, depth) || is_accepted(own.path(), own.identity()) {
        return GitFile::Found(FoundGit { own, common: None });
    }
    GitFile::Doubtful(own)
}

/// What of a git directory may be a link, which git follows when it writes.
const LEADING: [&str; 8] =
    ["objects", "refs", "refs/heads", "refs/heads/caliban", "packed-refs", "worktrees", "logs", "caliban"];

/// The git directories of the repository that a directory is in, found as git finds them; none when it is in none. An error has the
/// directory that git would use and that does not say so: whoever packed the tree may want us to work on another repository.
pub(crate) fn repository_around(
    start: &Path,
    is_accepted: &dyn Fn(&Path, Identity) -> bool,
) -> Result<Option<FoundGit>, PathBuf> {
    let Ok(start) = Root::pin(start) else { return Ok(None) };
    for directory in start.path().ancestors() {
        let Ok(top) = Root::plain(directory) else { continue };
        let git = directory.join(".git");
        let store = match top.look(&Below::fixed(".git")) {
            Ok(FoundEntry::Nothing) | Err(_) => Some(top),
            // Git goes on when it is none, and so it does above a file that is no repository.
            Ok(FoundEntry::Directory(_)) => Root::plain(&git).ok().filter(is_store).or(Some(top)),
            Ok(_) => match git_file(&top, is_accepted) {
                GitFile::Found(found) => return Ok(Some(found)),
                // Beside the file, in the same directory: it came with it (`.bare`).
                GitFile::Doubtful(own)
                    if own.path().parent() == Some(directory) && !leads_elsewhere(&own) =>
                {
                    Some(own)
                }
                GitFile::Doubtful(own) => return Err(own.path().to_owned()),
                GitFile::None => return Err(git),
            },
        };
        let Some(store) = store.filter(is_store) else { continue };
        if !leads_elsewhere(&store) {
            return Ok(Some(FoundGit { own: store, common: None }));
        }
        let common = common_of(&store);
        if common.is_none() && !is_accepted(store.path(), store.identity()) {
            return Err(store.path().to_owned());
        }
        let named = || Root::pin(&store.path().join(text_of(&store, "commondir")?)).ok();
        let common = common.or_else(named);
        return Ok(Some(FoundGit { own: store, common }));
    }
    Ok(None)
}

/// Whether git takes a directory for a git directory.
fn is_store(directory: &Root) -> bool {
    let has =
        |name: &'static str| !matches!(directory.look(&Below::fixed(name)), Ok(FoundEntry::Nothing) | Err(_));
    has("HEAD") && (has("commondir") || (has("objects") && has("refs")))
}

/// Whether a part of a git directory is somewhere else.
fn leads_elsewhere(git: &Root) -> bool {
    let is_link = |name: &&'static str| matches!(git.look(&Below::fixed(name)), Ok(FoundEntry::Link { .. }));
    !matches!(git.look(&Below::fixed("commondir")), Ok(FoundEntry::Nothing)) || LEADING.iter().any(is_link)
}

/// The store that a git directory names, if that one has this very directory among the records of its worktrees.
pub(crate) fn common_of(own: &Root) -> Option<Root> {
    let text = text_of(own, "commondir")?;
    let common = Root::pin(&own.path().join(text)).ok()?;
    let name = Below::new("worktrees").ok()?.join(own.path().file_name()?).ok()?;
    (common.look(&name).ok()?.identity()? == own.identity()).then_some(common)
}

/// Whether the record of a worktree names this directory's `.git`.
fn points_back(own: &Root, top: &Root) -> bool {
    let Some(text) = text_of(own, "gitdir") else { return false };
    let file = own.path().join(text);
    let is_git = file.file_name() == Some(OsStr::new(".git"));
    let parent = file.parent().and_then(|parent| Root::pin(parent).ok());
    is_git && parent.is_some_and(|parent| parent.identity() == top.identity())
}

/// Whether it lies beneath the `modules` of the repository around the directory.
fn is_submodule_of_a_parent(
    own: &Root,
    top: &Root,
    is_accepted: &dyn Fn(&Path, Identity) -> bool,
    depth: usize,
) -> bool {
    if depth >= DEPTH {
        return false;
    }
    top.path().ancestors().skip(1).any(|parent| {
        let Ok(parent) = Root::plain(parent) else { return false };
        let store = match parent.look(&Below::new(".git").unwrap_or_default()) {
            Ok(FoundEntry::Directory(_)) => Root::plain(&parent.path().join(".git")).ok(),
            Ok(_) => match found(&parent, is_accepted, depth + 1) {
                GitFile::Found(FoundGit { own, .. }) => Some(own),
                GitFile::None | GitFile::Doubtful(_) => None,
            },
            Err(_) => None,
        };
        let Some(modules) = store.and_then(|store| Root::plain(&store.path().join("modules")).ok()) else {
            return false;
        };
        modules.name_of(own.path()).is_some_and(|name| {
            !name.is_here()
                && modules.look(&name).ok().and_then(|look| look.identity()) == Some(own.identity())
        })
    })
}

/// A small file of one path, without its line end.
fn text_of(root: &Root, name: &str) -> Option<String> {
    let file =
        root.open(&Below::new(name).ok()?, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK).ok()?;
    if !matches!(FoundEntry::of(&file), Ok(FoundEntry::File { .. })) {
        return None;
    }
    let mut bytes = Vec::new();
    File::from(file).take(CAP + 1).read_to_end(&mut bytes).ok()?;
    let text = OsStr::from_bytes(&bytes).to_str()?.trim_end_matches(['\n', '\r']);
    (bytes.len() as u64 <= CAP && !text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink, process::Command};

    fn git(place: &Path, line: &str) {
        let done = Command::new("git")
            .args(["-c", "user.name=x", "-c", "user.email=x@x", "-c", "protocol.file.allow=always"])
            .args(line.split(' '))
            .current_dir(place)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .output()
            .unwrap();
        assert!(done.status.success(), "{line}: {done:?}");
    }

    fn kind(place: &Path) -> String {
        match git_file(&Root::pin(place).unwrap(), &|_, _| false) {
            GitFile::None => "none".to_owned(),
            GitFile::Found(found) => format!("found {}", found.store().path().display()),
            GitFile::Doubtful(own) => format!("doubtful {}", own.path().display()),
        }
    }

    #[test]
    fn a18_a_git_file_counts_only_if_the_directory_that_it_names_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let top = fs::canonicalize(dir.path()).unwrap();
        let at = |path: &str| top.join(path);
        for made in ["main", "lib", "plain", "home/.config"] {
            fs::create_dir_all(at(made)).unwrap();
        }
        for repo in ["main", "lib"] {
            git(&at(repo), "init -q -b main");
            git(&at(repo), "commit -q --allow-empty -m one");
        }
        git(&at("main"), "worktree add -q ../linked");
        git(&at("main"), "worktree add -q ../other");
        git(&at("main"), "submodule --quiet add ../lib sub");
        assert_eq!(kind(&at("main")), "none");
        assert_eq!(kind(&at("linked")), format!("found {}", at("main/.git").display()));
        assert_eq!(kind(&at("main/sub")), format!("found {}", at("main/.git/modules/sub").display()));
        // A plain directory, an unpacked tree: whatever the file names does not know of it.
        for named in [
            "../home",
            "../main/.git",
            "../main/.git/worktrees/other",
            "../main/.git/modules/sub",
            "../home/.config",
        ] {
            fs::write(at("plain/.git"), format!("gitdir: {named}\n")).unwrap();
            assert!(kind(&at("plain")).starts_with("doubtful"), "{named}: {}", kind(&at("plain")));
        }
        fs::remove_file(at("plain/.git")).unwrap();
        symlink("../main/.git", at("plain/.git")).unwrap();
        assert!(kind(&at("plain")).starts_with("doubtful"));
        // One that pretends: its `commondir` leads to a directory that has no such worktree.
        fs::remove_file(at("plain/.git")).unwrap();
        fs::create_dir(at("plain/fake")).unwrap();
        fs::write(at("plain/.git"), "gitdir: fake\n").unwrap();
        fs::write(at("plain/fake/commondir"), format!("{}\n", at("home").display())).unwrap();
        fs::write(at("plain/fake/gitdir"), format!("{}\n", at("plain/.git").display())).unwrap();
        assert!(kind(&at("plain")).starts_with("doubtful"));
        let doubtful = doubtful_places(&Root::pin(&at("plain")).unwrap());
        assert_eq!(doubtful.iter().map(Root::path).collect::<Vec<_>>(), [at("plain/fake")]);
        // So do objects of another store.
        fs::write(at("main/.git/objects/info/alternates"), format!("{}\n", at("lib/.git/objects").display()))
            .unwrap();
        let doubtful = doubtful_places(&Root::pin(&at("linked")).unwrap());
        assert_eq!(doubtful.iter().map(Root::path).collect::<Vec<_>>(), [at("lib/.git/objects")]);
        // A person's word counts for that very directory.
        let root = Root::pin(&at("plain")).unwrap();
        let fake = Root::pin(&at("plain/fake")).unwrap().identity();
        assert!(matches!(git_file(&root, &|_, identity| identity == fake), GitFile::Found(_)));
    }

    /// Which repository git would work on from a directory, or what it would use without that one's word.
    #[test]
    fn a18_a_tree_that_somebody_packed_leads_to_no_other_repository() {
        let dir = tempfile::tempdir().unwrap();
        let top = fs::canonicalize(dir.path()).unwrap();
        let at = |path: &str| top.join(path);
        for made in
            ["main/deep", "packed/.git/refs", "packed/.git/objects", "packed/sub", "links/.git", "bare.git"]
        {
            fs::create_dir_all(at(made)).unwrap();
        }
        git(&at("main"), "init -q -b main");
        git(&at("main"), "commit -q --allow-empty -m one");
        git(&at("main"), "worktree add -q ../linked");
        git(&at("bare.git"), "init -q --bare");
        let around = |path: &str| {
            repository_around(&at(path), &|_, _| false)
                .map(|found| found.map(|git| git.store().path().to_owned()))
        };
        assert_eq!(around("main/deep"), Ok(Some(at("main/.git"))));
        assert_eq!(around("linked"), Ok(Some(at("main/.git"))));
        assert_eq!(around("main/.git/worktrees/linked"), Ok(Some(at("main/.git"))));
        assert_eq!(around("bare.git/refs"), Ok(Some(at("bare.git"))));
        fs::create_dir_all(at("beside")).unwrap();
        fs::rename(at("bare.git"), at("beside/.bare")).unwrap();
        fs::write(at("beside/.git"), "gitdir: ./.bare\n").unwrap();
        assert_eq!(around("beside"), Ok(Some(at("beside/.bare"))));
        // A store of its own whose parts are somebody else's.
        fs::write(at("packed/.git/HEAD"), "ref: refs/heads/main\n").unwrap();
        assert_eq!(around("packed/sub"), Ok(Some(at("packed/.git"))));
        fs::write(at("packed/.git/commondir"), format!("{}\n", at("main/.git").display())).unwrap();
        assert_eq!(around("packed/sub"), Err(at("packed/.git")));
        for (name, to) in [("HEAD", "HEAD"), ("objects", "objects"), ("refs", "refs")] {
            symlink(at("main/.git").join(to), at("links/.git").join(name)).unwrap();
        }
        assert_eq!(around("links"), Err(at("links/.git")));
        // The same as a bare repository.
        fs::rename(at("packed/.git"), at("packed/bare")).unwrap();
        assert_eq!(around("packed/bare"), Err(at("packed/bare")));
        for (named, wanted) in [("../main/.git", Err(at("main/.git"))), ("../none", Err(at("packed/.git")))] {
            fs::write(at("packed/.git"), format!("gitdir: {named}\n")).unwrap();
            assert_eq!(around("packed/sub"), wanted);
        }
        // A person's word counts, also for a worktree that was moved.
        fs::rename(at("linked"), at("moved")).unwrap();
        let own = at("main/.git/worktrees/linked");
        assert_eq!(around("moved"), Err(own.clone()));
        let found = repository_around(&at("moved"), &|path, _| path == own).unwrap().unwrap();
        assert_eq!(found.store().path(), at("main/.git"));
        let doubtful = doubtful_places(&Root::pin(&at("links")).unwrap());
        assert_eq!(doubtful.iter().map(Root::path).collect::<Vec<_>>(), [at("links/.git")]);
    }
}
