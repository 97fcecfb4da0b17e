//! A scaled row added to another.

/// `x` += `y` * `weight`.
pub(crate) fn row(x: &mut [f32], y: &[f32], weight: f32) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y * weight);
}
