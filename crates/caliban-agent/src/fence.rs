//! The fence of an agent's commands: what the settings want, and what a command finds there.
//!
//! `caliban-permissions` says which command runs in which fence; here that becomes a value for `caliban-fence`.

mod absent_places;
mod kept_objects;
mod nested_look;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs, io,
    path::{Component, Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use caliban_contract::records;
use caliban_contract::tree_limits::TreeLimits;
use caliban_core::{
    address::AddressPolicy,
    fence::{Profile, Sandbox},
    names::Slug,
};
use caliban_fence::{
    Access, Around, ByteText, Fence, Fenced, Hold, Hosts, Network, OwnSince, ProgramFence, Proxy,
};
use caliban_permissions::{AbsentPlace, FenceDuties, Fencing, LinksOut, Policy};
use caliban_rooted::{Below, FoundEntry, Identity, Root, Roots, RootsRecord};
use caliban_worktrees::{AcceptedGit, FoundGit, GitEnvironment, GitFile, GitOptions, PrivateGit, Repo};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use absent_places::Unmade;
use kept_objects::HiddenStores;
pub use kept_objects::Kept;
use nested_look::Looked;
pub use nested_look::Nested;

/// Where commands that run note which protected places they found absent, in the agent's directory.
const UNMADE: &str = "unmade";

/// Which directories the agent's roots are, in the agent's directory.
const ROOTS: &str = "roots.json";

/// What fenced commands reach over the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FenceReach {
    /// Nothing.
    Nothing,
    /// What the machine reaches.
    Everything,
    /// These hosts, through a proxy.
    Hosts(Hosts, AddressPolicy),
}

/// What the settings say about fences.
#[derive(Debug)]
pub struct Fences {
    /// Whether commands are fenced.
    pub sandbox: Sandbox,
    /// The network of fenced commands.
    pub network: FenceReach,
    /// The proxy, once a command needed it.
    pub proxy: OnceLock<Result<Proxy, String>>,
    /// Files and directories that fenced commands can read besides the project and the system.
    pub show: Vec<PathBuf>,
    /// Files and directories that they never see: our own settings, sessions and sockets.
    pub hidden: Vec<PathBuf>,
    /// The environment of commands: some variables say where tools keep their files.
    pub env: Vec<(OsString, OsString)>,
    /// The program that puts fences up: our own.
    pub helper: PathBuf,
    /// The private gits of worktrees, once a command needed one; none where there can be none.
    pub gits: Mutex<BTreeMap<PathBuf, Option<Arc<PrivateGit>>>>,
    /// Git directories elsewhere, of directories that a command was fenced in.
    pub found: Mutex<BTreeMap<PathBuf, Option<Arc<FoundGit>>>>,
    /// The same as they were when an agent's first command was fenced in: they stay the same directories.
    pub git_roots: Roots,
    /// Nested repositories of trees that a command could change.
    pub nested: Nested,
    /// What git keeps, once rules keep something from being read.
    pub kept: Mutex<Kept>,
    /// Git directories that a person has accepted although they do not say whose they are.
    pub accepted_git: AcceptedGit,
    /// What each fenced command may take of the machine.
    pub limits: TreeLimits,
}

/// Directories of an agent's own that its commands find.
#[derive(Debug, Clone, Copy, Default)]
pub struct OwnPlaces<'a> {
    /// Their `/tmp`, from one command to the next.
    pub tmp: Option<&'a Path>,
    /// Where whole outputs are kept; they can read there.
    pub outputs: Option<&'a Path>,
}

impl<'a> OwnPlaces<'a> {
    /// The agent's directory, in which notes for its next process are.
    fn records(&self) -> Option<&'a Path> {
        self.tmp.and_then(Path::parent)
    }
}

/// Directories of tools in the home directory that fenced commands can read.
const TOOLS: &[&str] = &[
    ".cargo",
    ".rustup",
    ".nvm",
    ".npm",
    ".volta",
    ".fnm",
    ".bun",
    ".deno",
    ".yarn",
    ".pyenv",
    ".rbenv",
    ".asdf",
    ".sdkman",
    ".jenv",
    ".goenv",
    ".m2",
    ".gradle",
    ".ivy2",
    ".gem",
    ".bundle",
    ".opam",
    ".stack",
    ".cabal",
    ".ghcup",
    ".nix-profile",
    ".conda",
    "miniconda3",
    "anaconda3",
    "go",
    ".local/bin",
    ".local/lib",
    ".local/pipx",
    ".local/share/mise",
    ".local/share/pnpm",
    ".local/share/uv",
    ".local/share/fnm",
    ".cache/pip",
    ".cache/uv",
    ".cache/ms-playwright",
    ".cache/puppeteer",
    ".gitconfig",
    ".config/git/config",
    ".config/git/ignore",
    ".config/git/attributes",
];

