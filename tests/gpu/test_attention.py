"""Attention against NumPy in float64: prefill in chunks, then single rows, over one cache."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.gpu.harness import NARROWED, Kernel, aligned, assert_close
from volumetric.base.errors import UnsupportedError
from volumetric.devices.gpu.call_schedule import SequenceSpan
from volumetric.devices.gpu.kernels import attention
from volumetric.devices.gpu.kernels.attention import AttentionShape, is_alone, tune_rows, tune_split
from volumetric.devices.gpu.kernels.dispatch import Caps
from volumetric.graph.numeric.rope import Rope, rotate, rotation

Array = NDArray[Any]
CONTEXT = 80


def make_shape(**fields: Any) -> AttentionShape:
    return AttentionShape(context=CONTEXT, scale=fields["head_dim"] ** -0.5, **fields)


class Attention:
    """One attention layer over one cache, on the GPU and as NumPy computes it. Pages lie in any order."""

    def __init__(self, kernel: Kernel, rng: np.random.Generator, shape: AttentionShape, rows: int) -> None:
        self.kernel = kernel
        self.shape = shape
        self.qkv = rng.standard_normal((rows, shape.qkv_width)).astype(np.float32)
        self.gains = [rng.standard_normal(size).astype(np.float32) for size in shape.gain_sizes]
        self.sinks = rng.standard_normal(shape.heads).astype(np.float32)
        self.params = kernel.array(np.concatenate([*self.gains, self.sinks]))
        pages = shape.pages + 2
        stale = np.full(pages * shape.page_bytes // 4, np.nan, np.float32)
        self.caches = {"keys": kernel.array(stale), "values": kernel.array(stale)}
        if shape.state:
            lines = np.stack([np.zeros(shape.pages), 1 + rng.permutation(pages - 1)[: shape.pages]])
            self.caches["tables"] = kernel.array(lines.astype(np.uint32))
            self.pages = lines[1].astype(int).tolist()
        self.source = dict(self.caches)
        if shape.qk_norm or shape.sinks:
            self.source["head_params"] = self.params
        if shape.rotary:
            table = np.stack(rotation(Rope(dim=shape.rotary), np.arange(CONTEXT)), axis=-1)
            self.source["rope"] = kernel.array(table.astype(np.float32))

    def prefill(self, start: int, stop: int) -> Array:
        kernel, shape, rows = self.kernel, self.shape, stop - start
        width = shape.heads * shape.head_dim
        each = tune_rows(shape, kernel.caps).rows
        control, counted = kernel.call([SequenceSpan(1, start, rows)], each, singles=False)
        q, y = kernel.empty(rows, shape.heads * shape.padded), kernel.empty(rows, -(-width // 4) * 4)
        qkv = kernel.array(aligned(self.qkv[start:stop]))
        sinks = {"head_params": self.params} if shape.sinks else {}
        kernel.run(
            (attention.append(shape), {**self.source, "ctl": control, "qkv": qkv, "q": q}),
            (attention.rows(shape, kernel.caps), {**self.caches, **sinks, "ctl": control, "q": q, "y": y}),
            rows=counted,
        )
        return kernel.read(y, rows, width)

    def decode(self, position: int) -> Array:
        kernel, shape = self.kernel, self.shape
        tuning = tune_split(shape, kernel.caps)
        width = shape.heads * shape.head_dim
        qkv, y = kernel.array(aligned(self.qkv[position])), kernel.empty(width + 3)
        control, counted = kernel.call([SequenceSpan(1, position, 1, self.pages)])
        source = {**self.source, "qkv": qkv, "ctl": control}
        if is_alone(shape, tuning):
            kernel.run((attention.split(shape, kernel.caps), {**source, "parts": y}), rows=counted)
            return kernel.read(y, 1, width)
        parts = {
            "parts": kernel.empty(tuning.splits, shape.heads * shape.padded),
            "maxima": kernel.empty(tuning.splits, shape.heads, 2),
        }
        kernel.run(
            (attention.split(shape, kernel.caps), {**source, **parts}),
            (attention.combine(shape, kernel.caps), {"x": parts["parts"], "maxima": parts["maxima"], "y": y}),
            rows=counted,
        )
        return kernel.read(y, 1, width)

    def expected(self, stop: int) -> Array:
        """Output of all rows before `stop`, had they come in one call."""
        shape = self.shape
        heads = self.qkv[:stop].astype(np.float64).reshape(stop, -1, shape.head_dim)
        q, k, v = np.split(heads, [shape.heads, shape.heads + shape.kv_heads], axis=1)
        if shape.qk_norm:
            if shape.qk_norm == "layer":
                q, k = (a - a.mean(-1, keepdims=True) for a in (q, k))
            q, k = (
                a / np.sqrt(np.square(a).mean(-1, keepdims=True) + shape.qk_norm_eps)
                * (gain.reshape(-1, shape.head_dim) + shape.qk_norm_unit_offset if shape.gains else 1.0)
                for a, gain in ((q, self.gains[0]), (k, self.gains[1]))
            )  # fmt: skip
        if shape.rotary:
            rope = Rope(dim=shape.rotary)
            q, k = rotate(rope, q, np.arange(stop)), rotate(rope, k, np.arange(stop))
        growth = np.log1p((np.arange(stop) + 1) // shape.temperature_every)
        q = q * (1 + shape.temperature_scale * growth)[:, None, None]
        k, v = (np.repeat(a, shape.heads // shape.kv_heads, axis=1) for a in (k, v))
        scores = shape.scale * np.einsum("ihd,jhd->hij", q, k)
        if shape.softcap:
            scores = shape.softcap * np.tanh(scores / shape.softcap)
        i, j = np.arange(stop)[:, None], np.arange(stop)
        seen = (j <= i) | (not shape.causal)
        if shape.window:
            seen &= abs(i - j) < shape.window
        if shape.chunk:
            seen &= i // shape.chunk == j // shape.chunk
        top = scores.max(-1, keepdims=True)
        weights = np.exp(np.where(seen, scores, -np.inf) - top)
        rest = np.exp(self.sinks[:, None, None].astype(np.float64) - top) if shape.sinks else 0.0
        weights /= weights.sum(-1, keepdims=True) + rest
        return np.einsum("hij,jhd->ihd", weights, v).reshape(stop, -1)


SHAPES = {
    "grouped": make_shape(heads=9, kv_heads=3, head_dim=64, rotary=64),
    "everything": make_shape(
        heads=4, kv_heads=2, head_dim=24, rotary=12, window=17, softcap=5.0, sinks=True,
        qk_norm="rms", qk_norm_eps=1e-6, qk_norm_unit_offset=True,
    ),
    "odd head, one kv head": make_shape(heads=11, kv_heads=1, head_dim=7, rotary=6, chunk=19),
    "wide head": make_shape(heads=2, kv_heads=2, head_dim=130, qk_norm="rms", qk_norm_eps=1e-5),
    "norms without gains, and temperatures": make_shape(
        heads=4, kv_heads=2, head_dim=12, rotary=12, qk_norm="rms", gains=False, qk_norm_eps=1e-5,
        temperature_scale=0.3, temperature_every=7,
    ),
    "norms of their own": make_shape(
        heads=4, kv_heads=2, head_dim=12, rotary=8, qk_norm="layer", own_gains=True, qk_norm_eps=1e-5, sinks=True
    ),
}  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("device", "name"),
    # A shape with all options goes to every set of capabilities; the others show where a cut or a reduction differs.
    [
        *((device, "everything") for device in NARROWED),
        *(("native", name) for name in ("grouped", "norms without gains, and temperatures")),
        *(("no subgroups, no immediates", name) for name in ("odd head, one kv head", "norms of their own")),
        *(("large", name) for name in ("grouped", "wide head")),
    ],
    indirect=["device"],
)
def test_chunks_then_single_rows(any_kernel: Kernel, rng: np.random.Generator, name: str) -> None:
    layer = Attention(any_kernel, rng, SHAPES[name], 60)
    got = [layer.prefill(0, 33), layer.prefill(33, 58), layer.decode(58), layer.decode(59)]
    assert_close(np.concatenate(got), layer.expected(60))


@pytest.mark.thorough
def test_the_first_row_alone(kernel: Kernel, rng: np.random.Generator) -> None:
    layer = Attention(kernel, rng, SHAPES["grouped"], 2)
    assert_close(np.concatenate([layer.decode(0), layer.decode(1)]), layer.expected(2))


@pytest.mark.thorough
def test_weights_far_below_the_largest_are_exact(kernel: Kernel, rng: np.random.Generator) -> None:
    """Down to e^-80, in a prompt and in a single row; drivers' own exp may lose four digits."""
    layer = Attention(kernel, rng, make_shape(heads=1, kv_heads=1, head_dim=64), 60)
    layer.qkv[:] = 0
    layer.qkv[:, 0] = 8
    layer.qkv[:, 64] = -1.375 * np.arange(60)
    layer.qkv[:, 128:188] = np.eye(60)
    for got, rows in ((layer.prefill(0, 59), 59), (layer.decode(59), 60)):
        expected = np.exp(-1.375 * np.arange(rows)) * -np.expm1(-1.375) / -np.expm1(-1.375 * rows)
        assert np.all(np.abs(got[-1, :rows] / expected - 1) < 1e-6)


