//! Objects on their way out: whatever the agent's store has and the repository has not. git packs them inside of a fence,
//! because it reads what an agent wrote; git in the repository checks each of them.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use caliban_core::fence::Profile;
use caliban_core::hex;
use caliban_fence::{Access, ByteText, Fence, FencedCommand};
use caliban_rooted::{
    Below, Root,
    tree::{self, FoundFile, nonce_name},
};
use sha2::Digest as _;

use super::{PrivateGit, words};
use crate::error::{Error, Result};
use crate::marker::Oid;

/// Where the repository's objects are in the fence. What lies beside them is found there, too (large files of git-lfs).
pub(super) const SHARED: &str = "/caliban/objects";
/// Where the agent's git is in the fence of the packer.
const VIEW: &str = "/caliban/view";
/// Where the packer has a git directory of ours.
const OURS: &str = "/caliban/git";
/// So many are written as single files; more become a pack.
const LOOSE: usize = 100;
/// How long git may take in a fence.
const PATIENCE: Duration = Duration::from_secs(600);
/// How much is kept of what it says.
const SAID_CAP: u64 = 4096;
const LARGE: &str = "lfs/objects";
const SYSTEM_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Shows a directory of the repository's store, as it is now: no command can change the way to it.
pub(super) fn show(fence: &mut Fence, source: &Path, target: &Path, access: Access) -> Result<()> {
    let root = Root::pin(source).map_err(|e| Error::at("showing", source, e))?;
    fence.show_at(&root, target, access);
    Ok(())
}

impl PrivateGit {
    /// Brings everything out that these name. An error means that nothing of it may be used.
    pub(super) fn bring_out(
        &self,
        tips: &BTreeSet<Oid>,
        index: &BTreeSet<Oid>,
        known: &BTreeSet<Oid>,
    ) -> Result<()> {
        let missing = self.lacks(&self.own_objects()?)?;
        if !missing.is_empty() && self.import(&["--stdout"], &lines(&missing), missing.len()).is_err() {
            // An object is broken that perhaps nobody needs.
            let mut wanted = lines(&tips.union(index).cloned().collect());
            wanted.push_str(&known.iter().map(|oid| format!("^{oid}\n")).collect::<String>());
            self.import(&["--stdout", "--revs", "--thin"], &wanted, usize::MAX)?;
        }
        self.bring_out_large()?;
        let lost = self.lacks(&tips.union(index).cloned().collect())?;
        if let Some(oid) = lost.first() {
            return Err(words(&format!("the object {oid} is missing or broken")));
        }
        if !tips.is_empty() {
            let mut asked = lines(tips);
            asked.push_str(&known.iter().map(|oid| format!("^{oid}\n")).collect::<String>());
            let call = self.repo.git.hardened(self.repo.store(), "rev-list");
            call.args(["--objects", "--quiet", "--stdin"]).stdin(asked.into_bytes()).ok_blocking()?;
        }
        Ok(())
    }

    /// Those that the repository has not.
    pub(super) fn lacks(&self, asked: &BTreeSet<Oid>) -> Result<BTreeSet<Oid>> {
        if asked.is_empty() {
            return Ok(BTreeSet::new());
        }
        let call = self.repo.git.hardened(self.repo.store(), "cat-file").arg("--batch-check=%(objectname)");
        let answer = call.stdin(lines(asked).into_bytes()).ok_blocking()?;
        let answer = String::from_utf8_lossy(&answer.stdout).into_owned();
        let missing = answer.lines().filter_map(|line| Oid::parse(line.strip_suffix(" missing")?));
        Ok(missing.collect())
    }

