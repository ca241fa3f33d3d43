"""The likeliest token as a step: ties and NaN as NumPy has them, by any number of threads; and tokens fed ahead."""

from __future__ import annotations

from itertools import cycle, islice
from typing import Any

import numpy as np
import pytest

from tests.networks import tiny_llama
from volumetric.base.errors import GenerationError
from volumetric.devices.cpu import CpuDevice
from volumetric.devices.cpu.arena import address_of
from volumetric.devices.cpu.kernels.argmax import MAXIMUM_BYTES
from volumetric.devices.cpu.kernels.operations import ROWS
from volumetric.devices.cpu.kernels.step_words import (
    BARRIER_WORD,
    CONTROL_WORDS,
    FIRST_ARGUMENT,
    PIECES_WORD,
    POSITIONS_WORD,
    ROWS_WORD,
    SEQUENCE_WORDS,
    SLOTS_WORD,
    STEP_WORDS,
    STOP_WORD,
    TAIL_POSITIONS_WORD,
)
from volumetric.devices.cpu.thread_pool import THREAD_POOL
from volumetric.network import initialise
from volumetric.run import RunOptions, lower


def chosen(logits: np.ndarray, threads: int, limit: int = 1 << 30) -> tuple[list[int], list[float], bool]:
    """Token and logit of each row, and whether a repeated call would stop."""
    rows, width = logits.shape
    found = np.zeros((rows, MAXIMUM_BYTES * threads), np.uint8)
    ids, tokens = np.zeros(rows, np.int32), np.zeros(1 + 2 * rows, np.int64)
    places = [(logits, logits.strides[0]), (found, found.strides[0]), (ids, 4)]
    slots = np.array([(address_of(array), stride) for array, stride in places], np.int64)
    pieces, positions = np.zeros((rows, SEQUENCE_WORDS), np.int64), np.zeros((2, rows), np.int64)
    control = np.zeros(CONTROL_WORDS, np.int64)
    control[[ROWS_WORD, SLOTS_WORD, PIECES_WORD]] = rows, address_of(slots), address_of(pieces)
    control[[POSITIONS_WORD, TAIL_POSITIONS_WORD]] = address_of(positions), address_of(positions[1])
    table = np.zeros((2, STEP_WORDS), np.int64)
    for row, name, given in ((0, "likeliest", (0, width, 1)), (1, "feed", (1, 2, limit, address_of(tokens)))):
        table[row, :2] = ROWS.address(name), 1
        table[row, FIRST_ARGUMENT : FIRST_ARGUMENT + len(given)] = given
    assert table[:, BARRIER_WORD].all()
    THREAD_POOL.run(address_of(table), 2, address_of(control), threads)
    assert tokens[0] == 1
    assert pieces[:, 2].tolist() == positions[0].tolist() == positions[1].tolist() == [1] * rows
    np.testing.assert_array_equal(ids, tokens[1::2])
    return tokens[1::2].tolist(), tokens[1:].view(np.float32)[2::4].tolist(), bool(control[STOP_WORD])


