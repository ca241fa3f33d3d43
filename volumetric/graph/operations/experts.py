"""A whole mixture of experts as one fused row operation.

``experts``     x [, norm.weight …], choice [ROWS,n] [, residual], of each expert i of ``count``: i.weight.0 …,
                i.bias.0 …, i.down [D,N], i.down_bias [D] → y [ROWS,D]: Σ weightᵢ · (hᵢ downᵢᵀ + biasᵢ), i rising,
                without those of weight 0, then ``+ residual``. hᵢ is a ``linear`` with the attributes ``first``, gated
                or of one part; weights are computed from choice by ``scoring`` and ``top_k``
                (`operations.experts.weights_of`). A pass fuses it from a `mix` and the nodes before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.graph.numeric.keep_largest import keep_largest
from volumetric.graph.numeric.softmax import softmax
from volumetric.graph.operations.operation import Attrs, axes_of, declare, float_output, require, require_floats
from volumetric.graph.operations.rowwise import infer_linear, run_linear
from volumetric.graph.ops import Tensor

SCORINGS = ("given", "largest", "softmax", "softmax_all")
"""Names of `weights_of`: how choices become weights."""
_SHARED = ("x", "norm.weight", "norm.bias")


def weights_of(choice: Array, scoring: str, top_k: int) -> Array:
    """Return the weight of each expert for each row, 0 for experts that a row does not select.

    ``given``: `choice` unchanged; ``largest``: the `top_k` largest, none below 0; ``softmax``: the softmax of the
    `top_k` largest; ``softmax_all``: the `top_k` largest of the softmax.
    """
    if scoring == "given":
        return choice
    if scoring == "softmax":
        return softmax(keep_largest(choice, top_k))
    largest = keep_largest(softmax(choice) if scoring == "softmax_all" else choice, top_k)
    return np.maximum(largest, largest.dtype.type(0))


def experts_of(inputs: Sequence[Any], attrs: Attrs) -> Iterator[tuple[list[Any], Attrs, dict[str, Any]]]:
    """Yield for each expert the inputs and attributes of its first product, and the weight and bias of its second.

    `inputs` are tensors, tensor numbers or values.
    """
    by_role = dict(zip(attrs["roles"], inputs, strict=True))
    shared = {role: by_role[role] for role in _SHARED if role in by_role}
    for i in range(attrs["count"]):
        own = {role.partition(".")[2]: value for role, value in by_role.items() if role.startswith(f"{i}.")}
        last = {name: own.pop(name) for name in ("down", "down_bias") if name in own}
        first = shared | own
        yield list(first.values()), MappingProxyType({**attrs["first"], "roles": tuple(first)}), last


def _infer(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    require_floats("experts", inputs)
    by_role = dict(zip(attrs["roles"], inputs, strict=True))
    rows, count = axes_of("experts", by_role["choice"], 2)
    require(count == attrs["count"], "experts", f"got {count} choices for {attrs['count']} experts")
    require(1 <= attrs["top_k"] <= count, "experts", f"top_k must be 1 … {count}, got {attrs['top_k']}")
    if attrs["scoring"] not in SCORINGS:
        raise SpecError(f"experts: unknown scoring {attrs['scoring']!r}", hint="one of " + ", ".join(SCORINGS))
    width = by_role["0.down"].shape[0]
    for values, first, last in experts_of(inputs, attrs):
        [hidden] = infer_linear(values, first)
        require(hidden.shape[0] == rows, "experts", "choice and x must have the same rows")
        require(last["down"].shape == (width, hidden.shape[1]), "experts", "a second weight has a wrong shape")
        require(last.get("down_bias", float_output("", width)).shape == (width,), "experts", "a bias has a wrong shape")
    mixture = float_output("mixture", rows, width)
    require(by_role.get("residual", mixture).shape == mixture.shape, "experts", "the residual has another shape")
    return [mixture]


def _run(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    by_role = dict(zip(attrs["roles"], inputs, strict=True))
    weights = weights_of(by_role["choice"], attrs["scoring"], attrs["top_k"])
    total = np.zeros((len(weights), by_role["0.down"].shape[0]), weights.dtype)
    for i, (values, first, last) in enumerate(experts_of(inputs, attrs)):
        rows = np.flatnonzero(weights[:, i])
        if len(rows):
            values[0] = values[0][rows]
            y = run_linear(values, first)[0] @ last["down"].T + last.get("down_bias", total.dtype.type(0))
            total[rows] += weights[rows, i : i + 1] * y
    return [total + by_role["residual"] if "residual" in by_role else total]


declare("experts", _infer, _run)