    /// The objects of the agent's own store.
    fn own_objects(&self) -> Result<BTreeSet<Oid>> {
        let git = self.open_git()?;
        let failed = |e| Error::io("listing the objects of the private git", e);
        let store = tree::walk_to(&git, &Below::fixed("objects")).map_err(failed)?;
        let mut found = BTreeSet::new();
        for (name, _) in tree::entries(&store).map_err(failed)? {
            let first = name.to_string_lossy().into_owned();
            if first.len() != 2 {
                continue;
            }
            let Ok(directory) = Below::new(name).and_then(|name| tree::walk_to(&store, &name)) else {
                continue;
            };
            let names = tree::entries(&directory).map_err(failed)?;
            found.extend(
                names.iter().filter_map(|(rest, _)| Oid::parse(&format!("{first}{}", rest.to_str()?))),
            );
        }
        let Ok(packs) = tree::walk_to(&store, &Below::fixed("pack")) else { return Ok(found) };
        for (name, _) in tree::entries(&packs).map_err(failed)? {
            if !name.as_bytes().ends_with(b".idx") {
                continue;
            }
            let name = Below::new(name).map_err(failed)?;
            let Some(list) = super::side::read(packs.as_fd(), &name, super::side::CAP)? else { continue };
            let format = if self.id_bytes() == 32 { "sha256" } else { "sha1" };
            let mut answer = self.fenced(&["show-index", &format!("--object-format={format}")], &list)?;
            let mut text = String::new();
            answer.read_to_string(&mut text).map_err(failed)?;
            found.extend(text.lines().filter_map(|line| Oid::parse(line.split(' ').nth(1)?)));
        }
        Ok(found)
    }

    fn import(&self, how: &[&str], wanted: &str, count: usize) -> Result<()> {
        let arguments: Vec<&str> = ["pack-objects", "-q"].into_iter().chain(how.iter().copied()).collect();
        let pack = self.fenced(&arguments, wanted.as_bytes())?;
        let call = if count < LOOSE {
            self.repo.git.durable(self.repo.store(), "unpack-objects").args(["-q", "--strict"])
        } else {
            let call = self.repo.git.durable(self.repo.store(), "index-pack");
            call.args(["--stdin", "--strict", "--fix-thin"])
        };
        call.run_blocking_from(Stdio::from(pack))?.ok().map(drop)
    }

    /// Runs git in a fence that has the agent's git, the repository's objects and nothing else. Its answer is a file.
    fn fenced(&self, arguments: &[&str], stdin: &[u8]) -> Result<File> {
        let ours = self.packer()?;
        let mut fence = Fence::new(Profile::Read, "/nonexistent/home");
        let shared = self.repo.common_dir().join("objects");
        for (source, target) in [(&self.git_dir(), VIEW), (&shared, SHARED), (&ours, OURS)] {
            show(&mut fence, source, Path::new(target), Access::ReadOnly)?;
        }
        let environment = [
            ("PATH", SYSTEM_PATH),
            ("GIT_DIR", OURS),
            ("GIT_OBJECT_DIRECTORY", "/caliban/view/objects"),
            ("GIT_ALTERNATE_OBJECT_DIRECTORIES", SHARED),
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
            ("GIT_NO_REPLACE_OBJECTS", "1"),
            ("GIT_NO_LAZY_FETCH", "1"),
            ("LC_ALL", "C"),
        ];
        let order = FencedCommand {
            fence,
            program: ByteText::from("git"),
            arguments: arguments.iter().map(|argument| ByteText::from(*argument)).collect(),
            directory: ByteText::from("/"),
            environment: environment
                .map(|(name, value)| (ByteText::from(name), ByteText::from(value)))
                .to_vec(),
            descriptors: Vec::new(),
        };
        let name = arguments.first().copied().unwrap_or_default();
        let failed = |e| Error::io(format!("running git {name} in a fence"), e);
        let (mut command, held) = order.command(&self.helper).map_err(failed)?;
        let (answer, mut asked) = (self.scratch().map_err(failed)?, self.scratch().map_err(failed)?);
        asked.write_all(stdin).and_then(|()| asked.rewind()).map_err(failed)?;
        let mut said = self.scratch().map_err(failed)?;
        let (to_answer, to_said) = (answer.try_clone().map_err(failed)?, said.try_clone().map_err(failed)?);
        let mut child = command.stdin(asked).stdout(to_answer).stderr(to_said).spawn().map_err(failed)?;
        drop(held);
        if !ended(&mut child).map_err(failed)?.is_some_and(|status| status.success()) {
            let mut text = String::new();
            let _cut = said.rewind().and_then(|()| said.take(SAID_CAP).read_to_string(&mut text));
            return Err(words(&format!("git {name} failed on what the agent committed: {}", text.trim())));
        }
        let mut answer = answer;
        answer.rewind().map_err(failed)?;
        Ok(answer)
    }