/// Caches that a tool fails without when it cannot write them: in the agent's own `/tmp`, where they stay from one command to the
/// next. The user's own would be shown read-only (`go build`: "read-only file system").
const CACHES: &[(&str, &str)] = &[("GOCACHE", "/tmp/go-build")];

/// Variables that name such a directory elsewhere.
const TOOL_VARIABLES: &[&str] = &[
    "CARGO_HOME",
    "RUSTUP_HOME",
    "GOPATH",
    "GOROOT",
    "NVM_DIR",
    "PYENV_ROOT",
    "JAVA_HOME",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "PNPM_HOME",
    "npm_config_cache",
    "GIT_CONFIG_GLOBAL",
];

/// Secrets of tools, in those directories and in a home directory that is itself the project.
const SECRETS: &[&str] = &[
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".m2/settings.xml",
    ".m2/settings-security.xml",
    ".gradle/gradle.properties",
    ".gem/credentials",
    ".bundle/config",
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".config/gcloud",
    ".config/gh",
    ".config/git/credentials",
    ".git-credentials",
    ".docker",
    ".kube",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".password-store",
    ".mozilla",
    ".config/google-chrome",
    ".config/chromium",
    ".local/share/keyrings",
    ".bash_history",
    ".zsh_history",
    ".pgpass",
    ".my.cnf",
    ".vault-token",
    ".terraform.d/credentials.tfrc.json",
];

impl Fences {
    /// Without a fence.
    pub fn off(helper: PathBuf) -> Self {
        Self {
            sandbox: Sandbox::Off,
            network: FenceReach::Nothing,
            proxy: OnceLock::new(),
            show: Vec::new(),
            hidden: Vec::new(),
            env: Vec::new(),
            helper,
            gits: Mutex::default(),
            found: Mutex::default(),
            git_roots: Roots::default(),
            nested: Nested::default(),
            kept: Mutex::default(),
            accepted_git: AcceptedGit::default(),
            limits: TreeLimits::default(),
        }
    }

    /// Whether commands of an agent with this policy can be fenced here, and whether git in the fence has a git directory of its
    /// own; tried once.
    pub fn fencing(&self, policy: &Policy) -> Fencing {
        match self.fenced() {
            Fencing::Holds if !self.hides_objects(policy) && self.git(policy).is_some() => Fencing::HoldsGit,
            fencing => fencing,
        }
    }

    /// The private git of the agent's own worktree. None where it has no worktree of its own, or cannot have a private git:
    /// then commands that change something in `.git` are asked about.
    fn git(&self, policy: &Policy) -> Option<Arc<PrivateGit>> {
        let worktree = policy.worktree.as_ref()?;
        let mut known = self.gits.lock().unwrap_or_else(PoisonError::into_inner);
        let open = || self.open_git(&policy.root, worktree);
        known.entry(worktree.clone()).or_insert_with(open).clone()
    }

    fn open_repo(&self, root: &Path) -> Option<Repo> {
        let options = self.git_options();
        in_a_runtime(async { Repo::open(root, options, &CancellationToken::new()).await.ok() }).flatten()
    }

    fn git_options(&self) -> GitOptions {
        let environment = GitEnvironment::Exactly(self.env.iter().cloned().collect());
        let accepted = self.accepted_git.clone();
        GitOptions { environment, has_terminal: false, accepted, ..GitOptions::default() }
    }

