//! Where the time of a pass goes: a line for each primitive and shape, the dearest first.
//!
//! A line's time is the median of its primitive times their number, so that one that another program held up does not count.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ds4_array::{Device, Observer, Ran, Work};
use serde_json::{Value, json};

use super::limits::Limits;
use super::spread::Spread;

/// Lines of the table; the rest is summed up.
const LINES: usize = 40;

/// Sums of all primitives that ran.
#[derive(Default)]
struct Sums(Mutex<HashMap<(String, Vec<usize>), Sum>>);

#[derive(Default)]
struct Sum {
    times: Vec<Duration>,
    work: Work,
}

impl Observer for Sums {
    fn ran(&self, step: &Ran) {
        let mut sums = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sum = sums.entry((step.primitive.clone(), step.shape.clone())).or_default();
        sum.times.push(step.time);
        sum.work += step.work;
    }
}

impl Sum {
    fn add(&mut self, other: Self) {
        self.times.extend(other.times);
        self.work += other.work;
    }
}

/// A line of the table, per pass.
struct Line {
    primitive: String,
    shape: Vec<usize>,
    count: f64,
    seconds: f64,
    bytes: f64,
    flops: f64,
}

impl Line {
    fn of(((primitive, shape), mut sum): ((String, Vec<usize>), Sum), passes: u32) -> Self {
        sum.times.sort_unstable();
        let median = sum.times.get(sum.times.len() / 2).copied().unwrap_or_default();
        let per_pass = |amount: u64| amount as f64 / f64::from(passes);
        let count = per_pass(sum.times.len() as u64);
        Self {
            primitive,
            shape,
            count,
            seconds: median.as_secs_f64() * count,
            bytes: per_pass(sum.work.bytes),
            flops: per_pass(sum.work.flops),
        }
    }
}

/// What a pass does.
pub(super) struct Profile {
    /// Seconds of a pass, what stands between primitives included: a median, as all figures here.
    total: f64,
    /// Seconds of that outside of primitives.
    between: f64,
    lines: Vec<Line>,
}

impl Profile {
    /// Watches `passes` calls of `run`, which makes one pass and returns its time.
    pub(super) fn of(
        device: &Device,
        passes: u32,
        mut run: impl FnMut() -> anyhow::Result<Duration>,
    ) -> anyhow::Result<Self> {
        let (mut totals, mut between) = (Vec::new(), Vec::new());
        let mut all: HashMap<(String, Vec<usize>), Sum> = HashMap::new();
        for _ in 0..passes {
            let sums = Arc::new(Sums::default());
            device.observe(Some(sums.clone()));
            let total = run();
            device.observe(None);
            let sums = std::mem::take(&mut *sums.0.lock().unwrap_or_else(PoisonError::into_inner));
            let in_primitives: Duration = sums.values().flat_map(|sum| &sum.times).sum();
            let total = total?;
            totals.push(total.as_secs_f64());
            between.push(total.saturating_sub(in_primitives).as_secs_f64());
            for (key, sum) in sums {
                all.entry(key).or_default().add(sum);
            }
        }
        let mut lines: Vec<Line> = all.into_iter().map(|entry| Line::of(entry, passes)).collect();
        lines.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        Ok(Self { total: Spread::of(totals).median, between: Spread::of(between).median, lines })
    }

    /// The work of one pass.
    pub(super) fn work(&self) -> Work {
        let sum = |amount: fn(&Line) -> f64| self.lines.iter().map(amount).sum::<f64>() as u64;
        Work { flops: sum(|line| line.flops), bytes: sum(|line| line.bytes) }
    }

    fn typical(&self) -> f64 {
        self.lines.iter().map(|line| line.seconds).sum::<f64>() + self.between
    }

    pub(super) fn table(&self, title: &str, limits: &Limits) -> String {
        let mut text = format!(
            "{title}: {:.2} ms a pass, {:.2} ms by medians, {:.0} primitives\n\
             {:>9} {:>6} {:>6} {:>7} {:>8}  primitive\n",
            1e3 * self.total,
            1e3 * self.typical(),
            self.lines.iter().map(|line| line.count).sum::<f64>(),
            "us a pass",
            "share",
            "count",
            "GB/s",
            "GFLOP/s",
        );
        for line in self.lines.iter().take(LINES) {
            self.line(&mut text, line, &format!("{} {:?}", line.primitive, line.shape));
        }
        let others = self.lines.iter().skip(LINES);
        let sum = |amount: fn(&Line) -> f64| others.clone().map(amount).sum::<f64>();
        let rest = Line {
            primitive: String::new(),
            shape: Vec::new(),
            count: sum(|line| line.count),
            seconds: sum(|line| line.seconds),
            bytes: sum(|line| line.bytes),
            flops: sum(|line| line.flops),
        };
        self.line(&mut text, &rest, "all others");
        let between = Line { seconds: self.between, count: 0.0, bytes: 0.0, flops: 0.0, ..rest };
        self.line(&mut text, &between, "between primitives: building, ordering and watching the graph");
        let _ = writeln!(text, "limits: {limits}\n");
        text
    }

    fn line(&self, text: &mut String, line: &Line, name: &str) {
        let rate = |amount: f64| match amount {
            0.0 => "-".to_owned(),
            amount => format!("{:.2}", amount / line.seconds / 1e9),
        };
        let _ = writeln!(
            text,
            "{:>9.0} {:>5.1}% {:>6.0} {:>7} {:>8}  {name}",
            1e6 * line.seconds,
            100.0 * line.seconds / self.typical(),
            line.count,
            rate(line.bytes),
            rate(line.flops),
        );
    }

    pub(super) fn as_json(&self) -> Value {
        let line = |line: &Line| {
            json!({
                "primitive": line.primitive,
                "shape": line.shape,
                "count": line.count,
                "seconds": line.seconds,
                "bytes": line.bytes,
                "flops": line.flops,
            })
        };
        json!({
            "seconds": self.total,
            "seconds_by_medians": self.typical(),
            "seconds_between_primitives": self.between,
            "primitives": self.lines.iter().map(line).collect::<Vec<_>>(),
        })
    }
}
