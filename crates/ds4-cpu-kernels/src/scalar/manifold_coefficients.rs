//! Weights of a hyper-connection for one row.

use crate::ManifoldArgs;
use crate::scalar::unary::sigmoid;

/// `out` = pre, post, comb of `x`.
pub(crate) fn row(x: &[f32], args: &ManifoldArgs<'_>, out: &mut [f32]) {
    let (s, eps) = (args.streams, args.eps);
    let part = |i: usize| i.min(2 * s) / s;
    for (i, ((out, x), base)) in out.iter_mut().zip(x).zip(args.base).enumerate() {
        *out = x * args.scale[part(i)] + base;
    }
    let (gates, comb) = out.split_at_mut(2 * s);
    let (pre, post) = gates.split_at_mut(s);
    pre.iter_mut().for_each(|pre| *pre = sigmoid(*pre) + eps);
    post.iter_mut().for_each(|post| *post = 2.0 * sigmoid(*post));
    for row in comb.chunks_exact_mut(s) {
        let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        row.iter_mut().for_each(|x| *x = (*x - max).exp());
        let sum: f32 = row.iter().sum();
        row.iter_mut().for_each(|x| *x = *x / sum + eps);
    }
    divide_columns(comb, s, eps);
    for _ in 1..args.iterations {
        for row in comb.chunks_exact_mut(s) {
            let sum = row.iter().sum::<f32>() + eps;
            row.iter_mut().for_each(|x| *x /= sum);
        }
        divide_columns(comb, s, eps);
    }
}

fn divide_columns(comb: &mut [f32], s: usize, eps: f32) {
    for column in 0..s {
        let sum = comb.iter().skip(column).step_by(s).sum::<f32>() + eps;
        comb.iter_mut().skip(column).step_by(s).for_each(|x| *x /= sum);
    }
}
