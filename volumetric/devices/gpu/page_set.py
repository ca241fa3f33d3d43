"""Pages of layers that keep equally many rows: buffers, the users of each page, and the tables of page numbers.

A page is room for `PAGE` rows in every layer of the set, under one number; a sequence has a line of page numbers in a
table on the GPU. Line 0 and page 0 belong to no sequence: reads and writes through unset entries access only that page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volumetric.base.errors import DeviceError
from volumetric.devices.gpu.gpu_context import GpuContext
from volumetric.devices.gpu.kernels import elementwise
from volumetric.devices.gpu.kernels.attention import PAGE, AttentionShape
from volumetric.devices.gpu.kernels.dispatch import CallRows, ceil_div

TABLES = "page tables"
_FIRST_BYTES = 128 << 20
_MOST_MOVES = 256


def tables_name(window: int | None) -> str:
    """Name in recordings of the page tables of the layers with a window."""
    return TABLES if window is None else f"{TABLES} of window {window}"


def rows_name(key: str) -> str:
    """Name in recordings of the buffer with the rows of a state."""
    return f"rows of {key}"


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """State shared by the sets of a pool.

    Attributes
    ----------
    context : the open GPU
    positions : maximum rows of a sequence
    before_move : called before buffers are replaced by larger ones: bindings to them must be released
    collect : frees pages of sequences that were garbage-collected
    """

    context: GpuContext
    positions: int
    before_move: Callable[[], None]
    collect: Callable[[], None]


class PageSet:
    """Pages of some layers.

    Parameters
    ----------
    of : state shared with other sets
    shapes : key of a state → the attention whose rows are stored there
    window : number of last rows that are ever read again; None: all
    lines : lines of the table

    Attributes
    ----------
    buffers : key of a state → ``[pages, kv_heads, PAGE, head_dim padded]``
    tables : page numbers, uint32 ``[lines, pages of a full context]``
    page_bytes : bytes of a page in all layers

    Raises
    ------
    DeviceError : not even two pages fit
    """

    def __init__(self, of: PoolSettings, shapes: Mapping[str, AttentionShape], window: int | None, lines: int) -> None:
        self._of = of
        self._shapes = shapes
        self.window: int | None = window
        self._width = ceil_div(of.positions, PAGE)
        self._most = of.context.caps.max_binding // max(shape.page_bytes for shape in shapes.values())
        self.page_bytes: int = sum(shape.page_bytes for shape in shapes.values())
        count = max(2, min(self._width + 1, _FIRST_BYTES // max(self.page_bytes, 1), self._most))
        self.buffers: dict[str, Any] = self._allocate_buffers(count)
        self._uses = [1] + (count - 1) * [0]
        self._free = list(range(count - 1, 0, -1))
        self.tables: None = self._new_tables(lines)
        self._moves: Any = None

    @property
    def named_buffers(self) -> dict[str, Any]:
        """All buffers by their names in recordings, until the next move."""
        return {tables_name(self.window): self.tables, **{rows_name(key): one for key, one in self.buffers.items()}}

    @property
    def nbytes(self) -> int:
        """Bytes of the pages in use."""
        return (len(self._uses) - 1 - len(self._free)) * self.page_bytes

    def first_page(self, position: int) -> int:
        """Page with the first row that a row at `position`, or a later one, reads."""
        return 0 if self.window is None else max(0, position + 1 - self.window) // PAGE

    def missing_pages(self, pages: list[int], first: int, end: int, each: int) -> int:
        """Pages needed in addition to a sequence's `pages` while rows `first` to `end` come, `each` at a time."""
        at = first // PAGE
        shared = at < len(pages) and self._uses[pages[at]] > 1
        if self.window is None:
            return max(0, ceil_div(end, PAGE) - len(pages)) + shared
        most = min(ceil_div(end, PAGE) - self.first_page(first), (self.window + each) // PAGE + 2)
        return max(0, most - sum(map(bool, pages))) + shared

    def ensure(self, pages: int) -> None:
        """Provide so many free pages. Raises `DeviceError` if the GPU has no room."""
        self._of.collect()
        if len(self._free) < pages:
            self._grow(pages - len(self._free))

    def reserve(self, pages: list[int], line: int, first: int, end: int, *, fresh: bool) -> tuple[int, int] | None:
        """Reserve unshared room for the rows from `first` to `end` in a sequence with the page list `pages`.

        Parameters
        ----------
        fresh : whether the table's line has never been written

        Returns
        -------
        Page to copy and its copy, if other users share the page of the first row
        """
        at = first // PAGE
        if not pages:  # rows that are never read again need no pages
            pages += [0] * min(self.first_page(first), at)
        shared = at < len(pages) and self._uses[pages[at]] > 1
        missing = ceil_div(end, PAGE) - len(pages)
        if not (fresh or shared or missing > 0):
            return None
        changed, move = 0 if fresh else len(pages), None
        if shared:
            [copy] = self._allocate_pages(1)
            move = pages[at], copy
            self._uses[pages[at]] -= 1
            pages[at], changed = copy, min(at, changed)
        if missing > 0:
            pages += self._allocate_pages(missing)
        self.write_line(line, pages, changed)
        return move

    def write_line(self, line: int, pages: list[int], changed: int = 0) -> None:
        """Write a sequence's page numbers into the table, from number `changed` on."""
        if pages[changed:]:
            numbers = np.array(pages[changed:], np.uint32)
            self._of.context.write(self.tables, numbers, 4 * (line * self._width + changed))

    def share(self, pages: Iterable[int]) -> None:
        """Add a user to each of these pages."""
        for page in pages:
            self._uses[page] += page > 0

    def release(self, pages: Iterable[int]) -> None:
        """Remove a user from each of these pages; pages without users become free."""
        for page in pages:
            if page:
                self._uses[page] -= 1
                if self._uses[page] == 0:
                    self._free.append(page)

    def release_before(self, pages: list[int], position: int) -> None:
        """Free pages that no row from `position` on reads."""
        end = min(self.first_page(position), len(pages))
        at = end
        while at and pages[at - 1]:
            at -= 1
        self.release(pages[at:end])
        pages[at:end] = [0] * (end - at)

    def oldest_restorable(self, pages: list[int]) -> int:
        """Oldest restorable position beyond 0."""
        dropped = next((at for at, page in enumerate(pages) if page), len(pages)) * PAGE
        return 0 if self.window is None or not dropped else dropped + self.window - 1

    def dtype(self, key: str) -> np.dtype:
        """Type of a state's numbers."""
        return np.dtype(self._shapes[key].dtype)

    def read(self, key: str, pages: list[int], rows: int) -> NDArray[Any]:
        """The stored rows of a state, ``[…, kv_heads, head_dim]``: the last ones, as many as are kept."""
        shape = self._shapes[key]
        first = next((at for at, page in enumerate(pages) if page), len(pages))
        live = pages[first : ceil_div(rows, PAGE)]
        contents = np.empty((len(live), shape.kv_heads, PAGE, shape.padded), shape.dtype)
        for page, content in zip(live, contents, strict=True):
            data = self._of.context.read(self.buffers[key], shape.page_bytes, page * shape.page_bytes)
            content[:] = data.view(shape.dtype).reshape(content.shape)
        flat = contents.swapaxes(1, 2).reshape(-1, shape.kv_heads, shape.padded)
        return flat[: rows - first * PAGE, :, : shape.head_dim]

    def write(self, key: str, pages: list[int], values: NDArray[Any], end: int) -> None:
        """Set the last rows of a state before `end`, ``[rows, kv_heads, head_dim]``; they must be reserved."""
        shape = self._shapes[key]
        start = end - len(values)
        before = start % PAGE
        count = ceil_div(before + len(values), PAGE)
        wide = np.zeros((count * PAGE, shape.kv_heads, shape.padded), shape.dtype)
        wide[before : before + len(values), :, : shape.head_dim] = values
        every = wide.reshape(count, PAGE, shape.kv_heads, shape.padded).swapaxes(1, 2)
        for page, content in zip(pages[start // PAGE :], every, strict=False):
            if page:
                self._of.context.write(self.buffers[key], content, page * shape.page_bytes)

    def grow_table(self, lines: int) -> Callable[[], None]:
        """Create a table of more lines; returns a function that replaces the old one."""
        larger, context = self._new_tables(lines), self._of.context

        def take() -> None:
            context.copy_whole([(self.tables, larger)])
            context.free(self.tables)
            self.tables = larger

        return take

    def copy(self, moves: list[tuple[int, int]]) -> None:
        """Copy pages over others, in all layers."""
        context = self._of.context
        if moves and self._moves is None:
            self._moves = context.buffer(8 * _MOST_MOVES, "page moves")
        for start in range(0, len(moves), _MOST_MOVES):
            part = np.array(moves[start : start + _MOST_MOVES], np.uint32)
            context.write(self._moves, part)
            calls = [
                context.bind(
                    elementwise.copy_pages(shape.page_bytes // 16),
                    {"pages": self.buffers[key], "moves": self._moves},
                )
                for key, shape in self._shapes.items()
            ]
            context.run(calls, CallRows(len(part)))

    def close(self) -> None:
        """Free every buffer."""
        for buffer in (*self.buffers.values(), self.tables, *([] if self._moves is None else [self._moves])):
            self._of.context.free(buffer)
        self.buffers = {}
        self.tables = None
        self._moves = None

    def _new_tables(self, lines: int) -> Any:
        return self._of.context.buffer(4 * lines * self._width, tables_name(self.window))

    def _allocate_pages(self, count: int) -> list[int]:
        self.ensure(count)
        pages = [self._free.pop() for _ in range(count)]
        for page in pages:
            self._uses[page] = 1
        return pages

    def _grow(self, missing: int) -> None:
        """Replace the buffers by larger ones: twice what is needed, if that is possible.

        A move waits for the GPU and binds all recordings anew: it must not come again for the next tokens of a batch.
        Layers with a window soon need no more pages.
        """
        count, context = len(self._uses), self._of.context
        if count + missing > self._most:
            rows = (self._most - 1) * PAGE
            raise DeviceError(
                f"all sequences together need more than the {rows} rows of keys and values that one buffer of this GPU "
                "holds",
                hint="close finished sequences, or open the model with a smaller context",
            )
        larger = min(2 * (count + missing) if self.window is None else max(2 * count, count + missing), self._most)
        try:
            buffers = self._allocate_buffers(larger)
        except DeviceError:
            larger = count + missing
            buffers = self._allocate_buffers(larger)
        self._of.before_move()
        context.copy_whole([(self.buffers[key], buffer) for key, buffer in buffers.items()])
        for buffer in self.buffers.values():
            context.free(buffer)
        self.buffers = buffers
        self._uses += (larger - count) * [0]
        self._free[:0] = range(larger - 1, count - 1, -1)

    def _allocate_buffers(self, count: int) -> dict[str, Any]:
        """Buffers of `count` pages, or none."""
        buffers: dict[str, Any] = {}
        try:
            for key, shape in self._shapes.items():
                buffers[key] = self._of.context.buffer(count * shape.page_bytes, rows_name(key))
        except DeviceError:
            for buffer in buffers.values():
                self._of.context.free(buffer)
            raise
        return buffers
