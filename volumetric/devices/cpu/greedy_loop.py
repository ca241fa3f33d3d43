"""Greedy decoding on the CPU: one row for each of the same sequences per call, with a control block that is reused.

The last steps of a table select the argmax token of each sequence and prepare the next call, so one native call may
feed several tokens. A caller that takes them one by one sees the positions advance one by one. Other calls in between
overwrite the control block; then, and if a state needs more memory or was changed, tokens computed ahead are dropped,
and the next call is prepared from scratch like any other.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volumetric.devices.cpu.arena import address_of
from volumetric.devices.cpu.call_runner import CpuCall, PreparedTable, Runner
from volumetric.devices.cpu.cpu_state import CpuState
from volumetric.network import INPUT, OUTPUT
from volumetric.run.call_batch import CheckedRows, RowSpan

_MOST = 32
"""Maximum tokens that a native call feeds to each sequence."""
_SECONDS = 0.005
"""Duration after which a native call feeds no more tokens. It is the granularity of streamed output, the latency of
Ctrl-C, and the work lost at a stop. A call costs another 9 µs: at most 0.5 % for tokens that are taken one by one."""


class TokenLoop:
    """Calls of one row for each of `states`, whose logits stay in one array.

    Parameters
    ----------
    limit : maximum rows of a sequence
    constant : inputs other than the ids, a row for each state
    """

    def __init__(
        self, runner: Runner, states: Sequence[CpuState], limit: int, constant: Mapping[str, NDArray[Any]]
    ) -> None:
        self._runner = runner
        self._states = states
        self._limit = limit
        self._constant = constant
        # Fixed states cannot be rolled back to the last token taken.
        fixed = any(spec.kind == "fixed" for spec in runner.program.cut.plan.states.values())
        self._most = 1 if fixed else _MOST
        self._logits = runner.output_buffer(len(states))
        self._token_records: NDArray[np.int64] = np.zeros(1 + 2 * len(states) * self._most, np.int64)
        self._ready: PreparedTable | None = None
        self._ahead: list[tuple[list[int], list[float]]] = []  # the next one last
        self._times = 1
        self._left: list[tuple[int, int]] = []

    @staticmethod
    def supports(runner: Runner) -> bool:
        """Whether a network's tables select tokens."""
        return runner.program.chooses

    def step(self, tokens: Sequence[int]) -> tuple[list[int], list[float]]:
        """Feed a token to each state; return the argmax of each sequence's logits, and these maxima.

        `tokens` must be those that the last call returned, except in the first call. NaN counts as larger than every
        number. The caller must hold the executable's lock.
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

    def _compute(self, tokens: Sequence[int], ready: PreparedTable | None) -> None:
        """Feed `tokens`, and as many further tokens as states and time allow."""
        states = self._states
        room = min(state.memory.free_rows(state.position) for state in states)
        if ready is None or room < 1:
            ready = self._begin(tokens)
            room = min(state.memory.free_rows(state.position) for state in states)
        times = min(self._times, room, self._limit - max(state.position for state in states))
        self._token_records[0] = 0
        began = time.perf_counter()
        self._runner.repeat(ready, times)
        seconds = time.perf_counter() - began
        done, rows = int(self._token_records[0]), len(states)
        records = self._token_records[1 : 1 + 2 * done * rows]
        ids = records[::2].reshape(done, rows).tolist()
        logits = records.view(np.float32)[2::4].reshape(done, rows).tolist()
        self._ahead = list(zip(ids, logits, strict=True))[::-1]
        if seconds > 2 * _SECONDS:
            self._times = max(1, times // 2)
        elif times == self._times and 2 * seconds <= _SECONDS:
            self._times = min(self._most, 2 * times)

    def _begin(self, tokens: Sequence[int]) -> PreparedTable:
        """Prepare a call from scratch."""
        ids = np.array(tokens, np.int32)
        rows = {INPUT: ids, **self._constant}
        inputs = [{name: rows[name][i : i + 1] for name in self._runner.program.cut.inputs} for i in range(len(ids))]
        parts = [CheckedRows(state, "last", own, (OUTPUT,)) for state, own in zip(self._states, inputs, strict=True)]
        call = CpuCall([RowSpan(i, 0, 1) for i in range(len(parts))], parts)
        output_rows = {self._runner.program.cut.outputs[OUTPUT]: list(range(len(parts)))}
        self._ready = ready = self._runner.prepare(call, output_rows, self._logits)
        ready.table.set_address(self._runner.program.settings.tokens, address_of(self._token_records))
        return ready
