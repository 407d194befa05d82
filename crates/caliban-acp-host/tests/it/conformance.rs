//! The protocol's own client against our server.

use std::sync::{Arc, Mutex};

use agent_client_protocol::{
    Agent, ByteStreams, Client,
    schema::ProtocolVersion,
    v1::{
        ConnectionTo,
        schema::{
            ContentBlock, InitializeRequest, LoadSessionRequest, NewSessionRequest, PermissionOptionKind,
            PromptRequest, RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse,
            SelectedPermissionOutcome, SessionNotification, StopReason, TextContent,
        },
    },
};
use caliban_acp_host::Sessions;
use serde_json::json;
use tokio_util::compat::{TokioAsyncReadCompatExt, TokioAsyncWriteCompatExt};

use crate::world::{Item, World, fold, pipe};

#[tokio::test]
async fn the_protocols_own_client_drives_a_turn_a_question_and_a_load() {
    let world = Arc::new(World::new(json!({"steps": [
        {"text": "I write it.", "chunks": 2,
         "tool_calls": [{"name": "Write", "input": {"file_path": "a.txt", "content": "new\n"}}]},
        {"text": "Done."},
    ]})));
    let sessions = Arc::new(Sessions::made_by(world.clone()));
    let (reader, writer) = tokio::io::split(pipe(&sessions));
    let transport = ByteStreams::new(writer.compat_write(), reader.compat());
    let updates = Arc::new(Mutex::new(Vec::new()));
    let (seen, root) = (updates.clone(), world.root());
    let taken = move || std::mem::take(&mut *updates.lock().unwrap());
    Client
        .v1()
        .on_receive_notification(
            async move |notification: SessionNotification, _connection| {
                seen.lock().unwrap().push(notification.update);
                Ok(())
            },
            agent_client_protocol::on_receive_notification!(),
        )
        .on_receive_request(
            async move |request: RequestPermissionRequest, responder, _connection| {
                let allow =
                    request.options.iter().find(|option| option.kind == PermissionOptionKind::AllowOnce);
                let selected = SelectedPermissionOutcome::new(allow.unwrap().option_id.clone());
                responder
                    .respond(RequestPermissionResponse::new(RequestPermissionOutcome::Selected(selected)))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .connect_with(transport, async move |connection: ConnectionTo<Agent>| {
            let hello = InitializeRequest::new(ProtocolVersion::V1);
            let welcome = connection.send_request(hello).block_task().await?;
            assert_eq!(welcome.protocol_version, ProtocolVersion::V1);
            let made = connection.send_request(NewSessionRequest::new(root.clone())).block_task().await?;
            let words = vec![ContentBlock::Text(TextContent::new("go"))];
            let prompt = PromptRequest::new(made.session_id.clone(), words);
            let answer = connection.send_request(prompt).block_task().await?;
            assert_eq!(answer.stop_reason, StopReason::EndTurn);
            let live = fold(&taken());
            let load = LoadSessionRequest::new(made.session_id, root.clone());
            connection.send_request(load).block_task().await?;
            let mut loaded = fold(&taken());
            assert_eq!(loaded.remove(1), Item::User("go".into()));
            assert_eq!(loaded, live);
            Ok(())
        })
        .await
        .unwrap();
    assert_eq!(std::fs::read_to_string(world.root().join("a.txt")).unwrap(), "new\n");
    sessions.close_all().await;
}
