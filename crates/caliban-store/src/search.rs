//! Full text search over transcripts: SQLite's FTS5 in a file of its own. All of its content is stored elsewhere, too,
//! so a file that is lost, damaged or of another version is rebuilt.
//!
//! Refuses: knowing where a text comes from. A source is a name with a position up to which it was read.

use sqlx::Row as _;

use crate::ask::{Ask, Change, ReadAs};
use crate::open::{Db, Schema};
use crate::{StoreError, StoreUrl};

/// The index's schema.
pub const SCHEMA: Schema = Schema {
    // "cals"
    application_id: 0x6361_6c73,
    base: 1,
    tables: TABLES,
    steps: &[],
};

const TABLES: &str = "
CREATE TABLE sources (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  inode BIGINT NOT NULL,
  read_to BIGINT NOT NULL
);
CREATE VIRTUAL TABLE texts USING fts5 (
  text, source UNINDEXED, seq UNINDEXED, at UNINDEXED, kind UNINDEXED, tokenize = 'unicode61 remove_diacritics 2'
);
";

/// Number of words around a hit in a snippet.
const SNIPPET_WORDS: i64 = 24;
/// The characters before and after the matching words in a snippet.
pub const MARKS: (char, char) = ('\u{1}', '\u{2}');

/// An open index.
#[derive(Debug)]
pub struct SearchIndex {
    db: Db,
}

/// The position up to which a source was read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Position {
    /// The inode of the file.
    pub inode: i64,
    /// Up to which byte.
    pub read_to: i64,
}

/// A text to index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchEntry {
    /// Its place in the source.
    pub seq: i64,
    /// When it was said.
    pub at: String,
    /// What it is, as one word.
    pub kind: String,
    /// The text.
    pub text: String,
}

/// A text that matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    /// Its source.
    pub source: String,
    /// Its place there.
    pub seq: i64,
    /// When it was said.
    pub at: String,
    /// What it is.
    pub kind: String,
    /// The words around the hit, with [`MARKS`].
    pub snippet: String,
}

impl SearchIndex {
    /// Opens the index, and makes it if there is none.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn open(url: &StoreUrl) -> Result<Self, StoreError> {
        Ok(Self { db: Db::open(url, &SCHEMA).await? })
    }

    /// The position up to which a source was read; the beginning if the source is new.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn position(&mut self, source: &str) -> Result<Position, StoreError> {
        let found: Option<(i64, i64)> = sqlx::query_as("SELECT inode, read_to FROM sources WHERE name = $1")
            .bind(source)
            .maybe(&mut self.db)
            .await?;
        Ok(found.map(|(inode, read_to)| Position { inode, read_to }).unwrap_or_default())
    }

    /// Indexes texts of a source, which has now been read up to `to`. If the source is a different file than before,
    /// its old texts are removed.
    ///
    /// # Errors
    /// When the store fails; then nothing is indexed.
    pub async fn add(
        &mut self,
        source: &str,
        to: Position,
        entries: &[SearchEntry],
    ) -> Result<(), StoreError> {
        let mut tx = self.db.begin().await?;
        let outcome: Result<(), StoreError> = async {
            let tx = &mut tx;
            let known: Option<(i64, i64)> = sqlx::query_as("SELECT id, inode FROM sources WHERE name = $1")
                .bind(source)
                .maybe(tx).await?;
            if let Some((id, inode)) = known
                && inode != to.inode
            {
                sqlx::query("DELETE FROM texts WHERE source = $1")
                    .bind(id)
                    .run(tx).await?;
            }
            let id: i64 = sqlx::query_scalar(
                "INSERT INTO sources (name, inode, read_to) VALUES ($1, $2, $3) \
                 ON CONFLICT (name) DO UPDATE SET inode = excluded.inode, read_to = excluded.read_to RETURNING id",
            )
            .bind(source)
            .bind(to.inode)
            .bind(to.read_to)
            .one(tx).await?;
            for entry in entries {
                sqlx::query("INSERT INTO texts (text, source, seq, at, kind) VALUES ($1, $2, $3, $4, $5)")
                    .bind(&entry.text)
                    .bind(id)
                    .bind(entry.seq)
                    .bind(&entry.at)
                    .bind(&entry.kind)
                    .run(tx).await?;
            }
            Ok(())
        }
        .await;
        tx.finish(outcome).await
    }

    /// The texts that contain all words of a query, the best first. Words in quotes must be adjacent; the last word may
    /// be a prefix.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn search(&mut self, query: &str, limit: u32) -> Result<Vec<Hit>, StoreError> {
        let Some(query) = fts_query(query) else { return Ok(Vec::new()) };
        let hit = |row: &sqlx::sqlite::SqliteRow| {
            Ok::<_, sqlx::Error>(Hit {
                source: row.try_get(0)?,
                seq: row.try_get(1)?,
                at: row.try_get(2)?,
                kind: row.try_get(3)?,
                snippet: row.try_get(4)?,
            })
        };
        sqlx::query(
            "SELECT s.name, t.seq, t.at, t.kind, snippet(texts, 0, $2, $3, '…', $4) \
             FROM texts t JOIN sources s ON s.id = t.source WHERE texts MATCH $1 ORDER BY rank LIMIT $5",
        )
        .bind(query)
        .bind(MARKS.0.to_string())
        .bind(MARKS.1.to_string())
        .bind(SNIPPET_WORDS)
        .bind(i64::from(limit))
        .read_as(hit)
        .all(&mut self.db)
        .await
    }
}

