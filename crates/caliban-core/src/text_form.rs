//! Types that are written down as the text that people write.

/// Stores a type as its `Display` and `FromStr` have it; the type says `#[serde(try_from = "String", into = "String")]`.
macro_rules! stored_as_text {
    ($type:ident, $error:ident) => {
        impl TryFrom<String> for $type {
            type Error = $error;
            fn try_from(text: String) -> Result<Self, $error> {
                text.parse()
            }
        }
        impl From<$type> for String {
            fn from(value: $type) -> Self {
                value.to_string()
            }
        }
    };
}

/// Shows, reads and stores an enum by its words: it has `ALL`, `NAMES` and `name`.
macro_rules! known_by_name {
    ($type:ident, $error:ident) => {
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
        impl std::str::FromStr for $type {
            type Err = $error;
            fn from_str(text: &str) -> Result<Self, $error> {
                Self::ALL.into_iter().find(|one| one.name() == text).ok_or_else(|| $error(text.to_owned()))
            }
        }
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
                text.parse().map_err(|_| serde::de::Error::unknown_variant(&text, &Self::NAMES))
            }
        }
    };
}

pub(crate) use {known_by_name, stored_as_text};
