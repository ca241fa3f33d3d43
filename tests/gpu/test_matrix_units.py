"""Products of many rows as float16 with float32 sums, on matrix units or in emulated fragments.

The expectation rounds both sides to float16 as the kernels do, and multiplies in float64: what is left is the order of
float32 sums. A float32 product is farther from it than the tolerance.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.gpu.harness import Kernel, aligned, assert_close
from tests.gpu.test_matmul import EVERYTHING, Product
from volumetric.devices.gpu.kernels import row_predicate
from volumetric.devices.gpu.kernels.matmul import MatmulShape
from volumetric.devices.gpu.kernels.matrix_tiles import (
    EMULATED_TILE,
    TILES,
    MatrixCut,
    MatrixTile,
    choose_cut,
    halve_rows,
    halved_stride,
    join_splits,
    matrix_gemm,
    partial_bytes,
)
from volumetric.devices.gpu.kernels.row_predicate import NONE, RowPredicate
from volumetric.devices.gpu.kernels.weight_formats import FORMATS

Array = NDArray[Any]
SUMS = 2e-6
NORMED = 2.0**-12
"""The last bit of a norm in float32 decides how one element in thousands is rounded, by a unit of 2^-11 of it."""
GATED = {"gated": True, "activation": "gelu_tanh", "bias": True, "norm": "layer", "norm_eps": 1e-5}
PLAIN = {"bias": True, "residual": True, "activation": "silu", "softcap": 300.0}


def halved(x: Array) -> Array:
    """Rows as `halve_rows` rounds them: times the power of two with which their largest element is in 2^14 … 2^15."""
    top = np.abs(x.astype(np.float32)).max(-1, keepdims=True)
    exponent = np.where((top > 0) & np.isfinite(top), np.clip(np.frexp(top)[1] - 15, -126, 126), 0)
    with np.errstate(invalid="ignore", over="ignore"):
        return np.ldexp(np.ldexp(x, -exponent).astype(np.float16).astype(np.float64), exponent)


class HalvedProduct(Product):
    """A product whose sides are rounded to float16."""

    def expected(self) -> Array:
        norm = {"norm": None, "norm_weight": False, "norm_bias": False}
        x, weights, shape = self.x, self.weights, self.shape
        self.x, self.weights = halved(self.normed()), weights.astype(np.float16).astype(np.float64)
        self.shape = MatmulShape(**{f: getattr(shape, f) for f in shape.__slots__} | norm)
        y = super().expected()
        self.x, self.weights, self.shape = x, weights, shape
        return y

    def normed(self) -> Array:
        """Rows after the norm."""
        shape, x = self.shape, self.x.astype(np.float64)
        if shape.norm is None:
            return x
        x = x - x.mean(-1, keepdims=True) if shape.norm == "layer" else x
        x = x / np.sqrt(np.square(x).mean(-1, keepdims=True) + shape.norm_eps)
        x = x * (self.gain + shape.norm_unit_offset) if shape.norm_weight else x
        return x + self.shift if shape.norm_bias else x

    def tolerance(self) -> float:
        """Of the largest output."""
        return SUMS if self.shape.norm is None else NORMED

    def matrix(
        self,
        *,
        splits: int = 1,
        tile: Any = None,
        guard: RowPredicate = NONE,
        gate: Mapping[str, Any] | None = None,
        first: int = 0,
        units: int | None = None,
    ) -> Array:
        """Run the kernels; returns what is in y."""
        k, shape, units = self.kernel, self.shape, self.shape.n if units is None else units
        cut = MatrixCut(tile=tile or choose_cut(shape, self.rows, k.caps).tile, splits=splits)
        control = {"ctl": k.control(rows=self.rows)}
        rows = {"halved": k.empty(self.rows, halved_stride(shape.k) // 2), "undo": k.empty(self.rows)}
        of_rows = {name: self.buffers[name] for name in ("x", "norm_params") if name in self.buffers}
        after = {name: self.buffers[name] for name in ("bias", "residual", "y") if name in self.buffers}
        weights = {name: self.buffers[name] for name in ("weights", "scales") if name in self.buffers}
        sides = {**weights, "x": rows["halved"], "undo": rows["undo"], **(gate or {}), **control}
        place: dict[str, Any] = {"first": first, "units": units, "rows": self.rows}
        product = matrix_gemm(shape, k.caps, cut, guard=guard, **place)
        calls = [(halve_rows(shape), {**of_rows, **rows, **control})]
        if splits == 1:
            calls.append((product, {**sides, **after}))
        else:
            parts = {"y": k.empty(partial_bytes(shape, cut, self.rows) // 4)}
            calls.append((product, {**sides, **parts}))
            calls.append((join_splits(shape, cut, **place), {**after, "splits": parts["y"], **control}))
        k.run(*calls, rows=self.rows)
        return k.read(self.buffers["y"], self.rows, shape.n)


def tiles(kernel: Kernel) -> Any:
    """Every tile that this GPU runs."""
    return TILES if kernel.caps.matrix_units else (EMULATED_TILE,)


def wide(scheme: str) -> int:
    """A k that divides no tile, and has more than a block."""
    return 323 if FORMATS[scheme].blocks is not None else 131


@pytest.mark.parametrize(("scheme", "fields"), [("float16", PLAIN), ("int4:g32", GATED), ("q4_k", EVERYTHING)])
def test_formats_of_each_kind(native_kernel: Kernel, rng: np.random.Generator, scheme: str, fields: Any) -> None:
    product = HalvedProduct(native_kernel, rng, 37, scheme, n=45, k=wide(scheme), **fields)
    assert_close(product.matrix(), product.expected(), product.tolerance())


@pytest.mark.thorough
@pytest.mark.parametrize("scheme", [name for name in FORMATS if name != "float32"])
def test_every_format(native_kernel: Kernel, rng: np.random.Generator, scheme: str) -> None:
    fields = GATED if list(FORMATS).index(scheme) % 2 else {}
    product = HalvedProduct(native_kernel, rng, 19, scheme, n=21, k=wide(scheme), **fields)
    assert_close(product.matrix(), product.expected(), product.tolerance())


@pytest.mark.thorough
@pytest.mark.parametrize(("rows", "n", "k"), [(1, 1, 1), (1, 17, 33), (17, 15, 64), (33, 50, 200)])
def test_shapes(native_kernel: Kernel, rng: np.random.Generator, rows: int, n: int, k: int) -> None:
    for tile in tiles(native_kernel):
        product = HalvedProduct(native_kernel, rng, rows, "uint8:g32", n=n, k=k, **PLAIN)
        assert_close(product.matrix(tile=tile), product.expected(), SUMS)


SMALL: Mapping[str, Any] = {"m": 16, "n": 32, "rows": 16, "columns": 32}


@pytest.mark.thorough
@pytest.mark.parametrize(
    "tile",
    [
        MatrixTile(k=32, ahead=2, **SMALL),
        MatrixTile(k=64, ahead=2, slices=2, **SMALL),
    ],
    ids=["two ahead", "slices"],
)
def test_ways_to_fetch_and_share_steps(native_kernel: Kernel, rng: np.random.Generator, tile: MatrixTile) -> None:
    """In small tiles: software adapters take a minute to compile those of `TILES`, which Dawn compiles alone."""
    product = HalvedProduct(native_kernel, rng, 18, "float16", n=37, k=5 * tile.k - 3, **PLAIN)
    assert_close(product.matrix(tile=tile), product.expected(), SUMS)


@pytest.mark.thorough
@pytest.mark.parametrize("fields", [PLAIN, {**GATED, "norm": None}], ids=["plain", "gated"])
@pytest.mark.parametrize("splits", [2, 3])
def test_splits_are_added_up(native_kernel: Kernel, rng: np.random.Generator, splits: int, fields: Any) -> None:
    product = HalvedProduct(native_kernel, rng, 18, "float16", n=37, k=131, **fields)
    for tile in tiles(native_kernel):
        assert_close(product.matrix(splits=splits, tile=tile), product.expected(), SUMS)


@pytest.mark.parametrize("splits", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_a_shard_writes_its_own_outputs(native_kernel: Kernel, rng: np.random.Generator, splits: int) -> None:
    """And no row beyond the call."""
    first, units = 36, 9
    product = HalvedProduct(native_kernel, rng, 5, "float16", n=units, k=70, gated=True, activation="relu")
    expected = product.expected()
    product.shape = MatmulShape(format=FORMATS["float16"], n=45, k=70, gated=True, activation="relu")
    product.buffers["y"] = native_kernel.empty(16, 48)
    got = product.matrix(first=first, units=units, splits=splits)
    assert_close(got[:, first:], expected, SUMS)
    whole = native_kernel.read(product.buffers["y"], 16, 48)
    assert np.isnan(whole[:5, :first]).all()
    assert np.isnan(whole[5:]).all()


@pytest.mark.thorough
def test_idle_rows_are_left_out(native_kernel: Kernel, rng: np.random.Generator) -> None:
    """Rows that a gate gives no weight: a block of them is not computed."""
    tile = tiles(native_kernel)[-1]
    rows = 2 * tile.m + 3
    gate = np.zeros((rows, 5), np.float32)
    gate[tile.m + 1, 2] = 0.5
    product = HalvedProduct(native_kernel, rng, rows, "float16", n=9, k=40)
    guard = {"gate": native_kernel.array(aligned(gate))}
    got = product.matrix(tile=tile, guard=row_predicate.column(5, 2), gate=guard)
    busy = slice(tile.m, 2 * tile.m)
    assert_close(got[busy], product.expected()[busy], SUMS)
    assert np.isnan(np.delete(got, np.r_[busy], axis=0)).all()


def test_rows_of_any_magnitude(native_kernel: Kernel, rng: np.random.Generator) -> None:
    """Neither large rows overflow float16, nor do small ones lose digits; what is not a number stays in its row."""
    product = HalvedProduct(native_kernel, rng, 17, "float16", n=13, k=67)
    factors = np.float32(10.0) ** np.array([0, 5, 12, 30, 36, -5, -12, -30, -36, 0, 0, 0, 0, 0, 0, 0, 0])
    product.x = (product.x * factors[:, None]).astype(np.float32)
    product.x[9] = 0
    product.x[10, 3] = 1e7  # beyond float16 alone, in a row of small numbers
    product.x[11, 5], product.x[12, 6], product.x[13, 7] = np.inf, -np.inf, np.nan
    product.buffers["x"] = native_kernel.array(aligned(product.x))
    with np.errstate(invalid="ignore"):
        got, expected = product.matrix(), product.expected()
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    np.testing.assert_array_equal(np.isinf(got), np.isinf(expected))
    for row in (*range(11), *range(14, 17)):
        assert_close(got[row], expected[row], SUMS)
    assert not got[9].any()