def padded(values: np.ndarray) -> np.ndarray:
    """The same rows with room behind each, as kernels read whole vectors."""
    room = np.full((len(values), -(-values.shape[1] // 16) * 16), np.inf, np.float32)
    room[:, : values.shape[1]] = values
    return room[:, : values.shape[1]]


@pytest.mark.thorough
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("width", [1, 7, 16, 255, 257, 1031])
def test_choices_are_those_of_numpy(width: int, threads: int) -> None:
    rng = np.random.default_rng(width)
    plain = rng.standard_normal((6, width))
    ties = rng.integers(-2, 3, (6, width)).astype(float)
    low = np.full((2, width), -np.inf)
    low[1, width // 2] = -3e38
    odd = rng.choice([-np.inf, np.inf, np.nan, -np.nan, 0.0, 1.0], (6, width), p=[0.2, 0.01, 0.01, 0.01, 0.4, 0.37])
    for values in (plain, ties, low, odd):
        logits = padded(values.astype(np.float32))
        tokens, tops, stops = chosen(logits, threads)
        assert tokens == logits.argmax(axis=1).tolist()
        want = logits[np.arange(len(logits)), tokens]
        np.testing.assert_array_equal(np.array(tops, np.float32), want)
        assert stops == (not np.isfinite(want).all())


def test_a_token_without_an_embedding_stops() -> None:
    logits = padded(np.eye(3, 20, 4, dtype=np.float32))
    assert chosen(logits, 2, limit=7)[::2] == ([4, 5, 6], False)
    assert chosen(logits, 2, limit=6)[::2] == ([4, 5, 6], True)


def compiled(context: int = 600) -> Any:
    network = tiny_llama()
    return CpuDevice(threads=2).compile(lower(network), initialise(network, 3), RunOptions(context=context))


@pytest.mark.thorough
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_threads_that_become_fewer_within_a_call_lose_no_token(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the governor looks around, a call goes out in pieces, each by as many threads as it then advises."""
    executable = compiled()
    state = executable.new_state()
    executable.forward(state, np.arange(9, dtype=np.int32))
    want = list(islice(executable.greedy([state.fork()], [3]), 12))
    governor, threads = executable._open().walker.governor, cycle([2, 1, 1, 2, 1])
    monkeypatch.setattr("volumetric.devices.cpu.thread_control._WATCHED_STEPS", count)
    monkeypatch.setattr(governor, "is_uncertain", lambda kind: True)
    monkeypatch.setattr(governor, "threads_for", lambda kind: next(threads))
    # On a busy machine it would begin a trial, and compare with calls by a number of threads that it has not advised.
    monkeypatch.setattr(governor, "record_call", lambda *_, **__: None)
    assert list(islice(executable.greedy([state], [3]), 12)) == want


def test_positions_count_what_was_taken_and_the_state_goes_on_from_there() -> None:
    executable = compiled()
    state = executable.new_state()
    executable.forward(state, np.arange(9, dtype=np.int32))
    other, whole = state.fork(), state.fork()
    tokens = [row[0] for row in islice(executable.greedy([whole], [3]), 40)]
    stream = executable.greedy([state], [3])
    for count in range(1, 24):
        assert next(stream) == [tokens[count - 1]]
        assert state.position == 9 + count
    stream.close()
    for token in [3, *tokens[:22]]:
        executable.forward(other, np.array([token], np.int32))
    next_one = np.array([tokens[22]], np.int32)
    np.testing.assert_array_equal(executable.forward(state, next_one), executable.forward(other, next_one))


def test_a_state_that_is_filled_anew_between_tokens_is_read_anew() -> None:
    executable = compiled()
    state, changed = executable.new_state(), executable.new_state()
    for one, ids in ((state, np.arange(9)), (changed, np.arange(9)[::-1])):
        executable.forward(one, ids.astype(np.int32))
    stream = executable.greedy([state], [3])
    taken = [next(stream)[0] for _ in range(12)]
    for token in [3, *taken[:11]]:
        executable.forward(changed, np.array([token], np.int32))
    saved = {key: changed.read(key) for key in executable._open().program.cut.plan.states}
    state.fill(saved, changed.position)
    want = [row[0] for row in islice(executable.greedy([changed], taken[11:]), 5)]
    assert [next(stream)[0] for _ in range(5)] == want


def test_logits_that_allow_no_choice_are_refused_when_they_are_reached() -> None:
    executable = compiled(context=64)
    state = executable.new_state()
    executable.forward(state, np.arange(4, dtype=np.int32))
    stream = executable.greedy([state], [3])
    for _ in range(5):
        next(stream)
    for values in state.memory.layout.pairs[:1]:
        key = values.values or ""
        state.memory.write(key, np.full_like(state.read(key), np.nan))
    state.trim(state.position)
    with pytest.raises(GenerationError, match="hold NaN"):
        next(stream)
    assert state.position == 10
