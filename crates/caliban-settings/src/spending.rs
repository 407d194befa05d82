//! What a repo's settings may say about spending: less than the user's own, never more.

use toml::Value;

use super::layer::Layer;

/// Whether a repo's value lets agents spend more than the user's own one, if there is one.
type IsWider = fn(Option<&Value>, &Value) -> bool;

/// The keys that a repo can only narrow.
const KEYS: [(&[&str], IsWider); 14] = [
    (&["budget", "per_agent", "tokens"], is_more),
    (&["budget", "per_agent", "usd"], is_more),
    (&["budget", "per_tree", "tokens"], is_more),
    (&["budget", "per_tree", "usd"], is_more),
    (&["budget", "per_repo_day", "tokens"], is_more),
    (&["budget", "per_repo_day", "usd"], is_more),
    (&["budget", "per_day", "tokens"], is_more),
    (&["budget", "per_day", "usd"], is_more),
    (&["limits", "budget_tokens"], is_more),
    (&["limits", "budget_usd"], is_more),
    (&["fleet", "max_running_user"], is_more),
    (&["fleet", "max_by_model"], is_more),
    (&["budget", "on_limit"], is_asking),
    (&["fleet", "quiet_hours"], is_another),
];

/// Takes out of a repo's layer what would let agents spend more than the layers below it do; a line about each.
pub(super) fn narrow(below: &Layer, layer: &mut Layer) -> Vec<String> {
    let mut notes = Vec::new();
    for (path, is_wider) in KEYS {
        let (own, Some(wanted)) = (below.get(path), layer.get(path)) else { continue };
        if !is_wider(own, wanted) {
            continue;
        }
        let key = path.join(".");
        notes.push(match own {
            Some(own) => format!("the repo's {key} = {wanted} is left out: your own {key} = {own} holds"),
            None => format!("the repo's {key} = {wanted} is left out: only your own settings can say it"),
        });
        layer.unset(path);
    }
    notes
}

fn is_more(own: Option<&Value>, wanted: &Value) -> bool {
    own.is_some_and(|own| number(wanted) > number(own))
}

/// At a limit agents stop, unless the user says otherwise.
fn is_asking(own: Option<&Value>, wanted: &Value) -> bool {
    let is_ask = |value: &Value| value.as_str() == Some("ask");
    is_ask(wanted) && !own.is_some_and(is_ask)
}

/// Hours are not compared: those of the user hold.
fn is_another(own: Option<&Value>, wanted: &Value) -> bool {
    own.is_some_and(|own| own != wanted)
}

/// Each layer was checked by itself: it is a number.
fn number(value: &Value) -> f64 {
    value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64)).unwrap_or_default()
}
