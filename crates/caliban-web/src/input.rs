//! JSON bodies and query strings, with our own texts for errors in them.

use axum::Json;
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use http::StatusCode;
use http::request::Parts;
use serde::de::DeserializeOwned;

use crate::error::Problem;

/// A JSON body.
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        match Json::<T>::from_request(request, state).await {
            Ok(Json(value)) => Ok(Self(value)),
            Err(rejection) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => {
                Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", "the body is too large"))
            }
            Err(rejection) => Err(Problem::bad(rejection.body_text())),
        }
    }
}

/// The query string.
pub(crate) struct QueryString<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for QueryString<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(value)) => Ok(Self(value)),
            Err(rejection) => Err(Problem::bad(rejection.body_text())),
        }
    }
}
