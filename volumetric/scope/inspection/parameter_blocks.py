"""Blocks of parameters as matrices: exact numbers with their stored codes, or averages where there are too many."""

from __future__ import annotations

from math import prod
from typing import Any, Final

import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.base.errors import SpecError
from volumetric.dtypes import Packed, decode
from volumetric.dtypes.bits import unpack_codes
from volumetric.network.weight_store import WeightStore

SIDE: Final = 128
"""Maximum rows and columns of a block; a larger range is averaged to so many."""
_SAMPLE: Final = 1 << 20  # elements that statistics read
_BINS: Final = 24


def matrix_shape(shape: Shape) -> tuple[int, int]:
    """Return rows and columns of a tensor shown as a matrix: the first axis, and all others; a vector is one row."""
    if len(shape) < 2:
        return 1, prod(shape)
    return shape[0], prod(shape[1:])


def parameter_block(
    store: WeightStore, rows: tuple[int, int], columns: tuple[int, int], *, side: int = SIDE
) -> dict[str, Any]:
    """Return a block of a parameter.

    Parameters
    ----------
    rows, columns : first, and one past the last, of `matrix_shape`
    side : maximum rows and columns of the result

    Returns
    -------
    dict
        ``rows``, ``columns``; with at most `side` of both ``values`` float32 ``[rows, columns]``, and for types other
        than float32 ``codes`` (integers; the bits of floats) with ``scale`` and ``offset`` of each number, where there
        are any. A larger block has ``mean`` and ``rms`` of `side` × `side` parts, and ``part``, their size.

    Raises
    ------
    SpecError : the ranges are not within the matrix
    """
    height, width = matrix_shape(store.shape)
    for name, (start, stop), size in (("rows", rows, height), ("columns", columns, width)):
        if not 0 <= start < stop <= size:
            raise SpecError(f"{name} {start}:{stop} are not within 0:{size}")
    if rows[1] - rows[0] > side or columns[1] - columns[0] > side:
        return _averages(store, rows, columns, side)
    packed = _packed_rows(store, *rows)
    return {"rows": list(rows), "columns": list(columns), **_exact(packed, rows[1] - rows[0], width, columns)}


def _packed_rows(store: WeightStore, start: int, stop: int) -> Packed:
    """Return matrix rows of a parameter in stored form."""
    inner = prod(store.shape[1:-1]) if len(store.shape) > 1 else 1
    packed = store.packed()
    return packed.slice_rows(start * inner, stop * inner) if packed.rows else packed


def _exact(packed: Packed, height: int, width: int, columns: tuple[int, int]) -> dict[str, Any]:
    own = slice(*columns)
    block: dict[str, Any] = {"values": decode(packed, np.float32).reshape(height, width)[:, own].copy()}
    scheme = packed.scheme
    if scheme.blocks is not None or scheme.dtype.name in ("float32", "float64"):
        return block
    integers = scheme.dtype.kind in ("int", "uint", "ternary", "binary")
    codes = packed.codes() if integers else unpack_codes(packed.payload, scheme.dtype.bits, packed.k)
    if scheme.dtype.bits <= 32:
        block["codes"] = np.asarray(codes).astype(np.int64).reshape(height, width)[:, own].copy()
        block["kind"] = "integer" if integers else "bits"
    for name, of in (("scale", packed.scales), ("offset", packed.offsets)):
        if of is not None:
            size = scheme.group or packed.k
            spread = np.repeat(np.asarray(of, np.float32), size, 1)[:, : packed.k]
            block[name] = spread.reshape(height, width)[:, own].copy()
    return block


def _averages(store: WeightStore, rows: tuple[int, int], columns: tuple[int, int], side: int) -> dict[str, Any]:
    """Return means and root mean squares of the parts of a block, reading a few rows at a time."""
    _, width = matrix_shape(store.shape)
    high, wide = (max(1, -(-(stop - start) // side)) for start, stop in (rows, columns))
    starts = range(rows[0], rows[1], high)
    edges = np.arange(0, columns[1] - columns[0], wide)
    mean, rms = (np.zeros((len(starts), len(edges)), np.float32) for _ in range(2))
    counts = np.diff(np.append(edges, columns[1] - columns[0]))
    for n, start in enumerate(starts):
        stop = min(start + high, rows[1])
        values = decode(_packed_rows(store, start, stop), np.float32).reshape(stop - start, width)
        part = values[:, slice(*columns)].astype(np.float64)
        size = counts * len(part)
        mean[n] = np.add.reduceat(part.sum(0), edges) / size
        rms[n] = np.sqrt(np.add.reduceat(np.square(part).sum(0), edges) / size)
    return {"rows": list(rows), "columns": list(columns), "part": [high, wide], "mean": mean, "rms": rms}


def parameter_statistics(store: WeightStore) -> dict[str, Any]:
    """Return minimum, maximum, mean, standard deviation and a histogram of a parameter, of a sample if it is large."""
    height, width = matrix_shape(store.shape)
    if not height * width:
        return {"sampled": 0}
    step = max(1, -(-height * width // _SAMPLE))
    values = _sample(store, height, width, step)
    finite = values[np.isfinite(values)].astype(np.float64)
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    span = (low, high) if high > low else (low - 0.5, low + 0.5)
    return {
        "min": low,
        "max": high,
        "mean": float(finite.mean()) if finite.size else 0.0,
        "std": float(finite.std()) if finite.size else 0.0,
        "odd": int(values.size - finite.size),
        "histogram": np.histogram(finite, _BINS, span)[0].tolist(),
        "range": list(span),
        "sampled": int(values.size),
    }


def _sample(store: WeightStore, height: int, width: int, step: int) -> Array:
    if step == 1 or height == 1:
        return store.values().ravel()[:: max(1, step)]
    rows = range(0, height, step)
    return np.concatenate([decode(_packed_rows(store, r, r + 1), np.float32).ravel() for r in rows])
