"""Whole texts in few calls, pooled on the GPU, beside the reference device and NumPy's pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.peers.random_encoder import MINILM, random_encoder
from tests.devices import narrowed
from tests.gpu.harness import Kernel, aligned, assert_close
from tests.gpu.test_whole_pieces import network as windowed
from volumetric.base.errors import DeviceError, GenerationError, ShapeError, UnsupportedError
from volumetric.devices.gpu.call_schedule import PLACES, SequenceSpan
from volumetric.devices.gpu.executable import GpuExecutable
from volumetric.devices.gpu.kernels.pool_rows import POOLINGS, pool_rows
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.generate.encoder import Encoder, pool
from volumetric.layers import Embedding, MultiHeadAttention
from volumetric.loaders.loaded_model import LoadedModel
from volumetric.loaders.sentence_modules import POOLINGS as ALL_POOLINGS
from volumetric.network import INPUT, initialise
from volumetric.network.grid import Coord, Grid
from volumetric.network.network import Network
from volumetric.run import RunOptions, lower
from volumetric.run.text_pooling import Pooling

CONTEXT = 160
SMALL = dict(
    MINILM,
    num_hidden_layers=2,
    vocab_size=100,
    hidden_size=36,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=CONTEXT,
)
RAGGED = (1, 7, 16, 17, 128, 3, 160, 1, 33)
MODES: tuple[Pooling, ...] = ("mean", "cls", "max", "weightedmean", "lasttoken", "mean_sqrt_len_tokens")

WAYS = [("float32", "float32", 2e-6), ("float16", "float16", 2e-4)]
"""Type of the weights, what products compute in, and how far rows may be apart, of the largest number."""


def drawn(lengths: Sequence[int]) -> list[dict[str, NDArray[np.int32]]]:
    rng = np.random.default_rng(len(lengths))
    return [{INPUT: rng.integers(0, 100, n).astype(np.int32)} for n in lengths]


def encoders(dtype: str, compute: Any) -> tuple[Encoder, Encoder]:
    """One on the GPU, and one on the reference device, which multiplies in float32."""
    model = random_encoder(SMALL, dtype)
    return (
        Encoder(model, compiled(model, compute)),
        Encoder(model, ReferenceDevice().compile(lower(model.network), model.params, RunOptions(context=CONTEXT))),
    )


def compiled(model: LoadedModel, compute: Any = "float32") -> GpuExecutable:
    options = RunOptions(context=CONTEXT, compute=compute)
    executable = narrowed("native").compile(lower(model.network), model.params, options)
    assert isinstance(executable, GpuExecutable)
    return executable


def test_every_pooling_has_a_number() -> None:
    assert set(POOLINGS) == set(ALL_POOLINGS)


@pytest.mark.parametrize("mode", ALL_POOLINGS)
@pytest.mark.parametrize("width", [5, 150])
@pytest.mark.parametrize("skipped", [0, 3])
def test_rows_are_pooled(kernel: Kernel, mode: Pooling, width: int, skipped: int) -> None:
    spans = [SequenceSpan(0, 0, rows) for rows in (1, 7, 16, 17, 128, 2)]
    ends = np.cumsum([span.rows for span in spans])
    x = np.random.default_rng(width).standard_normal((ends[-1], width), np.float32)
    control, rows = kernel.call(spans, 16, singles=False)
    stride = -(-width // 4)
    y = kernel.empty(len(spans), 2 * 4 * stride)
    dispatch = pool_rows(width=width, pooling=mode, at=stride, stride=2 * stride, skipped=skipped, context=CONTEXT)
    kernel.run((dispatch, {"x": kernel.array(aligned(x)), "y": y, "ctl": control}), rows=rows)
    got = kernel.read(y, len(spans), 8 * stride)
    want = np.stack([pool(part, [mode], skipped) for part in np.split(x, ends[:-1])])
    assert_close(got[:, 4 * stride :][:, :width], want)
    assert np.isnan(got[:, : 4 * stride]).all(), "the place of another pooling was written"


def test_a_maximum_shows_nan(kernel: Kernel) -> None:
    x = np.zeros((40, 4), np.float32)
    x[3, 0], x[24, 1], x[39, 2], x[30, 3] = np.nan, np.nan, np.nan, -np.inf
    control, rows = kernel.call([SequenceSpan(0, 0, 20), SequenceSpan(0, 0, 20)], 16, singles=False)
    y = kernel.empty(2, 4)
    dispatch = pool_rows(width=4, pooling="max", at=0, stride=1, skipped=0, context=CONTEXT)
    kernel.run((dispatch, {"x": kernel.array(x), "y": y, "ctl": control}), rows=rows)
    np.testing.assert_array_equal(kernel.read(y, 2, 4), np.stack([pool(x[:20], ["max"]), pool(x[20:], ["max"])]))


@pytest.mark.parametrize(("dtype", "compute", "tolerance"), WAYS)
def test_ragged_texts(dtype: str, compute: str, tolerance: float) -> None:
    ours, reference = encoders(dtype, compute)
    texts = drawn(RAGGED)
    got = ours.pooled(texts, MODES)
    assert_close(got, reference.pooled(texts, MODES), tolerance)
    np.testing.assert_array_equal(got, ours.pooled(texts, MODES))
    assert_close(ours.pooled(texts, MODES, 4), reference.pooled(texts, MODES, 4), tolerance)
    for length in (1, 7, 16, 17, 128):
        alone = drawn([length])
        assert_close(ours.pooled(alone, ["mean"]), reference.pooled(alone, ["mean"]), tolerance)


def test_calls_do_not_grow_with_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """One call up to what a control block lists: of 1,000 texts 512, then 488; their hidden states never come back."""
    ours, reference = encoders("float32", "float32")
    executable = ours.executable
    assert isinstance(executable, GpuExecutable)
    submit, commands = executable.recordings.executor.submit, list[int]()

    def counted(parts: Any) -> int:
        commands.append(sum(len(part.prepared) for part in parts if hasattr(part, "prepared")))
        return submit(parts)

    monkeypatch.setattr(executable.recordings.executor, "submit", counted)
    texts = drawn([3, 1, 4, 2] * 250)
    assert_close(ours.pooled(texts, ["mean"]), reference.pooled(texts, ["mean"]), 2e-6)
    assert len(commands) == -(-1000 // PLACES)
    assert len(set(commands)) == 1
    ours.pooled(drawn([30]), ["mean"])
    assert commands[-1] == commands[0], "launches depend on the number of texts"


@pytest.mark.thorough
@pytest.mark.parametrize("compute", ["float32", "float16"])
def test_long_batches(compute: str) -> None:
    """More rows than a call has, of attention in float32 and of emulated matrix units."""
    ours, reference = encoders("float16", compute)
    texts = drawn([128, 128, 97] * 14)
    assert_close(ours.pooled(texts, ["mean", "max"]), reference.pooled(texts, ["mean", "max"]), 2e-4)


def test_hidden_states_of_many_texts() -> None:
    """Rows that the host wants come back as they are, from the same calls."""
    ours, reference = encoders("float32", "float32")
    texts = drawn([60, 1, 128, 17] * 3)
    for got, want in zip(ours._hidden_states(texts), reference._hidden_states(texts), strict=True):
        assert_close(got, want, 5e-6)


def test_token_types_and_windows() -> None:
    """Texts some of which have types; and a network of windows, rotations and learned positions."""
    ours, reference = encoders("float32", "float32")
    texts: list[dict[str, NDArray[np.int32]]] = drawn([9, 20, 5])
    texts[1]["token_type_ids"] = (np.arange(20) > 7).astype(np.int32)
    assert_close(ours.pooled(texts, ["mean"]), reference.pooled(texts, ["mean"]), 2e-6)
    params = initialise(windowed(), 2)
    rows = [np.random.default_rng(n).integers(0, 31, n).astype(np.int32) for n in (1, 64, 9, 33)]
    options = RunOptions(context=64)
    gpu = narrowed("native").compile(lower(windowed()), params, options)
    assert isinstance(gpu, GpuExecutable)
    exact = ReferenceDevice().compile(lower(windowed()), params, options)
    hidden = [exact.forward(exact.new_state(), x, last_only=False) for x in rows]
    want = np.stack([pool(part, ["mean"]) for part in hidden])
    assert_close(gpu.pool_texts(rows, ["mean"]), want, 5e-6)


def test_what_is_refused() -> None:
    model = random_encoder(SMALL)
    executable = compiled(model)
    with pytest.raises(GenerationError, match="do not fit its 160"):
        executable.pool_texts([np.zeros(161, np.int32)], ["mean"])
    with pytest.raises(GenerationError, match="100"):
        executable.pool_texts([np.zeros(3, np.int32), np.array([5, 100], np.int32)], ["mean"])
    with pytest.raises(ShapeError, match="at least one row"):
        executable.pool_texts([np.zeros(3, np.int32), np.zeros(0, np.int32)], ["mean"])
    with pytest.raises(ShapeError, match="at least one text"):
        executable.pool_texts([], ["mean"])
    uneven = {INPUT: np.zeros(3, np.int32), "token_type_ids": np.zeros(2, np.int32)}
    with pytest.raises(ShapeError, match="same number of rows"):
        executable.pool_texts([uneven, {**uneven, INPUT: np.zeros(1, np.int32)}], ["mean"])
    executable.close()
    with pytest.raises(DeviceError, match="closed"):
        executable.pool_texts([np.zeros(3, np.int32)], ["mean"])
    layers = (
        Embedding(num_embeddings=9, embedding_dim=8),
        MultiHeadAttention(embed_dim=8, num_heads=2),
    )
    causal = Network(grid=Grid(2), layers={Coord(z): spec for z, spec in enumerate(layers)})
    stateful = narrowed("native").compile(lower(causal), initialise(causal, 0), RunOptions(context=16))
    assert isinstance(stateful, GpuExecutable)
    assert not stateful.can_pool
    with pytest.raises(UnsupportedError, match="no state"):
        stateful.pool_texts([np.zeros(3, np.int32)], ["mean"])
