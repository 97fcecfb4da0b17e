//! Two kinds of rotary positions: plain ones in layers that only slide, and ones for long contexts in layers that compress.

use ds4_array::Stream;
use ds4_layers::{Rope, Yarn};
use serde::Deserialize;

use crate::ModelError;
use crate::config_checks::require;

/// The rope fields of `config.json`, in any of the forms that checkpoints have.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct RopeSettings {
    #[serde(default = "rope_theta")]
    rope_theta: f32,
    #[serde(default = "compress_rope_theta")]
    compress_rope_theta: f32,
    #[serde(default)]
    qk_rope_head_dim: Option<usize>,
    #[serde(default)]
    partial_rotary_factor: Option<f64>,
    /// `{main, compress}`, or the scaling of the compressed kind.
    #[serde(default)]
    rope_parameters: Option<Parameters>,
    /// The older name of it.
    #[serde(default)]
    rope_scaling: Option<Parameters>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Parameters {
    #[serde(default)]
    rope_type: Option<String>,
    /// The older name of `rope_type`; some files have both.
    #[serde(default, rename = "type")]
    older_type: Option<String>,
    #[serde(default)]
    rope_theta: Option<f32>,
    #[serde(default)]
    partial_rotary_factor: Option<f64>,
    #[serde(default)]
    factor: Option<f32>,
    #[serde(default)]
    original_max_position_embeddings: Option<usize>,
    #[serde(default)]
    beta_fast: Option<f64>,
    #[serde(default)]
    beta_slow: Option<f64>,
    #[serde(default)]
    attention_factor: Option<f32>,
    #[serde(default)]
    main: Option<Box<Parameters>>,
    #[serde(default)]
    compress: Option<Box<Parameters>>,
}

fn rope_theta() -> f32 {
    10_000.0
}
fn compress_rope_theta() -> f32 {
    160_000.0
}

/// The family's share of a head that is rotated, where nothing is said.
const ROTATED_SHARE: f64 = 64.0 / 512.0;

impl RopeSettings {
    fn main(&self) -> Parameters {
        let nested = self.rope_parameters.as_ref().and_then(|all| all.main.as_deref()).cloned();
        nested.unwrap_or_default()
    }

    fn compress(&self) -> Parameters {
        let all = self.rope_parameters.as_ref().or(self.rope_scaling.as_ref());
        let Some(all) = all else { return Parameters::default() };
        match &all.compress {
            Some(nested) => (**nested).clone(),
            // A flat theta is that of the plain kind.
            None => Parameters { rope_theta: None, main: None, ..all.clone() },
        }
    }

    /// Rotated elements of a head of `head_dim`.
    pub(super) fn rotated(&self, head_dim: usize) -> usize {
        let given = self.main().partial_rotary_factor.or(self.partial_rotary_factor);
        match (given, self.qk_rope_head_dim) {
            (Some(share), _) => (head_dim as f64 * share) as usize,
            (None, Some(dims)) => dims,
            (None, None) => (head_dim as f64 * ROTATED_SHARE) as usize,
        }
    }

    /// Angles of layers that only slide, and of layers that compress.
    pub(super) fn ropes(&self, stream: &Stream, head_dim: usize) -> (Rope, Rope) {
        let (main, compress) = (self.main(), self.compress());
        let dims = self.rotated(head_dim);
        let theta = compress.rope_theta.unwrap_or(self.compress_rope_theta);
        let plain = Rope::new(stream, main.rope_theta.unwrap_or(self.rope_theta), dims);
        let long = match compress.yarn() {
            Some(yarn) => Rope::yarn(stream, theta, dims, &yarn),
            None => Rope::new(stream, theta, dims),
        };
        (plain, long)
    }

    pub(super) fn validate(&self, head_dim: usize) -> Result<(), ModelError> {
        let dims = self.rotated(head_dim);
        let fits = dims > 0 && dims.is_multiple_of(2) && dims <= head_dim;
        require(fits, "partial_rotary_factor", format!("an even share of {head_dim}"), dims)?;
        let (main, compress) = (self.main(), self.compress());
        let (kind, long) = (main.kind(), compress.kind());
        require(kind == "default", "rope_parameters.main.rope_type", "default", kind)?;
        require(
            matches!(long, "default" | "yarn"),
            "rope_parameters.compress.rope_type",
            "default or yarn",
            long,
        )?;
        let complete = long != "yarn"
            || (compress.factor.is_some() && compress.original_max_position_embeddings.is_some());
        let expected = "with factor and original_max_position_embeddings";
        require(complete, "rope_parameters.compress", expected, "without one of them")?;
        let factor = compress.attention_factor.unwrap_or(1.0);
        require(factor == 1.0, "rope_parameters.compress.attention_factor", "1", factor)
    }
}

impl Parameters {
    fn kind(&self) -> &str {
        self.rope_type.as_deref().or(self.older_type.as_deref()).unwrap_or("default")
    }

    fn yarn(&self) -> Option<Yarn> {
        (self.kind() == "yarn").then_some(Yarn {
            factor: self.factor?,
            original_context: self.original_max_position_embeddings?,
            beta_fast: self.beta_fast.unwrap_or(32.0),
            beta_slow: self.beta_slow.unwrap_or(1.0),
        })
    }
}
