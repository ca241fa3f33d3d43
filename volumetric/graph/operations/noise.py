"""Random choices, drawn from a key and the place of each element alone.

``gumbel``      x [R,C], positions int32 [R] → x plus Gumbel noise: `numeric.noise.gumbel` with ``seed``.
``normal``      x, key int32 [2] → x plus standard normal noise: `numeric.noise.normal` with ``stream``, as dropout's,
                and ``first``, the number of the first element.
``dropout``     x, key int32 [2] → ``x / (1 − p)`` where an element is kept, else 0, whatever x is: `numeric.noise`.
                ``p`` in 0 … 1; ``stream``: 32 bits that tell this layer's choices from others'.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from volumetric._typing import Array
from volumetric.graph.numeric.noise import dropped, gumbel, kept, normal
from volumetric.graph.operations.base import Attrs, declare, floats, out, require
from volumetric.graph.ops import Node, Tensor

if TYPE_CHECKING:
    from volumetric.graph.build import GraphBuilder


def _infer_dropout(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    x, key = inputs
    floats("dropout", [x])
    require(key.dtype == "int32" and key.shape == (2,), "dropout", "the key is two int32")
    require(0 <= attrs["p"] <= 1, "dropout", f"p must lie in 0 … 1, got {attrs['p']}")
    return [out("kept", *x.shape)]


def _run_dropout(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    x, key = inputs
    first, second = (int(word) for word in key.view(np.uint32))
    return [dropped(x, kept(x.shape, attrs["p"], (first, second), attrs["stream"]), attrs["p"])]


def _vjp_dropout(work: GraphBuilder, node: Node, g: int) -> list[int | None]:
    return [work.emit("dropout", (g, node.inputs[1]), **node.attrs)[0], None]


def _infer_gumbel(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    x, positions = inputs
    floats("gumbel", [x])
    require(len(x.shape) == 2, "gumbel", "x has rows of logits")
    require(positions.dtype == "int32" and positions.shape == x.shape[:1], "gumbel", "each row has an int32 position")
    require(attrs["seed"] >= 0, "gumbel", f"seed must not be below 0, got {attrs['seed']}")
    return [out("noisy", *x.shape)]


def _run_gumbel(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    x, positions = inputs
    return [x + gumbel(x.shape[1], positions, attrs["seed"]).astype(x.dtype)]


def _vjp_added(work: GraphBuilder, node: Node, g: int) -> list[int | None]:
    return [g, None]


def _infer_normal(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    x, key = inputs
    floats("normal", [x])
    require(key.dtype == "int32" and key.shape == (2,), "normal", "the key is two int32")
    require(attrs["first"] >= 0, "normal", f"first must not be below 0, got {attrs['first']}")
    return [out("noisy", *x.shape)]


def _run_normal(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    x, key = inputs
    first, second = (int(word) for word in key.view(np.uint32))
    return [x + normal(x.shape, (first, second), attrs["stream"], attrs["first"]).astype(x.dtype)]


declare("gumbel", _infer_gumbel, _run_gumbel, _vjp_added)
declare("normal", _infer_normal, _run_normal, _vjp_added)
declare("dropout", _infer_dropout, _run_dropout, _vjp_dropout)
