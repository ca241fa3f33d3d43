"""VariantWriter: recorded calls as the plain data of one variant of an export."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from volumetric.devices.gpu.gpu_context import BoundDispatch, BufferSlice
from volumetric.devices.gpu.kernels.dispatch import ONE_ROW, CallRows, WorkgroupGrid
from volumetric.devices.gpu.recording_context import RecordedBuffer
from volumetric.devices.gpu.shaders import LinkedShader
from volumetric.web.variants import WebVariant
from volumetric.web.weight_pieces import BufferContents

_INDENTATION: Final = re.compile(r"\n\s+")
Step: TypeAlias = Mapping[str, Any]


class ModuleTable:
    """Texts of all variants, each once."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    @property
    def texts(self) -> list[str]:
        """The texts by number."""
        return list(self._numbers)

    def number(self, text: str) -> int:
        """Return the number of a text."""
        return self._numbers.setdefault(_INDENTATION.sub("\n", text), len(self._numbers))


class VariantWriter:
    """One variant under way.

    Parameters
    ----------
    variant : its capabilities
    modules, contents : shared by all variants
    """

    def __init__(self, variant: WebVariant, modules: ModuleTable, contents: BufferContents) -> None:
        self.variant = variant
        self._modules, self._contents = modules, contents
        self._buffers: dict[RecordedBuffer, int] = {}
        self._names: dict[RecordedBuffer, str] = {}
        self._pipelines: dict[str, int] = {}
        self._described: list[dict[str, Any]] = []
        self._programs: dict[str, list[Step]] = {}

    def name(self, buffer: RecordedBuffer, name: str) -> str:
        """Name a buffer that the reader uses by itself; return the name, an earlier one if it has one."""
        self._number(buffer)
        return self._names.setdefault(buffer, name)

    def program(self, name: str, steps: Iterable[Step]) -> str:
        """Add a program, and return its name."""
        self._programs[name] = list(steps)
        return name

    def dispatches(self, calls: Sequence[BoundDispatch], rows: CallRows = ONE_ROW) -> Step:
        """Return a step with recorded calls, for calls of up to so many rows."""
        return {"dispatches": [self._dispatch(call, rows) for call in calls]}

    def copies(self, moves: Iterable[tuple[BufferSlice, BufferSlice]]) -> Step:
        """Return a step that copies parts of buffers."""
        return {
            "copies": [
                [self._number(source.buffer), source.offset, self._number(target.buffer), target.offset, source.size]
                for source, target in moves
            ]
        }

    def finish(self) -> dict[str, Any]:
        """Return the variant; contents of buffers are written, and dropped."""
        buffers, taken = [], set(self._names.values())
        for buffer, contents in zip(self._buffers, self._contents.describe(list(self._buffers)), strict=True):
            name = self._names.get(buffer) or _unique(buffer.label, taken)
            taken.add(name)
            uniform = {"uniform": True} if buffer.uniform else {}
            buffers.append({"name": name, "bytes": buffer.size, **uniform, **contents})
        return {
            "label": self.variant.label,
            "needs": self.variant.needs(),
            "buffers": buffers,
            **self.calls(),
        }

    def calls(self) -> dict[str, Any]:
        """Return what is recorded so far: pipelines and programs."""
        return {"pipelines": self._described, "programs": self._programs}

    def again(self, contents: BufferContents) -> VariantWriter:
        """Return a writer of the same variant with the same modules, whose contents go elsewhere."""
        return VariantWriter(self.variant, self._modules, contents)

    def _dispatch(self, call: BoundDispatch, rows: CallRows) -> list[Any]:
        binds = []
        for index, part in call.group.slices:
            whole = part.offset == 0 and part.size == part.buffer.size
            binds.append([index, self._number(part.buffer), *([] if whole else [part.offset, part.size])])
        size = call.grid.size(rows, self.variant.caps.max_groups)
        return [self._pipeline(call), binds, list(size), *_row_rule(call.grid)]

    def _pipeline(self, call: BoundDispatch) -> int:
        linked: LinkedShader = call.pipeline
        if linked.text not in self._pipelines:
            self._pipelines[linked.text] = len(self._described)
            self._described.append(
                {
                    "label": call.label,
                    "module": self._modules.number(linked.text),
                    "bindings": [[binding.index, binding.access] for binding in linked.bindings],
                }
            )
        return self._pipelines[linked.text]

    def _number(self, buffer: RecordedBuffer) -> int:
        return self._buffers.setdefault(buffer, len(self._buffers))


def _row_rule(grid: WorkgroupGrid) -> list[list[Any]]:
    """Return how the number of workgroups depends on the rows of a call, if it does."""
    return [] if grid.rows_each is None else [[grid.over, grid.times, grid.rows_each, grid.extra]]


def _unique(label: str, taken: set[str]) -> str:
    name, number = label, 2
    while name in taken:
        name, number = f"{label} {number}", number + 1
    return name
