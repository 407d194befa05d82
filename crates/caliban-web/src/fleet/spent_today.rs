//! Today's spending and limit from the ledger, as in `caliban budget show`, kept up to date for the top bar.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use caliban_contract::local_time;
use caliban_core::budget::{Limits, Meter};
use caliban_settings::Layer;
use caliban_store::ledger::{FILE, Ledger, Pool};
use caliban_store::{StoreError, StoreUrl};
use jiff::civil::Date;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::app::App;

/// The interval at which the ledger is checked for changes.
const LOOK: Duration = Duration::from_secs(2);
/// Maximum age of the limits read from the settings, while agents spend.
const SETTINGS_AGE: Duration = Duration::from_secs(60);

/// The value before the ledger has been read.
pub(super) fn unknown() -> Value {
    told(&Meter::default(), Limits::NONE)
}

fn told(meter: &Meter, most: Limits) -> Value {
    json!({
        "micro_usd": meter.spent.usd.0,
        "is_whole": meter.spent.unpriced == 0,
        "tokens": meter.spent.usage.total(),
        "budget_micro_usd": most.usd.map(|usd| usd.0),
        "budget_tokens": most.tokens,
    })
}

/// Keeps the hub's value up to date. Never returns.
pub(crate) async fn follow(app: Arc<App>) {
    let file = app.options.sources.data.join(FILE);
    let mut seen = None;
    let mut of_settings: Option<(Instant, Limits)> = None;
    loop {
        let now = (local_time::now().date(), written(&file));
        if seen != Some(now) {
            if of_settings.is_none_or(|(at, _)| at.elapsed() >= SETTINGS_AGE) {
                of_settings = Some((Instant::now(), settings(&app).await));
            }
            let most = of_settings.map_or(Limits::NONE, |(_, most)| most);
            // On a read error the bar keeps the old value, and the next round tries again.
            if let Ok(today) = read(&file, now.0, most).await {
                app.hub.put_today(today);
                seen = Some(now);
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Modification times of the ledger and its write-ahead log.
fn written(file: &Path) -> [Option<SystemTime>; 2] {
    let at = |path: &Path| std::fs::metadata(path).and_then(|about| about.modified()).ok();
    let mut log = file.as_os_str().to_owned();
    log.push("-wal");
    [at(file), at(Path::new(&log))]
}

async fn read(file: &Path, day: Date, of_settings: Limits) -> Result<Value, StoreError> {
    // Reading does not create a ledger.
    if !file.exists() {
        return Ok(told(&Meter::default(), of_settings));
    }
    let mut ledger = Ledger::open(&StoreUrl::sqlite(file)).await?;
    let pool = ledger.pool(&Pool::Day(day), of_settings).await;
    ledger.close().await;
    let pool = pool?;
    Ok(told(&pool.meter, pool.limits.unwrap_or(of_settings)))
}

/// The limits in the user's own settings; outside a repo, no repo's settings apply.
async fn settings(app: &App) -> Limits {
    let (environment, data) = (app.options.environment.clone(), app.options.sources.data.clone());
    let load = move || caliban_settings::load(&environment, &data, Layer::default());
    // Best effort: without limits the bar shows only the sum.
    let loaded = tokio::task::spawn_blocking(load).await.ok().and_then(Result::ok);
    loaded.map_or(Limits::NONE, |loaded| loaded.settings.budget.per_day.limits())
}
