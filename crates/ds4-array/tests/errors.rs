//! The front end refuses what does not fit, and says what would.
#![allow(clippy::unwrap_used, reason = "tests only")]

use ds4_array::ops::{self, Weight};
use ds4_array::{Array, DType, Device, Stream};

fn f32s(shape: &[usize]) -> Array {
    let stream = Stream::new(&Device::reference());
    Array::from_slice(&stream, &vec![0.0f32; shape.iter().product()], shape).unwrap()
}

fn ids(shape: &[usize]) -> Array {
    let stream = Stream::new(&Device::reference());
    Array::from_slice(&stream, &vec![0u32; shape.iter().product()], shape).unwrap()
}

#[test]
fn messages_name_operation_argument_need_and_reality() {
    let x = f32s(&[2, 3]);
    let cases: Vec<(ds4_array::ArrayError, &str)> = vec![
        (ops::add(&x, &f32s(&[2])).unwrap_err(), "[add] b must have shape [2, 3], [3] or [2, 1], got [2]"),
        (ops::exp(&ids(&[1])).unwrap_err(), "[exp] x must be F32, got U32"),
        (
            ops::linear(&x, &Weight::dense(f32s(&[4, 5]))).unwrap_err(),
            "[linear] x must have shape [_, 5], got [2, 3]",
        ),
        (
            ops::linear(&x, &Weight::dense(f32s(&[4]))).unwrap_err(),
            "[linear] weight must have shape [N, K], got [4]",
        ),
        (
            ops::reshape(&x, [4]).unwrap_err(),
            "[reshape] x must have shape as many elements as [4], got [2, 3]",
        ),
        (
            ops::slice_rows(&x, 1, 2).unwrap_err(),
            "[slice] x must have shape room for [2, 3] from [1, 0], got [2, 3]",
        ),
        (ops::concatenate(&[], 0).unwrap_err(), "[concatenate] number of arrays must be at least 1, got 0"),
        (
            ops::concatenate(&[&x, &f32s(&[2, 4])], 0).unwrap_err(),
            "[concatenate] each array must have shape [_, 3], got [2, 4]",
        ),
        (ops::top_k(&x, 4).unwrap_err(), "[top_k] k must be 1 to 3, got 4"),
        (
            ops::rms_norm(&x, None, 0.0, 2, 1e-6).unwrap_err(),
            "[rms_norm] group must be a divisor of 3, got 2",
        ),
        (ops::as_type(&x, DType::U32).unwrap_err(), "[as_type] dtype must be a float format, got U32"),
        (
            ops::slice_update(&x, &f32s(&[1, 3]), 2).unwrap_err(),
            "[slice_update] start + rows must be at most 2, got 3",
        ),
        (
            ops::attention(&f32s(&[1, 2, 4]), &[f32s(&[8, 1, 4])], &[f32s(&[8, 1, 4])], None, 8, 1.0)
                .unwrap_err(),
            "[attention] keys must be at least 9 rows, got 8",
        ),
        (
            Weight::affine(ids(&[2, 4]), f32s(&[2, 2]), f32s(&[2, 1]), 4, 32).unwrap_err(),
            "[affine] scales must have shape [2, 1], got [2, 2]",
        ),
    ];
    for (error, expected) in cases {
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn host_data_must_fill_its_shape() {
    let stream = Stream::new(&Device::reference());
    let error = Array::from_slice(&stream, &[1.0f32], &[2]).unwrap_err();
    assert_eq!(error.to_string(), "[array] 8 bytes are needed, got 4");
    let error = Array::from_slice(&stream, &[1.0f32], &[1; 5]).unwrap_err();
    assert_eq!(error.to_string(), "[array] number of axes must be at most 4, got 5");
    let array = f32s(&[1]);
    assert_eq!(array.to_vec::<u32>().unwrap_err().to_string(), "[to_vec] the array must be U32, got F32");
}
