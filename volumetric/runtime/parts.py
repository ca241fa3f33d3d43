"""Pieces of a call as devices take them, and what they are handed back: rows of named outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volumetric._typing import F32Array
from volumetric.network import OUTPUT
from volumetric.runtime.device import Found, Wanted
from volumetric.runtime.plan import Plan


@dataclass(frozen=True, slots=True)
class Span:
    """Rows `start` … `stop` of piece number `piece`."""

    piece: int
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A piece as devices take it.

    Attributes
    ----------
    state, wanted : of the piece
    given : rows by the plan's inputs, in their order and dtypes
    outputs : names of the outputs that are handed back, in the plan's order
    """

    state: Any
    wanted: Wanted
    given: Mapping[str, NDArray[Any]]
    outputs: tuple[str, ...]

    def __len__(self) -> int:
        """Rows."""
        return len(next(iter(self.given.values())))

    @property
    def count(self) -> int:
        """Rows that have outputs."""
        return {"all": len(self), "last": 1, "none": 0}[self.wanted]

    def rows(self, span: Span) -> range:
        """Rows of a span of it that have outputs, by their number in the span."""
        if self.wanted == "all":
            return range(len(span))
        return range(len(span) - (self.wanted == "last" and span.stop == len(self)), len(span))


def handed_back(plan: Plan, part: Part, found: Mapping[str, F32Array]) -> Found:
    """What a piece gets: its outputs by name, or the one that the plan has."""
    if len(plan.outputs) == 1:
        return found[OUTPUT]
    return {name: found[name] for name in part.outputs}


class Handed:
    """What the pieces of a call are handed back, collected from calls of the device over spans of them.

    Attributes
    ----------
    rows : output → rows of all pieces that want it, one behind the other, ``[rows, width]``
    """

    def __init__(self, plan: Plan, parts: Sequence[Part]) -> None:
        self._plan, self._parts = plan, parts
        counts = {name: [part.count if name in part.outputs else 0 for part in parts] for name in plan.outputs}
        self._starts = {name: list(accumulate(rows, initial=0)) for name, rows in counts.items()}
        widths = {name: plan.values[i].width for name, i in plan.outputs.items()}
        self.rows = {name: np.empty((self._starts[name][-1], width), np.float32) for name, width in widths.items()}

    def wanted(self, spans: Sequence[Span]) -> dict[str, list[int]]:
        """Output → those of its rows that are handed back of a call of `spans`, by their number in it, ascending."""
        found: dict[str, list[int]] = {}
        first = 0
        for span in spans:
            part = self._parts[span.piece]
            rows = part.rows(span)
            if rows:
                for name in part.outputs:
                    found.setdefault(name, []).extend(range(first + rows.start, first + rows.stop))
            first += len(span)
        return {name: found[name] for name in self._plan.outputs if name in found}

    def places(self, spans: Sequence[Span], name: str) -> slice | list[int]:
        """Where these rows belong in `rows`; a slice where they follow one another."""
        found: list[int] = []
        for span in spans:
            part, start = self._parts[span.piece], self._starts[name][span.piece]
            if name in part.outputs:
                found += (start + (span.start + i if part.wanted == "all" else 0) for i in part.rows(span))
        return slice(found[0], found[-1] + 1) if found == list(range(found[0], found[-1] + 1)) else found

    def take(self, spans: Sequence[Span], outputs: Mapping[str, NDArray[np.float32]]) -> None:
        """Take over what a call of `spans` made: the rows of `wanted`, in their order."""
        for name, made in outputs.items():
            self.rows[name][self.places(spans, name)] = made.reshape(len(made), -1)

    @property
    def found(self) -> list[Found]:
        """What each piece gets."""
        split = {name: self._split(name) for name in self._plan.outputs}
        return [
            handed_back(self._plan, part, {name: split[name][i] for name in part.outputs})
            for i, part in enumerate(self._parts)
        ]

    def _split(self, name: str) -> list[F32Array]:
        shape = self._plan.values[self._plan.outputs[name]].shape[1:]
        rows = self.rows[name].reshape(-1, *shape)
        return [rows[start:end] for start, end in pairwise(self._starts[name])]


def taken(parts: Sequence[Part], spans: Sequence[Span], name: str) -> NDArray[Any]:
    """Rows of an input that a call of `spans` takes."""
    rows = [parts[span.piece].given[name][span.start : span.stop] for span in spans]
    return rows[0] if len(rows) == 1 else np.concatenate(rows)
