//! Runs statements on a [`Db`] or in a transaction [`Tx`]; an error names the file of the store.

use std::future::Future;

use sqlx::query::{Map, Query, QueryAs, QueryScalar};
use sqlx::sqlite::{SqliteArguments, SqliteConnection, SqliteRow};
use sqlx::{Error, FromRow, Sqlite};

use crate::StoreError;
use crate::open::{Db, Tx};

/// A source of a connection.
pub(crate) trait Source: Send {
    fn connection(&mut self) -> impl Future<Output = Result<&mut SqliteConnection, StoreError>> + Send;
    fn failure(&self, error: Error) -> StoreError;
}

impl Source for Db {
    async fn connection(&mut self) -> Result<&mut SqliteConnection, StoreError> {
        self.conn().await
    }

    fn failure(&self, error: Error) -> StoreError {
        self.words(error)
    }
}

impl Source for Tx<'_> {
    async fn connection(&mut self) -> Result<&mut SqliteConnection, StoreError> {
        Ok(self.conn())
    }

    fn failure(&self, error: Error) -> StoreError {
        self.words(error)
    }
}

/// A statement that returns rows.
pub(crate) trait Ask: Sized + Send {
    type Row: Send;

    /// All rows.
    fn all<S: Source>(self, of: &mut S) -> impl Future<Output = Result<Vec<Self::Row>, StoreError>> + Send;

    /// The first row, if there is one.
    fn maybe<S: Source>(
        self,
        of: &mut S,
    ) -> impl Future<Output = Result<Option<Self::Row>, StoreError>> + Send;

    /// Exactly one row.
    fn one<S: Source>(self, of: &mut S) -> impl Future<Output = Result<Self::Row, StoreError>> + Send;
}

macro_rules! ask {
    ([$($of:tt)*] $statement:ty => $row:ty) => {
        impl<'q, $($of)*> Ask for $statement {
            type Row = $row;

            async fn all<S: Source>(self, of: &mut S) -> Result<Vec<$row>, StoreError> {
                let answer = self.fetch_all(of.connection().await?).await;
                answer.map_err(|error| of.failure(error))
            }

            async fn maybe<S: Source>(self, of: &mut S) -> Result<Option<$row>, StoreError> {
                let answer = self.fetch_optional(of.connection().await?).await;
                answer.map_err(|error| of.failure(error))
            }

            async fn one<S: Source>(self, of: &mut S) -> Result<$row, StoreError> {
                let answer = self.fetch_one(of.connection().await?).await;
                answer.map_err(|error| of.failure(error))
            }
        }
    };
}
ask!([] Query<'q, Sqlite, SqliteArguments> => SqliteRow);
ask!([O: Send + Unpin + for<'r> FromRow<'r, SqliteRow>] QueryAs<'q, Sqlite, O, SqliteArguments> => O);
ask!([O: Send + Unpin + sqlx::Type<Sqlite> + for<'r> sqlx::Decode<'r, Sqlite>] QueryScalar<'q, Sqlite, O, SqliteArguments> => O);
ask!([F: FnMut(SqliteRow) -> Result<O, Error> + Send, O: Send + Unpin] Map<'q, Sqlite, F, SqliteArguments> => O);

/// A statement that changes rows.
pub(crate) trait Change: Sized + Send {
    /// Runs the statement; returns the number of changed rows.
    fn run<S: Source>(self, of: &mut S) -> impl Future<Output = Result<u64, StoreError>> + Send;
}

impl Change for Query<'_, Sqlite, SqliteArguments> {
    async fn run<S: Source>(self, of: &mut S) -> Result<u64, StoreError> {
        let done = self.execute(of.connection().await?).await;
        done.map(|done| done.rows_affected()).map_err(|error| of.failure(error))
    }
}

/// A statement whose rows are mapped by a function.
pub(crate) trait ReadAs<'q> {
    fn read_as<T: Send + Unpin>(
        self,
        read: impl Fn(&SqliteRow) -> Result<T, Error> + Send,
    ) -> Map<'q, Sqlite, impl FnMut(SqliteRow) -> Result<T, Error> + Send, SqliteArguments>;
}

impl<'q> ReadAs<'q> for Query<'q, Sqlite, SqliteArguments> {
    fn read_as<T: Send + Unpin>(
        self,
        read: impl Fn(&SqliteRow) -> Result<T, Error> + Send,
    ) -> Map<'q, Sqlite, impl FnMut(SqliteRow) -> Result<T, Error> + Send, SqliteArguments> {
        self.try_map(move |row| read(&row))
    }
}
