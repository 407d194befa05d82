//! Sign-in: one-time links, devices (cookie and page key), and the token of scripts.
//!
//! The disk holds only the hashes of a device's two secrets. A link is kept in memory only, works once, and expires
//! soon.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use caliban_contract::random_hex;
use caliban_core::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Lifetime of a link.
pub(crate) const LINK_MS: u64 = 10 * 60 * 1000;
/// How long a device stays signed in after its last use.
pub(crate) const DEVICE_MS: u64 = 30 * 24 * 60 * 60 * 1000;
/// The interval at which the time of a device's last use is written to the disk.
const SEEN_EVERY_MS: u64 = 60 * 60 * 1000;
/// Maximum number of devices; the least recently used one is removed.
const DEVICES: usize = 64;
/// Maximum number of links that are open at once.
const LINKS: usize = 32;
/// Maximum size of a file that is read.
const FILE_CAP: u64 = 1024 * 1024;
/// Maximum length of a stored user agent.
const AGENT_CAP: usize = 200;

/// A browser that is signed in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Device {
    pub(crate) id: String,
    cookie: String,
    page: String,
    pub(crate) since: u64,
    pub(crate) last_seen: u64,
    pub(crate) agent: String,
}

/// What the page receives when it signs in.
pub(crate) struct SignedIn {
    pub(crate) device: String,
    pub(crate) cookie: String,
    pub(crate) page_key: String,
}

/// The content of `devices.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct DevicesFile {
    /// Our own host name: `caliban-<hex>.localhost`.
    name: String,
    devices: Vec<Device>,
}

/// The devices, links and token that grant access.
#[derive(Debug)]
pub(crate) struct Devices {
    file: PathBuf,
    kept: DevicesFile,
    links: BTreeMap<String, u64>,
    token: String,
    token_file: PathBuf,
}

impl Devices {
    /// Reads the files below `dir`, and makes those that are missing.
    pub(crate) fn open(dir: &Path, token_file: Option<&Path>) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let file = dir.join("devices.json");
        let mut kept: DevicesFile = match read(&file)? {
            Some(text) => serde_json::from_str(&text).unwrap_or_default(),
            None => DevicesFile::default(),
        };
        let is_name = |name: &str| name.len() == 16 && name.starts_with("caliban-");
        let is_new = !is_name(&kept.name);
        if is_new {
            kept.name = format!("caliban-{}", random_hex::<4>()?);
        }
        let (token, token_file) = match token_file {
            Some(given) => (given_token(given)?, given.to_owned()),
            None => (own_token(&dir.join("token"))?, dir.join("token")),
        };
        let devices = Self { file, kept, links: BTreeMap::new(), token, token_file };
        if is_new {
            devices.write()?;
        }
        Ok(devices)
    }

    /// The first label of our host name.
    pub(crate) fn name(&self) -> &str {
        &self.kept.name
    }

    /// The file from which scripts read their token.
    pub(crate) fn token_file(&self) -> &Path {
        &self.token_file
    }

    /// The token of scripts, for requests of our own.
    pub(crate) fn bearer(&self) -> String {
        self.token.clone()
    }

    /// Makes a link and returns its token.
    pub(crate) fn link(&mut self, now: u64) -> io::Result<String> {
        self.links.retain(|_, until| *until > now);
        while self.links.len() >= LINKS {
            let oldest = self.links.iter().min_by_key(|(_, until)| **until).map(|(token, _)| token.clone());
            let Some(oldest) = oldest else { break };
            self.links.remove(&oldest);
        }
        let token = random_hex::<24>()?;
        self.links.insert(hash(&token), now.saturating_add(LINK_MS));
        Ok(token)
    }

    /// Signs in a browser with a link's token; `None` if the token is unknown, used or expired.
    pub(crate) fn sign_in(&mut self, token: &str, agent: &str, now: u64) -> io::Result<Option<SignedIn>> {
        match self.links.remove(&hash(token)) {
            Some(until) if until > now => {}
            _ => return Ok(None),
        }
        let signed = SignedIn {
            device: random_hex::<8>()?,
            cookie: random_hex::<32>()?,
            page_key: random_hex::<32>()?,
        };
        self.kept.devices.retain(|device| device.last_seen.saturating_add(DEVICE_MS) > now);
        self.kept.devices.sort_by_key(|device| device.last_seen);
        while self.kept.devices.len() >= DEVICES {
            self.kept.devices.remove(0);
        }
        self.kept.devices.push(Device {
            id: signed.device.clone(),
            cookie: hash(&signed.cookie),
            page: hash(&signed.page_key),
            since: now,
            last_seen: now,
            agent: agent.chars().take(AGENT_CAP).collect(),
        });
        self.write()?;
        Ok(Some(signed))
    }

    /// The device with both of these secrets.
    pub(crate) fn device(&mut self, cookie: &str, page: &str, now: u64) -> Option<Device> {
        let (cookie, page) = (hash(cookie), hash(page));
        let is_it = |device: &&mut Device| device.cookie == cookie && device.page == page;
        let device = self.kept.devices.iter_mut().find(is_it)?;
        if device.last_seen.saturating_add(DEVICE_MS) <= now {
            return None;
        }
        let is_late = device.last_seen.saturating_add(SEEN_EVERY_MS) < now;
        if is_late {
            device.last_seen = now;
        }
        let device = device.clone();
        if is_late {
            // Best effort: the device is let in anyway, and its next use tries the write again.
            let _later = self.write();
        }
        Some(device)
    }

    /// Whether a script has the token.
    pub(crate) fn is_token(&self, token: &str) -> bool {
        // Comparing hashes leaks no timing information about the token.
        hash(token) == hash(&self.token)
    }

    pub(crate) fn all(&self) -> &[Device] {
        &self.kept.devices
    }

    /// Signs a device out; `false` if there is no such device.
    pub(crate) fn revoke(&mut self, id: &str) -> io::Result<bool> {
        let before = self.kept.devices.len();
        self.kept.devices.retain(|device| device.id != id);
        if self.kept.devices.len() == before {
            return Ok(false);
        }
        self.write().map(|()| true)
    }

    fn write(&self) -> io::Result<()> {
        let json = serde_json::to_vec_pretty(&self.kept).map_err(io::Error::other)?;
        let new = self.file.with_extension(format!("new-{}", std::process::id()));
        let mut file = private(&new)?;
        file.write_all(&json)?;
        file.sync_all()?;
        fs::rename(&new, &self.file)
    }
}

