//! What a daemon holds in memory for agents that sleep: their rows, not their requests.

use std::fs;

use caliban_contract::records::{
    self, ExitRecord, HIBERNATED, STATUS_VERSION, ToldBy, WorkerState, WorkerStatus,
};
use caliban_core::ids::AgentId;
use caliban_core::lifecycle::{LifecycleEvent, Status};
use caliban_fleet::Client;
use caliban_store::fleet::{AgentRecord, Registry, RegistryChange, WantedState};
use caliban_store::{HostId, StoreUrl};

use crate::fleet::Fleet;

/// How many sleep.
const SLEEPERS: u32 = 400;
/// Bytes of a short prompt, and of a long one.
const PROMPTS: [usize; 2] = [100, 100 * 1024];
/// What long prompts may cost a daemon at most, for all of them together: the page that is being read. All of them are
/// 39 MB.
const AT_MOST_KB: u64 = 12 * 1024;
/// Rows that are registered at once.
const BATCH: usize = 50;

/// Makes a registry of agents that sleep, with the files that their last runs left.
async fn register(fleet: &Fleet, count: u32, prompt: usize) {
    fleet.places.prepare().unwrap();
    let mut registry =
        Registry::open(&StoreUrl::sqlite(fleet.places.database()), &HostId::of("")).await.unwrap();
    let ids: Vec<u32> = (1..=count).collect();
    for some in ids.chunks(BATCH) {
        let changes: Vec<RegistryChange> =
            some.iter().map(|number| sleeper(fleet, *number, prompt)).collect();
        registry.commit(&changes).await.unwrap();
    }
    registry.close().await;
}

fn sleeper(fleet: &Fleet, number: u32, prompt: usize) -> RegistryChange {
    let id = AgentId::from_random(number.to_be_bytes());
    let (nonce, dir) = (format!("nonce of {number}"), fleet.places.agent_dir(id));
    fs::create_dir_all(&dir).unwrap();
    let status = WorkerStatus {
        version: STATUS_VERSION,
        nonce: nonce.clone(),
        state: WorkerState::Idle,
        turns: 1,
        last_text: Some("x".repeat(200)),
        hibernated: true,
        ..WorkerStatus::default()
    };
    records::write(&dir, records::STATUS, &status).unwrap();
    let exit = ExitRecord {
        nonce: nonce.clone(),
        code: Some(HIBERNATED),
        signal: None,
        not_started: None,
        again: records::Again::Never,
        out_of_memory: false,
        told_by: ToldBy::Run,
        exceeded: None,
        left: Vec::new(),
        at: 1,
    };
    records::write(&dir, records::EXIT, &exit).unwrap();
    let shim = records::ShimRecord {
        pid: 1,
        start_time: 1,
        boot_id: fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim().to_owned(),
        nonce: nonce.clone(),
        worker_pid: None,
        worker_start_time: None,
        group: None,
        socket: None,
        program: None,
    };
    records::write(&dir, records::SHIM, &shim).unwrap();
    let mut spec = fleet.spec("serve");
    spec.prompt = "x".repeat(prompt);
    let status = [LifecycleEvent::Started, LifecycleEvent::TurnEnded];
    let record = AgentRecord {
        seq: i64::from(number),
        id,
        key: None,
        status: status.into_iter().fold(Status::default(), |status, event| status.apply(event).unwrap()),
        wanted: WantedState::Run,
        nonce,
        runs: 1,
        after: Vec::new(),
        program: crate::fleet::fake_worker(),
        has_secrets: false,
        resume_prompt: None,
        note: None,
        created_at: 1,
        updated_at: 1,
    };
    RegistryChange::Insert(Box::new(record), serde_json::to_string(&spec).unwrap())
}

/// A number of the kernel's about the daemon, in KB.
fn kernel_says(fleet: &Fleet, file: &str, field: &str) -> u64 {
    let pid = fleet.daemon_pid().unwrap();
    let text = fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

async fn asleep(client: &mut Client) -> u32 {
    let rows = client.list().await.unwrap();
    u32::try_from(rows.iter().filter(|row| row.hibernated).count()).unwrap()
}

#[tokio::test]
async fn a_daemon_that_starts_holds_no_long_prompts() {
    let mut most = [0; 2];
    for (most, prompt) in most.iter_mut().zip(PROMPTS) {
        let fleet = Fleet::new();
        register(&fleet, SLEEPERS, prompt).await;
        let mut client = fleet.client().await;
        // The most that it has ever held.
        *most = kernel_says(&fleet, "status", "VmHWM");
        assert_eq!(asleep(&mut client).await, SLEEPERS);
    }
    let [short, long] = most;
    assert!(long < short + AT_MOST_KB, "with short prompts {short} KB, with long ones {long} KB");
}

/// Not a test by itself: figures for whoever changes what the daemon keeps.
#[tokio::test]
#[ignore = "prints what a daemon of 1,000 sleeping agents holds"]
async fn figures() {
    for prompt in [100, 32 * 1024] {
        let fleet = Fleet::new();
        register(&fleet, 1000, prompt).await;
        let mut client = fleet.client().await;
        let held = |when: &str| {
            let of = |field| kernel_says(&fleet, "smaps_rollup", field);
            let (rss, own) = (of("Rss"), of("Anonymous"));
            let most = kernel_says(&fleet, "status", "VmHWM");
            eprintln!("prompts of {prompt} bytes, {when}: rss {rss}, anonymous {own}, most {most} KB");
        };
        held("at start");
        assert_eq!(asleep(&mut client).await, 1000);
        held("after a list");
        for _ in 0..50 {
            asleep(&mut client).await;
        }
        held("after 50 more");
    }
}