    fn open_git(&self, root: &Path, worktree: &Path) -> Option<Arc<PrivateGit>> {
        let options = self.git_options();
        let name = worktree.file_name().and_then(|name| Slug::parse(name.to_str()?).ok())?;
        let open = async {
            let cancel = CancellationToken::new();
            let repo = Repo::open(root, options, &cancel).await?;
            let git = repo.private_git(&name, &self.helper, &cancel).await?;
            Ok::<_, caliban_worktrees::Error>((repo.path_of(&name), git))
        };
        match in_a_runtime(open)? {
            Ok((path, git)) if path == worktree => Some(Arc::new(git)),
            Ok(_) => None,
            Err(error) => {
                tracing::info!(%error, "git in the fence changes nothing");
                None
            }
        }
    }

    fn fenced(&self) -> Fencing {
        match self.sandbox {
            Sandbox::Off => Fencing::Missing,
            // Where none can be put up, a required one fails when it is needed: closed, and in words.
            Sandbox::Required => Fencing::Holds,
            Sandbox::Auto if caliban_fence::probe(&self.helper).is_ok() => Fencing::Holds,
            Sandbox::Auto => Fencing::Missing,
        }
    }

    /// The fence of a command in this directory; none for one that runs as the user. An error, in words, means that the
    /// command must not run.
    ///
    /// It is made of what the session knows: roots that were found before the first command, places beneath them as they are
    /// judged now, and tools where no agent can write.
    pub fn fence(
        &self,
        profile: Profile,
        policy: &Policy,
        cwd: &Path,
        own_places: &OwnPlaces<'_>,
    ) -> Result<Option<Fenced>, String> {
        match profile {
            Profile::None => Ok(None),
            Profile::Open => self.open_fence(policy).map(Some),
            Profile::Edit | Profile::Read => self.own_fence(profile, policy, cwd, own_places).map(Some),
        }
    }

    /// Everything but what rules keep away.
    fn open_fence(&self, policy: &Policy) -> Result<Fenced, String> {
        let mut fence = Fence::new(Profile::Open, &policy.home);
        fence.masks.clear();
        fence.network = Network::On;
        fence.limits = self.limits;
        let held = policy.held_by_rules(LinksOut::AreFollowed)?;
        hold(&mut fence, &held);
        self.hide_objects(&mut fence, policy, &held.repositories);
        for place in self.hidden.iter().flat_map(|data| crate::checkpoint::directories_below(data)) {
            fence.hold(place.path(), place.identity(), Hold::Hidden);
        }
        Ok(Fenced { fence, around: Vec::new(), again: None })
    }

