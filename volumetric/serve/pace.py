"""Pace: how far the texts of a request have come, told with each piece of a stream to those who ask for it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from volumetric.generate.events import TokenEvent
from volumetric.serve.told import Told


@dataclass(slots=True)
class Pace:
    """Counts of tokens and times of the texts of one request, by their numbers."""

    _began: float = field(default_factory=time.monotonic)
    _counts: dict[int, int] = field(default_factory=dict)
    _first: dict[int, float] = field(default_factory=dict)

    def count(self, index: int, tokens: Sequence[TokenEvent]) -> None:
        """Take note of tokens of a text."""
        self._counts[index] = self._counts.get(index, 0) + len(tokens)
        self._first.setdefault(index, time.monotonic())

    def usage(self, index: int, size: int) -> Told:
        """Return the tokens of a prompt of `size`, and of its text so far, as vLLM tells them with each piece."""
        made = self._counts.get(index, 0)
        return {"prompt_tokens": size, "completion_tokens": made, "total_tokens": size + made}

    def timings(self, index: int, size: int) -> Told:
        """Return times of a text so far by llama-server's names; those of a prompt have its wait in them."""
        now, made = time.monotonic(), self._counts.get(index, 0)
        first = self._first.get(index, now)
        waited, spent = 1000 * (first - self._began), 1000 * (now - first)
        return {
            "prompt_n": size,
            "prompt_ms": round(waited, 3),
            "prompt_per_second": _rate(size, waited),
            "predicted_n": made,
            "predicted_ms": round(spent, 3),
            "predicted_per_second": _rate(made - 1, spent),
        }


def _rate(count: int, milliseconds: float) -> float:
    return round(1000 * count / milliseconds, 3) if count > 0 and milliseconds > 0 else 0.0
