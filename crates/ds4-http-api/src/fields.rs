//! Typed reading of the members of a JSON object, with errors that name the member. `null` counts as absent, as in
//! OpenAI's API. Members that nobody asks for are ignored.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use crate::error::ParameterError;

/// A JSON object and where it stands in the request.
pub(crate) struct Fields<'a> {
    object: &'a Map<String, Value>,
    path: String,
}

impl<'a> Fields<'a> {
    /// The members of the request itself.
    pub(crate) fn root(object: &'a Map<String, Value>) -> Self {
        Self { object, path: String::new() }
    }

    /// The members of `value`, which stands at `path`.
    pub(crate) fn of(value: &'a Value, path: String) -> Result<Self, ParameterError> {
        match value {
            Value::Object(object) => Ok(Self { object, path }),
            other => Err(wrong_type(path, "an object", other)),
        }
    }

    /// The members of `object`, which stands at `path`.
    pub(crate) fn of_map(object: &'a Map<String, Value>, path: String) -> Self {
        Self { object, path }
    }

    /// The full name of a member.
    pub(crate) fn name(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// The member, unless it is absent or null.
    pub(crate) fn value(&self, key: &str) -> Option<&'a Value> {
        self.object.get(key).filter(|value| !value.is_null())
    }

    /// An object.
    pub(crate) fn object(&self, key: &str) -> Result<Option<Fields<'a>>, ParameterError> {
        self.value(key).map(|value| Fields::of(value, self.name(key))).transpose()
    }

    /// The members of an object, as they are.
    pub(crate) fn map(&self, key: &str) -> Result<Option<&'a Map<String, Value>>, ParameterError> {
        Ok(self.object(key)?.map(|fields| fields.object))
    }

    /// An array.
    pub(crate) fn array(&self, key: &str) -> Result<Option<&'a [Value]>, ParameterError> {
        self.typed(key, "an array", |value| value.as_array().map(Vec::as_slice))
    }

    /// A string.
    pub(crate) fn string(&self, key: &str) -> Result<Option<&'a str>, ParameterError> {
        self.typed(key, "a string", Value::as_str)
    }

    /// A string that has to be there.
    pub(crate) fn required_string(&self, key: &str) -> Result<&'a str, ParameterError> {
        self.string(key)?.ok_or_else(|| self.missing(key, "a string"))
    }

    /// `true` or `false`.
    pub(crate) fn boolean(&self, key: &str) -> Result<Option<bool>, ParameterError> {
        self.typed(key, "a boolean", Value::as_bool)
    }

    /// A number within `range`; `range_text` says the range in words. JSON has no NaN and no infinity.
    pub(crate) fn number(
        &self,
        key: &str,
        range: RangeInclusive<f64>,
        range_text: &'static str,
    ) -> Result<Option<f64>, ParameterError> {
        let number = self.typed(key, "a number", Value::as_f64)?;
        match number {
            Some(number) if !range.contains(&number) => Err(self.out_of_range(key, range_text)),
            other => Ok(other),
        }
    }

    /// A whole number within `range`.
    pub(crate) fn integer(
        &self,
        key: &str,
        range: RangeInclusive<i128>,
        range_text: &'static str,
    ) -> Result<Option<i128>, ParameterError> {
        let number = self.typed(key, "an integer", as_integer)?;
        match number {
            Some(number) if !range.contains(&number) => Err(self.out_of_range(key, range_text)),
            other => Ok(other),
        }
    }

    /// A whole number that counts something.
    pub(crate) fn count(
        &self,
        key: &str,
        range: RangeInclusive<usize>,
        range_text: &'static str,
    ) -> Result<Option<usize>, ParameterError> {
        let range = *range.start() as i128..=*range.end() as i128;
        Ok(self.integer(key, range, range_text)?.map(|number| number as usize))
    }

    /// An error: the member is missing.
    pub(crate) fn missing(&self, key: &str, expected: &'static str) -> ParameterError {
        ParameterError::Missing { param: self.name(key), expected }
    }

    /// An error: the member has another type.
    pub(crate) fn wrong_type(&self, key: &str, expected: &'static str) -> ParameterError {
        wrong_type(self.name(key), expected, self.object.get(key).unwrap_or(&Value::Null))
    }

    /// An error: the member has the right type and a value that is not allowed.
    pub(crate) fn out_of_range(&self, key: &str, expected: &'static str) -> ParameterError {
        out_of_range(self.name(key), expected, self.object.get(key).unwrap_or(&Value::Null))
    }

    /// An error: the member means something that this server does not do.
    pub(crate) fn not_supported(&self, key: &str, accepted: &'static str) -> ParameterError {
        ParameterError::NotSupported { param: self.name(key), accepted }
    }

    fn typed<T>(
        &self,
        key: &str,
        expected: &'static str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, ParameterError> {
        match self.value(key) {
            None => Ok(None),
            Some(value) => read(value).map(Some).ok_or_else(|| self.wrong_type(key, expected)),
        }
    }
}

