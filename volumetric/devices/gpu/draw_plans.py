"""Buffers for sampling tokens on the GPU: how each row is sampled, its next random numbers, scratch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from volumetric.base._typing import F32Array
from volumetric.base.errors import UnsupportedError
from volumetric.devices.gpu.command_list import RecordedDispatch, entry
from volumetric.devices.gpu.kernels import elementwise, token_draw
from volumetric.devices.gpu.kernels.dispatch import Dispatch, ceil_div, power_of_two

if TYPE_CHECKING:
    from volumetric.devices.gpu.gpu_context import GpuContext
    from volumetric.run.device import TokenSampler

UNCERTAIN = 0xFFFFFFFC
"""Value that `drawing/token.wgsl` writes instead of a token that the host must sample."""
AHEAD = token_draw.NUMBERS // 2
"""Draws after which the next random numbers must be written."""
Ways: TypeAlias = tuple[bool, bool, bool]
"""Whether any row has top-p without top-k, any has top-k, and scores of any change before."""
_NAMES = ("plans", "binned", "cuts", "sums", "doubtful", "changes")


class DrawPlans:
    """Sampling for one executable.

    Parameters
    ----------
    context : the open GPU
    width : tokens of the vocabulary
    most : maximum rows sampled together

    Attributes
    ----------
    buffers : name → present buffer
    rows, changes : capacity in rows, and in changed scores per row
    """

    def __init__(self, context: GpuContext, width: int, most: int) -> None:
        self._context = context
        self._width = width
        self._most = most
        self._stride = 4 * ceil_div(width, 4)
        self.buffers: dict[str, Any] = {}
        self.rows = self.changes = 0

    def plan(self, chooser: TokenSampler | None) -> NDArray[np.uint32] | None:
        """Return the sampling plan of a row, argmax without a chooser; None if it is left to the host."""
        if chooser is None:
            return np.zeros(12, np.uint32)
        return token_draw.plan(
            temperature=chooser.temperature,
            top_k=chooser.top_k,
            top_p=chooser.top_p,
            min_p=chooser.min_p,
            width=self._width,
        )

    def host_row(self) -> DrawnRow:
        """Return a row whose logits are always left to the host."""
        plan = np.zeros(12, np.uint32)
        plan[0] = token_draw.WITHHELD
        return DrawnRow(plan, None)

    def supports_loop(self, chooser: TokenSampler | None) -> bool:
        """Whether a decoding loop contains such rows: changes of scores depend on tokens still in flight."""
        return (chooser is None or not chooser.adjusted) and self.plan(chooser) is not None

    def row(self, chooser: TokenSampler | None) -> DrawnRow:
        """Return a row of a decoding loop.

        Raises
        ------
        UnsupportedError : only the host can sample it
        """
        plan = self.plan(chooser)
        if plan is None or not self.supports_loop(chooser):
            raise UnsupportedError("the GPU cannot sample with these parameters", hint="sample on the host from logits")
        return DrawnRow(plan, chooser)

    def row_of_call(self, chooser: TokenSampler | None) -> DrawnRow:
        """Return a row of a single call, left to the host if only that can sample it."""
        plan = self.plan(chooser)
        if plan is None:
            return self.host_row()
        if chooser is None or not chooser.adjusted:
            return DrawnRow(plan, chooser)
        adjustments = chooser.adjustments()
        if adjustments.ids.size and (
            int(adjustments.ids.max()) >= self._width or not np.isfinite(adjustments.bias).all()
        ):
            return self.host_row()
        plan = plan.copy()
        plan[0] |= token_draw.ADJUSTED
        plan[11] = np.float32(adjustments.repetition).view(np.uint32)
        changes = np.zeros((adjustments.ids.size, 4), np.uint32)
        changes[:, 0] = adjustments.ids.astype(np.uint32) | np.where(
            adjustments.recent, np.uint32(token_draw.RECENT), np.uint32(0)
        )
        changes[:, 1], changes[:, 2] = adjustments.bias.view(np.uint32), adjustments.less.view(np.uint32)
        return DrawnRow(plan, chooser, changes)

    def make(self, rows: int, changes: int = 0) -> None:
        """Make room for so many rows and changes; replaces the buffers."""
        self.close()
        rows = min(power_of_two(rows), self._most)
        changes = power_of_two(max(changes, 1))
        words = {
            "plans": token_draw.TABLE_WORDS + rows * token_draw.ROW_WORDS,
            "binned": 2 * rows * token_draw.GROUPS * token_draw.BINS,
            "cuts": 4 * rows,
            "sums": 2 * rows * token_draw.GROUPS,
            "doubtful": rows * self._stride,
            "changes": 4 * changes,
        }
        self.buffers = {name: self._context.buffer(4 * count, f"drawing: {name}") for name, count in words.items()}
        self._context.write(self.buffers["plans"], token_draw.table())
        self.rows, self.changes = rows, changes

    def close(self) -> None:
        """Free the buffers."""
        for buffer in self.buffers.values():
            self._context.free(buffer)
        self.buffers = {}
        self.changes: int
        self.rows: int
        self.rows = self.changes = 0

    def write_rows(self, rows: Sequence[DrawnRow]) -> None:
        """Write the sampling plans of rows, their next random numbers, and the changes of scores."""
        words = np.zeros((len(rows), token_draw.ROW_WORDS), np.uint32)
        first = 0
        for place, row in enumerate(rows):
            words[place, :12] = row.plan
            words[place, 12:] = row.ring.reshape(-1)
            words[place, 9:11] = first, len(row.changes)
            first += len(row.changes)
        if first:
            self._context.write(self.buffers["changes"], np.concatenate([row.changes for row in rows]))
        self._context.write(self.buffers["plans"], words, 4 * token_draw.TABLE_WORDS)

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers."""
        return sum(buffer.size for buffer in self.buffers.values())

    def host_logits(self, rows: Sequence[int]) -> dict[int, F32Array]:
        """Return the logits of ascending rows left to the host; all rows between the first and the last are copied."""
        if not rows:
            return {}
        first, count, stride = rows[0], rows[-1] - rows[0] + 1, 4 * self._stride
        data = self._context.read(self.buffers["doubtful"], count * stride, first * stride)
        logits = data.view(np.float32).reshape(count, -1)
        return {row: logits[row - first, : self._width] for row in rows}


