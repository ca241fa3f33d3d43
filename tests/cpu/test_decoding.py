"""Greedy decoding on a control block that stays: the same tokens as calls that are made ready one by one."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest

from tests.networks import tiny_llama
from volumetric.base.errors import GenerationError
from volumetric.devices.cpu import CpuDevice
from volumetric.devices.cpu.greedy_loop import TokenLoop
from volumetric.network import initialise
from volumetric.run import RunOptions, lower
from volumetric.run.device import SequenceRows


def compiled(context: int = 600) -> Any:
    network = tiny_llama()
    executable: Any = CpuDevice(threads=2).compile(lower(network), initialise(network, 3), RunOptions(context=context))
    assert TokenLoop.supports(executable._open())
    return executable


def started(executable: Any, sizes: tuple[int, ...]) -> list[Any]:
    states = [executable.new_state() for _ in sizes]
    for state, size in zip(states, sizes, strict=True):
        executable.forward(state, np.arange(size, dtype=np.int32) % 97)
    return states


def one_by_one(executable: Any, states: list[Any], tokens: list[int], count: int) -> list[list[int]]:
    found = []
    for _ in range(count):
        out = executable.run([SequenceRows(state, np.array([t])) for state, t in zip(states, tokens, strict=True)])
        tokens = [int(logits[-1].argmax()) for logits in out]
        found.append(tokens)
    return found


@pytest.mark.parametrize("sizes", [(5,), (3, 250, 17)])
def test_tokens_are_those_of_calls_over_and_over(sizes: tuple[int, ...]) -> None:
    """Also when states outgrow their memory, of 256 rows at first."""
    executable = compiled()
    first, states = [3 + i for i in range(len(sizes))], started(executable, sizes)
    want = one_by_one(executable, [state.fork() for state in states], first, 20)
    stream = executable.greedy(states, first)
    assert list(islice(stream, 20)) == want
    assert [state.position for state in states] == [size + 20 for size in sizes]


def test_other_calls_may_come_between_tokens() -> None:
    executable = compiled()
    state, other = started(executable, (5, 40))
    want = one_by_one(executable, [state.fork()], [7], 12)
    beside = one_by_one(executable, [other.fork()], [9], 12)
    streams = executable.greedy([state], [7]), executable.greedy([other], [9])
    got: list[list[list[int]]] = [[], []]
    for turn in range(12):
        for stream, found in zip(streams, got, strict=True):
            found.append(next(stream))
        if turn % 3 == 1:
            executable.forward(executable.new_state(), np.arange(400, dtype=np.int32) % 97)  # larger buffers
        if turn % 4 == 2:
            executable.step_times([state], 1, repeats=1)
    assert got == [want, beside]


def test_a_state_that_went_back_goes_on_from_there() -> None:
    executable = compiled()
    [state] = started(executable, (5,))
    stream = executable.greedy([state], [7])
    tokens = [next(stream)[0] for _ in range(4)]
    state.trim(5)
    again = one_by_one(executable, [state.fork()], [tokens[-1]], 3)
    assert [next(stream) for _ in range(3)] == again


def test_a_state_that_went_back_is_refused_where_the_context_ends() -> None:
    executable = compiled(12)
    [state] = started(executable, (5,))
    stream = executable.greedy([state], [7])
    for _ in range(4):
        next(stream)
    state.trim(5)
    for _ in range(7):
        next(stream)
    with pytest.raises(GenerationError, match="12 tokens in the context and 1 more do not fit its 12"):
        next(stream)
    assert state.position == 12


def test_a_full_context_and_ids_without_a_row_are_refused() -> None:
    executable = compiled(context=8)
    [state] = started(executable, (5,))
    stream = executable.greedy([state], [7])
    assert len([next(stream) for _ in range(3)]) == 3
    with pytest.raises(GenerationError, match="do not fit its 8"):
        next(stream)
    assert state.position == 8
    with pytest.raises(GenerationError, match="outside of the vocabulary"):
        next(executable.greedy(started(executable, (2,)), [97]))
    with pytest.raises(GenerationError, match="twice"):
        next(executable.greedy([state, state], [1, 1]))
