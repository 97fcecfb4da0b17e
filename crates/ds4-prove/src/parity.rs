//! Parity of a family with its reference: every golden checkpoint, every way to cut a prompt, every set of kernels.

use std::path::Path;

use ds4_testkit::comparison::Matrix;
use ds4_testkit::golden::{self, Decisions, Golden, TensorFile};
use ds4_testkit::tolerance::{self, WeightStorage};

use crate::decisions;
use crate::report::Report;
use crate::samples;
use crate::subject::{Cut, Machine, Subject};

/// Families whose checkpoints are in `golden/`.
const FAMILIES: &[&str] = &["qwen4_exp", "deepseek_v4", "glm5_next"];

/// Bundled models by family, each with the golden folder of its decisions.
const DEMOS: &[(&str, &str)] =
    &[("qwen4_exp", "demo"), ("deepseek_v4", "demo_deepseek_v4"), ("glm5_next", "demo_glm5_next")];

/// The family of the recorded cases.
const RECORDED: &str = "qwen4_exp";

const DECISIONS: &str = "decisions.safetensors";

/// The long recorded case of the demo model runs in chunks of this size, and once token by token.
const LONG_CHUNK: usize = 256;

pub(crate) fn run(report: &mut Report, short: bool) -> anyhow::Result<()> {
    let machines = if short { vec![Machine::best(), Machine::Reference] } else { Machine::all() };
    for family in FAMILIES {
        for folder in golden::checkpoints(family)? {
            for &machine in &machines {
                let decisions = Decisions::load(&folder.join(DECISIONS))?;
                checkpoint(report, &format!("{family}/{}", name(&folder)), &folder, &decisions, machine)?;
            }
        }
    }
    for (family, name) in DEMOS {
        let (demo, decided) = (golden::demo(family), golden::root().join(name).join(DECISIONS));
        let decisions = Decisions::load(&decided)?;
        for &machine in &machines[..if short { 1 } else { machines.len() }] {
            checkpoint(report, name, &demo, &decisions, machine)?;
        }
        samples::run(report, family)?;
    }
    let demo = golden::demo(RECORDED);
    let cuts = [Cut::Chunks(LONG_CHUNK), Cut::Whole, Cut::Chunks(1)];
    recorded(report, &demo, &cuts[..if short { 1 } else { cuts.len() }])
}

/// All cuts of one checkpoint's prompt on one backend.
fn checkpoint(
    report: &mut Report,
    name: &str,
    folder: &Path,
    decided: &Decisions,
    machine: Machine,
) -> anyhow::Result<()> {
    let golden = Golden::load(folder)?;
    let storage = golden.storage()?;
    let (limit, half) = (tolerance::logits(storage), tolerance::chunked_logits(storage));
    let subject = match Subject::open(folder, machine) {
        Ok(subject) => subject,
        Err(error) => {
            report.failed(&format!("{name} on {machine}"), &format!("{error:#}"));
            return Ok(());
        }
    };
    let whole = subject.logits(&golden.ids, Cut::Whole);
    report.close(&format!("{name} on {machine}, whole"), &golden.logits, &whole, limit);
    let Ok(whole) = whole else { return Ok(()) };

    let decode = Cut::PrefillThenDecode(golden.prefill_len);
    // Powers of two and their neighbours end passes at every remainder of a window, run or pool.
    let chunks = [1, 3, 4, 7, 64].map(|size| (Cut::Chunks(size), &golden.logits));
    for (cut, expected) in chunks.into_iter().chain([(decode, &golden.decode_logits)]) {
        let item = format!("{name} on {machine}, {cut}");
        let logits = subject.logits(&golden.ids, cut);
        report.close(&item, expected, &logits, limit);
        report.close(&format!("{item}, against whole"), &whole, &logits, half);
    }

    let item = format!("{name} on {machine}");
    match subject.decisions(&golden.ids).and_then(|layers| decisions::tabulate(&layers, golden.ids.len())) {
        Ok(actual) => decisions::compare(report, &item, decided, &actual),
        Err(error) => report.failed(&item, &format!("{error:#}")),
    }

    let shorter = &golden.ids[..golden.prefill_len];
    let expected = below(&whole.first_rows(shorter.len()), &whole);
    let both = subject.side_by_side(&[shorter, &golden.ids]);
    report.close(&format!("{name} on {machine}, two sequences in one pass"), &expected, &both, half);
    Ok(())
}

/// The case past the selection budget that the golden master recorded; it kept the logits of the last rows.
fn recorded(report: &mut Report, demo: &Path, cuts: &[Cut]) -> anyhow::Result<()> {
    let trunk = TensorFile::open(&golden::root().join("mtplx_trunk/trunk.safetensors"))?;
    let subject = Subject::open(demo, Machine::best())?;
    let limit = tolerance::logits(WeightStorage::Half);
    let ids = trunk.token_ids("ids")?;
    let logits = subject.logits(&ids, Cut::Whole);
    report.close(
        &format!("demo against MTPLX, {} tokens", ids.len()),
        &trunk.floats("logits")?,
        &logits,
        limit,
    );
    let (ids, expected) = (trunk.token_ids("long.ids")?, trunk.floats("long.logits")?);
    let blocks = TensorFile::open(&golden::root().join("demo").join(DECISIONS))?;
    decisions::compare_long(report, &blocks, &subject.decisions(&ids)?)?;
    for &cut in cuts {
        let logits = subject.logits(&ids, cut).map(|all| all.rows_from(all.rows - expected.rows));
        let item = format!("demo against MTPLX, the last {} of {} tokens, {cut}", expected.rows, ids.len());
        report.close(&item, &expected, &logits, limit);
    }
    Ok(())
}

fn below(first: &Matrix, second: &Matrix) -> Matrix {
    Matrix::new(first.columns, [first.values.as_slice(), &second.values].concat())
}

fn name(folder: &Path) -> String {
    folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
