"""Pages of keys and values: one pool for all sequences of an executable, counted, shared between forks.

A page is room for `PAGE` rows in every layer, under one number; a sequence has a line of page numbers in a table on the
GPU. Line 0 and page 0 belong to nobody: what reads or writes through entries that were never set meets that page alone.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volumetric.errors import DeviceError
from volumetric.kernels.gpu import elementwise
from volumetric.kernels.gpu.attention import PAGE, AttentionShape
from volumetric.kernels.gpu.dispatch import Rows, ceil_div
from volumetric.layers import StateSpec
from volumetric.runtime.gpu.context import GpuContext
from volumetric.runtime.gpu.fixed import FixedStates, fixed_name

TABLES = "page tables"
"""Name of the page tables in recordings."""
_FIRST_BYTES = 128 << 20
_FIRST_LINES = 16
_MOST_MOVES = 256


def rows_name(key: str) -> str:
    """Name in recordings of the buffer with the rows of a state."""
    return f"rows of {key}"


class Holding:
    """What one sequence holds of a pool: its line in the table, 0 until it has one, and its pages in order."""

    __slots__ = ("line", "pages")

    def __init__(self) -> None:
        self.line = 0
        self.pages: list[int] = []


class PagePool:
    """Pages and page tables of one executable.

    Parameters
    ----------
    context : the open GPU
    shapes : key of a state → the attention that keeps its rows there
    positions : rows that a sequence may have
    before_move : called before buffers are replaced by larger ones: whatever is bound to them must go
    fixed : key → states of one value a sequence

    Attributes
    ----------
    lock : held by whoever changes what sequences hold, or uses the executable's buffers
    returned : holdings of sequences that were collected; appending is all that a finalizer may do
    buffers : key of a state → ``[pages, kv_heads, PAGE, head_dim padded]``
    tables : page numbers, uint32 ``[lines, pages of a full context]``
    fixed : fixed states, by line

    Raises
    ------
    DeviceError : not even two pages fit
    """

    def __init__(
        self,
        context: GpuContext,
        shapes: Mapping[str, AttentionShape],
        positions: int,
        before_move: Callable[[], None],
        fixed: Mapping[str, StateSpec],
    ) -> None:
        self._context = context
        self._shapes = shapes
        self._before_move = before_move
        self.lock = threading.RLock()
        self.returned: deque[Holding] = deque()
        self._width = ceil_div(positions, PAGE)
        largest = max((shape.page_bytes for shape in shapes.values()), default=16)
        self._most = context.caps.max_binding // largest
        each = sum(shape.page_bytes for shape in shapes.values())
        count = max(2, min(self._width + 1, _FIRST_BYTES // max(each, 1), self._most))
        self.buffers: dict[str, Any] = self._allocate(count)
        self._uses = [1] + (count - 1) * [0]
        self._free = list(range(count - 1, 0, -1))
        self._lines = _FIRST_LINES
        self._free_lines = list(range(self._lines - 1, 0, -1))
        self.tables = context.buffer(4 * self._lines * self._width, "page tables")
        self._moves: Any = None
        self.fixed = FixedStates(context, fixed, self._lines)

    @property
    def named(self) -> dict[str, Any]:
        """All buffers by their names in recordings, until the next move."""
        rows = {rows_name(key): buffer for key, buffer in self.buffers.items()}
        fixed = {fixed_name(key): buffer for key, buffer in self.fixed.buffers.items()}
        return {TABLES: self.tables, **rows, **fixed}

    @property
    def nbytes(self) -> int:
        """Bytes of the pages in use."""
        self._collect()
        used = len(self._uses) - 1 - len(self._free)
        return used * sum(shape.page_bytes for shape in self._shapes.values())

    def reserve(self, wanted: Iterable[tuple[Holding, int, int]]) -> None:
        """Give sequences room of their own for rows.

        Parameters
        ----------
        wanted : (holding, first row to write, end of the rows); a page before it that others share is copied

        Raises
        ------
        DeviceError : the GPU has no room; holdings are as before, or larger
        """
        moves: list[tuple[int, int]] = []
        for held, first, end in wanted:
            at = first // PAGE
            shared = at < len(held.pages) and self._uses[held.pages[at]] > 1
            missing = ceil_div(end, PAGE) - len(held.pages)
            if held.line and not shared and missing <= 0:
                continue
            changed = len(held.pages) if held.line else 0
            held.line = held.line or self._take_line()
            if shared:
                fresh = self._take(1)[0]
                moves.append((held.pages[at], fresh))
                self._uses[held.pages[at]] -= 1
                held.pages[at], changed = fresh, min(at, changed)
            if missing > 0:
                held.pages += self._take(missing)
            line = np.array(held.pages[changed:], np.uint32)
            self._context.write(self.tables, line, 4 * (held.line * self._width + changed))
        if moves:
            self._copy(moves)

    def share(self, held: Holding, twin: Holding, rows: int) -> None:
        """Let `twin`, which is empty, hold the first `rows` rows and the fixed states of a sequence, too.

        Raises
        ------
        DeviceError : no room for the fixed states
        """
        if self.fixed.buffers and rows:
            twin.line = self._take_line()
            self.fixed.copy(held.line, twin.line)
        twin.pages = held.pages[: ceil_div(rows, PAGE)]
        for page in twin.pages:
            self._uses[page] += 1
        if twin.line and twin.pages:
            self._context.write(self.tables, np.array(twin.pages, np.uint32), 4 * twin.line * self._width)

    def give(self, pages: Iterable[int]) -> None:
        """Count a user less of these pages; those without any are free."""
        for page in pages:
            self._uses[page] -= 1
            if self._uses[page] == 0:
                self._free.append(page)

    def dtype(self, key: str) -> np.dtype:
        """Type of a state's numbers."""
        return np.dtype(self._shapes[key].dtype)

    def read(self, key: str, held: Holding, rows: int) -> NDArray[Any]:
        """Rows of a state as they are stored, ``[rows, kv_heads, head_dim]``."""
        shape = self._shapes[key]
        found = np.empty((ceil_div(rows, PAGE), shape.kv_heads, PAGE, shape.padded), shape.dtype)
        for page, content in zip(held.pages, found, strict=False):
            data = self._context.read(self.buffers[key], shape.page_bytes, page * shape.page_bytes)
            content[:] = data.view(shape.dtype).reshape(content.shape)
        return found.swapaxes(1, 2).reshape(-1, shape.kv_heads, shape.padded)[:rows, :, : shape.head_dim]

    def write(self, key: str, held: Holding, values: NDArray[Any]) -> None:
        """Set the first rows of a state, ``[rows, kv_heads, head_dim]`` as they are stored; they have been reserved."""
        shape = self._shapes[key]
        count = ceil_div(len(values), PAGE)
        wide = np.zeros((count * PAGE, shape.kv_heads, shape.padded), shape.dtype)
        wide[: len(values), :, : shape.head_dim] = values
        pages = wide.reshape(count, PAGE, shape.kv_heads, shape.padded).swapaxes(1, 2)
        for page, content in zip(held.pages, pages, strict=False):
            self._context.write(self.buffers[key], content, page * shape.page_bytes)

    def close(self) -> None:
        """Free every buffer."""
        for buffer in self.buffers.values():
            self._context.free(buffer)
        self._context.free(self.tables)
        self.fixed.close()
        if self._moves is not None:
            self._context.free(self._moves)
        self.buffers, self.tables, self._moves = {}, None, None

    def _collect(self) -> None:
        """Take back what sequences held that are gone."""
        while self.returned:
            held = self.returned.popleft()
            self.give(held.pages)
            if held.line:
                self._free_lines.append(held.line)

    def _take(self, count: int) -> list[int]:
        self._collect()
        if len(self._free) < count:
            self._grow(count - len(self._free))
        taken = [self._free.pop() for _ in range(count)]
        for page in taken:
            self._uses[page] = 1
        return taken

    def _take_line(self) -> int:
        self._collect()
        if not self._free_lines:
            values = self.fixed.grow(2 * self._lines)
            larger = self._context.buffer(8 * self._lines * self._width, "page tables")
            self._before_move()
            self.fixed.take(values)
            self._context.copy_whole([(self.tables, larger)])
            self._context.free(self.tables)
            self.tables = larger
            self._free_lines += range(2 * self._lines - 1, self._lines - 1, -1)
            self._lines *= 2
        return self._free_lines.pop()

    def _grow(self, missing: int) -> None:
        """Replace the buffers by larger ones: twice as large, where that is possible and enough."""
        count = len(self._uses)
        if count + missing > self._most:
            rows = (self._most - 1) * PAGE
            raise DeviceError(
                f"all sequences together need more than the {rows} rows of keys and values that one buffer of this GPU "
                "holds",
                hint="close sequences that are done, or open the model with a smaller context",
            )
        larger = min(max(2 * count, count + missing), self._most)
        try:
            made = self._allocate(larger)
        except DeviceError:
            larger = count + missing
            made = self._allocate(larger)
        self._before_move()
        self._context.copy_whole([(self.buffers[key], buffer) for key, buffer in made.items()])
        for buffer in self.buffers.values():
            self._context.free(buffer)
        self.buffers = made
        self._uses += (larger - count) * [0]
        self._free[:0] = range(larger - 1, count - 1, -1)

    def _allocate(self, count: int) -> dict[str, Any]:
        """Buffers of `count` pages, or none."""
        made: dict[str, Any] = {}
        try:
            for key, shape in self._shapes.items():
                made[key] = self._context.buffer(count * shape.page_bytes, f"rows of {key}")
        except DeviceError:
            for buffer in made.values():
                self._context.free(buffer)
            raise
        return made

    def _copy(self, moves: list[tuple[int, int]]) -> None:
        """Copy pages over others, in all layers."""
        if self._moves is None:
            self._moves = self._context.buffer(8 * _MOST_MOVES, "page moves")
        for start in range(0, len(moves), _MOST_MOVES):
            part = np.array(moves[start : start + _MOST_MOVES], np.uint32)
            self._context.write(self._moves, part)
            calls = [
                self._context.bind(
                    elementwise.copy_pages(shape.page_bytes // 16),
                    {"pages": self.buffers[key], "moves": self._moves},
                )
                for key, shape in self._shapes.items()
            ]
            self._context.run(calls, Rows(len(part)))
