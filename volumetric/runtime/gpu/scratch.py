"""Buffers for the values of a plan: rows of bounded number, shared between values that do not live at the same time.

Buffers stay separate, never slices of one arena: wgpu tracks hazards by whole buffer and would serialise everything.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from volumetric.errors import DeviceError
from volumetric.kernels.gpu.dispatch import ceil_div
from volumetric.runtime.gpu.context import GpuContext
from volumetric.runtime.plan import Plan, Step, Value

_CHUNK_ROWS = 512
_TAIL_BYTES = 64 << 20


def row_bytes(value: Value) -> int:
    """Bytes of a row: ids are single words, features whole vectors."""
    return 4 if value.dtype == "int32" else 16 * ceil_div(value.width, 4)


def rows_within(plan: Plan, steps: Iterable[Step], most: int, limit: int) -> int:
    """Rows, at most `most`, with which every value that `steps` write fits in `limit` bytes.

    Raises
    ------
    DeviceError : not even one row fits
    """
    widest = max((row_bytes(plan.values[i]) for step in steps for i in step.outputs), default=4)
    if widest > limit:
        raise DeviceError(
            f"a row of {widest // 4} values needs {widest} bytes; this GPU binds at most {limit}",
            hint="use device='cpu'",
        )
    return min(most, limit // widest)


class Scratch:
    """Value buffers of one plan.

    Parameters
    ----------
    context : the open GPU
    plan : fused plan
    whole : the plan has steps that must see all rows of a call at once (attention without a cache)
    most : rows that a call can have

    Attributes
    ----------
    rows : rows that the body of the plan takes at once; longer calls run in chunks
    tail_rows : rows that the tail takes at once
    values : value → buffer
    gathered : value that the tail reads from the body → buffer with the tail's rows of it
    """

    def __init__(self, context: GpuContext, plan: Plan, *, whole: bool, most: int) -> None:
        self._context = context
        self._owned: list[Any] = []
        limit = context.caps.max_binding
        body = [step for step in plan.steps if not step.tail]
        tail = [step for step in plan.steps if step.tail]
        self.rows = rows_within(plan, body, most if whole else min(most, _CHUNK_ROWS), limit)
        if whole and self.rows < most:
            raise DeviceError(
                f"attention without a cache needs all {most} rows at once; this GPU binds {self.rows}",
                hint=f"use a context of at most {self.rows}",
            )
        self.tail_rows = rows_within(plan, tail, self.rows, min(limit, _TAIL_BYTES))
        made_in_tail = {i for step in tail for i in step.outputs}
        crossing = {i for step in tail for i in step.inputs} - made_in_tail
        keep = {*plan.inputs, *plan.outputs}
        self.values: dict[int, Any] = {}
        for i in plan.inputs:
            self.values[i] = self.make(self.rows * row_bytes(plan.values[i]), plan.values[i].name)
        self._allocate(plan, body, self.rows, keep | crossing)
        self._allocate(plan, tail, self.tail_rows, keep)
        self.gathered = {i: self.make(self.tail_rows * row_bytes(plan.values[i]), "tail rows") for i in crossing}

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        return sum(buffer.size for buffer in self._owned)

    def make(self, nbytes: int, label: str, *, uniform: bool = False) -> Any:
        """Return another buffer that lives as long as these."""
        made = self._context.buffer(nbytes, label, uniform=uniform)
        self._owned.append(made)
        return made

    def close(self) -> None:
        """Free every buffer."""
        for buffer in self._owned:
            self._context.free(buffer)
        self._owned.clear()
        self.values.clear()
        self.gathered.clear()

    def _allocate(self, plan: Plan, steps: list[Step], rows: int, keep: set[int]) -> None:
        """Give each value that `steps` write a buffer, taking over those whose last reader has run."""
        made = {i for step in steps for i in step.outputs}
        last_use = {i: at for at, step in enumerate(steps) for i in (*step.outputs, *step.inputs)}
        free: dict[int, list[Any]] = defaultdict(list)
        for at, step in enumerate(steps):
            for i in step.outputs:
                size = rows * row_bytes(plan.values[i])
                self.values[i] = free[size].pop() if free[size] else self.make(size, plan.values[i].name)
            for i in {*step.inputs, *step.outputs}:
                if last_use[i] == at and i in made and i not in keep:
                    free[rows * row_bytes(plan.values[i])].append(self.values[i])
