//! Model files on disk: safetensors, mapped and indexed
