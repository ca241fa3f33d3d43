"""Pages behind sliding windows go back, while other layers keep all rows; what is computed stays the same."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest

from tests.devices import device
from tests.generate.letters import deep_letters
from tests.graph.test_networks import chain
from tests.pieces import close, run_all
from volumetric.base.errors import CheckpointError, GenerationError
from volumetric.devices.gpu import page_set
from volumetric.devices.gpu.executable import GpuExecutable
from volumetric.devices.gpu.kernels.attention import PAGE
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.layers import Dense, Embedding, MultiHeadAttention, Residual, Rope, Sequential
from volumetric.network import Network, initialise
from volumetric.run import RunOptions, lower
from volumetric.run.call_batch import greedy_ids
from volumetric.run.device import Executable, SequenceRows
from volumetric.run.state_file import SEAL, _StateHeader

CONTEXT, WIDTH = 256, 8
NARROW, WIDE = 20, 70
OPTIONS = RunOptions(context=CONTEXT, kv_dtype="float32")


def network(*windows: int | None) -> Network:
    """A layer of attention for each window."""
    blocks = [
        Sequential(
            layers=(
                MultiHeadAttention(embed_dim=WIDTH, num_heads=2, window=window, rope=Rope(dim=4)),
                Residual(source="input"),
            )
        )
        for window in windows
    ]
    embedding = Embedding(num_embeddings=11, embedding_dim=WIDTH)
    return chain(embedding, *blocks, Dense(in_features=WIDTH, out_features=11))


def pair(*windows: int | None) -> tuple[Executable, GpuExecutable]:
    of = network(*windows)
    params = initialise(of, 3)
    return tuple(one.compile(lower(of), params, OPTIONS) for one in (ReferenceDevice(), device("gpu")))  # pyright: ignore[reportReturnType]  (of both)


def ids(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 11, count).astype(np.int32)


def pages(executable: GpuExecutable) -> list[int]:
    """In use, by set: of all rows first, then by width of window."""
    return [one.nbytes // one.page_bytes for one in executable.pool.sets]


@pytest.mark.thorough
@pytest.mark.parametrize("windows", [(NARROW, None), (WIDE,)], ids=["mixed", "all"])
def test_a_state_holds_what_its_windows_see(windows: tuple[int | None, ...]) -> None:
    reference, fast = pair(*windows)
    states: tuple[Any, Any] = reference.new_state(), fast.new_state()
    for count in (150, 1, PAGE):
        x = ids(count, count)
        want, got = (
            one.forward(state, x, last_only=False) for one, state in zip((reference, fast), states, strict=True)
        )
        close(got, want)
        position = states[1].position
        bounds = {None: -(-position // PAGE)} | {w: (w + PAGE - 2) // PAGE + 1 for w in (NARROW, WIDE)}
        assert [one.window for one in fast.pool.sets] == list(dict.fromkeys(sorted(windows, key=lambda w: w or 0)))
        assert all(used <= bounds[one.window] for one, used in zip(fast.pool.sets, pages(fast), strict=True))
    assert pages(fast)[-1] < states[1].position // PAGE
    states[1].reset()
    assert not any(pages(fast))


def test_a_long_prompt_takes_no_more_than_windows_and_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_set, "_FIRST_BYTES", 1)
    reference, fast = pair(NARROW)
    monkeypatch.setattr(fast.scratch, "rows", 64)
    x = ids(240)
    close(fast.forward(fast.new_state(), x), reference.forward(reference.new_state(), x))
    [one] = fast.pool.sets
    assert len(one._uses) - 1 <= (NARROW + 64) // PAGE + 2


def test_sequences_share_what_others_gave_back() -> None:
    reference, fast = pair(None, NARROW)
    together, alone = [fast.new_state() for _ in range(3)], [reference.new_state() for _ in range(3)]
    for turn in range(3):
        given = [ids(40 + 9 * i, 7 * turn + i) for i in range(3)]
        found = run_all(fast, [SequenceRows(state, x) for state, x in zip(together, given, strict=True)])
        for got, state, x in zip(found, alone, given, strict=True):
            close(got, reference.forward(state, x))


@pytest.mark.thorough
def test_decoding_gives_pages_back_as_it_goes() -> None:
    reference, fast = pair(None, NARROW)
    state, other = fast.new_state(), reference.new_state()
    fast.forward(state, ids(30))
    reference.forward(other, ids(30))
    got, want = (list(islice(greedy_ids(one, of, 3), 3 * PAGE)) for one, of in ((fast, state), (reference, other)))
    assert got == want
    assert pages(fast)[-1] <= 2 + 1  # tokens in flight may have begun a page


@pytest.mark.thorough
def test_a_way_back_ends_where_rows_are_gone() -> None:
    reference, fast = pair(None, WIDE)
    state = fast.new_state()
    fast.forward(state, ids(50))
    early = state.fork()
    assert state.forgets
    assert state.oldest_restorable == 0
    fast.forward(state, ids(150, 1))
    assert 200 - PAGE < state.oldest_restorable <= 200
    with pytest.raises(GenerationError, match="trim a state of 200 tokens to 100: rows outside of windows"):
        state.trim(100)
    assert state.position == 200
    state.trim(state.oldest_restorable)
    other = reference.new_state()
    reference.forward(other, np.concatenate([ids(50), ids(150, 1)])[: state.position])
    x = ids(9, 2)
    close(fast.forward(state, x), reference.forward(other, x))
    other.reset()
    reference.forward(other, ids(50))
    close(fast.forward(early, x), reference.forward(other, x))  # which has kept its pages
    state.trim(0)
    assert state.oldest_restorable == 0


@pytest.mark.thorough
@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_a_saved_state_has_the_rows_that_are_held(target: str) -> None:
    of = network(WIDE, NARROW)
    params = initialise(of, 3)
    source = device("gpu").compile(lower(of), params, OPTIONS)
    other = device(target).compile(lower(of), params, OPTIONS)
    state = source.new_state()
    source.forward(state, ids(200))
    data = state.save()
    assert len(data) < 4 * 4 * WIDTH * 180
    back = other.restore(data)
    assert back.position == 200
    assert back.oldest_restorable == state.oldest_restorable
    assert len(back.save()) <= 4 * 4 * WIDTH * 220
    with pytest.raises(GenerationError, match="cannot trim a state of 200 tokens to 5"):
        back.trim(5)
    x = ids(PAGE, 5)
    close(other.forward(back, x), source.forward(state, x))
    header, body = SEAL.unpack(data, _StateHeader)
    for first in (-1, 190, 201):
        header.states[0].first = first
        with pytest.raises(CheckpointError):
            other.restore(SEAL.pack(header, [body]))


@pytest.mark.thorough
def test_a_session_goes_back_to_its_copy_where_rows_are_gone() -> None:
    """Whatever a prompt shares with what went before, the text is that of an empty session."""
    layers = [MultiHeadAttention(embed_dim=8, num_heads=2, window=window) for window in (None, NARROW)]
    model = deep_letters(device("gpu"), *layers, context=CONTEXT)
    start, held = "abcdefgh" * 4, []
    with model.session() as session:
        for prompt, answer in ((start, 60), (start + "a", 2), (start[:-2] + "c", 2), (start[:3], 2)):
            with model.session() as fresh:
                want = fresh.stream(prompt, max_tokens=answer, ignore_eos=True).run().text
            made = session.stream(prompt, max_tokens=answer, ignore_eos=True).run()
            assert made.text == want
            held.append(made.stats.cached_tokens)
    assert held == [0, len(start) - 1, len(start) - 2, 2]