    fn own_fence(
        &self,
        profile: Profile,
        policy: &Policy,
        cwd: &Path,
        own_places: &OwnPlaces<'_>,
    ) -> Result<Fenced, String> {
        if policy.root.parent().is_none() {
            return Err(
                "the project is /, and no fence can show all of the machine (hint: start in a directory)"
                    .to_owned(),
            );
        }
        let journal = own_places.records().map(|records| records.join(UNMADE));
        // Before the policy looks what is there: what a killed command made is not the user's.
        let left = match &journal {
            Some(journal) if profile == Profile::Edit => absent_places::put_left_aside(journal),
            _ => Vec::new(),
        };
        let mut fence = Fence::new(profile, &policy.home);
        fence.network = self.network()?;
        fence.limits = self.limits;
        fence.own_since = own_since(policy, own_places);
        let access = if profile == Profile::Edit { Access::ReadWrite } else { Access::ReadOnly };
        let own = policy.worktree.as_ref().unwrap_or(&policy.root);
        let mut shown = Shown { fence: &mut fence, roots: &policy.roots };
        shown.directory(&policy.root, Access::ReadOnly)?;
        for place in policy.read_dirs.iter().map(PathBuf::as_path).chain(own_places.outputs) {
            shown.directory_if_there(place, Access::ReadOnly)?;
        }
        let gits = [&policy.root, own].map(|top| self.git_of(policy, top));
        for place in gits.iter().flatten().flat_map(|git| git.places()) {
            let root = self.git_roots.in_place(place.path()).map_err(|error| error.to_string())?;
            shown.fence.show(&root, Access::ReadOnly);
        }
        let stores = gits.iter().flatten().filter_map(|git| Root::plain(git.store().path()).ok());
        let stores =
            stores.chain(git_store(policy, &policy.root, None).and_then(|store| Root::plain(&store).ok()));
        for place in stores.flat_map(|store| caliban_worktrees::alternates(&store)) {
            if self.is_accepted(place.path(), place.identity()) {
                shown.fence.show(&place, Access::ReadOnly);
            }
        }
        shown.directory(own, access)?;
        for place in &policy.extra_dirs {
            shown.directory_if_there(place, access)?;
        }
        self.tools(&mut fence, policy, own_places);
        let held = policy.held(cwd)?;
        hold(&mut fence, &FenceDuties { fixed: Vec::new(), ..held.clone() });
        let mut around: Vec<Arc<dyn Around>> = Vec::new();
        self.hide_objects(&mut fence, policy, &held.repositories);
        if !self.hides_objects(policy) {
            around.extend(self.git(policy).map(|git| git.around()));
        }
        if profile == Profile::Edit {
            if let Some(tmp) = own_places.tmp {
                let words = |error: io::Error| format!("{}: {error}", tmp.display());
                fs::create_dir_all(tmp).map_err(words)?;
                fence.show_at(&*policy.roots.pin(tmp).map_err(words)?, Path::new("/tmp"), Access::ReadWrite);
            }
            fence
                .variables
                .extend(CACHES.iter().map(|(name, place)| (ByteText::from(*name), ByteText::from(*place))));
            for place in &held.fixed {
                fence.hold(&place.path, place.identity, Hold::ReadOnly);
            }
            let mut absent = held.absent;
            let trees =
                [own].into_iter().chain(policy.extra_dirs.iter().filter(|place| policy.roots.has(place)));
            for tree in trees {
                let index = index_of(policy, tree, self.git_of(policy, tree).as_deref());
                let looked = Looked { tree, index: index.as_ref(), records: own_places.records() };
                absent.extend(self.hold_nested(&mut fence, policy, &looked)?);
            }
            around.push(Arc::new(Unmade::new(absent, journal, left)));
            around.push(Arc::new(self.nested.around(own_places.records())));
        } else if let Some(store) = git_store(policy, own, gits[1].as_deref()) {
            let git = caliban_worktrees::git_that_reads(&store);
            let texts = |(name, value): (&str, &str)| (ByteText::from(name), ByteText::from(value));
            fence.git = git.settings.into_iter().map(texts).collect();
            fence.variables.push(texts(git.attributes));
        }
        // In the home directory they are not there anyway, and the outputs that are shown lie in one of them.
        let is_shown = |path: &&PathBuf| fence.binds.iter().any(|bind| path.starts_with(bind.target.path()));
        let hidden: Vec<PathBuf> = self.hidden.iter().filter(is_shown).cloned().collect();
        let secrets = SECRETS.iter().map(|secret| policy.home.join(secret));
        for path in hidden.into_iter().chain(secrets) {
            match policy.roots.judge(&path) {
                Some(place) => fence.hold(&place.path, place.identity, Hold::Hidden),
                None => fence.mask(&path),
            }
        }
        Ok(Fenced { fence, around, again: None })
    }

    /// Holds what git runs in the repositories of a tree. What is not there must not be made.
    fn hold_nested(
        &self,
        fence: &mut Fence,
        policy: &Policy,
        looked: &Looked<'_>,
    ) -> Result<Vec<AbsentPlace>, String> {
        let words = |error: io::Error| format!("{}: {error}", looked.tree.display());
        let root = policy.roots.pin(looked.tree).map_err(words)?;
        let duties = self.nested.duties(&root, looked).map_err(words)?;
        for place in duties.fixed {
            fence.hold(&place.path, place.identity, Hold::ReadOnly);
        }
        let absent = duties.absent.into_iter().map(|(name, link)| AbsentPlace {
            root: root.clone(),
            link: link.map(|to| (name.clone(), to)),
            name,
        });
        Ok(absent.collect())
    }

    /// Whether a person has accepted this very directory of git's.
    fn is_accepted(&self, path: &Path, identity: Identity) -> bool {
        self.accepted_git.has(path, identity)
    }

    /// The git directories of a directory, when they are somewhere else: found once, before the first command.
    fn git_of(&self, policy: &Policy, top: &Path) -> Option<Arc<FoundGit>> {
        let mut known = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let find = || {
            let top = policy.roots.pin(top).ok()?;
            match caliban_worktrees::git_file(&top, &|path, identity| self.is_accepted(path, identity)) {
                GitFile::Found(found) => Some(Arc::new(found)),
                GitFile::None | GitFile::Doubtful(_) => None,
            }
        };
        known.entry(top.to_owned()).or_insert_with(find).clone()
    }

