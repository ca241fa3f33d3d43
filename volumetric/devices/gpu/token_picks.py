"""Tokens sampled from the last rows of sequences in a call, on the GPU if it can."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from volumetric.base.errors import GenerationError
from volumetric.devices.gpu.draw_plans import UNCERTAIN, DrawnRow, DrawPlans
from volumetric.devices.gpu.token_loop import UNUSABLE
from volumetric.run.call_batch import CheckedRows, RowSpan
from volumetric.run.logits import unusable_logits_error

if TYPE_CHECKING:
    from volumetric.run.device import TokenSampler

Wanted: TypeAlias = "TokenSampler | Literal['logits'] | None"
Picked: TypeAlias = "int | NDArray[np.float32] | GenerationError | None"


class TokenPicks:
    """Sampling results for the sequences of one call of an executable.

    Parameters
    ----------
    drawing : of the executable
    parts, choosers : see `volumetric.run.device.TokenSampling.sample`

    Attributes
    ----------
    tokens : results of each sequence so far
    """

    def __init__(self, drawing: DrawPlans, parts: Sequence[CheckedRows], choosers: Sequence[Wanted]) -> None:
        self._drawing = drawing
        self._parts = parts
        self._rows = [
            self._row(chooser) if part.output_rows == "last" else None
            for part, chooser in zip(parts, choosers, strict=True)
        ]
        self._order: deque[tuple[int, DrawnRow]] = deque()
        self.tokens: list[Picked] = [None] * len(parts)

    @property
    def changes(self) -> int:
        """Maximum number of scores changed before the draws."""
        return sum(len(row.changes) for row in self._rows if row is not None)

    def ends(self, spans: Sequence[RowSpan]) -> list[DrawnRow | None]:
        """Return for each row of a call how its token is sampled, if requested; call it before the states advance."""
        rows: list[DrawnRow | None] = []
        for span in spans:
            rows += [None] * len(span)
            part = self._parts[span.sequence]
            row = self._rows[span.sequence]
            if row is not None and span.stop == len(part):
                rows[-1] = row
                row.write_random(part.state.position + len(span) - 1)
                self._order.append((span.sequence, row))
        return rows

    def add_codes(self, codes: Sequence[int]) -> None:
        """Store the codes of the next requested rows."""
        left = self._drawing.host_logits([place for place, code in enumerate(codes) if code == UNCERTAIN])
        for place, code in enumerate(codes):
            piece, row = self._order.popleft()
            if code in UNUSABLE:
                self.tokens[piece] = unusable_logits_error(UNUSABLE[code], sequence=piece)
            elif code == UNCERTAIN:
                self.tokens[piece] = left[place]
            else:
                self.tokens[piece] = code
                if row.chooser is not None:
                    row.chooser.record_token(code)

    def _row(self, chooser: Wanted) -> DrawnRow:
        return self._drawing.host_row() if chooser == "logits" else self._drawing.row_of_call(chooser)
