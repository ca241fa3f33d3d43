"""Sequences whose rows see both ways: several of them, whole, in one call."""

from __future__ import annotations

import numpy as np
import pytest

from tests.devices import narrowed
from tests.gpu.harness import assert_close
from tests.pieces import run_all
from volumetric.devices.gpu.call_schedule import (
    LISTED_BLOCKS,
    LISTED_ROWS,
    PLACES,
    SequenceSpan,
    control_words,
    count_rows,
    gathered_words,
    schedule_calls,
    whole_calls,
)
from volumetric.devices.gpu.executable import GpuExecutable
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.layers import Embedding, MultiHeadAttention, PositionEmbedding, RMSNorm, Rope
from volumetric.network import Network, initialise
from volumetric.network.grid import Coord, Grid
from volumetric.run import RunOptions, lower
from volumetric.run.device import SequenceRows

WIDTH = 12
OPTIONS = RunOptions(context=64)


def network() -> Network:
    """Learned positions, and attention that turns and sees a window on both sides."""
    attention = MultiHeadAttention(embed_dim=WIDTH, num_heads=2, rope=Rope(dim=6), causal=False, window=9)
    layers = (
        Embedding(num_embeddings=31, embedding_dim=WIDTH),
        PositionEmbedding(num_embeddings=64, embedding_dim=WIDTH),
        RMSNorm(num_features=WIDTH),
        attention,
        attention,
    )
    return Network(grid=Grid(len(layers)), layers={Coord(z): spec for z, spec in enumerate(layers)})


@pytest.mark.thorough
def test_sequences_share_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    params = initialise(network(), 2)
    gpu = narrowed("native").compile(lower(network()), params, OPTIONS)
    assert isinstance(gpu, GpuExecutable)
    reference = ReferenceDevice().compile(lower(network()), params, OPTIONS)
    rng = np.random.default_rng(3)
    lengths = (5, 1, 33, 20)
    texts = [rng.integers(0, 31, n).astype(np.int32) for n in lengths]
    calls: list[int] = []
    place = gpu.recordings.place_rows
    monkeypatch.setattr(gpu.recordings, "place_rows", lambda places: (calls.append(len(places)), place(places))[1])
    states = [gpu.new_state() for _ in texts]
    found = run_all(gpu, [SequenceRows(state, text, "all") for state, text in zip(states, texts, strict=True)])
    assert calls == [4]
    for got, text in zip(found, texts, strict=True):
        [want] = run_all(reference, [SequenceRows(reference.new_state(), text, "all")])
        assert_close(got, want, 5e-6)


def test_pieces_stay_whole() -> None:
    longer = LISTED_ROWS + 900
    lengths = [3, LISTED_ROWS - 4, 2, 900, 1, LISTED_ROWS, longer, 7]
    calls = schedule_calls(lengths, longer, apart=False, whole=True, block=32)
    assert all(len(span) == lengths[span.sequence] for call in calls for span in call)
    assert [span.sequence for call in calls for span in call] == list(range(len(lengths)))
    sizes = [sum(map(len, call)) for call in calls]
    assert sizes == [LISTED_ROWS - 1, 903, LISTED_ROWS, longer, 7]
    fewer = schedule_calls([900, 1] * 2, 1000, apart=False, whole=True)
    assert [sum(map(len, call)) for call in fewer] == [901] * 2
    assert len(schedule_calls(lengths, longer, apart=True, whole=True)) == len(lengths)


def test_calls_fit_their_control_block() -> None:
    assert list(map(len, whole_calls([1] * 1200, LISTED_ROWS, 4))) == [PLACES, PLACES, 1200 - 2 * PLACES]
    assert list(map(len, whole_calls([9] * 400, LISTED_ROWS, 4))) == [LISTED_BLOCKS // 3, 400 - LISTED_BLOCKS // 3]


def test_every_row_finds_its_sequence() -> None:
    spans = [SequenceSpan(9, 40, 1), SequenceSpan(7, 0, 5), SequenceSpan(8, 3, 33), SequenceSpan(6, 100, 2)]
    words = control_words(spans, count_rows(spans, 4, singles=True), 4)
    assert words[:4].tolist() == [41, 1, 2 + 9 + 1, 4]
    rows = gathered_words(words, range(41))
    want = [(span.position + i, span.line) for span in spans for i in range(span.rows)]
    assert [tuple(row) for row in rows[60:].reshape(-1, 4)[:, :2].tolist()] == want
    starts = words[-LISTED_BLOCKS:][:12]
    assert [(int(start) & 0xFFFF, int(start) >> 16) for start in starts] == [
        *((1 + i, 1) for i in (0, 4)), *((6 + i, 6) for i in range(0, 33, 4)), (39, 39),
    ]  # fmt: skip
