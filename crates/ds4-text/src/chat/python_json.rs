//! JSON as Python's `json.dumps(..., ensure_ascii=False)` writes it, because models were trained on that text.

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};

/// The options of `json.dumps` that templates use.
#[derive(Default)]
pub(crate) struct JsonStyle {
    /// One item a line, indented by this many spaces a level.
    pub(crate) indent: Option<usize>,
    /// Between items, and between key and value. Python's default is `", "` and `": "`, with an indent `","`.
    pub(crate) separators: Option<(String, String)>,
    pub(crate) sort_keys: bool,
}

pub(crate) fn to_python_json(value: &Value, style: &JsonStyle) -> Result<String, Error> {
    let (item, key) = match &style.separators {
        Some((item, key)) => (item.as_str(), key.as_str()),
        None if style.indent.is_some() => (",", ": "),
        None => (", ", ": "),
    };
    let mut writer = Writer { out: String::new(), item, key, style };
    writer.value(value, 0)?;
    Ok(writer.out)
}

struct Writer<'a> {
    out: String,
    item: &'a str,
    key: &'a str,
    style: &'a JsonStyle,
}

impl Writer<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.number(value)?,
            ValueKind::String => self.string(value.as_str().unwrap_or_default())?,
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.list('[', ']', &items, depth, |writer, item| writer.value(item, depth + 1))?;
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.style.sort_keys {
                    keys.sort();
                }
                self.list('{', '}', &keys, depth, |writer, key| {
                    writer.string(&key.to_string())?;
                    writer.out.push_str(writer.key);
                    writer.value(&value.get_item(key)?, depth + 1)
                })?;
            }
            kind => {
                let message = format!("tojson: a value of type {kind} has no JSON form");
                return Err(Error::new(ErrorKind::InvalidOperation, message));
            }
        }
        Ok(())
    }

    fn list(
        &mut self,
        open: char,
        close: char,
        items: &[Value],
        depth: usize,
        write: impl Fn(&mut Self, &Value) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.out.push(open);
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                self.out.push_str(self.item);
            }
            self.line(depth + 1);
            write(self, item)?;
        }
        if !items.is_empty() {
            self.line(depth);
        }
        self.out.push(close);
        Ok(())
    }

    fn line(&mut self, depth: usize) {
        if let Some(indent) = self.style.indent {
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(' ', indent * depth));
        }
    }

    fn string(&mut self, text: &str) -> Result<(), Error> {
        // JSON libraries agree on this one: the two-letter escapes, \u00xx for other controls, the rest as it is.
        let quoted = serde_json::to_string(text)
            .map_err(|error| Error::new(ErrorKind::InvalidOperation, "tojson").with_source(error))?;
        self.out.push_str(&quoted);
        Ok(())
    }

    fn number(&mut self, value: &Value) -> Result<(), Error> {
        if value.is_integer() {
            self.out.push_str(&value.to_string());
        } else {
            self.out.push_str(&python_float(f64::try_from(value.clone())?));
        }
        Ok(())
    }
}

/// `repr(float)`: the shortest digits that read back, with an exponent below 1e-4 and from 1e16 on.
fn python_float(number: f64) -> String {
    if !number.is_finite() {
        let name = if number.is_nan() { "NaN" } else { "Infinity" };
        return if number == f64::NEG_INFINITY { format!("-{name}") } else { name.to_string() };
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>() {
        Ok(exponent) if number != 0.0 && !(-4..16).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        _ => format!("{number:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(source: &str) -> Value {
        let mut environment = minijinja::Environment::new();
        environment.add_filter("id", |value: Value| value);
        environment.compile_expression_owned(source.to_string()).unwrap().eval(()).unwrap()
    }

    #[test]
    fn separators_escapes_and_key_order_are_those_of_python() {
        let value = json(r#"{"b": [1, -2.5, true, none], "a": "<é \"\n\u0007>", "c": {}, "d": []}"#);
        assert_eq!(
            to_python_json(&value, &JsonStyle::default()).unwrap(),
            r#"{"b": [1, -2.5, true, null], "a": "<é \"\n\u0007>", "c": {}, "d": []}"#
        );
    }

    #[test]
    fn indent_sorting_and_separators_are_options() {
        let value = json(r#"{"b": [1, 2], "a": {}}"#);
        let indented = JsonStyle { indent: Some(2), sort_keys: true, separators: None };
        assert_eq!(
            to_python_json(&value, &indented).unwrap(),
            "{\n  \"a\": {},\n  \"b\": [\n    1,\n    2\n  ]\n}"
        );
        let compact = JsonStyle { separators: Some((",".into(), ":".into())), ..JsonStyle::default() };
        assert_eq!(to_python_json(&value, &compact).unwrap(), r#"{"b":[1,2],"a":{}}"#);
    }

    #[test]
    fn floats_read_as_python_writes_them() {
        let expected = [
            (1.0, "1.0"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (-0.0, "-0.0"),
            (0.1, "0.1"),
        ];
        for (number, text) in expected {
            assert_eq!(python_float(number), text);
        }
    }
}