class DrawnRow:
    """A row of a decoding loop: its sampling plan, and its random numbers in GPU layout.

    Parameters
    ----------
    plan : see `volumetric.devices.gpu.kernels.token_draw.plan`
    chooser : provides the random numbers; None for argmax
    changes : ``[N, 4]``, changes of scores before the draw, see ``devices/gpu/shaders/drawing/adjust.wgsl``
    """

    def __init__(
        self, plan: NDArray[np.uint32], chooser: TokenSampler | None, changes: NDArray[np.uint32] | None = None
    ) -> None:
        self.plan = plan
        self.chooser = chooser
        self.changes: NDArray[np.uint32] = np.zeros((0, 4), np.uint32) if changes is None else changes
        self.ring: NDArray[np.uint32] = np.zeros((token_draw.NUMBERS, 2), np.uint32)

    def write_random(self, position: int) -> None:
        """Put the next random number where the draw at `position` reads it."""
        if self.chooser is not None:
            self.ring[position % token_draw.NUMBERS] = token_draw.numbers(self.chooser.next_randoms(1))[0]

    def write_randoms(self, position: int) -> None:
        """Put the next `2 * AHEAD` numbers where draws from `position` on read them."""
        if self.chooser is not None:
            places = (position + np.arange(token_draw.NUMBERS)) % token_draw.NUMBERS
            self.ring[places] = token_draw.numbers(self.chooser.next_randoms(token_draw.NUMBERS))


def draw_kinds(rows: Sequence[DrawnRow]) -> Ways | None:
    """Return the launches needed for some rows; None if each takes its argmax."""
    if not any(row.plan.any() for row in rows):
        return None
    by_weight = any(row.plan[0] & token_draw.BY_WEIGHT and not row.plan[4] for row in rows)
    return by_weight, any(row.plan[4] > 0 for row in rows), any(len(row.changes) for row in rows)


def pick_entries(width: int, ways: Ways | None, names: dict[str, str], control: str) -> list[RecordedDispatch]:
    """Launches that set each row's token and position.

    Parameters
    ----------
    ways : kinds of sampling of the rows, see `draw_kinds`; None if each takes its argmax
    names : names of buffers in the recording: x, winners and token
    control : the control block
    """
    named = {**{name: name for name in _NAMES}, **names, "control": control, "ctl": control}

    def launch(dispatch: Dispatch, *used: str) -> RecordedDispatch:
        return entry(dispatch, {name: named[name] for name in used})

    first = launch(elementwise.argmax(width=width, final=False), "x", "winners")
    if ways is None:
        return [first, launch(elementwise.argmax(width=width, final=True), "winners", "token", "control")]
    by_weight, by_count, adjusted = ways
    read = ("x", "winners", "plans")
    entries = [launch(token_draw.adjust(width), "x", "plans", "changes"), first] if adjusted else [first]
    if by_weight or by_count:
        entries.append(launch(token_draw.bins(width), *read, "binned"))
    if by_weight:
        entries.append(launch(token_draw.top_p(width), *read, "binned", "cuts"))
    if by_count:
        entries.append(launch(token_draw.top_k(width), *read, "binned", "cuts", "ctl"))
    entries.append(launch(token_draw.sums(width), *read, "cuts", "sums"))
    entries.append(launch(token_draw.token(width), *read, "sums", "cuts", "token", "doubtful", "control"))
    if adjusted:
        entries.append(launch(token_draw.restore(width), "plans", "changes", "doubtful"))
    return entries
