"""Sequences whose rows see both ways: several of them, whole, in one call."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from tests.devices import narrowed
from tests.gpu.harness import assert_close
from tests.pieces import run_all
from volumetric.devices.gpu.call_schedule import PLACES, schedule_calls
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
    lengths = [3, PLACES - 4, 2, 900, 1, PLACES]
    calls = schedule_calls(lengths, 1000, apart=False, whole=True)
    assert all(len(span) == lengths[span.sequence] for call in calls for span in call)
    assert sorted(span.sequence for call in calls for span in call) == list(range(len(lengths)))
    sizes = [sum(map(len, call)) for call in calls]
    assert all(size <= PLACES or len(call) == 1 for size, call in zip(sizes, calls, strict=True))
    assert all(sum(two) > PLACES for two in pairwise(sizes))
    assert len(schedule_calls(lengths, 1000, apart=True, whole=True)) == len(lengths)
