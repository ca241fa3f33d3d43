"""Rates of this engine and of a peer, round by round, and the table of them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.timing import spread

Measure = Callable[[], float]
"""Returns a rate, after everything that it asked of the device is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One line of the table.

    Attributes
    ----------
    what : the model and what it does
    unit : of the rates, such as ``"tok/s"``
    ours : rate of each round
    peer : form of the peer → rate of each round; empty without the peer. The best form counts
    """

    what: str
    unit: str
    ours: list[float] = field(default_factory=list)
    peer: dict[str, list[float]] = field(default_factory=dict)

    @property
    def best(self) -> str | None:
        """The form of the peer with the highest median."""
        return max(self.peer, key=lambda form: statistics.median(self.peer[form]), default=None)

    @property
    def ratio(self) -> float | None:
        """Median of the rounds' ratios, ours over the peer's best form."""
        if self.best is None:
            return None
        return statistics.median(mine / other for mine, other in zip(self.ours, self.peer[self.best], strict=True))

    def cells(self) -> list[str]:
        """Return the cells of the line."""
        digits = ",.1f" if statistics.median(self.ours) < 100 else ",.0f"
        if self.best is None or self.ratio is None:
            return [self.what, self.unit, spread(self.ours, digits), "-", "-"]
        form = f" {self.best}" if self.best else ""
        theirs = spread(self.peer[self.best], digits) + form
        return [self.what, self.unit, spread(self.ours, digits), theirs, f"{self.ratio:.2f}"]

    def values(self) -> dict[str, Any]:
        """Return all that it says, for files."""
        return {"what": self.what, "unit": self.unit, "ours": self.ours, "peer": self.peer, "ratio": self.ratio}


def compare(what: str, unit: str, ours: Measure, peer: Mapping[str, Measure], rounds: int) -> Comparison:
    """Measure in turn, `rounds` times after one that does not count; print the line and return it."""
    row = Comparison(what=what, unit=unit, peer={form: [] for form in peer})
    for number in range(rounds + 1):
        rates = {form: measure() for form, measure in peer.items()}
        rate = ours()
        if number:
            row.ours.append(rate)
            for form, value in rates.items():
                row.peer[form].append(value)
    others = [f"{form} {statistics.median(rates):,.1f}" for form, rates in row.peer.items() if form != row.best]
    print("  ".join([*row.cells(), *others]), flush=True)
    return row


def table(rows: Sequence[Comparison], peer: str) -> str:
    """Return the lines as a Markdown table: medians with the least and the greatest."""
    head = ["", "unit", "volumetric", peer, "ratio"]
    lines: Iterable[list[str]] = ([*head], ["---"] * len(head), *(row.cells() for row in rows))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
