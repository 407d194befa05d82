//! Reading blobs from the store through one `git cat-file` process, and comparing them with files.

use std::io::Read;
use std::process::Stdio;

use sha2::{Digest, Sha256};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};

use crate::error::{Error, Result};
use crate::git::{GitCall, Running};
use crate::marker::Oid;

/// The largest blob that can be an LFS pointer.
const POINTER_CAP: u64 = 1024;
const CHUNK: usize = 64 * 1024;

/// An open `git cat-file --batch-command`; ended when dropped.
pub(crate) struct Blobs {
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    _running: Running,
}

impl Blobs {
    /// Takes a prepared `cat-file` call.
    pub(crate) fn start(call: GitCall) -> Result<Self> {
        let mut running = call.arg("--batch-command").start(Stdio::piped(), Stdio::piped())?;
        let (to, from) = (running.child.stdin.take(), running.child.stdout.take());
        let (Some(to), Some(from)) = (to, from) else {
            return Err(Error::Answer { command: "cat-file", detail: "no pipe".into() });
        };
        Ok(Self { to, from: BufReader::new(from), _running: running })
    }

    /// A blob's size; `None` when the store does not have it.
    pub(crate) async fn size(&mut self, oid: &Oid) -> Result<Option<u64>> {
        self.ask("info", oid).await
    }

    async fn ask(&mut self, what: &str, oid: &Oid) -> Result<Option<u64>> {
        let failed = |e| Error::io("asking git cat-file", e);
        self.to.write_all(format!("{what} {oid}\n").as_bytes()).await.map_err(failed)?;
        self.to.flush().await.map_err(failed)?;
        let mut line = String::new();
        self.from.read_line(&mut line).await.map_err(failed)?;
        match line.trim_end().split(' ').collect::<Vec<_>>().as_slice() {
            [_, "blob", size] => Ok(size.parse().ok()),
            [_, "missing"] => Ok(None),
            _ => Err(Error::Answer { command: "cat-file", detail: line.trim_end().to_owned() }),
        }
    }

    /// Hands over a blob's content, chunk by chunk.
    pub(crate) async fn read(
        &mut self,
        oid: &Oid,
        mut chunk: impl FnMut(&[u8]) -> std::io::Result<()>,
    ) -> Result<()> {
        let failed = |e| Error::io("reading from git cat-file", e);
        let missing = || Error::Answer { command: "cat-file", detail: format!("{oid} is missing") };
        let mut left = self.ask("contents", oid).await?.ok_or_else(missing)?;
        let mut buffer = vec![0; CHUNK];
        // A writer's error is kept until the blob was read to its end: the next answer begins there.
        let mut written = Ok(());
        while left > 0 {
            let want = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
            self.from.read_exact(&mut buffer[..want]).await.map_err(failed)?;
            if written.is_ok() {
                written = chunk(&buffer[..want]);
            }
            left -= want as u64;
        }
        self.from.read_exact(&mut buffer[..1]).await.map_err(failed)?;
        written.map_err(|e| Error::io("writing a file", e))
    }

    /// The LFS pointer that a blob is, if it is one.
    pub(crate) async fn pointer(&mut self, oid: &Oid) -> Result<Option<Pointer>> {
        match self.size(oid).await? {
            Some(size) if size <= POINTER_CAP => {
                let mut bytes = Vec::new();
                self.read(oid, |chunk| {
                    bytes.extend_from_slice(chunk);
                    Ok(())
                })
                .await?;
                Ok(Pointer::parse(&bytes))
            }
            _ => Ok(None),
        }
    }
}

/// What an LFS pointer file points at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pointer {
    pub(crate) sha256: String,
    pub(crate) size: u64,
}

impl Pointer {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut lines = text.strip_prefix("version https://git-lfs.github.com/spec/v1\n")?.lines();
        let sha256 = lines.clone().find_map(|l| l.strip_prefix("oid sha256:"))?;
        let size = lines.find_map(|l| l.strip_prefix("size "))?.parse().ok()?;
        let hex = sha256.len() == 64 && sha256.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        hex.then(|| Self { sha256: sha256.to_owned(), size })
    }

    /// Whether `file` has exactly the content that this points at.
    pub(crate) fn is_content_of(&self, mut file: impl Read, size: u64) -> std::io::Result<bool> {
        if size != self.size {
            return Ok(false);
        }
        let (mut hash, mut buffer) = (Sha256::new(), vec![0; CHUNK]);
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                n => hash.update(&buffer[..n]),
            }
        }
        Ok(caliban_core::hex::encode(&hash.finalize()) == self.sha256)
    }
}

/// Whether two readers give the same bytes.
pub(crate) fn same(mut a: impl Read, mut b: impl Read) -> std::io::Result<bool> {
    let (mut left, mut right) = (vec![0; CHUNK], vec![0; CHUNK]);
    loop {
        let n = fill(&mut a, &mut left)?;
        if n != fill(&mut b, &mut right)? || left[..n] != right[..n] {
            return Ok(false);
        }
        if n == 0 {
            return Ok(true);
        }
    }
}

fn fill(from: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut have = 0;
    while have < buffer.len() {
        match from.read(&mut buffer[have..])? {
            0 => break,
            n => have += n,
        }
    }
    Ok(have)
}
