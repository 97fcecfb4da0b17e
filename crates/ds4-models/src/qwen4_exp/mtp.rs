//! The draft head (`mtp.*`): one attention layer that predicts the token after the next.
//!
//! Loaded and kept with the model, so that a checkpoint is complete; drafting with it is the speculative decoder's
//! business.

use ds4_array::Array;
use ds4_array::ops::Weight;
use ds4_layers::{GatedResidual, Scope};

use super::DecoderLayer;
use super::config::{Config, LayerType};

pub(super) struct DraftHead {
    _pre_fc_norm_embedding: Array,
    _pre_fc_norm_hidden: Array,
    _fc_embedding: Weight,
    _fc_hidden: Weight,
    _layer: DecoderLayer,
    _hyper_connection_mixer: GatedResidual,
}

impl DraftHead {
    pub(super) fn load(scope: &Scope<'_>, config: &Config, norm_offset: f32) -> Self {
        let (width, wide) = (config.hidden_size, config.hc_count * config.hidden_size);
        let mixer = [config.hc_count, width, config.hc_lowrank];
        Self {
            _pre_fc_norm_embedding: scope.array("pre_fc_norm_embedding.weight", &[width]),
            _pre_fc_norm_hidden: scope.array("pre_fc_norm_hidden.weight", &[wide]),
            _fc_embedding: scope.weight("fc_embedding", width, width),
            _fc_hidden: scope.weight("fc_hidden", width, width),
            _layer: DecoderLayer::load(&scope.at("layers.0"), config, LayerType::Attention, None, norm_offset),
            _hyper_connection_mixer: GatedResidual::load(
                &scope.at("hyper_connection_mixer"),
                mixer,
                norm_offset,
                config.rms_norm_eps,
                false,
            ),
        }
    }
}
