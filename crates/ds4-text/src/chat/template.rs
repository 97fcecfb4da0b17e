//! The checkpoint's own chat template, run as transformers runs it: the same whitespace rules, filters and functions.
//! What it is given is decided elsewhere.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Kwargs;
use minijinja::{Environment, Error, ErrorKind, Value};
use minijinja_contrib::pycompat;

use super::python_json::{JsonStyle, to_python_json};
use super::strftime::strftime_now;
use crate::TextError;

const NAME: &str = "chat_template";

/// A parsed chat template.
pub(crate) struct ChatTemplate {
    environment: Environment<'static>,
}

impl ChatTemplate {
    /// Parses a Jinja template.
    pub(crate) fn parse(source: &str) -> Result<Self, TextError> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()
            .map_err(|error| syntax_error(&error))?;
        environment.set_syntax(syntax);
        environment.set_unknown_method_callback(pycompat::unknown_method_callback);
        environment.add_filter("tojson", tojson);
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", strftime_now);
        environment.add_template_owned(NAME, source.to_string()).map_err(|error| syntax_error(&error))?;
        Ok(Self { environment })
    }

    /// Runs the template over `context`, a map of its variables.
    pub(crate) fn render(&self, context: Value) -> Result<String, TextError> {
        self.environment
            .get_template(NAME)
            .and_then(|template| template.render(context))
            .map_err(|error| run_error(&error))
    }
}

fn syntax_error(error: &Error) -> TextError {
    TextError::TemplateSyntax { line: error.line(), message: describe(error) }
}

fn run_error(error: &Error) -> TextError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = cause {
        if let Some(Raised(message)) = current.downcast_ref() {
            return TextError::TemplateRaised { message: message.clone() };
        }
        cause = current.source();
    }
    TextError::TemplateFailed { line: error.line(), message: describe(error) }
}

fn describe(error: &Error) -> String {
    match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    }
}

/// What a template said through `raise_exception`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, "raise_exception").with_source(Raised(message)))
}

/// The `tojson` of transformers, which is Python's `json.dumps` without ASCII escapes: no HTML escapes, keys in the
/// order they came in.
fn tojson(value: &Value, indent: Option<usize>, options: Kwargs) -> Result<String, Error> {
    let style = JsonStyle {
        indent: indent.or(options.get("indent")?),
        separators: options.get::<Option<Value>>("separators")?.as_ref().map(separators).transpose()?,
        sort_keys: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
    };
    if options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false) {
        // Escapes would reach into the characters that stand for a client's markup, and no known template asks.
        return Err(Error::new(ErrorKind::InvalidOperation, "tojson does not support ensure_ascii=true"));
    }
    options.assert_all_used()?;
    to_python_json(value, &style)
}

/// The pair of texts that Python takes: between items, and between key and value.
fn separators(pair: &Value) -> Result<(String, String), Error> {
    let texts: Vec<String> = pair.try_iter()?.map(|text| text.to_string()).collect();
    match texts.as_slice() {
        [item, key] => Ok((item.clone(), key.clone())),
        _ => Err(Error::new(ErrorKind::InvalidOperation, "tojson: separators must be two texts")),
    }
}

#[cfg(test)]
mod tests {
    use minijinja::context;

    use super::*;

    fn render(source: &str, context: Value) -> Result<String, TextError> {
        ChatTemplate::parse(source)?.render(context)
    }

    #[test]
    fn blocks_leave_no_whitespace_and_loops_can_break() {
        let source =
            "{% for n in [1, 2, 3] %}\n    {% if n == 3 %}{% break %}{% endif %}\n{{ n }}\n{% endfor %}\n";
        assert_eq!(render(source, context! {}).unwrap(), "1\n2\n");
    }

    #[test]
    fn python_methods_and_namespaces_work() {
        let source = "{%- set ns = namespace(x='') -%}{%- for k, v in d.items() -%}{%- set ns.x = ns.x + k.upper() + v.strip('\\n') -%}\
                      {%- endfor -%}{{ ns.x.split('B')[-1].startswith('2') }}{{ d['q'] is defined }}{{ none }}";
        assert_eq!(
            render(source, context! { d => context! { a => "\n1", b => "2" } }).unwrap(),
            "TrueFalseNone"
        );
    }

    #[test]
    fn a_raised_exception_keeps_its_message() {
        let error = render("a\n{{ raise_exception('roles must ' ~ 'alternate') }}", context! {}).unwrap_err();
        assert!(matches!(error, TextError::TemplateRaised { message } if message == "roles must alternate"));
    }

    #[test]
    fn errors_name_the_line() {
        let syntax = render("a\n\n{% if %}", context! {}).unwrap_err();
        assert!(matches!(syntax, TextError::TemplateSyntax { line: Some(3), .. }), "{syntax:?}");
        let run = render("a\n{{ nothing.at.all }}", context! {}).unwrap_err();
        assert!(matches!(run, TextError::TemplateFailed { line: Some(2), .. }), "{run:?}");
    }

    #[test]
    fn the_date_comes_from_the_clock() {
        let year: u32 = render("{{ strftime_now('%Y') }}", context! {}).unwrap().parse().unwrap();
        assert!(year >= 2025);
        let error = render("{{ strftime_now('%') }}", context! {}).unwrap_err();
        assert!(matches!(error, TextError::TemplateFailed { line: Some(1), .. }), "{error:?}");
    }
}
