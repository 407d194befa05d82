//! Many callers at once and one limit: never passed by more than what requests in flight take beyond their estimates, also when gateways,
//! the daemon and workers are killed again and again. `cargo xtask soak ledger` is the same with a thousand callers and fifty kills.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    sync::{
        Arc, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use caliban_core::budget::Limits;
use caliban_gateway::{NewToken, Tokens};
use serde_json::Value;
use testkit::{ModelServer, Spawned, StepExt, script, text, wait_until};

use crate::fleet::{Fleet, bash};

/// Callers and kills in the ordinary tests; the variables set other numbers for the soak.
const CALLERS: u64 = 60;
const KILLS: u64 = 6;
/// Processes that callers spend through.
const GATEWAYS: usize = 4;
/// Agents of our own beside them.
const AGENTS: usize = 2;
/// What a request is estimated at, about (its body and what it may answer), and what it takes.
const ESTIMATE: u64 = 100;
const TAKES: u64 = 150;

fn number(variable: &str, usual: u64) -> u64 {
    // Given to the test, not to a program.
    #[expect(clippy::disallowed_methods, reason = "a test's own variable")]
    let text = std::env::var(variable).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// Gateways that are started again when they are killed.
struct Gateways {
    programs: Vec<Option<Spawned>>,
    addresses: Arc<RwLock<Vec<String>>>,
}

impl Gateways {
    fn start(fleet: &Fleet) -> Self {
        let addresses = Arc::new(RwLock::new(vec![String::new(); GATEWAYS]));
        let mut gateways = Self { programs: Vec::new(), addresses };
        gateways.programs.resize_with(GATEWAYS, || None);
        for which in 0..GATEWAYS {
            gateways.again(fleet, which);
        }
        gateways
    }

    /// Kills it, if it runs, and starts another one.
    fn again(&mut self, fleet: &Fleet, which: usize) {
        if let Some(program) = self.programs[which].take() {
            drop(program.kill());
        }
        let place = &fleet.place;
        let run = place.env.start("caliban", ["gateway", "--port", "0", "--json"]).dir(&place.repo);
        let mut program = run.limit(Duration::from_secs(1200)).spawn();
        program.wait_for_stdout("\n");
        let ready: Value = serde_json::from_str(program.stdout().lines().next().unwrap()).unwrap();
        self.addresses.write().unwrap()[which] = ready["address"].as_str().unwrap().to_owned();
        self.programs[which] = Some(program);
    }
}

/// What came of one request.
#[derive(Debug, PartialEq)]
enum Heard {
    Answer,
    Refused,
    /// The gateway was killed.
    Nothing,
}

fn ask(address: &str, token: &str) -> Heard {
    let body = r#"{"model":"claude-sonnet-4-6","max_tokens":50,"messages":[{"role":"user","content":"caller caller caller caller caller caller"}]}"#;
    let request = format!(
        "POST /v1/messages HTTP/1.1\r\nhost: {address}\r\nx-api-key: {token}\r\nanthropic-version: 2023-06-01\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let exchange = || -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(600)))?;
        stream.write_all(request.as_bytes())?;
        let mut all = Vec::new();
        stream.read_to_end(&mut all)?;
        Ok(all)
    };
    let Ok(all) = exchange() else { return Heard::Nothing };
    let all = String::from_utf8_lossy(&all);
    match all.split(' ').nth(1) {
        Some("200") if all.contains("end_turn") => Heard::Answer,
        Some("402") => Heard::Refused,
        Some("200" | "502") | None => Heard::Nothing,
        Some(_) => panic!("{all}"),
    }
}

/// Spent and held of the day.
fn pool(fleet: &Fleet) -> (u64, u64) {
    let pools: Vec<Value> = fleet.run(["budget", "show", "--json"]).ok().json();
    (pools[0]["tokens"].as_u64().unwrap(), pools[0]["in_flight_tokens"].as_u64().unwrap())
}

#[test]
fn r20_many_callers_at_once_and_kills_pass_no_limit_by_more_than_what_is_in_flight() {
    let (callers, kills) = (number("CALIBAN_SOAK_CALLERS", CALLERS), number("CALIBAN_SOAK_KILLS", KILLS));
    let server = ModelServer::builder(script![
        text("done").costs(TAKES - 1, 1).on_first("caller").forever(),
        bash("true").costs(TAKES - 1, 1).on_first("own task").forever(),
    ]);
    let fleet = Fleet::with(server.without_rules().start());
    // Each caller is answered about four times; then nothing more fits.
    let limit = callers * TAKES * 4 + 8_000 * AGENTS as u64;
    fleet.settings(&format!("[budget]\nper_day = {{ tokens = {limit} }}\n"));
    let tokens = Tokens::from(fleet.place.env.data().join("caliban").as_path());
    let mut gateways = Gateways::start(&fleet);
    let answered = Arc::new(AtomicU64::new(0));
    fleet.place.server.hold();
    let threads: Vec<_> = (0..callers)
        .map(|caller| {
            let new = NewToken {
                label: format!("caller {caller}"),
                repo: fleet.place.repo.clone(),
                above: None,
                limits: Limits::NONE,
            };
            let (_, token) = tokens.create(new).unwrap();
            let (addresses, answered) = (gateways.addresses.clone(), answered.clone());
            let which = usize::try_from(caller).unwrap() % GATEWAYS;
            let run = move || loop {
                let address = addresses.read().unwrap()[which].clone();
                match ask(&address, &token) {
                    Heard::Answer => drop(answered.fetch_add(1, Ordering::Relaxed)),
                    Heard::Refused => return,
                    // Until another one listens.
                    Heard::Nothing => std::thread::sleep(Duration::from_millis(20)),
                }
            };
            std::thread::Builder::new().stack_size(256 * 1024).spawn(run).unwrap()
        })
        .collect();
    // All are in flight at once, and each is held.
    fleet.place.server.wait_for_requests(usize::try_from(callers).unwrap());
    let (spent, held) = pool(&fleet);
    assert_eq!(spent, 0);
    assert!((callers * 50..=callers * ESTIMATE).contains(&held), "{held} held for {callers}");
    fleet.place.server.release();
    // A request may take this much more than it was estimated at.
    let most = limit + callers * (TAKES - 50);
    let mut agents: Vec<String> = (0..AGENTS).map(|_| own(&fleet)).collect();
    for kill in 0..kills {
        match kill % 3 {
            0 => gateways.again(&fleet, fastrand::usize(0..GATEWAYS)),
            1 => {
                let which = fastrand::usize(0..AGENTS);
                let pid = fleet.row(&agents[which])["pid"].as_i64();
                kill_nine(pid);
                agents[which] = own(&fleet);
            }
            _ => {
                let status: Value = fleet.run(["daemon", "status", "--json"]).ok().json();
                kill_nine(status["pid"].as_i64());
                fleet.rows();
            }
        }
        let (spent, held) = pool(&fleet);
        assert!(spent + held <= most, "{spent} and {held} of {limit}");
    }
    for thread in threads {
        thread.join().unwrap();
    }
    for agent in fleet.rows() {
        let id = agent["id"].as_str().unwrap().to_owned();
        wait_until("every agent has ended", || fleet.row(&id)["state"] != "running");
    }
    wait_until("nothing is in flight", || pool(&fleet).1 == 0);
    let (spent, _) = pool(&fleet);
    let answered = answered.load(Ordering::Relaxed);
    println!("{answered} answers for {callers} callers, {kills} kills: {spent} of {limit} spent");
    assert!(spent <= most, "{spent} of {limit}");
    // A gateway that is killed between the end of an answer and its settlement leaves what was reserved for it.
    let unsettled = kills.div_ceil(3) * callers.div_ceil(GATEWAYS as u64) * (TAKES - 50);
    assert!(spent + unsettled >= answered * TAKES, "{spent} for {answered} answers");
    // Nobody is refused while there is room for one of each kind.
    assert!(spent + 20_000 > limit, "{spent} of {limit}");
}

/// An agent of our own, which asks until it may not.
fn own(fleet: &Fleet) -> String {
    fleet.bg("own task", ["--permission-mode", "unattended", "--max-turns", "100000"])
}

fn kill_nine(pid: Option<i64>) {
    let Some(pid) = pid else { return };
    // It may have ended.
    let _gone = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status();
}
