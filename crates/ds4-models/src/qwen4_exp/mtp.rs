//! The draft head (`mtp.*`): one attention layer over the fused streams of a token and the embedding of the next one.
//!
//! No public reference of the released head exists besides MTPLX's reading of its tensor shapes, which this follows: one
//! norm over the full width of the streams, one projection shared by them, the normed and projected embedding added to
//! each, a decoder layer of its own, a mixer of its own, and the model's own head on top.

use ds4_array::Array;
use ds4_array::ops::{self, Weight};
use ds4_layers::{GatedResidual, LayerCache, LayerError, Scope, Segment, SequenceCache};

use super::config::{Config, LayerType};
use super::{DecoderLayer, Model, Pass, attention_cache};
use crate::{DraftHead, ModelError};

pub(super) struct MtpWeights {
    pre_fc_norm_embedding: Array,
    pre_fc_norm_hidden: Array,
    fc_embedding: Weight,
    fc_hidden: Weight,
    layer: DecoderLayer,
    hyper_connection_mixer: GatedResidual,
}

impl MtpWeights {
    pub(super) fn load(scope: &Scope<'_>, config: &Config, norm_offset: f32) -> Self {
        let (width, wide) = (config.hidden_size, config.hc_count * config.hidden_size);
        let mixer = [config.hc_count, width, config.hc_lowrank];
        let mixer_scope = scope.at("hyper_connection_mixer");
        Self {
            pre_fc_norm_embedding: scope.array("pre_fc_norm_embedding.weight", &[width]),
            pre_fc_norm_hidden: scope.array("pre_fc_norm_hidden.weight", &[wide]),
            fc_embedding: scope.weight("fc_embedding", width, width),
            fc_hidden: scope.weight("fc_hidden", width, width),
            layer: DecoderLayer::load(&scope.at("layers.0"), config, LayerType::Attention, None, norm_offset),
            hyper_connection_mixer: GatedResidual::load(
                &mixer_scope,
                mixer,
                norm_offset,
                config.rms_norm_eps,
                false,
            ),
        }
    }

    /// The layer's input [L, S * D].
    fn fuse(&self, streams: &Array, embedded: &Array, count: usize, eps: f32) -> Result<Array, LayerError> {
        let (tokens, wide, width) = (streams.shape()[0], streams.shape()[1], embedded.shape()[1]);
        // These two norms are zero-centred in every layout: conversion to MLX leaves them as they are.
        let hidden = ops::rms_norm(streams, Some(&self.pre_fc_norm_hidden), 1.0, wide, eps)?;
        let hidden = ops::linear(&ops::reshape(&hidden, [tokens * count, width])?, &self.fc_hidden)?;
        let embedded = ops::rms_norm(embedded, Some(&self.pre_fc_norm_embedding), 1.0, width, eps)?;
        let embedded = ops::linear(&embedded, &self.fc_embedding)?;
        let tiled = ops::concatenate(&vec![&embedded; count], 1)?;
        Ok(ops::add(&ops::reshape(&hidden, [tokens, wide])?, &tiled)?)
    }
}

/// The head together with the parts of the model that it shares.
pub(super) struct Mtp<'a> {
    pub(super) model: &'a Model,
    pub(super) weights: &'a MtpWeights,
}

impl DraftHead for Mtp<'_> {
    fn new_cache(&self) -> SequenceCache {
        SequenceCache::new(vec![attention_cache(&self.model.config, &self.model.options)])
    }

    fn build(
        &self,
        streams: &Array,
        next_tokens: &[u32],
        cache: &mut SequenceCache,
    ) -> Result<Array, ModelError> {
        let Model { config, options, embed_tokens, rope, .. } = self.model;
        let (rows, first_position) = (next_tokens.len(), cache.tokens());
        let ids = Array::from_slice(&options.stream, next_tokens, &[rows])?;
        let embedded = ops::gather_rows(embed_tokens, &ids)?;
        let x = self.weights.fuse(streams, &embedded, config.hc_count, config.rms_norm_eps)?;
        let angles = rope.rows(first_position..first_position + rows)?;
        let segments = [Segment { first_row: 0, rows, first_position }];
        let pass = Pass { segments: &segments, tokens: &[next_tokens], rope, angles: &angles, watch: None };
        let mut layer: Vec<&mut LayerCache> = cache.layers.iter_mut().collect();
        let out = self.weights.layer.forward(&x, &pass, &mut layer)?;
        cache.advance(rows);
        Ok(out)
    }

    fn logits(&self, streams: &Array) -> Result<Array, ModelError> {
        let mixed = self.weights.hyper_connection_mixer.read(streams)?.input;
        Ok(ops::linear(&mixed, &self.model.lm_head)?)
    }
}