    /// A file without a name, on the disk of the repository.
    fn scratch(&self) -> io::Result<File> {
        let path = self.dir.join(nonce_name("scratch"));
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        fs::remove_file(&path)?;
        Ok(file)
    }

    /// A git directory of ours with nothing in it: no configuration of the agent's counts.
    fn packer(&self) -> Result<PathBuf> {
        let path = self.dir.join("packer");
        let make = || -> io::Result<()> {
            fs::create_dir_all(path.join("refs"))?;
            fs::create_dir_all(path.join("objects"))?;
            fs::write(path.join("config"), self.repo.git.format.config(false))?;
            fs::write(path.join("HEAD"), "ref: refs/heads/none\n")
        };
        if !path.join("HEAD").is_file() {
            make().map_err(|e| Error::at("making", &path, e))?;
        }
        Ok(path)
    }

    /// Large files of git-lfs, each of which is named after its content.
    fn bring_out_large(&self) -> Result<()> {
        let git = self.open_git()?;
        let failed = |e| Error::io("copying large files out of the private git", e);
        for path in tree::files_beneath(&git, &Below::fixed(LARGE)).map_err(failed)? {
            let Some(name) = path.parts().last().and_then(OsStr::to_str).filter(|name| name.len() == 64)
            else {
                continue;
            };
            if Oid::parse(name).is_none() {
                continue;
            }
            let place = self.repo.common_dir().join(LARGE).join(&name[..2]).join(&name[2..4]);
            if place.join(name).symlink_metadata().is_ok() {
                continue;
            }
            let FoundFile::File { mut file, .. } = tree::find(&git, &path).map_err(failed)? else {
                continue;
            };
            copy_named(&mut file, &place, name).map_err(failed)?;
        }
        Ok(())
    }
}

/// Waits for its end; a pipe in the place of an object could make it wait for ever.
fn ended(child: &mut Child) -> io::Result<Option<ExitStatus>> {
    let began = Instant::now();
    let mut pause = Duration::from_micros(200);
    while began.elapsed() < PATIENCE {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

#[expect(clippy::disallowed_methods, reason = "in the repository's own store")]
fn copy_named(file: &mut File, place: &Path, name: &str) -> io::Result<()> {
    fs::create_dir_all(place)?;
    let new = place.join(nonce_name("caliban-new"));
    let mut out = File::create_new(&new)?;
    let (mut hash, mut block) = (sha2::Sha256::new(), vec![0; 1 << 16]);
    let copied = loop {
        match file.read(&mut block) {
            Ok(0) => break out.sync_all(),
            Ok(got) => {
                hash.update(&block[..got]);
                if let Err(error) = out.write_all(&block[..got]) {
                    break Err(error);
                }
            }
            Err(error) => break Err(error),
        }
    };
    if copied.is_ok() && hex::encode(&hash.finalize()) == name {
        return fs::rename(&new, place.join(name));
    }
    // The content does not match the object id, so no commit can refer to it: drop it.
    fs::remove_file(&new)?;
    copied
}

fn lines(oids: &BTreeSet<Oid>) -> String {
    oids.iter().map(|oid| format!("{oid}\n")).collect()
}
