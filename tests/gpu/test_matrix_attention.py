"""Attention of prompts as products of halves, in emulated fragments, against NumPy in float64."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.gpu.harness import Kernel, aligned, assert_close
from tests.gpu.test_attention import Attention, make_shape
from tests.networks import tiny_llama
from volumetric.devices.gpu import GpuDevice
from volumetric.devices.gpu.call_schedule import SequenceSpan
from volumetric.devices.gpu.kernels import attention, matrix_attention
from volumetric.devices.gpu.kernels.attention import AttentionShape
from volumetric.devices.gpu.kernels.dispatch import CallRows, Caps
from volumetric.devices.gpu.kernels.matrix_attention import AttentionTile
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.network import initialise
from volumetric.run import RunOptions, lower

Array = NDArray[Any]
TOLERANCE = 4e-3
"""Of the largest output. Each product has two factors rounded to 11 bits. Scores of about 3 sigma so err by up to
2^-11 times some tens, which weights inherit; weights and values are rounded once more."""


class HalvedAttention(Attention):
    """Prompts go through `matrix_attend`."""

    tile: AttentionTile | None = None

    def prefill(self, start: int, stop: int) -> Array:
        kernel, shape, rows = self.kernel, self.shape, stop - start
        tile = self.tile or (matrix_attention.choose_tiles([shape], kernel.caps) or {})[shape]
        width = shape.heads * shape.head_dim
        control, counted = kernel.call([SequenceSpan(1, start, rows)], tile.rows, singles=False)
        queries = {"q": kernel.empty(rows, width), "undo": kernel.empty(rows, shape.heads)}
        y = kernel.empty(rows, width)
        qkv = kernel.array(aligned(self.qkv[start:stop]))
        sinks = {"head_params": self.params} if shape.sinks else {}
        kernel.run(
            (attention.append(shape, halves=True), {**self.source, **queries, "ctl": control, "qkv": qkv}),
            (
                matrix_attention.rows(shape, kernel.caps, tile),
                {**self.caches, **sinks, **queries, "ctl": control, "y": y},
            ),
            rows=counted,
        )
        return kernel.read(y, rows, width)


SHAPES = {
    "grouped": make_shape(heads=9, kv_heads=3, head_dim=64, rotary=64, half=True),
    "everything": make_shape(
        heads=4, kv_heads=2, head_dim=40, rotary=12, window=17, softcap=5.0, sinks=True,
        qk_norm="rms", qk_norm_eps=1e-6, qk_norm_unit_offset=True,
    ),
    "chunks": make_shape(heads=2, kv_heads=1, head_dim=16, rotary=6, chunk=19, half=True),
    "wide": make_shape(heads=2, kv_heads=2, head_dim=96, qk_norm="rms", qk_norm_eps=1e-5, half=True),
    "norms of their own": make_shape(
        heads=3, kv_heads=1, head_dim=24, rotary=16, qk_norm="layer", own_gains=True, qk_norm_eps=1e-5, sinks=True,
        temperature_scale=0.3, temperature_every=7,
    ),
    "bidirectional": make_shape(heads=2, kv_heads=2, head_dim=12, causal=False, state=False),
    "bidirectional window": make_shape(heads=2, kv_heads=2, head_dim=12, causal=False, state=False, window=9),
}  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("fallback_device", "name"),
    [
        *(("native", name) for name in ("grouped", "chunks", "wide")),
        *(("no subgroups, no immediates", name) for name in ("everything", "norms of their own")),
    ],
    indirect=["fallback_device"],
)
def test_chunks_of_odd_lengths(kernel: Kernel, rng: np.random.Generator, name: str) -> None:
    layer = HalvedAttention(kernel, rng, SHAPES[name], 80)
    ends = [0, 1, 34, 49, 78]
    got = [layer.prefill(a, b) for a, b in pairwise(ends)]
    assert_close(np.concatenate([*got, layer.decode(78)]), layer.expected(79), TOLERANCE)


@pytest.mark.parametrize("name", ["bidirectional", "bidirectional window"])
def test_rows_without_a_state_see_each_other(native_kernel: Kernel, rng: np.random.Generator, name: str) -> None:
    layer = HalvedAttention(native_kernel, rng, SHAPES[name], 37)
    assert_close(layer.prefill(0, 37), layer.expected(37), TOLERANCE)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "tile",
    [
        AttentionTile(rows=32, positions=32, fragments=2, parts=1, hold=False),
        AttentionTile(rows=32, positions=32, fragments=2, parts=2, hold=False),
        AttentionTile(rows=16, positions=16, parts=1, hold=False),
    ],
)
def test_shares_of_subgroups(native_kernel: Kernel, rng: np.random.Generator, tile: AttentionTile) -> None:
    shape = make_shape(heads=4, kv_heads=2, head_dim=40, rotary=8, half=True)
    layer = HalvedAttention(native_kernel, rng, shape, 70)
    layer.tile = tile
    got = [layer.prefill(0, 33), layer.prefill(33, 70)]
    assert_close(np.concatenate(got), layer.expected(70), TOLERANCE)


def test_maxima_that_grow_rescale_the_output(native_kernel: Kernel, rng: np.random.Generator) -> None:
    """Scores of later positions exceed those of earlier ones by more than weights as halves could hold."""
    layer = HalvedAttention(native_kernel, rng, make_shape(heads=1, kv_heads=1, head_dim=16), 80)
    layer.qkv[:, :16] = 4.0
    layer.qkv[:, 16:32] = np.arange(80)[:, None] / 4
    assert_close(layer.prefill(0, 80), layer.expected(80), TOLERANCE)


def test_queries_beyond_halves(native_kernel: Kernel, rng: np.random.Generator) -> None:
    """Queries are scaled by a power of two each; keys are exact in halves here."""
    layer = HalvedAttention(native_kernel, rng, make_shape(heads=2, kv_heads=1, head_dim=16), 40)
    layer.qkv[:, :32] *= 1e6
    layer.qkv[:, 32:48] = np.round(4 * layer.qkv[:, 32:48]) * 2.0**-18
    assert_close(layer.prefill(0, 40), layer.expected(40), TOLERANCE)


def test_a_position_outside_of_the_window_has_no_influence(native_kernel: Kernel, rng: np.random.Generator) -> None:
    layer = HalvedAttention(native_kernel, rng, SHAPES["everything"], 41)
    layer.prefill(0, 33)
    before = layer.prefill(33, 41)
    layer.qkv[:10] = 9.0
    layer.prefill(0, 10)
    assert np.array_equal(layer.prefill(33, 41), before)


@pytest.mark.parametrize("matrix_units", [False, True])
@pytest.mark.parametrize("head_dim", [4, 64, 80, 96, 128, 256])
@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (9, 3), (32, 8), (71, 1)])
def test_tiles_cover_the_heads(head_dim: int, heads: int, kv_heads: int, *, matrix_units: bool) -> None:
    shape = make_shape(heads=heads, kv_heads=kv_heads, head_dim=head_dim)
    caps = Caps(subgroup_size=32, max_workgroup=1024, max_shared=49152, matrix_units=matrix_units)
    tile = (matrix_attention.choose_tiles([shape], caps) or {})[shape]
    assert tile.rows % (16 * tile.fragments) == 0
    assert tile.positions % (16 * tile.parts) == 0
    assert tile.shared_bytes(head_dim) <= caps.max_shared


def test_one_attention_that_does_not_fit_leaves_all_to_float32() -> None:
    caps = Caps(subgroup_size=32, max_workgroup=1024, max_shared=49152, matrix_units=True)
    shapes: list[AttentionShape] = [make_shape(heads=2, kv_heads=2, head_dim=n) for n in (64, 130)]
    assert matrix_attention.choose_tiles(shapes, caps) is None
    assert matrix_attention.choose_tiles([], caps) is None


@pytest.mark.parametrize(
    ("compute", "head_dim", "kernel"),
    [("float16", 8, "matrix_attend"), ("float16", 6, "attend_rows"), ("float32", 8, "attend_rows")],
)
def test_halves_where_they_are_wanted(native_device: GpuDevice, compute: Any, head_dim: int, kernel: str) -> None:
    network = tiny_llama(blocks=1, heads=6, head_dim=head_dim)
    options = RunOptions(context=96, compute=compute)
    executable = native_device.compile(lower(network), initialise(network, 0), options)
    entries = executable.recordings.entries("whole", CallRows(40, blocks=3, pieces=1))
    names = {entry.dispatch.kernel for entry in entries}
    assert names & {"matrix_attend", "attend_rows"} == {kernel}


@pytest.mark.thorough
def test_prompts_of_a_network(native_device: GpuDevice) -> None:
    network = tiny_llama(blocks=1, heads=6)
    params = initialise(network, 0)
    executable = native_device.compile(lower(network), params, RunOptions(context=96, compute="float16"))
    ids = np.random.default_rng(5).integers(0, 97, 80)
    state = executable.new_state()
    got = [executable.forward(state, ids[a:b], last_only=False) for a, b in ((0, 41), (41, 78), (78, 79), (79, 80))]
    exact = ReferenceDevice(np.float64).compile(lower(network), params, RunOptions(context=96))
    assert_close(np.concatenate(got), exact.forward(exact.new_state(), ids, last_only=False), TOLERANCE)
