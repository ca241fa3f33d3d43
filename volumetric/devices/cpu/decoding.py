"""Greedy decoding on the CPU: a row of each of the same sequences, call after call, on a control block that stays.

The last steps of a table choose the likeliest token of each sequence and make the next call ready with it, so that one
native call may feed several tokens. Whoever takes them one by one sees positions move one by one. Whatever else ran
meanwhile has written the block anew; then, and when a state needs more memory or was changed, tokens that were computed
ahead are dropped, and the next call is made ready from the start, as every other is.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volumetric.devices.cpu.arena import address_of
from volumetric.devices.cpu.running import Call, Ready, Runner
from volumetric.devices.cpu.state import CpuState
from volumetric.network import INPUT, OUTPUT
from volumetric.run.batch import Part, Span

_MOST = 32
"""Tokens that a native call may feed to each sequence."""
_SECONDS = 0.005
"""Duration of a native call from which it feeds no more: whoever reads along sees pieces of that, Ctrl-C waits so long,
and so much is lost at a stop. A call costs 9 µs besides: for tokens that come one by one a two hundredth at most."""


class TokenLoop:
    """Calls of one row for each of `states`, whose logits stay in one array.

    Parameters
    ----------
    limit : rows that a sequence may have
    constant : inputs beside the ids, a row for each state
    """

    def __init__(
        self, runner: Runner, states: Sequence[CpuState], limit: int, constant: Mapping[str, NDArray[Any]]
    ) -> None:
        self._runner = runner
        self._states = states
        self._limit = limit
        self._constant = constant
        # Fixed states cannot go back to the token that was taken last.
        fixed = any(spec.kind == "fixed" for spec in runner.program.cut.plan.states.values())
        self._most = 1 if fixed else _MOST
        self._logits = runner.written(len(states))
        self._found: NDArray[np.int64] = np.zeros(1 + 2 * len(states) * self._most, np.int64)
        self._ready: Ready | None = None
        self._ahead: list[tuple[list[int], list[float]]] = []  # the next one last
        self._times = 1
        self._left: list[tuple[int, int]] = []

    @staticmethod
    def serves(runner: Runner) -> bool:
        """Whether a network's tables choose tokens."""
        return runner.program.chooses

    def step(self, tokens: Sequence[int]) -> tuple[list[int], list[float]]:
        """Feed a token to each state; returns the arg max of each sequence's logits, and those largest logits.

        `tokens` are those that the last call returned, if it was not the first. A NaN is larger than every number. The
        executable's turn is the caller's.
        """
        states, ready = self._states, self._ready
        if ready is None or not self._runner.is_last(ready) or self._left != [state.version for state in states]:
            ready, self._ahead, self._times = None, [], 1
        if not self._ahead:
            self._compute(tokens, ready)
        for state in states:
            state.position += 1
        self._left = [state.version for state in states]
        return self._ahead.pop()

    def _compute(self, tokens: Sequence[int], ready: Ready | None) -> None:
        """Feed `tokens`, and as many more as fit states and time."""
        states = self._states
        room = min(state.memory.room(state.position) for state in states)
        if ready is None or room < 1:
            ready = self._begin(tokens)
            room = min(state.memory.room(state.position) for state in states)
        times = min(self._times, room, self._limit - max(state.position for state in states))
        self._found[0] = 0
        began = time.perf_counter()
        self._runner.repeat(ready, times)
        seconds = time.perf_counter() - began
        done, rows = int(self._found[0]), len(states)
        records = self._found[1 : 1 + 2 * done * rows]
        ids = records[::2].reshape(done, rows).tolist()
        logits = records.view(np.float32)[2::4].reshape(done, rows).tolist()
        self._ahead = list(zip(ids, logits, strict=True))[::-1]
        if seconds > 2 * _SECONDS:
            self._times = max(1, times // 2)
        elif times == self._times and 2 * seconds <= _SECONDS:
            self._times = min(self._most, 2 * times)

    def _begin(self, tokens: Sequence[int]) -> Ready:
        """Make a call ready from the start."""
        ids = np.array(tokens, np.int32)
        rows = {INPUT: ids, **self._constant}
        inputs = [{name: rows[name][i : i + 1] for name in self._runner.program.cut.inputs} for i in range(len(ids))]
        parts = [Part(state, "last", own, (OUTPUT,)) for state, own in zip(self._states, inputs, strict=True)]
        call = Call([Span(i, 0, 1) for i in range(len(parts))], parts)
        output_rows = {self._runner.program.cut.outputs[OUTPUT]: list(range(len(parts)))}
        self._ready = ready = self._runner.prepare(call, output_rows, self._logits)
        ready.table.lend(self._runner.program.settings.tokens, address_of(self._found))
        return ready
