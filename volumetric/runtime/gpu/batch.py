"""Batches on a GPU: products of all rows at once; attention and learned positions row by row, with decoding's kernels.

A row's kernels see a slice of the values of all rows, a control block of their own and the caches of one state, so that
they need no form of their own. Slices must start where the GPU lets bindings start; where a row has another length, the
sequences run one after the other.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from volumetric.kernels.gpu.dispatch import power_of_two
from volumetric.runtime.gpu.commands import Pass
from volumetric.runtime.gpu.context import Call, Slice
from volumetric.runtime.gpu.record import Frame, Recorder, StateCalls
from volumetric.runtime.gpu.scratch import row_bytes
from volumetric.runtime.gpu.state import GpuState
from volumetric.runtime.plan import Plan, Step

if TYPE_CHECKING:
    from volumetric.runtime.gpu.executable import GpuExecutable

_POSITIONAL = frozenset({"attend", "position_embedding"})
_CONTROL_BYTES = 256
"""Distance of control blocks: where every GPU lets a uniform binding start."""
_SMALLEST_BUCKET = 16


class Batches:
    """Runs batches of one executable.

    Attributes
    ----------
    most : rows of a batch; more go in several
    """

    def __init__(self, executable: GpuExecutable, recorder: Recorder) -> None:
        self._executable = executable
        self._recorder = recorder
        scratch = executable.scratch
        self.most = min(scratch.rows, scratch.tail_rows)
        self._control = scratch.make(16, "batch control", uniform=True)
        self._rows = scratch.make(_CONTROL_BYTES * self.most, "row controls", uniform=True)
        self._wide: dict[int, list[list[Call]]] = {}
        self._narrow: dict[int, list[list[Call | StateCalls]]] = {}
        self._members: list[weakref.ref[GpuState]] = []
        self._prepared: Any = None

    def forward(self, states: Sequence[GpuState], x: NDArray[Any]) -> NDArray[np.float32]:
        """Append one row to each of at most `most` states; everything has been checked."""
        executable, rows = self._executable, len(states)
        executable.write_control(self._control, 0, rows)
        blocks = np.zeros((rows, _CONTROL_BYTES // 4), np.uint32)
        for block, state in zip(blocks, states, strict=True):
            block[:4] = state.position, 1, 0, state.position + 1
        executable.context.write(self._rows, blocks)
        executable.write_input(x)
        found = executable.fetch([Pass(self._commands(states), rows)], executable.plan.outputs[0], 0, rows)
        for state in states:
            state.advance(1)
        return found

    def _commands(self, states: Sequence[GpuState]) -> Any:
        """The prepared pass over these states; the last one is kept."""
        same = len(self._members) == len(states)
        if not (same and all(ref() is state for ref, state in zip(self._members, states, strict=True))):
            narrow = [self._bound(state, row) for row, state in enumerate(states)]
            calls: list[Call] = []
            for at, wide in enumerate(self._together(len(states))):
                calls += wide
                for own in narrow:
                    calls += own[at] if at < len(own) else []
            self._prepared = self._executable.executor.prepare(calls)
            self._members = [weakref.ref(state) for state in states]
        return self._prepared

    def _together(self, rows: int) -> list[list[Call]]:
        """Dispatches for all rows: before the first positional step, between it and the next, … after the last."""
        bucket = max(_SMALLEST_BUCKET, power_of_two(rows))
        if bucket not in self._wide:
            frame = Frame(rows=bucket, control=self._control, values=self._executable.scratch.values)
            parts: list[list[tuple[int, Step]]] = [[]]
            for i, step in enumerate(self._executable.plan.steps):
                if step.op in _POSITIONAL:
                    parts.append([])
                else:
                    parts[-1].append((i, step))
            recorded = [self._recorder.record(part, frame) for part in parts]
            self._wide[bucket] = [[call for call in part if isinstance(call, Call)] for part in recorded]
        return self._wide[bucket]

    def _bound(self, state: GpuState, row: int) -> list[list[Call]]:
        """Dispatches of the positional steps for one row and one state, kept with the state."""
        key = (self._executable, "row", row)
        if key not in state.replays:
            state.replays[key] = [
                [call for entry in step for call in ([entry] if isinstance(entry, Call) else entry(state))]
                for step in self._alone(row)
            ]
        return state.replays[key]

    def _alone(self, row: int) -> list[list[Call | StateCalls]]:
        if row not in self._narrow:
            executable = self._executable
            control = Slice(self._rows, _CONTROL_BYTES * row, 16)
            self._narrow[row] = []
            for i, step in enumerate(executable.plan.steps):
                if step.op in _POSITIONAL:
                    values = {v: self._slice(v, row) for v in (*step.inputs, *step.outputs)}
                    frame = Frame(rows=1, control=control, values=values)
                    self._narrow[row].append(self._recorder.record([(i, step)], frame))
        return self._narrow[row]

    def _slice(self, value: int, row: int) -> Slice:
        size = row_bytes(self._executable.plan.values[value])
        return Slice(self._executable.scratch.values[value], size * row, size)


def can_slice(plan: Plan, alignment: int) -> bool:
    """Whether every row that a positional step sees may be bound by itself, and every such step follows a state."""
    positional = [step for step in plan.steps if step.op in _POSITIONAL]
    values = {v for step in positional for v in (*step.inputs, *step.outputs)}
    attends = [step for step in positional if step.op == "attend"]
    return all(row_bytes(plan.values[v]) % alignment == 0 for v in values) and all(
        step.states and step.attrs["causal"] for step in attends
    )
