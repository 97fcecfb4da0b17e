//! `GET /v1/models` and `GET /v1/models/{id}`. The list has the one model that is served; the second route knows it by
//! all names that requests may use. An id may have slashes in it.

use axum::Json;
use axum::extract::State;

use super::name::Name;
use crate::error::ApiError;
use crate::state::ApiState;
use crate::wire::openai::models::{Model, ModelList};

pub(super) async fn list(State(state): State<ApiState>) -> Json<ModelList> {
    Json(ModelList { object: "list", data: vec![model(&state)] })
}

pub(super) async fn retrieve(State(state): State<ApiState>, Name(id): Name) -> Result<Json<Model>, ApiError> {
    state.check_model(Some(&id))?;
    Ok(Json(model(&state)))
}

fn model(state: &ApiState) -> Model {
    let info = state.engine().model();
    Model {
        id: state.model_id().to_owned(),
        object: "model",
        created: info.loaded_at,
        owned_by: "ds4server",
        context_length: info.context,
    }
}
