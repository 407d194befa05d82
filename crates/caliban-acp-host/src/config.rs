//! What a client can choose in a session: the model that answers, and how hard it thinks.

use caliban_acp::v1::{
    Error, SessionConfigOption, SessionConfigOptionCategory, SessionConfigOptionValue,
    SessionConfigSelectOption, SetSessionConfigOptionRequest, SetSessionConfigOptionResponse,
};
use caliban_agent::AgentChange;
use caliban_core::{message::Effort, model_alias};

use crate::host::{ModelSettings, SessionHost};

/// The ids of the options.
const MODEL: &str = "model";
const EFFORT: &str = "effort";

/// The options with their present values; none for an agent whose model cannot be changed.
pub(crate) fn options(host: &SessionHost) -> Option<Vec<SessionConfigOption>> {
    if host.models().is_empty() {
        return None;
    }
    let ModelSettings { model, effort } = host.settings().borrow().clone();
    let choice = |word: &str| SessionConfigSelectOption::new(word.to_owned(), word);
    let mut models: Vec<SessionConfigSelectOption> = host.models().iter().map(|name| choice(name)).collect();
    if !host.models().contains(&model) {
        models.insert(0, choice(&model));
    }
    let efforts: Vec<SessionConfigSelectOption> =
        Effort::ALL.iter().map(|effort| choice(effort.word())).collect();
    Some(vec![
        SessionConfigOption::select(MODEL, "Model", model, models)
            .description("Which model answers from the next request on".to_owned())
            .category(SessionConfigOptionCategory::Model),
        SessionConfigOption::select(EFFORT, "Effort", effort.word().to_owned(), efforts)
            .description("How hard the model thinks".to_owned())
            .category(SessionConfigOptionCategory::ThoughtLevel),
    ])
}

/// Changes one of them; all as they are then.
pub(crate) async fn set(
    host: &SessionHost,
    request: SetSessionConfigOptionRequest,
) -> Result<SetSessionConfigOptionResponse, Error> {
    let invalid = |why: String| Error::invalid_params().data(why);
    let SessionConfigOptionValue::ValueId { value } = &request.value else {
        return Err(invalid("a choice is a text".to_owned()));
    };
    let value = value.to_string();
    let value = match &*request.config_id.0 {
        MODEL => model_alias::resolved(&value, &host.settings().borrow().model),
        _ => value,
    };
    let change = match &*request.config_id.0 {
        MODEL if host.models().contains(&value) || host.settings().borrow().model == value => {
            AgentChange { model: Some(value), effort: None }
        }
        MODEL => return Err(invalid(format!("there is no model {value} to choose; /model takes any name"))),
        EFFORT => match serde_json::from_value::<Effort>(value.as_str().into()) {
            Ok(effort) => AgentChange { model: None, effort: Some(effort) },
            Err(_) => return Err(invalid(format!("there is no effort {value}"))),
        },
        other => return Err(invalid(format!("there is no option {other}"))),
    };
    host.configure(change).await.map_err(|why| Error::internal_error().data(why))?;
    Ok(SetSessionConfigOptionResponse::new(options(host).unwrap_or_default()))
}
