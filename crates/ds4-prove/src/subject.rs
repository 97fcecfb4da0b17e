//! The implementation under examination: the only file here that knows how a model is loaded and run.

use std::fmt;
use std::path::Path;

use anyhow::Context;
use ds4_array::{Cpu, Device, Isa, Stream};
use ds4_models::{BatchSegment, CausalLm, LayerDecisions, LoadOptions, LoadedModel, LogitRows};
use ds4_testkit::comparison::Matrix;
use ds4_weights::ModelFiles;

/// Where a model computes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Machine {
    /// The kernels of an instruction set, on all cores.
    Kernels(Isa),
    /// The reference backend: naive loops, one thread.
    Reference,
}

impl Machine {
    /// The kernels that a user of this machine gets.
    pub(crate) fn best() -> Self {
        Self::Kernels(Isa::best())
    }

    /// Everything that this machine can compute with.
    pub(crate) fn all() -> Vec<Self> {
        Isa::all().into_iter().rev().map(Self::Kernels).chain([Self::Reference]).collect()
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kernels(isa) => isa.name(),
            Self::Reference => "reference",
        })
    }
}

/// How the tokens of a prompt are cut into passes.
#[derive(Clone, Copy)]
pub(crate) enum Cut {
    /// All in one pass.
    Whole,
    /// Passes of this many tokens.
    Chunks(usize),
    /// One pass of this many tokens, then one token at a time.
    PrefillThenDecode(usize),
}

impl Cut {
    /// The lengths of the passes over `tokens` tokens.
    fn lengths(self, tokens: usize) -> Vec<usize> {
        let chunks = |rest: usize, size: usize| (0..rest).step_by(size).map(move |at| size.min(rest - at));
        match self {
            Self::Whole => vec![tokens],
            Self::Chunks(size) => chunks(tokens, size).collect(),
            Self::PrefillThenDecode(first) => {
                std::iter::once(first).chain(chunks(tokens - first, 1)).collect()
            }
        }
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => f.write_str("whole"),
            Self::Chunks(size) => write!(f, "chunks of {size}"),
            Self::PrefillThenDecode(first) => write!(f, "prefill of {first}, then one by one"),
        }
    }
}

/// Loads a checkpoint directory.
pub(crate) fn load(folder: &Path, machine: Machine) -> anyhow::Result<LoadedModel> {
    let device = match machine {
        Machine::Kernels(isa) => {
            let threads = std::thread::available_parallelism().map_or(1, usize::from);
            Device::with_kernels(
                Cpu::with_isa(isa, threads).context("the processor lacks these instructions")?,
            )
        }
        Machine::Reference => Device::reference(),
    };
    let files = ModelFiles::open(folder).context("the checkpoint cannot be opened")?;
    Ok(ds4_models::load(&files, &LoadOptions::new(&Stream::new(&device)))?)
}

/// A loaded model.
pub(crate) struct Subject {
    model: Box<dyn CausalLm>,
}

impl Subject {
    /// Loads a checkpoint directory.
    pub(crate) fn open(folder: &Path, machine: Machine) -> anyhow::Result<Self> {
        Ok(Self { model: load(folder, machine)?.model })
    }

    /// The logits [T, V] of all `tokens`, computed in passes as `cut` says.
    pub(crate) fn logits(&self, tokens: &[u32], cut: Cut) -> anyhow::Result<Matrix> {
        let mut cache = self.model.new_cache();
        let mut values = Vec::with_capacity(tokens.len() * self.model.vocabulary());
        let mut rest = tokens;
        for length in cut.lengths(tokens.len()) {
            let (tokens, after) = rest.split_at(length);
            let mut batch = [BatchSegment { tokens, cache: &mut cache, logits: LogitRows::All }];
            values.extend(self.pass(&mut batch)?);
            rest = after;
        }
        Ok(Matrix::new(self.model.vocabulary(), values))
    }

    /// The most probable tokens after `prompt`, each with the logits it was chosen by, up to a stop token, which is included,
    /// or `most` tokens.
    pub(crate) fn greedy(
        &self,
        prompt: &[u32],
        stop: &[u32],
        most: usize,
    ) -> anyhow::Result<Vec<(u32, Vec<f32>)>> {
        let mut cache = self.model.new_cache();
        let mut steps: Vec<(u32, Vec<f32>)> = Vec::new();
        let mut tokens = prompt.to_vec();
        while steps.len() < most && steps.last().is_none_or(|(id, _)| !stop.contains(id)) {
            let batch = &mut [BatchSegment { tokens: &tokens, cache: &mut cache, logits: LogitRows::Last }];
            let logits = self.pass(batch)?;
            let best = (0..).zip(&logits).max_by(|(a, x), (b, y)| x.total_cmp(y).then(b.cmp(a)));
            let (id, _) = best.context("the model has no vocabulary")?;
            tokens = vec![id];
            steps.push((id, logits));
        }
        Ok(steps)
    }

    /// The logits of several sequences that run in one pass, below one another.
    pub(crate) fn side_by_side(&self, sequences: &[&[u32]]) -> anyhow::Result<Matrix> {
        let mut caches: Vec<_> = sequences.iter().map(|_| self.model.new_cache()).collect();
        let segment = |(tokens, cache)| BatchSegment { tokens, cache, logits: LogitRows::All };
        let mut batch: Vec<_> = sequences.iter().copied().zip(&mut caches).map(segment).collect();
        Ok(Matrix::new(self.model.vocabulary(), self.pass(&mut batch)?))
    }

    /// What a pass over all `tokens` decides.
    pub(crate) fn decisions(&self, tokens: &[u32]) -> anyhow::Result<Vec<LayerDecisions>> {
        Ok(self.model.decisions(tokens)?)
    }

    fn pass(&self, batch: &mut [BatchSegment<'_>]) -> anyhow::Result<Vec<f32>> {
        let logits = self
            .model
            .forward(batch)?
            .logits
            .context("the model gave no logits although all were asked for")?;
        Ok(logits.to_vec::<f32>()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_cover_every_token_once() {
        assert_eq!(Cut::Whole.lengths(7), [7]);
        assert_eq!(Cut::Chunks(4).lengths(7), [4, 3]);
        assert_eq!(Cut::Chunks(64).lengths(7), [7]);
        assert_eq!(Cut::PrefillThenDecode(5).lengths(7), [5, 1, 1]);
    }
}
