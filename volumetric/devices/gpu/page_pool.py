"""Keys and values of all sequences of an executable: sets of pages, shared between forks, freed outside of windows."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volumetric.devices.gpu.fixed_states import FixedStates, fixed_name
from volumetric.devices.gpu.gpu_context import GpuContext
from volumetric.devices.gpu.kernels.attention import PAGE, AttentionShape
from volumetric.devices.gpu.kernels.dispatch import ceil_div
from volumetric.devices.gpu.page_set import PageSet, PoolSettings
from volumetric.layers import StateSpec

_FIRST_LINES = 16


class SequencePages:
    """Resources of one sequence in a pool: its line in the tables, 0 until it has one, and its pages in order, by set.

    A page freed because no later row reads it is a 0.
    """

    __slots__ = ("line", "pages")

    def __init__(self, sets: int) -> None:
        self.line: int = 0
        self.pages: list[list[int]] = [[] for _ in range(sets)]


class PagePool:
    """Pages, page tables and fixed states of one executable, or of several that share states.

    Layers with a window have a set of pages for each window width, so that pages outside of the window are freed
    although other layers keep all rows.

    Parameters
    ----------
    context : the open GPU
    shapes : key of a state → the attention whose rows are stored there
    positions : maximum rows of a sequence
    fixed : key → states of one value a sequence

    Attributes
    ----------
    lock : held while resources of sequences change, or the executable's buffers are used
    returned : resources of garbage-collected sequences; a finalizer may only append
    sets : pages, those of layers that keep all rows first
    fixed : fixed states, by line
    users : called before buffers are replaced by larger ones: bindings to them must be released

    Raises
    ------
    DeviceError : not even two pages fit
    """

    def __init__(
        self,
        context: GpuContext,
        shapes: Mapping[str, AttentionShape],
        positions: int,
        fixed: Mapping[str, StateSpec],
    ) -> None:
        self.users: list[Callable[[], None]] = []
        self.shapes: dict[str, AttentionShape] = dict(shapes)
        self.lock: threading.RLock = threading.RLock()
        self.returned: deque[SequencePages] = deque()
        self._lines = _FIRST_LINES
        self._free_lines = list(range(self._lines - 1, 0, -1))
        surroundings = PoolSettings(context, positions, self._before_move, self._collect)
        windows: dict[int | None, dict[str, AttentionShape]] = {}
        for key, shape in shapes.items():
            windows.setdefault(shape.kept_rows, {})[key] = shape
        order = sorted(windows, key=lambda window: -1 if window is None else window)
        self.sets: list[PageSet] = [PageSet(surroundings, windows[window], window, self._lines) for window in order]
        self._set_of = {key: number for number, window in enumerate(order) for key in windows[window]}
        self.fixed: FixedStates = FixedStates(context, fixed, self._lines)

    @property
    def named_buffers(self) -> dict[str, Any]:
        """All buffers by their names in recordings, until the next move."""
        fixed = {fixed_name(key): buffer for key, buffer in self.fixed.buffers.items()}
        return {name: buffer for one in self.sets for name, buffer in one.named_buffers.items()} | fixed

    @property
    def nbytes(self) -> int:
        """Bytes of the pages in use."""
        self._collect()
        return sum(one.nbytes for one in self.sets)

    @property
    def has_windows(self) -> bool:
        """Whether pages are freed outside of windows."""
        return any(one.window is not None for one in self.sets)

    def new_sequence(self) -> SequencePages:
        """Return the resources of a new sequence."""
        return SequencePages(len(self.sets))

    @staticmethod
    def control_block_pages(holding: SequencePages) -> list[int]:
        """Pages of the first set, whose numbers a call of one row reads from the control block."""
        return holding.pages[0] if holding.pages else []

    def ensure(self, requests: Sequence[tuple[SequencePages, int, int]], each: int) -> None:
        """Provide as many free pages as sequences will need while their rows are appended, `each` rows at a time.

        Parameters
        ----------
        requests : (holding, first row to write, end of the rows)

        Raises
        ------
        DeviceError : the GPU has no room
        """
        for number, one in enumerate(self.sets):
            one.ensure(
                sum(one.missing_pages(holding.pages[number], first, end, each) for holding, first, end in requests)
            )

    def reserve(self, requests: Iterable[tuple[SequencePages, int, int]]) -> None:
        """Reserve unshared room for rows of sequences.

        Parameters
        ----------
        requests : (holding, first row to write, end of the rows); a shared page before the first row is copied

        Raises
        ------
        DeviceError : the GPU has no room; resources are unchanged, or larger
        """
        moves: list[list[tuple[int, int]]] = [[] for _ in self.sets]
        for holding, first, end in requests:
            fresh = not holding.line
            holding.line = holding.line or self._allocate_line()
            for number, one in enumerate(self.sets):
                move = one.reserve(holding.pages[number], holding.line, first, end, fresh=fresh)
                moves[number] += [] if move is None else [move]
        for one, some in zip(self.sets, moves, strict=True):
            one.copy(some)

    def release_before(self, holding: SequencePages, position: int) -> None:
        """Free the pages that no row of a sequence from `position` on reads."""
        for one, pages in zip(self.sets, holding.pages, strict=True):
            one.release_before(pages, position)

    def oldest_restorable(self, holding: SequencePages) -> int:
        """Oldest restorable position beyond 0."""
        return max(
            (one.oldest_restorable(pages) for one, pages in zip(self.sets, holding.pages, strict=True)), default=0
        )

    def trim(self, holding: SequencePages, position: int) -> None:
        """Free the pages after the first `position` rows."""
        keep = ceil_div(position, PAGE)
        for one, pages in zip(self.sets, holding.pages, strict=True):
            one.release(pages[keep:])
            del pages[keep:]

    def share(self, holding: SequencePages, twin: SequencePages, rows: int) -> None:
        """Let the empty `twin` share the first `rows` rows and copy the fixed states of a sequence.

        Raises
        ------
        DeviceError : no room for the fixed states
        """
        if self.fixed.buffers and rows:
            twin.line = self._allocate_line()
            self.fixed.copy(holding.line, twin.line)
        for number, one in enumerate(self.sets):
            twin.pages[number] = holding.pages[number][: ceil_div(rows, PAGE)]
            one.share(twin.pages[number])
            if twin.line:
                one.write_line(twin.line, twin.pages[number])

    def dtype(self, key: str) -> np.dtype:
        """Type of a state's numbers."""
        return self.sets[self._set_of[key]].dtype(key)

    def read(self, key: str, holding: SequencePages, rows: int) -> NDArray[Any]:
        """The last stored rows of a state, ``[…, kv_heads, head_dim]``."""
        number = self._set_of[key]
        return self.sets[number].read(key, holding.pages[number], rows)

    def write(self, key: str, holding: SequencePages, values: NDArray[Any], end: int) -> None:
        """Set the last rows of a state before `end`, ``[…, kv_heads, head_dim]``; they must be reserved."""
        number = self._set_of[key]
        self.sets[number].write(key, holding.pages[number], values, end)

    def close(self, user: Callable[[], None]) -> None:
        """Free every buffer when the last user closes."""
        self.users.remove(user)
        if self.users:
            return
        for one in self.sets:
            one.close()
        self.fixed.close()

    def _before_move(self) -> None:
        for user in self.users:
            user()

    def _collect(self) -> None:
        """Free resources of sequences that were garbage-collected."""
        while self.returned:
            holding = self.returned.popleft()
            self.trim(holding, 0)
            if holding.line:
                self._free_lines.append(holding.line)

    def _allocate_line(self) -> int:
        self._collect()
        if not self._free_lines:
            values = self.fixed.grow(2 * self._lines)
            takes = [one.grow_table(2 * self._lines) for one in self.sets]
            self._before_move()
            self.fixed.move_into(values)
            for take in takes:
                take()
            self._free_lines += range(2 * self._lines - 1, self._lines - 1, -1)
            self._lines *= 2
        return self._free_lines.pop()
