//! What an agent is handed by whoever asks for it and no disk may have: keys, and what was taken out of texts that lie on the disk.
//!
//! It is one record in the runtime directory ([`secrets_file`](crate::secrets_file)), for our eyes only, as long as the agent is
//! there: the daemon starts the worker with the variables, the worker reads the rest for itself. Over the socket it is a map of
//! variables, as daemons and workers of earlier builds know it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::places::{PlacesError, private_dir};
use crate::records::read_capped;
use crate::variables::{ASKED_SETTINGS, HIDDEN, VEILED_RESUME, VEILED_TASK};

/// The version that this build writes.
const VERSION: u32 = 1;
/// The largest record that is read.
const CAP: u64 = 8 * 1024 * 1024;
/// Bytes of the longest variable that a process can be started with, and some less.
const VARIABLE_CAP: usize = 100_000;

/// What an agent is handed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HandedOver {
    /// The settings files as they were when somebody asked for the agent. Anything in them may be a secret. The agent can do
    /// without them.
    pub settings: Option<String>,
    /// Secrets of the caller that the agent does not get and must not write down either, each with its name.
    pub hidden: Vec<(String, String)>,
    /// What was taken out of its task, in order.
    pub task: Vec<String>,
    /// What was taken out of the messages of a resume, in order.
    pub resume: Vec<String>,
    /// Variables of its environment.
    pub variables: BTreeMap<String, String>,
}

/// As it lies in the runtime directory.
#[derive(Serialize, Deserialize)]
struct Record<H> {
    version: u32,
    handover: H,
}

impl HandedOver {
    /// Whether there is nothing to hand over.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the agent cannot run without it: it can without the copy of its settings.
    #[must_use]
    pub fn is_needed(&self) -> bool {
        let Self { settings: _, hidden, task, resume, variables } = self;
        !(hidden.is_empty() && task.is_empty() && resume.is_empty() && variables.is_empty())
    }

    /// What was written. A record of an earlier build is a map of variables.
    pub fn read(path: &Path) -> io::Result<Self> {
        let bytes = read_capped(path, CAP)?;
        match serde_json::from_slice::<Record<Self>>(&bytes) {
            Ok(Record { version: VERSION, handover }) => Ok(handover),
            Ok(Record { version, .. }) => {
                Err(io::Error::new(io::ErrorKind::InvalidData, format!("it has version {version}")))
            }
            Err(_) => {
                let map: BTreeMap<String, String> = serde_json::from_slice(&bytes)
                    .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                Ok(map.into())
            }
        }
    }

    /// Writes it for our eyes only. Its directory may have been taken away under us.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let new = path.with_extension("env.new");
        let bytes =
            serde_json::to_vec(&Record { version: VERSION, handover: self }).map_err(io::Error::other)?;
        if let Some(dir) = path.parent().filter(|dir| !dir.is_dir()) {
            private_dir(dir).map_err(|error| match error {
                PlacesError::Make { source, .. } => source,
                other => io::Error::other(other.to_string()),
            })?;
        }
        let _stale = fs::remove_file(&new);
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(&bytes)?;
        fs::rename(new, path)
    }

    /// For the socket: what a process can be started with, and what is too long for that.
    #[must_use]
    pub fn into_maps(self) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
        let Self { settings, hidden, task, resume, variables } = self;
        let texts = [
            settings.map(|settings| (ASKED_SETTINGS, settings)),
            list(HIDDEN, &hidden),
            list(VEILED_TASK, &task),
            list(VEILED_RESUME, &resume),
        ];
        let (mut short, mut long) = (variables, BTreeMap::new());
        for (name, value) in texts.into_iter().flatten() {
            let part = if value.len() < VARIABLE_CAP { &mut short } else { &mut long };
            part.insert(name.to_owned(), value);
        }
        (short, long)
    }
}

fn list<T: Serialize>(name: &'static str, values: &[T]) -> Option<(&'static str, String)> {
    let json = serde_json::to_string(values).ok()?;
    (!values.is_empty()).then_some((name, json))
}

/// From a map of variables: of the socket, of the environment that a daemon of an earlier build starts a worker with, or of its
/// record. What is no list of texts is left out.
impl From<BTreeMap<String, String>> for HandedOver {
    fn from(mut map: BTreeMap<String, String>) -> Self {
        fn listed<T: DeserializeOwned>(json: Option<String>) -> Vec<T> {
            json.and_then(|json| serde_json::from_str(&json).ok()).unwrap_or_default()
        }
        Self {
            settings: map.remove(ASKED_SETTINGS),
            hidden: listed(map.remove(HIDDEN)),
            task: listed(map.remove(VEILED_TASK)),
            resume: listed(map.remove(VEILED_RESUME)),
            variables: map,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn whole() -> HandedOver {
        let texts = |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect();
        HandedOver {
            settings: Some("x".repeat(200_000)),
            hidden: vec![("AWS_SECRET".to_owned(), "hidden-value".to_owned())],
            task: texts(&["one", "two"]),
            resume: texts(&["three"]),
            variables: [("KEY".to_owned(), "k".to_owned())].into(),
        }
    }

    #[test]
    fn what_was_written_is_read_by_its_owner_alone_and_nothing_is_too_long() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("below/a.env");
        whole().write(&path).unwrap();
        assert_eq!(HandedOver::read(&path).unwrap(), whole());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let (mut short, long) = whole().into_maps();
        let names = |part: &BTreeMap<String, String>| part.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&long), [ASKED_SETTINGS]);
        assert_eq!(names(&short), [HIDDEN, VEILED_RESUME, VEILED_TASK, "KEY"]);
        short.extend(long);
        assert_eq!(HandedOver::from(short), whole());
        let needs = |change: fn(&mut HandedOver)| {
            let mut handover = HandedOver::default();
            change(&mut handover);
            (handover.is_empty(), handover.is_needed())
        };
        assert_eq!(needs(|_| {}), (true, false));
        assert_eq!(needs(|handover| handover.settings = Some("s".to_owned())), (false, false));
        assert_eq!(needs(|handover| handover.task.push("t".to_owned())), (false, true));
        let both = HandedOver { variables: BTreeMap::new(), ..whole() };
        assert!(both.is_needed());
    }

    #[test]
    fn r22_the_map_of_an_earlier_build_is_read_and_a_record_of_a_later_one_is_not_guessed_at() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.env");
        let read = |text: &str| {
            fs::write(&path, text).unwrap();
            HandedOver::read(&path)
        };
        let old = r#"{"KEY":"k","CALIBAN_VEILED_TASK":"[\"t\"]","CALIBAN_HIDDEN":"[[\"N\",\"v\"]]","CALIBAN_ASKED_SETTINGS":"s","version":"1"}"#;
        let expected = HandedOver {
            settings: Some("s".to_owned()),
            hidden: vec![("N".to_owned(), "v".to_owned())],
            task: vec!["t".to_owned()],
            resume: Vec::new(),
            variables: [("KEY", "k"), ("version", "1")].map(|(n, v)| (n.to_owned(), v.to_owned())).into(),
        };
        assert_eq!(read(old).unwrap(), expected);
        assert_eq!(read("{}").unwrap(), HandedOver::default());
        for damaged in [r#"{"version":2,"handover":{"variables":{}}}"#, "[]", "{\"KEY\":1}", "{"] {
            assert_eq!(read(damaged).unwrap_err().kind(), io::ErrorKind::InvalidData, "{damaged}");
        }
    }
}