@pytest.mark.thorough
def test_float16_cache(kernel: Kernel, rng: np.random.Generator) -> None:
    shape = make_shape(heads=4, kv_heads=2, head_dim=16, rotary=16, half=True)
    layer = Attention(kernel, rng, shape, 40)
    got = np.concatenate([layer.prefill(0, 38), layer.decode(38), layer.decode(39)])
    assert_close(got, layer.expected(40), 2e-3)
    assert np.abs(got - layer.expected(40)).max() > 1e-5, "a float16 cache rounds"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("fallback_device", "window"),
    [("native", None), ("native", 1), ("no subgroups, no immediates", 9), ("native", 40)],
    indirect=["fallback_device"],
)
def test_bidirectional_rows_see_each_other(kernel: Kernel, rng: np.random.Generator, window: int | None) -> None:
    shape = make_shape(heads=2, kv_heads=2, head_dim=12, causal=False, state=False, window=window)
    layer = Attention(kernel, rng, shape, 37)
    assert_close(layer.prefill(0, 37), layer.expected(37))


def test_a_position_outside_of_the_window_has_no_influence(native_kernel: Kernel, rng: np.random.Generator) -> None:
    layer = Attention(native_kernel, rng, SHAPES["everything"], 41)
    layer.prefill(0, 40)
    before = layer.decode(40)
    layer.qkv[:10] = 9.0
    layer.prefill(0, 10)
    assert np.array_equal(layer.decode(40), before)