/// What a user typed as an FTS5 query: each word is quoted, so that none is taken for an operator.
fn fts_query(typed: &str) -> Option<String> {
    let mut parts: Vec<String> = Vec::new();
    for (at, piece) in typed.split('"').enumerate() {
        let is_phrase = at % 2 == 1;
        let words: Vec<&str> = if is_phrase { vec![piece] } else { piece.split_whitespace().collect() };
        parts.extend(
            words
                .into_iter()
                .filter(|word| word.chars().any(char::is_alphanumeric))
                .map(|word| format!("\"{word}\"")),
        );
    }
    if !typed.ends_with(['"', ' '])
        && let Some(last) = parts.last_mut()
    {
        last.push('*');
    }
    (!parts.is_empty()).then(|| parts.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_typed_is_an_operator() {
        assert_eq!(fts_query("a OR b*"), Some("\"a\" \"OR\" \"b*\"*".to_owned()));
        assert_eq!(fts_query("\"two words\" and"), Some("\"two words\" \"and\"*".to_owned()));
        assert_eq!((fts_query("  "), fts_query("\"\" -- ()")), (None, None));
    }

    #[tokio::test]
    async fn what_was_said_is_found_and_a_file_that_is_another_one_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let url = StoreUrl::sqlite(dir.path().join("search.db"));
        let mut index = SearchIndex::open(&url).await.unwrap();
        let entry =
            |seq, text: &str| SearchEntry { seq, at: "then".into(), kind: "reply".into(), text: text.into() };
        let at = |inode, read_to| Position { inode, read_to };
        index.add("a", at(1, 10), &[entry(1, "the quick brown fox"), entry(2, "a lazy dog")]).await.unwrap();
        index.add("b", at(2, 5), &[entry(7, "another fox")]).await.unwrap();
        assert_eq!(index.position("a").await.unwrap(), at(1, 10));
        let found = index.search("quick fo", 10).await.unwrap();
        assert_eq!((found.len(), found[0].source.as_str(), found[0].seq), (1, "a", 1));
        assert_eq!(found[0].snippet, "the \u{1}quick\u{2} brown \u{1}fox\u{2}");
        assert_eq!(index.search("fox", 10).await.unwrap().len(), 2);
        assert_eq!(index.search("\"brown fox\"", 10).await.unwrap().len(), 1);
        assert!(index.search("\"fox brown\"", 10).await.unwrap().is_empty());
        assert!(index.search("NEAR( ) AND *", 10).await.unwrap().is_empty());
        index.add("a", at(9, 3), &[entry(1, "new")]).await.unwrap();
        assert_eq!(index.search("fox", 10).await.unwrap().len(), 1);
    }
}
