//! The largest elements of a row.

use std::cmp::Reverse;

/// A key that sorts like (value, then lower index first): larger keys are better.
fn key(value: f32, index: usize) -> u64 {
    // Adding 0 makes -0 equal to 0. Flipping the bits of negative numbers makes integers sort like the floats.
    let bits = (value + 0.0).to_bits();
    let ordered = match (value.is_nan(), bits >> 31) {
        (true, _) => 0,
        (false, 0) => bits | 1 << 31,
        (false, _) => !bits,
    };
    u64::from(ordered) << 32 | u64::from(!(index as u32))
}

fn index(key: u64) -> u32 {
    !(key as u32)
}

/// `out` = indices of the largest elements of `x`, largest first, as many as fit.
pub(crate) fn row(x: &[f32], out: &mut [u32]) {
    let mut keys = largest(x, out.len());
    keys.sort_unstable_by_key(|&key| Reverse(key));
    out.iter_mut().zip(keys).for_each(|(out, key)| *out = index(key));
}

/// The same indices in ascending order.
pub(crate) fn ascending(x: &[f32], out: &mut [u32]) {
    let keys = largest(x, out.len());
    out.iter_mut().zip(keys).for_each(|(out, key)| *out = index(key));
    out.sort_unstable();
}

/// The keys of the `count` largest elements, in any order.
fn largest(x: &[f32], count: usize) -> Vec<u64> {
    let mut keys: Vec<u64> = x.iter().enumerate().map(|(i, &x)| key(x, i)).collect();
    if 0 < count && count < keys.len() {
        keys.select_nth_unstable_by_key(count - 1, |&key| Reverse(key));
    }
    keys.truncate(count);
    keys
}

/// Index of the first largest element.
pub(crate) fn first_maximum(x: &[f32]) -> u32 {
    x.iter().enumerate().map(|(i, &x)| key(x, i)).max().map_or(0, index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_go_to_the_lower_index_and_nan_comes_last() {
        let mut out = [0; 7];
        row(&[1.0, f32::NAN, -0.0, 3.0, 0.0, 3.0, f32::NEG_INFINITY], &mut out);
        assert_eq!(out, [3, 5, 0, 2, 4, 6, 1]);
        assert_eq!(first_maximum(&[f32::NAN, 2.0, 2.0]), 1);
    }
}
