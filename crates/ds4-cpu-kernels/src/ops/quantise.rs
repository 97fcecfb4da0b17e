//! Rounding activations to 8-bit integers before a product with affine weights.

use crate::Cpu;
use crate::disjoint::Parts;
use crate::quantised::{Line, Quantised};

/// How activations are rounded for a weight.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rounding {
    /// Elements that share a scale.
    pub(crate) group: usize,
    /// Bits of the weight's elements.
    pub(crate) bits: u32,
}

impl Rounding {
    /// Rounds the rows of `x` ([rows, k], at least one), over the pool if that pays.
    pub(crate) fn apply(self, cpu: &Cpu, x: &[f32], k: usize, out: &mut Quantised) {
        let (width, groups) = self.make_room(cpu, x, k, out);
        let (lines, scales, sums) = out.parts_mut();
        let (scales, sums) = (Parts::new(scales), Parts::new(sums));
        cpu.for_each_rows(lines, width, 2 * k, |first, lines| {
            let end = first + lines.len() / width;
            let range = first * groups..end * groups;
            // SAFETY: each row has its own scales and sums, and belongs to one task.
            let (scales, sums) = unsafe { (scales.range(range.clone()), sums.range(range)) };
            self.rows(cpu, &x[first * k..end * k], k, (lines, scales, sums));
        });
    }

    /// The same on this thread alone.
    pub(crate) fn apply_here(self, cpu: &Cpu, x: &[f32], k: usize, out: &mut Quantised) {
        self.make_room(cpu, x, k, out);
        self.rows(cpu, x, k, out.parts_mut());
    }

    /// Makes room for the rows of `x`: returns the lines and the groups of a row.
    fn make_room(self, cpu: &Cpu, x: &[f32], k: usize, out: &mut Quantised) -> (usize, usize) {
        let (width, groups) = (self.lines(cpu, k), k / self.group);
        out.resize(x.len() / k, width, groups);
        (width, groups)
    }

    /// Lines of a row.
    fn lines(self, cpu: &Cpu, k: usize) -> usize {
        dispatch!(cpu, quantise::lines(k, self.group, self.bits))
    }

    /// Rounds rows into their lines, scales and sums.
    fn rows(
        self,
        cpu: &Cpu,
        x: &[f32],
        k: usize,
        (lines, scales, sums): (&mut [Line], &mut [f32], &mut [f32]),
    ) {
        let Self { group, bits } = self;
        let lines = lines.chunks_exact_mut(self.lines(cpu, k));
        let groups = scales.chunks_exact_mut(k / group).zip(sums.chunks_exact_mut(k / group));
        for ((x, lines), (scales, sums)) in x.chunks_exact(k).zip(lines).zip(groups) {
            dispatch!(cpu, quantise::row(x, group, bits, lines, scales, sums));
        }
    }
}
