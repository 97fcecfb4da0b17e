//! Softmax-routed mixture of experts with one expert that every token visits.

use ds4_array::Array;
use ds4_array::ops::{self, Weight};

use crate::experts::Experts;
use crate::{LayerError, Scope};

/// Sizes of a mixture of experts.
#[derive(Clone, Copy, Debug)]
pub struct MoeSizes {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Number of routed experts.
    pub experts: usize,
    /// Experts that each token visits.
    pub experts_per_token: usize,
    /// Inner width of a routed expert.
    pub inner: usize,
    /// Inner width of the shared expert.
    pub shared_inner: usize,
    /// Whether the chosen weights are scaled to a sum of 1.
    pub normalise: bool,
}

/// The block: router, routed experts, shared expert with its own gate.
pub struct SparseMoe {
    gate: Weight,
    experts: Experts,
    shared_gate_proj: Weight,
    shared_up_proj: Weight,
    shared_down_proj: Weight,
    shared_expert_gate: Weight,
    sizes: MoeSizes,
}

impl SparseMoe {
    /// Loads the tensors below `scope`.
    pub fn load(scope: &Scope<'_>, sizes: MoeSizes) -> Self {
        let MoeSizes { hidden, experts, inner, shared_inner, .. } = sizes;
        let shared = scope.at("shared_expert");
        Self {
            gate: scope.weight("gate", experts, hidden),
            experts: Experts::load(scope, experts, inner, hidden),
            shared_gate_proj: shared.weight("gate_proj", shared_inner, hidden),
            shared_up_proj: shared.weight("up_proj", shared_inner, hidden),
            shared_down_proj: shared.weight("down_proj", hidden, shared_inner),
            shared_expert_gate: scope.weight("shared_expert_gate", 1, hidden),
            sizes,
        }
    }

    /// The chosen experts of each token, best first ([L, K] u32), and their weights [L, K]. Probabilities are a softmax
    /// over all experts; among equal ones the lower expert wins.
    pub fn route(&self, x: &Array) -> Result<(Array, Array), LayerError> {
        self.choose(&ops::linear(x, &self.gate)?)
    }

    fn choose(&self, logits: &Array) -> Result<(Array, Array), LayerError> {
        let probabilities = ops::softmax(logits)?;
        let ids = ops::top_k(&probabilities, self.sizes.experts_per_token)?;
        let chosen = ops::take_along(&probabilities, &ids)?;
        if !self.sizes.normalise {
            return Ok((ids, chosen));
        }
        let total = ops::sum(&chosen)?;
        Ok((ids, ops::div(&chosen, &total)?))
    }

    /// `x` [L, H] through the block.
    pub fn forward(&self, x: &Array) -> Result<Array, LayerError> {
        let weights = [&self.gate, &self.shared_gate_proj, &self.shared_up_proj, &self.shared_expert_gate];
        let [logits, gate, up, shared_gate] = ops::linears(x, weights)?;
        let (ids, weights) = self.choose(&logits)?;
        let order = ops::sort_by_expert(&ids, self.sizes.experts)?;
        let routed = self.experts.forward(x, &order, &weights)?;
        let shared = ops::linear(&ops::swiglu(&gate, &up)?, &self.shared_down_proj)?;
        Ok(ops::add(&routed, &ops::mul(&shared, &ops::sigmoid(&shared_gate)?)?)?)
    }
}
