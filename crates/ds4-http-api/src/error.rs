//! Everything that can go wrong with a request, and [`ApiError::report`], the one place that decides the HTTP status
//! and the `type`, `code` and `param` of OpenAI's error object.

use axum::Json;
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use ds4_engine_api::EngineError;
use ds4_text::{CompactionError, TextError};
use serde::Serialize;

/// A request that is refused, or that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApiError {
    /// A key is needed and none came.
    #[error("no API key was given; send it as `Authorization: Bearer KEY`")]
    MissingApiKey,
    /// The key is not the configured one.
    #[error("the API key is not the one that this server expects")]
    WrongApiKey,
    /// No such path.
    #[error("there is no `{path}` here")]
    UnknownPath {
        /// Path of the request.
        path: String,
    },
    /// The path is there, the method is not.
    #[error("`{path}` does not take {method}")]
    MethodNotAllowed {
        /// Method of the request.
        method: String,
        /// Path of the request.
        path: String,
    },
    /// The body is larger than the server takes.
    #[error(
        "the request's body is larger than the {limit} bytes that this server takes; shorten the conversation, or start the \
         server with a larger `--max-body`"
    )]
    BodyTooLarge {
        /// Bytes that are taken.
        limit: usize,
    },
    /// The connection broke, or the transfer encoding is wrong.
    #[error("the request's body could not be read to its end")]
    BodyUnreadable,
    /// The body is not JSON.
    #[error("the request's body is not valid JSON: {reason} (line {line}, column {column})")]
    InvalidJson {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What the parser expected.
        reason: String,
    },
    /// A parameter is wrong.
    #[error(transparent)]
    Parameter(#[from] ParameterError),
    /// The request names a model that is not served.
    #[error("the model `{model}` does not exist here; this server has `{served}`")]
    ModelNotFound {
        /// The model that was asked for.
        model: String,
        /// The model that is there.
        served: String,
    },
    /// No session of this name is kept.
    #[error("there is no session `{id}`; GET /v1/sessions lists those that are kept")]
    SessionNotFound {
        /// The name.
        id: String,
    },
    /// The text of a session is not known, as it is after a restart.
    #[error("what was said in the session `{id}` is not known here any more; send it as `messages`")]
    ConversationUnknown {
        /// The name.
        id: String,
    },
    /// A session was not made shorter, and is what it was.
    #[error(transparent)]
    Compaction(#[from] CompactionError),
    /// The prompt could not be made.
    #[error("{error}")]
    Text {
        /// What is wrong with it.
        error: TextError,
        /// The parameter that the prompt was made of: `messages` or `prompt`.
        input: &'static str,
    },
    /// The engine refused the request, or failed.
    #[error("{error}")]
    Engine {
        /// What the engine says.
        error: EngineError,
        /// The parameter that the prompt was made of: `messages` or `prompt`.
        input: &'static str,
    },
    /// The engine's thread is gone.
    #[error("the engine has stopped ({reason}); restart the server")]
    EngineStopped {
        /// What the engine says.
        reason: String,
    },
    /// A shutdown was asked for, and there is no time left for the request.
    #[error("the server is shutting down")]
    ShuttingDown,
    /// The code that prepares requests panicked.
    #[error("the server failed to prepare the request; this is a defect of the server")]
    Panicked,
}

/// A parameter that is wrong. `param` is its full name, for example `messages[2].content`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ParameterError {
    /// The body is JSON, but no object.
    #[error("the request's body must be a JSON object, not {found}")]
    NotAnObject {
        /// Type that came.
        found: &'static str,
    },
    /// It has to be there.
    #[error("`{param}` is missing; it must be {expected}")]
    Missing {
        /// Name.
        param: String,
        /// What it must be.
        expected: &'static str,
    },
    /// It has another type.
    #[error("`{param}` must be {expected}, not {found}")]
    WrongType {
        /// Name.
        param: String,
        /// What it must be.
        expected: &'static str,
        /// Type that came.
        found: &'static str,
    },
    /// The type is right, the value is not.
    #[error("`{param}` must be {expected}, but it is {found}")]
    OutOfRange {
        /// Name.
        param: String,
        /// What it must be.
        expected: &'static str,
        /// The value as JSON, shortened.
        found: String,
    },
    /// It asks for something that this server does not do. Dropping it would change the answer in silence.
    #[error("`{param}` is not supported with this value; {accepted}")]
    NotSupported {
        /// Name.
        param: String,
        /// What is accepted instead.
        accepted: &'static str,
    },
}

/// Of conversations, as most texts are.
impl From<TextError> for ApiError {
    fn from(error: TextError) -> Self {
        Self::Text { error, input: "messages" }
    }
}

/// OpenAI's error object with its status.
#[derive(Debug, Serialize)]
pub(crate) struct ErrorReport {
    #[serde(skip)]
    pub(crate) status: StatusCode,
    pub(crate) message: String,
    pub(crate) r#type: &'static str,
    pub(crate) param: Option<String>,
    pub(crate) code: Option<&'static str>,
}

/// `{"error": {...}}`, as a response's body and as an event of a stream.
#[derive(Debug, Serialize)]
pub(crate) struct ErrorBody {
    pub(crate) error: ErrorReport,
}

