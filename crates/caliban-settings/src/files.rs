//! The files that settings come from, as they were read at one moment, and their copy for an agent that starts later.
//!
//! A background agent is composed with the files of the moment at which somebody asked for it: it may wait in the queue
//! while they are being edited. The copy travels with the agent's secrets (`HandedOver`) and is on no disk.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Environment, Loaded, Paths, SettingsError, file};
use crate::trust::{KeptFiles, RepoFile, RepoFiles, Trust, TrustStore};

/// The files of one moment.
#[derive(Debug, Clone)]
pub struct Files {
    /// The user's own settings, if there are any.
    pub user: Option<Vec<u8>>,
    /// The user's own settings for the repo.
    pub own: Option<Vec<u8>>,
    /// Those of the repo, with the judgement about them.
    pub trust: Trust,
    /// The user's settings of Claude Code, when the user's own settings want them.
    pub claude: Option<Vec<u8>>,
    /// Files of a repo that is not trusted whose denials hold all the same, with their paths.
    pub narrowing: Vec<(PathBuf, Vec<u8>)>,
}

/// Their copy.
#[derive(Debug, Serialize, Deserialize)]
struct Copy {
    user: Option<String>,
    #[serde(default)]
    own: Option<String>,
    repo: Judged,
    #[serde(default)]
    claude: Option<String>,
    #[serde(default)]
    narrowing: Vec<(PathBuf, String)>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Judged {
    NoFiles,
    Trusted(KeptFiles),
    Untrusted(Vec<String>),
    Changed(Vec<String>),
}

impl Files {
    /// The files as they are now.
    pub fn read(paths: &Paths, root: &Path) -> Result<Self, SettingsError> {
        let user = file::read(&paths.user_settings())?;
        let own = file::read(&paths.repo_settings(root))?;
        let trust = TrustStore::read(paths)?.judge(paths, root)?;
        let claude = match paths.claude_settings().filter(|_| wants_claude(&user)) {
            Some(path) => file::read(&path)?,
            None => None,
        };
        let narrowing = match &trust {
            Trust::Trusted(_) | Trust::NoFiles => Vec::new(),
            // One that cannot be read narrows nothing.
            Trust::Untrusted(_) | Trust::Changed(_) => RepoFile::NARROWING
                .into_iter()
                .filter_map(|kind| kind.path(paths, root))
                .filter_map(|path| Some((path.clone(), file::read(&path).ok()??)))
                .collect(),
        };
        Ok(Self { user, own, trust, claude, narrowing })
    }

    /// The copy of what was loaded, as text; none when a file is no text.
    pub fn copy(loaded: &Loaded) -> Option<String> {
        let text = |bytes: &Option<Vec<u8>>| match bytes {
            Some(bytes) => String::from_utf8(bytes.clone()).ok().map(Some),
            None => Some(None),
        };
        let (user, own, claude) = (text(&loaded.user)?, text(&loaded.own)?, text(&loaded.claude)?);
        let repo = match &loaded.trust {
            Trust::NoFiles => Judged::NoFiles,
            Trust::Trusted(files) => Judged::Trusted(files.kept()?),
            Trust::Untrusted(names) => Judged::Untrusted(names.clone()),
            Trust::Changed(names) => Judged::Changed(names.clone()),
        };
        let narrowing = loaded.narrowing.iter();
        let narrowing = narrowing
            .filter_map(|(path, bytes)| Some((path.clone(), String::from_utf8(bytes.clone()).ok()?)));
        serde_json::to_string(&Copy { user, own, repo, claude, narrowing: narrowing.collect() }).ok()
    }

    /// The copy that the agent of this process was handed. None when there is no copy, or one of another version.
    pub fn handed(environment: &Environment) -> Option<Self> {
        let text = environment.handover().settings.as_deref()?;
        Some(Self::of_copy(text)?.trusted_as_of_now(environment))
    }

    /// The content is of the asking, the permission is of now (a15): the user may have taken the trust back while the agent
    /// waited. A store that cannot be read vouches for nobody.
    fn trusted_as_of_now(mut self, environment: &Environment) -> Self {
        if let Trust::Trusted(files) = &self.trust {
            let store = environment.paths().and_then(|paths| TrustStore::read(&paths));
            if !store.is_ok_and(|store| store.lists(files.root())) {
                let kept = |kind: RepoFile| Some((files.root().join(kind.name()), files.get(kind)?.to_vec()));
                self.narrowing = RepoFile::NARROWING.into_iter().filter_map(kept).collect();
                self.trust = Trust::Untrusted(files.names());
            }
        }
        self
    }

