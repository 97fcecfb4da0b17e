//! Mixture of experts whose router scores each expert by itself, with one expert that every token visits. Which
//! experts a token visits is decided by the best scores, or by a table of token ids.

use ds4_array::ops::{self, Weight};
use ds4_array::{Array, DType};

use crate::experts::Experts;
use crate::{LayerError, Scope};

/// What is added to the sum of weights before it divides them.
const SMALLEST_SUM: f32 = 1e-20;

/// Sizes and constants of the block.
#[derive(Clone, Copy, Debug)]
pub struct ScoredMoeSizes {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Number of routed experts.
    pub experts: usize,
    /// Experts that each token visits.
    pub experts_per_token: usize,
    /// Inner width of an expert, the shared one included.
    pub inner: usize,
    /// Factor of the weights after they were scaled to a sum of 1.
    pub scaling: f32,
    /// Bound of the gated activation's inputs.
    pub limit: f32,
}

/// What decides which experts a token visits.
enum Choice {
    /// The best of score + bias, [E].
    Best(Array),
    /// The row of the token's id, [V, K].
    Table(Vec<u32>),
}

/// The block: router, routed experts, shared expert.
pub struct ScoredMoe {
    gate: Weight,
    choice: Choice,
    experts: Experts,
    shared_gate_proj: Weight,
    shared_up_proj: Weight,
    shared_down_proj: Weight,
    sizes: ScoredMoeSizes,
}

impl ScoredMoe {
    /// Loads the tensors below `scope`; `table` of a vocabulary's size if a table of token ids chooses.
    pub fn load(scope: &Scope<'_>, sizes: ScoredMoeSizes, table: Option<usize>) -> Self {
        let ScoredMoeSizes { hidden, experts, inner, .. } = sizes;
        let gate = scope.at("gate");
        let choice = match table {
            Some(vocabulary) => {
                Choice::Table(gate.ids("tid2eid", &[vocabulary, sizes.experts_per_token], experts))
            }
            None => Choice::Best(gate.map_f32("e_score_correction_bias", &[experts], |x| x)),
        };
        let shared = scope.at("shared_experts");
        Self {
            gate: scope.weight("gate", experts, hidden),
            choice,
            experts: Experts::load(scope, experts, inner, hidden).clamped(sizes.limit),
            shared_gate_proj: shared.weight("gate_proj", inner, hidden),
            shared_up_proj: shared.weight("up_proj", inner, hidden),
            shared_down_proj: shared.weight("down_proj", hidden, inner),
            sizes,
        }
    }

    /// The chosen experts of each token ([L, K] u32) and their weights [L, K]. A score is sqrt(softplus(x * gate)); of
    /// equal ones the lower expert wins. The weights are scores without the bias.
    pub fn route(&self, x: &Array, tokens: &[u32]) -> Result<(Array, Array), LayerError> {
        let slots = self.sizes.experts_per_token;
        let scores = ops::sqrt(&ops::softplus(&ops::linear(x, &self.gate)?)?)?;
        let ids = match &self.choice {
            Choice::Best(bias) => ops::top_k(&ops::add(&scores, bias)?, slots)?,
            Choice::Table(table) => {
                let row = |token: &u32| &table[*token as usize * slots..(*token as usize + 1) * slots];
                let ids: Vec<u32> = tokens.iter().flat_map(row).copied().collect();
                Array::from_slice(x.stream(), &ids, &[tokens.len(), slots])?
            }
        };
        let chosen = ops::take_along(&scores, &ids)?;
        let smallest = ops::fill(x.stream(), [1], DType::F32, SMALLEST_SUM);
        let total = ops::add(&ops::sum(&chosen)?, &smallest)?;
        Ok((ids, ops::scale(&ops::div(&chosen, &total)?, self.sizes.scaling)?))
    }

    /// `x` [L, H] through the block; `tokens` are the ids of its rows.
    pub fn forward(&self, x: &Array, tokens: &[u32]) -> Result<Array, LayerError> {
        let (ids, weights) = self.route(x, tokens)?;
        let order = ops::sort_by_expert(&ids, self.sizes.experts)?;
        let routed = self.experts.forward(x, &order, &weights)?;
        let (gate, up) = (ops::linear(x, &self.shared_gate_proj)?, ops::linear(x, &self.shared_up_proj)?);
        let inner = ops::swiglu_clamped(&gate, &up, self.sizes.limit)?;
        Ok(ops::add(&routed, &ops::linear(&inner, &self.shared_down_proj)?)?)
    }
}
