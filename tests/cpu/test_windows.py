"""Rows behind sliding windows are dropped on the CPU, and nothing that is computed changes by a bit."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest

from tests.cpu.networks import chain, random_params
from tests.generate.letters import deep_letters
from tests.pieces import run_all
from volumetric.base.errors import GenerationError
from volumetric.devices.cpu import CpuDevice, kv_cache
from volumetric.devices.cpu.cpu_state import CpuState
from volumetric.layers import Dense, Embedding, MultiHeadAttention, Residual, Rope, Sequential
from volumetric.run import RunOptions, lower
from volumetric.run.call_batch import greedy_ids
from volumetric.run.device import Executable, SequenceRows, State

pytestmark = pytest.mark.thorough

CONTEXT, WIDTH, IDS, WINDOW, CHUNK = 256, 32, 11, 20, 24
MOST = 2 * WINDOW
MIXED: tuple[dict[str, Any], ...] = ({"window": WINDOW}, {}, {"chunk": CHUNK})
FORMS = [  # of which each has another form of attention, or of its rows
    ("float32", "auto", "float32"),
    ("bfloat16", "bfloat16", "float16"),
    ("bfloat16", "auto", "int8"),
]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drop rows long before 256 are held, as by default."""
    monkeypatch.setattr(kv_cache, "_FIRST", 16)
    monkeypatch.setattr(kv_cache, "_WINDOW", 16)


def compiled(*kinds: dict[str, Any], form: tuple[str, str, str] = FORMS[0]) -> Executable:
    """Layers of attention on the CPU."""
    attention = [
        MultiHeadAttention(embed_dim=WIDTH, num_heads=4, num_kv_heads=2, rope=Rope(dim=8), **kind) for kind in kinds
    ]
    blocks = [Sequential(layers=(one, Residual(source="input"))) for one in attention]
    embedding = Embedding(num_embeddings=IDS, embedding_dim=WIDTH)
    plan = lower(chain(embedding, *blocks, Dense(in_features=WIDTH, out_features=IDS)))
    scheme, compute, kv_dtype = form
    options: dict[str, Any] = {"context": CONTEXT, "compute": compute, "kv_dtype": kv_dtype}
    params = random_params(plan, np.random.default_rng(3), scheme)
    return CpuDevice(threads=2).compile(plan, params, RunOptions(**options))


def ids(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, IDS, count).astype(np.int32)


def keeping(executable: Executable, monkeypatch: pytest.MonkeyPatch) -> State:
    """A state that drops nothing."""
    with monkeypatch.context() as patch:
        patch.setattr(kv_cache, "_WINDOW", CONTEXT)
        state = executable.new_state()
    assert not state.forgets
    return state


def held(state: State) -> list[int]:
    """Rows that there is room for, by layer."""
    assert isinstance(state, CpuState)
    return [one.capacity for one in state.memory.caches]


@pytest.mark.parametrize("form", FORMS)
def test_what_is_computed_has_the_same_bits(form: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    executable = compiled(*MIXED, form=form)
    states = [executable.new_state() for _ in range(2)]
    all_rows = [keeping(executable, monkeypatch) for _ in range(2)]
    for turn, (first, second) in enumerate([(30, 1), (1, 9), (3, 70), (40, 2), (1, 1), (90, 16), (5, 33)]):
        given = [ids(first, turn), ids(second, 100 + turn)]
        want = run_all(executable, [SequenceRows(state, x, "all") for state, x in zip(all_rows, given, strict=True)])
        got = run_all(executable, [SequenceRows(state, x, "all") for state, x in zip(states, given, strict=True)])
        for one, other in zip(got, want, strict=True):
            np.testing.assert_array_equal(one, other)
    assert held(all_rows[0]) == 3 * [256]
    narrow, wide, chunk = held(states[0])
    assert narrow <= WINDOW + 90 + 32
    assert chunk <= CHUNK + 90 + 32
    assert wide >= states[0].position == 170


def test_decoding_stays_within_twice_a_window(monkeypatch: pytest.MonkeyPatch) -> None:
    executable = compiled({"window": WINDOW}, {"window": WINDOW})
    state, other = executable.new_state(), keeping(executable, monkeypatch)
    for one in (state, other):
        executable.forward(one, ids(30))
    got, want = (list(islice(greedy_ids(executable, one, 3), 150)) for one in (state, other))
    assert got == want
    assert max(held(state)) <= MOST + 16
    x = ids(3, 9)
    np.testing.assert_array_equal(executable.forward(state, x), executable.forward(other, x))


def test_a_way_back_ends_where_rows_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    executable = compiled(*MIXED)
    state, other = executable.new_state(), keeping(executable, monkeypatch)
    executable.forward(state, ids(12))
    executable.forward(other, ids(12))
    early = state.fork()
    assert state.forgets
    assert state.oldest_restorable == 0
    for count in (100, 50):
        executable.forward(state, ids(count, count))
        executable.forward(other, ids(count, count))
    assert 0 < state.oldest_restorable <= 162
    with pytest.raises(GenerationError, match="trim a state of 162 tokens to 50: rows outside of windows"):
        state.trim(50)
    assert state.position == 162
    state.trim(state.oldest_restorable)
    other.trim(state.position)
    twin, x = state.fork(), ids(9, 3)
    want = executable.forward(other, x)
    np.testing.assert_array_equal(executable.forward(state, x), want)
    np.testing.assert_array_equal(executable.forward(twin, x), want)
    other.trim(12)
    np.testing.assert_array_equal(executable.forward(early, x), executable.forward(other, x))
    state.trim(0)
    other.trim(0)
    assert state.oldest_restorable == 0
    np.testing.assert_array_equal(executable.forward(state, x), executable.forward(other, x))


@pytest.mark.parametrize("form", FORMS)
def test_a_saved_state_has_the_rows_that_are_held(form: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    executable = compiled(*MIXED, form=form)
    state, other = executable.new_state(), keeping(executable, monkeypatch)
    for one in (state, other):
        executable.forward(one, ids(130))
        executable.forward(one, ids(30, 1))
    data, whole = state.save(), other.save()
    assert len(data) < 0.7 * len(whole)
    x = ids(30, 2)
    want = executable.forward(other, x)
    back = executable.restore(data)
    assert state.oldest_restorable <= back.oldest_restorable < 160  # slack is taken over as far as there is room
    assert len(executable.restore(whole).save()) < 0.7 * len(whole)  # what no later row reads is not taken over
    with monkeypatch.context() as patch:
        patch.setattr(kv_cache, "_WINDOW", CONTEXT)
        wide = executable.restore(data)
    assert wide.oldest_restorable == state.oldest_restorable
    for one in (state, back, executable.restore(whole), wide):
        np.testing.assert_array_equal(executable.forward(one, x), want)


def test_a_session_goes_back_to_its_copy_where_rows_are_gone() -> None:
    """Whatever a prompt shares with what went before, the text is that of an empty session."""
    layers = [MultiHeadAttention(embed_dim=8, num_heads=2, window=window) for window in (None, 8)]
    model = deep_letters(CpuDevice(threads=1), *layers, context=CONTEXT)
    start = "abcdefgh" * 4
    reused: list[int] = []
    with model.session() as session:
        for prompt, answer in ((start, 60), (start + "a", 2), (start[:-2] + "c", 2), (start[:3], 2)):
            with model.session() as fresh:
                want = fresh.stream(prompt, max_tokens=answer, ignore_eos=True).run().text
            made = session.stream(prompt, max_tokens=answer, ignore_eos=True).run()
            assert made.text == want
            reused.append(made.stats.cached_tokens)
    assert reused[:2] == [0, len(start) - 1]
