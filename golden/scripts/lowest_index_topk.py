"""torch's top-k with the tie rule of this project: of equal scores the lower index wins.

`torch.topk` leaves the order of equal values open, while the golden master of the Qwen family subtracts a tiny amount
per block index so that the lowest block wins. Scores of the block indexer are sums of relu terms and so are exactly
zero very often: without this patch the goldens would record an accident.

The patch also keeps the smallest non-zero gap at each cut. A golden whose decision hangs on a gap of the size of
float32 rounding would not test anything but luck, so the maker of the goldens rejects such a seed.
"""

import collections
import contextlib

import torch

Result = collections.namedtuple("Result", "values indices")


class Ledger:
    """What the top-k calls inside one `lowest_index_topk` block met."""

    def __init__(self):
        self.calls = {"selection": 0, "route": 0}
        self.cut_inside_tie = {"selection": 0, "route": 0}
        self.smallest_gap = {"selection": float("inf"), "route": float("inf")}

    def note(self, values, k, kind):
        """`values` [N, M] in descending order; the cut lies between columns k-1 and k."""
        self.calls[kind] += len(values)
        if kind == "selection":
            if k == values.shape[1]:
                return
            gaps = values[:, k - 1] - values[:, k]
            self.cut_inside_tie[kind] += int((gaps == 0).sum())
        else:
            # Routes are compared in order, so every neighbouring pair up to the cut counts.
            gaps = (values[:, :-1] - values[:, 1:])[:, :k]
        gaps = gaps[gaps > 0]
        if gaps.numel():
            self.smallest_gap[kind] = min(self.smallest_gap[kind], float(gaps.min()))


@contextlib.contextmanager
def lowest_index_topk():
    """Inside the block, 1-D `Tensor.topk` (block selection) and 2-D `torch.topk` (router) break ties downwards."""
    ledger = Ledger()
    real_method, real_function = torch.Tensor.topk, torch.topk

    def stable(tensor, k, kind):
        values, indices = torch.sort(tensor, dim=-1, descending=True, stable=True)
        ledger.note(values.reshape(-1, values.shape[-1]), k, kind)
        return Result(values[..., :k], indices[..., :k])

    def method(self, k, dim=-1, **_):
        return stable(self, k, "selection")

    def function(tensor, k, dim=-1, **_):
        return stable(tensor, k, "route")

    torch.Tensor.topk, torch.topk = method, function
    try:
        yield ledger
    finally:
        torch.Tensor.topk, torch.topk = real_method, real_function
