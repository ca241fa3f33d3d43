"""Tokens that may come next by their ids: some alone, and none that ends a text before it has enough of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from volumetric._typing import F32Array
from volumetric.errors import GenerationError

if TYPE_CHECKING:
    from volumetric.generate.constraint import Constraint
    from volumetric.generate.params import SamplingParams


class Allowed:
    """The tokens that one text may have.

    Parameters
    ----------
    ids : those that it may have; none stands for all
    ends : those that it may not have among its first `least` tokens
    form : to which it is held as well
    """

    def __init__(self, ids: Iterable[int], ends: Iterable[int], least: int, form: Constraint | None) -> None:
        self._ids = np.array(sorted(set(ids)), np.int64)
        self._ends = np.array(sorted(ends), np.int64)
        self._left = least
        self._form = form

    def allow(self, logits: F32Array) -> F32Array:
        """Return logits in which other tokens are -inf. Raises `GenerationError` where none is left."""
        found = (logits if self._form is None else self._form.allow(logits)).copy()
        if self._ids.size:
            ids = self._ids[self._ids < found.size]
            chosen, found = found[ids], np.full_like(found, -np.inf)
            found[ids] = chosen
        if self._left > 0:
            found[self._ends[self._ends < found.size]] = -np.inf
        if np.isneginf(found).all():
            raise GenerationError(
                "no token is left that may come next",
                hint="allowed_ids and min_tokens leave none beside the form, or the ids that end a text",
            )
        return found

    def take(self, token: int) -> None:
        """Go on by a token."""
        self._left -= 1
        if self._form is not None:
            self._form.take(token)


def constrained(params: SamplingParams, eos_ids: Iterable[int], form: Constraint | None) -> Constraint | None:
    """Return what a text with these parameters is held to, besides a form; None where nothing is asked for."""
    if not params.allowed_ids and not params.min_tokens:
        return form
    return Allowed(params.allowed_ids, params.end_ids(eos_ids), params.min_tokens, form)
