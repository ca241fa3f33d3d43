"""Constraints on the next token: by a grammar, or by a set of allowed tokens."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np

from volumetric.base._typing import F32Array
from volumetric.base.errors import GenerationError


class Constraint(Protocol):
    """A constraint on one text, and its state after the tokens so far."""

    def allow(self, logits: F32Array) -> F32Array:
        """Return logits, float32 ``[V]``, in which forbidden tokens are -inf.

        Raises
        ------
        GenerationError : the constraint has failed, because its grammar is too large
        """
        ...

    def take(self, token: int) -> None:
        """Advance by an allowed token."""
        ...


class AllowedTokens:
    """Constraint of a text to some token ids, and to a least length.

    Parameters
    ----------
    ids : allowed ids; empty: all
    ends : ids that are forbidden among the first `least` tokens
    form : further constraint on the text
    """

    def __init__(self, ids: Iterable[int], ends: Iterable[int], least: int, form: Constraint | None) -> None:
        self._ids = np.array(sorted(set(ids)), np.int64)
        self._ends = np.array(sorted(ends), np.int64)
        self._left = least
        self._form = form

    def allow(self, logits: F32Array) -> F32Array:
        """Return logits in which other tokens are -inf. Raises `GenerationError` if no token is left."""
        allowed = (logits if self._form is None else self._form.allow(logits)).copy()
        if self._ids.size:
            ids = self._ids[self._ids < allowed.size]
            chosen, allowed = allowed[ids], np.full_like(allowed, -np.inf)
            allowed[ids] = chosen
        if self._left > 0:
            allowed[self._ends[self._ends < allowed.size]] = -np.inf
        if np.isneginf(allowed).all():
            raise GenerationError(
                "no allowed token is left",
                hint="allowed_ids, min_tokens and the constraint or the end-of-text ids exclude all tokens",
            )
        return allowed

    def take(self, token: int) -> None:
        """Advance by a token."""
        self._left -= 1
        if self._form is not None:
            self._form.take(token)
