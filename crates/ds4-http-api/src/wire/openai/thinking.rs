//! The several ways in which clients switch reasoning on and off.
//!
//! Read are `reasoning_effort` (the words that [`Thinking`] knows), `enable_thinking`, `thinking: {"type": "enabled" |
//! "disabled"}`, and the first two inside of `chat_template_kwargs`. If they disagree, "off" wins, then a level, then
//! "on".

use ds4_text::Thinking;
use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::fields::Fields;

/// Reads how much the model may reason, and what else the template gets.
pub(crate) fn read(fields: &Fields<'_>) -> Result<(Thinking, Map<String, Value>), ApiError> {
    let mut template_kwargs = fields.map("chat_template_kwargs")?.cloned().unwrap_or_default();
    let mut wishes = vec![effort(fields)?, switch(fields)?, kind(fields)?];
    if let Some(inner) = fields.object("chat_template_kwargs")? {
        wishes.extend([effort(&inner)?, switch(&inner)?]);
    }
    template_kwargs.shift_remove("enable_thinking");
    template_kwargs.shift_remove("reasoning_effort");
    let thinking = wishes.into_iter().flatten().max_by_key(|wish| match wish {
        Thinking::Default => 0,
        Thinking::On => 1,
        Thinking::Level(_) => 2,
        Thinking::Off => 3,
    });
    Ok((thinking.unwrap_or_default(), template_kwargs))
}

fn effort(fields: &Fields<'_>) -> Result<Option<Thinking>, ApiError> {
    match fields.string("reasoning_effort")? {
        Some(word) => Ok(Some(word.parse()?)),
        None => Ok(None),
    }
}

fn switch(fields: &Fields<'_>) -> Result<Option<Thinking>, ApiError> {
    let on = fields.boolean("enable_thinking")?;
    Ok(on.map(|on| if on { Thinking::On } else { Thinking::Off }))
}

fn kind(fields: &Fields<'_>) -> Result<Option<Thinking>, ApiError> {
    let Some(thinking) = fields.object("thinking")? else { return Ok(None) };
    match thinking.required_string("type")? {
        "enabled" => Ok(Some(Thinking::On)),
        "disabled" => Ok(Some(Thinking::Off)),
        _ => Err(thinking.out_of_range("type", "`enabled` or `disabled`").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ds4_text::ThinkingLevel;
    use serde_json::json;

    fn thinking(request: Value) -> Thinking {
        read(&Fields::root(request.as_object().unwrap())).unwrap().0
    }

    #[test]
    fn off_wins_then_a_level_then_on() {
        let low = Thinking::Level(ThinkingLevel::Low);
        assert_eq!(thinking(json!({})), Thinking::Default);
        assert_eq!(thinking(json!({"enable_thinking": true})), Thinking::On);
        assert_eq!(thinking(json!({"enable_thinking": true, "reasoning_effort": "low"})), low);
        assert_eq!(thinking(json!({"reasoning_effort": "none"})), Thinking::Off);
        assert_eq!(
            thinking(json!({"reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": false}})),
            Thinking::Off
        );
        assert_eq!(
            thinking(json!({"thinking": {"type": "disabled"}, "reasoning_effort": "low"})),
            Thinking::Off
        );
        assert_eq!(thinking(json!({"chat_template_kwargs": {"reasoning_effort": "low"}})), low);
    }

    #[test]
    fn other_template_arguments_pass() {
        let request = json!({"chat_template_kwargs": {"enable_thinking": true, "x": 1}});
        let (_, kwargs) = read(&Fields::root(request.as_object().unwrap())).unwrap();
        assert_eq!(Value::Object(kwargs), json!({"x": 1}));
    }
}