/// The value of `number` if it is written as a whole number, or if it is larger than 64 bits: such numbers are read as
/// fractions, and are outside of every range rather than of the wrong type.
pub(crate) fn as_integer(number: &Value) -> Option<i128> {
    const LARGE: f64 = (1_u64 << 63) as f64;
    let large = || number.as_f64().filter(|number| number.abs() > LARGE).map(|number| number as i128);
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from)).or_else(large)
}

/// An error: the value at `param` has another type than expected.
pub(crate) fn wrong_type(param: String, expected: &'static str, found: &Value) -> ParameterError {
    ParameterError::WrongType { param, expected, found: kind(found) }
}

/// A value's type in words.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(number) if number.is_f64() => "a fraction",
        Value::Number(_) => "an integer",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// An error: the value at `param` is not allowed.
pub(crate) fn out_of_range(param: String, expected: &'static str, found: &Value) -> ParameterError {
    const LONGEST: usize = 80;
    let mut found = found.to_string();
    if found.chars().count() > LONGEST {
        found = found.chars().take(LONGEST).chain("...".chars()).collect();
    }
    ParameterError::OutOfRange { param, expected, found }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn message<T: std::fmt::Debug>(result: Result<T, ParameterError>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn null_and_absent_are_the_same() {
        let value = json!({"a": null});
        let fields = Fields::root(value.as_object().unwrap());
        assert_eq!(fields.number("a", 0.0..=1.0, "0 to 1").unwrap(), None);
        assert_eq!(fields.number("b", 0.0..=1.0, "0 to 1").unwrap(), None);
    }

    #[test]
    fn errors_name_the_member_and_both_sides() {
        let value = json!({"inner": {"t": "hot", "n": 1.5, "k": 3}});
        let fields = Fields::root(value.as_object().unwrap()).object("inner").unwrap().unwrap();
        assert_eq!(
            message(fields.number("t", 0.0..=2.0, "between 0 and 2")),
            "`inner.t` must be a number, not a string"
        );
        assert_eq!(
            message(fields.integer("n", 0..=2, "between 0 and 2")),
            "`inner.n` must be an integer, not a fraction"
        );
        assert_eq!(
            message(fields.integer("k", 0..=2, "between 0 and 2")),
            "`inner.k` must be between 0 and 2, but it is 3"
        );
    }

    #[test]
    fn both_ends_of_64_bits_are_integers() {
        assert_eq!(as_integer(&json!(u64::MAX)), Some(u64::MAX.into()));
        assert_eq!(as_integer(&json!(i64::MIN)), Some(i64::MIN.into()));
        assert_eq!(as_integer(&json!(1.0)), None);
    }

    #[test]
    fn integers_of_more_than_64_bits_are_out_of_range() {
        let value: Value = serde_json::from_str(r#"{"n": 18446744073709551616}"#).unwrap();
        let fields = Fields::root(value.as_object().unwrap());
        let result = fields.integer("n", 0..=u64::MAX.into(), "a 64-bit integer");
        let message = message(result);
        assert!(
            message.starts_with("`n` must be a 64-bit integer, but it is 1.8446744073709552e"),
            "{message}"
        );
    }

    #[test]
    fn long_values_are_cut_in_messages() {
        let text = message::<()>(Err(out_of_range("x".into(), "short", &json!("é".repeat(500)))));
        assert!(text.chars().count() < 150, "{text}");
    }
}
