//! Routed experts: gated feed-forward networks of which each token visits a few.

use ds4_array::Array;
use ds4_array::ops::{self, ExpertOrder, Weight};

use crate::gated_mlp::gated;
use crate::{LayerError, Scope};

/// The weights of E experts, hidden width H, inner width I.
pub struct Experts {
    gate_up: GateUp,
    down: Weight,
    inner: usize,
    /// Bound of the activation's inputs, in families that keep them in bounds.
    limit: Option<f32>,
}

/// Gate and up projections lie in one matrix or in two, as the checkpoint has them.
enum GateUp {
    /// [E, 2 I, H]: an expert's gate rows, then its up rows.
    Fused(Weight),
    /// [E, I, H] each.
    Split(Weight, Weight),
}

impl Experts {
    /// Loads from any of three layouts: `experts.gate_up_proj` and `experts.down_proj` for all experts, one tensor for
    /// each expert and projection below `experts.N`, or `switch_mlp.{gate,up,down}_proj` as MLX writes.
    pub fn load(scope: &Scope<'_>, experts: usize, inner: usize, hidden: usize) -> Self {
        if scope.has_weight("switch_mlp.gate_proj") {
            let projection =
                |name: &str, n, k| scope.expert_weight(&format!("switch_mlp.{name}"), [experts, n, k]);
            let gate_up =
                GateUp::Split(projection("gate_proj", inner, hidden), projection("up_proj", inner, hidden));
            return Self { gate_up, down: projection("down_proj", hidden, inner), inner, limit: None };
        }
        if scope.has_weight("experts.0.gate_proj") {
            let gate_up = scope.stacked(experts, &["gate_proj", "up_proj"], inner, hidden);
            let down = scope.stacked(experts, &["down_proj"], hidden, inner);
            return Self { gate_up: GateUp::Fused(gate_up), down, inner, limit: None };
        }
        Self {
            gate_up: GateUp::Fused(scope.expert_weight("experts.gate_up_proj", [experts, 2 * inner, hidden])),
            down: scope.expert_weight("experts.down_proj", [experts, hidden, inner]),
            inner,
            limit: None,
        }
    }

    /// The same experts with the inputs of their activation kept within `limit`.
    pub fn clamped(self, limit: f32) -> Self {
        Self { limit: Some(limit), ..self }
    }

    /// The weighted sum of the chosen experts' outputs for each token of `x` [L, H]. `order` and `weights` [L, K] come
    /// from the router.
    pub fn forward(&self, x: &Array, order: &ExpertOrder, weights: &Array) -> Result<Array, LayerError> {
        let project = |weight: &Weight| ops::grouped_linear(x, Some(&order.rows), &order.offsets, weight);
        let (gate, up) = match &self.gate_up {
            GateUp::Split(gate, up) => (project(gate)?, project(up)?),
            GateUp::Fused(both) => {
                let both = project(both)?;
                (
                    ops::slice_columns(&both, 0, self.inner)?,
                    ops::slice_columns(&both, self.inner, self.inner)?,
                )
            }
        };
        let y = ops::grouped_linear(&gated(&gate, &up, self.limit)?, None, &order.offsets, &self.down)?;
        Ok(ops::combine_experts(&y, order, weights)?)
    }
}
