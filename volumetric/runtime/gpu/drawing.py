"""What drawing tokens on the GPU needs beside the logits: how each row is drawn, its next random numbers, scratch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from volumetric._typing import F32Array
from volumetric.errors import UnsupportedError
from volumetric.kernels.gpu import drawing, elementwise
from volumetric.kernels.gpu.dispatch import Dispatch, ceil_div, power_of_two
from volumetric.runtime.gpu.recording import Entry, entry

if TYPE_CHECKING:
    from volumetric.runtime.device import Chooser
    from volumetric.runtime.gpu.context import GpuContext

UNCERTAIN = 0xFFFFFFFC
"""What `drawing/token.wgsl` writes in place of a token that the host must draw."""
AHEAD = drawing.NUMBERS // 2
"""Draws after which the next numbers must be written."""
Ways: TypeAlias = tuple[bool, bool]
"""Whether any row has top-p without top-k, and any has top-k."""
_NAMES = ("plans", "binned", "cuts", "sums", "doubtful")


class Drawing:
    """Draws of one executable.

    Parameters
    ----------
    context : where
    width : tokens of the vocabulary
    most : rows that are drawn together

    Attributes
    ----------
    buffers : their names and what they are now
    rows : for how many rows there is room
    """

    def __init__(self, context: GpuContext, width: int, most: int) -> None:
        self._context = context
        self._width = width
        self._most = most
        self._stride = 4 * ceil_div(width, 4)
        self.buffers: dict[str, Any] = {}
        self.rows = 0

    def plan(self, chooser: Chooser | None) -> NDArray[np.uint32] | None:
        """Return how a row is drawn, arg max without a chooser; None where that is left to the host."""
        if chooser is None:
            return np.zeros(12, np.uint32)
        return drawing.plan(
            temperature=chooser.temperature,
            top_k=chooser.top_k,
            top_p=chooser.top_p,
            min_p=chooser.min_p,
            width=self._width,
        )

    def withheld(self) -> DrawnRow:
        """Return a row whose logits are left to the host in any case."""
        plan = np.zeros(12, np.uint32)
        plan[0] = drawing.WITHHELD
        return DrawnRow(plan, None)

    def row(self, chooser: Chooser | None) -> DrawnRow:
        """Return a row of a decoding loop.

        Raises
        ------
        UnsupportedError : it is drawn as only the host can
        """
        plan = self.plan(chooser)
        if plan is None:
            raise UnsupportedError("the GPU cannot draw tokens so", hint="draw them from Executable.run's logits")
        return DrawnRow(plan, chooser)

    def make(self, rows: int) -> None:
        """Make room for so many rows; buffers are new then."""
        self.close()
        rows = min(power_of_two(rows), self._most)
        words = {
            "plans": drawing.TABLE_WORDS + rows * drawing.ROW_WORDS,
            "binned": 2 * rows * drawing.GROUPS * drawing.BINS,
            "cuts": 4 * rows,
            "sums": 2 * rows * drawing.GROUPS,
            "doubtful": rows * self._stride,
        }
        self.buffers = {name: self._context.buffer(4 * count, f"drawing: {name}") for name, count in words.items()}
        self._context.write(self.buffers["plans"], drawing.table())
        self.rows = rows

    def close(self) -> None:
        """Free the buffers."""
        for buffer in self.buffers.values():
            self._context.free(buffer)
        self.buffers = {}
        self.rows = 0

    def tell(self, rows: Sequence[DrawnRow]) -> None:
        """Write how rows are drawn, and their next numbers."""
        words = np.zeros((len(rows), drawing.ROW_WORDS), np.uint32)
        for place, row in enumerate(rows):
            words[place, :12] = row.plan
            words[place, 12:] = row.ring.reshape(-1)
        self._context.write(self.buffers["plans"], words, 4 * drawing.TABLE_WORDS)

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers."""
        return sum(buffer.size for buffer in self.buffers.values())

    def left(self, rows: Sequence[int]) -> dict[int, F32Array]:
        """Return the logits of ascending rows that are left to the host: all that lie between come with them."""
        if not rows:
            return {}
        first, count, stride = rows[0], rows[-1] - rows[0] + 1, 4 * self._stride
        data = self._context.read(self.buffers["doubtful"], count * stride, first * stride)
        logits = data.view(np.float32).reshape(count, -1)
        return {row: logits[row - first, : self._width] for row in rows}


class DrawnRow:
    """A row of a decoding loop: how it is drawn, and its numbers as they lie on the GPU.

    Parameters
    ----------
    plan : see `volumetric.kernels.gpu.drawing.plan`
    chooser : gives the numbers; None for arg max
    """

    def __init__(self, plan: NDArray[np.uint32], chooser: Chooser | None) -> None:
        self.plan = plan
        self.chooser = chooser
        self.ring = np.zeros((drawing.NUMBERS, 2), np.uint32)

    def next_at(self, position: int) -> None:
        """Put the next number where the draw at `position` looks for it."""
        if self.chooser is not None:
            self.ring[position % drawing.NUMBERS] = drawing.numbers(self.chooser.ahead(1))[0]

    def turn(self, position: int) -> None:
        """Put the next `2 * AHEAD` numbers where draws from `position` on look for them."""
        if self.chooser is not None:
            places = (position + np.arange(drawing.NUMBERS)) % drawing.NUMBERS
            self.ring[places] = drawing.numbers(self.chooser.ahead(drawing.NUMBERS))


def kinds(rows: Sequence[DrawnRow]) -> Ways:
    """What must be launched for some rows."""
    by_weight = any(row.plan[0] & drawing.BY_WEIGHT and not row.plan[4] for row in rows)
    return by_weight, any(row.plan[4] > 0 for row in rows)


def pick_entries(width: int, ways: Ways | None, names: dict[str, str], control: str) -> list[Entry]:
    """Launches after which each row's token and position are set.

    Parameters
    ----------
    ways : what some rows are drawn by, see `kinds`; None where each takes its arg max
    names : buffers' names in the recording: x, winners and token
    control : the control block
    """
    named = {**{name: name for name in _NAMES}, **names, "control": control, "ctl": control}

    def made(dispatch: Dispatch, *used: str) -> Entry:
        return entry(dispatch, {name: named[name] for name in used})

    first = made(elementwise.argmax(width=width, final=False), "x", "winners")
    if ways is None:
        return [first, made(elementwise.argmax(width=width, final=True), "winners", "token", "control")]
    by_weight, by_count = ways
    read = ("x", "winners", "plans")
    found = [first]
    if by_weight or by_count:
        found.append(made(drawing.bins(width), *read, "binned"))
    if by_weight:
        found.append(made(drawing.top_p(width), *read, "binned", "cuts"))
    if by_count:
        found.append(made(drawing.top_k(width), *read, "binned", "cuts", "ctl"))
    found.append(made(drawing.sums(width), *read, "cuts", "sums"))
    found.append(made(drawing.token(width), *read, "sums", "cuts", "token", "doubtful", "control"))
    return found
