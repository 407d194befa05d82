//! Tokens: who may use the gateway, and whose account it is.
//!
//! A token names its record, so that looking it up is reading one small file: what was removed is void at once, in every
//! gateway. Of the secret the disk has only the hash.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use caliban_contract::random_hex;
use caliban_core::budget::Limits;
use caliban_core::hex;
use caliban_core::price::MicroUsd;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// What every token begins with.
const PREFIX: &str = "caliban-gw-";
/// The largest record that is read.
const RECORD_CAP: u64 = 64 * 1024;

/// Who may use the gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// Names it: eight hex digits.
    pub id: String,
    /// A name for people.
    pub label: String,
    /// The hash of the whole token.
    hash: String,
    /// The repo whose day it counts in.
    pub repo: PathBuf,
    /// The account above its own, when an agent's process has made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above: Option<String>,
    /// At most so many tokens of a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_tokens: Option<u64>,
    /// At most so many millionths of a dollar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_micro_usd: Option<u64>,
    /// When it was made, in milliseconds since 1970.
    pub created_ms: u64,
}

/// A token that is about to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewToken {
    /// A name for people.
    pub label: String,
    /// The repo whose day it counts in.
    pub repo: PathBuf,
    /// The account above its own.
    pub above: Option<String>,
    /// What it may spend.
    pub limits: Limits,
}

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
#[error("the tokens of the gateway in {}: {source}", place.display())]
pub struct TokenError {
    place: PathBuf,
    source: io::Error,
}

impl Token {
    /// Makes a token that nobody has written down; the text is the secret.
    pub fn make(new: NewToken) -> io::Result<(Self, String)> {
        let id = random_hex::<4>()?;
        let text = format!("{PREFIX}{id}-{}", random_hex::<32>()?);
        let token = Self {
            id,
            label: new.label,
            hash: hash(&text),
            repo: new.repo,
            above: new.above,
            budget_tokens: new.limits.tokens,
            budget_micro_usd: new.limits.usd.map(|usd| usd.0),
            created_ms: caliban_contract::wall_ms(),
        };
        Ok((token, text))
    }

    /// The name of its account in the ledger.
    #[must_use]
    pub fn account(&self) -> String {
        format!("gw-{}", self.id)
    }

    /// What it may spend.
    #[must_use]
    pub fn limits(&self) -> Limits {
        let usd = self.budget_micro_usd.map(MicroUsd);
        Limits { tokens: self.budget_tokens, usd, ..Limits::NONE }
    }

    fn is_of(&self, text: &str) -> bool {
        let (one, other) = (self.hash.as_bytes(), hash(text));
        // All of it is looked at: the time tells nothing.
        let differ = one.iter().zip(other.as_bytes()).fold(0, |differ, (a, b)| differ | (a ^ b));
        one.len() == other.len() && differ == 0
    }
}

/// The tokens that are written down.
#[derive(Debug, Clone)]
pub struct Tokens {
    dir: PathBuf,
}

