//! The bundled demo model against its golden file, which transformers wrote (see golden/README.md).

use std::path::Path;

use ds4_array::{Device, Stream};
use ds4_models::{BatchSegment, CausalLm, LoadOptions, LogitRows};
use ds4_weights::{Checkpoint, ModelFiles};

fn demo() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo/qwen4_exp")
}

fn logits(model: &dyn CausalLm, tokens: &[u32], chunk: usize) -> Vec<f32> {
    let mut cache = model.new_cache();
    let mut all = Vec::new();
    for tokens in tokens.chunks(chunk) {
        let mut batch = [BatchSegment { tokens, cache: &mut cache, logits: LogitRows::All }];
        let logits = model.forward(&mut batch).unwrap().logits.unwrap();
        all.extend(logits.to_vec::<f32>().unwrap());
    }
    all
}

fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn the_demo_model_computes_the_golden_logits() {
    let golden = Checkpoint::load_file(&demo().join("golden.safetensors")).unwrap();
    let ids: Vec<u32> = bytemuck::cast_slice(golden.require("ids").unwrap().bytes.as_ref()).to_vec();
    let expected = golden.require("logits").unwrap().floats().unwrap().to_f32();
    for device in [Device::reference(), Device::cpu(2)] {
        let stream = Stream::new(&device);
        let files = ModelFiles::open(&demo()).unwrap();
        let loaded = ds4_models::load(&files, &LoadOptions::new(&stream)).unwrap();
        let whole = logits(&*loaded.model, &ids, ids.len());
        let error = largest_difference(&whole, &expected);
        println!("{device:?}: {} parameters, largest error {error:.2e}", loaded.parameters);
        assert!(error < 1e-4 * 5.0, "{error}");
        for chunk in [1, 4, 64] {
            assert_eq!(logits(&*loaded.model, &ids, chunk), whole, "chunks of {chunk}");
        }
    }
}
