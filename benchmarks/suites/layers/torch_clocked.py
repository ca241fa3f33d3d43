"""A chain of dense layers that all compute at each tick, in PyTorch's own operations. Part of `torch_worker`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Params = Mapping[str, Any]


def build(layers: Any, p: Params) -> Callable[[Any], Any]:
    """Return the function of a window on ``[T, B, width]``: each tick is one product of groups, with its bias."""
    torch = layers.torch
    torch.set_flush_denormal(True)  # as ours: gradients that fade are full of numbers that processors are slow with
    weight, bias = p["weight"], p["bias"]

    def run(x: Any) -> Any:
        made = x.new_zeros(len(weight), *x.shape[1:])
        ys = []
        for row in x.unbind():
            made = torch.baddbmm(bias[:, None], torch.cat([row[None], made[:-1]]), weight).tanh_()
            ys.append(made[-1])
        return torch.stack(ys)

    return run
