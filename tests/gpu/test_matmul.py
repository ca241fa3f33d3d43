"""Matrix products against NumPy in float64: every format, odd shapes, all that fuses around them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.gpu.harness import NARROWED, Kernel, aligned, assert_close, in_scheme, zero_aligned
from volumetric.base.errors import DeviceError
from volumetric.devices.gpu.kernels import gemm_tiles, matmul
from volumetric.devices.gpu.kernels.dispatch import Caps
from volumetric.devices.gpu.kernels.gemm_tiles import TILES, GemmTile, choose_tile
from volumetric.devices.gpu.kernels.matmul import MatmulShape, fits_memory, tune_matvec
from volumetric.devices.gpu.kernels.weight_formats import FORMATS
from volumetric.dtypes import Packed
from volumetric.graph.numeric.activations import activate

Array = NDArray[Any]


class Product:
    """A fused product with random operands, on the GPU and as NumPy computes it."""

    def __init__(self, kernel: Kernel, rng: np.random.Generator, rows: int, scheme: str, **fields: Any) -> None:
        self.kernel = kernel
        self.rows = rows
        self.shape = shape = MatmulShape(format=FORMATS[scheme], **fields)
        k, n = shape.k, shape.n
        self.x = (3 * rng.standard_normal((rows, k)) + 0.5).astype(np.float32)
        self.given = rng.standard_normal((shape.parts * n, k)).astype(np.float32)
        self.gain, self.shift = rng.standard_normal((2, k)).astype(np.float32)
        self.bias = rng.standard_normal((shape.parts, n)).astype(np.float32)
        self.residual = rng.standard_normal((rows, n)).astype(np.float32)
        self.buffers, self.weights = kernel.weights(self.given, scheme)
        self.buffers |= {"x": kernel.array(aligned(self.x)), "y": kernel.empty(rows, -(-n // 4) * 4)}
        if shape.norm_weight or shape.norm_bias:
            both = np.concatenate([zero_aligned(self.gain), zero_aligned(self.shift)])
            self.buffers["norm_params"] = kernel.array(both)
        if shape.bias:
            self.buffers["bias"] = kernel.array(np.concatenate([zero_aligned(b) for b in self.bias]))
        if shape.residual:
            self.buffers["residual"] = kernel.array(aligned(self.residual))

    def expected(self) -> Array:
        shape = self.shape
        x = self.x.astype(np.float64)
        if shape.norm is not None:
            x = x - x.mean(-1, keepdims=True) if shape.norm == "layer" else x
            x = x / np.sqrt(np.square(x).mean(-1, keepdims=True) + shape.norm_eps)
            x = x * (self.gain + shape.norm_unit_offset) if shape.norm_weight else x
            x = x + self.shift if shape.norm_bias else x
        z = (x @ self.weights.T).reshape(self.rows, shape.parts, shape.n)
        z = z + self.bias if shape.bias else z
        y = activate(shape.activation, z[:, 0])
        y = y * z[:, 1] if shape.gated else y
        y = y + self.residual if shape.residual else y
        return y if shape.softcap is None else shape.softcap * np.tanh(y / shape.softcap)

    def meet(self, rounded: Array, packed: Packed) -> None:
        """Expect scaled codes to meet the rounded x, and offsets, which multiply its sums, the exact one."""
        offsets = offsets_of(packed)
        x, self.x = self.x[0], rounded[None]
        if offsets is not None:
            form = packed.scheme.blocks
            each = np.repeat(offsets, 32 if form is None else form.group, axis=1)[:, : x.size]
            self.weights = np.concatenate([self.weights, each], axis=1)
            self.x = np.concatenate([rounded, x - rounded])[None]

    def matvec(self) -> Array:
        dispatch = matmul.matvec(self.shape, self.kernel.caps, first=0, units=self.shape.n)
        self.kernel.run((dispatch, self.buffers))
        return self.kernel.read(self.buffers["y"], 1, self.shape.n)

    def batch(self, **cut: Any) -> Array:
        """All rows by the kernel for a few of them, cut as it comes unless given."""
        rows = 1 << max(self.rows - 1, 1).bit_length()
        tuning = matmul.tune_batch(self.shape, self.shape.n, self.kernel.caps, rows)
        if cut:
            tuning = matmul.matvec_tuning(self.shape, self.kernel.caps, **cut)
        dispatch = matmul.matvec(self.shape, self.kernel.caps, first=0, units=self.shape.n, tuning=tuning)
        self.kernel.run((dispatch, {**self.buffers, "ctl": self.kernel.control(rows=self.rows)}), rows=self.rows)
        return self.kernel.read(self.buffers["y"], self.rows, self.shape.n)

    def gemm(self, tile: GemmTile) -> Array:
        control = {"ctl": self.kernel.control(rows=self.rows)}
        calls = []
        if self.shape.norm is not None:
            self.buffers["stats"] = self.kernel.empty(self.rows, 4)
            stats = {"x": self.buffers["x"], "stats": self.buffers["stats"], **control}
            calls.append((gemm_tiles.row_stats(self.shape), stats))
        dispatch = gemm_tiles.gemm(self.shape, self.kernel.caps, tile, first=0, units=self.shape.n)
        self.kernel.run(*calls, (dispatch, {**self.buffers, **control}), rows=self.rows)
        return self.kernel.read(self.buffers["y"], self.rows, self.shape.n)


def offsets_of(packed: Packed) -> Array | None:
    """What is added to each 32 numbers of a row, or each group of a block format, after scaling."""
    form = packed.scheme.blocks
    if form is None and packed.scheme.dtype.name == "uint8":  # codes meet x less 128
        assert packed.offsets is not None
        assert packed.scales is not None
        return packed.offsets.astype(np.float64) + 128 * packed.scales.astype(np.float64)
    if form is None:
        return packed.offsets
    fields = form.split(packed.raw_blocks())
    if fields.floor is None:
        return None
    floor = fields.floor.astype(np.float64)[:, None]
    return (floor if fields.mins is None else floor * fields.mins).reshape(packed.rows, -1)


BYTES = ("uint8:g32", "float8_e4m3fn:g32", "float8_e5m2:g32")
BY_BYTES = ("int8:g32", "int4:g32", "uint4:g32")
"""Formats whose codes meet x in int8."""
SETS = list(NARROWED)
FALLBACKS = ["native", "no subgroups, no immediates"]
PLAIN = [name for name, layout in FORMATS.items() if layout.blocks is None and name not in BYTES]
"""Formats that are not taken apart; `test_block_formats` has the others, and those of `BYTES`."""
EVERYTHING = {
    "norm": "rms", "norm_eps": 1e-5, "norm_unit_offset": True, "norm_weight": True,
    "bias": True, "residual": True, "activation": "silu", "softcap": 30.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("scheme", "device", "n", "k"),
    # Each format in each shape and on each set of capabilities, of which the three pairs differ from format to format.
    [
        (scheme, SETS[(i + j) % 3], n, k)
        for i, scheme in enumerate(PLAIN)
        for j, (n, k) in enumerate([(1, 1), (37, 131), (65, 576)])
    ],
    indirect=["device"],
)
def test_matvec(any_kernel: Kernel, rng: np.random.Generator, scheme: str, n: int, k: int) -> None:
    product = Product(any_kernel, rng, 1, scheme, n=n, k=k, **EVERYTHING)
    assert_close(product.matvec(), product.expected())


@pytest.mark.parametrize(
    ("scheme", "device"), [*zip(["float16", "int4:g32", "uint4:g32"], SETS, strict=True)], indirect=["device"]
)
def test_matvec_stages_long_rows_in_chunks(any_kernel: Kernel, rng: np.random.Generator, scheme: str) -> None:
    product = Product(any_kernel, rng, 1, scheme, n=13, k=9001, norm="rms", norm_eps=1e-6)
    assert tune_matvec(product.shape, 13, any_kernel.caps).chunks > 1
    assert_close(product.matvec(), product.expected())


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("scheme", "fallback_device", "rows"),
    # Cuts by the number of rows are the same for all formats: each format has two of the three.
    [(scheme, name, (2, 3, 11)[(i + j) % 3]) for i, scheme in enumerate(PLAIN) for j, name in enumerate(FALLBACKS)],
    indirect=["fallback_device"],
)
def test_a_few_rows(kernel: Kernel, rng: np.random.Generator, scheme: str, rows: int) -> None:
    product = Product(kernel, rng, rows, scheme, n=37, k=131, **EVERYTHING)
    assert_close(product.batch(), product.expected())


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("norm", "fallback_device"), [*zip(["layer", "rms"], FALLBACKS, strict=True)], indirect=["fallback_device"]
)
def test_a_few_rows_of_gated_products(kernel: Kernel, rng: np.random.Generator, norm: str) -> None:
    fields = {"norm": norm, "norm_eps": 1e-5, "norm_weight": True, "norm_bias": norm == "layer"}
    product = Product(kernel, rng, 7, "uint4:g32", n=29, k=101, gated=True, activation="gelu_tanh", bias=True, **fields)
    assert_close(product.batch(), product.expected())


@pytest.mark.thorough
@pytest.mark.parametrize(
    "cut",
    [
        {"team": 4, "rows": 2, "workgroup": 64, "batch": 8},
        {"team": 1, "rows": 1, "workgroup": 128, "unroll": 1, "batch": 4},
        {"team": 2, "rows": 4, "workgroup": 64, "unroll": 2, "batch": 2},
        {"team": 8, "rows": 3, "workgroup": 64, "unroll": 1, "batch": 8},
        {"team": 8, "rows": 1, "workgroup": 64, "unroll": 1, "batch": 4},
    ],
    ids=["wide", "lonely", "long", "three", "fewer sums than invocations"],
)
def test_a_few_rows_in_other_cuts(native_kernel: Kernel, rng: np.random.Generator, cut: dict[str, int]) -> None:
    product = Product(native_kernel, rng, 9, "float16", n=21, k=2100, norm="rms", norm_eps=1e-6, residual=True)
    assert_close(product.batch(**cut), product.expected())


@pytest.mark.parametrize(
    ("scheme", "device", "gated"),
    [(scheme, SETS[(i + gated) % 3], gated) for i, scheme in enumerate(BY_BYTES) for gated in (False, True)],
    indirect=["device"],
)
def test_int8_activations(any_kernel: Kernel, rng: np.random.Generator, scheme: str, gated: bool) -> None:
    """Exact against x rounded to int8 in blocks of 32, which is what the option means."""
    product = Product(any_kernel, rng, 1, scheme, n=37, k=333, gated=gated, activation="silu", residual=True, int8=True)
    plain = product.expected()
    x = np.pad(product.x[0], (0, -product.x.size % 32)).reshape(-1, 32)
    scale = np.abs(x).max(-1, keepdims=True) / np.float32(127)
    rounded = (scale * np.round(x / scale)).astype(np.float32).reshape(-1)[: product.x.size]
    got = product.matvec()
    product.meet(rounded, in_scheme(product.given, scheme))
    assert_close(got, product.expected(), 1e-5)
    assert np.abs(got - plain).max() > 1e-5


@pytest.mark.parametrize(
    ("scheme", "norm", "fallback_device"),
    [
        ("bfloat16", None, FALLBACKS[0]),
        ("bfloat16", "layer", FALLBACKS[1]),
        ("int8:g32", None, FALLBACKS[1]),
        ("int8:g32", "layer", FALLBACKS[0]),
    ],
    indirect=["fallback_device"],
)
def test_gated_matvec(kernel: Kernel, rng: np.random.Generator, scheme: str, norm: str | None) -> None:
    fields = {"norm": norm, "norm_eps": 1e-5, "norm_weight": norm is not None, "norm_bias": norm is not None}
    product = Product(kernel, rng, 1, scheme, n=29, k=101, gated=True, activation="gelu_tanh", bias=True, **fields)
    assert_close(product.matvec(), product.expected())


@pytest.mark.thorough
@pytest.mark.parametrize("tile", TILES, ids=lambda tile: f"{tile.m}x{tile.n}x{tile.k}x{tile.slices}")
def test_gemm_at_tile_edges(roomy_kernel: Kernel, rng: np.random.Generator, tile: GemmTile) -> None:
    fields = {**EVERYTHING, "softcap": None}
    product = Product(roomy_kernel, rng, tile.m + 1, "float32", n=tile.n + 1, k=tile.k + 3, **fields)
    assert_close(product.gemm(tile), product.expected())


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("scheme", "fallback_device"),
    [(scheme, FALLBACKS[i % 2]) for i, scheme in enumerate(PLAIN)],  # tiles are summed without subgroups
    indirect=["fallback_device"],
)
def test_gemm_formats(kernel: Kernel, rng: np.random.Generator, scheme: str) -> None:
    product = Product(kernel, rng, 7, scheme, n=23, k=67, residual=True, softcap=20.0)
    assert_close(product.gemm(TILES[-1]), product.expected())


@pytest.mark.thorough
def test_gated_gemm(any_kernel: Kernel, rng: np.random.Generator) -> None:
    fields = {"norm": "layer", "norm_eps": 1e-5, "norm_weight": True, "norm_bias": True, "activation": "gelu"}
    product = Product(any_kernel, rng, 19, "uint4:g32", n=41, k=70, gated=True, bias=True, **fields)
    assert_close(product.gemm(TILES[-2]), product.expected())


def test_more_workgroup_memory_than_there_is_is_refused(native_kernel: Kernel) -> None:
    """wgpu does not check it, and a GPU may then never finish."""
    shape = MatmulShape(k=8, n=8, format=FORMATS["float32"])
    tile = GemmTile(m=128, n=128, k=64, vectors=2, buffers=2)
    with pytest.raises(DeviceError, match="bytes of workgroup memory"):
        native_kernel.context.pipeline(gemm_tiles.gemm(shape, native_kernel.caps, tile, first=0, units=8))


def test_rows_beyond_the_call_are_not_written(native_kernel: Kernel, rng: np.random.Generator) -> None:
    product = Product(native_kernel, rng, 5, "float32", n=8, k=8)
    product.buffers["y"] = native_kernel.empty(16, 8)
    product.gemm(TILES[-1])
    got = native_kernel.read(product.buffers["y"], 16, 8)
    assert np.isfinite(got[:5]).all()
    assert np.isnan(got[5:]).all()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("first", "fallback_device"),
    [(0, FALLBACKS[0]), (8, FALLBACKS[1]), (36, FALLBACKS[0])],
    indirect=["fallback_device"],
)
def test_a_shard_writes_its_own_outputs(kernel: Kernel, rng: np.random.Generator, first: int) -> None:
    n, units, k = 45, 9, 33
    weights = rng.standard_normal((2 * units, k)).astype(np.float32)
    x = rng.standard_normal((3, k)).astype(np.float32)
    buffers, held = kernel.weights(weights, "float32")
    z = x.astype(np.float64) @ held.T
    expected = np.maximum(z[:, :units], 0) * z[:, units:]
    shape = MatmulShape(k=k, n=n, format=FORMATS["float32"], gated=True, activation="relu")
    for rows in (1, 3):
        y = kernel.empty(rows, 48)
        found = {**buffers, "x": kernel.array(aligned(x[:rows])), "y": y}
        if rows == 1:
            kernel.run((matmul.matvec(shape, kernel.caps, first=first, units=units), found))
        else:
            dispatch = gemm_tiles.gemm(shape, kernel.caps, TILES[-1], first=first, units=units)
            kernel.run((dispatch, {**found, "ctl": kernel.control(rows=rows)}), rows=rows)
        got = kernel.read(y, rows, n)
        assert_close(got[:, first : first + units], expected[:rows])
        assert np.isnan(got[:, :first]).all()


@pytest.mark.parametrize(
    "caps", [Caps(), Caps(subgroup_size=32, max_workgroup=1024), Caps(subgroup_size=64), Caps(subgroup_size=4)]
)
@pytest.mark.parametrize(("n", "k"), [(1, 1), (576, 576), (576, 1536), (11008, 4096), (4096, 11008), (49152, 576)])
@pytest.mark.parametrize("scheme", FORMATS)
def test_cuts_are_legal(caps: Caps, n: int, k: int, scheme: str) -> None:
    for gated in (False, True):
        shape = MatmulShape(k=k, n=n, format=FORMATS[scheme], gated=gated)
        tuning = tune_matvec(shape, n, caps)
        assert tuning.team <= tuning.workgroup <= caps.max_workgroup
        assert tuning.workgroup % tuning.team == 0
        assert tuning.chunk % (tuning.team * tuning.unroll) == 0
        assert tuning.chunk % 2 == 0
        assert tuning.chunk * tuning.chunks >= shape.format.pieces(k)
        assert fits_memory(shape, tuning, caps)
        for rows in (2, 4, 8, 16, 64):
            batch = matmul.tune_batch(shape, n, caps, rows)
            assert batch.team <= max(caps.subgroup_size, 8)
            assert batch.workgroup % (batch.batch * 4) == 0
            assert batch.workgroup <= caps.max_workgroup
            assert batch.chunk % (batch.team * batch.unroll) == 0
            assert batch.chunk * batch.chunks >= shape.format.pieces(k)
            assert fits_memory(shape, batch, caps)
        for rows in (2, 16, 17, 100, 512):
            tile = choose_tile(shape, rows, caps)
            assert tile.shared <= caps.max_shared
            assert tile.workgroup <= caps.max_workgroup


@pytest.mark.parametrize(("n", "k", "gated"), [(12288, 4096, False), (11008, 4096, True), (49152, 4096, False)])
def test_wide_products_divide_well_among_processors(n: int, k: int, gated: bool) -> None:
    caps = Caps(subgroup_size=32, max_workgroup=1024, max_shared=49152)
    shape = MatmulShape(k=k, n=n, format=FORMATS["float16"], gated=gated)
    cut = matmul.tune_batch(shape, n, caps, 16)
    processors = caps.invocations // 1024
    groups = -(-n // (cut.workgroup // cut.team * cut.rows))
    assert groups / (-(-groups // processors) * processors) > 0.85
