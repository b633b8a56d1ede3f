//! Saves a checkpoint, loads it, and asks for one that does not exist.
//!
//! The only argument is the server's HOST:PORT. For a server that speaks TLS, the feature `tls-ring`
//! of tonic adds `ClientTlsConfig` to the endpoint, and an interceptor adds
//! `authorization: Bearer TOKEN` to every call.

/// What buf generates from the contract.
#[allow(clippy::all, clippy::pedantic, dead_code)]
mod tuskpoint {
    include!("../../../build/generated/rust/tuskpoint/v1/tuskpoint.v1.rs");
}

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use tonic::transport::{Channel as Connection, Endpoint};
use tonic::{Code, Status};
use tonic_types::StatusExt;

use tuskpoint::checkpoint_service_client::CheckpointServiceClient;
use tuskpoint::{channel, version};
use tuskpoint::{
    Channel, Checkpoint, CheckpointRef, CheckpointState, GetCheckpointRequest,
    SaveCheckpointRequest, Value, Version, View,
};

const THREAD: &str = "rust-thread";
const PLAN: &str = r#"["lire","écrire"]"#;
const MISSING: &str = "00000000-0000-6000-8000-000000000000";
const TS: &str = "2026-01-01T00:00:00+00:00";

type Checkpoints = CheckpointServiceClient<Connection>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, target] = arguments.as_slice() else {
        eprintln!("usage: tuskpoint-example HOST:PORT");
        return ExitCode::from(2);
    };
    match run(target).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tuskpoint-example: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(target: &str) -> Result<(), Box<dyn Error>> {
    let endpoint = Endpoint::new(format!("http://{target}"))?.timeout(Duration::from_secs(30));
    let mut checkpoints = CheckpointServiceClient::new(endpoint.connect().await?);
    let saved = save(&mut checkpoints).await?;
    println!("plan: {}", plan(&mut checkpoints, &saved).await?);
    match plan(&mut checkpoints, MISSING).await {
        Ok(found) => println!("missing: {found}"),
        Err(status) => println!("missing: {} {}", code_name(&status), reason(&status)),
    }
    Ok(())
}

/// Saves a state of one channel, and returns the ID that the server made.
async fn save(checkpoints: &mut Checkpoints) -> Result<String, Status> {
    let plan = Channel {
        name: "plan".into(),
        version: Some(Version {
            kind: Some(version::Kind::Text("1".into())),
        }),
        content: Some(channel::Content::Value(Value {
            r#type: "json".into(),
            data: PLAN.into(),
        })),
        ..Default::default()
    };
    let checkpoint = Checkpoint {
        r#ref: Some(reference("")),
        state: Some(CheckpointState {
            schema_version: 4,
            ts: TS.into(),
            channels: vec![plan],
            ..Default::default()
        }),
        summary: "Planned in Rust.".into(),
        ..Default::default()
    };
    let request = SaveCheckpointRequest {
        checkpoint: Some(checkpoint),
        agent_id: "planner".into(),
        ..Default::default()
    };
    let answer = checkpoints.save_checkpoint(request).await?.into_inner();
    Ok(answer.r#ref.unwrap_or_default().checkpoint_id)
}

/// Returns the plan as JSON, whatever language saved it.
async fn plan(checkpoints: &mut Checkpoints, checkpoint_id: &str) -> Result<String, Status> {
    let request = GetCheckpointRequest {
        r#ref: Some(reference(checkpoint_id)),
        view: View::Json.into(),
        ..Default::default()
    };
    let answer = checkpoints.get_checkpoint(request).await?.into_inner();
    let state = answer
        .checkpoint
        .unwrap_or_default()
        .state
        .unwrap_or_default();
    match state
        .channels
        .into_iter()
        .next()
        .and_then(|one| one.content)
    {
        Some(channel::Content::Value(value)) => String::from_utf8(value.data.into())
            .map_err(|error| Status::data_loss(format!("the plan is not UTF-8: {error}"))),
        _ => Err(Status::not_found("the checkpoint has no plan")),
    }
}

fn reference(checkpoint_id: &str) -> CheckpointRef {
    CheckpointRef {
        thread_id: THREAD.into(),
        checkpoint_id: checkpoint_id.into(),
        ..Default::default()
    }
}

fn code_name(status: &Status) -> &'static str {
    match status.code() {
        Code::NotFound => "NOT_FOUND",
        _ => "another status",
    }
}

/// Returns the reason in the details of a status.
fn reason(status: &Status) -> String {
    status
        .get_details_error_info()
        .map(|info| info.reason)
        .unwrap_or_default()
}
