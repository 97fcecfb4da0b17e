"""Records what MLX's affine quantisation makes of small inputs.

    python3.11 -m venv V && V/bin/pip install 'mlx[cpu]==0.32.2'
    V/bin/python make_affine.py affine.safetensors

Deterministic on the CPU device. For every case `<dtype>_<bits>_<group>` the file holds `.w` [6, 256] (f32, f16 or
bf16), `.weight` (u32), `.scales`, `.biases` (as `.w`) and `.restored` (as `.w`), from `mx.quantize` and `mx.dequantize`.
Rows: normal values; mostly negative; all zero; all equal; tiny (smaller than the smallest scale); one outlier in each 64.
"""

import sys

import mlx.core as mx

assert mx.__version__ == "0.32.2", mx.__version__
mx.set_default_device(mx.cpu)


def rows(dtype):
    normal = mx.random.normal((256,), key=mx.random.key(1))
    negative = -mx.abs(mx.random.normal((256,), key=mx.random.key(2))) + 0.1
    zero = mx.zeros((256,))
    equal = mx.full((256,), 0.37)
    tiny = mx.random.normal((256,), key=mx.random.key(3)) * 1e-8
    outliers = mx.where(mx.arange(256) % 64 == 5, 30.0, mx.random.normal((256,), key=mx.random.key(4)))
    return mx.stack([normal, negative, zero, equal, tiny, outliers]).astype(dtype)


out = {}
for name, dtype in (("f32", mx.float32), ("bf16", mx.bfloat16), ("f16", mx.float16)):
    for bits in (4, 8):
        for group in (32, 64, 128):
            w = rows(dtype)
            q, scales, biases = mx.quantize(w, group_size=group, bits=bits)
            case = f"{name}_{bits}_{group}"
            out[f"{case}.w"] = w
            out[f"{case}.weight"] = q
            out[f"{case}.scales"] = scales
            out[f"{case}.biases"] = biases
            out[f"{case}.restored"] = mx.dequantize(q, scales, biases, group_size=group, bits=bits)
mx.save_safetensors(sys.argv[1], out, {"mlx": mx.__version__, "script": "make_affine.py"})
