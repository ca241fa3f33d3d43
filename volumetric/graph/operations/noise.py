"""Random numbers that depend only on a key and the index of each element.

``gumbel``      x [R,C], positions int32 [R] → x plus Gumbel noise: `gumbel` below with ``seed``.
``normal``      x, key int32 [2] → x plus standard normal noise: `normal` below with ``stream``, as dropout's,
                and ``first``, the number of the first element.
``dropout``     x, key int32 [2] → ``x / (1 − p)`` if an element is kept, else 0, even for NaN: `dropout_mask` below.
                ``p`` in 0 … 1; ``stream``: 32 bits that separate this layer's draws from those of others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from volumetric.base._typing import Array
from volumetric.graph.numeric.counter_noise import Key, pcg4d, threshold_of
from volumetric.graph.operations.operation import Attrs, declare, float_output, require, require_floats
from volumetric.graph.ops import Node, Tensor

if TYPE_CHECKING:
    from volumetric.graph.build import GraphBuilder

_WORD: Final = 1 << 32


def dropout_mask(shape: tuple[int, ...], p: float, key: Key, stream: int, first: int = 0) -> NDArray[np.bool_]:
    """Return which elements of an array stay if each is dropped with probability `p`.

    Element i (in row-major order, plus `first`) is dropped if the upper 24 bits of ``pcg4d(i, stream, *key)`` are
    below `threshold_of` p.
    """
    count = int(np.prod(shape, dtype=np.int64))
    index = ((np.arange(count, dtype=np.int64) + first) % (1 << 32)).astype(np.uint32)
    others = (np.array([n], np.uint32) for n in (stream, *key))
    return (pcg4d(index, *others)[0] >> np.uint32(8) >= threshold_of(p)).reshape(shape)


def gumbel(width: int, positions: NDArray[np.integer], seed: int) -> NDArray[np.float64]:
    """Return Gumbel noise, ``-log(-log u)``, for rows of `width` elements, ``[*positions.shape, width]``.

    Element i of the row at position t has ``u = (n + 0.5) / 2**23``, where n is the upper 23 bits of
    ``pcg4d(i, t, low, high)`` of the seed's halves: u is exact in float32, and never 0 or 1.
    """
    places = (positions.astype(np.int64)[..., None] % _WORD).astype(np.uint32)
    low, high = (np.array([part % _WORD], np.uint32) for part in (seed, seed >> 32))
    n = pcg4d(np.arange(width, dtype=np.uint32), places, low, high)[0] >> np.uint32(9)
    return -np.log(-np.log((n + 0.5) / (1 << 23)))


def normal(shape: tuple[int, ...], key: Key, stream: int, first: int = 0) -> NDArray[np.float64]:
    """Return standard normal noise by the transform of Box & Muller 1958 (Annals of Mathematical Statistics 29:2).

    Element i (in row-major order, plus `first`) is ``√(-2 log u) cos(2π v)``, where u and v are ``(n + 0.5) / 2**23``
    with the upper 23 bits of the first and the second word of ``pcg4d(i, stream, *key)`` as n. Both are exact in
    float32, and u is never 0 or 1: no element is beyond 5.77.
    """
    count = int(np.prod(shape, dtype=np.int64))
    index = ((np.arange(count, dtype=np.int64) + first) % _WORD).astype(np.uint32)
    words = pcg4d(index, *(np.array([n % _WORD], np.uint32) for n in (stream, *key)))
    u, v = (((word >> np.uint32(9)) + 0.5) / (1 << 23) for word in words[:2])
    return (np.sqrt(-2 * np.log(u)) * np.cos(2 * np.pi * v)).reshape(shape)


def apply_dropout(x: Array, keep: NDArray[np.bool_], p: float) -> Array:
    """Return ``x / (1 - p)`` where `keep` is true, and 0, even for NaN, elsewhere."""
    return np.where(keep, x * x.dtype.type(0 if p == 1 else 1 / (1 - p)), x.dtype.type(0))


def _infer_dropout(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    x, key = inputs
    require_floats("dropout", [x])
    require(key.dtype == "int32" and key.shape == (2,), "dropout", "the key must be int32 [2]")
    require(0 <= attrs["p"] <= 1, "dropout", f"p must be in 0 … 1, got {attrs['p']}")
    return [float_output("kept", *x.shape)]


def _run_dropout(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    x, key = inputs
    first, second = (int(word) for word in key.view(np.uint32))
    return [apply_dropout(x, dropout_mask(x.shape, attrs["p"], (first, second), attrs["stream"]), attrs["p"])]


def _vjp_dropout(work: GraphBuilder, node: Node, g: int) -> list[int | None]:
    return [work.emit("dropout", (g, node.inputs[1]), **node.attrs)[0], None]


def _infer_gumbel(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    x, positions = inputs
    require_floats("gumbel", [x])
    require(len(x.shape) == 2, "gumbel", f"x needs 2 axes, got shape {list(x.shape)}")
    require(
        positions.dtype == "int32" and positions.shape == x.shape[:1],
        "gumbel",
        "positions must be int32, one for each row",
    )
    require(attrs["seed"] >= 0, "gumbel", f"seed must not be below 0, got {attrs['seed']}")
    return [float_output("noisy", *x.shape)]


def _run_gumbel(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    x, positions = inputs
    return [x + gumbel(x.shape[1], positions, attrs["seed"]).astype(x.dtype)]


def _vjp_added(work: GraphBuilder, node: Node, g: int) -> list[int | None]:
    return [g, None]


def _infer_normal(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    x, key = inputs
    require_floats("normal", [x])
    require(key.dtype == "int32" and key.shape == (2,), "normal", "the key must be int32 [2]")
    require(attrs["first"] >= 0, "normal", f"first must not be below 0, got {attrs['first']}")
    return [float_output("noisy", *x.shape)]


def _run_normal(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    x, key = inputs
    first, second = (int(word) for word in key.view(np.uint32))
    return [x + normal(x.shape, (first, second), attrs["stream"], attrs["first"]).astype(x.dtype)]


declare("gumbel", _infer_gumbel, _run_gumbel, _vjp_added)
declare("normal", _infer_normal, _run_normal, _vjp_added)
declare("dropout", _infer_dropout, _run_dropout, _vjp_dropout)