impl ApiError {
    /// Status and fields of the error. Nothing else in the crate chooses a status.
    pub(crate) fn report(&self) -> ErrorReport {
        let (status, code, param) = match self {
            Self::MissingApiKey | Self::WrongApiKey => (StatusCode::UNAUTHORIZED, "invalid_api_key", None),
            Self::UnknownPath { .. } => (StatusCode::NOT_FOUND, "unknown_url", None),
            Self::MethodNotAllowed { .. } => (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", None),
            Self::BodyTooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", None),
            Self::BodyUnreadable => (StatusCode::BAD_REQUEST, "unreadable_body", None),
            Self::InvalidJson { .. } => (StatusCode::BAD_REQUEST, "invalid_json", None),
            Self::Parameter(error) => (StatusCode::BAD_REQUEST, error.code(), error.param()),
            Self::ModelNotFound { .. } => (StatusCode::NOT_FOUND, "model_not_found", Some("model")),
            Self::SessionNotFound { .. } => (StatusCode::NOT_FOUND, "session_not_found", Some("id")),
            Self::ConversationUnknown { .. } => {
                (StatusCode::CONFLICT, "conversation_unknown", Some("messages"))
            }
            Self::Compaction(error) => compaction_error(*error),
            Self::Text { error, input } => text_error(error, input),
            Self::Engine { error, input } => engine_error(error, input),
            Self::EngineStopped { .. } => (StatusCode::SERVICE_UNAVAILABLE, "engine_stopped", None),
            Self::ShuttingDown => (StatusCode::SERVICE_UNAVAILABLE, "shutting_down", None),
            Self::Panicked => (StatusCode::INTERNAL_SERVER_ERROR, "internal_error", None),
        };
        ErrorReport {
            status,
            message: self.to_string(),
            r#type: error_type(status),
            param: param.map(str::to_owned),
            code: Some(code),
        }
    }
}

/// OpenAI's coarse classes follow from the status.
fn error_type(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        status if status.is_server_error() => "server_error",
        _ => "invalid_request_error",
    }
}

fn engine_error(
    error: &EngineError,
    input: &'static str,
) -> (StatusCode, &'static str, Option<&'static str>) {
    match error {
        EngineError::EmptyPrompt => (StatusCode::BAD_REQUEST, "empty_prompt", Some(input)),
        EngineError::ContextLengthExceeded { .. } => {
            (StatusCode::BAD_REQUEST, "context_length_exceeded", Some(input))
        }
        EngineError::TokenOutOfRange { .. } => (StatusCode::BAD_REQUEST, "invalid_value", Some(input)),
        EngineError::QueueFull { .. } => (StatusCode::TOO_MANY_REQUESTS, "queue_full", None),
        EngineError::NonFiniteLogits { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "non_finite_logits", None),
        EngineError::SessionNotRemoved { .. } => {
            (StatusCode::INTERNAL_SERVER_ERROR, "session_not_removed", Some(input))
        }
        EngineError::Panicked { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "internal_error", None),
        EngineError::Stopped => (StatusCode::SERVICE_UNAVAILABLE, "engine_stopped", None),
        // The model's own failures, and variants that later versions of the engine add.
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "model_failed", None),
    }
}

fn compaction_error(error: CompactionError) -> (StatusCode, &'static str, Option<&'static str>) {
    match error {
        CompactionError::NothingToCompact => {
            (StatusCode::BAD_REQUEST, "nothing_to_compact", Some("messages"))
        }
        // The model's doing, and variants that may come: the same request may succeed another time.
        _ => (StatusCode::UNPROCESSABLE_ENTITY, "no_summary", None),
    }
}

fn text_error(error: &TextError, input: &'static str) -> (StatusCode, &'static str, Option<&'static str>) {
    let bad_request = |code, param| (StatusCode::BAD_REQUEST, code, Some(param));
    match error {
        TextError::UnknownThinkingLevel { .. } => bad_request("invalid_value", "reasoning_effort"),
        TextError::ReservedTemplateArgument { .. } => bad_request("invalid_value", "chat_template_kwargs"),
        TextError::UnsupportedRole { .. } | TextError::NoFreePlaceholder => {
            bad_request("invalid_value", input)
        }
        TextError::PromptTooLarge { .. } | TextError::TooManyParts { .. } => {
            bad_request("context_length_exceeded", input)
        }
        TextError::NoChatTemplate { .. } => bad_request("no_chat_template", input),
        // The template was parsed when the model was loaded: it is this conversation that it cannot render.
        TextError::TemplateRaised { .. } | TextError::TemplateFailed { .. } => {
            bad_request("template_error", input)
        }
        // The rest concerns the checkpoint's files.
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "text_model_failed", None),
    }
}

impl ParameterError {
    fn code(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "missing_required_parameter",
            Self::NotAnObject { .. } | Self::WrongType { .. } => "invalid_type",
            Self::OutOfRange { .. } => "invalid_value",
            Self::NotSupported { .. } => "unsupported_parameter",
        }
    }

    fn param(&self) -> Option<&str> {
        match self {
            Self::NotAnObject { .. } => None,
            Self::Missing { param, .. }
            | Self::WrongType { param, .. }
            | Self::OutOfRange { param, .. }
            | Self::NotSupported { param, .. } => Some(param),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let error = self.report();
        let status = error.status;
        if matches!(self, Self::ShuttingDown) {
            tracing::info!("a request was ended by the shutdown");
        } else if status.is_server_error() {
            tracing::error!(code = error.code, message = error.message, "request failed");
        } else {
            tracing::debug!(code = error.code, message = error.message, "request refused");
        }
        let mut response = (status, Json(ErrorBody { error })).into_response();
        if status == StatusCode::TOO_MANY_REQUESTS {
            // The shortest that the header can say: places become free as answers end.
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
