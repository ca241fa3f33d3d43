"""Greedy decoding on the CPU: one row of each of the same sequences, call after call, on a control block that stays.

Between two tokens only ids, positions and what points to them change. Whatever else ran meanwhile has written the block
anew; then, and when a state needs more memory, the next call is made ready from the start, as every other is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from volumetric._typing import Array
from volumetric.runtime.batch import Span
from volumetric.runtime.cpu.running import Call, Ready, Runner
from volumetric.runtime.cpu.state import CpuState
from volumetric.runtime.device import Piece


class TokenLoop:
    """Calls of one row for each of `states`, whose logits stay in one array."""

    def __init__(self, runner: Runner, states: Sequence[CpuState]) -> None:
        graph = runner.program.graph
        self._runner = runner
        self._states = states
        self._logits = np.empty((len(states), graph.tensors[graph.outputs[0]].width), np.float32)
        self._rows = np.arange(len(states))
        self._ready: Ready | None = None
        self._ids: Array = np.zeros(0, np.int32)
        self._positions: list[int] = []

    @staticmethod
    def serves(runner: Runner) -> bool:
        """Whether a network reads ids, runs on rows alone and ends in a product that writes where it is told."""
        program = runner.program
        [given] = program.graph.given
        ids = program.graph.tensors[given].dtype == "int32"
        return ids and program.settings.writes_output and not program.between.cores

    def step(self, tokens: Sequence[int]) -> tuple[list[int], NDArray[np.float32]]:
        """Feed a token to each state; returns the arg max of each sequence's logits, and those largest logits.

        A NaN is larger than every number. The executable's turn is the caller's.
        """
        runner, states, ready = self._runner, self._states, self._ready
        positions = [state.position for state in states]
        fits = all(state.position < state.memory.capacity for state in states)
        if ready is None or not fits or positions != self._positions or not runner.is_last(ready):
            ready = self._begin(tokens)
        else:
            self._ids[:] = tokens
            runner.next_row(ready)
        runner.walk(ready)
        for state in states:
            state.advance(1)
        self._positions = [position + 1 for position in positions]
        found = self._logits.argmax(axis=1)
        return found.tolist(), self._logits[self._rows, found]

    def _begin(self, tokens: Sequence[int]) -> Ready:
        """Make a call ready from the start."""
        ids, runner = np.array(tokens, np.int32), self._runner
        pieces = [Piece(state, ids[i : i + 1]) for i, state in enumerate(self._states)]
        call = Call([Span(i, 0, 1) for i in range(len(pieces))], pieces, [piece.x for piece in pieces])
        self._ready = ready = runner.prepare(call, self._logits)
        [given] = runner.program.graph.given
        self._ids = ready.values.view(given)[: len(pieces), 0]
        return ready
