//! The small types that settings are made of: names, modes, secrets, amounts, addresses.
//!
//! Each is parsed once, at the edge, with an error that says what was expected.

use std::{fmt, num::NonZeroU32};

use caliban_core::price::MicroUsd;
use caliban_core::size;
use caliban_providers::ProviderKind;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// The providers' names, in the order in which people are shown them.
pub fn provider_names() -> Vec<&'static str> {
    ProviderKind::all().map(ProviderKind::name).collect()
}

/// How a provider stands in settings: by its name.
pub mod provider_name {
    use super::{Deserialize, Deserializer, ProviderKind, Serialize, Serializer, provider_names};
    use serde::de::Error as _;

    /// Writes it as its name.
    #[expect(clippy::ref_option, reason = "serde passes a reference to the field")]
    pub(crate) fn serialize<S: Serializer>(
        kind: &Option<ProviderKind>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        kind.map(ProviderKind::name).serialize(serializer)
    }

    /// Reads it by its name.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<ProviderKind>, D::Error> {
        let name = String::deserialize(deserializer)?;
        let names = provider_names();
        // In serde's own words, so that it is shown like every other list of words.
        let unknown = || format!("unknown variant `{name}`, expected one of `{}`", names.join("`, `"));
        name.parse().map(Some).map_err(|_| D::Error::custom(unknown()))
    }
}

/// A value that must never be shown. Prints as `set`, in `Debug` and when serialised.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The secret itself, for the one place that sends it and for the redactor.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("set")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("set")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self)
    }
}

/// A key: a secret that is not empty.
pub fn key<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Secret>, D::Error> {
    let key = Secret::deserialize(deserializer)?;
    if key.reveal().trim().is_empty() {
        return Err(D::Error::custom("found an empty string, expected a key"));
    }
    Ok(Some(key))
}

/// A whole number above zero; `N` unless somebody sets it. A default of zero does not compile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AtLeastOne<const N: u32>(pub NonZeroU32);

impl<const N: u32> AtLeastOne<N> {
    /// The value.
    pub fn get(self) -> u32 {
        self.0.get()
    }
}

impl<const N: u32> Default for AtLeastOne<N> {
    fn default() -> Self {
        const {
            match NonZeroU32::new(N) {
                Some(number) => Self(number),
                None => panic!("a default that must not be zero"),
            }
        }
    }
}

/// A size: a whole number with a unit, above zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub u64);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let error =
            || serde::de::Error::custom(format!("{text:?} is no size; such as \"4 GB\" or \"512 MB\""));
        size::parse(&text).map(Self).ok_or_else(error)
    }
}

impl Serialize for Size {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&size::in_words(self.0))
    }
}

/// `fleet.disk_max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DiskMax(Size);

impl DiskMax {
    /// How many bytes.
    pub fn bytes(self) -> u64 {
        self.0.0
    }
}

impl Default for DiskMax {
    fn default() -> Self {
        Self(Size(64 << 30))
    }
}

/// A switch that is on unless somebody turns it off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OnByDefault(pub bool);

impl Default for OnByDefault {
    fn default() -> Self {
        Self(true)
    }
}

/// An amount of US dollars: finite, above zero.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Usd(f64);

impl Usd {
    /// In millionths, rounded to the nearest and never to nothing.
    pub fn micro(self) -> MicroUsd {
        MicroUsd((self.dollars() * 1e6).round().max(1.0) as u64)
    }

    /// An amount in millionths; none for zero.
    pub fn of_micro(amount: MicroUsd) -> Option<Self> {
        Self::new(amount.0 as f64 / 1e6)
    }

    /// The amount, when it makes sense as one.
    pub fn new(amount: f64) -> Option<Self> {
        (amount.is_finite() && amount > 0.0).then_some(Self(amount))
    }

    /// The amount in dollars.
    pub fn dollars(self) -> f64 {
        self.0
    }
}

impl<'de> Deserialize<'de> for Usd {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let amount = f64::deserialize(deserializer)?;
        Self::new(amount)
            .ok_or_else(|| D::Error::custom(format!("found {amount}, expected an amount of dollars above 0")))
    }
}

/// An `http` or `https` address without a slash at its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BaseUrl(String);

impl BaseUrl {
    /// Checks an address that paths are put behind. The error says what was expected and never repeats
    /// credentials.
    pub fn parse(text: &str) -> Result<Self, String> {
        let url = Self::parse_any(text)?;
        let bare = url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none();
        if bare { Ok(Self(text.trim_end_matches('/').to_owned())) } else { Err(no_address(text)) }
    }

    /// Checks that something is an `http` or `https` address at all.
    pub fn parse_any(text: &str) -> Result<url::Url, String> {
        let url = url::Url::parse(text).map_err(|_| no_address(text))?;
        let usable = matches!(url.scheme(), "http" | "https") && url.has_host();
        if usable { Ok(url) } else { Err(no_address(text)) }
    }

    /// The address as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for BaseUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

fn no_address(text: &str) -> String {
    let shown = if text.contains('@') { "an address with credentials in it" } else { text };
    format!("found `{shown}`, expected an address such as `https://api.example.org/v1`")
}

/// The candidate that is close enough to `word` to be what was meant.
pub fn close_match<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_ascii_lowercase();
    // One slip in a short word, one for every three characters in a long one.
    let slips = (word.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&word, &candidate.to_ascii_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= slips)
        // Of two that are as close, swapped letters are likelier than a forgotten one.
        .min_by_key(|(distance, candidate)| (*distance, candidate.len().abs_diff(word.len())))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_never_shows_itself() {
        let secret = Secret::new("sk-canary");
        assert_eq!(format!("{secret:?} {}", serde_json::to_string(&secret).unwrap()), "set \"set\"");
    }

    #[test]
    fn addresses_are_checked() {
        assert_eq!(BaseUrl::parse("http://localhost:8080/v1/").unwrap().as_str(), "http://localhost:8080/v1");
        for wrong in ["localhost:8080", "ftp://x", "http://", "http://x?y=1", "", "http://u:pw@x"] {
            let error = BaseUrl::parse(wrong).unwrap_err();
            assert!(error.contains("expected an address"), "{wrong}: {error}");
            assert!(!error.contains("pw"), "{error}");
        }
    }

    #[test]
    fn close_matches_are_found_and_far_ones_are_not() {
        assert_eq!(close_match("modle", ["provider", "model", "effort"]), Some("model"));
        assert_eq!(close_match("antropic", provider_names()), Some("anthropic"));
        assert_eq!(close_match("zzz", ["provider", "model"]), None);
    }
}
