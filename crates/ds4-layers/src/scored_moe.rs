//! Mixture of experts whose router scores each expert by itself, with one expert that every token visits. Which
//! experts a token visits is decided by the best scores, or by a table of token ids.

use ds4_array::ops::{self, Weight};
use ds4_array::{Array, DType};

use crate::experts::Experts;
use crate::{GatedMlp, LayerError, Scope};

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
    /// Inner width of a routed expert.
    pub inner: usize,
    /// Inner width of the shared expert.
    pub shared_inner: usize,
    /// How scores become a choice and weights.
    pub routing: Routing,
    /// Factor of the weights.
    pub scaling: f32,
    /// Bound of the gated activation's inputs.
    pub limit: f32,
}

/// What becomes of a router's logit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouterScore {
    /// 1 / (1 + e^-x).
    Sigmoid,
    /// The root of ln(1 + e^x).
    SqrtSoftplus,
}

/// How the scores of experts become a choice and weights.
#[derive(Clone, Copy, Debug)]
pub struct Routing {
    /// What a score is.
    pub score: RouterScore,
    /// Groups of neighbouring experts; a group counts as much as its two best experts together.
    pub groups: usize,
    /// Groups that the experts of a token may come from.
    pub groups_per_token: usize,
    /// Whether the weights are scaled to a sum of 1 before [`scaling`](ScoredMoeSizes::scaling).
    pub normalise: bool,
}

impl Routing {
    /// Every expert can be chosen, and the weights are scaled to a sum of 1.
    pub fn plain(score: RouterScore) -> Self {
        Self { score, groups: 1, groups_per_token: 1, normalise: true }
    }
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
    shared: GatedMlp,
    sizes: ScoredMoeSizes,
}

impl ScoredMoe {
    /// Loads the tensors below `scope`; `table` of a vocabulary's size if a table of token ids chooses.
    pub fn load(scope: &Scope<'_>, sizes: ScoredMoeSizes, table: Option<usize>) -> Self {
        let ScoredMoeSizes { hidden, experts, inner, shared_inner, limit, .. } = sizes;
        let gate = scope.at("gate");
        let choice = match table {
            Some(vocabulary) => {
                Choice::Table(gate.ids("tid2eid", &[vocabulary, sizes.experts_per_token], experts))
            }
            None => Choice::Best(gate.map_f32("e_score_correction_bias", &[experts], |x| x)),
        };
        Self {
            gate: scope.weight("gate", experts, hidden),
            choice,
            experts: Experts::load(scope, experts, inner, hidden).clamped(limit),
            shared: GatedMlp::load(&scope.at("shared_experts"), hidden, shared_inner, Some(limit)),
            sizes,
        }
    }

    /// The chosen experts of each token ([L, K] u32), best first if scores choose, and their weights [L, K]. Of equal
    /// scores the lower expert wins. The weights are scores without the bias.
    pub fn route(&self, x: &Array, tokens: &[u32]) -> Result<(Array, Array), LayerError> {
        let slots = self.sizes.experts_per_token;
        let logits = ops::linear(x, &self.gate)?;
        let Routing { score, groups, groups_per_token, normalise } = self.sizes.routing;
        let scores = match score {
            RouterScore::Sigmoid => ops::sigmoid(&logits)?,
            RouterScore::SqrtSoftplus => ops::sqrt(&ops::softplus(&logits)?)?,
        };
        let ids = match &self.choice {
            Choice::Best(bias) => {
                let biased = ops::add(&scores, bias)?;
                let limited = groups_per_token < groups;
                let eligible =
                    if limited { ops::keep_best_groups(&biased, groups, groups_per_token)? } else { biased };
                ops::top_k(&eligible, slots)?
            }
            Choice::Table(table) => {
                let row = |token: &u32| &table[*token as usize * slots..(*token as usize + 1) * slots];
                let ids: Vec<u32> = tokens.iter().flat_map(row).copied().collect();
                Array::from_slice(x.stream(), &ids, &[tokens.len(), slots])?
            }
        };
        let chosen = ops::take_along(&scores, &ids)?;
        if !normalise {
            return Ok((ids, ops::scale(&chosen, self.sizes.scaling)?));
        }
        let smallest = ops::fill(x.stream(), [1], DType::F32, SMALLEST_SUM);
        let total = ops::add(&ops::sum(&chosen)?, &smallest)?;
        Ok((ids, ops::scale(&ops::div(&chosen, &total)?, self.sizes.scaling)?))
    }

    /// `x` [L, H] through the block; `tokens` are the ids of its rows.
    pub fn forward(&self, x: &Array, tokens: &[u32]) -> Result<Array, LayerError> {
        let (ids, weights) = self.route(x, tokens)?;
        let order = ops::sort_by_expert(&ids, self.sizes.experts)?;
        let routed = self.experts.forward(x, &order, &weights)?;
        Ok(ops::add(&routed, &self.shared.forward(x)?)?)
    }
}
