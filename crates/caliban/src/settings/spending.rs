//! What a repo's settings may say about spending: less than the user's own, never more.

use toml::Value;

use super::layer::Layer;

/// The limits, by their keys. A smaller number is narrower.
const LIMITS: [&[&str]; 10] = [
    &["budget", "per_agent", "tokens"],
    &["budget", "per_agent", "usd"],
    &["budget", "per_tree", "tokens"],
    &["budget", "per_tree", "usd"],
    &["budget", "per_repo_day", "tokens"],
    &["budget", "per_repo_day", "usd"],
    &["budget", "per_day", "tokens"],
    &["budget", "per_day", "usd"],
    &["limits", "budget_tokens"],
    &["limits", "budget_usd"],
];
/// What is done at a limit: `stop`, unless the user says otherwise.
const ON_LIMIT: &[&str] = &["budget", "on_limit"];

/// Takes out of a repo's layer what would let agents spend more than the layers below it do; a line about each.
pub(super) fn narrow(below: &Layer, layer: &mut Layer) -> Vec<String> {
    let mut notes = Vec::new();
    for path in LIMITS {
        let (Some(own), Some(wanted)) = (below.get(path), layer.get(path)) else { continue };
        if number(wanted) > number(own) {
            let key = path.join(".");
            notes.push(format!("the repo's {key} = {wanted} is left out: your own {key} = {own} is less"));
            layer.unset(path);
        }
    }
    let is_ask = |layer: &Layer| layer.get(ON_LIMIT).and_then(Value::as_str) == Some("ask");
    if is_ask(layer) && !is_ask(below) {
        notes.push(
            "the repo's budget.on_limit = \"ask\" is left out: only your own settings can say it".to_owned(),
        );
        layer.unset(ON_LIMIT);
    }
    notes
}

/// Each layer was checked by itself: it is a number.
fn number(value: &Value) -> f64 {
    value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64)).unwrap_or_default()
}
