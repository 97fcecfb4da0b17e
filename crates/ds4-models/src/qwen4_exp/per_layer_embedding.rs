//! Per-layer embedding: hashed n-grams, gated into every residual stream, with a short dilated convolution.

use ds4_array::ops::{self, Weight};
use ds4_array::{Array, DType};
use ds4_layers::{LayerCache, LayerError, NGramEmbedding, RowTail, Scope, Segment, TokenTail, per_segment};

use super::config::Config;

pub(super) struct PerLayerEmbedding {
    ple_embedding: NGramEmbedding,
    key_proj: Weight,
    value_proj: Weight,
    norm_key: Array,
    norm_query: Array,
    norm_conv: Array,
    conv1d: Array,
    streams: usize,
    width: usize,
    conv_kernel: usize,
    norm_offset: f32,
    eps: f32,
}

impl PerLayerEmbedding {
    pub(super) fn load(scope: &Scope<'_>, config: &Config, index: usize, norm_offset: f32) -> Self {
        let wide = config.hc_count * config.hidden_size;
        let sizes = config.ngram(index);
        let embed_dim = sizes.embed_dim;
        let norm = |name: &str| scope.array(&format!("{name}.weight"), &[wide]);
        Self {
            ple_embedding: NGramEmbedding::load(&scope.at("ple_embedding"), sizes),
            key_proj: scope.weight("key_proj", wide, embed_dim),
            value_proj: scope.weight("value_proj", config.hidden_size, embed_dim),
            norm_key: norm("norm_key"),
            norm_query: norm("norm_query"),
            norm_conv: norm("norm_conv"),
            conv1d: scope.conv1d(&["conv1d.weight"], wide, config.ple_conv_kernel_size),
            streams: config.hc_count,
            width: config.hidden_size,
            conv_kernel: config.ple_conv_kernel_size,
            norm_offset,
            eps: config.rms_norm_eps,
        }
    }

    /// The convolution looks as many tokens apart as the largest n-gram is long.
    fn dilation(&self) -> usize {
        self.ple_embedding.sizes().ngram
    }

    pub(super) fn new_cache(&self) -> (RowTail, TokenTail) {
        let (stream, sizes) = (self.norm_key.stream(), self.ple_embedding.sizes());
        let rows = (self.conv_kernel - 1) * self.dilation();
        let conv = RowTail::new(stream, rows, self.streams * self.width);
        (conv, TokenTail::new(stream, sizes.context(), sizes.boundary))
    }

    /// The table rows of `tokens` of a sequence whose state is `cache`.
    pub(super) fn row_ids(&self, cache: &mut LayerCache, tokens: &[u32]) -> Option<Vec<u64>> {
        embedding_cache(cache).map(|(_, tail)| self.ple_embedding.row_ids(tail.ids(), tokens))
    }

    /// `x` [N, S * D] with the embedding of its tokens added.
    pub(super) fn forward(
        &self,
        x: &Array,
        segments: &[Segment],
        tokens: &[&[u32]],
        caches: &mut [&mut LayerCache],
    ) -> Result<Array, LayerError> {
        let embedded = per_segment(segments, |i, segment| match embedding_cache(caches[i]) {
            Some((_, tail)) => self.ple_embedding.forward(tail, tokens[i]),
            None => segment.rows_of(x),
        })?;
        let gated = self.gated(x, &embedded)?;
        let normed = self.norm(&gated, &self.norm_conv)?;
        for ((cache, segment), tokens) in caches.iter_mut().zip(segments).zip(tokens) {
            if let Some(cache) = cache.as_delta() {
                cache.record_embedding(&segment.rows_of(&normed)?, tokens);
            }
        }
        let tails = caches.iter_mut().filter_map(|cache| embedding_cache(cache)).map(|(conv, _)| conv);
        let convolved = RowTail::convolve(tails, &normed, segments, &self.conv1d, self.dilation())?;
        Ok(ops::add(&ops::add(x, &gated)?, &convolved)?)
    }

    /// The value of each token in every stream, as far as its key agrees with the stream: [N, S * D].
    fn gated(&self, x: &Array, embedded: &Array) -> Result<Array, LayerError> {
        let (tokens, streams, width) = (x.shape()[0], self.streams, self.width);
        let [key, value] = ops::linears(embedded, [&self.key_proj, &self.value_proj])?;
        let key = self.norm(&key, &self.norm_key)?;
        let query = self.norm(x, &self.norm_query)?;
        let products = ops::reshape(&ops::mul(&key, &query)?, [tokens, streams, width])?;
        let agreement = ops::scale(&ops::sum(&products)?, (width as f32).sqrt().recip())?;
        let gate = ops::sigmoid(&ops::signed_sqrt(&ops::reshape(&agreement, [tokens, streams])?)?)?;
        let nothing = ops::fill(x.stream(), [tokens, streams * width], DType::F32, 0.0);
        Ok(ops::stream_inject(&nothing, &value, &gate)?)
    }

    fn norm(&self, x: &Array, weight: &Array) -> Result<Array, LayerError> {
        Ok(ops::rms_norm(x, Some(weight), self.norm_offset, self.width, self.eps)?)
    }
}

fn embedding_cache(cache: &mut LayerCache) -> Option<&mut (RowTail, TokenTail)> {
    cache.as_delta()?.embedding.as_mut()
}
