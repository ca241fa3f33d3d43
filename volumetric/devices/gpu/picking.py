"""Tokens sampled from the last rows of sequences in a call, on the GPU if it can."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from volumetric.base.errors import GenerationError
from volumetric.devices.gpu.decoding import UNUSABLE
from volumetric.devices.gpu.drawing import UNCERTAIN, Drawing, DrawnRow
from volumetric.run.batch import Part, Span
from volumetric.run.logits import unusable

if TYPE_CHECKING:
    from volumetric.run.device import Chooser

Wanted: TypeAlias = "Chooser | Literal['logits'] | None"
Picked: TypeAlias = "int | NDArray[np.float32] | GenerationError | None"


class Picks:
    """Sampling results for the sequences of one call of an executable.

    Parameters
    ----------
    drawing : of the executable
    parts, choosers : see `volumetric.run.device.Drawing.pick`

    Attributes
    ----------
    picked : results of each sequence so far
    """

    def __init__(self, drawing: Drawing, parts: Sequence[Part], choosers: Sequence[Wanted]) -> None:
        self._drawing = drawing
        self._parts = parts
        self._rows = [
            self._row(chooser) if part.wanted == "last" else None for part, chooser in zip(parts, choosers, strict=True)
        ]
        self._order: deque[tuple[int, DrawnRow]] = deque()
        self.picked: list[Picked] = [None] * len(parts)

    @property
    def changes(self) -> int:
        """Maximum number of scores changed before the draws."""
        return sum(len(row.changes) for row in self._rows if row is not None)

    def ends(self, spans: Sequence[Span]) -> list[DrawnRow | None]:
        """Return for each row of a call how its token is sampled, if requested; call it before the states advance."""
        rows: list[DrawnRow | None] = []
        for span in spans:
            rows += [None] * len(span)
            part = self._parts[span.piece]
            row = self._rows[span.piece]
            if row is not None and span.stop == len(part):
                rows[-1] = row
                row.next_at(part.state.position + len(span) - 1)
                self._order.append((span.piece, row))
        return rows

    def take(self, codes: Sequence[int]) -> None:
        """Store the codes of the next requested rows."""
        left = self._drawing.left([place for place, code in enumerate(codes) if code == UNCERTAIN])
        for place, code in enumerate(codes):
            piece, row = self._order.popleft()
            if code in UNUSABLE:
                self.picked[piece] = unusable(UNUSABLE[code], sequence=piece)
            elif code == UNCERTAIN:
                self.picked[piece] = left[place]
            else:
                self.picked[piece] = code
                if row.chooser is not None:
                    row.chooser.drawn(code)

    def _row(self, chooser: Wanted) -> DrawnRow:
        return self._drawing.withheld() if chooser == "logits" else self._drawing.single(chooser)