/// Reads the token from a file that the user made; only the user may be able to read it.
fn given_token(file: &Path) -> io::Result<String> {
    let text = read(file)?.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "there is no such file"))?;
    let token = text.trim().to_owned();
    if token.len() < 32 {
        return Err(io::Error::other("its token has fewer than 32 characters"));
    }
    Ok(token)
}

fn own_token(file: &Path) -> io::Result<String> {
    if let Some(token) = read(file)?.map(|text| text.trim().to_owned()).filter(|token| token.len() >= 32) {
        return Ok(token);
    }
    let token = random_hex::<32>()?;
    let new = file.with_extension(format!("new-{}", std::process::id()));
    let mut out = private(&new)?;
    out.write_all(format!("{token}\n").as_bytes())?;
    out.sync_all()?;
    fs::rename(&new, file)?;
    Ok(token)
}

/// Reads a file that only we may read. A file that others own or may read is refused.
pub(crate) fn read(file: &Path) -> io::Result<Option<String>> {
    let opened = match fs::File::open(file) {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let about = opened.metadata()?;
    if about.uid() != rustix::process::getuid().as_raw() || about.mode() & 0o077 != 0 {
        let why = format!("{}: others may read it (chmod 600)", file.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    let mut text = String::new();
    opened.take(FILE_CAP).read_to_string(&mut text)?;
    Ok(Some(text))
}

pub(crate) fn private(path: &Path) -> io::Result<fs::File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

fn hash(text: &str) -> String {
    hex::encode(&Sha256::digest(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a13_a_link_works_once_and_not_for_long() {
        let dir = tempfile::tempdir().unwrap();
        let mut devices = Devices::open(dir.path(), None).unwrap();
        let link = devices.link(1000).unwrap();
        assert!(devices.sign_in("something else", "", 1001).unwrap().is_none());
        let signed = devices.sign_in(&link, "Firefox", 1001).unwrap().unwrap();
        assert!(devices.sign_in(&link, "Firefox", 1002).unwrap().is_none());
        let late = devices.link(1000).unwrap();
        assert!(devices.sign_in(&late, "", 1000 + LINK_MS).unwrap().is_none());
        // Both secrets are needed; they also work after a restart of the server.
        let name = devices.name().to_owned();
        let mut devices = Devices::open(dir.path(), None).unwrap();
        assert_eq!(devices.name(), name);
        assert!(devices.device(&signed.cookie, &signed.page_key, 2000).is_some());
        assert!(devices.device(&signed.cookie, &signed.cookie, 2000).is_none());
        assert!(devices.device("", "", 2000).is_none());
        assert!(devices.device(&signed.cookie, &signed.page_key, 2000 + DEVICE_MS).is_none());
        assert!(devices.revoke(&signed.device).unwrap());
        assert!(devices.device(&signed.cookie, &signed.page_key, 2000).is_none());
    }

    #[test]
    fn a13_no_secret_of_a_device_is_on_the_disk_and_others_cannot_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut devices = Devices::open(&dir.path().join("web"), None).unwrap();
        let link = devices.link(0).unwrap();
        let signed = devices.sign_in(&link, "", 1).unwrap().unwrap();
        for entry in fs::read_dir(dir.path().join("web")).unwrap() {
            let entry = entry.unwrap();
            assert_eq!(entry.metadata().unwrap().mode() & 0o777, 0o600, "{entry:?}");
            let text = fs::read_to_string(entry.path()).unwrap();
            for secret in [&link, &signed.cookie, &signed.page_key] {
                assert!(!text.contains(secret.as_str()), "{entry:?}");
            }
        }
        // A token file that others can read is refused.
        let open = dir.path().join("open");
        fs::write(&open, "0123456789012345678901234567890123456789").unwrap();
        fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        assert!(Devices::open(dir.path(), Some(&open)).is_err());
    }
}
