"""Affine weight quantisation in the MLX safetensors layout, in plain numpy.

An implementation of its own, so that the Rust one has something independent to be compared with.

A row is cut into groups of `group` values. Each group has a scale and a bias, a value is `scale * q + bias` with
0 <= q < 2**bits. The edge of the group with the larger magnitude is represented exactly when the scale allows it, which
is why the scale may be negative. Values are packed into 32-bit words, the first value in the lowest bits.
"""

import numpy as np
import torch

SMALLEST_SCALE = np.float32(1e-7)


def quantize(weight, bits, group, store):
    """`weight` float tensor [..., K] -> (packed u32 [..., K*bits/32], scales, biases [..., K/group] of dtype `store`)."""
    w = weight.float().numpy()
    if w.shape[-1] % group:
        raise ValueError(f"the last dimension {w.shape[-1]} is no multiple of the group {group}")
    top = np.float32(2**bits - 1)
    g = w.reshape(*w.shape[:-1], -1, group)
    high, low = g.max(-1), g.min(-1)
    scale = np.maximum((high - low) / top, SMALLEST_SCALE)
    low_is_edge = np.abs(low) > np.abs(high)
    scale = np.where(low_is_edge, scale, -scale)
    edge = np.where(low_is_edge, low, high)
    steps = np.round(edge / scale)
    scale = np.where(steps != 0, edge / np.where(steps == 0, 1, steps), scale)
    bias = np.where(steps == 0, np.float32(0), edge)
    q = np.clip(np.round((g - bias[..., None]) / scale[..., None]), 0, top).astype(np.uint32)
    per_word = 32 // bits
    q = q.reshape(*w.shape[:-1], -1, per_word)
    shifts = np.arange(per_word, dtype=np.uint32) * np.uint32(bits)
    packed = np.bitwise_or.reduce(q << shifts, axis=-1)
    return torch.from_numpy(packed), torch.from_numpy(scale).to(store), torch.from_numpy(bias).to(store)


def dequantize(packed, scales, biases, bits, group):
    """The float32 values that the stored form stands for (scales and biases as stored, that is after their rounding)."""
    words = packed.numpy()
    shifts = np.arange(32 // bits, dtype=np.uint32) * np.uint32(bits)
    q = (words[..., None] >> shifts) & np.uint32(2**bits - 1)
    q = q.reshape(*words.shape[:-1], -1, group).astype(np.float32)
    w = q * scales.float().numpy()[..., None] + biases.float().numpy()[..., None]
    return torch.from_numpy(w.reshape(*words.shape[:-1], -1))