    /// The fence of programs of the user's own (a hook, an MCP server, a setup command) that run in this directory; none for
    /// those that run as the user.
    pub fn program(self: &Arc<Self>, profile: Profile, policy: &Policy, cwd: &Path) -> Option<ProgramFence> {
        let (fences, policy, cwd) = (self.clone(), policy.clone(), cwd.to_owned());
        (profile != Profile::None).then(|| {
            ProgramFence::new(move || {
                let fenced = fences.fence(profile, &policy, &cwd, &OwnPlaces::default())?;
                fenced.map(|fenced| fenced.fence).ok_or_else(|| "no fence".to_owned())
            })
        })
    }

    fn network(&self) -> Result<Network, String> {
        Ok(match &self.network {
            FenceReach::Nothing => Network::Off,
            FenceReach::Everything => Network::On,
            FenceReach::Hosts(hosts, private) => {
                let start =
                    || Proxy::start(hosts.clone(), *private).map_err(|error| format!("no proxy: {error}"));
                let proxy = self.proxy.get_or_init(start).as_ref().map_err(Clone::clone)?;
                Network::Proxy(ByteText::from(proxy.socket()))
            }
        })
    }

    /// Tools lie where no agent can write, whatever this fence lets it write: a link that an agent made in the project leads wherever it
    /// likes. They are looked up for each command, because some are installed meanwhile.
    fn tools(&self, fence: &mut Fence, policy: &Policy, own_places: &OwnPlaces<'_>) {
        let home = policy.home.as_path();
        let real_home = Root::pin(home).ok();
        let trees = [&policy.root].into_iter().chain(&policy.worktree).chain(&policy.extra_dirs);
        let writable: Vec<PathBuf> = trees
            .map(PathBuf::as_path)
            .chain(own_places.tmp)
            .flat_map(|place| {
                [Some(place.to_owned()), Root::pin(place).ok().map(|root| root.path().to_owned())]
            })
            .flatten()
            .collect();
        // A name of the whole machine or of the whole home directory says nothing about a tool.
        let is_small = |place: &Path| {
            let is_around_home = real_home.as_ref().is_some_and(|real| real.path().starts_with(place));
            place.parent().is_some() && !home.starts_with(place) && !is_around_home
        };
        let mut show = |place: &Path| {
            if let Some(root) = Root::pin_outside(place, &writable).filter(|root| is_small(root.path())) {
                fence.show_if_there(&root, Access::ReadOnly);
                if root.path() != place && !place.components().any(|part| part == Component::ParentDir) {
                    fence.links.push((place.into(), root.path().into()));
                }
            }
        };
        for place in TOOLS {
            show(&home.join(place));
        }
        let value = |name: &str| self.env.iter().find(|(given, _)| given == name).map(|(_, value)| value);
        let named = TOOL_VARIABLES.iter().filter_map(|name| value(name)).map(PathBuf::from);
        let path = value("PATH").map(std::env::split_paths).into_iter().flatten();
        for place in named.chain(path).chain(self.show.iter().cloned()) {
            let in_system = caliban_fence::SYSTEM.iter().any(|system| place.starts_with(system));
            if place.is_absolute() && is_small(&place) && !in_system {
                show(&place);
            }
        }
    }
}

/// Since when the agent has its worktree for itself: since its directory was made. None where the file system does not say.
#[expect(clippy::disallowed_methods, reason = "in Caliban's own records")]
fn own_since(policy: &Policy, own_places: &OwnPlaces<'_>) -> Option<OwnSince> {
    let worktree = policy.roots.in_place(policy.worktree.as_ref()?).ok()?;
    let born = fs::metadata(own_places.records()?).ok()?.created().ok()?;
    let seconds = born.duration_since(std::time::UNIX_EPOCH).ok()?.as_secs();
    Some(OwnSince { place: worktree.path().into(), seconds })
}

/// Waits for it in a thread of its own: whoever asks may be in a runtime, and does not await.
fn in_a_runtime<T: Send>(work: impl Future<Output = T> + Send) -> Option<T> {
    std::thread::scope(|scope| {
        let run = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
            Some(runtime.block_on(work))
        };
        scope.spawn(run).join().ok().flatten()
    })
}

