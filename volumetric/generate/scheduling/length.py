"""How many tokens to guess at once, by how many guesses were right."""

from __future__ import annotations

import math

FIRST, MOST = 4, 16
"""Tokens of a first draft, and of any: two more after one that was right to its end, one less after another."""
_LIKELY, _KEPT, _FORGOTTEN = 0.7, 0.9, 0.01
"""Share of right guesses that is thought of at first, weight of it after a guess, and how much of it comes back."""


class Length:
    """How many tokens to propose in a generation, by how many of those before were right.

    The first draft has 4 tokens; two more are tried after one that was right to its end, up to 16, and one less after
    another. Where guesses have a price, as beside other sequences, only those are made that are likely enough to be
    worth it, by the share of guesses that were right of late.
    """

    def __init__(self) -> None:
        self._most = FIRST
        self._share = _LIKELY

    def most(self, price: float = 0.0) -> int:
        """Return the length of the next draft.

        Parameters
        ----------
        price : what a proposed token costs, as a share of what one is worth that is right
        """
        if price <= 0.0:
            return self._most
        if self._share <= price:
            self._share += _FORGOTTEN * (_LIKELY - self._share)  # it is tried again at times
            return 0
        # The n-th of a draft is right where all before it are, too.
        return min(self._most, int(math.log(price) / math.log(self._share)) if self._share < 1.0 else MOST)

    def count(self, proposed: int, right: int) -> None:
        """Take notice of a draft: of so many tokens, the first ones were right."""
        if not proposed:
            return
        self._most = min(MOST, self._most + 2) if right == proposed else max(1, self._most - 1)
        judged = right + (right < proposed)
        self._share += (1.0 - _KEPT**judged) * (right / judged - self._share)
