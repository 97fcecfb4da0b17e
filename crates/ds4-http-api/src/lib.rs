//! HTTP and SSE: the OpenAI dialect on top of the engine API
