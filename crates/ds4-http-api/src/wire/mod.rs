//! JSON types by API dialect. Requests are read with [`Fields`](crate::fields::Fields), so that every error names its
//! parameter; responses are plain structs for serde.

pub(crate) mod openai;