impl Tokens {
    /// Those in this directory; it need not be there.
    #[must_use]
    pub fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Makes one and writes it down.
    pub fn create(&self, new: NewToken) -> Result<(Token, String), TokenError> {
        let made = || {
            DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
            let (token, text) = Token::make(new)?;
            let json = serde_json::to_vec_pretty(&token).map_err(io::Error::other)?;
            let file = self.file(&token.id);
            let half = file.with_extension(format!("new-{}", std::process::id()));
            let mut out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&half)?;
            out.write_all(&json)?;
            out.sync_all()?;
            fs::rename(&half, &file)?;
            Ok((token, text))
        };
        made().map_err(|source| self.error(source))
    }

    /// All, the newest first.
    pub fn list(&self) -> Result<Vec<Token>, TokenError> {
        let entries = match fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(self.error(source)),
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut all: Vec<Token> =
            names.filter_map(|name| self.record(name.strip_suffix(".json")?).ok().flatten()).collect();
        all.sort_by_key(|token| std::cmp::Reverse(token.created_ms));
        Ok(all)
    }

    /// Makes a token void; whether there was one.
    pub fn remove(&self, id: &str) -> Result<bool, TokenError> {
        match fs::remove_file(self.file(id)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(self.error(source)),
        }
    }

    fn record(&self, id: &str) -> io::Result<Option<Token>> {
        if !is_id(id) {
            return Ok(None);
        }
        let file = match fs::File::open(self.file(id)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let about = file.metadata()?;
        if about.uid() != rustix::process::getuid().as_raw() || about.mode() & 0o077 != 0 {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "others may read it (chmod 600)"));
        }
        let mut text = String::new();
        file.take(RECORD_CAP).read_to_string(&mut text)?;
        let token: Option<Token> = serde_json::from_str(&text).ok();
        Ok(token.filter(|token| token.id == id))
    }

    fn file(&self, id: &str) -> PathBuf {
        self.dir.join(format!("{id}.json"))
    }

    fn error(&self, source: io::Error) -> TokenError {
        TokenError { place: self.dir.clone(), source }
    }
}

/// Whose requests a gateway takes.
#[derive(Debug, Clone)]
pub enum Keys {
    /// Those with a token that is written down.
    Kept(Tokens),
    /// Those with this one, which ends with the gateway.
    One(Box<Token>),
}

impl Keys {
    /// The token that this text is, if it is one.
    pub(crate) fn find(&self, text: &str) -> Option<Token> {
        let (id, _) = text.strip_prefix(PREFIX)?.split_once('-')?;
        let token = match self {
            Self::One(token) => Some(token.as_ref().clone()),
            Self::Kept(tokens) => tokens.record(id).unwrap_or_else(|error| {
                tracing::warn!(id, %error, "a token of the gateway cannot be read");
                None
            }),
        };
        token.filter(|token| token.is_of(text))
    }
}

fn is_id(text: &str) -> bool {
    text.len() == 8 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn hash(text: &str) -> String {
    hex::encode(&Sha256::digest(text.as_bytes()))
}

/// The directory of tokens below Caliban's data directory.
impl From<&Path> for Tokens {
    fn from(data: &Path) -> Self {
        Self::new(data.join("gateway/tokens"))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn new(label: &str) -> NewToken {
        let limits = Limits { tokens: Some(5), ..Limits::NONE };
        NewToken { label: label.to_owned(), repo: "/repo".into(), above: None, limits }
    }

    #[test]
    fn a_token_is_found_by_its_whole_text_until_it_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let tokens = Tokens::from(dir.path());
        assert_eq!(tokens.list().unwrap(), []);
        let (token, text) = tokens.create(new("one")).unwrap();
        let keys = Keys::Kept(tokens.clone());
        assert_eq!(keys.find(&text), Some(token.clone()));
        let mut other = text.clone();
        other.pop();
        let upward = format!("{PREFIX}../one-x");
        for wrong in ["", PREFIX, &other, &format!("{text}0"), &text[PREFIX.len()..], &upward] {
            assert_eq!(keys.find(wrong), None, "{wrong}");
        }
        let file = tokens.file(&token.id);
        assert!(
            !fs::read_to_string(&file).unwrap().contains(&text[PREFIX.len() + 9..]),
            "the secret is there"
        );
        assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o600);
        assert_eq!(tokens.list().unwrap(), std::slice::from_ref(&token));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(keys.find(&text), None, "others may have changed or read it");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(keys.find(&text).is_some());
        assert!(tokens.remove(&token.id).unwrap() && !tokens.remove(&token.id).unwrap());
        assert_eq!(keys.find(&text), None);
    }

    #[test]
    fn a_token_of_one_program_is_nowhere_on_the_disk() {
        let (token, text) = Token::make(new("run")).unwrap();
        let keys = Keys::One(Box::new(token.clone()));
        assert_eq!((keys.find(&text), keys.find(&format!("{text}x"))), (Some(token), None));
    }
}
