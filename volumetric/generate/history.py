"""What penalties look at: which tokens came, and how often, in the form that the sampling kernel reads."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


class History:
    """Counts of the tokens of one generation.

    Parameters
    ----------
    window : how many of the last tokens count as recent; below 0, all of them
    prompt : token ids before the first one generated

    Attributes
    ----------
    table : int32 ``[3, room]``: token ids, how often each is among the recent tokens, how often it was generated
    """

    def __init__(self, window: int, prompt: Iterable[int]) -> None:
        self._recent: deque[int] = deque(prompt, maxlen=None if window < 0 else window)
        ids, counts = np.unique(np.fromiter(self._recent, np.int64), return_counts=True)
        self.table: NDArray[np.int32] = np.zeros((3, ids.size + 64), np.int32)
        self.table[:2, : ids.size] = ids, counts
        self._places = {token: place for place, token in enumerate(ids.tolist())}

    def __len__(self) -> int:
        """Different tokens so far: the entries of the table."""
        return len(self._places)

    def add(self, token: int) -> None:
        """Take the next generated token."""
        recent = self._recent
        if recent.maxlen is not None and recent.maxlen == len(recent) > 0:
            self.table[1, self._places[recent[0]]] -= 1
        recent.append(token)
        place = self._place(token)
        self.table[1, place] += recent.maxlen != 0
        self.table[2, place] += 1

    def _place(self, token: int) -> int:
        place = self._places.setdefault(token, len(self._places))
        if place == self.table.shape[1]:
            self.table = np.concatenate((self.table, np.zeros_like(self.table)), axis=1)
        self.table[0, place] = token
        return place
