"""Guesses for tests: what a model will say, spoiled here and there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


class Guesses:
    """Guesses that are right with some probability: what the model will say, spoiled here and there."""

    def __init__(self, right: Sequence[int], prompt: int, share: float, seed: int) -> None:
        self._right, self._prompt, self._share = list(right), prompt, share
        self._random = np.random.default_rng(seed)
        self.closed = 0

    def propose(self, ids: Sequence[int], most: int) -> list[int]:
        place = len(ids) - self._prompt
        found = self._right[place : place + int(self._random.integers(0, most + 1))]
        return [token if self._random.random() < self._share else 7 for token in found]

    def close(self) -> None:
        self.closed += 1