    fn of_copy(text: &str) -> Option<Self> {
        let Copy { user, own, repo, claude, narrowing } = serde_json::from_str(text).ok()?;
        let trust = match repo {
            Judged::NoFiles => Trust::NoFiles,
            Judged::Trusted(kept) => Trust::Trusted(RepoFiles::of_kept(kept)),
            Judged::Untrusted(names) => Trust::Untrusted(names),
            Judged::Changed(names) => Trust::Changed(names),
        };
        let narrowing = narrowing.into_iter().map(|(path, text)| (path, text.into_bytes())).collect();
        Some(Self {
            user: user.map(String::into_bytes),
            own: own.map(String::into_bytes),
            trust,
            claude: claude.map(String::into_bytes),
            narrowing,
        })
    }
}

/// Whether the user's own settings want those of Claude Code, too. A file that is wrong is told about later.
fn wants_claude(user: &Option<Vec<u8>>) -> bool {
    let text = user.as_deref().and_then(|bytes| std::str::from_utf8(bytes).ok());
    let table = text.and_then(|text| text.parse::<toml::Table>().ok()).unwrap_or_default();
    table.get("claude").and_then(|claude| claude.get("user_settings")) == Some(&toml::Value::Boolean(true))
}

#[cfg(test)]
mod tests {
    use caliban_contract::{HandedOver, variables::ASKED_SETTINGS};

    use super::*;
    use crate::{Layer, load};

    #[test]
    fn a15_what_was_loaded_is_the_same_later_as_long_as_it_is_trusted() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let home = root.to_str().unwrap();
        let environment: Environment = [("HOME", home), ("PATH", "/bin")].into_iter().collect();
        let paths = environment.paths().unwrap();
        let repo = root.join("repo");
        write(".config/caliban/settings.toml", "model = 'mine'\n");
        write("repo/.git/HEAD", "");
        let own = paths.repo_settings(&repo);
        let own = own.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
        write(&own, "permissions.allow = ['Bash(make)']\n");
        write("repo/.caliban/settings.toml", "effort = 'high'\n");
        write("repo/.caliban/agents/tester.md", "---\nname: tester\ndescription: tests\n---\nTest.\n");
        TrustStore::trust(&paths, &repo, &RepoFiles::read(&paths, &repo).unwrap()).unwrap();
        let then = load(&environment, &repo, Layer::default()).unwrap();
        assert!(matches!(then.trust, Trust::Trusted(_)));
        let copy = Files::copy(&then).unwrap();
        let worker =
            environment.clone().handed(HandedOver { settings: Some(copy.clone()), ..HandedOver::default() });
        let handed = Files::handed(&worker);
        // A daemon of an earlier build hands it over in a variable.
        let old: Environment =
            [("HOME", home), ("PATH", "/bin"), (ASKED_SETTINGS, copy.as_str())].into_iter().collect();
        assert_eq!(old.handed(HandedOver::default()), worker);
        // Whatever becomes of the files.
        write(".config/caliban/settings.toml", "[[[");
        write("repo/.caliban/settings.toml", "[[[");
        write(&own, "[[[");
        assert!(load(&environment, &repo, Layer::default()).is_err());
        let later = crate::load_files(&worker, &repo, Layer::default(), handed.unwrap()).unwrap();
        assert_eq!((later.settings, later.trust), (then.settings, then.trust));
        // Trust that was taken back counts at once, whatever the copy says (a15).
        TrustStore::remove(&paths, &repo).unwrap();
        let handed = Files::handed(&worker);
        let names = vec![".caliban/settings.toml".to_owned(), ".caliban/agents/tester.md".to_owned()];
        assert_eq!(handed.unwrap().trust, Trust::Untrusted(names.clone()));
        write(".local/share/caliban/trusted.toml", "[[[");
        let handed = Files::handed(&worker);
        assert_eq!(handed.unwrap().trust, Trust::Untrusted(names));
        // Nothing, or nonsense, is no copy.
        assert!(Files::handed(&environment).is_none());
        let nonsense = HandedOver { settings: Some("{}".to_owned()), ..HandedOver::default() };
        assert!(Files::handed(&environment.handed(nonsense)).is_none());
    }
}
