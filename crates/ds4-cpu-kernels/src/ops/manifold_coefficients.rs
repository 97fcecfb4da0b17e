//! Manifold-constrained hyper-connections: from a projection of the streams to the weights of reading and writing them.

use crate::{Cpu, scalar};

/// The constants of [`manifold_coefficients`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ManifoldArgs<'a> {
    /// Factors of the three parts: pre, post, comb.
    pub scale: &'a [f32],
    /// [(2 + S) * S], added after scaling.
    pub base: &'a [f32],
    /// S.
    pub streams: usize,
    /// Rounds of Sinkhorn normalisation; the first one normalises columns only.
    pub iterations: usize,
    /// Floor of the normalisation.
    pub eps: f32,
}

/// `out[m]` = pre `[S]`, post `[S]`, comb [S, S] of row `x[m]`, which has the same layout.
///
/// pre = sigmoid(x * scale + base) + eps; post = 2 * sigmoid(..); comb = softmax over the rows of (..) + eps, made nearly
/// doubly stochastic by dividing columns, then rows and columns alternately, by their sums + eps. Source: Xie et al.,
/// "mHC: Manifold-Constrained Hyper-Connections". A row is a few dozen numbers, so there is one kernel.
pub fn manifold_coefficients(cpu: &Cpu, x: &[f32], args: &ManifoldArgs<'_>, out: &mut [f32]) {
    let width = (2 + args.streams) * args.streams;
    debug_assert_eq!(x.len(), out.len());
    debug_assert_eq!((args.scale.len(), args.base.len()), (3, width));
    let cost = 16 * width + 8 * args.iterations * args.streams * args.streams;
    cpu.for_each_rows(out, width, cost, |first, out| {
        let x = &x[first * width..first * width + out.len()];
        for (x, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
            scalar::manifold_coefficients::row(x, args, out);
        }
    });
}
