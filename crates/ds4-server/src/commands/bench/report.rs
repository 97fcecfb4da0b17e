//! What the suite found, for people and as JSON.

use serde_json::{Value, json};

use super::limits::Limits;
use super::measure::{Kind, Measure, titles};
use super::memory;
use super::spread::Spread;
use super::stage::Stage;

pub(super) struct Report {
    pub(super) measures: Vec<Measure>,
    /// Decode speed beside a busy neighbour as a share of that alone, once for each round.
    pub(super) loaded: Vec<f64>,
    /// Peak of memory as a multiple of weights and caches.
    pub(super) peak: Option<f64>,
    pub(super) limits: Limits,
    pub(super) rounds: usize,
}

impl Report {
    fn measure(&self, kind: Kind) -> Option<&Measure> {
        self.measures.iter().find(|measure| measure.kind == kind)
    }

    fn speed(&self, kind: Kind) -> Option<f64> {
        self.measure(kind).map(|measure| measure.speed().median)
    }

    /// Median over the rounds of a comparison of two kinds, each of which was measured once a round.
    fn compare(&self, kind: Kind, with: Kind, ratio: fn(f64, f64) -> f64) -> Option<f64> {
        let (mine, other) = (self.measure(kind)?, self.measure(with)?);
        let ratios = mine.seconds.iter().zip(&other.seconds).map(|(&mine, &other)| ratio(mine, other));
        Some(Spread::of(ratios).median)
    }

    /// The figures that have a bar, in order: name, value, and what it is.
    fn headlines(&self) -> Vec<(&'static str, Option<f64>, &'static str)> {
        let short = Kind::Decode { context: 64 };
        let (long, prompt) = (Kind::Decode { context: 16384 }, Kind::Prefill { tokens: 512 });
        let batch = |sequences| Kind::Batch { sequences };
        let fraction = |kind, of: fn(&Measure) -> f64, limit: f64| self.measure(kind).map(|m| of(m) / limit);
        let loaded = (!self.loaded.is_empty()).then(|| Spread::of(self.loaded.iter().copied()).median);
        vec![
            ("decode_tps", self.speed(short), "tokens/s, context 64"),
            ("prefill_tps", self.speed(prompt), "tokens/s, 512 tokens"),
            (
                "decode_16k_ratio",
                self.compare(long, short, |long, short| short / long),
                "speed at context 16384 / at 64",
            ),
            (
                "verify4_ratio",
                self.compare(Kind::Verify { rows: 4 }, short, |verify, step| verify / step),
                "time of a check of 4 rows / of a decode step",
            ),
            (
                "batch8_ratio",
                self.compare(batch(8), batch(1), |eight, one| 8.0 * one / eight),
                "speed of 8 sequences at once / of one",
            ),
            ("peak_memory_ratio", self.peak, "peak of memory / weights and caches"),
            ("loaded_ratio", loaded, "decode speed beside a busy loop / alone"),
            ("bandwidth_gbps", Some(self.limits.bandwidth / 1e9), "GB/s read from memory"),
            ("fma_gflops", Some(self.limits.flops / 1e9), "GFLOP/s multiplied and added"),
            (
                "decode_bandwidth_fraction",
                fraction(short, Measure::traffic, self.limits.bandwidth),
                "of it used by decode at context 64",
            ),
            (
                "prefill_fma_fraction",
                fraction(prompt, Measure::arithmetic, self.limits.flops),
                "of it used by prefill of 512",
            ),
        ]
    }

    pub(super) fn for_people(&self, model: &str, stage: &Stage) -> String {
        let kernels = stage.device.kernels();
        let mut text = format!(
            "{model} on {} threads of {} ({:?}, activations {:?}), medians of {} rounds\nlimits: {}\n\n",
            kernels.threads(),
            memory::processor().unwrap_or_else(|| "an unknown processor".to_owned()),
            kernels.isa(),
            kernels.activations(),
            self.rounds,
            self.limits,
        );
        text.push_str(&titles());
        self.measures.iter().for_each(|measure| text.push_str(&measure.line(&self.limits)));
        text.push('\n');
        for (name, value, meaning) in self.headlines() {
            if let Some(value) = value {
                text.push_str(&format!("{name:<26} {value:>8.2}  {meaning}\n"));
            }
        }
        text
    }

    pub(super) fn as_json(&self, model: &str, stage: &Stage) -> Value {
        let (loaded, kernels) = (&stage.loaded, stage.device.kernels());
        let arrays = stage.device.memory().stats();
        let mut json = json!({
            "model": model,
            "parameters": loaded.parameters,
            "weight_bytes": loaded.weight_bytes,
            "processor": memory::processor(),
            "threads": kernels.threads(),
            "instructions": format!("{:?}", kernels.isa()).to_lowercase(),
            "activations": format!("{:?}", kernels.activations()).to_lowercase(),
            "rounds": self.rounds,
            // Caches and intermediate results, at their most; and what lies ready to be used again.
            "peak_array_bytes": arrays.peak,
            "idle_array_bytes": arrays.cached,
            "version": env!("CARGO_PKG_VERSION"),
        });
        for (name, value, _) in self.headlines() {
            json[name] = value.into();
        }
        json["loaded_ratios"] = self.loaded.clone().into();
        json["measures"] = self.measures.iter().map(|measure| measure.as_json(&self.limits)).collect();
        json
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ds4_array::Work;

    use super::*;

    #[test]
    fn ratios_compare_within_a_round_and_missing_parts_are_null() {
        let measure = |kind, milliseconds: [u64; 3]| {
            let mut measure = Measure::new(kind, Work::default());
            milliseconds.into_iter().for_each(|ms| measure.note(Duration::from_millis(ms)));
            measure
        };
        let report = Report {
            // The machine was slow in the second round.
            measures: vec![
                measure(Kind::Decode { context: 64 }, [10, 40, 10]),
                measure(Kind::Verify { rows: 4 }, [15, 60, 20]),
            ],
            loaded: Vec::new(),
            peak: None,
            limits: Limits { bandwidth: 1e9, flops: 1e9 },
            rounds: 3,
        };
        let headlines = report.headlines();
        let value =
            |name: &str| headlines.iter().find(|(known, ..)| *known == name).and_then(|(_, value, _)| *value);
        assert_eq!(value("verify4_ratio"), Some(1.5));
        assert_eq!(value("decode_tps"), Some(100.0));
        assert_eq!((value("batch8_ratio"), value("loaded_ratio")), (None, None));
    }
}
