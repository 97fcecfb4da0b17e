//! One kind of pass, measured several times, beside the work it had to do.

use std::time::Duration;

use ds4_array::Work;
use ds4_models::SequenceCache;
use serde_json::{Value, json};

use super::limits::Limits;
use super::spread::Spread;
use super::stage::Stage;

/// Context of all that is not measured at several.
pub(super) const SHORT_CONTEXT: usize = 64;

/// Passes over which a time is averaged, so that clocks and interruptions matter little.
pub(super) const STEPS: usize = 16;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A prompt of so many tokens.
    Prefill { tokens: usize },
    /// One token at a time after so many.
    Decode { context: usize },
    /// Several tokens of one sequence in one pass.
    Verify { rows: usize },
    /// One token of each of several sequences in one pass.
    Batch { sequences: usize },
}

impl Kind {
    /// Tokens that one measured time stands for.
    pub(super) fn tokens(self) -> usize {
        match self {
            Self::Prefill { tokens } => tokens,
            Self::Decode { .. } => 1,
            Self::Verify { rows } => rows,
            Self::Batch { sequences } => sequences,
        }
    }

    /// Caches of the sequences that it runs on.
    pub(super) fn sequences(self, stage: &Stage) -> anyhow::Result<Vec<SequenceCache>> {
        Ok(match self {
            Self::Prefill { .. } => Vec::new(),
            Self::Decode { context } => vec![stage.context(context)?],
            Self::Verify { .. } => vec![stage.context(SHORT_CONTEXT)?],
            Self::Batch { sequences } => vec![stage.context(SHORT_CONTEXT)?; sequences],
        })
    }

    /// Whether the model's context has room for it.
    pub(super) fn fits(self, stage: &Stage) -> bool {
        match self {
            Self::Prefill { tokens: most } | Self::Decode { context: most } => {
                most + STEPS < stage.loaded.model.max_context()
            }
            Self::Verify { .. } | Self::Batch { .. } => true,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Prefill { .. } => "prefill",
            Self::Decode { .. } => "decode",
            Self::Verify { .. } => "verify",
            Self::Batch { .. } => "batch",
        }
    }

    fn size(self) -> (&'static str, usize) {
        match self {
            Self::Prefill { tokens } => ("tokens", tokens),
            Self::Decode { context } => ("context", context),
            Self::Verify { rows } => ("rows", rows),
            Self::Batch { sequences } => ("sequences", sequences),
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Prefill { tokens } => write!(f, "prefill {tokens}"),
            Self::Decode { context } => write!(f, "decode at {context}"),
            Self::Verify { rows } => write!(f, "verify {rows} rows"),
            Self::Batch { sequences } => write!(f, "decode {sequences} at once"),
        }
    }
}

/// All times of one kind.
#[derive(Debug)]
pub(super) struct Measure {
    pub(super) kind: Kind,
    /// Work of one pass, or of all passes of a prompt.
    pub(super) work: Work,
    /// Seconds of that, once for each round.
    pub(super) seconds: Vec<f64>,
}

impl Measure {
    pub(super) fn new(kind: Kind, work: Work) -> Self {
        Self { kind, work, seconds: Vec::new() }
    }

    pub(super) fn note(&mut self, time: Duration) {
        self.seconds.push(time.as_secs_f64());
    }

    pub(super) fn time(&self) -> Spread {
        Spread::of(self.seconds.iter().copied())
    }

    pub(super) fn speed(&self) -> Spread {
        let tokens = self.kind.tokens() as f64;
        Spread::of(self.seconds.iter().map(|seconds| tokens / seconds))
    }

    /// Bytes a second at the median time.
    pub(super) fn traffic(&self) -> f64 {
        self.work.bytes as f64 / self.time().median
    }

    /// Floating-point operations a second at the median time.
    pub(super) fn arithmetic(&self) -> f64 {
        self.work.flops as f64 / self.time().median
    }

    pub(super) fn as_json(&self, limits: &Limits) -> Value {
        let (size, value) = self.kind.size();
        let per_token = |amount: u64| amount as f64 / self.kind.tokens() as f64;
        json!({
            "measure": self.kind.name(),
            size: value,
            "tokens_per_second": self.speed().as_json(),
            "seconds": self.time().as_json(),
            "bytes_per_token": per_token(self.work.bytes),
            "flops_per_token": per_token(self.work.flops),
            "gbps": self.traffic() / 1e9,
            "gflops": self.arithmetic() / 1e9,
            "bandwidth_fraction": self.traffic() / limits.bandwidth,
            "fma_fraction": self.arithmetic() / limits.flops,
        })
    }

    /// A line of the table.
    pub(super) fn line(&self, limits: &Limits) -> String {
        let (speed, tokens) = (self.speed(), self.kind.tokens() as f64);
        format!(
            "{:<18} {:>8.1} {:>8.1} {:>8.1} {:>9.1} {:>9.3} {:>7.2} {:>5.0}% {:>8.2} {:>5.0}%\n",
            self.kind.to_string(),
            speed.median,
            speed.least,
            speed.most,
            self.work.bytes as f64 / tokens / 1e6,
            self.work.flops as f64 / tokens / 1e9,
            self.traffic() / 1e9,
            100.0 * self.traffic() / limits.bandwidth,
            self.arithmetic() / 1e9,
            100.0 * self.arithmetic() / limits.flops,
        )
    }
}

/// Titles of the columns of [`Measure::line`].
pub(super) fn titles() -> String {
    format!(
        "{:<18} {:>8} {:>8} {:>8} {:>9} {:>9} {:>7} {:>6} {:>8} {:>6}\n",
        "", "tokens/s", "least", "most", "MB/token", "GF/token", "GB/s", "of it", "GFLOP/s", "of it"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_count_every_token_of_a_pass() {
        let mut measure = Measure::new(Kind::Batch { sequences: 4 }, Work { flops: 8_000, bytes: 4_000 });
        [2, 1, 4].into_iter().for_each(|seconds| measure.note(Duration::from_secs(seconds)));
        let speed = measure.speed();
        assert_eq!((speed.median, speed.least, speed.most), (2.0, 1.0, 4.0));
        assert_eq!((measure.traffic(), measure.arithmetic()), (2_000.0, 4_000.0));
        let limits = Limits { bandwidth: 20_000.0, flops: 8_000.0 };
        let json = measure.as_json(&limits);
        assert_eq!((&json["sequences"], &json["bytes_per_token"]), (&json!(4), &json!(1000.0)));
        assert_eq!((&json["bandwidth_fraction"], &json["fma_fraction"]), (&json!(0.1), &json!(0.5)));
    }
}