/// What is written down of the roots of an agent.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct KnownRoots {
    /// Of its work, and its `/tmp`.
    work: RootsRecord,
    /// Git directories elsewhere.
    git: RootsRecord,
    /// Stores in the trees whose objects are in no fence.
    #[serde(default)]
    hidden: HiddenStores,
}

/// Writes down which directories the roots of an agent are, before a command in a fence: whoever resumes it compares. A root may have
/// been added since the last command.
pub(crate) fn remember_roots(policy: &Policy, fences: &Fences, directory: &Path) -> Result<(), String> {
    let tmp = directory.join(records::PRIVATE_TMP);
    let work = [&policy.root].into_iter().chain(&policy.worktree).chain(&policy.extra_dirs).chain([&tmp]);
    let work: Vec<&Path> = work.map(PathBuf::as_path).collect();
    let found = fences.found.lock().unwrap_or_else(PoisonError::into_inner);
    let git: Vec<&Path> = found.values().flatten().flat_map(|git| git.places()).map(Root::path).collect();
    let boot = caliban_process::boot_id().unwrap_or_default();
    let (work, git) = (policy.roots.record(&work, &boot), fences.git_roots.record(&git, &boot));
    let known = KnownRoots { work, git, hidden: fences.hidden_stores() };
    if records::read::<KnownRoots>(directory, ROOTS).is_some_and(|written| written == known) {
        return Ok(());
    }
    records::write(directory, ROOTS, &known)
        .map_err(|error| format!("{}: {error}", directory.join(ROOTS).display()))
}

/// Takes over what an earlier process of this agent wrote down.
pub(crate) fn recall_roots(policy: &Policy, fences: Option<&Fences>, directory: &Path) {
    let boot = caliban_process::boot_id().unwrap_or_default();
    if let Some(known) = records::read::<KnownRoots>(directory, ROOTS) {
        policy.roots.recall(&known.work, &boot);
        if let Some(fences) = fences {
            fences.git_roots.recall(&known.git, &boot);
            fences.recall_hidden(&known.hidden, known.git.is_of(&boot));
        }
    }
}

/// Roots on their way into a fence.
struct Shown<'a> {
    fence: &'a mut Fence,
    roots: &'a Roots,
}

impl Shown<'_> {
    /// Shows a directory where it really is, and by the name that the settings have for it.
    fn directory(&mut self, path: &Path, access: Access) -> Result<(), String> {
        let root = self.roots.in_place(path).map_err(|error| error.to_string())?;
        self.fence.show(&root, access);
        if root.path() != path {
            self.fence.links.push((path.into(), root.path().into()));
        }
        Ok(())
    }

    fn directory_if_there(&mut self, path: &Path, access: Access) -> Result<(), String> {
        if self.roots.has(path) || path.exists() { self.directory(path, access) } else { Ok(()) }
    }
}

fn hold(fence: &mut Fence, held: &FenceDuties) {
    for (places, hold) in [(&held.masks, Hold::Hidden), (&held.fixed, Hold::ReadOnly)] {
        for place in places {
            fence.hold(&place.path, place.identity, hold);
        }
    }
}

/// The index of a directory's repository.
fn index_of(policy: &Policy, top: &Path, found: Option<&FoundGit>) -> Option<Root> {
    let git = match found {
        Some(git) => git.own.path().to_owned(),
        None => git_store(policy, top, None)?,
    };
    Root::plain(&git.join("index")).ok()
}

/// Whether a directory is a repository by itself.
fn is_bare(root: &Root) -> bool {
    let has =
        |name: &'static str| !matches!(root.look(&Below::fixed(name)), Ok(FoundEntry::Nothing) | Err(_));
    ["HEAD", "objects", "refs"].into_iter().all(has)
}

/// Git's store for this directory, if it is a repository's.
fn git_store(policy: &Policy, top: &Path, found: Option<&FoundGit>) -> Option<PathBuf> {
    let root = policy.roots.pin(top).ok()?;
    let name = Below::new(".git").ok()?;
    match root.look(&name) {
        Ok(FoundEntry::Directory(_)) => Some(name.under(root.path())),
        _ => found
            .map(|git| git.store().path().to_owned())
            .or_else(|| is_bare(&root).then(|| root.path().to_owned())),
    }
}
