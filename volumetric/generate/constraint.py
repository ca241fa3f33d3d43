"""Constraints: which tokens may come next, where a text must have a form or may have some tokens alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np

from volumetric.base._typing import F32Array
from volumetric.base.errors import GenerationError


class Constraint(Protocol):
    """The form of one text, and how far the text has come in it."""

    def allow(self, logits: F32Array) -> F32Array:
        """Return logits, float32 ``[V]``, in which tokens that the form does not allow are -inf.

        Raises
        ------
        GenerationError : no form is left: it is too large to be followed
        """
        ...

    def take(self, token: int) -> None:
        """Go on by a token, which the form allows."""
        ...


class Allowed:
    """The tokens that one text may have by their ids: some alone, and none that ends it before it has enough of them.

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
        allowed = (logits if self._form is None else self._form.allow(logits)).copy()
        if self._ids.size:
            ids = self._ids[self._ids < allowed.size]
            chosen, allowed = allowed[ids], np.full_like(allowed, -np.inf)
            allowed[ids] = chosen
        if self._left > 0:
            allowed[self._ends[self._ends < allowed.size]] = -np.inf
        if np.isneginf(allowed).all():
            raise GenerationError(
                "no token is left that may come next",
                hint="allowed_ids and min_tokens leave none beside the form, or the ids that end a text",
            )
        return allowed

    def take(self, token: int) -> None:
        """Go on by a token."""
        self._left -= 1
        if self._form is not None:
            self._form.take(token)
