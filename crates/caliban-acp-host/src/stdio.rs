//! `caliban acp`: serves the client that started us, over stdin and stdout.

use std::sync::Arc;

use caliban_acp::connection::ConnError;

use crate::{
    server::{ServeOptions, serve},
    sessions::{Factory, Sessions},
};

/// Serves until the client closes our stdin, then closes every session that it has made.
pub async fn serve_stdio(factory: Arc<dyn Factory>, version: impl Into<String>) -> Result<(), ConnError> {
    let sessions = Arc::new(Sessions::made_by(factory));
    let options = ServeOptions::private(version);
    let result = serve(tokio::io::stdin(), tokio::io::stdout(), sessions.clone(), options).await;
    sessions.close_all().await;
    result
}