@pytest.mark.thorough
def test_heads_that_hardly_fit_the_least_workgroup_memory(least_kernel: Kernel, rng: np.random.Generator) -> None:
    layer = Attention(least_kernel, rng, make_shape(heads=2, kv_heads=1, head_dim=256), 19)
    got = [layer.prefill(0, 12), layer.prefill(12, 19)]
    assert_close(np.concatenate(got), layer.expected(19))


def test_heads_that_do_not_fit_are_refused() -> None:
    with pytest.raises(
        UnsupportedError, match=r"heads of 4096 needs \d+ bytes of workgroup memory; this GPU has 16384"
    ):
        attention.rows(make_shape(heads=1, kv_heads=1, head_dim=4096), Caps())


@pytest.mark.parametrize("caps", [Caps(), Caps(subgroup_size=32), Caps(subgroup_size=64), Caps(invocations=1)])
@pytest.mark.parametrize("head_dim", [1, 3, 64, 80, 128, 256])
@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (32, 8), (71, 1)])
def test_cuts_cover_the_heads(caps: Caps, head_dim: int, heads: int, kv_heads: int) -> None:
    tuning = tune_split(make_shape(heads=heads, kv_heads=kv_heads, head_dim=head_dim), caps)
    assert heads // kv_heads % tuning.block == 0
    assert 4 * tuning.team * tuning.vectors >= head_dim
    assert tuning.splits >= 1
